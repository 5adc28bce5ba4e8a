//! Every violated invariant is detected.
//!
//! SUMMARY   Tables are corrupted by hand, once for each invariant of the core.

use super::*;
use crate::invariants::Invariant;

/// A pool of limit 4 with one of each: an idle process (1), a held one (2), a learning one (3), one being opened (4),
/// and a waiter.
fn one_of_everything() -> World {
    let mut world = World::new(4, 4);
    let idle = world.take(1, tagged("a", "_design/1"));
    world.take(2, tagged("b", "_design/1"));
    world.give_back(idle);
    world.ask(3, tagged("c", "_design/1"));
    let (learning, _) = opened(&world.last)[0];
    world.ask(4, tagged("d", "_design/1"));
    world.on(Event::SpawnOk { proc: learning });
    world.limit(Limits {
        affinity_wait: PATIENCE,
        ..limits(4, 4)
    });
    world.ask(5, tagged("b", "_design/2"));
    assert_eq!(world.last, []);
    assert_eq!(world.status().waiting, 1);
    world
}

/// Requires that the invariant holds before the tables are corrupted and is violated afterwards.
fn violates(id: Invariant, spoil: impl FnOnce(&mut Pools)) {
    let mut world = one_of_everything();
    assert_eq!(id.check(&world.pools), Ok(()), "{id} before");
    spoil(&mut world.pools);
    assert!(id.check(&world.pools).is_err(), "{id} after");
    let mut all = violations(&world.pools);
    let violation = all.find(|violation| violation.id == id);
    let violation = violation.expect("it is among all violations").to_string();
    assert!(violation.starts_with("PM-"), "{violation}");
}

fn proc(pools: &mut Pools, number: u64) -> &mut Proc {
    let row = pools.pools[0].procs.get_mut(&number);
    row.expect("the world has this process")
}

#[test]
fn wrong_count_is_found() {
    violates(Invariant::Pm1, |pools| pools.pools[0].count_max = 3);
}

#[test]
fn wrong_idle_index_is_found() {
    violates(Invariant::Pm2, |pools| {
        pools.pools[0].idle = Default::default()
    });
    violates(Invariant::Pm2, |pools| proc(pools, 2).ddocs.clear());
}

#[test]
fn wrong_assignment_is_found() {
    violates(Invariant::Pm3, |pools| pools.ledger.held.clear());
    violates(Invariant::Pm3, |pools| pools.ledger.last_token = Token(0));
}

#[test]
fn request_in_two_places_or_none_is_found() {
    violates(Invariant::Pm4, |pools| {
        pools.pools[0].waiters = Default::default()
    });
    violates(Invariant::Pm4, |pools| {
        let waiter = pools.pools[0].next_waiter();
        let opening = pools.pools[0].opening.values_mut().next();
        opening.expect("one is being opened").request = waiter;
    });
}

#[test]
fn waiter_that_could_be_served_is_found() {
    violates(Invariant::Pm5, |pools| {
        pools.pools[0].settings.limits.hard_limit = 5
    });
    violates(Invariant::Pm5, |pools| pools.pools[0].head_until = None);
    violates(Invariant::Pm5, |pools| {
        pools.ledger.now = pools.ledger.now + PATIENCE
    });
}

#[test]
fn process_learning_the_wrong_document_is_found() {
    violates(Invariant::Pm6, |pools| {
        let ProcState::Teaching { ddoc, .. } = &mut proc(pools, 3).state else {
            panic!("process 3 is not learning");
        };
        ddoc.text = "other".into();
    });
}

#[test]
fn opening_for_another_database_than_its_request_is_found() {
    violates(Invariant::Pm7, |pools| {
        let opening = pools.pools[0].opening.values_mut().next();
        opening.expect("one is being opened").tenant = None;
    });
}

#[test]
fn process_that_changes_its_database_is_found() {
    violates(Invariant::Pm8, |pools| {
        proc(pools, 3).tenant = Some(db("other"))
    });
}

#[test]
fn wrong_queue_index_is_found() {
    violates(Invariant::Pm11, |pools| {
        pools.pools[0].waiters = Default::default()
    });
}

#[test]
fn wrong_count_of_a_tenants_loans_is_found() {
    violates(Invariant::Pm25, |pools| {
        pools.pools[0].settings.fairness = Fairness::PerDb
    });
}

