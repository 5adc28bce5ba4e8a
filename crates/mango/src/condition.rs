//! Conditions on one value: the operators that have no fields below them.
//!
//! SUMMARY   [`Condition::new`] checks an operator and its argument; [`Condition::holds`] tests a
//!           value. [`Condition::negated`] is the opposite: `$gte` is `$lt` negated.
//! SOURCE    CouchDB's Mango operators, with their edge cases.

use std::collections::HashSet;

use unicode_segmentation::UnicodeSegmentation;

use super::error::{MatchError, SelectorErrorKind};
use super::members::{Kind, kind_of, last_members};
use super::modulo::Modulo;
use super::operand::{Operand, Order};
use super::pattern::Pattern;
use super::selector::Scope;
use super::terms::exact_key;
use json::collation::write_identity;
use json::cursor::{Elements, Members};
use json::string::unescape;

/// One operator with its argument.
#[derive(Debug)]
pub(crate) enum Condition {
    /// `$eq`; negated, `$ne`.
    Equal(Operand),
    /// `$lt`; negated, `$gte`.
    Less(Operand),
    /// `$lte`; negated, `$gt`.
    LessOrEqual(Operand),
    /// `$in`; negated, `$nin`.
    In(Vec<Operand>),
    /// `$all`.
    All(Everything),
    /// `$elemMatch`, `$allMatch`, `$keyMapMatch`.
    Some(Quantity, Box<Scope>),
    /// `$exists`. Fields that are missing do not come here.
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
    /// The opposite of another one.
    Not(Box<Self>),
}

/// The parts of a value that a selector has to hold of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// `$elemMatch`: some element of an array.
    SomeElement,
    /// `$allMatch`: all elements of an array, and there is one.
    AllElements,
    /// `$keyMapMatch`: some member's name.
    SomeName,
}

/// The argument of `$all`.
#[derive(Debug)]
pub(crate) struct Everything {
    /// The elements that an array has to contain, by [`exact_key`].
    wanted: HashSet<Vec<u8>>,
    /// The only element of the argument, if that is an array: the field may also be equal to it.
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
        if self
            .whole
            .as_ref()
            .is_some_and(|whole| *whole == identity(value))
        {
            return true;
        }
        let mut missing: HashSet<&[u8]> = self.wanted.iter().map(Vec::as_slice).collect();
        for element in Elements::of(value) {
            missing.remove(exact_key(element).as_slice());
            if missing.is_empty() {
                return true;
            }
        }
        false
    }
}

/// Returns bytes that are equal when the values are; 1 and 1.0 are equal.
fn identity(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    write_identity(&last_members(text), &mut bytes);
    bytes
}

impl Condition {
    /// Checks an operator without selectors in its argument.
    ///
    /// # Errors
    /// The argument is wrong, or there is no such operator.
    pub(crate) fn new(
        operator: &str,
        argument: &str,
        order: Order,
    ) -> Result<Self, SelectorErrorKind> {
        let bad = |problem: &str| Err(SelectorErrorKind::bad_argument(operator, problem));
        let operand = || Operand::new(argument, order);
        let operands = || Elements::of(argument).map(|text| Operand::new(text, order));
        let kind = kind_of(argument);
        match (operator, kind) {
            ("$eq", _) => Ok(Self::Equal(operand())),
            ("$ne", _) => Ok(Self::Equal(operand()).negated()),
            ("$lt", _) => Ok(Self::Less(operand())),
            ("$gte", _) => Ok(Self::Less(operand()).negated()),
            ("$lte", _) => Ok(Self::LessOrEqual(operand())),
            ("$gt", _) => Ok(Self::LessOrEqual(operand()).negated()),
            ("$in", Kind::Array) => Ok(Self::In(operands().collect())),
            ("$nin", Kind::Array) => Ok(Self::In(operands().collect()).negated()),
            ("$all", Kind::Array) => Ok(Self::All(Everything::new(argument))),
            ("$in" | "$nin" | "$all", _) => bad("it needs an array"),
            ("$exists", Kind::False | Kind::True) => Ok(Self::Exists(kind == Kind::True)),
            ("$exists", _) => bad("it needs true or false"),
            ("$type", Kind::String) => Ok(Self::Type(unescape(argument).into_owned())),
            ("$type", _) => bad("it needs the name of a type, a string"),
            ("$mod", _) => match Modulo::new(argument) {
                Ok(modulo) => Ok(Self::Mod(modulo)),
                Err(problem) => bad(problem),
            },
            ("$regex", Kind::String) => match Pattern::new(&unescape(argument)) {
                Ok(pattern) => Ok(Self::Regex(Box::new(pattern))),
                Err(problem) => bad(&problem),
            },
            ("$beginsWith", Kind::String) => Ok(Self::BeginsWith(unescape(argument).into_owned())),
            ("$size", _) => match argument.parse() {
                Ok(size) => Ok(Self::Size(size)),
                Err(_) => bad("it needs a length, a whole number that is not negative"),
            },
            ("$where" | "$geoWithin" | "$geoIntersects" | "$near" | "$nearSphere", _) => {
                Err(SelectorErrorKind::NotSupported(operator.to_owned()))
            }
            ("$regex" | "$beginsWith", _) => Err(SelectorErrorKind::InvalidOperator(format!(
                "{operator}: it needs a string"
            ))),
            _ => Err(SelectorErrorKind::InvalidOperator(operator.to_owned())),
        }
    }

    /// Returns the opposite, for a field that is not missing.
    #[must_use]
    pub(crate) fn negated(self) -> Self {
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
    pub(crate) fn holds(&self, value: &str) -> Result<bool, MatchError> {
        Ok(match self {
            Self::Equal(operand) => operand.equals(value),
            Self::Less(operand) => operand.compare(value).is_lt(),
            Self::LessOrEqual(operand) => operand.compare(value).is_le(),
            Self::In(operands) => is_in(operands, value),
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

/// Whether a value is one of the operands; of an array, whether an element is.
fn is_in(operands: &[Operand], value: &str) -> bool {
    let is_one = |value: &str| operands.iter().any(|operand| operand.equals(value));
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
            let mut is_empty = true;
            for element in Elements::of(value) {
                is_empty = false;
                if !scope.matches(element)? {
                    return Ok(false);
                }
            }
            Ok(!is_empty)
        }
        _ => Ok(false),
    }
}

/// After so many elements that take too long, the answer is that error.
const UNDECIDED_MAX: usize = 3;

/// Whether a selector holds of some value. The error of one counts only if it holds of no other.
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
            pattern: pattern.source().to_owned(),
            bytes: text.len(),
        })
}

/// Whether a string begins with a prefix that does not end within what a reader takes for one
/// character, such as a letter and its accent.
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
    // As in Erlang's string:prefix/2, only the prefix's last character is looked at with what follows.
    text[last..].graphemes(true).next() == Some(&prefix[last..])
}
