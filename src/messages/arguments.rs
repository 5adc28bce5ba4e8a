//! Arguments of calls: the members of a request, read with errors that name them.
//!
//! PROMISES  A `null` member counts as missing. An unknown one is refused, with the nearest known name.
//! CALLED    By requests of the client socket, by function calls of any origin, and by HTTP for bodies of orders.
//! LIMITS    At most [`ARGUMENTS_MAX`] members, all with different names. A string member has at most the length of a
//!           name ([`NAME_BYTES_MAX`]), or of several names.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::config::language_name;
use crate::config::nearest::hint;
use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::TakeFrom;
use crate::operations::{NAME_BYTES_MAX, check_name};
use crate::query_server::ddoc::{BadDdoc, Ddoc, reference};
use crate::query_server::known_ddocs::KnownDdocs;
use crate::query_server::language::LanguageName;
use crate::query_server::prompt_error::shorten;
use json::{JsonList, JsonListBuilder};

/// Maximum number of members of a request.
const ARGUMENTS_MAX: usize = 256;

/// Maximum timeout that a client may request: a year, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1000;

/// An argument, or its error; the caller's fault.
pub(crate) type Parsed<T> = Result<T, ErrorReply>;

/// The members of a request, as JSON texts.
pub(crate) struct Arguments<'a> {
    members: Vec<Member<'a>>,
    /// The names read so far.
    known: RefCell<Vec<&'static str>>,
    /// Design documents that may be named by digest.
    ddocs: Option<&'a KnownDdocs>,
}

/// A name and its value.
type Member<'a> = (Cow<'a, str>, &'a RawValue);

impl<'a> Arguments<'a> {
    /// Parses the arguments of a function call, a JSON object with the same members as a request of the socket.
    pub(super) fn parse(json: &'a str) -> Parsed<Self> {
        let arguments = Self::of_object(json)?;
        arguments.ignore(&["id", "call"]);
        Ok(arguments)
    }

    fn of_object(json: &'a str) -> Parsed<Self> {
        if !json.trim_start().starts_with('{') {
            let reason = "the arguments must be a JSON object";
            return Err(ErrorReply::bad_request(reason));
        }
        serde_json::from_str(json)
            .map_err(|error| ErrorReply::bad_request(format!("bad arguments: {error}")))
    }

