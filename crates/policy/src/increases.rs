//! Recent increases of counters.
//!
//! SUMMARY   Every sample has a counter's value; [`Increases`] remembers the values of the last [`WITHIN`].
//! PROMISES  A counter that restarts, like that of a recreated pool, has increased by its value.
//! LIMITS    A counter without a sample for [`WITHIN`] is forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::time::Timestamp;

/// How far back increases are counted.
pub const WITHIN: Duration = Duration::from_secs(60);

/// Recent values of counters, by name.
#[derive(Clone, Debug, Default)]
pub struct Increases {
    said: BTreeMap<(&'static str, String), VecDeque<(Timestamp, u64)>>,
}

impl Increases {
    /// Records a counter's current value. Returns its increase within the last [`WITHIN`]; 0 at the first sample.
    pub fn note(&mut self, now: Timestamp, counter: &'static str, of: &str, count: u64) -> u64 {
        let said = self.said.entry((counter, of.to_owned())).or_default();
        if said.back().is_some_and(|(_, last)| *last > count) {
            said.clear();
            said.push_back((now, 0));
        }
        said.push_back((now, count));
        // The latest sample before the window is the base.
        while said.get(1).is_some_and(|(at, _)| now.since(*at) >= WITHIN) {
            said.pop_front();
        }
        said.front().map_or(0, |(_, first)| count - first)
    }

    /// Drops counters without a sample for [`WITHIN`].
    pub fn forget(&mut self, now: Timestamp) {
        let is_known = |said: &VecDeque<(Timestamp, u64)>| {
            said.back().is_some_and(|(at, _)| now.since(*at) < WITHIN)
        };
        self.said.retain(|_, said| is_known(said));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn increases_of_the_last_minute_are_reported() {
        let mut increases = Increases::default();
        let mut note = |second, count| increases.note(at(second), "died", "js", count);
        assert_eq!(note(0, 100), 0, "when the first 100 occurred is unknown");
        assert_eq!(note(2, 103), 3);
        assert_eq!(note(30, 110), 10);
        assert_eq!(note(60, 110), 10);
        assert_eq!(note(61, 110), 10);
        assert_eq!(note(62, 110), 7);
        assert_eq!(note(90, 110), 0);
    }

    #[test]
    fn a_counter_that_was_reset_has_grown_by_its_value() {
        let mut increases = Increases::default();
        increases.note(at(0), "died", "js", 100);
        assert_eq!(increases.note(at(2), "died", "js", 4), 4);
        assert_eq!(increases.note(at(4), "died", "js", 6), 6);
    }

    #[test]
    fn counters_that_are_not_read_are_forgotten() {
        let mut increases = Increases::default();
        increases.note(at(0), "died", "js", 1);
        increases.note(at(30), "died", "py", 1);
        increases.forget(at(70));
        assert_eq!(increases.said.len(), 1);
        assert_eq!(increases.note(at(70), "died", "js", 5), 0);
    }
}
