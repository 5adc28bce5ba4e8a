//! Processes that can forget: they forget a tenant instead of being stopped.

use proptest::prelude::*;

use super::properties::{any_busy_step, any_limits, any_step};
use super::tenants::apart_step;
use super::trial::{Step, Trial};
use super::*;
use crate::admission::FAILURES_MIN;

const WAIT: Duration = Duration::from_millis(50);

fn forgetful(hard: u32, reuse: Reuse) -> PoolSettings {
    PoolSettings {
        reuse,
        can_forget: true,
        ..PoolSettings::from(limits(hard, hard))
    }
}

/// A pool with one process, which is idle and knows a design document of database `a`.
fn one_of_a(settings: PoolSettings) -> (World, ProcId) {
    let mut world = World::with(settings);
    let lease = world.take(1, tagged("a", "_design/1"));
    world.give_back(lease);
    (world, lease.proc)
}

fn done(world: &mut World, proc: ProcId, ok: bool) -> Vec<PoolAction> {
    world.on(Event::TeachOrResetDone { proc, ok })
}

#[test]
fn idle_process_of_another_database_forgets_it_and_serves_without_a_start() {
    let (mut world, proc) = one_of_a(forgetful(1, Reuse::Any));
    let request = world.ask(2, tagged("b", "_design/1"));
    assert_eq!(world.last, [PoolAction::Forget { proc }]);
    let actions = done(&mut world, proc, true);
    assert_eq!(actions, [taught(proc, request)]);
    done(&mut world, proc, true);
    let lease = world.lease(request, 2).expect("served");
    assert_eq!(lease.proc, proc);
    let totals = world.totals();
    assert_eq!((totals.started, totals.forgot), (1, 1));
    assert_eq!(totals.stopped(StopReason::Reaped), 0);
    // It has forgotten the first database, which must teach it again.
    world.give_back(lease);
    let request = world.ask(1, tagged("a", "_design/1"));
    assert_eq!(world.last, [PoolAction::Forget { proc }]);
    let actions = done(&mut world, proc, true);
    assert_eq!(actions, [taught(proc, request)]);
}

#[test]
fn a_process_taught_by_its_holder_forgets_or_is_stopped_if_it_cannot() {
    for can_forget in [true, false] {
        let settings = PoolSettings {
            can_forget,
            ..forgetful(1, Reuse::Any)
        };
        let mut world = World::with(settings);
        let lease = world.take(1, plain(db("a")));
        let proc = lease.proc;
        let condition = Condition::NeedsForgetting;
        let actions = world.give_back_as(lease, ReturnStatus::Ok, condition);
        if !can_forget {
            let why = StopReason::Broken;
            assert_eq!(actions, [PoolAction::Stop { proc, why }]);
            continue;
        }
        assert_eq!(actions, [PoolAction::Forget { proc }]);
        done(&mut world, proc, true);
        let request = world.ask(2, plain(db("b")));
        assert_eq!(world.lease(request, 2).expect("at once").proc, proc);
    }
}

#[test]
fn plain_work_of_another_database_gets_a_process_that_forgot() {
    let (mut world, proc) = one_of_a(forgetful(1, Reuse::Database));
    let request = world.ask(2, plain(db("b")));
    assert_eq!(world.last, [PoolAction::Forget { proc }]);
    done(&mut world, proc, true);
    assert_eq!(world.lease(request, 2).expect("served").proc, proc);
}

#[test]
fn process_is_opened_rather_than_made_to_forget_while_there_is_room() {
    let (mut world, _) = one_of_a(forgetful(2, Reuse::Any));
    let request = world.ask(2, tagged("b", "_design/1"));
    assert_eq!(opened(&world.last)[0].1, Some(request));
    assert_eq!(world.last.len(), 1);
}

#[test]
fn least_recently_used_process_forgets_first() {
    let mut world = World::with(forgetful(2, Reuse::Any));
    let leases = ["a", "b"].map(|db| world.take(1, tagged(db, "_design/1")));
    for lease in leases.into_iter().rev() {
        world.advance(WAIT);
        world.give_back(lease);
    }
    world.ask(2, tagged("c", "_design/1"));
    let proc = leases[1].proc;
    assert_eq!(world.last, [PoolAction::Forget { proc }]);
}

