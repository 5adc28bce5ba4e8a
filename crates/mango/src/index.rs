//! Index definitions, and the entries of documents in an index.
//!
//! SUMMARY   [`Index::parse`] reads a definition; [`Index::rows`] makes a document's row in a view,
//!           [`Index::text_entries`] and [`Index::nouveau_entries`] its entries in a text index.
//! SOURCE    CouchDB's mango_native_proc, mango_idx_view and mango_idx_text.
//! DIFFERS   A definition is validated as a whole; CouchDB reports wrong field names and filters at the first
//!           document. Definitions are accepted in stored and in posted form (`["a", {"b": "desc"}]`).

use super::error::{MatchError, SelectorError, SelectorErrorKind};
use super::field::{FieldId, Fields, FieldsBuilder, Found, segments};
use super::members::{self, Kind, kind_of};
use super::selector::Selector;
use super::text::{TextFields, TextIndex, escape_name};
use json::cursor::{Elements, Members};
use json::string::unescape;

/// Why a definition is invalid; its author's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    #[error("{0}")]
    Shape(String),
    /// The selector of the indexed documents.
    #[error("{member}: {error}")]
    Selector {
        /// The member with the selector.
        member: &'static str,
        error: SelectorError,
    },
    /// A field's name.
    #[error("fields: {0}")]
    Field(SelectorErrorKind),
}

impl IndexError {
    /// Returns CouchDB's name of the error.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Shape(_) => "invalid_index",
            Self::Selector { error, .. } => error.name(),
            Self::Field(kind) => kind.name(),
        }
    }
}

/// An index definition.
#[derive(Debug)]
pub struct Index {
    /// Selects the documents of the index.
    filter: Selector,
    /// A view's columns; `None` for a text index.
    columns: Option<Columns>,
    text: TextIndex,
}

impl Index {
    /// Reads a definition from its JSON text.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub fn parse(text: &str) -> Result<Self, IndexError> {
        let shape = |what: &str| IndexError::Shape(what.to_owned());
        let text = members::checked(text).map_err(|error| shape(&format!("not JSON: {error}")))?;
        let text = &*members::last_members(text);
        if kind_of(text) != Kind::Object {
            return Err(shape("an index definition is an object"));
        }
        let member = |name: &str| {
            let mut members = Members::of(text);
            members
                .find(|(known, _)| unescape(known) == name)
                .map(|(_, value)| value)
        };
        let (columns, fields) = match member("fields") {
            None => (None, TextFields::All),
            Some(fields) => read_fields(fields)?,
        };
        Ok(Self {
            filter: filter(member("partial_filter_selector"), member("selector"))?,
            columns,
            text: TextIndex {
                fields,
                default_field: default_field(member("default_field"))?,
                array_lengths: match member("index_array_lengths") {
                    None | Some("true") => true,
                    Some("false") => false,
                    Some(_) => return Err(shape("index_array_lengths is true or false")),
                },
            },
        })
    }

    /// Returns a document's rows as JSON text: one, or none if a field is missing, if the index excludes the document
    /// or if it is a text index.
    ///
    /// # Errors
    /// See [`MatchError`]. The caller has checked that `document` is a JSON object.
    pub fn rows(&self, document: &str) -> Result<String, MatchError> {
        let Some((fields, columns)) = &self.columns else {
            return Ok("[]".into());
        };
        if !self.has(document)? {
            return Ok("[]".into());
        }
        let found = fields.find(document);
        let mut key = String::from("[[[");
        for (index, column) in columns.iter().enumerate() {
            let Found::Value(value) = found[*column] else {
                return Ok("[]".into());
            };
            if index > 0 {
                key.push(',');
            }
            key.push_str(value);
        }
        key.push_str("],null]]");
        Ok(key)
    }

    /// Returns a document's entries in a text index, as JSON text.
    ///
    /// # Errors
    /// As [`Self::rows`].
    pub fn text_entries(&self, document: &str) -> Result<String, MatchError> {
        if !self.has(document)? {
            return Ok("[]".into());
        }
        self.text.entries(document)
    }

    /// Returns a document's entries in a Nouveau index, as JSON text.
    ///
    /// # Errors
    /// As [`Self::rows`].
    pub fn nouveau_entries(&self, document: &str) -> Result<String, MatchError> {
        if !self.has(document)? {
            return Ok("[]".into());
        }
        self.text.nouveau_entries(document)
    }

    /// Whether the index includes a document.
    fn has(&self, document: &str) -> Result<bool, MatchError> {
        Ok(!is_design(document) && self.filter.matches_checked(document)?)
    }
}

