//! One line of input: whether it is a document, where its id is, and what of it is sent.
//!
//! SUMMARY   [`check`] reads the whole line once; [`Members`] says what is sent of it.
//! PROMISES  What it accepts is one JSON object with a usable `_id`. A member that is not sent is
//!           checked like the others. Of several members of one name all are sent, in their order:
//!           the last counts, as in JavaScript.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use serde::Deserializer;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Which members of its documents a view is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Members {
    /// All of them.
    #[default]
    All,
    /// Those with these names, and `_id`. For functions of which it is known that they read no
    /// others: a process then has less to parse.
    Named(BTreeSet<String>),
}

/// A line that is a document.
pub(super) struct Checked<'a> {
    /// The document, without white space around it.
    pub(super) text: &'a str,
    /// Its id, a JSON string: a part of the text.
    pub(super) id: &'a str,
    /// Whether all of it is sent.
    pub(super) is_whole: bool,
}

impl Checked<'_> {
    /// Returns where in the text the id begins.
    pub(super) fn id_start(&self) -> usize {
        self.id.as_ptr() as usize - self.text.as_ptr() as usize
    }
}

/// Checks a line. `None` is an empty one. Of a document that is not sent whole, `kept` gets the
/// places of the members that are.
///
/// # Errors
/// What is wrong, and what to do.
pub(super) fn check<'a>(
    line: &'a [u8],
    members: &Members,
    kept: &mut Vec<Range<usize>>,
) -> Result<Option<Checked<'a>>, String> {
    let text = std::str::from_utf8(line).map_err(|error| {
        format!(
            "not UTF-8 at byte {}; convert the input",
            error.valid_up_to() + 1
        )
    })?;
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    if text.is_empty() {
        return Ok(None);
    }
    if !text.starts_with('{') {
        let valid = serde_json::from_str::<IgnoredAny>(text);
        return Err(valid.map_or_else(
            |error| not_json(&error),
            |_| "not a JSON object; a document is one object on one line".to_owned(),
        ));
    }
    kept.clear();
    let mut object = Object {
        text,
        named: match members {
            Members::All => None,
            Members::Named(names) => Some(names),
        },
        kept,
        is_whole: *members == Members::All,
        id: None,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(&mut object)
        .and_then(|()| json.end())
        .map_err(|error| not_json(&error))?;
    let id = object
        .id
        .ok_or("the document has no '_id'; every document needs one")?;
    let is_whole = object.is_whole;
    check_id(id)?;
    Ok(Some(Checked { text, id, is_whole }))
}

fn check_id(id: &str) -> Result<(), String> {
    match serde_json::from_str::<&str>(id) {
        Ok("") => Err("the document's '_id' is empty".into()),
        Ok(_) => Ok(()),
        // With escapes, or not a string at all.
        Err(_) if serde_json::from_str::<String>(id).is_ok() => Ok(()),
        Err(_) => Err(format!("the document's '_id' is {id}; it must be a string")),
    }
}

fn not_json(error: &serde_json::Error) -> String {
    // The line in the error's own text is always the first.
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    format!("not JSON: {what} at column {}", error.column())
}

/// An object that is gone over: finds `_id` and what is sent, and skips the rest.
struct Object<'a, 'k> {
    text: &'a str,
    /// The names of what is sent, if not all is.
    named: Option<&'k BTreeSet<String>>,
    kept: &'k mut Vec<Range<usize>>,
    is_whole: bool,
    id: Option<&'a str>,
}

impl Object<'_, '_> {
    /// Keeps a member that is sent, from the quotation mark of its name to the end of its value.
    fn keep(&mut self, name: Cow<'_, str>, value: &str) {
        let Cow::Borrowed(name) = name else {
            // Where a name with escapes begins is not known.
            self.is_whole = true;
            return;
        };
        let base = self.text.as_ptr() as usize;
        let start = name.as_ptr() as usize - base - 1;
        let end = value.as_ptr() as usize - base + value.len();
        match self.kept.last_mut() {
            // Only the comma is between them.
            Some(last) if last.end + 1 == start => last.end = end,
            _ => self.kept.push(start..end),
        }
    }
}

impl<'de> Visitor<'de> for &mut Object<'de, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<(), M::Error> {
        while let Some(Name(name)) = members.next_key()? {
            let is_id = name == "_id";
            let is_named = |names: &BTreeSet<String>| is_id || names.contains(&*name);
            let is_kept = self.named.is_some_and(is_named);
            if !is_id && !is_kept {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = members.next_value::<&RawValue>()?.get();
            if is_kept {
                self.keep(name, value);
            }
            if is_id {
                self.id = Some(value);
            }
        }
        Ok(())
    }
}

/// A member's name, without a copy of it where that is possible.
struct Name<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        from.deserialize_str(Text)
    }
}
