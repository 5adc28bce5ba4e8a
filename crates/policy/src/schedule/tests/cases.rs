//! The reference's own cases, of its first and its current version.
//!
//! SOURCE    couch_replicator_scheduler 004 and HEAD: scheduler_test_ and its helpers. `c` is a continuous job that
//!           waits, `cr` one that runs; `o` and `or` are one-shot jobs. The argument is the latest start time.

use super::*;

const BOTH: [RuleSet; 2] = [RuleSet::Current, RuleSet::First];

#[test]
fn pending_jobs_simple() {
    for rules in BOTH {
        let world = World::new(rules, [o(1), o(2)]);
        assert_eq!(pending(&world, 0), [""; 0]);
        assert_eq!(pending(&world, 1), ["1"]);
        assert_eq!(pending(&world, 2), ["1", "2"]);
        assert_eq!(pending(&world, 3), ["1", "2"]);
    }
}

#[test]
fn pending_jobs_skip_crashed() {
    for rules in BOTH {
        let mut first = o(1);
        let mut now = crashed(0);
        now.at = NOW;
        let restarted = HistoryEntry {
            at: NOW,
            what: HistoryEvent::Started,
        };
        let entries = [now, restarted]
            .into_iter()
            .chain(first.history.iter().cloned());
        first.history = History::of(entries.collect::<Vec<_>>());
        let world = World::new(rules, [first, o(2), o(3)]);
        assert_eq!(pending(&world, 1), ["2"]);
        assert_eq!(pending(&world, 2), ["2", "3"]);
        assert_eq!(pending(&world, 3), ["2", "3"]);
    }
}

#[test]
fn pending_jobs_skip_running() {
    for rules in BOTH {
        let world = World::new(rules, [c(1), cr(2), o(3), or(4)]);
        assert_eq!(pending(&world, 4), ["1", "3"]);
    }
}

#[test]
fn one_job_starts() {
    for rules in BOTH {
        let mut world = World::new(rules, [o(1)]);
        assert_eq!(world.counts(), (0, 1));
        assert_eq!(world.cycle(500, 20).counts(), (1, 0));
    }
}

#[test]
fn no_jobs_start_if_max_is_0() {
    for rules in BOTH {
        let mut world = World::new(rules, [o(1)]);
        assert_eq!(world.cycle(0, 20).counts(), (0, 1));
    }
}

#[test]
fn one_job_starts_if_max_is_1() {
    for rules in BOTH {
        let mut world = World::new(rules, [o(1), o(2)]);
        assert_eq!(world.cycle(1, 20).counts(), (1, 1));
    }
}

#[test]
fn max_churn_does_not_throttle_initial_start() {
    for rules in BOTH {
        let mut world = World::new(rules, [o(1), o(2)]);
        assert_eq!(world.cycle(500, 0).counts(), (2, 0));
    }
}

#[test]
fn excess_oneshot_jobs() {
    for rules in BOTH {
        let mut world = World::new(rules, [or(1), or(2)]);
        assert_eq!(world.counts(), (2, 0));
        assert_eq!(world.cycle(1, 20).counts(), (1, 1));
        assert_eq!(world.cycle(0, 20).counts(), (0, 2));
    }
}

#[test]
fn excess_continuous_jobs() {
    for rules in BOTH {
        let mut world = World::new(rules, [cr(1), cr(2)]);
        assert_eq!(world.counts(), (2, 0));
        assert_eq!(world.cycle(1, 20).counts(), (1, 1));
        assert_eq!(world.cycle(0, 20).counts(), (0, 2));
    }
}

#[test]
fn excess_prefers_continuous_jobs() {
    for rules in BOTH {
        let mut world = World::new(rules, [cr(1), or(2), cr(3)]);
        world.cycle(2, 20);
        assert_eq!((world.counts(), world.one_shot_counts()), ((2, 1), (1, 0)));
        world.cycle(1, 20);
        assert_eq!((world.counts(), world.one_shot_counts()), ((1, 2), (1, 0)));
        world.cycle(0, 20);
        assert_eq!((world.counts(), world.one_shot_counts()), ((0, 3), (0, 1)));
    }
}

#[test]
fn stop_oldest_first() {
    let jobs = || [cr(7), cr(4), cr(5)];
    let mut seed = World::new(RuleSet::First, jobs());
    assert_eq!(seed.cycle(2, 20).counts(), (2, 1));
    assert_eq!(seed.stopped(), ["4"]);
    assert_eq!(seed.cycle(1, 20).running(), ["7"]);

    let mut head = World::new(RuleSet::Current, jobs());
    assert_eq!(head.cycle(2, 1).counts(), (2, 1));
    assert_eq!(head.stopped(), ["4"]);
    assert_eq!(head.cycle(1, 1).running(), ["7"]);

    // Trimmed jobs count as churn; the rest of `max_churn` is used to rotate.
    let mut head = World::new(RuleSet::Current, jobs());
    assert_eq!(head.cycle(2, 20).running(), ["4", "7"]);
    assert_eq!(head.cycle(1, 20).running(), ["5"]);
}

#[test]
fn start_oldest_first() {
    let jobs = || [c(7), c(2), c(5)];
    let mut seed = World::new(RuleSet::First, jobs());
    assert_eq!(seed.cycle(1, 20).counts(), (1, 2));
    assert_eq!(seed.running(), ["2"]);
    assert_eq!(seed.cycle(2, 20).stopped(), ["7"]);

    let mut head = World::new(RuleSet::Current, jobs());
    assert_eq!(head.cycle(1, 20).counts(), (1, 2));
    assert_eq!(head.running(), ["2"]);
    assert_eq!(head.cycle(2, 20).counts(), (2, 1));
    assert_eq!(head.stopped(), ["2"]);
}

