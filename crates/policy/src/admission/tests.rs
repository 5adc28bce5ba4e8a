//! One test a rule, named after it; the listening decision also against a naive statement of it.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::time::Timestamp;

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

/// `total` of `max` processes, `avail` of them free, and nobody waits.
fn pool(avail: u32, total: u32, max: u32) -> Snapshot {
    Snapshot {
        avail,
        total,
        max: Some(max),
        ..Snapshot::default()
    }
}

#[test]
fn a_connection_is_not_let_in_for_a_process_that_is_reserved_for_others() {
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
fn with_a_process_available_or_below_the_limit_it_listens() {
    assert!(listening(&pool(1, 3, 3)));
    assert!(listening(&pool(0, 2, 3)));
    assert!(listening(&pool(0, 0, 1)));
}

#[test]
fn at_the_limit_with_nothing_available_it_does_not_listen() {
    assert_eq!(verdict(&pool(0, 3, 3)), Verdict::AtLimit);
    // The limit was lowered.
    assert_eq!(verdict(&pool(0, 5, 3)), Verdict::AtLimit);
    assert_eq!(verdict(&pool(0, 0, 0)), Verdict::AtLimit);
}

#[test]
fn without_a_limit_it_always_listens() {
    let unlimited = Snapshot {
        total: 1_000_000,
        max: None,
        ..Snapshot::default()
    };
    assert!(listening(&unlimited));
}

#[test]
fn it_listens_again_at_the_first_change_that_makes_one_available_or_lowers_the_total() {
    let mut admission = Admission::default();
    assert_eq!(admission.changed(&pool(0, 3, 3)), Some(Verdict::AtLimit));
    assert_eq!(admission.changed(&pool(1, 3, 3)), Some(Verdict::Listen));
    assert_eq!(admission.changed(&pool(0, 3, 3)), Some(Verdict::AtLimit));
    assert_eq!(admission.changed(&pool(0, 2, 3)), Some(Verdict::Listen));
    assert!(admission.is_open());
}

#[test]
fn a_redundant_change_touches_nothing() {
    let mut admission = Admission::default();
    assert!(!admission.is_open());
    assert_eq!(admission.changed(&pool(0, 0, 3)), Some(Verdict::Listen));
    for (avail, total) in [(0, 1), (1, 1), (2, 2), (0, 2), (3, 3)] {
        assert_eq!(admission.changed(&pool(avail, total, 3)), None);
    }
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
fn who_was_accepted_and_has_no_process_yet_is_counted() {
    let accepted = |claims, opening, total| {
        listening(&Snapshot {
            claims,
            opening,
            ..pool(0, total, 3)
        })
    };
    assert!(accepted(2, 0, 0));
    assert!(!accepted(3, 0, 0));
    // The same three once processes are being created for them.
    assert!(!accepted(3, 3, 3));
    assert!(accepted(2, 2, 2));
    // One that is being created for nobody is no place for anybody yet.
    assert!(!accepted(0, 3, 3));
}

#[test]
fn a_process_is_created_only_for_a_request_that_nothing_available_can_serve() {
    let below = pool(1, 1, 3);
    let need = |suitable| Need::Request { suitable };
    assert_eq!(may_spawn(&below, need(1)), Err(SpawnRefused::Available));
    assert_eq!(may_spawn(&below, need(0)), Ok(()));
    assert_eq!(may_spawn(&below, Need::Reserve), Ok(()));
}

#[test]
fn a_process_is_created_only_below_the_limit() {
    for need in [Need::Request { suitable: 0 }, Need::Reserve] {
        assert_eq!(
            may_spawn(&pool(0, 3, 3), need),
            Err(SpawnRefused::AtLimit),
            "{need:?}"
        );
    }
}

#[test]
fn no_process_is_created_while_throttled() {
    let throttled = Snapshot {
        throttled: true,
        ..pool(0, 0, 3)
    };
    for need in [Need::Request { suitable: 0 }, Need::Reserve] {
        assert_eq!(may_spawn(&throttled, need), Err(SpawnRefused::Throttled));
    }
}

#[test]
fn the_delay_of_the_throttle_doubles_from_60_s_to_10_min_while_it_repeats() {
    let (mut throttle, settings) = (Throttle::default(), ThrottleSettings::default());
    let mut now = at(5);
    let mut delays = Vec::new();
    for _ in 0..7 {
        let until = throttle.failed(now, &settings).expect("it was off");
        delays.push(until.since(now).as_secs());
        now = until;
        assert!(throttle.expire(now));
    }
    assert_eq!(delays, [60, 120, 240, 480, 600, 600, 600]);
}

#[test]
fn one_success_resets_the_delay_of_the_throttle() {
    let (mut throttle, settings) = (Throttle::default(), ThrottleSettings::default());
    throttle.failed(at(0), &settings);
    throttle.failed(at(60), &settings);
    throttle.succeeded();
    assert!(throttle.is_on(at(61)), "a success does not lift it");
    assert_eq!(throttle.failed(at(180), &settings), Some(at(240)));
}

#[test]
fn failures_while_throttled_are_of_the_same_trouble() {
    let (mut throttle, settings) = (Throttle::default(), ThrottleSettings::default());
    assert_eq!(throttle.failed(at(0), &settings), Some(at(60)));
    assert_eq!(throttle.failed(at(1), &settings), None);
    assert_eq!(throttle.until(), Some(at(60)));
    assert_eq!(throttle.failed(at(60), &settings), Some(at(180)));
}

#[test]
fn the_throttle_is_lifted_by_its_timer_once() {
    let (mut throttle, settings) = (Throttle::default(), ThrottleSettings::default());
    assert!(!throttle.expire(at(0)));
    throttle.failed(at(0), &settings);
    assert!(throttle.is_on(at(59)) && !throttle.expire(at(59)));
    assert!(!throttle.is_on(at(60)) && throttle.expire(at(60)));
    assert!(!throttle.expire(at(61)));
    assert_eq!(throttle.until(), None);
}

#[test]
fn the_throttle_is_lifted_by_a_reload_or_an_operator_and_forgets_its_failures() {
    let (mut throttle, settings) = (Throttle::default(), ThrottleSettings::default());
    assert!(!throttle.lift(at(0)));
    throttle.failed(at(0), &settings);
    throttle.failed(at(60), &settings);
    assert!(throttle.lift(at(61)));
    assert!(!throttle.is_on(at(61)));
    assert_eq!(throttle.failed(at(62), &settings), Some(at(122)));
}

#[test]
fn a_delay_that_is_configured_above_the_longest_counts() {
    let settings = ThrottleSettings {
        delay: Duration::from_secs(3600),
        ..ThrottleSettings::default()
    };
    let mut throttle = Throttle::default();
    assert_eq!(throttle.failed(at(0), &settings), Some(at(3600)));
    assert_eq!(throttle.failed(at(3600), &settings), Some(at(7200)));
}

#[test]
fn a_service_is_pressed_when_one_more_process_would_reach_its_limit() {
    assert!(!is_pressed(&pool(0, 1, 3)));
    assert!(is_pressed(&pool(0, 2, 3)));
    assert!(is_pressed(&pool(0, 3, 3)));
    assert!(!is_pressed(&Snapshot::default()));
}

#[test]
fn stress_lasts_1000_s_after_the_last_moment_at_the_limit() {
    let mut stress = Stress::default();
    assert!(!stress.is_on(at(0)));
    assert_eq!(stress.pressed(at(0)), StressEntry::Began);
    assert_eq!(stress.pressed(at(999)), StressEntry::Extended);
    assert!(stress.is_on(at(1998)));
    assert!(!stress.is_on(at(1999)));
}

#[test]
fn idle_processes_are_replaced_each_time_that_stress_begins_and_not_while_it_lasts() {
    let mut stress = Stress::default();
    let entries = [0, 1, 1001, 2001, 2002].map(|second| stress.pressed(at(second)));
    use StressEntry::{Began, Extended};
    assert_eq!(entries, [Began, Extended, Began, Began, Extended]);
}

#[test]
fn a_local_service_is_exempt_from_stress_unless_told_otherwise() {
    assert!(!stress_applies(true, None));
    assert!(stress_applies(false, None));
    assert!(stress_applies(true, Some(true)));
    assert!(!stress_applies(false, Some(false)));
}

#[test]
fn there_is_one_limit_warning_in_1000_s_with_the_count_of_those_left_out() {
    let mut warning = LimitWarning::default();
    let told: Vec<_> = [0, 1, 999, 1000, 1001, 2000, 2001]
        .into_iter()
        .map(|second| warning.reached(at(second)))
        .collect();
    let expected = [Some(0), None, None, Some(2), None, Some(1), None];
    assert_eq!(told, expected);
    let remedy = LimitWarning::REMEDY;
    assert!(remedy.contains("raise max") && remedy.contains("docs/services.md"));
}

/// Gives everybody who was let in a process, one by one, and looks whether one more could be
/// served.
fn naive(now: &Snapshot) -> bool {
    let (mut opening, mut avail, mut total) = (now.opening, now.avail, now.total);
    let may_create = |total: u32| !now.throttled && now.max.is_none_or(|max| total < max);
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
    let rest = (prop::option::of(0..12u32), 0..12u32, any::<bool>());
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
    fn the_listening_decision_agrees_with_its_naive_statement(now in any_snapshot()) {
        prop_assert_eq!(listening(&now), naive(&now), "{:?}", now);
    }

    #[test]
    fn only_differences_are_told_and_what_is_told_is_true(
        history in prop::collection::vec(any_snapshot(), 1..50)
    ) {
        let mut admission = Admission::default();
        let mut open = None;
        for now in &history {
            if let Some(verdict) = admission.changed(now) {
                prop_assert_ne!(open.replace(verdict), Some(verdict));
            }
            prop_assert_eq!(admission.is_open(), naive(now));
        }
    }

    #[test]
    fn what_a_listening_service_lets_in_may_be_served(now in any_snapshot()) {
        let spare = now.avail > now.claims.saturating_sub(now.opening);
        if listening(&now) && !spare {
            prop_assert_eq!(may_spawn(&now, Need::Request { suitable: 0 }), Ok(()));
        }
    }
}
