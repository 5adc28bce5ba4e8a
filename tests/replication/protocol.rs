//! A replication between two well-behaved servers: its requests and its results.

use bytes::Bytes;
use serde_json::{Value, json};
use settee::messages::replication_job::JobEnd;

use crate::support::couch::host::Host;
use crate::support::couch::{Couch, Stored};
use crate::support::job::{Job, body, body_with, replicate, run};

async fn two() -> (Couch, Couch) {
    (Couch::start().await, Couch::start().await)
}

fn attachment(name: &str, bytes: impl Into<Bytes>, encoding: Option<&str>, revpos: u64) -> Stored {
    Stored {
        name: name.to_owned(),
        content_type: "text/plain".to_owned(),
        encoding: encoding.map(str::to_owned),
        bytes: bytes.into(),
        revpos,
    }
}

fn fill(couch: &Couch, count: usize) {
    for index in 0..count {
        couch.put(&format!("doc-{index}"), None, json!({ "n": index }));
    }
}

#[actix_rt::test]
async fn conflicts_deletions_design_documents_and_attachments_are_replicated_unchanged() {
    let (source, target) = two().await;
    fill(&source, 20);
    let first = source.put("tree", None, json!({"a": 1}));
    source.put("tree", Some(&first), json!({"a": 2}));
    source.put("tree", Some(&first), json!({"a": 3}));
    source.put("tree", None, json!({"other": "root"}));
    let gone = source.put("gone", None, json!({}));
    source.put("gone", Some(&gone), json!({"_deleted": true}));
    source.put("_design/d", None, json!({"views": {}}));
    source.put("a/b é+&?", None, json!({"x": [1, 2.50]}));
    let big: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let attachments = vec![
        attachment("z first.txt", "hello", None, 1),
        attachment("a.gz", big, Some("gzip"), 1),
        attachment("empty", "", None, 1),
    ];
    source.put_with("attached", None, json!({"b": 1}), attachments);
    let stats = replicate(&source.url(), &target.url()).await;
    assert_eq!(target.trees(), source.trees());
    assert_eq!((stats.docs_read, stats.docs_written), (27, 27));
    assert_eq!((stats.missing_checked, stats.missing_found), (27, 27));
    assert_eq!(stats.doc_write_failures, 0);
    assert_eq!(
        stats.bulk_get_docs + 1,
        stats.bulk_get_attempts,
        "all but the attached document"
    );
}

#[actix_rt::test]
async fn a_run_without_changes_writes_nothing() {
    let (source, target) = two().await;
    fill(&source, 3);
    let (first, _) = run(&body(&source.url(), &target.url())).await.normal();
    let (writes, commits) = (
        || target.server.count("PUT _local"),
        || source.server.count("POST _ensure_full_commit"),
    );
    assert_eq!((writes(), commits()), (1, 1));
    let (second, stats) = run(&body(&source.url(), &target.url())).await.normal();
    assert_eq!((writes(), commits()), (1, 1), "no commit, no checkpoint");
    assert_eq!(second["no_changes"], json!(true));
    assert_eq!(second["history"], first["history"]);
    assert_eq!(stats.docs_written, 3, "counters accumulate over runs");
}

#[actix_rt::test]
async fn a_run_resumes_where_the_last_one_ended() {
    let (source, target) = two().await;
    fill(&source, 5);
    let (first, _) = run(&body(&source.url(), &target.url())).await.normal();
    source.put("later", None, json!({}));
    let (second, stats) = run(&body(&source.url(), &target.url())).await.normal();
    assert_eq!(target.trees(), source.trees());
    let asked = source.server.received();
    let since: Vec<&str> = asked
        .iter()
        .filter(|request| request.kind() == "GET _changes" && request.param("limit").is_none())
        .map(|request| request.param("since").unwrap())
        .collect();
    assert_eq!(
        since,
        ["0", first["source_last_seq"].as_str().unwrap()],
        "byte for byte"
    );
    let history = second["history"].as_array().unwrap();
    assert_eq!(history.len(), 2);
    assert_eq!(history[0]["start_last_seq"], first["source_last_seq"]);
    assert_eq!(
        (history[0]["docs_written"].clone(), stats.docs_written),
        (json!(6), 6)
    );
}

