//! Fields: their names, and finding many in one walk through a document.
//!
//! SUMMARY   [`segments`] splits a field's name at its dots; [`Fields`] is a set of fields as a tree, and
//!           [`Fields::find`] finds their values in a document.
//! PROMISES  A document is walked once for all fields of a level; other members are skipped. No recursion. Of members
//!           with the same name the last one applies, as in JavaScript.
//! SOURCE    Field names of CouchDB's Mango: `.` separates, `\.` is a literal dot, a number is an array index (from 0;
//!           a leading `+` is tolerated).

use std::collections::HashMap;

use super::error::SelectorErrorKind;
use super::members::{Kind, kind_of};
use json::cursor::{Elements, Members};
use json::string::unescape;

/// Maximum number of segments of a field's name. For each segment, part of the document is walked once more.
const FIELD_SEGMENTS_MAX: usize = 64;

/// Splits a field's name at dots without a preceding backslash.
///
/// # Errors
/// A segment is empty, or there are more than [`FIELD_SEGMENTS_MAX`].
pub(crate) fn segments(name: &str) -> Result<Vec<String>, SelectorErrorKind> {
    let mut segments = Vec::new();
    let mut start = 0;
    let points = memchr::memchr_iter(b'.', name.as_bytes());
    let separates = |at: &usize| *at == 0 || name.as_bytes()[at - 1] != b'\\';
    for end in points.filter(separates).chain([name.len()]) {
        let segment = &name[start..end];
        if segment.is_empty() {
            return Err(SelectorErrorKind::InvalidFieldName(name.to_owned()));
        }
        if segments.len() == FIELD_SEGMENTS_MAX {
            return Err(SelectorErrorKind::TooLarge {
                what: "has a field name of too many segments",
                limit: FIELD_SEGMENTS_MAX,
            });
        }
        segments.push(segment.replace('\\', ""));
        start = end + 1;
    }
    Ok(segments)
}

/// The value of a field in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// This value.
    Value(&'a str),
    /// Nothing: an object on the path has no such member.
    Missing,
    /// Nothing: the path leads through a scalar, or past the end of an array.
    BadPath,
}

/// A field in a set.
pub(crate) type FieldId = usize;

/// A set of fields, as a tree of segments. The root, 0, is the document itself.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// Segment -> field, sorted by the segment's bytes.
    by_name: Vec<(Box<str>, FieldId)>,
    /// Index -> field, for the segments that are numbers.
    by_index: Vec<(usize, FieldId)>,
}

/// Builds a set of fields.
#[derive(Default)]
pub(crate) struct FieldsBuilder {
    ids: HashMap<(FieldId, Box<str>), FieldId>,
}

impl FieldsBuilder {
    /// Adds a field, and returns its id in the set.
    pub fn add(&mut self, segments: &[String]) -> FieldId {
        let mut at = 0;
        for segment in segments {
            let next = self.ids.len() + 1;
            let key = (at, Box::from(segment.as_str()));
            at = *self.ids.entry(key).or_insert(next);
        }
        at
    }

    /// Returns the set.
    pub fn build(self) -> Fields {
        let mut nodes = vec![Node::default(); self.ids.len() + 1];
        for ((parent, segment), id) in self.ids {
            let parent = &mut nodes[parent];
            parent
                .by_index
                .extend(index(&segment).map(|index| (index, id)));
            parent.by_name.push((segment, id));
        }
        for node in &mut nodes {
            node.by_name.sort_unstable();
            node.by_index.sort_unstable();
        }
        Fields { nodes }
    }
}

impl Fields {
    /// Finds all fields of the set in a document. The result is indexed by [`FieldId`].
    pub fn find<'a>(&self, document: &'a str) -> Vec<Found<'a>> {
        let mut found = vec![Found::Missing; self.nodes.len()];
        found[0] = Found::Value(document);
        // A field's id is greater than its parent's, so the parent is found first.
        for id in 0..self.nodes.len() {
            let node = &self.nodes[id];
            if !node.by_name.is_empty() {
                node.find(found[id], &mut found);
            }
        }
        found
    }
}

