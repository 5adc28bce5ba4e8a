//! The reference's own test tables for job histories, with the same numbers.

use super::*;

const THRESHOLD: Duration = Duration::from_secs(120);

#[test]
fn backoff_micros() {
    let backoff = Backoff::default();
    let factors = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024];
    for (crashes, factor) in (1..).zip(factors) {
        assert_eq!(
            backoff.after(crashes),
            Duration::from_secs(30) * factor,
            "{crashes}"
        );
    }
    let seconds = [
        30, 60, 120, 240, 480, 960, 1920, 3840, 7680, 15360, 30720, 30720,
    ];
    for (crashes, seconds) in (1..).zip(seconds) {
        assert_eq!(
            backoff.after(crashes),
            Duration::from_secs(seconds),
            "{crashes}"
        );
    }
    assert_eq!(backoff.after(1_000_000), Duration::from_secs(30720));
}

#[test]
fn no_crash_means_no_backoff() {
    assert_eq!(Backoff::default().after(0), Duration::ZERO);
}

#[test]
fn backoff_has_a_base_and_a_ceiling() {
    let backoff = Backoff {
        base: Duration::from_secs(5),
        ceiling: Duration::from_secs(60),
    };
    let seconds = |crashes| backoff.after(crashes).as_secs();
    assert_eq!([1, 2, 3, 4, 5, 6].map(seconds), [5, 10, 20, 40, 60, 60]);
    let endless = Backoff {
        base: Duration::MAX,
        ceiling: Duration::MAX,
    };
    assert_eq!(endless.after(9), Duration::MAX);
}

#[test]
fn consecutive_crashes() {
    let table: [(u32, Vec<HistoryEntry>); 16] = [
        (0, vec![]),
        (0, vec![added(0)]),
        (0, vec![stopped(0)]),
        (0, vec![crashed(0)]),
        (1, vec![crashed(0), added(0)]),
        (1, vec![crashed(0), crashed(0)]),
        (1, vec![crashed(0), stopped(0)]),
        (3, vec![crashed(0), crashed(0), crashed(0), added(0)]),
        (2, vec![crashed(0), crashed(0), stopped(0)]),
        (1, vec![crashed(0), started(0), added(0)]),
        (2, vec![crashed(3), started(2), crashed(1), started(0)]),
        (0, vec![stopped(3), started(2), crashed(1), started(0)]),
        (1, vec![crashed(3), started(2), stopped(1), started(0)]),
        (0, vec![crashed(999), started(0)]),
        (
            1,
            vec![crashed(999), started(998), crashed(997), started(0)],
        ),
        (1, vec![crashed(120), started(0)]),
    ];
    for (expected, history) in table {
        let crashes = History::of(history.clone()).consecutive_crashes(THRESHOLD);
        assert_eq!(crashes, expected, "{history:?}");
    }
}

#[test]
fn consecutive_crashes_non_default_threshold() {
    let threshold = Duration::from_secs(10);
    let healthy = History::of([crashed(11), started(0)]);
    assert_eq!(healthy.consecutive_crashes(threshold), 0);
    let sick = History::of([crashed(10), started(0)]);
    assert_eq!(sick.consecutive_crashes(threshold), 1);
    // Healthy by a microsecond.
    let mut just_healthy = crashed(10);
    just_healthy.at = just_healthy.at + Duration::from_micros(1);
    let just_healthy = History::of([just_healthy, started(0)]);
    assert_eq!(just_healthy.consecutive_crashes(threshold), 0);
}

#[test]
fn latest_crash_timestamp() {
    let table: [(u64, Vec<HistoryEntry>); 4] = [
        (0, vec![added(5)]),
        (1, vec![crashed(1)]),
        (3, vec![crashed(3), started(2), crashed(1), started(0)]),
        (1, vec![started(3), stopped(2), crashed(1), started(0)]),
    ];
    for (expected, history) in table {
        assert_eq!(History::of(history).latest_crash(), at(expected));
    }
}

#[test]
fn last_started() {
    let table: [(u64, Vec<HistoryEntry>); 6] = [
        (0, vec![added(5)]),
        (0, vec![crashed(1)]),
        (1, vec![started(1)]),
        (1, vec![added(0), started(1)]),
        (2, vec![started(2), started(1)]),
        (2, vec![crashed(3), started(2), started(1)]),
    ];
    for (expected, history) in table {
        assert_eq!(History::of(history).last_started(), at(expected));
    }
}

#[test]
fn oldest_job_first() {
    let order = |starts: &[Option<u64>]| -> Vec<String> {
        let jobs = starts.iter().map(|start| match start {
            Some(n) => cr(*n),
            None => Given {
                id: "none".into(),
                history: History::of([added(9)]),
                ..cr(0)
            },
        });
        let world = World::new(RuleSet::Current, jobs);
        let slots = world.scheduler.jobs.stop_order(10, |job| job.continuous);
        let id = |slot| world.scheduler.jobs.get(slot).id.to_string();
        slots.into_iter().map(id).collect()
    };
    assert_eq!(order(&[]), [""; 0]);
    assert_eq!(order(&[Some(1)]), ["1"]);
    assert_eq!(order(&[None, Some(1), Some(2)]), ["none", "1", "2"]);
    assert_eq!(order(&[Some(2), Some(1), None]), ["none", "1", "2"]);
}

#[test]
fn a_history_keeps_the_newest_events_and_is_never_empty() {
    let mut history = History::added(at(0));
    for n in 1..=5 {
        history.push(at(n), HistoryEvent::Started, 3);
    }
    let times: Vec<_> = history.iter().map(|entry| entry.at).collect();
    assert_eq!(times, [at(5), at(4), at(3)]);
    history.push(at(6), HistoryEvent::Stopped, 0);
    assert_eq!(history, History::of([stopped(6)]));
}

/// With the default history the delay stops growing at 512 times 30 seconds: ten crashes and ten starts fit.
#[test]
fn the_length_of_the_history_limits_the_backoff() {
    let mut history = History::added(at(0));
    for n in 1..100 {
        history.push(at(2 * n), HistoryEvent::Started, 20);
        history.push(at(2 * n + 1), HistoryEvent::Crashed(reason("r")), 20);
    }
    assert_eq!(history.consecutive_crashes(THRESHOLD), 10);
}

#[test]
fn a_reason_is_cut_between_characters() {
    let text = "é".repeat(REASON_BYTES_MAX);
    let reason = Reason::new(&text, false);
    assert_eq!(reason.text.len(), REASON_BYTES_MAX);
    let odd = Reason::new(&format!("x{text}"), false);
    assert_eq!(odd.text.len(), REASON_BYTES_MAX - 1);
}