#[test]
fn jobs_churn_even_if_not_all_max_jobs_are_running() {
    let mut world = World::new(RuleSet::Current, [cr(7), c(2), c(5)]);
    assert_eq!(world.cycle(2, 2).counts(), (2, 1));
    assert_eq!(world.stopped(), ["7"]);
}

#[test]
fn jobs_dont_churn_if_there_are_available_running_slots() {
    let mut world = World::new(RuleSet::Current, [cr(1), cr(2)]);
    assert_eq!(world.cycle(2, 2).counts(), (2, 0));
    assert_eq!((world.stopped().len(), world.starts()), (0, 0));
}

#[test]
fn start_only_pending_jobs_do_not_churn_existing_ones() {
    let mut world = World::new(RuleSet::Current, [c(1), cr(2)]);
    assert_eq!(world.cycle(2, 2).counts(), (2, 0));
    assert_eq!((world.stopped().len(), world.starts()), (0, 1));
}

#[test]
fn dont_stop_if_nothing_pending() {
    for rules in BOTH {
        let mut world = World::new(rules, [cr(1), cr(2)]);
        assert_eq!(world.cycle(2, 20).counts(), (2, 0));
        assert_eq!(world.scheduler.totals().stops, 0);
    }
}

#[test]
fn max_churn_limits_number_of_rotated_jobs() {
    for rules in BOTH {
        let mut world = World::new(rules, [c(1), cr(2), c(3), cr(4)]);
        assert_eq!(world.cycle(2, 1).stopped(), ["2", "3"]);
    }
}

#[test]
fn if_pending_less_than_running_start_all_pending() {
    for rules in BOTH {
        let mut world = World::new(rules, [c(1), cr(2), c(3), cr(4), cr(5)]);
        assert_eq!(world.cycle(3, 20).running(), ["1", "2", "5"]);
    }
}

#[test]
fn if_running_less_than_pending_swap_all_running() {
    for rules in BOTH {
        let mut world = World::new(rules, [c(1), c(2), c(3), cr(4), cr(5)]);
        assert_eq!(world.cycle(2, 20).stopped(), ["3", "4", "5"]);
    }
}

#[test]
fn oneshot_dont_get_rotated() {
    for rules in BOTH {
        let mut world = World::new(rules, [or(1), c(2)]);
        assert_eq!(world.cycle(1, 20).running(), ["1"]);
    }
}

#[test]
fn rotate_continuous_only_if_mixed() {
    for rules in BOTH {
        let mut world = World::new(rules, [c(1), or(2), cr(3)]);
        assert_eq!(world.cycle(2, 20).running(), ["1", "2"]);
    }
}

#[test]
fn oneshot_dont_get_starting_priority() {
    for rules in BOTH {
        let mut world = World::new(rules, [c(1), o(2), cr(3)]);
        assert_eq!(world.cycle(1, 20).running(), ["1"]);
    }
}

/// As documented: one-shot jobs that do not end starve all others.
#[test]
fn oneshot_will_hog_the_scheduler() {
    for rules in BOTH {
        let mut world = World::new(rules, [or(1), or(2), o(3), c(4)]);
        assert_eq!(world.cycle(2, 20).running(), ["1", "2"]);
    }
}

#[test]
fn if_excess_is_trimmed_rotation_still_happens() {
    let jobs = || [c(1), cr(2), cr(3)];
    assert_eq!(
        World::new(RuleSet::Current, jobs()).cycle(1, 20).running(),
        ["1"]
    );
    // The first version does not rotate then.
    assert_eq!(
        World::new(RuleSet::First, jobs()).cycle(1, 20).running(),
        ["3"]
    );
}

#[test]
fn if_transient_job_crashes_it_gets_removed() {
    for rules in BOTH {
        let mut world = World::new(rules, []);
        world.configure(|settings| settings.max_history = 3);
        let transient = true;
        let history = History::of([added(0)]);
        world.put(Given {
            transient,
            running: true,
            history,
            ..cr(1)
        });
        assert_eq!(world.scheduler.census().total, 1);
        let how = End::Crashed(reason("failed"));
        assert_eq!(
            world.end("1", crash("failed")),
            [ScheduleAction::Left {
                id: "1".into(),
                how
            }]
        );
        assert_eq!(world.scheduler.census().total, 0);
    }
}

#[test]
fn if_permanent_job_crashes_it_stays_in_the_table() {
    for rules in BOTH {
        let mut world = World::new(rules, []);
        world.configure(|settings| {
            settings.max_jobs = 1;
            settings.max_history = 3;
        });
        let history = History::of([added(0)]);
        world.put(Given {
            running: true,
            history,
            ..cr(1)
        });
        world.end("1", crash("failed"));
        assert_eq!(world.scheduler.census().total, 1);
        let job = world.scheduler.job("1").expect("the job stays");
        assert_eq!(job.history.fresh_crash(), Some(&reason("failed")));
        assert_eq!(world.counts(), (0, 1));
    }
}

#[test]
fn removing_every_job_leaves_nothing() {
    for rules in BOTH {
        let mut world = World::new(rules, [or(1), or(2), o(3), c(4)]);
        for id in ["1", "2", "3", "4"] {
            world.on(Event::Remove { id: id.into() });
        }
        assert_eq!(world.counts(), (0, 0));
        assert_eq!(*world.scheduler.census(), Census::default());
    }
}
