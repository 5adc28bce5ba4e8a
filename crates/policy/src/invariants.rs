//! The named invariants of the pool, one predicate for each.
//!
//! SUMMARY   What must hold after every event, checked by scans of the tables of [`Pools`]: slow, obvious, and
//!           independent of the checked code.
//! PROMISES  Checks change nothing.
//! CALLED    By the tests of the core after every event; by the ProcManager on a timer, and in development builds
//!           after every event.
//! LIMITS    Scans all tables. PM-9 and PM-10 are about children and lines, which the core does not know: the tests
//!           of the actors check them.

/// The judgement about a condition that has to hold; the finding is formatted only if it does not.
macro_rules! require {
    ($holds:expr, $($finding:tt)+) => {
        if $holds {
            Ok(())
        } else {
            Err(format!($($finding)+))
        }
    };
}

mod pools;
mod processes;
mod requests;

use std::fmt;

use strum::VariantArray;

use crate::pool::{Ledger, Pool, PoolId, Pools};
use Predicate::{AllPools, ByActors, EachPool};

/// The name of an invariant; [`Invariant::sentence`] returns its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
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
    EachPool(fn(PoolId, &Pool, &Ledger) -> Judgement),
    /// Checks the tables of all pools together.
    AllPools(fn(&Pools) -> Judgement),
    /// Checked by the tests of the actors.
    ByActors,
}

/// The meaning and the check of each [`Invariant`], in their order.
static ROWS: [(&str, Predicate); Invariant::ALL.len()] = [
    // PM-1
    (
        "a pool never has more processes and openings than its hard limit",
        EachPool(processes::count_is_within_the_limit),
    ),
    // PM-2
    (
        "the idle indexes hold exactly the idle processes",
        EachPool(processes::idle_indexes_are_exact),
    ),
    // PM-3
    (
        "every assignment has a token of its own and one holder",
        AllPools(processes::assignments_are_unique),
    ),
    // PM-4
    (
        "every accepted request is in one place until its one answer",
        AllPools(requests::requests_are_in_one_place),
    ),
    // PM-5
    (
        "neither the next waiter nor one that may overtake it could be served",
        EachPool(requests::no_next_waiter_could_be_served),
    ),
    // PM-6
    (
        "a process taught for a request learns that request's design document",
        EachPool(requests::teaching_is_owned),
    ),
    // PM-7
    (
        "an opening has its row, its slot and its request until it ends",
        EachPool(requests::openings_are_owned),
    ),
    // PM-8
    (
        "a process tagged for one database forgets everything before it serves another, unless the pool lends taught ones",
        EachPool(processes::tags_are_respected),
    ),
    // PM-9
    ("at shutdown no child is left", ByActors),
    // PM-10
    ("a stray line of a child never answers a prompt", ByActors),
    // PM-11
    (
        "the queue's indexes hold exactly the queued requests",
        AllPools(requests::queue_indexes_are_exact),
    ),
    // PM-12
    (
        "each open request is known to its client and has one deadline",
        AllPools(requests::requests_are_known_everywhere),
    ),
    // PM-13
    (
        "no idle process is stale or above the limit",
        EachPool(processes::idle_processes_are_fit),
    ),
    // PM-14
    (
        "no process is in transition between two events",
        EachPool(processes::nothing_is_in_hand),
    ),
    // PM-15
    (
        "a process that was told to stop is in no other table",
        EachPool(processes::stopping_is_final),
    ),
    // PM-16
    (
        "after shutdown nothing waits, nothing is held, and no process is left",
        AllPools(pools::shut_down_is_empty),
    ),
    // PM-17
    (
        "a pool below init_size or min_free opens processes, unless it must not",
        EachPool(pools::sizes_are_kept),
    ),
    // PM-18
    (
        "processes and openings of the bulk lane are counted, and none is idle",
        EachPool(pools::bulk_is_counted),
    ),
    // PM-19
    (
        "no request waits in one pool while another pool could serve it",
        AllPools(requests::roaming_waiters_are_where_they_should_be),
    ),
    // PM-20
    (
        "a pool that is removed lends nothing, and is gone when it is empty",
        EachPool(pools::removed_is_removed),
    ),
    // PM-21
    (
        "every idle process that ages is in the list of ages",
        EachPool(pools::ages_are_listed),
    ),
    // PM-22
    (
        "every waiter of a throttled pool can be served, or has time until the next try",
        EachPool(requests::every_throttled_waiter_can_be_served),
    ),
    // PM-23
    (
        "all processes are counted, and nobody waits for a place that is free or can be made",
        AllPools(pools::ceiling_is_kept),
    ),
    // PM-24
    (
        "a process that ran code of one database forgets everything before it serves another, or has an isolate for each",
        AllPools(processes::tenants_are_apart),
    ),
    // PM-25
    (
        "the processes held for each tenant are counted",
        EachPool(requests::uses_are_counted),
    ),
    // PM-26
    (
        "calls and processes of each tenant that has bounds are counted over all pools",
        AllPools(requests::tenants_are_counted),
    ),
    // PM-27
    (
        "a tenant that owes processor time is held back until its share has made up for it",
        AllPools(requests::debts_hold_back),
    ),
];

impl Invariant {
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns its meaning.
    pub fn sentence(self) -> &'static str {
        ROWS[self as usize].0
    }

    /// Returns whether it can be checked on the core's tables.
    pub fn is_judged_on_tables(self) -> bool {
        !matches!(ROWS[self as usize].1, ByActors)
    }

    /// Checks it on the core's tables.
    pub(crate) fn check(self, pools: &Pools) -> Judgement {
        match &ROWS[self as usize].1 {
            EachPool(holds) => numbered(pools).try_for_each(|(id, pool)| {
                let judgement = holds(id, pool, &pools.ledger);
                judgement.map_err(|what| format!("pool {}: {what}", id.0))
            }),
            AllPools(holds) => holds(pools),
            ByActors => Ok(()),
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

/// Checks every invariant on the core's tables, and returns the violated ones: bugs, never a client's fault.
pub fn violations(pools: &Pools) -> impl Iterator<Item = Violation> {
    Invariant::ALL.iter().filter_map(|&id| {
        let judgement = id.check(pools);
        judgement.err().map(|detail| Violation { id, detail })
    })
}

fn numbered(pools: &Pools) -> impl Iterator<Item = (PoolId, &Pool)> {
    let ids = (0..).map(PoolId);
    ids.zip(&pools.pools)
}
