//! `[replicator]` and `[store]` as the rest of the service sees them.
//!
//! SUMMARY   One field a key, under the key's own name.
//! SOURCE    Names, units and defaults of `[replicator]` are CouchDB's.
//! DIFFERS   `backoff_base`, `backoff_max`, `feed`, `rules` and `threads` are our own. Values that CouchDB would pass over without
//!           a word, or bend to its limits, are refused: no workers, a coefficient beyond 1.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use replication::spec::Feed;
use serde::{Deserialize, Serialize};

use super::store_url::StoreUrl;

/// Which version of couch_replicator_scheduler decides who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchedulerRules {
    /// Today's, with fair shares; slots that become free are given away at once.
    #[serde(rename = "current")]
    Current,
    /// The first one's, of 2017: whoever started longest ago is next, and slots are given away in cycles.
    #[serde(rename = "2017")]
    First,
}

/// `[replicator]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replicator {
    /// Most replications that run at a time.
    pub max_jobs: u64,
    /// Threads that replications run on; one a core if nothing is said. Not in CouchDB.
    pub threads: Option<u64>,
    /// How often it is decided who runs.
    pub interval: Duration,
    /// Most continuous replications that are stopped in one go to make room.
    pub max_churn: u64,
    /// Events that are kept of a replication.
    pub max_history: u64,
    /// A run longer than this ends a row of failures.
    pub health_threshold: Duration,
    /// The wait after the first failure in a row.
    pub backoff_base: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
    /// What is left of the use held against a key of fair share, after each interval.
    pub usage_coeff: f64,
    /// What is left of a job's priority, after each interval.
    pub priority_coeff: f64,
    /// Which rules decide who runs. Not in CouchDB.
    pub rules: SchedulerRules,
    /// Whether the states `triggered` and `error` are written into documents.
    pub update_docs: bool,
    /// Longest random wait before a replication begins.
    pub startup_jitter: Duration,
    /// Workers of a replication.
    pub worker_processes: u64,
    /// Most changes that a worker takes at a time.
    pub worker_batch_size: u64,
    /// Most connections of a replication to each of its databases.
    pub http_connections: u64,
    /// How long a database may say nothing.
    pub connection_timeout: Duration,
    /// How long a whole request may take.
    pub request_timeout: Option<Duration>,
    /// How often a request that failed is tried again.
    pub retries_per_request: u64,
    /// Whether replications leave checkpoints.
    pub use_checkpoints: bool,
    /// Whether documents are read many at a time.
    pub use_bulk_get: bool,
    /// Shortest time between two checkpoints.
    pub checkpoint_interval: Duration,
    /// How continuous replications hear of changes. Not in CouchDB.
    pub feed: Feed,
    /// Longest id of a document, in bytes.
    pub max_document_id_length: Option<u64>,
    /// How long to wait for a document that was not there.
    #[serde(rename = "missing_doc_retry_msec")]
    pub missing_doc_retry: Duration,
    /// How long a session is used that does not say how long it lasts.
    #[serde(rename = "session_refresh_interval_sec")]
    pub session_refresh_interval: Duration,
    /// Least time between two logins at the same database.
    pub session_min_update_interval: Duration,
    /// How long a connection that nobody uses is kept.
    pub connection_close_interval: Duration,
    /// Where to connect instead: `host:port:target:port` with commas between several.
    pub connect_to: String,
    /// Hosts and networks that may be connected to.
    pub endpoints_allowed: Vec<String>,
    /// Those of them that may not.
    pub endpoints_denied: Vec<String>,
    /// Origins that redirects may lead to.
    pub redirects_to: Vec<String>,
    /// Schemes of databases.
    pub valid_endpoint_protocols: Vec<String>,
    /// Schemes of proxies.
    pub valid_proxy_protocols: Vec<String>,
    /// Whether certificates of databases are verified.
    pub verify_ssl_certificates: bool,
    /// Certificates to verify by; the system's without.
    pub ssl_trusted_certificates_file: Option<PathBuf>,
    /// The certificate that databases are shown.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// The password of the key: there must be none.
    pub password: String,
    /// How often the files of certificates are read again.
    #[serde(rename = "cacert_reload_interval_hours")]
    pub cacert_reload_interval: Duration,
    /// How credentials are shown: CouchDB's names of modules, the first that can do it counts.
    pub auth_plugins: Vec<String>,
    /// `[replicator.shares]`: replicator database, or user -> share, from 1 to 1000.
    #[serde(default)]
    pub shares: BTreeMap<String, u64>,
}

/// `[store]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    /// The file; the word [`Store::MEMORY`] is none.
    pub path: PathBuf,
    /// The PostgreSQL that keeps replications instead of the file.
    pub url: Option<StoreUrl>,
    /// How long deleted documents are kept.
    pub deleted_kept_for: Duration,
}

impl Store {
    /// Instead of a path: everything ends with the service.
    pub const MEMORY: &'static str = "memory";

    /// Returns the file, if there is to be one.
    pub fn file(&self) -> Option<&Path> {
        (self.path.as_os_str() != Self::MEMORY).then_some(&self.path)
    }
}
