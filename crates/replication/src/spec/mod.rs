//! A parsed replication.
//!
//! SUMMARY   [`Replication::parse`] makes one from the body of a replicator document or of a `_replicate` call.
//!           [`strip_url`] removes the secrets from a URL before others see it.
//! PROMISES  Parsing uses no network, and the clock only for the start time. Credentials are only in [`BasicAuth`]
//!           and header values, and no `Debug` or `Display` here shows them.
//! SOURCE    couch_replicator_parse, couch_replicator_utils. Names, defaults and messages are CouchDB's.
//! DIFFERS   Sizes and counts of 0, with which CouchDB starts jobs that never end, are refused. `filter_at` and
//!           `feed` are our own options.

mod credentials;
mod endpoint;
mod mask;
mod options;
mod parse;
mod proxy;

use std::fmt;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use md5::{Digest, Md5};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use self::credentials::BasicAuth;
pub(crate) use self::mask::{MASK, mask_params, mask_query};
pub use self::mask::{mask_url, strip_url};
pub use self::options::{Lowered, TUNING, members};
pub use self::parse::CallBody;
pub(crate) use self::proxy::ProxySpec;
use super::filter::{Filter, FilterAt};
use super::seq::Seq;

/// The members of a JSON object.
pub type Members = Map<String, Value>;

/// One replication: source, target, options, and user.
#[derive(Clone, Debug)]
pub struct Replication {
    pub source: EndpointSpec,
    pub target: EndpointSpec,
    pub options: Options,
    /// The user that it runs for.
    pub user: UserCtx,
    /// The document that requests it; `None` for a transient replication.
    pub doc: Option<DocRef>,
    /// The mark of that document: the file that it was generated from.
    pub managed_by: Option<Box<str>>,
    /// When it was requested. Checkpoints record it as their start time.
    pub start_time: SystemTime,
}

impl Replication {
    /// Whether `other` is the same request, except for user and time. The bodies are compared, not the
    /// configuration's defaults. A job that is added again unchanged continues undisturbed.
    ///
    /// SOURCE couch_replicator_utils, comparison of normalised replications.
    pub fn same_as(&self, other: &Self) -> bool {
        self.source == other.source
            && self.target == other.target
            && self.options.same_as(&other.options)
            && self.doc == other.doc
            && self.managed_by == other.managed_by
    }

    /// Returns a hash of the sides and options that [`Self::same_as`] compares. The mark is excluded, so that a job
    /// keeps its history when its document gets one. The hash may differ between versions of the program.
    pub fn digest(&self) -> String {
        let sides = [&self.source, &self.target].map(EndpointSpec::digested);
        HEXLOWER.encode(&Md5::digest(format!(
            "{sides:?} {}",
            self.options.digested()
        )))
    }

    /// Whether it has no document. A replication without one is not retried after a failure.
    pub fn is_transient(&self) -> bool {
        self.doc.is_none()
    }
}

/// One side of a replication. Its name and password are only in `auth`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EndpointSpec {
    /// URL of the database, without credentials, ending in a slash unless it has a query.
    pub(crate) url: String,
    /// Name and password.
    pub(crate) auth: Option<BasicAuth>,
    /// The user's headers, sorted by name, without any `Authorization: Basic`. Values may be secret.
    pub(crate) headers: Vec<(String, String)>,
    /// The proxy for connecting to it.
    pub(crate) proxy: Option<ProxySpec>,
}

impl EndpointSpec {
    /// Returns the URL for display, with masked parameter values. It never contains a password.
    pub fn shown(&self) -> String {
        mask_params(&self.url)
    }

    /// Returns all fields, including secrets, for [`Replication::digest`].
    fn digested(&self) -> impl fmt::Debug {
        let header = |auth: &BasicAuth| auth.header_value();
        let proxy = self
            .proxy
            .as_ref()
            .map(|proxy| (proxy.url(), proxy.auth().as_ref().map(header)));
        let auth = self.auth.as_ref().map(header);
        (&self.url, auth, &self.headers, proxy)
    }

