//! CPU time per row of the built-in reducers, compared with a plain loop over the same values, already parsed.
//!
//! `cargo bench --bench reducers`. The loop does what a reducer does with a parsed value: it adds, compares, hashes.
//! The difference is reading JSON, and handling values of any other type. CPU time does not include other load on the
//! machine.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, HashSet};
use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::value::RawValue;
use settee::config::ReduceLimit;
use settee::query_server::reduce::{Builtin, ReduceContext, ReduceRow, SumLimit};

/// Rows of each reduction.
const ROWS: usize = 100_000;

/// How long each figure is measured.
const TIME: Duration = Duration::from_millis(400);

/// The default configuration.
const CONTEXT: ReduceContext<'_> = ReduceContext {
    call: None,
    limit: SumLimit {
        mode: ReduceLimit::True,
        threshold: 5000,
        ratio: 2.0,
    },
    name: "",
    log: None,
};

fn main() {
    let integers: Vec<i64> = (0..ROWS).map(scattered).collect();
    #[expect(clippy::cast_precision_loss, reason = "values are small")]
    let floats: Vec<f64> = integers.iter().map(|&value| value as f64 / 100.0).collect();
    let keys: Vec<String> = integers
        .iter()
        .map(|value| format!("key {value}"))
        .collect();

    let of_integers = Rows::new(&keys, integers.iter().map(i64::to_string));
    let of_floats = Rows::new(&keys, floats.iter().map(|value| format!("{value:?}")));
    let of_arrays = Rows::new(&keys, integers.iter().map(|value| format!("[{value},1]")));
    let of_objects = Rows::new(
        &keys,
        integers
            .iter()
            .map(|value| format!("{{\"a\":{value},\"b\":1}}")),
    );

    let sum = each(|| integers.iter().map(|&value| black_box(value)).sum::<i64>());
    line("_sum", "integers", of_integers.each("_sum"), sum);
    let sum_of_floats = each(|| floats.iter().map(|&value| black_box(value)).sum::<f64>());
    line("_sum", "floats", of_floats.each("_sum"), sum_of_floats);
    line("_sum", "arrays of 2", of_arrays.each("_sum"), 2.0 * sum);
    line("_sum", "objects of 2", of_objects.each("_sum"), 2.0 * sum);
    let results = Results::of_integers(&integers);
    line("_sum", "rereduce", results.each("_sum"), sum);

    let count = each(|| of_integers.rows().count());
    line("_count", "any", of_integers.each("_count"), count);

    let stats = each(|| statistics(&integers, |value| i128::from(value) * i128::from(value)));
    line("_stats", "integers", of_integers.each("_stats"), stats);
    let stats_of_floats = each(|| statistics(&floats, |value| value * value));
    line(
        "_stats",
        "floats",
        of_floats.each("_stats"),
        stats_of_floats,
    );
    line(
        "_stats",
        "arrays of 2",
        of_arrays.each("_stats"),
        2.0 * stats,
    );

    let distinct = each(|| keys.iter().collect::<HashSet<_>>().len());
    let name = "_approx_count_distinct";
    line(name, "string keys", of_integers.each(name), distinct);

    let top = each(|| top(&integers, 10));
    line("_top_10", "integers", of_integers.each("_top_10"), top);
    line(
        "_bottom_10",
        "integers",
        of_integers.each("_bottom_10"),
        top,
    );

    let smallest = each(|| keys.iter().min().unwrap().len());
    line(
        "_first",
        "string keys",
        of_integers.each("_first"),
        smallest,
    );
    line("_last", "string keys", of_integers.each("_last"), smallest);
}

/// A pseudo-random number, at most 1,000,002.
fn scattered(place: usize) -> i64 {
    i64::try_from(place * 7919 % 1_000_003).unwrap_or_default()
}

fn statistics<T: Copy + PartialOrd, S: std::iter::Sum>(
    values: &[T],
    square: impl Fn(T) -> S,
) -> (T, T, S) {
    let (mut min, mut max) = (values[0], values[0]);
    let squares = values.iter().map(|&value| {
        let value = black_box(value);
        min = if value < min { value } else { min };
        max = if value > max { value } else { max };
        square(value)
    });
    let squares = squares.sum();
    (min, max, squares)
}

fn top(values: &[i64], count: usize) -> BTreeSet<i64> {
    let mut best = BTreeSet::new();
    for value in values {
        if best.len() < count || Some(value) > best.first() {
            best.insert(*value);
            if best.len() > count {
                best.pop_first();
            }
        }
    }
    best
}

/// Nanoseconds per row.
fn each<T>(mut run: impl FnMut() -> T) -> f64 {
    black_box(run());
    let (start, mut runs) = (processor_time(), 0_u32);
    while processor_time() - start < TIME {
        black_box(run());
        runs += 1;
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let rows = f64::from(runs) * ROWS as f64;
    (processor_time() - start).as_secs_f64() * 1e9 / rows
}

/// The CPU time of this thread so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

fn line(name: &str, values: &str, reducer: f64, floor: f64) {
    println!(
        "{name:<24} {values:<14} {reducer:>8.2} ns/row   plain loop {floor:>8.2} ns/row   ratio {:>6.1}",
        reducer / floor
    );
}

struct Rows {
    id: Box<RawValue>,
    texts: Vec<(Box<RawValue>, Box<RawValue>)>,
}

impl Rows {
    fn new(keys: &[String], values: impl Iterator<Item = String>) -> Self {
        let raw = |text: String| RawValue::from_string(text).unwrap();
        let texts = keys
            .iter()
            .zip(values)
            .map(|(key, value)| (raw(format!("\"{key}\"")), raw(value)));
        Self {
            id: raw("\"document\"".into()),
            texts: texts.collect(),
        }
    }

    fn rows(&self) -> impl Iterator<Item = ReduceRow<'_>> + Clone {
        self.texts.iter().map(|(key, value)| ReduceRow {
            id: self.id.get(),
            key: key.get(),
            value: value.get(),
        })
    }

    fn each(&self, name: &str) -> f64 {
        let reducer = Builtin::named(name).unwrap();
        each(|| reducer.reduce(self.rows(), &CONTEXT).unwrap())
    }
}

/// Earlier results, to rereduce.
struct Results(Vec<Box<RawValue>>);

impl Results {
    fn of_integers(values: &[i64]) -> Self {
        let raw = |value: &i64| RawValue::from_string(value.to_string()).unwrap();
        Self(values.iter().map(raw).collect())
    }

    fn each(&self, name: &str) -> f64 {
        let reducer = Builtin::named(name).unwrap();
        let values = || self.0.iter().map(|value| value.get());
        each(|| reducer.rereduce(values(), &CONTEXT).unwrap())
    }
}
