//! Jobs that fail for one cause report one reason, whichever step of the run fails.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::replicator::orders::printed;
use crate::replicator::world::World;
use crate::support::couch::{Couch, Stored};
use crate::support::daemon::wait_until;
use crate::support::http_server::Answer;
use crate::support::store::{create, start};

/// A failed job is retried in an hour, unless it is restarted sooner.
const SETTINGS: &str = "\
[replicator]
startup_jitter = 0
backoff_base = 3600
backoff_max = 7200
interval = 200
retries_per_request = 0
";

/// Steps of a run: the side, and the request.
const READS: [(Side, &str); 6] = [
    (Side::Source, "GET db"),
    (Side::Source, "GET _changes"),
    (Side::Source, "POST _bulk_get"),
    (Side::Source, "GET doc"),
    (Side::Target, "GET db"),
    (Side::Target, "POST _revs_diff"),
];
const WRITES: [(Side, &str); 6] = [
    (Side::Source, "POST _ensure_full_commit"),
    (Side::Source, "PUT _local"),
    (Side::Target, "POST _bulk_docs"),
    (Side::Target, "PUT doc"),
    (Side::Target, "POST _ensure_full_commit"),
    (Side::Target, "PUT _local"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Target,
}

/// From the first request of this kind, a server answers every request with `answer`.
fn fail_from(couch: &Couch, kind: &'static str, answer: &Answer) {
    let (answer, fails) = (answer.clone(), AtomicBool::new(false));
    couch.fault(move |request| {
        if request.kind() == kind {
            fails.store(true, Ordering::SeqCst);
        }
        fails.load(Ordering::SeqCst).then(|| answer.clone())
    });
}

/// Makes a job fail at each step, checks its reason, and restarts all jobs by the reason. `reason` gets the failing
/// server's address, or `*` for the restart.
#[track_caller]
fn one_reason(steps: &[(Side, &'static str)], answer: &Answer, reason: impl Fn(&str) -> String) {
    let world = World::start_at(|| start(SETTINGS));
    let jobs: Vec<_> = steps
        .iter()
        .enumerate()
        .map(|(number, (side, kind))| {
            let (source, target) = (world.another(), world.another());
            source.put("plain", None, json!({}));
            let attachment = Stored {
                name: "a".to_owned(),
                content_type: "text/plain".to_owned(),
                encoding: None,
                bytes: "attached".into(),
                revpos: 1,
            };
            source.put_with("attached", None, json!({}), vec![attachment]);
            let failing = match side {
                Side::Source => &source,
                Side::Target => &target,
            };
            fail_from(failing, kind, answer);
            let body = json!({"source": source.url(), "target": target.url()});
            create(&world.web, &format!("job-{number}"), &body);
            let address = failing.server.address.to_string();
            (source, target, reason(&address))
        })
        .collect();
    wait_until("all jobs failed", || {
        (0..steps.len()).all(|number| world.doc(&format!("job-{number}"))["state"] == "crashing")
    });
    let mut told: Vec<_> = steps.iter().zip(&jobs).enumerate().collect();
    told.retain(|(number, (_, (_, _, reason)))| {
        world.doc(&format!("job-{number}"))["reason"] != **reason
    });
    let wrong = told.iter().map(|(number, ((_, kind), _))| {
        let doc = world.doc(&format!("job-{number}"));
        format!("{kind}: {} for {}\n", doc["reason"], doc["info"])
    });
    assert!(told.is_empty(), "{}", wrong.collect::<String>());
    for (source, target, _) in &jobs {
        source.heal();
        target.heal();
    }
    let restart = ["restart", "--reason", &reason("*"), "--yes"];
    let done = printed(&world, &restart);
    assert_eq!(done, format!("{} jobs restarted\n", steps.len()));
    wait_until("all is replicated", || {
        jobs.iter()
            .all(|(source, target, _)| source.trees() == target.trees())
    });
    world.stop();
}

#[test]
fn jobs_with_a_missing_database_have_one_reason_at_every_step() {
    let answer = Answer::error(404, "not_found", "Database does not exist.");
    one_reason(&[READS, WRITES].concat(), &answer, |_| {
        "database missing".to_owned()
    });
}

#[test]
fn jobs_with_rejected_credentials_have_one_reason_at_every_step() {
    let answer = Answer::error(401, "unauthorized", "Name or password is incorrect.");
    one_reason(&[READS, WRITES].concat(), &answer, |_| {
        "unauthorized".to_owned()
    });
}

#[test]
fn jobs_without_access_to_a_database_have_one_reason_at_every_step() {
    let answer = Answer::error(403, "forbidden", "You are not allowed to access this db.");
    one_reason(&[READS, WRITES].concat(), &answer, |_| {
        "forbidden".to_owned()
    });
}

#[test]
fn jobs_of_an_unreachable_server_have_one_reason_that_names_it() {
    let answer = Answer::error(502, "away", "no server behind this proxy");
    one_reason(&[READS, WRITES].concat(), &answer, |server| {
        format!("cannot be reached: {server}")
    });
}

#[test]
fn jobs_of_a_server_with_a_full_disk_have_one_reason_that_names_it() {
    let refused = Answer::error(507, "insufficient_storage", "not enough disk space");
    let failed = Answer::error(500, "badmatch", "{error,enospc}");
    for answer in [refused, failed] {
        one_reason(&WRITES, &answer, |server| format!("no space: {server}"));
    }
}

#[test]
fn a_full_disk_reported_per_document_is_not_a_refusal() {
    let world = World::start_at(|| start(SETTINGS));
    world.fill(2);
    world.target.rewrite_bulk_docs(|docs| {
        let full = |doc: &serde_json::Value| {
            json!({"id": doc["_id"], "rev": doc["_rev"],
                   "error": "insufficient_storage", "reason": "not enough disk space"})
        };
        let answer = docs.iter().map(full).collect();
        docs.clear();
        Some(answer)
    });
    create(&world.web, "job", &world.body());
    let doc = world.wait_for_state("job", "crashing");
    let server = world.target.server.address;
    assert_eq!(doc["reason"], format!("no space: {server}"), "{doc}");
    assert!(doc.get("refused").is_none(), "{doc}");
    world.stop();
}
