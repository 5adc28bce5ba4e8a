//! Metrics of groups of jobs: lag, failing jobs and the longest failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::world::World;
use crate::support::daemon::wait_until;
use crate::support::http_server::{Answer, Piece};

const METRICS: [&str; 3] = [
    "settee_replication_lag_changes",
    "settee_replication_jobs_failing",
    "settee_replication_oldest_failing_seconds",
];

/// Returns the lag, the failing jobs and the longest failure of a group; `None` while the metrics lack the group.
fn numbers(world: &World, group: &str) -> Option<[f64; 3]> {
    let text = world.web.get("/metrics").body;
    let number = |name: &str| -> Option<f64> {
        let start = format!("{name}{{group=\"{group}\"}} ");
        let mut lines = text.lines();
        let number = lines.find_map(|line| line.strip_prefix(&start))?;
        Some(number.parse().unwrap())
    };
    let [lag, failing, oldest] = METRICS.map(number);
    Some([lag?, failing?, oldest?])
}

fn marked(mut body: Value, mark: &str) -> String {
    body["managed_by"] = mark.into();
    body.to_string()
}

#[test]
fn the_metrics_of_a_group_report_lag_and_failing_jobs_and_return_to_zero() {
    // A run that lasts for a second counts as a success.
    let world = World::start_with("health_threshold = 1\n");
    world.fill(7);
    // Lag: the target accepts no writes until the bell rings.
    let (bell, is_open) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (held, open) = (Arc::clone(&bell), Arc::clone(&is_open));
    world.target.fault(move |request| {
        let holds = request.kind() == "POST _bulk_docs" && !open.load(Ordering::SeqCst);
        let pieces = || vec![Piece::Until(Arc::clone(&held)), Piece::Bytes("x".into())];
        holds.then(|| Answer::stream(500, "text/plain", pieces()))
    });
    // Failure: a source that answers only with errors.
    let (broken, empty, spare) = (world.another(), world.another(), world.another());
    broken.fault(|_| Some(Answer::json(500, "{}")));
    let failing = json!({"source": broken.url(), "target": empty.url(), "continuous": true});
    let web = &world.web;
    let put = |id: &str, body: &str| {
        let path = format!("/_replicator/{id}");
        assert_eq!(web.send("PUT", &path, body).status, 201, "{id}");
    };
    put("slow", &marked(world.continuous(), "shop"));
    put("broken", &marked(failing.clone(), "shop"));
    let mut other = failing;
    other["target"] = spare.url().into();
    put("other", &other.to_string());
    wait_until("the lag and the failing job of the group", || {
        let is_seen =
            |numbers: [f64; 3]| numbers[0] == 7.0 && numbers[1] >= 1.0 && numbers[2] > 0.0;
        numbers(&world, "shop").is_some_and(is_seen)
    });
    wait_until("a failure outside of any group", || {
        numbers(&world, "_none").is_some_and(|numbers| numbers[0] == 0.0 && numbers[1] == 1.0)
    });
    let stats = web.get("/_node/_local/_stats/settee/replication_lag_changes/shop");
    assert_eq!(stats.ok()["value"], 7);
    // A change of `managed_by` alone moves a job to its group.
    let mut again = web.get("/_replicator/other").ok();
    again["managed_by"] = "archive".into();
    put("other", &again.to_string());
    wait_until("the job is in its group", || {
        numbers(&world, "archive").is_some_and(|numbers| numbers[1] == 1.0)
    });
    assert_eq!(numbers(&world, "_none"), Some([0.0; 3]));

    is_open.store(true, Ordering::SeqCst);
    bell.notify_waiters();
    broken.heal();
    wait_until("nothing lags and nothing fails", || {
        numbers(&world, "shop") == Some([0.0; 3]) && numbers(&world, "archive") == Some([0.0; 3])
    });
    world.wait_until_equal();
    for id in ["slow", "broken"] {
        let rev = web.get(&format!("/_replicator/{id}")).ok()["_rev"].clone();
        let path = format!("/_replicator/{id}?rev={}", rev.as_str().unwrap());
        assert_eq!(web.send("DELETE", &path, "").status, 200, "{id}");
    }
    wait_until("a group without jobs is gone", || {
        numbers(&world, "shop").is_none()
    });
    assert!(numbers(&world, "archive").is_some());
    world.stop();
}
