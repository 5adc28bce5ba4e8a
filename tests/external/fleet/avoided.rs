//! A daemon that cannot reach a server the other daemons reach.

use serde_json::{Value, json};

use super::site::{Site, wait};
use crate::support::couch::Couch;

const FAR_JOBS: usize = 24;
const NEAR_JOBS: usize = 6;

/// A failed job backs off for hours unless another daemon takes it over at once.
const SETTINGS: &str =
    "startup_jitter = 0\nretries_per_request = 0\nbackoff_base = \"5h\"\nbackoff_max = \"10h\"\n";

fn replications(name: &str, count: usize, source: &Couch, target: &Couch) -> Vec<Value> {
    let document = |n| {
        let id = format!("{name}-{n}");
        let target = target.server.url(&id);
        json!({"_id": id, "source": source.url(), "target": target, "continuous": true})
    };
    (0..count).map(document).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_server_one_daemon_cannot_reach_run_on_daemons_that_reach_it() {
    let (far, near, target) = (
        Couch::start().await,
        Couch::start().await,
        Couch::start().await,
    );
    let far_at = far.server.address;
    let mut site = Site::start(2, SETTINGS).await;
    // Nothing listens on port 1.
    let cut_off = format!(
        "{SETTINGS}connect_to = \"{}:{}:127.0.0.1:1\"\n",
        far_at.ip(),
        far_at.port()
    );
    site.join_with(&cut_off).await;
    site.until_epoch(2);
    let mut documents = replications("far", FAR_JOBS, &far, &target);
    documents.extend(replications("near", NEAR_JOBS, &near, &target));
    site.ask(&documents);
    site.until_shared(FAR_JOBS + NEAR_JOBS, 3, || {});
    let took = wait("all jobs run", || {
        let running = |daemon: &super::site::Daemon| daemon.total("states=running");
        let all = FAR_JOBS + NEAR_JOBS;
        site.daemons.iter().all(|daemon| running(daemon) == all)
    });
    println!("all jobs run after {took:?}");
    let owned = |daemon: usize, name: &str| -> usize {
        let epoch = site.epoch(daemon).expect("the daemon has a lease");
        let sql = format!(
            "SELECT count(*) FROM settee.jobs WHERE owner = {epoch} AND doc_id LIKE '{name}-%'"
        );
        site.database.sql(&sql).parse().expect("a count")
    };
    assert_eq!(owned(2, "far"), 0);
    for daemon in [0, 1] {
        // Its own share, and part of the third daemon's.
        let far = owned(daemon, "far");
        assert!((FAR_JOBS / 4..=FAR_JOBS * 3 / 4).contains(&far), "{far}");
    }
    let near: usize = (0..3).map(|daemon| owned(daemon, "near")).sum();
    assert_eq!(near, NEAR_JOBS);
    site.stop();
}
