//! Tenants: clients share a command's processes if they name the same database, or are the same user or
//! connection. Limits of a tenant.

use std::time::Instant;

use serde_json::{Value, json};
use settee::client::{Client as LibraryClient, ReturnStatus, TakeFrom};

use super::configuration::rewrite;
use crate::support::daemon::{Client, Service, directory, wait_until};
use crate::support::http_client::Web;
use crate::support::program::run;

/// The default: processes of commands serve one tenant each.
const BY_LANGUAGE: &str = "[query_server_config]\nreuse = \"\"";

/// Borrows a Python process for a moment, and returns its pid.
fn served_by(client: &mut Client, mut arguments: Value) -> u64 {
    arguments["call"] = json!("get_proc");
    arguments["lang"] = json!("python");
    let got = client.ok(&arguments);
    assert!(client.ret_proc(got["proc"].as_str().unwrap()));
    got["os_pid"].as_u64().unwrap()
}

#[test]
fn connections_share_the_processes_of_the_database_that_they_name() {
    let service = Service::start(BY_LANGUAGE);
    let (mut one, mut two) = (service.connect(), service.connect());
    let of_shop = served_by(&mut one, json!({"db": "shop"}));
    assert_eq!(served_by(&mut two, json!({"db": "shop"})), of_shop);
    let others = [
        served_by(&mut two, json!({"db": "crm"})),
        served_by(&mut two, json!({})),
        served_by(&mut one, json!({})),
    ];
    for (at, other) in others.iter().enumerate() {
        assert_ne!(*other, of_shop);
        assert!(!others[..at].contains(other), "{others:?}");
    }
    assert_eq!(served_by(&mut one, json!({})), others[2]);
    service.stop();
}

#[test]
fn the_processes_of_a_connection_end_with_it() {
    let service = Service::start(BY_LANGUAGE);
    let mut one = service.connect();
    served_by(&mut one, json!({}));
    drop(one);
    let mut two = service.connect();
    two.wait_for_pool("python", &[("free", 0), ("used", 0), ("stopping", 0)]);
    service.stop();
}

#[test]
fn attached_clients_of_one_user_share_processes_unless_they_name_databases() {
    let service = Service::start(BY_LANGUAGE);
    let mut watching = service.connect();
    let mut processes_after = |arguments: &[&str]| {
        let mut command = vec!["attach", "--language", "python"];
        command.extend(arguments);
        let output = run(&mut service.client(&command), b"[\"echo\",1]\n");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        watching.wait_for_pool("python", &[("used", 0)]);
        watching.pool("python")["free"].as_u64()
    };
    assert_eq!(processes_after(&[]), Some(1));
    assert_eq!(processes_after(&[]), Some(1), "one user");
    assert_eq!(processes_after(&["--db", "shop"]), Some(2));
    assert_eq!(processes_after(&["--db", "shop"]), Some(2), "one database");
    assert_eq!(processes_after(&["--db", "crm"]), Some(3));
    service.stop();
}

#[tokio::test]
async fn the_client_library_can_name_a_database() {
    let service = Service::start(BY_LANGUAGE);
    let mut pids = Vec::new();
    for db in ["shop", "shop", "crm"] {
        let client = LibraryClient::connect(service.socket()).await.unwrap();
        let from = TakeFrom::Language("python").for_db(db);
        let proc = client.get_proc_from(from, None).await.unwrap();
        let ok = ReturnStatus::Ok;
        assert!(client.ret_proc(&proc.proc, ok).await.unwrap());
        pids.push(proc.os_pid.unwrap());
    }
    assert_eq!(pids[0], pids[1]);
    assert_ne!(pids[1], pids[2]);
    service.stop();
}

/// Takes a process for a database, or without one, and sends no `reset`.
fn take(client: &mut Client, lang: &str, db: Option<&str>) -> String {
    let mut get = json!({"call": "get_proc", "lang": lang});
    if let Some(db) = db {
        get["db"] = json!(db);
    }
    let got = client.ok(&get);
    got["proc"].as_str().unwrap().to_owned()
}

