//! `[replicator]` and `[store]`, for the rest of the service.
//!
//! SUMMARY   [`Replicator`] and [`Store`], declared key by key.
//! SOURCE    Names, units and defaults of `[replicator]` are CouchDB's.
//! DIFFERS   `backoff_base`, `backoff_max`, `feed`, `rules`, `threads`, `endpoints_allowed`, `endpoints_denied` and
//!           `redirects_to` are our own. Values that CouchDB would silently ignore, or clamp, are refused: no
//!           workers, a coefficient above 1.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::schedule::RuleSet;
use replication::spec::Feed;

use super::keys::AUTH_SESSION;
use super::kinds::*;
use super::section::{Declared, section};
use super::store_url::StoreUrl;
use super::value::{self, Kind};

section! {
    /// `[replicator]`.
    #[derive(Debug)]
    pub struct Replicator {
        /// Maximum replications that run at a time; further ones take turns. 0 runs none.
        max_jobs: u64 = 500, count(0, 10_000_000), unit("jobs"), of_machine();
        /// Threads that replications run on: `"cores"` is one per core.
        threads: Option<u64> = "cores", THREADS, unit("threads"), of_machine();
        /// How often the scheduler decides which jobs run.
        interval: Duration = 60000, ms(1, YEAR);
        /// Maximum continuous replications stopped per cycle for others to run.
        max_churn: u64 = 20, count(0, 10_000_000), unit("jobs");
        /// Events kept per replication. Only kept crashes lengthen the back-off: fewer than 22 events shorten the
        /// longest one.
        max_history: u64 = 20, count(1, 10_000), unit("events");
        /// A run that lasted longer than this before it failed does not count as failing in a row.
        health_threshold: Duration = 120, seconds(0, YEAR);
        /// The wait after a first failure; doubles with each further one in a row.
        backoff_base: Duration = 30, seconds(1, YEAR);
        /// The longest such wait. At least `backoff_base`.
        backoff_max: Duration = 30720, seconds(1, YEAR);
        /// Fraction of a replicator database's or user's use that remains after each interval; those that used more run
        /// less. From 0.0 to 1.0.
        usage_coeff: f64 = 0.5, Kind::Coefficient;
        /// Fraction of a replication's penalty, which puts it behind others, that remains after each interval. From 0.0
        /// to 1.0.
        priority_coeff: f64 = 0.98, Kind::Coefficient;
        /// `current` (fair shares; free slots are filled at once) or `2017` (as the first couch_replicator_scheduler:
        /// the job that started longest ago is next; slots are filled once per interval).
        rules: RuleSet = "current", one_of::<RuleSet>();
        /// Also writes the states `triggered` and `error` into documents.
        update_docs: bool = false, Kind::Boolean;
        /// Longest random delay of a replication's start.
        startup_jitter: Duration = 5000, ms(0, HOUR);
        /// Workers of a replication.
        worker_processes: u64 = 4, count(1, 1000), unit("workers");
        /// Maximum changes that a worker takes at a time.
        worker_batch_size: u64 = 500, count(1, 100_000), unit("changes");
        /// Maximum connections of a replication to each database.
        http_connections: u64 = 20, count(1, 10_000), unit("connections");
        /// How long a database may be silent.
        connection_timeout: Duration = 30000, ms(1, YEAR);
        /// How long a whole request may take, except for the changes feed.
        request_timeout: Option<Duration> = "infinity", REQUEST_TIMEOUT;
        /// How often a failed request is retried.
        retries_per_request: u64 = 5, count(0, 1000), unit("retries");
        /// Writes checkpoints, from which a later run continues.
        use_checkpoints: bool = true, Kind::Boolean;
        /// Reads documents in batches from databases that support it.
        use_bulk_get: bool = true, Kind::Boolean;
        /// Shortest time between two checkpoints.
        checkpoint_interval: Duration = 30000, ms(1, YEAR);
        /// Continuous replications read changes over a connection each (`continuous`), or [one per
        /// server](replication.md#one-connection-for-many-databases) (`db_updates`).
        feed: Feed = "continuous", one_of::<Feed>();
        /// Documents with longer ids are skipped and counted as failures.
        max_document_id_length: Option<u64> = "infinity", ID_LENGTH;
        /// Delay before a missing document is requested again, once.
        missing_doc_retry_msec: Duration = 2000, ms(0, HOUR);
        /// How long a session without a stated lifetime is used.
        session_refresh_interval_sec: Duration = 550, seconds(1, YEAR);
        /// Minimum time between two logins at the same database.
        session_min_update_interval: Duration = 5, seconds(0, YEAR);
        /// How long an unused connection is kept.
        connection_close_interval: Duration = 90000, ms(1, YEAR);
        /// [Where to connect instead](replication-connections.md#elsewhere-than-a-url-says), as
        /// `"host:port:target:port"`.
        connect_to: String = "", value::CONNECT_TO, of_machine();
        /// Hosts, networks and addresses that [replications may connect
        /// to](replication-connections.md#where-replications-may-connect-to); `*` is all.
        endpoints_allowed: Vec<String> = "*", value::ENDPOINTS;
        /// Hosts, networks and addresses that are denied even if `endpoints_allowed` has them.
        endpoints_denied: Vec<String> = "", value::ENDPOINTS;
        /// Origins, such as `https://b.example`, that a database may [redirect
        /// to](replication-connections.md#redirects) besides its own.
        redirects_to: Vec<String> = "", value::ORIGINS;
        /// URL schemes allowed for databases.
        valid_endpoint_protocols: Vec<String> = "http,https", Kind::Words(&["http", "https"]);
        /// URL schemes allowed for proxies.
        valid_proxy_protocols: Vec<String> = "http,https,socks5", Kind::Words(&["http", "https", "socks5"]);
        /// Verifies certificates of databases. **CouchDB does not by default**.
        verify_ssl_certificates: bool = true, Kind::Boolean, only_in_files("it decides whom credentials are sent to");
        /// The PEM file of trusted certificates; empty: the system's.
        ssl_trusted_certificates_file: Option<PathBuf> = "", value::FILE_PATH, of_machine();
        /// The PEM file of the client certificate for databases; empty: none.
        cert_file: Option<PathBuf> = "", value::FILE_PATH, of_machine();
        /// The PEM file of its key, not encrypted.
        key_file: Option<PathBuf> = "", value::FILE_PATH, of_machine();
        /// Must be empty: keys with a password are refused.
        password: String = "", value::SECRET, of_machine();
        /// How often certificate files are read again, for new connections.
        cacert_reload_interval_hours: Duration = 24, HOURS;
        /// How [credentials](replication-connections.md#credentials) are sent to databases, by CouchDB's names, of
        /// which the first counts.
        auth_plugins: Vec<String> = "couch_replicator_auth_session,couch_replicator_auth_noop", Kind::Words(&[AUTH_SESSION, "couch_replicator_auth_noop"]);
    }
    beside {
        /// `[replicator.shares]`: replicator database, or user -> share, from 1 to 1000.
        #[serde(default)]
        shares: BTreeMap<String, u64>;
    }
}

