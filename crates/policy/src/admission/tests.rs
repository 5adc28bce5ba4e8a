//! A test for each rule; the listening decision is also compared with a naive version.

use proptest::prelude::*;

use super::*;
use crate::time::{Timestamp, Until};

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

/// `total` of `max` processes, `avail` of them free, and no claims.
fn pool(avail: u32, total: u32, max: u32) -> Snapshot {
    Snapshot {
        avail,
        total,
        max,
        ..Snapshot::default()
    }
}

#[test]
fn a_connection_is_not_accepted_for_a_process_reserved_for_others() {
    let reserved = |unreserved| Snapshot {
        unreserved: Some(unreserved),
        ..pool(2, 3, 4)
    };
    assert!(listening(&reserved(1)));
    assert_eq!(verdict(&reserved(0)), Verdict::AtLimit);
    assert!(!listening(&Snapshot {
        claims: 1,
        ..reserved(1)
    }));
}

#[test]
fn a_service_listens_with_a_process_available_or_below_the_limit() {
    assert!(listening(&pool(1, 3, 3)));
    assert!(listening(&pool(0, 2, 3)));
    assert!(listening(&pool(0, 0, 1)));
}

#[test]
fn a_service_at_the_limit_with_no_process_available_does_not_listen() {
    assert_eq!(verdict(&pool(0, 3, 3)), Verdict::AtLimit);
    // The limit was lowered.
    assert_eq!(verdict(&pool(0, 5, 3)), Verdict::AtLimit);
    assert_eq!(verdict(&pool(0, 0, 0)), Verdict::AtLimit);
}

#[test]
fn a_service_listens_again_once_a_process_is_available_or_the_total_drops() {
    assert_eq!(verdict(&pool(0, 3, 3)), Verdict::AtLimit);
    assert_eq!(verdict(&pool(1, 3, 3)), Verdict::Listen);
    assert_eq!(verdict(&pool(0, 2, 3)), Verdict::Listen);
}

#[test]
fn a_throttled_service_does_not_listen() {
    let throttled = Snapshot {
        throttled: true,
        ..pool(0, 0, 3)
    };
    assert_eq!(verdict(&throttled), Verdict::Throttled);
}

#[test]
fn a_throttled_service_listens_for_its_available_processes() {
    let throttled = |avail, claims| Snapshot {
        throttled: true,
        claims,
        ..pool(avail, 2, 3)
    };
    assert!(listening(&throttled(1, 0)));
    assert_eq!(verdict(&throttled(1, 1)), Verdict::Throttled);
}

#[test]
fn an_accepted_client_without_a_process_counts_against_the_limit() {
    let accepted = |claims, opening, total| {
        listening(&Snapshot {
            claims,
            opening,
            ..pool(0, total, 3)
        })
    };
    assert!(accepted(2, 0, 0));
    assert!(!accepted(3, 0, 0));
    // The same three while processes are being created for them.
    assert!(!accepted(3, 3, 3));
    assert!(accepted(2, 2, 2));
    // Processes being opened without a request cannot serve a client yet.
    assert!(!accepted(0, 3, 3));
}

#[test]
fn a_process_is_created_only_for_a_request_that_nothing_available_can_serve() {
    let below = pool(1, 1, 3);
    assert_eq!(may_spawn(&below, true), Err(SpawnRefused::Available));
    assert_eq!(may_spawn(&below, false), Ok(()));
}

#[test]
fn a_process_is_created_only_below_the_limit() {
    let full = pool(0, 3, 3);
    assert_eq!(may_spawn(&full, false), Err(SpawnRefused::AtLimit));
}

#[test]
fn no_process_is_created_while_throttled() {
    let throttled = Snapshot {
        throttled: true,
        ..pool(0, 0, 3)
    };
    assert_eq!(may_spawn(&throttled, false), Err(SpawnRefused::Throttled));
}

/// A throttle that begins with the next failed start.
fn one_failure_short() -> Throttle {
    let mut throttle = Throttle::default();
    for _ in 1..FAILURES_MIN {
        assert!(!throttle.failed(at(0), Failure::Start));
    }
    throttle
}

