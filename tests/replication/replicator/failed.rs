//! Documents without a job, because they failed for good or cannot start yet: they are listed and counted with their
//! reasons, and restarted on request.

use std::process::Command;

use serde_json::{Value, json};

use crate::replicator::orders::{printed, settee};
use crate::replicator::world::World;
use crate::support::daemon::wait_until;
use crate::support::http_server::Answer;
use crate::support::program::SETTEE;
use crate::support::store::{create, post};

/// Starts a world whose second document duplicates the first one's replication and has failed for good.
fn with_a_failed_document() -> World {
    let world = World::start();
    create(&world.web, "first", &world.continuous());
    world.wait_for_state("first", "running");
    create(&world.web, "second", &world.continuous());
    world.wait_for_state("second", "failed");
    world
}

#[test]
fn a_failed_document_is_listed_counted_and_shown_with_its_reason() {
    let world = with_a_failed_document();
    let list = printed(&world, &[]);
    let row = list.lines().find(|line| line.starts_with("second "));
    assert!(row.is_some_and(|row| row.contains("  failed  ")), "{list}");
    assert!(list.ends_with("2 jobs: 1 running, 1 failed\n"), "{list}");
    let groups = printed(&world, &["--group-by", "reason"]);
    assert!(groups.contains("1 failed"), "{groups}");
    let mut status = Command::new(SETTEE);
    status
        .arg("status")
        .arg("--socket")
        .arg(world.web.service.socket());
    let status = String::from_utf8(status.output().unwrap().stdout).unwrap();
    let counts = "\nreplications: 2 jobs: 1 running, 1 failed\n";
    assert!(status.contains(counts), "{status}");
    let shown = printed(&world, &["show", "second", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["source"], format!("{}/", world.source.url()));
    let error = shown["info"]["error"].as_str().unwrap();
    assert!(
        error.ends_with("already started, triggered by document `first` from db `_replicator`"),
        "{error}"
    );
    assert!(printed(&world, &["show", "second"]).contains(error));
    let none = settee(&world, &["show", "none"]);
    assert_eq!(none.status.code(), Some(66), "{none:?}");
    world.stop();
}

#[test]
fn documents_with_a_duplicate_replication_have_one_reason_in_lists() {
    let world = with_a_failed_document();
    create(&world.web, "third", &world.continuous());
    world.wait_for_state("third", "failed");
    let groups = printed(&world, &["--group-by", "reason"]);
    assert!(groups.contains("2 x  duplicate replication  "), "{groups}");
    let counted = || {
        let metrics = world.web.get("/metrics").body;
        metrics.contains("\nsettee_replication_docs_failed 2\n")
    };
    wait_until("the count of failed documents", counted);
    printed(&world, &["delete", "first", "--yes"]);
    let restart = ["restart", "--reason", "duplicate replication", "--yes"];
    assert_eq!(printed(&world, &restart), "2 jobs restarted\n");
    world.stop();
}

#[test]
fn a_restart_runs_a_failed_document_again() {
    let world = with_a_failed_document();
    let paused = printed(&world, &["pause", "--all", "--yes"]);
    assert_eq!(
        paused, "1 job paused\n",
        "a failed document has no job to pause"
    );
    printed(&world, &["delete", "first", "--yes"]);
    let restarted = printed(&world, &["restart", "second"]);
    assert_eq!(restarted, "1 job restarted\n");
    world.wait_for_state("second", "running");
    let document = world.web.get("/_replicator/second").ok();
    assert!(document.get("_replication_state").is_none(), "{document}");
    world.stop();
}

#[test]
fn a_failed_document_restarted_over_http_fails_again_while_its_reason_lasts() {
    let world = with_a_failed_document();
    let rev_of = |name: &str| world.web.get(&format!("/_replicator/{name}")).ok()["_rev"].clone();
    let before = rev_of("second");
    let restart = "/_scheduler/jobs/second/_restart";
    let answer = post(&world.web, restart, &json!({})).ok();
    assert_eq!(answer["job"]["doc_id"], "second", "{answer}");
    world.wait_for_state("second", "failed");
    assert_ne!(rev_of("second"), before);
    post(&world.web, "/_scheduler/jobs/none/_restart", &json!({})).reason(404, "not_found");
    world.stop();
}

#[test]
fn a_completed_document_is_restarted_only_on_explicit_request() {
    let world = World::start();
    world.fill(1);
    create(&world.web, "once", &world.body());
    world.wait_for_state("once", "completed");
    world.source.put("more", None, json!({}));
    let none = settee(&world, &["restart", "once"]);
    assert_eq!(none.status.code(), Some(66), "{none:?}");
    let again = ["restart", "once", "--states", "completed"];
    assert_eq!(printed(&world, &again), "1 job restarted\n");
    world.wait_until_equal();
    world.wait_for_state("once", "completed");
    world.stop();
}

#[test]
fn a_document_that_cannot_start_yet_is_grouped_and_restarted_with_jobs_by_reason() {
    let world = World::start();
    world.source.fault(|_| {
        let why = "Database does not exist.";
        Some(Answer::error(404, "not_found", why))
    });
    let mut filtered = world.continuous();
    filtered["filter"] = "d/f".into();
    create(&world.web, "filtered", &filtered);
    create(&world.web, "plain", &world.continuous());
    let doc = world.wait_for_state("filtered", "error");
    assert_eq!(doc["reason"], "database missing", "{doc}");
    world.wait_for_state("plain", "crashing");
    let groups = printed(&world, &["--group-by", "reason"]);
    assert!(groups.contains("2 x  database missing  "), "{groups}");
    let code = "function(doc) { return true; }";
    let filters = json!({"filters": {"f": code}});
    world.source.put("_design/d", None, filters);
    world.source.heal();
    let restart = ["restart", "--reason", "database missing", "--yes"];
    assert_eq!(printed(&world, &restart), "2 jobs restarted\n");
    world.wait_for_state("filtered", "running");
    world.stop();
}
