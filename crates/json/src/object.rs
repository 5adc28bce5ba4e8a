//! Objects with values that stay JSON text.
//!
//! SUMMARY   [`RawObject`] reads, changes and writes the members of an object, and keeps their order.
//! PROMISES  A value is written byte for byte as read. Values, and names without escapes, are borrowed from the text.
//! LIMITS    Members with the same name are all kept; [`RawObject::get`] returns the last, as JavaScript and CouchDB
//!           do.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// An ordered object of raw JSON values.
#[derive(Clone, Debug, Default)]
pub struct RawObject<'a> {
    members: Vec<(Cow<'a, str>, Cow<'a, RawValue>)>,
}

impl<'a> RawObject<'a> {
    /// Parses an object.
    ///
    /// # Errors
    /// The text is not JSON, or not an object.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the value of a member; of several with the same name, the last.
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        let mut named = self.members.iter().rev().filter(|(known, _)| known == name);
        named.next().map(|(_, value)| &**value)
    }

    /// Returns names and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &RawValue)> {
        self.members.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Appends a member, even if its name exists. A [`RawValue`] is written unchanged.
    ///
    /// # Panics
    /// The value has no JSON text: it contains a map with names that are not strings.
    pub fn push(&mut self, name: impl Into<Cow<'a, str>>, value: &(impl Serialize + ?Sized)) {
        let value = to_raw_value(value).expect("JS-1: the value has a JSON text");
        self.members.push((name.into(), Cow::Owned(value)));
    }

    /// Removes all members with this name. Returns the value of the last.
    pub fn remove(&mut self, name: &str) -> Option<Cow<'a, RawValue>> {
        self.members
            .extract_if(.., |(known, _)| known == name)
            .last()
            .map(|(_, value)| value)
    }

    /// Returns an owned copy.
    #[must_use]
    pub fn into_owned(self) -> RawObject<'static> {
        let owned = self.members.into_iter().map(|(name, value)| {
            let (name, value) = (name.into_owned(), value.into_owned());
            (Cow::Owned(name), Cow::Owned(value))
        });
        RawObject {
            members: owned.collect(),
        }
    }

    /// Returns the object as a value.
    #[must_use]
    pub fn to_raw(&self) -> Box<RawValue> {
        to_raw_value(self).expect("JS-2: members are JSON texts")
    }
}

/// Writes the object as JSON text, without white space between members.
impl fmt::Display for RawObject<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.to_raw().get())
    }
}

impl Serialize for RawObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A name, borrowed if it has no escapes.
        #[derive(serde::Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        struct Reading;

        impl<'de> Visitor<'de> for Reading {
            type Value = RawObject<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<_, &RawValue>()? {
                    members.push((name, Cow::Borrowed(value)));
                }
                Ok(RawObject { members })
            }
        }

        deserializer.deserialize_map(Reading)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_written_as_read_except_for_white_space_and_escapes_in_names() {
        for (text, written) in [
            ("{ }", "{}"),
            (
                r#"{"b" : 1.0, "a":[ 1,2 ],"\u00e9":12345678901234567890123}"#,
                "{\"b\":1.0,\"a\":[ 1,2 ],\"\u{e9}\":12345678901234567890123}",
            ),
            (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":2}"#),
            (r#"{"\"\n":null}"#, r#"{"\"\n":null}"#),
        ] {
            let object = RawObject::parse(text).unwrap();
            assert_eq!(object.to_string(), written);
            assert_eq!(serde_json::to_string(&object).unwrap(), written);
            assert_eq!(object.into_owned().to_raw().get(), written);
        }
    }

    #[test]
    fn members_are_found_added_and_removed_and_keep_their_order() {
        let text = r#"{"z":1,"a":"x","z":{"y":2},"b":[]}"#.to_owned();
        let mut object = RawObject::parse(&text).unwrap();
        assert_eq!(object.get("z").unwrap().get(), r#"{"y":2}"#);
        assert!(object.get("y").is_none());
        let names: Vec<&str> = object.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["z", "a", "z", "b"]);
        assert_eq!(object.remove("z").unwrap().get(), r#"{"y":2}"#);
        assert!(object.remove("z").is_none());
        object.push("c", &[1, 2]);
        object.push("d".to_owned(), &RawObject::parse(r#"{"e": 1.0}"#).unwrap());
        let raw = RawValue::from_string("[ 1e0 ]".to_owned()).unwrap();
        object.push("f", &*raw);
        assert_eq!(
            object.to_string(),
            r#"{"a":"x","b":[],"c":[1,2],"d":{"e":1.0},"f":[ 1e0 ]}"#
        );
    }

    #[test]
    fn values_and_names_without_escapes_are_borrowed() {
        let text = r#"{"a":"x","\u0062":1}"#;
        let object = RawObject::parse(text).unwrap();
        let [(plain, value), (escaped, _)] = &object.members[..] else {
            panic!("expected two members");
        };
        assert!(matches!(plain, Cow::Borrowed("a")));
        assert!(matches!(value, Cow::Borrowed(_)));
        assert!(matches!(escaped, Cow::Owned(name) if name == "b"));
    }

    #[test]
    fn only_an_object_is_accepted() {
        for text in ["", "[]", "1", "null", "{", r#"{"a":}"#, r#"{"a":1} 2"#] {
            assert!(RawObject::parse(text).is_err(), "{text}");
        }
        assert!(serde_json::from_slice::<RawObject<'_>>(b"{\"a\":1}").is_ok());
    }
}
