//! Edge cases: limits, deadlines, deaths, reload, shutdown, and who is notified.

use super::*;

/// One action, which stops this process.
fn stop(proc: ProcId, why: StopReason) -> Vec<PoolAction> {
    vec![PoolAction::Stop { proc, why }]
}

fn exit(world: &mut World, proc: ProcId) -> Vec<PoolAction> {
    world.on(Event::ProcExit { proc })
}

#[test]
fn limit_of_zero_opens_nothing_and_requests_time_out() {
    let mut world = World::new(0, 0);
    let request = world.ask(1, None);
    assert_eq!(world.last, []);
    let why = Refusal::Timeout {
        phase: Phase::Queue,
    };
    assert_eq!(
        world.advance(PATIENCE),
        [PoolAction::Refuse { request, why }]
    );
    assert_eq!(world.pools.next_deadline(), None);
}

#[test]
fn request_that_arrives_after_its_deadline_is_refused_at_once() {
    let mut world = World::new(1, 1);
    let lease = world.take(1, None);
    world.give_back(lease);
    let request = world.ask_within(2, None, Duration::ZERO);
    let why = Refusal::Timeout {
        phase: Phase::Queue,
    };
    assert_eq!(world.last, [PoolAction::Refuse { request, why }]);
}

#[test]
fn no_request_is_served_after_its_deadline_even_if_the_tick_is_late() {
    let mut world = World::new(1, 1);
    let lease = world.take(1, None);
    let late = world.ask(2, None);
    world.now = world.now + PATIENCE;
    let next = world.ask(3, None);
    let why = Refusal::Timeout {
        phase: Phase::Queue,
    };
    assert_eq!(world.last, [PoolAction::Refuse { request: late, why }]);
    world.give_back(lease);
    assert!(world.lease(next, 3).is_some());
}

#[test]
fn withdrawn_request_leaves_its_process_to_the_next() {
    let mut world = World::new(1, 1);
    let lease = world.take(1, None);
    let request = world.ask(2, None);
    let next = world.ask(2, None);
    for _ in 0..2 {
        assert_eq!(world.on(Event::Withdraw { request }), []);
    }
    assert_eq!(world.status().waiting, 1);
    world.give_back(lease);
    assert!(world.lease(next, 2).is_some());
}

#[test]
fn process_taught_for_a_request_that_timed_out_keeps_the_document() {
    let mut world = World::new(1, 1);
    let request = world.ask(1, tagged("db", "_design/1"));
    let (proc, _) = opened(&world.last)[0];
    world.on(Event::SpawnOk { proc });
    let why = Refusal::Timeout {
        phase: Phase::Teach,
    };
    assert_eq!(
        world.advance(PATIENCE),
        [PoolAction::Refuse { request, why }]
    );
    assert_eq!(world.on(Event::TeachOrResetDone { proc, ok: true }), []);
    assert_eq!(world.status().free_tagged, 1);
    let next = world.ask(2, tagged("db", "_design/1"));
    assert_eq!(
        world
            .lease(next, 2)
            .expect("the process knows the document")
            .proc,
        proc
    );
}

#[test]
fn requests_of_ended_clients_get_no_answer_and_leave_no_trace() {
    let mut world = World::new(1, 1);
    world.ask(1, tagged("db", "_design/1"));
    let (proc, _) = opened(&world.last)[0];
    world.ask(2, None);
    assert_eq!(world.down(2, false), []);
    assert_eq!(world.down(1, false), []);
    assert_eq!(world.down(1, false), []);
    assert_eq!(world.pools.next_deadline(), None);
    assert_eq!(world.on(Event::SpawnOk { proc }), []);
    assert_eq!((world.status().free, world.status().free_tagged), (1, 0));
    assert_eq!(world.pools.row_count(), 1);
}

#[test]
fn new_text_of_a_document_replaces_the_old_one() {
    let mut world = World::new(2, 2);
    let lease = world.take(1, affinity(Some("db"), "_design/1", "1-a"));
    world.give_back(lease);
    let lease = world.take(1, affinity(Some("db"), "_design/1", "2-b"));
    world.give_back(lease);
    assert_eq!(world.status().procs[0].ddocs, 1);
    let request = world.ask(1, affinity(Some("db"), "_design/1", "1-a"));
    let proc = lease.proc;
    assert_eq!(world.last, [taught(proc, request)]);
}

#[test]
fn untagged_process_that_knows_the_document_is_taught_again_to_become_tagged() {
    let mut world = World::new(2, 2);
    let lease = world.take(1, affinity(None, "_design/1", "1-a"));
    world.give_back(lease);
    let request = world.ask(2, tagged("db", "_design/1"));
    let proc = lease.proc;
    assert!(world.last.contains(&taught(proc, request)));
    world.run();
    let lease = world.lease(request, 2).expect("taught");
    world.give_back(lease);
    assert_eq!(world.status().free_tagged, 1);
    assert_eq!(world.status().procs[0].ddocs, 1);
}

