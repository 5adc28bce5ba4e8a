//! The minimum pace of a client that reads its answer or sends its body.
//!
//! SUMMARY   While data is pending, the client has to take or send [`BYTES_PER_SECOND_MIN`] for each second of a
//!           period, or all if that is less, before the period ends.
//! PROMISES  A client that moves nothing, or only occasional bytes, is late after one period. One that keeps this pace
//!           is never late, however much is pending.
//! CALLED    By connections of the socket for replies, by HTTP for bodies and answers.
//! LIMITS    Data in the system's buffers counts as taken.

use std::cell::Cell;
use std::time::Duration;

use actix_rt::time::Instant;

/// The minimum rate while data is pending.
const BYTES_PER_SECOND_MIN: f64 = 1024.0;

/// Longer than any connection lasts.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Pending bytes and their deadline.
#[derive(Clone, Copy, Debug)]
struct Due {
    bytes: usize,
    by: Instant,
}

/// The pace of one client.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    period: Duration,
    due: Cell<Option<Due>>,
}

impl Pace {
    pub fn new(period: Duration) -> Self {
        Self {
            period,
            due: Cell::new(None),
        }
    }

    /// Records transferred bytes.
    pub fn took(&self, bytes: usize) {
        let left = self.due.get().filter(|due| due.bytes > bytes);
        self.due.set(left.map(|due| Due {
            bytes: due.bytes - bytes,
            ..due
        }));
    }

    /// Records pending bytes. Returns the deadline for some of them; `None`: no deadline.
    pub fn waiting(&self, bytes: usize, now: Instant) -> Option<Instant> {
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

    /// Records an unknown number of pending bytes. Returns the deadline for some of them.
    pub fn deadline(&self) -> Instant {
        let now = Instant::now();
        self.waiting(usize::MAX, now).unwrap_or(now + FOR_EVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_of_nothing_or_a_byte_a_second_is_late_after_one_period() {
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
    fn a_reader_with_progress_gets_another_period() {
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
    fn a_small_rest_must_be_read_completely() {
        let (pace, start) = (Pace::new(Duration::from_secs(60)), Instant::now());
        pace.waiting(10, start);
        pace.took(9);
        let by = start + Duration::from_secs(60);
        assert_eq!(pace.waiting(1, start), Some(by));
    }

    #[test]
    fn a_sender_gets_another_period_only_after_its_minimum_of_bytes() {
        let pace = Pace::new(Duration::from_secs(60));
        let by = pace.deadline();
        pace.took(59 << 10);
        assert_eq!(pace.deadline(), by);
        pace.took(1 << 10);
        assert!(pace.deadline() > by);
    }
}
