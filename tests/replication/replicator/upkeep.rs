//! The store's file stays small, and can be copied while it is in use.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::daemon::wait_until;
use crate::support::http_client::Web;
use crate::support::program::SETTEE;
use crate::support::store::{create, file, post, start, start_in};

const IDLE: &str = "[replicator]\nmax_jobs = 0\n[store]\n";

fn body(id: &str) -> Value {
    let target = format!("http://ann:secret@127.0.0.1:1/{id}");
    json!({"source": "http://127.0.0.1:1/a", "target": target, "continuous": true})
}

#[test]
fn what_was_deleted_leaves_a_small_file_after_its_time() {
    let web = start(&format!("{IDLE}deleted_kept_for = 0\n"));
    create(&web, "live", &body("live"));
    let size = || file(web.service.directory.path()).metadata().unwrap().len();
    for round in 0..4 {
        let docs = (0..500).map(|n| {
            let id = format!("{round}-{n}");
            let mut body = body(&id);
            body["_id"] = id.into();
            body["note"] = "x".repeat(4000).into();
            body
        });
        let docs: Vec<Value> = docs.collect();
        let made = post(&web, "/_replicator/_bulk_docs", &json!({"docs": docs})).json();
        let rows = made.as_array().unwrap().iter();
        let rows = rows.map(|row| json!({"_id": row["id"], "_rev": row["rev"], "_deleted": true}));
        let docs: Vec<Value> = rows.collect();
        let deleted = post(&web, "/_replicator/_bulk_docs", &json!({"docs": docs}));
        assert_eq!(deleted.status, 201);
    }
    wait_until("a purge", || {
        web.get("/_replicator").ok()["doc_del_count"] == 0
    });
    wait_until("a small file", || size() < 1_000_000);
    let info = web.get("/_replicator").ok();
    assert_eq!(info["doc_count"], 1);
    let changes = web.get("/_replicator/_changes").ok();
    assert_eq!(changes["results"].as_array().unwrap().len(), 1);
    assert_eq!(changes["results"][0]["id"], "live");
    create(&web, "later", &body("later"));
    web.service.stop();
}

#[test]
fn what_was_deleted_is_kept_for_its_time() {
    let web = start(IDLE);
    let rev = create(&web, "a", &body("a"));
    let deleted = web.send("DELETE", &format!("/_replicator/a?rev={rev}"), "");
    assert_eq!(deleted.status, 200);
    let set = |value: &str| {
        let path = "/_node/_local/_config/store/deleted_kept_for";
        let answer = web.send("PUT", path, &format!("\"{value}\""));
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    set("86400");
    assert_eq!(web.get("/_replicator").ok()["doc_del_count"], 1);
    set("0");
    wait_until("a purge", || {
        web.get("/_replicator").ok()["doc_del_count"] == 0
    });
    web.service.stop();
}

fn backup(web: &Web, to: &Path) -> Output {
    Command::new(SETTEE)
        .args(["store", "backup"])
        .arg(to)
        .arg("--socket")
        .arg(web.service.socket())
        .output()
        .unwrap()
}

#[test]
fn a_copy_is_made_while_the_service_runs_and_a_service_starts_from_it() {
    let web = start(IDLE);
    let docs = (0..1200).map(|n| {
        let mut body = body(&n.to_string());
        body["_id"] = format!("d{n:04}").into();
        body
    });
    let docs: Vec<Value> = docs.collect();
    let made = post(&web, "/_replicator/_bulk_docs", &json!({"docs": docs}));
    assert_eq!(made.status, 201);
    let info = web.get("/_replicator").ok();
    let directory = crate::support::daemon::directory();
    let to = file(directory.path());
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let done = backup(&web, &to);
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(said.starts_with("1200 documents in "), "{said}");
    assert_eq!(to.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(&to).unwrap();
    let again = backup(&web, &to);
    assert_eq!(again.status.code(), Some(74), "{again:?}");
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(
        said.contains("is there already: name another file"),
        "{said}"
    );
    assert_eq!(std::fs::read(&to).unwrap(), before, "it stays as it is");
    let nowhere = backup(&web, &to.join("below"));
    assert_eq!(nowhere.status.code(), Some(74), "{nowhere:?}");
    create(&web, "later", &body("later"));
    web.service.stop();
    let web = start_in(directory, IDLE);
    let copied = web.get("/_replicator").ok();
    assert_eq!(copied["doc_count"], 1200);
    assert_eq!(copied["update_seq"], info["update_seq"]);
    let doc = web.get("/_replicator/d0007").ok();
    assert_eq!(doc["target"], body("7")["target"]);
    web.service.stop();
}
