//! The operators of Mango, one per row.
//!
//! SUMMARY   A row of [`OPERATORS`] has the operator's name, its argument, and its meaning: how it matches and how
//!           it is negated. [`super::normal`] uses the rows for matching documents, [`super::id_form`] for replication
//!           ids.
//! SOURCE    CouchDB's mango_selector: norm_ops/1, norm_negations/1 and match/3.
//! DIFFERS   An operator takes the same arguments in a selector and in an id, with three exceptions: see
//!           [`Argument::fits_id`].

use serde_json::Value;

use super::condition::{Condition, MadeCondition, Quantity};
use super::error::SelectorErrorKind;
use super::members::{Kind, kind_of};
use super::modulo::PAIR;
use super::operand::Order;
use json::cursor::Members;

use Argument as Takes;
use Negation::{As, Flipped, Wrapped};

/// The negation of a condition.
macro_rules! not {
    ($condition:ident) => {
        |argument, order| Condition::$condition(argument, order).map(Condition::negated)
    };
}

/// All operators.
pub(crate) static OPERATORS: &[Operator] = &[
    // Joins and negations of selectors for the same field.
    join("$and", Join::All, false),
    join("$or", Join::Any, false),
    // Without selectors, `$nor` is true, as is `$or`.
    join("$nor", Join::All, true),
    row("$not", Takes::Selector, Meaning::Not),
    // Selectors for parts of the value.
    parts("$elemMatch", Quantity::SomeElement),
    parts("$allMatch", Quantity::AllElements),
    parts("$keyMapMatch", Quantity::SomeName),
    // Conditions on the value, with their negations in an id.
    value("$eq", Takes::Any, Condition::equal, As("$ne")),
    value("$ne", Takes::Any, not!(equal), As("$eq")),
    value("$lt", Takes::Any, Condition::less, As("$gte")),
    value("$gte", Takes::Any, not!(less), As("$lt")),
    value("$lte", Takes::Any, Condition::not_greater, As("$gt")),
    value("$gt", Takes::Any, not!(not_greater), As("$lte")),
    value("$in", Takes::Values, Condition::one_of, As("$nin")),
    value("$nin", Takes::Values, not!(one_of), As("$in")),
    value("$all", Takes::Values, Condition::all, Wrapped),
    value("$exists", Takes::Boolean, Condition::exists, Flipped),
    value("$type", Takes::TypeName, Condition::of_type, Wrapped),
    value("$mod", Takes::TwoIntegers, Condition::modulo, Wrapped),
    value("$regex", Takes::String, Condition::regex, Wrapped),
    value("$beginsWith", Takes::String, Condition::prefix, Wrapped),
    value("$size", Takes::Length, Condition::size, Wrapped),
    // A search decided by a text index; the first becomes the second in a normal form.
    row("$text", Takes::Scalar, Meaning::Text),
    row("$default", Takes::TextSearch, Meaning::Default),
];

/// Operators of MongoDB that CouchDB does not support; its error for them differs from that for unknown operators.
const NOT_SUPPORTED: [&str; 5] = [
    "$where",
    "$geoWithin",
    "$geoIntersects",
    "$near",
    "$nearSphere",
];

/// An operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operator {
    pub name: &'static str,
    pub takes: Argument,
    pub meaning: Meaning,
}

const fn row(name: &'static str, takes: Argument, meaning: Meaning) -> Operator {
    Operator {
        name,
        takes,
        meaning,
    }
}

const fn join(name: &'static str, join: Join, of_negated: bool) -> Operator {
    row(
        name,
        Argument::Selectors,
        Meaning::Join { join, of_negated },
    )
}

const fn parts(name: &'static str, quantity: Quantity) -> Operator {
    row(name, Argument::Selector, Meaning::Parts(quantity))
}

const fn value(
    name: &'static str,
    takes: Argument,
    condition: MakeCondition,
    negation: Negation,
) -> Operator {
    row(name, takes, Meaning::Value(condition, negation))
}

/// How an operator uses its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meaning {
    /// Joins its argument's selectors, for the same field.
    Join {
        join: Join,
        /// Whether each of them is negated first.
        of_negated: bool,
    },
    /// Negates its argument, for the same field.
    Not,
    /// Applies its argument to parts of the value.
    Parts(Quantity),
    /// A condition on the value, and its negation in an id. The matcher's negation is [`Condition::negated`].
    Value(MakeCondition, Negation),
    /// `$text`.
    Text,
    /// `$default`.
    Default,
}

/// Makes a condition from the argument's text, or returns the argument's requirement.
type MakeCondition = fn(&str, Order) -> MadeCondition;

/// How many of several selectors must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// All of them.
    All,
    /// One of them.
    Any,
}

impl Join {
    /// Returns the join of negated selectors that is equivalent to this one's negation.
    pub fn negated(self) -> Self {
        match self {
            Self::All => Self::Any,
            Self::Any => Self::All,
        }
    }

    /// Returns its operator in an id.
    pub fn id_name(self) -> &'static str {
        match self {
            Self::All => "$and",
            Self::Any => "$or",
        }
    }
}

/// The negation of a condition in an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Negation {
    /// Another operator with the same argument.
    As(&'static str),
    /// The same operator with the other boolean.
    Flipped,
    /// `{"$not": {OPERATOR: ARGUMENT}}`.
    Wrapped,
}