/// Emits the ids of all documents that it was ever called with.
const COLLECTS: &str = "function(doc) { globalThis.seen = (globalThis.seen || []).concat(doc._id); \
                        emit(globalThis.seen, null); }";

#[test]
fn a_function_left_behind_by_a_holder_never_sees_a_document_of_the_next() {
    let (one, other) = (Some("a"), Some("b"));
    // Holders for two databases, for a database and none, for none, and for the same database.
    for (first, second, same) in [
        (one, other, false),
        (one, None, false),
        (None, one, false),
        (None, None, false),
        (one, one, true),
    ] {
        let service = Service::start("[pools.javascript]\nmax = 1");
        let (mut a, mut b) = (service.connect(), service.connect());
        let proc = take(&mut a, "javascript", first);
        a.prompt(&proc, json!(["reset", {}]));
        assert_eq!(a.prompt(&proc, json!(["add_fun", COLLECTS])), json!(true));
        let mapped = a.prompt(&proc, json!(["map_doc", {"_id": "mine"}]));
        assert_eq!(mapped, json!([[[["mine"], null]]]));
        assert!(a.ret_proc(&proc));

        let proc = take(&mut b, "javascript", second);
        let seen = b.prompt(&proc, json!(["map_doc", {"_id": "secret"}]));
        assert_eq!(seen, json!([]), "{first:?}, {second:?}");
        assert!(b.ret_proc(&proc));

        let proc = take(&mut a, "javascript", first);
        let back = a.prompt(&proc, json!(["map_doc", {"_id": "mine"}]));
        assert_eq!(back, json!([]), "{first:?}, {second:?}");
        assert!(a.ret_proc(&proc));
        let totals = a.pool("javascript")["totals"].clone();
        let expected = (json!(1), json!(if same { 0 } else { 2 }));
        assert_eq!(
            (&totals["started"], &totals["forgot"]),
            (&expected.0, &expected.1)
        );
        service.stop();
    }
}

/// Records every line that it is sent.
const NOTES: &str = r#"
while IFS= read -r line; do
  printf '%s\n' "$line" >> "$0.lines"
  case $line in
    '["reset"'*) echo true ;;
    *) printf '%s\n' "$line" ;;
  esac
done
"#;