#[test]
fn wrong_count_of_a_tenants_processes_is_found() {
    violates(Invariant::Pm26, |pools| {
        let rules = TenantRules::new([("*".to_owned(), TenantRule::default())]);
        let mut out = Vec::new();
        let rules = Box::new(rules);
        pools.handle(Event::SetTenants { rules }, Timestamp::ZERO, &mut out);
        pools
            .ledger
            .requests
            .values_mut()
            .for_each(|row| row.tenant = db("other"));
    });
}

#[test]
fn wrong_account_of_processor_time_is_found() {
    let violates = |spoil: fn(&mut Pools)| {
        violates(Invariant::Pm27, |pools| {
            let rule = TenantRule {
                cpu_share: Some(1000),
                ..TenantRule::default()
            };
            let rules = Box::new(TenantRules::new([("*".to_owned(), rule)]));
            let (db, cost) = ("b".into(), Duration::from_secs(70));
            let (now, mut out) = (pools.ledger.now, Vec::new());
            for event in [Event::SetTenants { rules }, Event::Charge { db, cost }] {
                pools.handle(event, now, &mut out);
            }
            assert_eq!(Invariant::Pm27.check(pools), Ok(()));
            spoil(pools);
        });
    };
    violates(|pools| pools.ledger.tenants.wake = None);
    violates(|pools| pools.ledger.tenants.shares.order.clear());
    violates(|pools| pools.ledger.now = pools.ledger.now + Duration::from_secs(10));
}

#[test]
fn request_without_a_deadline_or_a_client_is_found() {
    violates(Invariant::Pm12, |pools| pools.ledger.due.clear());
    violates(Invariant::Pm12, |pools| pools.ledger.asked.clear());
}

#[test]
fn idle_process_that_is_stale_or_too_many_is_found() {
    violates(Invariant::Pm13, |pools| pools.ledger.threshold = 1);
    violates(Invariant::Pm13, |pools| {
        pools.pools[0].settings.limits.hard_limit = 3
    });
}

#[test]
fn process_left_in_transition_is_found() {
    violates(Invariant::Pm14, |pools| {
        proc(pools, 2).state = ProcState::Transitioning
    });
}

#[test]
fn process_both_stopping_and_in_use_is_found() {
    violates(Invariant::Pm15, |pools| {
        pools.pools[0].stopping.insert(2);
    });
}

#[test]
fn leftovers_of_a_shutdown_are_found() {
    violates(Invariant::Pm16, |pools| pools.ledger.shutting_down = true);
}

#[test]
fn every_invariant_has_a_sentence_and_every_core_invariant_a_predicate() {
    for (number, id) in (1..).zip(Invariant::ALL) {
        assert_eq!(id.to_string(), format!("PM-{number}"));
        assert!(!id.sentence().is_empty());
        let of_the_actors = matches!(id, Invariant::Pm9 | Invariant::Pm10);
        assert_eq!(id.is_judged_on_tables(), !of_the_actors);
    }
}

/// A named pool with an aging idle process (1) and one held by a bulk client (2); and a pool of another group with a
/// held process (3) and a waiter of that group.
fn named_pools() -> World {
    let in_group = PoolSettings {
        group: Some(GroupId(1)),
        interactive_reserved: 1,
        recycle: Recycle {
            max_age: Some(Duration::from_secs(3600)),
            ..Recycle::default()
        },
        ..named(3)
    };
    let mut world = World::empty();
    world.add(in_group);
    let leases = [Lane::Interactive, Lane::Bulk].map(|lane| {
        let request = world.ask_in(lane, 1, Target::Pool(PoolId(0)), None, PATIENCE);
        world.run();
        world.lease(request, 1).expect("served")
    });
    let alone = PoolSettings {
        interactive_reserved: 0,
        recycle: Recycle::default(),
        limits: limits(1, 1),
        group: Some(GroupId(2)),
        ..in_group
    };
    world.add(alone);
    for client in [2, 3] {
        world.ask_of(client, Target::Group(GroupId(2)));
        world.run();
    }
    world.give_back(leases[0]);
    assert_eq!(world.pools.status(PoolId(1), world.now).waiting, 1);
    world
}

/// Corrupts the tables of named pools and requires that this invariant is violated.
fn violates_named(id: Invariant, spoil: impl FnOnce(&mut Pools)) {
    let mut world = named_pools();
    assert_eq!(id.check(&world.pools), Ok(()), "{id} before");
    spoil(&mut world.pools);
    assert!(id.check(&world.pools).is_err(), "{id} after");
}

