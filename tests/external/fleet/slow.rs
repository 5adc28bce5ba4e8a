//! Replications whose targets take longer to write a checkpoint than a lease may have left.

use std::time::Duration;

use serde_json::json;

use super::site::{Site, wait};
use crate::support::couch::Couch;
use crate::support::http_server::Received;

/// Delays of a checkpoint's commit and of its write. Together they exceed 20 s, the longest that a lease of 30 s may be
/// used after a renewal.
const SLOW: [(&str, [Duration; 2]); 3] = [
    ("each-request", [Duration::from_secs(11); 2]),
    ("commit", [Duration::from_secs(22), Duration::ZERO]),
    // Longer than a lease.
    ("hangs", [Duration::from_secs(32), Duration::ZERO]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_renews_its_lease_writes_checkpoints_of_slow_targets() {
    let source = Couch::start().await;
    source.put("a", None, json!({"n": 1}));
    let site = Site::start(1, "startup_jitter = 0\n").await;
    let (mut targets, mut documents) = (Vec::new(), Vec::new());
    for (name, [commit, write]) in SLOW {
        let target = Couch::start().await;
        target.slow(move |request: &Received| match &*request.kind() {
            "POST _ensure_full_commit" => commit,
            "PUT _local" => write,
            _ => Duration::ZERO,
        });
        documents.push(
            json!({"_id": name, "source": source.url(), "target": target.url(),
                              "connection_timeout": 60_000}),
        );
        targets.push(target);
    }
    site.ask(&documents);
    let daemon = &site.daemons[0];
    let epoch = site.until_epoch(0);
    let took = wait("every replication is complete", || {
        assert_eq!(daemon.total("states=crashing"), 0);
        daemon.total("states=completed") == SLOW.len()
    });
    println!("checkpoints of slow targets were made after {took:?}");
    for (target, (name, _)) in targets.iter().zip(SLOW) {
        let commits = target.server.count("POST _ensure_full_commit");
        // A late renewal, as on a loaded machine, abandons a checkpoint; writing it again takes another commit.
        assert!((1..=2).contains(&commits), "{name}: {commits}");
        assert_eq!(target.locals().len(), 1, "{name}");
        assert_eq!(target.trees(), source.trees(), "{name}");
    }
    assert_eq!(site.epoch(0), Some(epoch), "its lease never expired");
    site.stop();
}
