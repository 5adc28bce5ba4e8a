//! Failures of `settee map`: each has its exit code and names its cause.

use std::process::Stdio;

use crate::support::program::{program, read_lines, run};
use crate::support::work::{EMIT, ONE, Work, documents, fails, lines, stderr};
use serde_json::{Value, json};

#[test]
fn a_bad_line_ends_with_65_and_names_file_and_line() {
    let work = Work::new();
    let good = "{\"_id\":\"a\",\"v\":1}\n";
    for (line, problem) in [
        ("{\"_id\":\"b\"", "not JSON"),
        ("null", "not a JSON object"),
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
fn a_function_that_fails_for_every_document_ends_with_65() {
    let work = Work::new();
    let source = "function(doc) {\n  emit(doc.a.b)\n}";
    let input = documents(&[json!(1), json!(2)]);
    fails(
        &mut work.map(source, &[]),
        &input,
        65,
        &["map.js:2:8", "every document"],
    );
}

#[test]
fn a_mistake_in_javascript_is_reported_with_file_and_line() {
    let work = Work::new();
    let broken = "// Orders\nfunction(doc) {\n  emit(doc. ;\n}\n";
    fails(&mut work.map(broken, &[]), "", 65, &["map.js:3:"]);
    let input = documents(&[json!(1)]);
    let reduce = work.file("reduce.js", "function(keys, values) {\n  return (;\n}");
    fails(
        &mut work.map(ONE, &["--reduce", &reduce]),
        &input,
        65,
        &["reduce.js:2:"],
    );
    let lib = work.path("lib");
    std::fs::create_dir(&lib).unwrap();
    std::fs::write(lib.join("tax.js"), "exports.rate = 1;\nexports.f = ;\n").unwrap();
    fails(
        work.map(EMIT, &[]).arg("--lib").arg(&lib),
        &input,
        65,
        &["tax.js:2:", "SyntaxError: "],
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
fn an_unknown_reducer_ends_with_64() {
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
fn a_closed_output_is_not_an_error() {
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
fn a_function_that_never_ends_is_reported_with_its_document() {
    let work = Work::new();
    let config = work.file("c.toml", "[couchdb]\nos_process_timeout = 3000\n");
    let function = "function(doc) { emit(doc.v); if (doc.v === 7) for (;;); }";
    let values: Vec<Value> = (0..10).map(|number| json!(number)).collect();
    fails(
        &mut work.map(function, &["-c", &config]),
        documents(&values),
        65,
        &["line 8", "\"d00007\"", "os_process_timeout"],
    );
}

/// Writes a configuration with a query server that runs `death` at a document with `die`, the first `deaths` times.
/// Returns its path.
fn mortal_child(work: &Work, deaths: u32, death: &str) -> String {
    let marks = work.path("marks");
    let script = format!(
        "while read -r line; do case $line in
           *map_doc*die*) echo x >> {0}; if [ $(wc -l < {0}) -le {deaths} ]; then {death}; fi; echo '[[[\"survived\",1]]]';;
           *map_doc*) echo '[[[\"fine\",1]]]';;
           *) echo true;;
         esac; done",
        marks.display()
    );
    let child = work.file("child.sh", script);
    work.file(
        "c.toml",
        // The server writes a file.
        format!(
            "[query_server_config]\nsandbox = \"off\"\n[query_servers]\nshell = \"sh {child}\"\n"
        ),
    )
}

#[test]
fn a_document_whose_process_died_is_retried_once() {
    let work = Work::new();
    let config = mortal_child(&work, 1, "exit 3");
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
fn a_document_that_kills_two_processes_is_reported() {
    let work = Work::new();
    let config = mortal_child(&work, 2, "exit 3");
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
fn a_refused_system_call_is_reported_with_the_document() {
    let work = Work::new();
    let death = "echo refused system call ptrace >&2; kill -SYS $$";
    let config = mortal_child(&work, 2, death);
    let mut command = work.map("any", &["-c", &config, "--language", "shell"]);
    fails(
        &mut command,
        documents(&[json!("a"), json!("die")]),
        65,
        &["line 2", "SIGSYS", "refused system call ptrace"],
    );
}

#[test]
fn a_query_server_that_breaks_the_protocol_is_reported() {
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
fn a_reduce_function_that_prints_an_answer_is_reported() {
    let work = Work::new();
    let script = "while read -r line; do case $line in
        *map_doc*) echo '[[[1,1]]]';;
        '[\"reduce\"'*) echo '[true,[777]]'; read -r line; echo '[true,[1]]';;
        *) echo true;;
        esac; done";
    let child = work.file("child.sh", script);
    let config = work.file(
        "c.toml",
        format!("[query_servers]\nshell = \"sh {child}\"\n"),
    );
    let reduce = work.file("reduce.txt", "any");
    let arguments = ["-c", &config, "--language", "shell", "--reduce", &reduce];
    fails(
        &mut work.map("any", &arguments),
        documents(&[json!(1)]),
        75,
        &["more answers than prompts"],
    );
}

#[test]
fn an_unavailable_language_ends_with_78() {
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
fn map_uses_the_cell_of_its_languages_own_pool() {
    let work = Work::new();
    let script = "while read -r line; do case $line in
        *map_doc*) echo \"[[[\\\"$MODE\\\",1]]]\";;
        *) echo true;;
        esac; done";
    let child = work.file("child.sh", script);
    let config = work.file(
        "c.toml",
        format!(
            "[query_servers]\nshell = \"sh {child}\"\n[pools.shell]\nenv = \"MODE=fast\"\nmax = 1\n"
        ),
    );
    let mut command = work.map("any", &["-c", &config, "--language", "shell"]);
    let rows = lines(&run(&mut command, documents(&[json!(1)]).as_bytes()));
    assert_eq!(rows[0]["key"], "fast");
}
