//! Arguments of calls: taking them out of a request, with errors that name them.
//!
//! CALLED    By the requests of the client socket and by function calls, whoever brings them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::config::language_name;
use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::TakeFrom;
use crate::query_server::ddoc::Ddoc;
use crate::query_server::language::LanguageName;

/// The longest timeout that a client may ask for: a year, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1000;

/// An argument, or what is wrong with it; the caller's fault.
pub(super) type Parsed<T> = Result<T, ErrorReply>;

/// `ddoc`: a design document.
pub(super) fn design_document(value: Option<&RawValue>) -> Parsed<Arc<Ddoc>> {
    match Ddoc::parse(required("ddoc", value)?.get()) {
        Ok(ddoc) => Ok(Arc::new(ddoc)),
        Err(error) => Err(ErrorReply::bad_request(error.to_string())),
    }
}

/// `db`: the name of a database.
pub(super) fn database(value: Option<&RawValue>) -> Parsed<String> {
    match string("db", required("db", value)?)? {
        name if name.is_empty() => Err(wrong("db", "the name of a database")),
        name => Ok(name),
    }
}

/// `timeout_ms`: none is the configured one.
pub(super) fn timeout(value: Option<&RawValue>) -> Parsed<Option<Duration>> {
    let Some(timeout) = value else {
        return Ok(None);
    };
    match timeout.get().parse::<u64>() {
        Ok(ms) if (1..=TIMEOUT_MS_MAX).contains(&ms) => Ok(Some(Duration::from_millis(ms))),
        _ => Err(wrong(
            "timeout_ms",
            "a whole number of milliseconds, from 1 to a year",
        )),
    }
}

/// An argument that must be there.
pub(super) fn required<'a>(name: &str, value: Option<&'a RawValue>) -> Parsed<&'a RawValue> {
    value.ok_or_else(|| missing(name))
}

/// A string's text.
pub(super) fn string(name: &str, value: &RawValue) -> Parsed<String> {
    serde_json::from_str(value.get()).map_err(|_| wrong(name, "a string"))
}

/// `lang`: the name of a language.
pub(super) fn language(value: &RawValue) -> Parsed<LanguageName> {
    match string("lang", value)? {
        name if name.is_empty() => Err(wrong("lang", "the name of a language")),
        name => Ok(LanguageName::new(&name)),
    }
}

/// A JSON array, as the text that it is.
/// A pool or a group by its name; not both.
pub(super) fn take_from(pool: Option<&RawValue>, group: Option<&RawValue>) -> Parsed<TakeFrom> {
    let name = |argument: &str, value: &RawValue| match string(argument, value)? {
        name if name.is_empty() => Err(wrong(argument, "a name")),
        name => Ok(Arc::from(language_name(&name))),
    };
    match (pool, group) {
        (None, None) => Ok(TakeFrom::Own),
        (Some(pool), None) => Ok(TakeFrom::Pool(name("pool", pool)?)),
        (None, Some(group)) => Ok(TakeFrom::Group(name("group", group)?)),
        (Some(_), Some(_)) => Err(wrong("group", "left out when there is a 'pool'")),
    }
}

pub(super) fn array<'a>(name: &str, value: &'a RawValue) -> Parsed<&'a RawValue> {
    if value.get().starts_with('[') {
        Ok(value)
    } else {
        Err(wrong(name, "an array"))
    }
}

/// `path`: names a function in a design document.
pub(super) fn path(value: &RawValue) -> Parsed<&RawValue> {
    match serde_json::from_str::<Vec<String>>(value.get()) {
        Ok(steps) if !steps.is_empty() => Ok(value),
        _ => Err(wrong("path", "an array of strings, at least one")),
    }
}

/// The error of an argument that is not there.
pub(super) fn missing(name: &str) -> ErrorReply {
    ErrorReply::bad_request(format!("'{name}' is missing"))
}

/// The error of an argument that is something else.
pub(super) fn wrong(name: &str, must_be: &str) -> ErrorReply {
    ErrorReply::bad_request(format!("'{name}' must be {must_be}"))
}

/// How much of a name that nobody knows an error quotes, in characters.
const QUOTED_CHARACTERS: usize = 100;

/// What an error quotes of a name.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(QUOTED_CHARACTERS).collect()
}
