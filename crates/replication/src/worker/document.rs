//! Parses a document's metadata; the text itself is passed on unchanged.

use std::borrow::Cow;

use json::object::RawObject;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Maximum bytes of a document without its attachments: longer ones are refused.
pub(crate) const DOCUMENT_MAX: usize = 256 << 20;

/// A document's metadata.
#[derive(Debug, Deserialize)]
pub(crate) struct DocMeta<'a> {
    #[serde(borrow, rename = "_id")]
    pub id: Cow<'a, str>,
    /// Its revision.
    #[serde(borrow, rename = "_rev")]
    pub rev: Cow<'a, str>,
    /// The revision's ancestors, which the target needs to place it.
    #[serde(borrow, rename = "_revisions")]
    pub revisions: Option<&'a RawValue>,
    /// Its attachments, if it has any.
    #[serde(borrow, rename = "_attachments")]
    pub attachments: Option<&'a RawValue>,
}

impl<'a> DocMeta<'a> {
    /// Reads the metadata of a document; `None` if the text is not a document that can be replicated.
    pub fn read(text: &'a [u8]) -> Option<Self> {
        let mut meta: Self = serde_json::from_slice(text).ok()?;
        meta.attachments = meta.attachments.filter(|raw| {
            let members = raw.get().trim_matches(['{', '}']);
            !members.trim_ascii().is_empty()
        });
        let whole = meta.revisions.is_some() && !meta.id.is_empty();
        whole.then_some(meta)
    }

    /// Parses its attachments, in order; `None` if they are malformed.
    pub fn parse_attachments(&self) -> Option<Vec<(String, Attachment)>> {
        let Some(raw) = self.attachments else {
            return Some(Vec::new());
        };
        let all: RawObject<'_> = serde_json::from_str(raw.get()).ok()?;
        let read = |(name, raw): (&str, &RawValue)| {
            Some((name.to_owned(), serde_json::from_str(raw.get()).ok()?))
        };
        all.iter().map(read).collect()
    }
}

/// A string, borrowed if it has no escapes.
#[derive(Debug, Deserialize, PartialEq, Eq, Hash)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// A revision's hash and those of its ancestors, newest first.
#[derive(Debug, Deserialize)]
pub(super) struct Branch<'a> {
    /// The generation of the first hash.
    pub start: u64,
    #[serde(borrow)]
    ids: Vec<Text<'a>>,
}

impl Branch<'_> {
    /// Returns the hash of a generation.
    pub fn id(&self, generation: u64) -> Option<&str> {
        let back = usize::try_from(self.start.checked_sub(generation)?).ok()?;
        self.ids.get(back).map(|Text(id)| &**id)
    }
}

/// The metadata of an attachment in its document.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Attachment {
    /// Its content type.
    pub content_type: Option<String>,
    /// Its length in bytes.
    pub length: Option<u64>,
    /// Its stored encoding.
    pub encoding: Option<String>,
    /// Its stored length in bytes.
    pub encoded_length: Option<u64>,
    /// Whether it follows the document.
    pub follows: bool,
    /// Whether it is only a stub.
    pub stub: bool,
    /// Its inline data.
    pub data: Option<IgnoredAny>,
}

impl Attachment {
    /// Returns the number of bytes to send.
    pub fn stored_length(&self) -> Option<u64> {
        match self.encoding {
            Some(_) => self.encoded_length.or(self.length),
            None => self.length,
        }
    }

    /// Returns its content type.
    pub fn content_type(&self) -> &str {
        const UNKNOWN: &str = "application/octet-stream";
        self.content_type.as_deref().unwrap_or(UNKNOWN)
    }
}

/// Returns the document's text with stubs converted to following attachments; `None` without valid attachments.
///
/// Only the value of `_attachments` is rewritten: the rest is kept byte for byte.
pub(crate) fn with_following(text: &str, meta: &DocMeta<'_>) -> Option<String> {
    let raw = meta.attachments?.get();
    let mut all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(raw).ok()?;
    for attachment in all.values_mut() {
        let attachment = attachment.as_object_mut()?;
        if attachment.remove("stub").is_some() {
            attachment.insert("follows".to_owned(), true.into());
        }
    }
    // The raw value is a slice of the text.
    let at = raw.as_ptr() as usize - text.as_ptr() as usize;
    let (before, behind) = (text.get(..at)?, text.get(at + raw.len()..)?);
    let attachments = serde_json::to_string(&all).ok()?;
    Some([before, &attachments, behind].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_needs_an_id_a_revision_and_its_ancestors() {
        let text =
            br#"{"_id":"a\u00e9","_rev":"1-x","n":1.0,"_revisions":{"start":1,"ids":["x"]}}"#;
        let meta = DocMeta::read(text).unwrap();
        assert_eq!((&*meta.id, &*meta.rev), ("a\u{e9}", "1-x"));
        assert!(meta.attachments.is_none());
        assert!(meta.parse_attachments().unwrap().is_empty());
        for text in [
            "{}",
            "[]",
            r#"{"_id":"a","_rev":"1-x"}"#,
            r#"{"_id":"","_rev":"1-x","_revisions":{}}"#,
        ] {
            assert!(DocMeta::read(text.as_bytes()).is_none(), "{text}");
        }
        for (attachments, has) in [
            ("{}", false),
            ("{ }", false),
            ("null", false),
            (r#"{"x":{}}"#, true),
        ] {
            let text = format!(
                r#"{{"_id":"a","_rev":"1-x","_revisions":1,"_attachments":{attachments}}}"#
            );
            assert_eq!(
                DocMeta::read(text.as_bytes())
                    .unwrap()
                    .attachments
                    .is_some(),
                has,
                "{attachments}"
            );
        }
    }

    #[test]
    fn attachments_keep_their_order_and_are_sent_as_they_are_stored() {
        let text = br#"{"_id":"a","_rev":"1-x","_revisions":1,"_attachments":
            {"z":{"content_type":"text/plain","length":9,"encoding":"gzip","encoded_length":5,"follows":true},
            "a":{"stub":true,"length":3}}}"#;
        let all = DocMeta::read(text).unwrap().parse_attachments().unwrap();
        assert_eq!(
            (&*all[0].0, all[0].1.stored_length(), all[0].1.follows),
            ("z", Some(5), true)
        );
        assert_eq!(
            (&*all[1].0, all[1].1.stored_length(), all[1].1.stub),
            ("a", Some(3), true)
        );
        assert_eq!(all[1].1.content_type(), "application/octet-stream");
    }

    #[test]
    fn stubs_are_made_to_follow_and_nothing_else_changes() {
        let text = r#"{"_id":"a", "big":12345678901234567890123, "_rev":"1-x","_revisions":{},"_attachments":{"x":{"stub":true,"length":3},"y":{"data":"YQ=="}} ,"z":1.0}"#;
        let meta = DocMeta::read(text.as_bytes()).unwrap();
        assert_eq!(
            with_following(text, &meta).unwrap(),
            r#"{"_id":"a", "big":12345678901234567890123, "_rev":"1-x","_revisions":{},"_attachments":{"x":{"length":3,"follows":true},"y":{"data":"YQ=="}} ,"z":1.0}"#
        );
    }
}
