//! The settings of a pool.
//!
//! SUMMARY   [`PoolSettings`]: sizes, what becomes of processes, who waits how. [`Limits`] is the
//!           part that every language's own pool takes from the configuration.
//! CALLED    By the shell, which makes them from the configuration and from requests; by
//!           [`super::Pools::plan`].
//! SOURCE    couch_proc_manager 001 (limits); pidq (init_size, min_free, max, what becomes of a
//!           crashed consumer's process); pooler (groups, culling, queue_max).
//! LIMITS    Names, commands and how a process is asked to stop are the shell's, and so are the rules between
//!           settings: any of them can be put in force.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::VariantNames;

use crate::admission::ThrottleSettings;

/// The limits of one pool, per language as in CouchDB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `os_process_limit`, a named pool's `max`: processes and openings together never exceed it.
    /// 0 opens nothing.
    pub hard_limit: u32,
    /// `os_process_soft_limit`: an untagged process is closed when idle for too long while the
    /// pool counts at least this many.
    pub soft_limit: u32,
    /// How long the oldest waiter waits for a process of its own database that is in use, before
    /// an idle process of another database is reaped for it; also the least time between two such
    /// exchanges. Zero reaps at once and in batches, as the reference does.
    pub affinity_wait: Duration,
}

impl Limits {
    /// How many idle tagged processes are reaped at most at a time: a tenth of the limit and one.
    pub(crate) fn reap_batch(&self) -> u32 {
        (f64::from(self.hard_limit) * 0.1 + 1.0).round() as u32
    }
}

/// A language, as the shell numbers them. Pools of one language start the same kind of process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LanguageId(pub u32);

/// A group of interchangeable pools, as the shell numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// Whose rules a pool follows where the two sources differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// A language's own pool, as in couch_proc_manager: among equals the newest-created process is
    /// lent; what a client gave back as broken is not replaced until somebody asks.
    #[default]
    Language,
    /// A named pool, as in pidq: among equals the process that came back last is lent, so that a
    /// quiet pool keeps few of them busy; what was given back as broken is replaced at once; and
    /// stopping processes beyond one reap batch keep their slots, so that a pool whose processes
    /// come and go never has more children than `max` and a batch.
    Named,
}

/// What becomes of a process whose client crashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OnClientCrash {
    /// It is reset and goes back (couch_proc_manager).
    #[default]
    Return,
    /// Its state is unknown: it is destroyed and a fresh one is opened in its place (pidq).
    Replace,
}

/// When a process has served for long enough. It goes when it is idle, never under a client, but
/// for `memory_hard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recycle {
    /// After this many assignments.
    pub max_uses: Option<u64>,
    /// At this age.
    pub max_age: Option<Duration>,
    /// By how much a life may be shorter than `max_age`, in percent: so processes that were born
    /// together do not go together.
    pub jitter_percent: u8,
    /// After the use in which it took so much memory, in bytes.
    pub memory_soft: Option<u64>,
    /// At once when it takes this much memory, in bytes; its holder is notified.
    pub memory_hard: Option<u64>,
}

/// How a pool shrinks back to `init_size` after a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cull {
    /// How long a process has been idle before it is one too many.
    pub after: Duration,
    /// The least time between two rounds; each stops one reap batch at most.
    pub interval: Duration,
}

/// Whom a process may serve after it ran somebody's functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Reuse {
    /// Anybody, but for design documents: those of one database, as in the reference
    /// ([`PoolSettings::lends_taught`]). One that can forget ([`PoolSettings::can_forget`]) does so between two tenants.
    #[default]
    Any,
    /// Its tenant only, whatever the work: a process without a tenant never ran a function.
    Database,
    /// Several tenants, each in an isolate of its own ([`PoolSettings::isolates_max`]).
    Isolates,
}

/// In which order the waiters of a lane are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Fairness {
    /// In order of arrival.
    #[default]
    Fifo,
    /// The database first that has had processes for the least time lately, its own requests in order of
    /// arrival.
    PerDb,
}

/// All settings of one pool. The defaults are those of a language's own pool, as in the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// Whose rules it follows. Cannot change.
    pub kind: PoolKind,
    /// What its processes speak. Cannot change.
    pub language: LanguageId,
    /// Its group of interchangeable pools.
    pub group: Option<GroupId>,
    /// `max` (as `hard_limit`) and what belongs to it.
    pub limits: Limits,
    /// Processes that are there from the start, and that a process that dies is replaced for.
    pub init_size: u32,
    /// While free and opening processes are fewer, one more is opened in the background.
    pub min_free: u32,
    /// A request is refused at once when this many wait.
    pub queue_max: Option<u32>,
    /// Whom a process may serve. A change replaces the processes.
    pub reuse: Reuse,
    /// Whether its processes can forget all that they were taught and that functions did to them. A change
    /// replaces the processes.
    pub can_forget: bool,
    /// How many tenants may have an isolate in a process at a time; 0: processes have no isolates. A change replaces the
    /// processes.
    pub isolates_max: u32,
    /// Whether a request without a design document may get a process that another tenant's were taught, where no
    /// other is idle; as in the reference. Not where a process serves one tenant only.
    pub lends_taught: bool,
    /// What becomes of a crashed client's process.
    pub on_client_crash: OnClientCrash,
    /// When a process has served for long enough.
    pub recycle: Recycle,
    /// How the pool shrinks; `None`: by the soft limit.
    pub cull: Option<Cull>,
    /// How long nothing is opened after a failing start; `None`: each request tries again.
    pub throttle: Option<ThrottleSettings>,
    /// Whether processes are started with stress on while the pool is at its limit.
    pub stress: bool,
    /// Which waiter is next.
    pub fairness: Fairness,
    /// How many of `max` processes the bulk lane leaves to the interactive one; 0 makes no
    /// difference between lanes.
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

    /// Whether an idle process can serve any tenant, in another one's place if need be.
    pub(super) const fn serves_any(&self) -> bool {
        self.can_forget || self.isolates_max > 0
    }

    /// Whether a process serves one tenant only, whatever the work: until it ends, forgets, or selects the isolate of
    /// another one.
    pub(crate) const fn keeps_apart(&self) -> bool {
        self.serves_any() || matches!(self.reuse, Reuse::Database)
    }

    /// Whether the past of processes from before says nothing under these settings.
    pub(super) fn replaces_those_of(&self, old: &Self) -> bool {
        let rule = |settings: &Self| {
            let Self {
                reuse,
                can_forget,
                isolates_max,
                lends_taught,
                ..
            } = *settings;
            (reuse, can_forget, isolates_max, lends_taught)
        };
        rule(self) != rule(old)
    }

    /// Whether they ask for anything that a pool does without a request.
    pub(super) fn needs_upkeep(&self) -> bool {
        self.init_size > 0
            || self.min_free > 0
            || self.recycle.max_age.is_some()
            || self.cull.is_some()
            || self.throttle.is_some()
            || self.stress
    }
}

/// A language's own pool, of the first language: for callers that have one language only.
impl From<Limits> for PoolSettings {
    fn from(limits: Limits) -> Self {
        Self::of_language(LanguageId(0), limits)
    }
}
