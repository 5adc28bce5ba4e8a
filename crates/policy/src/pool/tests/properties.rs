//! Random histories: the core against the naive model, event by event.
//!
//! SUMMARY   Clients request, withdraw, return and die; openers and helpers succeed and fail; limits change; processes
//!           die; time passes; with late, repeated and invented events in between. After every event the actions must
//!           equal the model's, and every invariant must hold. At the end every request has been answered exactly once.
//!
//! # Replay
//! A failure prints its shortest history and adds a line with its seed to
//! `crates/policy/proptest-regressions/pool/tests/properties.txt`. Every seed in that file runs before any new
//! history; commit the line with the fix. `PROPTEST_RNG_SEED=1 cargo test -p settee-policy pool::tests::properties`
//! (any number) repeats a whole run, `PROPTEST_CASES=20000` makes a longer one.

use proptest::prelude::*;

use super::trial::{Step, Trial};
use super::*;

pub(super) fn any_limits() -> impl Strategy<Value = Limits> {
    let wait = prop_oneof![Just(0), Just(3), Just(20)];
    (0..7_u32, 0..5_u32, wait).prop_map(|(hard_limit, soft_limit, wait_ms)| Limits {
        hard_limit,
        soft_limit,
        affinity_wait: Duration::from_millis(wait_ms),
    })
}

fn any_affinity() -> impl Strategy<Value = Option<Affinity>> {
    let db = prop_oneof![
        1 => Just(None),
        3 => Just(Some("a")),
        3 => Just(Some("b")),
        2 => Just(Some("c")),
    ];
    let ddoc = prop_oneof![Just("_design/1"), Just("_design/2")];
    let rev = prop_oneof![3 => Just("1-a"), 1 => Just("2-b")];
    let some = (db, ddoc, rev).prop_map(|(db, ddoc, rev)| affinity(db, ddoc, rev));
    prop_oneof![1 => Just(None), 4 => some]
}

fn any_condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        6 => Just(Condition::Clean),
        2 => Just(Condition::NeedsReset),
        1 => Just(Condition::NeedsForgetting),
        1 => Just(Condition::Broken),
    ]
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    let pick = 0..1000_usize;
    let ask = (0..8_u64, 0..3_u32, any_affinity(), 0..60_u64);
    let status = prop_oneof![9 => Just(ReturnStatus::Ok), 1 => Just(ReturnStatus::Fail)];
    let give = (
        pick.clone(),
        status,
        any_condition(),
        prop::bool::weighted(0.9),
    );
    let end = (pick.clone(), prop::bool::weighted(0.85));
    let down = (0..8_u64, prop::option::of(any_condition()));
    prop_oneof![
        30 => ask.prop_map(|(client, pool, affinity, patience_ms)| Step::Ask {
            client, pool, affinity, patience_ms,
        }),
        2 => pick.clone().prop_map(Step::Withdraw),
        20 => give.prop_map(|(lease, status, condition, rightful)| Step::Return {
            lease, status, condition, rightful,
        }),
        2 => down.prop_map(|(client, condition)| Step::Down { client, condition }),
        16 => end.clone().prop_map(|(n, ok)| Step::EndOpening(n, ok)),
        16 => end.prop_map(|(n, ok)| Step::EndHelp(n, ok)),
        8 => pick.clone().prop_map(Step::EndStopping),
        5 => (pick, 0..6_u8).prop_map(|(n, kind)| Step::Stray(n, kind)),
        8 => (0..15_u64).prop_map(Step::Advance),
        3 => Just(Step::AdvanceToDeadline),
        1 => Just(Step::Reload),
        // Keeps the weights, and so the histories of the saved seeds.
        1 => Just(Step::Advance(0)),
        2 => (0..3_u32, any_limits()).prop_map(|(pool, limits)| Step::Configure(pool, limits)),
    ]
}

