//! What must hold of processes: counts, idle indexes, assignments, tags.

use std::collections::BTreeSet;

use super::{is_idle, numbered, require, states};
use crate::pool::{Pools, ProcState, Token};

pub(super) fn count_is_what_is_there(pools: &Pools) -> Result<(), String> {
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

pub(super) fn idle_indexes_are_exact(pools: &Pools) -> Result<(), String> {
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

pub(super) fn assignments_are_unique(pools: &Pools) -> Result<(), String> {
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

pub(super) fn tags_are_respected(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        for (number, proc) in &pool.procs {
            let ids: BTreeSet<_> = proc.ddocs.iter().map(|ddoc| &ddoc.id).collect();
            require(ids.len() == proc.ddocs.len(), || {
                format!("process {}.{number} knows two texts of a document", id.0)
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

pub(super) fn idle_processes_are_fit(pools: &Pools) -> Result<(), String> {
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

pub(super) fn nothing_is_in_hand(pools: &Pools) -> Result<(), String> {
    let in_hand = states(pools).find(|(_, state)| **state == ProcState::Transitioning);
    require(in_hand.is_none(), || format!("{in_hand:?}"))
}

pub(super) fn stopping_is_final(pools: &Pools) -> Result<(), String> {
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
