//! The affinity wait: its benefit, which waiters may overtake, and when it ends.

use super::*;

const WAIT: Duration = Duration::from_millis(50);

fn patient(hard_limit: u32) -> Limits {
    Limits {
        hard_limit,
        soft_limit: 1,
        affinity_wait: WAIT,
    }
}

/// Limit 2: a held process of db1, and an idle one of db2.
fn one_held_one_idle(limits: Limits) -> (World, Lease, Lease) {
    let mut world = World::with(limits);
    let held = world.take(1, tagged("db1", "_design/1"));
    let idle = world.take(2, tagged("db2", "_design/1"));
    world.give_back(idle);
    (world, held, idle)
}

/// A request of a database, without a design document.
fn of(db: &str) -> Option<Affinity> {
    let tenant = Tenant::Database(db.into());
    Some(Affinity { tenant, ddoc: None })
}

#[test]
fn oldest_waiter_waits_for_its_own_database_before_it_reaps() {
    let (mut world, held, _) = one_held_one_idle(patient(2));
    let request = world.ask(3, tagged("db1", "_design/1"));
    assert_eq!(world.last, []);
    assert_eq!(world.pools.next_deadline(), Some(world.now + WAIT));
    world.give_back(held);
    world.run();
    assert_eq!(world.lease(request, 3).expect("served").proc, held.proc);
    assert_eq!(world.totals().stopped(StopReason::Reaped), 0);
}

#[test]
fn oldest_waiter_reaps_when_its_affinity_wait_is_over() {
    let (mut world, _, idle) = one_held_one_idle(patient(2));
    let request = world.ask(3, tagged("db1", "_design/1"));
    assert_eq!(world.advance(WAIT - Duration::from_nanos(1)), []);
    let actions = world.advance(Duration::from_nanos(1));
    assert_eq!(stopped(&actions), [(idle.proc, StopReason::Reaped)]);
    assert_eq!(opened(&actions)[0].1, Some(request));
}

#[test]
fn without_a_wait_the_oldest_waiter_reaps_at_once() {
    let (mut world, _, idle) = one_held_one_idle(limits(2, 1));
    world.ask(3, tagged("db1", "_design/1"));
    assert_eq!(stopped(&world.last), [(idle.proc, StopReason::Reaped)]);
}

#[test]
fn waiter_reaps_at_once_when_its_database_has_no_process() {
    let (mut world, _, idle) = one_held_one_idle(patient(2));
    world.ask(3, tagged("db3", "_design/1"));
    assert_eq!(stopped(&world.last), [(idle.proc, StopReason::Reaped)]);
}

#[test]
fn waiter_reaps_when_the_last_process_of_its_database_dies() {
    let (mut world, held, _) = one_held_one_idle(patient(2));
    let request = world.ask(3, tagged("db1", "_design/1"));
    let actions = world.on(Event::ProcExit { proc: held.proc });
    assert_eq!(opened(&actions)[0].1, Some(request));
}

#[test]
fn later_waiter_gets_a_process_that_the_oldest_cannot_use() {
    let (mut world, held, idle) = one_held_one_idle(patient(2));
    let oldest = world.ask(3, tagged("db1", "_design/1"));
    let later = world.ask(4, tagged("db2", "_design/1"));
    assert_eq!(world.lease(later, 4).expect("served").proc, idle.proc);
    world.give_back(held);
    assert_eq!(world.lease(oldest, 3).expect("served").proc, held.proc);
}

#[test]
fn later_waiter_without_a_design_document_gets_only_a_process_of_its_own_database() {
    let (mut world, _, idle) = one_held_one_idle(patient(2));
    world.ask(3, tagged("db1", "_design/1"));
    for other in [None, of("db3")] {
        let later = world.ask(4, other);
        assert_eq!(world.lease(later, 4), None);
    }
    let later = world.ask(5, of("db2"));
    assert_eq!(world.lease(later, 5).expect("served").proc, idle.proc);
}

