//! `_sum`: numbers, arrays of numbers element by element, objects member by member.
//!
//! SOURCE    couch_query_servers: builtin_sum_rows/2, sum_values/2.
//! DIFFERS   Mixtures that crash the reference yield its error object, and so do sums beyond the range of floats,
//!           with the value as `caused_by`.
//! LIMITS    Objects are merged at most [`DEPTH_MAX`] levels deep.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;
use serde_json::value::RawValue;

use super::number::Number;
use super::{Fold, Reducer, Reduction, raw, write_array};
use json::cursor::{Elements, Members};
use json::string::unescape;

pub(super) const SUM: Reducer = Reducer {
    is_limited: true,
    ..Reducer::new("_sum", |_| Box::new(SumTotal::new()))
};

/// Clients match the beginning, which is the reference's.
const BAD_VALUE: &str = "The _sum function requires that map values be numbers, arrays of numbers, \
                         or objects of these, all of one kind and small enough to be added";

/// The name of the error of a failed sum.
const ERROR_NAME: &str = "builtin_reduce_error";

/// The member that marks an object as an error.
const ERROR: &str = "error";

/// Maximum depth of merged objects.
const DEPTH_MAX: usize = 128;

/// Makes the value that represents a failed sum.
pub(super) fn error_object(reason: &str, cause: Option<&str>) -> Box<RawValue> {
    let reason = Value::from(reason);
    let cause = cause.map_or_else(String::new, |cause| format!(",\"caused_by\":{cause}"));
    raw(format!(
        "{{\"{ERROR}\":\"{ERROR_NAME}\",\"reason\":{reason}{cause}}}"
    ))
}

/// Returns name and reason of a result that is an [`error_object`].
pub(crate) fn error_of(result: &RawValue) -> Option<(String, String)> {
    #[derive(serde::Deserialize)]
    struct Members {
        error: String,
        reason: String,
    }
    let begins = format!("{{\"{ERROR}\":\"{ERROR_NAME}\",");
    let json = Some(result.get()).filter(|json| json.starts_with(&begins))?;
    let Members { error, reason } = serde_json::from_str(json).ok()?;
    Some((error, reason))
}

/// The sum so far, or the error object. A value that cannot be added ends the sum and becomes its `caused_by`. If an
/// array has an element that cannot be added, `caused_by` is the sum so far from that element on, as in CouchDB.
#[derive(Debug)]
pub(super) struct SumTotal(Result<Sum, Box<RawValue>>);

impl SumTotal {
    pub(super) fn new() -> Self {
        Self(Ok(Sum::Number(Number::Integer(0))))
    }

    #[inline]
    pub(super) fn take_value(&mut self, value: &str) {
        let Ok(total) = &mut self.0 else {
            return;
        };
        let added = match total {
            Sum::Number(sum) => add_number(sum, value),
            Sum::Array(sums) => add_numbers(sums, value),
            Sum::Object(_) | Sum::Untouched(_) => None,
        };
        if let Err(error) = added.unwrap_or_else(|| total.add(value, 0)) {
            self.0 = Err(error);
        }
    }
}

impl Fold for SumTotal {
    fn take_result(&mut self, result: &str, _: &mut Vec<u8>) -> Reduction {
        self.take_value(result);
        Ok(())
    }

    fn finish(&self) -> Box<RawValue> {
        let total = match &self.0 {
            Ok(total) => total,
            Err(error) => return error.clone(),
        };
        let mut text = String::new();
        total.write(&mut text);
        raw(text)
    }
}

/// The result of adding a value: an error is the error object, which replaces the sum.
type Added = Result<(), Box<RawValue>>;

/// Makes the error of a value that cannot be added.
fn bad_value(cause: &str) -> Box<RawValue> {
    error_object(BAD_VALUE, Some(cause))
}

/// Adds in place, as most values can be; `None`: nothing was added, as the value is not a number.
#[inline]
fn add_number(sum: &mut Number, value: &str) -> Option<Added> {
    let number = Number::parse(value)?;
    Some(match sum.add(&number) {
        Some(more) => {
            *sum = more;
            Ok(())
        }
        None => Err(bad_value(value)),
    })
}

/// Like [`add_number`], for arrays of numbers.
fn add_numbers(sums: &mut Vec<Sum>, value: &str) -> Option<Added> {
    let numbers = Number::parse_array(value)?;
    let is_number = |sum: &Sum| matches!(sum, Sum::Number(_));
    if !sums.iter().take(numbers.len()).all(is_number) {
        return None;
    }
    for (index, number) in numbers.into_iter().enumerate() {
        match sums.get_mut(index) {
            Some(Sum::Number(sum)) => match sum.add(&number) {
                Some(more) => *sum = more,
                None => return Some(Err(bad_value(value))),
            },
            _ => sums.push(Sum::Number(number)),
        }
    }
    Some(Ok(()))
}

