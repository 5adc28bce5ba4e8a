//! The path, method and headers of a request.

use std::borrow::Cow;
use std::future::{Ready, ready};

use actix_web::dev::{Payload, RequestHead};
use actix_web::http::header::{self, HeaderName};
use actix_web::{FromRequest, HttpRequest};
use percent_encoding::percent_decode_str;

use super::answer::{HttpResult, Refusal};

/// The content type of streams of lines, in both directions.
pub(super) const NDJSON: &str = "application/x-ndjson";

/// Returns a path without a leading and a trailing slash, which make no difference.
pub(super) fn trimmed(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.strip_suffix('/').unwrap_or(path)
}

/// Returns the decoded parts of the path.
pub(super) fn segments(path: &str) -> HttpResult<Vec<String>> {
    let path = trimmed(path);
    if path.is_empty() {
        return Ok(Vec::new());
    }
    path.split('/')
        .map(|part| Ok(decode(part)?.into_owned()))
        .collect()
}

/// Decodes a path, or a part of it.
pub(super) fn decode(path: &str) -> HttpResult<Cow<'_, str>> {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let is_whole = path.split('%').skip(1).all(is_escape);
    let decoded = percent_decode_str(path)
        .decode_utf8()
        .ok()
        .filter(|_| is_whole);
    decoded.ok_or_else(|| Refusal::bad_request("the path is wrongly encoded"))
}

/// Returns a header if it is text.
pub(super) fn text(head: &RequestHead, name: HeaderName) -> Option<&str> {
    head.headers.get(name)?.to_str().ok()
}

/// Returns the content type without parameters, in lower case; empty without one.
pub(super) fn content_type(head: &RequestHead) -> String {
    text(head, header::CONTENT_TYPE)
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Requires JSON or no content type: an HTML form on another site always sends a different one.
pub(super) fn require_json(request: &HttpRequest) -> HttpResult<()> {
    match content_type(request.head()).as_str() {
        "" | "application/json" => Ok(()),
        _ => Err(Refusal::bad_content_type("application/json")),
    }
}

/// The body is JSON or has no content type: see [`require_json`].
pub(super) struct IsJson;

impl FromRequest for IsJson {
    type Error = Refusal;
    type Future = Ready<HttpResult<Self>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(require_json(request).map(|()| Self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_and_decoded() {
        let of = |path| segments(path).ok();
        let owned = |parts: &[&str]| Some(parts.iter().map(|&p| p.to_owned()).collect::<Vec<_>>());
        assert_eq!(of("/"), owned(&[]));
        assert_eq!(of("/_up/"), owned(&["_up"]));
        assert_eq!(of("/a%2Fb/c%20d"), owned(&["a/b", "c d"]));
        assert_eq!(of("//"), owned(&[]));
        assert_eq!(of("/a//b"), owned(&["a", "", "b"]));
        for wrong in ["/%", "/%4", "/%zz", "/%ff"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