/// Records a failed start. Returns the end of the throttle if it begins.
fn fail_start(
    throttle: &mut Throttle,
    now: Timestamp,
    settings: &ThrottleSettings,
) -> Option<Timestamp> {
    let is_enough = throttle.failed(now, Failure::Start);
    is_enough.then(|| throttle.begin(now, settings))
}

#[test]
fn only_several_failures_in_a_row_are_enough_to_throttle() {
    for failure in [Failure::Start, Failure::EarlyEnd] {
        let mut throttle = Throttle::default();
        for _ in 1..FAILURES_MIN {
            assert!(!throttle.failed(at(0), failure));
        }
        throttle.succeeded();
        throttle.served();
        for _ in 1..FAILURES_MIN {
            assert!(!throttle.failed(at(1), failure));
        }
        assert!(throttle.failed(at(1), failure));
    }
}

#[test]
fn many_starts_killed_by_others_are_enough_to_throttle() {
    let mut throttle = Throttle::default();
    for _ in 1..KILLS_MIN {
        assert!(!throttle.failed(at(0), Failure::KilledStart));
    }
    assert!(throttle.failed(at(0), Failure::KilledStart));
}

#[test]
fn a_start_is_not_a_success_if_the_command_ends_soon_after() {
    let (mut throttle, settings) = (Throttle::default(), ThrottleSettings::default());
    let ends = |throttle: &mut Throttle, now| {
        throttle.succeeded();
        throttle.failed(now, Failure::EarlyEnd)
    };
    for _ in 1..FAILURES_MIN {
        assert!(!ends(&mut throttle, at(0)));
    }
    assert!(ends(&mut throttle, at(0)));
    assert_eq!(throttle.begin(at(0), &settings), at(60));
    assert!(throttle.until.expire(at(60)));
    assert!(ends(&mut throttle, at(60)));
    assert_eq!(throttle.begin(at(60), &settings), at(180));
    throttle.served();
    assert!(!ends(&mut throttle, at(180)));
}

#[test]
fn the_delay_of_the_throttle_doubles_from_60_s_to_10_min_while_it_repeats() {
    let (mut throttle, settings) = (one_failure_short(), ThrottleSettings::default());
    let mut now = at(5);
    let mut delays = Vec::new();
    for _ in 0..7 {
        let until = fail_start(&mut throttle, now, &settings).expect("the throttle begins");
        delays.push(until.since(now).as_secs());
        now = until;
        assert!(throttle.until.expire(now));
    }
    assert_eq!(delays, [60, 120, 240, 480, 600, 600, 600]);
}

#[test]
fn one_success_resets_the_delay_of_the_throttle() {
    let (mut throttle, settings) = (one_failure_short(), ThrottleSettings::default());
    fail_start(&mut throttle, at(0), &settings);
    fail_start(&mut throttle, at(60), &settings);
    throttle.succeeded();
    assert!(
        throttle.until.is_on(at(61)),
        "a success does not lift the throttle"
    );
    for _ in 1..FAILURES_MIN {
        assert_eq!(fail_start(&mut throttle, at(180), &settings), None);
    }
    assert_eq!(fail_start(&mut throttle, at(180), &settings), Some(at(240)));
}

#[test]
fn failures_while_throttled_do_not_extend_the_throttle() {
    let (mut throttle, settings) = (one_failure_short(), ThrottleSettings::default());
    assert_eq!(fail_start(&mut throttle, at(0), &settings), Some(at(60)));
    assert_eq!(fail_start(&mut throttle, at(1), &settings), None);
    assert_eq!(throttle.until.0, Some(at(60)));
    assert_eq!(fail_start(&mut throttle, at(60), &settings), Some(at(180)));
}