/// One level of an addable value.
enum Summand<'a> {
    Number(Number),
    Array(Vec<&'a str>),
    /// Of several members with the same name, the last one counts.
    Object(BTreeMap<Cow<'a, str>, &'a str>),
}

impl<'a> Summand<'a> {
    /// Reads a value; `None` if it cannot be added.
    fn read(value: &'a str) -> Option<Self> {
        match value.as_bytes().first()? {
            b'[' => Some(Self::Array(Elements::of(value).collect())),
            b'{' => {
                let members = Members::of(value).map(|(name, value)| (unescape(name), value));
                Some(Self::Object(members.collect()))
            }
            _ => Number::parse(value).map(Self::Number),
        }
    }
}

/// A sum, or a part of one.
#[derive(Debug)]
enum Sum {
    Number(Number),
    Array(Vec<Sum>),
    Object(BTreeMap<String, Sum>),
    /// A single value, unchanged and of any kind.
    Untouched(Box<str>),
}

impl Sum {
    fn untouched(value: &str) -> Self {
        Self::Untouched(value.into())
    }

    /// Reads one level of an untouched value; `None` if it cannot be added.
    fn read(value: &str) -> Option<Self> {
        Some(match Summand::read(value)? {
            Summand::Number(number) => Self::Number(number),
            Summand::Array(elements) => {
                Self::Array(elements.into_iter().map(Self::untouched).collect())
            }
            Summand::Object(members) => {
                let member =
                    |(name, value): (Cow<'_, str>, _)| (name.into_owned(), Self::untouched(value));
                Self::Object(members.into_iter().map(member).collect())
            }
        })
    }

    fn add(&mut self, value: &str, depth: usize) -> Added {
        let bad = || bad_value(value);
        if depth > DEPTH_MAX {
            return Err(bad());
        }
        let summand = Summand::read(value).ok_or_else(bad)?;
        // An object with a member `error` cannot be added; the error of an earlier sum remains.
        if let Summand::Object(members) = &summand
            && let Some(name) = members.get(ERROR)
        {
            let is_earlier = name.starts_with('"') && unescape(name) == ERROR_NAME;
            return Err(if is_earlier {
                raw(value.to_owned())
            } else {
                bad()
            });
        }
        if let Self::Untouched(first) = self {
            *self = Self::read(first).ok_or_else(bad)?;
        }
        match (&mut *self, summand) {
            (Self::Number(total), Summand::Number(number)) => {
                *total = total.add(&number).ok_or_else(bad)?;
            }
            (Self::Number(total), Summand::Array(elements)) => {
                let mut sums = vec![Self::Number(total.clone())];
                add_arrays(&mut sums, &elements, value)?;
                *self = Self::Array(sums);
            }
            (Self::Array(total), Summand::Array(elements)) => {
                add_arrays(total, &elements, value)?;
            }
            (Self::Array(total), Summand::Number(_)) => add_arrays(total, &[value], value)?,
            // The names end up in byte order.
            (Self::Object(total), Summand::Object(members)) => {
                for (name, value) in members {
                    match total.get_mut(&*name) {
                        Some(sum) => sum.add(value, depth + 1)?,
                        None => drop(total.insert(name.into_owned(), Self::untouched(value))),
                    }
                }
            }
            (Self::Number(total), Summand::Object(_)) if total.is_zero() => {
                *self = Self::untouched(value);
            }
            _ => return Err(bad()),
        }
        Ok(())
    }

    fn number(&self) -> Option<Number> {
        match self {
            Self::Number(number) => Some(number.clone()),
            Self::Untouched(value) => Number::parse(value),
            Self::Array(_) | Self::Object(_) => None,
        }
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Number(number) => drop(write!(text, "{number}")),
            Self::Untouched(value) => text.push_str(value),
            Self::Array(elements) => write_array(elements, text, Self::write),
            Self::Object(members) => {
                for (index, (name, member)) in members.iter().enumerate() {
                    text.push(if index == 0 { '{' } else { ',' });
                    text.push_str(&Value::from(name.as_str()).to_string());
                    text.push(':');
                    member.write(text);
                }
                text.push_str(if members.is_empty() { "{}" } else { "}" });
            }
        }
    }
}

/// Adds arrays element by element; the tail of the longer one is kept.
fn add_arrays(total: &mut Vec<Sum>, elements: &[&str], value: &str) -> Added {
    for (index, element) in elements.iter().enumerate() {
        let Some(sum) = total.get_mut(index) else {
            total.push(Sum::untouched(element));
            continue;
        };
        let (Some(one), Some(other)) = (sum.number(), Number::parse(element)) else {
            let mut rest = String::new();
            write_array(&total[index..], &mut rest, Sum::write);
            return Err(bad_value(&rest));
        };
        *sum = Sum::Number(one.add(&other).ok_or_else(|| bad_value(value))?);
    }
    Ok(())
}