#[test]
fn oldest_waiter_that_may_overtake_is_served() {
    let mut world = World::with(patient(2));
    let one = world.take(1, tagged("db1", "_design/1"));
    let two = world.take(2, tagged("db2", "_design/1"));
    world.ask(3, tagged("db1", "_design/1"));
    let third = world.ask(4, tagged("db3", "_design/1"));
    let plain = world.ask(5, of("db2"));
    let same = world.ask(6, tagged("db2", "_design/1"));
    world.give_back(two);
    let lease = world.lease(plain, 5).expect("the older one");
    assert_eq!(lease.proc, two.proc);
    world.give_back(lease);
    assert_eq!(world.lease(same, 6).expect("the next").proc, two.proc);
    assert_eq!(world.lease(third, 4), None);
    assert!(world.pools.holds(one.client, one.proc, one.token));
}

#[test]
fn no_later_waiter_gets_a_process_that_the_oldest_can_use() {
    let (mut world, held, _) = one_held_one_idle(patient(2));
    let oldest = world.ask(3, tagged("db1", "_design/1"));
    let other = world.ask(4, None);
    let same = world.ask(5, tagged("db1", "_design/1"));
    let untagged = world.ask(6, None);
    world.give_back(held);
    assert_eq!(world.lease(oldest, 3).expect("served").proc, held.proc);
    for (request, client) in [(other, 4), (same, 5), (untagged, 6)] {
        assert_eq!(world.lease(request, client), None);
    }
}

#[test]
fn waiter_is_not_overtaken_after_its_affinity_wait() {
    let mut world = World::with(patient(2));
    world.take(1, tagged("db1", "_design/1"));
    let two = world.take(2, tagged("db2", "_design/1"));
    let oldest = world.ask(3, tagged("db1", "_design/1"));
    world.advance(WAIT);
    let later = world.ask(4, tagged("db2", "_design/1"));
    let actions = world.give_back(two);
    assert_eq!(stopped(&actions), [(two.proc, StopReason::Reaped)]);
    assert_eq!(opened(&actions)[0].1, Some(oldest));
    assert_eq!(world.lease(later, 4), None);
}

#[test]
fn changed_affinity_wait_applies_to_current_waiters() {
    let (mut world, _, idle) = one_held_one_idle(patient(2));
    world.ask(3, tagged("db1", "_design/1"));
    let actions = world.limit(limits(2, 1));
    assert_eq!(stopped(&actions), [(idle.proc, StopReason::Reaped)]);
}

/// The load that made the reference start 330 processes in 1.5 s: calls of random functions of twenty databases, with
/// slightly more concurrent calls than the limit of a hundred. Returns the totals of 500 calls.
fn many_databases_at_the_limit(affinity_wait: Duration) -> PoolTotals {
    let mut world = World::with(Limits {
        affinity_wait,
        ..limits(100, 100)
    });
    let mut held: Vec<Lease> = Vec::new();
    let mut waiting: Vec<(RequestId, u64)> = Vec::new();
    let mut random = 7_u64;
    let mut below = |bound: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % bound
    };
    for _ in 0..500 {
        while held.len() + waiting.len() < 105 {
            let db = format!("db{}", below(20));
            let ddoc = format!("_design/{}", below(5));
            let client = world.next_request;
            let request = world.ask(client, tagged(&db, &ddoc));
            waiting.push((request, client));
            world.run();
            note_leases(&world, &mut waiting, &mut held);
        }
        world.now = world.now + Duration::from_micros(100);
        let lease = held.swap_remove(below(held.len()));
        world.give_back(lease);
        world.run();
        note_leases(&world, &mut waiting, &mut held);
    }
    world.totals()
}

#[test]
fn many_databases_at_the_limit_do_not_cause_process_churn() {
    let reference = many_databases_at_the_limit(Duration::ZERO);
    let ours = many_databases_at_the_limit(WAIT);
    println!(
        "started: {} with the wait, {} without",
        ours.started, reference.started
    );
    assert_eq!((ours.timed_out, reference.timed_out), (0, 0));
    assert!(reference.started > 3 * ours.started);
}

fn note_leases(world: &World, waiting: &mut Vec<(RequestId, u64)>, held: &mut Vec<Lease>) {
    waiting.retain(|&(request, client)| match world.lease(request, client) {
        Some(lease) => {
            held.push(lease);
            false
        }
        None => true,
    });
}
