//! A design document as the pool sees it: identity, language, and the text that is taught.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::policy::pool::DdocKey;
use crate::query_server::language::LanguageName;

/// A design document, checked.
#[derive(Clone, Debug)]
pub struct Ddoc {
    /// Its id and revision.
    pub key: DdocKey,
    /// Its `language`, `javascript` when it has none.
    pub language: LanguageName,
    /// The document as it is taught: `_id`, `_rev` and body, without `_revisions`.
    pub json: Box<RawValue>,
}

/// The document cannot be one. The caller's fault; not worth a retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDdoc {
    /// It is no JSON object.
    #[error("the design document must be a JSON object")]
    NotAnObject,
    /// A member that must be a string is missing, empty or something else.
    #[error("the design document needs a string as '{0}'")]
    Member(&'static str),
}

/// The language of a design document that names none.
pub const DEFAULT_LANGUAGE: &str = "javascript";

/// Members that belong to the database and not to the document that a query server is taught.
const NOT_TAUGHT: [&str; 2] = ["_revisions", "_revs_info"];

impl Ddoc {
    /// Checks a design document.
    ///
    /// # Errors
    /// [`BadDdoc`] names the first thing that is wrong.
    ///
    /// # Source
    /// couch_query_servers, get_ddoc_process/2; couch_proc_manager, get_proc/3.
    pub fn parse(json: &str) -> Result<Self, BadDdoc> {
        let members: Members = serde_json::from_str(json).map_err(|_| BadDdoc::NotAnObject)?;
        let key = DdocKey {
            id: Arc::from(text(members.id.as_ref(), "_id")?),
            rev: Arc::from(text(members.rev.as_ref(), "_rev")?),
        };
        let language = match members.language {
            None => LanguageName::new(DEFAULT_LANGUAGE),
            Some(language) => LanguageName::new(text(Some(&language), "language")?),
        };
        let json = taught_text(
            json,
            members.revisions.is_some() || members.revs_info.is_some(),
        )
        .ok_or(BadDdoc::NotAnObject)?;
        Ok(Self {
            key,
            language,
            json,
        })
    }
}

/// The members that matter here; the rest is skipped without being built.
#[derive(serde::Deserialize)]
struct Members {
    #[serde(rename = "_id")]
    id: Option<Value>,
    #[serde(rename = "_rev")]
    rev: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    language: Option<Value>,
    #[serde(rename = "_revisions")]
    revisions: Option<serde::de::IgnoredAny>,
    #[serde(rename = "_revs_info")]
    revs_info: Option<serde::de::IgnoredAny>,
}

/// A member that is there, also as `null`.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    serde::Deserialize::deserialize(from).map(Some)
}

fn text<'a>(value: Option<&'a Value>, name: &'static str) -> Result<&'a str, BadDdoc> {
    match value {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
        _ => Err(BadDdoc::Member(name)),
    }
}

fn taught_text(json: &str, strip: bool) -> Option<Box<RawValue>> {
    if !strip {
        return RawValue::from_string(json.trim().to_owned()).ok();
    }
    let mut document: serde_json::Map<String, Value> = serde_json::from_str(json).ok()?;
    for name in NOT_TAUGHT {
        document.shift_remove(name);
    }
    serde_json::value::to_raw_value(&document).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_language_and_text_are_taken_from_the_document() {
        let ddoc = Ddoc::parse(r#" {"_id":"_design/a","_rev":"1-x","language":"PYTHON","n":1.0} "#)
            .unwrap();
        assert_eq!((&*ddoc.key.id, &*ddoc.key.rev), ("_design/a", "1-x"));
        assert_eq!(ddoc.language.as_str(), "python");
        assert_eq!(
            ddoc.json.get(),
            r#"{"_id":"_design/a","_rev":"1-x","language":"PYTHON","n":1.0}"#
        );
        let plain = Ddoc::parse(r#"{"_id":"_design/a","_rev":"1-x"}"#).unwrap();
        assert_eq!(plain.language.as_str(), "javascript");
    }

    #[test]
    fn revisions_are_not_taught() {
        let ddoc = Ddoc::parse(
            r#"{"_id":"_design/a","_rev":"1-x","z":1,"_revisions":{"start":1,"ids":["x"]},"a":2}"#,
        )
        .unwrap();
        assert_eq!(
            ddoc.json.get(),
            r#"{"_id":"_design/a","_rev":"1-x","z":1,"a":2}"#
        );
    }

    #[test]
    fn a_document_without_id_or_revision_is_refused_by_name() {
        let error = |json| Ddoc::parse(json).unwrap_err();
        assert_eq!(error("[]"), BadDdoc::NotAnObject);
        assert_eq!(error("7"), BadDdoc::NotAnObject);
        assert_eq!(error(r#"{"_rev":"1-x"}"#), BadDdoc::Member("_id"));
        assert_eq!(error(r#"{"_id":"","_rev":"1-x"}"#), BadDdoc::Member("_id"));
        assert_eq!(error(r#"{"_id":"_design/a"}"#), BadDdoc::Member("_rev"));
        assert_eq!(
            error(r#"{"_id":"_design/a","_rev":7}"#),
            BadDdoc::Member("_rev")
        );
        assert_eq!(
            error(r#"{"_id":"_design/a","_rev":"1-x","language":null}"#),
            BadDdoc::Member("language")
        );
    }
}
