//! A selector's normal form.
//!
//! SUMMARY   [`parse`] makes operators explicit and pushes fields to the leaves in one step; then [`Node::positive`]
//!           and [`Node::negative`] push negations down.
//! PROMISES  The text is read once. Depth, names and memory are bounded.
//! SOURCE    The three steps of CouchDB's mango_selector, normalize/1. As there, negations inside `$elemMatch` and
//!           the like are not pushed down: a missing field satisfies a `$not`.
//! DIFFERS   Field names are checked here, not at the first document. In CouchDB a `$nor` inside `$elemMatch` is an
//!           error at the first document and so never matches; here it works.

use std::mem;

use super::condition::Condition;
use super::error::SelectorErrorKind;
use super::field::{FieldId, FieldsBuilder, segments};
use super::members::{Kind, kind_of};
use super::operand::{Operand, Order};
use super::operator::{Join, Meaning, Operator};
use super::selector::Scope;
use json::cursor::{Elements, Members};
use json::string::unescape;

/// Maximum nesting of operators and fields in a selector. (Values to compare with may be nested to any depth.)
pub(crate) const SELECTOR_DEPTH_MAX: usize = 100;

/// Maximum number of bytes of a selector's field names, each joined to the names of its enclosing fields.
const SELECTOR_NAMES_BYTES_MAX: usize = 8 << 20;

/// A part of a selector.
#[derive(Debug)]
pub(crate) enum Node {
    /// All of them; true if there are none.
    And(Vec<Node>),
    /// Any of them; true if there are none.
    Or(Vec<Node>),
    /// Negation, only where it is not pushed down.
    Not(Box<Node>),
    /// A condition on a field.
    Field(FieldId, Condition),
    /// A condition on the whole value.
    Here(Condition),
    /// `$text`: always true, because a text index has already decided.
    Text,
}

impl Node {
    /// Pushes negations to the leaves.
    ///
    /// # Errors
    /// `$text` cannot be negated.
    pub fn positive(self) -> Result<Self, SelectorErrorKind> {
        Ok(match self {
            Self::And(nodes) => Self::And(each(nodes, Self::positive)?),
            Self::Or(nodes) => Self::Or(each(nodes, Self::positive)?),
            Self::Not(node) => node.negative()?,
            leaf => leaf,
        })
    }

    fn negative(self) -> Result<Self, SelectorErrorKind> {
        Ok(match self {
            Self::And(nodes) => Self::Or(each(nodes, Self::negative)?),
            Self::Or(nodes) => Self::And(each(nodes, Self::negative)?),
            Self::Not(node) => node.positive()?,
            Self::Field(field, condition) => Self::Field(field, condition.negated()),
            Self::Here(condition) => Self::Here(condition.negated()),
            Self::Text => {
                let problem = "$text cannot be negated";
                return Err(SelectorErrorKind::bad_argument("$not", problem));
            }
        })
    }
}

fn each(
    nodes: Vec<Node>,
    change: fn(Node) -> Result<Node, SelectorErrorKind>,
) -> Result<Vec<Node>, SelectorErrorKind> {
    nodes.into_iter().map(change).collect()
}

/// The result of parsing, or the error and its byte in the text.
pub(crate) type Parsed<T> = Result<T, (usize, SelectorErrorKind)>;

/// Parses a selector.
///
/// # Errors
/// See [`SelectorErrorKind`]. `text` is already known to be JSON.
pub(crate) fn parse(text: &str) -> Parsed<Scope> {
    let mut parser = Parser {
        text,
        fields: FieldsBuilder::default(),
        names_bytes: 0,
    };
    let Scope { fields, node } = parser.scope(text, Order::Collated, 0)?;
    match node.positive() {
        Ok(Node::Here(_)) => Err((0, SelectorErrorKind::MissingFieldName)),
        Ok(node) => Ok(Scope { fields, node }),
        Err(kind) => Err((0, kind)),
    }
}

/// The parser's position in a selector.
#[derive(Clone, Copy)]
struct SelectorPlace<'p> {
    /// The names of the enclosing fields, joined by dots; empty above the first.
    name: &'p str,
    /// The field of that name.
    field: Option<FieldId>,
    /// The order in which its values are compared.
    order: Order,
    depth: usize,
}

struct Parser<'t> {
    text: &'t str,
    /// The fields of the innermost scope so far.
    fields: FieldsBuilder,
    names_bytes: usize,
}