#[test]
fn newest_of_equal_processes_is_chosen() {
    let mut world = World::new(3, 3);
    let leases: Vec<Lease> = (1..=3).map(|client| world.take(client, None)).collect();
    for at in [2, 0, 1] {
        world.give_back(leases[at]);
    }
    assert_eq!(world.take(4, None).proc, leases[2].proc);
}

#[test]
fn taught_process_serves_requests_without_a_document_only_for_its_own_database() {
    let mut world = World::new(2, 2);
    let a = world.take(1, tagged("a", "_design/1"));
    let z = world.take(2, tagged("z", "_design/1"));
    for lease in [a, z] {
        world.give_back(lease);
    }
    let of = |db: &str| {
        let tenant = Tenant::Database(db.into());
        Some(Affinity { tenant, ddoc: None })
    };
    let lease = world.take(3, of("a"));
    assert_eq!(lease.proc, a.proc);
    world.advance(Duration::from_millis(1));
    world.give_back(lease);
    assert_eq!(world.status().free_tagged, 2);
    // A request of another database, and one of none.
    world.ask(4, of("b"));
    assert_eq!(stopped(&world.last), [(z.proc, StopReason::Reaped)]);
    world.run();
    world.ask(5, None);
    assert_eq!(stopped(&world.last), [(a.proc, StopReason::Reaped)]);
}

#[test]
fn with_lends_taught_a_request_without_a_document_gets_a_taught_process_as_a_last_resort() {
    let mut world = World::with(PoolSettings {
        lends_taught: true,
        ..PoolSettings::from(limits(3, 3))
    });
    let z = world.take(1, tagged("z", "_design/1"));
    let a = world.take(2, tagged("a", "_design/1"));
    let newer_z = world.take(3, tagged("z", "_design/1"));
    for lease in [z, a, newer_z] {
        world.give_back(lease);
    }
    let of_own = world.take(4, plain(db("a")));
    assert_eq!(
        of_own.proc, a.proc,
        "its own database's process comes first"
    );
    let request = world.ask(5, None);
    let lease = world.lease(request, 5).expect("a process is idle");
    assert_eq!(lease.proc, newer_z.proc);
    let is_reset = |action: &PoolAction| matches!(action, PoolAction::Assign { reset: true, .. });
    assert!(matches!(&world.last[..], [action] if is_reset(action)));
    world.give_back(lease);
    world.give_back(of_own);
    // The process keeps its documents, and a request for a document never gets another database's process.
    assert_eq!(world.status().free_tagged, 3);
    let again = world.ask(6, tagged("z", "_design/1"));
    assert!(
        world.lease(again, 6).is_some(),
        "no document is taught again"
    );
    world.ask(7, tagged("b", "_design/1"));
    assert_eq!(stopped(&world.last), [(z.proc, StopReason::Reaped)]);
}

#[test]
fn least_recently_used_processes_are_reaped_first_and_in_batches() {
    let mut world = World::new(10, 10);
    let leases: Vec<Lease> = (0..10)
        .map(|n| world.take(n, tagged(&format!("db{n}"), "_design/1")))
        .collect();
    for lease in leases.iter().rev() {
        world.advance(Duration::from_millis(1));
        world.give_back(*lease);
    }
    world.ask(20, tagged("new1", "_design/1"));
    let reaped = [
        (leases[9].proc, StopReason::Reaped),
        (leases[8].proc, StopReason::Reaped),
    ];
    assert_eq!(stopped(&world.last), reaped);
    world.ask(21, tagged("new2", "_design/1"));
    assert_eq!(stopped(&world.last), [], "a slot is left");
    world.ask(22, tagged("new3", "_design/1"));
    assert_eq!(world.last, [], "the whole batch is still ending");
    let actions = exit(&mut world, leases[9].proc);
    assert_eq!(stopped(&actions), [(leases[7].proc, StopReason::Reaped)]);
    assert_eq!(opened(&actions).len(), 1);
}

#[test]
fn lowered_limit_stops_idle_processes_now_and_lent_ones_on_return() {
    let mut world = World::new(4, 4);
    let tagged_one = world.take(1, tagged("db", "_design/1"));
    let held: Vec<Lease> = (2..=3).map(|client| world.take(client, None)).collect();
    let untagged = world.take(4, None);
    world.give_back(untagged);
    world.give_back(tagged_one);
    let first = world.limit(limits(3, 1));
    assert_eq!(first, stop(tagged_one.proc, StopReason::OverLimit));
    let second = world.limit(limits(1, 1));
    assert_eq!(second, stop(untagged.proc, StopReason::OverLimit));
    assert_eq!(world.pools.proc_count(), 2);
    let third = world.give_back(held[0]);
    assert_eq!(third, stop(held[0].proc, StopReason::OverLimit));
    assert_eq!(world.give_back(held[1]), []);
    assert_eq!(world.status().free, 1);
}

