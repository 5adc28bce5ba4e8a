//! Named pools: sizes, queues, borrowing and returning.
//!
//! SOURCE    pidq: init_size, min_free, max, a consumer's processes, LIFO reuse.

use super::*;

const POOL: PoolId = PoolId(0);

#[test]
fn pool_starts_init_size_processes_when_it_is_added() {
    let mut world = World::empty();
    let pool = world.add(PoolSettings {
        init_size: 3,
        ..named(5)
    });
    assert_eq!(opened(&world.last).len(), 3);
    assert!(
        opened(&world.last)
            .iter()
            .all(|(_, request)| request.is_none())
    );
    world.run();
    assert_eq!(world.counts(pool), (0, 3, 0));
}

#[test]
fn every_take_opens_processes_up_to_min_free_in_the_background() {
    let mut world = World::named(PoolSettings {
        min_free: 2,
        ..named(10)
    });
    for taken in 1..=8 {
        let request = world.ask(taken, None);
        assert!(
            world.lease(request, taken).is_some(),
            "served without waiting"
        );
        assert_eq!(opened(&world.last).len(), 1);
        world.run();
        assert_eq!(world.counts(POOL), (taken as u32, 2, 0));
    }
}

#[test]
fn min_free_never_opens_beyond_max() {
    let mut world = World::named(PoolSettings {
        min_free: 2,
        ..named(3)
    });
    for client in 1..=3 {
        world.take(client, None);
        assert!(world.pools.proc_count() <= 3);
    }
    world.run();
    assert_eq!(world.counts(POOL), (3, 0, 0));
}

#[test]
fn used_free_and_opening_never_exceed_max() {
    let mut world = World::named(named(2));
    for client in 1..=5 {
        world.ask(client, None);
    }
    assert_eq!(world.counts(POOL), (0, 0, 2));
    world.run();
    assert_eq!(world.status().waiting, 3);
}

#[test]
fn waiters_beyond_queue_max_are_refused_at_once_with_pool_busy() {
    let mut world = World::named(PoolSettings {
        queue_max: Some(1),
        ..named(1)
    });
    let lease = world.take(1, None);
    let waiter = world.ask(2, None);
    assert_eq!(world.last, []);
    let refused = world.ask(3, None);
    assert_eq!(world.refusal(refused), Some(Refusal::PoolBusy));
    assert_eq!(world.totals().busy, 1);
    world.give_back(lease);
    assert!(world.lease(waiter, 2).is_some());
}

#[test]
fn queue_max_of_zero_serves_requests_that_can_be_served_at_once() {
    let mut world = World::named(PoolSettings {
        queue_max: Some(0),
        ..named(1)
    });
    let lease = world.take(1, None);
    let refused = world.ask(2, None);
    assert_eq!(world.refusal(refused), Some(Refusal::PoolBusy));
    world.give_back(lease);
    world.take(3, None);
}

#[test]
fn most_recently_returned_process_is_reused_first() {
    let mut world = World::named(named(3));
    let leases: Vec<Lease> = (1..=3).map(|client| world.take(client, None)).collect();
    for at in [2, 0, 1] {
        world.give_back(leases[at]);
    }
    for at in [1, 0, 2] {
        assert_eq!(world.take(4, None).proc, leases[at].proc);
    }
}

#[test]
fn lightly_used_pool_keeps_using_one_process() {
    let mut world = World::named(PoolSettings {
        init_size: 4,
        ..named(4)
    });
    for client in 1..=20 {
        let lease = world.take(client, None);
        world.give_back(lease);
    }
    let uses: Vec<u64> = world.status().procs.iter().map(|proc| proc.uses).collect();
    assert_eq!(uses.iter().filter(|uses| **uses > 0).count(), 1, "{uses:?}");
}

#[test]
fn most_recently_returned_process_of_a_database_is_reused_first_too() {
    let mut world = World::named(named(2));
    let one = world.take(1, tagged("db", "_design/1"));
    let two = world.take(2, tagged("db", "_design/1"));
    world.give_back(two);
    world.give_back(one);
    assert_eq!(world.take(3, tagged("db", "_design/1")).proc, one.proc);
}

#[test]
fn processes_of_a_client_that_ends_normally_are_returned_ok() {
    let mut world = World::named(named(3));
    let leases: Vec<Lease> = (0..2).map(|_| world.take(1, None)).collect();
    let actions = world.down(1, true);
    let resets = leases
        .iter()
        .map(|lease| PoolAction::Reset { proc: lease.proc });
    assert_eq!(actions, resets.collect::<Vec<_>>());
    world.run();
    assert_eq!(world.counts(POOL), (0, 2, 0));
    assert_eq!((world.totals().returned, world.totals().taken_back), (2, 0));
}

#[test]
fn each_process_of_a_crashed_client_is_replaced_exactly_once() {
    let mut world = World::named(named(20));
    let leases: Vec<Lease> = (0..2).map(|_| world.take(1, None)).collect();
    let other = world.take(2, None);
    let actions = world.down(1, false);
    let gone = leases
        .iter()
        .map(|lease| (lease.proc, StopReason::ClientCrashed));
    assert_eq!(stopped(&actions), gone.collect::<Vec<_>>());
    assert_eq!(opened(&actions).len(), 2);
    world.run();
    assert_eq!(world.counts(POOL), (1, 2, 0));
    assert_eq!(world.down(1, false), []);
    assert_eq!(world.totals().taken_back, 2);
    assert!(world.pools.holds(other.client, other.proc, other.token));
}

