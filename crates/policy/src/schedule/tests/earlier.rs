//! Jobs that continue a history from another scheduler.

use super::*;

fn with_past(id: &str, newest_first: impl IntoIterator<Item = HistoryEntry>) -> NewJob {
    NewJob {
        earlier: Earlier {
            history: History::of(newest_first),
            not_before: WallTime::ZERO,
        },
        ..new_job(id)
    }
}

fn not_before(id: &str, not_before: WallTime) -> NewJob {
    let history = History::default();
    NewJob {
        earlier: Earlier {
            history,
            not_before,
        },
        ..new_job(id)
    }
}

/// A world at this second.
fn world_at(seconds: u64) -> World {
    let mut world = World::new(RuleSet::Current, []);
    world.now = at(seconds);
    world
}

/// Three crashes in a row, the latest at second 105.
fn three_crashes() -> [HistoryEntry; 7] {
    [
        crashed(105),
        started(104),
        crashed(103),
        started(102),
        crashed(101),
        started(100),
        added(99),
    ]
}

#[test]
fn a_job_with_earlier_crashes_keeps_its_back_off_and_crash_count() {
    let mut world = world_at(150);
    assert!(!started_by(
        world.on(Event::Add(with_past("a", three_crashes())))
    ));
    let job = world.scheduler.job("a").expect("the job exists");
    assert_eq!(
        (job.shown.summary.state, job.shown.summary.error_count),
        (JobState::Crashing, 3)
    );
    assert_eq!(
        (job.shown.since, job.shown.last_started),
        (at(101), Some(at(104)))
    );
    // 120 seconds after three crashes.
    assert_eq!(world.scheduler.next_wake(), Some(at(225)));
    assert!(!started_by(world.advance(Duration::from_secs(74))));
    assert!(started_by(world.advance(Duration::from_secs(1))));
    let until = at(226) + Duration::from_secs(240);
    world.now = at(226);
    let actions = world.end("a", crash("some_reason"));
    assert!(matches!(actions, [ScheduleAction::Crashed { until: u, .. }] if *u == until));
}

#[test]
fn a_job_tried_at_once_skips_its_back_off_and_keeps_its_crash_count() {
    let mut world = world_at(150);
    let past = with_past("a", three_crashes());
    let earlier = Earlier {
        not_before: at(300),
        ..past.earlier
    };
    let earlier = earlier.tried_at_once();
    assert!(started_by(world.on(Event::Add(NewJob { earlier, ..past }))));
    world.now = at(151);
    let until = at(151) + Duration::from_secs(240);
    let actions = world.end("a", crash("some_reason"));
    assert!(matches!(actions, [ScheduleAction::Crashed { until: u, .. }] if *u == until));
    assert_eq!(Earlier::default().tried_at_once(), Earlier::default());
}

fn started_by(actions: &[ScheduleAction]) -> bool {
    let mut actions = actions.iter();
    actions.any(|action| matches!(action, ScheduleAction::Start { .. }))
}

#[test]
fn a_run_whose_owner_died_counts_as_stopped_not_as_crashed() {
    let mut world = world_at(200);
    let past = [started(150), crashed(149), started(148)];
    assert!(started_by(world.on(Event::Add(with_past("a", past)))));
    assert_eq!(
        world.types("a"),
        ["started", "stopped", "started", "crashed", "started"]
    );
    let job = world.scheduler.job("a").expect("the job exists");
    assert_eq!(job.shown.summary.error_count, 0);
}

#[test]
fn an_earlier_history_is_cut_to_max_history_and_to_now() {
    let mut world = world_at(100);
    world.configure(|settings| settings.max_history = 3);
    world.on(Event::Add(with_past("a", three_crashes())));
    let job = world.scheduler.job("a").expect("the job exists");
    let expected = History::of([crashed(100), started(100), crashed(100)]);
    assert_eq!(*job.history, expected);
    assert_eq!(
        world.scheduler.next_wake(),
        Some(at(130)),
        "one crash counts"
    );
}

#[test]
fn a_job_is_started_at_not_before_and_no_earlier() {
    let mut world = world_at(100);
    assert!(!started_by(world.on(Event::Add(not_before("a", at(500))))));
    assert_eq!(
        world.why_not("a"),
        "not to start before 1970-01-01T00:08:20Z"
    );
    let job = world.scheduler.job("a").expect("the job exists");
    assert_eq!(job.shown.listed, JobState::Pending);
    world.on(Event::Cycle);
    assert_eq!(world.scheduler.next_wake(), Some(at(500)));
    // Neither a pause nor changed settings start it earlier.
    let id: JobId = "a".into();
    world.on(Event::Pause {
        id: id.clone(),
        by: "ann".into(),
    });
    world.on(Event::Resume { id });
    world.configure(|settings| settings.backoff.base = Duration::ZERO);
    assert!(world.running().is_empty());
    assert!(started_by(world.advance(Duration::from_secs(400))));
}

#[test]
fn a_restarted_job_drops_its_earlier_history() {
    let mut world = world_at(100);
    world.on(Event::Add(NewJob {
        earlier: Earlier {
            history: History::of([crashed(99), started(98)]),
            not_before: at(500),
        },
        ..new_job("a")
    }));
    assert!(world.running().is_empty());
    let id: JobId = "a".into();
    assert!(started_by(world.on(Event::Restart { id })));
    assert_eq!(world.types("a"), ["started", "added"]);
    let job = world.scheduler.job("a").expect("the job exists");
    assert_eq!(job.not_before, WallTime::ZERO);
}

#[test]
fn a_job_that_replaces_a_running_one_still_waits_out_its_back_off() {
    let mut world = world_at(110);
    world.on(Event::Add(new_job("a")));
    world.holds = true;
    world.on(Event::Add(with_past("a", three_crashes())));
    assert!(!started_by(world.let_go()));
    assert_eq!(world.scheduler.next_wake(), Some(at(225)));
}

#[test]
fn a_server_that_answers_again_starts_no_job_before_not_before() {
    let server: Server = "http://h:5984".into();
    let mut world = world_at(100);
    world.on(Event::Add(not_before("a", at(100))));
    let servers = [server.clone(), server.clone()];
    world.end("a", End::Unreachable(reason("gone"), servers));
    let slot = world.scheduler.find("a").expect("the job exists");
    // Nothing sets `not_before` while a job runs, but a clock set back puts it in the future again.
    world
        .scheduler
        .jobs
        .change(slot, |job, _| job.not_before = at(120));
    for answers in [false, true] {
        world.on(Event::Probed {
            server: server.clone(),
            answers,
        });
        world.advance(Duration::from_secs(6));
    }
    assert!(world.running().is_empty());
    assert_eq!(world.scheduler.next_wake(), Some(at(120)));
}

#[test]
fn failing_since_is_the_first_of_the_latest_consecutive_crashes() {
    let table: [(Option<u64>, Vec<HistoryEntry>); 6] = [
        (None, vec![]),
        (None, vec![stopped(5), started(4), crashed(3), started(2)]),
        (Some(101), three_crashes().into()),
        (Some(3), vec![started(4), crashed(3), added(1)]),
        // A healthy run ended at 900.
        (
            Some(900),
            vec![
                crashed(901),
                started(901),
                crashed(900),
                started(2),
                crashed(1),
            ],
        ),
        (
            Some(7),
            vec![
                crashed(8),
                started(8),
                crashed(7),
                started(6),
                stopped(5),
                crashed(1),
            ],
        ),
    ];
    for (expected, history) in table {
        let since = History::of(history.clone()).failing_since(Duration::from_secs(120));
        assert_eq!(since, expected.map(at), "{history:?}");
    }
}
