//! The settings of a pool.
//!
//! SUMMARY   [`PoolSettings`]: sizes, the fate of processes, the order of waiting. [`Limits`] is the part that every
//!           language's own pool takes from the configuration.
//! CALLED    By the shell, which derives them from the configuration and requests; by [`super::Pools::plan`].
//! SOURCE    couch_proc_manager 001 (limits); pidq (init_size, min_free, max, the process of a crashed consumer);
//!           pooler (groups, culling, queue_max).
//! LIMITS    The shell handles names, commands, how a process is stopped, and the rules between settings: any
//!           settings can be applied.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::VariantNames;

use crate::admission::ThrottleSettings;

/// The limits of one pool, per language as in CouchDB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `os_process_limit`, a named pool's `max`: the limit of processes and openings together. 0 opens nothing.
    pub hard_limit: u32,
    /// `os_process_soft_limit`: an untagged process, or one that can forget and knows no design document, is closed
    /// when idle for too long while the pool has at least this many.
    pub soft_limit: u32,
    /// How long the oldest waiter waits for a process of its own database that is in use, before an idle process of
    /// another database is reaped for it; also the minimum interval between two such exchanges. Zero reaps at once
    /// and in batches, as the reference does.
    pub affinity_wait: Duration,
}

impl Limits {
    /// Maximum number of idle tagged processes reaped at a time: a tenth of the limit plus one, rounded.
    pub(crate) fn reap_batch(&self) -> u32 {
        (f64::from(self.hard_limit) * 0.1 + 1.0).round() as u32
    }
}

/// A language, numbered by the shell. Pools of one language start the same kind of process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LanguageId(pub u32);

/// A group of interchangeable pools, numbered by the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// The rules that a pool follows where the two sources differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// A language's own pool, as in couch_proc_manager: among equals the process created last is lent; a
    /// process returned as broken is replaced on the next request.
    #[default]
    Language,
    /// A named pool, as in pidq: among equals the most recently returned process is lent, so that a quiet pool uses
    /// few of them; a process returned as broken is replaced at once; and stopping processes beyond one reap batch
    /// keep their slots, so that a pool with a high turnover never has more children than `max` plus a batch.
    Named,
}

/// The fate of a crashed client's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OnClientCrash {
    /// It is reset and returned (couch_proc_manager).
    #[default]
    Return,
    /// Its state is unknown: it is destroyed and replaced by a fresh one (pidq).
    Replace,
}

/// When a process is recycled, because it has served long enough. It is stopped when idle, never while it is lent,
/// except for `memory_hard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recycle {
    /// After this many loans.
    pub max_uses: Option<u64>,
    /// At this age.
    pub max_age: Option<Duration>,
    /// Maximum reduction of `max_age`, in percent, so that processes started together do not end together.
    pub jitter_percent: u8,
    /// After a use in which it took this much memory, in bytes.
    pub memory_soft: Option<u64>,
    /// At once when it takes this much memory, in bytes; its holder is notified.
    pub memory_hard: Option<u64>,
}

/// How a pool shrinks back to `init_size` after a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cull {
    /// How long a process may be idle before it is surplus.
    pub after: Duration,
    /// Minimum interval between rounds; each stops at most one reap batch.
    pub interval: Duration,
}

/// Which tenants a process may serve after it ran functions of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Reuse {
    /// All, but it learns the design documents of only one database, as in the reference
    /// ([`PoolSettings::lends_taught`]). One that can forget ([`PoolSettings::can_forget`]) does so between tenants.
    #[default]
    Any,
    /// Only its tenant, for any work: a process without a tenant never ran a function.
    Database,
    /// Several tenants, each in its own isolate ([`PoolSettings::isolates_max`]).
    Isolates,
}

/// The order in which the waiters of a lane are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Fairness {
    /// In order of arrival.
    #[default]
    Fifo,
    /// The database that has recently held processes for the least time is first; its requests in order of arrival.
    PerDb,
}

/// All settings of one pool. The defaults are those of a language's own pool, as in the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// The rules that it follows. Cannot change.
    pub kind: PoolKind,
    /// The language of its processes. Cannot change.
    pub language: LanguageId,
    /// Its group of interchangeable pools.
    pub group: Option<GroupId>,
    /// `max` (as `hard_limit`) and related limits.
    pub limits: Limits,
    /// Processes started in advance; when one dies below this number, it is replaced.
    pub init_size: u32,
    /// While there are fewer free and opening processes, one more is opened in the background.
    pub min_free: u32,
    /// The queue's limit: further requests are refused at once.
    pub queue_max: Option<u32>,
    /// Whom a process may serve. A change replaces the processes.
    pub reuse: Reuse,
    /// Whether its processes can forget everything taught, and all effects of functions. A change replaces the
    /// processes.
    pub can_forget: bool,
    /// Maximum number of tenants with an isolate in one process; 0: processes have no isolates. A change replaces the
    /// processes.
    pub isolates_max: u32,
    /// Whether a request without a design document may get a process taught for another tenant, if no other is idle;
    /// as in the reference. Never if a process serves only one tenant. A change replaces the processes.
    pub lends_taught: bool,
    /// The fate of a crashed client's process.
    pub on_client_crash: OnClientCrash,
    /// When a process is recycled.
    pub recycle: Recycle,
    /// How the pool shrinks; `None`: by the soft limit.
    pub cull: Option<Cull>,
    /// How long nothing is opened after failed starts; `None`: each request retries.
    pub throttle: Option<ThrottleSettings>,
    /// Whether processes are started with stress on while the pool is at its limit.
    pub stress: bool,
    /// Which waiter is next.
    pub fairness: Fairness,
    /// How many of `max` processes the bulk lane leaves to the interactive one; 0: lanes are equal.
    pub interactive_reserved: u32,
}

impl PoolSettings {
    /// A language's own pool.
    pub fn of_language(language: LanguageId, limits: Limits) -> Self {
        Self {
            language,
            limits,
            ..Self::default()
        }
    }

    /// A named pool with the defaults of named pools.
    pub fn named(language: LanguageId, limits: Limits) -> Self {
        Self {
            kind: PoolKind::Named,
            on_client_crash: OnClientCrash::Replace,
            throttle: Some(ThrottleSettings::default()),
            ..Self::of_language(language, limits)
        }
    }

    /// Whether an idle process can serve any tenant, replacing another tenant if necessary.
    pub(super) const fn serves_any(&self) -> bool {
        self.can_forget || self.isolates_max > 0
    }

    /// Whether a process serves only one tenant, for any work: until it ends, forgets, or selects the isolate of
    /// another.
    pub(crate) const fn keeps_apart(&self) -> bool {
        self.serves_any() || matches!(self.reuse, Reuse::Database)
    }

    /// Whether the history of existing processes is meaningless under these settings.
    pub(super) fn replaces_those_of(&self, old: &Self) -> bool {
        let rule = |settings: &Self| {
            (
                settings.reuse,
                settings.can_forget,
                settings.isolates_max,
                settings.lends_taught,
            )
        };
        rule(self) != rule(old)
    }

    /// Whether a pool with these settings has work to do without a request.
    pub(super) fn needs_upkeep(&self) -> bool {
        self.init_size > 0
            || self.min_free > 0
            || self.recycle.max_age.is_some()
            || self.cull.is_some()
            || self.throttle.is_some()
            || self.stress
    }
}
