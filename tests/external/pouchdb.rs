//! Replications between express-pouchdb servers, and between one and the fake CouchDB.

use actix::{Actor, Arbiter};
use bytes::Bytes;
use serde_json::{Value, json};
use settee::actors::replication_job::ReplicationJob;
use settee_testkit::eventually;

use crate::pouch::Pouch;
use crate::support::couch::{Couch, Stored};
use crate::support::job::{Job, body, body_with, replicate, run};
use crate::support::program::SETTEE;

/// A server with two databases.
async fn two() -> (Pouch, String, String) {
    let pouch = Pouch::start();
    pouch.create("a").await;
    pouch.create("b").await;
    let (a, b) = (pouch.url("a"), pouch.url("b"));
    (pouch, a, b)
}

/// A revision with its history, newest first.
fn doc(id: &str, revs: &[&str], more: Value) -> Value {
    let ids: Vec<&str> = revs
        .iter()
        .map(|rev| rev.split_once('-').unwrap().1)
        .collect();
    let start: u64 = revs[0].split_once('-').unwrap().0.parse().unwrap();
    let mut doc = json!({"_id": id, "_rev": revs[0], "_revisions": {"start": start, "ids": ids}});
    for (name, value) in more.as_object().unwrap() {
        doc[name] = value.clone();
    }
    doc
}

#[actix_rt::test]
async fn conflicts_deletions_attachments_and_design_documents_are_copied() {
    let (pouch, a, b) = two().await;
    let docs = vec![
        doc("conflict", &["2-aaa", "1-x"], json!({"who": "a"})),
        doc("conflict", &["2-bbb", "1-x"], json!({"who": "b"})),
        doc(
            "conflict",
            &["3-ccc", "2-c", "1-x"],
            json!({"_deleted": true}),
        ),
        doc("gone", &["2-gone", "1-was"], json!({"_deleted": true})),
        doc(
            "_design/d",
            &["1-d"],
            json!({"views": {"v": {"map": "function (doc) { emit(doc._id) }"}}}),
        ),
        doc("plain/é &+", &["1-p"], json!({"n": 1.5, "t": "\u{1F600}"})),
    ];
    pouch.bulk("a", docs).await;
    let bytes = Bytes::from((0..300_000u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    let answers = pouch.write("a", vec![json!({"_id": "attached"})]).await;
    let rev = answers[0]["rev"].as_str().unwrap().to_owned();
    pouch
        .attach("a", "attached", &rev, "one.png", bytes.clone())
        .await;
    let stats = replicate(&a, &b).await;
    pouch.assert_equal("b", "a").await;
    assert_eq!(pouch.attachment("b", "attached", "one.png").await, bytes);
    assert_eq!((stats.docs_written, stats.doc_write_failures), (7, 0));
    let (result, _) = run(&body(&a, &b)).await.normal();
    assert_eq!(result["no_changes"], json!(true));
}

#[actix_rt::test]
async fn a_comparison_lists_what_a_target_lacks() {
    let (pouch, a, b) = two().await;
    let answers = pouch.write("a", vec![json!({"_id": "attached"})]).await;
    let rev = answers[0]["rev"].as_str().unwrap().to_owned();
    let bytes = Bytes::from(vec![7; 300_000]);
    pouch.attach("a", "attached", &rev, "one.png", bytes).await;
    let docs = vec![
        doc("conflict", &["2-aaa", "1-x"], json!({})),
        doc("gone", &["2-gone", "1-was"], json!({"_deleted": true})),
    ];
    pouch.bulk("a", docs).await;
    replicate(&a, &b).await;
    let verify = async || {
        let folder = tempfile::tempdir().unwrap();
        let mut command = tokio::process::Command::new(SETTEE);
        command.args(["replicate", &a, &b, "--verify=only", "--deep"]);
        command.env("SETTEE__STORE__PATH", folder.path().join("settee.redb"));
        let output = command.kill_on_drop(true).output().await.unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), out)
    };
    let all = "3 revisions, 1 attachment (300000 bytes) compared\n";
    let told = format!("the target holds everything: {all}");
    assert_eq!(verify().await, (Some(0), told));
    let docs = vec![
        doc("conflict", &["2-bbb", "1-x"], json!({})),
        doc("lost", &["2-lost", "1-was"], json!({"_deleted": true})),
    ];
    pouch.bulk("a", docs).await;
    let (status, out) = verify().await;
    assert_eq!(status, Some(65), "{out}");
    assert!(
        out.starts_with("missing conflict 2-bbb\nmissing lost 2-lost\n"),
        "{out}"
    );
}

