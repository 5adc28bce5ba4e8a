//! Collects an endpoint's credentials from `auth`, its URL and its headers.
//!
//! SOURCE    couch_replicator_utils, normalize_basic_auth: `auth.basic` precedes the URL's user information, which
//!           precedes a header `Authorization: Basic`; credentials that are not used are removed from URL and headers
//!           as well. Malformed credentials are dropped without an error.
//! DIFFERS   A password in a URL may contain `@`: the last one in the authority ends it.

use std::fmt;
use std::ops::Range;

use data_encoding::{BASE64, BASE64_NOPAD};
use serde_json::Value;

/// A name and a password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct BasicAuth {
    pub user: String,
    pub password: String,
}

impl BasicAuth {
    /// Splits `user:password` at its first colon.
    fn split(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':')?;
        Some(Self {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }

    /// Reads `{"basic": {"username": .., "password": ..}}`.
    pub(super) fn of_auth(auth: &Value) -> Option<Self> {
        let basic = auth.get("basic")?;
        let text = |name| basic.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            user: text("username")?,
            password: text("password")?,
        })
    }

    /// Returns the value of the header `Authorization`. It is a secret.
    pub fn header_value(&self) -> String {
        let both = format!("{}:{}", self.user, self.password);
        format!("Basic {}", BASE64.encode(both.as_bytes()))
    }
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:*****", self.user)
    }
}

/// Returns the position of a URL's user information, including its `@`.
pub(super) fn user_info(url: &str) -> Option<Range<usize>> {
    let start = url.find("://")? + "://".len();
    let rest = &url[start..];
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let at = authority.rfind('@')?;
    Some(start..start + at + 1)
}

/// Removes the user information from a URL, and returns its credentials.
pub(super) fn split_url(url: &str) -> (String, Option<BasicAuth>) {
    let Some(range) = user_info(url) else {
        return (url.to_owned(), None);
    };
    let auth = BasicAuth::split(&url[range.start..range.end - 1]);
    let rest = format!("{}{}", &url[..range.start], &url[range.end..]);
    (rest, auth)
}

/// Removes `Authorization: Basic` from headers, and returns its credentials.
pub(super) fn split_headers(headers: &mut Vec<(String, String)>) -> Option<BasicAuth> {
    let mut found = None;
    headers.retain(|(name, value)| {
        let Some(encoded) = basic(name, value) else {
            return true;
        };
        found = found.take().or_else(|| decode(encoded));
        false
    });
    found
}

/// Returns the text after `Basic` in a header `Authorization`.
fn basic<'v>(name: &str, value: &'v str) -> Option<&'v str> {
    if !name.eq_ignore_ascii_case("authorization") {
        return None;
    }
    let (scheme, encoded) = value.trim_start().split_once(' ')?;
    scheme.eq_ignore_ascii_case("basic").then_some(encoded)
}

fn decode(encoded: &str) -> Option<BasicAuth> {
    let unpadded = encoded.trim().trim_end_matches('=');
    let bytes = BASE64_NOPAD.decode(unpadded.as_bytes()).ok()?;
    BasicAuth::split(str::from_utf8(&bytes).ok()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Defaults, EndpointSpec};
    use super::*;

    fn endpoint(body: &Value) -> EndpointSpec {
        EndpointSpec::parse("source", Some(body), None, &Defaults::default()).unwrap()
    }

    fn header(text: &str) -> String {
        format!("Basic {}", BASE64.encode(text.as_bytes()))
    }

    #[track_caller]
    fn check(body: &Value, auth: Option<(&str, &str)>, url: &str) {
        let endpoint = endpoint(body);
        let found = endpoint.auth.map(|auth| (auth.user, auth.password));
        let expected = auth.map(|(user, password)| (user.to_owned(), password.to_owned()));
        assert_eq!((found, endpoint.url), (expected, url.to_owned()));
    }

    #[test]
    fn credentials_are_removed_from_a_url() {
        let up = Some(("u", "p"));
        check(&json!("http://u:p@x.y/db"), up, "http://x.y/db/");
        check(
            &json!("http://u:p@[::1]:42/db?q=2"),
            up,
            "http://[::1]:42/db?q=2",
        );
        check(
            &json!("http://secretjunk@[::1]:42/db?q=2"),
            None,
            "http://[::1]:42/db?q=2",
        );
        check(
            &json!("http://u:p:p@[::1]:42/db"),
            Some(("u", "p:p")),
            "http://[::1]:42/db/",
        );
        check(
            &json!("http://u:%40@h/db"),
            Some(("u", "%40")),
            "http://h/db/",
        );
        check(
            &json!("http://u:p@p@h/db?x=a@b"),
            Some(("u", "p@p")),
            "http://h/db?x=a@b",
        );
        check(&json!("http://h/db?x=a@b"), None, "http://h/db?x=a@b");
    }

    #[test]
    fn credentials_are_removed_from_headers() {
        for (text, password) in [("u:p", "p"), ("u:p@", "p@"), ("u:p@%40", "p@%40")] {
            for name in ["Authorization", "authorization", "AUTHORIZATION"] {
                let body =
                    json!({"url": "http://h/db/", "headers": {name: header(text), "X": "y"}});
                check(&body, Some(("u", password)), "http://h/db/");
                assert_eq!(endpoint(&body).headers, [("X".to_owned(), "y".to_owned())]);
            }
        }
        let value = header("u:p").replace("Basic", "bASIC");
        let body = json!({"url": "http://h/db/", "headers": {"Authorization": value}});
        check(&body, Some(("u", "p")), "http://h/db/");
    }

    #[test]
    fn credentials_in_auth_precede_those_of_the_url_which_precede_those_of_headers() {
        let headers = json!({"Authorization": header("u3:p3")});
        let body = json!({"url": "http://u1:p1@h/db/", "headers": headers});
        check(&body, Some(("u1", "p1")), "http://h/db/");
        assert!(endpoint(&body).headers.is_empty());
        let auth = json!({"basic": {"username": "u2", "password": "p2"}});
        let body = json!({"url": "http://u1:p1@h/db/", "headers": headers, "auth": auth});
        check(&body, Some(("u2", "p2")), "http://h/db/");
        assert!(endpoint(&body).headers.is_empty());
    }

    #[test]
    fn malformed_credentials_are_not_an_error() {
        let kept = json!({"url": "http://h/db/", "headers": {"Authorization": "junk"}});
        check(&kept, None, "http://h/db/");
        assert_eq!(endpoint(&kept).headers.len(), 1);
        let dropped = json!({"url": "http://h/db/", "headers": {"Authorization": "basic X"}});
        check(&dropped, None, "http://h/db/");
        assert!(endpoint(&dropped).headers.is_empty());
        for auth in [
            json!({}),
            json!({"basic": 1}),
            json!({"basic": {"username": 1, "password": "p"}}),
            json!({"basic": {"username": "u"}}),
        ] {
            let body = json!({"url": "http://u1:p1@h/db/", "auth": auth});
            check(&body, Some(("u1", "p1")), "http://h/db/");
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let body = json!({"url": "http://u:s3cret@h/db/", "headers": {"X-Token": "s3cret"}});
        let shown = format!("{:?}", endpoint(&body));
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("X-Token"), "{shown}");
    }
}
