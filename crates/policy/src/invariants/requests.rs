//! Invariants of requests: one place each, none forgotten, none waiting without reason.

use std::collections::{BTreeMap, BTreeSet};

use super::{Judgement, numbered};
use crate::pool::{
    ACCOUNTS_MAX, DbKey, Due, Ledger, Pool, PoolId, Pools, ProcState, RequestId, RequestPlace,
    RequestRow, Roaming, Tenant, WINDOW,
};

pub(super) fn requests_are_in_one_place(pools: &Pools) -> Judgement {
    let mut places: Vec<(RequestId, PoolId, RequestPlace)> = Vec::new();
    for (id, pool) in numbered(pools) {
        let waiters = pool.waiters.iter();
        places.extend(waiters.map(|request| (request, id, RequestPlace::Queue)));
        for (number, opening) in &pool.opening {
            let place = RequestPlace::Opening(*number);
            places.extend(opening.request.map(|request| (request, id, place)));
        }
        for (number, proc) in &pool.procs {
            let place = RequestPlace::Teaching(*number);
            let request = proc.state.request();
            places.extend(request.map(|request| (request, id, place)));
        }
    }
    let requests = &pools.ledger.requests;
    for (id, pool, place) in &places {
        let row = requests.get(id).map(|row| (row.pool, row.place));
        require!(
            row == Some((*pool, *place)),
            "request {} is at {place:?} of pool {}, its row says {row:?}",
            id.0,
            pool.0
        )?;
    }
    require!(
        places.len() == requests.len(),
        "{} requests are in {} places",
        requests.len(),
        places.len()
    )
}

pub(super) fn no_next_waiter_could_be_served(_: PoolId, pool: &Pool, ledger: &Ledger) -> Judgement {
    let now = ledger.now;
    let mut waiters = pool
        .waiters
        .iter()
        .filter_map(|id| ledger.request(id))
        .filter(|row| !ledger.tenants.is_held_back(&row.tenant));
    let head = pool.next_waiter().and_then(|id| ledger.request(id));
    let Some(head) = head.filter(|head| pool.is_open_to(head.lane)) else {
        return Ok(());
    };
    let servable = |row: &RequestRow| pool.choose(row).is_some();
    let may_open = pool.may_open(now) && ledger.ceiling.has_room();
    require!(
        !servable(head) && !may_open,
        "the next waiter could be served"
    )?;
    let servable = |row: &RequestRow| pool.choose_own(row).is_some() && pool.is_open_to(row.lane);
    if pool.is_blocked(now) {
        require!(
            pool.forgetful().is_none() && !waiters.any(servable),
            "a waiter could have an idle process"
        )
    } else if let Some(until) = pool.head_until {
        let ends = pool.affinity_end(head.arrived);
        let tenant = pool.settings.wanted(head).tenant();
        let waits_for_one = tenant.is_some_and(|tenant| pool.idle.in_use(tenant) > 0);
        require!(
            until == ends && now < ends && waits_for_one,
            "the next waiter has nothing to wait for"
        )?;
        require!(
            !waiters.any(servable),
            "a waiter could overtake the next one"
        )
    } else {
        let can_reap = !pool.has_slot() && pool.reapable() > 0;
        require!(
            !can_reap && pool.forgetful().is_none(),
            "a process could be reaped, or forget, for the next waiter"
        )
    }
}

pub(super) fn teaching_is_owned(_: PoolId, pool: &Pool, ledger: &Ledger) -> Judgement {
    for (number, proc) in &pool.procs {
        if let ProcState::Teaching {
            request: Some(id),
            ddoc,
        } = &proc.state
        {
            let row = ledger.request(*id);
            let wanted = row.and_then(|row| row.ddoc.as_ref());
            require!(
                wanted == Some(ddoc),
                "process {number} learns {ddoc:?} for {id:?}, which needs {wanted:?}"
            )?;
        }
    }
    Ok(())
}

pub(super) fn openings_are_owned(_: PoolId, pool: &Pool, ledger: &Ledger) -> Judgement {
    for (number, opening) in &pool.opening {
        let known = pool.procs.contains_key(number) || *number > ledger.last_number;
        require!(!known, "opening {number} is a process, or was never issued")?;
        if let Some(request) = opening.request {
            let row = ledger.request(request);
            let tenant = row.map(|row| pool.settings.wanted(row).tenant());
            require!(
                tenant == Some(opening.tenant.as_ref()),
                "opening {number} lacks the tag of {request:?}: {row:?}"
            )?;
        }
    }
    Ok(())
}

