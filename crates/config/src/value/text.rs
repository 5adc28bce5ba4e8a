//! Strings of a certain form: names, addresses, lines, secrets; and lists of them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde_json::Value;

use super::super::services::ServiceAddress;
use super::super::store_url::{self, StoreUrl};
use super::super::types::language_name;
use super::{Kind, OFF, Raw, environment};
use crate::password::{HIDDEN, PasswordHash};
use child::cell::is_system_call;
use child::cell::user::UserRange;
use replication::endpoint::rules::{EndpointRules, parse_origin};

/// Maximum length of the name of a pool, a group or a language, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 100;

/// The rule of [`is_name`], worded to follow "use" in a message.
pub const NAME_RULE: &str = "1 to 100 of a to z, digits, _, - and inner dots, beginning with a \
                             letter or a digit";

/// The rule of [`is_user_name`], worded to follow "use" in a message.
pub(crate) const USER_NAME_RULE: &str =
    "1 to 100 bytes without blanks, slashes, quotes and brackets, not beginning with an underscore";

/// Maximum length of a line that is sent verbatim, in bytes.
const LINE_BYTES_MAX: usize = 1000;

/// A form of strings.
#[derive(Debug)]
pub struct Form {
    /// Returns the normal form, or the mistake in a value.
    pub(super) read: fn(&Raw) -> Result<Value, String>,
    /// Its description, to follow "it must be".
    pub(super) expected: &'static str,
    /// The word for none, if allowed.
    pub(super) none: Option<&'static str>,
    /// Whether the value is never shown.
    pub(super) is_hidden: bool,
    /// Whether only the names of `NAME=VALUE` entries are shown.
    pub(super) hides_values: bool,
    /// Why it cannot be set over HTTP, if so.
    pub(super) only_in_files: Option<&'static str>,
}

const PLAIN: Form = Form {
    read: path,
    expected: "",
    none: None,
    is_hidden: false,
    hides_values: false,
    only_in_files: None,
};

