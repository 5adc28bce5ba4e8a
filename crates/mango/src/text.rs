//! Text entries: every scalar of a document under an escaped name, for a full-text index.
//!
//! SUMMARY   [`TextIndex`] makes the entries of a document, for the old text search and for Nouveau.
//! PROMISES  A document is walked once, without recursion; the size of its entries is bounded.
//! SOURCE    CouchDB's mango_native_proc: names, types and the order of entries.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;

use super::error::MatchError;
use json::cursor::{Cursor, Token};
use json::string::unescape;

/// Maximum total length of the names and values in a document's entries, in bytes.
const TEXT_ENTRIES_BYTES_MAX: usize = 64 << 20;

/// The field with the names of all other fields.
const FIELD_NAMES: &str = "$fieldnames";
/// The default field, with all strings.
const DEFAULT: &str = "$default";

/// The fields of a text index.
#[derive(Clone, Debug)]
pub(crate) enum TextFields {
    /// All fields.
    All,
    /// The fields with these escaped names, which include the types.
    These(HashSet<String>),
}

/// The definition of a text index.
#[derive(Clone, Debug)]
pub(crate) struct TextIndex {
    /// Its fields.
    pub fields: TextFields,
    /// Whether all strings are also in the default field.
    pub default_field: bool,
    /// Whether arrays have entries for their lengths.
    pub array_lengths: bool,
}

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryType {
    String,
    Number,
    Boolean,
    Null,
    Length,
}

impl EntryType {
    fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Null => "null",
            Self::Length => "length",
        }
    }
}

/// One entry: its value is JSON text.
struct TextEntry {
    name: String,
    kind: EntryType,
    value: String,
}

impl TextIndex {
    /// Returns the entries as `[[NAME, VALUE, []], ..]`.
    ///
    /// # Errors
    /// The document has too many entries.
    pub fn entries(&self, document: &str) -> Result<String, MatchError> {
        let write = |out: &mut String, name: &str, _: EntryType, value: &str| {
            let _ = write!(out, "[\"{name}\",{value},[]]");
        };
        self.write(document, write)
    }

    /// Returns the entries as `[{"@type": TYPE, "name": NAME, "value": VALUE}, ..]`.
    ///
    /// # Errors
    /// The document has too many entries.
    pub fn nouveau_entries(&self, document: &str) -> Result<String, MatchError> {
        let write = |out: &mut String, name: &str, kind: EntryType, value: &str| {
            let as_text = matches!(kind, EntryType::Boolean | EntryType::Null);
            let quote = if as_text { "\"" } else { "" };
            let kind = match kind {
                EntryType::Number | EntryType::Length => "double",
                _ if name == DEFAULT => "text",
                _ => "string",
            };
            let _ = write!(
                out,
                r#"{{"@type":"{kind}","name":"{name}","value":{quote}{value}{quote}}}"#
            );
        };
        self.write(document, write)
    }

    /// Returns the array of entries in CouchDB's order: names, the default field, the others from last to first.
    fn write(
        &self,
        document: &str,
        write: impl Fn(&mut String, &str, EntryType, &str),
    ) -> Result<String, MatchError> {
        let entries = self.collect(document)?;
        let strings = || {
            entries
                .iter()
                .filter(|entry| entry.kind == EntryType::String)
        };
        let has_default = self.default_field && strings().next().is_some();
        let names: BTreeSet<&str> = entries
            .iter()
            .map(|entry| entry.name.as_str())
            .chain(has_default.then_some(DEFAULT))
            .collect();
        let mut out = String::from("[");
        let mut one = |name: &str, kind, value: &str| {
            if out.len() > 1 {
                out.push(',');
            }
            write(&mut out, name, kind, value);
        };
        for name in names {
            one(FIELD_NAMES, EntryType::String, &format!("\"{name}\""));
        }
        if has_default {
            for entry in strings() {
                one(DEFAULT, entry.kind, &entry.value);
            }
        }
        for entry in entries.iter().rev() {
            one(&entry.name, entry.kind, &entry.value);
        }
        out.push(']');
        Ok(out)
    }