#[test]
fn replacements_beyond_a_reap_batch_wait_until_destroyed_processes_have_ended() {
    let mut world = World::named(named(3));
    for _ in 0..3 {
        world.take(1, None);
    }
    let actions = world.down(1, false);
    let gone = stopped(&actions);
    assert_eq!((gone.len(), opened(&actions).len()), (3, 1));
    for (proc, _) in &gone[..2] {
        assert_eq!(opened(&world.exit(*proc)).len(), 1);
    }
    assert_eq!(world.exit(gone[2].0), []);
    assert_eq!(world.pools.proc_count(), 3);
}

#[test]
fn process_of_a_crashed_client_is_reset_and_kept_with_on_client_crash_return() {
    let mut world = World::named(PoolSettings {
        on_client_crash: OnClientCrash::Return,
        ..named(1)
    });
    let lease = world.take(1, None);
    let actions = world.down(1, false);
    assert_eq!(actions, [PoolAction::Reset { proc: lease.proc }]);
    world.run();
    assert_eq!(world.take(2, None).proc, lease.proc);
}

#[test]
fn replacement_of_a_crashed_clients_process_serves_the_waiter() {
    let mut world = World::named(named(1));
    world.take(1, None);
    let waiter = world.ask(2, None);
    let actions = world.down(1, false);
    assert_eq!(opened(&actions).len(), 1);
    assert_eq!(opened(&actions)[0].1, Some(waiter));
}

#[test]
fn returning_fail_destroys_the_process_and_opens_a_replacement() {
    let mut world = World::named(named(2));
    let lease = world.take(1, None);
    let actions = world.give_back_as(lease, ReturnStatus::Fail, Condition::Clean);
    assert_eq!(stopped(&actions), [(lease.proc, StopReason::Failed)]);
    assert_eq!(opened(&actions).len(), 1);
    world.run();
    assert_eq!(world.counts(POOL), (0, 1, 0));
}

#[test]
fn return_by_a_client_that_does_not_hold_the_process_changes_nothing() {
    let mut world = World::named(named(2));
    let lease = world.take(1, None);
    let other = Lease {
        client: ClientId(2),
        ..lease
    };
    assert_eq!(world.give_back(other), []);
    assert!(!world.pools.holds(other.client, other.proc, other.token));
    assert!(world.pools.holds(lease.client, lease.proc, lease.token));
}

#[test]
fn client_may_hold_several_processes_and_return_them_in_any_order() {
    let mut world = World::named(named(3));
    let leases: Vec<Lease> = (0..3).map(|_| world.take(1, None)).collect();
    assert_eq!(world.pools.held_by(ClientId(1)).len(), 3);
    for at in [1, 2, 0] {
        world.give_back(leases[at]);
    }
    assert_eq!(world.pools.held_by(ClientId(1)), []);
    assert_eq!(world.counts(POOL), (0, 3, 0));
}

#[test]
fn process_that_dies_is_replaced_when_the_pool_falls_below_init_size_or_min_free() {
    for (init_size, min_free) in [(2, 0), (0, 2)] {
        let mut world = World::named(PoolSettings {
            init_size,
            min_free,
            ..named(5)
        });
        let lease = world.take(1, None);
        world.give_back(lease);
        let before = world.pools.proc_count();
        let actions = world.exit(lease.proc);
        assert_eq!(opened(&actions).len() as u32, 2 - (before - 1).min(2));
        world.run();
        assert!(world.pools.proc_count() >= 2);
    }
}

#[test]
fn process_that_dies_above_init_size_and_min_free_is_not_replaced() {
    let mut world = World::named(PoolSettings {
        init_size: 1,
        ..named(5)
    });
    let leases: Vec<Lease> = (1..=3).map(|client| world.take(client, None)).collect();
    for lease in &leases {
        world.give_back(*lease);
    }
    assert_eq!(world.exit(leases[0].proc), []);
}

#[test]
fn idle_processes_are_not_stopped_below_init_size_or_min_free() {
    for (init_size, min_free) in [(2, 0), (0, 2)] {
        let mut world = World::named(PoolSettings {
            init_size,
            min_free,
            limits: limits(5, 0),
            ..named(5)
        });
        for status in world.status().procs {
            assert_eq!(world.on(Event::OsProcIdle { proc: status.proc }), []);
        }
    }
}

#[test]
fn reload_replaces_processes_up_to_init_size() {
    let mut world = World::named(PoolSettings {
        init_size: 2,
        ..named(4)
    });
    let actions = world.on(Event::SetThresholdTs);
    assert_eq!(stopped(&actions).len(), 2);
    assert_eq!(opened(&actions).len(), 2);
    world.run();
    assert_eq!(world.counts(POOL), (0, 2, 0));
    assert_eq!(world.pools.stale_proc_count(), 0);
}

#[test]
fn status_shows_holders_and_memory_and_totals_count_starts() {
    let mut world = World::named(PoolSettings {
        init_size: 2,
        ..named(3)
    });
    let lease = world.take(7, None);
    world.on(Event::Memory {
        proc: lease.proc,
        bytes: 4096,
    });
    let status = world.status();
    let held = status.procs.iter().find(|proc| proc.proc == lease.proc);
    let held = held.expect("the lent process");
    assert_eq!((held.holder, held.memory), (Some(ClientId(7)), Some(4096)));
    assert_eq!((status.used, status.free), (1, 1));
    assert_eq!(status.settings.init_size, 2);
    assert_eq!((world.totals().taken, world.totals().started), (1, 2));
}