#[actix_rt::test]
async fn filters_and_ids_select_documents_at_the_source() {
    let (pouch, a, b) = two().await;
    pouch.create("c").await;
    pouch.create("d").await;
    let filters = json!({
        "filters": {"kind": "function (doc, req) { return doc.kind === req.query.kind; }"},
        "views": {"even": {"map": "function (doc) { if (doc.n % 2 === 0) emit(doc.n); }"}}});
    let mut docs: Vec<Value> = (0..20)
        .map(|n| json!({"_id": format!("{n:02}"), "n": n, "kind": if n < 5 { "x" } else { "y" }}))
        .collect();
    let mut ddoc = filters;
    ddoc["_id"] = json!("_design/f");
    docs.push(ddoc);
    pouch.write("a", docs).await;
    let by_function = json!({"filter": "f/kind", "query_params": {"kind": "x"},
        "filter_code": "function (doc, req) { return doc.kind === req.query.kind; }"});
    run(&body_with(&a, &b, by_function)).await.normal();
    assert_eq!(pouch.count("b").await, 5);
    let by_view = json!({"filter": "_view", "query_params": {"view": "f/even"}});
    run(&body_with(&a, &pouch.url("c"), by_view)).await.normal();
    assert_eq!(pouch.count("c").await, 10);
    let by_ids = json!({"doc_ids": ["03", "17", "none"]});
    let (result, _) = run(&body_with(&a, &pouch.url("d"), by_ids)).await.normal();
    assert_eq!(
        (pouch.count("d").await, result["docs_written"].clone()),
        (2, json!(2))
    );
}

