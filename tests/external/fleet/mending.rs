//! Hundreds of failed jobs of several daemons are restarted at one of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::site::{Daemon, Site, wait};
use crate::support::couch::Couch;
use crate::support::http_server::Answer;

const JOBS: usize = 500;
const DAEMONS: usize = 3;
const REASON: &str = "database missing";

/// Back-offs longer than the test, so that no job is retried before it is restarted.
const SETTINGS: &str =
    "max_jobs = 500\nstartup_jitter = 0\nbackoff_base = \"5h\"\nbackoff_max = \"10h\"\n";

/// Returns what `settee jobs` prints at a daemon.
fn jobs(daemon: &Daemon, arguments: &[&str]) -> String {
    let arguments = [&["jobs"], arguments].concat();
    let output = daemon.web.service.client(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_failed_jobs_of_three_daemons_are_restarted_with_one_command_at_one_of_them() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    source.put("a", None, json!({"n": 1}));
    source.fault(|_| Some(Answer::error(404, "not_found", "no db")));
    let site = Site::start(DAEMONS, SETTINGS).await;
    let document = |n| {
        json!({"_id": format!("shop-{n}"), "source": source.url(),
               "target": target.server.url(&format!("copy-{n}"))})
    };
    site.ask(&(0..JOBS).map(document).collect::<Vec<_>>());
    let shared = site.until_shared(JOBS, DAEMONS, || {});
    let crashed = wait("every daemon knows of all failures", || {
        let all =
            |daemon: &Daemon| daemon.total("states=crashing&reason=database%20missing") == JOBS;
        site.daemons.iter().all(all)
    });
    for daemon in &site.daemons {
        let groups = jobs(daemon, &["--group-by", "reason"]);
        let lines: Vec<&str> = groups.lines().collect();
        let first = format!("{JOBS} x  {REASON}  {JOBS} crashing");
        assert!(lines[1].starts_with(&first), "{groups}");
        assert_eq!(lines[3], format!("{JOBS} jobs: {JOBS} crashing"));
    }

    source.heal();
    let asked = &site.daemons[1];
    let begun = std::time::Instant::now();
    let results = jobs(asked, &["restart", "--reason", REASON, "--yes", "--json"]);
    let answered = begun.elapsed();
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for line in results.lines() {
        let result: Value = serde_json::from_str(line).unwrap();
        assert_eq!(result["ok"], true, "{result}");
        let by = result["told"].as_str().unwrap_or("itself");
        *told.entry(by.to_owned()).or_default() += 1;
    }
    assert_eq!(told.values().sum::<usize>(), JOBS);
    assert_eq!(told.len(), DAEMONS, "{told:?}");
    wait("every daemon knows that all are done", || {
        let all = |daemon: &Daemon| daemon.total("states=completed") == JOBS;
        site.daemons.iter().all(all)
    });
    println!(
        "{JOBS} jobs: shared after {shared:?}, known to have failed {crashed:?} later; the order was answered \
         after {answered:?}, and all were done {:?} after it was given: {told:?}",
        begun.elapsed()
    );
    site.stop();
}
