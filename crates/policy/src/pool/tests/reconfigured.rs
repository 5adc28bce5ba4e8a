//! Settings changed while a pool runs: the plan, and its effect.

use proptest::prelude::*;

use super::*;

const POOL: PoolId = PoolId(0);

fn plan(world: &World, new: &PoolSettings) -> Vec<Change> {
    world.pools.plan(POOL, new)
}

fn reconfigure_to(world: &mut World, new: PoolSettings) -> Vec<PoolAction> {
    world.on(Event::Reconfigure {
        pool: POOL,
        settings: Box::new(new),
    })
}

#[test]
fn plan_lists_the_changes_of_a_reconfiguration() {
    let old = PoolSettings {
        init_size: 2,
        ..named(10)
    };
    let new = PoolSettings {
        init_size: 5,
        queue_max: Some(3),
        limits: Limits {
            hard_limit: 8,
            ..old.limits
        },
        ..old
    };
    let mut world = World::named(old);
    for client in 1..=2 {
        world.take(client, None);
    }
    assert_eq!(plan(&world, &new), [Change::Start(3)]);
}

#[test]
fn same_settings_change_nothing() {
    let settings = named(5);
    assert_eq!(plan(&World::named(settings), &settings), []);
}

#[test]
fn lowered_max_stops_idle_processes_at_once_and_lent_ones_on_return() {
    let mut world = World::named(PoolSettings {
        init_size: 7,
        ..named(10)
    });
    world.run();
    for client in 1..=4 {
        world.take(client, None);
    }
    let expected = [Change::StopIdle(3), Change::StopReturned(2)];
    assert_eq!(plan(&world, &named(2)), expected);
}

#[test]
fn queue_is_shortened_after_waiters_are_served_under_the_new_limit() {
    let mut world = World::named(named(1));
    world.take(1, None);
    let waiters = [2, 3, 4, 5, 6].map(|client| world.ask(client, None));
    let new = PoolSettings {
        queue_max: Some(2),
        limits: limits(3, 3),
        ..named(3)
    };
    let expected = [Change::ShrinkQueue(1), Change::Start(2)];
    assert_eq!(plan(&world, &new), expected);
    reconfigure_to(&mut world, new);
    assert_eq!(world.refusal(waiters[4]), Some(Refusal::PoolBusy));
    assert_eq!(world.status().waiting, 2);
}

#[test]
fn shrinking_a_queue_moves_group_waiters_to_pools_with_free_places() {
    let of = |queue_max| PoolSettings {
        group: Some(GroupId(1)),
        queue_max: Some(queue_max),
        ..named(1)
    };
    let group = Target::Group(GroupId(1));
    let mut world = World::empty();
    for _ in 0..2 {
        world.add(of(3));
    }
    for client in 1..=6 {
        world.ask_of(client, group);
        world.run();
    }
    // Two are served; the others wait, two in each queue.
    assert_eq!(plan(&world, &of(0)), [Change::ShrinkQueue(1)]);
    let actions = reconfigure_to(&mut world, of(0));
    let refused = |action: &&PoolAction| matches!(action, PoolAction::Refuse { .. });
    assert_eq!(actions.iter().filter(refused).count(), 1);
    assert_eq!(world.pools.status(PoolId(1), world.now).waiting, 3);
    assert_eq!(world.pools.plan_removal(POOL, RemoveMode::Graceful), 0);
    assert_eq!(world.pools.plan_removal(PoolId(1), RemoveMode::Graceful), 3);
}

#[test]
fn settings_with_another_language_change_nothing() {
    let old = named(5);
    let new = PoolSettings {
        language: LanguageId(3),
        init_size: 2,
        ..old
    };
    let mut world = World::named(old);
    assert_eq!(reconfigure_to(&mut world, new), []);
    assert_eq!(world.status().settings, old);
}

#[test]
fn changes_are_carried_out() {
    let mut world = World::named(named(3));
    let held: Vec<Lease> = (1..=3).map(|client| world.take(client, None)).collect();
    let waiters = [4, 5, 6].map(|client| world.ask(client, None));
    let new = PoolSettings {
        queue_max: Some(1),
        limits: limits(4, 4),
        ..named(3)
    };
    let expected = [Change::ShrinkQueue(1), Change::Start(1)];
    assert_eq!(plan(&world, &new), expected);
    let actions = reconfigure_to(&mut world, new);
    assert_eq!(world.refusal(waiters[2]), Some(Refusal::PoolBusy));
    assert_eq!(world.status().waiting, 1);
    assert_eq!(opened(&actions).len(), 1);
    assert_eq!(opened(&actions)[0].1, Some(waiters[0]));
    assert_eq!(world.status().settings, new);
    assert_eq!(held.len(), 3);
}

#[test]
fn reconfiguring_a_throttled_pool_starts_no_process() {
    let mut world = World::named(named(5));
    for _ in 0..crate::admission::FAILURES_MIN {
        world.ask(1, None);
        let (proc, _) = opened(&world.last)[0];
        world.on(Event::SpawnError { proc });
    }
    let new = PoolSettings {
        init_size: 3,
        ..named(5)
    };
    assert_eq!(plan(&world, &new), []);
    assert_eq!(reconfigure_to(&mut world, new), []);
}