#[test]
fn a_process_that_cannot_forget_is_reset_before_the_first_line_of_a_new_holder() {
    for reuse in ["any", "database"] {
        let directory = directory();
        let script = directory.path().join("notes.sh");
        std::fs::write(&script, NOTES).unwrap();
        let service = Service::start_in(
            directory,
            &format!(
                "[query_server_config]\nreuse = \"{reuse}\"\n[query_servers]\nnotes = \"sh {}\"\n\
                 [pools.notes]\nmax = 1\n",
                script.display()
            ),
        );
        let (mut a, mut b) = (service.connect(), service.connect());
        // Shared processes are lent to any client, others only to one of the same database.
        let next = if reuse == "any" { "b" } else { "a" };
        let turn = |client: &mut Client, db: &str, lines: &[Value]| {
            let proc = take(client, "notes", Some(db));
            for line in lines {
                client.prompt(&proc, line.clone());
            }
            assert!(client.ret_proc(&proc));
        };
        turn(&mut a, "a", &[json!(["add_fun", "left"])]);
        turn(&mut a, "a", &[json!(["map_doc", {"_id": "its own"}])]);
        turn(&mut b, next, &[]);
        turn(
            &mut b,
            next,
            &[
                json!(["map_doc", {"_id": "secret"}]),
                json!(["map_doc", {"_id": 2}]),
            ],
        );
        turn(
            &mut a,
            "a",
            &[json!(["reset", {"a": 1}]), json!(["map_doc", {"_id": 3}])],
        );
        let lines = std::fs::read_to_string(script.with_extension("sh.lines")).unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        let reset = lines[0];
        assert!(reset.starts_with(r#"["reset",{"#), "at the start: {reset}");
        let expected = [
            reset,
            r#"["add_fun","left"]"#,
            r#"["map_doc",{"_id":"its own"}]"#,
            reset,
            r#"["map_doc",{"_id":"secret"}]"#,
            r#"["map_doc",{"_id":2}]"#,
            // The process may refuse the holder's own `reset`.
            reset,
            r#"["reset",{"a":1}]"#,
            r#"["map_doc",{"_id":3}]"#,
        ];
        assert_eq!(lines, expected, "{reuse}");
        service.stop();
    }
}

/// A pool of four processes; a database may use two, and each of `bi*` may have 18 waiting calls.
const BOUNDS: &str = "[pools.javascript]\nmax = 4\n[tenants.\"*\"]\nprocesses_max = 2\nqueue_max = 100\n\
                      [tenants.\"bi*\"]\nqueue_max = 18\n";

/// A call of a function for a database.
fn map_of(db: &str, fun: &str) -> Value {
    json!({"id": 1, "call": "map_docs", "lang": "javascript", "db": db, "funs": [fun],
        "docs": [{"_id": "a"}], "timeout_ms": 100_000})
}

#[test]
fn endless_loops_of_a_database_use_only_its_bound_and_others_are_served() {
    let service = Service::start(BOUNDS);
    let mut big = service.connect();
    let endless = map_of("big", "function(doc) { while (true) {} }");
    for _ in 0..20 {
        big.send(&endless);
    }
    let mut small = service.connect();
    small.wait_for_pool("javascript", &[("used", 2), ("waiting", 18)]);
    for number in 0..10 {
        let rows = small.ok(&map_of(
            &format!("small{number}"),
            "function(doc) { emit(1, 2) }",
        ));
        assert_eq!(rows, json!([[[[1, 2]]]]));
    }
    small.wait_for_pool("javascript", &[("used", 2), ("waiting", 18)]);

    // One more call is refused at once; a request that times out names the bound.
    let error = small.error(&endless);
    assert_eq!(error["name"], "tenant_busy", "{error}");
    assert_eq!(
        (&error["retry"], &error["retry_after_ms"]),
        (&json!(true), &json!(1000))
    );
    let reason = error["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("the database 'big' has as many waiting calls as it may have")
            && reason.contains("[tenants.\"bi*\"] queue_max"),
        "{reason}"
    );
    rewrite(
        &service,
        &BOUNDS.replace("queue_max = 18", "queue_max = 19"),
    );
    small.operator.reload_config();
    let mut brief = endless.clone();
    brief["timeout_ms"] = json!(50);
    let error = small.error(&brief);
    assert_eq!(error["name"], "timeout", "{error}");
    let reason = error["reason"].as_str().unwrap();
    assert!(
        reason.contains("raise [tenants.\"*\"] processes_max"),
        "{reason}"
    );

    // A reload raises the bound; without one, the pool is the only limit.
    rewrite(
        &service,
        &BOUNDS.replace("processes_max = 2", "processes_max = 3"),
    );
    small.operator.reload_config();
    small.wait_for_pool("javascript", &[("used", 3), ("waiting", 17)]);
    rewrite(&service, "[pools.javascript]\nmax = 4\n");
    small.operator.reload_config();
    small.wait_for_pool("javascript", &[("used", 4), ("waiting", 16)]);
    drop(big);
    small.wait_for_pool("javascript", &[("used", 0), ("waiting", 0)]);
    service.stop();
}

#[test]
fn bounds_for_all_databases_by_pattern_and_by_name_change_while_calls_wait() {
    let web = Web::start("[pools.javascript]\nmax = 4\n");
    let bound = |method: &str, section: &str, key: &str, value: &str| {
        let path = format!("/_node/_local/_config/tenants.{section}/{key}");
        web.send(method, &path, &format!("\"{value}\"")).ok()
    };
    assert_eq!(bound("PUT", "*", "processes_max", "1"), "");
    let mut client = web.service.connect();
    let mut big = web.service.connect();
    let endless = map_of("big/eu", "function(doc) { while (true) {} }");
    for _ in 0..10 {
        big.send(&endless);
    }
    client.wait_for_pool("javascript", &[("used", 1), ("waiting", 9)]);
    bound("PUT", "bi*", "processes_max", "2");
    client.wait_for_pool("javascript", &[("used", 2), ("waiting", 8)]);
    bound("PUT", "big%2Feu", "processes_max", "3");
    client.wait_for_pool("javascript", &[("used", 3), ("waiting", 7)]);
    assert_eq!(bound("PUT", "big%2Feu", "processes_max", "4"), "3");
    client.wait_for_pool("javascript", &[("used", 4), ("waiting", 6)]);
    bound("PUT", "big%2Feu", "queue_max", "6");
    let error = client.error(&endless);
    assert_eq!(error["name"], "tenant_busy", "{error}");
    // A deleted value falls back to the pattern's, and what was set survives a reload.
    bound("DELETE", "big%2Feu", "queue_max", "");
    bound("DELETE", "big%2Feu", "processes_max", "");
    client.operator.reload_config();
    let section = web.get("/_node/_local/_config/tenants.bi*").ok();
    assert_eq!(section, json!({"processes_max": "2"}));
    drop(big);
    client.wait_for_pool("javascript", &[("used", 0), ("waiting", 0)]);
    let mut again = web.service.connect();
    for _ in 0..4 {
        again.send(&endless);
    }
    client.wait_for_pool("javascript", &[("used", 2), ("waiting", 2)]);
    drop(again);
    client.wait_for_pool("javascript", &[("used", 0), ("waiting", 0)]);
    web.service.stop();
}

#[test]
fn a_database_with_its_own_queue_takes_no_place_in_the_pools_queue() {
    let config = "[pools.javascript]\nmax = 1\nqueue_max = 1\n[tenants.big]\nqueue_max = 3\n";
    let web = Web::start(config);
    let (mut big, mut small) = (web.service.connect(), web.service.connect());
    let endless = map_of("big", "function(doc) { while (true) {} }");
    for _ in 0..4 {
        big.send(&endless);
    }
    let mut client = web.service.connect();
    client.wait_for_pool("javascript", &[("used", 1), ("waiting", 3)]);
    let error = client.error(&endless);
    assert_eq!(
        (&error["name"], &error["retry_after_ms"]),
        (&json!("tenant_busy"), &json!(1000))
    );
    let reason = error["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("the database 'big' has as many waiting calls as it may have")
            && reason.contains("[tenants.\"big\"] queue_max"),
        "{reason}"
    );
    let of_others = map_of("small", "function(doc) {}");
    small.send(&of_others);
    client.wait_for_pool("javascript", &[("waiting", 4)]);
    assert_eq!(client.error(&of_others)["name"], "pool_busy");
    let path = "/_node/_local/_config/tenants.big/queue_max";
    web.send("PUT", path, "\"4\"").ok();
    big.send(&endless);
    client.wait_for_pool("javascript", &[("waiting", 5)]);
    assert_eq!(client.error(&endless)["name"], "tenant_busy");
    drop(big);
    drop(small);
    client.wait_for_pool("javascript", &[("used", 0), ("waiting", 0)]);
    web.service.stop();
}

/// A call that takes some milliseconds of processor time, and reports how much.
fn busy_call(db: &str, timeout_ms: u64) -> Value {
    let mut call = map_of(db, "function(doc) { for (var i = 0; i < 300000; i++) {} }");
    call["timeout_ms"] = json!(timeout_ms);
    call["report"] = json!(true);
    call
}

#[test]
fn a_loop_of_short_calls_is_limited_to_its_cpu_share_and_others_are_served() {
    // 600 ms of processor time at first, and then 10 ms per second.
    let web = Web::start("[tenants.\"bus*\"]\ncpu_share = 0.01\n");
    let (mut busy, mut small) = (web.service.connect(), web.service.connect());
    let since = Instant::now();
    let mut costs = Vec::new();
    let mut reason = Value::Null;
    wait_until("refusal of the busy database", || {
        let reply = busy.call(&busy_call("busy", 200));
        if let Some(cpu_us) = reply["cost"]["cpu_us"].as_u64() {
            costs.push(cpu_us);
        }
        small.ok(&map_of("small", "function(doc) {}"));
        reason = reply["error"].clone();
        !reason.is_null()
    });
    let elapsed_us = since.elapsed().as_micros() as u64;
    assert_eq!(reason["name"], "timeout", "{reason}");
    assert!(reason["retry_after_ms"].as_u64() > Some(0), "{reason}");
    let words = reason["reason"].as_str().unwrap();
    assert!(words.contains("[tenants.\"bus*\"] cpu_share"), "{words}");
    // A database below its share gets a process, whatever the call costs.
    let before_the_last: u64 = costs[..costs.len() - 1].iter().sum();
    assert!(
        before_the_last <= 600_000 + elapsed_us / 100,
        "{costs:?} in {elapsed_us} us"
    );
    // It is served again once its share has made up for what it has used.
    assert!(busy.call(&busy_call("busy", 100_000)).get("ok").is_some());
    busy.ok(&json!({"id": 1, "call": "get_proc", "lang": "javascript", "db": "busy", "timeout_ms": 100_000}));
    web.service.stop();
}

#[test]
fn an_endless_loop_is_charged_for_the_time_until_it_is_killed() {
    // 60 ms of processor time at first, and then 1 ms per second.
    let config = "[pools.javascript]\nmax = 2\n[tenants.endless]\ncpu_share = 0.001\n";
    let web = Web::start(config);
    let mut client = web.service.connect();
    let mut endless = map_of("endless", "function(doc) { while (true) {} }");
    endless["timeout_ms"] = json!(1000);
    let error = client.error(&endless);
    assert_eq!(error["fault"], "function", "{error}");
    endless["timeout_ms"] = json!(50);
    let error = client.error(&endless);
    let words = error["reason"].as_str().unwrap();
    assert!(words.contains("[tenants.\"endless\"] cpu_share"), "{error}");
    assert!(error["retry_after_ms"].as_u64() > Some(0), "{error}");
    // `/_tenants` reports the same time.
    let costs = web.get("/_tenants").ok();
    let cpu_us = costs["tenants"][0]["cpu_us"].as_u64();
    assert!(cpu_us > Some(60_000), "{costs}");
    // A larger share takes effect at once.
    let mut waiting = web.service.connect();
    let mut brief = map_of("endless", "function(doc) { emit(1, 2) }");
    brief["timeout_ms"] = json!(100_000);
    waiting.send(&brief);
    client.wait_for_pool("javascript", &[("used", 0), ("waiting", 1)]);
    let path = "/_node/_local/_config/tenants.endless/cpu_share";
    assert_eq!(web.send("PUT", path, "\"2\"").ok(), "0.001");
    assert_eq!(waiting.reply()["ok"], json!([[[[1, 2]]]]));
    web.send("DELETE", path, "").ok();
    client.ok(&brief);
    web.service.stop();
}

#[test]
fn a_function_is_bounded_by_its_databases_timeout_and_the_error_names_the_key() {
    let web = Web::start("[tenants.\"*\"]\ntimeout = 60000\n[tenants.\"big*\"]\ntimeout = 250\n");
    let mut client = web.service.connect();
    let endless = "function(doc) { while (true) {} }";
    let error = client.error(&map_of("big/eu", endless));
    assert_eq!(
        (&error["name"], &error["fault"]),
        (&json!("timeout"), &json!("function"))
    );
    assert_eq!(error["limit_ms"], 250, "{error}");
    let reason = error["reason"].as_str().unwrap();
    assert!(
        reason.contains("the limit is that of its database, [tenants.\"big*\"] timeout"),
        "{reason}"
    );
    // A shorter timeout of the call still applies.
    for (db, limit) in [("big/eu", 100), ("small", 300)] {
        let mut call = map_of(db, endless);
        call["timeout_ms"] = json!(limit);
        let error = client.error(&call);
        assert_eq!(error["limit_ms"], limit, "{error}");
        let reason = error["reason"].as_str().unwrap();
        assert!(reason.contains("timeout_ms of the call"), "{reason}");
    }
    let path = "/_node/_local/_config/tenants.big%2Feu/timeout";
    web.send("PUT", path, "\"150\"").ok();
    let error = client.error(&map_of("big/eu", endless));
    assert_eq!(error["limit_ms"], 150, "{error}");
    let reason = error["reason"].as_str().unwrap();
    assert!(reason.contains("[tenants.\"big/eu\"] timeout"), "{reason}");
    web.service.stop();
}
