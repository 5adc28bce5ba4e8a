//! Fair share: the reference's own cases, with the same numbers, and its simulation.
//!
//! SOURCE    couch_replicator_share HEAD: its unit tests and its simulation.

use std::sync::Arc;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn key(name: &str) -> Arc<str> {
    name.into()
}

#[test]
fn shares_are_set_and_clipped() {
    let mut shares = Shares::default();
    assert_eq!(shares.get("db1"), 100);
    for (set, clipped) in [(42, 42), (0, 1), (1001, 1000), (i64::MIN, 1)] {
        shares.set("db1", set);
        assert_eq!(shares.get("db1"), clipped);
    }
    assert_eq!(shares.get("db2"), 100);
}

#[test]
fn configured_shares_apply_from_the_start() {
    let mut shares = Shares::default();
    shares.set("db1", 200);
    let mut fair = FairShare::default();
    for db in ["db1", "db2"] {
        fair.job_added(&key(db));
        fair.charge(db, SECOND);
    }
    fair.update_usage(Settings::default().usage_coeff);
    let raise = |db| fair.raise(db, &shares);
    assert_eq!((raise("db1"), raise("db2")), (25, 100));
}

#[test]
fn jobs_are_counted_for_each_key() {
    let mut world = World::with(Settings::default(), []);
    let job = |id: &str, db: &str| NewJob {
        key: key(db),
        ..new_job(id)
    };
    for (id, db) in [("j1", "db1"), ("j2", "db1"), ("j3", "db2")] {
        world.on(Event::Add(job(id, db)));
    }
    let counts = |world: &World| {
        let fair = &world.scheduler.fair_share;
        (jobs_of(fair, "db1"), jobs_of(fair, "db2"))
    };
    assert_eq!(counts(&world), (Some(2), Some(1)));
    let penalties = ["j1", "j2", "j3"].map(|id| world.scheduler.penalty(id));
    assert_eq!(penalties, [Some(0); 3]);
    let expected = [(Some(1), Some(1)), (None, Some(1)), (None, None)];
    for (id, expected) in ["j1", "j2", "j3"].iter().zip(expected) {
        world.on(Event::Remove { id: (*id).into() });
        assert_eq!(counts(&world), expected);
    }
    assert_eq!(world.scheduler.fair_share.0.len(), 0);
}

#[test]
fn running_time_is_charged_up_to_an_interval() {
    let settings = Settings {
        interval: SECOND,
        ..Settings::default()
    };
    let mut world = World::with(settings, []);
    world.now = at(0);
    world.on(Event::Add(new_job("j1")));
    let charges = |world: &World| charges_of(&world.scheduler.fair_share, "_replicator");
    let charge = |world: &mut World, id: &str| {
        let slot = world.scheduler.jobs.find(id).expect("the job exists");
        world.scheduler.now = world.now;
        world.scheduler.charge(slot);
    };
    assert_eq!(charges(&world), None);
    world.now = at(1);
    charge(&mut world, "j1");
    assert_eq!(charges(&world), Some(1_000_000));
    // Charges add up, and each is at most an interval.
    world.now = at(5);
    charge(&mut world, "j1");
    assert_eq!(charges(&world), Some(2_000_000));
    world.now = at(6);
    world.on(Event::Add(new_job("j2")));
    world.now = world.now + Duration::from_micros(1);
    charge(&mut world, "j2");
    assert_eq!(charges(&world), Some(2_000_001));
    // Removing charges running jobs, and keeps the charge.
    for id in ["j1", "j2"] {
        world.on(Event::Remove { id: id.into() });
    }
    assert_eq!(charges(&world), Some(3_000_002));
}

#[test]
fn only_running_jobs_are_charged() {
    let mut world = World::with(Settings::default(), [c(1), o(2)]);
    world.configure(|settings| settings.max_jobs = 0);
    world.on(Event::Cycle);
    let fair = &world.scheduler.fair_share;
    assert_eq!(
        (
            charges_of(fair, "_replicator"),
            usage_of(fair, "_replicator")
        ),
        (None, None)
    );
}

