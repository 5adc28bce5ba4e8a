//! Documents become jobs, jobs do their work, and their outcome is written into the documents.

use serde_json::{Value, json};

use crate::replicator::world::World;
use crate::support::daemon::wait_until;
use crate::support::store::{create, put};

#[test]
fn a_one_shot_replication_completes_and_its_document_has_the_statistics() {
    let world = World::start();
    world.fill(30);
    let mut body = world.body();
    body["_replication_state"] = "triggered".into();
    body["_replication_id"] = "bogus".into();
    create(&world.web, "one", &body);
    let shown = world.wait_for_state("one", "completed");
    assert_eq!(world.source.trees(), world.target.trees());
    let doc = world.web.get("/_replicator/one").ok();
    assert_eq!(doc["_replication_state"], "completed");
    assert_eq!(doc.get("_replication_id"), None);
    let stats = &doc["_replication_stats"];
    assert_eq!(
        (&stats["docs_read"], &stats["docs_written"]),
        (&json!(30), &json!(30))
    );
    assert_eq!(stats["changes_pending"], 0, "no changes are pending");
    for name in [
        "revisions_checked",
        "missing_revisions_found",
        "doc_write_failures",
        "bulk_get_docs",
        "bulk_get_attempts",
        "checkpointed_source_seq",
        "start_time",
    ] {
        assert!(stats.get(name).is_some(), "{name}: {stats}");
    }
    assert_eq!(shown["id"], Value::Null);
    assert_eq!(shown["info"]["docs_written"], 30);
    assert_eq!(shown["start_time"], stats["start_time"]);
    assert_eq!(world.jobs(), Vec::<Value>::new());
    world.stop();
}

#[test]
fn a_completed_document_runs_again_when_its_state_is_removed() {
    let world = World::start();
    world.fill(3);
    create(&world.web, "again", &world.body());
    world.wait_for_state("again", "completed");
    world.source.put("later", None, json!({}));
    let mut doc = world.web.get("/_replicator/again").ok();
    let members = doc.as_object_mut().unwrap();
    members.retain(|name, _| !name.starts_with("_replication"));
    assert_eq!(put(&world.web, "/_replicator/again", &doc).status, 201);
    world.wait_until_equal();
    let done = world.wait_for_state("again", "completed");
    assert_eq!(
        done["info"]["docs_written"], 4,
        "counters accumulate over the life of an id"
    );
    world.stop();
}

#[test]
fn a_continuous_replication_is_in_every_list_and_ends_with_its_document() {
    let world = World::start();
    world.fill(10);
    let rev = create(&world.web, "live", &world.continuous());
    world.wait_until_equal();
    world.source.put("later", None, json!({}));
    world.wait_until_equal();
    let shown = world.wait_for_state("live", "running");
    let id = shown["id"].as_str().unwrap();
    assert!(id.ends_with("+continuous"), "{shown}");
    assert_eq!(
        shown["source"],
        format!("{}/", world.source.url().trim_end_matches('/'))
    );
    assert_eq!(
        (&shown["error_count"], &shown["source_proxy"]),
        (&json!(0), &Value::Null)
    );
    let job = world
        .web
        .get(&format!("/_scheduler/jobs/{}", id.replace('+', "%20")))
        .ok();
    assert_eq!((&job["id"], &job["doc_id"]), (&json!(id), &json!("live")));
    assert!(job["pid"].is_string(), "{job}");
    let last = job["history"].as_array().unwrap().last().unwrap();
    assert_eq!(last["type"], "added");
    let mut tasks = Value::Null;
    wait_until("a task with figures", || {
        tasks = world.web.get("/_active_tasks").ok();
        tasks[0]["docs_written"] == 11
    });
    let task = &tasks[0];
    assert_eq!(
        (&task["type"], &task["replication_id"]),
        (&json!("replication"), &json!(id))
    );
    assert_eq!(
        (&task["doc_id"], &task["continuous"]),
        (&json!("live"), &json!(true))
    );
    for name in ["through_seq", "source_seq", "checkpointed_source_seq"] {
        assert!(task[name].is_string(), "{task}");
    }
    world
        .web
        .send("DELETE", &format!("/_replicator/live?rev={rev}"), "")
        .ok();
    wait_until("the end of the job", || world.jobs().is_empty());
    world
        .web
        .get("/_scheduler/docs/_replicator/live")
        .reason(404, "not_found");
    world.stop();
}

