//! The values allowed for keys: bounds and words for declarations.
//!
//! LIMITS    Upper bounds keep sums and timers far from overflow; they are not recommendations.

use policy::pool::Reuse;
use strum::VariantNames;

use super::services::Stress;
use super::types::LogLevel;
use super::value::{self, Kind, Unit};

pub(crate) const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

/// A word for a variant of a type.
pub(crate) const fn one_of<T: VariantNames>() -> Kind {
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
pub(crate) const REUSE: Kind = Kind::OrNone("", &one_of::<Reuse>());
pub(crate) const MEMORY_MAX: Kind = Kind::OrZero(&bytes(MIB, 1 << 50));
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
pub(crate) const REQUEST_TIMEOUT: Kind = Kind::OrNone(value::INFINITY, &ms(1, YEAR));
pub(crate) const THREADS: Kind = Kind::OrNone("cores", &count(1, 256));
pub(crate) const ID_LENGTH: Kind = Kind::OrNone(value::INFINITY, &bytes(1, 1 << 32));
pub(crate) const QUEUE_MAX: Kind = Kind::OrNone(value::OFF, &count(0, 1 << 32));
