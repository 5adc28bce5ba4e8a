//! Two small databases in memory and a service that replicates between them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::couch::Couch;
use crate::support::daemon::{assert_nothing_runs_for, wait_until};
use crate::support::http_client::Web;
use crate::support::store;

/// The default settings of a world's service: no start-up jitter, and a failed job is
/// retried soon.
pub const SETTINGS: &str = "\
[replicator]
startup_jitter = 0
backoff_base = 1
interval = 200
retries_per_request = 0
";

/// A source, a target and a service.
pub struct World {
    pub source: Couch,
    pub target: Couch,
    pub web: Web,
    pub runtime: Runtime,
}

impl World {
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// `more` is appended to the section of the replicator.
    pub fn start_with(more: &str) -> Self {
        Self::start_at(|| store::start(&format!("{SETTINGS}{more}")))
    }

    /// Starts the databases, then the service.
    pub fn start_at(service: impl FnOnce() -> Web) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (source, target) =
            runtime.block_on(async { (Couch::start().await, Couch::start().await) });
        Self {
            source,
            target,
            web: service(),
            runtime,
        }
    }

    /// Starts one more database.
    pub fn another(&self) -> Couch {
        self.runtime.block_on(Couch::start())
    }

    /// Puts documents into the source.
    pub fn fill(&self, count: usize) {
        for number in 0..count {
            self.source
                .put(&format!("d{number:05}"), None, json!({"n": number}));
        }
    }

    pub fn body(&self) -> Value {
        json!({"source": self.source.url(), "target": self.target.url()})
    }

    pub fn continuous(&self) -> Value {
        let mut body = self.body();
        body["continuous"] = true.into();
        body
    }

    /// Returns a document as in `_scheduler/docs`.
    pub fn doc(&self, id: &str) -> Value {
        self.web
            .get(&format!("/_scheduler/docs/_replicator/{id}"))
            .json()
    }

    /// Waits until a document is in a state, and returns it.
    #[track_caller]
    pub fn wait_for_state(&self, id: &str, state: &str) -> Value {
        let mut doc = Value::Null;
        let is_there = || {
            doc = self.doc(id);
            doc["state"] == state
        };
        let before = std::time::Instant::now();
        let mut is_there = is_there;
        while !is_there() {
            assert!(
                before.elapsed() < crate::support::daemon::DEADLINE,
                "{id} is not {state}: {doc}\n{}",
                self.web.service.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        doc
    }

    /// Waits until both sides have the same revisions.
    pub fn wait_until_equal(&self) {
        wait_until("equal databases", || {
            self.source.trees() == self.target.trees()
        });
    }

    pub fn jobs(&self) -> Vec<Value> {
        let jobs = self.web.get("/_scheduler/jobs").ok();
        jobs["jobs"].as_array().unwrap().clone()
    }

    pub fn stop(self) {
        self.web.service.stop();
        self.runtime.shutdown_timeout(Duration::from_secs(5));
    }

    /// Stops a service with inherited sockets, which stay open.
    pub fn stop_and_keep(self) {
        let directory = self.web.service.stop_and_keep();
        assert_nothing_runs_for(directory.path());
        self.runtime.shutdown_timeout(Duration::from_secs(5));
    }
}
