//! What must hold of a pool as a whole: its sizes, its lanes, its end.

use super::{is_idle, numbered, require, states};
use crate::pool::Pools;

pub(super) fn shut_down_is_empty(pools: &Pools) -> Result<(), String> {
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

pub(super) fn sizes_are_kept(pools: &Pools) -> Result<(), String> {
    let ledger = &pools.ledger;
    for (id, pool) in numbered(pools) {
        let may =
            pool.may_open(ledger.now) && ledger.ceiling.has_room() && !pool.is_paused(ledger.now);
        require(!may || pool.missing() == 0 || ledger.shutting_down, || {
            format!("pool {}: {} missing", id.0, pool.missing())
        })?;
    }
    Ok(())
}

pub(super) fn ceiling_is_kept(pools: &Pools) -> Result<(), String> {
    let ceiling = &pools.ledger.ceiling;
    let count: u32 = numbered(pools).map(|(_, pool)| pool.count).sum();
    let stopping: usize = numbered(pools).map(|(_, pool)| pool.stopping.len()).sum();
    let counted = (ceiling.live, ceiling.ending as usize);
    require(counted == (count, stopping), || {
        format!("there are {count} and {stopping} stop, counted {counted:?}")
    })?;
    let is_over = ceiling.max.is_some_and(|max| ceiling.live > max);
    let idle = numbered(pools).find(|(_, pool)| pool.idle.len() > 0);
    require(!is_over || idle.is_none(), || {
        format!(
            "{} are more than {:?}, idle: {idle:?}",
            ceiling.live, ceiling.max
        )
    })?;
    require(ceiling.needy.is_empty() || !ceiling.has_room(), || {
        format!("a place is free, and {:?} need one", ceiling.needy)
    })
}

pub(super) fn bulk_is_counted(pools: &Pools) -> Result<(), String> {
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

pub(super) fn removed_is_removed(pools: &Pools) -> Result<(), String> {
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

pub(super) fn ages_are_listed(pools: &Pools) -> Result<(), String> {
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
