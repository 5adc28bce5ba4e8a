//! Update sequences: opaque, kept byte for byte.
//!
//! PROMISES  A [`Seq`] is the JSON text sent by the source. It is never ordered, and equal only to the same text.
//!           Cloning only increments a reference count.
//! SOURCE    CouchDB's replicator: a sequence that is a string is sent back without quotes, others as JSON text
//!           (since 3.3; earlier versions sent strings with their quotes).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// An update sequence of a database: a number, a string, or any other JSON value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Seq(Arc<str>);

impl Seq {
    /// Returns the sequence before all changes: the number 0.
    pub fn zero() -> Self {
        Self("0".into())
    }

    /// Keeps a sequence as received.
    pub(crate) fn from_raw(raw: &RawValue) -> Self {
        Self(raw.get().into())
    }

    /// Converts a parsed sequence. A number that does not fit 64 bits has already lost digits: for a database's
    /// sequences use [`Seq::from_raw`].
    pub(crate) fn from_value(value: &Value) -> Self {
        Self(value.to_string().into())
    }

    /// Returns the received JSON text.
    pub(crate) fn as_json(&self) -> &str {
        &self.0
    }

    /// Returns its form for a query's `since`, before percent-encoding, and for status output: a string without its
    /// quotes, anything else as JSON.
    pub fn as_text(&self) -> Cow<'_, str> {
        if self.0.starts_with('"')
            && let Ok(text) = serde_json::from_str::<String>(&self.0)
        {
            return Cow::Owned(text);
        }
        Cow::Borrowed(&self.0)
    }

    /// Whether it is the number 0.
    pub fn is_zero(&self) -> bool {
        &*self.0 == "0"
    }

    /// Returns the number, if it is an integer that fits.
    pub(crate) fn as_number(&self) -> Option<i64> {
        self.0.parse().ok()
    }
}

impl Default for Seq {
    fn default() -> Self {
        Self::zero()
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Seq {
    /// Writes the unchanged text; only for JSON.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Seq {
    /// Keeps the unchanged text; only from JSON.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_raw(&Box::<RawValue>::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_kept_byte_for_byte() {
        for text in [
            "0",
            "12345678901234567890123",
            "1.0",
            r#""26-g1AAAA""#,
            r#""a\u002fb""#,
            r#"[5, "x" ]"#,
            r#"{"a": 1}"#,
            "null",
        ] {
            let seq: Seq = serde_json::from_str(text).unwrap();
            assert_eq!(seq.as_json(), text);
            assert_eq!(serde_json::to_string(&seq).unwrap(), text);
        }
    }

    #[test]
    fn strings_are_sent_raw_and_everything_else_as_json() {
        let sent = |text: &str| {
            serde_json::from_str::<Seq>(text)
                .unwrap()
                .as_text()
                .into_owned()
        };
        assert_eq!(sent(r#""26-g1AA\"A""#), r#"26-g1AA"A"#);
        assert_eq!(sent("26"), "26");
        assert_eq!(sent(r#"[1,"x"]"#), r#"[1,"x"]"#);
        assert_eq!(sent("0"), "0");
    }

    #[test]
    fn a_number_and_a_string_of_its_digits_differ() {
        assert_ne!(
            serde_json::from_str::<Seq>("5").ok(),
            serde_json::from_str::<Seq>(r#""5""#).ok()
        );
        assert!(serde_json::from_str::<Seq>("{").is_err());
        assert!(Seq::zero().is_zero());
        assert!(!serde_json::from_str::<Seq>(r#""0""#).unwrap().is_zero());
    }
}
