//! `[services.NAME]`: a socket whose connections are each lent one process.
//!
//! SUMMARY   [`ServiceConfig`] is one section, [`ServiceAddress`] where it listens.
//! SOURCE    Postfix master.cf, which has one line for each service.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::kinds::*;
use super::pools::PoolConfig;
use super::section::{Declared, section};
use super::types::Config;
use super::value::{self, Kind, LET_IN};
use policy::admission::THROTTLE_DELAY;

section! {
    /// One section `[services.NAME]`.
    #[derive(Debug)]
    #[serde(default)]
    pub struct ServiceConfig {
        /// Required. Where it listens: `"unix:/PATH"`, or an IP address or `localhost` with a port.
        listen: Option<ServiceAddress>, value::SERVICE_ADDRESS;
        /// The pool that lends its processes; required, unless `language` is set.
        pool: Option<String>, value::NAME;
        /// Lets the pool be missing, to be added at run time.
        wait_for_pool: bool = false, Kind::Boolean;
        /// The language whose own pool lends its processes, instead of `pool`.
        language: Option<String>, value::NAME;
        /// Maximum connections in the system's queue; `net.core.somaxconn` may allow fewer.
        backlog: u32 = 128, count(1, 65_535), unit("connections");
        /// Restricts it to this user (Unix socket mode 0600, not 0666) or this machine. If false, the log warns when
        /// its limit is reached, and the pool comes under [stress](services.md#stress).
        local_only: Option<bool>, Kind::Boolean, only_in_files(LET_IN), otherwise("true for a Unix socket or a loopback address");
        /// Lets other machines connect, without a login; otherwise `listen` must be a Unix socket or a loopback
        /// address.
        open: bool = false, Kind::Boolean, only_in_files(LET_IN);
        /// `throttle_delay` for its pool.
        throttle_delay: Option<Duration>, seconds(0, DAY), otherwise("the pool's, or 60");
        /// Whether its pool comes under stress at its limit: `"yes"`, `"no"`.
        stress: Option<Stress>, STRESS, otherwise("\"no\" if it is local only");
        /// How long a process may work on one line. 0: the default.
        prompt_timeout: Duration = 0, seconds(0, YEAR), otherwise("`os_process_timeout`");
        /// How long a client may hold its process without sending a line or reading answers. 0: no limit.
        client_timeout: Duration = 300, seconds(0, YEAR);
        /// `client_timeout` for connections accepted under stress.
        client_timeout_stress: Duration = 10, seconds(0, YEAR);
        /// How long a connection may last once it has a process. 0: no limit.
        session_timeout: Duration = 0, seconds(0, YEAR);
    }
}

/// Whether a service can be under stress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::VariantNames)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Stress {
    /// It can.
    Yes,
    /// It cannot.
    No,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self::declared()
    }
}

impl ServiceConfig {
    /// Returns the name of the pool that serves it.
    pub fn pool_name(&self) -> Option<&str> {
        self.pool.as_deref().or(self.language.as_deref())
    }

    /// Returns whether it is for this user, or this machine, only.
    pub fn is_local_only(&self) -> bool {
        self.local_only
            .unwrap_or_else(|| self.listen.as_ref().is_none_or(ServiceAddress::is_local))
    }

    /// Returns whether it can be under stress. By default, a service for only this machine's users cannot.
    fn can_be_stressed(&self) -> bool {
        match self.stress {
            Some(stress) => stress == Stress::Yes,
            None => !self.is_local_only(),
        }
    }
}

/// Requirements of a pool's services: their shortest throttle delay, and stress if any of them supports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceTerms {
    /// Whether it can be under stress.
    pub stress: bool,
    /// How long no process is started after a failed start; `None`: the pool's own setting.
    pub throttle_delay: Option<Duration>,
}

impl ServiceTerms {
    /// Returns the section of a pool with the terms of its services.
    #[must_use]
    pub fn applied_to(self, mut pool: PoolConfig) -> PoolConfig {
        let delay = self
            .throttle_delay
            .or(pool.throttle_delay)
            .unwrap_or(THROTTLE_DELAY);
        pool.stress |= self.stress;
        pool.throttle_delay = Some(delay);
        pool.throttle_delay_max = pool.throttle_delay_max.max(delay);
        pool
    }
}

