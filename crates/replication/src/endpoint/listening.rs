//! At which addresses this program itself listens.
//!
//! SUMMARY   Code that binds a TCP socket notes its address in [`Listening`]; replications ask it, so that no document
//!           makes the daemon speak to itself.
//! PROMISES  A clone shares what is noted. Addresses have the port that they have got.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::http::lock;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Listening(Arc<Mutex<Addresses>>);

#[derive(Debug, Default)]
struct Addresses {
    /// Of the daemon: they stay as long as it runs.
    daemon: Vec<SocketAddr>,
    /// Of services, which come and go.
    services: Vec<SocketAddr>,
}

impl Listening {
    /// Notes an address of the daemon.
    pub fn add(&self, address: SocketAddr) {
        lock(&self.0).daemon.push(address);
    }

    /// Notes the addresses of all services, replacing those before.
    pub fn set_services(&self, services: Vec<SocketAddr>) {
        lock(&self.0).services = services;
    }

    /// Returns all of them.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let Addresses { daemon, services } = &*lock(&self.0);
        [&daemon[..], services].concat()
    }
}
