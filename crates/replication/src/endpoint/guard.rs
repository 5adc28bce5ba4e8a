//! Enforces the rules for addresses to connect to.
//!
//! SUMMARY   [`Guard`] judges hosts and addresses before a connection is opened; [`Guarded`] is a resolver that omits
//!           forbidden addresses, so that a name cannot evade the rules by changing its address after the check.
//! SOURCE    [`EndpointRules`] decides.
//! LIMITS    An HTTP proxy resolves names itself, so only the name is judged. A SOCKS proxy gets addresses judged
//!           here.

use std::error::Error;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::config::{HttpConfig, HttpConfigError};
use super::connect_to::Target;
use super::resolver::look_up;
use crate::endpoint::listening::Listening;
use crate::endpoint::rules::{EndpointDenied, EndpointRules};

/// Judges hosts and addresses. A clone is cheap.
#[derive(Clone)]
pub(super) struct Guard {
    rules: Arc<EndpointRules>,
    pub listening: Listening,
}

/// The ports of a connection that a rule names, kept for the resolver, which gets a name without a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ports {
    /// The URL's port.
    direct: Option<u16>,
    proxy: Option<ProxyPort>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ProxyPort {
    name: String,
    port: Option<u16>,
    /// Whether the URL has the same name.
    is_same: bool,
}

impl Guard {
    pub fn new(config: &HttpConfig, listening: Listening) -> Result<Self, HttpConfigError> {
        let rules = EndpointRules::parse(&config.endpoints_allowed, &config.endpoints_denied)
            .map_err(|entry| {
                HttpConfigError::new(
                    "endpoints_allowed` or `endpoints_denied",
                    format!("`{entry}` is not a host, address or network"),
                )
            })?;
        Ok(Self {
            rules: Arc::new(rules),
            listening,
        })
    }

    /// Returns the port if a rule names it.
    fn named(&self, port: u16) -> Option<u16> {
        let is_own = || {
            self.listening
                .addresses()
                .iter()
                .any(|address| address.port() == port)
        };
        (self.rules.names_port(port) || is_own()).then_some(port)
    }

    /// Applies the rules that can be decided before a connection is opened, and returns the ports that the resolver
    /// needs for the rest. `is_looked_up_here`: this program resolves the URL's host.
    pub fn ports(
        &self,
        url: &Url,
        proxy: Option<&Url>,
        is_looked_up_here: bool,
    ) -> Result<Ports, EndpointDenied> {
        let known = |url: &Url| url.port_or_known_default().unwrap_or(SOCKS_PORT);
        let port = known(url);
        match host(url) {
            Some(Host::Domain(name)) => {
                self.rules.check_name(&name, port, is_looked_up_here)?;
                // Always the loopback address (RFC 6761), for the proxy too.
                let plain = name.strip_suffix('.').unwrap_or(&name);
                if !is_looked_up_here && (plain == "localhost" || plain.ends_with(".localhost")) {
                    self.check(Some(&name), Ipv4Addr::LOCALHOST.into(), Some(port))?;
                    self.check(Some(&name), Ipv6Addr::LOCALHOST.into(), Some(port))?;
                }
            }
            Some(Host::Ipv4(address)) => self.check(None, address.into(), Some(port))?,
            Some(Host::Ipv6(address)) => self.check(None, address.into(), Some(port))?,
            None => {}
        }
        let mut ports = Ports {
            direct: self.named(port),
            proxy: None,
        };
        if let Some(proxy) = proxy {
            let at = known(proxy);
            // This program resolves the proxy's name itself.
            self.ports(proxy, None, true)?;
            if let Some(Host::Domain(name)) = host(proxy) {
                let is_same = url.host_str() == Some(&*name);
                ports.proxy = Some(ProxyPort {
                    name,
                    port: self.named(at),
                    is_same,
                });
            }
        }
        Ok(ports)
    }

    fn check(
        &self,
        name: Option<&str>,
        address: IpAddr,
        port: Option<u16>,
    ) -> Result<(), EndpointDenied> {
        self.rules.check(
            name,
            address,
            port,
            &self.listening.addresses(),
            is_of_this_machine,
        )
    }
}

/// Returns a URL's host as the system reads it: in the URL of a SOCKS proxy an IPv4 address is parsed as a name.
fn host(url: &Url) -> Option<Host> {
    Host::parse(url.host_str()?).ok()
}

/// The default port of SOCKS proxies.
const SOCKS_PORT: u16 = 1080;

/// Whether an address is one of this machine's: only these can be bound. `true` if unknown.
fn is_of_this_machine(address: IpAddr) -> bool {
    !UdpSocket::bind((address, 0)).is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

/// Resolves names through the system, without forbidden addresses.
pub(super) struct Guarded {
    pub guard: Guard,
    pub ports: Ports,
    /// Resolved instead of any name.
    pub instead: Option<Target>,
}

impl Guarded {
    /// Returns the ports of connections to a name.
    fn ports_at(&self, name: &str) -> Vec<Option<u16>> {
        match (&self.instead, &self.ports.proxy) {
            (Some(target), _) => vec![Some(target.port)],
            (None, None) => vec![self.ports.direct],
            (None, Some(proxy)) if !proxy.is_same && proxy.name.eq_ignore_ascii_case(name) => {
                vec![proxy.port]
            }
            (None, Some(proxy)) => vec![self.ports.direct, proxy.port],
        }
    }
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let ports = self.ports_at(&name);
        let guard = self.guard.clone();
        // The caller replaces port 0 with its own.
        let (host, port) = match &self.instead {
            Some(target) => (target.host.clone(), target.port),
            None => (name.clone(), 0),
        };
        Box::pin(async move {
            let mut denied = None;
            let mut fit = Vec::new();
            for address in look_up(host, port).await? {
                let judged = ports
                    .iter()
                    .try_for_each(|port| guard.check(Some(&name), address.ip(), *port));
                match judged {
                    Ok(()) => fit.push(address),
                    Err(error) => denied = Some(error),
                }
            }
            match denied {
                Some(error) if fit.is_empty() => {
                    Err(Box::new(error) as Box<dyn Error + Send + Sync>)
                }
                _ => Ok(Box::new(fit.into_iter()) as Addrs),
            }
        })
    }
}
