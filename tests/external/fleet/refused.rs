//! Documents that a target refused stay known when their job continues with another daemon.

use serde_json::{Value, json};

use super::site::{Daemon, Site, wait};
use crate::support::couch::Couch;

/// Returns the only job that a daemon tells of.
fn job(daemon: &Daemon) -> Value {
    daemon.web.get("/_scheduler/jobs").ok()["jobs"][0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_a_target_refused_are_known_to_the_next_daemon() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    for id in ["bad", "good"] {
        source.put(id, None, json!({}));
    }
    target.refuse("bad");
    let mut site = Site::start(1, "checkpoint_interval = 1000\nstartup_jitter = 0\n").await;
    site.ask(&[
        json!({"_id": "job", "source": source.url(), "target": target.url(), "continuous": true}),
    ]);
    wait("a document is refused, and passed by a checkpoint", || {
        job(&site.daemons[0])["refused"].is_array() && !target.locals().is_empty()
    });
    let refused = job(&site.daemons[0])["refused"].clone();
    assert_eq!(refused[0]["id"], "bad");
    site.join().await;
    let first = site.daemons.remove(0);
    first.web.service.signal("TERM");
    first.web.service.exits_cleanly();
    let next = &site.daemons[0];
    // Of another daemon's job it would say how old that is.
    wait("the next daemon runs the job", || {
        let job = job(next);
        job["id"].is_string() && job["age_s"].is_null() && job["info"]["doc_write_failures"] == 1
    });
    assert_eq!(job(next)["refused"], refused);
    let output = next
        .web
        .service
        .client(&["jobs", "refused", "job"])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        told.ends_with("\n1 document refused, the latest 1 are shown\n"),
        "{told}"
    );
    site.stop();
}