/// The argument of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// Any value.
    Any,
    /// An array of selectors.
    Selectors,
    /// A selector that is an object.
    Selector,
    /// An array of any values.
    Values,
    /// `true` or `false`.
    Boolean,
    /// A type's name.
    TypeName,
    /// A string. With another argument CouchDB does not consider it an operator.
    String,
    /// `[divisor, remainder]`.
    TwoIntegers,
    /// The number of elements of an array.
    Length,
    /// A string, a number or a boolean.
    Scalar,
    /// `{"$text": ..}`. CouchDB considers anything else a wrong field.
    TextSearch,
}

impl Operator {
    /// Returns the row for a name starting with `$`.
    pub fn named(name: &str) -> Option<&'static Self> {
        OPERATORS.iter().find(|operator| operator.name == name)
    }

    /// Returns the error for a name that is not an operator.
    pub fn unknown(name: &str) -> SelectorErrorKind {
        let name = name.to_owned();
        if NOT_SUPPORTED.contains(&&*name) {
            SelectorErrorKind::NotSupported(name)
        } else {
            SelectorErrorKind::InvalidOperator(name)
        }
    }

    /// Checks the type of an argument's text.
    ///
    /// # Errors
    /// The type is wrong; the error has CouchDB's name.
    pub fn check(&self, argument: &str) -> Result<(), SelectorErrorKind> {
        if self.takes.fits_kind(kind_of(argument)) {
            let names = Members::of(argument).map(|(name, _)| name);
            if self.takes == Argument::TextSearch && names.ne(["\"$text\""]) {
                return Err(SelectorErrorKind::BadField);
            }
            return Ok(());
        }
        let needs = match self.takes {
            Argument::Any => "it takes any value",
            Argument::Selectors => "it needs an array of selectors",
            Argument::Selector => "it needs a selector, an object",
            Argument::Values => "it needs an array",
            Argument::Boolean => "it needs true or false",
            Argument::TypeName => "it needs the name of a type, a string",
            Argument::TwoIntegers => PAIR,
            Argument::Length => LENGTH,
            Argument::Scalar => "it needs a string, a number, true or false",
            Argument::String => {
                let problem = format!("{}: it needs a string", self.name);
                return Err(SelectorErrorKind::InvalidOperator(problem));
            }
            Argument::TextSearch => return Err(SelectorErrorKind::BadField),
        };
        Err(SelectorErrorKind::bad_argument(self.name, needs))
    }
}

/// The requirement on the argument of `$size`.
pub(crate) const LENGTH: &str = "it needs a length, a whole number that is not negative";

impl Argument {
    fn fits_kind(self, kind: Kind) -> bool {
        match self {
            Self::Any => true,
            Self::Selectors | Self::Values | Self::TwoIntegers => kind == Kind::Array,
            Self::Selector | Self::TextSearch => kind == Kind::Object,
            Self::Boolean => matches!(kind, Kind::False | Kind::True),
            Self::TypeName | Self::String => kind == Kind::String,
            Self::Length => kind == Kind::Number,
            Self::Scalar => matches!(kind, Kind::String | Kind::Number | Kind::False | Kind::True),
        }
    }

    /// Whether an id takes the argument. Selectors are stricter with numbers (no divisor of 0) and with regular
    /// expressions (which are compiled); ids are stricter with integers (64 bits). In `{"$text": ..}` an id accepts
    /// additional members.
    pub fn fits_id(self, argument: &Value) -> bool {
        let is_integer = |value: &Value| value.is_i64() || value.is_u64();
        match (self, argument) {
            (Self::TwoIntegers, Value::Array(pair)) => {
                pair.len() == 2 && pair.iter().all(is_integer)
            }
            (Self::Length, _) => argument.is_u64(),
            (Self::TextSearch, _) => argument.get("$text").is_some(),
            _ => self.fits_kind(kind_of_value(argument)),
        }
    }
}

fn kind_of_value(value: &Value) -> Kind {
    match value {
        Value::Null => Kind::Null,
        Value::Bool(false) => Kind::False,
        Value::Bool(true) => Kind::True,
        Value::Number(_) => Kind::Number,
        Value::String(_) => Kind::String,
        Value::Array(_) => Kind::Array,
        Value::Object(_) => Kind::Object,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_a_double_negation_is_the_operator() {
        for operator in OPERATORS {
            let of_name = OPERATORS.iter().filter(|other| other.name == operator.name);
            assert_eq!(of_name.count(), 1, "{}", operator.name);
            if let Meaning::Value(_, As(name)) = operator.meaning {
                let other = Operator::named(name).unwrap();
                assert!(
                    matches!(other.meaning, Meaning::Value(_, As(name)) if name == operator.name),
                    "{name}"
                );
                assert_eq!(other.takes, operator.takes, "{name}");
            }
        }
    }

    #[test]
    fn the_page_has_each_operator() {
        let page = include_str!("../../../docs/mango.md");
        let table = page.split("## Operators").nth(1).unwrap();
        let table = table.split("\n## ").next().unwrap();
        let is_written = |operator: &&Operator| !matches!(operator.meaning, Meaning::Default);
        for operator in OPERATORS.iter().filter(is_written) {
            let name = format!("`{}`", operator.name);
            assert!(table.contains(&name), "docs/mango.md has no row of {name}");
        }
    }
}
