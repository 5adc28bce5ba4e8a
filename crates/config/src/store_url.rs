//! `[store] url`: the PostgreSQL database that keeps replications.
//!
//! PROMISES  Neither the shown URL nor an error contains the password.
//! SOURCE    libpq: connection URIs.
//! DIFFERS   `sslmode` is one of `disable`, `prefer`, `require` and `verify-full`. A password is valid only before
//!           the host.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The parameters that may follow the `?`.
const PARAMETERS: &[&str] = &[
    "application_name",
    "dbname",
    "host",
    "options",
    "port",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "user",
];

/// The expected form, worded to follow "it must be".
pub(crate) const EXPECTED: &str = "text: \"postgres://user:password@host:port/database\", with ?sslmode=.. if need be, \
                                   or \"\" for the file in path";

/// How a connection is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum SslMode {
    /// Not at all.
    Disable,
    /// By TLS if the server supports it; the server is not verified.
    #[default]
    Prefer,
    /// By TLS; the server is not verified.
    Require,
    /// By TLS; the server's certificate must match the URL's host name.
    VerifyFull,
}

/// The URL of a PostgreSQL database.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// The problem, without quoting the URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = ["postgres://", "postgresql://"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme))
            .ok_or("the URL does not begin with postgres://")?;
        if text.contains(|c: char| c.is_control() || c == ' ' || c == '#') {
            return Err(
                "the URL has a blank, a control character or #: write % and two hexadecimal digits"
                    .to_owned(),
            );
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, after) = rest.split_at(end);
        if after.contains('@') || authority.matches('@').count() > 1 {
            return Err(
                "the user or the password contains / ? or @: write % and two hexadecimal digits"
                    .to_owned(),
            );
        }
        let hosts = authority.rsplit('@').next().unwrap_or_default();
        for host in hosts.split(',') {
            let port = host.rsplit_once(':').filter(|_| !host.ends_with(']'));
            if port.is_some_and(|(_, port)| !matches!(port.parse::<u16>(), Ok(1..))) {
                return Err("a host's port is not a number from 1 to 65535".to_owned());
            }
        }
        let url = Self(text.to_owned());
        for (name, value) in url.parameters() {
            if name == "password" {
                return Err(
                    "the password is in a parameter: write it as user:password@host".to_owned(),
                );
            }
            if !PARAMETERS.contains(&name) {
                let known = PARAMETERS.join(", ");
                return Err(format!("the parameter {name:?} is none of {known}"));
            }
            if name == "sslmode" && value.parse::<SslMode>().is_err() {
                return Err("sslmode is none of disable, prefer, require, verify-full".to_owned());
            }
        }
        if url.parameter("host").is_none() && hosts.is_empty() {
            return Err("no host, and no ?host=/folder of a Unix socket".to_owned());
        }
        if url.database().is_empty() && url.parameter("dbname").is_none() {
            return Err("no database name".to_owned());
        }
        Ok(url)
    }

    /// Returns how connections are protected.
    pub fn ssl_mode(&self) -> SslMode {
        self.parameter("sslmode")
            .and_then(|mode| mode.parse().ok())
            .unwrap_or_default()
    }

    /// Returns the file of CA certificates that verify the server's, if one is named.
    pub fn root_certificates(&self) -> Option<PathBuf> {
        self.parameter("sslrootcert").map(PathBuf::from)
    }

    /// Returns the URL with its password, but without the parameters for TLS.
    pub fn without_ssl(&self) -> String {
        let (base, _) = self.parts();
        let others: Vec<_> = self
            .parameters()
            .filter(|(name, _)| !matches!(*name, "sslmode" | "sslrootcert"))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if others.is_empty() {
            base.to_owned()
        } else {
            format!("{base}?{}", others.join("&"))
        }
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once('?').unwrap_or((&self.0, ""))
    }

    fn database(&self) -> &str {
        self.parts()
            .0
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once('/'))
            .map_or("", |(_, database)| database)
    }

    fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parts()
            .1
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }
}

/// Omits the password, and all parameters but `host`, `port` and `dbname`.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base, _) = self.parts();
        let (scheme, rest) = base.split_once("://").unwrap_or(("postgres", base));
        let shown = match rest.split_once('@') {
            Some((login, place)) => {
                format!("{}@{place}", login.split(':').next().unwrap_or_default())
            }
            None => rest.to_owned(),
        };
        write!(f, "{scheme}://{shown}")?;
        let said = ["host", "port", "dbname"]
            .into_iter()
            .filter_map(|name| Some(format!("{name}={}", self.parameter(name)?)));
        match said.collect::<Vec<_>>().join("&") {
            said if said.is_empty() => Ok(()),
            said => write!(f, "?{said}"),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (text, shown) in [
            ("postgres://u:pw@h:1/db", "postgres://u@h:1/db"),
            (
                "postgresql://u:pw@h/db?sslmode=require",
                "postgresql://u@h/db",
            ),
            (
                "postgres://h1:1,h2:2/db?target_session_attrs=read-write",
                "postgres://h1:1,h2:2/db",
            ),
            (
                "postgres://u:p%40w@[::1]:5432/db",
                "postgres://u@[::1]:5432/db",
            ),
            ("postgres://u:p@[::1]/db", "postgres://u@[::1]/db"),
            (
                "postgres:///db?host=/run/postgresql&user=u",
                "postgres:///db?host=/run/postgresql",
            ),
        ] {
            let url = StoreUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), shown);
        }
    }

    #[test]
    fn an_invalid_url_is_refused_without_quoting_it() {
        for (text, what) in [
            ("/var/lib/settee", "postgres://"),
            ("mysql://u:secret@h/db", "postgres://"),
            ("postgres://u:sec/ret@h/db", "password"),
            ("postgres://u:sec@ret@h/db", "password"),
            ("postgres://u:secret@h:x/db", "port"),
            ("postgres://u:secret@h:0/db", "port"),
            ("postgres://h/db?password=secret", "user:password@host"),
            ("postgres://h/db?sslmode=allow", "sslmode"),
            ("postgres://h/db?sslmod=require", "\"sslmod\" is none of"),
            ("postgres://h", "database"),
            ("postgres:///db", "host"),
            ("postgres://u:sec ret@h/db", "blank"),
        ] {
            let error = StoreUrl::parse(text).unwrap_err();
            assert!(
                error.contains(what) && !error.contains("sec"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn sslmode_and_sslrootcert_are_parsed_separately() {
        let url = "postgres://u:pw@h/db?sslmode=verify-full&sslrootcert=/ca.pem&options=-c%20x";
        let url = StoreUrl::parse(url).unwrap();
        assert_eq!(url.ssl_mode(), SslMode::VerifyFull);
        assert_eq!(url.root_certificates(), Some("/ca.pem".into()));
        assert_eq!(url.without_ssl(), "postgres://u:pw@h/db?options=-c%20x");
        let plain = StoreUrl::parse("postgres://h/db").unwrap();
        assert_eq!(plain.ssl_mode(), SslMode::Prefer);
    }
}
