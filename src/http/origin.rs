//! The hosts and web pages that requests are accepted from.
//!
//! SUMMARY   [`check`] reads the headers that browsers set themselves: `Host`, `Origin` and `Sec-Fetch-Site`.
//! PROMISES  A web page cannot act for the user viewing it, neither under a name that it points to this address (DNS
//!           rebinding) nor by cross-site requests (CSRF). A request in which one of these headers is not text,
//!           or occurs twice, is refused.
//! SOURCE    Fetch Metadata Request Headers (W3C); RFC 9110, 7.2 (`Host`).
//! DIFFERS   CouchDB checks `Origin` only with CORS, and never `Host`.

use std::net::IpAddr;
use std::sync::LazyLock;

use actix_web::dev::RequestHead;
use actix_web::http::header::{self, HeaderName};
use actix_web::http::uri::{Authority, Uri};
use actix_web::http::{Method, Version};

use super::answer::{HttpResult, Refusal};

/// The header with the kind of page that a request comes from: browsers send it, and pages cannot set it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses a request to a host name that is not allowed or from a page of another origin; `hosts` are additional names
/// from the configuration.
pub(super) fn check(head: &RequestHead, hosts: &[String]) -> HttpResult<()> {
    let host = host(head)?;
    if let Some(host) = &host
        && !is_ours(host.host(), hosts)
    {
        return Err(foreign_host(host.host()));
    }
    if let Some(origin) = only(head, header::ORIGIN).map_err(|()| foreign_page())?
        && !is_same(origin, host.as_ref())
    {
        return Err(foreign_page());
    }
    let site = only(head, SEC_FETCH_SITE).map_err(|()| foreign_page())?;
    let is_read = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
    match site {
        // A link on another page may lead here.
        _ if is_read => Ok(()),
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(foreign_page()),
    }
}

/// Returns the host of a request. HTTP/1.0, which browsers do not use, may have none.
fn host(head: &RequestHead) -> HttpResult<Option<Authority>> {
    let named = only(head, header::HOST).map_err(|()| foreign_host("a header that is not text"))?;
    // A URL's authority overrides the header, so both have to be valid.
    let target = head.uri.authority().map(Authority::as_str);
    if let (Some(named), Some(target)) = (named, target)
        && !named.eq_ignore_ascii_case(target)
    {
        return Err(foreign_host(target));
    }
    let Some(text) = named.or(target) else {
        return match head.version {
            Version::HTTP_10 | Version::HTTP_09 => Ok(None),
            _ => Err(foreign_host("")),
        };
    };
    match text.parse::<Authority>() {
        Ok(authority) if !text.contains('@') => Ok(Some(authority)),
        _ => Err(foreign_host(text)),
    }
}

/// Returns the text of a header, which must not occur twice.
fn only(head: &RequestHead, name: HeaderName) -> Result<Option<&str>, ()> {
    let mut values = head.headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}

/// Returns whether a host is an address, this machine's name, or one of the configured names.
fn is_ours(host: &str, hosts: &[String]) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let address = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let same = |known: &str| known.eq_ignore_ascii_case(name);
    address.unwrap_or(name).parse::<IpAddr>().is_ok()
        || same("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || MACHINE_NAMES.iter().any(|known| same(known))
        || hosts.iter().any(|known| same(known))
}

/// The machine's own names, with and without its domain.
static MACHINE_NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let full = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let short = full.split('.').next().unwrap_or_default().to_owned();
    [full, short]
        .into_iter()
        .filter(|name| !name.is_empty())
        .collect()
});

/// Returns whether a page's origin is the request's host. A proxy in front may add TLS, so the scheme only determines
/// the default port.
fn is_same(origin: &str, host: Option<&Authority>) -> bool {
    let Ok(origin) = origin.parse::<Uri>() else {
        return false;
    };
    let usual = match origin.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return false,
    };
    let port = |authority: &Authority| authority.port_u16().unwrap_or(usual);
    origin.authority().zip(host).is_some_and(|(origin, host)| {
        origin.host().eq_ignore_ascii_case(host.host()) && port(origin) == port(host)
    })
}

fn foreign_host(host: &str) -> Refusal {
    Refusal::forbidden(format!(
        "the Host of a request must be an IP address, localhost, this machine's name or one of \
         [server] hosts, and is {host:?}: use such a name, or add this one to [server] hosts"
    ))
}

fn foreign_page() -> Refusal {
    Refusal::forbidden("requests from a web page of another origin are refused")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_of_this_machine_are_ours_and_others_are_not() {
        let hosts = ["settee.example".to_owned()];
        for host in [
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "127.0.0.1",
            "10.1.2.3",
            "[::1]",
            "[2001:db8::1]",
            "Settee.example",
        ] {
            assert!(is_ours(host, &hosts), "{host}");
        }
        for host in [
            "",
            ".",
            "example",
            "a.settee.example",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "evil-localhost",
            "[evil]",
            "0x7f.1",
        ] {
            assert!(!is_ours(host, &hosts), "{host}");
        }
    }

    #[test]
    fn an_origin_matches_the_request_by_host_and_port() {
        let same = |origin: &str, host: &str| is_same(origin, host.parse().ok().as_ref());
        for (origin, host) in [
            ("http://localhost:5995", "localhost:5995"),
            ("http://LOCALHOST", "localhost:80"),
            ("https://settee.example", "settee.example"),
            ("https://settee.example", "settee.example:443"),
            ("http://[::1]:7", "[::1]:7"),
        ] {
            assert!(same(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "null"),
            ("", "localhost"),
            ("localhost", "localhost"),
            ("http://localhost:1", "localhost:2"),
            ("http://localhost", "localhost:5995"),
            ("https://localhost", "localhost:80"),
            ("ftp://localhost", "localhost"),
        ] {
            assert!(!same(origin, host), "{origin} {host}");
        }
    }
}
