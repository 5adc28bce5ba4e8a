//! After a restart, permanent jobs resume from their checkpoints; transient jobs are lost.

use std::time::Duration;

use serde_json::json;

use crate::replicator::world::{SETTINGS, World};
use crate::support::daemon::wait_until;
use crate::support::http_server::Answer;
use crate::support::store::{create, start_in};

#[test]
fn a_killed_service_resumes_every_permanent_job_from_its_checkpoint() {
    let mut world = World::start();
    world.fill(50);
    let mut body = world.continuous();
    body["checkpoint_interval"] = 20.into();
    create(&world.web, "live", &body);
    world.wait_until_equal();
    let id = world.wait_for_state("live", "running")["id"].clone();
    wait_until("a checkpoint of everything", || {
        let doc = world.doc("live");
        doc["info"]["checkpointed_source_seq"] == doc["info"]["through_seq"]
            && doc["info"]["docs_written"] == 50
    });
    let asked = world.source.server.received().len();
    let directory = world.web.service.kill_and_keep();
    for number in 0..20 {
        world
            .source
            .put(&format!("while-away-{number}"), None, json!({}));
    }
    world.web = start_in(directory, SETTINGS);
    world.wait_until_equal();
    assert_eq!(
        world.wait_for_state("live", "running")["id"],
        id,
        "the uuid is durable"
    );
    let received = world.source.server.received();
    let feed = received[asked..]
        .iter()
        .find(|request| request.kind() == "GET _changes" && request.param("feed").is_some());
    let since = feed.unwrap().param("since").unwrap();
    assert_ne!(since, "0", "the feed starts at the checkpoint");
    world.stop();
}

#[test]
fn a_one_shot_that_is_killed_in_the_middle_completes_after_a_restart() {
    let mut world = World::start();
    world.fill(400);
    // Slow enough to be killed in the middle.
    world.target.fault(|request| {
        std::thread::sleep(Duration::from_millis(5));
        let _ = request;
        None::<Answer>
    });
    let mut body = world.body();
    body["worker_batch_size"] = 10.into();
    body["worker_processes"] = 1.into();
    body["checkpoint_interval"] = 10.into();
    create(&world.web, "one", &body);
    wait_until("some documents", || world.target.trees().len() > 30);
    let directory = world.web.service.kill_and_keep();
    assert!(
        world.target.trees().len() < 400,
        "the replication finished before the kill"
    );
    world.target.heal();
    world.web = start_in(directory, SETTINGS);
    world.wait_for_state("one", "completed");
    assert_eq!(world.source.trees(), world.target.trees());
    world.stop();
}

#[test]
fn a_shutdown_writes_the_checkpoints_of_runs_on_all_threads() {
    let mut world = World::start_with("threads = 3\n");
    world.fill(20);
    let targets: Vec<_> = (0..5).map(|_| world.another()).collect();
    for (number, target) in targets.iter().enumerate() {
        let mut body = world.continuous();
        body["target"] = target.url().into();
        body["checkpoint_interval"] = 3_600_000.into();
        create(&world.web, &format!("to-{number}"), &body);
    }
    wait_until("everything is replicated and reported", || {
        (0..targets.len()).all(|number| {
            let info = &world.doc(&format!("to-{number}"))["info"];
            info["docs_written"] == 20 && info["changes_pending"] == 0
        })
    });
    assert!(targets.iter().all(|target| target.locals().is_empty()));
    let directory = world.web.service.stop_and_keep();
    assert!(targets.iter().all(|target| target.locals().len() == 1));
    world.web = start_in(directory, SETTINGS);
    world.stop();
}

#[test]
fn a_transient_job_does_not_survive_a_restart() {
    let mut world = World::start();
    let begun = crate::support::store::post(&world.web, "/_replicate", &world.continuous());
    assert_eq!(begun.status, 202);
    let directory = world.web.service.stop_and_keep();
    world.web = start_in(directory, SETTINGS);
    assert!(world.jobs().is_empty());
    world.stop();
}