pub(super) fn queue_indexes_are_exact(pools: &Pools) -> Judgement {
    let rebuilt = Pool::rebuilt_waiters(&pools.pools, &pools.ledger);
    let mut pairs = numbered(pools).zip(rebuilt);
    pairs.try_for_each(|((id, pool), rebuilt)| {
        let found = &pool.waiters;
        require!(
            *found == rebuilt,
            "pool {}: {found:?} should be {rebuilt:?}",
            id.0
        )
    })
}

pub(super) fn uses_are_counted(id: PoolId, pool: &Pool, ledger: &Ledger) -> Judgement {
    let mut uses = BTreeMap::new();
    if pool.keeps_accounts() {
        for tenant in pool.uses(id, ledger) {
            *uses.entry(tenant).or_default() += 1;
        }
    }
    let counted: BTreeMap<_, u32> = pool.accounts.held().collect();
    require!(uses == counted, "{uses:?} are held, counted {counted:?}")
}

pub(super) fn tenants_are_counted(pools: &Pools) -> Judgement {
    let ledger = &pools.ledger;
    let rebuilt = ledger.tenants.rebuilt(&pools.pools, ledger);
    require!(
        ledger.tenants == rebuilt,
        "{:?} should be {rebuilt:?}",
        ledger.tenants
    )
}

pub(super) fn debts_hold_back(pools: &Pools) -> Judgement {
    let (now, tenants) = (pools.ledger.now, &pools.ledger.tenants);
    let shares = &tenants.shares;
    let rows = shares.accounts.iter();
    let order: BTreeSet<_> = rows
        .map(|(db, row)| (row.full_at, DbKey::clone(db)))
        .collect();
    require!(
        order == shares.order && order.len() <= ACCOUNTS_MAX,
        "the order should be {order:?}, is {:?}",
        shares.order
    )?;
    let mut next = None;
    for (full_at, db) in &order {
        // An account that takes longer than a window to fill is overdrawn.
        let missing = full_at.since(now).saturating_sub(WINDOW);
        let end = (!missing.is_zero()).then(|| now + missing);
        next = next.or(end);
        require!(
            shares.debt_end(db) == end,
            "{db} owes until {end:?}, recorded {:?}",
            shares.debt_end(db)
        )?;
        let tenant = Tenant::Database(DbKey::clone(db));
        require!(
            end.is_none() || tenants.is_held_back(&tenant),
            "{db} owes processor time and is not held back"
        )?;
    }
    require!(
        tenants.wake == next,
        "the first debt ends at {next:?}, recorded {:?}",
        tenants.wake
    )
}

pub(super) fn requests_are_known_everywhere(pools: &Pools) -> Judgement {
    let ledger = &pools.ledger;
    let rows = || ledger.requests.iter();
    let asked: BTreeSet<_> = rows().map(|(id, row)| (row.client, *id)).collect();
    require!(
        asked == ledger.asked,
        "open requests {asked:?}, asked {:?}",
        ledger.asked
    )?;
    let deadlines = rows().map(|(id, row)| (row.deadline, Due::Request(*id)));
    let timers = numbered(pools).flat_map(|(id, pool)| {
        let head = pool.head_until.map(|until| (until, Due::Head(id)));
        let wake = pool.life.wake.map(|until| (until, Due::Pool(id)));
        head.into_iter().chain(wake)
    });
    let debts = ledger.tenants.wake.map(|until| (until, Due::Debts));
    let places = ledger.ceiling.wake.map(|until| (until, Due::Places));
    let due: BTreeSet<_> = deadlines.chain(timers).chain(debts).chain(places).collect();
    require!(
        due == ledger.due,
        "due should be {due:?}, is {:?}",
        ledger.due
    )
}

pub(super) fn roaming_waiters_are_where_they_should_be(pools: &Pools) -> Judgement {
    let ledger = &pools.ledger;
    let rows = ledger.requests.iter();
    let queued = rows.filter(|(_, row)| row.place == RequestPlace::Queue);
    let mut roaming = Roaming::default();
    queued.for_each(|(id, row)| roaming.insert(*id, row));
    require!(
        roaming == ledger.roaming,
        "roaming should be {roaming:?}, is {:?}",
        ledger.roaming
    )?;
    for (id, _) in numbered(pools) {
        let found = pools.waiter_to_take_over(id);
        require!(
            found.is_none(),
            "pool {}: could serve {found:?}, which waits elsewhere",
            id.0
        )?;
    }
    Ok(())
}

pub(super) fn every_throttled_waiter_can_be_served(
    _: PoolId,
    pool: &Pool,
    ledger: &Ledger,
) -> Judgement {
    if !pool.life.throttle.until.is_on(ledger.now) {
        return Ok(());
    }
    let mut rows = pool.waiters.iter().filter_map(|id| ledger.request(id));
    let hopeless = rows.find(|row| pool.is_hopeless(row, ledger.now));
    require!(hopeless.is_none(), "{hopeless:?} waits for nothing")
}
