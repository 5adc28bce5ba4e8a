//! A TCP address that the service cannot listen on: an error before anything is started.

use std::io;
use std::net::SocketAddr;

/// An address is not available.
#[derive(Debug, thiserror::Error)]
#[error("{key} = \"{address}\": cannot listen there: {source}")]
pub struct AddressError {
    /// Section and key, in the form `[server] http`.
    pub key: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// The system's error.
    pub source: io::Error,
}

impl AddressError {
    /// Returns the remedy.
    pub fn remedy(&self) -> String {
        let key = self.key;
        match self.source.kind() {
            io::ErrorKind::AddrInUse => format!(
                "stop the program that listens there, or set {key} to another port, to \
                 port 0 for any free one, or to \"off\""
            ),
            io::ErrorKind::PermissionDenied => {
                format!("set {key} to a port above 1023, or to \"off\"")
            }
            _ => format!("set {key} to an address of this machine, or to \"off\""),
        }
    }
}