    fn collect(&self, document: &str) -> Result<Vec<TextEntry>, MatchError> {
        let longest_name = match &self.fields {
            TextFields::All => None,
            TextFields::These(names) => names.iter().map(String::len).max(),
        };
        let mut walk = EntryWalk {
            index: self,
            prefix_max: longest_name.unwrap_or(usize::MAX),
            prefix: String::new(),
            open: Vec::new(),
            entries: Vec::new(),
            bytes: 0,
        };
        // The document is valid: the walk does not end early.
        let _ = Cursor::of_valid(document.as_bytes()).walk(|token| match token {
            Token::Object => {
                walk.count();
                walk.open.push(OpenPart {
                    prefix_bytes: walk.prefix.len(),
                    elements: None,
                });
            }
            Token::Array => walk.open_array(),
            Token::End => walk.close(),
            Token::Name(place) => walk.name(&document[place]),
            Token::String(place) => walk.scalar(EntryType::String, &document[place]),
            Token::Number(place) => walk.scalar(EntryType::Number, &document[place]),
            Token::Null => walk.scalar(EntryType::Null, "true"),
            Token::False => walk.scalar(EntryType::Boolean, "false"),
            Token::True => walk.scalar(EntryType::Boolean, "true"),
        });
        let limit = TEXT_ENTRIES_BYTES_MAX;
        if walk.bytes > limit {
            return Err(MatchError::TooManyEntries { limit });
        }
        let mut entries = walk.entries;
        entries.retain(|entry| entry.kind != EntryType::Length || self.array_lengths);
        Ok(entries)
    }

    fn has(&self, name: &str) -> bool {
        match &self.fields {
            TextFields::All => true,
            TextFields::These(names) => names.contains(name),
        }
    }
}

/// An open object or array.
struct OpenPart {
    /// The length of the escaped path to it.
    prefix_bytes: usize,
    /// For an array: the number of elements so far, and the index of its length among the entries.
    elements: Option<(usize, usize)>,
}

/// A walk through a document.
struct EntryWalk<'i> {
    index: &'i TextIndex,
    /// No longer path is indexed, in bytes.
    prefix_max: usize,
    /// The escaped path to the current position.
    prefix: String,
    open: Vec<OpenPart>,
    entries: Vec<TextEntry>,
    /// The total length of the names and values so far.
    bytes: usize,
}

impl EntryWalk<'_> {
    /// Counts another element, if this is inside an array.
    fn count(&mut self) {
        if let Some(OpenPart {
            elements: Some((count, _)),
            ..
        }) = self.open.last_mut()
        {
            *count += 1;
        }
    }

    fn open_array(&mut self) {
        self.count();
        let prefix_bytes = self.prefix.len();
        self.segment("[]", true);
        let place = self.entries.len();
        // The length is filled in at the end.
        self.push(EntryType::Length, "0");
        self.open.push(OpenPart {
            prefix_bytes,
            elements: Some((0, place)),
        });
    }

    fn close(&mut self) {
        let Some(open) = self.open.pop() else {
            return;
        };
        self.prefix.truncate(open.prefix_bytes);
        if let Some((count, place)) = open.elements
            && let Some(entry) = self.entries.get_mut(place)
        {
            entry.value = count.to_string();
        }
    }

    fn name(&mut self, quoted: &str) {
        let prefix_bytes = self.open.last().map_or(0, |open| open.prefix_bytes);
        self.prefix.truncate(prefix_bytes);
        self.segment(&unescape(quoted), self.open.len() > 1);
    }

    fn segment(&mut self, name: &str, follows: bool) {
        if follows {
            self.prefix.push('.');
        }
        self.prefix.push_str(&escape_name(name));
    }

    fn scalar(&mut self, kind: EntryType, value: &str) {
        self.count();
        self.push(kind, value);
    }

    /// Adds an entry if its field is indexed, unless the entries are already too long.
    fn push(&mut self, kind: EntryType, value: &str) {
        // The deeper the document, the longer the names.
        let is_too_long = kind != EntryType::Length && self.prefix.len() > self.prefix_max;
        if self.bytes > TEXT_ENTRIES_BYTES_MAX || is_too_long {
            return;
        }
        let name = format!("{}_3a{}", self.prefix, kind.name());
        if kind != EntryType::Length && !self.index.has(&name) {
            return;
        }
        self.bytes += name.len() + value.len();
        let value = value.to_owned();
        self.entries.push(TextEntry { name, kind, value });
    }
}

