//! The session cookie in response headers.
//!
//! SOURCE    couch_replicator_auth_session: names and attributes ignoring case; a `Max-Age` that is not an integer is
//!           ignored.

use std::time::Duration;

use reqwest::header::{HeaderMap, SET_COOKIE};

const NAME: &str = "AuthSession";

#[derive(Clone, PartialEq, Eq)]
pub(super) struct SessionCookie {
    /// The value of the header `Cookie`. It is a secret.
    pub header: String,
    pub max_age: Option<Duration>,
}

impl SessionCookie {
    /// Returns the session cookie that a response sets.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut cookies = headers.get_all(SET_COOKIE).iter();
        cookies.find_map(|header| Self::parse(header.to_str().ok()?))
    }

    fn parse(header: &str) -> Option<Self> {
        let mut parts = header.split(';').map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (name.trim(), value.trim())
        });
        let (name, value) = parts.next()?;
        if !name.eq_ignore_ascii_case(NAME) || value.is_empty() {
            return None;
        }
        let max_age = parts
            .find(|(name, _)| name.eq_ignore_ascii_case("max-age"))
            .filter(|(_, seconds)| seconds.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|(_, seconds)| seconds.parse().ok())
            .map(Duration::from_secs);
        Some(Self {
            header: format!("{NAME}={value}"),
            max_age,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(header: &str) -> Option<(String, Option<u64>)> {
        let cookie = SessionCookie::parse(header)?;
        let value = cookie.header.strip_prefix("AuthSession=")?;
        Some((value.to_owned(), cookie.max_age.map(|age| age.as_secs())))
    }

    #[test]
    fn cookies_are_read_with_names_in_any_case() {
        let found = Some(("abc".to_owned(), None));
        for header in [
            "AuthSession=abc",
            "authsession=abc; Path=/; HttpOnly",
            "AUTHSESSION=abc;Version=1",
            " AuthSession = abc ; x",
        ] {
            assert_eq!(parse(header), found, "{header}");
        }
        for header in [
            "",
            "x",
            "Other=abc",
            "AuthSession",
            "AuthSession=",
            "AuthSession=; a",
        ] {
            assert_eq!(parse(header), None, "{header}");
        }
        assert_eq!(parse("AuthSession=a=b=").unwrap().0, "a=b=");
    }

    #[test]
    fn a_max_age_is_a_whole_number_or_ignored() {
        let age = |text: &str| {
            parse(&format!("AuthSession=x; Path=/; max-AGE={text}; a"))
                .unwrap()
                .1
        };
        assert_eq!(age("100"), Some(100));
        assert_eq!(age(" 1 "), Some(1));
        for text in ["-10", "*", "", "1 1", "+1", "1.5"] {
            assert_eq!(age(text), None, "{text:?}");
        }
    }
}
