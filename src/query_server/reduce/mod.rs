//! Built-in reducers: the reduce functions whose source is a name that begins with `_`.
//!
//! SUMMARY   [`Builtin::reduce`] computes over rows, [`Builtin::rereduce`] over earlier results, and
//!           [`Builtin::finalize`] turns either into what a client of the view gets.
//! PROMISES  Reducing rows in pieces and the pieces' results again gives what reducing them at once
//!           gives, except for the rounding of floats. Values are JSON text throughout: integers of
//!           any size are exact, and what is only passed on is not changed.
//! SOURCE    couch_query_servers: builtin_reduce/5, finalize/2, and the check of names when a
//!           design document is saved.
//! DIFFERS   A name must match exactly; the reference takes anything that begins with `_sum` for
//!           `_sum`. Inputs that crash the reference are an error that names the value.

mod bias;
mod context;
mod distinct;
mod ends;
mod number;
mod rank;
mod stats;
mod sum;
mod total;

use json::erlang;
use serde_json::value::RawValue;

pub(crate) use context::OverflowLog;
pub use context::{ReduceContext, SumLimit};
pub use ends::End;
pub(crate) use rank::Rank;
pub(crate) use sum::error_of;
pub(crate) use total::Total;

/// How many characters of a value an error quotes.
const QUOTED_MAX: usize = 200;

/// How many values `_top_N` and `_bottom_N` may keep.
const RANKS: std::ops::RangeInclusive<i64> = 1..=100;

/// A row as reducers see it: JSON texts.
#[derive(Clone, Copy, Debug)]
pub struct ReduceRow<'a> {
    /// The id of the document that emitted it: a JSON string.
    pub id: &'a str,
    /// Its key.
    pub key: &'a str,
    /// Its value.
    pub value: &'a str,
}

impl ReduceRow<'_> {
    /// Returns its size in a list of rows, in bytes of Erlang's external term format.
    pub(crate) fn size(&self, scratch: &mut Vec<u8>) -> u64 {
        erlang::size_of_row([self.key, self.id, self.value], scratch)
    }
}

/// A built-in reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// `_sum`.
    Sum,
    /// `_count`.
    Count,
    /// `_stats`.
    Stats,
    /// `_approx_count_distinct`: about how many different keys there are.
    ApproxCountDistinct,
    /// `_top_N`, `_bottom_N`: so many different values, the largest or the smallest.
    Ranked(Rank, u8),
    /// `_first`, `_last`: the value of the first or last row.
    Row(End),
}

/// A reducer got values that it cannot reduce. The fault is the map function's, or the caller's that
/// sent something else as results. Not worth a retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(pub String);

/// There is no built-in reducer of this name. The fault is the design document's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownReducer {
    /// None that begins like it.
    #[error("`{0}` is not a supported reduce function.")]
    Name(String),
    /// `_top_N` or `_bottom_N` with an N out of bounds.
    #[error("rank value must be between {} and {}", RANKS.start(), RANKS.end())]
    RankOutOfBounds,
    /// `_top_N` or `_bottom_N` where N is no integer.
    #[error("invalid rank reducer")]
    InvalidRank,
}

impl Builtin {
    /// The names of all built-in reducers.
    pub const NAMES: [&str; 8] = [
        "_sum",
        "_count",
        "_stats",
        "_approx_count_distinct",
        "_top_N",
        "_bottom_N",
        "_first",
        "_last",
    ];

    /// Finds a reducer by its name.
    ///
    /// # Errors
    /// No reducer has exactly this name.
    pub fn named(name: &str) -> Result<Self, UnknownReducer> {
        Ok(match name {
            "_sum" => Self::Sum,
            "_count" => Self::Count,
            "_stats" => Self::Stats,
            "_approx_count_distinct" => Self::ApproxCountDistinct,
            "_first" => Self::Row(End::First),
            "_last" => Self::Row(End::Last),
            _ => {
                if let Some(count) = name.strip_prefix("_top_") {
                    Self::Ranked(Rank::Top, rank(count)?)
                } else if let Some(count) = name.strip_prefix("_bottom_") {
                    Self::Ranked(Rank::Bottom, rank(count)?)
                } else {
                    return Err(UnknownReducer::Name(name.to_owned()));
                }
            }
        })
    }

    /// Reduces rows to an intermediate result, for [`Self::rereduce`] and [`Self::finalize`].
    ///
    /// # Errors
    /// [`InvalidValue`], of `_stats` only: `_sum` reports bad values in its result, as in CouchDB.
    pub fn reduce<'a>(
        self,
        rows: impl Iterator<Item = ReduceRow<'a>> + Clone,
        context: &ReduceContext<'_>,
    ) -> Result<Box<RawValue>, InvalidValue> {
        let (mut total, mut scratch) = (Total::of(self), Vec::new());
        for row in rows.clone() {
            total.take(&row, &mut scratch)?;
        }
        let input = || rows.map(|row| row.size(&mut scratch)).sum();
        Ok(self.checked(total.finish(), context, input))
    }

    /// Reduces intermediate results to one.
    ///
    /// # Errors
    /// [`InvalidValue`]: as [`Self::reduce`], and for anything but a result of this reducer.
    pub fn rereduce<'a>(
        self,
        values: impl Iterator<Item = &'a str> + Clone,
        context: &ReduceContext<'_>,
    ) -> Result<Box<RawValue>, InvalidValue> {
        let (mut total, mut scratch) = (Total::of(self), Vec::new());
        for value in values.clone() {
            total.take_result(value, &mut scratch)?;
        }
        let input = || {
            values
                .map(|value| erlang::size_of_result(value, &mut scratch))
                .sum()
        };
        Ok(self.checked(total.finish(), context, input))
    }

    /// Checks that a result is not too long. `input` returns the sum of the sizes of what was reduced; it
    /// is called only if that matters.
    pub(crate) fn checked(
        self,
        result: Box<RawValue>,
        context: &ReduceContext<'_>,
        input: impl FnOnce() -> u64,
    ) -> Box<RawValue> {
        match self {
            Self::Sum => context.check(result, || erlang::size_of_list(input())),
            _ => result,
        }
    }

    /// Turns an intermediate result into what a client of the view gets.
    ///
    /// # Errors
    /// [`InvalidValue`] for anything but a result of this reducer.
    pub fn finalize(self, value: &RawValue) -> Result<Box<RawValue>, InvalidValue> {
        match self {
            Self::ApproxCountDistinct => distinct::finalize(value),
            Self::Row(_) => End::finalize(value),
            Self::Count | Self::Sum | Self::Stats | Self::Ranked(..) => Ok(value.to_owned()),
        }
    }
}

fn rank(count: &str) -> Result<u8, UnknownReducer> {
    let digits = count.strip_prefix(['-', '+']).unwrap_or(count);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UnknownReducer::InvalidRank);
    }
    let count: Option<i64> = count.parse().ok();
    let count = count.filter(|count| RANKS.contains(count));
    count
        .and_then(|count| u8::try_from(count).ok())
        .ok_or(UnknownReducer::RankOutOfBounds)
}

/// Makes a value of JSON text that was put together here.
fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).expect("RD-1: results are put together from JSON texts")
}

/// Returns a value, or the beginning of a long one, for an error.
fn quoted(json: &str) -> String {
    match json.char_indices().nth(QUOTED_MAX) {
        Some((end, _)) => format!("{}..", &json[..end]),
        None => json.to_owned(),
    }
}

#[cfg(test)]
mod tests;
