//! Throttling after failed starts, and stress at the process limit.
//!
//! SOURCE    Postfix master: a service with failing children is throttled; a service is under stress until
//!           1000 s after it was last at its limit.

use super::grouped::{GROUP, in_group};
use super::*;
use crate::admission::{
    EARLY_END, FAILURES_MIN, KILLS_MIN, STRESS_DURATION, THROTTLE_DELAY, ThrottleSettings,
};

const POOL: PoolId = PoolId(0);

/// Requests a process, and lets the opening fail. Returns the request and the actions.
fn fail_to_start_once(world: &mut World, client: u64) -> (RequestId, Vec<PoolAction>) {
    let request = world.ask(client, None);
    let (proc, _) = opened(&world.last)[0];
    (request, world.on(Event::SpawnError { proc }))
}

/// Requests processes and lets the openings fail until the pool is throttled. Returns the last request and the
/// actions.
fn fail_to_start(world: &mut World, client: u64) -> (RequestId, Vec<PoolAction>) {
    for _ in 1..FAILURES_MIN {
        let (request, actions) = fail_to_start_once(world, client);
        if warned_until(&actions).is_some() {
            return (request, actions);
        }
    }
    fail_to_start_once(world, client)
}

/// Lets the process kept by `init_size` exit, and the next starts fail.
fn fail_to_start_in_background(world: &mut World) {
    let proc = world.status().procs[0].proc;
    world.exit(proc);
    for failure in 1..=FAILURES_MIN {
        let actions = world.advance(Duration::from_secs(1));
        let (proc, _) = opened(&actions)[0];
        let actions = world.on(Event::SpawnError { proc });
        assert_eq!(warned_until(&actions).is_some(), failure == FAILURES_MIN);
    }
}

/// Borrows a process, which exits before any work.
fn exit_early(world: &mut World, client: u64, age: Duration) -> Vec<PoolAction> {
    let lease = world.take(client, None);
    let proc = lease.proc;
    world.on(Event::ProcFailed { proc, age })
}

#[test]
fn one_failed_start_does_not_throttle_and_waiters_wait_for_the_next_try() {
    let mut world = World::named(named(1));
    let first = world.ask(1, None);
    let waiter = world.ask(2, None);
    let proc = ProcId {
        pool: POOL,
        number: 1,
    };
    let actions = world.on(Event::SpawnError { proc });
    assert_eq!(world.refusal(first), Some(Refusal::SpawnFailed));
    assert_eq!(world.refusal(waiter), None);
    assert_eq!(opened(&actions)[0].1, Some(waiter));
    assert_eq!(world.status().throttled, None);
}

#[test]
fn starts_killed_by_a_signal_throttle_only_after_kills_min() {
    let mut world = World::named(named(5));
    for kill in 1..=KILLS_MIN {
        let request = world.ask(1, None);
        let (proc, _) = opened(&world.last)[0];
        let actions = world.on(Event::SpawnKilled { proc });
        assert_eq!(world.refusal(request), Some(Refusal::SpawnFailed));
        // Repeated kills throttle too.
        assert_eq!(warned_until(&actions).is_some(), kill == KILLS_MIN);
    }
}

#[test]
fn waiters_whose_deadline_is_after_the_throttle_wait_for_the_next_try() {
    let mut world = World::named(named(5));
    let (_, actions) = fail_to_start(&mut world, 1);
    let until = warned_until(&actions).expect("throttled");
    let hasty = world.ask_within(2, None, THROTTLE_DELAY);
    assert_eq!(world.refusal(hasty), Some(Refusal::Throttled { until }));
    let patient = world.ask_within(3, None, THROTTLE_DELAY + Duration::from_secs(1));
    assert_eq!(world.last, []);
    let actions = world.advance(THROTTLE_DELAY);
    assert_eq!(opened(&actions)[0].1, Some(patient));
    world.last = actions;
    world.run();
    assert!(world.lease(patient, 3).is_some());
}

