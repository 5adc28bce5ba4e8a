//! The named invariants of the pool, one predicate for each.
//!
//! SUMMARY   What must hold after every event, checked by scans of the tables of [`Pools`]: slow, obvious, and
//!           independent of the checked code.
//! PROMISES  Checks change nothing.
//! CALLED    By the tests of the core after every event; by the ProcManager on a timer, and in development builds
//!           after every event.
//! LIMITS    Scans all tables. PM-9 and PM-10 are about children and lines, which the core does not know: the tests
//!           of the actors check them.

mod pools;
mod processes;
mod requests;

use std::fmt;

use crate::pool::{Ledger, Pool, PoolId, Pools, Proc, ProcState};

/// The name of an invariant; [`Invariant::sentence`] returns its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    Pm1,
    Pm2,
    Pm3,
    Pm4,
    Pm5,
    Pm6,
    Pm7,
    Pm8,
    Pm9,
    Pm10,
    Pm11,
    Pm12,
    Pm13,
    Pm14,
    Pm15,
    Pm16,
    Pm17,
    Pm18,
    Pm19,
    Pm20,
    Pm21,
    Pm22,
    Pm23,
    Pm24,
    Pm25,
    Pm26,
    Pm27,
}

/// `Err` has the finding.
type Judgement = Result<(), String>;

/// The check of an invariant.
enum Predicate {
    /// Checks the tables of each pool.
    Pool(fn(PoolId, &Pool, &Ledger) -> Judgement),
    /// Checks the tables of all pools together.
    Pools(fn(&Pools) -> Judgement),
    /// Checked by the tests of the actors.
    Actors,
}

impl Invariant {
    pub const ALL: [Self; 27] = [
        Self::Pm1,
        Self::Pm2,
        Self::Pm3,
        Self::Pm4,
        Self::Pm5,
        Self::Pm6,
        Self::Pm7,
        Self::Pm8,
        Self::Pm9,
        Self::Pm10,
        Self::Pm11,
        Self::Pm12,
        Self::Pm13,
        Self::Pm14,
        Self::Pm15,
        Self::Pm16,
        Self::Pm17,
        Self::Pm18,
        Self::Pm19,
        Self::Pm20,
        Self::Pm21,
        Self::Pm22,
        Self::Pm23,
        Self::Pm24,
        Self::Pm25,
        Self::Pm26,
        Self::Pm27,
    ];

