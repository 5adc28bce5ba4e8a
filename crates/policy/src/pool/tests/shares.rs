//! Shares of processor time: which tenants are held back, until when, and how long accounts are kept.

use super::*;

/// A share in thousandths of a core.
fn share(thousandths: u32) -> TenantRule {
    TenantRule {
        cpu_share: Some(thousandths),
        ..TenantRule::default()
    }
}

fn rules<const N: usize>(rules: [(&str, TenantRule); N]) -> Event {
    let rules = rules.map(|(name, rule)| (name.to_owned(), rule));
    let rules = Box::new(TenantRules::new(rules));
    Event::SetTenants { rules }
}

/// A pool of two processes; `big` may use half a core, so its bucket holds 30 s.
fn half_a_core() -> World {
    let mut world = World::named(named(2));
    world.on(rules([("big", share(500))]));
    world
}

fn charge(world: &mut World, name: &str, milliseconds: u64) {
    let (db, cost) = (name.into(), Duration::from_millis(milliseconds));
    world.on(Event::Charge { db, cost });
}

/// A request with a late deadline.
fn ask(world: &mut World, client: u64, name: &str) -> RequestId {
    let request = world.ask_within(client, plain(db(name)), Duration::from_secs(3600));
    world.run();
    request
}

/// How long a tenant is held back because of its share.
fn debt(world: &World, name: &str) -> Option<Duration> {
    let (bound, until) = world.pools.held_back_by(&db(name))?;
    assert_eq!(bound, TenantBound::CpuShare);
    until.map(|until| until.since(world.now))
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn only_a_tenant_in_debt_is_held_back_until_its_share_has_paid_off_the_debt() {
    let mut world = half_a_core();
    let lease = world.take(1, plain(db("big")));
    charge(&mut world, "big", 30_000);
    assert_eq!(debt(&world, "big"), None, "the bucket is empty");
    world.give_back(lease);
    let lease = world.take(2, plain(db("big")));
    charge(&mut world, "big", 5_000);
    assert_eq!(debt(&world, "big"), Some(10 * SECOND));
    assert!(world.pools.holds(lease.client, lease.proc, lease.token));
    world.give_back(lease);
    let waits = [3, 4].map(|client| (client, ask(&mut world, client, "big")));
    for client in 10..20 {
        let lease = world.take(client, plain(db("small")));
        world.give_back(lease);
    }
    assert_eq!((world.status().used, world.status().waiting), (0, 2));
    assert_eq!(
        world.status().longest_wait,
        Duration::ZERO,
        "debtors excluded"
    );
    let due = world.pools.next_deadline();
    assert_eq!(due, Some(world.now + 10 * SECOND));
    world.advance(10 * SECOND - Duration::from_nanos(1));
    assert_eq!(world.status().waiting, 2);
    world.advance(Duration::from_nanos(1));
    world.run();
    let leases = waits.map(|(client, request)| world.lease(request, client));
    assert!(leases.iter().all(Option::is_some), "{leases:?}");
    assert_eq!(debt(&world, "big"), None);
}

#[test]
fn a_tenant_out_of_debt_is_served_by_any_pool_of_its_group_ahead_of_debtors() {
    let group = GroupId(1);
    let settings = PoolSettings {
        group: Some(group),
        ..named(1)
    };
    let mut world = World::named(settings);
    let other = Target::Pool(world.add(settings));
    world.run();
    world.on(rules([("a", share(1000)), ("c", share(1000))]));
    let ask = |world: &mut World, client, target, name| {
        let request = world.ask_for(client, target, plain(db(name)), 3600 * SECOND);
        world.run();
        request
    };
    let first = Target::Pool(PoolId(0));
    ask(&mut world, 1, first, "b");
    let held = ask(&mut world, 2, other, "b");
    let held = world.lease(held, 2).expect("it is free");
    charge(&mut world, "a", 70_000);
    charge(&mut world, "c", 200_000);
    // The first pool has the shorter queue.
    for client in [3, 4] {
        ask(&mut world, client, other, "c");
    }
    let bound_to_first = ask(&mut world, 5, first, "a");
    let of_group = ask(&mut world, 6, Target::Group(group), "a");
    world.give_back(held);
    assert_eq!(world.last, [], "all waiters are in debt");
    world.advance(10 * SECOND);
    world.run();
    assert_eq!(world.lease(bound_to_first, 5), None);
    assert!(world.lease(of_group, 6).is_some());
}

#[test]
fn a_bucket_fills_at_the_tenants_share_and_holds_one_minute_of_it() {
    let mut world = half_a_core();
    charge(&mut world, "big", 30_000);
    world.advance(20 * SECOND);
    charge(&mut world, "big", 10_000);
    assert_eq!(debt(&world, "big"), None);
    world.advance(3600 * SECOND);
    charge(&mut world, "big", 30_000);
    assert_eq!(debt(&world, "big"), None);
    charge(&mut world, "big", 1);
    assert_eq!(debt(&world, "big"), Some(Duration::from_millis(2)));
}

#[test]
fn a_debt_is_paid_off_within_three_minutes() {
    let mut world = half_a_core();
    for _ in 0..2 {
        charge(&mut world, "big", 1_000_000_000);
        assert_eq!(debt(&world, "big"), Some(180 * SECOND));
    }
    world.advance(180 * SECOND);
    assert_eq!(debt(&world, "big"), None);
}

#[test]
fn an_idle_tenants_account_is_kept_until_it_is_full_and_then_dropped() {
    let mut world = half_a_core();
    let lease = world.take(1, plain(db("big")));
    charge(&mut world, "big", 31_000);
    world.give_back(lease);
    world.advance(SECOND);
    assert_eq!(debt(&world, "big"), Some(SECOND));
    world.advance(60 * SECOND);
    charge(&mut world, "other", 1);
    assert_eq!(world.pools.ledger.tenants.shares.accounts.len(), 1);
    world.on(rules([("*", share(500))]));
    world.advance(SECOND);
    charge(&mut world, "other", 1);
    let accounts = &world.pools.ledger.tenants.shares.accounts;
    assert!(accounts.keys().map(AsRef::as_ref).eq(["other"]));
    assert_eq!(world.pools.next_deadline(), None);
}

#[test]
fn no_account_is_kept_for_a_tenant_without_a_share() {
    let mut world = half_a_core();
    charge(&mut world, "small", 1_000_000);
    assert_eq!(debt(&world, "small"), None);
    assert!(world.pools.ledger.tenants.shares.accounts.is_empty());
}

#[test]
fn a_changed_share_keeps_the_bucket_up_to_its_new_size() {
    let mut world = half_a_core();
    charge(&mut world, "big", 32_000);
    let waits = ask(&mut world, 1, "big");
    // A debt of 2 s of CPU time. A share of 10 caps it at 1.8 s, which it pays off in 180 s.
    for (thousandths, seconds) in [(1000, 2), (100, 20), (10, 180), (500, 4)] {
        world.on(rules([("big", share(thousandths))]));
        let expected = Duration::from_secs(seconds);
        let left = debt(&world, "big").expect("in debt");
        let bounded = thousandths == 500;
        assert!(left == expected || bounded && left < expected, "{left:?}");
    }
    world.on(rules([]));
    world.run();
    assert!(world.lease(waits, 1).is_some(), "without a share");
    // 25 s are left of 30, but only 6 under a smaller share.
    world.on(rules([("big", share(500))]));
    charge(&mut world, "big", 5_000);
    world.on(rules([("big", share(100))]));
    charge(&mut world, "big", 6_000);
    assert_eq!(debt(&world, "big"), None);
    charge(&mut world, "big", 1);
    assert_eq!(debt(&world, "big"), Some(Duration::from_millis(10)));
}

#[test]
fn a_process_opened_before_the_debt_is_still_lent_and_processes_max_applies_as_well() {
    let mut world = World::with(limits(2, 2));
    let both = TenantRule {
        processes_max: Some(1),
        ..share(500)
    };
    world.on(rules([("big", both)]));
    let request = world.ask(1, plain(db("big")));
    charge(&mut world, "big", 31_000);
    assert_eq!(world.last, [], "it is being opened");
    let proc = ProcId {
        pool: PoolId(0),
        number: 1,
    };
    world.on(Event::SpawnOk { proc });
    let lease = world.lease(request, 1).expect("opened before the debt");
    let waits = ask(&mut world, 2, "big");
    world.give_back(lease);
    assert_eq!(world.lease(waits, 2), None);
    let lease = world.advance(2 * SECOND);
    assert_eq!(lease.len(), 1, "{lease:?}");
    ask(&mut world, 3, "big");
    let held_back = world.pools.held_back_by(&db("big"));
    assert_eq!(held_back, Some((TenantBound::ProcessesMax, None)));
}

#[test]
fn accounts_are_bounded_and_the_fullest_are_evicted_first() {
    let mut world = World::named(named(1));
    world.on(rules([("*", share(1000))]));
    world.check_every = 5_000;
    charge(&mut world, "deep", 100_000);
    for number in 0..ACCOUNTS_MAX as u64 + 10 {
        charge(&mut world, &format!("db{number}"), 1_000 + number);
    }
    let accounts = &world.pools.ledger.tenants.shares.accounts;
    assert_eq!(accounts.len(), ACCOUNTS_MAX);
    assert!(!accounts.contains_key("db0"));
    assert_eq!(debt(&world, "deep"), Some(40 * SECOND));
    // Debtors are evicted too if all are in debt.
    for number in 0..ACCOUNTS_MAX as u64 {
        charge(&mut world, &format!("db{number}"), 61_000 + number);
    }
    let waits = ask(&mut world, 1, "db10");
    assert_eq!(world.lease(waits, 1), None);
    for number in 0..20 {
        charge(&mut world, &format!("more{number}"), 200_000);
        world.run();
    }
    let (used, waiting) = (world.status().used, world.status().waiting);
    assert_eq!((used, waiting), (1, 0), "its account was evicted");
}
