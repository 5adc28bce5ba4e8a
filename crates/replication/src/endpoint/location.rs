//! The targets of requests: URLs of a database, and redirects.
//!
//! PROMISES  A request uses the path as written, or is not sent: parsing a URL would drop segments like `..`, even
//!           percent-encoded (`%2E%2E`), anything after a `#`, and some characters, and turn `\\` into `/`.

use percent_encoding::percent_decode_str;
use reqwest::header::{HeaderMap, LOCATION};
use url::Url;

use super::{Cause, Request, encode};
use crate::endpoint::rules::origin;
use crate::spec::mask_query;

/// The URL of a database, in parts.
#[derive(Clone, Debug)]
pub(super) struct Base {
    /// Up to the slash that precedes everything in the database.
    path: String,
    /// The part after `?`.
    query: String,
}

impl Base {
    pub fn new(url: &str) -> Self {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let mut path = path.to_owned();
        if !path.ends_with('/') {
            path.push('/');
        }
        Self {
            path,
            query: query.to_owned(),
        }
    }

    /// Returns the URL of a resource in the database. `path` must be percent-encoded; values of `query` are encoded
    /// here.
    pub fn url(&self, path: &str, query: &[(String, String)]) -> Result<Url, String> {
        let url = self.url_of(&self.query, path, query)?;
        if keeps_path(&url, &format!("{}{path}", self.path)) {
            Ok(url)
        } else {
            Err(format!("no URL leads to `{path}` of `{}`", self.path))
        }
    }

    /// Returns the URL of a request for display: values given by a user are masked.
    pub fn shown(&self, request: &Request) -> String {
        let Request {
            path,
            query,
            secret_query,
            ..
        } = request;
        let mut shown = self
            .url_of(&mask_query(&self.query), path, query)
            .map_or_else(|_| self.path.clone(), String::from);
        for (name, _) in secret_query {
            shown.push(if shown.contains('?') { '&' } else { '?' });
            shown.push_str(&mask_query(&format!("{name}=x")));
        }
        shown
    }

    fn url_of(
        &self,
        own_query: &str,
        path: &str,
        query: &[(String, String)],
    ) -> Result<Url, String> {
        let mut params: Vec<String> = vec![own_query.to_owned()];
        params.retain(|param| !param.is_empty());
        params.extend(
            query
                .iter()
                .map(|(name, value)| format!("{name}={}", encode(value))),
        );
        let mark = if params.is_empty() { "" } else { "?" };
        Url::parse(&format!("{}{path}{mark}{}", self.path, params.join("&")))
            .map_err(|problem| format!("`{}`: {problem}", self.path))
    }
}

/// Whether a URL has the path of `written`, a URL without a query: a character may be encoded in another way, but the
/// path must not lead elsewhere.
pub(crate) fn keeps_path(url: &Url, written: &str) -> bool {
    let Some((_, behind_scheme)) = written.split_once("://") else {
        return false;
    };
    let path = behind_scheme
        .find('/')
        .map_or("/", |at| &behind_scheme[at..]);
    url.fragment().is_none() && percent_decode_str(url.path()).eq(percent_decode_str(path))
}

/// Whether this percent-encoded path can name a resource below a database.
pub(crate) fn is_path(path: &str) -> bool {
    Base::new("http://h/db/").url(path, &[]).is_ok()
}

/// Returns the URL of the server's sessions.
pub(super) fn session_url(base: &Url) -> Url {
    let mut url = base.clone();
    url.set_path("/_session");
    url.set_query(None);
    url
}

/// Returns the target of a redirect.
pub(super) fn redirected(from: &Url, headers: &HeaderMap) -> Result<Url, String> {
    let location = headers
        .get(LOCATION)
        .ok_or("without saying where to")?
        .to_str()
        .map_err(|_| "to no URL")?;
    let mut url = from.join(location).map_err(|_| "to no URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("to a URL of {}", url.scheme()));
    }
    // Credentials are never taken from a redirect.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    Ok(url)
}