#[test]
fn the_throttle_is_lifted_by_its_timer_once() {
    let (mut throttle, settings) = (one_failure_short(), ThrottleSettings::default());
    assert!(!throttle.until.expire(at(0)));
    fail_start(&mut throttle, at(0), &settings);
    assert!(throttle.until.is_on(at(59)) && !throttle.until.expire(at(59)));
    assert!(!throttle.until.is_on(at(60)) && throttle.until.expire(at(60)));
    assert!(!throttle.until.expire(at(61)));
    assert_eq!(throttle.until.0, None);
}

#[test]
fn a_reload_or_an_operator_lifts_the_throttle_and_resets_its_failures() {
    let (mut throttle, settings) = (one_failure_short(), ThrottleSettings::default());
    assert!(!Throttle::default().lift(at(0)));
    fail_start(&mut throttle, at(0), &settings);
    fail_start(&mut throttle, at(60), &settings);
    assert!(throttle.lift(at(61)));
    assert!(!throttle.until.is_on(at(61)));
    for _ in 1..FAILURES_MIN {
        assert_eq!(fail_start(&mut throttle, at(62), &settings), None);
    }
    assert_eq!(fail_start(&mut throttle, at(62), &settings), Some(at(122)));
}

#[test]
fn a_delay_configured_above_the_default_maximum_applies() {
    let settings = ThrottleSettings {
        delay: Duration::from_secs(3600),
        ..ThrottleSettings::default()
    };
    let mut throttle = one_failure_short();
    assert_eq!(fail_start(&mut throttle, at(0), &settings), Some(at(3600)));
    assert_eq!(
        fail_start(&mut throttle, at(3600), &settings),
        Some(at(7200))
    );
}

#[test]
fn a_service_is_under_stress_when_one_more_process_would_reach_its_limit() {
    assert!(!pool(0, 1, 3).is_near_limit());
    assert!(pool(0, 2, 3).is_near_limit());
    assert!(pool(0, 3, 3).is_near_limit());
}

#[test]
fn stress_lasts_1000_s_after_the_last_moment_at_the_limit() {
    let mut stress = Until::default();
    assert!(!stress.is_on(at(0)));
    assert!(stress.extend(at(0), STRESS_DURATION));
    assert!(!stress.extend(at(999), STRESS_DURATION));
    assert!(stress.is_on(at(1998)));
    assert!(!stress.is_on(at(1999)));
}

#[test]
fn stress_begins_again_only_after_it_has_ended() {
    let mut stress = Until::default();
    let begins = [0, 1, 1001, 2001, 2002].map(|second| stress.extend(at(second), STRESS_DURATION));
    assert_eq!(begins, [true, false, true, true, false]);
}

/// Gives each accepted connection a process, one by one, and checks whether one more could be served.
fn naive(now: &Snapshot) -> bool {
    let (mut opening, mut avail, mut total) = (now.opening, now.avail, now.total);
    let may_create = |total: u32| !now.throttled && total < now.max;
    for _ in 0..now.claims {
        if opening > 0 {
            opening -= 1;
        } else if avail > 0 {
            avail -= 1;
        } else if may_create(total) {
            total += 1;
        }
    }
    avail > 0 || may_create(total)
}

fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    let counts = (0..5u32, 0..5u32, 0..5u32, 0..5u32);
    let rest = (0..12u32, 0..12u32, any::<bool>());
    (counts, rest).prop_map(
        |((avail, opening, used, stopping), (max, claims, throttled))| Snapshot {
            unreserved: None,
            avail,
            opening,
            total: avail + opening + used + stopping,
            max,
            claims,
            throttled,
        },
    )
}

proptest! {
    #[test]
    fn the_listening_decision_agrees_with_its_naive_version(now in any_snapshot()) {
        prop_assert_eq!(listening(&now), naive(&now), "{:?}", now);
    }

    #[test]
    fn a_connection_that_a_listening_service_accepts_can_be_served(now in any_snapshot()) {
        let spare = now.avail > now.claims.saturating_sub(now.opening);
        if listening(&now) && !spare {
            prop_assert_eq!(may_spawn(&now, false), Ok(()));
        }
    }
}
