//! `settee map --selector`: documents are chosen before they are mapped, or printed as they came.

use crate::support::program::{program, run};
use crate::support::work::{EMIT, Work, documents, fails, lines, stderr};
use serde_json::json;

#[test]
fn the_example_runs_as_the_manual_says() {
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
            "as it came, and in the order of the input"
        );
    }
    assert!(chosen.iter().all(|order| order["state"] == "paid"));
}

#[test]
fn alone_it_prints_what_matches_byte_for_byte() {
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
fn only_documents_that_match_are_mapped() {
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
fn an_index_definition_is_a_map_function_in_mango() {
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
fn a_mistake_in_a_selector_is_reported_with_its_place() {
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
fn a_bad_document_is_reported_with_its_line_after_those_before_it() {
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
fn without_a_map_function_there_is_nothing_to_reduce() {
    let work = Work::new();
    let selector = work.file("s.json", "{}");
    for arguments in [["--reduce", "_count"], ["--lib", "."], ["--socket", "/x"]] {
        let mut command = program(&["map", "--selector", &selector]);
        fails(command.args(arguments), "", 64, &["--map"]);
    }
    fails(&mut program(&["map"]), "", 64, &["--map"]);
}