#[test]
fn an_edit_restarts_a_job_only_if_it_changes_the_replication() {
    let world = World::start();
    create(&world.web, "live", &world.continuous());
    world.wait_for_state("live", "running");
    let before = world.jobs()[0]["pid"].clone();
    let mut doc = world.web.get("/_replicator/live").ok();
    doc["note"] = "mine".into();
    assert_eq!(put(&world.web, "/_replicator/live", &doc).status, 201);
    world.source.put("a", None, json!({}));
    world.wait_until_equal();
    assert_eq!(world.jobs()[0]["pid"], before);
    let mut doc = world.web.get("/_replicator/live").ok();
    doc["worker_processes"] = 1.into();
    assert_eq!(put(&world.web, "/_replicator/live", &doc).status, 201);
    wait_until("another run", || {
        world
            .jobs()
            .first()
            .is_some_and(|job| job["pid"].is_string() && job["pid"] != before)
    });
    world.stop();
}

#[test]
fn a_second_document_for_the_same_job_fails_and_names_the_first() {
    let world = World::start();
    create(&world.web, "first", &world.continuous());
    let id = world.wait_for_state("first", "running")["id"].clone();
    create(&world.web, "second", &world.continuous());
    let failed = world.wait_for_state("second", "failed");
    let expected = format!(
        "Replication `{}` specified by document `second` already started, triggered by document \
         `first` from db `_replicator`",
        id.as_str().unwrap()
    );
    assert_eq!(failed["info"], json!({"error": expected}));
    assert_eq!(
        (&failed["id"], &failed["error_count"]),
        (&Value::Null, &json!(1))
    );
    let doc = world.web.get("/_replicator/second").ok();
    assert_eq!(doc["_replication_state_reason"], expected);
    world.wait_for_state("first", "running");
    world.stop();
}

#[test]
fn a_failing_replication_reports_its_reason_and_is_retried() {
    let world = World::start();
    world.fill(2);
    world.source.fails(
        "GET db",
        2,
        crate::support::http_server::Answer::error(404, "not_found", "no db"),
    );
    create(&world.web, "late", &world.body());
    let crashing = world.wait_for_state("late", "crashing");
    let error = crashing["info"]["error"].as_str().unwrap();
    assert!(
        error.starts_with("db_not_found: could not open "),
        "{crashing}"
    );
    assert!(crashing["error_count"].as_u64() >= Some(1), "{crashing}");
    let reason = crashing["reason"].as_str().unwrap();
    assert_eq!(reason, "database missing", "{crashing}");
    world.wait_for_state("late", "completed");
    world.stop();
}

#[test]
fn a_filter_that_cannot_be_read_is_a_temporary_error() {
    let world = World::start();
    let mut body = world.body();
    body["filter"] = "ddoc/none".into();
    create(&world.web, "filtered", &body);
    let error = world.wait_for_state("filtered", "error");
    assert_eq!(error["id"], Value::Null);
    assert!(error["error_count"].as_u64() >= Some(1), "{error}");
    assert!(error["info"]["error"].is_string(), "{error}");
    assert_eq!(error["source"], format!("{}/", world.source.url()));
    world.stop();
}

