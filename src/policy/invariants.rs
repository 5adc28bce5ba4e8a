//! The named invariants of the pool, one predicate each.
//!
//! SUMMARY   What must hold after every event, judged on the tables of [`Pools`] by scanning them:
//!           slow, obvious, and written apart from the code that keeps it true.
//! PROMISES  Judging changes nothing.
//! CALLED    By the tests of the core after every event; by the ProcManager, on a timer and in
//!           development builds after every event.
//! LIMITS    Costs a scan of all tables. PM-9 and PM-10 are about children and lines, which the
//!           core does not know: the actors' tests judge them.

use std::collections::BTreeSet;
use std::fmt;

use crate::policy::pool::{
    Due, Place, Pool, PoolId, Pools, ProcId, ProcState, Request, RequestId, Token, choose,
};

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
}

/// How an invariant is judged on the tables of the core.
type Predicate = fn(&Pools) -> Result<(), String>;

impl Invariant {
    /// All of them, in order.
    pub const ALL: [Self; 22] = [
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
        }
    }

    /// Returns its predicate; `None` for those that the actors' tests judge.
    pub fn predicate(self) -> Option<Predicate> {
        Some(match self {
            Self::Pm1 => count_is_what_is_there,
            Self::Pm2 => idle_indexes_are_exact,
            Self::Pm3 => assignments_are_unique,
            Self::Pm4 => requests_are_in_one_place,
            Self::Pm5 => nobody_waits_in_vain,
            Self::Pm6 => teaching_is_owned,
            Self::Pm7 => openings_are_owned,
            Self::Pm8 => tags_are_respected,
            Self::Pm9 | Self::Pm10 => return None,
            Self::Pm11 => queue_indexes_are_exact,
            Self::Pm12 => requests_are_known_everywhere,
            Self::Pm13 => idle_processes_are_fit,
            Self::Pm14 => nothing_is_in_hand,
            Self::Pm15 => stopping_is_final,
            Self::Pm16 => shut_down_is_empty,
            Self::Pm17 => sizes_are_kept,
            Self::Pm18 => bulk_is_counted,
            Self::Pm19 => roaming_waiters_are_where_they_should_be,
            Self::Pm20 => removed_is_removed,
            Self::Pm21 => ages_are_listed,
            Self::Pm22 => nobody_hopes_in_vain,
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
pub fn check_all(pools: &Pools) -> Result<(), Violation> {
    violations(pools).next().map_or(Ok(()), Err)
}

/// Judges every invariant that the core can be judged by, and returns each that does not hold.
pub fn violations(pools: &Pools) -> impl Iterator<Item = Violation> {
    Invariant::ALL.into_iter().filter_map(|id| {
        let result = id.predicate()?(pools);
        result.err().map(|detail| Violation { id, detail })
    })
}

fn count_is_what_is_there(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        let (count, procs, opening) = (pool.count, pool.procs.len(), pool.opening.len());
        require(count as usize == procs + opening, || {
            format!(
                "pool {}: count {count}, procs {procs}, opening {opening}",
                id.0
            )
        })?;
        require(count <= pool.count_max, || {
            format!("pool {}: count {count} exceeds {}", id.0, pool.count_max)
        })?;
    }
    Ok(())
}

fn idle_indexes_are_exact(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        let idle = pool.procs.values().filter(|proc| is_idle(&proc.state));
        let (all, tagged) = idle.fold((0, 0), |(all, tagged), proc| {
            (all + 1, tagged + usize::from(proc.db.is_some()))
        });
        let indexed = (pool.idle.len(), pool.idle.tagged_len());
        require(indexed == (all, tagged), || {
            format!(
                "pool {}: idle and tagged {all}, {tagged}; indexed {indexed:?}",
                id.0
            )
        })?;
        require(pool.idle == pool.rebuilt_idle(), || {
            format!(
                "pool {}: the indexes differ from the processes: {:?}",
                id.0, pool.idle
            )
        })?;
    }
    Ok(())
}

fn assignments_are_unique(pools: &Pools) -> Result<(), String> {
    let mut tokens = BTreeSet::new();
    let mut held = BTreeSet::new();
    for (proc, state) in states(pools) {
        if let ProcState::Assigned { client, token } = state {
            held.insert((*client, proc));
            require(*token < Token(pools.ledger.next_token), || {
                format!("process {proc}: token {} was never issued", token.0)
            })?;
            require(tokens.insert(*token), || {
                format!("process {proc}: token {} is in force twice", token.0)
            })?;
        }
    }
    let noted = pools.ledger.held.pairs();
    require(held == noted, || {
        format!("assigned {held:?}, held {noted:?}")
    })
}

fn requests_are_in_one_place(pools: &Pools) -> Result<(), String> {
    let mut places: Vec<(RequestId, PoolId, Place)> = Vec::new();
    for (id, pool) in numbered(pools) {
        places.extend(
            pool.waiters
                .iter()
                .map(|request| (request, id, Place::Queue)),
        );
        for (number, opening) in &pool.opening {
            let place = Place::Opening(*number);
            places.extend(opening.request.map(|request| (request, id, place)));
        }
        for (number, proc) in &pool.procs {
            if let ProcState::Teaching { request, .. } = &proc.state {
                let place = Place::Teaching(*number);
                places.extend(request.map(|request| (request, id, place)));
            }
        }
    }
    let requests = &pools.ledger.requests;
    for (id, pool, place) in &places {
        let row = requests.get(id).map(|row| (row.pool, row.place));
        require(row == Some((*pool, *place)), || {
            format!(
                "request {} is at {place:?} of pool {}, its row says {row:?}",
                id.0, pool.0
            )
        })?;
    }
    require(places.len() == requests.len(), || {
        format!("{} requests are in {} places", requests.len(), places.len())
    })
}

fn nobody_waits_in_vain(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        let mut waiters = pool
            .waiters
            .iter()
            .filter_map(|id| pools.ledger.request(id));
        let Some(head) = waiters.next() else {
            continue;
        };
        let servable = |request: &Request| choose(&pool.idle, request.affinity.as_ref()).is_some();
        let now = pools.ledger.now;
        if !pool.is_open_to(head.lane) {
            continue;
        }
        require(!servable(head) && !pool.may_open(now), || {
            format!("pool {}: the oldest waiter could be served", id.0)
        })?;
        let servable = |request: &Request| servable(request) && pool.is_open_to(request.lane);
        if pool.is_blocked(now) {
            require(!waiters.any(servable), || {
                format!("pool {}: a waiter could have an idle process", id.0)
            })?;
        } else if let Some(until) = pool.head_until {
            let db = head.affinity.as_ref().and_then(|wanted| wanted.db.as_ref());
            let ends = pool.affinity_end(head.arrived);
            let waits = until == ends && pools.ledger.now < ends;
            require(
                waits && db.is_some_and(|db| pool.idle.in_use(db) > 0),
                || format!("pool {}: the oldest waiter has nothing to wait for", id.0),
            )?;
            require(!waiters.any(servable), || {
                format!("pool {}: a waiter could overtake the oldest one", id.0)
            })?;
        } else {
            require(pool.reapable() == 0, || {
                format!(
                    "pool {}: a process could be reaped for the oldest waiter",
                    id.0
                )
            })?;
        }
    }
    Ok(())
}