impl Config {
    /// Returns the sections of pools with the terms of their services.
    pub fn pools_with_services(&self) -> BTreeMap<String, PoolConfig> {
        let mut pools = self.pools.clone();
        for (name, terms) in self.service_terms() {
            if !self.is_added_later(&name) {
                let pool = pools.remove(&name).unwrap_or_default();
                pools.insert(name, terms.applied_to(pool));
            }
        }
        pools
    }

    /// Returns the terms of services for pools that are added at run time.
    pub fn terms_of_later_pools(&self) -> BTreeMap<String, ServiceTerms> {
        let mut terms = self.service_terms();
        terms.retain(|name, _| self.is_added_later(name));
        terms
    }

    /// Returns whether the pool is undefined and so has to be added at run time.
    fn is_added_later(&self, name: &str) -> bool {
        !self.pools.contains_key(name) && !self.language_names().contains(&name)
    }

    fn service_terms(&self) -> BTreeMap<String, ServiceTerms> {
        let mut all: BTreeMap<String, ServiceTerms> = BTreeMap::new();
        for service in self.services.values() {
            if let Some(name) = service.pool_name() {
                let terms = all.entry(name.to_owned()).or_default();
                let delays = [terms.throttle_delay, service.throttle_delay];
                terms.stress |= service.can_be_stressed();
                terms.throttle_delay = delays.into_iter().flatten().min();
            }
        }
        all
    }
}

/// Where a service listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ServiceAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

impl ServiceAddress {
    /// Returns whether it is unreachable from other machines.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(address) => address.ip().is_loopback(),
        }
    }

    /// Returns whether two services cannot both listen there.
    pub fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(address), _) if address.port() == 0 => false,
            _ => self == other,
        }
    }
}

/// The prefix of a Unix socket's path.
const UNIX: &str = "unix:";
/// The only host name accepted as an address.
const LOCALHOST: &str = "localhost:";

impl TryFrom<String> for ServiceAddress {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if let Some(path) = text.strip_prefix(UNIX) {
            return if path.starts_with('/') && !path.contains('\0') {
                Ok(Self::Unix(path.into()))
            } else {
                Err("the path of a Unix socket is absolute")
            };
        }
        let address: Result<SocketAddr, _> = match text.strip_prefix(LOCALHOST) {
            Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST).parse(),
            None => text.parse(),
        };
        address
            .map(Self::Tcp)
            .map_err(|_| "it is neither unix:PATH nor an address with a port")
    }
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl From<ServiceAddress> for String {
    fn from(address: ServiceAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_unix_path_or_a_host_with_a_port() {
        let of = |text: &str| ServiceAddress::try_from(text.to_owned());
        assert_eq!(of("unix:/run/x"), Ok(ServiceAddress::Unix("/run/x".into())));
        for text in ["127.0.0.1:5", "[::1]:5", "localhost:5"] {
            assert!(of(text).is_ok_and(|address| address.is_local()), "{text}");
        }
        assert!(of("0.0.0.0:5").is_ok_and(|address| !address.is_local()));
        for text in [
            "unix:run/x",
            "unix:",
            "/run/x",
            "127.0.0.1",
            "host:x",
            "a.example:5",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_local_service_is_exempt_from_stress_unless_configured_otherwise() {
        let can_be_stressed = |local_only, stress| {
            let service = ServiceConfig {
                local_only: Some(local_only),
                stress,
                ..ServiceConfig::default()
            };
            service.can_be_stressed()
        };
        assert!(!can_be_stressed(true, None));
        assert!(can_be_stressed(false, None));
        assert!(can_be_stressed(true, Some(Stress::Yes)));
        assert!(!can_be_stressed(false, Some(Stress::No)));
    }

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in ["unix:/run/x", "127.0.0.1:5", "[::1]:5"] {
            let address = ServiceAddress::try_from(text.to_owned());
            assert_eq!(address.map(|address| address.to_string()), Ok(text.into()));
        }
    }
}
