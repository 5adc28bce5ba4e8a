//! Built-in reducers: reduce functions whose source is a name starting with `_`.
//!
//! SUMMARY   [`Builtin::reduce`] computes over rows, [`Builtin::rereduce`] over earlier results, and
//!           [`Builtin::finalize`] converts either to the view's result for clients.
//! PROMISES  Reducing rows in pieces and rereducing the results equals reducing them at once, except for the rounding
//!           of floats. Values are JSON text throughout: integers of any size are exact, and values passed through
//!           are not changed.
//! SOURCE    couch_query_servers: builtin_reduce/5, finalize/2, and the check of names when a design document is
//!           saved.
//! DIFFERS   A name must match exactly; the reference accepts any name starting with `_sum` as `_sum`. Inputs that
//!           crash the reference are an error that names the value.

mod bias;
mod context;
mod count;
mod distinct;
mod ends;
mod number;
mod rank;
mod stats;
mod sum;

use std::fmt::Debug;

use json::erlang;
use serde_json::value::RawValue;

pub(crate) use context::OverflowLog;
pub use context::{ReduceContext, SumLimit};
pub(crate) use sum::error_of;

/// Maximum characters of a value quoted in an error.
const QUOTED_MAX: usize = 200;

/// Allowed N of `_top_N` and `_bottom_N`.
const RANKS: std::ops::RangeInclusive<u8> = 1..=100;

/// A row for reducers: JSON texts.
#[derive(Clone, Copy, Debug)]
pub struct ReduceRow<'a> {
    /// The emitting document's id: a JSON string.
    pub id: &'a str,
    /// The row's key.
    pub key: &'a str,
    /// The row's value.
    pub value: &'a str,
}

impl ReduceRow<'_> {
    /// Returns its size in a list of rows, in bytes of Erlang's external term format.
    pub(crate) fn size(&self, scratch: &mut Vec<u8>) -> u64 {
        erlang::size_of_row([self.key, self.id, self.value], scratch)
    }
}

/// Accumulates values. Takes as much memory as its result, regardless of the number of rows.
pub(crate) trait Fold: Debug {
    /// Adds a row. `scratch` is the caller's work space, which keeps totals small.
    ///
    /// # Errors
    /// [`InvalidValue`], of `_stats` only: `_sum` reports bad values in its result, as in CouchDB.
    fn take(&mut self, row: &ReduceRow<'_>, scratch: &mut Vec<u8>) -> Reduction {
        self.take_result(row.value, scratch)
    }

    /// Adds an earlier result, as [`Self::take`] adds a row.
    ///
    /// # Errors
    /// [`InvalidValue`]: as [`Self::take`], and for anything but a result of this reducer.
    fn take_result(&mut self, result: &str, scratch: &mut Vec<u8>) -> Reduction;

    /// Returns the intermediate result.
    fn finish(&self) -> Box<RawValue>;
}

/// The definition of a reducer.
#[derive(Debug)]
struct Reducer {
    /// Its name. A final `N` stands for one of [`RANKS`].
    name: &'static str,
    /// Returns a fold without rows; its argument is the number in the reducer's name.
    begin: fn(u8) -> Box<dyn Fold>,
    /// Converts an intermediate result to the view's result for clients.
    finalize: fn(&RawValue) -> Reduction<Box<RawValue>>,
    /// Whether `reduce_limit` applies to its results.
    is_limited: bool,
}

impl Reducer {
    /// Defines a reducer whose intermediate results are final.
    const fn new(name: &'static str, begin: fn(u8) -> Box<dyn Fold>) -> Self {
        Self {
            name,
            begin,
            finalize: |result| Ok(result.to_owned()),
            is_limited: false,
        }
    }
}

/// All reducers: to add one, add its file and its name here.
static REDUCERS: [Reducer; 8] = [
    sum::SUM,
    count::COUNT,
    stats::STATS,
    distinct::APPROX_COUNT_DISTINCT,
    rank::TOP,
    rank::BOTTOM,
    ends::FIRST,
    ends::LAST,
];

/// A built-in reducer, with the number in its name.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    reducer: &'static Reducer,
    number: u8,
}

/// Values that a reducer cannot reduce. The fault of the map function, or of a caller that sent wrong results. Not
/// worth a retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(pub String);

/// The result of a step that a value can fail.
type Reduction<T = ()> = Result<T, InvalidValue>;

/// There is no built-in reducer with this name. The design document's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownReducer {
    /// No reducer has a name like this.
    #[error("`{0}` is not a supported reduce function.")]
    Name(String),
    /// `_top_N` or `_bottom_N` with N out of bounds.
    #[error("rank value must be between {} and {}", RANKS.start(), RANKS.end())]
    RankOutOfBounds,
    /// `_top_N` or `_bottom_N` with N not an integer.
    #[error("invalid rank reducer")]
    InvalidRank,
}

