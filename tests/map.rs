//! `settee map`, the real program with real processes: rows, order, reductions, and bad input.

#![allow(clippy::unwrap_used)]

mod served;

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use served::{Service, exit_code, program, read_lines, run};
use tempfile::TempDir;

/// A directory of files for one test.
struct Work(TempDir);

impl Work {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Prepares `settee map` with this map function.
    fn map(&self, function: &str, arguments: &[&str]) -> Command {
        let mut command = program(&["map", "--map", &self.file("map.js", function)]);
        command.args(arguments);
        command
    }
}

fn lines(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Documents with an id each and these members.
fn documents(members: &[Value]) -> String {
    let mut text = String::new();
    for (number, value) in members.iter().enumerate() {
        writeln!(
            text,
            "{}",
            json!({"_id": format!("d{number:05}"), "v": value})
        )
        .unwrap();
    }
    text
}

const EMIT: &str = "function(doc) { emit(doc.v, doc._id) }";
const ONE: &str = "function(doc) { emit(doc.v, 1) }";

fn fails(command: &mut Command, input: impl AsRef<[u8]>, code: i32, words: &[&str]) -> Output {
    let output = run(command, input.as_ref());
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "'{word}' is not in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    output
}

#[test]
fn the_example_runs_as_the_manual_says() {
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
fn many_documents_give_the_same_rows_in_the_same_order_whatever_the_processes_do() {
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
fn reductions_group_as_couchdb_groups() {
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
fn keys_that_are_equal_are_one_group_and_keys_that_only_collate_equal_are_two() {
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
    assert_eq!(values, [2, 1, 1]);
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
fn nothing_comes_of_nothing() {
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
fn a_document_over_which_the_function_throws_has_no_rows_and_is_told() {
    let work = Work::new();
    let function = "function(doc) { emit(1); if (doc.v % 2) throw new Error('odd'); }";
    let values: Vec<Value> = (0..20).map(|number| json!(number)).collect();
    let output = run(&mut work.map(function, &[]), documents(&values).as_bytes());
    assert_eq!(lines(&output).len(), 10);
    let said = stderr(&output);
    assert_eq!(
        said.lines()
            .filter(|line| line.starts_with("settee: log: "))
            .count(),
        5,
        "{said}"
    );
    assert!(
        said.contains("doc._id d00001") && said.contains("10 log lines, the first 5 are shown"),
        "{said}"
    );
}

#[test]
fn a_bad_line_ends_with_65_and_names_file_and_line() {
    let work = Work::new();
    let good = "{\"_id\":\"a\",\"v\":1}\n";
    for (line, problem) in [
        ("{\"_id\":\"b\"", "not JSON"),
        ("[1,2]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("{\"v\":1}", "no '_id'"),
        ("{\"_id\":12}", "must be a string"),
    ] {
        let input = work.file("in.ndjson", format!("{good}\n{good}{line}\n{good}"));
        fails(
            &mut work.map(EMIT, &[&input]),
            "",
            65,
            &["in.ndjson: line 4: ", problem],
        );
        fails(
            &mut work.map(EMIT, &[]),
            format!("{line}\n"),
            65,
            &["standard input: line 1: ", problem],
        );
    }
    let output = fails(
        &mut work.map(EMIT, &["--unsorted"]),
        b"{\"_id\":\"a\"}\n{\"_id\":\"\xff\"}\n",
        65,
        &["line 2: not UTF-8"],
    );
    assert_eq!(
        output.stdout.iter().filter(|byte| **byte == b'\n').count(),
        1
    );
}

#[test]
fn a_line_longer_than_the_limit_ends_with_65() {
    let work = Work::new();
    let config = work.file("c.toml", "[server]\nline_max = \"1MiB\"\n");
    let fits = documents(&[json!("x".repeat(1_000_000))]);
    assert_eq!(
        lines(&run(&mut work.map(EMIT, &["-c", &config]), fits.as_bytes())).len(),
        1
    );
    let long = documents(&[json!(1), json!("x".repeat(1_100_000))]);
    fails(
        &mut work.map(EMIT, &["-c", &config]),
        long,
        65,
        &["line 2", "1048576", "line_max"],
    );
}

#[test]
fn a_function_that_does_not_compile_ends_with_65_and_names_the_file() {
    let work = Work::new();
    fails(
        &mut work.map("function(doc) { emit(", &[]),
        "",
        65,
        &["map.js", "compil"],
    );
    fails(&mut work.map("42", &[]), "", 65, &["map.js", "compil"]);
    fails(
        &mut work.map("  \n", &[]),
        "",
        65,
        &["map.js", "no function"],
    );
    fails(
        work.map("", &[]).arg("--lib").arg(work.path("none")),
        "",
        65,
        &["map.js"],
    );
    fails(
        &mut program(&["map", "--map", &work.file("bad.js", b"\xff\xfe")]),
        "",
        65,
        &["bad.js: not UTF-8 at byte 1"],
    );
}

#[test]
fn a_reduce_function_that_fails_ends_with_65() {
    let work = Work::new();
    let input = documents(&[json!("x")]);
    let bad = work.file("bad.js", "function(");
    fails(
        &mut work.map(ONE, &["--reduce", &bad]),
        &input,
        65,
        &["bad.js", "reduce", "compil"],
    );
    let text = work.map(
        "function(doc) { emit(doc.v, 'text') }",
        &["--reduce", "_stats", "--group"],
    );
    fails(
        &mut { text },
        &input,
        65,
        &["_stats", "\"x\"", "non-numeric _stats input"],
    );
}

#[test]
fn a_reducer_that_is_not_there_ends_with_64() {
    let work = Work::new();
    fails(
        &mut work.map(ONE, &["--reduce", "_sumxyz"]),
        "",
        64,
        &["`_sumxyz` is not a supported reduce function", "_stats"],
    );
    fails(&mut work.map(ONE, &["--group"]), "", 64, &["--reduce"]);
    fails(
        &mut work.map(ONE, &["--unsorted", "--reduce", "_sum"]),
        "",
        64,
        &["--unsorted"],
    );
    fails(&mut program(&["map"]), "", 64, &["--map"]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let work = Work::new();
    fails(
        &mut work.map(EMIT, &["missing.ndjson"]),
        "",
        74,
        &["missing.ndjson", "No such file"],
    );
    fails(
        &mut program(&["map", "--map", "missing.js"]),
        "",
        74,
        &["missing.js", "No such file"],
    );
    fails(
        &mut work.map(EMIT, &["--reduce", "missing.js"]),
        "",
        74,
        &["missing.js"],
    );
    fails(
        &mut work.map(EMIT, &["--lib", "missing"]),
        "",
        74,
        &["missing"],
    );
    let directory = work.path("");
    fails(
        &mut work.map(EMIT, &[directory.to_str().unwrap()]),
        "",
        74,
        &[directory.to_str().unwrap()],
    );
    fails(
        &mut work.map(EMIT, &["-c", "missing.toml"]),
        "",
        78,
        &["missing.toml"],
    );
}

#[test]
fn a_full_device_ends_with_74() {
    let work = Work::new();
    let input = work.file("in.ndjson", documents(&[json!(1), json!(2)]));
    for arguments in [&["--unsorted"][..], &[], &["--reduce", "_sum"]] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let mut command = work.map(EMIT, arguments);
        let child = command
            .arg(&input)
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(74),
            "{arguments:?} {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains("standard output"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let work = Work::new();
    let values: Vec<Value> = (0..50_000).map(|number| json!(number)).collect();
    let input = work.file("in.ndjson", documents(&values));
    for arguments in [&["--unsorted"][..], &[]] {
        let mut command = work.map(EMIT, arguments);
        let mut child = command
            .arg(&input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        read_lines(&mut output, 1);
        drop(output);
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), stderr(&output)),
            (Some(0), String::new())
        );
    }
}

#[test]
fn a_function_that_never_ends_is_told_with_its_document() {
    let work = Work::new();
    let config = work.file("c.toml", "[couchdb]\nos_process_timeout = 500\n");
    let function = "function(doc) { emit(doc.v); if (doc.v === 7) for (;;); }";
    let values: Vec<Value> = (0..10).map(|number| json!(number)).collect();
    fails(
        &mut work.map(function, &["-c", &config]),
        documents(&values),
        65,
        &["line 8", "\"d00007\"", "os_process_timeout"],
    );
}

/// A query server that dies over a document with `die`, the first times only if told so.
fn mortal_child(work: &Work, deaths: u32) -> String {
    let marks = work.path("marks");
    let script = format!(
        "while read -r line; do case $line in
           *map_doc*die*) echo x >> {0}; if [ $(wc -l < {0}) -le {deaths} ]; then exit 3; fi; echo '[[[\"survived\",1]]]';;
           *map_doc*) echo '[[[\"fine\",1]]]';;
           *) echo true;;
         esac; done",
        marks.display()
    );
    let child = work.file("child.sh", script);
    work.file(
        "c.toml",
        format!("[query_servers]\nshell = \"sh {child}\"\n"),
    )
}

#[test]
fn a_document_whose_process_died_gets_one_more_try() {
    let work = Work::new();
    let config = mortal_child(&work, 1);
    let values: Vec<Value> = (0..300)
        .map(|number| json!(if number == 200 { "die" } else { "" }))
        .collect();
    let mut command = work.map("any", &["-c", &config, "--language", "shell"]);
    let rows = lines(&run(&mut command, documents(&values).as_bytes()));
    assert_eq!(rows.len(), 300);
    assert_eq!(
        rows[299],
        json!({"id": "d00200", "key": "survived", "value": 1})
    );
}

#[test]
fn a_document_that_ends_two_processes_is_told() {
    let work = Work::new();
    let config = mortal_child(&work, 2);
    let values = [json!("a"), json!("b"), json!("die"), json!("c")];
    let mut command = work.map("any", &["-c", &config, "--language", "shell"]);
    fails(
        &mut command,
        documents(&values),
        65,
        &["line 3", "\"d00002\"", "status 3", "twice"],
    );
}

#[test]
fn a_query_server_that_answers_nonsense_is_told() {
    let work = Work::new();
    let child = work.file("child.sh", "while read -r line; do case $line in *map_doc*) echo '{\"x\":1}';; *) echo true;; esac; done");
    let config = work.file(
        "c.toml",
        format!("[query_servers]\nshell = \"sh {child}\"\n"),
    );
    let mut command = work.map("any", &["-c", &config, "--language", "shell"]);
    fails(
        &mut command,
        documents(&[json!(1)]),
        65,
        &["line 1", "{\"x\":1}"],
    );
}

#[test]
fn a_language_that_cannot_be_had_ends_with_78() {
    let work = Work::new();
    let config = work.file(
        "c.toml",
        "[query_servers]\nperl = \"/nonexistent/perl-server\"\n",
    );
    let input = documents(&[json!(1)]);
    fails(
        &mut work.map(EMIT, &["--language", "klingon"]),
        &input,
        78,
        &["klingon"],
    );
    fails(
        &mut work.map(EMIT, &["-c", &config, "--language", "perl"]),
        &input,
        78,
        &["/nonexistent/perl-server"],
    );
}

#[test]
fn a_running_services_processes_can_be_used() {
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
    service.wait_for("all returned", |pool| {
        pool["used"] == 0 && pool["procs"][0]["uses"].as_u64() > Some(0)
    });
    fails(
        &mut work.map(EMIT, &["--socket", "/nonexistent/s"]),
        &input,
        69,
        &["/nonexistent/s"],
    );
}
