//! Daemons that join and leave cleanly.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::site::{Databases, Site, wait};

/// Maximum time until documents are shared equally: `SHARE_WITHIN`, 30 s, with slack for a loaded machine.
const SHARE_MAX: Duration = Duration::from_secs(90);

/// Maximum time to hand jobs over: 5 s, with slack for a loaded machine. The expiry of a lease would take longer.
const HAND_OVER_MAX: Duration = Duration::from_secs(20);

/// Returns documents whose jobs are never started.
fn idle(count: usize) -> Vec<Value> {
    let document = |n| json!({"_id": format!("r{n}"), "source": "http://127.0.0.1:1/a", "target": format!("http://127.0.0.1:1/t{n}")});
    (0..count).map(document).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_documents_are_shared_equally_and_rebalanced_when_daemons_join_and_leave() {
    const DOCUMENTS: usize = 1000;
    let mut site = Site::start(2, "max_jobs = 0\n").await;
    site.ask(&idle(DOCUMENTS));
    let two = site.until_shared(DOCUMENTS, 2, || {});
    site.join().await;
    let three = site.until_shared(DOCUMENTS, 3, || {});
    let leaving = site.epoch(2).unwrap();
    let daemon = site.daemons.remove(2);
    let begun = Instant::now();
    daemon.web.service.signal("TERM");
    site.until_taken_over(leaving, || {});
    let left = begun.elapsed();
    daemon.web.service.exits_cleanly();
    let again = site.until_shared(DOCUMENTS, 2, || {});
    println!(
        "{DOCUMENTS} documents: shared by 2 daemons after {two:?}, by 3 after {three:?}, handed over in {left:?}, \
         shared by 2 after {again:?}"
    );
    for took in [two, three, again] {
        assert!(took < SHARE_MAX, "{took:?}");
    }
    assert!(left < HAND_OVER_MAX, "{left:?}");
    site.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_daemon_hands_its_jobs_over_and_regains_its_share_after_the_drain() {
    let mut databases = Databases::start(4).await;
    let site = Site::start(2, "checkpoint_interval = 1000\nstartup_jitter = 0\n").await;
    site.ask(&databases.replications());
    site.until_shared(4, 2, || databases.write());
    databases.until_equal();
    let drained = site.until_epoch(1);
    site.daemons[1].web.send("PUT", "/_drain", "").ok();
    let took = site.until_taken_over(drained, || databases.write());
    databases.until_equal();
    let state = || site.daemons[1].web.get("/_drain").ok();
    wait("no job runs on the drained daemon", || {
        state()["running"] == 0
    });
    wait("all jobs run on the other daemon", || {
        site.daemons[0].total("states=running") == 4
    });
    assert!(took < HAND_OVER_MAX, "{took:?}");
    site.daemons[1].web.send("DELETE", "/_drain", "").ok();
    site.until_shared(4, 2, || databases.write());
    databases.until_equal();
    site.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_daemon_hands_its_running_jobs_over_at_once() {
    let mut databases = Databases::start(4).await;
    let mut site = Site::start(2, "checkpoint_interval = 1000\nstartup_jitter = 0\n").await;
    site.ask(&databases.replications());
    site.until_shared(4, 2, || databases.write());
    databases.until_equal();
    let leaving = site.epoch(1).unwrap();
    let daemon = site.daemons.remove(1);
    databases.write();
    let begun = Instant::now();
    daemon.web.service.signal("TERM");
    site.until_taken_over(leaving, || databases.write());
    let took = begun.elapsed();
    let taken = Instant::now();
    daemon.web.service.exits_cleanly();
    databases.until_equal();
    println!("running jobs were handed over within {took:?}");
    assert!(took < HAND_OVER_MAX, "{took:?}");
    let late = databases.checkpoints();
    let late = late
        .iter()
        .filter(|one| one.epoch == leaving && one.at > taken);
    assert_eq!(late.count(), 0);
    site.stop();
}
