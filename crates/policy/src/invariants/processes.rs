//! What must hold of processes: counts, idle indexes, assignments, tags.

use std::collections::BTreeSet;

use super::{Judgement, is_idle, numbered, require};
use crate::pool::{Ledger, Pool, PoolId, Pools, ProcId, ProcState, RequestRow};

pub(super) fn count_is_within_the_limit(_: PoolId, pool: &Pool, _: &Ledger) -> Judgement {
    require(pool.count() <= pool.count_max, || {
        format!("count {} exceeds {}", pool.count(), pool.count_max)
    })
}

pub(super) fn idle_indexes_are_exact(_: PoolId, pool: &Pool, _: &Ledger) -> Judgement {
    let idle = pool.procs.values().filter(|proc| is_idle(proc));
    let (all, tagged) = idle.fold((0, 0), |(all, tagged), proc| {
        (all + 1, tagged + usize::from(proc.db.is_some()))
    });
    let indexed = (pool.idle.len(), pool.idle.tagged_len());
    require(indexed == (all, tagged), || {
        format!("idle and tagged {all}, {tagged}; indexed {indexed:?}")
    })?;
    require(pool.idle == pool.rebuilt_idle(), || {
        format!("the indexes differ from the processes: {:?}", pool.idle)
    })
}

pub(super) fn assignments_are_unique(pools: &Pools) -> Judgement {
    let mut tokens = BTreeSet::new();
    let mut assigned = BTreeSet::new();
    for (pool, row) in numbered(pools) {
        for (&number, proc) in &row.procs {
            let ProcState::Assigned { client, token } = proc.state else {
                continue;
            };
            let proc = ProcId { pool, number };
            assigned.insert((client, proc));
            require(token <= pools.ledger.last_token, || {
                format!("process {proc}: token {} was never issued", token.0)
            })?;
            require(tokens.insert(token), || {
                format!("process {proc}: token {} is in force twice", token.0)
            })?;
        }
    }
    let held = &pools.ledger.held;
    require(assigned == *held, || {
        format!("assigned {assigned:?}, held {held:?}")
    })
}

pub(super) fn tags_are_respected(_: PoolId, pool: &Pool, ledger: &Ledger) -> Judgement {
    for (number, proc) in &pool.procs {
        let ids: BTreeSet<_> = proc.ddocs.iter().map(|ddoc| &ddoc.id).collect();
        require(ids.len() == proc.ddocs.len(), || {
            format!("process {number} knows two texts of a document")
        })?;
        if let ProcState::Teaching {
            request: Some(request),
            ..
        } = proc.state
        {
            let db = ledger.request(request).and_then(RequestRow::db);
            require(db.is_none() || db == proc.db.as_ref(), || {
                format!("process {number} of {:?} learns for {db:?}", proc.db)
            })?;
        }
    }
    Ok(())
}

pub(super) fn idle_processes_are_fit(_: PoolId, pool: &Pool, ledger: &Ledger) -> Judgement {
    let over = pool.count() > pool.settings.limits.hard_limit;
    let mut idle = pool.procs.iter().filter(|(_, proc)| is_idle(proc));
    let unfit = idle.find(|(number, _)| over || **number <= ledger.threshold);
    require(unfit.is_none(), || {
        format!("idle, stale or above the limit: {unfit:?}")
    })
}

pub(super) fn nothing_is_in_hand(_: PoolId, pool: &Pool, _: &Ledger) -> Judgement {
    let mut procs = pool.procs.iter();
    let in_hand = procs.find(|(_, proc)| proc.state == ProcState::Transitioning);
    require(in_hand.is_none(), || format!("{in_hand:?}"))
}

pub(super) fn stopping_is_final(_: PoolId, pool: &Pool, _: &Ledger) -> Judgement {
    let in_use = |n: &&u64| pool.procs.contains_key(*n) || pool.opening.contains_key(*n);
    let back = pool.stopping.iter().find(in_use);
    require(back.is_none(), || format!("{back:?} stops and is in use"))
}