#[test]
fn patient_group_request_waits_until_the_throttle_ends() {
    let mut world = World::named(in_group(1));
    fail_to_start(&mut world, 1);
    let request = world.ask_for(2, GROUP, None, THROTTLE_DELAY + Duration::from_secs(1));
    assert_eq!(world.refusal(request), None);
    assert_eq!(opened(&world.advance(THROTTLE_DELAY))[0].1, Some(request));
}

#[test]
fn processes_that_exit_before_doing_any_work_throttle_their_pool() {
    let mut world = World::named(named(5));
    for failure in 1..=FAILURES_MIN {
        let actions = exit_early(&mut world, 1, Duration::from_millis(1));
        assert_eq!(warned_until(&actions).is_some(), failure == FAILURES_MIN);
    }
    let request = world.ask(2, None);
    assert!(matches!(
        world.refusal(request),
        Some(Refusal::Throttled { .. })
    ));
}

#[test]
fn early_exit_counts_even_if_the_client_returned_the_process_as_broken() {
    let mut world = World::named(named(5));
    for failure in 1..=FAILURES_MIN {
        let lease = world.take(1, None);
        world.give_back_as(lease, ReturnStatus::Fail, Condition::Broken);
        let proc = lease.proc;
        let age = Duration::ZERO;
        let actions = world.on(Event::ProcFailed { proc, age });
        assert_eq!(warned_until(&actions).is_some(), failure == FAILURES_MIN);
        world.last = actions;
        world.run();
    }
}

#[test]
fn an_exit_after_a_while_or_after_any_work_is_not_early() {
    let mut world = World::named(named(5));
    for _ in 0..=FAILURES_MIN {
        assert_eq!(warned_until(&exit_early(&mut world, 1, EARLY_END)), None);
    }
    for _ in 0..=FAILURES_MIN {
        // One-shot use: the process exits after its work.
        let lease = world.take(1, None);
        world.exit(lease.proc);
        let actions = exit_early(&mut world, 2, Duration::ZERO);
        assert_eq!(warned_until(&actions), None);
    }
    assert_eq!(world.status().throttled, None);
}

#[test]
fn pool_without_a_throttle_warns_of_early_exits_and_keeps_trying() {
    let mut world = World::with(PoolSettings::from(limits(3, 3)));
    let warning = PoolAction::Warn(POOL, Warning::EndsEarly);
    for failure in 1..=FAILURES_MIN {
        let actions = exit_early(&mut world, 1, Duration::ZERO);
        assert_eq!(actions.contains(&warning), failure == FAILURES_MIN);
    }
    world.take(2, None);
}

fn warned_until(actions: &[PoolAction]) -> Option<Timestamp> {
    actions.iter().find_map(|action| match *action {
        PoolAction::Warn(_, Warning::Throttled { until }) => Some(until),
        _ => None,
    })
}

#[test]
fn failed_starts_refuse_their_requests_and_stop_openings_for_throttle_delay() {
    let mut world = World::named(named(5));
    let (request, actions) = fail_to_start(&mut world, 1);
    assert_eq!(world.refusal(request), Some(Refusal::SpawnFailed));
    let until = world.now + THROTTLE_DELAY;
    assert_eq!(warned_until(&actions), Some(until));
    let next = world.ask(2, None);
    assert_eq!(world.refusal(next), Some(Refusal::Throttled { until }));
    assert_eq!(opened(&world.last), []);
    assert_eq!(world.status().throttled, Some(THROTTLE_DELAY));
    world.now = world.now + (THROTTLE_DELAY - Duration::from_nanos(1));
    let early = world.ask_within(3, None, Duration::from_nanos(1));
    assert_eq!(world.refusal(early), Some(Refusal::Throttled { until }));
    let actions = world.advance(Duration::from_nanos(1));
    assert_eq!(actions, [PoolAction::Warn(POOL, Warning::Unthrottled)]);
    world.ask(4, None);
    assert_eq!(opened(&world.last).len(), 1);
}

