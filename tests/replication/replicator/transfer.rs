//! `settee jobs export`, and `import` into a running service.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::daemon::wait_until;
use crate::support::http_client::Web;
use crate::support::program::SETTEE;
use crate::support::store::{create, post, put};

fn start() -> Web {
    Web::start("[replicator]\nmax_jobs = 0\n")
}

fn body(id: &str) -> Value {
    let target = format!("http://ann:hidden@127.0.0.1:1/{id}");
    json!({"source": "http://127.0.0.1:1/a", "target": target, "continuous": true})
}

fn jobs(web: &Web, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(SETTEE);
    command.arg("jobs").args(arguments);
    command.arg("--socket").arg(web.service.socket());
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[track_caller]
fn text(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let said = match code {
        0 => &output.stdout,
        _ => &output.stderr,
    };
    String::from_utf8(said.clone()).unwrap()
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().unwrap().to_owned()
}

#[test]
fn documents_are_exported_while_the_service_runs_and_imported_into_another_one() {
    let web = start();
    let docs = (0..1200).map(|n| {
        let mut body = body(&n.to_string());
        body["_id"] = format!("d{n:04}").into();
        body
    });
    let docs: Vec<Value> = docs.collect();
    let made = post(&web, "/_replicator/_bulk_docs", &json!({"docs": docs}));
    assert_eq!(made.status, 201);
    create(&web, "_design/d", &json!({"language": "javascript"}));
    let jobs_of = |web: &Web, query: &str| web.get(&format!("/_scheduler/jobs{query}")).ok();
    wait_until("jobs", || jobs_of(&web, "")["total_rows"] == 1200);
    let job = |web: &Web| web.get("/_scheduler/docs/_replicator/d0007").ok()["id"].clone();
    let id = job(&web).as_str().unwrap().to_owned();
    text(&jobs(&web, &["pause", &id], ""), 0);
    text(&jobs(&web, &["priority", &id, "7"], ""), 0);
    let directory = tempfile::tempdir().unwrap();
    let to = path(directory.path(), "backup.ndjson");
    let said = text(&jobs(&web, &["export", "--secrets", &to], ""), 0);
    assert_eq!(said, format!("1201 documents in {to}\n"));
    let mode = fs::metadata(&to).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let exported = fs::read_to_string(&to).unwrap();
    assert_eq!(exported.lines().count(), 1203, "a head, and a last line");
    let said = text(&jobs(&web, &["export", &to], ""), 74);
    assert!(said.contains("already exists: name another file"), "{said}");
    assert_eq!(
        fs::read_to_string(&to).unwrap(),
        exported,
        "the existing file is unchanged"
    );
    let below = path(directory.path(), "backup.ndjson/below");
    text(&jobs(&web, &["export", &below], ""), 74);
    let files = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(files, 1, "no temporary file is left");
    let doc = web.get("/_replicator/d0007").ok();
    web.service.stop();
    let other = start();
    let said = text(&jobs(&other, &["import", &to], ""), 0);
    assert_eq!(said.lines().count(), 1201);
    assert!(
        said.starts_with("created _design/d\ncreated d0000\n"),
        "{said}"
    );
    assert_eq!(other.get("/_replicator/d0007").ok(), doc);
    wait_until("jobs", || jobs_of(&other, "")["total_rows"] == 1200);
    let paused = jobs_of(&other, "?states=paused");
    assert_eq!(
        (
            &paused["total_rows"],
            &paused["jobs"][0]["doc_id"],
            &paused["jobs"][0]["priority"]
        ),
        (&json!(1), &json!("d0007"), &json!(7))
    );
    let said = text(&jobs(&other, &["import", "-"], &exported), 0);
    assert!(said.lines().all(|line| line.starts_with("unchanged ")));
    other.service.stop();
}

#[test]
fn credentials_are_exported_only_with_secrets_and_only_to_a_file() {
    let web = start();
    let mut doc = body("a");
    doc["source"] = json!({
        "url": "http://127.0.0.1:1/a", "headers": {"X-Key": "hidden"},
        "auth": {"basic": {"username": "u", "password": "hidden"}},
    });
    doc["n"] = 1.into();
    create(&web, "a", &doc);
    let said = text(&jobs(&web, &["export"], ""), 0);
    let line = said.lines().nth(1).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert!(!said.contains("hidden"), "{said}");
    let doc = &line["doc"];
    assert_eq!(
        (&line["id"], &doc["source"], &doc["target"], &doc["n"]),
        (
            &json!("a"),
            &json!({"url": "http://127.0.0.1:1/a"}),
            &json!("http://127.0.0.1:1/a"),
            &json!(1)
        )
    );
    let said = text(&jobs(&web, &["export", "--secrets"], ""), 64);
    assert!(said.contains("FILE"), "{said}");
    let directory = tempfile::tempdir().unwrap();
    let to = path(directory.path(), "plain.ndjson");
    text(&jobs(&web, &["export", &to], ""), 0);
    let plain = fs::read_to_string(&to).unwrap();
    assert!(!plain.contains("hidden"), "{plain}");
    // An import without credentials does not remove those of an existing document.
    let refused = jobs(&web, &["import", &to], "");
    assert_eq!(refused.status.code(), Some(65));
    assert!(web.get("/_replicator/a").body.contains("hidden"));
    web.service.stop();
}

#[test]
fn an_import_from_the_previous_version_reports_the_result_of_each_document() {
    let web = start();
    let mine = create(&web, "mine", &body("mine"));
    let line = |id: &str, target: &str| {
        let mut doc = body(target);
        doc["_id"] = id.into();
        doc["_rev"] = "7-abc".into();
        doc.to_string()
    };
    let wrong = [
        r#"{"_id": "none", "source": 1}"#,
        r#"{"_id": "gone", "_rev": "1-a", "_deleted": true}"#,
        r#"{"_id": "_x"}"#,
        r#"{"_id": "_local/x"}"#,
    ];
    let input = format!(
        "{}\n\n{}\n{}\n",
        line("new", "new"),
        line("mine", "other"),
        wrong.join("\n")
    );
    let refused = jobs(&web, &["import", "-"], &input);
    let said = text(&refused, 65);
    assert!(
        said.contains("5 of 6 documents were not imported"),
        "{said}"
    );
    let list = String::from_utf8(refused.stdout).unwrap();
    let starts = [
        "created new",
        "conflict mine: another",
        "forbidden none: ",
        "bad_request gone: ",
        "illegal_docid _x: ",
        "bad_request _local/x: ",
    ];
    assert_eq!(list.lines().count(), starts.len(), "{list}");
    for (line, start) in list.lines().zip(starts) {
        assert!(line.starts_with(start), "{line}: {start}");
    }
    assert_eq!(web.get("/_replicator/mine").ok()["_rev"], mine.as_str());
    let new = web.get("/_replicator/new").ok();
    assert!(
        new["_rev"].as_str().unwrap().starts_with("1-"),
        "an ordinary write: {new}"
    );
    for no_document in ["[]", "{\"_id\": ", "7", "{}"] {
        let input = format!("{}\n{no_document}\n", line("newer", "new"));
        let said = text(&jobs(&web, &["import", "-"], &input), 65);
        assert!(said.contains("-: line 2: "), "{said}");
        assert_eq!(web.get("/_replicator/newer").status, 404);
    }
    text(&jobs(&web, &["import", "/nowhere/at/all"], ""), 74);
    put(&web, "/_replicator/_design/d", &json!({}));
    let all = text(&jobs(&web, &["export"], ""), 0);
    assert_eq!(all.lines().count(), 5);
    web.service.stop();
}
