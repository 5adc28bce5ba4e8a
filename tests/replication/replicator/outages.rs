//! Unreachable servers: what counts as unreachable, what is logged, and when their jobs resume.

use serde_json::json;

use crate::replicator::world::World;
use crate::support::daemon::wait_until;
use crate::support::http_server::Answer;
use crate::support::store::{create, post, start};

/// Settings with which a failed job is retried after an hour, or once its server answers again.
const SETTINGS: &str = "\
[replicator]
startup_jitter = 0
backoff_base = 3600
backoff_max = 7200
interval = 200
retries_per_request = 0
";

const JOBS: usize = 3;

/// Makes the target unreachable by `answer` for a while, and asserts that its jobs resume afterwards.
#[track_caller]
fn jobs_resume_after(answer: &Answer) {
    let world = World::start_at(|| start(SETTINGS));
    let sources: Vec<_> = (0..JOBS).map(|_| world.another()).collect();
    let write = |stage: &str| {
        for (number, source) in sources.iter().enumerate() {
            source.put(&format!("{stage}-{number}"), None, json!({}));
        }
    };
    let arrive = |count| wait_until("all documents", || world.target.trees().len() == count);
    write("before");
    for (number, source) in sources.iter().enumerate() {
        let mut body = world.continuous();
        body["source"] = source.url().into();
        create(&world.web, &format!("job-{number}"), &body);
    }
    arrive(JOBS);
    let away = answer.clone();
    world.target.fault(move |_| Some(away.clone()));
    write("meanwhile");
    let address = world.target.server.url("");
    let server = address.trim_end_matches('/');
    world.web.service.wait_for_log("server cannot be reached");
    wait_until("all jobs wait", || {
        (0..JOBS).all(|number| world.doc(&format!("job-{number}"))["state"] == "crashing")
    });
    let failing = || {
        let health = world.web.get("/_health").ok();
        let problems = health["problems"].as_array().unwrap().iter();
        let failing = problems.filter(|problem| problem["kind"] == "replications_failing");
        let counts = failing.map(|problem| problem["count"].as_u64().unwrap());
        (health["status"].clone(), counts.sum::<u64>())
    };
    let all = (json!("critical"), JOBS as u64);
    wait_until("the problem is reported", || failing() == all);
    world.target.heal();
    arrive(2 * JOBS);
    wait_until("the problem is over", || failing().1 == 0);
    world.web.service.wait_for_log("server answers again");
    let log = world.web.service.log();
    for record in ["server cannot be reached", "server answers again"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(record)).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(server), "{server}: {lines:?}");
    }
    world.stop();
}

#[test]
fn jobs_of_a_server_that_resets_connections_resume_when_it_answers() {
    jobs_resume_after(&Answer::reset());
}

#[test]
fn jobs_of_a_server_that_its_proxy_reports_down_resume_when_it_answers() {
    for status in [502, 503, 504] {
        jobs_resume_after(&Answer::error(
            status,
            "away",
            "no server behind this proxy",
        ));
    }
}

/// A document whose filter cannot be read has no job that could crash.
#[test]
fn failed_documents_without_a_job_are_a_problem() {
    let world = World::start_at(|| start(SETTINGS));
    let mut body = world.continuous();
    body["source"] = "http://127.0.0.1:1/nobody-listens".into();
    body["filter"] = "app/by_type".into();
    create(&world.web, "without-job", &body);
    wait_until("the document has no job", || {
        world.doc("without-job")["state"] == "error"
    });
    wait_until("the problem is reported", || {
        let health = world.web.get("/_health").ok();
        let problems = health["problems"].as_array().unwrap();
        problems.iter().any(|problem| {
            let cause = problem["cause"].as_str().unwrap();
            problem["kind"] == "replications_failing" && cause.contains("without-job")
        })
    });
    world.stop();
}

#[test]
fn two_hundred_failures_of_276_replications_are_one_critical_problem_with_one_metric() {
    const ALL: usize = 276;
    const AWAY: usize = 200;
    let world = World::start_at(|| start(SETTINGS));
    let docs = (0..ALL).map(|number| {
        let mut body = world.continuous();
        body["_id"] = format!("job-{number}").into();
        // A header makes each replication distinct.
        body["source"] =
            json!({"url": world.source.url(), "headers": {"X-Job": number.to_string()}});
        if number < AWAY {
            body["target"] = format!("http://127.0.0.1:1/backup-{number}").into();
        }
        body
    });
    let docs: Vec<_> = docs.collect();
    let written = post(
        &world.web,
        "/_replicator/_bulk_docs",
        &json!({"docs": docs}),
    );
    assert_eq!(written.status, 201, "{written:?}");
    let problems = || world.web.get("/_health").ok()["problems"].clone();
    wait_until("the problem is reported", || {
        problems()[0]["count"] == AWAY as u64 && problems()[1].is_null()
    });
    let problem = &problems()[0];
    assert_eq!(problem["kind"], "replications_failing");
    assert_eq!(problem["severity"], "critical");
    let cause = problem["cause"].as_str().unwrap();
    assert!(cause.starts_with("200 of 276 replications fail"), "{cause}");
    let metrics = world.web.get("/_node/_local/_prometheus").body;
    let metric = "settee_problems{kind=\"replications_failing\",severity=\"critical\"} 1\n";
    assert!(metrics.contains(metric), "{metrics}");
    world.stop();
}
