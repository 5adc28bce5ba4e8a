//! Built-in reducers: the reduce functions whose source is a name that begins with `_`.
//!
//! SUMMARY   [`Builtin::reduce`] computes over rows, [`Builtin::rereduce`] over earlier results.
//! SOURCE    couch_query_servers: builtin_reduce/5, finalize/2.
//! DIFFERS   A name must match exactly; the reference takes anything that begins with `_sum` for
//!           `_sum`. Inputs that crash the reference are an error that names the value.
//! LIMITS    `_approx_count_distinct` and the ranking reducers (`_top_N`, `_bottom_N`) are not
//!           here.

mod external_size;
mod stats;
mod sum;

use serde_json::Value;
use serde_json::value::RawValue;

pub use sum::SumLimit;

/// A row as reducers see it: JSON texts.
#[derive(Clone, Copy, Debug)]
pub struct ReduceRow<'a> {
    /// The id of the document that emitted it: a JSON string.
    pub id: &'a RawValue,
    /// Its key.
    pub key: &'a RawValue,
    /// Its value.
    pub value: &'a RawValue,
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
    /// `_first`: the value of the first row.
    First,
    /// `_last`: the value of the last row.
    Last,
}

/// A reducer got values that it cannot reduce. The fault is the map function's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(pub String);

/// There is no built-in reducer of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a supported reduce function.")]
pub struct UnknownReducer(pub String);

impl Builtin {
    /// The names of all built-in reducers.
    pub const NAMES: [&str; 5] = ["_sum", "_count", "_stats", "_first", "_last"];

    /// Finds a reducer by its name.
    ///
    /// # Errors
    /// No reducer has exactly this name.
    pub fn named(name: &str) -> Result<Self, UnknownReducer> {
        match name {
            "_sum" => Ok(Self::Sum),
            "_count" => Ok(Self::Count),
            "_stats" => Ok(Self::Stats),
            "_first" => Ok(Self::First),
            "_last" => Ok(Self::Last),
            _ => Err(UnknownReducer(name.to_owned())),
        }
    }

    /// Reduces rows, which are in the order of the view.
    ///
    /// # Errors
    /// [`InvalidValue`], of `_stats` only: `_sum` tells of bad values in its result, as in CouchDB.
    pub fn reduce<'a>(
        self,
        rows: impl ExactSizeIterator<Item = ReduceRow<'a>> + DoubleEndedIterator + Clone,
        limit: SumLimit,
    ) -> Result<Value, InvalidValue> {
        let mut rows = rows;
        let only_value = |row: Option<ReduceRow<'a>>| {
            row.map_or(Value::Array(Vec::new()), |row| parsed(row.value))
        };
        Ok(match self {
            Self::Count => Value::from(rows.len()),
            Self::First => only_value(rows.next()),
            Self::Last => only_value(rows.next_back()),
            Self::Stats => return stats::stats(rows.map(|row| parsed(row.value))),
            Self::Sum => {
                let input = limit.is_on().then(|| external_size::of_rows(rows.clone()));
                let sum = sum::sum(rows.map(|row| parsed(row.value)));
                limit.check(sum, input)
            }
        })
    }

    /// Reduces earlier results, which are in the order of the view.
    ///
    /// # Errors
    /// As [`Self::reduce`].
    pub fn rereduce(self, values: Vec<Value>, limit: SumLimit) -> Result<Value, InvalidValue> {
        Ok(match self {
            Self::Count => sum::sum(values.into_iter()),
            Self::First => values
                .into_iter()
                .next()
                .unwrap_or(Value::Array(Vec::new())),
            Self::Last => values
                .into_iter()
                .next_back()
                .unwrap_or(Value::Array(Vec::new())),
            Self::Stats => return stats::stats(values.into_iter()),
            Self::Sum => {
                let input = limit.is_on().then(|| external_size::of_values(&values));
                limit.check(sum::sum(values.into_iter()), input)
            }
        })
    }
}

/// A number of Erlang: integers stay integers however large, floats stay floats.
#[derive(Clone, Copy, Debug)]
enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    fn of(value: &Value) -> Option<Self> {
        let number = value.as_number()?;
        if let Some(integer) = number.as_i64() {
            return Some(Self::Integer(integer.into()));
        }
        if let Some(integer) = number.as_u64() {
            return Some(Self::Integer(integer.into()));
        }
        number.as_f64().map(Self::Float)
    }

    fn as_f64(self) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "as Erlang converts it")]
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }

    /// Combines two numbers: exactly while both are integers, as floats otherwise.
    fn combine(
        self,
        other: Self,
        exact: fn(i128, i128) -> Option<i128>,
        float: fn(f64, f64) -> f64,
    ) -> Self {
        if let (Self::Integer(one), Self::Integer(two)) = (self, other)
            && let Some(result) = exact(one, two)
        {
            return Self::Integer(result);
        }
        Self::Float(float(self.as_f64(), other.as_f64()))
    }

    fn add(self, other: Self) -> Self {
        self.combine(other, i128::checked_add, |one, two| one + two)
    }

    fn square(self) -> Self {
        self.combine(self, i128::checked_mul, |one, two| one * two)
    }

    fn is_less(self, other: Self) -> bool {
        match (self, other) {
            (Self::Integer(one), Self::Integer(two)) => one < two,
            _ => self.as_f64() < other.as_f64(),
        }
    }

    fn is_zero(self) -> bool {
        self.as_f64() == 0.0
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        match number {
            Number::Integer(integer) => serde_json::Number::from_i128(integer)
                .or_else(|| serde_json::Number::from_f64(Number::Integer(integer).as_f64()))
                .map_or(Self::Null, Self::Number),
            Number::Float(float) => Self::from(float),
        }
    }
}

fn parsed(value: &RawValue) -> Value {
    // Half a surrogate pair is JSON, but no text: such a value is none that can be reduced.
    serde_json::from_str(value.get()).unwrap_or_else(|_| Value::String(value.get().to_owned()))
}

#[cfg(test)]
mod tests;
