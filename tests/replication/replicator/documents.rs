//! Documents of the replicator database have CouchDB's shapes and codes.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::support::http_client::Web;
use crate::support::store::{create, post, put};

/// Nothing listens at these URLs; no replication has to run. Each body has its own target: of two
/// documents for the same replication, one fails.
fn body() -> Value {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let target = format!(
        "http://127.0.0.1:1/b{}",
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    json!({"source": "http://127.0.0.1:1/a", "target": target, "continuous": true})
}

/// A service whose replications do not start.
fn start() -> Web {
    Web::start("[replicator]\nmax_jobs = 0\n")
}

#[test]
fn the_database_exists_and_reports_its_contents() {
    let web = start();
    let info = web.get("/_replicator").ok();
    assert_eq!(info["db_name"], "_replicator");
    assert_eq!(
        (&info["doc_count"], &info["doc_del_count"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(info["instance_start_time"], "0");
    assert!(info["update_seq"].as_str().unwrap().starts_with("0-"));
    web.send("PUT", "/_replicator", "")
        .reason(412, "file_exists");
    let refused = web.send("DELETE", "/_replicator", "");
    assert!(refused.reason(405, "method_not_allowed").contains("GET"));
    create(&web, "a", &body());
    assert_eq!(web.get("/_replicator/").ok()["doc_count"], 1);
    web.service.stop();
}

#[test]
fn a_document_is_written_read_changed_and_deleted_with_its_revision() {
    let web = start();
    let made = put(&web, "/_replicator/a", &body());
    assert_eq!(made.status, 201);
    let value = made.json();
    let rev = value["rev"].as_str().unwrap();
    assert_eq!(value, json!({"ok": true, "id": "a", "rev": rev}));
    assert_eq!(made.header("etag"), Some(format!("\"{rev}\"").as_str()));
    assert!(made.header("location").unwrap().ends_with("/_replicator/a"));
    let read = web.get("/_replicator/a");
    assert_eq!(read.header("etag"), Some(format!("\"{rev}\"").as_str()));
    let document = read.ok();
    assert_eq!(
        (&document["_id"], &document["_rev"]),
        (&json!("a"), &json!(rev))
    );
    assert_eq!(document["source"], body()["source"]);
    let again = put(&web, "/_replicator/a", &body());
    assert_eq!(again.reason(409, "conflict"), "Document update conflict.");
    let mut changed = document;
    changed["note"] = "x".into();
    let second = put(&web, "/_replicator/a", &changed);
    assert_eq!(second.status, 201);
    let second = second.json()["rev"].as_str().unwrap().to_owned();
    assert!(second.starts_with("2-"));
    web.send("DELETE", "/_replicator/a", "")
        .reason(409, "conflict");
    let gone = web
        .send("DELETE", &format!("/_replicator/a?rev={second}"), "")
        .ok();
    assert!(gone["rev"].as_str().unwrap().starts_with("3-"));
    assert_eq!(
        web.get("/_replicator/a").reason(404, "not_found"),
        "deleted"
    );
    assert_eq!(
        web.get("/_replicator/b").reason(404, "not_found"),
        "missing"
    );
    web.send("DELETE", "/_replicator/b?rev=1-0", "")
        .reason(404, "not_found");
    let reborn = put(&web, "/_replicator/a", &body()).json();
    assert!(reborn["rev"].as_str().unwrap().starts_with("4-"));
    web.service.stop();
}

#[test]
fn a_revision_may_be_in_body_query_or_header_and_they_must_agree() {
    let web = start();
    let rev = create(&web, "a", &body());
    let mut with_rev = body();
    with_rev["_rev"] = "1-00".into();
    let two = put(&web, &format!("/_replicator/a?rev={rev}"), &with_rev);
    assert!(two.reason(400, "bad_request").contains("different values"));
    let headers = [
        ("Content-Type", "application/json"),
        ("If-Match", rev.as_str()),
    ];
    let mut connection = web.connect();
    let third = connection.request("PUT", "/_replicator/a", &headers, &body().to_string());
    assert_eq!(third.status, 201, "{third:?}");
    let known = third.json()["rev"].as_str().unwrap().to_owned();
    let etag = format!("\"{known}\"");
    let same = connection.request("GET", "/_replicator/a", &[("If-None-Match", &etag)], "");
    assert_eq!(same.status, 304);
    put(&web, "/_replicator/a?rev=x", &body()).reason(400, "bad_request");
    let head = connection.request("HEAD", "/_replicator/a", &[], "");
    assert_eq!(
        (head.status, head.header("etag")),
        (200, Some(etag.as_str()))
    );
    web.service.stop();
}

#[test]
fn an_invalid_replication_is_forbidden_with_the_reason() {
    let web = start();
    for (wrong, part) in [
        (json!({}), "Missing replicator database"),
        (json!({"foo": "bar"}), "Missing replicator database"),
        (
            json!({"source": "a", "target": "b"}),
            "local_endpoints_not_supported",
        ),
        (
            json!({"source": "http://h/a", "target": "http://h/b", "continuous": 1}),
            "parameter `continuous` must be a boolean",
        ),
    ] {
        let reason = put(&web, "/_replicator/x", &wrong).reason(403, "forbidden");
        assert!(reason.contains(part), "{reason}");
        for path in ["/_replicator/_local/x", "/_replicator/_design/x"] {
            let rev = web.get(path).json()["_rev"].clone();
            let mut free = wrong.clone();
            if let Some(rev) = rev.as_str() {
                free["_rev"] = rev.into();
            }
            assert_eq!(put(&web, path, &free).status, 201, "{path}");
        }
    }
    for (id, error) in [("_x", "illegal_docid"), ("%ff", "bad_request")] {
        let answer = put(&web, &format!("/_replicator/{id}"), &body());
        assert_eq!(answer.json()["error"], error);
    }
    put(&web, "/_replicator/x", &json!([])).reason(400, "bad_request");
    let mut special = body();
    special["_foo"] = 1.into();
    let reason = put(&web, "/_replicator/x", &special).reason(400, "doc_validation");
    assert_eq!(reason, "Bad special document member: _foo");
    web.send("PUT", "/_replicator/x", "{")
        .reason(400, "bad_request");
    web.service.stop();
}

#[test]
fn a_post_creates_an_id_and_bulk_docs_returns_a_result_for_each_document() {
    let web = start();
    let made = post(&web, "/_replicator", &body()).json();
    assert_eq!(made["id"].as_str().unwrap().len(), 32);
    let quick = post(&web, "/_replicator?batch=ok", &body());
    assert_eq!(quick.status, 202);
    assert_eq!(quick.json()["rev"], Value::Null);
    let mut docs = vec![body(), json!({"_id": "bad"}), body(), body()];
    docs[0]["_id"] = "a".into();
    docs[2]["_id"] = "a".into();
    let answer = post(&web, "/_replicator/_bulk_docs", &json!({"docs": docs}));
    assert_eq!(answer.status, 201);
    let rows = answer.json();
    assert_eq!(
        (&rows[0]["ok"], &rows[0]["id"]),
        (&json!(true), &json!("a"))
    );
    assert_eq!(
        (&rows[1]["id"], &rows[1]["error"]),
        (&json!("bad"), &json!("forbidden"))
    );
    assert_eq!(rows[2]["error"], "conflict");
    assert_eq!(rows[3]["id"].as_str().unwrap().len(), 32);
    post(&web, "/_replicator/_bulk_docs", &json!({})).reason(400, "bad_request");
    web.service.stop();
}

#[test]
fn all_docs_supports_ranges_keys_and_include_docs() {
    let web = start();
    for id in ["a", "b", "c", "d"] {
        create(&web, id, &body());
    }
    let rev = create(&web, "gone", &body());
    web.send("DELETE", &format!("/_replicator/gone?rev={rev}"), "")
        .ok();
    create(&web, "_design/v", &json!({"views": {}}));
    create(&web, "_local/l", &json!({}));
    let ids = |path: &str| -> (Value, Value, String) {
        let all = web.get(&format!("/_replicator/_all_docs{path}")).ok();
        let ids = all["rows"].as_array().unwrap().iter();
        let ids: Vec<&str> = ids.map(|row| row["id"].as_str().unwrap()).collect();
        (
            all["total_rows"].clone(),
            all["offset"].clone(),
            ids.join(" "),
        )
    };
    assert_eq!(ids(""), (json!(5), json!(0), "_design/v a b c d".into()));
    assert_eq!(ids("?startkey=%22b%22&endkey=%22c%22").2, "b c");
    assert_eq!(
        ids("?start_key=%22b%22&skip=1&limit=1"),
        (json!(5), json!(3), "c".into())
    );
    assert_eq!(ids("?descending=true&startkey=%22c%22&limit=2").2, "c b");
    assert_eq!(ids("?endkey=%22b%22&inclusive_end=false").2, "_design/v a");
    assert_eq!(ids("?key=%22c%22").2, "c");
    let keys = json!({"keys": ["d", "x", "gone"]});
    let all = post(&web, "/_replicator/_all_docs?include_docs=true", &keys).ok();
    assert_eq!(all["rows"][0]["doc"]["_id"], "d");
    assert_eq!(all["rows"][1], json!({"key": "x", "error": "not_found"}));
    assert_eq!(all["rows"][2]["value"]["deleted"], true);
    for wrong in ["limit=x", "skip=-1", "descending=1"] {
        let answer = web.get(&format!("/_replicator/_all_docs?{wrong}"));
        answer.reason(400, "query_parse_error");
    }
    web.service.stop();
}

#[test]
fn local_documents_have_their_own_revisions_and_are_not_listed() {
    let web = start();
    let path = "/_replicator/_local/x";
    assert_eq!(put(&web, path, &json!({"a": 1})).json()["rev"], "0-1");
    put(&web, path, &json!({})).reason(409, "conflict");
    let next = put(&web, path, &json!({"_rev": "0-1", "a": 2})).json();
    assert_eq!(next["rev"], "0-2");
    let expected = json!({"_id": "_local/x", "_rev": "0-2", "a": 2});
    assert_eq!(web.get(path).ok(), expected);
    assert_eq!(web.get("/_replicator/_changes").ok()["results"], json!([]));
    web.send("DELETE", &format!("{path}?rev=0-2"), "").ok();
    web.get(path).reason(404, "not_found");
    web.service.stop();
}

#[test]
fn without_a_login_nothing_is_read_or_written() {
    let web = Web::start("[replicator]\nmax_jobs = 0\n[admins]\nann = \"secret\"\n");
    let login = [
        ("Authorization", "Basic YW5uOnNlY3JldA=="),
        ("Content-Type", "application/json"),
    ];
    let mut secret = body();
    secret["source"] = "http://u:pw@127.0.0.1:1/a".into();
    secret["target"] = json!({
        "url": "http://127.0.0.1:1/b", "headers": {"X-Key": "pw"},
        "auth": {"basic": {"username": "u", "password": "pw"}},
    });
    let text = secret.to_string();
    put(&web, "/_replicator/a", &secret).reason(401, "unauthorized");
    let mut connection = web.connect();
    let made = connection.request("PUT", "/_replicator/a", &login, &text);
    assert_eq!(made.status, 201);
    let rev = made.json()["rev"].clone();
    let mine = connection.request("GET", "/_replicator/a", &login, "").ok();
    assert_eq!((&mine["owner"], &mine["_rev"]), (&json!("ann"), &rev));
    assert_eq!(mine["source"], secret["source"]);
    for path in [
        "/_replicator/a",
        "/_replicator/_all_docs?include_docs=true",
        "/_replicator/_changes?include_docs=true",
        "/_replicator/a?open_revs=all",
    ] {
        web.get(path).reason(401, "unauthorized");
    }
    for (method, path) in [
        ("POST", "/_replicator"),
        ("POST", "/_replicator/_bulk_docs"),
        ("DELETE", "/_replicator/a?rev=1-0"),
        ("PUT", "/_replicator/_local/x"),
    ] {
        web.send(method, path, "{}").reason(401, "unauthorized");
    }
    web.service.stop();
}

#[test]
fn numbers_keep_their_digits_in_every_answer() {
    let web = start();
    const NUMBERS: &str = r#""n":[123456789012345678901234567890,1.0,-0.10,1E30]"#;
    let target = |id: &str| format!("http://127.0.0.1:1/digits-{id}");
    let text = |id: &str| {
        format!(
            "{{\n \"_id\": \"{id}\", \"source\": \"http://127.0.0.1:1/a\",\n \"target\": \"{}\", {} }}",
            target(id),
            NUMBERS.replace(',', " ,\n ")
        )
    };
    assert_eq!(
        web.send("PUT", "/_replicator/put", &text("put")).status,
        201
    );
    assert_eq!(web.send("POST", "/_replicator", &text("post")).status, 201);
    let bulk = format!("{{\"docs\": [{}, {}]}}", text("bulk"), text("_design/d"));
    assert_eq!(
        web.send("POST", "/_replicator/_bulk_docs", &bulk).status,
        201
    );
    assert_eq!(
        web.send("PUT", "/_replicator/_local/l", &text("_local/l"))
            .status,
        201
    );
    let listed = |body: &str| body.matches(NUMBERS).count();
    for id in ["put", "post", "bulk", "_design/d", "_local/l"] {
        let read = web.get(&format!("/_replicator/{id}")).body;
        assert_eq!(listed(&read), 1, "{id}: {read}");
    }
    for path in [
        "_all_docs?include_docs=true",
        "_changes?include_docs=true",
        "_changes?include_docs=true&descending=true",
    ] {
        let read = web.get(&format!("/_replicator/{path}")).body;
        assert_eq!(listed(&read), 4, "{path}: {read}");
    }
    let lines = web
        .get("/_replicator/_changes?include_docs=true&feed=continuous&timeout=1")
        .body;
    assert_eq!(listed(&lines), 4, "each row is a line: {lines}");
    // The state that the service writes leaves the rest unchanged.
    let same = text("put").replace("\"_id\": \"put\",", "");
    assert_eq!(web.send("PUT", "/_replicator/same", &same).status, 201);
    crate::support::daemon::wait_until("a state", || {
        web.get("/_replicator/same").json()["_replication_state"] == "failed"
    });
    assert_eq!(listed(&web.get("/_replicator/same").body), 1);
    let beyond = text("beyond").replace("1E30", "1E400");
    let refused = web.send("PUT", "/_replicator/beyond", &beyond);
    refused.reason(400, "bad_request");
    web.service.stop();
}

#[test]
fn invalid_ids_are_refused_wherever_a_document_is_written() {
    let web = start();
    let reserved = "Only reserved document ids may start with underscore.";
    for id in ["_x", "_design", "_local", "_all_docs_", "_x%2Fy", "_"] {
        let path = format!("/_replicator/{id}");
        let refused = put(&web, &path, &body()).reason(400, "illegal_docid");
        assert_eq!(refused, reserved, "{id}");
        web.get(&path).reason(404, "not_found");
        web.send("DELETE", &path, "").reason(404, "not_found");
    }
    for (id, reason) in [
        (json!("_x"), reserved),
        (json!(""), "Document id must not be empty"),
        (json!("_design/"), "Illegal document id `_design/`"),
        (json!(7), "Document id must be a string"),
        (json!(null), "Document id must be a string"),
    ] {
        let mut doc = body();
        doc["_id"] = id.clone();
        for refused in [
            post(&web, "/_replicator", &doc),
            put(&web, "/_replicator/fine", &doc),
            post(
                &web,
                "/_replicator/_bulk_docs",
                &json!({"docs": [body(), doc]}),
            ),
        ] {
            assert_eq!(refused.reason(400, "illegal_docid"), reason, "{id}");
        }
    }
    assert_eq!(web.get("/_replicator").ok()["doc_count"], 0);
    web.service.stop();
}

#[test]
fn auth_that_is_not_an_object_is_forbidden_and_starts_nothing() {
    let web = start();
    for side in ["source", "target"] {
        for auth in [json!(null), json!([]), json!("basic")] {
            let mut body = body();
            body[side] = json!({"url": body[side], "auth": auth});
            let reason = format!("`auth` of `{side}`: must be a JSON object");
            let refused = put(&web, "/_replicator/a", &body);
            assert_eq!(refused.reason(403, "forbidden"), reason);
            let refused = post(&web, "/_replicate", &body);
            assert_eq!(refused.reason(400, "invalid_replication"), reason);
        }
    }
    web.service.stop();
}

#[test]
fn the_security_object_is_couchdbs_default_and_cannot_change() {
    let web = start();
    let admins = json!({"roles": ["_admin"]});
    let security = json!({"members": admins, "admins": admins});
    assert_eq!(web.get("/_replicator/_security").ok(), security);
    let same = put(&web, "/_replicator/_security", &security);
    assert_eq!(same.ok(), json!({"ok": true}));
    let other = json!({"members": {"names": ["bob"]}});
    put(&web, "/_replicator/_security", &other).reason(501, "not_implemented");
    assert_eq!(web.get("/_replicator/_security").ok(), security);
    web.service.stop();
}

#[test]
fn requests_about_revision_trees_are_not_implemented_and_the_reason_has_a_remedy() {
    let web = start();
    let rev = create(&web, "a", &body());
    let copies = json!({"new_edits": false, "docs": []});
    for (method, path, body) in [
        ("POST", "_bulk_get", json!({"docs": [{"id": "a"}]})),
        ("POST", "_revs_diff", json!({"a": [rev]})),
        ("POST", "_missing_revs", json!({"a": [rev]})),
        ("GET", "_revs_limit", json!({})),
        ("POST", "_ensure_full_commit", json!({})),
        ("GET", "a?open_revs=all", json!({})),
        ("PUT", "b?new_edits=false", body()),
        ("DELETE", "a?new_edits=false", json!({})),
        ("POST", "_bulk_docs", copies),
    ] {
        let answer = web.send(method, &format!("/_replicator/{path}"), &body.to_string());
        let reason = answer.reason(501, "not_implemented");
        assert!(reason.contains("`settee jobs export`"), "{path}: {reason}");
    }
    // Members that other databases add to a document are ignored.
    let mut doc = web.get("/_replicator/a?conflicts=true&revs=true").ok();
    assert_eq!(doc["_rev"], rev.as_str());
    doc["_revisions"] = json!({"start": 7, "ids": ["x"]});
    let next = put(&web, "/_replicator/a", &doc).json();
    assert!(next["rev"].as_str().unwrap().starts_with("2-"), "{next}");
    web.get(&format!("/_replicator/a?rev={rev}"))
        .reason(404, "not_found");
    web.get("/_replicator/a?rev=x").reason(400, "bad_request");
    let mut connection = web.connect();
    let headers = [("Content-Type", "multipart/related; boundary=x")];
    let parts = connection.request("PUT", "/_replicator/p", &headers, "--x--");
    let reason = parts.reason(415, "bad_content_type");
    assert!(reason.contains("attachments are not kept"), "{reason}");
    assert_eq!(web.get("/_replicator").ok()["doc_count"], 1);
    web.service.stop();
}
