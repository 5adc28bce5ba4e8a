//! Priorities and rotation: which job is stopped for which.

use super::*;
use test_support::TestRandom;

/// Starts jobs of these priorities without a limit.
fn world(rules: RuleSet, levels: &[i8]) -> World {
    let mut world = World::new(rules, []);
    for (number, level) in levels.iter().enumerate() {
        world.on(Event::Add(NewJob {
            level: Level(*level),
            ..new_job(&number.to_string())
        }));
    }
    world
}

/// Adds a waiting job.
fn add(world: &mut World, id: &str, level: i8) {
    let level = Level(level);
    world.on(Event::Add(NewJob {
        level,
        ..new_job(id)
    }));
}

#[test]
fn a_job_is_not_stopped_for_one_of_lower_priority() {
    for rules in [RuleSet::Current, RuleSet::First] {
        let mut world = world(rules, &[10, 10]);
        world.cycle(2, 20);
        add(&mut world, "low", 0);
        let starts = world.starts();
        for _ in 0..5 {
            world.cycle(2, 20);
            assert_eq!(world.running(), ["0", "1"], "{rules:?}");
        }
        assert_eq!(world.starts(), starts, "no job is restarted");
        assert_eq!(
            world.why_not("low"),
            "waiting for a slot: max_jobs is 2, and none is free"
        );
        // A job of the same priority alternates with them, and one of a higher priority runs first.
        add(&mut world, "same", 10);
        world.cycle(2, 20);
        assert!(world.running().contains(&"same".to_owned()), "{rules:?}");
        add(&mut world, "high", 11);
        world.cycle(2, 1);
        assert!(world.running().contains(&"high".to_owned()), "{rules:?}");
        assert!(!world.running().contains(&"low".to_owned()), "{rules:?}");
    }
}

#[test]
fn surplus_jobs_are_stopped_by_priority_first_and_then_by_kind() {
    for rules in [RuleSet::Current, RuleSet::First] {
        let mut world = World::new(rules, [cr(1), or(2), cr(3)]);
        world.on(Event::SetLevel {
            id: "1".into(),
            level: Level(5),
        });
        world.cycle(2, 0);
        assert_eq!(
            world.running(),
            ["1", "2"],
            "within a priority, continuous ones first"
        );
        world.cycle(1, 0);
        assert_eq!(
            world.running(),
            ["1"],
            "the higher priority stays, even if continuous"
        );
    }
}

/// With random priorities, slots and churn.
#[test]
fn no_job_is_stopped_for_a_lower_priority_and_equal_priorities_alternate() {
    let mut random = TestRandom::for_test(
        "no_job_is_stopped_for_a_lower_priority_and_equal_priorities_alternate",
    );
    for _ in 0..300 {
        let rules = *random.one_of(&[RuleSet::Current, RuleSet::First]);
        let jobs = 2 + random.below(10);
        let levels: Vec<i8> = (0..jobs).map(|_| random.below(4) as i8 - 2).collect();
        let mut world = world(rules, &levels);
        let slots = 1 + random.below(jobs);
        let churn = 1 + random.below(4);
        // Trims the excess.
        world.cycle(slots, churn);
        let level = |id: &str| levels[id.parse::<usize>().expect("ids are numbers")];
        let mut ran = vec![0; jobs];
        for _ in 0..4 * jobs {
            let before = world.running();
            world.cycle(slots, churn);
            let after = world.running();
            let out = before.iter().filter(|id| !after.contains(id));
            let into = after.iter().filter(|id| !before.contains(id));
            let (mut out, mut into): (Vec<i8>, Vec<i8>) = (
                out.map(|id| level(id)).collect(),
                into.map(|id| level(id)).collect(),
            );
            out.sort_unstable();
            into.sort_unstable();
            assert_eq!(out.len(), into.len());
            let replaced = out.iter().zip(&into);
            assert!(
                replaced.into_iter().all(|(out, into)| out <= into),
                "{rules:?}: {levels:?} on {slots}, churn {churn}: {out:?} stopped for {into:?}"
            );
            for id in after {
                ran[id.parse::<usize>().expect("ids are numbers")] += 1;
            }
        }
        let mut sorted = levels.clone();
        sorted.sort_unstable_by_key(|level| std::cmp::Reverse(*level));
        let lowest = sorted[slots.min(jobs) - 1];
        for (number, level) in levels.iter().enumerate() {
            let has_slots = *level >= lowest;
            assert_eq!(
                ran[number] > 0,
                has_slots,
                "{rules:?}: {levels:?} on {slots}: {number}"
            );
        }
    }
}
