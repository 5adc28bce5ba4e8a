//! `_stats`: sum, count, minimum, maximum and sum of squares of numbers, or of each element of arrays, which may be
//! nested.
//!
//! SOURCE    couch_query_servers: builtin_stats/2.
//! DIFFERS   Input that crashes the reference is an error: arrays of unequal length, numbers among arrays, sums
//!           beyond the range of floats. Errors quote values as JSON, not as Erlang terms.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::number::Number;
use super::{Fold, InvalidValue, Reducer, Reduction, quoted, raw, write_array};
use json::cursor::Elements;

pub(super) const STATS: Reducer = Reducer::new("_stats", |_| Box::<StatsTotal>::default());

/// Maximum nesting depth of arrays.
const DEPTH_MAX: usize = 128;

/// The result without any value.
const NOTHING: &str = r#"{"sum":0,"count":0,"min":0,"max":0,"sumsqr":0}"#;

/// The statistics of some numbers.
#[derive(Clone, Debug)]
struct Stats {
    sum: Number,
    count: Number,
    min: Number,
    max: Number,
    sumsqr: Number,
}

/// An object that is an earlier result.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    sum: Option<&'a RawValue>,
    count: Option<&'a RawValue>,
    min: Option<&'a RawValue>,
    max: Option<&'a RawValue>,
    sumsqr: Option<&'a RawValue>,
}

impl Stats {
    fn of_number(number: Number) -> Option<Self> {
        let sumsqr = number.square()?;
        Some(Self {
            min: number.clone(),
            max: number.clone(),
            sum: number,
            count: Number::Integer(1),
            sumsqr,
        })
    }

    /// Reads an earlier reduction's result, or an equivalent object.
    fn of_object(value: &str) -> Reduction<Self> {
        let fields: Fields<'_> = serde_json::from_str(value).map_err(|_| {
            InvalidValue(format!(
                "user _stats input cannot be read ({})",
                quoted(value)
            ))
        })?;
        let number = |name: &str, field: Option<&RawValue>| {
            let field = field.ok_or_else(|| {
                InvalidValue(format!(
                    "user _stats input missing required field {name} ({})",
                    quoted(value)
                ))
            })?;
            Number::parse(field.get()).ok_or_else(|| {
                InvalidValue(format!(
                    "non-numeric _stats input received for {name}: {}",
                    quoted(field.get())
                ))
            })
        };
        Ok(Self {
            sum: number("sum", fields.sum)?,
            count: number("count", fields.count)?,
            min: number("min", fields.min)?,
            max: number("max", fields.max)?,
            sumsqr: number("sumsqr", fields.sumsqr)?,
        })
    }

    /// Merges other statistics; returns `None` if a result is beyond the range of numbers.
    fn merge(&mut self, other: Self) -> Option<()> {
        self.sum = self.sum.add(&other.sum)?;
        self.count = self.count.add(&other.count)?;
        self.sumsqr = self.sumsqr.add(&other.sumsqr)?;
        // Of equal values the later one is kept, as in Erlang; it may be a float.
        if !self.min.is_less(&other.min) {
            self.min = other.min;
        }
        if !other.max.is_less(&self.max) {
            self.max = other.max;
        }
        Some(())
    }

    /// Adds a number; returns `None` if a result is beyond the range of numbers. Twice as fast as a merge.
    fn take_number(&mut self, number: Number) -> Option<()> {
        self.sumsqr = self.sumsqr.add(&number.square()?)?;
        self.sum = self.sum.add(&number)?;
        self.count = self.count.add(&Number::Integer(1))?;
        if !self.min.is_less(&number) {
            self.min = number.clone();
        }
        if !number.is_less(&self.max) {
            self.max = number;
        }
        Some(())
    }

    /// Adds a value, a number or an object.
    fn take(&mut self, value: &str) -> Reduction {
        if let Some(number) = Number::parse(value) {
            return self.take_number(number).ok_or_else(|| too_large(value));
        }
        if !value.starts_with('{') {
            return Err(InvalidValue(format!(
                "The _stats function requires that map values be numbers or arrays of numbers, \
                 not '{}'",
                quoted(value)
            )));
        }
        self.merge(Self::of_object(value)?)
            .ok_or_else(|| too_large(value))
    }

    /// Makes the statistics of a first value, a number or an object.
    fn of_first(value: &str) -> Reduction<Self> {
        if let Some(number) = Number::parse(value) {
            return Self::of_number(number).ok_or_else(|| too_large(value));
        }
        if value.starts_with('{') {
            return Self::of_object(value);
        }
        Err(InvalidValue(format!(
            "non-numeric _stats input: {}",
            quoted(value)
        )))
    }

    fn write(&self, text: &mut String) {
        let Self {
            sum,
            count,
            min,
            max,
            sumsqr,
        } = self;
        text.push_str(&format!(
            "{{\"sum\":{sum},\"count\":{count},\"min\":{min},\"max\":{max},\"sumsqr\":{sumsqr}}}"
        ));
    }
}

