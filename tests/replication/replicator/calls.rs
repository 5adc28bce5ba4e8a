//! `POST /_replicate`: replications without a document.

use serde_json::{Value, json};

use crate::replicator::world::World;
use crate::support::daemon::wait_until;
use crate::support::http_server::Answer;
use crate::support::store::{create, post};

#[test]
fn a_one_shot_call_waits_for_its_replication_and_returns_the_history() {
    let world = World::start();
    world.fill(20);
    let done = post(&world.web, "/_replicate", &world.body()).ok();
    assert_eq!(done["ok"], true);
    assert_eq!(done["replication_id_version"], 4);
    assert_eq!(done["history"][0]["docs_written"], 20);
    assert!(
        done["session_id"].is_string() && !done["source_last_seq"].is_null(),
        "{done}"
    );
    assert_eq!(world.source.trees(), world.target.trees());
    let again = post(&world.web, "/_replicate", &world.body()).ok();
    assert_eq!(
        (&again["ok"], &again["no_changes"]),
        (&json!(true), &json!(true))
    );
    world.source.put("later", None, json!({}));
    let more = post(&world.web, "/_replicate", &world.body()).ok();
    assert_eq!(more["history"].as_array().unwrap().len(), 2);
    assert_eq!(
        more["history"][0]["docs_written"], 21,
        "counters accumulate"
    );
    let mut without = world.body();
    without["use_checkpoints"] = false.into();
    without["doc_ids"] = json!(["d00001"]);
    let answer = post(&world.web, "/_replicate", &without).ok();
    assert_eq!(answer["use_checkpoints"], false, "{answer}");
    world.stop();
}

#[test]
fn a_continuous_replication_is_started_and_cancelled_by_id_or_by_the_same_fields() {
    let world = World::start();
    world.fill(3);
    let begun = post(&world.web, "/_replicate", &world.continuous());
    assert_eq!(begun.status, 202, "{begun:?}");
    let begun = begun.json();
    let id = begun["_local_id"].as_str().unwrap().to_owned();
    assert!(
        id.ends_with("+continuous") && begun["ok"] == true,
        "{begun}"
    );
    world.wait_until_equal();
    let job = &world.jobs()[0];
    assert_eq!(
        (&job["database"], &job["doc_id"]),
        (&Value::Null, &Value::Null)
    );
    let pid = job["pid"].clone();
    post(&world.web, "/_replicate", &world.continuous());
    assert_eq!(
        world.jobs()[0]["pid"],
        pid,
        "repeating the call changes nothing"
    );
    for name in ["id", "_local_id", "replication_id"] {
        let cancelled = post(
            &world.web,
            "/_replicate",
            &json!({"cancel": true, name: id}),
        );
        assert_eq!(cancelled.ok(), json!({"ok": true, "_local_id": id}));
        assert_eq!(world.jobs(), Vec::<Value>::new());
        let gone = post(
            &world.web,
            "/_replicate",
            &json!({"cancel": true, name: id}),
        );
        assert_eq!(gone.reason(404, "not_found"), "missing");
        post(&world.web, "/_replicate", &world.continuous());
    }
    let mut same = world.continuous();
    same["cancel"] = true.into();
    post(&world.web, "/_replicate", &same).ok();
    let mut other = world.body();
    other["cancel"] = true.into();
    post(&world.web, "/_replicate", &other).reason(404, "not_found");
    world.stop();
}

#[test]
fn each_failure_has_its_status_code() {
    let world = World::start();
    let bare = post(
        &world.web,
        "/_replicate",
        &json!({"source": "a", "target": "b"}),
    );
    let reason = bare.reason(400, "invalid_replication");
    assert!(
        reason.contains("this service holds no databases"),
        "{reason}"
    );
    post(&world.web, "/_replicate", &json!({})).reason(400, "invalid_replication");
    let mut wrong = world.body();
    wrong["continuous"] = 1.into();
    let reason = post(&world.web, "/_replicate", &wrong).reason(400, "bad_request");
    assert_eq!(reason, "parameter `continuous` must be a boolean");
    world
        .web
        .send("POST", "/_replicate", "{")
        .reason(400, "bad_request");
    world
        .web
        .get("/_replicate")
        .reason(405, "method_not_allowed");
    let mut filtered = world.body();
    filtered["filter"] = "no/such".into();
    post(&world.web, "/_replicate", &filtered).reason(404, "not_found");
    for (status, name, code) in [
        (404, "db_not_found", 500),
        (401, "unauthorized", 401),
        (403, "forbidden", 403),
    ] {
        world
            .source
            .fails("GET db", 9, Answer::error(status, "x", "y"));
        let reason = post(&world.web, "/_replicate", &world.body()).reason(code, name);
        assert!(reason.contains(&world.source.url()), "{reason}");
        world.source.heal();
    }
    assert_eq!(
        world.jobs(),
        Vec::<Value>::new(),
        "a transient job is removed when it fails"
    );
    world.stop();
}

#[test]
fn a_call_neither_shares_nor_cancels_the_job_of_a_document() {
    let world = World::start();
    create(&world.web, "live", &world.continuous());
    let id = world.wait_for_state("live", "running")["id"].clone();
    let taken = post(&world.web, "/_replicate", &world.continuous()).reason(409, "conflict");
    assert!(taken.contains("document `live`"), "{taken}");
    let cancel = post(
        &world.web,
        "/_replicate",
        &json!({"cancel": true, "id": id}),
    );
    assert!(
        cancel
            .reason(409, "conflict")
            .contains("delete that document")
    );
    world.stop();
}

#[test]
fn a_call_whose_job_is_cancelled_gets_an_error() {
    let world = World::start();
    // The source does not answer, so the job stays.
    world.source.fails(
        "GET db",
        1000,
        Answer::json(200, "{}").slow(1, std::time::Duration::from_secs(60)),
    );
    let mut waiting = world.web.connect();
    let headers = [("Content-Type", "application/json")];
    waiting.send("POST", "/_replicate", &headers, &world.body().to_string());
    wait_until("the job", || world.jobs().len() == 1);
    let id = world.jobs()[0]["id"].clone();
    post(
        &world.web,
        "/_replicate",
        &json!({"cancel": true, "id": id}),
    )
    .ok();
    waiting.response().reason(500, "cancelled");
    world.stop();
}

#[test]
fn a_filter_that_the_source_refuses_runs_in_the_services_pool_with_filter_at() {
    let world = World::start();
    let code = "function (doc, req) { return doc.n < Number(req.query.below); }";
    world
        .source
        .put("_design/f", None, json!({"filters": {"small": code}}));
    world.fill(20);
    world.source.fault(|request| {
        let filtered = request.param("filter").is_some();
        filtered.then(|| Answer::error(403, "forbidden", "no filters here"))
    });
    let mut body = world.body();
    body["filter"] = "f/small".into();
    body["query_params"] = json!({"below": 5});
    let refused = post(&world.web, "/_replicate", &body);
    assert_eq!(refused.status, 500, "{refused:?}");
    body["filter_at"] = "settee".into();
    let done = post(&world.web, "/_replicate", &body).ok();
    assert_eq!(done["history"][0]["docs_written"], 5, "{done}");
    assert_eq!(world.target.trees().len(), 5);
    // The same for a document with a continuous replication.
    body["query_params"] = json!({"below": 7});
    body["continuous"] = true.into();
    create(&world.web, "small", &body);
    wait_until("two more documents", || world.target.trees().len() == 7);
    world.source.put("late", None, json!({"n": 6}));
    wait_until("the late document", || world.target.trees().len() == 8);
    world.stop();
}
