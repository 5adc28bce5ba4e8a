//! The examples of the README and of the pages on the socket and on CouchDB work unchanged.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::daemon::Service;
use crate::support::pages::blocks;
use crate::support::program::{SETTEE, project};

#[test]
fn the_lines_of_the_page_on_the_socket_work_when_pipelined() {
    let block = blocks("docs/socket.md", "json");
    let lines = block
        .iter()
        .find(|block| block.contains("\"call\""))
        .unwrap();
    let service = Service::start("");
    let mut client = service.connect();
    client.send_raw(lines.as_bytes());
    for _ in lines.lines() {
        let reply = client.reply();
        assert!(reply.get("ok").is_some(), "{reply}");
    }
    service.stop();
}

#[test]
fn the_first_example_of_the_readme_gives_the_shown_results() {
    let function = blocks("README.md", "js").remove(0);
    let readme = fs::read_to_string(project().join("README.md")).unwrap();
    let rows = readme.lines().filter(|line| line.starts_with("| `{"));
    let service = Service::start("");
    let mut client = service.connect();
    let mut compared = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('`').collect();
        let (input, shown) = (cells[1], cells[3]);
        let input: Value = serde_json::from_str(input).unwrap();
        let reply = client.call(&json!({"id": 1, "call": "show", "db": "alma", "name": "f", "doc": input, "report": true,
            "ddoc": {"_id": "_design/code", "shows": {"f": function}}}));
        let gives = match reply["errors"].get(0) {
            None => reply["ok"]["body"].as_str().unwrap().to_owned(),
            Some(error) => format!(
                "line {}, column {}: {}",
                error["line"],
                error["column"],
                error["message"].as_str().unwrap()
            ),
        };
        assert_eq!(gives, shown, "{reply}");
        compared += 1;
    }
    assert_eq!(compared, 2);
    service.stop();
}

#[test]
fn the_configurations_of_the_page_on_couchdb_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settee.toml");
    for block in blocks("docs/couchdb.md", "toml") {
        fs::write(&file, &block).unwrap();
        let output = Command::new(SETTEE)
            .args(["check-config", "-c"])
            .arg(&file)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{block}\n{error}");
    }
}

#[test]
fn the_script_that_replaces_couchdbs_own_program_is_a_query_server() {
    let page = blocks("docs/couchdb.md", "sh").concat();
    let script = page.lines().find_map(|line| line.strip_prefix("printf '"));
    let (script, _) = script.unwrap().split_once("' >").unwrap();
    let script = script.replace("\\n", "\n");
    let script = script.replace("/usr/bin/settee", SETTEE);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("couchjs_mainjs");
    fs::write(&program, script).unwrap();
    // As CouchDB starts it, without and with a memory limit.
    for arguments in ["", " -M 67108864"] {
        let line = format!(
            "echo '[\"reset\",{{}}]' | sh {}{arguments}",
            program.display()
        );
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(output.stdout, b"true\n", "{output:?}");
    }
}
