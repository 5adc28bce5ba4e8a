//! The members of a document, with their values as raw JSON.
//!
//! SUMMARY   [`DocMembers`] is a JSON object with unparsed values: a number keeps all its digits from the writer
//!           through the store to the reader. Values are parsed only when they are used.
//! PROMISES  The writer's order is kept; of members with the same name, the last one is used. There is no white space
//!           between tokens, so that a document is one line.

use std::fmt;

use rustc_hash::FxHashMap;
use serde::Serialize;
use serde::ser::Serializer;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use json::RawObject;

/// The members of a JSON object.
#[derive(Clone, Debug, Default)]
pub struct DocMembers(Vec<(String, Box<RawValue>)>);

impl DocMembers {
    /// Parses the text of a JSON object.
    ///
    /// # Errors
    /// It is not an object.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let object = RawObject::parse(text)?;
        let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
        let mut places = FxHashMap::default();
        for (name, value) in object.iter() {
            let value = compact(value)?;
            let place = *places.entry(name).or_insert(members.len());
            match members.get_mut(place) {
                Some((_, known)) => *known = value,
                None => members.push((name.to_owned(), value)),
            }
        }
        Ok(Self(members))
    }

    /// Adds or replaces a member.
    ///
    /// # Panics
    /// The value has no JSON form.
    pub fn set(&mut self, name: &str, value: impl Serialize) {
        let text = to_raw_value(&value).expect("members: a value that is set can be written");
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = text,
            None => self.0.push((name.to_owned(), text)),
        }
    }

    /// Like [`DocMembers::set`], for building objects.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        self.set(name, value);
        self
    }

    /// Returns the text of a value.
    pub fn raw(&self, name: &str) -> Option<&RawValue> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, text)| &**text)
    }

    /// Parses a value; `None` if there is no such member, or a number in it is out of range.
    pub fn get(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.raw(name)?.get()).ok()
    }

    /// Returns the text of a string; `None` for any other value.
    pub fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.raw(name)?.get()).ok()
    }

    /// Removes a member, and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Box<RawValue>> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(place).1)
    }

    /// Keeps the wanted members.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&str, &RawValue) -> bool) {
        self.0.retain(|(name, text)| is_wanted(name, text));
    }

    /// Returns the names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, text)| (name.as_str(), text.get()))
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends other members, which must not exist yet.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the object with all values parsed. A value with a number out of range becomes `null`.
    pub fn value(&self) -> Value {
        let members = self.0.iter().map(|(name, text)| {
            (
                name.clone(),
                serde_json::from_str(text.get()).unwrap_or_default(),
            )
        });
        Value::Object(members.collect::<Map<_, _>>())
    }
}

impl fmt::Display for DocMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

impl PartialEq for DocMembers {
    fn eq(&self, other: &Self) -> bool {
        self.texts().eq(other.texts())
    }
}

impl Serialize for DocMembers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, text)| (name, text)))
    }
}

/// Removes the white space between tokens.
fn compact(text: &RawValue) -> Result<Box<RawValue>, serde_json::Error> {
    if !text.get().contains([' ', '\t', '\n', '\r']) {
        return Ok(text.to_owned());
    }
    let (mut in_text, mut is_escaped) = (false, false);
    let kept = text.get().chars().filter(|&c| {
        let is_kept = in_text || !matches!(c, ' ' | '\t' | '\n' | '\r');
        if c == '"' && !is_escaped {
            in_text = !in_text;
        }
        is_escaped = c == '\\' && !is_escaped;
        is_kept
    });
    RawValue::from_string(kept.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_keep_their_text_and_lose_the_white_space_between_tokens() {
        let text = r#" { "n" : 123456789012345678901234567890 , "a":[ 1.0, 1e400,
            {"s": " a \" \\" , "t" : "\\\" " } ], "n2":-0.10 } "#;
        let members = DocMembers::parse(text).unwrap();
        let expected = r#"{"n":123456789012345678901234567890,"a":[1.0,1e400,{"s":" a \" \\","t":"\\\" "}],"n2":-0.10}"#;
        assert_eq!(members.to_string(), expected);
        assert_eq!(DocMembers::parse(expected).unwrap(), members);
        assert_eq!(members.get("a"), None, "1e400 is out of range");
        assert_eq!(members.get("n2"), Some(json!(-0.1)));
        assert_eq!(members.value()["a"], Value::Null);
    }

    #[test]
    fn a_repeated_member_keeps_its_first_position_and_last_value() {
        let mut members = DocMembers::parse(r#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!(members.to_string(), r#"{"a":3,"b":2}"#);
        members.set("b", "x");
        members.set("c", [1]);
        assert_eq!(members.remove("a").unwrap().get(), "3");
        assert_eq!(members.to_string(), r#"{"b":"x","c":[1]}"#);
        assert_eq!(members.text("b").as_deref(), Some("x"));
        assert_eq!(members.text("c"), None);
    }

    #[test]
    fn only_objects_are_accepted() {
        for text in ["", "[]", "1", "{\"a\":}", "{\"a\":1}x", "{\"a\":01}"] {
            assert!(DocMembers::parse(text).is_err(), "{text}");
        }
    }
}