#[test]
fn throttle_delay_doubles_up_to_its_maximum_and_one_success_resets_it() {
    let mut world = World::named(named(5));
    let mut delays = Vec::new();
    for client in 1..=6 {
        let (_, actions) = fail_to_start(&mut world, client);
        let until = warned_until(&actions).expect("it is throttled each time");
        delays.push(until.since(world.now).as_secs());
        world.now = until;
        world.on(Event::Tick);
    }
    assert_eq!(delays, [60, 120, 240, 480, 600, 600]);
    assert_eq!(ThrottleSettings::default().delay_max.as_secs(), 600);
    let lease = world.take(7, None);
    world.give_back(lease);
    let held = world.take(8, None);
    let (_, actions) = fail_to_start(&mut world, 9);
    let until = warned_until(&actions).expect("throttled again");
    assert_eq!(until, world.now + THROTTLE_DELAY);
    world.give_back(held);
}

#[test]
fn successful_start_alone_resets_the_throttle_delay() {
    let mut world = World::named(named(5));
    let (_, actions) = fail_to_start(&mut world, 1);
    world.now = warned_until(&actions).expect("throttled");
    world.take(2, None);
    let (_, actions) = fail_to_start(&mut world, 3);
    let until = warned_until(&actions).expect("throttled again");
    assert_eq!(until, world.now + THROTTLE_DELAY);
}

#[test]
fn exits_and_broken_returns_of_started_processes_do_not_throttle() {
    let mut world = World::named(PoolSettings {
        init_size: 1,
        ..named(5)
    });
    let unused = world.status().procs[0].proc;
    assert_eq!(world.exit(unused), [], "it is not restarted in a loop");
    let actions = world.advance(Duration::from_secs(1));
    assert_eq!(opened(&actions).len(), 1, "init_size holds again");
    world.last = actions;
    world.run();
    let first = world.take(1, None);
    world.exit(first.proc);
    let second = world.take(2, None);
    world.give_back_as(second, ReturnStatus::Fail, Condition::Broken);
    world.exit(second.proc);
    assert_eq!(world.status().throttled, None);
}

#[test]
fn process_that_exits_after_use_is_replaced_at_once() {
    let mut world = World::named(PoolSettings {
        init_size: 1,
        ..named(5)
    });
    let lease = world.take(1, None);
    world.give_back(lease);
    assert_eq!(opened(&world.exit(lease.proc)).len(), 1);
}

#[test]
fn failed_starts_concurrent_with_a_successful_one_do_not_throttle() {
    let mut world = World::named(named(5));
    let procs = [1, 2, 3].map(|client| {
        world.ask(client, None);
        opened(&world.last)[0].0
    });
    world.on(Event::SpawnOk { proc: procs[1] });
    // Both began before the other one succeeded.
    for proc in [procs[0], procs[2]] {
        assert_eq!(warned_until(&world.on(Event::SpawnError { proc })), None);
    }
    assert_eq!(world.totals().start_failures, 2);
    let (_, actions) = fail_to_start(&mut world, 4);
    assert!(warned_until(&actions).is_some(), "these began later");
}

#[test]
fn start_that_began_before_a_throttle_was_lifted_does_not_throttle_again() {
    for event in [Event::Unthrottle { pool: POOL }, Event::SetThresholdTs] {
        let mut world = World::named(named(5));
        world.ask(1, None);
        let (slow, _) = opened(&world.last)[0];
        world.on(event);
        assert_eq!(
            warned_until(&world.on(Event::SpawnError { proc: slow })),
            None
        );
        assert_eq!(world.status().throttled, None);
    }
}

#[test]
fn client_that_returns_healthy_processes_as_broken_does_not_throttle_the_pool() {
    let mut world = World::named(named(5));
    for client in 1..=3 {
        let lease = world.take(client, None);
        world.give_back_as(lease, ReturnStatus::Fail, Condition::Broken);
        world.run();
    }
    assert_eq!(world.status().throttled, None);
}

