//! Defects of the reference that the core's decisions avoid.
//!
//! SOURCE    The observed behaviour of couch_proc_manager: D1 to D16.
//! LIMITS    D12, D13, D14 and D15 concern configuration, stopping a child and the client's loop: the actors' tests
//!           cover them. D16, one pool for all spellings of a language, concerns the registry: here a pool is a number.

use super::*;

/// A world whose only process is idle, tagged `db`, and knows `_design/1`.
fn one_tagged_idle() -> (World, ProcId) {
    let mut world = World::new(1, 1);
    let lease = world.take(1, tagged("db", "_design/1"));
    world.give_back(lease);
    (world, lease.proc)
}

/// D1, D5: the manager survives.
#[test]
fn failed_teaching_stops_a_reused_process_and_refuses_the_request() {
    let (mut world, proc) = one_tagged_idle();
    let request = world.ask(2, tagged("db", "_design/2"));
    assert_eq!(world.last, [taught(proc, request)]);
    let actions = world.on(Event::TeachOrResetDone { proc, ok: false });
    let why = Refusal::TeachFailed;
    assert_eq!(
        actions,
        [
            PoolAction::Refuse { request, why },
            PoolAction::Stop {
                proc,
                why: StopReason::TeachFailed
            },
        ]
    );
    assert_eq!(world.pools.proc_count(), 0);
}

/// D1b: the next client never gets a dead client's open list.
#[test]
fn process_with_an_open_list_is_not_lent_again() {
    let mut world = World::new(1, 1);
    let lease = world.take(1, tagged("db", "_design/1"));
    let waiter = world.ask(2, tagged("db", "_design/2"));
    let actions = world.on(Event::ClientDown {
        client: ClientId(1),
        normal: false,
        conditions: vec![(lease.proc, Condition::Broken)],
    });
    assert_eq!(stopped(&actions), [(lease.proc, StopReason::Broken)]);
    assert_eq!(opened(&actions).len(), 1);
    assert_eq!(opened(&actions)[0].1, Some(waiter));
}

/// D2.
#[test]
fn teaching_a_process_does_not_delay_other_requests() {
    let mut world = World::new(2, 2);
    let other = world.pools.add_pool(limits(1, 1).into());
    let lease = world.take(1, tagged("db", "_design/1"));
    world.give_back(lease);
    world.ask(2, tagged("db", "_design/2"));
    let elsewhere = world.ask_of(3, Target::Pool(other));
    assert_eq!(opened(&world.last)[0].1, Some(elsewhere));
    let same_pool = world.ask(4, None);
    world.run();
    assert!(world.lease(same_pool, 4).is_some());
}

/// D3.
#[test]
fn failed_opening_releases_its_slot_its_row_and_its_client() {
    let mut world = World::new(1, 1);
    let request = world.ask(1, None);
    let waiter = world.ask(2, None);
    let proc = ProcId {
        pool: PoolId(0),
        number: 1,
    };
    let actions = world.on(Event::SpawnError { proc });
    let why = Refusal::SpawnFailed;
    assert_eq!(actions[0], PoolAction::Refuse { request, why });
    assert_eq!(opened(&actions)[0].1, Some(waiter));
    assert_eq!(world.pools.proc_count(), 1);
}

/// D4, D5: the process is stopped, its slot freed, its client notified.
#[test]
fn failed_teaching_of_a_new_process_leaks_nothing() {
    let mut world = World::new(1, 1);
    let request = world.ask(1, tagged("db", "_design/1"));
    let (proc, _) = opened(&world.last)[0];
    assert_eq!(world.on(Event::SpawnOk { proc }), [taught(proc, request)]);
    let actions = world.on(Event::TeachOrResetDone { proc, ok: false });
    let why = Refusal::TeachFailed;
    assert_eq!(actions[0], PoolAction::Refuse { request, why });
    assert_eq!(stopped(&actions), [(proc, StopReason::TeachFailed)]);
    assert_eq!(world.pools.proc_count(), 0);
    world.on(Event::ProcExit { proc });
    assert_eq!(world.status().stopping, 0);
}

/// D6.
#[test]
fn process_opened_to_replenish_serves_a_waiter() {
    let mut world = World::new(2, 2);
    let untagged = world.take(1, None);
    world.give_back(untagged);
    world.ask(2, tagged("db", "_design/1"));
    let replenishing = opened(&world.last)[0];
    assert_eq!(replenishing.1, None);
    let waiter = world.ask(3, None);
    assert_eq!(world.last, []);
    world.on(Event::SpawnOk {
        proc: replenishing.0,
    });
    assert_eq!(world.lease(waiter, 3).expect("served").proc, replenishing.0);
}

/// D7.
#[test]
fn client_that_times_out_during_opening_holds_nothing() {
    let mut world = World::new(1, 1);
    let request = world.ask(1, None);
    let (proc, _) = opened(&world.last)[0];
    let why = Refusal::Timeout { phase: Phase::Open };
    assert_eq!(
        world.advance(PATIENCE),
        [PoolAction::Refuse { request, why }]
    );
    assert_eq!(world.on(Event::SpawnOk { proc }), []);
    assert_eq!(world.status().free, 1);
    assert_eq!(world.take(2, None).proc, proc);
}

