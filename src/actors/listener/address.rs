//! A TCP address that the service listens on.
//!
//! SUMMARY   [`BoundAddress::bind`] takes the address before anything is started, so that a service
//!           that cannot have it says so and ends; those who accept on it get a handle each time
//!           they are started.
//! PROMISES  Once closed, nobody can connect any more.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use super::bound::{Acceptor, Bound};

/// An address cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("[server] {key} = \"{address}\": cannot listen there: {source}")]
pub struct AddressError {
    /// The key in `[server]`: `http` or `tcp`.
    pub key: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// What the system says.
    pub source: io::Error,
}

impl AddressError {
    /// Returns what to do about it.
    pub fn remedy(&self) -> String {
        let key = self.key;
        match self.source.kind() {
            io::ErrorKind::AddrInUse => format!(
                "stop the program that listens there, or set [server] {key} to another port, to \
                 port 0 for any free one, or to \"off\""
            ),
            io::ErrorKind::PermissionDenied => {
                format!("set [server] {key} to a port above 1023, or to \"off\"")
            }
            _ => format!("set [server] {key} to an address of this machine, or to \"off\""),
        }
    }
}

/// An address that is listened on.
pub struct BoundAddress {
    address: SocketAddr,
    bound: RefCell<Option<Bound>>,
}

impl BoundAddress {
    /// Listens on an address; `key` is the key in `[server]` that names it, and `backlog` how many
    /// connections may wait to be accepted.
    ///
    /// # Errors
    /// It is in use, or is not to be had; the operator's fault.
    pub fn bind(
        key: &'static str,
        address: SocketAddr,
        backlog: u32,
    ) -> Result<Self, AddressError> {
        let bound = Bound::tcp(address).and_then(|bound| {
            bound.set_backlog(backlog)?;
            Ok(bound)
        });
        let bound = bound.map_err(|source| AddressError {
            key,
            address,
            source,
        })?;
        Ok(Self {
            address: bound.tcp_address().unwrap_or(address),
            bound: RefCell::new(Some(bound)),
        })
    }

    /// Returns the address, with the port that it has got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns another handle to accept connections with; none once it is closed.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn listener(&self) -> io::Result<Option<TcpListener>> {
        let bound = self.bound.borrow();
        let listener = bound.as_ref().map(|b| b.as_fd().try_clone_to_owned());
        Ok(listener.transpose()?.map(TcpListener::from))
    }

    /// Returns what accepts clients of this program's own protocol; none once it is closed.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn acceptor(&self) -> io::Result<Option<Acceptor>> {
        self.bound
            .borrow()
            .as_ref()
            .map(Bound::acceptor)
            .transpose()
    }

    /// Stops listening, once all handles are gone too.
    pub fn close(&self) {
        self.bound.take();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn as_many_connections_wait_to_be_accepted_as_was_asked_for() {
        let address = BoundAddress::bind("http", ([127, 0, 0, 1], 0).into(), 300).unwrap();
        let waiting: Vec<TcpStream> = (0..250)
            .map(|_| TcpStream::connect_timeout(&address.address(), Duration::from_secs(1)))
            .collect::<io::Result<_>>()
            .unwrap();
        assert_eq!(waiting.len(), 250);
    }
}
