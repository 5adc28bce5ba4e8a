//! The addresses that this program listens on.
//!
//! SUMMARY   Code that binds a TCP socket records its address in [`Listening`]; replications check it, so that no
//!           document makes the daemon connect to itself.
//! PROMISES  Clones share their addresses. Addresses have their actual port.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::http::lock;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Listening(Arc<Mutex<Addresses>>);

#[derive(Debug, Default)]
struct Addresses {
    /// Of the daemon, for its lifetime.
    daemon: Vec<SocketAddr>,
    /// Of services, which change at run time.
    services: Vec<SocketAddr>,
}

impl Listening {
    /// Notes an address of the daemon.
    pub fn add(&self, address: SocketAddr) {
        lock(&self.0).daemon.push(address);
    }

    /// Replaces the addresses of all services.
    pub fn set_services(&self, services: Vec<SocketAddr>) {
        lock(&self.0).services = services;
    }

    /// Returns all addresses.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let Addresses { daemon, services } = &*lock(&self.0);
        [&daemon[..], services].concat()
    }
}