#[actix_rt::test]
async fn a_selector_that_the_source_does_not_support_can_be_matched_by_settee() {
    let selected = async |more: &[&str]| {
        let (pouch, a, b) = two().await;
        let docs = (0..4).map(|n| json!({"_id": n.to_string(), "n": n}));
        pouch.write("a", docs.collect()).await;
        let folder = tempfile::tempdir().unwrap();
        let mut command = tokio::process::Command::new(SETTEE);
        command.args(["replicate", &a, &b, "--selector", r#"{"n": {"$gt": 1}}"#]);
        command
            .args(more)
            .env("SETTEE__STORE__PATH", folder.path().join("settee.redb"));
        let output = command.kill_on_drop(true).output().await.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        let copied = match output.status.success() {
            true => pouch.count("b").await,
            false => 0,
        };
        (copied, error)
    };
    let (copied, error) = selected(&[]).await;
    assert_eq!(copied, 0);
    assert!(error.contains("--filter-at settee"), "{error}");
    assert_eq!(selected(&["--filter-at", "settee"]).await.0, 2);
}

#[actix_rt::test]
async fn ten_thousand_documents_are_copied_there_and_back() {
    let (pouch, a, b) = two().await;
    let other = Pouch::start();
    other.create("far").await;
    for part in 0..10 {
        let docs = (0..1000)
            .map(|n| json!({"_id": format!("{part}-{n:03}"), "n": n, "text": "x".repeat(200)}));
        pouch.write("a", docs.collect()).await;
    }
    let far = other.url("far");
    let stats = replicate(&a, &far).await;
    assert_eq!(
        (stats.docs_written, stats.missing_checked),
        (10_000, 10_000)
    );
    assert_eq!(other.count("far").await, 10_000);
    let stats = replicate(&far, &b).await;
    assert_eq!(stats.docs_written, 10_000);
    pouch.assert_equal("b", "a").await;
    // Back to a database that already has everything.
    let stats = replicate(&b, &a).await;
    assert_eq!((stats.missing_checked, stats.missing_found), (10_000, 0));
}

#[actix_rt::test]
async fn a_killed_job_resumes_from_its_checkpoint() {
    let (pouch, a, b) = two().await;
    for part in 0..4 {
        let docs = (0..1000).map(|n| json!({"_id": format!("{part}-{n:03}"), "n": n}));
        pouch.write("a", docs.collect()).await;
    }
    let options =
        json!({"worker_processes": 1, "worker_batch_size": 50, "checkpoint_interval": 50});
    let body = body_with(&a, &b, options);
    let arbiter = Arbiter::new();
    let (start, mut job) = Job::prepare(&body);
    let address =
        ReplicationJob::start_in_arbiter(&arbiter.handle(), |_| ReplicationJob::new(start));
    job.address = Some(address);
    let base = job.base.clone();
    let recorded = || async {
        let log = pouch.call("GET", &format!("b/_local/{base}"), None).await.1;
        log["source_last_seq"]
            .as_u64()
            .is_some_and(|seq| seq >= 500)
    };
    eventually("a checkpoint is left", recorded).await;
    arbiter.stop();
    job.outcome().await.crash();
    let there = pouch.count("b").await;
    assert!(
        (500..4000).contains(&there),
        "it was killed in the middle: {there}"
    );
    let (result, stats) = run(&body).await.normal();
    pouch.assert_equal("b", "a").await;
    let history = result["history"].as_array().unwrap();
    assert!(
        history[0]["start_last_seq"].as_u64().unwrap() >= 500,
        "{history:?}"
    );
    assert_eq!(history.len(), 2);
    assert!(stats.docs_read < 4500, "{stats:?}");
}

#[actix_rt::test]
async fn continuous_replications_both_ways_make_all_trees_equal_despite_writes_on_both_sides() {
    let (pouch, a, b) = two().await;
    let options = json!({"continuous": true, "checkpoint_interval": 200});
    let there = Job::start(&body_with(&a, &b, options.clone()));
    let back = Job::start(&body_with(&b, &a, options));
    for round in 0..10 {
        for (database, other) in [("a", "b"), ("b", "a")] {
            let docs = (0..10).map(|n| {
                doc(
                    &format!("shared-{n}"),
                    &[&format!("{}-{database}{round}", round + 1)],
                    json!({"from": database}),
                )
            });
            pouch.bulk(database, docs.collect()).await;
            let own =
                (0..5).map(|n| json!({"_id": format!("{database}-{round}-{n}"), "not": other}));
            pouch.write(database, own.collect()).await;
        }
    }
    let equal = || async {
        pouch.count("a").await == 110 && pouch.trees("a").await == pouch.trees("b").await
    };
    eventually("both have everything", equal).await;
    there.stopped().await;
    back.stopped().await;
    assert_eq!(
        pouch
            .trees("a")
            .await
            .iter()
            .find(|(id, _)| id == "shared-0")
            .unwrap()
            .1
            .len(),
        20
    );
}

#[actix_rt::test]
async fn documents_copied_from_a_couchdb_through_a_pouchdb_to_another_couchdb_are_unchanged() {
    let (pouch, a, b) = two().await;
    let (couch, copy) = (Couch::start().await, Couch::start().await);
    for index in 0..50 {
        couch.put(&format!("doc-{index}"), None, json!({ "n": index }));
    }
    couch.put("_design/d", None, json!({"views": {}}));
    let stored = |name: &str, bytes: &'static [u8]| Stored {
        name: name.into(),
        content_type: "text/plain".into(),
        encoding: None,
        bytes: Bytes::from_static(bytes),
        revpos: 1,
    };
    couch.put_with(
        "attached",
        None,
        json!({"x": 1}),
        vec![stored("b.txt", b"hello"), stored("a b.txt", b"world")],
    );
    replicate(&couch.url(), &a).await;
    assert_eq!(pouch.count("a").await, 52);
    assert_eq!(
        &pouch.attachment("a", "attached", "b.txt").await[..],
        b"hello"
    );
    assert_eq!(
        &pouch.attachment("a", "attached", "a%20b.txt").await[..],
        b"world"
    );
    replicate(&a, &b).await;
    replicate(&b, &copy.url()).await;
    let (mut ours, mut theirs) = (copy.trees(), couch.trees());
    // PouchDB orders attachment names differently.
    for tree in ours.values_mut().chain(theirs.values_mut()) {
        for leaf in tree.1.values_mut() {
            leaf.2.sort_by(|one, other| one.name.cmp(&other.name));
        }
    }
    assert_eq!(ours, theirs);
}

#[actix_rt::test]
async fn a_missing_target_is_created_only_with_create_target() {
    let pouch = Pouch::start();
    pouch.create("a").await;
    pouch.write("a", vec![json!({"_id": "x"})]).await;
    let (a, new) = (pouch.url("a"), pouch.url("new"));
    let missing = run(&body(&a, &new)).await.crash();
    assert_eq!(missing.name(), "db_not_found");
    run(&body_with(&a, &new, json!({"create_target": true})))
        .await
        .normal();
    assert_eq!(pouch.count("new").await, 1);
}
