//! Groups: which pool serves, where requests wait, and pools added while a request waits.
//!
//! SOURCE    pidq: a random pool among those of a type. The fallbacks are this project's.

use super::*;
use crate::admission::FAILURES_MIN;

pub(super) const GROUP: Target = Target::Group(GroupId(1));

pub(super) fn in_group(max: u32) -> PoolSettings {
    PoolSettings {
        group: Some(GroupId(1)),
        ..named(max)
    }
}

fn world_of(settings: &[PoolSettings]) -> World {
    let mut world = World::empty();
    for settings in settings {
        world.add(*settings);
        world.run();
    }
    world
}

fn take_of(world: &mut World, client: u64, target: Target) -> Lease {
    let request = world.ask_of(client, target);
    world.run();
    world.lease(request, client).expect("served")
}

#[test]
fn pools_with_a_free_process_are_drawn_evenly_however_many_each_has() {
    let sizes = [1, 10, 3, 0, 7];
    let settings = sizes.map(|init_size| PoolSettings {
        init_size,
        ..in_group(10)
    });
    let mut world = world_of(&settings);
    let mut drawn = [0_u32; 5];
    world.check_every = 97;
    for _ in 0..8000 {
        let lease = take_of(&mut world, 1, GROUP);
        drawn[lease.proc.pool.0 as usize] += 1;
        world.give_back(lease);
    }
    assert_eq!(drawn[3], 0, "a pool without a free process");
    for at in [0, 1, 2, 4] {
        assert!((1850..=2150).contains(&drawn[at]), "2000 each: {drawn:?}");
    }
}

