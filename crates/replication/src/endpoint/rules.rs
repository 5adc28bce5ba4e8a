//! Which addresses a replication may connect to, and where a redirect may lead.
//!
//! SUMMARY   [`EndpointRules`] are `endpoints_allowed` and `endpoints_denied`: [`EndpointRules::check`] judges an address,
//!           [`EndpointRules::check_name`] a host whose address somebody else looks up. [`origin`] is the part of a URL
//!           that a redirect must keep.
//! PROMISES  An entry of `endpoints_denied` always holds. Link-local networks and the daemon's own listeners are
//!           denied unless an entry of `endpoints_allowed` names them by themselves. An address inside another (IPv4
//!           in IPv6, NAT64, 6to4) is judged as both.
//! SOURCE    RFC 3927, RFC 4291 (link-local); RFC 6052, RFC 8215 (NAT64); RFC 3056 (6to4).
//! LIMITS    An address that a router or a proxy translates into another in any other way is not recognised.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

/// The entry that stands for every host.
const ANY: &str = "*";

/// The networks of which no router knows: among them the services of clouds that hand out credentials.
fn link_local() -> [IpNet; 2] {
    [
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
        IpNet::V6(Ipv6Net::new_assert(
            Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0),
            10,
        )),
    ]
}

/// `[replicator]` `endpoints_allowed` and `endpoints_denied`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointRules {
    allowed: Vec<Entry>,
    denied: Vec<Entry>,
}

/// One entry: hosts or a network, at one port or at all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    hosts: Hosts,
    port: Option<u16>,
    /// As written.
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Any,
    /// A name in lower case; with a dot in front it is what names end in.
    Name(String),
    Network(IpNet),
}

/// Why an address must not be connected to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("endpoint_denied: {place} {why}")]
pub struct EndpointDenied {
    /// Host or address, with the port where a rule names it.
    place: String,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    Listed(String),
    NotAllowed,
    LinkLocal,
    Own,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(entry) => {
                write!(f, "is in `{entry}` of [replicator] endpoints_denied")
            }
            Self::NotAllowed => f.write_str("is not in [replicator] endpoints_allowed"),
            Self::LinkLocal => f.write_str(
                "is in a link-local network: name it in [replicator] endpoints_allowed if that is meant",
            ),
            Self::Own => f.write_str(
                "is where this service itself listens: name it with its port in [replicator] endpoints_allowed if that is meant",
            ),
        }
    }
}

/// Where a connection is about to go.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'d> {
    /// The name that has the address; `None` if the address stands in the URL.
    pub name: Option<&'d str>,
    /// The address.
    pub address: IpAddr,
    /// The port; `None` for one that no rule names.
    pub port: Option<u16>,
}

impl EndpointRules {
    /// Reads the two lists, with commas between entries. An empty `allowed` allows nothing.
    ///
    /// # Errors
    /// The first entry that is none.
    pub fn parse(allowed: &str, denied: &str) -> Result<Self, String> {
        Ok(Self {
            allowed: entries(allowed)?,
            denied: entries(denied)?,
        })
    }

    /// Whether a rule is about this port, so that it matters where a connection goes.
    #[must_use]
    pub fn names_port(&self, port: u16) -> bool {
        let mut all = self.allowed.iter().chain(&self.denied);
        all.any(|entry| entry.port == Some(port))
    }

    /// Judges an address. `listeners` are the daemon's own, and `is_here` says whether an address is one of this
    /// machine's.
    ///
    /// # Errors
    /// It must not be connected to.
    pub fn check(
        &self,
        to: Destination<'_>,
        listeners: &[SocketAddr],
        is_here: impl Fn(IpAddr) -> bool,
    ) -> Result<(), EndpointDenied> {
        let Destination {
            name,
            address,
            port,
        } = to;
        let address = address.to_canonical();
        let denied = |why| {
            Err(EndpointDenied {
                place: place(name, Some(address), port),
                why,
            })
        };
        let forms = forms(address);
        let is_in = |entry: &&Entry| {
            entry.is_for(port)
                && (name.is_some_and(|name| entry.hosts.has_name(name))
                    || forms.iter().any(|form| entry.hosts.has_address(*form)))
        };
        if let Some(entry) = self.denied.iter().find(is_in) {
            return denied(Why::Listed(entry.text.clone()));
        }
        let allowing = || {
            self.allowed.iter().filter(|entry| {
                entry.is_for(port)
                    && (name.is_some_and(|name| entry.hosts.has_name(name))
                        || entry.hosts.has_address(address))
            })
        };
        if allowing().next().is_none() {
            return denied(Why::NotAllowed);
        }
        if forms.iter().any(|form| is_link_local(*form))
            && !allowing().any(|entry| entry.hosts.is_link_local())
        {
            return denied(Why::LinkLocal);
        }
        let is_own = |form: &IpAddr| {
            listeners
                .iter()
                .any(|listener| reaches(*form, port, *listener, &is_here))
        };
        if forms.iter().any(is_own) && !allowing().any(Entry::names_port) {
            return denied(Why::Own);
        }
        Ok(())
    }