/// Returns a name with every byte except ASCII letters and digits as `_` and two hexadecimal digits.
pub(super) fn escape_name(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "_{byte:02x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::index::Index;

    fn entries(definition: &str, document: &Value) -> Value {
        let index = Index::parse(definition).unwrap();
        serde_json::from_str(&index.text_entries(&document.to_string()).unwrap()).unwrap()
    }

    #[test]
    fn every_scalar_has_an_entry_under_its_escaped_name() {
        let document = json!({"_id": "d", "é": {"a b": 1.5}, "t": true, "n": null});
        let expected = json!([
            ["$fieldnames", "$default", []],
            ["$fieldnames", "_5fid_3astring", []],
            ["$fieldnames", "_c3_a9.a_20b_3anumber", []],
            ["$fieldnames", "n_3anull", []],
            ["$fieldnames", "t_3aboolean", []],
            ["$default", "d", []],
            ["n_3anull", true, []],
            ["t_3aboolean", true, []],
            ["_c3_a9.a_20b_3anumber", 1.5, []],
            ["_5fid_3astring", "d", []],
        ]);
        assert_eq!(entries("{}", &document), expected);
    }

    #[test]
    fn arrays_have_brackets_in_their_names_and_entries_for_their_lengths() {
        let document = json!({"l": ["x", ["y"], {"k": 1}, []]});
        let expected = json!([
            ["$fieldnames", "l._5b_5d._5b_5d_3alength", []],
            ["$fieldnames", "l._5b_5d._5b_5d_3astring", []],
            ["$fieldnames", "l._5b_5d.k_3anumber", []],
            ["$fieldnames", "l._5b_5d_3alength", []],
            ["$fieldnames", "l._5b_5d_3astring", []],
            ["l._5b_5d._5b_5d_3alength", 0, []],
            ["l._5b_5d.k_3anumber", 1, []],
            ["l._5b_5d._5b_5d_3astring", "y", []],
            ["l._5b_5d._5b_5d_3alength", 1, []],
            ["l._5b_5d_3astring", "x", []],
            ["l._5b_5d_3alength", 4, []],
        ]);
        let definition = r#"{"default_field":{"enabled":false,"analyzer":"standard"}}"#;
        assert_eq!(entries(definition, &document), expected);
        let without = r#"{"default_field":false,"index_array_lengths":false}"#;
        let without = entries(without, &document).to_string();
        assert!(!without.contains("length"), "{without}");
    }

    #[test]
    fn only_named_fields_and_array_lengths_have_entries() {
        let document = json!({"_id": "d", "a": {"b": "x"}, "n": "5", "l": [1]});
        let definition = r#"{"fields":[{"name":"a.b","type":"string"},{"type":"number","name":"n"},
                             {"name":"l.[]","type":"number"}]}"#;
        let expected = json!([
            ["$fieldnames", "$default", []],
            ["$fieldnames", "a.b_3astring", []],
            ["$fieldnames", "l._5b_5d_3alength", []],
            ["$fieldnames", "l._5b_5d_3anumber", []],
            ["$default", "x", []],
            ["l._5b_5d_3anumber", 1, []],
            ["l._5b_5d_3alength", 1, []],
            ["a.b_3astring", "x", []],
        ]);
        assert_eq!(entries(definition, &document), expected);
    }

    #[test]
    fn values_too_deep_for_any_named_field_cost_little() {
        let index = Index::parse(r#"{"fields":[{"name":"z","type":"number"}]}"#).unwrap();
        let open = r#"{"a long name":"#.repeat(100_000);
        let document = format!("{open}1{}", r#","b":1}"#.repeat(100_000));
        assert_eq!(index.text_entries(&document).as_deref(), Ok("[]"));
    }

    #[test]
    fn a_nouveau_index_has_objects_with_types() {
        let document = json!({"s": "x", "n": 1, "b": false, "z": null, "l": []});
        let index = Index::parse("{}").unwrap();
        let text = index.nouveau_entries(&document.to_string()).unwrap();
        let got: Vec<Value> = serde_json::from_str(&text).unwrap();
        let entry = |kind, name, value: Value| json!({"@type": kind, "name": name, "value": value});
        for expected in [
            entry("string", "$fieldnames", json!("s_3astring")),
            entry("string", "$fieldnames", json!("$default")),
            entry("text", "$default", json!("x")),
            entry("string", "s_3astring", json!("x")),
            entry("double", "n_3anumber", json!(1)),
            entry("string", "b_3aboolean", json!("false")),
            entry("string", "z_3anull", json!("true")),
            entry("double", "l._5b_5d_3alength", json!(0)),
        ] {
            assert!(got.contains(&expected), "{expected} in {text}");
        }
        assert_eq!(got.len(), 6 + 1 + 5);
    }

    #[test]
    fn deep_documents_are_walked_and_too_many_entries_are_refused() {
        let index = Index::parse(r#"{"default_field":false}"#).unwrap();
        let deep = |open: &str, close: &str, depth: usize| {
            format!(r#"{{"a":{}1{}}}"#, open.repeat(depth), close.repeat(depth))
        };
        let error = index.text_entries(&deep("[", "]", 100_000)).unwrap_err();
        assert_eq!(error.name(), "too_large");
        let objects = index.text_entries(&deep(r#"{"a":"#, "}", 100_000)).unwrap();
        assert!(objects.len() > 200_000);
    }
}
