//! The fifteen cases of CouchDB's pool suite, at the level of decisions.
//!
//! SOURCE    The suite that came with couch_proc_manager 001: hard limit 3, soft limit 2.
//! LIMITS    Case 15, an unknown language, is refused before it reaches the pools.

use super::*;

#[test]
fn full_pool_blocks() {
    let mut world = World::new(3, 2);
    let first = world.take(1, None);
    let second = world.take(2, None);
    let third = world.take(3, None);
    assert!(first.proc != second.proc && second.proc != third.proc && first.proc != third.proc);

    let fourth = world.ask(4, None);
    assert_eq!(world.last, []);
    let actions = world.give_back(first);
    let lease = world.lease(fourth, 4).expect("the fourth is next");
    assert_eq!(lease.proc, first.proc);
    assert_ne!(lease.token, first.token);
    assert_eq!(actions.len(), 1);
}

#[test]
fn process_of_a_crashed_client_serves_the_next_one() {
    let mut world = World::new(3, 2);
    let first = world.take(1, None);
    world.take(2, None);
    world.take(3, None);
    let fourth = world.ask(4, None);
    let reset = world.on(Event::ClientDown {
        client: ClientId(1),
        normal: false,
        conditions: vec![(first.proc, Condition::NeedsReset)],
    });
    assert_eq!(reset, [PoolAction::Reset { proc: first.proc }]);
    world.run();
    let lease = world.lease(fourth, 4).expect("the fourth is next");
    assert_eq!(lease.proc, first.proc);
}

#[test]
fn known_process_is_reused() {
    let mut world = World::new(3, 2);
    let first = world.take(1, tagged("db", "_design/1"));
    let second = world.take(2, tagged("db", "_design/2"));
    assert_ne!(first.proc, second.proc);
    world.give_back(first);
    world.give_back(second);
    let again = world.take(3, tagged("db", "_design/1"));
    assert_eq!(again.proc, first.proc);
}

#[test]
fn waiters_are_served_first_in_first_out() {
    let mut world = World::new(3, 2);
    let first = world.take(1, tagged("db", "_design/1"));
    world.take(2, tagged("db", "_design/2"));
    world.take(3, tagged("db", "_design/3"));
    let fourth = world.ask(4, tagged("db", "_design/4"));
    let fifth = world.ask(5, tagged("db", "_design/5"));
    world.give_back(first);
    world.run();
    let lease = world.lease(fourth, 4).expect("the fourth is next");
    assert_eq!(lease.proc, first.proc);
    assert_eq!(world.lease(fifth, 5), None);
    assert_eq!(world.status().waiting, 1);
}

#[test]
fn idle_untagged_processes_shrink_to_one_below_the_soft_limit() {
    let mut world = World::new(3, 2);
    let leases: Vec<Lease> = (1..=3).map(|client| world.take(client, None)).collect();
    for lease in &leases {
        world.give_back(*lease);
    }
    for lease in &leases {
        world.on(Event::OsProcIdle { proc: lease.proc });
        world.run();
    }
    assert_eq!(world.pools.proc_count(), 1);
    assert_eq!(world.status().procs[0].proc, leases[2].proc);
}

#[test]
fn idle_tagged_processes_shrink_to_none() {
    let mut world = World::new(3, 2);
    let leases: Vec<Lease> = (1..=3)
        .map(|client| world.take(client, tagged("db", &format!("_design/{client}"))))
        .collect();
    for lease in &leases {
        world.give_back(*lease);
    }
    for lease in &leases {
        let actions = world.on(Event::OsProcIdle { proc: lease.proc });
        assert_eq!(stopped(&actions), [(lease.proc, StopReason::Idle)]);
    }
    assert_eq!(world.pools.proc_count(), 0);
}

#[test]
fn broken_process_is_not_pooled() {
    let mut world = World::new(1, 1);
    let broken = world.take(1, tagged("db", "_design/bad"));
    assert_eq!(world.pools.proc_count(), 1);
    let actions = world.give_back_as(broken, ReturnStatus::Fail, Condition::Clean);
    assert_eq!(stopped(&actions), [(broken.proc, StopReason::Failed)]);
    assert_eq!(world.pools.proc_count(), 0);
    let fresh = world.take(1, tagged("db", "_design/good"));
    assert_ne!(fresh.proc, broken.proc);
}