#[test]
fn existing_processes_keep_serving_while_their_pool_is_throttled() {
    let mut world = World::named(named(5));
    let lease = world.take(1, None);
    fail_to_start(&mut world, 2);
    let waits = world.ask(3, None);
    assert_eq!(world.last, [], "the lent process may be returned");
    world.give_back(lease);
    let lease = world.lease(waits, 3).expect("it was returned");
    world.give_back(lease);
    assert_eq!(world.take(4, None).proc, lease.proc);
}

#[test]
fn waiters_without_a_process_to_wait_for_are_refused_when_the_pool_is_throttled() {
    let mut world = World::named(named(1));
    for _ in 1..FAILURES_MIN {
        fail_to_start_once(&mut world, 1);
    }
    let first = world.ask(1, None);
    let (proc, _) = opened(&world.last)[0];
    let waiters = [2, 3].map(|client| world.ask(client, None));
    let actions = world.on(Event::SpawnError { proc });
    assert_eq!(world.refusal(first), Some(Refusal::SpawnFailed));
    let until = warned_until(&actions).expect("throttled");
    for waiter in waiters {
        assert_eq!(world.refusal(waiter), Some(Refusal::Throttled { until }));
    }
    assert_eq!(opened(&actions), []);
}

#[test]
fn waiters_of_a_throttled_pool_are_refused_when_its_last_process_exits() {
    let mut world = World::named(named(5));
    let lease = world.take(1, None);
    fail_to_start(&mut world, 2);
    let waiter = world.ask(3, None);
    let tagged_waiter = world.ask(4, tagged("db", "_design/1"));
    assert_eq!(world.last, []);
    world.exit(lease.proc);
    for request in [waiter, tagged_waiter] {
        let why = world.refusal(request);
        assert!(matches!(why, Some(Refusal::Throttled { .. })), "{why:?}");
    }
}

#[test]
fn process_of_another_database_cannot_serve_a_design_document() {
    let mut world = World::named(named(5));
    world.take(1, tagged("db1", "_design/1"));
    fail_to_start(&mut world, 2);
    let other = world.ask(3, tagged("db2", "_design/1"));
    assert!(matches!(
        world.refusal(other),
        Some(Refusal::Throttled { .. })
    ));
    let same = world.ask(4, tagged("db1", "_design/9"));
    assert_eq!(world.refusal(same), None);
}

#[test]
fn throttle_is_lifted_by_an_operator_and_by_a_reload() {
    for event in [Event::Unthrottle { pool: POOL }, Event::SetThresholdTs] {
        let mut world = World::named(PoolSettings {
            init_size: 1,
            ..named(5)
        });
        fail_to_start_in_background(&mut world);
        let actions = world.on(event);
        let lifted = PoolAction::Warn(POOL, Warning::Unthrottled);
        assert!(actions.contains(&lifted));
        assert_eq!(opened(&actions).len(), 1);
        assert_eq!(world.status().throttled, None);
        world.run();
    }
}

#[test]
fn requests_to_a_group_go_to_its_pools_that_are_not_throttled() {
    let mut world = World::named(in_group(2));
    world.add(in_group(2));
    let ask = |world: &mut World, client| {
        let request = world.ask_of(client, GROUP);
        let opening = opened(&world.last).first().map(|(proc, _)| *proc);
        (request, opening)
    };
    fail_to_start(&mut world, 1);
    for client in 2..=3 {
        let (_, proc) = ask(&mut world, client);
        assert_eq!(proc.expect("it is opened elsewhere").pool, PoolId(1));
        world.run();
    }
    let (waits, none) = ask(&mut world, 4);
    assert_eq!((none, world.refusal(waits)), (None, None));
    let actions = world.advance(THROTTLE_DELAY);
    let gone = world.refusal(waits);
    assert!(gone.is_some(), "its own deadline was earlier");
    assert_eq!(opened(&actions), []);
}

