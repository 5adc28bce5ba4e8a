//! A selector's normal form.
//!
//! SUMMARY   [`parse`] makes operators explicit and pushes fields to the leaves in one step; then
//!           [`Node::positive`] and [`Node::negative`] push negations down.
//! PROMISES  The text is read once. Depth, names and memory have bounds.
//! SOURCE    The three steps of CouchDB's mango_selector, normalize/1. As there, negations inside
//!           `$elemMatch` and the like are not pushed down: a missing field satisfies a `$not`.
//! DIFFERS   Field names are checked here, not at the first document. In CouchDB a `$nor` inside
//!           `$elemMatch` is an error at the first document and so never matches; here it works.

use std::mem;

use super::condition::{Condition, Quantity};
use super::error::SelectorErrorKind;
use super::field::{FieldId, Fields, FieldsBuilder, segments};
use super::members::{Kind, kind_of};
use super::operand::Order;
use super::selector::Scope;
use json::cursor::{Elements, Members};
use json::string::unescape;

/// How deep operators and fields of a selector may be nested. (Values that it compares with may be
/// nested as deeply as they like.)
pub const SELECTOR_DEPTH_MAX: usize = 100;

/// The most bytes that the field names of a selector's conditions may have together.
pub const SELECTOR_NAMES_BYTES_MAX: usize = 8 << 20;

/// A part of a selector.
#[derive(Debug)]
pub(crate) enum Node {
    /// All of them; true if there are none.
    And(Vec<Node>),
    /// Any of them; true if there are none.
    Or(Vec<Node>),
    /// Not that. Only where negations are not pushed down.
    Not(Box<Node>),
    /// A condition on a field.
    Field(FieldId, Condition),
    /// A condition on the whole value.
    Here(Condition),
    /// `$text`: always true, because a text index has decided it.
    Text,
}

