//! `settee map`, the real program with real processes: rows, their order, reductions.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::daemon::Service;
use crate::support::program::{exit_code, program, read_lines, run};
use crate::support::work::{EMIT, ONE, Work, documents, fails, lines, stderr};
use serde_json::{Value, json};

#[test]
fn the_example_of_the_manual_works() {
    let arguments = [
        "map",
        "--map",
        "examples/orders/by_customer.js",
        "examples/orders/orders.ndjson",
    ];
    let rows = lines(&run(&mut program(&arguments), b""));
    let orders = std::fs::read_to_string("examples/orders/orders.ndjson").unwrap();
    let paid = orders
        .lines()
        .filter(|line| line.contains(r#""state":"paid""#))
        .count();
    assert_eq!(rows.len(), paid);
    assert_eq!(rows[0]["key"], "Alma");
    let mut grouped = program(&arguments);
    grouped.args(["--reduce", "_count", "--group"]);
    let counts = lines(&run(&mut grouped, b""));
    let total: u64 = counts
        .iter()
        .map(|row| row["value"].as_u64().unwrap())
        .sum();
    assert_eq!(usize::try_from(total).unwrap(), paid);
}

#[test]
fn rows_can_be_printed_as_csv() {
    let work = Work::new();
    let function = "function(doc) { emit([doc.city, doc.n], doc.note) }";
    let input = "{\"_id\":\"b\",\"city\":\"Rome\",\"n\":2}\n\
                 {\"_id\":\"a\",\"city\":\"Bonn\",\"n\":1,\"note\":\"4, \\\"new\\\"\"}\n";
    let csv = |more: &[&str], input: &str| {
        let mut map = work.map(function, &["--output", "csv"]);
        let output = run(map.args(more), input.as_bytes());
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let rows = "id,key,value\na,\"[\"\"Bonn\"\",1]\",\"4, \"\"new\"\"\"\nb,\"[\"\"Rome\"\",2]\",\n";
    assert_eq!(csv(&[], input), rows);
    let mut unsorted: Vec<String> = csv(&["--unsorted"], input)
        .lines()
        .map(str::to_owned)
        .collect();
    unsorted[1..].sort();
    assert_eq!(unsorted.join("\n") + "\n", rows);
    let counts = csv(&["--reduce", "_count", "--group-level", "1"], input);
    assert_eq!(
        counts,
        "key,value\n\"[\"\"Bonn\"\"]\",1\n\"[\"\"Rome\"\"]\",1\n"
    );
    assert_eq!(csv(&[], ""), "id,key,value\n");
}

#[test]
fn the_progress_line_of_a_terminal_ends_before_rows_are_printed() {
    let mut screen = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let mut map = program(&["map", "--map"]);
    map.args([
        "examples/orders/by_customer.js",
        "examples/orders/orders.ndjson",
    ]);
    map.stdout(terminal.try_clone().unwrap()).stderr(terminal);
    let mut child = map.spawn().unwrap();
    // Reading fails once the last program that has the terminal open has ended.
    drop(map);
    let mut shown = Vec::new();
    assert!(screen.read_to_end(&mut shown).is_err());
    assert_eq!(exit_code(&mut child), Some(0));
    let shown = String::from_utf8(shown).unwrap();
    let (progress, rows) = shown.split_once("{\"").unwrap();
    assert!(progress.contains("documents/s"), "{shown:?}");
    assert!(progress.ends_with("\r\u{1b}[K"), "{shown:?}");
    assert!(!rows.contains("documents/s"), "{shown:?}");
}

#[test]
fn rows_are_in_the_order_of_couchdbs_views() {
    let keys = [
        json!({"a": 1}),
        json!("b"),
        json!([1, "x"]),
        json!(10),
        json!("B"),
        json!(null),
        json!(2),
        json!("a"),
        json!([1]),
        json!(true),
        json!("\u{e9}"),
        json!(-1.5),
        json!(false),
        json!({}),
        json!("f"),
        json!([]),
    ];
    let sorted = [5, 12, 9, 11, 6, 3, 7, 1, 4, 10, 14, 15, 8, 2, 13, 0];
    let rows = lines(&run(
        &mut Work::new().map(EMIT, &[]),
        documents(&keys).as_bytes(),
    ));
    let got: Vec<&Value> = rows.iter().map(|row| &row["key"]).collect();
    let expected: Vec<&Value> = sorted.iter().map(|index| &keys[*index]).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_function_that_reads_named_members_gives_the_rows_of_whole_documents() {
    let work = Work::new();
    let input = [
        r#"{"_id":"a","v":1,"w":[{"v":2}],"x":"y"}"#,
        r#" { "x" : {"v":7,"_id":"no"} , "v" : "}\"" , "_id" : "b" } "#,
        r#"{"v":1,"_id":"no","v":2,"x":0,"_id":"c"}"#,
        r#"{"_id":"d","\u0076":3,"x":4}"#,
        r#"{"_id":"e","toString":5,"__proto__":{"v":6}}"#,
        r#"{"_id":"\u0066","w":null}"#,
    ]
    .join("\n");
    let body = "emit([doc.v, typeof doc.w], doc?.w); if (doc.w) { emit(doc._id, doc.w[0].v) }";
    let named = format!("function(doc) {{ {body} }}");
    let whole = format!("function(d) {{ var doc = d; {body} }}");
    let [named, whole] = [named, whole].map(|map| run(&mut work.map(&map, &[]), input.as_bytes()));
    assert_eq!(lines(&named), lines(&whole));
    assert_eq!(lines(&named).len(), 7);
}

#[test]
fn members_that_a_function_does_not_read_are_not_sent() {
    let work = Work::new();
    // More levels than the engine can parse.
    let deep = 300_000;
    let input = format!(
        "{{\"_id\":\"a\",\"deep\":{}{},\"v\":1}}\n",
        "[".repeat(deep),
        "]".repeat(deep)
    );
    let rows = lines(&run(&mut work.map(EMIT, &[]), input.as_bytes()));
    assert_eq!(rows, [json!({"id": "a", "key": 1, "value": "a"})]);
    let whole = "function(d) { var doc = d; emit(doc.v, doc._id) }";
    fails(&mut work.map(whole, &[]), input, 65, &["line 1", "\"a\""]);
}

#[test]
fn many_documents_give_the_same_rows_in_the_same_order_in_every_run() {
    let work = Work::new();
    let values: Vec<Value> = (0..20_000)
        .map(|number| json!(number * 7919 % 100))
        .collect();
    let input = documents(&values);
    let function = "function(doc) { emit(doc.v, 1); emit(doc.v, 2) }";
    let output = run(&mut work.map(function, &[]), input.as_bytes());
    let rows = lines(&output);
    assert_eq!(rows.len(), 40_000);
    let order = |row: &Value| {
        (
            row["key"].as_u64(),
            row["id"].as_str().unwrap().to_owned(),
            row["value"].as_u64(),
        )
    };
    assert!(rows.is_sorted_by_key(order));
    assert_eq!(
        run(&mut work.map(function, &[]), input.as_bytes()).stdout,
        output.stdout
    );
    let mut streamed = lines(&run(
        &mut work.map(function, &["--unsorted"]),
        input.as_bytes(),
    ));
    streamed.sort_by_key(order);
    assert!(streamed == rows, "the same rows in another order");
}

#[test]
fn values_pass_through_unchanged() {
    let input = "{\"_id\":\"\\u00e4 \\\"x\\\"\",\"big\":\"\u{1f600}\",\"n\":1e3}\n";
    let output = run(
        &mut Work::new().map("function(d){emit([d.n,d.big],d)}", &[]),
        input.as_bytes(),
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        "{\"id\":\"\\u00e4 \\\"x\\\"\",\"key\":[1000,\"\u{1f600}\"],\"value\":{\"_id\":\"\u{e4} \\\"x\\\"\",\"big\":\"\u{1f600}\",\"n\":1000}}\n"
    );
}

#[test]
fn rows_of_a_slow_input_are_printed_before_its_end() {
    let work = Work::new();
    let mut child = work
        .map(EMIT, &["--unsorted"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    for number in 0..3 {
        writeln!(input, "{{\"_id\":\"{number}\",\"v\":1}}").unwrap();
        let row = read_lines(&mut output, 1);
        assert_eq!(
            row,
            format!("{{\"id\":\"{number}\",\"key\":1,\"value\":\"{number}\"}}\n")
        );
    }
    drop(input);
    assert_eq!(exit_code(&mut child), Some(0));
}

#[test]
fn reductions_group_like_couchdb() {
    let work = Work::new();
    let keys = [
        json!(["a", 1]),
        json!(["a", 2]),
        json!(["b", 1]),
        json!(["a", 1]),
        json!("x"),
        json!(["a"]),
    ];
    let input = documents(&keys);
    let reduce =
        |arguments: &[&str]| lines(&run(work.map(ONE, &[]).args(arguments), input.as_bytes()));
    assert_eq!(
        reduce(&["--reduce", "_sum"]),
        [json!({"key": null, "value": 6})]
    );
    assert_eq!(
        reduce(&["--reduce", "_sum", "--group-level", "0"]),
        [json!({"key": null, "value": 6})]
    );
    assert_eq!(
        reduce(&["--reduce", "_count", "--group"]),
        [
            json!({"key": "x", "value": 1}),
            json!({"key": ["a"], "value": 1}),
            json!({"key": ["a", 1], "value": 2}),
            json!({"key": ["a", 2], "value": 1}),
            json!({"key": ["b", 1], "value": 1}),
        ]
    );
    assert_eq!(
        reduce(&["--reduce", "_count", "--group-level", "1"]),
        [
            json!({"key": "x", "value": 1}),
            json!({"key": ["a"], "value": 4}),
            json!({"key": ["b"], "value": 1}),
        ]
    );
}

#[test]
fn spellings_of_a_key_are_one_group() {
    let work = Work::new();
    // A child of another language may write one number in two ways.
    let child = work.file(
        "child.sh",
        "while read -r line; do case $line in *map_doc*) n=$((n+1)); case $n in \
         1) echo '[[[1,1]]]';; 2) echo '[[[1.0,1]]]';; 3) echo '[[[\"ab\",1]]]';; *) echo '[[[\"a\u{200d}b\",1]]]';; esac;; \
         *) echo true;; esac; done",
    );
    let config = work.file(
        "c.toml",
        format!(
            "[query_server_config]\nos_process_limit = 1\n[query_servers]\nshell = \"sh {child}\"\n"
        ),
    );
    let mut command = work.map(
        "any",
        &[
            "-c",
            &config,
            "--language",
            "shell",
            "--reduce",
            "_count",
            "--group",
        ],
    );
    let rows = lines(&run(
        &mut command,
        documents(&[json!(1), json!(2), json!(3), json!(4)]).as_bytes(),
    ));
    let values: Vec<_> = rows
        .iter()
        .map(|row| row["value"].as_u64().unwrap())
        .collect();
    assert_eq!(values, [2, 2]);
}

#[test]
fn a_function_reduces_and_rereduces_large_groups() {
    let work = Work::new();
    let reduce = work.file(
        "reduce.js",
        "function(keys, values, rereduce) {
           if (rereduce) return values.reduce(function(a, b) {
             return {rows: a.rows + b.rows, keyed: a.keyed && b.keyed, again: true}; });
           return {rows: values.length, keyed: keys.length === values.length && keys[0].length === 2};
         }",
    );
    let values: Vec<Value> = (0..20_000).map(|number| json!(number % 2)).collect();
    let input = documents(&values);
    let grouped = run(
        work.map(ONE, &["--reduce", &reduce, "--group"]).args(["-"]),
        input.as_bytes(),
    );
    let expected = json!({"rows": 10_000, "keyed": true, "again": true});
    assert_eq!(
        lines(&grouped),
        [
            json!({"key": 0, "value": expected}),
            json!({"key": 1, "value": expected})
        ]
    );
}

#[test]
fn a_reduction_of_many_small_groups_keeps_their_order() {
    let work = Work::new();
    let reduce = work.file("reduce.js", "function(k, values, r) { return sum(values) }");
    let values: Vec<Value> = (0..5000).map(|number| json!(number % 1000)).collect();
    let rows = lines(&run(
        &mut work.map(ONE, &["--reduce", &reduce, "--group"]),
        documents(&values).as_bytes(),
    ));
    let expected: Vec<Value> = (0..1000)
        .map(|key| json!({"key": key, "value": 5}))
        .collect();
    assert!(rows == expected);
}

#[test]
fn a_result_that_is_too_long_is_an_error_value_as_in_couchdb() {
    let work = Work::new();
    let reduce = work.file(
        "reduce.js",
        "function(k, values, r) { return values.join() + '0123456789'.repeat(2000) }",
    );
    let rows = lines(&run(
        &mut work.map(ONE, &["--reduce", &reduce]),
        documents(&[json!(1)]).as_bytes(),
    ));
    let reason = rows[0]["value"]["reduce_overflow_error"].as_str().unwrap();
    assert!(
        reason.starts_with("Reduce output must shrink more rapidly"),
        "{reason}"
    );
}

#[test]
fn a_builtin_reducer_may_be_named_in_a_file() {
    let work = Work::new();
    let reduce = work.file("reduce.js", "_sum\n");
    let rows = lines(&run(
        &mut work.map(ONE, &["--reduce", &reduce]),
        documents(&[json!(1), json!(2)]).as_bytes(),
    ));
    assert_eq!(rows, [json!({"key": null, "value": 2})]);
}

#[test]
fn modules_of_the_library_can_be_required() {
    let work = Work::new();
    work.file(
        "lib/plain.js",
        "exports.add = function(a, b) { return a + b };",
    );
    work.file(
        "lib/deep/er.js",
        "exports.twice = function(a) { return require('views/lib/plain').add(a, a) };",
    );
    work.file("lib/readme.txt", "not a module");
    let lib = work.path("lib");
    let function = "function(doc) { emit(require('views/lib/deep/er').twice(doc.v), require('views/lib/plain').add(1, 2)) }";
    let mut command = work.map(function, &["--lib", lib.to_str().unwrap()]);
    let rows = lines(&run(&mut command, documents(&[json!(21)]).as_bytes()));
    assert_eq!(rows, [json!({"id": "d00000", "key": 42, "value": 3})]);
}

#[test]
fn an_empty_input_has_no_rows() {
    let work = Work::new();
    for input in ["", "\n\n  \n"] {
        let output = run(&mut work.map(EMIT, &[]), input.as_bytes());
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(0), 0),
            "{}",
            stderr(&output)
        );
        let reduced = run(
            &mut work.map(EMIT, &["--reduce", "_count"]),
            input.as_bytes(),
        );
        assert_eq!((reduced.status.code(), reduced.stdout.len()), (Some(0), 0));
    }
}

#[test]
fn a_document_over_which_the_function_throws_has_no_rows_and_is_reported() {
    let work = Work::new();
    let function = "function(doc) { emit(1); if (doc.v % 2) throw new Error('odd'); }";
    let values: Vec<Value> = (0..20).map(|number| json!(number)).collect();
    let output = run(&mut work.map(function, &[]), documents(&values).as_bytes());
    assert_eq!(lines(&output).len(), 10);
    let said = stderr(&output);
    let error = "map.js:1:51: Error: odd (document d0000";
    assert_eq!(said.matches(error).count(), 2, "{said}");
    for expected in [
        "8 more errors like these are not shown",
        "the function threw for 10 of 20 documents, which have no rows",
    ] {
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_function_that_emits_nothing_or_returns_its_rows_is_reported() {
    let work = Work::new();
    let values: Vec<Value> = (0..20).map(|number| json!(number)).collect();
    let said = |function: &str, arguments: &[&str]| {
        let mut map = work.map(function, arguments);
        let output = run(&mut map, documents(&values).as_bytes());
        assert_eq!(output.status.code(), Some(0));
        stderr(&output)
    };
    let nothing = "map.js: the map function emitted nothing over any of 20 documents: ";
    let returned = "map.js: the map function returned a number over document d0000";
    for (function, expected) in [
        ("function(doc) { if (doc.w) emit(doc.w); }", nothing),
        ("function(doc) { log('l'); return doc.v; }", returned),
    ] {
        for arguments in [&[][..], &["--unsorted"], &["--reduce", "_count"]] {
            let said = said(function, arguments);
            assert_eq!(said.matches(expected).count(), 1, "{said}");
        }
    }
    let said = said("doc => doc.v === 3 && emit(1)", &[]);
    assert_eq!(said, "");
}

#[test]
fn a_running_service_reports_the_same_errors_and_logs_as_the_commands_own_pool() {
    let service = Service::start("");
    let socket = service.socket();
    let work = Work::new();
    let socket = ["--socket", socket.to_str().unwrap()];
    let said = |function: &str, arguments: &[&str], values: &[Value]| {
        let output = run(
            &mut work.map(function, arguments),
            documents(values).as_bytes(),
        );
        let mut said: Vec<String> = stderr(&output).lines().map(str::to_owned).collect();
        said.sort();
        let rows = output.stdout.iter().filter(|byte| **byte == b'\n');
        (output.status.code(), rows.count(), said)
    };
    let odd =
        "function(doc) { log('at ' + doc.v); if (doc.v % 2) throw new Error('odd'); emit(1) }";
    let three = [json!(1), json!(2), json!(4)];
    let there = said(odd, &socket, &three);
    assert_eq!(there, said(odd, &[], &three));
    assert_eq!((there.0, there.1), (Some(0), 2));
    for expected in [
        "log: at 2",
        "map.js:1:62: Error: odd (document d00000)",
        "for 1 of 3 documents",
    ] {
        assert!(
            there.2.iter().any(|line| line.contains(expected)),
            "{there:?}"
        );
    }
    let all = "function(doc) { emit(doc.nothing.there) }";
    let there = said(all, &socket, &three);
    assert_eq!(there.0, Some(65), "{there:?}");
    assert_eq!(there, said(all, &[], &three));
    let reduce = work.file("bad.js", "function(k, values) {\n  return k.a.b }");
    let arguments = [&socket[..], &["--reduce", &reduce]].concat();
    let there = said(ONE, &arguments, &three);
    assert_eq!(there, said(ONE, &arguments[2..], &three));
    assert!(
        there.2.iter().any(|line| line.contains("bad.js:2:")),
        "{there:?}"
    );
    service.stop();
}

/// A query server that answers four documents only after the last one, with a forged answer before theirs.
const FORGER: &str = r#"
import json, sys
docs = []
for line in sys.stdin:
    command = json.loads(line)
    if command[0] != "map_doc":
        print("true", flush=True)
        continue
    docs.append(command[1]["v"])
    if command[1]["v"] == 3:
        forged = ["forged"] if len(docs) > 1 else []
        print("\n".join(json.dumps([[[v, 0]]]) for v in forged + docs), flush=True)
"#;

#[test]
fn no_document_is_remapped_after_answers_that_may_belong_to_another() {
    let work = Work::new();
    let server = work.file("forger.py", FORGER);
    let service = Service::start(&format!(
        "[query_server_config]\nos_process_limit = 1\n[query_servers]\nforger = \"/usr/bin/python3 {server}\"\n"
    ));
    let socket = service.socket();
    let input = documents(&[0, 1, 2, 3].map(|v| json!(v)));
    for more in [&[][..], &["--reduce", "_count"]] {
        let mut command = work.map("f", &["--language", "forger"]);
        command.arg("--socket").arg(&socket).args(more);
        let output = fails(
            &mut command,
            &input,
            65,
            &["line 4", "more answers than prompts"],
        );
        assert_eq!(stderr(&output).matches("twice").count(), 0);
        assert!(output.stdout.is_empty());
    }
    service.stop();
}

#[test]
fn the_processes_of_a_running_service_can_be_used() {
    let service = Service::start("");
    let work = Work::new();
    let socket = service.socket();
    let values: Vec<Value> = (0..3000).map(|number| json!(number % 10)).collect();
    let input = documents(&values);
    let reduce = work.file("reduce.js", "function(k, values, r) { return sum(values) }");
    let arguments = ["--socket", socket.to_str().unwrap()];
    let here = run(&mut work.map(EMIT, &[]), input.as_bytes());
    let there = run(&mut work.map(EMIT, &arguments), input.as_bytes());
    assert_eq!(lines(&there).len(), 3000);
    assert!(here.stdout == there.stdout);
    let sums = lines(&run(
        work.map(ONE, &arguments)
            .args(["--reduce", &reduce, "--group"]),
        input.as_bytes(),
    ));
    assert_eq!(sums.len(), 10);
    assert_eq!(sums[3], json!({"key": 3, "value": 300}));
    fails(
        &mut work.map("function(", &arguments),
        &input,
        65,
        &["map.js", "compil"],
    );
    service.wait_for_first_pool("all returned", |pool| {
        pool["used"] == 0 && pool["procs"][0]["uses"].as_u64() > Some(0)
    });
    fails(
        &mut work.map(EMIT, &["--socket", "/nonexistent/s"]),
        &input,
        69,
        &["/nonexistent/s"],
    );
}