#[test]
fn usage_decays_and_adds_charges() {
    let mut fair = FairShare::default();
    fair.job_added(&key("db1"));
    let usage = |fair: &FairShare| usage_of(fair, "db1");
    fair.charge("db1", 60 * SECOND);
    fair.update_usage(Settings::default().usage_coeff);
    assert_eq!(usage(&fair), Some(60_000_000));
    fair.update_usage(Coefficient::new(0.2));
    assert_eq!(usage(&fair), Some(12_000_000));
    fair.update_usage(Coefficient::new(0.5));
    assert_eq!(usage(&fair), Some(6_000_000));
    fair.charge("db1", 60 * SECOND);
    fair.update_usage(Coefficient::new(0.5));
    assert_eq!(usage(&fair), Some(63_000_000));
    fair.job_removed("db1");
    assert_eq!(fair.0.len(), 1, "its usage is remembered");
    for _ in 0..100 {
        fair.update_usage(Settings::default().usage_coeff);
    }
    assert_eq!((usage(&fair), fair.0.len()), (None, 0));
}

#[test]
fn usage_of_a_minute_is_forgotten_after_26_cycles() {
    let cycles = cycles_to_zero(60_000_000, Settings::default().usage_coeff);
    assert_eq!(cycles, 26);
}

#[test]
fn a_penalty_of_6000_is_forgotten_after_266_cycles() {
    assert_eq!(
        cycles_to_zero(6000, Settings::default().priority_coeff),
        266
    );
}

fn cycles_to_zero(mut number: u64, coefficient: Coefficient) -> u32 {
    let mut cycles = 0;
    while number > 0 {
        number = coefficient.of(number);
        cycles += 1;
    }
    cycles
}

#[test]
fn a_coefficient_is_clipped() {
    for (factor, expected) in [(0.8, 800), (0.5, 500), (1.1, 1000), (-0.1, 0)] {
        assert_eq!(Coefficient::new(factor).of(1000), expected, "{factor}");
    }
    assert_eq!(Coefficient::new(f64::NAN), Coefficient::new(0.0));
}

#[test]
fn penalties_decay() {
    let mut world = World::with(Settings::default(), []);
    world.on(Event::Add(new_job("j1")));
    world.advance(60 * SECOND);
    world.on(Event::Cycle);
    let penalty = |world: &World| world.scheduler.penalty("j1");
    assert!(penalty(&world) > Some(0));
    world.on(Event::Pause {
        id: "j1".into(),
        by: "an admin".into(),
    });
    (0..500).for_each(|_| {
        world.on(Event::Cycle);
    });
    assert_eq!(penalty(&world), Some(0));
}

#[test]
fn the_penalty_of_a_running_job_grows_to_a_limit() {
    let mut world = World::with(Settings::default(), []);
    world.on(Event::Add(new_job("j1")));
    let mut cycles = |count: u32| {
        for _ in 0..count {
            world.advance(60 * SECOND);
            world.on(Event::Cycle);
        }
        world.scheduler.penalty("j1").unwrap_or(0)
    };
    let (one, two) = (cycles(1), cycles(1));
    assert!(one > 0 && two > one);
    let many = cycles(500);
    assert!(many > two);
    assert_eq!(cycles(1), many);
}

#[test]
fn a_new_job_of_a_busy_key_starts_with_a_penalty() {
    let mut world = World::with(Settings::default(), []);
    world.on(Event::Add(new_job("j1")));
    world.advance(60 * SECOND);
    world.on(Event::Cycle);
    world.on(Event::Add(new_job("j2")));
    world.on(Event::Add(NewJob {
        key: key("quiet"),
        ..new_job("j3")
    }));
    let penalty = |id: &str| world.scheduler.penalty(id);
    // One minute times two jobs, over a hundred squared.
    assert_eq!(penalty("j2"), Some(60_000_000 * 2 / 10_000));
    assert_eq!(penalty("j3"), Some(0));
}