#[test]
fn pool_below_init_size_or_min_free_is_found() {
    violates_named(Invariant::Pm17, |pools| {
        pools.pools[0].settings.init_size = 3
    });
    violates_named(Invariant::Pm17, |pools| {
        pools.pools[0].settings.min_free = 2
    });
}

#[test]
fn wrong_count_of_the_bulk_lane_is_found() {
    violates_named(Invariant::Pm18, |pools| pools.pools[0].bulk = 0);
    violates_named(Invariant::Pm18, |pools| {
        pools.pools[0].bulk += 1;
        proc(pools, 1).bulk = true;
    });
}

#[test]
fn waiter_that_another_pool_of_its_group_could_serve_is_found() {
    violates_named(Invariant::Pm19, |pools| {
        pools.pools[0].settings.group = Some(GroupId(2))
    });
    violates_named(Invariant::Pm19, |pools| {
        pools.ledger.roaming = Default::default()
    });
}

#[test]
fn removed_pool_with_idle_processes_or_waiters_is_found() {
    violates_named(Invariant::Pm20, |pools| {
        pools.pools[0].life.removing = Some(RemoveMode::Graceful)
    });
    violates_named(Invariant::Pm20, |pools| {
        pools.pools[1].life.removing = Some(RemoveMode::Graceful)
    });
}

#[test]
fn wrong_age_index_is_found() {
    violates_named(Invariant::Pm21, |pools| pools.pools[0].life.ages.clear());
    violates_named(Invariant::Pm21, |pools| {
        pools.pools[0].life.ages.insert((Timestamp::ZERO, 99));
    });
}

#[test]
fn waiter_that_a_throttled_pool_cannot_serve_is_found() {
    violates_named(Invariant::Pm22, |pools| {
        let pool = &mut pools.pools[1];
        let settings = pool.settings.throttle.expect("named pools have one");
        pool.life.throttle.begin(pools.ledger.now, &settings);
        pool.procs.clear();
        pool.idle = Default::default();
    });
}

/// A process held for a client (1), one held for a database (2), and an idle one without a tenant (3).
fn apart() -> World {
    let mut world = World::with(PoolSettings {
        reuse: Reuse::Database,
        ..PoolSettings::from(limits(3, 3))
    });
    world.take(1, None);
    world.take(2, tagged("a", "_design/1"));
    let third = world.ask(3, None);
    world.down(3, true);
    world.on(Event::SpawnOk {
        proc: ProcId {
            pool: PoolId(0),
            number: 3,
        },
    });
    assert_eq!(world.lease(third, 3), None);
    assert_eq!(world.status().free, 1);
    world
}

#[test]
fn process_shared_between_tenants_is_found() {
    let id = Invariant::Pm24;
    let violates = |spoil: fn(&mut Pools)| {
        let mut world = apart();
        assert_eq!(id.check(&world.pools), Ok(()), "{id} before");
        spoil(&mut world.pools);
        assert!(id.check(&world.pools).is_err(), "{id} after");
    };
    violates(|pools| proc(pools, 2).tenant = None);
    violates(|pools| proc(pools, 3).has_served = true);
    violates(|pools| proc(pools, 1).tenant = Some(Tenant::Client(ClientId(9))));
    violates(|pools| proc(pools, 3).tenant = Some(Tenant::Client(ClientId(9))));
    violates(|pools| pools.ledger.owned.clear());
}

#[test]
fn wrong_count_of_processes_under_the_ceiling_is_found() {
    violates_named(Invariant::Pm23, |pools| pools.ledger.ceiling.live += 1);
}

#[test]
fn waiter_for_a_place_without_a_timer_is_found() {
    let mut world = World::empty();
    world.on(Event::SetCeiling { max: Some(1) });
    for pool in 0..2 {
        world.add(named(1));
        let request = world.ask_of(1, Target::Pool(PoolId(pool)));
        world.run();
        let lease = world.lease(request, 1);
        lease.map(|lease| world.give_back(lease));
    }
    assert_eq!(Invariant::Pm23.check(&world.pools), Ok(()));
    let pools = &mut world.pools;
    pools.ledger.set_places_timer(None);
    assert!(Invariant::Pm23.check(pools).is_err());
}