#[test]
fn same_seed_draws_the_same_pools() {
    let draw = |seed| {
        let mut world = World::empty();
        world.pools = Pools::with_seed(seed);
        for _ in 0..4 {
            world.add(PoolSettings {
                init_size: 1,
                ..in_group(1)
            });
            world.run();
        }
        let mut draw = || {
            let lease = take_of(&mut world, 1, GROUP);
            world.give_back(lease);
            lease.proc.pool.0
        };
        (0..50).map(|_| draw()).collect::<Vec<u32>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn a_pool_below_its_limit_is_drawn_if_none_has_a_free_process() {
    let mut world = world_of(&[in_group(1), in_group(2)]);
    let full = world.ask_of(1, Target::Pool(PoolId(0)));
    world.run();
    assert!(world.lease(full, 1).is_some());
    let request = world.ask_of(2, GROUP);
    assert_eq!(opened(&world.last).len(), 1);
    assert_eq!(opened(&world.last)[0].0.pool, PoolId(1));
    assert_eq!(opened(&world.last)[0].1, Some(request));
}

#[test]
fn if_all_pools_are_full_the_shortest_queue_is_joined() {
    let mut world = world_of(&[in_group(1), in_group(1)]);
    for pool in [0, 1] {
        take_of(&mut world, 1, Target::Pool(PoolId(pool)));
    }
    for _ in 0..2 {
        world.ask_of(2, Target::Pool(PoolId(0)));
    }
    world.ask_of(3, GROUP);
    let waiting = |world: &World, pool| world.pools.status(PoolId(pool), world.now).waiting;
    assert_eq!((waiting(&world, 0), waiting(&world, 1)), (2, 1));
}

#[test]
fn waiter_of_a_group_is_served_by_the_first_pool_with_a_free_process() {
    let mut world = world_of(&[in_group(1), in_group(1)]);
    let leases = [0, 1].map(|pool| take_of(&mut world, 1, Target::Pool(PoolId(pool))));
    for (lease, client) in leases.into_iter().zip([2, 3]) {
        let request = world.ask_of(client, GROUP);
        world.give_back(lease);
        let served = world
            .lease(request, client)
            .expect("the first return serves the waiter");
        assert_eq!(served.proc, lease.proc);
    }
}

#[test]
fn waiter_of_one_pool_is_served_by_that_pool_alone() {
    let mut world = world_of(&[in_group(1), in_group(1)]);
    take_of(&mut world, 1, Target::Pool(PoolId(0)));
    let other = take_of(&mut world, 1, Target::Pool(PoolId(1)));
    let request = world.ask_of(2, Target::Pool(PoolId(0)));
    assert_eq!(world.give_back(other), []);
    assert_eq!(world.lease(request, 2), None);
}

#[test]
fn added_pool_serves_the_waiters_of_its_group_at_once() {
    let mut world = world_of(&[in_group(1)]);
    take_of(&mut world, 1, GROUP);
    let request = world.ask_of(2, GROUP);
    let direct = world.ask_of(3, Target::Pool(PoolId(0)));
    assert_eq!(world.last, []);
    let pool = world.add(in_group(1));
    assert_eq!(opened(&world.last).len(), 1);
    assert_eq!(opened(&world.last)[0].1, Some(request));
    world.run();
    assert_eq!(world.lease(request, 2).expect("served").proc.pool, pool);
    assert_eq!(world.lease(direct, 3), None);
}

#[test]
fn any_pool_of_a_language_serves_a_request_that_names_none() {
    let other = PoolSettings {
        language: LanguageId(7),
        ..named(5)
    };
    let own = PoolSettings::of_language(LanguageId(0), limits(1, 1));
    let mut world = world_of(&[own, other, named(1)]);
    let any = Target::Any(LanguageId(0));
    let pools = [1, 2].map(|client| take_of(&mut world, client, any).proc.pool.0);
    assert_eq!(pools.iter().min(), Some(&0));
    assert_eq!(pools.iter().max(), Some(&2));
    let third = world.ask_of(3, any);
    assert_eq!(world.lease(third, 3), None);
}

#[test]
fn group_or_language_without_a_pool_is_refused() {
    let mut world = world_of(&[in_group(1)]);
    for target in [Target::Group(GroupId(9)), Target::Any(LanguageId(9))] {
        let request = world.ask_of(1, target);
        assert_eq!(world.refusal(request), Some(Refusal::NoPool));
    }
}

#[test]
fn request_for_a_group_is_refused_when_all_its_queues_are_full() {
    let short = PoolSettings {
        queue_max: Some(1),
        ..in_group(1)
    };
    let mut world = world_of(&[short, short]);
    for client in 1..=4 {
        world.ask_of(client, GROUP);
        world.run();
    }
    let request = world.ask_of(5, GROUP);
    assert_eq!(world.refusal(request), Some(Refusal::PoolBusy));
}

#[test]
fn request_for_a_group_waits_while_any_of_its_queues_has_room() {
    let of = |queue_max| PoolSettings {
        queue_max: Some(queue_max),
        ..in_group(1)
    };
    let mut world = world_of(&[of(1), of(0), of(6)]);
    for client in 1..=10 {
        let request = world.ask_of(client, GROUP);
        world.run();
        assert_eq!(world.refusal(request), None, "{client}");
    }
    let request = world.ask_of(11, GROUP);
    assert_eq!(world.refusal(request), Some(Refusal::PoolBusy));
}

#[test]
fn waiters_that_a_throttled_pool_cannot_serve_move_to_another_pool_of_its_group() {
    let mut world = world_of(&[in_group(1), in_group(1)]);
    // Two are served; the others wait in the two pools by turns.
    for client in 1..=8 {
        world.ask_of(client, GROUP);
        world.run();
    }
    let waiter = world.ask_of(9, GROUP);
    let lent = world.status().procs[0].proc;
    world.exit(lent);
    for _ in 0..FAILURES_MIN {
        let (proc, _) = opened(&world.last)[0];
        world.on(Event::SpawnError { proc });
    }
    assert_eq!(world.refusal(waiter), None);
    assert_eq!(world.pools.status(PoolId(1), world.now).waiting, 4);
}

#[test]
fn request_for_a_group_gets_the_pool_with_a_process_of_its_database() {
    let mut world = world_of(&[in_group(1), in_group(1)]);
    let ask = |world: &mut World, target, db| {
        let request = world.ask_for(1, target, tagged(db, "_design/1"), PATIENCE);
        world.run();
        world.lease(request, 1).expect("served")
    };
    let one = ask(&mut world, Target::Pool(PoolId(0)), "db1");
    let two = ask(&mut world, Target::Pool(PoolId(1)), "db2");
    world.give_back(one);
    world.give_back(two);
    for (db, lease) in [("db2", two), ("db1", one), ("db2", two)] {
        let again = ask(&mut world, GROUP, db);
        assert_eq!(again.proc, lease.proc);
        world.give_back(again);
    }
}
