//! Job states that users see: the reference's cases of `job_summary`, and the reasons for not running.

use std::sync::Arc;

use super::*;

fn summary(rules: RuleSet, running: bool, history: History) -> Summary {
    let world = World::new(
        rules,
        [Given {
            running,
            history,
            ..cr(0)
        }],
    );
    let job = world.scheduler.job("0").expect("the job exists");
    job.shown.summary
}

#[test]
fn job_summary_of_a_running_job() {
    for rules in [RuleSet::Current, RuleSet::First] {
        let history = History::of([started(10), added(0)]);
        let expected = Summary {
            state: JobState::Running,
            error: None,
            error_count: 0,
            last_updated: at(10),
        };
        assert_eq!(summary(rules, true, history), expected);
    }
}

#[test]
fn job_summary_of_a_pending_job() {
    for rules in [RuleSet::Current, RuleSet::First] {
        let history = History::of([stopped(20), started(10), added(0)]);
        let expected = Summary {
            state: JobState::Pending,
            error: None,
            error_count: 0,
            last_updated: at(20),
        };
        assert_eq!(summary(rules, false, history), expected);
    }
}

#[test]
fn job_summary_of_a_job_that_crashed_after_a_healthy_run() {
    let history = || History::of([crashed(121), started(0)]);
    let head = summary(RuleSet::Current, false, history());
    assert_eq!((head.state, head.error_count), (JobState::Crashing, 0));
    assert_eq!(head.error, Some(reason("some_reason")));
    // The first version shows it as pending.
    let seed = summary(RuleSet::First, false, history());
    assert_eq!((seed.state, seed.error), (JobState::Pending, None));
}

#[test]
fn job_summary_of_a_job_that_keeps_crashing() {
    for rules in [RuleSet::Current, RuleSet::First] {
        let history = History::of([crashed(4), started(3), crashed(2), started(1)]);
        let summary = summary(rules, false, history);
        assert_eq!(
            (summary.state, summary.error_count),
            (JobState::Crashing, 2)
        );
        assert_eq!(summary.error, Some(reason("some_reason")));
    }
}

#[test]
fn a_running_job_that_crashed_before_is_running_and_counts_its_errors() {
    let history = History::of([started(4), crashed(3), started(2)]);
    let summary = summary(RuleSet::Current, true, history);
    assert_eq!((summary.state, summary.error_count), (JobState::Running, 1));
    assert_eq!(summary.error, None);
}

#[test]
fn the_summary_of_an_unknown_job_is_none() {
    let world = World::new(RuleSet::Current, []);
    assert!(world.scheduler.job("0").is_none());
}

#[test]
fn names_on_the_wire() {
    assert_eq!(
        JobState::ALL.map(JobState::name),
        ["running", "pending", "crashing", "paused"]
    );
    let events = [added(0), started(0), stopped(0), crashed(0)];
    let names = events.map(|entry| entry.what.name());
    assert_eq!(names, ["added", "started", "stopped", "crashed"]);
}

#[test]
fn every_job_that_does_not_run_reports_the_reason() {
    let mut world = World::new(RuleSet::Current, []);
    world.now = at(1_493_442_097);
    world.configure(|settings| settings.max_jobs = 2);
    world.on(Event::Add(new_job("a")));
    world.on(Event::Add(new_job("b")));
    assert_eq!(world.why_not("a"), "");
    assert_eq!(
        world.why_not("b"),
        "waiting for the next cycle of the scheduler"
    );
    world.on(Event::Cycle);
    world.on(Event::Add(new_job("c")));
    assert_eq!(
        world.why_not("c"),
        "waiting for a slot: max_jobs is 2, and none is free"
    );

    world.end("a", crash("db_not_found: could not open http://h/a/"));
    assert_eq!(
        world.why_not("a"),
        "backing off until 2017-04-29T05:02:07Z, after 1 crash: db_not_found: could not open \
         http://h/a/"
    );
    world.on(Event::Pause {
        id: "a".into(),
        by: "ann".into(),
    });
    assert_eq!(
        world.why_not("a"),
        "paused by ann since 2017-04-29T05:01:37Z"
    );

    world.holds = true;
    world.on(Event::Pause {
        id: "b".into(),
        by: "ann".into(),
    });
    assert_eq!(world.why_not("b"), "stopping");
    world.let_go();
    world.on(Event::Restart { id: "c".into() });
    assert_eq!(world.why_not("c"), "waiting for the end of its predecessor");
    world.let_go();
    world.configure(|settings| settings.max_jobs = 0);
    world.on(Event::Add(new_job("d")));
    assert_eq!(
        world.why_not("d"),
        "no job may run: max_jobs is 0, or the daemon is drained"
    );
    world.on(Event::Shutdown);
    assert_eq!(world.why_not("d"), "the service is shutting down");
}

