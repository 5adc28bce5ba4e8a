//! The replicator database as one end of a replication: revisions, conflicts, checkpoints.

use serde_json::{Value, json};
use settee::store::LEAVES_MAX;

use crate::support::http_client::Web;
use crate::support::store::{foreign, post, put};

/// Documents that ask for replications which do not start: everything else is a database's matter.
fn start(more: &str) -> Web {
    Web::start(&format!("[replicator]\nmax_jobs = 0\n{more}"))
}

fn copy(web: &Web, docs: &[Value]) -> Value {
    let body = json!({"new_edits": false, "docs": docs});
    let answer = post(web, "/_replicator/_bulk_docs", &body);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

#[test]
fn copies_keep_their_revisions_and_conflicts_are_branches() {
    let web = start("");
    let docs = [
        foreign("a", &["b", "a"]),
        foreign("a", &["c", "a"]),
        foreign("free", &["f"]),
    ];
    assert_eq!(copy(&web, &docs), json!([]), "only what failed is told");
    assert_eq!(copy(&web, &docs), json!([]), "twice is once");
    assert_eq!(web.get("/_replicator").ok()["doc_count"], 2);
    let shown = web
        .get("/_replicator/a?conflicts=true&revs=true&revs_info=true")
        .ok();
    assert_eq!(
        (&shown["_rev"], &shown["_conflicts"]),
        (&json!("2-c"), &json!(["2-b"]))
    );
    assert_eq!(shown["_revisions"], json!({"start": 2, "ids": ["c", "a"]}));
    let infos = json!([{"rev": "2-c", "status": "available"}, {"rev": "1-a", "status": "missing"}]);
    assert_eq!(shown["_revs_info"], infos);
    assert_eq!(web.get("/_replicator/a?rev=2-b").ok()["_rev"], "2-b");
    web.get("/_replicator/a?rev=1-a").reason(404, "not_found");
    let changes = web.get("/_replicator/_changes?style=all_docs").ok();
    assert_eq!(
        changes["results"][0]["changes"],
        json!([{"rev": "2-c"}, {"rev": "2-b"}])
    );
    let changes = web.get("/_replicator/_changes").ok();
    assert_eq!(changes["results"][0]["changes"], json!([{"rev": "2-c"}]));
    // The losing branch is written after by who knows it, and then wins.
    let mut third = foreign("a", &["b", "a"]);
    third.as_object_mut().unwrap().remove("_revisions");
    let third = put(&web, "/_replicator/a", &third).json()["rev"].clone();
    let shown = web.get("/_replicator/a?meta=true").ok();
    assert_eq!(
        (&shown["_rev"], &shown["_conflicts"]),
        (&third, &json!(["2-c"]))
    );
    web.send(
        "DELETE",
        &format!("/_replicator/a?rev={}", third.as_str().unwrap()),
        "",
    )
    .ok();
    let shown = web.get("/_replicator/a?meta=true").ok();
    assert_eq!(
        shown["_rev"], "2-c",
        "the other one stands for the document again"
    );
    assert_eq!(shown["_deleted_conflicts"].as_array().unwrap().len(), 1);
    let one = put(
        &web,
        "/_replicator/b?new_edits=false",
        &foreign("b", &["y", "x"]),
    );
    assert_eq!((one.status, &one.json()["rev"]), (201, &json!("2-y")));
    let none = copy(
        &web,
        &[
            json!({"_id": "n"}),
            json!({"_id": "m", "_rev": "1-a", "_foo": 1}),
        ],
    );
    assert_eq!(
        (&none[0]["error"], &none[1]["error"]),
        (&json!("doc_validation"), &json!("bad_request"))
    );
    web.service.stop();
}

#[test]
fn a_branch_too_many_is_refused_and_costs_the_others_nothing() {
    let web = start("");
    let branch = |number: usize| foreign("a", &[&format!("b{number}"), "a"]);
    let mut docs: Vec<Value> = (0..=LEAVES_MAX).map(branch).collect();
    docs.push(foreign("free", &["f"]));
    let failed = copy(&web, &docs);
    let reason =
        "The document has 1000 branches, as many as there may be; write it under another id.";
    let refused = json!([{"id": "a", "error": "forbidden", "reason": reason}]);
    assert_eq!(failed, refused);
    assert_eq!(web.get("/_replicator").ok()["doc_count"], 2);
    let shown = web.get("/_replicator/a?conflicts=true").ok();
    let conflicts = shown["_conflicts"].as_array().unwrap();
    assert_eq!(conflicts.len(), LEAVES_MAX - 1);
    web.service.stop();
}

#[test]
fn what_is_missing_is_told_and_revisions_are_read_many_at_a_time() {
    let web = start("");
    copy(
        &web,
        &[foreign("a", &["b", "a"]), foreign("a", &["c", "a"])],
    );
    let asked = json!({"a": ["1-a", "2-b", "3-d"], "b": ["1-x"], "c": []});
    let missing = post(&web, "/_replicator/_revs_diff", &asked).ok();
    let expected = json!({
        "a": {"missing": ["3-d"], "possible_ancestors": ["2-c", "2-b"]},
        "b": {"missing": ["1-x"]},
    });
    assert_eq!(missing, expected);
    let asked = json!({"docs": [
        {"id": "a", "rev": "1-a"}, {"id": "a", "rev": "2-b"}, {"id": "x", "rev": "1-a"},
        {"id": "a"}, {"id": "a", "rev": "?"}, {"rev": "1-a"},
    ]});
    let found = post(&web, "/_replicator/_bulk_get?revs=true", &asked).ok();
    let results = found["results"].as_array().unwrap();
    let revs: Vec<Vec<&str>> = results
        .iter()
        .map(|result| {
            let docs = result["docs"].as_array().unwrap().iter();
            docs.map(|doc| {
                doc["ok"]["_rev"]
                    .as_str()
                    .or(doc["error"]["error"].as_str())
                    .unwrap()
            })
            .collect()
        })
        .collect();
    let expected = [
        vec!["not_found"],
        vec!["2-b"],
        vec!["not_found"],
        vec!["2-c", "2-b"],
        vec!["bad_request"],
        vec!["bad_request"],
    ];
    assert_eq!(revs, expected);
    assert_eq!(
        results[1]["docs"][0]["ok"]["_revisions"]["ids"],
        json!(["b", "a"])
    );
    let latest = post(&web, "/_replicator/_bulk_get?latest=true", &asked).ok();
    assert_eq!(latest["results"][0]["docs"].as_array().unwrap().len(), 2);
    let open = |query: &str| web.get(&format!("/_replicator/a?{query}")).ok();
    assert_eq!(open("open_revs=all").as_array().unwrap().len(), 2);
    let some = open("open_revs=%5B%221-a%22,%222-b%22%5D&revs=true");
    assert_eq!(
        (&some[0]["missing"], &some[1]["ok"]["_rev"]),
        (&json!("1-a"), &json!("2-b"))
    );
    let newest = open("open_revs=%5B%222-b%22,%221-a%22%5D&latest=true");
    assert_eq!(newest.as_array().unwrap().len(), 2);
    let accept = [("Accept", "multipart/mixed")];
    let path = "/_replicator/a?open_revs=%5B%221-a%22,%222-b%22%5D";
    let parts = web.connect().request("GET", path, &accept, "");
    let kind = parts.header("content-type").unwrap();
    let boundary = kind
        .strip_prefix("multipart/mixed; boundary=\"")
        .unwrap()
        .trim_end_matches('"');
    let pieces: Vec<&str> = parts.body.split(&format!("--{boundary}")).collect();
    assert_eq!(pieces.len(), 4, "{}", parts.body);
    assert!(
        pieces[1]
            .starts_with("\r\nContent-Type: application/json; error=\"true\"\r\n\r\n{\"missing\":")
    );
    assert!(pieces[2].starts_with("\r\nContent-Type: application/json\r\n\r\n{\"_id\":\"a\","));
    assert_eq!(pieces[3], "--");
    assert_eq!(web.get("/_replicator/_revs_limit").body, "1000\n");
    web.get("/_replicator/_changes?style=x")
        .reason(400, "bad_request");
    web.get("/_replicator/a?open_revs=x")
        .reason(400, "bad_request");
    post(&web, "/_replicator/_revs_diff", &json!({"a": 1})).reason(400, "bad_request");
    post(&web, "/_replicator/_bulk_get", &json!({})).reason(400, "bad_request");
    let mut connection = web.connect();
    let headers = [("Content-Type", "multipart/related; boundary=x")];
    let parts = connection.request("PUT", "/_replicator/p?new_edits=false", &headers, "--x--");
    let reason = parts.reason(415, "bad_content_type");
    assert!(reason.contains("attachments are not kept"), "{reason}");
    web.service.stop();
}
