//! `_sum`: numbers, arrays of numbers element by element, objects member by member.
//!
//! SOURCE    couch_query_servers: builtin_sum_rows/2, sum_values/2.
//! DIFFERS   Mixtures that crash the reference give its error object, and so do sums that no float
//!           can hold: their `caused_by` is the value.
//! LIMITS    Objects are merged [`DEPTH_MAX`] levels deep.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;
use serde_json::value::RawValue;

use super::number::Number;
use super::raw;
use json::cursor::{Elements, Members};
use json::string::unescape;

/// The start is the reference's; clients look for it.
const BAD_VALUE: &str = "The _sum function requires that map values be numbers, arrays of numbers, \
                         or objects of these, all of one kind and small enough to be added";

/// The name of the error in a sum that went wrong.
const ERROR_NAME: &str = "builtin_reduce_error";

/// The member of an object that makes it an error.
const ERROR: &str = "error";

/// How deep objects are merged in each other.
const DEPTH_MAX: usize = 128;

/// Makes the value that stands for a sum that went wrong.
pub(super) fn error_object(reason: &str, cause: Option<&str>) -> Box<RawValue> {
    let reason = Value::from(reason);
    let cause = cause.map_or_else(String::new, |cause| format!(",\"caused_by\":{cause}"));
    raw(format!(
        "{{\"{ERROR}\":\"{ERROR_NAME}\",\"reason\":{reason}{cause}}}"
    ))
}

/// Returns name and reason of the error that a result is, if it is one of [`error_object`].
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

/// Adds up values. A value that cannot be added ends the sum and becomes its result's `caused_by`; of
/// arrays that is the sum so far, from the first element that cannot be added on, as in CouchDB.
pub(super) fn sum<'a>(values: impl Iterator<Item = &'a RawValue>) -> Box<RawValue> {
    let mut total = Sum::Number(Number::Integer(0));
    for value in values.map(RawValue::get) {
        let added = match &mut total {
            Sum::Number(sum) => add_number(sum, value),
            Sum::Array(sums) => add_numbers(sums, value),
            Sum::Object(_) | Sum::Untouched(_) => Added::NotYet,
        };
        match added {
            Added::Done => continue,
            Added::TooLarge => return error_object(BAD_VALUE, Some(value)),
            Added::NotYet => {}
        }
        total = match total.add(value, 0) {
            Ok(sum) => sum,
            Err(Failure::Cause(cause)) => return error_object(BAD_VALUE, Some(cause)),
            Err(Failure::Rest(rest)) => return error_object(BAD_VALUE, Some(&rest)),
            Err(Failure::Earlier(error)) => return raw(error.to_owned()),
        };
    }
    let mut text = String::new();
    total.write(&mut text);
    raw(text)
}

/// What came of adding in place, as most values can be: numbers, and arrays of nothing else.
enum Added {
    Done,
    /// No float can hold the sum.
    TooLarge,
    /// Nothing was added: the values are of other kinds.
    NotYet,
}

#[inline]
fn add_number(sum: &mut Number, value: &str) -> Added {
    let Some(number) = Number::parse(value) else {
        return Added::NotYet;
    };
    let Some(more) = sum.add(&number) else {
        return Added::TooLarge;
    };
    *sum = more;
    Added::Done
}

fn add_numbers(sums: &mut Vec<Sum<'_>>, value: &str) -> Added {
    let Some(numbers) = Number::parse_array(value) else {
        return Added::NotYet;
    };
    let is_number = |sum: &Sum<'_>| matches!(sum, Sum::Number(_));
    if !sums.iter().take(numbers.len()).all(is_number) {
        return Added::NotYet;
    }
    for (index, number) in numbers.into_iter().enumerate() {
        let more = match sums.get(index) {
            Some(Sum::Number(sum)) => sum.add(&number),
            _ => Some(number),
        };
        let Some(more) = more.map(Sum::Number) else {
            return Added::TooLarge;
        };
        match sums.get_mut(index) {
            Some(sum) => *sum = more,
            None => sums.push(more),
        }
    }
    Added::Done
}

