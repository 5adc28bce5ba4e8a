//! Filters that Settee runs itself, for sources that cannot.

use bytes::Bytes;
use serde_json::{Value, json};
use settee_testkit::eventually;

use crate::command::{code, folder, run as run_command};
use crate::support::couch::{Couch, Stored};
use crate::support::filters::{EVEN, KIND, job, pool, run};
use crate::support::http_server::Answer;
use crate::support::job::{Job, body_with};

/// A source that refuses every filter.
async fn source() -> Couch {
    let source = Couch::start().await;
    source.fault(|request| {
        let filters = request.param("filter").is_some();
        (filters || request.call() == "_changes" && request.method == "POST")
            .then(|| Answer::error(403, "forbidden", "no filters here"))
    });
    let ddoc = json!({"filters": {"kind": KIND, "throws": "function () { throw({odd: 'no'}); }"},
        "views": {"even": {"map": EVEN}}});
    source.put("_design/f", None, ddoc);
    for n in 0..30 {
        let kind = if n < 10 { "x" } else { "y" };
        source.put(&format!("{n:02}"), None, json!({"kind": kind, "n": n}));
    }
    source
}

fn attached(name: &str) -> Vec<Stored> {
    vec![Stored {
        name: name.into(),
        content_type: "image/png".into(),
        encoding: None,
        bytes: Bytes::from(vec![7; 5000]),
        revpos: 0,
    }]
}

fn by_function() -> Value {
    json!({"filter": "f/kind", "query_params": {"kind": "x"}, "filter_code": KIND, "filter_at": "settee"})
}

/// The ids of a database.
fn ids(couch: &Couch) -> Vec<String> {
    couch.trees().into_keys().collect()
}

#[actix_rt::test]
async fn settee_runs_a_filter_function_if_the_source_refuses_filters() {
    for use_bulk_get in [true, false] {
        let (source, target) = (source().await, Couch::start().await);
        source.put_with("with", None, json!({"kind": "x"}), attached("one.png"));
        source.put_with("without", None, json!({"kind": "y"}), attached("two.png"));
        let first = source.put("both", None, json!({"kind": "y"}));
        source.put("both", Some(&first), json!({"kind": "y", "n": 1}));
        let passes = source.put("both", Some(&first), json!({"kind": "x", "n": 2}));
        let was = source.put("gone", None, json!({"kind": "x"}));
        source.put("gone", Some(&was), json!({"_deleted": true, "kind": "x"}));
        let mut more = by_function();
        more["use_bulk_get"] = json!(use_bulk_get);
        let outcome = run(&body_with(&source.url(), &target.url(), more)).await;
        let (_, stats) = outcome.normal();
        let mut expected: Vec<String> = (0..10).map(|n| format!("{n:02}")).collect();
        expected.extend(["both", "gone", "with"].map(String::from));
        assert_eq!(ids(&target), expected);
        let trees = target.trees();
        let leaves = |id: &str| trees[id].1.clone();
        assert_eq!(leaves("both").into_keys().collect::<Vec<_>>(), [passes]);
        assert_eq!(
            leaves("with"),
            source.trees()["with"].1,
            "its attachment is replicated"
        );
        let read = 13;
        assert_eq!(
            (stats.docs_read, stats.docs_written, stats.missing_found),
            (read, read, read)
        );
        let read_alone = |id: &str| {
            let mut requests = source.server.received().into_iter();
            requests.any(|request| request.kind() == "GET doc" && request.call() == id)
        };
        assert_eq!(
            read_alone("without"),
            !use_bulk_get,
            "a filtered-out document is not read twice"
        );
    }
}

#[actix_rt::test]
async fn settee_runs_view_selector_design_and_id_filters() {
    let source = source().await;
    let even: Vec<String> = (0..30).step_by(2).map(|n| format!("{n:02}")).collect();
    let view = json!({"filter": "_view", "query_params": {"view": "f/even"}});
    let selector = json!({"selector": {"kind": "x", "n": {"$lt": 3}}});
    let some = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (mut more, expected) in [
        (view, even),
        (selector, some(&["00", "01", "02"])),
        (json!({"filter": "_design"}), some(&["_design/f"])),
        (json!({"doc_ids": ["07", "none"]}), some(&["07"])),
    ] {
        let target = Couch::start().await;
        more["filter_at"] = json!("settee");
        let what = more.to_string();
        run(&body_with(&source.url(), &target.url(), more))
            .await
            .normal();
        assert_eq!(ids(&target), expected, "{what}");
    }
}

#[actix_rt::test]
async fn a_failing_filter_function_ends_the_replication_and_is_named() {
    let (source, target) = (source().await, Couch::start().await);
    let throws = json!({"filter": "f/throws", "filter_at": "settee",
        "filter_code": "function () { throw({odd: 'no'}); }"});
    let crash = run(&body_with(&source.url(), &target.url(), throws))
        .await
        .crash();
    assert_eq!(crash.name(), "filter_failed");
    let text = crash.to_string();
    assert!(text.contains("_design/f: filters/throws: "), "{text}");
    assert_eq!((ids(&target), target.locals().len()), (vec![], 0));
}

