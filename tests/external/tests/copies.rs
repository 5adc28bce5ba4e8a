//! The replicator database as one end of a replication whose other end is express-pouchdb.

use serde_json::{Value, json};

use crate::pouch::Pouch;
use crate::support::daemon::{configure, directory};
use crate::support::http_client::Web;
use crate::support::program::program;
use crate::support::store::{create, foreign, put};

/// Documents that ask for replications which do not start: everything else is a database's matter.
fn start(more: &str) -> Web {
    Web::start(&format!("[replicator]\nmax_jobs = 0\n{more}"))
}

/// Runs `settee replicate` to its end.
fn replicate(source: &str, target: &str) {
    let folder = directory();
    let config = configure(folder.path(), "");
    let output = program(&["replicate", "-c"])
        .arg(config)
        .args([source, target])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(", 0 refused"), "{text}");
}

/// All leaves with their histories.
fn leaves(web: &Web, login: &[(&str, &str)]) -> Value {
    let path = "/_replicator/_changes?style=all_docs";
    let changes = web.connect().request("GET", path, login, "").ok();
    let ids = changes["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].clone());
    let mut ids: Vec<Value> = ids.collect();
    ids.sort_by_key(Value::to_string);
    let asked: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
    let mut headers = login.to_vec();
    headers.push(("Content-Type", "application/json"));
    let body = json!({"docs": asked}).to_string();
    web.connect()
        .request("POST", "/_replicator/_bulk_get?revs=true", &headers, &body)
        .ok()
}

#[test]
fn the_database_is_replicated_to_pouchdb_and_from_there_into_another_service() {
    let admins = "[admins]\nann = \"secret\"\n";
    let (one, other, pouch) = (start(admins), start(""), Pouch::start());
    let login = [("Authorization", "Basic YW5uOnNlY3JldA==")];
    let write = |method: &str, path: &str, body: &Value| {
        let headers = [login[0], ("Content-Type", "application/json")];
        let answer = one
            .connect()
            .request(method, path, &headers, &body.to_string());
        assert!(answer.status < 300, "{answer:?}");
        answer.json()
    };
    let mut secret = foreign("secret", &["s"]);
    secret["source"] = "http://u:pw@127.0.0.1:1/a".into();
    let docs = [
        foreign("a", &["b", "a"]),
        foreign("a", &["c", "a"]),
        foreign("gone", &["1"]),
        secret,
    ];
    let body = json!({"new_edits": false, "docs": docs});
    write("POST", "/_replicator/_bulk_docs", &body);
    write("DELETE", "/_replicator/gone?rev=1-1", &json!({}));
    write(
        "PUT",
        "/_replicator/_design/d",
        &json!({"language": "javascript"}),
    );
    let named = format!("http://ann:secret@{}/_replicator", one.address);
    let last = format!("http://{}/_replicator", other.address);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(pouch.create("all"));
    replicate(&named, &pouch.url("all"));
    replicate(&pouch.url("all"), &last);
    assert_eq!(
        leaves(&one, &login),
        leaves(&other, &[]),
        "every leaf, with its history"
    );
    assert_eq!(
        other.get("/_replicator/secret").ok()["source"],
        "http://u:pw@127.0.0.1:1/a"
    );
    // The way back: what was changed there comes here, and nothing else.
    let changed = other.get("/_replicator/a").ok();
    let rev = put(&other, "/_replicator/a", &changed).json()["rev"].clone();
    create(
        &other,
        "new",
        &foreign("new", &["n"])
            .as_object()
            .map(|doc| json!({"source": doc["source"], "target": doc["target"]}))
            .unwrap(),
    );
    replicate(&last, &named);
    let mine = one.connect().request("GET", "/_replicator/a", &login, "");
    assert_eq!(mine.ok()["_rev"], rev);
    assert_eq!(leaves(&one, &login), leaves(&other, &[]));
    one.service.stop();
    other.service.stop();
}
