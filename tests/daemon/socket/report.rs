//! The report of a call: its log lines, its errors with their positions, its cost and its request id.

use serde_json::{Value, json};

use crate::support::daemon::{Client, Service, configure, directory, serve_command};
use crate::support::http_client::{Web, command};
use crate::support::work::Work;

/// Throws on documents without `a`.
const THROWS: &str = "function(doc) {\n  log('map ' + doc._id);\n  emit(doc.a.b);\n}";

fn map(members: Value) -> Value {
    let mut call = json!({"id": 1, "call": "map_docs", "lang": "javascript", "funs": [THROWS],
                          "docs": [{"_id": "x"}, {"_id": "y", "a": {"b": 7}}]});
    let members = members.as_object().unwrap().clone();
    call.as_object_mut().unwrap().extend(members);
    call
}

fn ddoc() -> Value {
    json!({"_id": "_design/d", "shows": {"s": "function(doc) { return require('lib/m').f(doc) }",
                                         "bad": "function(doc) {\n  return doc. ;\n}"},
           "lib": {"m": "exports.f = function(doc) {\n  return doc.a.b;\n}"}})
}

fn show(name: &str) -> Value {
    json!({"id": 1, "call": "show", "db": "shop", "ddoc": ddoc(), "name": name,
           "doc": {"_id": "x"}, "report": true})
}

