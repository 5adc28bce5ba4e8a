//! Removal of pools, graceful and immediate.
//!
//! SOURCE    pidq's remove_pool; Postfix's order of removal (throttled first).

use super::*;

const POOL: PoolId = PoolId(0);

fn remove(world: &mut World, mode: RemoveMode) -> Vec<PoolAction> {
    world.on(Event::RemovePool { pool: POOL, mode })
}

/// A pool of 3: one held process, one idle, one being opened for a request, and no waiters.
fn busy() -> (World, Lease, ProcId, RequestId) {
    let mut world = World::named(named(3));
    let held = world.take(1, None);
    let idle = world.take(2, None);
    let opening = world.ask(3, None);
    world.give_back(idle);
    (world, held, idle.proc, opening)
}

#[test]
fn gracefully_removed_pool_is_gone_once_its_last_process_has_exited() {
    let (mut world, held, idle, opening) = busy();
    let unborn = ProcId {
        pool: POOL,
        number: 3,
    };
    let actions = remove(&mut world, RemoveMode::Graceful);
    assert_eq!(world.refusal(opening), Some(Refusal::PoolRemoved));
    assert_eq!(stopped(&actions), [(idle, StopReason::Removed)]);
    assert_eq!(opened(&actions), []);
    let actions = world.on(Event::SpawnOk { proc: unborn });
    assert_eq!(stopped(&actions), [(unborn, StopReason::Removed)]);
    let actions = world.give_back(held);
    assert_eq!(stopped(&actions), [(held.proc, StopReason::Removed)]);
    assert_eq!(world.exit(idle), []);
    assert_eq!(world.exit(unborn), []);
    assert_eq!(world.exit(held.proc), [PoolAction::PoolGone { pool: POOL }]);
    assert_eq!(world.pools.next_deadline(), None);
    assert_eq!(world.status(), PoolStatus::default());
}

#[test]
fn immediate_removal_revokes_lent_processes_and_stops_all() {
    let (mut world, held, idle, opening) = busy();
    let actions = remove(&mut world, RemoveMode::Immediate);
    assert_eq!(world.refusal(opening), Some(Refusal::PoolRemoved));
    let Lease {
        client,
        proc,
        token,
    } = held;
    let why = StopReason::Removed;
    let revoked = PoolAction::ProcRevoked {
        client,
        proc,
        token,
        why,
    };
    assert!(actions.contains(&revoked));
    let all = [(held.proc, why), (idle, why)];
    assert_eq!(stopped(&actions), all);
    assert!(!world.pools.holds(client, proc, token));
    assert_eq!(world.give_back(held), []);
    for proc in [held.proc, idle] {
        assert_eq!(world.exit(proc), []);
    }
    let unborn = ProcId {
        pool: POOL,
        number: 3,
    };
    let actions = world.on(Event::SpawnError { proc: unborn });
    assert_eq!(actions, [PoolAction::PoolGone { pool: POOL }]);
}

#[test]
fn waiters_of_a_removed_pool_are_refused_with_pool_removed() {
    let mut world = World::named(named(1));
    world.take(1, None);
    let waiters = [2, 3].map(|client| world.ask(client, None));
    remove(&mut world, RemoveMode::Graceful);
    for waiter in waiters {
        assert_eq!(world.refusal(waiter), Some(Refusal::PoolRemoved));
    }
    let late = world.ask(4, None);
    assert_eq!(world.refusal(late), Some(Refusal::PoolRemoved));
}

#[test]
fn waiters_of_a_group_are_served_by_its_remaining_pools() {
    let in_group = PoolSettings {
        group: Some(GroupId(1)),
        ..named(1)
    };
    let mut world = World::empty();
    for _ in 0..2 {
        world.add(in_group);
    }
    let group = Target::Group(GroupId(1));
    let leases = [1, 2].map(|client| {
        let request = world.ask_of(client, group);
        world.run();
        world.lease(request, client).expect("served")
    });
    let stays = leases.into_iter().find(|lease| lease.proc.pool != POOL);
    let stays = stays.expect("each pool has one");
    let waiters = [3, 4].map(|client| world.ask_of(client, group));
    remove(&mut world, RemoveMode::Graceful);
    for waiter in waiters {
        assert_eq!(world.refusal(waiter), None);
    }
    world.give_back(stays);
    assert!(world.lease(waiters[0], 3).is_some());
}

#[test]
fn process_exits_during_removal_do_not_count_as_failed_starts() {
    let mut world = World::named(PoolSettings {
        init_size: 2,
        min_free: 1,
        ..named(3)
    });
    let lease = world.take(1, None);
    world.run();
    let actions = remove(&mut world, RemoveMode::Graceful);
    assert_eq!(opened(&actions), [], "stopped processes are not replaced");
    let actions = world.exit(lease.proc);
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, PoolAction::Warn(..)))
    );
    assert_eq!(world.status().throttled, None);
    assert_eq!(opened(&actions), []);
}

#[test]
fn graceful_removal_can_become_immediate_but_not_vice_versa() {
    let mut world = World::named(named(1));
    let lease = world.take(1, None);
    assert_eq!(remove(&mut world, RemoveMode::Graceful), []);
    assert_eq!(remove(&mut world, RemoveMode::Graceful), []);
    let actions = remove(&mut world, RemoveMode::Immediate);
    assert_eq!(stopped(&actions), [(lease.proc, StopReason::Removed)]);
    assert_eq!(remove(&mut world, RemoveMode::Graceful), []);
    assert_eq!(world.status().removing, Some(RemoveMode::Immediate));
    world.exit(lease.proc);
    assert_eq!(world.last, [PoolAction::PoolGone { pool: POOL }]);
    assert_eq!(remove(&mut world, RemoveMode::Immediate), []);
}

#[test]
fn empty_pool_is_removed_at_once_and_its_id_is_reused() {
    let mut world = World::named(named(1));
    let actions = remove(&mut world, RemoveMode::Graceful);
    assert_eq!(actions, [PoolAction::PoolGone { pool: POOL }]);
    let late = world.ask(1, None);
    assert_eq!(world.refusal(late), Some(Refusal::PoolRemoved));
    assert_eq!(world.add(named(2)), POOL);
    let lease = world.take(2, None);
    assert_eq!(lease.proc.pool, POOL);
    assert_eq!(world.status().settings, named(2));
    assert_eq!(world.totals().taken, 1, "totals restart at zero");
}

#[test]
fn removal_stops_processes_that_are_being_reset_or_taught() {
    let mut world = World::named(named(2));
    let resets = world.take(1, None);
    let learns = world.ask(2, tagged("db", "_design/1"));
    let (learner, _) = opened(&world.last)[0];
    world.on(Event::SpawnOk { proc: learner });
    world.give_back_as(resets, ReturnStatus::Ok, Condition::NeedsReset);
    let actions = remove(&mut world, RemoveMode::Graceful);
    assert_eq!(stopped(&actions).len(), 2);
    assert_eq!(world.refusal(learns), Some(Refusal::PoolRemoved));
}
