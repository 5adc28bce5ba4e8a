//! `settee map --selector`: filters documents before they are mapped, or prints matching documents unchanged.

use crate::support::program::{program, run};
use crate::support::work::{EMIT, Work, documents, fails, lines, stderr};
use serde_json::json;

#[test]
fn the_documented_example_prints_paid_orders_in_input_order() {
    let arguments = [
        "map",
        "--selector",
        "examples/orders/paid.json",
        "examples/orders/orders.ndjson",
    ];
    let output = run(&mut program(&arguments), b"");
    let chosen = lines(&output);
    assert!(!chosen.is_empty());
    let orders = std::fs::read_to_string("examples/orders/orders.ndjson").unwrap();
    let mut rest = orders.lines();
    for line in std::str::from_utf8(&output.stdout).unwrap().lines() {
        assert!(
            rest.any(|order| order == line),
            "unchanged, and in the order of the input"
        );
    }
    assert!(chosen.iter().all(|order| order["state"] == "paid"));
}

#[test]
fn matching_documents_are_printed_byte_for_byte_without_map() {
    let work = Work::new();
    let selector = work.file("s.json", r#"{"v": {"$gte": 2}}"#);
    let input = b" {\"_id\":\"a\",\"v\": 2.50}\r\n\n{\"v\":1,\"_id\":\"b\"}\n{\"_id\":\"c\" ,\"v\":\"\\u0041\"}";
    let output = run(program(&["map", "--selector", &selector]).arg("-"), input);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "{\"_id\":\"a\",\"v\": 2.50}\n{\"_id\":\"c\" ,\"v\":\"\\u0041\"}\n"
    );
}

#[test]
fn only_matching_documents_are_mapped() {
    let work = Work::new();
    let selector = work.file("s.json", r#"{"v": {"$mod": [2, 0]}}"#);
    let values: Vec<_> = (0..500).map(|number| json!(number)).collect();
    let mut command = work.map(EMIT, &["--selector", &selector]);
    let rows = lines(&run(&mut command, documents(&values).as_bytes()));
    let keys: Vec<u64> = rows
        .iter()
        .map(|row| row["key"].as_u64().unwrap())
        .collect();
    assert_eq!(
        keys,
        (0..500)
            .filter(|number| number % 2 == 0)
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_mango_index_definition_is_accepted_as_a_map_function() {
    let work = Work::new();
    let index = work.file("i.json", r#"{"fields": {"v": "asc", "_id": "asc"}}"#);
    let input = documents(&[json!(2), json!(1)]);
    let mut command = program(&["map", "--language", "query", "--map", &index]);
    let rows = lines(&run(&mut command, input.as_bytes()));
    assert_eq!(rows[0]["key"], json!([1, "d00001"]));
    assert_eq!(rows[1]["key"], json!([2, "d00000"]));
    let wrong = work.file("w.json", r#"{"fields": 5}"#);
    let mut command = program(&["map", "--language", "query", "--map", &wrong]);
    fails(&mut command, "", 65, &["w.json", "fields"]);
}

#[test]
fn an_invalid_selector_is_reported_with_its_file_and_position() {
    let work = Work::new();
    for (text, words) in [
        (
            "{\n  \"a\": {\"$foo\": 1}\n}",
            &["s.json:2:9", "invalid_operator", "$foo"][..],
        ),
        ("{\"a\":", &["s.json:1:", "not JSON"]),
        (
            "{\"a\":{\"$regex\":\"(\"}}",
            &["s.json:1:", "bad_arg", "$regex"],
        ),
        ("[1]", &["s.json:1:1", "must be a JSON object, not array"]),
    ] {
        let selector = work.file("s.json", text);
        fails(
            &mut program(&["map", "--selector", &selector]),
            "",
            65,
            words,
        );
        fails(
            &mut work.map(EMIT, &["--selector", &selector]),
            "",
            65,
            words,
        );
    }
    let mut command = program(&["map", "--selector", "/no/such/file"]);
    fails(&mut command, "", 74, &["/no/such/file"]);
}

#[test]
fn a_bad_document_is_reported_by_line_after_earlier_matches_are_printed() {
    let work = Work::new();
    let selector = work.file("s.json", r#"{"v": {"$regex": "^(a|a?)+\\1$"}}"#);
    let bad = json!({"_id": "y", "v": format!("{}!", "a".repeat(2000))}).to_string();
    for (line, words) in [
        (bad.as_str(), &["line 2", "\"y\"", "takes too long"][..]),
        ("{\"_id\":1}", &["line 2", "must be a string"]),
        ("nonsense", &["line 2", "not JSON"]),
    ] {
        let input = format!("{{\"_id\":\"x\",\"v\":\"aa\"}}\n{line}\n");
        let mut command = program(&["map", "--selector", &selector]);
        let output = fails(&mut command, &input, 65, words);
        assert_eq!(output.stdout, b"{\"_id\":\"x\",\"v\":\"aa\"}\n");
    }
}

#[test]
fn reduce_lib_and_socket_require_map() {
    let work = Work::new();
    let selector = work.file("s.json", "{}");
    for arguments in [["--reduce", "_count"], ["--lib", "."], ["--socket", "/x"]] {
        let mut command = program(&["map", "--selector", &selector]);
        fails(command.args(arguments), "", 64, &["--map"]);
    }
    fails(&mut program(&["map"]), "", 64, &["--map"]);
}
