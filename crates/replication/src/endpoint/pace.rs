//! Response times of servers.
//!
//! SUMMARY   [`Paces`] takes how long each request waited for the head of its answer, if any. A server is slow whose
//!           requests waited for [`SLOW`] on average within the last minute.
//! PROMISES  Time is passed in. A server that no longer gets requests is not slow, and is forgotten.
//! LIMITS    Feeds, which wait for news, do not count; refused connections neither: they are reported separately.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

/// How long the requests to a slow server wait on average.
const SLOW: Duration = Duration::from_secs(5);

/// Fewer requests say nothing.
const REQUESTS_MIN: u32 = 3;

/// The average is one of the current window and of the one before.
const WINDOW: Duration = Duration::from_secs(30);

/// A server that takes long to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowServer {
    /// As `http://db.example:5984`.
    pub server: Arc<str>,
    /// How long the requests of about the last minute waited, on average.
    pub average: Duration,
}

/// Servers that were asked something lately. All times are since the beginning of the program.
#[derive(Debug, Default)]
pub(super) struct Paces {
    servers: FxHashMap<Arc<str>, [Window; 2]>,
    /// The number of the current window.
    number: u128,
}

/// Requests of one server that ended in one window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    requests: u32,
    waited: Duration,
}

impl Paces {
    /// Takes note of a request that waited for so long.
    pub(super) fn note(&mut self, server: &Arc<str>, waited: Duration, now: Duration) {
        self.turn(now);
        let [current, _] = self.servers.entry(Arc::clone(server)).or_default();
        current.requests += 1;
        current.waited += waited;
    }

    /// Returns the slow servers, in the order of their names.
    pub(super) fn slow(&mut self, now: Duration) -> Vec<SlowServer> {
        self.turn(now);
        let mut slow: Vec<_> = self
            .servers
            .iter()
            .filter_map(|(server, windows)| {
                let requests = windows.iter().map(|window| window.requests).sum();
                let waited: Duration = windows.iter().map(|window| window.waited).sum();
                let is_known = requests >= REQUESTS_MIN && waited >= SLOW * requests;
                is_known.then(|| SlowServer {
                    server: Arc::clone(server),
                    average: waited / requests,
                })
            })
            .collect();
        slow.sort_by(|one, other| one.server.cmp(&other.server));
        slow
    }

    /// Begins another window when it is time.
    fn turn(&mut self, now: Duration) {
        let number = now.as_millis() / WINDOW.as_millis();
        let passed = number.saturating_sub(std::mem::replace(&mut self.number, number));
        match passed {
            0 => return,
            1 => self.servers.values_mut().for_each(|windows| {
                *windows = [Window::default(), windows[0]];
            }),
            _ => self.servers.clear(),
        }
        self.servers.retain(|_, [_, last]| last.requests > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_server_whose_requests_wait_long_is_slow_until_they_do_not_or_there_are_none() {
        let mut paces = Paces::default();
        let (slow, fast): (Arc<str>, Arc<str>) = ("http://slow:5984".into(), "http://fast".into());
        for second in 0..3 {
            assert_eq!(paces.slow(seconds(second)), [], "too few");
            paces.note(&slow, seconds(6), seconds(second));
            paces.note(&fast, Duration::from_millis(3), seconds(second));
        }
        let found = [SlowServer {
            server: Arc::clone(&slow),
            average: seconds(6),
        }];
        assert_eq!(paces.slow(seconds(2)), found);
        assert_eq!(paces.slow(seconds(59)), found, "of the window before");
        paces.note(&slow, seconds(1), seconds(59));
        assert_eq!(paces.slow(seconds(59)), [], "19 s for 4 requests");
        paces.note(&slow, seconds(6), seconds(59));
        assert_eq!(paces.slow(seconds(59))[0].average, seconds(5));
        assert_eq!(paces.slow(seconds(60)), [], "too few are left");
        assert_eq!(paces.slow(seconds(120)), []);
        assert!(paces.servers.is_empty(), "{paces:?}");
    }
}
