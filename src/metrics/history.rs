//! Samples of the last hour's metrics, for the dashboard.
//!
//! SUMMARY   [`History::add`] takes a [`Reading`] every [`SAMPLE_PERIOD`] and stores the changes since the previous
//!           one; [`History::series`] returns the samples of the daemon or of a pool, metric by metric.
//! PROMISES  At most [`BYTES_MAX`] bytes. A counter that restarts, like that of a recreated pool, never makes a
//!           number negative.
//! LIMITS    [`SAMPLES_MAX`] samples. A sample has at most [`POOLS_MAX`] pools with activity; activity of others
//!           counts in the daemon's numbers only. Pools without their own row in the metrics share one row's numbers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

/// The time between two samples.
pub(crate) const SAMPLE_PERIOD: Duration = Duration::from_secs(30);

/// Maximum samples: one hour.
pub(crate) const SAMPLES_MAX: usize = 120;

/// Maximum pools of a sample.
pub(crate) const POOLS_MAX: usize = 64;

/// Maximum memory of the samples, in bytes.
const BYTES_MAX: usize = 512 << 10;

const _: () = {
    let pools = POOLS_MAX * size_of::<(Arc<str>, Numbers)>();
    assert!(SAMPLES_MAX * (size_of::<Sample>() + pools) <= BYTES_MAX);
};

/// The number of function calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub calls: u32,
    /// The calls that failed.
    pub errors: u32,
}

impl Calls {
    fn note(&mut self, failed: bool) {
        self.calls = self.calls.saturating_add(1);
        self.errors = self.errors.saturating_add(failed.into());
    }
}

/// Function calls in total and by pool, for at most [`POOLS_MAX`] pools.
#[derive(Debug, Default)]
pub(crate) struct CallTally {
    pub all: Calls,
    pub pools: FxHashMap<Arc<str>, Calls>,
}

impl CallTally {
    /// Counts a finished call; `pool` is `None` if it got no process.
    pub fn note(&mut self, pool: Option<&Arc<str>>, failed: bool) {
        self.all.note(failed);
        let Some(pool) = pool else { return };
        if let Some(calls) = self.pools.get_mut(pool) {
            calls.note(failed);
        } else if self.pools.len() < POOLS_MAX {
            self.pools.entry(Arc::clone(pool)).or_default().note(failed);
        }
    }
}

/// A pool's readings at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolReading {
    /// Current waiters.
    pub waiting: u32,
    /// Loans so far.
    pub lent: u64,
    /// Total time that clients waited for these loans.
    pub waited: Duration,
}

/// Readings at one time.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// In seconds since 1970.
    pub at: u64,
    pub pools: BTreeMap<Arc<str>, PoolReading>,
    /// Calls since the last reading.
    pub tally: CallTally,
    /// Documents written by replications so far.
    pub docs_written: u64,
    /// Pending changes of running replications.
    pub pending: u64,
}

/// The numbers of one sample, for the daemon or one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    calls: Calls,
    waiting: u32,
    lent: u32,
    waited_ms: u32,
}

impl Numbers {
    fn add(&mut self, other: &Self) {
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.lent = self.lent.saturating_add(other.lent);
        self.waited_ms = self.waited_ms.saturating_add(other.waited_ms);
    }

    /// Returns the changes between two readings of a pool.
    fn between(before: &PoolReading, now: &PoolReading, calls: Calls) -> Self {
        let before = if now.lent < before.lent {
            // The pool was recreated.
            &PoolReading::default()
        } else {
            before
        };
        let waited = now.waited.saturating_sub(before.waited).as_millis();
        Self {
            calls,
            waiting: now.waiting,
            lent: short(now.lent - before.lent),
            waited_ms: u32::try_from(waited).unwrap_or(u32::MAX),
        }
    }
}

fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[derive(Debug)]
struct Sample {
    at: u64,
    all: Numbers,
    docs_written: u32,
    pending: u64,
    /// The pools with activity.
    pools: Box<[(Arc<str>, Numbers)]>,
}

/// The samples of the last hour.
#[derive(Debug, Default)]
pub(crate) struct History {
    samples: VecDeque<Sample>,
    /// The previous reading, without its calls.
    before: Option<Reading>,
}

/// The samples of one hour, metric by metric, oldest first.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Series {
    /// The time between two samples, in seconds.
    period: u64,
    /// The ends of the samples, in seconds since 1970.
    at: Vec<u64>,
    /// Finished function calls.
    calls: Vec<u32>,
    /// Failed function calls.
    errors: Vec<u32>,
    /// Waiters at the time of the sample.
    waiting: Vec<u32>,
    /// Loans.
    lent: Vec<u32>,
    /// Total time that clients waited for these loans, in milliseconds.
    waited_ms: Vec<u32>,
    /// Documents written by replications; not for pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    docs_written: Option<Vec<u32>>,
    /// Pending changes of running replications; not for pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<Vec<u64>>,
}

impl History {
    /// Adds a reading. The first one is only a base for the second.
    pub fn add(&mut self, mut now: Reading) {
        let tally = std::mem::take(&mut now.tally);
        if let Some(before) = &self.before {
            let sample = Sample::between(before, &now, &tally);
            if self.samples.len() == SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back(sample);
        }
        self.before = Some(now);
    }