#[test]
fn waiter_waits_for_a_process_of_its_own_database_before_another_forgets() {
    let mut world = World::with(PoolSettings {
        limits: Limits {
            affinity_wait: WAIT,
            ..limits(2, 2)
        },
        ..forgetful(2, Reuse::Any)
    });
    world.take(1, tagged("a", "_design/1"));
    let other = world.take(2, tagged("b", "_design/1"));
    world.give_back(other);
    world.ask(3, tagged("a", "_design/1"));
    assert_eq!(world.last, []);
    let actions = world.advance(WAIT);
    assert_eq!(actions, [PoolAction::Forget { proc: other.proc }]);
    // The second request waits for lent processes and for those being prepared.
    world.ask(4, tagged("a", "_design/1"));
    assert_eq!(world.last, []);
}

#[test]
fn request_whose_process_fails_to_forget_is_served_by_a_pool_freed_meanwhile() {
    let mut world = World::empty();
    let in_group = |max| PoolSettings {
        group: Some(GroupId(1)),
        ..forgetful(max, Reuse::Database)
    };
    for _ in 0..2 {
        world.add(in_group(1));
    }
    let pool = |number| Target::Pool(PoolId(number));
    let [first, second] = [0, 1].map(|number| {
        let request = world.ask_of(1, pool(number));
        world.run();
        world.lease(request, 1).expect("it is served")
    });
    world.give_back(first);
    let request = world.ask_of(2, Target::Group(GroupId(1)));
    assert_eq!(world.last, [PoolAction::Forget { proc: first.proc }]);
    let settings = Box::new(in_group(0));
    world.on(Event::Reconfigure {
        pool: PoolId(0),
        settings,
    });
    world.give_back(second);
    let actions = done(&mut world, first.proc, false);
    assert!(
        actions.contains(&PoolAction::Forget { proc: second.proc }),
        "{actions:?}"
    );
    done(&mut world, second.proc, true);
    assert_eq!(world.lease(request, 2).expect("served").proc, second.proc);
}

#[test]
fn request_whose_process_fails_to_forget_is_served_by_another() {
    for dies in [false, true] {
        let mut world = World::with(forgetful(2, Reuse::Any));
        let leases = ["a", "b"].map(|db| world.take(1, tagged(db, "_design/1")));
        for lease in leases {
            world.give_back(lease);
        }
        let proc = leases[0].proc;
        let request = world.ask(2, tagged("c", "_design/1"));
        assert_eq!(world.last, [PoolAction::Forget { proc }]);
        let actions = match dies {
            true => world.exit(proc),
            false => done(&mut world, proc, false),
        };
        let why = StopReason::ForgetFailed;
        let stops = if dies { vec![] } else { vec![(proc, why)] };
        assert_eq!(stopped(&actions), stops);
        assert_eq!(opened(&actions)[0].1, Some(request));
        world.run();
        assert!(world.lease(request, 2).is_some());
    }
}

#[test]
fn process_that_forgot_for_a_dead_client_serves_any_tenant() {
    for reuse in [Reuse::Any, Reuse::Database] {
        let (mut world, proc) = one_of_a(forgetful(1, reuse));
        world.ask(2, tagged("b", "_design/1"));
        assert_eq!(world.down(2, true), []);
        done(&mut world, proc, true);
        let status = world.status();
        assert_eq!((status.free, status.free_tagged), (1, 0));
        assert_eq!(status.procs[0].ddocs, 0);
        let request = world.ask(3, tagged("c", "_design/1"));
        assert_eq!(world.last, [taught(proc, request)]);
    }
}

