//! Response times of servers.
//!
//! SUMMARY   [`Paces`] records how long each request waited for the response's head, if any. A server is slow if its
//!           requests waited for [`SLOW`] on average within the last minute.
//! PROMISES  The caller passes in the time. A server without further requests is not slow, and is dropped.
//! LIMITS    Feeds, which wait for changes, do not count; nor do refused connections, which are reported separately.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

/// Average wait of requests to a slow server.
const SLOW: Duration = Duration::from_secs(5);

/// Fewer requests are not significant.
const REQUESTS_MIN: u32 = 3;

/// The average covers the current window and the one before.
const WINDOW: Duration = Duration::from_secs(30);

/// A slow server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowServer {
    /// Such as `http://db.example:5984`.
    pub server: Arc<str>,
    /// Average wait of requests in about the last minute.
    pub average: Duration,
}

/// Servers with recent requests. All times are since the start of the program.
#[derive(Debug, Default)]
pub(super) struct Paces {
    servers: FxHashMap<Arc<str>, [Window; 2]>,
    /// The number of the current window.
    number: u128,
}

/// One server's requests that ended in one window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    requests: u32,
    waited: Duration,
}

impl Paces {
    /// Records a request that waited this long.
    pub fn note(&mut self, server: &Arc<str>, waited: Duration, now: Duration) {
        self.turn(now);
        let [current, _] = self.servers.entry(Arc::clone(server)).or_default();
        current.requests += 1;
        current.waited += waited;
    }

    /// Returns the slow servers, ordered by name.
    pub fn slow(&mut self, now: Duration) -> Vec<SlowServer> {
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

    /// Begins another window when due.
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
