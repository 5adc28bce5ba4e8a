//! Situations missing in the reference's cases: slow stops, late exits, changed settings.

use super::*;

fn start_all(ids: &[&str]) -> World {
    let mut world = World::new(RuleSet::Current, []);
    ids.iter().for_each(|id| {
        world.on(Event::Add(new_job(id)));
    });
    assert_eq!(world.running(), ids);
    world
}

/// Returns the ids of started jobs.
fn starts(actions: &[ScheduleAction]) -> Vec<&str> {
    actions
        .iter()
        .filter_map(|action| match action {
            ScheduleAction::Start { id, .. } => Some(&**id),
            _ => None,
        })
        .collect()
}

/// Returns the ids of stopped jobs, with the reason.
fn stops(actions: &[ScheduleAction]) -> Vec<(&str, StopReason)> {
    actions
        .iter()
        .filter_map(|action| match action {
            ScheduleAction::Stop { id, why, .. } => Some((&**id, *why)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_free_slot_starts_a_pending_job_and_stops_no_running_one() {
    for rules in [RuleSet::Current, RuleSet::First] {
        let mut world = World::new(rules, [cr(1), c(5)]);
        assert_eq!(world.cycle(2, 20).running(), ["1", "5"]);
    }
}

#[test]
fn a_job_is_started_at_once_only_while_there_are_fewer_jobs_than_max_jobs() {
    for rules in [RuleSet::Current, RuleSet::First] {
        let mut world = World::new(rules, []);
        world.configure(|settings| settings.max_jobs = 2);
        assert_eq!(starts(world.on(Event::Add(new_job("a")))), ["a"]);
        assert_eq!(starts(world.on(Event::Add(new_job("b")))), [""; 0]);
        assert_eq!(starts(world.on(Event::Cycle)), ["b"]);
    }
}

#[test]
fn a_lowered_max_history_applies_at_the_next_event_of_each_job() {
    let mut world = start_all(&["a", "b"]);
    world.end("a", crash("x"));
    world.advance(Duration::from_secs(30));
    assert_eq!(world.types("a"), ["started", "crashed", "started", "added"]);
    world.configure(|settings| settings.max_history = 2);
    assert_eq!(world.types("a"), ["started", "crashed", "started", "added"]);
    world.end("a", crash("x"));
    assert_eq!(world.types("a"), ["crashed", "started"]);
    assert_eq!(world.types("b"), ["started", "added"]);
}

#[test]
fn the_exit_of_an_unknown_incarnation_is_ignored() {
    let mut world = start_all(&["a"]);
    let before = world.scheduler.totals().to_owned();
    let run = Run(77);
    assert!(
        world
            .on(Event::Exited {
                run,
                end: End::Normal
            })
            .is_empty()
    );
    assert_eq!(*world.scheduler.totals(), before);
    assert_eq!(world.running(), ["a"]);
}

#[test]
fn the_exit_of_a_replaced_incarnation_does_not_end_its_successor() {
    let mut world = start_all(&["a"]);
    let first = world.run_of("a");
    world.holds = true;
    let actions = world.on(Event::Add(new_job("a")));
    assert_eq!(stops(actions), [("a", StopReason::Replaced)]);
    assert_eq!(
        world.types("a"),
        ["added"],
        "the predecessor's exit is not in the new history"
    );
    // Adding it again does not affect the stopping run.
    assert!(world.on(Event::Add(new_job("a"))).is_empty());
    assert_eq!(starts(world.let_go()), ["a"]);
    let second = world.run_of("a");
    assert!(second > first);
    assert!(
        world
            .on(Event::Exited {
                run: first,
                end: crash("late")
            })
            .is_empty()
    );
    assert_eq!(world.types("a"), ["started", "added"]);
    assert_eq!(world.scheduler.census().total, 1);
}

#[test]
fn stopping_jobs_count_as_running_until_they_have_exited() {
    let mut world = World::new(RuleSet::Current, [cr(1), cr(2), c(3), c(4)]);
    world.holds = true;
    world.cycle(2, 20);
    assert_eq!(world.held.len(), 2);
    assert_eq!((world.scheduler.census().running, world.starts()), (2, 0));
    // Another cycle stops nothing: all candidates are already rotating.
    assert!(world.on(Event::Cycle).is_empty());
    world.let_go();
    assert_eq!(
        world.running(),
        ["1", "2"],
        "those started longest ago, as in the reference"
    );
}

#[test]
fn the_order_in_which_jobs_exit_does_not_decide_which_starts_next() {
    for reversed in [false, true] {
        let mut world = World::new(RuleSet::Current, [cr(1), cr(5), c(3), c(4)]);
        world.holds = true;
        world.cycle(2, 20);
        if reversed {
            world.held.reverse();
        }
        world.let_go();
        assert_eq!(world.running(), ["1", "3"]);
    }
}

#[test]
fn a_removed_job_keeps_only_its_slot_while_it_stops() {
    let mut world = start_all(&["a", "b"]);
    world.configure(|settings| settings.max_jobs = 2);
    world.holds = true;
    let actions = world.on(Event::Remove { id: "a".into() });
    assert_eq!(stops(actions), [("a", StopReason::Removed)]);
    assert!(matches!(
        actions[1],
        ScheduleAction::Left {
            how: End::Stopped,
            ..
        }
    ));
    assert!(world.scheduler.job("a").is_none());
    assert_eq!(world.scheduler.jobs().count(), 1);
    assert_eq!(
        (
            world.scheduler.census().total,
            world.scheduler.census().running
        ),
        (1, 2)
    );
    // The removed job's slot is freed silently when its run exits.
    world.on(Event::Add(new_job("c")));
    assert_eq!(starts(world.let_go()), ["c"]);
    assert_eq!(world.scheduler.totals().stops, 0);
}

fn lose(id: &str) -> Event {
    Event::Lose { id: id.into() }
}

#[test]
fn a_lost_job_is_stopped_as_lost_and_forgotten() {
    let mut world = start_all(&["a", "b"]);
    world.holds = true;
    let run = world.run_of("a");
    let actions = world.on(lose("a"));
    assert_eq!(stops(actions), [("a", StopReason::Lost)]);
    assert!(matches!(
        actions[1],
        ScheduleAction::Left {
            how: End::Stopped,
            ..
        }
    ));
    assert!(world.scheduler.job("a").is_none());
    assert_eq!(world.scheduler.run_of("a"), Some(run));
    world.let_go();
    assert_eq!(world.scheduler.run_of("a"), None);
    assert!(world.on(lose("a")).is_empty(), "a lost job is unknown");
}

#[test]
fn a_lost_pending_job_is_forgotten_without_a_stop() {
    let mut world = World::new(RuleSet::Current, [c(3)]);
    let actions = world.on(lose("3"));
    assert_eq!(stops(actions), []);
    assert!(
        matches!(actions, [ScheduleAction::Left { .. }]),
        "{actions:?}"
    );
}

#[test]
fn a_stopping_run_gets_another_stop_when_its_job_is_lost() {
    let stops_it: [fn() -> Event; 3] = [
        || Event::Pause {
            id: "a".into(),
            by: "ann".into(),
        },
        || Event::Add(new_job("a")),
        || Event::Shutdown,
    ];
    for stop in stops_it {
        let mut world = start_all(&["a"]);
        world.holds = true;
        assert_eq!(stops(world.on(stop())).len(), 1);
        let actions = world.on(lose("a"));
        assert_eq!(stops(actions), [("a", StopReason::Lost)]);
        assert!(world.scheduler.job("a").is_none());
    }
}

#[test]
fn the_run_of_a_removed_job_gets_another_stop_when_the_job_is_lost() {
    let mut world = start_all(&["a"]);
    world.holds = true;
    world.on(Event::Remove { id: "a".into() });
    let actions = world.on(lose("a"));
    assert!(
        matches!(actions, [ScheduleAction::Stop { why, .. }] if *why == StopReason::Lost),
        "the removal already reported the job as left: {actions:?}"
    );
    assert!(world.let_go().is_empty());
}

#[test]
fn a_lost_job_that_is_added_again_waits_for_its_killed_run() {
    let mut world = start_all(&["a"]);
    world.holds = true;
    world.on(lose("a"));
    assert!(world.on(Event::Add(new_job("a"))).is_empty());
    assert_eq!(starts(world.let_go()), ["a"]);
    assert_eq!(world.types("a"), ["started", "added"]);
}

#[test]
fn a_removed_job_that_is_added_again_waits_for_its_predecessor() {
    let mut world = start_all(&["a"]);
    world.holds = true;
    world.on(Event::Remove { id: "a".into() });
    assert!(world.on(Event::Add(new_job("a"))).is_empty());
    assert_eq!(world.scheduler.census().total, 1);
    assert_eq!(starts(world.let_go()), ["a"]);
    let totals = world.scheduler.totals();
    assert_eq!(
        (totals.adds, totals.removes, totals.starts, totals.stops),
        (2, 1, 2, 0)
    );
}

#[test]
fn a_job_that_completes_while_stopping_has_completed() {
    let mut world = start_all(&["a"]);
    world.holds = true;
    world.on(Event::Pause {
        id: "a".into(),
        by: "ann".into(),
    });
    let how = End::Normal;
    assert_eq!(
        world.end("a", End::Normal),
        [ScheduleAction::Left {
            id: "a".into(),
            how
        }]
    );
    assert_eq!(world.scheduler.census().total, 0);
}

#[test]
fn a_job_that_crashes_while_stopping_has_stopped() {
    let mut world = start_all(&["a"]);
    world.holds = true;
    world.on(Event::Pause {
        id: "a".into(),
        by: "ann".into(),
    });
    world.end("a", crash("x"));
    assert_eq!(world.types("a"), ["stopped", "started", "added"]);
}

#[test]
fn a_job_that_stops_without_a_request_has_crashed() {
    let mut world = start_all(&["a"]);
    world.end("a", End::Stopped);
    assert_eq!(world.types("a"), ["crashed", "started", "added"]);
}

#[test]
fn a_slot_that_becomes_free_is_filled_at_once() {
    let mut world = start_all(&["a", "b"]);
    world.configure(|settings| settings.max_jobs = 2);
    for id in ["c", "d", "e"] {
        assert!(world.on(Event::Add(new_job(id))).is_empty());
    }
    assert_eq!(starts(world.end("a", End::Normal)), ["c"]);
    assert_eq!(starts(world.end("b", crash("x"))), ["d"]);
    world.holds = true;
    assert_eq!(starts(world.on(Event::Remove { id: "d".into() })), [""; 0]);
    assert_eq!(
        starts(world.let_go()),
        ["e"],
        "a removed job's slot is free once its run has exited"
    );
}

#[test]
fn under_the_first_rules_a_free_slot_waits_for_the_next_cycle_if_jobs_exceed_max_jobs() {
    let mut world = start_all(&["a", "b"]);
    world.configure(|settings| {
        settings.max_jobs = 2;
        settings.rules = RuleSet::First;
    });
    world.on(Event::Add(new_job("c")));
    assert_eq!(starts(world.end("a", crash("x"))), [""; 0]);
    assert_eq!(starts(world.on(Event::Cycle)), ["c"]);
    // With fewer jobs than slots it does not wait.
    world.configure(|settings| settings.max_jobs = 9);
    world.on(Event::Pause {
        id: "b".into(),
        by: "ann".into(),
    });
    world.configure(|settings| settings.max_jobs = 4);
    world.on(Event::Resume { id: "b".into() });
    assert_eq!(world.running(), ["b", "c"]);
    assert_eq!(world.scheduler.next_wake(), None);
    world.advance(Duration::from_secs(3600));
    assert_eq!(
        world.running(),
        ["b", "c"],
        "the back-off of a has expired, but no cycle ran yet"
    );
    assert_eq!(
        starts(world.end("b", crash("x"))),
        ["a", "b"],
        "b was healthy"
    );
}

#[test]
fn a_job_is_restarted_when_its_backoff_expires() {
    let mut world = start_all(&["a"]);
    for wait in [30, 60, 120, 240] {
        let actions = world.end("a", crash("x")).to_vec();
        let until = world.now + Duration::from_secs(wait);
        let crashed = ScheduleAction::Crashed {
            id: "a".into(),
            reason: reason("x"),
            until,
        };
        assert_eq!(actions, [crashed]);
        assert_eq!(world.scheduler.next_wake(), Some(until));
        assert!(world.advance(Duration::from_secs(wait - 1)).is_empty());
        assert!(
            world.on(Event::Cycle).is_empty(),
            "a cycle does not shorten the back-off"
        );
        assert_eq!(starts(world.advance(Duration::from_secs(1))), ["a"]);
    }
}

#[test]
fn a_job_that_crashes_after_a_healthy_run_is_started_at_once() {
    let mut world = start_all(&["a"]);
    world.end("a", crash("x"));
    world.advance(Duration::from_secs(30));
    world.advance(Duration::from_secs(121));
    assert_eq!(starts(world.end("a", crash("x"))), ["a"]);
}

#[test]
fn no_configuration_retries_a_job_in_a_tight_loop() {
    for (max_history, health_threshold) in [(1, 120), (20, 0)] {
        let mut world = start_all(&["a"]);
        world.configure(|settings| {
            settings.max_history = max_history;
            settings.health_threshold = Duration::from_secs(health_threshold);
            settings.backoff.base = Duration::ZERO;
        });
        world.advance(Duration::from_micros(1));
        assert_eq!(starts(world.end("a", crash("x"))), [""; 0]);
        assert_eq!(world.scheduler.next_wake(), Some(world.now + RESTART_MIN));
        assert_eq!(starts(world.advance(RESTART_MIN)), ["a"]);
    }
}

#[test]
fn a_changed_backoff_or_threshold_applies_to_waiting_jobs() {
    let mut world = start_all(&["a", "b"]);
    world.end("a", crash("x"));
    world.advance(Duration::from_secs(10));
    world.configure(|settings| settings.backoff.base = Duration::from_secs(12));
    assert_eq!(
        world.scheduler.next_wake(),
        Some(world.now + Duration::from_secs(2))
    );
    world.configure(|settings| settings.backoff.base = Duration::from_secs(5));
    assert_eq!(world.scheduler.next_wake(), None);
    assert_eq!(starts(world.on(Event::Tick)), ["a"]);
    world.advance(Duration::from_secs(60));
    world.configure(|settings| settings.health_threshold = Duration::from_secs(59));
    assert_eq!(
        starts(world.end("a", crash("x"))),
        ["a"],
        "60 seconds are healthy now"
    );
}

#[test]
fn jobs_that_cannot_start_do_not_stop_running_ones() {
    let mut world = start_all(&["a", "b", "c"]);
    world.end("a", crash("x"));
    world.on(Event::Pause {
        id: "b".into(),
        by: "ann".into(),
    });
    world.configure(|settings| settings.max_jobs = 1);
    assert!(world.on(Event::Cycle).is_empty());
    assert_eq!(world.running(), ["c"]);
}

#[test]
fn a_paused_job_does_not_run_until_it_is_resumed() {
    let mut world = start_all(&["a"]);
    let pause = || Event::Pause {
        id: "a".into(),
        by: "ann".into(),
    };
    assert_eq!(stops(world.on(pause())), [("a", StopReason::Paused)]);
    assert_eq!(world.types("a"), ["stopped", "started", "added"]);
    let census = *world.scheduler.census();
    assert_eq!((census.paused, census.pending, census.total), (1, 1, 1));
    assert!(world.on(pause()).is_empty());
    assert!(world.on(Event::Cycle).is_empty());
    assert_eq!(starts(world.on(Event::Resume { id: "a".into() })), ["a"]);
    assert!(world.on(Event::Resume { id: "a".into() }).is_empty());
}

#[test]
fn a_job_may_be_added_paused() {
    let mut world = World::new(RuleSet::Current, []);
    let pause = Pause {
        by: "ann".into(),
        since: at(0),
    };
    let paused = Some(pause);
    assert!(
        world
            .on(Event::Add(NewJob {
                paused,
                ..new_job("a")
            }))
            .is_empty()
    );
    assert_eq!(
        world.why_not("a"),
        "paused by ann since 1970-01-01T00:00:00Z"
    );
    assert_eq!(starts(world.on(Event::Resume { id: "a".into() })), ["a"]);
}

#[test]
fn a_pause_does_not_shorten_a_backoff() {
    let mut world = start_all(&["a"]);
    world.end("a", crash("x"));
    world.on(Event::Pause {
        id: "a".into(),
        by: "ann".into(),
    });
    assert!(world.advance(Duration::from_secs(29)).is_empty());
    assert!(world.on(Event::Resume { id: "a".into() }).is_empty());
    assert_eq!(starts(world.advance(Duration::from_secs(1))), ["a"]);
}

#[test]
fn a_job_can_be_paused_and_resumed_while_it_stops() {
    let mut world = start_all(&["a"]);
    world.holds = true;
    world.on(Event::Pause {
        id: "a".into(),
        by: "ann".into(),
    });
    assert!(world.on(Event::Resume { id: "a".into() }).is_empty());
    assert_eq!(starts(world.let_go()), ["a"]);
    world.on(Event::Restart { id: "a".into() });
    world.on(Event::Pause {
        id: "a".into(),
        by: "ann".into(),
    });
    assert_eq!(starts(world.let_go()), [""; 0]);
    assert_eq!(world.types("a"), ["added"]);
}

#[test]
fn a_restarted_job_forgets_its_failures() {
    let mut world = start_all(&["a"]);
    world.end("a", End::Crashed(Reason::new("max_backoff", true).into()));
    let actions = world.on(Event::Restart { id: "a".into() }).to_vec();
    assert!(matches!(
        actions[..],
        [ScheduleAction::Start { eased: false, .. }]
    ));
    assert_eq!(world.types("a"), ["started", "added"]);
    assert_eq!(
        stops(world.on(Event::Restart { id: "a".into() })),
        [("a", StopReason::Replaced)]
    );
    assert_eq!(world.running(), ["a"]);
    assert_eq!(world.types("a"), ["started", "added"]);
}

#[test]
fn a_higher_priority_is_started_first_and_stopped_last() {
    let mut world = World::new(RuleSet::Current, [c(1), c(2), c(3)]);
    world.configure(|settings| settings.max_jobs = 0);
    let level = |id: &str, level| Event::SetLevel {
        id: id.into(),
        level: Level(level),
    };
    world.on(level("3", 5));
    world.on(level("1", -1));
    assert_eq!(pending(&world, 9), ["3", "2", "1"]);
    world.cycle(1, 0);
    assert_eq!(world.running(), ["3"]);
    world.cycle(3, 0);
    world.cycle(2, 0);
    assert_eq!(world.running(), ["2", "3"]);
    world.cycle(1, 0);
    assert_eq!(world.running(), ["3"]);
}

#[test]
fn a_shutdown_stops_everything_and_starts_nothing() {
    let mut world = start_all(&["a", "b"]);
    world.end("a", crash("x"));
    world.holds = true;
    assert_eq!(
        stops(world.on(Event::Shutdown)),
        [("b", StopReason::Shutdown)]
    );
    assert!(world.scheduler.jobs().any(|job| job.phase.run().is_some()));
    assert!(world.on(Event::Cycle).is_empty());
    assert!(world.on(Event::Add(new_job("c"))).is_empty());
    assert!(world.advance(Duration::from_secs(3600)).is_empty());
    assert_eq!(world.let_go(), [ScheduleAction::Stopped { id: "b".into() }]);
    assert!(world.scheduler.jobs().all(|job| job.phase.run().is_none()));
    assert_eq!(world.types("b"), ["stopped", "started", "added"]);
}

#[test]
fn events_about_unknown_jobs_change_nothing() {
    let mut world = start_all(&["a"]);
    let id = || JobId::from("b");
    for event in [
        Event::Remove { id: id() },
        Event::Restart { id: id() },
        Event::Pause {
            id: id(),
            by: "ann".into(),
        },
        Event::Resume { id: id() },
        Event::SetLevel {
            id: id(),
            level: Level(1),
        },
    ] {
        assert!(world.on(event).is_empty());
    }
    assert_eq!(world.running(), ["a"]);
}

#[test]
fn a_replaced_job_belongs_to_its_new_key() {
    let mut world = start_all(&["a"]);
    world.on(Event::Add(NewJob {
        key: "other".into(),
        ..new_job("a")
    }));
    let fair = &world.scheduler.fair_share;
    assert_eq!(
        (jobs_of(fair, "_replicator"), jobs_of(fair, "other")),
        (None, Some(1))
    );
    world.on(Event::Remove { id: "a".into() });
    assert_eq!(jobs_of(&world.scheduler.fair_share, "other"), None);
}

#[test]
fn equal_reasons_are_kept_once() {
    let mut world = start_all(&["a"]);
    for _ in 0..3 {
        world.end("a", crash("x"));
        world.advance(Duration::from_secs(600));
        world.configure(|settings| settings.health_threshold = Duration::from_secs(9999));
    }
    let job = world.scheduler.job("a").expect("the job exists");
    let reasons: Vec<_> = job
        .history
        .iter()
        .filter_map(|entry| match &entry.what {
            HistoryEvent::Crashed(reason) => Some(reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons.len(), 3);
    assert!(
        reasons
            .iter()
            .all(|reason| std::sync::Arc::ptr_eq(reason, reasons[0]))
    );
}