#[test]
fn a_backoff_reports_its_number_of_crashes() {
    let why = |crashes| {
        let (until, reason) = (at(0), reason("r"));
        WhyNot::BackingOff {
            until,
            crashes,
            awaits_server: false,
            reason,
        }
        .to_string()
    };
    assert_eq!(
        why(0),
        "backing off until 1970-01-01T00:00:00Z, after a crash: r"
    );
    assert_eq!(
        why(3),
        "backing off until 1970-01-01T00:00:00Z, after 3 crashes: r"
    );
}

#[test]
fn a_crashing_job_is_listed_since_its_first_consecutive_crash_and_a_paused_job_as_paused() {
    let mut world = World::new(RuleSet::Current, []);
    world.configure(|settings| settings.max_history = 3);
    world.now = at(1000);
    world.on(Event::Add(new_job("a")));
    let listed = |world: &World| {
        let job = world.scheduler.job("a").expect("the job exists");
        (job.shown.listed, job.shown.since)
    };
    assert_eq!(listed(&world), (JobState::Running, at(1000)));
    world.end("a", crash("x"));
    for _ in 0..3 {
        world.advance(Duration::from_secs(400));
        assert_eq!(listed(&world).0, JobState::Running);
        world.end("a", crash("x"));
    }
    assert_eq!(
        listed(&world),
        (JobState::Crashing, at(1000)),
        "even if the history has dropped it"
    );
    world.advance(Duration::from_secs(1000));
    world.advance(Duration::from_secs(200));
    let now = world.now;
    world.end("a", crash("x"));
    world.end("a", crash("x"));
    assert_eq!(
        listed(&world),
        (JobState::Crashing, now),
        "a healthy run ended the series"
    );
    let id = || "a".into();
    world.on(Event::Pause {
        id: id(),
        by: "ann".into(),
    });
    assert_eq!(listed(&world), (JobState::Paused, now));
    let count = |state| world.scheduler.count(&[state]);
    assert_eq!((count(JobState::Paused), count(JobState::Crashing)), (1, 0));
    assert_eq!(world.scheduler.count(&JobState::ALL), 1);
    let job = world.scheduler.job("a").expect("the job exists");
    assert_eq!(job.shown.summary.state, JobState::Crashing, "as in CouchDB");
    world.on(Event::Restart { id: id() });
    assert_eq!(listed(&world), (JobState::Running, now));
}

#[test]
fn equal_causes_have_equal_reasons_in_lists() {
    let reason = Arc::new(Reason::with_short(
        "nxdomain: http://h/a/",
        "name not found: h",
        false,
    ));
    let back_off = WhyNot::BackingOff {
        until: at(7),
        crashes: 2,
        reason,
        awaits_server: false,
    };
    assert_eq!(back_off.short(), "name not found: h");
    let pause = Pause {
        by: "ann".into(),
        since: at(7),
    };
    assert_eq!(WhyNot::Paused(pause).short(), "paused by ann");
    assert_eq!(WhyNot::Stopping.short(), "stopping");
}

#[test]
fn a_rate_limited_job_starts_eased_until_it_is_added_again() {
    let mut world = World::new(RuleSet::Current, []);
    world.on(Event::Add(new_job("a")));
    world.end("a", End::Crashed(Reason::new("max_backoff", true).into()));
    let started = |actions: &[ScheduleAction]| match actions {
        [ScheduleAction::Start { eased, .. }] => *eased,
        other => panic!("{other:?} instead of a start"),
    };
    assert!(started(world.advance(Duration::from_secs(30))));
    // Another crash leaves it eased, until the job is added again.
    world.end("a", crash("other"));
    assert!(started(world.advance(Duration::from_secs(60))));
    let again = world.on(Event::Add(new_job("a")));
    assert!(!started(&again[again.len() - 1..]));
}

#[test]
fn a_job_counts_as_failing_from_its_first_crash_until_a_run_stops_without_a_crash() {
    let mut world = World::new(RuleSet::Current, []);
    world.now = at(1000);
    world.on(Event::Add(new_job("a")));
    let failing = |world: &World| {
        let failing = world.scheduler.failing("a");
        failing.map(|failing| (failing.since, failing.healthy_at))
    };
    assert_eq!(failing(&world), None);
    world.end("a", crash("x"));
    assert_eq!(failing(&world), Some((at(1000), None)));
    world.advance(Duration::from_secs(30));
    let healthy_at = at(1030) + world.scheduler.settings().health_threshold;
    assert_eq!(failing(&world), Some((at(1000), Some(healthy_at))));
    world.end("a", crash("x"));
    assert_eq!(failing(&world), Some((at(1000), None)));
    let pause = |by: &str| Event::Pause {
        id: "a".into(),
        by: by.into(),
    };
    world.on(pause("ann"));
    assert_eq!(failing(&world), None, "paused by an operator");
    world.on(Event::Resume { id: "a".into() });
    assert_eq!(failing(&world), Some((at(1000), None)));
    world.advance(Duration::from_secs(60));
    world.on(pause("ann"));
    world.on(Event::Resume { id: "a".into() });
    assert_eq!(
        failing(&world),
        None,
        "its last run was stopped, without a crash"
    );
}