    /// Judges a host by its name alone: a proxy looks up its address, or it is not looked up yet.
    ///
    /// # Errors
    /// It must not be connected to; unless `is_looked_up_later`, neither must a name that only a network could
    /// allow.
    pub fn check_name(
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
        let is_in = |entry: &&Entry| entry.is_for(Some(port)) && entry.hosts.has_name(name);
        if let Some(entry) = self.denied.iter().find(is_in) {
            return denied(Why::Listed(entry.text.clone()));
        }
        match is_looked_up_later || self.allowed.iter().any(|entry| is_in(&entry)) {
            true => Ok(()),
            false => denied(Why::NotAllowed),
        }
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

/// Whether a connection to this address and port arrives at a listener.
fn reaches(
    address: IpAddr,
    port: Option<u16>,
    listener: SocketAddr,
    is_here: impl Fn(IpAddr) -> bool,
) -> bool {
    let at = listener.ip().to_canonical();
    // `0.0.0.0` and `[::]` are all addresses to a listener, and to a client one of this machine.
    let is_wide = at.is_unspecified() || address.is_unspecified();
    port == Some(listener.port()) && (at == address || (is_wide && is_here(address)))
}

/// Returns an address, and those that others make of it on the way.
fn forms(address: IpAddr) -> Vec<IpAddr> {
    let mut forms = vec![address];
    if let IpAddr::V6(v6) = address {
        let bytes = v6.octets();
        let v4 = |at: [usize; 4]| IpAddr::V4(at.map(|index| bytes[index]).into());
        let last = v4([12, 13, 14, 15]);
        match bytes {
            // NAT64, with the prefix for everybody.
            [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, ..] => forms.push(last),
            // NAT64, with a prefix of one's own: of 48, 56, 64 or 96 bits. Byte 8 is none of the address.
            [0, 0x64, 0xff, 0x9b, 0, 1, ..] => forms.extend([
                last,
                v4([6, 7, 9, 10]),
                v4([7, 9, 10, 11]),
                v4([9, 10, 11, 12]),
            ]),
            // IPv4 in IPv6 in its oldest form, but for `::` and `::1`.
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

fn is_link_local(address: IpAddr) -> bool {
    link_local()
        .iter()
        .any(|network| network.contains(&address))
}

impl Hosts {
    fn has_name(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        match self {
            Self::Any => true,
            Self::Name(pattern) if pattern.starts_with('.') => {
                name.len() > pattern.len() && name.ends_with(pattern)
            }
            Self::Name(known) => name == *known,
            Self::Network(_) => false,
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Name(_) => false,
            Self::Network(network) => network.contains(&address),
        }
    }

    /// Whether it is a link-local network, or a part of one.
    fn is_link_local(&self) -> bool {
        let Self::Network(network) = self else {
            return false;
        };
        link_local().iter().any(|known| known.contains(network))
    }
}

impl Entry {
    fn is_for(&self, port: Option<u16>) -> bool {
        self.port.is_none() || self.port == port
    }

    /// Whether it names one port of some hosts.
    fn names_port(&self) -> bool {
        self.port.is_some() && self.hosts != Hosts::Any
    }

    /// Reads `*`, `HOST`, `*.DOMAIN`, an address or a network, each with `:PORT` behind it or not; IPv6 with a
    /// port stands in brackets.
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
            None => match (network_of(text), text.split_once(':')) {
                (Some(network), _) => (Hosts::Network(network), None),
                (None, None) => (Hosts::parse(text)?, None),
                (None, Some((hosts, port))) => (Hosts::parse(hosts)?, Some(port)),
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
    fn parse(text: &str) -> Option<Self> {
        if text == ANY {
            return Some(Self::Any);
        }
        if let Some(network) = network_of(text) {
            return Some(Self::Network(network));
        }
        let (dot, name) = match text.strip_prefix("*.") {
            Some(domain) => (".", domain),
            None => ("", text),
        };
        // As a URL would have it: IDN, capitals, addresses in other forms.
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

fn entries(text: &str) -> Result<Vec<Entry>, String> {
    let texts = text
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty());
    texts
        .map(|text| Entry::parse(text).ok_or_else(|| text.to_owned()))
        .collect()
}

/// Returns the origin of a URL: scheme, host and port, without the dot at the end that a full name may have. Two URLs
/// with the same origin are of the same server.
#[must_use]
pub fn origin(url: &Url) -> String {
    let mut url = url.clone();
    let host = url.host_str().map(str::to_owned);
    if let Some(host) = host.as_deref().and_then(|host| host.strip_suffix('.')) {
        // What was a host before is one without its dot.
        let _ = url.set_host(Some(host));
    }
    url.origin().ascii_serialization()
}

/// Reads an origin that stands for itself: `https://HOST` or with a port.
#[must_use]
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
mod tests {
    use super::*;

    const OWN: &str = "127.0.0.1:5995";

    fn check(rules: (&str, &str), name: Option<&str>, address: &str) -> Result<(), String> {
        let rules = EndpointRules::parse(rules.0, rules.1).unwrap();
        let (address, port) = match address.parse::<SocketAddr>() {
            Ok(address) => (address.ip(), Some(address.port())),
            Err(_) => (address.parse().unwrap(), None),
        };
        let to = Destination {
            name,
            address,
            port,
        };
        let own = [OWN, "0.0.0.0:5994", "[::]:5996"].map(|text| text.parse().unwrap());
        let is_here = |address: IpAddr| {
            address.is_loopback() || address.is_unspecified() || address.to_string() == "10.9.9.9"
        };
        let judged = rules.check(to, &own, is_here);
        judged.map_err(|denied| denied.to_string())
    }

    #[track_caller]
    fn denied(rules: (&str, &str), address: &str) {
        let judged = check(rules, None, address);
        let text = judged.expect_err(address);
        assert!(text.starts_with("endpoint_denied: "), "{text}");
    }

    #[test]
    fn link_local_networks_and_own_listeners_are_denied_in_every_form() {
        for address in [
            "169.254.169.254",
            "fe80::1",
            "febf::1",
            "::ffff:169.254.169.254",
            "::ffff:0:169.254.1.1",
            "::169.254.1.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00::",
            "2002:a9fe:a9fe::1",
            "127.0.0.1:5995",
            "0.0.0.0:5995",
            "[::]:5995",
            "[::ffff:127.0.0.1]:5995",
            "[64:ff9b::7f00:1]:5995",
            "127.0.0.1:5994",
            "127.3.2.1:5994",
            "10.9.9.9:5994",
            "[::1]:5996",
            "10.9.9.9:5996",
        ] {
            denied(("*", ""), address);
        }
        for address in [
            "127.0.0.1:5984",
            "127.0.0.2:5995",
            "[::1]:5995",
            "10.1.1.1:5994",
            "169.253.0.1",
            "fec0::1",
            "64:ff9b::8.8.8.8",
            "::1",
            "2001:db8::1",
        ] {
            assert_eq!(check(("*", ""), None, address), Ok(()), "{address}");
        }
    }

    #[test]
    fn an_entry_that_names_it_by_itself_allows_what_is_denied_otherwise() {
        for (allowed, address) in [
            ("*, 127.0.0.1:5995", "127.0.0.1:5995"),
            ("127.0.0.0/8:5995", "127.0.0.1:5995"),
            ("*,169.254.0.0/16", "169.254.169.254"),
            ("*,169.254.169.254", "::ffff:169.254.169.254"),
            ("fe80::/64", "fe80::1"),
            ("*,[fe80::/10]:5984", "[fe80::1]:5984"),
        ] {
            assert_eq!(check((allowed, ""), None, address), Ok(()), "{allowed}");
        }
        for (allowed, address) in [
            ("*,127.0.0.0/8", "127.0.0.1:5995"),
            ("*,127.0.0.1:5996", "127.0.0.1:5995"),
            ("*:5995", "127.0.0.1:5995"),
            ("*,0.0.0.0/0", "169.254.1.1"),
            ("*,[fe80::/10]:5984", "[fe80::1]:5985"),
        ] {
            denied((allowed, ""), address);
        }
    }

    #[test]
    fn only_what_is_allowed_and_not_denied_is_connected_to() {
        let rules = (
            "10.0.0.0/8, *.example.org, db.internal:5984",
            "10.6.0.0/16,bad.example.org",
        );
        let named = |name, address| check(rules, Some(name), address);
        assert_eq!(check(rules, None, "10.1.2.3"), Ok(()));
        denied(rules, "10.6.0.1");
        denied(rules, "64:ff9b::10.6.0.1");
        denied(rules, "11.0.0.1");
        assert_eq!(named("a.example.org", "11.0.0.1"), Ok(()));
        assert_eq!(named("A.EXAMPLE.ORG.", "11.0.0.1"), Ok(()));
        assert_eq!(named("db.internal", "11.0.0.1:5984"), Ok(()));
        assert!(named("db.internal", "11.0.0.1:5985").is_err());
        assert!(named("bad.example.org", "11.0.0.1").is_err());
        assert!(named("a.example.org", "10.6.0.1").is_err());
        assert!(named("example.org", "11.0.0.1").is_err());
        assert!(named("10.1.2.3.evil.net", "11.0.0.1").is_err());
    }

    #[test]
    fn a_name_that_a_proxy_looks_up_is_judged_by_itself() {
        let rules = EndpointRules::parse("*.example.org,10.0.0.0/8", "bad.example.org").unwrap();
        let judged = |name, later| rules.check_name(name, 80, later).is_ok();
        assert!(judged("a.example.org", false) && judged("a.example.org", true));
        assert!(!judged("bad.example.org", false) && !judged("bad.example.org", true));
        assert!(!judged("other.net", false) && judged("other.net", true));
    }

    #[test]
    fn entries_that_are_none_are_named() {
        for wrong in [
            "a b",
            "*example",
            "*.*.x",
            "10.0.0.0/33",
            "[::1",
            "[::1]x",
            "[::1]:0",
            "h:99999",
            "h:",
            "http://h",
            "a/b",
            "*.10.0.0.1",
        ] {
            assert_eq!(
                EndpointRules::parse(&format!("*,{wrong}"), ""),
                Err(wrong.to_owned())
            );
        }
        assert!(EndpointRules::parse("*:5984,ex\u{e4}mple.org,::1,10.1.2.3/8,[::1]:1", "").is_ok());
    }

    #[test]
    fn an_origin_is_the_same_however_it_is_written() {
        let same = |a: &str, b: &str| {
            let [a, b] = [a, b].map(|text| origin(&Url::parse(text).unwrap()));
            a == b
        };
        for (a, b) in [
            ("http://h/", "http://H:80/x?y"),
            ("https://h:443", "https://u:p@h"),
            ("http://ex\u{e4}mple.org", "http://XN--EXMPLE-CUA.org."),
            ("http://127.1:1", "http://0x7f000001:1"),
            ("http://[::1]:5", "http://[0:0::1]:5"),
        ] {
            assert!(same(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("http://h/", "https://h/"),
            ("http://h/", "http://h:81/"),
            ("http://h/", "http://h.x/"),
            ("http://127.0.0.1/", "http://localhost/"),
            ("http://127.0.0.1/", "http://[::ffff:127.0.0.1]/"),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
        assert_eq!(
            parse_origin("HTTPS://B.example:443/").as_deref(),
            Some("https://b.example")
        );
        for wrong in [
            "b.example",
            "ftp://b",
            "http://b/x",
            "http://u@b",
            "http://b?x",
            "*",
        ] {
            assert_eq!(parse_origin(wrong), None, "{wrong}");
        }
    }
}
