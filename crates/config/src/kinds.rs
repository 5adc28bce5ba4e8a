//! The values allowed for keys: bounds and words for declarations.
//!
//! LIMITS    Upper bounds keep sums and timers far from overflow; they are not recommendations.

use child::cell::SandboxMode;
use policy::pool::db_tag::DbTag;
use policy::pool::{Fairness, OnClientCrash, Reuse};
use policy::schedule::RuleSet;
use replication::spec::Feed;
use strum::VariantNames;

use super::keys::AUTH_SESSION;
use super::services::Stress;
use super::types::{LogFormat, LogLevel, ReduceLimit};
use super::value::{self, Kind, Unit};

pub(crate) const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

/// A word for a variant of a type.
const fn one_of<T: VariantNames>() -> Kind {
    Kind::Choice(T::VARIANTS, &[])
}

pub(crate) const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { min, max }
}

pub(crate) const fn ms(min: u64, max: u64) -> Kind {
    let unit = Unit::Milliseconds;
    Kind::Duration { unit, min, max }
}

pub(crate) const fn seconds(min: u64, max: u64) -> Kind {
    let unit = Unit::Seconds;
    Kind::Duration { unit, min, max }
}

/// From one hour to a year.
pub(crate) const HOURS: Kind = Kind::Duration {
    unit: Unit::Hours,
    min: HOUR,
    max: YEAR,
};

pub(crate) const HOUR: u64 = Unit::Hours.milliseconds();
pub(crate) const DAY: u64 = 24 * HOUR;
pub(crate) const YEAR: u64 = 365 * DAY;
pub(crate) const MIB: u64 = 1 << 20;

/// Why a request cannot set a cell's access rights.
pub(crate) const CELL: &str = "it decides what a query server may do on this machine";

/// Maximum number of processes.
pub(crate) const PROCESSES: Kind = count(0, 1_000_000);
pub(crate) const REDUCE_LIMIT: Kind = one_of::<ReduceLimit>();
pub(crate) const DB_TAG: Kind = one_of::<DbTag>();
pub(crate) const SANDBOX: Kind = one_of::<SandboxMode>();
pub(crate) const REUSE: Kind = Kind::OrNone("", &one_of::<Reuse>());
pub(crate) const MEMORY_MAX: Kind = Kind::OrZero(&bytes(MIB, 1 << 50));
/// In percent of one core.
pub(crate) const CPU_MAX: Kind = count(0, 1_000_000);
pub(crate) const FEED: Kind = one_of::<Feed>();
pub(crate) const RULES: Kind = one_of::<RuleSet>();
pub(crate) const SOCKET_MODE: Kind = Kind::Choice(&["0600", "0660"], &[]);
pub(crate) const FORMAT: Kind = one_of::<LogFormat>();
pub(crate) const ON_CLIENT_CRASH: Kind = one_of::<OnClientCrash>();
pub(crate) const FAIRNESS: Kind = one_of::<Fairness>();
/// Whether a service can be under stress.
pub(crate) const STRESS: Kind = Kind::Choice(Stress::VARIANTS, &[("true", "yes"), ("false", "no")]);
/// Severities; CouchDB's names map to the nearest of ours, so that its files can be used.
pub(crate) const LEVEL: Kind = Kind::Choice(
    LogLevel::VARIANTS,
    &[
        ("notice", "info"),
        ("warn", "warning"),
        ("err", "error"),
        ("crit", "critical"),
        ("alert", "critical"),
        ("emergency", "critical"),
        ("emerg", "critical"),
        ("none", "off"),
    ],
);
/// CouchDB's ways to send credentials, named after its replicator's modules.
pub(crate) const AUTH_PLUGINS: Kind = Kind::Words(&[AUTH_SESSION, "couch_replicator_auth_noop"]);
pub(crate) const TLS_VERSIONS: Kind = Kind::Words(&["tlsv1.2", "tlsv1.3"]);
pub(crate) const ENDPOINT_PROTOCOLS: Kind = Kind::Words(&["http", "https"]);
pub(crate) const PROXY_PROTOCOLS: Kind = Kind::Words(&["http", "https", "socks5"]);
pub(crate) const REQUEST_TIMEOUT: Kind = Kind::OrNone(value::INFINITY, &ms(1, YEAR));
pub(crate) const THREADS: Kind = Kind::OrNone("cores", &count(1, 256));
pub(crate) const ID_LENGTH: Kind = Kind::OrNone(value::INFINITY, &bytes(1, 1 << 32));
pub(crate) const QUEUE_MAX: Kind = Kind::OrNone(value::OFF, &count(0, 1 << 32));