    /// Parses the body of an order with these members; an empty body and `null` have none.
    pub fn of_order(body: &'a str, known: &[&'static str]) -> Parsed<Self> {
        let arguments = match body.trim() {
            "" | "null" => Self::of_object("{}")?,
            body => Self::of_object(body)?,
        };
        arguments.ignore(known);
        arguments.refuse_unknown()?;
        Ok(arguments)
    }

    /// Allows design documents to be named by digest, and keeps those that are sent.
    pub(super) fn with(self, ddocs: Option<&'a KnownDdocs>) -> Self {
        Self { ddocs, ..self }
    }

    /// Allows arguments that are meaningless for the call.
    pub(super) fn ignore(&self, names: &[&'static str]) {
        for name in names {
            self.get(name);
        }
    }

    /// Returns an argument; `None` if it is missing or `null`.
    pub fn get(&self, name: &'static str) -> Option<&'a RawValue> {
        self.known.borrow_mut().push(name);
        let (_, value) = self.members.iter().find(|(known, _)| *known == name)?;
        Some(*value).filter(|value| value.get() != "null")
    }

    /// Returns the total length, in bytes.
    pub(super) fn length(&self) -> usize {
        self.members
            .iter()
            .map(|(_, value)| value.get().len())
            .sum()
    }

    /// Refuses arguments that were not read. Called after the call was made from them.
    pub(super) fn refuse_unknown(&self) -> Parsed<()> {
        let known = self.known.borrow();
        let mut unknown = self.members.iter().filter(|(name, value)| {
            let is_known = known.iter().any(|known| *known == name);
            !is_known && value.get() != "null"
        });
        let Some((name, _)) = unknown.next() else {
            return Ok(());
        };
        let mut known = known.clone();
        known.sort_unstable();
        known.dedup();
        let hint = hint(name, &known, "expected");
        let reason = format!("there is no argument '{}': {hint}", shorten(name));
        Err(ErrorReply::bad_request(reason))
    }

    /// Returns a required argument.
    pub(super) fn required(&self, name: &'static str) -> Parsed<&'a RawValue> {
        self.get(name).ok_or_else(|| missing(name))
    }

    /// Reads an argument.
    pub fn read<T: Deserialize<'a>>(&self, name: &'static str, must_be: &str) -> Parsed<Option<T>> {
        let read = |value: &'a RawValue| serde_json::from_str(value.get());
        self.get(name)
            .map(read)
            .transpose()
            .map_err(|_| wrong(name, must_be))
    }

    /// Reads a required argument.
    pub fn require<T: Deserialize<'a>>(&self, name: &'static str, must_be: &str) -> Parsed<T> {
        self.read(name, must_be)?.ok_or_else(|| missing(name))
    }

    /// An optional string, at most as long as a name.
    pub(super) fn text(&self, name: &'static str) -> Parsed<Option<String>> {
        self.bounded(name, NAME_BYTES_MAX)
    }

    /// An optional string of at most `bytes_max` bytes.
    pub(super) fn bounded(&self, name: &'static str, bytes_max: usize) -> Parsed<Option<String>> {
        let text: Option<String> = self.read(name, "a string")?;
        check_name(name, text.as_deref().unwrap_or_default(), bytes_max)
            .map_err(ErrorReply::bad_request)?;
        Ok(text)
    }

    /// A string, at most as long as a name.
    pub(super) fn string(&self, name: &'static str) -> Parsed<String> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    /// A non-empty string; `what` describes it in the error.
    pub(super) fn name(&self, name: &'static str, what: &str) -> Parsed<String> {
        match self.string(name)? {
            text if text.is_empty() => Err(wrong(name, what)),
            text => Ok(text),
        }
    }

    /// A boolean; false if it is missing.
    pub(super) fn flag(&self, name: &'static str) -> Parsed<bool> {
        Ok(self.read(name, "true or false")?.unwrap_or_default())
    }

    /// The value of one of two words; `None` if the argument is missing.
    pub(super) fn either<T: Copy>(
        &self,
        name: &'static str,
        words: [(&str, T); 2],
    ) -> Parsed<Option<T>> {
        let Some(word) = self.text(name)? else {
            return Ok(None);
        };
        let found = words.iter().find(|(known, _)| *known == word);
        let [(one, _), (other, _)] = words;
        let must_be = || wrong(name, &format!("\"{one}\" or \"{other}\""));
        found.map(|(_, value)| Some(*value)).ok_or_else(must_be)
    }

    /// A JSON array, as text.
    pub(super) fn array(&self, name: &'static str) -> Parsed<&'a RawValue> {
        Some(self.required(name)?)
            .filter(|value| value.get().starts_with('['))
            .ok_or_else(|| wrong(name, "an array"))
    }

    /// A JSON object; empty if it is missing.
    pub(super) fn object(&self, name: &'static str) -> Parsed<Box<RawValue>> {
        match self.get(name) {
            None => Ok(RawValue::from_string("{}".to_owned()).expect("JSON: an empty object")),
            Some(value) if is_object(value) => Ok(value.to_owned()),
            Some(_) => Err(wrong(name, "an object")),
        }
    }

    /// Passes on the elements of an array, one by one; `take` returns whether each is valid.
    pub(super) fn each(
        &self,
        name: &'static str,
        must_be: &str,
        take: impl FnMut(&'a RawValue) -> bool,
    ) -> Parsed<()> {
        let value = self.required(name)?;
        let mut array = serde_json::Deserializer::from_str(value.get());
        array
            .deserialize_seq(Each(take))
            .map_err(|_| wrong(name, must_be))
    }

    /// The elements of a possibly long array; `is_one` returns whether each is valid.
    pub(super) fn list(
        &self,
        name: &'static str,
        must_be: &str,
        is_one: impl Fn(&RawValue) -> bool,
    ) -> Parsed<JsonList> {
        // The list without white space is never longer.
        let room = self.get(name).map_or(0, |value| value.get().len());
        let mut list = JsonListBuilder::with_room(room);
        self.each(name, must_be, |element| {
            list.push(element);
            is_one(element)
        })?;
        Ok(list.finish())
    }

    /// `docs`: an array of documents.
    pub(super) fn documents(&self) -> Parsed<JsonList> {
        self.list(
            "docs",
            "an array of documents, which are objects",
            is_object,
        )
    }

    /// `ddoc`: a database's design document, or the digest of one sent before.
    pub(super) fn design_document(&self, db: &Arc<str>) -> Parsed<Arc<Ddoc>> {
        let bad = |error: BadDdoc| ErrorReply::bad_request(error.to_string());
        let json = self.required("ddoc")?.get();
        if let Some((id, digest)) = reference(json).map_err(bad)? {
            return self
                .ddocs
                .and_then(|ddocs| ddocs.find(db, id, digest))
                .ok_or_else(ErrorReply::unknown_ddoc);
        }
        let ddoc = Ddoc::parse(json).map_err(bad)?;
        Ok(match self.ddocs {
            Some(ddocs) => ddocs.keep(db, ddoc, json),
            None => Arc::new(ddoc),
        })
    }

    /// `db`: the name of a database.
    pub(super) fn database(&self) -> Parsed<Arc<str>> {
        let name = self.name("db", "the name of a database")?;
        Ok(Arc::from(name))
    }

    /// `db`, optional.
    pub(super) fn optional_database(&self) -> Parsed<Option<Arc<str>>> {
        self.get("db").map(|_| self.database()).transpose()
    }

    /// `lang`: the name of a language.
    pub(super) fn language(&self) -> Parsed<LanguageName> {
        let name = self.name("lang", "the name of a language")?;
        Ok(LanguageName::new(&name))
    }

    /// `lang`, or empty if a pool or a group, which has a language, is named instead.
    pub(super) fn language_or_pool(&self) -> Parsed<LanguageName> {
        match self.get("lang") {
            None if self.names_pool() => Ok(LanguageName::new("")),
            _ => self.language(),
        }
    }

    /// Whether there is a `pool` or a `group`.
    pub(super) fn names_pool(&self) -> bool {
        self.get("pool").or(self.get("group")).is_some()
    }

    /// `timeout_ms`; `None`: as configured.
    pub(super) fn timeout(&self) -> Parsed<Option<Duration>> {
        let what = "a whole number of milliseconds, from 1 to a year";
        match self.read("timeout_ms", what)? {
            Some(ms) if !(1..=TIMEOUT_MS_MAX).contains(&ms) => Err(wrong("timeout_ms", what)),
            ms => Ok(ms.map(Duration::from_millis)),
        }
    }

    /// `pool` or `group`, by its name; not both.
    pub(super) fn take_from(&self) -> Parsed<TakeFrom> {
        let name = |argument| -> Parsed<Arc<str>> {
            let name = self.name(argument, "a name")?;
            Ok(Arc::from(language_name(&name)))
        };
        match (self.get("pool"), self.get("group")) {
            (None, None) => Ok(TakeFrom::Own),
            (Some(_), None) => Ok(TakeFrom::Pool(name("pool")?)),
            (None, Some(_)) => Ok(TakeFrom::Group(name("group")?)),
            (Some(_), Some(_)) => Err(wrong("group", "left out when there is a 'pool'")),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Arguments<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        /// A name, borrowed if it has no escapes.
        #[derive(serde::Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        struct Reading;

        impl<'de> Visitor<'de> for Reading {
            type Value = Arguments<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members: Vec<Member<'de>> = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    if members.iter().any(|(known, _)| *known == name) {
                        return Err(Error::custom(format!(
                            "duplicate field `{}`",
                            shorten(&name)
                        )));
                    }
                    if members.len() == ARGUMENTS_MAX {
                        return Err(Error::custom(format!("more than {ARGUMENTS_MAX} members")));
                    }
                    members.push((name, value));
                }
                Ok(Arguments {
                    members,
                    known: RefCell::default(),
                    ddocs: None,
                })
            }
        }

        from.deserialize_map(Reading)
    }
}

/// Passes on the elements of an array until one is invalid.
struct Each<T>(T);

impl<'de, T: FnMut(&'de RawValue) -> bool> Visitor<'de> for Each<T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut array: A) -> Result<(), A::Error> {
        while let Some(element) = array.next_element()? {
            if !(self.0)(element) {
                return Err(Error::custom("an element of another kind"));
            }
        }
        Ok(())
    }
}

pub(crate) fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// The error of a missing argument.
pub(super) fn missing(name: &str) -> ErrorReply {
    ErrorReply::bad_request(format!("'{name}' is missing"))
}

/// The error of an invalid argument.
pub(super) fn wrong(name: &str, must_be: &str) -> ErrorReply {
    ErrorReply::bad_request(format!("'{name}' must be {must_be}"))
}
