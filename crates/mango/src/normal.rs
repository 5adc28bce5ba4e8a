//! A selector's normal form.
//!
//! SUMMARY   [`parse`] makes operators explicit and pushes fields to the leaves, in one go; then
//!           [`Node::positive`] and [`Node::negative`] push negations down.
//! PROMISES  The text is read once. Depth, names and memory have bounds.
//! SOURCE    The three steps of CouchDB's mango_selector, normalize/1.
//! DIFFERS   Field names are checked here, not when a document comes. CouchDB leaves negations inside
//!           `$elemMatch` and the like where they stand, so there a field that is missing does
//!           satisfy a `$not`; so it is here. Its `$nor` is an error there when a document
//!           comes, and so never matches; here it is what it says.

use super::condition::{Condition, Quantity};
use super::error::{SelectorError, SelectorErrorKind};
use super::field::{FieldId, FieldsBuilder, Path};
use super::members::{Elements, Kind, Members, kind_of};
use super::operand::Order;
use super::selector::Scope;
use json::collation::string_bytes;

/// How deep operators and fields of a selector may be nested. (Values that it compares with may be
/// nested as deeply as they like.)
pub const SELECTOR_DEPTH_MAX: usize = 100;

/// The most bytes that the field names of a selector's conditions may have together.
pub const SELECTOR_NAMES_BYTES_MAX: usize = 8 << 20;