/// Declares the kinds of strings; members of a form that are left out are as in [`PLAIN`].
macro_rules! kinds {
    ($( $(#[$doc:meta])* $name:ident { $($member:ident: $value:expr,)* } )*) => {
        $(
            $(#[$doc])*
            pub(crate) const $name: Kind = Kind::Text(&Form { $($member: $value,)* ..PLAIN });
        )*
    };
}

kinds! {
    /// The name of a language, a pool or a group.
    NAME {
        read: |raw| {
            raw.text()
                .map(language_name)
                .filter(|name| is_name(name))
                .map(Value::from)
                .ok_or(raw.misfit())
        },
        expected: "a name: 1 to 100 of a to z, digits, _, - and inner dots, beginning with a letter or a \
                   digit",
    }

    /// Names of pools; may be empty.
    NAMES {
        read: |raw| list(raw, is_name, language_name),
        expected: "names of pools, as a list or with commas",
    }

    /// Host names, without the trailing dot of a full name; may be empty.
    HOSTS {
        read: |raw| list(raw, is_host, str::to_owned),
        expected: "names of hosts without ports, as a list or with commas",
        only_in_files: Some("it decides which web pages are let in"),
    }

    /// Hosts and networks, with or without a port; may be empty.
    ENDPOINTS {
        read: |raw| {
            let is_right = |entry: &str| !entry.is_empty() && EndpointRules::parse(entry, "").is_ok();
            list(raw, is_right, str::to_owned)
        },
        expected: "hosts, \"*.domain\", addresses or networks, each with or without :port (IPv6 with a port in \
                   brackets), as a list or with commas; \"*\" is all",
        only_in_files: Some(CREDENTIALS),
    }

    /// Origins, with or without a port; may be empty.
    ORIGINS {
        read: |raw| list(raw, |entry| parse_origin(entry).is_some(), str::to_owned),
        expected: "\"https://host\" or \"http://host:port\" without a path, as a list or with commas",
        only_in_files: Some(CREDENTIALS),
    }

    /// Addresses that replace others.
    CONNECT_TO {
        read: connect_to,
        expected: "text: \"host:port:target:port\" with commas between several, where host may be \
                   *.domain and an IPv6 target is in brackets",
        only_in_files: Some(CREDENTIALS),
    }

    /// A group of the system, by name or number; empty is none.
    GROUP {
        read: account,
        expected: "the name or the number of a group of the system, or \"\" for none",
    }

    /// A user of the system, by name or number; empty is the service's own.
    USER {
        read: account,
        expected: "the name or the number of a user of the system, or \"\" for the service's own",
    }

    /// A range of user numbers; empty is none.
    USER_RANGE {
        read: |raw| {
            let text = raw.text().ok_or(raw.misfit())?;
            let range = (!text.is_empty()).then(|| UserRange::try_from(text.to_owned()));
            Ok(range.transpose()?.map(String::from).into())
        },
        expected: "\"FIRST-LAST\", at least 16 numbers of users from 1 to 4294967294 without 65534, or \"\" for none",
        none: Some(""),
    }

    /// Files and folders; may be empty.
    READ_PATHS {
        read: |raw| {
            let trimmed = |path: &str| match path.trim_end_matches('/') {
                "" => "/".to_owned(),
                trimmed => trimmed.to_owned(),
            };
            list(raw, is_whole_path, trimmed)
        },
        expected: "absolute paths without '..' and without commas in them, as a list or with commas",
    }

    /// Environment variables; may be empty. Messages never contain the values.
    ENV {
        read: environment::read,
        expected: "NAME=VALUE, or NAME for the service's own value, as a list or with commas; values with \
                   commas in a list",
        hides_values: true,
    }

    /// System calls by name; may be empty.
    SYSTEM_CALLS {
        read: system_calls,
        expected: "names of system calls of this machine's processor, as a list or with commas",
    }

    /// The path of a file; empty is none.
    FILE_PATH {
        read: |raw| Ok(Some(path(raw)?).filter(|path| path != "").into()),
        expected: "text: the path of a file, or \"\" for none",
        none: Some(""),
        only_in_files: Some(FILE),
    }

    /// The path of the store; empty is the default.
    STORE_PATH {
        expected: "text: the path of a file, \"memory\" for a store that ends with the service, or \"\" for \
                   the usual place",
        only_in_files: Some(FILE),
    }

    /// The URL of a PostgreSQL database; empty is none. Messages never contain the value.
    STORE_URL {
        read: |raw| match raw.text() {
            Some("") => Ok(Value::Null),
            Some(text) if text.contains(HIDDEN) => {
                Err("this is how a URL is shown, without its password".to_owned())
            }
            Some(text) => StoreUrl::parse(text).map(|_| text.into()),
            None => Err("a URL is text".to_owned()),
        },
        expected: store_url::EXPECTED,
        none: Some(""),
        only_in_files: Some(CREDENTIALS),
    }

    /// The path of a Unix socket; empty is the default.
    SOCKET_PATH {
        expected: "text: the path of a Unix socket, or \"\" for the usual place",
        only_in_files: Some(SOCKET),
    }

    /// A TCP address with a port, or none.
    ADDRESS {
        read: |raw| match raw.text() {
            Some(OFF) => Ok(Value::Null),
            _ => parsed::<SocketAddr>(raw),
        },
        expected: "text: \"off\" or an IP address with a port, \"127.0.0.1:5994\" or \"[::1]:5994\"",
        none: Some(OFF),
        only_in_files: Some(SOCKET),
    }

    /// An IP address to listen on.
    IP_ADDRESS {
        read: parsed::<IpAddr>,
        expected: "text: an IP address, \"127.0.0.1\", or \"0.0.0.0\" or \"::\" for all of this machine",
        only_in_files: Some(SOCKET),
    }

    /// Where a service listens: `unix:PATH` or a TCP address with a port.
    SERVICE_ADDRESS {
        read: |raw| {
            let text = raw.text().ok_or(raw.misfit())?.to_owned();
            let address =
                ServiceAddress::try_from(text).map_err(|what| format!("{}: {what}", raw.describe()))?;
            Ok(address.to_string().into())
        },
        expected: "text: \"unix:/PATH\", or an IP address or localhost with a port, \"127.0.0.1:5996\"",
        only_in_files: Some(SOCKET),
    }

    /// One line that is sent verbatim to a program; empty is none. Must not contain line feeds or other control
    /// characters.
    LINE {
        read: |raw| match raw {
            Raw::Text(text) if text.len() <= LINE_BYTES_MAX && !text.contains(char::is_control) => {
                Ok(text.trim().into())
            }
            _ => Err(raw.misfit()),
        },
        expected: "one line of text, at most 1000 bytes without control characters, or \"\" for none",
    }

    /// A password, plain or hashed. Messages never contain the value.
    PASSWORD {
        read: |raw| match raw {
            Raw::Text(text) => Ok(PasswordHash::of_config(text)?.text().into()),
            _ => Err("a password is text".to_owned()),
        },
        expected: "text in quotes: a password, or its hash as CouchDB writes it",
        is_hidden: true,
        only_in_files: Some(LET_IN),
    }

    /// Text that messages never contain.
    SECRET {
        read: |raw| match raw {
            Raw::Text(text) if text != HIDDEN => Ok(text.as_str().into()),
            Raw::Text(_) => Err("this is how a secret is shown, not a secret".to_owned()),
            _ => Err("a secret is text".to_owned()),
        },
        expected: "text in quotes, or \"\" to leave it unset",
        is_hidden: true,
        only_in_files: Some(LET_IN),
    }

    /// A command line for the shell, or `builtin`.
    COMMAND {
        expected: "text: the command that starts the query server, or \"builtin\"",
        only_in_files: Some("it runs a program on this machine"),
    }
}

const CREDENTIALS: &str = "it decides where credentials are sent";
const FILE: &str = "it names a file of this machine";
const SOCKET: &str = "it opens a socket";
pub(crate) const LET_IN: &str = "it decides who is let in";

/// Returns whether a string can name a pool, a group, a service or a language (each language has a pool of the same
/// name). Names are used in HTTP paths, metric labels, command lines and the log: a leading underscore is reserved for
/// HTTP paths, a leading dash would be an option.
pub fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= NAME_BYTES_MAX
        && text.chars().all(fits)
        && !text.ends_with('.')
}

/// Returns whether a string can name a section `[users.NAME]`, for example a mail address.
pub(crate) fn is_user_name(text: &str) -> bool {
    let unfit = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '"' | '[' | ']');
    !text.is_empty()
        && text.len() <= NAME_BYTES_MAX
        && !text.starts_with('_')
        && !text.contains(unfit)
}

fn is_host(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && !text.starts_with('.') && !text.ends_with('.') && text.chars().all(fits)
}

fn list(
    raw: &Raw,
    is_right: impl Fn(&str) -> bool,
    normal: impl Fn(&str) -> String,
) -> Result<Value, String> {
    let mut entries = raw.entries().ok_or(raw.misfit())?;
    if entries == [""] {
        entries.clear();
    }
    if entries.iter().all(|entry| is_right(entry)) {
        Ok(entries.into_iter().map(normal).collect())
    } else {
        Err(raw.misfit())
    }
}

fn system_calls(raw: &Raw) -> Result<Value, String> {
    let mut entries = raw.entries().into_iter().flatten();
    match entries.find(|name| !name.is_empty() && !is_system_call(name)) {
        Some(name) => Err(format!("there is no system call '{name}'")),
        None => list(raw, is_system_call, str::to_owned),
    }
}

/// Reads text that a type of the standard library parses, and writes it as that type does.
fn parsed<T: FromStr + ToString>(raw: &Raw) -> Result<Value, String> {
    let value: Option<T> = raw.text().and_then(|text| text.parse().ok());
    let value = value.ok_or(raw.misfit())?;
    Ok(value.to_string().into())
}

fn path(raw: &Raw) -> Result<Value, String> {
    raw.text()
        .filter(|text| !text.contains('\0'))
        .map(Value::from)
        .ok_or(raw.misfit())
}

fn is_whole_path(text: &str) -> bool {
    let mut parts = text.split('/');
    parts.next() == Some("") && parts.all(|part| part != "..") && !text.contains(['\0', ','])
}

/// Returns a user or a group. A leading dash would be an option to the system's lookup tool.
fn account(raw: &Raw) -> Result<Value, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
    match raw {
        Raw::Text(text) if !text.starts_with('-') && text.chars().all(fits) => {
            Ok(text.as_str().into())
        }
        Raw::Integer(Some(number)) if u32::try_from(*number).is_ok() => {
            Ok(number.to_string().into())
        }
        _ => Err(raw.misfit()),
    }
}

