//! The named invariants of the pool, one predicate each.
//!
//! SUMMARY   What must hold after every event, judged on the tables of [`Pools`] by scanning them:
//!           slow, obvious, and written apart from the code that keeps it true.
//! PROMISES  Judging changes nothing.
//! CALLED    By the tests of the core after every event; by the ProcManager, on a timer and in
//!           development builds after every event.
//! LIMITS    Costs a scan of all tables. PM-9 and PM-10 are about children and lines, which the
//!           core does not know: the actors' tests judge them.

mod pools;
mod processes;
mod requests;

use std::fmt;

use crate::pool::{Pool, PoolId, Pools, ProcId, ProcState};

/// The name of an invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// Counting.
    Pm1,
    /// The idle indexes.
    Pm2,
    /// Tokens.
    Pm3,
    /// One place, one answer.
    Pm4,
    /// Flushed.
    Pm5,
    /// Teaching.
    Pm6,
    /// Openings.
    Pm7,
    /// Tags.
    Pm8,
    /// No child is left.
    Pm9,
    /// No stray line.
    Pm10,
    /// The queue's indexes.
    Pm11,
    /// Requests, clients and timers.
    Pm12,
    /// Idle processes are fit to serve.
    Pm13,
    /// Nothing in hand.
    Pm14,
    /// Stopping is final.
    Pm15,
    /// Shut down is shut down.
    Pm16,
    /// Sizes are kept.
    Pm17,
    /// The bulk lane.
    Pm18,
    /// Waiting where it is shortest.
    Pm19,
    /// Removed is removed.
    Pm20,
    /// Ages.
    Pm21,
    /// No false hope.
    Pm22,
    /// The ceiling over all pools.
    Pm23,
}

/// How an invariant is judged on the tables of the core.
type Predicate = fn(&Pools) -> Result<(), String>;

impl Invariant {
    /// All of them, in order.
    pub const ALL: [Self; 23] = [
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
    ];

    /// Returns what it says.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Pm1 => {
                "processes and openings are the count; nothing is opened at or above the hard limit"
            }
            Self::Pm2 => {
                "the idle indexes hold exactly the unassigned processes, the access index exactly \
                 the tagged ones"
            }
            Self::Pm3 => "every assignment has a token of its own and one holder",
            Self::Pm4 => "every accepted request is in one place until its one answer",
            Self::Pm5 => "no waiter that may be next could be served",
            Self::Pm6 => "a process that learns is in a table, and so is the request it learns for",
            Self::Pm7 => "an opening has its row, its slot and its request until it ends",
            Self::Pm8 => {
                "a process tagged for one database never serves another one's design document"
            }
            Self::Pm9 => "at shutdown no child is left",
            Self::Pm10 => "a stray line of a child never answers a prompt",
            Self::Pm11 => "the queue's indexes hold exactly the queued requests",
            Self::Pm12 => "each open request is known to its client and has one deadline",
            Self::Pm13 => "no idle process is stale or above the limit",
            Self::Pm14 => "between two events no process is in hand",
            Self::Pm15 => "a process that was told to stop is in no other table",
            Self::Pm16 => "after shutdown nothing waits, nothing is held, and no process is left",
            Self::Pm17 => "a pool below init_size or min_free opens, unless it must not",
            Self::Pm18 => "what serves the bulk lane is counted, and nothing idle does",
            Self::Pm19 => "nobody waits in a pool while another of its group could serve it",
            Self::Pm20 => {
                "a pool that is removed opens nothing, lends nothing and has no waiters; one that \
                 is gone has nothing at all"
            }
            Self::Pm21 => "every idle process that ages is in the list of ages",
            Self::Pm22 => "while a pool is throttled, whoever waits there can be served",
            Self::Pm23 => {
                "the processes of all pools are counted, and nobody waits while there may be more"
            }
        }
    }

    /// Returns its predicate; `None` for those that the actors' tests judge.
    pub fn predicate(self) -> Option<Predicate> {
        Some(match self {
            Self::Pm1 => processes::count_is_what_is_there,
            Self::Pm2 => processes::idle_indexes_are_exact,
            Self::Pm3 => processes::assignments_are_unique,
            Self::Pm4 => requests::requests_are_in_one_place,
            Self::Pm5 => requests::nobody_waits_in_vain,
            Self::Pm6 => requests::teaching_is_owned,
            Self::Pm7 => requests::openings_are_owned,
            Self::Pm8 => processes::tags_are_respected,
            Self::Pm9 | Self::Pm10 => return None,
            Self::Pm11 => requests::queue_indexes_are_exact,
            Self::Pm12 => requests::requests_are_known_everywhere,
            Self::Pm13 => processes::idle_processes_are_fit,
            Self::Pm14 => processes::nothing_is_in_hand,
            Self::Pm15 => processes::stopping_is_final,
            Self::Pm16 => pools::shut_down_is_empty,
            Self::Pm17 => pools::sizes_are_kept,
            Self::Pm18 => pools::bulk_is_counted,
            Self::Pm19 => requests::roaming_waiters_are_where_they_should_be,
            Self::Pm20 => pools::removed_is_removed,
            Self::Pm21 => pools::ages_are_listed,
            Self::Pm22 => requests::nobody_hopes_in_vain,
            Self::Pm23 => pools::ceiling_is_kept,
        })
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
    /// Which one.
    pub id: Invariant,
    /// Where, with what is there.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.id, self.id.sentence(), self.detail)
    }
}

impl std::error::Error for Violation {}

/// Judges every invariant that the core can be judged by.
///
/// # Errors
/// The first one that does not hold: a fault of ours, never a client's.
#[cfg(test)]
pub(crate) fn check_all(pools: &Pools) -> Result<(), Violation> {
    violations(pools).next().map_or(Ok(()), Err)
}

/// Judges every invariant that the core can be judged by, and returns each that does not hold.
pub fn violations(pools: &Pools) -> impl Iterator<Item = Violation> {
    Invariant::ALL.into_iter().filter_map(|id| {
        let result = id.predicate()?(pools);
        result.err().map(|detail| Violation { id, detail })
    })
}

fn numbered(pools: &Pools) -> impl Iterator<Item = (PoolId, &Pool)> {
    let ids = (0..).map(PoolId);
    ids.zip(&pools.pools)
}

fn states(pools: &Pools) -> impl Iterator<Item = (ProcId, &ProcState)> {
    numbered(pools).flat_map(|(pool, row)| {
        row.procs
            .iter()
            .map(move |(&number, proc)| (ProcId { pool, number }, &proc.state))
    })
}

fn is_idle(state: &ProcState) -> bool {
    *state == ProcState::Idle
}

fn require(holds: bool, detail: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(detail()) }
}
