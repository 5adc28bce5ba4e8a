//! Removes credentials from requests before a function sees them.
//!
//! SUMMARY   [`scrub`] removes headers with credentials from a request object and empties its `cookie`;
//!           [`without`] removes members.
//! PROMISES  Other names and values are unchanged byte for byte; a request without credentials is not copied.
//! SOURCE    chttpd_external: json_req_obj/3 with `scrub_json_request`, always on.

use std::borrow::Cow;

use serde_json::value::RawValue;

use json::cursor::Members;
use json::string::unescape;

/// Headers that carry credentials, in lower case.
const SECRET_HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// Prefix of proxy authentication headers.
const SECRET_PREFIX: &str = "x-auth-couchdb-";

/// Every request with credentials contains one of these words, unless it has escapes.
const HINTS: [&str; 3] = ["authorization", "cookie", "x-auth-couchdb"];

/// Returns a request without credentials.
pub(super) fn scrub(req: &RawValue) -> Cow<'_, RawValue> {
    if !may_have_secrets(req.get()) {
        return Cow::Borrowed(req);
    }
    rebuilt(req, |name, value| match name {
        "headers" => Some(members_kept(value, |header, value| {
            (!is_secret(header)).then_some(Cow::Borrowed(value))
        })),
        "cookie" => Some(Cow::Owned("{}".to_owned())),
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

/// Returns whether [`scrub`] may have anything to remove, by a quick search.
fn may_have_secrets(json: &str) -> bool {
    let bytes = json.as_bytes();
    // A name may have escapes.
    memchr::memmem::find(bytes, b"\\u").is_some()
        || HINTS
            .iter()
            .any(|word| contains_in_any_case(bytes, word.as_bytes()))
}

fn contains_in_any_case(text: &[u8], word: &[u8]) -> bool {
    let (lower, upper) = (word[0], word[0].to_ascii_uppercase());
    memchr::memchr2_iter(lower, upper, text).any(|at| {
        text.get(at..at + word.len())
            .is_some_and(|part| part.eq_ignore_ascii_case(word))
    })
}

fn rebuilt<'a>(
    object: &'a RawValue,
    keep: impl Fn(&str, &'a str) -> Option<Cow<'a, str>>,
) -> Cow<'a, RawValue> {
    match members_kept(object.get(), keep) {
        Cow::Borrowed(_) => Cow::Borrowed(object),
        Cow::Owned(text) => Cow::Owned(
            RawValue::from_string(text)
                .expect("CL-3: names and values of an object make an object"),
        ),
    }
}

/// Passes the members of an object through `keep`. Returns `object` itself if nothing changes or it is not an object.
fn members_kept<'a>(
    object: &'a str,
    keep: impl Fn(&str, &'a str) -> Option<Cow<'a, str>>,
) -> Cow<'a, str> {
    let mut is_changed = false;
    let mut text = String::with_capacity(object.len());
    for (name, value) in Members::of(object) {
        let kept = keep(&unescape(name), value);
        is_changed |= !matches!(kept, Some(Cow::Borrowed(_)));
        let Some(value) = kept else { continue };
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(name);
        text.push(':');
        text.push_str(&value);
    }
    if !is_changed {
        return Cow::Borrowed(object);
    }
    text.push_str(if text.is_empty() { "{}" } else { "}" });
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubbed(req: &str) -> String {
        let req: Box<RawValue> = serde_json::from_str(req).unwrap();
        scrub(&req).get().to_owned()
    }

    #[test]
    fn credentials_are_removed_in_any_case_and_spelling() {
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
    fn all_members_with_the_same_name_are_scrubbed() {
        assert_eq!(
            scrubbed(r#"{"headers":{"cookie":1,"a":2,"cookie":3},"headers":{"Cookie":1}}"#),
            r#"{"headers":{"a":2},"headers":{}}"#
        );
    }

    #[test]
    fn a_request_without_credentials_is_unchanged_byte_for_byte() {
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
    fn members_are_removed_by_name() {
        let req: Box<RawValue> =
            serde_json::from_str(r#"{"info":{},"path":["a"],"uuid":"u","form":{},"id":1}"#)
                .unwrap();
        let names = ["info", "form", "uuid", "id"];
        assert_eq!(without(&req, &names).get(), r#"{"path":["a"]}"#);
    }
}
