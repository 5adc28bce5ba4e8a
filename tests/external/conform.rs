//! The JUnit file of `settee conform`, as an independent parser reads it. Requires Python 3.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::program::program;

/// Prints the totals of each suite, and the content of its cases.
const READ: &str = r#"
import json, sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
def total(element): return [int(element.get(name)) for name in ("tests", "failures", "errors", "skipped")]
def inside(case): return [[child.tag, child.get("message")] for child in case]
suites = {suite.get("name"): {
    "total": total(suite),
    "cases": {case.get("name"): inside(case) for case in suite.iter("testcase")},
} for suite in root}
print(json.dumps({"total": total(root), "suites": suites}))
"#;

/// Accepts functions, and answers documents with characters that XML forbids. It knows no libraries.
const HOSTILE: &str = r#"
while read -r line; do
    case "$line" in
        '["add_lib"'*) echo '["error","unknown_command","<&\"]]>"]' ;;
        '["map_doc"'*) printf '<a>&\033[2J\001 "\357\277\277" ]]>\n' ;;
        *) echo true ;;
    esac
done
"#;

fn read(file: &Path) -> Value {
    let output = Command::new("python3")
        .args(["-c", READ])
        .arg(file)
        .output();
    let output = output.expect("python3 is installed");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn the_junit_file_is_xml_with_every_case_whatever_the_command_prints() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("conform.xml");
    let mut conform = program(&["conform", "--language", "perl", "--json", "--junit"]);
    let conform = conform.arg(&file).args(["--", "sh", "-c", HOSTILE]);
    let output = conform.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (read, cases) = (read(&file), report["cases"].as_array().unwrap());
    let count = |name: &str| report[name].as_u64().unwrap();
    let failures = count("failed") + count("not_run");
    assert_eq!(
        read["total"],
        json!([cases.len(), failures, 0, count("not_supported")])
    );
    for case in cases {
        let name = |member: &str| case[member].as_str().unwrap();
        let inside = &read["suites"][name("ability")]["cases"][name("id")];
        let tag = match name("result") {
            "pass" => json!(null),
            "not_supported" => json!("skipped"),
            _ => json!("failure"),
        };
        assert_eq!(
            inside[0].get(0).unwrap_or(&Value::Null),
            &tag,
            "{case}: {inside}"
        );
    }
    let one_row = &read["suites"]["map"]["cases"]["basic/map/one-row"];
    let problem = one_row[0][1].as_str().unwrap();
    assert!(problem.contains("<a>&?[2J? \"?\" ]]>"), "{problem}");
}

#[test]
fn the_junit_file_of_a_command_that_is_not_a_query_server_has_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("conform.xml");
    let mut conform = program(&["conform", "--junit"]);
    let output = conform.arg(&file).args(["--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let read = read(&file);
    assert_eq!(read["total"], json!([1, 0, 1, 0]));
    let inside = &read["suites"]["reset"]["cases"]["it answers reset"][0];
    assert_eq!(inside[0], "error");
    assert!(
        inside[1]
            .as_str()
            .unwrap()
            .starts_with("it exited with status 0"),
        "{inside}"
    );
}