#[test]
fn fully_throttled_group_reports_the_time_of_the_next_try() {
    let mut world = World::named(in_group(1));
    let (_, actions) = fail_to_start(&mut world, 1);
    let until = warned_until(&actions).expect("throttled");
    let request = world.ask_of(2, GROUP);
    assert_eq!(world.refusal(request), Some(Refusal::Throttled { until }));
}

#[test]
fn pool_without_a_throttle_pauses_between_background_openings() {
    let mut world = World::empty();
    world.add(PoolSettings {
        init_size: 1,
        ..limits(3, 3).into()
    });
    let (proc, _) = opened(&world.last)[0];
    assert_eq!(world.on(Event::SpawnError { proc }), []);
    let waiter = world.ask(1, None);
    assert_eq!(
        opened(&world.last)[0].1,
        Some(waiter),
        "a request is not delayed"
    );
    let (proc, _) = opened(&world.last)[0];
    assert_eq!(opened(&world.on(Event::SpawnError { proc })), []);
    let actions = world.advance(Duration::from_secs(1));
    assert_eq!(opened(&actions).len(), 1);
}

fn stressed(max: u32) -> World {
    World::named(PoolSettings {
        stress: true,
        ..named(max)
    })
}

#[test]
fn request_that_brings_the_pool_to_its_limit_begins_stress() {
    let mut world = stressed(3);
    world.take(1, None);
    assert!(!world.pools.is_stressed(POOL));
    world.take(2, None);
    assert!(!world.pools.is_stressed(POOL), "two of three");
    world.take(3, None);
    assert!(world.pools.is_stressed(POOL));
    assert_eq!(world.status().stressed, Some(STRESS_DURATION));
}

#[test]
fn idle_processes_are_replaced_when_stress_begins_and_not_while_it_lasts() {
    let mut world = stressed(3);
    let one = world.take(1, tagged("db1", "_design/1"));
    let two = world.take(2, tagged("db2", "_design/1"));
    world.give_back(one);
    world.ask(3, tagged("db3", "_design/1"));
    let warning = PoolAction::Warn(POOL, Warning::Stressed);
    assert!(world.last.contains(&warning));
    assert_eq!(stopped(&world.last), [(one.proc, StopReason::Stress)]);
    world.run();
    world.give_back(two);
    assert_eq!(stopped(&world.last), [], "returned during stress");
    let before = world.totals().stopped(StopReason::Stress);
    world.ask(4, tagged("db4", "_design/1"));
    assert!(!world.last.contains(&warning));
    assert_eq!(world.totals().stopped(StopReason::Stress), before);
}

#[test]
fn stress_ends_1000_s_after_the_pool_was_last_at_its_limit() {
    let mut world = stressed(1);
    let lease = world.take(1, None);
    world.now = world.now + Duration::from_secs(900);
    world.ask(2, None);
    assert!(world.pools.is_stressed(POOL));
    world.down(2, false);
    world.advance(Duration::from_secs(999));
    assert!(world.pools.is_stressed(POOL));
    world.advance(Duration::from_secs(1));
    assert!(!world.pools.is_stressed(POOL));
    world.give_back(lease);
}

#[test]
fn pool_without_stress_enabled_is_never_stressed() {
    let mut world = World::named(named(1));
    world.take(1, None);
    world.ask(2, None);
    assert!(!world.pools.is_stressed(POOL));
}

#[test]
fn forbidden_opening_panics_in_debug_builds_and_is_refused_with_a_warning_in_release_builds() {
    let mut world = World::named(named(1));
    world.take(1, None);
    let mut out = Vec::new();
    let Pools { pools, ledger, .. } = &mut world.pools;
    let mut turn = Turn {
        id: POOL,
        pool: &mut pools[0],
        ledger,
        out: &mut out,
    };
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| turn.open(None)));
    if cfg!(debug_assertions) {
        assert!(tried.is_err());
    } else {
        assert_eq!(tried.ok(), Some(false));
        let refused = matches!(out[..], [PoolAction::Warn(_, Warning::SpawnRefused(_))]);
        assert!(refused, "{out:?}");
    }
}