#[test]
fn openings_in_flight_at_a_reload_become_stale_processes() {
    let mut world = World::new(2, 2);
    let request = world.ask(1, None);
    let (proc, _) = opened(&world.last)[0];
    world.on(Event::SetThresholdTs);
    world.on(Event::SpawnOk { proc });
    let lease = world.lease(request, 1).expect("served anyway");
    assert_eq!(world.pools.stale_proc_count(), 1);
    assert_eq!(world.give_back(lease), stop(proc, StopReason::Stale));
    let fresh = world.take(1, None);
    assert_eq!(world.pools.stale_proc_count(), 0);
    assert_eq!(world.give_back(fresh), []);
}

#[test]
fn reload_stops_every_idle_process_of_every_pool() {
    let mut world = World::new(2, 2);
    let one = world.take(1, None);
    let two = world.take(2, tagged("db", "_design/1"));
    world.give_back(one);
    world.give_back(two);
    let actions = world.on(Event::SetThresholdTs);
    let both = [(one.proc, StopReason::Stale), (two.proc, StopReason::Stale)];
    assert_eq!(stopped(&actions), both);
}

#[test]
fn assigned_process_ignores_its_idle_timer() {
    let mut world = World::new(1, 0);
    let lease = world.take(1, tagged("db", "_design/1"));
    assert_eq!(world.on(Event::OsProcIdle { proc: lease.proc }), []);
    world.give_back(lease);
    let actions = world.on(Event::OsProcIdle { proc: lease.proc });
    assert_eq!(actions, stop(lease.proc, StopReason::Idle));
}

#[test]
fn process_ended_by_an_operator_is_not_lent_again_and_a_lent_one_stays_lent() {
    let mut world = World::new(1, 1);
    let lease = world.take(1, None);
    let proc = lease.proc;
    assert_eq!(world.on(Event::StopIdle { proc }), []);
    assert!(world.pools.holds(lease.client, proc, lease.token));
    world.give_back(lease);
    let actions = world.on(Event::StopIdle { proc });
    assert_eq!(actions, stop(proc, StopReason::Removed));
    assert_ne!(world.take(2, None).proc, proc);
}

#[test]
fn idle_untagged_process_is_kept_below_the_soft_limit() {
    let mut world = World::new(3, 2);
    let lease = world.take(1, None);
    world.give_back(lease);
    assert_eq!(world.on(Event::OsProcIdle { proc: lease.proc }), []);
}

#[test]
fn lent_process_that_dies_frees_its_slot_and_cannot_be_returned() {
    let mut world = World::new(1, 1);
    let lease = world.take(1, None);
    let waiter = world.ask(2, None);
    let actions = exit(&mut world, lease.proc);
    assert_eq!(opened(&actions)[0].1, Some(waiter));
    assert!(!world.pools.holds(lease.client, lease.proc, lease.token));
    assert_eq!(world.pools.held_by(lease.client), []);
    assert_eq!(world.give_back(lease), []);
    assert_eq!(world.totals().died, 1);
}

#[test]
fn client_is_refused_once_if_its_process_dies_while_being_taught() {
    let mut world = World::new(1, 1);
    let request = world.ask(1, tagged("db", "_design/1"));
    let (proc, _) = opened(&world.last)[0];
    world.on(Event::SpawnOk { proc });
    let why = Refusal::TeachFailed;
    assert_eq!(
        exit(&mut world, proc),
        [PoolAction::Refuse { request, why }]
    );
    assert_eq!(world.on(Event::TeachOrResetDone { proc, ok: false }), []);
    assert_eq!(world.pools.proc_count(), 0);
}

#[test]
fn process_that_needs_a_reset_is_lent_only_after_the_reset_succeeds() {
    for ok in [true, false] {
        let mut world = World::new(1, 1);
        let lease = world.take(1, None);
        let proc = lease.proc;
        let waiter = world.ask(2, None);
        let actions = world.give_back_as(lease, ReturnStatus::Ok, Condition::NeedsReset);
        assert_eq!(actions, [PoolAction::Reset { proc }]);
        let actions = world.on(Event::TeachOrResetDone { proc, ok });
        if ok {
            assert_eq!(world.lease(waiter, 2).expect("reset").proc, proc);
        } else {
            assert_eq!(stopped(&actions), [(proc, StopReason::ResetFailed)]);
            assert_eq!(opened(&actions)[0].1, Some(waiter));
        }
    }
}

