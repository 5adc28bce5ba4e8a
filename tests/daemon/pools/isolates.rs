//! Several databases share the isolates of a few processes: each sees only its own data, whatever the others do.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::daemon::{Client, Service};

/// Answers to check; ten times as many with `SETTEE_LONG`.
const ANSWERS: usize = 100_000;

/// Documents per call.
const DOCS: usize = 100;

/// Leaves a word in everything that outlives a call, and returns the words that it finds there.
const POISON: &str = "function(doc, req) {
    var found = [[].left, /(.)/.left, ''.left, JSON.left, RegExp.$1, RegExp.input, globalThis.left,
        this.left, Object.left, typeof require === 'function' ? require.left : ''].join();
    var word = req.word;
    [Object.prototype, Array.prototype, RegExp.prototype, String.prototype, JSON, globalThis, this, Object]
        .forEach(function(it) { it.left = word; });
    if (typeof require === 'function') require.left = word;
    /(.*)/.test(word);
    try { registerType(word, word); } catch (e) { found += e; }
    log(found);
    (async function() { await null; log(word); })();
    return found;
}";

fn service(settings: &str) -> Service {
    Service::start(&format!(
        "[query_server_config]\nreuse = \"isolates\"\nos_process_limit = 2\n{settings}"
    ))
}

fn ddoc(db: &str) -> Value {
    let map = format!("function(doc) {{ emit(doc._id, '{db}'); }}");
    json!({"_id": "_design/d", "shows": {"s": format!("function(doc) {{ return '{db}' + doc._id; }}"),
        "poison": POISON},
        "views": {"v": {"map": map}},
        "filters": {"f": format!("function(doc) {{ return doc.of === '{db}'; }}")},
        "validate_doc_update": format!("function(doc) {{ throw {{forbidden: '{db}' + doc._id}}; }}")})
}

/// Sends a call, and asserts that its answer names no other database.
fn own(client: &mut Client, db: &str, call: &Value) -> Value {
    client.send(call);
    let line = client.line().expect("a reply before the connection closes");
    for other in ["shop", "till", "yard"]
        .into_iter()
        .filter(|other| *other != db)
    {
        assert!(!line.contains(other), "{db} has {other} in {line}");
    }
    serde_json::from_str(&line).unwrap()
}

/// Calls functions of every kind for a database; returns the number of answers.
fn calls(client: &mut Client, db: &str, round: usize) -> usize {
    let id = |n: usize| format!("x{round}x{n}");
    let docs: Vec<Value> = (0..DOCS).map(|n| json!({"_id": id(n), "of": db})).collect();
    let (ddoc, word) = (ddoc(db), format!("{db}{round}"));
    let call = |mut call: Value| {
        call["db"] = json!(db);
        call
    };
    let map = format!("function(doc) {{ emit(doc._id, '{db}'); }}");
    let mapped = own(
        client,
        db,
        &call(json!({"call": "map_docs", "lang": "javascript", "funs": [map], "docs": docs})),
    );
    for (n, rows) in mapped["ok"]
        .as_array()
        .unwrap_or_else(|| panic!("{mapped}"))
        .iter()
        .enumerate()
    {
        assert_eq!(*rows, json!([[[id(n), db]]]), "{rows}");
    }
    let of_ddoc = |mut it: Value| {
        it["ddoc"] = ddoc.clone();
        call(it)
    };
    let filter = json!({"call": "filter_docs", "name": "f", "docs": docs});
    let kept = own(client, db, &of_ddoc(filter));
    assert_eq!(kept["ok"], json!(vec![true; DOCS]));
    let shown = own(
        client,
        db,
        &of_ddoc(json!({"call": "show", "name": "s", "doc": {"_id": "y"}})),
    );
    assert_eq!(shown["ok"]["body"], format!("{db}y"), "{shown}");
    let validate = json!({"call": "validate_docs", "docs": [{"newDoc": {"_id": "z"}}]});
    let refused = own(client, db, &of_ddoc(validate));
    assert!(refused.to_string().contains(&format!("{db}z")), "{refused}");
    let poison =
        json!({"call": "show", "name": "poison", "doc": {}, "req": {"word": word}, "report": true});
    own(client, db, &of_ddoc(poison));
    2 * DOCS + 3
}

