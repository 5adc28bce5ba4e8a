//! Invariants of a pool as a whole: its sizes, its lanes, its end.

use super::{Judgement, numbered};
use crate::pool::{EXCHANGE_AFTER, Ledger, Pool, PoolId, Pools};

pub(super) fn shut_down_is_empty(pools: &Pools) -> Judgement {
    let ledger = &pools.ledger;
    let procs: usize = pools.pools.iter().map(|pool| pool.procs.len()).sum();
    let left = procs + ledger.requests.len() + ledger.held.len();
    let (requests, held) = (&ledger.requests, &ledger.held);
    require!(
        !ledger.shutting_down || left == 0,
        "processes {procs}, requests {requests:?}, held {held:?}"
    )
}

pub(super) fn sizes_are_kept(_: PoolId, pool: &Pool, ledger: &Ledger) -> Judgement {
    let now = ledger.now;
    let may_open = pool.may_open(now) && ledger.ceiling.has_room() && !pool.life.pause.is_on(now);
    let is_short = may_open && pool.missing() > 0 && !ledger.shutting_down;
    require!(!is_short, "{} missing", pool.missing())
}

pub(super) fn ceiling_is_kept(pools: &Pools) -> Judgement {
    let ceiling = &pools.ledger.ceiling;
    let count: u32 = pools.pools.iter().map(Pool::count).sum();
    let stopping: usize = pools.pools.iter().map(|pool| pool.stopping.len()).sum();
    let counted = (ceiling.live, ceiling.ending as usize);
    require!(
        counted == (count, stopping),
        "{count} are live and {stopping} stopping, but counted {counted:?}"
    )?;
    let idle = numbered(pools).find(|(_, pool)| pool.idle.len() > 0);
    let (live, max) = (ceiling.live, ceiling.max);
    require!(
        !ceiling.is_over() || idle.is_none(),
        "{live} are more than {max:?}, idle: {idle:?}"
    )?;
    require!(
        ceiling.needy.is_empty() || !ceiling.has_room(),
        "a place is free, and {:?} need one",
        ceiling.needy
    )?;
    let spare = numbered(pools).filter(|(_, pool)| pool.surplus() > 0);
    let idle = spare.filter_map(|(_, pool)| pool.longest_idle());
    let first = idle.map(|(_, since)| since + EXCHANGE_AFTER).min();
    let is_woken = first.is_none_or(|first| ceiling.wake.is_some_and(|at| at <= first));
    let (needy, wake) = (&ceiling.needy, ceiling.wake);
    require!(
        ceiling.unmet() == 0 || is_woken,
        "{needy:?} need a place, one can be made at {first:?}, the timer is {wake:?}"
    )
}

pub(super) fn bulk_is_counted(_: PoolId, pool: &Pool, _: &Ledger) -> Judgement {
    let procs = pool.procs.values().filter(|proc| proc.bulk).count();
    let opening = pool.opening.values().filter(|row| row.bulk).count();
    require!(
        pool.bulk as usize == procs + opening,
        "bulk {}, {procs} + {opening}",
        pool.bulk
    )?;
    let mut idle = pool.procs.values().filter(|proc| proc.is_idle());
    require!(
        !idle.any(|proc| proc.bulk),
        "an idle process serves the bulk lane"
    )
}

pub(super) fn removed_is_removed(_: PoolId, pool: &Pool, _: &Ledger) -> Judgement {
    if pool.life.removing.is_none() {
        return Ok(());
    }
    let (idle, waiting) = (pool.idle.len(), pool.waiters.len);
    require!(idle == 0 && waiting == 0, "idle {idle}, waiting {waiting}")?;
    let empty = pool.count() == 0 && pool.stopping.is_empty();
    require!(
        pool.life.gone == empty,
        "gone {}, empty {empty}",
        pool.life.gone
    )
}

pub(super) fn ages_are_listed(_: PoolId, pool: &Pool, _: &Ledger) -> Judgement {
    let ages = &pool.life.ages;
    let mut listed = 0;
    for (&number, proc) in &pool.procs {
        let end = pool.end_of_life(number, proc);
        let is_listed = end.is_some_and(|end| ages.contains(&(end, number)));
        listed += usize::from(is_listed);
        require!(
            is_listed || end.is_none() || !proc.is_idle(),
            "idle {number} ends {end:?}, unlisted"
        )?;
    }
    require!(listed == ages.len(), "{listed} listed, {ages:?}")
}
