//! Jobs are paused, resumed, restarted and given priorities, over HTTP and with `settee jobs`.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::replicator::world::{SETTINGS, World};
use crate::support::daemon::wait_until;
use crate::support::http_client::Response;
use crate::support::http_server::Answer;
use crate::support::program::SETTEE;
use crate::support::store::{create, post, start_in};

fn order(world: &World, id: &str, name: &str, body: &Value) -> Response {
    post(&world.web, &format!("/_scheduler/jobs/{id}/{name}"), body)
}

pub fn settee(world: &World, arguments: &[&str]) -> Output {
    let mut command = Command::new(SETTEE);
    command.arg("jobs").args(arguments);
    command.arg("--socket").arg(world.web.service.socket());
    command.output().unwrap()
}

pub fn printed(world: &World, arguments: &[&str]) -> String {
    let output = settee(world, arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_paused_job_stays_paused_across_a_restart_until_it_is_resumed() {
    let mut world = World::start();
    create(&world.web, "live", &world.continuous());
    let id = world.wait_for_state("live", "running")["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let paused = order(&world, &id, "_pause", &json!({})).ok();
    assert_eq!(
        (&paused["ok"], &paused["job"]["id"]),
        (&json!(true), &json!(id))
    );
    let shown = world.wait_for_state("live", "pending");
    assert!(
        shown["reason"].as_str().unwrap().starts_with("paused by "),
        "{shown}"
    );
    order(&world, &id, "_priority", &json!({"priority": 5})).ok();
    order(&world, &id, "_priority", &json!({"priority": 500})).reason(400, "bad_request");
    order(&world, "none", "_pause", &json!({})).reason(404, "not_found");
    order(&world, &id, "_odd", &json!({})).reason(404, "not_found");
    let directory = world.web.service.stop_and_keep();
    world.web = start_in(directory, SETTINGS);
    let shown = world.wait_for_state("live", "pending");
    assert!(
        shown["reason"].as_str().unwrap().starts_with("paused by "),
        "{shown}"
    );
    assert_eq!(shown["id"], id, "the id is unchanged");
    let job = &world.jobs()[0];
    assert_eq!(
        (&job["priority"], job["paused"]["by"].is_string()),
        (&json!(5), true)
    );
    order(&world, &id, "_resume", &json!({})).ok();
    world.wait_for_state("live", "running");
    world.stop();
}

#[test]
fn a_restart_clears_the_failures_of_a_job() {
    let world = World::start_with("backoff_max = \"10h\"\n");
    let set = |value: &str| {
        let path = "/_node/_local/_config/replicator/backoff_base";
        world.web.send("PUT", path, &format!("{value:?}")).ok()
    };
    set("5h");
    world.fill(1);
    world
        .source
        .fails("GET db", 1, Answer::error(404, "not_found", "no db"));
    create(&world.web, "late", &world.body());
    let id = world.wait_for_state("late", "crashing")["id"]
        .as_str()
        .unwrap()
        .to_owned();
    world.web.service.wait_for_log("replication crashed");
    let log = world.web.service.log();
    let is_crash = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap_or_default();
        record["msg"] == "replication crashed"
            && record["document"] == "late"
            && record["replication"] == id
    };
    assert!(log.lines().any(is_crash), "{log}");
    let list = printed(&world, &["list", "--states", "crashing"]);
    assert!(
        list.ends_with("\n1 job: 1 crashing\n") && list.contains("database missing"),
        "{list}"
    );
    assert!(!list.contains(&id), "{list}");
    assert_eq!(printed(&world, &["--states", "running"]), "0 jobs\n");
    assert_eq!(printed(&world, &["restart", &id]), "1 job restarted\n");
    world.wait_for_state("late", "completed");
    world.stop();
}

#[test]
fn the_first_crash_of_a_job_is_logged_and_repeated_ones_are_counted() {
    let world = World::start_with("backoff_max = 2\n");
    let missing = Answer::error(404, "not_found", "no db");
    world.source.fails("GET db", usize::MAX, missing);
    create(&world.web, "late", &world.continuous());
    wait_until("three crashes", || {
        let doc = world.doc("late");
        doc["error_count"].as_u64() >= Some(3)
    });
    let log = world.web.service.log_reader();
    world.stop();
    let counted = || log().contains("replications crashed again");
    wait_until("the repeated crashes are summarized at the end", counted);
    let told = log().matches("\"replication crashed\"").count();
    assert_eq!(told, 1, "{}", log());
}

#[test]
fn settee_jobs_lists_shows_pauses_and_resumes() {
    let world = World::start();
    assert_eq!(printed(&world, &[]), "0 jobs\n");
    create(&world.web, "live", &world.continuous());
    let id = world.wait_for_state("live", "running")["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let list = printed(&world, &["list", "--ids"]);
    assert!(
        list.contains("running") && list.contains("live") && list.contains(&id),
        "{list}"
    );
    let json: Value = serde_json::from_str(&printed(&world, &["--json"])).unwrap();
    assert_eq!(
        (&json["document"], &json["id"]),
        (&json!("live"), &json!(id))
    );
    for name in ["live", "l*e", &id] {
        let shown = printed(&world, &["show", name]);
        assert!(
            shown.contains(&world.source.url()) && shown.ends_with(" added\n"),
            "{shown}"
        );
    }
    let by_name = world.web.get("/_scheduler/jobs/live").ok();
    assert_eq!(by_name["id"], json!(id));
    printed(&world, &["pause", "live"]);
    world.wait_for_state("live", "pending");
    assert!(printed(&world, &["list"]).contains("paused"));
    for states in ["paused", "running,Paused"] {
        let list = printed(&world, &["--states", states]);
        assert!(
            list.ends_with("\n1 job: 1 paused\n") && list.contains("paused by "),
            "{states}: {list}"
        );
    }
    assert_eq!(
        world.web.get("/_scheduler/jobs?states=paused").ok()["total_rows"],
        1
    );
    let done: Value =
        serde_json::from_str(&printed(&world, &["priority", "live", "-3", "--json"])).unwrap();
    assert_eq!(done, json!({"id": id, "document": "live", "ok": true}));
    assert_eq!(world.jobs()[0]["priority"], -3);
    printed(&world, &["resume", "l?ve"]);
    world.wait_for_state("live", "running");
    let missing = settee(&world, &["show", "none"]);
    assert_eq!(missing.status.code(), Some(66), "{missing:?}");
    let wrong = settee(&world, &["--states", "odd"]);
    assert_eq!(wrong.status.code(), Some(64), "{wrong:?}");
    world.stop();
}