#[test]
fn lowered_max_age_applies_to_existing_processes_even_if_they_are_older() {
    for age in [0, 60] {
        let old = PoolSettings {
            init_size: 1,
            ..named(5)
        };
        let mut world = World::named(old);
        let proc = world.status().procs[0].proc;
        world.advance(Duration::from_secs(age));
        let recycle = Recycle {
            max_age: Some(Duration::from_secs(10)),
            ..Recycle::default()
        };
        reconfigure_to(&mut world, PoolSettings { recycle, ..old });
        let actions = world.advance(Duration::from_secs(10));
        assert_eq!(stopped(&actions), [(proc, StopReason::Age)]);
    }
}

#[test]
fn pool_moved_to_another_group_serves_it_at_once() {
    let of = |group| PoolSettings {
        group: Some(GroupId(group)),
        ..named(1)
    };
    let mut world = World::empty();
    world.add(of(1));
    world.add(of(2));
    let first = world.ask_of(1, Target::Group(GroupId(2)));
    world.run();
    assert!(world.lease(first, 1).is_some());
    let waits = world.ask_of(2, Target::Group(GroupId(2)));
    assert_eq!(world.last, []);
    let actions = reconfigure_to(&mut world, of(2));
    assert_eq!(
        opened(&actions),
        [(
            ProcId {
                pool: POOL,
                number: 2
            },
            Some(waits)
        )]
    );
    let refused = world.ask_of(3, Target::Group(GroupId(1)));
    assert_eq!(world.refusal(refused), Some(Refusal::NoPool));
}

#[test]
fn waiters_keep_their_order_when_fairness_changes() {
    let mut world = World::named(named(1));
    let mut lease = world.take(1, None);
    let waiters: Vec<RequestId> = (2..=5).map(|client| world.ask(client, None)).collect();
    for fairness in [Fairness::PerDb, Fairness::Fifo] {
        let new = PoolSettings {
            fairness,
            ..named(1)
        };
        assert_eq!(reconfigure_to(&mut world, new), []);
    }
    for (waiter, client) in waiters.into_iter().zip(2..) {
        world.give_back(lease);
        lease = world
            .lease(waiter, client)
            .expect("served in order of arrival");
    }
}

fn any_settings() -> impl Strategy<Value = PoolSettings> {
    let sizes = (0..8_u32, 0..8_u32, 0..8_u32);
    (sizes, prop::option::of(0..5_u32)).prop_map(|((max, init_size, min_free), queue_max)| {
        PoolSettings {
            init_size,
            min_free,
            queue_max,
            ..named(max)
        }
    })
}

proptest! {
    /// Pools without design documents: processes and the queue change as planned.
    #[test]
    fn plan_matches_the_actions_taken(
        old in any_settings(),
        new in any_settings(),
        clients in 0..12_u64,
        returned in 0..12_usize,
    ) {
        let mut world = World::named(old);
        let mut leases = Vec::new();
        for client in 1..=clients {
            let request = world.ask(client, None);
            world.run();
            leases.extend(world.lease(request, client));
        }
        for lease in leases.into_iter().take(returned) {
            world.give_back(lease);
            world.run();
        }
        let plan = world.pools.plan(POOL, &new);
        let actions = reconfigure_to(&mut world, new);
        let mut start = 0;
        let mut stop_idle = 0;
        let mut shrink = 0;
        for change in plan {
            match change {
                Change::Start(count) => start = count as usize,
                Change::StopIdle(count) => stop_idle = count as usize,
                Change::ShrinkQueue(count) => shrink = count as usize,
                Change::StopReturned(_) => {}
            }
        }
        let busy = |action: &&PoolAction| matches!(action, PoolAction::Refuse { .. });
        prop_assert_eq!(actions.iter().filter(busy).count(), shrink);
        prop_assert_eq!(stopped(&actions).len(), stop_idle);
        prop_assert_eq!(opened(&actions).len(), start);
    }
}

#[test]
fn refusing_the_first_waiter_when_leaving_a_group_sets_the_timer_for_the_next() {
    let wait = Duration::from_secs(1);
    let settings = PoolSettings {
        limits: Limits {
            affinity_wait: wait,
            ..limits(3, 3)
        },
        fairness: Fairness::PerDb,
        group: Some(GroupId(0)),
        ..named(3)
    };
    let mut world = World::named(settings);
    for (client, db) in [(1, "busy"), (2, "busy"), (3, "quiet")] {
        world.take(client, tagged(db, "_design/1"));
    }
    let busy = world.ask(4, tagged("busy", "_design/1"));
    let asked = world.now;
    world.now = world.now + wait / 2;
    let group = Target::Group(GroupId(0));
    let quiet = world.ask_for(5, group, tagged("quiet", "_design/1"), PATIENCE);
    assert_eq!(world.pools.next_deadline(), Some(asked + wait / 2 + wait));

    let new = PoolSettings {
        group: None,
        queue_max: Some(1),
        ..settings
    };
    let actions = reconfigure_to(&mut world, new);
    let refused = PoolAction::Refuse {
        request: quiet,
        why: Refusal::PoolBusy,
    };
    assert_eq!(actions, [refused], "{busy:?} still waits");
    assert_eq!(world.pools.next_deadline(), Some(asked + wait));
}