    /// Returns its meaning.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Pm1 => "a pool never has more processes and openings than its hard limit",
            Self::Pm2 => "the idle indexes hold exactly the idle processes",
            Self::Pm3 => "every assignment has a token of its own and one holder",
            Self::Pm4 => "every accepted request is in one place until its one answer",
            Self::Pm5 => "neither the next waiter nor one that may overtake it could be served",
            Self::Pm6 => "a process taught for a request learns that request's design document",
            Self::Pm7 => "an opening has its row, its slot and its request until it ends",
            Self::Pm8 => {
                "a process tagged for one database forgets everything before it serves another, unless the pool lends taught ones"
            }
            Self::Pm9 => "at shutdown no child is left",
            Self::Pm10 => "a stray line of a child never answers a prompt",
            Self::Pm11 => "the queue's indexes hold exactly the queued requests",
            Self::Pm12 => "each open request is known to its client and has one deadline",
            Self::Pm13 => "no idle process is stale or above the limit",
            Self::Pm14 => "no process is in transition between two events",
            Self::Pm15 => "a process that was told to stop is in no other table",
            Self::Pm16 => "after shutdown nothing waits, nothing is held, and no process is left",
            Self::Pm17 => "a pool below init_size or min_free opens processes, unless it must not",
            Self::Pm18 => "processes and openings of the bulk lane are counted, and none is idle",
            Self::Pm19 => "no request waits in one pool while another pool could serve it",
            Self::Pm20 => "a pool that is removed lends nothing, and is gone when it is empty",
            Self::Pm21 => "every idle process that ages is in the list of ages",
            Self::Pm22 => {
                "every waiter of a throttled pool can be served, or has time until the next try"
            }
            Self::Pm23 => {
                "all processes are counted, and nobody waits for a place that is free or can be made"
            }
            Self::Pm24 => {
                "a process that ran code of one database forgets everything before it serves another, or has an isolate for each"
            }
            Self::Pm25 => "the processes held for each tenant are counted",
            Self::Pm26 => {
                "calls and processes of each tenant that has bounds are counted over all pools"
            }
            Self::Pm27 => {
                "a tenant that owes processor time is held back until its share has made up for it"
            }
        }
    }

    fn predicate(self) -> Predicate {
        use Predicate::{Actors, Pool, Pools};
        match self {
            Self::Pm1 => Pool(processes::count_is_within_the_limit),
            Self::Pm2 => Pool(processes::idle_indexes_are_exact),
            Self::Pm3 => Pools(processes::assignments_are_unique),
            Self::Pm4 => Pools(requests::requests_are_in_one_place),
            Self::Pm5 => Pool(requests::no_next_waiter_could_be_served),
            Self::Pm6 => Pool(requests::teaching_is_owned),
            Self::Pm7 => Pool(requests::openings_are_owned),
            Self::Pm8 => Pool(processes::tags_are_respected),
            Self::Pm9 | Self::Pm10 => Actors,
            Self::Pm11 => Pool(requests::queue_indexes_are_exact),
            Self::Pm12 => Pools(requests::requests_are_known_everywhere),
            Self::Pm13 => Pool(processes::idle_processes_are_fit),
            Self::Pm14 => Pool(processes::nothing_is_in_hand),
            Self::Pm15 => Pool(processes::stopping_is_final),
            Self::Pm16 => Pools(pools::shut_down_is_empty),
            Self::Pm17 => Pool(pools::sizes_are_kept),
            Self::Pm18 => Pool(pools::bulk_is_counted),
            Self::Pm19 => Pools(requests::roaming_waiters_are_where_they_should_be),
            Self::Pm20 => Pool(pools::removed_is_removed),
            Self::Pm21 => Pool(pools::ages_are_listed),
            Self::Pm22 => Pool(requests::every_throttled_waiter_can_be_served),
            Self::Pm23 => Pools(pools::ceiling_is_kept),
            Self::Pm24 => Pools(processes::tenants_are_apart),
            Self::Pm25 => Pool(requests::uses_are_counted),
            Self::Pm26 => Pools(requests::tenants_are_counted),
            Self::Pm27 => Pools(requests::debts_hold_back),
        }
    }

    /// Returns whether it can be checked on the core's tables.
    pub fn is_judged_on_tables(self) -> bool {
        !matches!(self.predicate(), Predicate::Actors)
    }

    /// Checks it on the core's tables.
    pub(crate) fn check(self, pools: &Pools) -> Judgement {
        match self.predicate() {
            Predicate::Pool(holds) => numbered(pools).try_for_each(|(id, pool)| {
                let judgement = holds(id, pool, &pools.ledger);
                judgement.map_err(|what| format!("pool {}: {what}", id.0))
            }),
            Predicate::Pools(holds) => holds(pools),
            Predicate::Actors => Ok(()),
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PM-{}", *self as u8 + 1)
    }
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub id: Invariant,
    /// The place and the finding.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.id, self.id.sentence(), self.detail)
    }
}

impl std::error::Error for Violation {}

/// Checks every invariant on the core's tables, and returns the violated ones: bugs, never a client's fault.
pub fn violations(pools: &Pools) -> impl Iterator<Item = Violation> {
    Invariant::ALL.into_iter().filter_map(|id| {
        let judgement = id.check(pools);
        judgement.err().map(|detail| Violation { id, detail })
    })
}

fn numbered(pools: &Pools) -> impl Iterator<Item = (PoolId, &Pool)> {
    let ids = (0..).map(PoolId);
    ids.zip(&pools.pools)
}

fn is_idle(proc: &Proc) -> bool {
    proc.state == ProcState::Idle
}

fn require(holds: bool, detail: impl FnOnce() -> String) -> Judgement {
    if holds { Ok(()) } else { Err(detail()) }
}
