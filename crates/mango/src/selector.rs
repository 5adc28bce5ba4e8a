//! Selectors: read once, asked of many documents.
//!
//! SUMMARY   [`Selector::parse`] reads one; [`Selector::matches`] asks whether a document matches.
//! PROMISES  A document is not parsed: its text is checked in one pass and walked through in
//!           another, in which everything that no field of the selector needs is skipped. No depth of
//!           a document, and no selector, crashes or hangs this.
//! SOURCE    CouchDB's mango_selector: normalize/1 and match/2.

use super::condition::Condition;
use super::error::{MatchError, SelectorError, SelectorErrorKind};
use super::field::{Fields, Found};
use super::members::{self, Kind, kind_of};
use super::normal::{self, Node};

/// The longest selector, in bytes.
pub const SELECTOR_BYTES_MAX: usize = 1 << 20;

/// A selector in its normal form.
#[derive(Debug)]
pub struct Selector {
    /// `None` matches everything.
    scope: Option<Scope>,
}

impl Selector {
    /// Reads a selector from its JSON text.
    ///
    /// # Errors
    /// What is wrong with it, under CouchDB's name, and where. The author is at fault.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > SELECTOR_BYTES_MAX {
            let (what, limit) = ("has too many bytes", SELECTOR_BYTES_MAX);
            let kind = SelectorErrorKind::TooLarge { what, limit };
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
        if kind_of(checked) != Kind::Object {
            let kind = SelectorErrorKind::NotAnObject(kind_of(checked).name());
            return Err(SelectorError::at(checked, 0, kind).after(text, checked));
        }
        let selector = members::last_members(checked);
        if members::Members::of(&selector).next().is_none() {
            return Ok(Self { scope: None });
        }
        let scope = normal::parse(&selector).map_err(|error| error.after(text, checked))?;
        Ok(Self { scope: Some(scope) })
    }

    /// Whether it is `{}`, which matches every document.
    pub fn is_empty(&self) -> bool {
        self.scope.is_none()
    }

    /// Whether a document, a JSON object, matches.
    ///
    /// # Errors
    /// The text is not a JSON object, or a regular expression takes too long on it.
    pub fn matches(&self, document: &str) -> Result<bool, MatchError> {
        let not_one = |problem: String| MatchError::NotADocument(problem);
        let text = members::checked(document).map_err(|error| not_one(error.to_string()))?;
        if kind_of(text) != Kind::Object {
            return Err(not_one(format!("it is {}", kind_of(text).name())));
        }
        self.matches_checked(text)
    }

    /// As [`Self::matches`], for a text that is known to be one JSON object.
    ///
    /// # Errors
    /// A regular expression takes too long on it.
    pub fn matches_checked(&self, document: &str) -> Result<bool, MatchError> {
        match &self.scope {
            None => Ok(true),
            Some(scope) => scope.matches(document.trim_ascii_start()),
        }
    }
}

/// A selector on a value: what the document is to the root, each element is to `$elemMatch`.
#[derive(Debug)]
pub struct Scope {
    fields: Fields,
    node: Node,
}

impl Scope {
    pub(super) fn new(fields: Fields, node: Node) -> Self {
        Self { fields, node }
    }

    /// Whether a value, as JSON text, is as asked.
    pub(super) fn matches(&self, value: &str) -> Result<bool, MatchError> {
        let found = self.fields.find(value);
        is_so(&self.node, &found, value)
    }
}

/// The recursion is as deep as the selector, whose depth has a bound.
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
        Node::Or(nodes) => Ok(nodes.is_empty() || any(nodes, found, here)?),
        Node::Nor(nodes) => Ok(!any(nodes, found, here)?),
        Node::Not(node) => Ok(!is_so(node, found, here)?),
        Node::Field(field, condition) => match found[*field] {
            Found::Value(value) => condition.holds(value),
            // Whatever else is asked of a field, it has to be there.
            Found::Missing => Ok(matches!(condition, Condition::Exists(false))),
            Found::BadPath => Ok(false),
        },
        Node::Here(condition) => condition.holds(here),
        Node::Text => Ok(true),
    }
}

fn any(nodes: &[Node], found: &[Found<'_>], here: &str) -> Result<bool, MatchError> {
    for node in nodes {
        if is_so(node, found, here)? {
            return Ok(true);
        }
    }
    Ok(false)
}
