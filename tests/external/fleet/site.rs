//! Daemons on one database, the databases they replicate, and the fleet's state in the store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::relay::Relay;
use crate::postgres::server::TestDatabase;
use crate::support::couch::Couch;
use crate::support::daemon::{configure, directory};
use crate::support::http_client::{Web, command};
use crate::support::store::post;

/// Deadline of any wait on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(150);

/// Poll interval of [`wait`].
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A daemon and its relay to the database.
pub struct Daemon {
    pub web: Web,
    pub relay: Relay,
}

/// The database and its daemons.
pub struct Site {
    pub database: TestDatabase,
    pub daemons: Vec<Daemon>,
    settings: &'static str,
}

impl Daemon {
    /// Returns the number of jobs that a query selects.
    pub fn total(&self, query: &str) -> Value {
        let path = format!("/_scheduler/jobs?limit=0&{query}");
        self.web.get(&path).ok()["total_rows"].clone()
    }
}

/// Polls until `is_so`, and returns how long that took.
pub fn wait(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::park_timeout(POLL_INTERVAL);
    }
    begun.elapsed()
}

impl Site {
    /// Starts daemons with these `[replicator]` settings.
    pub async fn start(daemons: usize, settings: &'static str) -> Self {
        let mut site = Self {
            database: TestDatabase::new(),
            daemons: Vec::new(),
            settings,
        };
        for _ in 0..daemons {
            site.join().await;
        }
        site
    }

    /// Starts one more daemon.
    pub async fn join(&mut self) {
        self.join_with(self.settings).await;
    }

    /// Starts one more daemon with other `[replicator]` settings.
    pub async fn join_with(&mut self, settings: &str) {
        let relay = Relay::start(self.database.socket()).await;
        let directory = directory();
        let config = configure(directory.path(), &format!("[replicator]\n{settings}"));
        let mut command = command(&config);
        command.env("SETTEE__STORE__URL", self.database.url_at(relay.address));
        let web = Web::start_command(directory, command);
        self.daemons.push(Daemon { web, relay });
    }

    /// Writes replication documents.
    pub fn ask(&self, documents: &[Value]) {
        let body = json!({ "docs": documents });
        let answer = post(&self.daemons[0].web, "/_replicator/_bulk_docs", &body);
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    /// Returns the epoch and the document count of each daemon with a valid lease.
    pub fn shares(&self) -> Vec<(i64, usize)> {
        let rows = self.database.sql(
            "SELECT epoch, (SELECT count(*) FROM settee.jobs WHERE owner = epoch) FROM settee.instances \
             WHERE lease_until > clock_timestamp() ORDER BY epoch",
        );
        let rows = rows.lines().map(|line| line.split_once('|').unwrap());
        rows.map(|(epoch, docs)| (epoch.parse().unwrap(), docs.parse().unwrap()))
            .collect()
    }

    /// Waits until every document has an owner, and none of `daemons` daemons has more than its share. Returns how long
    /// that took.
    pub fn until_shared(
        &self,
        docs: usize,
        daemons: usize,
        mut meanwhile: impl FnMut(),
    ) -> Duration {
        let mut last = Vec::new();
        let what = format!("{docs} documents shared by {daemons} daemons");
        let begun = Instant::now();
        wait(&what, || {
            meanwhile();
            last = self.shares();
            let all: usize = last.iter().map(|(_, docs)| docs).sum();
            let most = docs.div_ceil(daemons);
            let is_so =
                last.len() == daemons && all == docs && last.iter().all(|(_, docs)| *docs <= most);
            assert!(is_so || begun.elapsed() < PATIENCE * 9 / 10, "{last:?}");
            is_so
        })
    }

    /// Returns the epoch of a daemon; `None` if it has no lease.
    pub fn epoch(&self, daemon: usize) -> Option<i64> {
        let port = self.daemons[daemon].web.address.port();
        let epoch = self.database.sql(&format!(
            "SELECT max(epoch) FROM settee.instances WHERE address LIKE '%:{port}' \
             AND lease_until > clock_timestamp()"
        ));
        epoch.parse().ok()
    }

    /// Waits until a daemon has a lease, and returns its epoch.
    pub fn until_epoch(&self, daemon: usize) -> i64 {
        wait("a daemon has a lease", || self.epoch(daemon).is_some());
        self.epoch(daemon).unwrap()
    }

    /// Waits until every wanted document has an owner other than `epoch`, with a valid lease. Returns how long that
    /// took.
    pub fn until_taken_over(&self, epoch: i64, mut meanwhile: impl FnMut()) -> Duration {
        let left = format!(
            "SELECT count(*) FROM settee.jobs WHERE wanted AND (owner IS NULL OR owner = {epoch} OR NOT EXISTS \
             (SELECT 1 FROM settee.instances i WHERE i.epoch = owner AND lease_until > clock_timestamp()))"
        );
        wait("every document has another owner", || {
            meanwhile();
            self.database.sql(&left) == "0"
        })
    }

    /// Stops all daemons, and asserts that they exit cleanly.
    pub fn stop(self) {
        for daemon in self.daemons {
            daemon.web.service.stop();
        }
    }
}

/// A checkpoint that was sent to the source or a target.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    pub at: Instant,
    pub epoch: i64,
}

/// One source, several targets, and the checkpoints that were sent to any of them.
pub struct Databases {
    source: Couch,
    targets: Vec<Couch>,
    checkpoints: Arc<Mutex<Vec<Checkpoint>>>,
    written: usize,
}

impl Databases {
    pub async fn start(targets: usize) -> Self {
        let checkpoints: Arc<Mutex<Vec<Checkpoint>>> = Arc::default();
        let mut all = Vec::new();
        for _ in 0..=targets {
            let couch = Couch::start().await;
            let noted = Arc::clone(&checkpoints);
            couch.fault(move |request| {
                if request.kind() == "PUT _local" {
                    let epoch = &request.json()["history"][0]["owner_epoch"];
                    let epoch = epoch.as_str().expect("the epoch of the owner");
                    let epoch = u64::from_str_radix(epoch, 16).unwrap();
                    noted.lock().unwrap().push(Checkpoint {
                        at: Instant::now(),
                        epoch: epoch.cast_signed(),
                    });
                }
                None
            });
            all.push(couch);
        }
        let source = all.remove(0);
        Self {
            source,
            targets: all,
            checkpoints,
            written: 0,
        }
    }

    /// Returns a replication document for each target.
    pub fn replications(&self) -> Vec<Value> {
        let targets = self.targets.iter().enumerate();
        let document = |(n, target): (usize, &Couch)| json!({"_id": format!("job{n}"), "source": self.source.url(), "target": target.url(), "continuous": true});
        targets.map(document).collect()
    }

    /// Writes the next document into the source.
    pub fn write(&mut self) {
        let id = format!("d{}", self.written);
        self.source.put(&id, None, json!({"n": self.written}));
        self.written += 1;
    }

    pub fn checkpoints(&self) -> Vec<Checkpoint> {
        self.checkpoints.lock().unwrap().clone()
    }

    /// Waits until every target equals the source. Returns how long that took.
    pub fn until_equal(&self) -> Duration {
        let source: BTreeMap<_, _> = self.source.trees();
        wait("every target equals the source", || {
            self.targets.iter().all(|target| target.trees() == source)
        })
    }
}
