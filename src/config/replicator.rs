//! `[replicator]` and `[store]` as the rest of the service sees them.
//!
//! SUMMARY   One field a key, under the key's own name.
//! SOURCE    Names, units and defaults of `[replicator]` are CouchDB's.
//! DIFFERS   `backoff_base` and `backoff_max` are our own. Values that CouchDB would pass over without
//!           a word, or bend to its limits, are refused: no workers, a coefficient beyond 1.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::types::milliseconds;

/// A limit that may be none.
pub type Limit<T> = Option<T>;

/// `[replicator]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replicator {
    /// Most replications that run at a time.
    pub max_jobs: u64,
    /// How often it is decided who runs.
    #[serde(with = "milliseconds")]
    pub interval: Duration,
    /// Most continuous replications that are stopped in one go to make room.
    pub max_churn: u64,
    /// Events that are kept of a replication.
    pub max_history: u64,
    /// A run longer than this ends a row of failures.
    #[serde(with = "milliseconds")]
    pub health_threshold: Duration,
    /// The wait after the first failure in a row.
    #[serde(with = "milliseconds")]
    pub backoff_base: Duration,
    /// The longest wait.
    #[serde(with = "milliseconds")]
    pub backoff_max: Duration,
    /// What is left of the use held against a key of fair share, after each interval.
    pub usage_coeff: f64,
    /// What is left of a job's priority, after each interval.
    pub priority_coeff: f64,
    /// Whether the states `triggered` and `error` are written into documents.
    pub update_docs: bool,
    /// Longest random wait before a replication begins.
    #[serde(with = "milliseconds")]
    pub startup_jitter: Duration,
    /// Workers of a replication.
    pub worker_processes: u64,
    /// Most changes that a worker takes at a time.
    pub worker_batch_size: u64,
    /// Most connections of a replication to each of its databases.
    pub http_connections: u64,
    /// How long a database may say nothing.
    #[serde(with = "milliseconds")]
    pub connection_timeout: Duration,
    /// How long a whole request may take.
    #[serde(with = "milliseconds_or_infinity")]
    pub request_timeout: Limit<Duration>,
    /// How often a request that failed is tried again.
    pub retries_per_request: u64,
    /// Whether replications leave checkpoints.
    pub use_checkpoints: bool,
    /// Whether documents are read many at a time.
    pub use_bulk_get: bool,
    /// Shortest time between two checkpoints.
    #[serde(with = "milliseconds")]
    pub checkpoint_interval: Duration,
    /// Longest id of a document, in bytes.
    #[serde(with = "bytes_or_infinity")]
    pub max_document_id_length: Limit<u64>,
    /// How long to wait for a document that was not there.
    #[serde(rename = "missing_doc_retry_msec", with = "milliseconds")]
    pub missing_doc_retry: Duration,
    /// How long a session is used that does not say how long it lasts.
    #[serde(rename = "session_refresh_interval_sec", with = "milliseconds")]
    pub session_refresh_interval: Duration,
    /// Least time between two logins at the same database.
    #[serde(with = "milliseconds")]
    pub session_min_update_interval: Duration,
    /// How long a connection that nobody uses is kept.
    #[serde(with = "milliseconds")]
    pub connection_close_interval: Duration,
    /// Where to connect instead: `host:port:target:port` with commas between several.
    pub connect_to: String,
    /// Hosts and networks that may be connected to, with commas between them.
    pub endpoints_allowed: String,
    /// Those of them that may not.
    pub endpoints_denied: String,
    /// Origins that redirects may lead to, with commas between them.
    pub redirects_to: String,
    /// Schemes of databases.
    #[serde(with = "words")]
    pub valid_endpoint_protocols: Vec<String>,
    /// Schemes of proxies.
    #[serde(with = "words")]
    pub valid_proxy_protocols: Vec<String>,
    /// Whether certificates of databases are verified.
    pub verify_ssl_certificates: bool,
    /// Certificates to verify by; the system's without.
    #[serde(with = "path_or_none")]
    pub ssl_trusted_certificates_file: Option<PathBuf>,
    /// The certificate that databases are shown.
    #[serde(with = "path_or_none")]
    pub cert_file: Option<PathBuf>,
    /// Its key.
    #[serde(with = "path_or_none")]
    pub key_file: Option<PathBuf>,
    /// The password of the key: there must be none.
    pub password: String,
    /// How often the files of certificates are read again.
    #[serde(rename = "cacert_reload_interval_hours", with = "milliseconds")]
    pub cacert_reload_interval: Duration,
    /// How credentials are shown: CouchDB's names of modules, the first that can do it counts.
    #[serde(with = "words")]
    pub auth_plugins: Vec<String>,
    /// `[replicator.shares]`: replicator database, or user -> share, from 1 to 1000.
    #[serde(default)]
    pub shares: BTreeMap<String, u64>,
}

/// `[store]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// The file; the word [`Store::MEMORY`] is none.
    pub path: PathBuf,
    /// How long deleted documents are kept.
    #[serde(with = "milliseconds")]
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

/// A number that may be `infinity`, as it travels through the layers.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NumberOrWord {
    Number(u64),
    Word(String),
}

impl From<Option<u64>> for NumberOrWord {
    fn from(value: Option<u64>) -> Self {
        match value {
            Some(number) => Self::Number(number),
            None => Self::Word(super::keys::INFINITY.to_owned()),
        }
    }
}

impl NumberOrWord {
    fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            // No other word passes the layers.
            Self::Word(_) => None,
        }
    }
}

mod milliseconds_or_infinity {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::NumberOrWord;

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let number = value.map(|value| u64::try_from(value.as_millis()).unwrap_or(u64::MAX));
        NumberOrWord::from(number).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let value = NumberOrWord::deserialize(from)?;
        Ok(value.number().map(Duration::from_millis))
    }
}

mod bytes_or_infinity {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::NumberOrWord;

    pub(super) fn serialize<S: Serializer>(value: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        NumberOrWord::from(*value).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        Ok(NumberOrWord::deserialize(from)?.number())
    }
}

/// Words travel through the layers with commas between them.
mod words {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &[String], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.join(","))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        let text = String::deserialize(from)?;
        Ok(text.split(',').map(str::to_owned).collect())
    }
}

/// No path travels through the layers as an empty text.
mod path_or_none {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &Option<PathBuf>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let text = value.as_ref().map(|path| path.to_string_lossy());
        to.serialize_str(&text.unwrap_or_default())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        let text = String::deserialize(from)?;
        Ok((!text.is_empty()).then(|| text.into()))
    }
}
