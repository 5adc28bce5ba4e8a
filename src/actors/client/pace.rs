//! How fast a client takes what it is sent.
//!
//! SUMMARY   While something waits to be taken, the client has to take [`BYTES_PER_SECOND_MIN`] of it, or
//!           all that waits where that is less, in each period.
//! PROMISES  Who takes nothing, or a byte now and then, is late after one period. Who reads is never late,
//!           however much there is.
//! LIMITS    What fits into the system's buffers counts as taken.

use std::cell::Cell;
use std::time::Duration;

use actix_rt::time::Instant;

/// How much a client has to take of what waits for it.
const BYTES_PER_SECOND_MIN: f64 = 1024.0;

/// What is still to be taken by when.
#[derive(Clone, Copy)]
struct Due {
    bytes: usize,
    by: Instant,
}

/// The pace of one client.
pub(super) struct Pace {
    period: Duration,
    due: Cell<Option<Due>>,
}

impl Pace {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            period,
            due: Cell::new(None),
        }
    }

    /// Notes that so many bytes were taken.
    pub(super) fn took(&self, bytes: usize) {
        let left = self.due.get().filter(|due| due.bytes > bytes);
        self.due.set(left.map(|due| Due {
            bytes: due.bytes - bytes,
            ..due
        }));
    }

    /// Notes that so many bytes wait. Returns by when the client has to have taken some; `None`: it
    /// has for ever.
    pub(super) fn waiting(&self, bytes: usize, now: Instant) -> Option<Instant> {
        if bytes == 0 {
            self.due.set(None);
        } else if self.due.get().is_none() {
            let least = (self.period.as_secs_f64() * BYTES_PER_SECOND_MIN) as usize;
            let bytes = bytes.min(least.max(1));
            let by = now.checked_add(self.period);
            self.due.set(by.map(|by| Due { bytes, by }));
        }
        self.due.get().map(|due| due.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_nothing_or_a_byte_a_second_is_late_after_one_period() {
        let (pace, start) = (Pace::new(Duration::from_secs(60)), Instant::now());
        let by = start + Duration::from_secs(60);
        assert_eq!(pace.waiting(1 << 20, start), Some(by));
        for second in 0..59 {
            pace.took(1);
            let now = start + Duration::from_secs(second);
            assert_eq!(pace.waiting(1 << 20, now), Some(by));
        }
    }

    #[test]
    fn who_reads_has_another_period_for_what_is_left() {
        let (pace, start) = (Pace::new(Duration::from_secs(60)), Instant::now());
        pace.waiting(1 << 20, start);
        pace.took(60 * 1024);
        let later = start + Duration::from_secs(59);
        let by = later + Duration::from_secs(60);
        assert_eq!(pace.waiting(1 << 20, later), Some(by));
        pace.took(1 << 20);
        assert_eq!(pace.waiting(0, later), None);
    }

    #[test]
    fn a_small_rest_has_to_be_taken_whole() {
        let (pace, start) = (Pace::new(Duration::from_secs(60)), Instant::now());
        pace.waiting(10, start);
        pace.took(9);
        let by = start + Duration::from_secs(60);
        assert_eq!(pace.waiting(1, start), Some(by));
    }
}
