//! Processes with isolates: several tenants each, one of them selected.

use proptest::prelude::*;

use super::properties::{any_busy_step, any_limits, any_step};
use super::trial::{Step, Trial};
use super::*;

const WAIT: Duration = Duration::from_millis(50);

fn world(hard: u32, isolates_max: u32) -> World {
    World::with(PoolSettings {
        isolates_max,
        ..PoolSettings::from(Limits {
            affinity_wait: WAIT,
            ..limits(hard, hard)
        })
    })
}

/// Calls a function of a database's design document. Returns the process that ran it.
fn call(world: &mut World, client: u64, name: &str) -> ProcId {
    let lease = world.take(client, tagged(name, "_design/1"));
    world.give_back(lease);
    lease.proc
}

fn made_and_evicted(world: &World) -> (u64, u64) {
    let totals = world.totals();
    (totals.isolates_made, totals.isolates_evicted)
}

#[test]
fn one_process_serves_as_many_tenants_as_it_has_isolates_for_and_keeps_what_each_has_taught() {
    let mut world = world(4, 3);
    for db in ["a", "b", "c"] {
        call(&mut world, 1, db);
    }
    assert_eq!(world.totals().started, 1, "the process had room");
    for name in ["a", "b", "c", "a"] {
        let request = world.ask(2, tagged(name, "_design/1"));
        let (tenant, is_new) = (db(name), false);
        let expected = Some(Select { tenant, is_new });
        let is_at_once = |action: &PoolAction| match action {
            PoolAction::Assign { select, reset, .. } => *select == expected && !reset,
            _ => false,
        };
        assert!(
            matches!(&world.last[..], [action] if is_at_once(action)),
            "{:?}",
            world.last
        );
        let lease = world.lease(request, 2).expect("at once");
        world.give_back(lease);
    }
    // The same tenant again needs no selection.
    let request = world.ask(2, tagged("a", "_design/1"));
    assert!(matches!(
        &world.last[..],
        [PoolAction::Assign { select: None, .. }]
    ));
    assert!(world.lease(request, 2).is_some());
    assert_eq!(made_and_evicted(&world), (3, 0));
    assert_eq!(world.status().procs[0].isolates, 3);
}

#[test]
fn a_further_tenant_gets_a_new_process_while_there_is_a_slot_and_then_replaces_the_oldest() {
    let mut world = world(2, 2);
    let first = call(&mut world, 1, "a");
    assert_eq!(call(&mut world, 1, "b"), first);
    let second = call(&mut world, 1, "c");
    assert_ne!(second, first, "there was a slot");
    assert_eq!(call(&mut world, 1, "d"), second);
    // All are full: `a`, in the first, is the least recently used.
    assert_eq!(call(&mut world, 1, "e"), first);
    assert_eq!(made_and_evicted(&world).1, 1);
    let proc = call(&mut world, 1, "b");
    assert_eq!(proc, first, "only a has gone");
    assert_eq!(world.totals().started, 2);
}

#[test]
fn the_process_idle_longest_is_stopped_first_even_if_another_has_an_older_isolate() {
    let mut world = world(2, 2);
    let procs = ["a", "b", "c", "d", "b"].map(|name| {
        world.advance(WAIT);
        call(&mut world, 1, name)
    });
    assert_eq!(procs[4], procs[0]);
    let actions = world.on(Event::SetCeiling { max: Some(1) });
    assert_eq!(stopped(&actions), [(procs[2], StopReason::OverLimit)]);
}

#[test]
fn a_waiter_waits_for_its_tenants_process_at_most_its_affinity_wait() {
    let mut world = world(2, 1);
    let of_a = world.take(1, tagged("a", "_design/1"));
    let of_b = world.take(1, tagged("b", "_design/1"));
    let waiter = world.ask(2, tagged("a", "_design/1"));
    world.give_back(of_b);
    assert!(
        world.lease(waiter, 2).is_none(),
        "its tenant's process is in use"
    );
    world.advance(WAIT);
    world.run();
    assert_eq!(
        world.lease(waiter, 2).expect("a replaces b").proc,
        of_b.proc
    );
    world.give_back(of_a);
}

