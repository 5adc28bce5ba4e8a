//! Refused documents stay listed when another daemon takes over their job.

use serde_json::{Value, json};

use super::site::{Daemon, Site, wait};
use crate::support::couch::Couch;

/// Returns the only job that a daemon lists.
fn job(daemon: &Daemon) -> Value {
    daemon.web.get("/_scheduler/jobs").ok()["jobs"][0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_documents_are_still_listed_by_the_next_daemon() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    for id in ["bad", "good"] {
        source.put(id, None, json!({}));
    }
    target.refuse("bad");
    let mut site = Site::start(1, "checkpoint_interval = 1000\nstartup_jitter = 0\n").await;
    site.ask(&[
        json!({"_id": "job", "source": source.url(), "target": target.url(), "continuous": true}),
    ]);
    wait("a document is refused, and a checkpoint is written", || {
        job(&site.daemons[0])["refused"].is_array() && !target.locals().is_empty()
    });
    let refused = job(&site.daemons[0])["refused"].clone();
    assert_eq!(refused[0]["id"], "bad");
    site.join().await;
    let first = site.daemons.remove(0);
    first.web.service.signal("TERM");
    first.web.service.exits_cleanly();
    let next = &site.daemons[0];
    // A job that another daemon runs would have `age_s`.
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
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.ends_with("\n\n1 document refused\n"), "{printed}");
    site.stop();
}
