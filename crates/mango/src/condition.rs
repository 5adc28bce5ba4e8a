//! Conditions on one value: the operators without fields below them.
//!
//! SUMMARY   A function for each operator ([`super::operator`]) makes a condition of its argument;
//!           [`Condition::holds`] tests a value. [`Condition::negated`] is the opposite: `$gte` is `$lt` negated.
//! SOURCE    CouchDB's Mango operators, with their edge cases.

use std::collections::HashSet;

use unicode_segmentation::UnicodeSegmentation;

use super::error::MatchError;
use super::members::{Kind, kind_of, last_members};
use super::modulo::Modulo;
use super::operand::{Operand, Order};
use super::operator::LENGTH;
use super::pattern::Pattern;
use super::selector::Scope;
use super::terms::exact_key;
use json::collation::write_identity;
use json::cursor::{Elements, Members};
use json::string::unescape;

/// A condition, or the mistake in its argument.
pub(crate) type MadeCondition = Result<Condition, String>;

/// One operator with its argument.
#[derive(Debug)]
pub(crate) enum Condition {
    /// `$eq`; negated, `$ne`.
    Equal(Operand),
    /// `$lt`; negated, `$gte`.
    Less(Operand),
    /// `$lte`; negated, `$gt`.
    LessOrEqual(Operand),
    /// `$in`; negated, `$nin`: the operands, by their keys in this order.
    In(HashSet<Vec<u8>>, Order),
    /// `$all`.
    All(Everything),
    /// `$elemMatch`, `$allMatch`, `$keyMapMatch`.
    Some(Quantity, Box<Scope>),
    /// `$exists`. Missing fields are handled elsewhere.
    Exists(bool),
    /// `$type`.
    Type(String),
    /// `$mod`.
    Mod(Modulo),
    /// `$regex`.
    Regex(Box<Pattern>),
    /// `$beginsWith`.
    BeginsWith(String),
    /// `$size`.
    Size(usize),
    /// The opposite of another condition.
    Not(Box<Self>),
}

/// The parts of a value that a selector must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// `$elemMatch`: some element of an array.
    SomeElement,
    /// `$allMatch`: all elements of a non-empty array.
    AllElements,
    /// `$keyMapMatch`: some member's name.
    SomeName,
}

/// The argument of `$all`.
#[derive(Debug)]
pub(crate) struct Everything {
    /// The elements that an array must contain, by [`exact_key`].
    wanted: HashSet<Vec<u8>>,
    /// The only element of the argument, if it is an array: the field may also be equal to it.
    whole: Option<Vec<u8>>,
}

impl Everything {
    fn new(argument: &str) -> Self {
        let elements: Vec<&str> = Elements::of(argument).collect();
        let whole = match elements[..] {
            [only] if kind_of(only) == Kind::Array => Some(identity(only)),
            _ => None,
        };
        Self {
            wanted: elements.into_iter().map(exact_key).collect(),
            whole,
        }
    }

    fn holds(&self, value: &str) -> bool {
        if self.wanted.is_empty() || kind_of(value) != Kind::Array {
            return false;
        }
        let whole = self.whole.as_ref();
        if whole.is_some_and(|whole| *whole == identity(value)) {
            return true;
        }
        let mut missing: HashSet<&[u8]> = self.wanted.iter().map(Vec::as_slice).collect();
        Elements::of(value).any(|element| {
            missing.remove(exact_key(element).as_slice());
            missing.is_empty()
        })
    }
}

/// Returns bytes that are equal when the values are; 1 and 1.0 are equal.
fn identity(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    write_identity(&last_members(text), &mut bytes);
    bytes
}

/// Each constructor makes a condition from an argument whose kind [`super::operator::Operator::check`] has checked, or
/// returns the mistake in the argument.
impl Condition {
    pub fn equal(argument: &str, order: Order) -> MadeCondition {
        Ok(Self::Equal(Operand::new(argument, order)))
    }

    pub fn less(argument: &str, order: Order) -> MadeCondition {
        Ok(Self::Less(Operand::new(argument, order)))
    }

    pub fn not_greater(argument: &str, order: Order) -> MadeCondition {
        Ok(Self::LessOrEqual(Operand::new(argument, order)))
    }

    pub fn one_of(argument: &str, order: Order) -> MadeCondition {
        let operands = Elements::of(argument).map(|text| order.key(text));
        Ok(Self::In(operands.collect(), order))
    }

    pub fn all(argument: &str, _: Order) -> MadeCondition {
        Ok(Self::All(Everything::new(argument)))
    }

    pub fn exists(argument: &str, _: Order) -> MadeCondition {
        Ok(Self::Exists(kind_of(argument) == Kind::True))
    }

