//! Taking credentials out of requests before a function sees them.
//!
//! SUMMARY   [`scrub`] takes headers that carry credentials out of a request object and empties its
//!           `cookie`; [`without`] takes members out.
//! PROMISES  What is not taken out stays byte for byte; a request without credentials is not copied.
//! SOURCE    chttpd_external: json_req_obj/3 with `scrub_json_request`, always on.

use std::borrow::Cow;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::decode::decode;

/// Headers that carry credentials, in lower case.
const SECRET_HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// Headers of proxy authentication begin so.
const SECRET_PREFIX: &str = "x-auth-couchdb-";

/// Words that stand in every request that has credentials, unless it writes them with escapes.
const HINTS: [&str; 3] = ["authorization", "cookie", "x-auth-couchdb"];

/// Returns a request without credentials.
pub(super) fn scrub(req: &RawValue) -> Cow<'_, RawValue> {
    if !may_have_secrets(req.get()) {
        return Cow::Borrowed(req);
    }
    rebuilt(req, |name, value| match name {
        "headers" => Some(rebuilt(value, |header, value| {
            (!is_secret(header)).then_some(Cow::Borrowed(value))
        })),
        "cookie" => Some(Cow::Owned(empty_object())),
        _ => Some(Cow::Borrowed(value)),
    })
}

/// Returns an object without some of its members.
pub(super) fn without<'a>(object: &'a RawValue, names: &[&str]) -> Cow<'a, RawValue> {
    rebuilt(object, |name, value| {
        (!names.contains(&name)).then_some(Cow::Borrowed(value))
    })
}

fn is_secret(header: &str) -> bool {
    let header = header.trim().to_ascii_lowercase();
    SECRET_HEADERS.contains(&header.as_str()) || header.starts_with(SECRET_PREFIX)
}

/// A quick look: is there anything that [`scrub`] might have to take out?
fn may_have_secrets(json: &str) -> bool {
    let bytes = json.as_bytes();
    // A name may be spelled in escapes; whoever does that gets the long look.
    memchr::memmem::find(bytes, b"\\u").is_some()
        || HINTS
            .iter()
            .any(|word| contains_in_any_case(bytes, word.as_bytes()))
}

fn contains_in_any_case(text: &[u8], word: &[u8]) -> bool {
    let (lower, upper) = (word[0], word[0].to_ascii_uppercase());
    memchr::memchr2_iter(lower, upper, text).any(|at| {
        let end = at + word.len();
        text.get(at..end)
            .is_some_and(|part| part.eq_ignore_ascii_case(word))
    })
}

fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("config: this is JSON")
}

/// Passes the members of an object through `keep`. What is no object stays as it is, and so does
/// an object of which everything is kept.
fn rebuilt<'a>(
    object: &'a RawValue,
    keep: impl Fn(&str, &'a RawValue) -> Option<Cow<'a, RawValue>>,
) -> Cow<'a, RawValue> {
    let Ok(members) = serde_json::Deserializer::from_str(object.get()).deserialize_map(AsTexts)
    else {
        return Cow::Borrowed(object);
    };
    let mut changed = false;
    let mut text = String::with_capacity(object.get().len());
    for (name, value) in members {
        let kept = match decode::<String>(name.get()) {
            Some(decoded) => keep(&decoded, value),
            // A name that is no text at all is none that carries anything.
            None => Some(Cow::Borrowed(value)),
        };
        changed |= !matches!(kept, Some(Cow::Borrowed(_)));
        let Some(value) = kept else { continue };
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(name.get());
        text.push(':');
        text.push_str(value.get());
    }
    if !changed {
        return Cow::Borrowed(object);
    }
    text.push_str(if text.is_empty() { "{}" } else { "}" });
    // Made of names and values that are JSON, so it always is.
    RawValue::from_string(text).map_or_else(|_| Cow::Owned(empty_object()), Cow::Owned)
}

/// An object's members as the texts that they are, in their order.
struct AsTexts;

impl<'de> Visitor<'de> for AsTexts {
    type Value = Vec<(&'de RawValue, &'de RawValue)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Self::Value, M::Error> {
        let mut all = Vec::new();
        while let Some(name) = members.next_key::<&RawValue>()? {
            if !name.get().starts_with('"') {
                return Err(M::Error::custom("a name that is no string"));
            }
            all.push((name, members.next_value()?));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubbed(req: &str) -> String {
        let req: Box<RawValue> = serde_json::from_str(req).unwrap();
        scrub(&req).get().to_owned()
    }

    #[test]
    fn credentials_are_taken_out_in_any_case_and_any_spelling() {
        let req = r#"{ "headers": {"Host":"h", "AUTHORIZATION":"Basic eDp5","Cookie":"a=b",
            "proxy-Authorization":"x","X-Auth-CouchDB-Token":"t","\u0063ookie":"c","A":1.0} ,
            "cookie": {"AuthSession":"secret"}, "method" : "GET"}"#;
        assert_eq!(
            scrubbed(req),
            r#"{"headers":{"Host":"h","A":1.0},"cookie":{},"method":"GET"}"#
        );
        assert_eq!(
            scrubbed(r#"{"\u0063ookie":{"a":"b"}}"#),
            r#"{"\u0063ookie":{}}"#
        );
        assert_eq!(
            scrubbed(r#"{"headers":{"cookie":"a"}}"#),
            r#"{"headers":{}}"#
        );
    }

    #[test]
    fn all_members_of_one_name_are_seen() {
        assert_eq!(
            scrubbed(r#"{"headers":{"cookie":1,"a":2,"cookie":3},"headers":{"Cookie":1}}"#),
            r#"{"headers":{"a":2},"headers":{}}"#
        );
    }

    #[test]
    fn what_has_no_credentials_stays_byte_for_byte() {
        for req in [
            r#"{ "headers" : {"Accept":"*/*" } , "body":"undefined", "n":1.0 }"#,
            r#"{"body":"the cookie and its authorization","form":{"cookie":"kept"}}"#,
            r#"{"query":{"q":"\u0041"},"headers":{"\ud800":1}}"#,
            "[]",
            "7",
        ] {
            assert_eq!(scrubbed(req), req);
        }
    }

    #[test]
    fn members_are_taken_out_by_name() {
        let req: Box<RawValue> =
            serde_json::from_str(r#"{"info":{},"path":["a"],"uuid":"u","form":{},"id":1}"#)
                .unwrap();
        let names = ["info", "form", "uuid", "id"];
        assert_eq!(without(&req, &names).get(), r#"{"path":["a"]}"#);
    }
}
