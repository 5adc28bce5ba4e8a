//! What is asked of one value: the operators below which there are no fields.
//!
//! SUMMARY   [`Condition::new`] checks an operator's argument; [`Condition::holds`] asks it of a
//!           value. [`Condition::negated`] turns it around where that is another operator.
//! SOURCE    CouchDB's Mango operators, with their edge cases.

use std::cmp::Ordering;
use std::collections::HashSet;

use unicode_segmentation::UnicodeSegmentation;

use super::error::{MatchError, SelectorErrorKind};
use super::members::{Elements, Kind, Members, is_integer, kind_of, last_members};
use super::modulo::Modulo;
use super::operand::{Operand, Order};
use super::pattern::Pattern;
use super::selector::Scope;
use super::terms::exact_key;
use json::collation::{string_bytes, write_identity};

/// One operator with its argument.
#[derive(Debug)]
pub enum Condition {
    /// `$lt`, `$lte`, `$eq`, `$ne`, `$gte`, `$gt`.
    Compare(Comparison, Operand),
    /// `$in`; with `false`, `$nin`.
    In(Vec<Operand>, bool),
    /// `$all`.
    All(Everything),
    /// `$elemMatch`, `$allMatch`, `$keyMapMatch`.
    Some(Quantity, Box<Scope>),
    /// `$exists`. Whether the field is there is decided before any condition is asked.
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
    /// A negation that is no operator of its own.
    Not(Box<Self>),
}

/// How a value compares with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `$lt`
    Less,
    /// `$lte`
    LessOrEqual,
    /// `$eq`
    Equal,
    /// `$ne`
    NotEqual,
    /// `$gte`
    GreaterOrEqual,
    /// `$gt`
    Greater,
}

impl Comparison {
    fn negated(self) -> Self {
        match self {
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::GreaterOrEqual => Self::Less,
            Self::Greater => Self::LessOrEqual,
        }
    }

    fn holds(self, operand: &Operand, value: &str) -> bool {
        match self {
            Self::Equal => operand.equals(value),
            Self::NotEqual => !operand.equals(value),
            Self::Less => operand.compare(value) == Ordering::Less,
            Self::LessOrEqual => operand.compare(value) != Ordering::Greater,
            Self::GreaterOrEqual => operand.compare(value) != Ordering::Less,
            Self::Greater => operand.compare(value) == Ordering::Greater,
        }
    }
}

/// Of which parts of a value a selector has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// `$elemMatch`: some element of an array.
    SomeElement,
    /// `$allMatch`: all elements of an array, and there is one.
    AllElements,
    /// `$keyMapMatch`: some member's name.
    SomeName,
}