impl Node {
    fn find<'a>(&self, here: Found<'a>, found: &mut [Found<'a>]) {
        match here {
            Found::Missing => {}
            Found::BadPath => self.set_bad(found),
            Found::Value(text) if kind_of(text) == Kind::Object => self.find_members(text, found),
            Found::Value(text) => {
                self.set_bad(found);
                // Only an array has elements.
                self.find_elements(text, found);
            }
        }
    }

    fn set_bad(&self, found: &mut [Found<'_>]) {
        for (_, id) in &self.by_name {
            found[*id] = Found::BadPath;
        }
    }

    fn find_members<'a>(&self, object: &'a str, found: &mut [Found<'a>]) {
        for (name, value) in Members::of(object) {
            let name = unescape(name);
            let place = |(known, _): &(Box<str>, FieldId)| (**known).cmp(&*name);
            if let Ok(place) = self.by_name.binary_search_by(place) {
                found[self.by_name[place].1] = Found::Value(value);
            }
        }
    }

    fn find_elements<'a>(&self, array: &'a str, found: &mut [Found<'a>]) {
        let mut wanted = self.by_index.iter().peekable();
        for (index, element) in Elements::of(array).enumerate() {
            while let Some((_, id)) = wanted.next_if(|(wanted, _)| *wanted == index) {
                found[*id] = Found::Value(element);
            }
            if wanted.peek().is_none() {
                return;
            }
        }
    }
}

/// Returns a segment as an array index, from 0; `None` if it is not one.
fn index(segment: &str) -> Option<usize> {
    let digits = segment.strip_prefix(['+', '-']).unwrap_or(segment);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let index = digits.parse().ok()?;
    // -0 is 0.
    (index == 0 || !segment.starts_with('-')).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(field: &str, document: &'a str) -> Found<'a> {
        let mut builder = FieldsBuilder::default();
        let id = builder.add(&segments(field).unwrap());
        builder.build().find(document)[id]
    }

    #[test]
    fn a_name_is_split_at_dots_without_a_backslash() {
        for (name, expected) in [
            ("ab", &["ab"][..]),
            ("a.b.c", &["a", "b", "c"]),
            (r"a\.b", &["a.b"]),
            (r"a.b\.c", &["a", "b.c"]),
            (r"\$or", &["$or"]),
            (r"a\\.b", &["a.b"]),
        ] {
            assert_eq!(segments(name).unwrap(), expected, "{name}");
        }
        for name in ["", ".", "a.", ".a", "a..b", r"a\.b..c"] {
            let error = segments(name).unwrap_err();
            assert_eq!(error.name(), "invalid_field_name", "{name}");
        }
        assert!(segments(&"a.".repeat(65)).is_err());
    }

    #[test]
    fn a_number_is_an_index_of_an_array_and_a_name_in_an_object() {
        let document = r#"{"a":[10,{"b":11},[12]],"o":{"0":13}}"#;
        for (field, expected) in [
            ("a.0", Found::Value("10")),
            ("a.+0", Found::Value("10")),
            ("a.-0", Found::Value("10")),
            ("a.00", Found::Value("10")),
            ("a.1.b", Found::Value("11")),
            ("a.2.0", Found::Value("12")),
            ("a.3", Found::BadPath),
            ("a.-1", Found::BadPath),
            ("a.x", Found::BadPath),
            ("a.99999999999999999999999", Found::BadPath),
            ("o.0", Found::Value("13")),
            ("o.+0", Found::Missing),
            ("a.0.x", Found::BadPath),
            ("a.1.x", Found::Missing),
            ("x.y.z", Found::Missing),
        ] {
            assert_eq!(find(field, document), expected, "{field}");
        }
    }

    #[test]
    fn all_fields_are_found_at_once_and_of_equal_names_the_last_applies() {
        let mut builder = FieldsBuilder::default();
        let names = ["a", "a.b", "a.c", "\u{e9}"];
        let ids = names.map(|name| builder.add(&segments(name).unwrap()));
        assert_eq!(ids[0], builder.add(&segments("a").unwrap()));
        let fields = builder.build();
        let found = fields.find(r#"{"a":{"b":1,"c":2},"\u00e9":3,"\u0061":{"b":4}}"#);
        let found = ids.map(|id| found[id]);
        let expected = [
            Found::Value(r#"{"b":4}"#),
            Found::Value("4"),
            Found::Missing,
            Found::Value("3"),
        ];
        assert_eq!(found, expected);
    }
}
