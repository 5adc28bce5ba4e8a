//! Invariants of processes: counts, idle indexes, assignments, tags.

use std::collections::BTreeSet;

use super::{Judgement, numbered};
use crate::pool::{Ledger, Pool, PoolId, Pools, Proc, ProcId, ProcState, Tenant};

pub(super) fn count_is_within_the_limit(_: PoolId, pool: &Pool, _: &Ledger) -> Judgement {
    require!(
        pool.count() <= pool.count_max,
        "count {} exceeds {}",
        pool.count(),
        pool.count_max
    )
}

pub(super) fn idle_indexes_are_exact(_: PoolId, pool: &Pool, _: &Ledger) -> Judgement {
    let idle = pool.procs.values().filter(|proc| proc.is_idle());
    let (all, tagged) = idle.fold((0, 0), |(all, tagged), proc| {
        (all + 1, tagged + usize::from(!proc.has_room()))
    });
    let indexed = (pool.idle.len(), pool.idle.tagged_len());
    require!(
        indexed == (all, tagged),
        "idle and tagged {all}, {tagged}; indexed {indexed:?}"
    )?;
    require!(
        pool.idle == pool.rebuilt_idle(),
        "the indexes differ from the processes: {:?}",
        pool.idle
    )
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
            require!(
                token <= pools.ledger.last_token,
                "process {proc}: token {} was never issued",
                token.0
            )?;
            require!(
                tokens.insert(token),
                "process {proc}: token {} is in force twice",
                token.0
            )?;
        }
    }
    let held = &pools.ledger.held;
    require!(assigned == *held, "assigned {assigned:?}, held {held:?}")
}

pub(super) fn tags_are_respected(_: PoolId, pool: &Pool, ledger: &Ledger) -> Judgement {
    for (number, proc) in &pool.procs {
        let ids: BTreeSet<_> = proc.ddocs.iter().map(|ddoc| &ddoc.id).collect();
        require!(
            ids.len() == proc.ddocs.len(),
            "process {number} knows two versions of a design document"
        )?;
        if let (ProcState::Assigned { .. }, Some(tag)) = (&proc.state, &proc.tenant) {
            let holder = proc.left_by.as_ref().map(|(_, tenant)| tenant);
            let is_its_own = holder == Some(tag) || pool.is_stale(*number, ledger);
            require!(
                is_its_own || pool.settings.lends_taught,
                "process {number} of {tag:?} serves {holder:?}"
            )?;
        }
        if let Some(request) = proc.state.request() {
            let row = ledger.request(request);
            let tenant = row.and_then(|row| pool.settings.wanted(row).tenant());
            let is_its_own = tenant.is_none() || tenant == proc.tenant.as_ref();
            // A process started before a change of `reuse` is stopped on return.
            require!(
                is_its_own || pool.is_stale(*number, ledger),
                "process {number} of {:?} learns or forgets for {tenant:?}",
                proc.tenant
            )?;
        }
    }
    Ok(())
}

pub(super) fn idle_processes_are_fit(_: PoolId, pool: &Pool, ledger: &Ledger) -> Judgement {
    let over = pool.count() > pool.settings.limits.hard_limit;
    let mut idle = pool.procs.iter().filter(|(_, proc)| proc.is_idle());
    let unfit = idle.find(|(number, _)| over || pool.is_stale(**number, ledger));
    require!(
        unfit.is_none(),
        "idle, though stale or above the limit: {unfit:?}"
    )
}

pub(super) fn tenants_are_apart(pools: &Pools) -> Judgement {
    let ledger = &pools.ledger;
    let mut owned = BTreeSet::new();
    for (id, pool) in numbered(pools) {
        for (&number, proc) in &pool.procs {
            let isolates = proc.known().map(|(tenant, _)| tenant);
            let distinct: BTreeSet<_> = isolates.clone().collect();
            let most = proc.isolates_max.max(1) as usize;
            require!(
                distinct.len() == isolates.count() && distinct.len() <= most,
                "pool {}: process {number} has the isolates of {distinct:?}",
                id.0
            )?;
            if proc.isolates_max == 0
                && let Some(Tenant::Client(client)) = proc.tenant
            {
                owned.insert((client, ProcId { pool: id, number }));
            }
            // A process started before a change of `reuse` is stopped on return.
            let is_shared = !pool.settings.keeps_apart() || pool.is_stale(number, ledger);
            require!(
                is_shared || is_with_its_tenant(proc, ledger),
                "pool {}: process {number} is shared: {proc:?}",
                id.0
            )?;
        }
    }
    require!(
        owned == ledger.owned,
        "owned by clients {owned:?}, recorded {:?}",
        ledger.owned
    )
}

/// Whether a process serves only its tenant, or, without a tenant, has served no client since it started or forgot
/// everything.
fn is_with_its_tenant(proc: &Proc, ledger: &Ledger) -> bool {
    let Some(tenant) = &proc.tenant else {
        let serves_nobody = proc.is_idle() || proc.state == ProcState::Forgetting { request: None };
        return serves_nobody && !proc.has_served && proc.ddocs.is_empty();
    };
    match (&proc.state, tenant) {
        (ProcState::Assigned { client, .. }, Tenant::Client(tenant)) => client == tenant,
        (state, _) => state.request().is_none_or(|request| {
            let row = ledger.request(request);
            row.is_some_and(|row| row.tenant == *tenant)
        }),
    }
}

pub(super) fn nothing_is_in_hand(_: PoolId, pool: &Pool, _: &Ledger) -> Judgement {
    let mut procs = pool.procs.iter();
    let in_hand = procs.find(|(_, proc)| proc.state == ProcState::Transitioning);
    require!(in_hand.is_none(), "{in_hand:?}")
}

pub(super) fn stopping_is_final(_: PoolId, pool: &Pool, _: &Ledger) -> Judgement {
    let in_use = |n: &&u64| pool.procs.contains_key(*n) || pool.opening.contains_key(*n);
    let back = pool.stopping.iter().find(in_use);
    require!(back.is_none(), "{back:?} stops and is in use")
}
