//! Detects growth of something with a normally stable size.
//!
//! SUMMARY   Every sample has the size; [`Growth`] remembers the sizes of the last [`GROWN_WITHIN`].
//! PROMISES  The size has grown if it is at least twice its minimum within that time, and [`GROWN_BY`] larger.
//! LIMITS    One size is remembered for each [`REMEMBERED_EVERY`].

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;

/// How far back sizes are compared.
pub const GROWN_WITHIN: Duration = Duration::from_secs(60 * 60);

/// Smaller increases are ignored; in bytes.
pub const GROWN_BY: u64 = 64 << 20;

/// Interval of remembered sizes.
const REMEMBERED_EVERY: Duration = Duration::from_secs(60);

/// Recent sizes of something, in bytes.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    sizes: VecDeque<(Timestamp, u64)>,
}

impl Growth {
    /// Records the current size. Returns the recent minimum, if the size has grown since.
    pub fn note(&mut self, now: Timestamp, size: u64) -> Option<u64> {
        let is_old = |at: &Timestamp| now.since(*at) > GROWN_WITHIN;
        while self.sizes.front().is_some_and(|(at, _)| is_old(at)) {
            self.sizes.pop_front();
        }
        let last = self.sizes.back();
        if last.is_none_or(|(at, _)| now.since(*at) >= REMEMBERED_EVERY) {
            self.sizes.push_back((now, size));
        }
        let smallest = self.sizes.iter().map(|(_, size)| *size).min()?;
        let has_grown = size / 2 >= smallest && size - smallest >= GROWN_BY;
        has_grown.then_some(smallest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    #[test]
    fn a_size_that_doubles_within_an_hour_has_grown_until_it_is_stable_for_an_hour() {
        let mut growth = Growth::default();
        let mut note = |minute: u64, mebibytes: u64| {
            let at = Timestamp::ZERO + Duration::from_secs(60 * minute);
            let smallest = growth.note(at, mebibytes * MEBIBYTE);
            smallest.map(|smallest| smallest / MEBIBYTE)
        };
        assert_eq!(note(0, 100), None);
        assert_eq!(note(30, 199), None);
        assert_eq!(note(59, 200), Some(100));
        assert_eq!(note(60, 250), Some(100));
        assert_eq!(note(61, 250), None, "an hour ago it was not so small");
        assert_eq!(note(61, 400), Some(199));
        assert_eq!(note(300, 400), None);
    }

    #[test]
    fn small_sizes_may_grow_and_shrinking_is_not_growth() {
        let mut growth = Growth::default();
        let at = |second| Timestamp::ZERO + Duration::from_secs(second);
        assert_eq!(growth.note(at(0), 0), None);
        assert_eq!(growth.note(at(60), GROWN_BY - 1), None);
        assert_eq!(growth.note(at(120), GROWN_BY), Some(0));
        assert_eq!(growth.note(at(180), 1), None);
        for second in 0..100_000 {
            growth.note(at(200 + second), 1);
        }
        assert!(growth.sizes.len() <= 61, "{}", growth.sizes.len());
    }
}