/// A part of a selector.
#[derive(Debug)]
pub enum Node {
    /// All of them; none is true.
    And(Vec<Node>),
    /// Any of them; none is true too.
    Or(Vec<Node>),
    /// None of them. Only where negations are not pushed down.
    Nor(Vec<Node>),
    /// Not that. Only where negations are not pushed down.
    Not(Box<Node>),
    /// A condition on a field.
    Field(FieldId, Condition),
    /// A condition on the whole value.
    Here(Condition),
    /// `$text`, which a text index has decided already.
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
            Self::Nor(nodes) => Self::And(each(nodes, Self::negative)?),
            Self::Not(node) => node.negative()?,
            leaf => leaf,
        })
    }

    fn negative(self) -> Result<Self, SelectorErrorKind> {
        Ok(match self {
            Self::And(nodes) => Self::Or(each(nodes, Self::negative)?),
            Self::Or(nodes) => Self::And(each(nodes, Self::negative)?),
            Self::Nor(nodes) => Self::Or(each(nodes, Self::positive)?),
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

/// Reads a selector.
///
/// # Errors
/// See [`SelectorErrorKind`]. `text` has been checked to be JSON.
pub fn parse(text: &str) -> Result<Scope, SelectorError> {
    let mut parser = Parser {
        text,
        names_bytes: 0,
    };
    let at_start = |kind| SelectorError::at(text, 0, kind);
    let (fields, node) = parser.scope(text, Order::Collated, 0)?;
    let node = node.positive().map_err(at_start)?;
    if matches!(node, Node::Here(_)) {
        return Err(at_start(SelectorErrorKind::MissingFieldName));
    }
    Ok(Scope::new(fields.build(), node))
}

/// Where in a selector the parser is.
#[derive(Clone, Copy)]
struct Place<'p> {
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
    names_bytes: usize,
}

impl<'t> Parser<'t> {
    /// Reads a selector on values of their own: the root, or the argument of `$elemMatch`.
    fn scope(
        &mut self,
        text: &'t str,
        order: Order,
        depth: usize,
    ) -> Result<(FieldsBuilder, Node), SelectorError> {
        let mut fields = FieldsBuilder::default();
        let root = Place {
            name: "",
            field: None,
            order,
            depth,
        };
        let node = self.node(text, root, &mut fields)?;
        Ok((fields, node))
    }

    fn fail<T>(&self, at: &str, kind: SelectorErrorKind) -> Result<T, SelectorError> {
        let offset = (at.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        Err(SelectorError::at(self.text, offset, kind))
    }

    fn node(
        &mut self,
        text: &'t str,
        place: Place<'_>,
        fields: &mut FieldsBuilder,
    ) -> Result<Node, SelectorError> {
        if place.depth > SELECTOR_DEPTH_MAX {
            let what = "is nested too deeply";
            let limit = SELECTOR_DEPTH_MAX;
            return self.fail(text, SelectorErrorKind::TooLarge { what, limit });
        }
        if kind_of(text) != Kind::Object {
            return self.leaf("$eq", text, place);
        }
        let mut nodes = Vec::new();
        for (name, value) in Members::of(text) {
            nodes.push(self.member(name, value, place, fields)?);
        }
        match nodes.len() {
            0 => self.leaf("$eq", text, place),
            1 => Ok(nodes.remove(0)),
            _ => Ok(Node::And(nodes)),
        }
    }

    /// An operator or a field.
    fn member(
        &mut self,
        quoted: &'t str,
        value: &'t str,
        place: Place<'_>,
        fields: &mut FieldsBuilder,
    ) -> Result<Node, SelectorError> {
        let name = String::from_utf8_lossy(&string_bytes(quoted.as_bytes())).into_owned();
        let below = Place {
            depth: place.depth + 1,
            ..place
        };
        let kind = kind_of(value);
        match (name.as_str(), kind) {
            ("$and", Kind::Array) => Ok(Node::And(self.nodes(value, below, fields)?)),
            ("$or", Kind::Array) => Ok(Node::Or(self.nodes(value, below, fields)?)),
            ("$nor", Kind::Array) => Ok(Node::Nor(self.nodes(value, below, fields)?)),
            ("$and" | "$or" | "$nor", _) => {
                self.bad_argument(quoted, &name, "it needs an array of selectors")
            }
            ("$not", Kind::Object) => Ok(Node::Not(Box::new(self.node(value, below, fields)?))),
            ("$elemMatch" | "$allMatch" | "$keyMapMatch", Kind::Object) => {
                let scope = self.scope(value, place.order, below.depth)?;
                let scope = Scope::new(scope.0.build(), scope.1);
                let quantity = match name.as_str() {
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
            _ => self.field(quoted, &name, value, place, fields),
        }
    }

    fn nodes(
        &mut self,
        array: &'t str,
        place: Place<'_>,
        fields: &mut FieldsBuilder,
    ) -> Result<Vec<Node>, SelectorError> {
        Elements::of(array)
            .map(|element| self.node(element, place, fields))
            .collect()
    }

    fn bad_argument<T>(&self, at: &str, operator: &str, problem: &str) -> Result<T, SelectorError> {
        self.fail(at, SelectorErrorKind::bad_argument(operator, problem))
    }

    fn operator(
        &self,
        quoted: &str,
        name: &str,
        value: &str,
        place: Place<'_>,
    ) -> Result<Node, SelectorError> {
        match Condition::new(name, value, place.order) {
            Ok(condition) => Ok(on_field(place, condition)),
            Err(kind) => self.fail(quoted, kind),
        }
    }

    fn leaf(&self, operator: &str, text: &str, place: Place<'_>) -> Result<Node, SelectorError> {
        self.operator(text, operator, text, place)
    }

    fn text_search(
        &self,
        quoted: &str,
        value: &str,
        place: Place<'_>,
    ) -> Result<Node, SelectorError> {
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

    /// `$default`: how a normalised selector has `$text`, so that it can be read again.
    fn default_field(
        &self,
        quoted: &str,
        value: &str,
        place: Place<'_>,
    ) -> Result<Node, SelectorError> {
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
        place: Place<'_>,
        fields: &mut FieldsBuilder,
    ) -> Result<Node, SelectorError> {
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
        // An empty name above the first field is passed over, as in CouchDB.
        let mut field = None;
        if !joined.is_empty() {
            let path = match Path::parse(&joined) {
                Ok(path) => path,
                Err(kind) => return self.fail(quoted, kind),
            };
            field = Some(fields.add(&path));
        }
        let order = if joined == "_id" {
            Order::Raw
        } else {
            place.order
        };
        let below = Place {
            name: &joined,
            field,
            order,
            depth: place.depth + 1,
        };
        self.node(value, below, fields)
    }
}

fn on_field(place: Place<'_>, condition: Condition) -> Node {
    match place.field {
        Some(field) => Node::Field(field, condition),
        None => Node::Here(condition),
    }
}