#[test]
fn states_are_written_into_documents_if_configured() {
    let world = World::start_with("update_docs = true\n");
    create(&world.web, "live", &world.continuous());
    let mut doc = Value::Null;
    wait_until("the state in the document", || {
        doc = world.web.get("/_replicator/live").ok();
        doc["_replication_state"] == "triggered"
    });
    let id = world.wait_for_state("live", "running")["id"].clone();
    assert_eq!(doc["_replication_id"], id);
    world.stop();
}

#[test]
fn lists_are_paged_and_filtered_by_state() {
    let world = World::start_with("max_jobs = 0\n");
    for number in 0..5 {
        let mut body = world.continuous();
        body["since_seq"] = number.into();
        create(&world.web, &format!("r{number}"), &body);
    }
    create(&world.web, "_design/x", &json!({}));
    wait_until("all jobs", || world.jobs().len() == 5);
    let jobs = world.web.get("/_scheduler/jobs?limit=2&skip=1").ok();
    assert_eq!(
        (&jobs["total_rows"], &jobs["offset"]),
        (&json!(5), &json!(1))
    );
    let ids = |jobs: &[Value]| {
        jobs.iter()
            .map(|job| job["id"].to_string())
            .collect::<Vec<_>>()
    };
    let all = ids(&world.jobs());
    assert!(all.is_sorted(), "{all:?}");
    assert_eq!(ids(jobs["jobs"].as_array().unwrap()), all[1..3]);
    let job = &world.jobs()[0];
    assert_eq!((&job["pid"], &job["info"]), (&Value::Null, &Value::Null));
    assert_eq!(job["history"].as_array().unwrap().len(), 1);
    assert_eq!(
        job["reason"],
        "no job may run: max_jobs is 0, or the daemon is drained"
    );
    for (query, reason) in [
        ("limit=x", "limit must be an integer"),
        ("skip=-1", "skip not in range of [0,infinity]"),
    ] {
        let answer = world.web.get(&format!("/_scheduler/jobs?{query}"));
        assert_eq!(answer.reason(400, "bad_request"), reason);
    }
    world
        .web
        .get("/_scheduler/jobs/none")
        .reason(404, "not_found");
    let docs = world.web.get("/_scheduler/docs?limit=2&skip=1").ok();
    assert_eq!(
        (&docs["total_rows"], &docs["offset"]),
        (&json!(6), &json!(1))
    );
    assert_eq!(docs["docs"][0]["doc_id"], "r1");
    let pending = world
        .web
        .get("/_scheduler/docs/_replicator?states=PENDING,running")
        .ok();
    assert_eq!(pending["docs"].as_array().unwrap().len(), 5);
    let none = world.web.get("/_scheduler/docs?states=failed").ok();
    assert_eq!(none["docs"], json!([]));
    let wrong = world.web.get("/_scheduler/docs?states=odd");
    assert!(
        wrong
            .reason(400, "query_parse_error")
            .contains("Choose from: ")
    );
    world
        .web
        .get("/_scheduler/docs/a/b")
        .reason(400, "bad_request");
    world.stop();
}

#[test]
fn settings_change_while_the_service_runs() {
    let world = World::start();
    create(&world.web, "live", &world.continuous());
    world.wait_for_state("live", "running");
    let set = |key: &str, value: &str| {
        let path = format!("/_node/_local/_config/replicator/{key}");
        world.web.send("PUT", &path, &format!("{value:?}"))
    };
    assert_eq!(set("max_jobs", "0").ok(), "500");
    world.wait_for_state("live", "pending");
    assert_eq!(set("max_jobs", "10").ok(), "0");
    world.wait_for_state("live", "running");
    let refused = set("worker_processes", "0").reason(400, "bad_request");
    assert!(refused.contains("worker_processes"), "{refused}");
    world
        .web
        .send(
            "PUT",
            "/_node/_local/_config/replicator.shares/_replicator",
            "\"7\"",
        )
        .ok();
    let shares = world
        .web
        .get("/_node/_local/_config/replicator.shares")
        .ok();
    assert_eq!(shares, json!({"_replicator": "7"}));
    world.stop();
}