/// D8.
#[test]
fn second_return_of_the_same_assignment_changes_nothing() {
    let mut world = World::new(2, 2);
    let lease = world.take(1, None);
    world.give_back(lease);
    let before = world.status();
    assert!(!world.pools.holds(lease.client, lease.proc, lease.token));
    assert_eq!(world.give_back(lease), []);
    assert_eq!(world.status(), before);
    assert_eq!(world.totals().returned, 1);
}

/// D9.
#[test]
fn late_return_by_the_previous_holder_leaves_the_process_with_the_current_one() {
    let mut world = World::new(1, 1);
    let before = world.take(1, None);
    world.give_back(before);
    let current = world.take(2, None);
    let third = world.ask(3, None);
    assert_eq!(world.give_back(before), []);
    let same_client = Lease {
        client: ClientId(2),
        ..before
    };
    assert_eq!(world.give_back(same_client), []);
    let same_token = Lease {
        client: ClientId(1),
        ..current
    };
    assert_eq!(world.give_back(same_token), []);
    assert!(
        world
            .pools
            .holds(current.client, current.proc, current.token)
    );
    assert_eq!(world.lease(third, 3), None);
}

/// A world whose only process is held for db1 while a client of db2 waits.
fn full_with_waiter() -> (World, Lease, RequestId) {
    let mut world = World::new(1, 1);
    let lease = world.take(1, tagged("db1", "_design/1"));
    let waiter = world.ask(2, tagged("db2", "_design/1"));
    (world, lease, waiter)
}

/// D10: a process stopped by a reload leaves its slot to a waiter.
#[test]
fn slots_that_a_reload_frees_go_to_waiters() {
    let (mut world, lease, waiter) = full_with_waiter();
    world.on(Event::SetThresholdTs);
    let actions = world.give_back(lease);
    assert_eq!(stopped(&actions), [(lease.proc, StopReason::Stale)]);
    assert_eq!(opened(&actions)[0].1, Some(waiter));
}

/// D10: nothing is reaped while a whole batch is still ending, so a waiter coexists with an idle process of another
/// database; every way to free that slot serves the waiter.
#[test]
fn slots_that_idle_processes_leave_go_to_waiters() {
    for event in [0, 1, 2] {
        let mut world = World::new(2, 1);
        let first = world.take(1, tagged("db1", "_design/1"));
        let second = world.take(2, tagged("db2", "_design/1"));
        world.give_back(first);
        world.give_back(second);
        world.ask(3, tagged("db3", "_design/1"));
        assert_eq!(stopped(&world.last), [(first.proc, StopReason::Reaped)]);
        let waiter = world.ask(4, tagged("db4", "_design/1"));
        assert_eq!(world.last, []);
        let actions = match event {
            0 => world.on(Event::SetThresholdTs),
            1 => world.on(Event::OsProcIdle { proc: second.proc }),
            _ => world.on(Event::ProcExit { proc: first.proc }),
        };
        assert_eq!(stopped(&actions)[0].0, second.proc);
        assert_eq!(opened(&actions)[0].1, Some(waiter));
    }
}

/// D11: even from zero, and even if no process was ever opened.
#[test]
fn raised_limit_serves_the_waiters() {
    let mut world = World::new(0, 0);
    let first = world.ask(1, None);
    let second = world.ask(2, tagged("db", "_design/1"));
    assert_eq!(world.last, []);
    let actions = world.limit(limits(1, 1));
    assert_eq!(opened(&actions).len(), 1);
    assert_eq!(opened(&actions)[0].1, Some(first));
    let actions = world.limit(limits(2, 1));
    assert_eq!(opened(&actions)[0].1, Some(second));
}

/// The core's part of D15, a missing program.
#[test]
fn failed_openings_are_not_retried() {
    let mut world = World::new(3, 2);
    let untagged = world.take(1, None);
    world.give_back(untagged);
    world.ask(2, tagged("db", "_design/1"));
    let (replenishing, _) = opened(&world.last)[0];
    assert_eq!(world.on(Event::SpawnError { proc: replenishing }), []);
    assert_eq!(world.advance(Duration::from_secs(1)), []);
    assert_eq!(world.totals().start_failures, 1);
}

/// The reference serves a waiter whose client is dead, and even opens a process for it.
#[test]
fn waiter_whose_client_has_ended_is_dropped_at_once() {
    let mut world = World::new(1, 1);
    let lease = world.take(1, None);
    world.ask(2, None);
    let third = world.ask(3, None);
    let down = Event::ClientDown {
        client: ClientId(2),
        normal: false,
        conditions: Vec::new(),
    };
    assert_eq!(world.on(down), []);
    world.give_back(lease);
    assert!(world.lease(third, 3).is_some());
    assert_eq!(world.status().waiting, 0);
}
