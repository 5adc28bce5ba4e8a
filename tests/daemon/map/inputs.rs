//! Irregular inputs of `settee map`: documents without ids, bad lines, and other formats.

use std::process::{Command, Output, Stdio};

use crate::support::daemon::{signal, wait_until};
use crate::support::program::{SETTEE, program, run};
use crate::support::work::{EMIT, ONE, Work, fails, lines, stderr};
use serde_json::{Value, json};

const ORDERS: &str = "{\"v\":2}\n\n{\"v\":1,\"_id\":\"b\"}\n{}\n";

#[test]
fn a_document_without_an_id_gets_the_number_of_its_line() {
    let work = Work::new();
    let orders = work.file("in.ndjson", ORDERS);
    for function in [
        EMIT,
        "function(doc) { with (doc) emit(typeof v === 'undefined' ? null : v, _id) }",
    ] {
        let rows = lines(&run(&mut work.map(function, &[&orders]), b""));
        let expected = [("4", Value::Null), ("b", json!(1)), ("1", json!(2))];
        let expected = expected.map(|(id, key)| json!({"id": id, "key": key, "value": id}));
        assert_eq!(rows, expected);
    }
    let selector = work.file("s.json", "{\"v\": {\"$gt\": 0}}");
    let output = run(
        &mut program(&["map", "--selector", &selector, &orders]),
        b"",
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, "{\"v\":2}\n{\"v\":1,\"_id\":\"b\"}\n");
}

#[test]
fn bad_lines_are_skipped_up_to_a_maximum_and_the_first_are_reported() {
    let work = Work::new();
    let bad = "{\"v\":1}\nx\n{\"v\":2}\n7\n{\"_id\":3}\n{\"v\":\n{\"v\":3}\n";
    let selector = work.file("s.json", "{}");
    let select = || program(&["map", "--selector", &selector, "--skip-bad", "4"]);
    let summary = "settee: 4 bad lines were skipped. line 2: not JSON: expected value at column 1; \
                   line 4: not a JSON object; a document is one object on one line; \
                   line 5: the document's '_id' is 3; it must be a string\n";
    for mut command in [work.map(EMIT, &["--skip-bad", "4"]), select()] {
        let output = run(&mut command, bad.as_bytes());
        assert_eq!(lines(&output).len(), 3);
        assert_eq!(stderr(&output), summary);
    }
    let mut command = work.map(EMIT, &["--skip-bad", "3"]);
    let words = [
        "3 bad lines were skipped",
        "line 6: not JSON",
        "--skip-bad N",
    ];
    fails(&mut command, bad, 65, &words);
    fails(
        &mut work.map(EMIT, &[]),
        bad,
        65,
        &["line 2: not JSON", "--skip-bad N"],
    );
    let output = run(&mut work.map(EMIT, &["--skip-bad", "1"]), ORDERS.as_bytes());
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_byte_order_mark_is_not_part_of_the_first_document() {
    let work = Work::new();
    let input = format!("\u{feff}{ORDERS}");
    let rows = lines(&run(&mut work.map(EMIT, &[]), input.as_bytes()));
    assert_eq!(rows.len(), 3);
    for short in ["", "\u{feff}", "{}", "\n"] {
        run(&mut work.map(EMIT, &[]), short.as_bytes());
    }
}

/// Runs the command that a refusal suggests, if its program is installed.
fn follow(refused: &Output, file: &str, work: &Work) -> Option<Output> {
    let said = stderr(refused);
    let (_, hint) = said.trim_end().split_once("a line: ").unwrap();
    let map = format!("{SETTEE} map --map {}", work.path("map.js").display());
    let command = hint.replace("FILE", file).replace("settee map ..", &map);
    let converter = command.split(' ').next().unwrap();
    let found = Command::new(converter).arg("--version").output().is_ok();
    found.then(|| run(Command::new("sh").args(["-c", &command]), b""))
}

#[test]
fn other_formats_are_refused_by_name_with_a_command_that_converts_them() {
    let work = Work::new();
    let plain = work.file("plain", ORDERS);
    let gzip = Command::new("gzip").args(["-c", &plain]).output().unwrap();
    let utf_16: Vec<u8> = format!("\u{feff}{ORDERS}")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    for (name, content, word, rows) in [
        ("in.gz", gzip.stdout, "compressed with gzip", 3),
        (
            "in.zst",
            b"\x28\xb5\x2f\xfd\x04".to_vec(),
            "compressed with zstd",
            0,
        ),
        ("in.16", utf_16, "UTF-16", 3),
        (
            "in.json",
            b" [{\"v\":1},\n{\"v\":2}]".to_vec(),
            "a JSON array",
            2,
        ),
        (
            "in.csv",
            b"\xef\xbb\xbfv,w\n1,2\n\"3,4\",5\n".to_vec(),
            "CSV",
            2,
        ),
        ("in.tsv", b"v\tw\n1\t2\n".to_vec(), "CSV", 1),
    ] {
        let file = work.file(name, content);
        let words = [&format!("{name}: {word}, not one JSON document a line: ")];
        let refused = fails(
            &mut work.map(ONE, &[&file]),
            "",
            65,
            &words.map(|word| &**word),
        );
        let mut select = program(&["map", "--selector", &work.file("s.json", "{}"), &file]);
        fails(&mut select, "", 65, &[word]);
        if rows > 0
            && let Some(output) = follow(&refused, &file, &work)
        {
            assert_eq!(lines(&output).len(), rows, "{name}");
        }
    }
}

#[test]
fn an_interrupt_ends_map_although_its_rows_are_not_read() {
    let work = Work::new();
    let input = work.file("in.ndjson", "{}\n");
    // More rows than a pipe holds, and fewer than the queue before it.
    let many = "function(doc) { for (var i = 0; i < 2000; i++) emit(i, Array(100).join('x')) }";
    let mut command = work.map(many, &[&input]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // At the first byte the rows are queued and the pipe is full.
    let mut rows = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut rows, &mut [0]).unwrap();
    wait_until("the end", || {
        let is_over = child.try_wait().unwrap().is_some();
        if !is_over {
            // The first may only end the mapping; the second ends the wait for the reader.
            signal(child.id(), "INT");
        }
        is_over
    });
    let output = child.wait_with_output().unwrap();
    drop(rows);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(75), "{said}");
    assert!(said.starts_with("settee: interrupted after "), "{said}");
}

#[test]
fn an_interrupt_ends_map_and_reports_its_progress() {
    let work = Work::new();
    for (arguments, printed) in [(&["--unsorted"][..], 1), (&[], 0)] {
        let mut command = work.map(ONE, arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"{\"v\":1}\n").unwrap();
        // Once mapping has begun, interrupts are handled.
        let status = format!("/proc/{}/status", child.id());
        wait_until("a handler of SIGINT", || {
            let text = std::fs::read_to_string(&status).unwrap();
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & 2 != 0
        });
        signal(child.id(), "INT");
        let output = child.wait_with_output().unwrap();
        drop(input);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(75), "{said}");
        assert!(said.starts_with("settee: interrupted after "), "{said}");
        assert!(said.contains("--unsorted"), "{said}");
        let rows = output.stdout.iter().filter(|byte| **byte == b'\n').count();
        assert!(rows <= printed, "{rows}");
    }
}