fn names(reply: &Value) -> Vec<&str> {
    reply
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

fn raw(client: &mut Client, call: &Value) -> String {
    client.send(call);
    client.line().unwrap()
}

#[test]
fn a_reply_has_no_report_unless_it_is_requested() {
    let service = Service::start("");
    let mut client = service.connect();
    let plain = raw(&mut client, &map(json!({})));
    assert_eq!(plain, "{\"id\":1,\"ok\":[[[]],[[[7,null]]]]}\n");
    assert_eq!(raw(&mut client, &map(json!({"report": false}))), plain);
    let reported = client.call(&map(json!({"report": true})));
    assert_eq!(reported["ok"], json!([[[]], [[[7, null]]]]));
    // The next call of the same process is not reported.
    assert_eq!(raw(&mut client, &map(json!({}))), plain);
    let wrong = client.call(&map(json!({"report": "yes"})));
    assert_eq!(wrong["error"]["name"], "bad_request");
    service.stop();
}

#[test]
fn a_report_has_logs_errors_and_cost() {
    let service = Service::start("");
    let mut client = service.connect();
    let reply = client.call(&map(json!({"report": true})));
    assert_eq!(
        names(&reply),
        [
            "id",
            "ok",
            "request_id",
            "pool",
            "logs",
            "logs_dropped",
            "errors",
            "errors_dropped",
            "cost"
        ]
    );
    assert_eq!(reply["pool"], "javascript");
    let levels: Vec<_> = reply["logs"].as_array().unwrap().iter().collect();
    assert_eq!(levels.len(), 3, "{reply}");
    assert_eq!(levels[0], &json!({"level": "info", "message": "map x"}));
    assert_eq!(levels[1]["level"], "error");
    let error = json!([{
        "function": 0, "doc": "x", "name": "TypeError",
        "message": "cannot read property 'b' of undefined", "line": 3, "column": 8,
        "stack": ["<anonymous> (3:8)"],
    }]);
    assert_eq!(reply["errors"], error);
    let cost = &reply["cost"];
    for part in ["wait_us", "run_us", "cpu_us"] {
        assert!(cost[part].as_u64().unwrap() > 0, "{cost}");
    }
    assert!(
        cost["memory_peak_bytes"].as_u64().unwrap() > 1 << 20,
        "{cost}"
    );
    let taught = client.call(&show("s"));
    assert!(taught["cost"]["teach_us"].as_u64().unwrap() > 0, "{taught}");
    assert_eq!(client.call(&show("s"))["cost"]["teach_us"], 0);
    service.stop();
}

#[test]
fn the_console_works_even_if_a_previous_call_broke_it() {
    let service = Service::start("[query_server_config]\nos_process_limit = 1\n");
    let mut client = service.connect();
    let call = |db: &str, body: &str| {
        json!({"id": 1, "call": "map_docs", "db": db, "lang": "javascript", "docs": [{"_id": "x"}],
               "funs": [format!("function(doc) {{ {body} emit(doc._id) }}")], "report": true})
    };
    let breaks = "console.log = console.warn = null; console = 7; JSON.stringify = null;";
    let says =
        "console.log('a', {b: [1]}); console.warn(doc._id); console.error(new RangeError('far'));";
    for (db, body) in [
        ("one", breaks),
        ("two", says),
        ("two", breaks),
        ("two", says),
    ] {
        let reply = client.call(&call(db, body));
        assert_eq!(reply["ok"], json!([[[["x", null]]]]), "{reply}");
        let said = [
            "a {\"b\":[1]}",
            "x",
            "{\"error\":\"RangeError\",\"message\":\"far\"}",
        ];
        let said = said.map(|text| json!({"level": "info", "message": text}));
        let expected = if body == says { json!(said) } else { json!([]) };
        assert_eq!(reply["logs"], expected, "{db}");
    }
    // One process has served all of them.
    let status = client.operator.get("/_status");
    assert_eq!(status["pools"][0]["totals"]["started"], 1, "{status}");
    service.stop();
}

/// The warnings of a call that maps three documents.
fn warnings(client: &mut Client, functions: &[&str]) -> Vec<String> {
    let docs = [
        json!({"_id": "x"}),
        json!({"_id": "y", "a": 1}),
        json!({"_id": "z"}),
    ];
    let reply = client.call(&json!({
        "id": 1, "call": "map_docs", "lang": "javascript", "funs": functions, "docs": docs, "report": true}));
    assert!(reply["ok"].is_array(), "{reply}");
    let logs = reply["logs"].as_array().unwrap().iter();
    let warnings = logs.filter(|line| line["level"] == "warning");
    let words = warnings.map(|line| line["message"].as_str().unwrap().to_owned());
    words.collect()
}

#[test]
fn a_map_function_that_emits_nothing_is_reported_as_a_warning() {
    let service = Service::start("");
    let mut client = service.connect();
    let nothing = "the map function emitted nothing over any of 3 documents: ";
    let returns = "the map function returned a number over document y, and emitted nothing over any of 3 documents: ";
    let promise = "the map function returned a promise over document x, as async functions do: ";
    for (function, expected) in [
        ("function(doc) { if (doc.b) emit(doc.b); }", Some(nothing)),
        ("function(doc) { return doc.a; }", Some(returns)),
        (
            "doc => (async () => { await 0; emit(doc._id); })()",
            Some(promise),
        ),
        ("doc => doc.a && emit(doc.a)", None),
        ("function(doc) { doc.a.b.c; }", None),
    ] {
        let found = warnings(&mut client, &[function]);
        assert_eq!(
            found.len(),
            usize::from(expected.is_some()),
            "{function}: {found:?}"
        );
        if let Some(expected) = expected {
            assert!(found[0].starts_with(expected), "{found:?}");
        }
    }
    let found = warnings(
        &mut client,
        &["doc => emit(1)", "doc => doc.a", "doc => { throw 1 }"],
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("map function 2 of 3 returned a number over"),
        "{found:?}"
    );
    // Enough documents for several processes, one of which emits the only row.
    let docs: Vec<Value> = (0..2000)
        .map(|id| json!({"_id": id.to_string(), "a": id == 7}))
        .collect();
    let reply = client.call(
        &json!({"id": 1, "call": "map_docs", "lang": "javascript", "docs": docs, "report": true,
                                    "funs": ["doc => doc.a && emit(1)"]}),
    );
    assert_eq!(reply["logs"], json!([]));
    service.stop();
}

#[test]
fn an_async_function_is_refused_and_a_returned_promise_is_reported_as_a_warning() {
    let service = Service::start("");
    let mut client = service.connect();
    let map = json!({"id": 1, "call": "map_docs", "lang": "javascript", "docs": [{"_id": "x"}], "report": true,
                     "funs": ["async function(doc) { emit(1); }"]});
    let reply = client.call(&map);
    assert_eq!(reply["error"]["name"], "compilation_error", "{reply}");
    let message = reply["errors"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("The function is async, "), "{reply}");
    let promises = "function() { return (async function() { return false; })(); }";
    let ddoc = json!({"_id": "_design/d", "filters": {"f": promises}});
    let filter = json!({"id": 1, "call": "filter_docs", "db": "shop", "ddoc": ddoc, "name": "f",
                        "docs": [{"_id": "x"}, {"_id": "y"}], "req": {}, "report": true});
    let reply = client.call(&filter);
    assert_eq!(reply["ok"], json!([true, true]), "{reply}");
    let logs = reply["logs"].as_array().unwrap();
    assert_eq!(
        (logs.len(), &logs[0]["level"]),
        (1, &json!("warning")),
        "{reply}"
    );
    let message = logs[0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("filters/f of _design/d returned a promise, "),
        "{message}"
    );
    service.stop();
}

#[test]
fn an_error_is_reported_with_its_position_in_the_design_document() {
    let service = Service::start("");
    let mut client = service.connect();
    let reply = client.call(&show("s"));
    assert_eq!(reply["error"]["name"], "render_error");
    let error = json!([{
        "function": "shows/s", "doc": "x", "name": "TypeError",
        "message": "cannot read property 'b' of undefined", "module": "lib/m", "line": 2, "column": 10,
        "stack": ["<anonymous> (lib/m:2:10)", "<anonymous> (1:43)"],
    }]);
    assert_eq!(reply["errors"], error, "{reply}");
    let bad = client.call(&show("bad"));
    assert_eq!(bad["error"]["name"], "compilation_error");
    let error = &bad["errors"][0];
    assert_eq!((&error["line"], &error["column"]), (&json!(2), &json!(15)));
    assert_eq!(error["source_line"], "  return doc. ;");
    assert_eq!(error["caret"], "              ^");
    assert_eq!(bad["errors"].as_array().unwrap().len(), 1, "{bad}");
    service.stop();
}

#[test]
fn errors_raised_outside_a_process_are_reported_too() {
    let service = Service::start("");
    let mut client = service.connect();
    let reduce = |funs: Value, rows: Value| json!({"id": 1, "call": "reduce", "lang": "javascript", "funs": funs, "rows": rows, "report": true});
    let rows = json!([[["k", "d"], "x"]]);
    let throws = "function(keys, values) { return values.a.b }";
    let reply = client.call(&reduce(json!(["_count", throws, "_sum"]), rows.clone()));
    let found: Vec<_> = reply["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            (
                error["function"].clone(),
                error["name"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let expected = [
        (json!(1), "TypeError".to_owned()),
        (json!(2), "builtin_reduce_error".to_owned()),
    ];
    assert_eq!(found, expected);
    let reply = client.call(&reduce(json!(["_count", "_stats"]), rows));
    assert_eq!(reply["errors"][0]["function"], 1);
    assert_eq!(reply["errors"][0]["name"], "invalid_value");
    let mango = json!({"id": 1, "call": "map_docs", "lang": "query", "report": true,
                       "funs": [{"fields": {"a": "asc"}}, {"fields": 7}], "docs": [{"_id": "a", "a": 1}]});
    let reply = client.call(&mango);
    assert_eq!(reply["ok"], json!([[[[[1], null]], []]]));
    assert_eq!(reply["errors"][0]["function"], 1, "{reply}");
    let unknown = json!({"id": 1, "call": "map_docs", "lang": "none", "funs": [], "docs": [], "report": true});
    let reply = client.call(&unknown);
    assert_eq!(reply["errors"][0]["name"], "unknown_query_language");
    assert!(reply.get("pool").is_none(), "{reply}");
    let looping = json!({"id": 1, "call": "map_docs", "lang": "javascript", "report": true, "timeout_ms": 3000,
                         "funs": ["function(doc) { log('begins'); while (true) {} }"], "docs": [{"_id": "a"}]});
    let reply = client.call(&looping);
    assert_eq!(reply["errors"][0]["name"], "timeout", "{reply}");
    assert_eq!(reply["errors"][0]["doc"], "a");
    service.stop();
}

#[test]
fn log_lines_of_a_function_are_bounded_and_the_rest_is_counted() {
    let service = Service::start("");
    let mut client = service.connect();
    let logs = |times: u32, text: &str| {
        json!({"id": 1, "call": "map_docs", "lang": "javascript", "docs": [{"_id": "a"}], "report": true,
               "funs": [format!("function(doc) {{ for (var i = 0; i < {times}; i++) log({text}); emit(1) }}")]})
    };
    let many = client.call(&logs(1500, "'x'"));
    assert_eq!(many["logs"].as_array().unwrap().len(), 1000);
    assert_eq!(many["logs_dropped"], 500);
    let long = client.call(&logs(10, "'x'.repeat(100000)"));
    assert_eq!(long["logs"].as_array().unwrap().len(), 2);
    assert_eq!(long["logs_dropped"], 8);
    service.stop();
}

#[test]
fn the_plain_log_lines_of_any_query_server_are_reported() {
    let script = "while read -r line; do case $line in \
        *map_doc*) echo '[\"log\",\"of a shell\"]'; echo '[[]]';; *) echo true;; esac; done";
    let work = Work::new();
    let child = work.file("child.sh", script);
    let service = Service::start(&format!("[query_servers]\nshell = \"sh {child}\"\n"));
    let mut client = service.connect();
    let call = json!({"id": 1, "call": "map_docs", "lang": "shell", "funs": ["f"], "docs": [{"_id": "a"}], "report": true});
    let reply = client.call(&call);
    assert_eq!(
        reply["logs"],
        json!([{"level": "info", "message": "of a shell"}]),
        "{reply}"
    );
    service.stop();
}

#[test]
fn a_request_id_is_in_the_reply_and_in_the_log_lines_of_its_process() {
    let service = Service::start("");
    let mut client = service.connect();
    let named = client.call(&map(json!({"request_id": "from-me 1"})));
    assert_eq!(names(&named), ["id", "ok", "request_id"]);
    assert_eq!(named["request_id"], "from-me 1");
    let made = client.call(&map(json!({"request_id": "not\nprintable"})));
    let made = made["request_id"].as_str().unwrap();
    assert!(made.len() > 16 && !made.contains('\n'), "{made}");
    let mut shown = show("s");
    shown["request_id"] = json!("of-a-show");
    client.call(&shown);
    service.wait_for_log("of-a-show");
    let log = service.log();
    let record = |name: &str| -> Value {
        let line = log.lines().find(|line| line.contains(name)).unwrap();
        serde_json::from_str(line).unwrap()
    };
    let of_map = record("from-me 1");
    assert_eq!(
        (&of_map["msg"], &of_map["line"]),
        (&json!("query server log"), &json!("map x"))
    );
    assert_eq!(
        (&of_map["function"], &of_map["pool"]),
        (&json!("map_docs"), &json!("javascript"))
    );
    assert!(
        of_map["os_pid"].is_number() && of_map["user"].is_string(),
        "{of_map}"
    );
    let of_show = record("of-a-show");
    let members = ["db", "ddoc", "function"].map(|name| of_show[name].clone());
    assert_eq!(
        members,
        ["shop", "_design/d", "shows/s"].map(|value| json!(value))
    );
    service.stop();
}

#[test]
fn a_prompt_to_a_held_process_reports_the_log_lines_before_its_answer() {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("javascript");
    let prompt = |data: Value, report: bool| json!({"id": 1, "call": "prompt", "proc": &proc, "data": data, "report": report});
    let plain = json!({"id": 1, "ok": true});
    assert_eq!(
        client.call(&prompt(json!(["reset", {"report": true}]), true)),
        plain
    );
    assert_eq!(
        client.call(&prompt(json!(["add_fun", THROWS]), true)),
        plain
    );
    let maps = json!(["map_doc", {"_id": "x"}]);
    let reported = client.call(&prompt(maps.clone(), true));
    assert_eq!(reported["ok"], json!([[]]));
    assert_eq!(
        reported["logs"][0],
        json!({"level": "info", "message": "map x"})
    );
    assert_eq!(
        (
            &reported["errors"][0]["doc"],
            &reported["errors"][0]["line"]
        ),
        (&json!("x"), &json!(3))
    );
    assert_eq!(
        client.call(&prompt(maps.clone(), false)),
        json!({"id": 1, "ok": [[]]})
    );
    // Each of several pipelined prompts gets its own report.
    for (data, report) in [
        (maps.clone(), true),
        (json!(["add_fun", "function("]), true),
        (maps, false),
        (json!(["map_doc", {"_id": "y"}]), true),
    ] {
        client.send(&prompt(data, report));
    }
    let replies: Vec<Value> = (0..4).map(|_| client.reply()).collect();
    let docs: Vec<&Value> = replies
        .iter()
        .map(|reply| &reply["errors"][0]["doc"])
        .collect();
    assert_eq!(
        docs,
        [&json!("x"), &Value::Null, &Value::Null, &json!("y")],
        "{replies:?}"
    );
    assert_eq!(
        replies[1]["errors"][0]["name"], "SyntaxError",
        "{replies:?}"
    );
    assert_eq!(names(&replies[2]), ["id", "ok"]);
    drop(client);
    service.stop();
}

#[test]
fn the_log_of_a_refused_index_definition_names_its_call() {
    let service = Service::start("");
    let mut client = service.connect();
    let call = json!({"id": 1, "call": "map_docs", "lang": "query", "request_id": "of-an-index", "db": "shop",
                      "funs": [{"fields": 7}], "docs": [{"_id": "a"}]});
    client.ok(&call);
    let refused = "index definition refused";
    service.wait_for_log(refused);
    let log = service.log();
    let record = log.lines().find(|line| line.contains(refused)).unwrap();
    let record: Value = serde_json::from_str(record).unwrap();
    let members = ["request_id", "db", "function", "pool"].map(|name| record[name].clone());
    assert_eq!(
        members,
        ["of-an-index", "shop", "map_docs", "query"].map(|value| json!(value)),
        "{record}"
    );
    service.stop();
}

#[test]
fn log_records_about_teaching_name_the_call_that_needs_it() {
    let script = "while read -r line; do case $line in \
        *_design/never*) echo '[\"log\",\"learning\"]'; echo '[\"error\",\"never\",\"I do not learn\"]';; \
        *'\"ddoc\",\"new\"'*) echo true;; *'\"ddoc\"'*) echo \"$line\";; *) echo true;; esac; done";
    let work = Work::new();
    let child = work.file("child.sh", script);
    let service = Service::start(&format!("[query_servers]\nshell = \"sh {child}\"\n"));
    let mut client = service.connect();
    let ddoc = json!({"_id": "_design/never", "language": "shell", "shows": {"s": "x"}});
    let call = json!({"id": 1, "call": "show", "db": "shop", "ddoc": ddoc, "name": "s", "doc": null, "request_id": "of-a-lesson"});
    let error = client.error(&call);
    assert_eq!(error["phase"], "teach", "{error}");
    for msg in [
        "query server log",
        "a process failed to learn, reset or forget",
    ] {
        service.wait_for_log(msg);
        let log = service.log();
        let record = log.lines().find(|line| line.contains(msg)).unwrap();
        let record: Value = serde_json::from_str(record).unwrap();
        let members =
            ["request_id", "db", "ddoc", "function", "pool"].map(|name| record[name].clone());
        let expected = ["of-a-lesson", "shop", "_design/never", "shows/s", "shell"];
        assert_eq!(members, expected.map(|value| json!(value)), "{record}");
    }
    service.stop();
}

#[test]
fn http_answers_with_a_report_and_the_request_id() {
    let web = Web::start("");
    let mut connection = web.connect();
    let json_type = ("Content-Type", "application/json");
    let mut body = map(json!({}));
    body.as_object_mut()
        .unwrap()
        .retain(|name, _| !["id", "call"].contains(&name.as_str()));
    let mut post = |path: &str, headers: &[(&str, &str)], body: &Value| {
        let headers = [&[json_type], headers].concat();
        connection.request("POST", path, &headers, &body.to_string())
    };
    let plain = post("/_query/map", &[], &body);
    assert_eq!(plain.json(), json!({"ok": [[[]], [[[7, null]]]]}));
    assert!(plain.header("x-request-id").unwrap().len() > 16);
    let named = post("/_query/map?report=true", &[("X-Request-Id", "abc")], &body);
    assert_eq!(named.header("x-request-id"), Some("abc"));
    let report = named.ok();
    assert_eq!(
        (&report["request_id"], &report["errors"][0]["line"]),
        (&json!("abc"), &json!(3))
    );
    let long = "x".repeat(129);
    let renamed = post("/_query/map", &[("X-Request-Id", &long)], &body);
    assert_ne!(renamed.header("x-request-id"), Some(&*long));
    body["report"] = json!(true);
    body["funs"] = json!(["function(doc) { emit(1; }"]);
    let refused = post("/_query/map", &[], &body);
    assert_eq!(refused.status, 400);
    let error = refused.json();
    assert_eq!(
        (&error["error"], &error["errors"][0]["line"]),
        (&json!("compilation_error"), &json!(1))
    );
    assert!(
        error["cost"]["run_us"].is_number() && error["reason"].is_string(),
        "{error}"
    );
    let validate = json!({"db": "shop", "path": ["validate_doc_update"], "args": [{}, null, {}, {}], "report": true,
        "ddoc": {"_id": "_design/d", "validate_doc_update": "function() { log('asked'); throw {forbidden: 'no'} }"}});
    let refused = post("/_query/ddoc", &[], &validate);
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json()["logs"][0]["message"], "asked");
    assert!(web.get("/_up").header("x-request-id").is_some());
    post("/_query/map?report=perhaps", &[], &body).error(400, "query_parse_error");
    web.service.stop();
}

#[test]
fn a_stream_reports_each_document_on_its_line_and_the_cost_at_the_end() {
    let web = Web::start("");
    let mut connection = web.connect();
    connection.begin_chunked("/_query/map?report=true", "application/x-ndjson");
    let lines = [
        json!({"funs": [THROWS]}),
        json!({"_id": "x"}),
        json!({"_id": "y", "a": {"b": 7}}),
    ];
    lines
        .iter()
        .for_each(|line| connection.send_chunk(&format!("{line}\n")));
    connection.end_chunks();
    assert_eq!(connection.head().status, 200);
    let text: String = std::iter::from_fn(|| connection.chunk()).collect();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(names(&lines[0]), ["ok", "logs", "errors"]);
    assert_eq!(
        (&lines[0]["ok"], &lines[0]["errors"][0]["doc"]),
        (&json!([[]]), &json!("x"))
    );
    assert_eq!(
        (&lines[1]["ok"], &lines[1]["errors"]),
        (&json!([[[7, null]]]), &json!([]))
    );
    assert_eq!(names(&lines[2]), ["request_id", "pool", "cost"]);
    connection.begin_chunked("/_query/map?report=true", "application/x-ndjson");
    for line in [
        json!({"funs": ["doc => doc.a"]}),
        json!({"_id": "x", "a": 7}),
    ] {
        connection.send_chunk(&format!("{line}\n"));
    }
    connection.end_chunks();
    assert_eq!(connection.head().status, 200);
    let text: String = std::iter::from_fn(|| connection.chunk()).collect();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let warned = last["logs"][0]["message"].as_str().unwrap();
    let expected = "the map function returned a number over document x, and emitted nothing over the one document: ";
    assert!(warned.starts_with(expected), "{text}");
    web.wait_until_idle();
    web.service.stop();
}

#[test]
fn a_system_call_that_the_cell_refuses_is_reported_as_a_warning() {
    let directory = directory();
    let script = directory.path().join("child.sh");
    let text = "while read -r line; do case $line in \
        *map_doc*) unshare -U true 2>/dev/null; echo '[[]]';; *) echo true;; esac; done";
    std::fs::write(&script, text).unwrap();
    let extra = format!(
        "[query_servers]\nshell = \"sh {}\"\n[pools.shell]\nsandbox = \"standard\"\n",
        script.display()
    );
    let config = configure(directory.path(), &extra);
    let service = Service::start_command(directory, serve_command(&config));
    let mut client = service.connect();
    let call = json!({"id": 1, "call": "map_docs", "lang": "shell", "funs": ["f"],
                      "docs": [{"_id": "a"}], "report": true});
    let reply = client.call(&call);
    let message = "the cell refused the system call unshare: ignore this if all functions work, else allow \
                   the call in its pool's system_calls_allowed";
    assert_eq!(
        reply["logs"],
        json!([{"level": "warning", "message": message}]),
        "{reply}"
    );
    drop(client);
    service.stop();
}

/// Answers `map_doc` after 250,000 iterations, and keeps a string of 8 MB.
const BURNS: &str = "while read -r line; do case $line in \
    *map_doc*) kept=$(head -c 8000000 /dev/zero | tr '\\0' x); i=0; \
        while [ $i -lt 250000 ]; do i=$((i + 1)); done; echo '[[]]';; \
    *) echo true;; esac; done";

#[test]
fn the_cost_of_a_call_in_a_cell_is_that_of_the_command_and_not_only_of_its_launcher() {
    let directory = directory();
    let script = directory.path().join("burns.sh");
    std::fs::write(&script, BURNS).unwrap();
    let extra = format!(
        "[query_servers]\nshell = \"sh {}\"\n[pools.shell]\nsandbox = \"standard\"\n",
        script.display()
    );
    let config = configure(directory.path(), &extra);
    let web = Web::start_command(directory, command(&config));
    let mut client = web.service.connect();
    let call = json!({"id": 1, "call": "map_docs", "db": "d", "lang": "shell", "funs": ["f"],
                      "docs": [{"_id": "a"}], "report": true});
    let reply = client.call(&call);
    assert_eq!(reply["ok"], json!([[[]]]), "{reply}");
    let cost = &reply["cost"];
    // The launcher takes a few milliseconds, and a megabyte or two, to set up the cell.
    let cpu_us = cost["cpu_us"].as_u64().unwrap();
    assert!(cpu_us > 10_000, "{cost}");
    assert!(
        cost["memory_peak_bytes"].as_u64().unwrap() > 8_000_000,
        "{cost}"
    );
    let functions = web.get("/_functions").ok();
    assert_eq!(functions["functions"][0]["cpu_us"], cpu_us, "{functions}");
    let page = web.get("/_procs?pool=shell").ok();
    let row = &page["procs"][0];
    assert!(row["cpu_us"].as_u64() >= Some(cpu_us), "{row}");
    assert!(row["memory"].as_u64() > Some(8_000_000), "{row}");
    drop(client);
    web.service.stop();
}

/// Works on a document for a while, and then exits or loops forever.
const ENDS: &str = "while read -r line; do case $line in \
    *map_doc*) i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; \
        case $line in *exits*) exit 3;; *) while :; do :; done;; esac;; \
    *) echo true;; esac; done";

#[test]
fn the_cost_of_a_call_includes_a_process_that_ended_during_it() {
    let directory = directory();
    let script = directory.path().join("ends.sh");
    std::fs::write(&script, ENDS).unwrap();
    let extra = format!(
        "[query_servers]\nplain = \"sh {0}\"\ncell = \"sh {0}\"\n\
         [pools.plain]\nsandbox = \"off\"\n[pools.cell]\nsandbox = \"standard\"\n",
        script.display()
    );
    let config = configure(directory.path(), &extra);
    let web = Web::start_command(directory, command(&config));
    let mut client = web.service.connect();
    for language in ["plain", "cell"] {
        for how in ["exits", "loops"] {
            let db = format!("{language}-{how}");
            let error = client.error(
                &json!({"id": 1, "call": "map_docs", "db": db, "lang": language,
                "funs": ["f"], "docs": [{"_id": how}], "timeout_ms": 3000}),
            );
            assert!(["os_process_error", "timeout"].contains(&error["name"].as_str().unwrap()));
            let costs = web.get("/_tenants").ok();
            let rows = costs["tenants"].as_array().unwrap();
            let row = rows.iter().find(|row| row["db"] == db);
            let cpu_us = row.unwrap()["cpu_us"].as_u64();
            assert!(cpu_us > Some(10_000), "{costs}");
        }
    }
    drop(client);
    web.service.stop();
}
