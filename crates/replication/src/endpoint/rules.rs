//! The addresses that a replication may connect to, and the targets of redirects.
//!
//! SUMMARY   [`EndpointRules`] are `endpoints_allowed` and `endpoints_denied`: [`EndpointRules::check`] checks an
//!           address, [`EndpointRules::check_name`] a host that is resolved elsewhere. [`origin`] is the part of a
//!           URL that a redirect must keep.
//! PROMISES  An entry of `endpoints_denied` always applies. Link-local networks and the daemon's own listeners are
//!           denied unless an entry of `endpoints_allowed` names them explicitly. An address embedded in another
//!           (IPv4 in IPv6, NAT64, 6to4) is checked in both forms.
//! SOURCE    RFC 3927, RFC 4291 (link-local); RFC 6052, RFC 8215 (NAT64); RFC 3056 (6to4).
//! LIMITS    Other translations of addresses by routers or proxies are not recognised.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use url::{Host, Url};

/// `[replicator]` `endpoints_allowed` and `endpoints_denied`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointRules {
    allowed: Vec<RuleEntry>,
    denied: Vec<RuleEntry>,
}

/// One entry: hosts or a network, at one port or all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RuleEntry {
    hosts: Hosts,
    port: Option<u16>,
    /// As written.
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Any,
    /// A name in lower case; with a leading dot it matches names with this suffix.
    Name(String),
    Network(IpNet),
}

/// Why connecting to an address is denied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("endpoint_denied: {place} {why}")]
pub struct EndpointDenied {
    /// Host or address, with the port if a rule names it.
    place: String,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("is in `{0}` of [replicator] endpoints_denied")]
    Listed(String),
    #[error("is not in [replicator] endpoints_allowed")]
    NotAllowed,
    #[error(
        "is in a link-local network: name it in [replicator] endpoints_allowed if that is meant"
    )]
    LinkLocal,
    #[error(
        "is where this service itself listens: name it with its port in [replicator] endpoints_allowed if that is meant"
    )]
    Own,
}

impl EndpointRules {
    /// Parses the two lists, with entries separated by commas. An empty `allowed` allows nothing.
    ///
    /// # Errors
    /// The first malformed entry.
    pub fn parse(allowed: &str, denied: &str) -> Result<Self, String> {
        Ok(Self {
            allowed: entries(allowed)?,
            denied: entries(denied)?,
        })
    }

    /// Whether a rule names this port.
    pub(crate) fn names_port(&self, port: u16) -> bool {
        let mut all = self.allowed.iter().chain(&self.denied);
        all.any(|entry| entry.port == Some(port))
    }

    /// Checks an address. `listeners` are the daemon's own, and `is_here` returns whether an address belongs to this
    /// machine.
    ///
    /// # Errors
    /// Connecting to it is denied.
    pub(crate) fn check(
        &self,
        name: Option<&str>,
        address: IpAddr,
        port: Option<u16>,
        listeners: &[SocketAddr],
        is_here: impl Fn(IpAddr) -> bool,
    ) -> Result<(), EndpointDenied> {
        let address = address.to_canonical();
        let denied = |why| {
            Err(EndpointDenied {
                place: place(name, Some(address), port),
                why,
            })
        };
        let forms = forms(address);
        if let Some(entry) = self
            .denied
            .iter()
            .find(|entry| entry.is_about(name, &forms, port))
        {
            return denied(Why::Listed(entry.text.clone()));
        }
        let allowing: Vec<&RuleEntry> = self
            .allowed
            .iter()
            .filter(|entry| entry.is_about(name, &[address], port))
            .collect();
        if allowing.is_empty() {
            return denied(Why::NotAllowed);
        }
        if forms.iter().any(|form| is_link_local(*form))
            && !allowing.iter().any(|entry| entry.hosts.is_link_local())
        {
            return denied(Why::LinkLocal);
        }
        let is_own = |form: &IpAddr| {
            listeners
                .iter()
                .any(|listener| reaches(*form, port, *listener, &is_here))
        };
        let names_port = |entry: &&RuleEntry| entry.port.is_some() && entry.hosts != Hosts::Any;
        if forms.iter().any(is_own) && !allowing.iter().any(names_port) {
            return denied(Why::Own);
        }
        Ok(())
    }

    /// Checks a host by name only: a proxy resolves it, or it is not resolved yet.
    ///
    /// # Errors
    /// Connecting to it is denied. Unless `is_looked_up_later`, so is a name that only a network could allow.
    pub(crate) fn check_name(
        &self,
        name: &str,
        port: u16,
        is_looked_up_later: bool,
    ) -> Result<(), EndpointDenied> {
        let denied = |why| {
            Err(EndpointDenied {
                place: place(Some(name), None, Some(port)),
                why,
            })
        };
        let is_about = |entry: &&RuleEntry| entry.is_about(Some(name), &[], Some(port));
        if let Some(entry) = self.denied.iter().find(is_about) {
            return denied(Why::Listed(entry.text.clone()));
        }
        if is_looked_up_later || self.allowed.iter().any(|entry| is_about(&entry)) {
            Ok(())
        } else {
            denied(Why::NotAllowed)
        }
    }
}

/// Whether a host has this name or, if the pattern begins with a dot, this suffix. Both are in lower case.
pub(super) fn matches_name(pattern: &str, name: &str) -> bool {
    if pattern.starts_with('.') {
        name.len() > pattern.len() && name.ends_with(pattern)
    } else {
        name == pattern
    }
}

fn place(name: Option<&str>, address: Option<IpAddr>, port: Option<u16>) -> String {
    let port = port.map_or_else(String::new, |port| format!(", port {port},"));
    match (name, address) {
        (Some(name), Some(address)) => format!("{name} ({address}){port}"),
        (Some(name), None) => format!("{name}{port}"),
        (None, Some(address)) => format!("{address}{port}"),
        (None, None) => port,
    }
}