impl<'t> Parser<'t> {
    /// Parses a selector for a separate value: the root, or the argument of `$elemMatch`.
    fn scope(&mut self, text: &'t str, order: Order, depth: usize) -> Parsed<Scope> {
        let root = SelectorPlace {
            name: "",
            field: None,
            order,
            depth,
        };
        let outer = mem::take(&mut self.fields);
        let node = self.node(text, root)?;
        let fields = mem::replace(&mut self.fields, outer).build();
        Ok(Scope { fields, node })
    }

    fn fail<T>(&self, at: &str, kind: SelectorErrorKind) -> Parsed<T> {
        let offset = (at.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        Err((offset, kind))
    }

    fn node(&mut self, text: &'t str, place: SelectorPlace<'_>) -> Parsed<Node> {
        if place.depth > SELECTOR_DEPTH_MAX {
            let kind = SelectorErrorKind::TooLarge {
                what: "is nested too deeply",
                limit: SELECTOR_DEPTH_MAX,
            };
            return self.fail(text, kind);
        }
        if kind_of(text) != Kind::Object {
            return Ok(equal(text, place));
        }
        let mut nodes = Vec::new();
        for (name, value) in Members::of(text) {
            nodes.push(self.member(name, value, place)?);
        }
        match nodes.len() {
            0 => Ok(equal(text, place)),
            1 => Ok(nodes.remove(0)),
            _ => Ok(Node::And(nodes)),
        }
    }

    /// An operator or a field.
    fn member(
        &mut self,
        quoted: &'t str,
        value: &'t str,
        place: SelectorPlace<'_>,
    ) -> Parsed<Node> {
        let name = unescape(quoted);
        if !name.starts_with('$') {
            return self.field(quoted, &name, value, place);
        }
        let Some(operator) = Operator::named(&name) else {
            return self.fail(quoted, Operator::unknown(&name));
        };
        if let Err(kind) = operator.check(value) {
            return self.fail(quoted, kind);
        }
        let below = SelectorPlace {
            depth: place.depth + 1,
            ..place
        };
        match operator.meaning {
            Meaning::Join { join, of_negated } => {
                let node = |element| -> Parsed<Node> {
                    let node = self.node(element, below)?;
                    Ok(if of_negated {
                        Node::Not(Box::new(node))
                    } else {
                        node
                    })
                };
                let nodes = Elements::of(value).map(node).collect::<Parsed<_>>()?;
                Ok(match join {
                    Join::All => Node::And(nodes),
                    Join::Any => Node::Or(nodes),
                })
            }
            Meaning::Not => Ok(Node::Not(Box::new(self.node(value, below)?))),
            Meaning::Parts(quantity) => {
                let scope = self.scope(value, place.order, below.depth)?;
                Ok(on_field(place, Condition::Some(quantity, Box::new(scope))))
            }
            Meaning::Value(condition, _) => match condition(value, place.order) {
                Ok(condition) => Ok(on_field(place, condition)),
                Err(problem) => self.fail(
                    quoted,
                    SelectorErrorKind::bad_argument(operator.name, problem),
                ),
            },
            Meaning::Text | Meaning::Default if place.name.is_empty() => Ok(Node::Text),
            Meaning::Text | Meaning::Default => self.fail(quoted, SelectorErrorKind::BadField),
        }
    }

    fn field(
        &mut self,
        quoted: &'t str,
        name: &str,
        value: &'t str,
        place: SelectorPlace<'_>,
    ) -> Parsed<Node> {
        let joined = if place.name.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", place.name)
        };
        self.names_bytes += joined.len();
        if self.names_bytes > SELECTOR_NAMES_BYTES_MAX {
            let kind = SelectorErrorKind::TooLarge {
                what: "has too many bytes of field names",
                limit: SELECTOR_NAMES_BYTES_MAX,
            };
            return self.fail(quoted, kind);
        }
        // As in CouchDB, an empty name above the first field is ignored.
        let field = match joined.as_str() {
            "" => None,
            name => match segments(name) {
                Ok(segments) => Some(self.fields.add(&segments)),
                Err(kind) => return self.fail(quoted, kind),
            },
        };
        let order = if joined == "_id" {
            Order::Raw
        } else {
            place.order
        };
        let below = SelectorPlace {
            name: &joined,
            field,
            order,
            depth: place.depth + 1,
        };
        self.node(value, below)
    }
}

/// The meaning of a bare value.
fn equal(value: &str, place: SelectorPlace<'_>) -> Node {
    on_field(place, Condition::Equal(Operand::new(value, place.order)))
}

fn on_field(place: SelectorPlace<'_>, condition: Condition) -> Node {
    match place.field {
        Some(field) => Node::Field(field, condition),
        None => Node::Here(condition),
    }
}