    pub fn of_type(argument: &str, _: Order) -> MadeCondition {
        Ok(Self::Type(unescape(argument).into_owned()))
    }

    pub fn modulo(argument: &str, _: Order) -> MadeCondition {
        Ok(Self::Mod(Modulo::new(argument)?))
    }

    pub fn regex(argument: &str, _: Order) -> MadeCondition {
        Ok(Self::Regex(Box::new(Pattern::new(&unescape(argument))?)))
    }

    pub fn prefix(argument: &str, _: Order) -> MadeCondition {
        Ok(Self::BeginsWith(unescape(argument).into_owned()))
    }

    pub fn size(argument: &str, _: Order) -> MadeCondition {
        Ok(Self::Size(argument.parse().map_err(|_| LENGTH)?))
    }

    /// Returns the opposite, for a field that is not missing.
    #[must_use]
    pub fn negated(self) -> Self {
        match self {
            Self::Exists(exists) => Self::Exists(!exists),
            Self::Not(condition) => *condition,
            other => Self::Not(Box::new(other)),
        }
    }

    /// Whether the condition holds of a value.
    ///
    /// # Errors
    /// A regular expression takes too long.
    pub fn holds(&self, value: &str) -> Result<bool, MatchError> {
        Ok(match self {
            Self::Equal(operand) => operand.equals(value),
            Self::Less(operand) => operand.compare(value).is_lt(),
            Self::LessOrEqual(operand) => operand.compare(value).is_le(),
            Self::In(operands, order) => is_in(operands, *order, value),
            Self::All(everything) => everything.holds(value),
            Self::Some(quantity, scope) => return some(*quantity, scope, value),
            Self::Exists(exists) => *exists,
            Self::Type(name) => kind_of(value).name() == name,
            Self::Mod(modulo) => modulo.holds(value),
            Self::Regex(pattern) => return is_match(pattern, value),
            Self::BeginsWith(prefix) => begins_with(value, prefix),
            Self::Size(size) => {
                kind_of(value) == Kind::Array && Elements::of(value).count() == *size
            }
            Self::Not(condition) => !condition.holds(value)?,
        })
    }
}

/// Whether a value, or an element of an array, is one of the operands.
fn is_in(operands: &HashSet<Vec<u8>>, order: Order, value: &str) -> bool {
    let is_one = |value: &str| operands.contains(&order.key(value));
    if kind_of(value) == Kind::Array {
        return Elements::of(value).any(is_one);
    }
    is_one(value)
}

fn some(quantity: Quantity, scope: &Scope, value: &str) -> Result<bool, MatchError> {
    match (quantity, kind_of(value)) {
        (Quantity::SomeElement, Kind::Array) => any(scope, Elements::of(value)),
        (Quantity::SomeName, Kind::Object) => any(scope, Members::of(value).map(|(name, _)| name)),
        (Quantity::AllElements, Kind::Array) => {
            let mut all = false;
            for element in Elements::of(value) {
                all = scope.matches(element)?;
                if !all {
                    break;
                }
            }
            Ok(all)
        }
        _ => Ok(false),
    }
}

/// After this many values that take too long to match, the first one's error is the result.
const UNDECIDED_MAX: usize = 3;

/// Whether a selector matches some value. The first error is the result if none matches, or if there are
/// [`UNDECIDED_MAX`] errors before one that does.
fn any<'a>(scope: &Scope, values: impl Iterator<Item = &'a str>) -> Result<bool, MatchError> {
    let mut failure = None;
    let mut undecided = 0;
    for value in values {
        match scope.matches(value) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => {
                undecided += 1;
                failure.get_or_insert(error);
                if undecided == UNDECIDED_MAX {
                    break;
                }
            }
        }
    }
    failure.map_or(Ok(false), Err)
}

fn is_match(pattern: &Pattern, value: &str) -> Result<bool, MatchError> {
    if kind_of(value) != Kind::String {
        return Ok(false);
    }
    let text = unescape(value);
    pattern
        .is_match(text.as_bytes())
        .map_err(|_| MatchError::Pattern {
            pattern: pattern.source.to_string(),
            bytes: text.len(),
        })
}

/// Whether a string begins with a prefix that does not end within what a reader perceives as one character, such as a
/// letter and its accent.
fn begins_with(value: &str, prefix: &str) -> bool {
    if kind_of(value) != Kind::String {
        return false;
    }
    let text = unescape(value);
    let Some(last) = prefix.char_indices().next_back().map(|(at, _)| at) else {
        return true;
    };
    if !text.starts_with(prefix) {
        return false;
    }
    // As in Erlang's string:prefix/2, only the prefix's last character is checked together with what follows.
    text[last..].graphemes(true).next() == Some(&prefix[last..])
}
