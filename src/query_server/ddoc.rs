//! A design document as the pool sees it: identity, language, and the text that is taught.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::query_server::language::LanguageName;
use policy::pool::{DdocKey, TaughtText};

/// A design document, checked.
#[derive(Clone, Debug)]
pub struct Ddoc {
    /// Its id, and its text as it is taught: without what belongs to the database only.
    pub key: DdocKey,
    /// Its `language`, `javascript` when it has none.
    pub language: LanguageName,
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
pub(crate) const DEFAULT_LANGUAGE: &str = "javascript";

/// Members that belong to the database and not to the document that a query server is taught. They
/// come and go with how the document is asked for.
const NOT_TAUGHT: [&str; 5] = [
    "_revisions",
    "_revs_info",
    "_conflicts",
    "_deleted_conflicts",
    "_local_seq",
];

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
        let id = Arc::from(text(members.id.as_ref(), "_id")?);
        if members.rev.is_some() {
            text(members.rev.as_ref(), "_rev")?;
        }
        let language = match &members.language {
            None => DEFAULT_LANGUAGE,
            language => text(language.as_ref(), "language")?,
        };
        let language = LanguageName::new(language);
        let text = if members.has_untaught() {
            TaughtText::from(&*taught_text(json).ok_or(BadDdoc::NotAnObject)?)
        } else {
            TaughtText::from(json.trim_ascii())
        };
        let key = DdocKey { id, text };
        Ok(Self { key, language })
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
    revisions: Option<IgnoredAny>,
    #[serde(rename = "_revs_info")]
    revs_info: Option<IgnoredAny>,
    #[serde(rename = "_conflicts")]
    conflicts: Option<IgnoredAny>,
    #[serde(rename = "_deleted_conflicts")]
    deleted_conflicts: Option<IgnoredAny>,
    #[serde(rename = "_local_seq")]
    local_seq: Option<IgnoredAny>,
}

impl Members {
    /// Whether one of [`NOT_TAUGHT`] is there.
    fn has_untaught(&self) -> bool {
        let lists = [&self.revisions, &self.revs_info, &self.conflicts];
        let others = [&self.deleted_conflicts, &self.local_seq];
        lists.into_iter().chain(others).any(Option::is_some)
    }
}

/// A member that is there, also as `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

fn text<'a>(value: Option<&'a Value>, name: &'static str) -> Result<&'a str, BadDdoc> {
    match value {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
        _ => Err(BadDdoc::Member(name)),
    }
}

/// The document without what is not taught; all other members stay the text they came as.
fn taught_text(json: &str) -> Option<String> {
    let TaughtMembers(members) = serde_json::from_str(json).ok()?;
    serde_json::to_string(&TaughtMembers(members)).ok()
}

/// The members of an object in their order, without those of [`NOT_TAUGHT`].
struct TaughtMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for TaughtMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = TaughtMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if !NOT_TAUGHT.contains(&name.as_str()) {
                        members.push((name, value));
                    }
                }
                Ok(TaughtMembers(members))
            }
        }
        from.deserialize_map(InOrder)
    }
}

impl Serialize for TaughtMembers<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_language_and_text_are_taken_from_the_document() {
        let ddoc = Ddoc::parse(r#" {"_id":"_design/a","_rev":"1-x","language":"PYTHON","n":1.0} "#)
            .unwrap();
        assert_eq!(&*ddoc.key.id, "_design/a");
        assert_eq!(ddoc.language.as_str(), "python");
        assert_eq!(
            ddoc.key.text.as_str(),
            r#"{"_id":"_design/a","_rev":"1-x","language":"PYTHON","n":1.0}"#
        );
        let plain = Ddoc::parse(r#"{"_id":"_design/a"}"#).unwrap();
        assert_eq!(plain.language.as_str(), "javascript");
    }

    #[test]
    fn what_belongs_to_the_database_is_not_taught_and_the_rest_keeps_its_text() {
        let text =
            r#"{"_id":"_design/a","_rev":"1-x","z":123456789012345678901234567890,"a": 2e0}"#;
        let taught = Ddoc::parse(
            r#"{"_conflicts":["2-y"],"_id":"_design/a","_rev":"1-x","_local_seq":7,
                "z":123456789012345678901234567890,"_revisions":{"start":1,"ids":["x"]},
                "a": 2e0,"_deleted_conflicts":[],"_revs_info":[]}"#,
        )
        .unwrap();
        assert_eq!(taught.key.text.as_str(), text.replace("\"a\": ", "\"a\":"));
    }

    #[test]
    fn documents_are_the_same_by_their_text_and_not_by_their_revision() {
        let key = |json: &str| Ddoc::parse(json).unwrap().key;
        let one = r#"{"_id":"_design/a","_rev":"1-x","shows":{"s":"1"}}"#;
        let other = r#"{"_id":"_design/a","_rev":"1-x","shows":{"s":"2"}}"#;
        assert_eq!(key(one), key(&format!(" {one}\n")));
        assert_ne!(key(one), key(other));
    }

    #[test]
    fn a_document_without_an_id_or_with_a_wrong_member_is_refused_by_name() {
        let error = |json| Ddoc::parse(json).unwrap_err();
        assert_eq!(error("[]"), BadDdoc::NotAnObject);
        assert_eq!(error("7"), BadDdoc::NotAnObject);
        assert_eq!(error(r#"{"_rev":"1-x"}"#), BadDdoc::Member("_id"));
        assert_eq!(error(r#"{"_id":"","_rev":"1-x"}"#), BadDdoc::Member("_id"));
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
