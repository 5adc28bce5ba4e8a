//! The types that metrics count in: counters, gauges, histograms of times.
//!
//! PROMISES  Counting takes no lock and allocates nothing: one or two relaxed additions, a few
//!           nanoseconds each. Any thread may count and any may read.
//! LIMITS    A read during concurrent counts is a snapshot of each number, not of all of them together.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use strum::VariantArray;

use super::snapshot::Value;

/// Takes a sample: its own labels, and the value.
pub(super) type Each<'a> = &'a mut dyn FnMut(&[&str], Value);

/// A field of a row: see [`metrics!`](super::definition::metrics).
pub(super) trait Counted {
    /// Passes its samples to `each`.
    fn samples(&self, each: Each<'_>);

    /// Adds the counts of a former row; nothing for what only rises and falls, or has no names.
    fn absorb(&self, gone: &Self);
}

/// When it was created.
#[derive(Debug)]
pub(super) struct Created(pub(super) Instant);

impl Default for Created {
    fn default() -> Self {
        Self(Instant::now())
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one.
    pub fn one(&self) {
        self.add(1);
    }

    /// Counts several.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counted for Counter {
    fn samples(&self, each: Each<'_>) {
        each(&[], self.get().into());
    }

    fn absorb(&self, gone: &Self) {
        self.add(gone.get());
    }
}

/// A counter for each of several reasons.
#[derive(Debug)]
pub struct CountersBy<R> {
    counters: Box<[Counter]>,
    reasons: PhantomData<R>,
}

impl<R: VariantArray> Default for CountersBy<R> {
    fn default() -> Self {
        Self {
            counters: R::VARIANTS.iter().map(|_| Counter::default()).collect(),
            reasons: PhantomData,
        }
    }
}

impl<R: VariantArray + Copy + PartialEq> CountersBy<R> {
    /// Counts one for a reason.
    pub fn one(&self, reason: R) {
        let mut counters = R::VARIANTS.iter().zip(&self.counters);
        if let Some((_, counter)) = counters.find(|(known, _)| **known == reason) {
            counter.one();
        }
    }

    /// Returns the count for all reasons together.
    pub fn sum(&self) -> u64 {
        self.counters.iter().map(Counter::get).sum()
    }
}

/// A sample for each reason.
impl<R: VariantArray + Copy + Into<&'static str>> Counted for CountersBy<R> {
    fn samples(&self, each: Each<'_>) {
        for (reason, counter) in R::VARIANTS.iter().zip(&self.counters) {
            each(&[(*reason).into()], counter.get().into());
        }
    }

