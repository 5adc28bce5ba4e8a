//! Deleted documents are kept until they expire; then the store's file shrinks.

use serde_json::{Value, json};

use crate::support::daemon::wait_until;
use crate::support::store::{create, file, post, start};

const IDLE: &str = "[replicator]\nmax_jobs = 0\n[store]\n";

fn body(id: &str) -> Value {
    let target = format!("http://ann:secret@127.0.0.1:1/{id}");
    json!({"source": "http://127.0.0.1:1/a", "target": target, "continuous": true})
}

#[test]
fn deleted_documents_leave_a_small_file_once_they_expire() {
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
fn deleted_documents_are_kept_until_they_expire() {
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