/// The argument of `$all`.
#[derive(Debug)]
pub struct Everything {
    /// What an array has to contain, by [`exact_key`].
    wanted: HashSet<Vec<u8>>,
    /// The one element of the argument, if that is an array, for which the field may be equal to it.
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

/// Bytes that are equal when the values are, 1 and 1.0 being one.
fn identity(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    if let Ok(value) = serde_json::from_str(&last_members(text)) {
        write_identity(value, &mut bytes);
    }
    bytes
}

impl Condition {
    /// Checks an operator and its argument. Operators with selectors in them are not known here.
    ///
    /// # Errors
    /// The argument is not the operator's, or it is no operator.
    pub fn new(operator: &str, argument: &str, order: Order) -> Result<Self, SelectorErrorKind> {
        let bad = |problem: &str| Err(SelectorErrorKind::bad_argument(operator, problem));
        let compare = |comparison| Ok(Self::Compare(comparison, Operand::new(argument, order)));
        let operands = || {
            Elements::of(argument)
                .map(|text| Operand::new(text, order))
                .collect()
        };
        let kind = kind_of(argument);
        match (operator, kind) {
            ("$eq", _) => compare(Comparison::Equal),
            ("$ne", _) => compare(Comparison::NotEqual),
            ("$lt", _) => compare(Comparison::Less),
            ("$lte", _) => compare(Comparison::LessOrEqual),
            ("$gt", _) => compare(Comparison::Greater),
            ("$gte", _) => compare(Comparison::GreaterOrEqual),
            ("$in", Kind::Array) => Ok(Self::In(operands(), true)),
            ("$nin", Kind::Array) => Ok(Self::In(operands(), false)),
            ("$all", Kind::Array) => Ok(Self::All(Everything::new(argument))),
            ("$in" | "$nin" | "$all", _) => bad("it needs an array"),
            ("$exists", Kind::False | Kind::True) => Ok(Self::Exists(kind == Kind::True)),
            ("$exists", _) => bad("it needs true or false"),
            ("$type", Kind::String) => Ok(Self::Type(string(argument))),
            ("$type", _) => bad("it needs the name of a type, a string"),
            ("$mod", _) => match Modulo::new(argument) {
                Ok(modulo) => Ok(Self::Mod(modulo)),
                Err(problem) => bad(problem),
            },
            ("$regex", Kind::String) => match Pattern::new(&string(argument)) {
                Ok(pattern) => Ok(Self::Regex(Box::new(pattern))),
                Err(problem) => bad(&problem),
            },
            ("$beginsWith", Kind::String) => Ok(Self::BeginsWith(string(argument))),
            ("$size", Kind::Number) if is_integer(argument) => match argument.parse() {
                Ok(size) => Ok(Self::Size(size)),
                Err(_) => bad("it needs a length, a whole number that is not negative"),
            },
            ("$size", _) => bad("it needs a length, a whole number that is not negative"),
            ("$where" | "$geoWithin" | "$geoIntersects" | "$near" | "$nearSphere", _) => {
                Err(SelectorErrorKind::NotSupported(operator.to_owned()))
            }
            ("$regex" | "$beginsWith", _) => Err(SelectorErrorKind::InvalidOperator(format!(
                "{operator}: it needs a string"
            ))),
            _ => Err(SelectorErrorKind::InvalidOperator(operator.to_owned())),
        }
    }

    /// Returns the opposite, asked of a value that is there.
    #[must_use]
    pub fn negated(self) -> Self {
        match self {
            Self::Compare(comparison, operand) => Self::Compare(comparison.negated(), operand),
            Self::In(operands, positive) => Self::In(operands, !positive),
            Self::Exists(exists) => Self::Exists(!exists),
            other => Self::Not(Box::new(other)),
        }
    }

    /// Whether a value is as asked.
    ///
    /// # Errors
    /// It takes too long to say.
    pub fn holds(&self, value: &str) -> Result<bool, MatchError> {
        Ok(match self {
            Self::Compare(comparison, operand) => comparison.holds(operand, value),
            Self::In(operands, positive) => is_in(operands, value) == *positive,
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

fn string(text: &str) -> String {
    String::from_utf8_lossy(&string_bytes(text.as_bytes())).into_owned()
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

/// Of how many elements it may take too long to say whether they match, before that is the answer.
const UNDECIDED_MAX: usize = 3;

/// Whether a selector holds of some value. One of which that cannot be said counts only when it
/// holds of no other.
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
    let bytes = string_bytes(value.as_bytes());
    pattern.is_match(&bytes).map_err(|_| MatchError::Pattern {
        pattern: pattern.source().to_owned(),
        bytes: bytes.len(),
    })
}

/// Whether a string begins with a prefix that does not end within what a reader takes for one
/// character, such as a letter and its accent.
fn begins_with(value: &str, prefix: &str) -> bool {
    if kind_of(value) != Kind::String {
        return false;
    }
    let bytes = string_bytes(value.as_bytes());
    let Some(last) = prefix.char_indices().next_back().map(|(at, _)| at) else {
        return true;
    };
    if !bytes.starts_with(prefix.as_bytes()) {
        return false;
    }
    // As in Erlang's string:prefix/2, only the prefix's last character is looked at with what follows.
    let rest = std::str::from_utf8(&bytes[last..]).unwrap_or_default();
    rest.graphemes(true).next() == Some(&prefix[last..])
}