#[actix_rt::test]
async fn plain_documents_are_read_and_written_in_bulk() {
    let (source, target) = two().await;
    fill(&source, 10);
    replicate(&source.url(), &target.url()).await;
    assert_eq!(
        (
            source.server.count("GET doc"),
            target.server.count("PUT doc")
        ),
        (0, 0)
    );
    assert!(source.server.count("POST _bulk_get") >= 1);
}

#[actix_rt::test]
async fn design_documents_and_attachments_are_read_and_written_one_by_one() {
    for design in [true, false] {
        let (source, target) = two().await;
        for index in 0..10 {
            match design {
                true => source.put(&format!("_design/{index}"), None, json!({})),
                false => {
                    let attachments = vec![attachment("x", "y", None, 1)];
                    source.put_with(&format!("{index}"), None, json!({}), attachments)
                }
            };
        }
        replicate(&source.url(), &target.url()).await;
        assert_eq!(
            (
                source.server.count("GET doc"),
                target.server.count("PUT doc")
            ),
            (10, 10)
        );
        assert_eq!(target.trees(), source.trees());
    }
}

#[actix_rt::test]
async fn everything_is_read_one_by_one_if_bulk_get_is_off() {
    let (source, target) = two().await;
    fill(&source, 10);
    run(&body_with(
        &source.url(),
        &target.url(),
        json!({"use_bulk_get": false}),
    ))
    .await
    .normal();
    assert_eq!(source.server.count("POST _bulk_get"), 0);
    assert_eq!(
        (
            source.server.count("GET doc"),
            target.server.count("PUT doc")
        ),
        (10, 0)
    );
    assert_eq!(target.trees(), source.trees());
}

#[actix_rt::test]
async fn an_empty_target_is_soon_no_longer_queried_for_missing_revisions() {
    let (source, target) = two().await;
    fill(&source, 100);
    let options = json!({"worker_batch_size": 5, "worker_processes": 1});
    run(&body_with(&source.url(), &target.url(), options.clone()))
        .await
        .normal();
    assert!(target.server.count("POST _revs_diff") <= 10);
    assert_eq!(target.trees(), source.trees());
    // A target that has everything is always queried.
    let options = json!({"worker_batch_size": 5, "worker_processes": 1, "winning_revs_only": true});
    let before = target.server.count("POST _revs_diff");
    run(&body_with(&source.url(), &target.url(), options))
        .await
        .normal();
    assert!(target.server.count("POST _revs_diff") - before >= 20);
}

#[actix_rt::test]
async fn attachments_that_the_target_has_are_not_sent_again() {
    let (source, target) = two().await;
    let kept = attachment("kept", "0123456789", None, 1);
    let first = source.put_with("a", None, json!({}), vec![kept.clone()]);
    replicate(&source.url(), &target.url()).await;
    source.put_with(
        "a",
        Some(&first),
        json!({"b": 1}),
        vec![kept, attachment("new", "xy", None, 2)],
    );
    replicate(&source.url(), &target.url()).await;
    assert_eq!(target.trees(), source.trees());
    let puts: Vec<_> = target
        .server
        .received()
        .into_iter()
        .filter(|request| request.kind() == "PUT doc")
        .collect();
    assert_eq!(puts.len(), 2);
    let sent = crate::support::couch::parts(&puts[1].headers["content-type"], &puts[1].body);
    assert_eq!((sent.len(), &sent[1][..]), (2, &b"xy"[..]));
    assert!(puts[1].headers.contains_key("content-length"));
}

