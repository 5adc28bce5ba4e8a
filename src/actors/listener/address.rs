//! A TCP address that the service listens on.
//!
//! SUMMARY   [`bind_address`] binds the address before anything is started, so that a service with an unavailable
//!           address reports it and ends; each started listener gets a handle.

use std::io;
use std::net::SocketAddr;

use super::bound::Bound;

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

/// Listens on an address; `key` is the section and key that name it, and `backlog` the number of connections that may
/// wait to be accepted.
///
/// # Errors
/// It is in use or unavailable; the operator's fault.
pub(crate) fn bind_address(
    key: &'static str,
    address: SocketAddr,
    backlog: u32,
) -> Result<Bound, AddressError> {
    let error = |source| AddressError {
        key,
        address,
        source,
    };
    let bound = Bound::tcp(address).map_err(error)?;
    bound.set_backlog(backlog).map_err(error)?;
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn connections_within_the_backlog_wait_to_be_accepted() {
        let bound = bind_address("[server] http", ([127, 0, 0, 1], 0).into(), 300).unwrap();
        let address = bound.tcp_address().unwrap();
        let waiting: Vec<TcpStream> = (0..250)
            .map(|_| TcpStream::connect_timeout(&address, Duration::from_secs(1)))
            .collect::<io::Result<_>>()
            .unwrap();
        assert_eq!(waiting.len(), 250);
    }
}