/// Calls a function that exhausts its memory or time, or throws `null`.
fn misbehaves(client: &mut Client, round: usize) {
    let fun = match round % 4 {
        0 => "function(doc) { var all = []; while (true) all.push({a: all.length}); }",
        1 => "function(doc) { var a = 'x'; while (true) a += a; }",
        2 => "function(doc) { throw null; }",
        _ => "function(doc) { while (true) {} }",
    };
    let call = json!({"call": "map_docs", "lang": "javascript", "db": format!("hog{}", round % 3), "funs": [fun],
        "docs": [{"_id": "a"}], "timeout_ms": 300});
    client.call(&call);
}

#[test]
fn no_database_sees_data_of_another_while_isolates_are_evicted_or_killed_or_run_out_of_memory() {
    let factor = if std::env::var_os("SETTEE_LONG").is_some() {
        10
    } else {
        1
    };
    let service = service("isolates_max = 2\n[sandbox]\njavascript_memory_max = \"16MiB\"");
    let (answers, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let hog = scope.spawn(|| {
            let mut client = service.connect();
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                misbehaves(&mut client, round);
            }
        });
        let tenants = ["shop", "till", "yard"].map(|db| {
            let (service, answers) = (&service, &answers);
            scope.spawn(move || {
                let mut client = service.connect();
                for round in 0.. {
                    if answers.load(Ordering::Relaxed) >= ANSWERS * factor {
                        break;
                    }
                    let count = calls(&mut client, db, round);
                    answers.fetch_add(count, Ordering::Relaxed);
                }
            })
        });
        let ended = tenants.map(|tenant| tenant.join());
        is_over.store(true, Ordering::Relaxed);
        hog.join().unwrap();
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    let totals = service.connect().pool("javascript")["totals"].clone();
    let count = |name: &str| totals[name].as_u64().unwrap();
    assert!(count("isolates_evicted") > 10, "{totals}");
    println!("{} answers; {totals}", answers.load(Ordering::Relaxed));
    service.stop();
}

#[test]
fn one_process_serves_many_databases_and_keeps_the_globals_of_each() {
    const SHOW: &str =
        "function(doc, req) { globalThis.count = (globalThis.count || 0) + 1; return '' + count; }";
    let service = service("");
    let mut client = service.connect();
    for round in 1..=3 {
        for db in 0..20 {
            let ddoc = json!({"_id": "_design/d", "shows": {"s": SHOW}});
            let call = json!({"call": "show", "db": format!("db{db}"), "ddoc": ddoc, "name": "s",
                "doc": {"_id": "x"}, "req": {}});
            assert_eq!(client.ok(&call)["body"], round.to_string(), "db{db}");
        }
    }
    let pool = client.pool("javascript");
    assert_eq!(pool["totals"]["started"], 1, "{pool}");
    assert_eq!(pool["totals"]["isolates_made"], 20, "{pool}");
    assert_eq!(pool["procs"][0]["isolates"], 20, "{pool}");
    service.stop();
}

#[test]
fn a_borrower_cannot_select_an_isolate_and_forgets_only_its_own() {
    let service = service("");
    let mut client = service.connect();
    let show = |db: &str| json!({"call": "show", "db": db, "ddoc": ddoc(db), "name": "s", "doc": {"_id": "x"}});
    assert_eq!(client.ok(&show("shop"))["body"], "shopx");
    let proc = client.get_proc("javascript");
    assert_eq!(client.prompt(&proc, json!(["forget", {}])), true);
    assert!(client.ret_proc(&proc));
    assert_eq!(client.ok(&show("shop"))["body"], "shopx");
    let pool = client.pool("javascript");
    assert_eq!(pool["totals"]["isolates_made"], 2, "{pool}");
    let proc = client.get_proc("javascript");
    let select = json!({"call": "prompt", "proc": proc, "data": ["tenant", "", "database:shop"]});
    let refused = client.call(&select);
    assert!(refused.to_string().contains("unknown command"), "{refused}");
    service.stop();
}