    /// Returns the samples of the daemon, or of a pool.
    pub fn series(&self, pool: Option<&str>) -> Series {
        let is_all = pool.is_none();
        let mut series = Series {
            period: SAMPLE_PERIOD.as_secs(),
            docs_written: is_all.then(Vec::new),
            pending: is_all.then(Vec::new),
            ..Series::default()
        };
        for sample in &self.samples {
            let numbers = match pool {
                None => sample.all,
                Some(name) => sample
                    .pools
                    .iter()
                    .find(|(known, _)| **known == *name)
                    .map_or_else(Numbers::default, |(_, numbers)| *numbers),
            };
            series.at.push(sample.at);
            series.calls.push(numbers.calls.calls);
            series.errors.push(numbers.calls.errors);
            series.waiting.push(numbers.waiting);
            series.lent.push(numbers.lent);
            series.waited_ms.push(numbers.waited_ms);
            if let (Some(written), Some(pending)) = (&mut series.docs_written, &mut series.pending)
            {
                written.push(sample.docs_written);
                pending.push(sample.pending);
            }
        }
        series
    }
}

impl Sample {
    fn between(before: &Reading, now: &Reading, tally: &CallTally) -> Self {
        let mut all = Numbers {
            calls: tally.all,
            ..Numbers::default()
        };
        let mut pools = Vec::new();
        for (name, pool) in &now.pools {
            let earlier = before.pools.get(name).copied().unwrap_or_default();
            let numbers = Numbers::between(
                &earlier,
                pool,
                tally.pools.get(name).copied().unwrap_or_default(),
            );
            all.add(&numbers);
            if numbers != Numbers::default() && pools.len() < POOLS_MAX {
                pools.push((Arc::clone(name), numbers));
            }
        }
        Self {
            at: now.at,
            all,
            docs_written: short(now.docs_written.saturating_sub(before.docs_written)),
            pending: now.pending,
            pools: pools.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: u64, pools: &[(&str, u32, u64, u64)]) -> Reading {
        let pools = pools.iter().map(|&(name, waiting, lent, waited_ms)| {
            let pool = PoolReading {
                waiting,
                lent,
                waited: Duration::from_millis(waited_ms),
            };
            (name.into(), pool)
        });
        Reading {
            at,
            pools: pools.collect(),
            ..Reading::default()
        }
    }

    #[test]
    fn a_sample_has_the_changes_since_the_previous_reading() {
        let mut history = History::default();
        let first = reading(30, &[("a", 9, 100, 5_000)]);
        history.add(Reading {
            docs_written: 7,
            ..first
        });
        assert!(history.series(None).at.is_empty());
        let mut tally = CallTally::default();
        tally.note(Some(&"a".into()), true);
        tally.note(Some(&"b".into()), false);
        tally.note(None, true);
        history.add(Reading {
            tally,
            docs_written: 57,
            pending: 1_000,
            ..reading(60, &[("a", 2, 104, 5_300), ("b", 1, 1, 20)])
        });
        let all = history.series(None);
        assert_eq!((all.period, &*all.at), (30, &[60][..]));
        assert_eq!((&*all.calls, &*all.errors), (&[3][..], &[2][..]));
        assert_eq!((&*all.waiting, &*all.lent), (&[3][..], &[5][..]));
        assert_eq!(all.waited_ms, [320]);
        assert_eq!(
            (all.docs_written, all.pending),
            (Some(vec![50]), Some(vec![1_000]))
        );
        let one = history.series(Some("b"));
        assert_eq!(
            (&*one.calls, &*one.errors, &*one.lent),
            (&[1][..], &[0][..], &[1][..])
        );
        assert_eq!((one.docs_written, one.pending), (None, None));
        assert_eq!(history.series(Some("none")).lent, [0]);
    }

    #[test]
    fn a_recreated_pool_makes_no_number_negative() {
        let mut history = History::default();
        history.add(reading(30, &[("a", 0, 100, 9_000)]));
        history.add(reading(60, &[("a", 0, 3, 20)]));
        let series = history.series(Some("a"));
        assert_eq!((&*series.lent, &*series.waited_ms), (&[3][..], &[20][..]));
    }

    #[test]
    fn samples_and_their_pools_are_bounded() {
        let mut history = History::default();
        let names: Vec<String> = (0..2 * POOLS_MAX).map(|n| format!("pool{n}")).collect();
        for at in 0..2 * SAMPLES_MAX as u64 {
            let pools: Vec<_> = names.iter().map(|name| (&**name, 1, at, at)).collect();
            let mut tally = CallTally::default();
            for name in &names {
                tally.note(Some(&Arc::from(&**name)), false);
            }
            assert_eq!((tally.pools.len(), tally.all.calls), (POOLS_MAX, 128));
            history.add(Reading {
                tally,
                ..reading(at, &pools)
            });
        }
        let series = history.series(None);
        assert_eq!(
            (series.at.len(), series.at[0]),
            (SAMPLES_MAX, SAMPLES_MAX as u64)
        );
        assert_eq!(series.waiting[0], 128);
        let kept = history
            .samples
            .iter()
            .map(|sample| sample.pools.len())
            .max();
        assert_eq!(kept, Some(POOLS_MAX));
    }
}
