//! Selectors: parsed once, matched against many documents.
//!
//! SUMMARY   [`Selector::parse`] parses one; [`Selector::matches`] matches a document.
//! PROMISES  A document is not parsed: one pass validates its text, another walks through it and skips what the
//!           selector's fields do not need. No document or selector makes it crash or hang.
//! SOURCE    CouchDB's mango_selector: normalize/1 and match/2.

use super::condition::Condition;
use super::error::{MatchError, SelectorError, SelectorErrorKind};
use super::field::{Fields, Found};
use super::members::{self, Kind, kind_of};
use super::normal::{self, Node};
use json::cursor::Members;

/// Maximum length of a selector, in bytes.
const SELECTOR_BYTES_MAX: usize = 1 << 20;

/// A selector in its normal form.
#[derive(Debug)]
pub struct Selector {
    /// `None` matches everything.
    scope: Option<Scope>,
}

impl Selector {
    /// Parses a selector from JSON text.
    ///
    /// # Errors
    /// CouchDB's name for the author's mistake, and its position.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > SELECTOR_BYTES_MAX {
            let kind = SelectorErrorKind::TooLarge {
                what: "has too many bytes",
                limit: SELECTOR_BYTES_MAX,
            };
            return Err(SelectorError::at(text, 0, kind));
        }
        let checked = members::checked(text).map_err(|error| {
            let message = error.to_string();
            let what = message.split(" at line ").next().unwrap_or_default();
            SelectorError {
                kind: SelectorErrorKind::NotJson(what.to_owned()),
                line: error.line().max(1),
                column: error.column().max(1),
            }
        })?;
        let start = text.len() - text.trim_ascii_start().len();
        if kind_of(checked) != Kind::Object {
            let kind = SelectorErrorKind::NotAnObject(kind_of(checked).name());
            return Err(SelectorError::at(text, start, kind));
        }
        let selector = members::last_members(checked);
        if Members::of(&selector).next().is_none() {
            return Ok(Self { scope: None });
        }
        let scope = normal::parse(&selector)
            .map_err(|(offset, kind)| SelectorError::at(text, start + offset, kind))?;
        Ok(Self { scope: Some(scope) })
    }

    /// Whether it is `{}`, which matches every document.
    pub fn is_empty(&self) -> bool {
        self.scope.is_none()
    }

    /// Whether a document, a JSON object, matches.
    ///
    /// # Errors
    /// The text is not a JSON object, or a regular expression exceeds its bounds.
    pub fn matches(&self, document: &str) -> Result<bool, MatchError> {
        let not_one = |problem: String| MatchError::NotADocument(problem);
        let text = members::checked(document).map_err(|error| not_one(error.to_string()))?;
        if kind_of(text) != Kind::Object {
            return Err(not_one(format!("it is {}", kind_of(text).name())));
        }
        self.matches_checked(text)
    }

    /// As [`Self::matches`], for a text known to be a JSON object.
    ///
    /// # Errors
    /// A regular expression exceeds its bounds.
    pub fn matches_checked(&self, document: &str) -> Result<bool, MatchError> {
        match &self.scope {
            None => Ok(true),
            Some(scope) => scope.matches(document.trim_ascii_start()),
        }
    }
}

/// A selector for a value: the document at the root, or an element or a key inside `$elemMatch`, `$allMatch` or
/// `$keyMapMatch`.
#[derive(Debug)]
pub(crate) struct Scope {
    pub fields: Fields,
    pub node: Node,
}

impl Scope {
    /// Whether a value, given as JSON text, matches.
    pub fn matches(&self, value: &str) -> Result<bool, MatchError> {
        is_so(&self.node, &self.fields.find(value), value)
    }
}

/// Whether a node matches a value. Recurses as deep as the selector, whose depth is bounded.
fn is_so(node: &Node, found: &[Found<'_>], here: &str) -> Result<bool, MatchError> {
    match node {
        Node::And(nodes) => {
            for node in nodes {
                if !is_so(node, found, here)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Node::Or(nodes) => {
            for node in nodes {
                if is_so(node, found, here)? {
                    return Ok(true);
                }
            }
            Ok(nodes.is_empty())
        }
        Node::Not(node) => Ok(!is_so(node, found, here)?),
        Node::Field(field, condition) => match found[*field] {
            Found::Value(value) => condition.holds(value),
            // A missing field satisfies no other condition.
            Found::Missing => Ok(matches!(condition, Condition::Exists(false))),
            Found::BadPath => Ok(false),
        },
        Node::Here(condition) => condition.holds(here),
        Node::Text => Ok(true),
    }
}