#[actix_rt::test]
async fn a_changed_filter_function_is_an_error_and_filter_at_is_part_of_the_id() {
    let (source, target) = (source().await, Couch::start().await);
    let mut more = by_function();
    more["filter_code"] = json!("function (doc, req) { return true; }");
    let crash = run(&body_with(&source.url(), &target.url(), more))
        .await
        .crash();
    let text = crash.to_string();
    assert!(text.contains("the function f/kind has changed"), "{text}");
    let (at_source, here) = (
        json!({"filter_at": "source"}),
        json!({"filter_at": "settee"}),
    );
    let base = |at: &Value| {
        let mut more = by_function();
        more["filter_at"] = at["filter_at"].clone();
        Job::prepare(&body_with(&source.url(), &target.url(), more))
            .1
            .base
    };
    assert_ne!(base(&at_source), base(&here), "each engine has its own id");
}

#[actix_rt::test]
async fn a_continuous_replication_checkpoints_past_filtered_out_documents() {
    let (source, target) = (source().await, Couch::start().await);
    let (pool, filters) = pool();
    let mut more = by_function();
    more["continuous"] = json!(true);
    more["checkpoint_interval"] = json!(50);
    let job = job(&body_with(&source.url(), &target.url(), more), filters);
    eventually("the documents that pass", async || ids(&target).len() == 10).await;
    for n in 100..150 {
        source.put(&format!("{n}"), None, json!({"kind": "y"}));
    }
    source.put("last", None, json!({"kind": "x"}));
    eventually("the last document", async || ids(&target).len() == 11).await;
    let log = format!("_local/{}", job.base);
    let seq = source.seq();
    let recorded = async || {
        let log = target.local(&log).unwrap_or_default();
        log["source_last_seq"]
            .as_str()
            .is_some_and(|recorded| recorded.starts_with(&format!("{seq}-")))
    };
    eventually("a checkpoint after all documents", recorded).await;
    job.stopped().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn the_replicate_command_runs_filters_in_its_own_pool() {
    let (folder, source, target) = (folder(), source().await, Couch::start().await);
    let params = ["--filter", "f/kind", "--query-params", "kind=x"];
    let here = [&params[..], &["--filter-at", "settee"]].concat();
    let output = run_command(&folder, &source.url(), &target.url(), &here).await;
    let (status, out, error) = code(&output);
    assert_eq!(status, Some(0), "{out}{error}");
    assert_eq!(ids(&target).len(), 10);
    let output = run_command(&folder, &source.url(), &target.url(), &params).await;
    let (status, _, error) = code(&output);
    assert_eq!(status, Some(77), "the source has no filters: {error}");
    let throws = ["--filter", "f/throws", "--filter-at", "settee"];
    let output = run_command(&folder, &source.url(), &target.url(), &throws).await;
    let (status, _, error) = code(&output);
    assert_eq!(status, Some(65), "{error}");
    assert!(
        error.contains("filters/throws") && error.contains("correct the filter"),
        "{error}"
    );
}

#[actix_rt::test]
async fn the_error_of_a_source_without_selectors_names_filter_at() {
    let folder = folder();
    let unknown = Answer::error(400, "bad_request", "unknown filter");
    for answer in [unknown, Answer::reset()] {
        let (source, target) = (Couch::start().await, Couch::start().await);
        source.put("a", None, json!({"kind": "x"}));
        source.fails("POST _changes", usize::MAX, answer);
        let selector = ["--selector", r#"{"kind": "x"}"#];
        let more = [&selector[..], &["--retries-per-request", "0"]].concat();
        let output = run_command(&folder, &source.url(), &target.url(), &more).await;
        let (status, _, error) = code(&output);
        assert!(matches!(status, Some(65 | 75)), "{error}");
        assert!(error.contains("--filter-at settee"), "{error}");
        let more = [&selector[..], &["--filter-at", "settee"]].concat();
        let output = run_command(&folder, &source.url(), &target.url(), &more).await;
        let (status, _, error) = code(&output);
        assert_eq!(status, Some(0), "{error}");
    }
}

#[actix_rt::test]
async fn a_source_cannot_make_the_replicate_command_run_a_configured_language() {
    let (folder, source, target) = (folder(), Couch::start().await, Couch::start().await);
    let marker = folder.path().join("was-run");
    let ddoc = json!({"language": "sh", "filters": {"f": "x"}});
    source.put("_design/d", None, ddoc);
    source.put("a", None, json!({}));
    let file = folder.path().join("settee.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let command = format!("touch {}; exec cat", marker.display());
    // In a cell the command could not write the marker.
    let pool = "[pools.sh]\ncallers = true\nsandbox = \"off\"\n";
    let config = format!("{config}[query_servers]\nsh = {command:?}\n{pool}");
    std::fs::write(&file, config).unwrap();
    let here = ["--filter", "d/f", "--filter-at", "settee"];
    let output = run_command(&folder, &source.url(), &target.url(), &here).await;
    let (status, _, error) = code(&output);
    assert_eq!(status, Some(65), "{error}");
    assert!(error.contains("built-in"), "{error}");
    assert!(!marker.exists(), "the command was run");
}