/// Returns `true` if a redirect to `to` stays within the origin of `asked`, `false` if it leads to another origin in
/// `allowed`. A name with a trailing dot and the same name without one are the same server; `to` then gets the spelling
/// of `asked`.
///
/// # Errors
/// [`Cause::RedirectedElsewhere`].
pub(super) fn leads(asked: &Url, to: &mut Url, allowed: &[String]) -> Result<bool, Cause> {
    let (from, there) = (origin(asked), origin(to));
    if from == there {
        let _ = to.set_host(asked.host_str());
        return Ok(true);
    }
    if allowed.contains(&there) {
        Ok(false)
    } else {
        Err(Cause::RedirectedElsewhere { from, to: there })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_made_of_base_path_and_query() {
        let query = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = pairs
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()));
            owned.collect()
        };
        let url = |base, path, pairs: &[(&str, &str)]| {
            Base::new(base)
                .url(path, &query(pairs))
                .unwrap()
                .to_string()
        };
        assert_eq!(url("http://h/db/", "", &[]), "http://h/db/");
        assert_eq!(
            url(
                "http://h:5984/db/",
                "_changes",
                &[("since", "1-a b&"), ("x", "[\"1\"]")]
            ),
            "http://h:5984/db/_changes?since=1-a%20b%26&x=%5B%221%22%5D"
        );
        assert_eq!(
            url("http://h/db?q=2", "_local/x", &[("a", "b")]),
            "http://h/db/_local/x?q=2&a=b"
        );
        assert_eq!(url("http://h/db/", "a%2Fb", &[]), "http://h/db/a%2Fb");
    }

    #[test]
    fn a_request_goes_to_the_path_that_was_written_or_nowhere() {
        for path in [
            "a%2Fb",
            "...",
            "a..",
            "%252e",
            "_design/a%2F..%2Fb",
            "%5C",
            "a//b",
            "%3F%23",
            "%01",
            "a\u{e9}",
        ] {
            assert!(is_path(path), "{path}");
        }
        for path in [
            ".",
            "..",
            "%2e",
            "%2E%2e",
            ".%2E",
            "_design/..",
            "a/./b",
            "a/../b",
            "a\\b",
            "a#b",
            "a\tb",
        ] {
            assert!(!is_path(path), "{path}");
            assert!(Base::new("http://h/db/").url(path, &[]).is_err(), "{path}");
        }
        for base in [
            "http://h/a/../db/",
            "http://h/%2e/db",
            "http://h/a\\b/",
            "http://h\\db/",
            "http://h/db#x/",
            "http://h/db?x#y",
        ] {
            assert!(Base::new(base).url("x", &[]).is_err(), "{base}");
        }
        for base in [
            "http://h/a//db/",
            "http://h",
            "http://h?q=1",
            "http://h/a%2Fb c\u{e9}/?x=../..",
        ] {
            assert!(Base::new(base).url("x", &[]).is_ok(), "{base}");
        }
    }

    #[test]
    fn sessions_are_at_the_root_of_the_host() {
        for (url, session) in [
            ("http://host/x/y/z", "http://host/_session"),
            ("http://host:5984/db", "http://host:5984/_session"),
            ("https://host/db?q=1", "https://host/_session"),
            ("http://[::1]:1", "http://[::1]:1/_session"),
        ] {
            assert_eq!(session_url(&Url::parse(url).unwrap()).as_str(), session);
        }
    }

    #[test]
    fn redirects_are_followed_to_http_only() {
        let from = Url::parse("http://h:1/db/doc?x=1").unwrap();
        let to = |location: &str| {
            let headers = [(LOCATION, location.parse().unwrap())]
                .into_iter()
                .collect();
            redirected(&from, &headers).map(String::from)
        };
        assert_eq!(to("https://u:p@o:2/a?b#c").unwrap(), "https://o:2/a?b");
        assert_eq!(to("/other").unwrap(), "http://h:1/other");
        assert!(to("ftp://h/").is_err());
        assert!(redirected(&from, &HeaderMap::new()).is_err());
    }

    #[test]
    fn a_redirect_leads_within_the_origin_or_to_one_that_is_allowed() {
        let asked = Url::parse("http://db.example/db/").unwrap();
        let leads = |to| {
            let mut to = Url::parse(to).unwrap();
            let leads = leads(&asked, &mut to, &["https://b.example".to_owned()]);
            (leads.ok(), to.to_string())
        };
        let within = Some(true);
        assert_eq!(
            leads("http://DB.example:80/x"),
            (within, "http://db.example/x".into())
        );
        assert_eq!(
            leads("http://db.example./x"),
            (within, "http://db.example/x".into())
        );
        assert_eq!(leads("https://b.example/y").0, Some(false));
        for to in [
            "http://b.example",
            "https://b.example:444",
            "https://db.example",
            "https://c.b.example",
        ] {
            assert_eq!(leads(to).0, None, "{to}");
        }
    }
}