/// Whether a connection to this address and port reaches a listener.
fn reaches(
    address: IpAddr,
    port: Option<u16>,
    listener: SocketAddr,
    is_here: impl Fn(IpAddr) -> bool,
) -> bool {
    let at = listener.ip().to_canonical();
    // `0.0.0.0` and `[::]` mean all addresses for a listener, and this machine for a client.
    let is_wide = at.is_unspecified() || address.is_unspecified();
    port == Some(listener.port()) && (at == address || (is_wide && is_here(address)))
}

/// Returns an address, and the IPv4 addresses that routers may translate it to.
fn forms(address: IpAddr) -> Vec<IpAddr> {
    let mut forms = vec![address];
    if let IpAddr::V6(v6) = address {
        let bytes = v6.octets();
        let v4 = |at: [usize; 4]| IpAddr::V4(at.map(|index| bytes[index]).into());
        let last = v4([12, 13, 14, 15]);
        match bytes {
            // NAT64 with the well-known prefix.
            [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, ..] => forms.push(last),
            // NAT64 with a local prefix of 48, 56, 64 or 96 bits. Byte 8 is not part of the address.
            [0, 0x64, 0xff, 0x9b, 0, 1, ..] => forms.extend([
                last,
                v4([6, 7, 9, 10]),
                v4([7, 9, 10, 11]),
                v4([9, 10, 11, 12]),
            ]),
            // IPv4 in IPv6 in its oldest form, except `::` and `::1`.
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ..]
                if !v6.is_unspecified() && !v6.is_loopback() =>
            {
                forms.push(last);
            }
            // IPv4 in IPv6, translated.
            [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, ..] => forms.push(last),
            // 6to4.
            [0x20, 0x02, ..] => forms.push(v4([2, 3, 4, 5])),
            _ => {}
        }
    }
    forms
}

/// Whether an address is not routed. Cloud services that hand out credentials have such addresses.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

impl RuleEntry {
    /// Whether it matches a connection to this name, or to one of these addresses, at this port.
    fn is_about(&self, name: Option<&str>, addresses: &[IpAddr], port: Option<u16>) -> bool {
        if self.port.is_some() && self.port != port {
            return false;
        }
        match &self.hosts {
            Hosts::Any => true,
            Hosts::Name(pattern) => name.is_some_and(|name| {
                let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
                matches_name(pattern, &name)
            }),
            Hosts::Network(network) => addresses.iter().any(|address| network.contains(address)),
        }
    }

    /// Parses `*`, `HOST`, `*.DOMAIN`, an address or a network, each optionally with `:PORT`; IPv6 with a port is in
    /// brackets.
    fn parse(text: &str) -> Option<Self> {
        let (hosts, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (network, rest) = rest.split_once(']')?;
                let port = match rest {
                    "" => None,
                    rest => Some(rest.strip_prefix(':')?),
                };
                (Hosts::Network(network_of(network)?), port)
            }
            None => match text.split_once(':') {
                Some((hosts, port)) if network_of(text).is_none() => {
                    (Hosts::parse(hosts)?, Some(port))
                }
                _ => (Hosts::parse(text)?, None),
            },
        };
        let port = match port {
            None => None,
            Some(port) => Some(port.parse().ok().filter(|port| *port > 0)?),
        };
        Some(Self {
            hosts,
            port,
            text: text.to_owned(),
        })
    }
}

impl Hosts {
    /// Whether it is a link-local network, or a part of one.
    fn is_link_local(&self) -> bool {
        matches!(self, Self::Network(network)
            if is_link_local(network.network()) && is_link_local(network.broadcast()))
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        if let Some(network) = network_of(text) {
            return Some(Self::Network(network));
        }
        let (dot, name) = match text.strip_prefix("*.") {
            Some(domain) => (".", domain),
            None => ("", text),
        };
        // Normalised as in a URL: IDN, case, other forms of addresses.
        match Host::parse(name).ok()? {
            Host::Domain(name) if !name.contains(['*', '/']) => {
                let name = name.strip_suffix('.').unwrap_or(&name);
                (!name.is_empty()).then(|| Self::Name(format!("{dot}{name}")))
            }
            Host::Ipv4(address) if dot.is_empty() => {
                Some(Self::Network(IpAddr::V4(address).into()))
            }
            _ => None,
        }
    }
}

/// Reads an address or a network.
fn network_of(text: &str) -> Option<IpNet> {
    match text.parse::<IpAddr>() {
        Ok(address) => Some(address.to_canonical().into()),
        Err(_) => text.parse::<IpNet>().ok().map(|network| network.trunc()),
    }
}

fn entries(text: &str) -> Result<Vec<RuleEntry>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(|text| RuleEntry::parse(text).ok_or_else(|| text.to_owned()))
        .collect()
}

/// Returns the origin of a URL: scheme, host and port, without the trailing dot of a fully qualified name. URLs with
/// the same origin belong to the same server.
pub(crate) fn origin(url: &Url) -> String {
    let mut url = url.clone();
    let host = url.host_str().map(str::to_owned);
    if let Some(host) = host.as_deref().and_then(|host| host.strip_suffix('.')) {
        // A valid host stays valid without its dot.
        let _ = url.set_host(Some(host));
    }
    url.origin().ascii_serialization()
}

/// Parses a bare origin: `http://HOST` or `https://HOST`, optionally with a port.
pub fn parse_origin(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let is_bare = matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    (matches!(url.scheme(), "http" | "https") && is_bare).then(|| origin(&url))
}

#[cfg(test)]
mod tests;