/// In each one-minute cycle the ten running jobs with the largest penalty are exchanged for the ten with the
/// smallest, a thousand times. Returns each database's percentage of slots.
fn simulate(dbs: &[(usize, usize, i64)]) -> Vec<i64> {
    let mut shares = Shares::default();
    for (n, (_, _, share)) in dbs.iter().enumerate() {
        shares.set(&format!("db{n}"), *share);
    }
    let running = dbs.iter().map(|(running, _, _)| running).sum();
    let settings = Settings {
        shares,
        max_jobs: 0,
        max_churn: 10,
        ..Settings::default()
    };
    let mut world = World::with(settings, []);
    world.now = at(0);
    for (n, (running, pending, _)) in dbs.iter().enumerate() {
        for job in 0..running + pending {
            // A slot for each job that runs from the start.
            let max_jobs = if job < *running { usize::MAX } else { 0 };
            world.configure(|settings| settings.max_jobs = max_jobs);
            let id = format!("{n}-{job:04}");
            world.on(Event::Add(NewJob {
                key: key(&format!("db{n}")),
                ..new_job(&id)
            }));
        }
    }
    world.configure(|settings| settings.max_jobs = running);
    let mut slots = vec![0; dbs.len()];
    for _ in 0..1000 {
        world.now = world.now + 60 * SECOND;
        world.on(Event::Cycle);
        for id in world.alive.values() {
            let db: usize = id
                .split('-')
                .next()
                .and_then(|n| n.parse().ok())
                .expect("a number");
            slots[db] += 1;
        }
    }
    let all: i64 = slots.iter().sum();
    slots
        .iter()
        .map(|own| (own * 100 + all / 2) / all)
        .collect()
}

fn assert_divided(dbs: &[(usize, usize, i64)], expected: &[i64]) {
    let percent = simulate(dbs);
    let near = percent
        .iter()
        .zip(expected)
        .all(|(is, should)| (is - should).abs() <= 1);
    assert!(near, "{dbs:?}: {percent:?} instead of {expected:?}");
}

#[test]
fn two_dbs_with_equal_shares_and_equal_jobs() {
    assert_divided(&[(25, 75, 100), (25, 75, 100)], &[50, 50]);
}

#[test]
fn two_dbs_with_unequal_shares_and_equal_jobs() {
    assert_divided(&[(25, 75, 900), (25, 75, 100)], &[90, 10]);
}

#[test]
fn two_dbs_with_equal_shares_and_unequal_jobs() {
    assert_divided(&[(25, 25, 100), (25, 125, 100)], &[50, 50]);
}

#[test]
fn two_dbs_with_unequal_shares_and_unequal_jobs() {
    assert_divided(&[(25, 25, 1), (25, 125, 100)], &[1, 99]);
}

#[test]
fn three_dbs_with_equal_shares_and_equal_jobs() {
    assert_divided(
        &[(25, 75, 100), (25, 75, 100), (25, 75, 100)],
        &[33, 33, 33],
    );
}

#[test]
fn three_dbs_with_unequal_shares_and_equal_jobs() {
    assert_divided(
        &[(25, 75, 100), (25, 75, 700), (25, 75, 200)],
        &[10, 70, 20],
    );
}

#[test]
fn three_dbs_with_equal_shares_and_unequal_jobs() {
    assert_divided(
        &[(25, 25, 100), (25, 100, 100), (25, 75, 100)],
        &[33, 33, 33],
    );
}

#[test]
fn three_dbs_with_unequal_shares_and_unequal_jobs() {
    assert_divided(
        &[(25, 100, 1000), (25, 125, 100), (25, 875, 1)],
        &[88, 10, 3],
    );
}
