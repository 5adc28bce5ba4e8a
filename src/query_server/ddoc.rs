//! A design document for the pool: id, language, and the text to teach.

use std::sync::Arc;

use data_encoding::HEXLOWER_PERMISSIVE;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::language::LanguageName;
use crate::operations::{NAME_BYTES_MAX, check_name};
use json::object::RawObject;
use policy::pool::{DdocKey, TaughtText};

/// A validated design document.
#[derive(Clone, Debug)]
pub struct Ddoc {
    /// Its id, and the text to teach: without members that concern only the database.
    pub key: DdocKey,
    /// Its `language`, or `javascript`.
    pub language: LanguageName,
}

/// The document is invalid. The caller's fault; not worth a retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDdoc {
    /// It is not a JSON object.
    #[error("the design document must be a JSON object")]
    NotAnObject,
    /// A member that must be a string is missing, empty or invalid.
    #[error("the design document needs a string as '{0}'")]
    Member(&'static str),
    /// A member is longer than a name may be.
    #[error("the design document's {0}")]
    TooLong(String),
    /// The digest of a reference is invalid.
    #[error("the design document's 'sha256' must be a string of 64 hexadecimal digits")]
    Digest,
}

/// Maximum length of a reference, in bytes.
const REFERENCE_BYTES_MAX: usize = 8 * NAME_BYTES_MAX;

/// The SHA-256 digest of a design document's text as sent.
pub(crate) type TextDigest = [u8; 32];

/// Parses a reference to a design document by id and digest, `{"_id": .., "sha256": ..}`; anything else is `None`.
///
/// # Errors
/// [`BadDdoc::Digest`].
pub(crate) fn reference(json: &str) -> Result<Option<(Arc<str>, TextDigest)>, BadDdoc> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Reference {
        #[serde(rename = "_id")]
        id: String,
        sha256: Value,
    }
    // A quick check: a failed parse costs more.
    let may_be = json.len() < REFERENCE_BYTES_MAX && json.contains("sha256");
    let Some(Reference { id, sha256 }) = may_be.then(|| serde_json::from_str(json).ok()).flatten()
    else {
        return Ok(None);
    };
    let digits = sha256.as_str().unwrap_or_default().as_bytes();
    let bytes = HEXLOWER_PERMISSIVE.decode(digits).ok();
    let digest = bytes.and_then(|bytes| bytes.try_into().ok());
    Ok(Some((id.into(), digest.ok_or(BadDdoc::Digest)?)))
}

/// The default language of a design document.
pub(crate) const DEFAULT_LANGUAGE: &str = "javascript";

/// Members that concern only the database and are not taught to a query server. Whether they are present depends on
/// how the document is requested.
const NOT_TAUGHT: [&str; 5] = [
    "_revisions",
    "_revs_info",
    "_conflicts",
    "_deleted_conflicts",
    "_local_seq",
];

impl Ddoc {
    /// Parses and validates a design document.
    ///
    /// # Errors
    /// [`BadDdoc`] names the first error.
    ///
    /// # Source
    /// couch_query_servers, get_ddoc_process/2; couch_proc_manager, get_proc/3.
    pub fn parse(json: &str) -> Result<Self, BadDdoc> {
        let mut object = RawObject::parse(json).map_err(|_| BadDdoc::NotAnObject)?;
        let string = |name| text(object.get(name), name);
        let id = Arc::from(string("_id")?);
        if object.get("_rev").is_some_and(|rev| rev.get() != "null") {
            string("_rev")?;
        }
        let language = match object.get("language") {
            None => LanguageName::new(DEFAULT_LANGUAGE),
            Some(_) => LanguageName::new(&string("language")?),
        };
        let removed = NOT_TAUGHT.iter().filter_map(|name| object.remove(name));
        let text = match removed.count() {
            0 => TaughtText::from(json.trim_ascii()),
            _ => TaughtText::from(object.to_raw().get()),
        };
        let key = DdocKey { id, text };
        Ok(Self { key, language })
    }
}

fn text(value: Option<&RawValue>, name: &'static str) -> Result<String, BadDdoc> {
    let text = value.and_then(|value| serde_json::from_str(value.get()).ok());
    let text = text
        .filter(|text: &String| !text.is_empty())
        .ok_or(BadDdoc::Member(name))?;
    check_name(name, &text, NAME_BYTES_MAX).map_err(BadDdoc::TooLong)?;
    Ok(text)
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
    fn members_of_the_database_are_not_taught_and_the_rest_keeps_its_text() {
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
    fn one_revision_with_two_texts_is_two_documents() {
        let key = |json: &str| Ddoc::parse(json).unwrap().key;
        let one = r#"{"_id":"_design/a","_rev":"1-x","shows":{"s":"1"}}"#;
        let other = r#"{"_id":"_design/a","_rev":"1-x","shows":{"s":"2"}}"#;
        assert_eq!(key(one), key(&format!(" {one}\n")));
        assert_ne!(key(one), key(other));
    }

    #[test]
    fn a_reference_is_an_id_and_a_digest_and_nothing_else() {
        let parse = |json: &str| reference(json);
        let digits = "0aF".repeat(22);
        let json = format!(
            r#" {{"sha256":"{}","_id":"_design/\u0061"}}"#,
            &digits[..64]
        );
        let (id, digest) = parse(&json).unwrap().unwrap();
        assert_eq!((&*id, digest[0]), ("_design/a", 0x0a));
        for bad in [
            "7",
            "null",
            "\"\"",
            "\"0a\"",
            &format!("\"{digits}\""),
            "{}",
        ] {
            let json = format!(r#"{{"_id":"_design/a","sha256":{bad}}}"#);
            assert_eq!(parse(&json), Err(BadDdoc::Digest), "{bad}");
        }
        for other in [
            "7",
            r#"{"_id":"_design/a"}"#,
            r#"{"_id":7,"sha256":"0a"}"#,
            r#"{"_id":"_design/a","sha256":"0a","shows":{}}"#,
        ] {
            assert_eq!(parse(other), Ok(None), "{other}");
        }
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