fn teaching_is_owned(pools: &Pools) -> Result<(), String> {
    for (proc, state) in states(pools) {
        if let ProcState::Teaching {
            request: Some(id),
            ddoc,
        } = state
        {
            let wanted = pools
                .ledger
                .request(*id)
                .and_then(|row| row.affinity.as_ref());
            require(wanted.is_some_and(|wanted| wanted.ddoc == *ddoc), || {
                format!(
                    "process {proc} learns {ddoc:?} for request {}, {wanted:?}",
                    id.0
                )
            })?;
        }
    }
    Ok(())
}

fn openings_are_owned(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        for (number, opening) in &pool.opening {
            let known = pool.procs.contains_key(number) || *number >= pools.ledger.next_number;
            require(!known, || {
                format!(
                    "pool {}: opening {number} is a process, or was never issued",
                    id.0
                )
            })?;
            if let Some(request) = opening.request {
                let row = pools.ledger.request(request);
                let db = row.and_then(|row| row.affinity.as_ref()?.db.as_ref());
                require(row.is_some() && db == opening.db.as_ref(), || {
                    format!("opening {id:?}.{number} is for request {request:?}, {row:?}")
                })?;
            }
        }
    }
    Ok(())
}

fn tags_are_respected(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        for (number, proc) in &pool.procs {
            let ids: BTreeSet<_> = proc.ddocs.iter().map(|ddoc| &ddoc.id).collect();
            require(ids.len() == proc.ddocs.len(), || {
                format!(
                    "process {}.{number} knows two revisions of a document",
                    id.0
                )
            })?;
            if let ProcState::Teaching {
                request: Some(request),
                ..
            } = proc.state
            {
                let row = pools.ledger.request(request);
                let db = row.and_then(|row| row.affinity.as_ref()?.db.as_ref());
                require(db.is_none() || db == proc.db.as_ref(), || {
                    format!(
                        "process {}.{number} of {:?} learns for {db:?}",
                        id.0, proc.db
                    )
                })?;
            }
        }
    }
    Ok(())
}