#[actix_rt::test]
async fn filtered_feeds_are_requested_as_couchdb_requests_them() {
    let (source, target) = two().await;
    source.put("a", None, json!({"kind": "x"}));
    source.put("b", None, json!({"kind": "y"}));
    source.put("c+d", None, json!({"kind": "x"}));
    let url = source.url();
    run(&body_with(
        &url,
        &target.url(),
        json!({"selector": {"kind": "x"}}),
    ))
    .await
    .normal();
    assert_eq!(target.trees().keys().collect::<Vec<_>>(), ["a", "c+d"]);
    let target = Couch::start().await;
    let (result, _) = run(&body_with(
        &url,
        &target.url(),
        json!({"doc_ids": ["c+d", "b", "none"]}),
    ))
    .await
    .normal();
    assert_eq!(target.trees().keys().collect::<Vec<_>>(), ["b", "c+d"]);
    assert_eq!(result["docs_written"], json!(2), "also at the top level");
    let names = |kind: &str, filter: &str| {
        let received = source.server.received();
        let request = received
            .iter()
            .find(|request| request.kind() == kind && request.param("filter") == Some(filter));
        let query = &request.expect(filter).query;
        query
            .iter()
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
            .join(",")
    };
    assert_eq!(
        names("POST _changes", "_doc_ids"),
        "filter,feed,style,since,timeout"
    );
    assert_eq!(
        names("POST _changes", "_selector"),
        "filter,feed,style,since,timeout"
    );
    let by_view = json!({"filter": "_view", "query_params": {"view": "d/v", "key": "k", "feed": "eventsource"}});
    run(&body_with(&url, &target.url(), by_view)).await.normal();
    assert_eq!(
        names("GET _changes", "_view"),
        "feed,style,since,timeout,filter,view,key"
    );
    let received = source.server.received();
    let request = received
        .iter()
        .find(|request| request.param("filter") == Some("_view"))
        .unwrap();
    assert_eq!(
        (request.param("key"), request.param("view")),
        (Some("\"k\""), Some("d/v"))
    );
    assert_eq!(
        (request.param("timeout"), request.param("style")),
        (Some("1000"), Some("all_docs"))
    );
}

#[actix_rt::test]
async fn doc_ids_are_filtered_locally_if_the_source_refuses_the_post() {
    let (source, target) = two().await;
    fill(&source, 5);
    source.fault(|request| {
        let refuses = request.kind() == "POST _changes";
        refuses.then(|| crate::support::http_server::Answer::error(405, "method_not_allowed", "no"))
    });
    let options = json!({"doc_ids": ["doc-1", "doc-3"]});
    run(&body_with(&source.url(), &target.url(), options))
        .await
        .normal();
    assert_eq!(
        target.trees().keys().collect::<Vec<_>>(),
        ["doc-1", "doc-3"]
    );
}

#[actix_rt::test]
async fn since_seq_applies_where_there_is_no_checkpoint() {
    let (source, target) = two().await;
    fill(&source, 3);
    let (result, _) = run(&body(&source.url(), &Couch::start().await.url()))
        .await
        .normal();
    source.put("later", None, json!({}));
    let since = json!({"since_seq": result["source_last_seq"]});
    run(&body_with(&source.url(), &target.url(), since))
        .await
        .normal();
    assert_eq!(target.trees().keys().collect::<Vec<_>>(), ["later"]);
}

#[actix_rt::test]
async fn with_use_checkpoints_false_no_checkpoint_is_written() {
    let (source, target) = two().await;
    fill(&source, 3);
    let options = json!({"use_checkpoints": false});
    let (result, _) = run(&body_with(&source.url(), &target.url(), options))
        .await
        .normal();
    assert_eq!(result, json!({"use_checkpoints": false}));
    assert!(source.locals().is_empty() && target.locals().is_empty());
    assert_eq!(target.trees(), source.trees());
}

#[actix_rt::test]
async fn with_use_checkpoints_false_a_document_lost_by_the_target_is_copied_again() {
    let (source, target) = two().await;
    let rev = source.put("a", None, json!({}));
    replicate(&source.url(), &target.url()).await;
    target.lose("a", &rev);
    let options = json!({"use_checkpoints": false});
    run(&body_with(&source.url(), &target.url(), options))
        .await
        .normal();
    assert_eq!(target.trees(), source.trees());
}

#[actix_rt::test]
async fn a_continuous_replication_follows_its_source_and_writes_a_checkpoint_when_stopped() {
    let (source, target) = two().await;
    fill(&source, 3);
    let options = json!({"continuous": true});
    let mut job = Job::start(&body_with(&source.url(), &target.url(), options));
    let same = || async { target.trees() == source.trees() };
    settee_testkit::eventually("the first documents are replicated", same).await;
    for index in 0..5 {
        source.put(&format!("live-{index}"), None, json!({}));
        settee_testkit::eventually("the new document is replicated", same).await;
    }
    // The target has a document before the job counts it.
    while job
        .progress
        .as_ref()
        .is_none_or(|progress| progress.stats.docs_written < 8)
    {
        assert!(
            job.next().await.is_none(),
            "the job runs until it is stopped"
        );
    }
    let base = job.base.clone();
    job.stopped().await;
    let log = target
        .local(&format!("_local/{base}"))
        .expect("a checkpoint");
    assert_eq!(log["history"][0]["docs_written"], json!(8));
    assert_eq!(log["history"].as_array().map(Vec::len), Some(1));
    assert!(source.local(&format!("_local/{base}")).is_some());
}