#[test]
fn each_process_of_a_dead_client_is_handled_by_its_condition() {
    let mut world = World::new(3, 3);
    let leases: Vec<Lease> = (0..3).map(|_| world.take(1, None)).collect();
    let held: Vec<ProcId> = leases.iter().map(|lease| lease.proc).collect();
    assert_eq!(world.pools.held_by(ClientId(1)), held);
    let actions = world.on(Event::ClientDown {
        client: ClientId(1),
        normal: false,
        conditions: vec![(held[2], Condition::Broken), (held[0], Condition::Clean)],
    });
    let expected = [
        PoolAction::Reset { proc: held[1] },
        PoolAction::Stop {
            proc: held[2],
            why: StopReason::Broken,
        },
    ];
    assert_eq!(actions, expected);
    assert_eq!(world.status().free, 1);
    assert_eq!(world.pools.held_by(ClientId(1)), []);
    assert_eq!(world.totals().taken_back, 3);
}

#[test]
fn shutdown_refuses_every_request_and_stops_every_process() {
    let mut world = World::new(3, 3);
    let held = world.take(1, None);
    let idle = world.take(2, tagged("db", "_design/1"));
    world.give_back(idle);
    let opening = world.ask(3, tagged("other", "_design/1"));
    let (unopened, _) = opened(&world.last)[0];
    let actions = world.on(Event::Shutdown);
    let why = Refusal::ShuttingDown;
    assert_eq!(
        actions,
        [
            PoolAction::Refuse {
                request: opening,
                why
            },
            PoolAction::Stop {
                proc: held.proc,
                why: StopReason::Shutdown
            },
            PoolAction::Stop {
                proc: idle.proc,
                why: StopReason::Shutdown
            },
        ]
    );
    let request = world.ask(4, None);
    assert_eq!(world.last, [PoolAction::Refuse { request, why }]);
    let actions = world.on(Event::SpawnOk { proc: unopened });
    assert_eq!(actions, stop(unopened, StopReason::Shutdown));
    for proc in [held.proc, idle.proc, unopened] {
        exit(&mut world, proc);
    }
    assert_eq!((world.pools.proc_count(), world.status().stopping), (0, 0));
}

#[test]
fn events_of_unknown_processes_change_nothing() {
    let mut world = World::new(1, 1);
    let lease = world.take(1, None);
    let before = world.status();
    for pool in [0, 5] {
        let proc = ProcId {
            pool: PoolId(pool),
            number: 77,
        };
        let ghost = Lease { proc, ..lease };
        assert_eq!(world.give_back(ghost), []);
        assert!(!world.pools.holds(ghost.client, ghost.proc, ghost.token));
        for event in [
            Event::SpawnOk { proc },
            Event::SpawnError { proc },
            Event::TeachOrResetDone { proc, ok: false },
            Event::ProcExit { proc },
            Event::OsProcIdle { proc },
            Event::StopIdle { proc },
        ] {
            assert_eq!(world.on(event), []);
        }
    }
    assert_eq!(world.status(), before);
    assert_eq!(world.pools.status(PoolId(5), world.now).free, 0);
    assert_eq!(world.pools.totals(PoolId(5)), PoolTotals::default());
}

#[test]
fn request_with_a_used_id_is_ignored() {
    let mut world = World::new(1, 1);
    world.take(1, None);
    world.next_request = 1;
    world.ask(2, None);
    assert_eq!(world.last, []);
    assert_eq!(world.status().waiting, 0);
}

#[test]
fn status_shows_the_counts_and_processes_of_a_pool() {
    let mut world = World::new(4, 2);
    let held = world.take(1, tagged("db", "_design/1"));
    let idle = world.take(2, None);
    world.give_back(idle);
    world.advance(Duration::from_secs(2));
    world.ask(3, tagged("db", "_design/2"));
    let status = world.status();
    assert_eq!((status.used, status.free, status.free_tagged), (2, 0, 0));
    assert_eq!((status.opening, status.waiting, status.stopping), (1, 0, 0));
    assert_eq!(status.settings.limits, limits(4, 2));
    let phases: Vec<ProcPhase> = status.procs.iter().map(|proc| proc.phase).collect();
    assert_eq!(phases, [ProcPhase::Assigned, ProcPhase::Teaching]);
    assert_eq!(status.procs[0].proc, held.proc);
    assert_eq!(status.procs[0].age, Duration::from_secs(2));
    assert_eq!((status.procs[0].uses, status.procs[0].idle), (1, None));
}

#[test]
fn status_shows_the_longest_wait() {
    let mut world = World::new(1, 1);
    let lease = world.take(1, None);
    world.ask(2, None);
    world.advance(Duration::from_secs(1));
    world.ask(3, None);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.status().waiting, 2);
    assert_eq!(world.status().longest_wait, Duration::from_secs(2));
    world.give_back(lease);
    assert_eq!(world.status().longest_wait, Duration::from_secs(1));
}