fn is_design(document: &str) -> bool {
    Members::of(document)
        .filter(|(name, _)| unescape(name) == "_id")
        .last()
        .is_some_and(|(_, id)| kind_of(id) == Kind::String && unescape(id).starts_with("_design/"))
}

/// Reads the filter; old text indexes name it `selector`.
fn filter(partial: Option<&str>, legacy: Option<&str>) -> Result<Selector, IndexError> {
    let read = |member, text: &str| {
        Selector::parse(text).map_err(|error| IndexError::Selector { member, error })
    };
    let partial = read("partial_filter_selector", partial.unwrap_or("{}"))?;
    let legacy = read("selector", legacy.unwrap_or("{}"))?;
    Ok(if partial.is_empty() { legacy } else { partial })
}

fn default_field(text: Option<&str>) -> Result<bool, IndexError> {
    let enabled = match text.unwrap_or("true") {
        text if kind_of(text) == Kind::Object => Members::of(text)
            .filter(|(name, _)| *name == "\"enabled\"")
            .last()
            .map_or("true", |(_, value)| value),
        text => text,
    };
    match enabled {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(IndexError::Shape(
            "default_field is true or false, or an object whose `enabled` is true or false".into(),
        )),
    }
}

type Columns = (Fields, Vec<FieldId>);

fn bad_fields(what: &str) -> IndexError {
    IndexError::Shape(format!("fields: {what}"))
}

/// Reads `fields` in any of its forms.
fn read_fields(text: &str) -> Result<(Option<Columns>, TextFields), IndexError> {
    match kind_of(text) {
        Kind::String if text == "\"all_fields\"" => Ok((None, TextFields::All)),
        Kind::Object => Ok((Some(columns(Members::of(text).map(Ok))?), TextFields::All)),
        Kind::Array if Elements::of(text).next().is_none() => Ok((None, TextFields::All)),
        Kind::Array => {
            let is_text =
                |element| kind_of(element) == Kind::Object && Members::of(element).count() == 2;
            if Elements::of(text).all(is_text) {
                let names = Elements::of(text).map(text_field);
                return Ok((None, TextFields::These(names.collect::<Result<_, _>>()?)));
            }
            let columns = columns(Elements::of(text).map(column))?;
            Ok((Some(columns), TextFields::All))
        }
        _ => Err(bad_fields("an object of names and directions, or an array")),
    }
}

/// Reads `"name"` or `{"name": "asc"}`.
fn column(element: &str) -> Result<(&str, &str), IndexError> {
    let mut members = Members::of(element);
    match (kind_of(element), members.next(), members.next()) {
        (Kind::String, ..) => Ok((element, "\"asc\"")),
        (Kind::Object, Some(only), None) => Ok(only),
        _ => Err(bad_fields(
            "an element is a name, {\"name\": \"asc\"} or {\"name\": \"desc\"}",
        )),
    }
}

fn columns<'a>(
    fields: impl Iterator<Item = Result<(&'a str, &'a str), IndexError>>,
) -> Result<Columns, IndexError> {
    let mut builder = FieldsBuilder::default();
    let mut ids = Vec::new();
    for field in fields {
        let (name, direction) = field?;
        if !matches!(direction, "\"asc\"" | "\"desc\"") {
            return Err(bad_fields(&format!(
                "the direction of {name} is \"asc\" or \"desc\""
            )));
        }
        let segments = segments(&unescape(name)).map_err(IndexError::Field)?;
        ids.push(builder.add(&segments));
    }
    Ok((builder.build(), ids))
}