fn queue_indexes_are_exact(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        let rebuilt = pool.rebuilt_waiters(id, &pools.ledger);
        require(pool.waiters == rebuilt, || {
            format!("pool {}: {:?} should be {rebuilt:?}", id.0, pool.waiters)
        })?;
    }
    Ok(())
}

fn requests_are_known_everywhere(pools: &Pools) -> Result<(), String> {
    let ledger = &pools.ledger;
    let asked: BTreeSet<_> = ledger
        .requests
        .iter()
        .map(|(id, row)| (row.client, *id))
        .collect();
    require(asked == ledger.asked, || {
        format!("open requests {asked:?}, asked {:?}", ledger.asked)
    })?;
    let deadlines = ledger
        .requests
        .iter()
        .map(|(id, row)| (row.deadline, Due::Request(*id)));
    let heads = numbered(pools)
        .filter_map(|(id, pool)| pool.head_until.map(|until| (until, Due::Head(id))));
    let wakes =
        numbered(pools).filter_map(|(id, pool)| pool.life.wake.map(|until| (until, Due::Pool(id))));
    let due: BTreeSet<_> = deadlines.chain(heads).chain(wakes).collect();
    require(due == ledger.due, || {
        format!("due should be {due:?}, is {:?}", ledger.due)
    })
}

fn idle_processes_are_fit(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        let stale = |number: &u64| *number < pools.ledger.threshold;
        let mut idle = pool.procs.iter().filter(|(_, proc)| is_idle(&proc.state));
        let over = pool.count > pool.settings.limits.hard_limit;
        let unfit = idle.find(|(number, _)| over || stale(number));
        require(unfit.is_none(), || {
            format!("pool {}: idle, stale or above the limit: {unfit:?}", id.0)
        })?;
    }
    Ok(())
}

fn nothing_is_in_hand(pools: &Pools) -> Result<(), String> {
    let in_hand = states(pools).find(|(_, state)| **state == ProcState::InHand);
    require(in_hand.is_none(), || format!("{in_hand:?}"))
}

fn stopping_is_final(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        let back = pool
            .stopping
            .iter()
            .find(|number| pool.procs.contains_key(number) || pool.opening.contains_key(number));
        require(back.is_none(), || {
            format!("pool {}: {back:?} stops and is in use", id.0)
        })?;
    }
    Ok(())
}