impl Node {
    /// Pushes negations to the leaves.
    ///
    /// # Errors
    /// `$text` cannot be negated.
    pub(crate) fn positive(self) -> Result<Self, SelectorErrorKind> {
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

/// What was read, or what is wrong and at which byte of the text.
pub(crate) type Parsed<T> = Result<T, (usize, SelectorErrorKind)>;

/// Reads a selector.
///
/// # Errors
/// See [`SelectorErrorKind`]. `text` has been checked to be JSON.
pub(crate) fn parse(text: &str) -> Parsed<Scope> {
    let mut parser = Parser {
        text,
        fields: FieldsBuilder::default(),
        names_bytes: 0,
    };
    let (fields, node) = parser.scope(text, Order::Collated, 0)?;
    let node = node.positive().map_err(|kind| (0, kind))?;
    if matches!(node, Node::Here(_)) {
        return Err((0, SelectorErrorKind::MissingFieldName));
    }
    Ok(Scope::new(fields, node))
}

/// The place of the parser in a selector.
#[derive(Clone, Copy)]
struct SelectorPlace<'p> {
    /// The names of the fields it is in, joined by points; empty above the first.
    name: &'p str,
    /// The field of that name.
    field: Option<FieldId>,
    /// How its values are compared.
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
    /// Reads a selector on values of their own: the root, or the argument of `$elemMatch`.
    fn scope(&mut self, text: &'t str, order: Order, depth: usize) -> Parsed<(Fields, Node)> {
        let root = SelectorPlace {
            name: "",
            field: None,
            order,
            depth,
        };
        let outer = mem::take(&mut self.fields);
        let node = self.node(text, root)?;
        let fields = mem::replace(&mut self.fields, outer);
        Ok((fields.build(), node))
    }

    fn fail<T>(&self, at: &str, kind: SelectorErrorKind) -> Parsed<T> {
        let offset = (at.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        Err((offset, kind))
    }

    fn node(&mut self, text: &'t str, place: SelectorPlace<'_>) -> Parsed<Node> {
        if place.depth > SELECTOR_DEPTH_MAX {
            let what = "is nested too deeply";
            let limit = SELECTOR_DEPTH_MAX;
            return self.fail(text, SelectorErrorKind::TooLarge { what, limit });
        }
        if kind_of(text) != Kind::Object {
            return self.operator(text, "$eq", text, place);
        }
        let mut nodes = Vec::new();
        for (name, value) in Members::of(text) {
            nodes.push(self.member(name, value, place)?);
        }
        match nodes.len() {
            0 => self.operator(text, "$eq", text, place),
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
        let below = SelectorPlace {
            depth: place.depth + 1,
            ..place
        };
        let kind = kind_of(value);
        match (&*name, kind) {
            ("$and", Kind::Array) => Ok(Node::And(self.nodes(value, below)?)),
            ("$or", Kind::Array) => Ok(Node::Or(self.nodes(value, below)?)),
            // Of no selectors, `$or` is true and so is this.
            ("$nor", Kind::Array) => {
                let nodes = self.nodes(value, below)?;
                let negated = nodes.into_iter().map(|node| Node::Not(Box::new(node)));
                Ok(Node::And(negated.collect()))
            }
            ("$and" | "$or" | "$nor", _) => {
                self.bad_argument(quoted, &name, "it needs an array of selectors")
            }
            ("$not", Kind::Object) => Ok(Node::Not(Box::new(self.node(value, below)?))),
            ("$elemMatch" | "$allMatch" | "$keyMapMatch", Kind::Object) => {
                let (fields, node) = self.scope(value, place.order, below.depth)?;
                let scope = Scope::new(fields, node);
                let quantity = match &*name {
                    "$elemMatch" => Quantity::SomeElement,
                    "$allMatch" => Quantity::AllElements,
                    _ => Quantity::SomeName,
                };
                Ok(on_field(place, Condition::Some(quantity, Box::new(scope))))
            }
            ("$not" | "$elemMatch" | "$allMatch" | "$keyMapMatch", _) => {
                self.bad_argument(quoted, &name, "it needs a selector, an object")
            }
            ("$text", _) => self.text_search(quoted, value, place),
            ("$default", _) => self.default_field(quoted, value, place),
            _ if name.starts_with('$') => self.operator(quoted, &name, value, place),
            _ => self.field(quoted, &name, value, place),
        }
    }

    fn nodes(&mut self, array: &'t str, place: SelectorPlace<'_>) -> Parsed<Vec<Node>> {
        Elements::of(array)
            .map(|element| self.node(element, place))
            .collect()
    }

    fn bad_argument<T>(&self, at: &str, operator: &str, problem: &str) -> Parsed<T> {
        self.fail(at, SelectorErrorKind::bad_argument(operator, problem))
    }

    fn operator(
        &self,
        quoted: &str,
        name: &str,
        value: &str,
        place: SelectorPlace<'_>,
    ) -> Parsed<Node> {
        match Condition::new(name, value, place.order) {
            Ok(condition) => Ok(on_field(place, condition)),
            Err(kind) => self.fail(quoted, kind),
        }
    }

    fn text_search(&self, quoted: &str, value: &str, place: SelectorPlace<'_>) -> Parsed<Node> {
        let is_searched = matches!(
            kind_of(value),
            Kind::String | Kind::Number | Kind::False | Kind::True
        );
        if !is_searched {
            let problem = "it needs a string, a number, true or false";
            return self.bad_argument(quoted, "$text", problem);
        }
        if place.name.is_empty() {
            Ok(Node::Text)
        } else {
            self.fail(quoted, SelectorErrorKind::BadField)
        }
    }

    /// `$default`: the form of `$text` in a normalised selector.
    fn default_field(&self, quoted: &str, value: &str, place: SelectorPlace<'_>) -> Parsed<Node> {
        let is_text = kind_of(value) == Kind::Object
            && Members::of(value).map(|(name, _)| name).eq(["\"$text\""]);
        if is_text && place.name.is_empty() {
            Ok(Node::Text)
        } else {
            self.fail(quoted, SelectorErrorKind::BadField)
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
            let what = "has too many bytes of field names";
            let limit = SELECTOR_NAMES_BYTES_MAX;
            return self.fail(quoted, SelectorErrorKind::TooLarge { what, limit });
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

fn on_field(place: SelectorPlace<'_>, condition: Condition) -> Node {
    match place.field {
        Some(field) => Node::Field(field, condition),
        None => Node::Here(condition),
    }
}