/// Refuses an unreadable entry: CouchDB drops it with a warning, and then connects to the address to be replaced.
fn connect_to(raw: &Raw) -> Result<Value, String> {
    let text = raw.text().ok_or(raw.misfit())?;
    let mut entries = text.split(',').map(str::trim);
    match entries.find(|entry| !entry.is_empty() && !is_connect_to(entry)) {
        Some(entry) => Err(format!("{entry:?} is not pattern:port:target:port")),
        None => Ok(text.into()),
    }
}

/// Returns whether this is `pattern:port:target:port`, where the target may be an IPv6 address in
/// brackets.
fn is_connect_to(entry: &str) -> bool {
    let port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
    let parts = || {
        let (pattern, rest) = entry.split_once(':')?;
        let (from, rest) = rest.split_once(':')?;
        let (target, to) = rest.rsplit_once(':')?;
        Some((pattern, from, target, to))
    };
    let Some((pattern, from, target, to)) = parts() else {
        return false;
    };
    let domain = pattern.strip_prefix("*.").unwrap_or(pattern);
    let address = target.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let target_is_right = match address {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !target.is_empty() && !target.contains([':', '[', ']']),
    };
    let domain_is_right = !domain.is_empty() && !domain.contains(['*', '[', ']']);
    domain_is_right && target_is_right && port(from) && port(to)
}