impl Builtin {
    /// Returns the names of all built-in reducers.
    pub fn names() -> Vec<&'static str> {
        REDUCERS.iter().map(|reducer| reducer.name).collect()
    }

    /// Finds a reducer by its name.
    ///
    /// # Errors
    /// No reducer has exactly this name.
    pub fn named(name: &str) -> Result<Self, UnknownReducer> {
        for reducer in &REDUCERS {
            let number = match reducer.name.strip_suffix('N') {
                Some(start) => name.strip_prefix(start).map(rank),
                None => (reducer.name == name).then_some(Ok(0)),
            };
            if let Some(number) = number {
                return Ok(Self {
                    reducer,
                    number: number?,
                });
            }
        }
        Err(UnknownReducer::Name(name.to_owned()))
    }

    /// Returns what is equal for equal reducers, however their numbers are written.
    pub(crate) const fn key(self) -> (&'static str, u8) {
        (self.reducer.name, self.number)
    }

    /// Returns a fold without rows.
    pub(crate) fn begin(self) -> Box<dyn Fold> {
        (self.reducer.begin)(self.number)
    }

    /// Returns whether `reduce_limit` applies to its results.
    pub(crate) const fn is_limited(self) -> bool {
        self.reducer.is_limited
    }

    /// Reduces rows to an intermediate result, for [`Self::rereduce`] and [`Self::finalize`].
    ///
    /// # Errors
    /// [`InvalidValue`], of `_stats` only: `_sum` reports bad values in its result, as in CouchDB.
    pub fn reduce<'a>(
        self,
        rows: impl Iterator<Item = ReduceRow<'a>> + Clone,
        context: &ReduceContext<'_>,
    ) -> Reduction<Box<RawValue>> {
        let (mut total, mut scratch) = (self.begin(), Vec::new());
        for row in rows.clone() {
            total.take(&row, &mut scratch)?;
        }
        Ok(self.checked(total.finish(), context, || {
            rows.map(|row| row.size(&mut scratch)).sum()
        }))
    }

    /// Reduces intermediate results to one.
    ///
    /// # Errors
    /// [`InvalidValue`]: as [`Self::reduce`], and for anything but a result of this reducer.
    pub fn rereduce<'a>(
        self,
        values: impl Iterator<Item = &'a str> + Clone,
        context: &ReduceContext<'_>,
    ) -> Reduction<Box<RawValue>> {
        let (mut total, mut scratch) = (self.begin(), Vec::new());
        for value in values.clone() {
            total.take_result(value, &mut scratch)?;
        }
        Ok(self.checked(total.finish(), context, || {
            values
                .map(|value| erlang::size_of_result(value, &mut scratch))
                .sum()
        }))
    }

    /// Returns the result, or an error in its place if it is too long and `reduce_limit` refuses it. `input` returns
    /// the total size of the reduced values; it is called only if needed.
    pub(crate) fn checked(
        self,
        result: Box<RawValue>,
        context: &ReduceContext<'_>,
        input: impl FnOnce() -> u64,
    ) -> Box<RawValue> {
        if self.is_limited() {
            context.check(result, || erlang::size_of_list(input()))
        } else {
            result
        }
    }

    /// Converts an intermediate result to the view's result for clients.
    ///
    /// # Errors
    /// [`InvalidValue`] for anything but a result of this reducer.
    pub fn finalize(self, value: &RawValue) -> Reduction<Box<RawValue>> {
        (self.reducer.finalize)(value)
    }
}

fn rank(count: &str) -> Result<u8, UnknownReducer> {
    let digits = count.strip_prefix(['-', '+']).unwrap_or(count);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UnknownReducer::InvalidRank);
    }
    let count = count.parse::<u8>().ok();
    let count = count.filter(|count| RANKS.contains(count));
    count.ok_or(UnknownReducer::RankOutOfBounds)
}

/// Writes an array.
fn write_array<T>(elements: &[T], text: &mut String, write: impl Fn(&T, &mut String)) {
    text.push('[');
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write(element, text);
    }
    text.push(']');
}

/// Makes a value from JSON text built here.
fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).expect("RD-1: results are put together from JSON texts")
}

/// Returns a value, shortened if long, for an error.
fn quoted(json: &str) -> String {
    match json.char_indices().nth(QUOTED_MAX) {
        Some((end, _)) => format!("{}..", &json[..end]),
        None => json.to_owned(),
    }
}

#[cfg(test)]
mod tests;