#[test]
fn process_forgets_a_client_that_ended() {
    let mut world = World::with(forgetful(2, Reuse::Database));
    let held = world.take(1, None);
    let idle = world.take(1, None);
    world.give_back(idle);
    let expected = [held, idle].map(|lease| PoolAction::Forget { proc: lease.proc });
    assert_eq!(world.down(1, false), expected);
    world.run();
    let status = world.status();
    assert_eq!((status.free, status.free_tagged), (2, 0));
    assert_eq!(world.take(2, plain(db("a"))).proc, idle.proc);
    assert_eq!(world.totals().started, 2);
}

#[test]
fn uses_are_counted_over_all_tenants() {
    let (mut world, proc) = one_of_a(PoolSettings {
        recycle: Recycle {
            max_uses: Some(2),
            ..Recycle::default()
        },
        ..forgetful(1, Reuse::Any)
    });
    let lease = world.take(2, tagged("b", "_design/1"));
    assert_eq!(lease.proc, proc);
    let actions = world.give_back(lease);
    assert_eq!(stopped(&actions), [(proc, StopReason::Uses)]);
}

#[test]
fn throttled_pool_serves_another_database_with_a_process_that_forgets() {
    let (mut world, proc) = one_of_a(PoolSettings {
        can_forget: true,
        ..named(2)
    });
    for _ in 0..FAILURES_MIN {
        world.ask(2, tagged("b", "_design/1"));
        let (opening, _) = opened(&world.last)[0];
        world.on(Event::SpawnError { proc: opening });
    }
    let request = world.ask(3, tagged("b", "_design/1"));
    assert_eq!(world.last, [PoolAction::Forget { proc }]);
    world.run();
    assert!(world.lease(request, 3).is_some());
}

#[test]
fn in_a_throttled_pool_no_waiter_waits_for_processes_that_cannot_forget() {
    let settings = PoolSettings {
        can_forget: true,
        ..named(2)
    };
    let mut world = World::with(settings);
    world.take(1, tagged("a", "_design/1"));
    for _ in 0..FAILURES_MIN {
        world.ask(2, tagged("b", "_design/1"));
        let (opening, _) = opened(&world.last)[0];
        world.on(Event::SpawnError { proc: opening });
    }
    let request = world.ask(3, tagged("b", "_design/1"));
    assert_eq!(world.last, []);
    world.on(Event::Reconfigure {
        pool: PoolId(0),
        settings: Box::new(PoolSettings {
            can_forget: false,
            ..settings
        }),
    });
    let refusal = world.refusal(request);
    assert!(matches!(refusal, Some(Refusal::Throttled { .. })));
}

#[test]
fn at_the_ceiling_a_process_of_the_pool_forgets_and_none_is_stopped() {
    let (mut world, proc) = one_of_a(forgetful(2, Reuse::Any));
    world.on(Event::SetCeiling { max: Some(1) });
    world.ask(2, tagged("b", "_design/1"));
    assert_eq!(world.last, [PoolAction::Forget { proc }]);
}

#[test]
fn pool_of_a_group_with_an_idle_process_that_can_forget_serves_before_full_pools() {
    let group = Some(GroupId(1));
    let mut world = World::empty();
    for _ in 0..2 {
        world.add(PoolSettings {
            group,
            can_forget: true,
            ..named(1)
        });
    }
    let ask = |world: &mut World, client, db| {
        let (group, affinity) = (Target::Group(GroupId(1)), tagged(db, "_design/1"));
        let request = world.ask_for(client, group, affinity, PATIENCE);
        world.run();
        request
    };
    let leases = [(1, "a"), (2, "b")].map(|(client, db)| {
        let request = ask(&mut world, client, db);
        world.lease(request, client).expect("served")
    });
    for lease in leases {
        world.give_back(lease);
        let request = ask(&mut world, 3, "c");
        let other = world.lease(request, 3).expect("served");
        assert_eq!(other.proc, lease.proc, "the other pool's process is in use");
        // A waiter is served by the first pool whose process is free.
        let waiter = ask(&mut world, 4, "d");
        assert_eq!(world.last, []);
        world.give_back(other);
        world.run();
        let last = world.lease(waiter, 4).expect("served");
        assert_eq!(last.proc, lease.proc);
    }
}