#[actix_rt::test]
async fn an_idle_continuous_replication_ends_when_its_target_is_deleted() {
    let (source, target) = (Host::start().await, Host::start().await);
    source.create("db");
    target.create("db");
    source.put("db", "one");
    let options = json!({"continuous": true, "checkpoint_interval": 50});
    let job = Job::start(&body_with(&source.url("db"), &target.url("db"), options));
    let recorded = || async { !target.database("db").locals().is_empty() };
    settee_testkit::eventually("the checkpoint is written", recorded).await;
    target.delete("db");
    let outcome = job.outcome().await;
    let JobEnd::Crashed(crash) = &outcome.end else {
        panic!("{:?}", outcome.end);
    };
    assert_eq!(crash.short(), "database missing");
}

#[actix_rt::test]
async fn changes_pending_is_zero_soon_after_the_last_change() {
    let (source, target) = two().await;
    fill(&source, 9);
    // While there is work, the job polls the source for pending changes only once per connection timeout.
    let options = json!({"continuous": true, "connection_timeout": 600_000});
    let mut job = Job::start(&body_with(&source.url(), &target.url(), options));
    for count in [9, 12] {
        fill(&source, count);
        let knows = |job: &Job| {
            let progress = job.progress.as_ref();
            progress.is_some_and(|now| {
                now.stats.docs_written == count as u64 && now.changes_pending == Some(0)
            })
        };
        while !knows(&job) {
            assert!(job.next().await.is_none(), "the job runs");
        }
    }
    job.stopped().await;
}

#[actix_rt::test]
async fn documents_that_a_selector_skips_still_advance_the_checkpoint() {
    let (source, target) = two().await;
    source.put("a", None, json!({"kind": "x"}));
    let options =
        json!({"continuous": true, "selector": {"kind": "x"}, "checkpoint_interval": 100});
    let job = Job::start(&body_with(&source.url(), &target.url(), options));
    let same = |count: usize| {
        let target = &target;
        move || async move { target.trees().len() == count }
    };
    settee_testkit::eventually("the document is replicated", same(1)).await;
    for index in 0..5 {
        source.put(&format!("other-{index}"), None, json!({"kind": "y"}));
    }
    let recorded = || {
        let log: Value = target
            .local(&format!("_local/{}", job.base))
            .unwrap_or_default();
        log["source_last_seq"]
            .as_str()
            .unwrap_or_default()
            .starts_with("6-")
    };
    settee_testkit::eventually("the checkpoint passes the others", || async { recorded() }).await;
    assert_eq!(target.trees().len(), 1);
    job.stopped().await;
}

#[actix_rt::test]
async fn refused_documents_are_counted_and_listed() {
    let (source, target) = two().await;
    fill(&source, 5);
    source.put_with(
        "with attachment",
        None,
        json!({}),
        vec![attachment("x", "y", None, 1)],
    );
    target.refuse("doc-2");
    target.refuse("with attachment");
    let outcome = run(&body(&source.url(), &target.url())).await;
    let mut refused = outcome.refused.clone();
    refused.sort_by(|one, other| one.id.cmp(&other.id));
    let (_, stats) = outcome.normal();
    assert_eq!((stats.docs_written, stats.doc_write_failures), (4, 2));
    let told: Vec<_> = refused
        .iter()
        .map(|doc| (doc.id.as_str(), doc.error.as_str(), doc.reason.as_str()))
        .collect();
    let expected = [
        ("doc-2", "forbidden", "not this one"),
        ("with attachment", "forbidden", "not this one"),
    ];
    assert_eq!(told, expected);
    assert!(refused.iter().all(|doc| doc.rev.is_some()));
}

#[actix_rt::test]
async fn documents_with_long_ids_are_skipped() {
    let (source, target) = two().await;
    source.put("1234", None, json!({}));
    source.put("12345", None, json!({}));
    let options = json!({"id_max": 4});
    let outcome = run(&body_with(&source.url(), &target.url(), options)).await;
    assert_eq!(outcome.refused[0].id, "12345");
    assert_eq!(outcome.normal().1.doc_write_failures, 1);
    assert_eq!(target.trees().keys().collect::<Vec<_>>(), ["1234"]);
}
