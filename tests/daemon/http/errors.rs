//! The table in docs/errors.md: each error is provoked, and has the documented code, fault and retry.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::daemon::{Order, wait_until};
use crate::support::http_client::Web;
use crate::support::program::SETTEE;
use crate::support::work::Work;

/// Rows of the table: name, code or 0, fault, retry.
type Row = (String, u16, String, bool);

fn documented() -> Vec<Row> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("## Errors\n").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<String> = row
            .trim_matches('|')
            .split(" | ")
            .map(|cell| cell.replace('`', ""))
            .collect();
        let cell = |index: usize| cells[index].trim().to_owned();
        let code = match cell(1).as_str() {
            "-" => 0,
            code => code.parse().unwrap(),
        };
        (cell(0), code, cell(2), cell(3) == "yes")
    })
    .collect()
}

/// Returns the row of a received error, whose name is in the member `name`.
fn told(name: &str, code: u16, error: &Value) -> Row {
    let text = |member: &str| {
        let text = error[member].as_str();
        text.unwrap_or_else(|| panic!("{error}")).to_owned()
    };
    let retry = error["retry"].as_bool().unwrap();
    (text(name), code, text("fault"), retry)
}

/// Configures misbehaving query servers and small pools.
fn config(work: &Work) -> String {
    let script = |name: &str, cases: &str| {
        let text =
            format!("while read -r line; do case $line in {cases} *) echo true;; esac; done");
        format!("{name} = \"sh {}\"\n", work.file(name, text))
    };
    let servers = [
        script(
            "plain",
            "*ddoc*) echo '[\"error\",\"unknown_command\",\"ddoc\"]';;",
        ),
        script("dies", "*map_doc*) exit 3;;"),
        script("odd", "*map_doc*) echo 7;;"),
        script("mute", "*reset*) read -r more;;"),
        "missing = \"/nonexistent/server\"\n".to_owned(),
        format!("brief = \"{SETTEE} couchjs --line-max 10000\"\n"),
    ];
    let pools = "[pools.tight]\nlanguage = \"javascript\"\nmax = 1\nqueue_max = 1\n\
                 [pools.last]\nlanguage = \"javascript\"\nmax = 1\n\
                 [tenants.bounded]\nprocesses_max = 1\nqueue_max = 1\n\
                 [pools.broken]\nlanguage = \"missing\"\nmax = 1\n";
    format!("[query_servers]\n{}{pools}", servers.concat())
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn each_documented_error_has_its_code_fault_and_retry() {
    let work = Work::new();
    let web = Web::start(&config(&work));
    let mut provoked = Vec::new();
    let mut provoke = |name: &str, body: Value| {
        let answer = web.send("POST", &format!("/_query/{name}"), &body.to_string());
        provoked.push(told("error", answer.status, &answer.json()));
    };
    let map = |language: &str, source: &str| json!({"db": "d", "lang": language, "funs": [source], "docs": [{"_id": "a"}], "timeout_ms": 3000});
    let show = |source: &str| json!({"db": "d", "ddoc": {"_id": "_design/d", "shows": {"s": source}}, "name": "s", "timeout_ms": 20000});
    let patient = |mut body: Value| {
        body["timeout_ms"] = json!(20000);
        body
    };
    provoke("map", json!({"lang": "javascript", "docs": []}));
    let mut none = show("function() {}");
    none["name"] = json!("none");
    provoke("show", none);
    let mut elsewhere = map("javascript", "function(doc) {}");
    elsewhere["pool"] = json!("none");
    provoke("map", elsewhere);
    provoke("map", map("cobol", "f"));
    let mut plain = show("f");
    plain["ddoc"]["language"] = json!("plain");
    provoke("show", plain);
    provoke("map", patient(map("javascript", "function(doc) { emit(")));
    let mango =
        json!({"_id": "_design/d", "language": "query", "validate_doc_update": {"n": {"$gtt": 1}}});
    let validates =
        |ddoc: Value| json!({"db": "d", "ddoc": ddoc, "docs": [{"newDoc": {"_id": "a"}}]});
    provoke("validate", validates(mango));
    provoke("show", show("function() { throw new Error('x') }"));
    let rewrites = json!({"_id": "_design/d", "rewrites": "function() { return {path: 7} }"});
    provoke("rewrite", json!({"db": "d", "ddoc": rewrites}));
    provoke("show", show("function() { return {status: 200} }"));
    let throws = json!({"_id": "_design/d", "validate_doc_update": "function() { throw 'no' }"});
    provoke("validate", validates(throws));
    provoke(
        "reduce",
        json!({"lang": "javascript", "funs": ["_stats"], "rows": [[["k", "a"], "x"]]}),
    );
    let greedy = "function(doc) { var all = []; while (all.length < 100) all.push('x'.repeat(1 << 20) + all.length) }";
    provoke("map", patient(map("javascript", greedy)));
    provoke(
        "map",
        map("javascript", "function(doc) { while (true) {} }"),
    );
    provoke("map", map("mute", "f"));
    let mut client = web.service.connect();
    let held = client.ok(&json!({"id": 1, "call": "get_proc", "pool": "tight"}));
    let mut tight = map("javascript", "function(doc) {}");
    tight["pool"] = json!("tight");
    provoke("map", tight.clone());
    let mut waiter = web.service.connect();
    waiter.send(&json!({"id": 1, "call": "get_proc", "pool": "tight"}));
    wait_until("a waiter", || client.pool("tight")["waiting"] == 1);
    provoke("map", tight);
    drop(waiter);
    assert!(client.ret_proc(held["proc"].as_str().unwrap()));
    let held = client.ok(&json!({"id": 1, "call": "get_proc", "pool": "tight", "db": "bounded"}));
    let mut bounded = map("javascript", "function(doc) {}");
    bounded["db"] = json!("bounded");
    let mut waiter = web.service.connect();
    waiter.send(&json!({"id": 1, "call": "get_proc", "lang": "javascript", "db": "bounded"}));
    wait_until("a waiter", || client.pool("javascript")["waiting"] == 1);
    provoke("map", bounded);
    drop(waiter);
    assert!(client.ret_proc(held["proc"].as_str().unwrap()));
    provoke("map", patient(map("dies", "f")));
    provoke("map", patient(map("missing", "f")));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // The call gets another process if one is killed during its reset: kills until the call ends.
        let killed = || {
            let page = web.get("/_procs").ok();
            let rows = page["procs"].as_array().unwrap();
            for row in rows.iter().filter(|row| row["state"] == "running") {
                let path = format!("/_procs/{}", row["name"].as_str().unwrap());
                web.send("DELETE", &path, "");
            }
            is_over.load(Ordering::Relaxed)
        };
        scope.spawn(move || wait_until("the end of a call that is killed", killed));
        let endless = map("javascript", "function(doc) { while (true) {} }");
        provoke("map", patient(endless));
        is_over.store(true, Ordering::Relaxed);
    });
    let mut broken = patient(map("missing", "f"));
    broken["pool"] = json!("broken");
    let fails = || web.send("POST", "/_query/map", &broken.to_string());
    fails().error(500, "os_process_error");
    wait_until("a throttle, after several failures", || {
        fails().status == 503
    });
    provoke("map", broken);
    provoke("map", patient(map("odd", "f")));
    let row = json!([["k", "a"], "x".repeat(1_000_000)]);
    provoke(
        "reduce",
        json!({"lang": "javascript", "funs": vec!["_first"; 100], "rows": [row]}),
    );
    let long = "function(doc) { emit('x'.repeat(20000), 1) }";
    provoke("map", patient(map("brief", long)));

    let proc = client.get_proc("javascript");
    client.prompt(&proc, json!(["reset", {}]));
    client.prompt(
        &proc,
        json!(["add_fun", "function(doc) { while (true) {} }"]),
    );
    let endless = json!({"id": 1, "call": "prompt", "proc": proc, "timeout_ms": 300, "data": ["map_doc", {}]});
    client.send_raw(format!("{endless}\n{endless}\n").as_bytes());
    assert_eq!(client.reply()["error"]["name"], "timeout");
    provoked.push(told("name", 0, &client.reply()["error"]));

    // A call waits for the process that another client holds.
    client.ok(&json!({"id": 1, "call": "get_proc", "pool": "tight"}));
    let mut waits = patient(map("javascript", "function(doc) {}"));
    waits["pool"] = json!("tight");
    let mut waiting = web.connect();
    let json = [("Content-Type", "application/json")];
    waiting.send("POST", "/_query/map", &json, &waits.to_string());
    wait_until("a waiter", || client.pool("tight")["waiting"] == 1);
    let remove = Order::new("DELETE", "/_pools/tight", Value::Null);
    client.operator.ok(&remove);
    let answer = waiting.response();
    provoked.push(told("error", answer.status, &answer.json()));
    client.ok(&json!({"id": 1, "call": "get_proc", "pool": "last"}));
    let mut waiting = web.service.connect();
    waiting.send(&json!({"id": 1, "call": "get_proc", "pool": "last"}));
    wait_until("a waiter", || client.pool("last")["waiting"] == 1);
    web.service.signal("TERM");
    provoked.push(told("name", 0, &waiting.reply()["error"]));

    let documented = documented();
    for (row, provoked) in documented.iter().zip(&provoked) {
        assert_eq!(row, provoked, "of {provoked:?}");
    }
    assert_eq!(documented.len(), provoked.len());
    drop(client);
    web.service.exits_cleanly();
}