#[test]
fn refused_documents_and_outcomes_are_reported() {
    let world = World::start();
    world.fill(5);
    world.target.refuse("d00003");
    create(&world.web, "on", &world.continuous());
    wait_until("a refused document", || {
        let jobs = world.jobs();
        jobs.first().is_some_and(|job| job["refused"].is_array())
    });
    let job = &world.jobs()[0];
    let refused = &job["refused"][0];
    assert_eq!(
        (&refused["id"], &refused["error"], &refused["reason"]),
        (
            &json!("d00003"),
            &json!("forbidden"),
            &json!("not this one")
        )
    );
    assert_eq!(world.doc("on")["refused"], job["refused"]);
    let mut once = world.body();
    once["doc_ids"] = json!(["d00001"]);
    create(&world.web, "once", &once);
    world.wait_for_state("once", "completed");
    create(&world.web, "same", &world.continuous());
    world.wait_for_state("same", "failed");
    let stats = || world.web.get("/_node/_local/_stats/couch_replicator").ok();
    let count = |name: &str| stats()["docs"][name]["value"].as_u64();
    wait_until("the outcomes", || {
        (
            count("completed_state_updates"),
            count("failed_state_updates"),
        ) == (Some(1), Some(1))
    });
    assert_eq!(count("dbs_found"), Some(1));
    assert_eq!(stats()["db_scans"]["value"], 1);
    assert!(
        count("db_changes") >= Some(5),
        "three documents, two outcomes"
    );
    world.stop();
}

#[test]
fn an_outcome_is_written_even_if_the_configuration_has_changed() {
    let world = World::start_with("max_jobs = 0\n");
    world.fill(3);
    create(&world.web, "one", &world.body());
    let mut other = world.body();
    other["user_ctx"] = json!({"name": "bob"});
    create(&world.web, "same", &other);
    world.wait_for_state("one", "pending");
    let set = |key: &str, value: &str| {
        let path = format!("/_node/_local/_config/replicator/{key}");
        let answer = put(&world.web, &path, &value.into());
        assert_eq!(answer.status, 200, "{key}: {answer:?}");
    };
    for (key, value) in [
        ("worker_processes", "2"),
        ("worker_batch_size", "7"),
        ("http_connections", "3"),
        ("connection_timeout", "12345"),
        ("retries_per_request", "4"),
        ("checkpoint_interval", "9999"),
        ("use_bulk_get", "false"),
        ("valid_endpoint_protocols", "https"),
    ] {
        set(key, value);
    }
    // An edit that does not change the replication does not restart it.
    let mut doc = world.web.get("/_replicator/one").ok();
    doc["note"] = "x".into();
    set("valid_endpoint_protocols", "http,https");
    assert_eq!(put(&world.web, "/_replicator/one", &doc).status, 201);
    set("valid_endpoint_protocols", "https");
    set("max_jobs", "5");
    let done = world.wait_for_state("one", "completed");
    assert_eq!(done["info"]["docs_written"], 3);
    assert_eq!(world.wait_for_state("same", "failed")["error_count"], 1);
    world.stop();
}

#[test]
fn jobs_of_a_drained_daemon_stop_and_run_again_afterwards() {
    let world = World::start();
    world.source.put("a", None, json!({}));
    create(&world.web, "r", &world.continuous());
    world.wait_until_equal();
    let drain = |method| world.web.send(method, "/_drain", "").ok();
    drain("PUT");
    wait_until("no job runs", || {
        world.web.get("/_drain").ok()["running"] == 0
    });
    assert_eq!(world.doc("r")["state"], "pending");
    let job = &world.jobs()[0];
    let events: Vec<_> = job["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["type"])
        .collect();
    assert_eq!(events, ["stopped", "started", "added"]);
    world.source.put("b", None, json!({}));
    drain("DELETE");
    world.wait_until_equal();
    world.stop();
}