fn too_large(value: &str) -> InvalidValue {
    InvalidValue(format!(
        "_stats input is too large to be added: {}",
        quoted(value)
    ))
}

/// The statistics of values so far, or of each of their elements.
#[derive(Debug)]
enum Total {
    One(Stats),
    Many(Vec<Total>),
}

impl Total {
    fn of_first(value: &str, depth: usize) -> Reduction<Self> {
        let Some(elements) = elements(value, depth)? else {
            return Stats::of_first(value).map(Self::One);
        };
        elements
            .into_iter()
            .map(|element| Self::of_first(element, depth + 1))
            .collect::<Result<_, _>>()
            .map(Self::Many)
    }

    fn take(&mut self, value: &str) -> Reduction {
        let many = match self {
            Self::One(stats) => return stats.take(value),
            Self::Many(many) => many,
        };
        let is_number = |total: &Self| matches!(total, Self::One(_));
        // Most arrays are of numbers.
        if let Some(numbers) = Number::parse_array(value)
            && numbers.len() == many.len()
            && many.iter().all(is_number)
        {
            let mut pairs = many.iter_mut().zip(numbers);
            return pairs
                .try_for_each(|(total, number)| match total {
                    Self::One(stats) => stats.take_number(number),
                    Self::Many(_) => None,
                })
                .ok_or_else(|| too_large(value));
        }
        // The depth of the first value was checked, and later values are followed no deeper than that.
        match elements(value, 0)? {
            Some(elements) if elements.len() == many.len() => many
                .iter_mut()
                .zip(elements)
                .try_for_each(|(total, element)| total.take(element)),
            _ => Err(InvalidValue(format!(
                "The _stats function requires that map values be arrays of equal length, here {}, \
                 not '{}'",
                many.len(),
                quoted(value)
            ))),
        }
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::One(stats) => stats.write(text),
            Self::Many(many) => write_array(many, text, Self::write),
        }
    }
}

/// Returns an array's elements; `None` if it is not an array.
fn elements(value: &str, depth: usize) -> Reduction<Option<Vec<&str>>> {
    if !value.starts_with('[') {
        return Ok(None);
    }
    if depth == DEPTH_MAX {
        return Err(InvalidValue(format!(
            "_stats input is nested more than {DEPTH_MAX} levels deep"
        )));
    }
    Ok(Some(Elements::of(value).collect()))
}

/// The statistics of the values so far: numbers, arrays or earlier results.
#[derive(Debug, Default)]
struct StatsTotal(Option<Total>);

impl Fold for StatsTotal {
    fn take_result(&mut self, value: &str, _: &mut Vec<u8>) -> Reduction {
        match &mut self.0 {
            Some(total) => total.take(value),
            None => {
                self.0 = Some(Total::of_first(value, 0)?);
                Ok(())
            }
        }
    }

    fn finish(&self) -> Box<RawValue> {
        let Some(total) = &self.0 else {
            return raw(NOTHING.to_owned());
        };
        let mut text = String::new();
        total.write(&mut text);
        raw(text)
    }
}