impl Default for Replicator {
    fn default() -> Self {
        Self::declared()
    }
}

section! {
    /// `[store]`.
    #[derive(Debug, Eq)]
    pub struct Store {
        /// The file that keeps replications, or its directory; `"memory"` keeps them until the service ends. Empty:
        /// `/var/lib/settee/settee.redb` for root, `settee/settee.redb` in `$XDG_STATE_HOME` or `~/.local/state` for
        /// others.
        path: PathBuf = "", value::STORE_PATH, at_start();
        /// The PostgreSQL database (13 or newer) that keeps replications instead, for [several services
        /// together](fleet.md#one-store-for-several-daemons): `postgres://user:password@host:port/database`, with
        /// [`?sslmode=`](fleet.md#tls). `SETTEE__STORE__URL` keeps the password out of files. Empty: none.
        url: Option<StoreUrl> = "", value::STORE_URL, at_start();
        /// How long deletions in `_replicator` are kept for readers of `_changes`.
        deleted_kept_for: Duration = 2592000, seconds(0, 10 * YEAR);
    }
}

impl Store {
    /// Instead of a path: everything ends with the service.
    pub const MEMORY: &'static str = "memory";

    /// Returns the file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        (self.path.as_os_str() != Self::MEMORY).then_some(&self.path)
    }
}
