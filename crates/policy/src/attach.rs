//! When a process lent for some lines returns to its pool.
//!
//! SUMMARY   [`give_back_at`] is called whenever every line is answered and nothing is half done, [`turn_is_over`]
//!           when more lines have arrived.
//! PROMISES  Pure. A loan used without pauses does not end while no client waits; while one waits, it ends after a
//!           turn, so that each waiter gets one.
//! CALLED    By the relay of an attached client (`actors/client/relay.rs`).

use std::time::Duration;

use super::time::Timestamp;

/// Minimum time that a client keeps a process in use while others wait: each loan costs a reset, and a replay of
/// everything that the client has taught.
pub(crate) const TURN: Duration = Duration::from_millis(50);

/// Maximum pause between two lines of a client that keeps others waiting. CouchDB sends the next line of a view much
/// sooner.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// A lent process without pending lines.
#[derive(Clone, Copy, Debug)]
pub struct QuietLoan {
    /// When it was lent.
    pub lent: Timestamp,
    /// When its last line was answered.
    pub quiet_since: Timestamp,
    /// How long it may be kept if no client waits (`attach_idle`).
    pub idle_max: Duration,
}

/// Returns whether a client with more lines has had its turn: if so, its lines wait while others are served.
pub fn turn_is_over(lent: Timestamp, now: Timestamp, others_wait: impl FnOnce() -> bool) -> bool {
    now >= lent + TURN && others_wait()
}

/// Returns when the process is returned unless another line arrives.
pub fn give_back_at(loan: &QuietLoan, others_wait: bool) -> Timestamp {
    let idle = loan.quiet_since + loan.idle_max;
    if !others_wait {
        return idle;
    }
    let turn = (loan.lent + TURN).max(loan.quiet_since);
    idle.min(turn).min(loan.quiet_since + PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(1);

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(milliseconds)
    }

    fn quiet(lent: u64, quiet_since: u64) -> QuietLoan {
        QuietLoan {
            lent: at(lent),
            quiet_since: at(quiet_since),
            idle_max: IDLE,
        }
    }

    #[test]
    fn a_turn_is_over_when_others_wait_and_it_lasted_long_enough() {
        let turn_end = at(100) + TURN;
        assert!(turn_is_over(at(100), turn_end, || true));
        assert!(!turn_is_over(at(100), turn_end, || false));
        let before = at(100) + TURN / 2;
        assert!(!turn_is_over(at(100), before, || true));
    }

    #[test]
    fn a_process_that_nobody_waits_for_is_kept_for_the_idle_time() {
        assert_eq!(give_back_at(&quiet(0, 7), false), at(1007));
        assert_eq!(give_back_at(&quiet(0, 90_000), false), at(91_000));
    }

    #[test]
    fn a_turn_that_is_over_ends_with_the_answer_when_others_wait() {
        assert_eq!(give_back_at(&quiet(0, 50), true), at(50));
        assert_eq!(give_back_at(&quiet(0, 400), true), at(400));
    }

    #[test]
    fn a_turn_ends_early_only_when_the_client_pauses() {
        assert_eq!(give_back_at(&quiet(0, 10), true), at(15));
        assert_eq!(give_back_at(&quiet(0, 47), true), at(50));
    }

    #[test]
    fn a_shorter_idle_time_also_counts_while_others_wait() {
        let loan = QuietLoan {
            idle_max: Duration::ZERO,
            ..quiet(0, 10)
        };
        assert_eq!(give_back_at(&loan, true), at(10));
        assert_eq!(give_back_at(&loan, false), at(10));
    }
}