    /// Returns the server with the same credentials, and the database's name there: `http://h/prefix/a%2Fb` is `a/b`
    /// of `http://h/prefix/`. `None` if the URL has no path.
    pub(crate) fn server_and_database(&self) -> Option<(Self, String)> {
        let end = self.url.find('?').unwrap_or(self.url.len());
        let (path, query) = self.url.split_at(end);
        let (server, name) = path.trim_end_matches('/').rsplit_once('/')?;
        if server.ends_with('/') {
            return None;
        }
        let name = percent_decode_str(name).decode_utf8().ok()?.into_owned();
        Some((
            Self {
                url: format!("{server}/{query}"),
                ..self.clone()
            },
            name,
        ))
    }

    /// Returns the proxy's URL with its password masked.
    pub fn shown_proxy(&self) -> Option<String> {
        self.proxy.as_ref().map(ToString::to_string)
    }
}

impl fmt::Debug for EndpointSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("EndpointSpec")
            .field("url", &self.shown())
            .field("auth", &self.auth)
            .field("headers", &names)
            .field("proxy", &self.proxy)
            .finish()
    }
}

/// The options of a replication. Parsed options override the configuration's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Continues after everything is replicated.
    pub continuous: bool,
    /// Creates a missing target.
    pub create_target: bool,
    /// Parameters for creating the target, as for `PUT /db`: `q`, `n`, `partitioned`.
    pub create_target_params: Members,
    /// Replicates only the winning revision of each document.
    pub(crate) winning_revs_only: bool,
    pub filter: Filter,
    /// Where the filter runs, if there is one.
    pub filter_at: FilterAt,
    /// The sequence to start at if there is no checkpoint.
    pub since_seq: Option<Seq>,
    /// Options with configurable defaults.
    pub tuning: Tuning,
    /// The options with configurable defaults that the body sets.
    pub(crate) given: Members,
}

/// Options with configurable defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Reads and writes checkpoints.
    pub use_checkpoints: bool,
    /// Reads with `_bulk_get` if the source supports it.
    pub use_bulk_get: bool,
    /// Workers; at least 1.
    pub worker_processes: u32,
    /// Changes in a batch; at least 1.
    pub worker_batch_size: u32,
    /// Connections to each side; at least 1.
    pub http_connections: u32,
    /// How long a connection may be silent.
    pub connection_timeout: Duration,
    /// Retries of a request.
    pub retries_per_request: u32,
    /// Time between checkpoints.
    pub checkpoint_interval: Duration,
    /// How a continuous replication is notified of changes.
    pub feed: Feed,
}

/// How a continuous replication is notified of changes: the option `feed`, which CouchDB does not have.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Feed {
    /// Keeps a feed of its database open, as in CouchDB.
    #[default]
    Continuous,
    /// One connection to the server, shared by its replications, reports which databases have changed: see
    /// [`crate::db_updates`].
    DbUpdates,
}

/// The configuration's defaults for every replication.
#[derive(Clone, Debug, PartialEq)]
pub struct Defaults {
    pub tuning: Tuning,
    /// Allowed schemes of an endpoint: `http`, `https`.
    pub valid_endpoint_protocols: Vec<String>,
    /// Allowed schemes of a proxy: `http`, `https`, `socks5`.
    pub valid_proxy_protocols: Vec<String>,
}

/// The document that requests a replication.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocRef {
    /// The replicator database.
    pub database: String,
    pub id: String,
}

/// A user, as in CouchDB's `userCtx`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserCtx {
    /// Name; `None` for an anonymous user.
    pub name: Option<String>,
    /// Roles; `_admin` is one.
    pub roles: Vec<String>,
}

/// Why a body is not a replication. Always the author's fault; a retry with the same body does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SpecError {
    /// The error's class in CouchDB.
    pub kind: SpecErrorKind,
    /// The mistake, in CouchDB's wording where CouchDB reports it.
    pub text: String,
    /// `source` or `target`, if one of them is at fault.
    pub side: Option<&'static str>,
}

/// The class of a [`SpecError`]: `error` in an HTTP answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SpecErrorKind {
    /// `bad_request`: an option is of the wrong type, or two exclude each other.
    BadRequest,
    /// `invalid_replication`: an endpoint or a proxy is missing or wrong.
    InvalidReplication,
}