#[test]
fn an_isolate_changed_by_its_holder_is_taught_again_and_the_others_are_not() {
    let mut world = world(1, 3);
    call(&mut world, 1, "a");
    let lease = world.take(1, tagged("b", "_design/1"));
    world.give_back_as(lease, ReturnStatus::Ok, Condition::NeedsForgetting);
    let request = world.ask(2, tagged("b", "_design/1"));
    assert_eq!(world.last, [taught(lease.proc, request)]);
    world.run();
    let lease = world.lease(request, 2).expect("taught");
    world.give_back(lease);
    world.ask(2, tagged("a", "_design/1"));
    assert!(
        matches!(&world.last[..], [PoolAction::Assign { .. }]),
        "{:?}",
        world.last
    );
}

#[test]
fn an_isolate_evicted_by_the_process_is_made_and_taught_again() {
    let mut world = world(1, 3);
    call(&mut world, 1, "a");
    let lease = world.take(1, tagged("b", "_design/1"));
    let (proc, tenants) = (lease.proc, vec![db("a")]);
    world.on(Event::Evicted { proc, tenants });
    world.give_back(lease);
    let request = world.ask(2, tagged("a", "_design/1"));
    let (tenant, is_new) = (db("a"), true);
    let select = Some(Select { tenant, is_new });
    assert_eq!(
        world.last,
        [PoolAction::Teach {
            proc,
            request,
            select
        }]
    );
}

#[test]
fn a_tenant_that_keeps_ending_processes_gets_separate_ones_until_enough_uses_end_well() {
    let mut world = world(3, 8);
    let fail = |world: &mut World| {
        let lease = world.take(1, tagged("bad", "_design/1"));
        world.give_back_as(lease, ReturnStatus::Fail, Condition::Clean);
        world.run();
    };
    (0..3).for_each(|_| fail(&mut world));
    let shared = call(&mut world, 1, "a");
    for _ in 0..5 {
        let lease = world.take(1, tagged("bad", "_design/1"));
        assert_ne!(lease.proc, shared, "the tenant has its own process");
        world.give_back_as(lease, ReturnStatus::Fail, Condition::Clean);
        world.run();
        assert_eq!(call(&mut world, 1, "a"), shared);
        assert_eq!(call(&mut world, 1, "b"), shared);
    }
    // Its process stays separate until enough uses have ended well.
    let own = call(&mut world, 1, "bad");
    assert_eq!(call(&mut world, 1, "c"), shared);
    for _ in 1..30 {
        assert_eq!(call(&mut world, 1, "bad"), own);
    }
    // Afterwards it shares a process again, once its own has ended.
    world.on(Event::ProcExit { proc: own });
    world.run();
    assert_eq!(call(&mut world, 1, "bad"), shared);
}

/// Steps of pools with isolates; the maximum changes now and then.
fn isolates_step(step: impl Strategy<Value = Step>) -> impl Strategy<Value = Step> {
    (step, 0..60_u32, 0..1000_usize).prop_map(|(step, luck, n)| match luck {
        0 => Step::Isolates(0, n as u32 % 4),
        1..5 => Step::Evict(n, n / 7),
        _ => step,
    })
}

proptest! {
    #[test]
    fn core_and_model_agree_where_processes_have_isolates(
        limits in prop::collection::vec(any_limits(), 2),
        most in 1..4_u32,
        steps in prop::collection::vec(isolates_step(any_step()), 1..150),
    ) {
        let mut trial = Trial::new(&limits);
        trial.step(Step::Isolates(0, most));
        trial.step(Step::Isolates(1, 2));
        for step in steps {
            trial.step(step);
        }
        trial.wind_up();
    }

    #[test]
    fn core_and_model_agree_where_waiters_may_overtake_and_processes_have_isolates(
        hard_limit in 1..6_u32,
        most in 1..4_u32,
        wait_ms in prop_oneof![Just(0), 20..80_u64],
        steps in prop::collection::vec(isolates_step(any_busy_step()), 50..200),
    ) {
        let affinity_wait = Duration::from_millis(wait_ms);
        let limits = Limits { hard_limit, soft_limit: 2, affinity_wait };
        let mut trial = Trial::new(&[limits]);
        trial.step(Step::Isolates(0, most));
        for step in steps {
            trial.step(step);
        }
        trial.wind_up();
    }
}