fn shut_down_is_empty(pools: &Pools) -> Result<(), String> {
    let ledger = &pools.ledger;
    let procs = states(pools).count();
    let held = ledger.held.pairs();
    let left = procs + ledger.requests.len() + held.len();
    require(!ledger.shutting_down || left == 0, || {
        format!(
            "processes {procs}, requests {:?}, held {held:?}",
            ledger.requests
        )
    })
}

fn sizes_are_kept(pools: &Pools) -> Result<(), String> {
    let ledger = &pools.ledger;
    for (id, pool) in numbered(pools) {
        let may = pool.may_open(ledger.now) && !pool.is_paused(ledger.now);
        require(!may || pool.missing() == 0 || ledger.shutting_down, || {
            format!("pool {}: {} missing", id.0, pool.missing())
        })?;
    }
    Ok(())
}

fn bulk_is_counted(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        let procs = pool.procs.values().filter(|proc| proc.bulk).count();
        let opening = pool.opening.values().filter(|row| row.bulk).count();
        require(pool.bulk as usize == procs + opening, || {
            format!("pool {}: bulk {}, {procs} + {opening}", id.0, pool.bulk)
        })?;
        let mut idle = pool.procs.values().filter(|proc| is_idle(&proc.state));
        require(!idle.any(|proc| proc.bulk), || {
            format!("pool {}: an idle process serves the bulk lane", id.0)
        })?;
    }
    Ok(())
}

fn roaming_waiters_are_where_they_should_be(pools: &Pools) -> Result<(), String> {
    let ledger = &pools.ledger;
    let rows = ledger.requests.iter();
    let queued = rows.filter(|(_, row)| row.place == Place::Queue && row.roams());
    let roaming: BTreeSet<_> = queued
        .map(|(id, row)| (row.target, row.lane, *id))
        .collect();
    require(roaming == ledger.roaming, || {
        format!("roaming should be {roaming:?}, is {:?}", ledger.roaming)
    })?;
    for (id, _) in numbered(pools) {
        let adoptable = pools.adoptable(id);
        require(adoptable.is_none(), || {
            format!(
                "pool {}: could serve {adoptable:?}, which waits elsewhere",
                id.0
            )
        })?;
    }
    Ok(())
}

fn removed_is_removed(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        if pool.life.removing.is_none() {
            continue;
        }
        let idle = pool.idle.len();
        let waiting = pool.waiters.len();
        require(idle == 0 && waiting == 0, || {
            format!("pool {}: idle {idle}, waiting {waiting}", id.0)
        })?;
        let empty = pool.count == 0 && pool.stopping.is_empty();
        require(pool.life.gone == empty, || {
            format!("pool {}: gone {}, empty {empty}", id.0, pool.life.gone)
        })?;
    }
    Ok(())
}

fn ages_are_listed(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        let mut listed = 0;
        for (&number, proc) in &pool.procs {
            let end = pool.end_of_life(number, proc);
            let is_listed = end.is_some_and(|end| pool.life.ages.contains(&(end, number)));
            listed += usize::from(is_listed);
            require(is_listed || end.is_none() || !is_idle(&proc.state), || {
                format!("pool {}: idle {number} ends {end:?}, unlisted", id.0)
            })?;
        }
        require(listed == pool.life.ages.len(), || {
            format!("pool {}: {listed} listed, {:?}", id.0, pool.life.ages)
        })?;
    }
    Ok(())
}

fn nobody_hopes_in_vain(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        if !pool.life.throttle.is_on(pools.ledger.now) {
            continue;
        }
        let waiters = pool.waiters.iter();
        let mut rows = waiters.filter_map(|id| pools.ledger.request(id));
        let vain = rows.find(|row| !pool.could_serve(row.affinity.as_ref()));
        require(vain.is_none(), || {
            format!("pool {}: {vain:?} hopes in vain", id.0)
        })?;
    }
    Ok(())
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