/// Patient clients of few databases that take and return with few failures: this produces long queues, tagged
/// processes, and overtaking waiters.
pub(super) fn any_busy_step() -> impl Strategy<Value = Step> {
    let pick = 0..1000_usize;
    let ask = (0..30_u64, any_affinity(), 100..300_u64);
    prop_oneof![
        20 => ask.prop_map(|(client, affinity, patience_ms)| Step::Ask {
            client, pool: 0, affinity, patience_ms,
        }),
        1 => pick.clone().prop_map(Step::Withdraw),
        20 => pick.clone().prop_map(|lease| Step::Return {
            lease, status: ReturnStatus::Ok, condition: Condition::Clean, rightful: true,
        }),
        20 => pick.clone().prop_map(|n| Step::EndOpening(n, true)),
        20 => pick.clone().prop_map(|n| Step::EndHelp(n, true)),
        6 => pick.prop_map(Step::EndStopping),
        5 => (0..10_u64).prop_map(Step::Advance),
        2 => Just(Step::AdvanceToDeadline),
    ]
}

/// The steps above, and steps that change the CPU shares and queue limits of databases or charge them for CPU time.
fn any_bounded_step() -> impl Strategy<Value = Step> {
    let db = prop_oneof![Just("a"), Just("b"), Just("c")];
    // With these shares every debt is paid off after a whole number of nanoseconds.
    let share = prop_oneof![1 => Just(0), 2 => Just(100), 2 => Just(500), 2 => Just(2000)];
    let queue = prop_oneof![2 => Just(0), 1 => 1..5_u32];
    let bound = (db.clone(), share, queue);
    let cost = prop_oneof![3 => 0..30_u64, 1 => Just(6_000), 1 => Just(30_000), 1 => Just(120_000)];
    prop_oneof![
        30 => any_step(),
        50 => any_busy_step(),
        3 => bound.prop_map(|(db, share, queue)| Step::Bound(db, share, queue)),
        12 => (db, cost).prop_map(|(db, ms)| Step::Charge(db, ms)),
        1 => (0..90_000_u64).prop_map(Step::Advance),
    ]
}

proptest! {
    #[test]
    fn core_and_model_agree_when_tenants_have_shares_and_their_own_queues(
        limits in prop::collection::vec(any_limits(), 2),
        steps in prop::collection::vec(any_bounded_step(), 50..250),
    ) {
        let mut trial = Trial::new(&limits);
        for db in ["a", "b", "c"] {
            trial.step(Step::Bound(db, 500, 0));
            trial.step(Step::Charge(db, 30_000));
        }
        for step in steps {
            trial.step(step);
        }
        trial.wind_up();
    }

    #[test]
    fn core_and_model_agree_and_every_request_is_answered_once(
        limits in prop::collection::vec(any_limits(), 2),
        steps in prop::collection::vec(any_step(), 1..150),
    ) {
        let mut trial = Trial::new(&limits);
        trial.step(Step::LendsTaught(1, true));
        for step in steps {
            trial.step(step);
        }
        trial.wind_up();
    }

    #[test]
    fn core_and_model_agree_when_waiters_may_overtake(
        hard_limit in 1..6_u32,
        wait_ms in prop_oneof![Just(0), 20..80_u64],
        lends_taught in any::<bool>(),
        steps in prop::collection::vec(any_busy_step(), 50..200),
    ) {
        let affinity_wait = Duration::from_millis(wait_ms);
        let limits = Limits { hard_limit, soft_limit: 2, affinity_wait };
        let mut trial = Trial::new(&[limits]);
        trial.step(Step::LendsTaught(0, lends_taught));
        for step in steps {
            trial.step(step);
        }
        trial.wind_up();
    }

    #[test]
    fn after_shutdown_every_request_is_answered_and_no_process_remains(
        limits in prop::collection::vec(any_limits(), 2),
        before in prop::collection::vec(any_step(), 1..80),
        after in prop::collection::vec(any_step(), 0..20),
    ) {
        let mut trial = Trial::new(&limits);
        for step in before {
            trial.step(step);
        }
        trial.step(Step::Shutdown);
        prop_assert!(trial.unanswered.is_empty());
        for step in after {
            trial.step(step);
        }
        trial.wind_up();
        prop_assert_eq!(trial.pools.proc_count(), 0);
    }
}