    fn absorb(&self, gone: &Self) {
        for (counter, gone) in self.counters.iter().zip(&gone.counters) {
            counter.absorb(gone);
        }
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds one.
    pub fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one, after an [`up`](Self::up).
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sets the number. For a gauge that only one actor changes.
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counted for Gauge {
    fn samples(&self, each: Each<'_>) {
        each(&[], self.get().into());
    }

    fn absorb(&self, _gone: &Self) {}
}

/// The upper bounds of the ranges of times, in nanoseconds: 1, 2, 5 of each decade from 10 microseconds to 100
/// seconds. Longer times are in a last range without a bound.
pub(crate) const BOUNDS: [u64; 22] = {
    let mut bounds = [0; 22];
    let mut at = 0;
    let mut decade = 10_000;
    while at < bounds.len() {
        bounds[at] = decade * [1, 2, 5][at % 3];
        if at % 3 == 2 {
            decade *= 10;
        }
        at += 1;
    }
    bounds
};

/// The number of ranges, including the one without a bound.
const RANGES: usize = BOUNDS.len() + 1;

/// For each power of two, how many bounds are below it. A bound is at least twice the previous one, so at most one
/// lies between two consecutive powers of two.
const BELOW: [u8; 64] = {
    let mut below = [0; 64];
    let mut power = 0;
    while power < below.len() {
        let mut at = 0;
        while at < BOUNDS.len() && BOUNDS[at] < 1 << power {
            at += 1;
        }
        below[power] = at as u8;
        power += 1;
    }
    below
};

/// Returns a time in nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the range of a time in nanoseconds, without a search.
fn range_of(nanoseconds: u64) -> usize {
    let below = usize::from(BELOW[(nanoseconds | 1).ilog2() as usize]);
    below + usize::from(BOUNDS.get(below).is_some_and(|bound| *bound < nanoseconds))
}

/// The number of durations in each range, and the sum of all.
#[derive(Debug, Default)]
pub struct Histogram {
    ranges: [AtomicU64; RANGES],
    /// In nanoseconds.
    sum: AtomicU64,
}

impl Histogram {
    /// Counts a time.
    pub fn observe(&self, time: Duration) {
        let nanoseconds = nanoseconds(time);
        self.ranges[range_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Returns the counts.
    pub fn get(&self) -> Times {
        Times {
            ranges: std::array::from_fn(|range| self.ranges[range].load(Ordering::Relaxed)),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

impl Counted for Histogram {
    fn samples(&self, each: Each<'_>) {
        each(&[], self.get().into());
    }

    fn absorb(&self, gone: &Self) {
        let times = gone.get();
        for (range, more) in self.ranges.iter().zip(times.ranges) {
            range.fetch_add(more, Ordering::Relaxed);
        }
        self.sum.fetch_add(times.sum, Ordering::Relaxed);
    }
}

/// Counted times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    ranges: [u64; RANGES],
    sum: u64,
}

impl Times {
    /// Returns the sum of several.
    pub(super) fn merged(all: impl IntoIterator<Item = Self>) -> Self {
        let mut merged = Self::default();
        all.into_iter().for_each(|times| merged.merge(&times));
        merged
    }

    /// Counts a time.
    pub(crate) fn observe(&mut self, time: Duration) {
        let nanoseconds = nanoseconds(time);
        self.ranges[range_of(nanoseconds)] += 1;
        self.sum = self.sum.wrapping_add(nanoseconds);
    }

    /// Adds those of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (range, more) in self.ranges.iter_mut().zip(other.ranges) {
            *range += more;
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Returns their number.
    pub fn count(&self) -> u64 {
        self.ranges.iter().sum()
    }

    /// Returns their sum.
    pub const fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Returns each bound, in seconds, with the number of durations up to it.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut count = 0;
        BOUNDS.iter().zip(self.ranges).map(move |(bound, more)| {
            count += more;
            (*bound as f64 / 1e9, count)
        })
    }

    /// Returns the ranges that are not empty: their bounds, in seconds, and counts. The range without a bound counts
    /// as ending at twice the last bound.
    pub fn occupied(&self) -> impl Iterator<Item = Range> {
        let ends = BOUNDS.iter().copied().chain([BOUNDS[BOUNDS.len() - 1] * 2]);
        [0].into_iter()
            .chain(BOUNDS)
            .zip(ends)
            .zip(self.ranges)
            .filter(|(_, count)| *count > 0)
            .map(|((from, to), count)| Range {
                from: from as f64 / 1e9,
                to: to as f64 / 1e9,
                count,
            })
    }

    /// Returns the quantile for `share`, such as 0.5 for the median: in seconds, interpolated within its range; 0 if
    /// nothing was counted.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let mut rank = self.count() as f64 * share;
        let mut last = 0.0;
        for Range { from, to, count } in self.occupied() {
            if rank <= count as f64 {
                return from + (to - from) * rank / count as f64;
            }
            rank -= count as f64;
            last = to;
        }
        last
    }
}

/// A range of times and its count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Lower bound, exclusive, in seconds.
    pub from: f64,
    /// Upper bound, inclusive, in seconds.
    pub to: f64,
    /// The count.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_one_two_five_of_each_decade() {
        assert_eq!(BOUNDS[..4], [10_000, 20_000, 50_000, 100_000]);
        assert_eq!(
            BOUNDS[19..],
            [20_000_000_000, 50_000_000_000, 100_000_000_000]
        );
    }

    #[test]
    fn a_time_falls_into_the_first_range_whose_end_it_does_not_pass() {
        let histogram = Histogram::default();
        for time in [0, 10_000, 10_001, 100_000_000_000, u64::MAX / 2] {
            histogram.observe(Duration::from_nanos(time));
        }
        let times = histogram.get();
        assert_eq!((times.ranges[0], times.ranges[1]), (2, 1));
        assert_eq!((times.ranges[21], times.ranges[22]), (1, 1));
        assert_eq!(times.count(), 5);
        assert_eq!(times.cumulative().last(), Some((100.0, 4)));
    }

    #[test]
    fn the_range_of_a_time_is_what_a_search_finds() {
        let around = |number: &u64| [number - 1, *number, number + 1];
        let bounds = BOUNDS.iter().flat_map(around);
        let powers = (1..64).flat_map(|power| around(&(1_u64 << power)));
        for time in bounds.chain(powers).chain([0, 1, u64::MAX]) {
            let found = BOUNDS.partition_point(|bound| *bound < time);
            assert_eq!(range_of(time), found, "{time}");
        }
    }

    #[test]
    fn a_quantile_lies_in_the_range_of_its_rank() {
        let histogram = Histogram::default();
        (0..90).for_each(|_| histogram.observe(Duration::from_micros(15)));
        (0..10).for_each(|_| histogram.observe(Duration::from_millis(3)));
        let times = histogram.get();
        assert_eq!(times.quantile(0.9), 20e-6);
        assert!((10e-6..20e-6).contains(&times.quantile(0.5)));
        assert!((2e-3..5e-3).contains(&times.quantile(0.99)));
        assert_eq!(Times::default().quantile(0.5), 0.0);
        assert_eq!(times.sum(), Duration::from_micros(90 * 15 + 10 * 3000));
    }

    #[test]
    fn merged_times_are_those_of_both() {
        let (one, two) = (Histogram::default(), Histogram::default());
        one.observe(Duration::from_millis(1));
        two.observe(Duration::from_millis(1));
        two.observe(Duration::from_secs(1));
        let mut times = one.get();
        times.merge(&two.get());
        assert_eq!(times.count(), 3);
        assert_eq!(times.sum(), Duration::from_millis(1002));
    }
}