#[test]
fn oldest_tagged_process_is_reaped() {
    let mut world = World::new(3, 2);
    let leases: Vec<Lease> = (1..=3)
        .map(|client| world.take(client, tagged(&format!("db{client}"), "_design/1")))
        .collect();
    for lease in &leases {
        world.advance(Duration::from_millis(1));
        world.give_back(*lease);
    }
    let fourth = world.take(4, tagged("db4", "_design/1"));
    let reaped = [(leases[0].proc, StopReason::Reaped)];
    assert_eq!(stopped(&world.last), reaped);
    assert!(leases.iter().all(|lease| lease.proc != fourth.proc));
}

#[test]
fn untagged_process_is_replenished() {
    let mut world = World::new(3, 2);
    let first = world.take(1, None);
    let second = world.take(2, None);
    world.give_back(first);
    world.give_back(second);
    let third = world.take(3, tagged("db", "_design/1"));
    assert_eq!(third.proc, second.proc);
    assert_eq!(opened(&world.last).len(), 1);
    assert_eq!(opened(&world.last)[0].1, None);
    assert_eq!(world.status().free, 2);
    assert_eq!(world.status().free_tagged, 0);
}

#[test]
fn exact_ddoc_is_first_choice() {
    let mut world = World::new(3, 2);
    let first = world.take(1, tagged("db", "_design/1"));
    let second = world.take(2, tagged("db", "_design/2"));
    world.give_back(first);
    world.give_back(second);
    let request = world.ask(3, tagged("db", "_design/1"));
    let lease = world.lease(request, 3).expect("served at once");
    assert_eq!(lease.proc, first.proc);
}

#[test]
fn db_tagged_process_is_second_choice() {
    let mut world = World::new(3, 2);
    let first = world.take(1, tagged("db1", "_design/1"));
    let second = world.take(2, tagged("db2", "_design/2"));
    world.give_back(first);
    world.give_back(second);
    let third = world.take(3, tagged("db1", "_design/3"));
    assert_eq!(third.proc, first.proc);
    assert_eq!(world.status().procs[0].ddocs, 2);
}

#[test]
fn process_of_another_database_is_never_chosen() {
    let mut world = World::new(3, 2);
    let first = world.take(1, tagged("db1", "_design/1"));
    let second = world.take(2, tagged("db2", "_design/1"));
    world.give_back(first);
    world.give_back(second);
    let third = world.take(3, tagged("db3", "_design/1"));
    assert!(third.proc != first.proc && third.proc != second.proc);
    assert_eq!(world.status().free_tagged, 2);
    world.give_back(third);
    assert_eq!(world.status().free_tagged, 3);
}

#[test]
fn a_request_without_db_tag_reuses_the_process_that_knows_its_ddoc_and_leaves_it_untagged() {
    let mut world = World::new(3, 2);
    let first = world.take(1, affinity(None, "_design/1", "1-a"));
    let second = world.take(2, affinity(None, "_design/2", "1-a"));
    world.give_back(first);
    world.give_back(second);
    assert_eq!((world.status().free, world.status().free_tagged), (2, 0));
    let request = world.ask(3, affinity(None, "_design/1", "1-a"));
    let lease = world.lease(request, 3).expect("served at once");
    assert_eq!(lease.proc, first.proc);
    world.give_back(lease);
    assert_eq!((world.status().free, world.status().free_tagged), (2, 0));
}

#[test]
fn stale_processes_stop_on_return() {
    let mut world = World::new(3, 2);
    let first = world.take(1, tagged("db", "_design/1"));
    let second = world.take(2, tagged("db", "_design/2"));
    assert_eq!(world.pools.stale_proc_count(), 0);
    world.on(Event::SetThresholdTs);
    assert_eq!(world.pools.stale_proc_count(), 2);
    let actions = world.give_back(first);
    assert_eq!(stopped(&actions), [(first.proc, StopReason::Stale)]);
    world.give_back(second);
    assert_eq!(world.status().free, 0);
    assert_eq!(world.pools.proc_count(), 0);
}