/// Why a value was not added.
enum Failure<'a> {
    /// It cannot be.
    Cause(&'a str),
    /// An element of an array cannot be: the sum so far from there on.
    Rest(String),
    /// It is the error of an earlier sum.
    Earlier(&'a str),
}

/// A sum of values so far.
enum Sum<'a> {
    Number(Number),
    Array(Vec<Sum<'a>>),
    Object(BTreeMap<String, Sum<'a>>),
    /// What nothing was added to yet: as it came, whatever it is.
    Untouched(&'a str),
}

impl<'a> Sum<'a> {
    fn add(self, value: &'a str, depth: usize) -> Result<Self, Failure<'a>> {
        let bad = || Failure::Cause(value);
        if depth > DEPTH_MAX {
            return Err(bad());
        }
        let summand = Self::read(value).ok_or_else(bad)?;
        if let Self::Object(members) = &summand {
            check_error(members, value)?;
        }
        let total = match self {
            Self::Untouched(first) => Self::read(first).ok_or_else(bad)?,
            total => total,
        };
        match (total, summand) {
            (Self::Number(total), Self::Number(number)) => total.add(&number).map(Self::Number),
            (Self::Array(total), Self::Array(elements)) => {
                return add_arrays(total, elements, value);
            }
            (Self::Array(total), number @ Self::Number(_)) => {
                return add_arrays(total, vec![number], value);
            }
            (total @ Self::Number(_), Self::Array(elements)) => {
                return add_arrays(vec![total], elements, value);
            }
            (Self::Object(total), Self::Object(members)) => {
                return add_objects(total, members, depth);
            }
            (Self::Number(total), Self::Object(_)) if total.is_zero() => {
                Some(Self::Untouched(value))
            }
            _ => None,
        }
        .ok_or_else(bad)
    }

    /// Reads one level of a value; `None` when it is nothing that can be added.
    fn read(value: &'a str) -> Option<Self> {
        match value.as_bytes().first()? {
            b'[' => {
                let elements = Elements::of(value).map(Self::Untouched);
                Some(Self::Array(elements.collect()))
            }
            // Of members of one name the last counts.
            b'{' => {
                let untouched =
                    |(name, value)| (unescape(name).into_owned(), Self::Untouched(value));
                Some(Self::Object(Members::of(value).map(untouched).collect()))
            }
            _ => Number::parse(value).map(Self::Number),
        }
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
            Self::Array(elements) => write_array(elements, text),
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

fn write_array(elements: &[Sum<'_>], text: &mut String) {
    for (index, element) in elements.iter().enumerate() {
        text.push(if index == 0 { '[' } else { ',' });
        element.write(text);
    }
    text.push_str(if elements.is_empty() { "[]" } else { "]" });
}

/// Element by element; the tail of the longer one stays as it is.
fn add_arrays<'a>(
    mut total: Vec<Sum<'a>>,
    elements: Vec<Sum<'a>>,
    value: &'a str,
) -> Result<Sum<'a>, Failure<'a>> {
    for (index, element) in elements.into_iter().enumerate() {
        let Some(sum) = total.get(index) else {
            total.push(element);
            continue;
        };
        let (Some(one), Some(other)) = (sum.number(), element.number()) else {
            let mut rest = String::new();
            write_array(&total[index..], &mut rest);
            return Err(Failure::Rest(rest));
        };
        let sum = one.add(&other).ok_or(Failure::Cause(value))?;
        total[index] = Sum::Number(sum);
    }
    Ok(Sum::Array(total))
}

/// Member by member; the names are in byte order afterwards.
fn add_objects<'a>(
    mut total: BTreeMap<String, Sum<'a>>,
    members: BTreeMap<String, Sum<'a>>,
    depth: usize,
) -> Result<Sum<'a>, Failure<'a>> {
    for (name, member) in members {
        let sum = match (total.remove(&name), member) {
            (Some(sum), Sum::Untouched(value)) => sum.add(value, depth + 1)?,
            (_, member) => member,
        };
        total.insert(name, sum);
    }
    Ok(Sum::Object(total))
}

/// An object with an error in it is no summand.
fn check_error<'a>(members: &BTreeMap<String, Sum<'a>>, value: &'a str) -> Result<(), Failure<'a>> {
    match members.get(ERROR) {
        None => Ok(()),
        Some(Sum::Untouched(name)) if is_string(name, ERROR_NAME) => Err(Failure::Earlier(value)),
        Some(_) => Err(Failure::Cause(value)),
    }
}

fn is_string(value: &str, text: &str) -> bool {
    value.starts_with('"') && unescape(value) == text
}