/// Reads `{"name": NAME, "type": TYPE}` and returns the name of its entries.
fn text_field(element: &str) -> Result<String, IndexError> {
    let member = |name: &str| Members::of(element).find(|(known, _)| *known == name);
    let (Some((_, name)), Some((_, kind))) = (member("\"name\""), member("\"type\"")) else {
        return Err(bad_fields("an element has a name and a type"));
    };
    let kind = match kind {
        "\"string\"" | "\"text\"" => "string",
        "\"number\"" => "number",
        "\"boolean\"" => "boolean",
        _ => {
            return Err(bad_fields(&format!(
                "the type of {name} is string, text, number or boolean"
            )));
        }
    };
    if kind_of(name) != Kind::String {
        return Err(bad_fields("a name is a string"));
    }
    let mut segments = segments(&unescape(name)).map_err(IndexError::Field)?;
    for segment in &mut segments {
        *segment = escape_name(segment);
    }
    Ok(format!("{}_3a{kind}", segments.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(definition: &str, document: &str) -> String {
        Index::parse(definition).unwrap().rows(document).unwrap()
    }

    #[test]
    fn a_row_has_the_values_of_all_fields_unchanged() {
        let document = r#"{"_id":"x","a":1.0,"b":{"c":[1, "\u0061"]},"d":null}"#;
        for (fields, expected) in [
            (r#"{"a":"asc"}"#, "[[[1.0],null]]"),
            (
                r#"{"b.c":"desc","a":"desc"}"#,
                r#"[[[[1, "\u0061"],1.0],null]]"#,
            ),
            (r#"{"d":"asc","_id":"asc"}"#, r#"[[[null,"x"],null]]"#),
            (r#"["a",{"b.c.1":"desc"}]"#, r#"[[[1.0,"\u0061"],null]]"#),
            (r#"{"a":"asc","x":"asc"}"#, "[]"),
            (r#"{"a.x":"asc"}"#, "[]"),
            ("{}", "[[[],null]]"),
        ] {
            assert_eq!(
                rows(&format!(r#"{{"fields":{fields}}}"#), document),
                expected,
                "{fields}"
            );
        }
    }

    #[test]
    fn a_filter_selects_the_indexed_documents() {
        for (member, fits) in [
            (r#""partial_filter_selector":{"a":{"$gt":1}}"#, true),
            (r#""selector":{"a":{"$gt":1}}"#, true),
            (
                r#""partial_filter_selector":{},"selector":{"a":{"$gt":1}}"#,
                true,
            ),
            (
                r#""partial_filter_selector":{"a":1},"selector":{"a":{"$gt":1}}"#,
                false,
            ),
        ] {
            let definition = format!(r#"{{"fields":{{"a":"asc"}},{member}}}"#);
            let two = rows(&definition, r#"{"_id":"x","a":2}"#);
            assert_eq!(two == "[[[2],null]]", fits, "{member}");
            let one = rows(&definition, r#"{"_id":"x","a":1}"#);
            assert_eq!(one == "[]", fits, "{member}");
        }
    }

    #[test]
    fn design_documents_are_not_indexed() {
        let index = Index::parse(r#"{"fields":{"a":"asc"}}"#).unwrap();
        for id in ["_design/x", "_design\\/x", "\\u005fdesign/"] {
            let document = format!(r#"{{"_id":"{id}","a":1}}"#);
            assert_eq!(index.rows(&document).unwrap(), "[]");
            assert_eq!(index.text_entries(&document).unwrap(), "[]");
            assert_eq!(index.nouveau_entries(&document).unwrap(), "[]");
        }
        assert_ne!(index.rows(r#"{"_id":"_designx","a":1}"#).unwrap(), "[]");
    }

    #[test]
    fn of_members_of_one_name_the_last_counts() {
        let index = Index::parse(r#"{"fields":{"a":"asc","b":"asc","\u0061":"desc"}}"#).unwrap();
        let rows = |document| index.rows(document).unwrap();
        assert_eq!(rows(r#"{"_id":"x","a":1,"b":2,"a":3}"#), "[[[2,3],null]]");
        assert_eq!(rows(r#"{"\u005fid":"_design/x","a":1,"b":2}"#), "[]");
    }

    #[test]
    fn an_invalid_definition_is_refused_with_a_reason() {
        for (definition, words) in [
            ("[]", "is an object"),
            ("\"function(doc) {}\"", "is an object"),
            (r#"{"fields":1}"#, "fields"),
            (r#"{"fields":{"a":"up"}}"#, "direction"),
            (r#"{"fields":{"a..b":"asc"}}"#, "field name"),
            (r#"{"fields":[1]}"#, "an element is a name"),
            (r#"{"fields":[{"name":"a","type":"date"}]}"#, "type of"),
            (
                r#"{"fields":[{"name":"a","x":"date"}]}"#,
                "a name and a type",
            ),
            (
                r#"{"fields":[{"name":1,"type":"string"}]}"#,
                "a name is a string",
            ),
            (
                r#"{"fields":{"a":"asc"},"partial_filter_selector":{"$eq":1}}"#,
                "missing_field_name",
            ),
            (
                r#"{"fields":{"a":"asc"},"partial_filter_selector":"x"}"#,
                "must be a JSON object",
            ),
            (
                r#"{"selector":{"a":{"$foo":1}}}"#,
                "selector: line 1, column 7: invalid operator",
            ),
            (r#"{"index_array_lengths":1}"#, "index_array_lengths"),
            (r#"{"default_field":"yes"}"#, "default_field"),
            ("{", "not JSON"),
        ] {
            let error = Index::parse(definition).unwrap_err().to_string();
            assert!(error.contains(words), "{definition}: {error}");
        }
    }
}