#[test]
fn processes_opened_before_can_forget_was_set_are_replaced() {
    let (mut world, proc) = one_of_a(PoolSettings::from(limits(1, 1)));
    let actions = world.on(Event::Reconfigure {
        pool: PoolId(0),
        settings: Box::new(forgetful(1, Reuse::Any)),
    });
    assert_eq!(stopped(&actions), [(proc, StopReason::Stale)]);
}

#[test]
fn plain_work_of_another_tenant_gets_a_process_that_forgot_even_if_processes_are_shared() {
    let mut world = World::with(forgetful(3, Reuse::Any));
    let mut lease = world.take(1, plain(db("a")));
    for tenant in [
        Tenant::User("ann".into()),
        Tenant::Client(ClientId(7)),
        db("a"),
    ] {
        world.give_back(lease);
        let request = world.ask(7, plain(tenant));
        // It knows no design document that would be lost: no process is opened.
        let proc = lease.proc;
        assert_eq!(world.last, [PoolAction::Forget { proc }]);
        done(&mut world, proc, true);
        lease = world.lease(request, 7).expect("served");
    }
    world.give_back(lease);
    let request = world.ask(8, tagged("a", "_design/1"));
    let proc = lease.proc;
    assert_eq!(
        world.last,
        [taught(proc, request)],
        "the process belongs to a"
    );
    done(&mut world, proc, true);
    let lease = world.lease(request, 8).expect("served");
    world.give_back(lease);
    // The process knows a document now, and there is room for another.
    let request = world.ask(9, plain(db("b")));
    assert_eq!(
        opened(&world.last),
        [(opened(&world.last)[0].0, Some(request))]
    );
    assert_eq!(world.totals().started, 1);
}

#[test]
fn an_idle_process_that_knows_no_design_document_stays_below_the_soft_limit() {
    for (soft, stays) in [(2, true), (1, false)] {
        let settings = PoolSettings {
            can_forget: true,
            ..PoolSettings::from(limits(3, soft))
        };
        let mut world = World::with(settings);
        let lease = world.take(1, plain(db("a")));
        world.give_back(lease);
        let actions = world.on(Event::OsProcIdle { proc: lease.proc });
        assert_eq!(actions.is_empty(), stays, "{actions:?}");
    }
}

/// A step in which processes sometimes gain or lose the ability to forget.
fn forgetting_step(step: impl Strategy<Value = Step>) -> impl Strategy<Value = Step> {
    (apart_step(step), 0..80_u32).prop_map(|(step, luck)| match luck {
        0 => Step::CanForget(0, false),
        1 | 2 => Step::CanForget(0, true),
        _ => step,
    })
}

proptest! {
    #[test]
    fn core_and_model_agree_where_processes_forget(
        limits in prop::collection::vec(any_limits(), 2),
        reuse in prop_oneof![Just(Reuse::Any), Just(Reuse::Database)],
        steps in prop::collection::vec(forgetting_step(any_step()), 1..150),
    ) {
        let mut trial = Trial::new(&limits);
        for pool in 0..2 {
            trial.step(Step::Reuse(pool, reuse));
            trial.step(Step::CanForget(pool, true));
        }
        for step in steps {
            trial.step(step);
        }
        trial.wind_up();
    }

    #[test]
    fn core_and_model_agree_where_processes_forget_and_waiters_overtake(
        hard_limit in 1..6_u32,
        wait_ms in prop_oneof![Just(0), 20..80_u64],
        reuse in prop_oneof![Just(Reuse::Any), Just(Reuse::Database)],
        steps in prop::collection::vec(forgetting_step(any_busy_step()), 50..200),
    ) {
        let affinity_wait = Duration::from_millis(wait_ms);
        let limits = Limits { hard_limit, soft_limit: 2, affinity_wait };
        let mut trial = Trial::new(&[limits]);
        trial.step(Step::Reuse(0, reuse));
        trial.step(Step::CanForget(0, true));
        for step in steps {
            trial.step(step);
        }
        trial.wind_up();
    }
}
