//! What must hold of requests: one place each, nobody forgotten, nobody kept waiting for nothing.

use std::collections::BTreeSet;

use super::{numbered, require, states};
use crate::pool::{Due, Place, PoolId, Pools, ProcState, Request, RequestId, choose};

pub(super) fn requests_are_in_one_place(pools: &Pools) -> Result<(), String> {
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

pub(super) fn nobody_waits_in_vain(pools: &Pools) -> Result<(), String> {
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
        let may_open = pool.may_open(now) && pools.ledger.ceiling.has_room();
        require(!servable(head) && !may_open, || {
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
        } else if !pool.has_slot() {
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

pub(super) fn teaching_is_owned(pools: &Pools) -> Result<(), String> {
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

pub(super) fn openings_are_owned(pools: &Pools) -> Result<(), String> {
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

pub(super) fn queue_indexes_are_exact(pools: &Pools) -> Result<(), String> {
    for (id, pool) in numbered(pools) {
        let rebuilt = pool.rebuilt_waiters(id, &pools.ledger);
        require(pool.waiters == rebuilt, || {
            format!("pool {}: {:?} should be {rebuilt:?}", id.0, pool.waiters)
        })?;
    }
    Ok(())
}

pub(super) fn requests_are_known_everywhere(pools: &Pools) -> Result<(), String> {
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

pub(super) fn roaming_waiters_are_where_they_should_be(pools: &Pools) -> Result<(), String> {
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

pub(super) fn nobody_hopes_in_vain(pools: &Pools) -> Result<(), String> {
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
