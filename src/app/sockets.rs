//! Every socket that the service listens on.
//!
//! SUMMARY   [`Sockets::bind`] takes the sockets passed to the program, and binds the others.

use std::net::SocketAddr;
use std::rc::Rc;

use slog::Logger;

use super::StartError;
use crate::actors::listener::address::AddressError;
use crate::actors::listener::bound::Bound;
use crate::actors::listener::inherited::{HTTP_SOCKET, Inherited};
use crate::actors::listener::socket::bind_socket;
use crate::actors::service::socket::ServiceSockets;
use crate::client::operator_socket;
use crate::config::Config;

pub(super) struct Sockets {
    pub unix: Rc<Bound>,
    /// The HTTP socket next to `unix`.
    pub local: Rc<Bound>,
    pub tcp: Option<Rc<Bound>>,
    pub tls: Option<Rc<Bound>>,
    pub http: Option<Rc<Bound>>,
    pub https: Option<Rc<Bound>>,
    pub services: Rc<ServiceSockets>,
}

impl Sockets {
    /// Binds all configured sockets. Logs passed sockets that it does not use.
    ///
    /// # Errors
    /// One of them is unavailable; the others are released.
    pub async fn bind(
        config: &Config,
        inherited: Inherited,
        log: &Logger,
    ) -> Result<Self, StartError> {
        let inherited = Rc::new(inherited);
        let place = config.server.socket.as_path();
        let unix = match inherited.unix("[server] socket", place)? {
            Some(passed) => passed,
            None => bind_socket(&config.server, place).await?,
        };
        let place = operator_socket(unix.path().unwrap_or(place));
        let local = match inherited.unix(HTTP_SOCKET, &place)? {
            Some(passed) => passed,
            None => bind_socket(&config.server, &place).await?,
        };
        let bind = |key, address| bind(&inherited, key, address, config.server.backlog);
        let tcp = bind("[server] tcp", config.server.tcp)?;
        let http = bind("[server] http", config.server.http)?;
        let services = Rc::new(ServiceSockets::new(Rc::clone(&inherited)));
        services.commit(services.prepare(&config.services).await?);
        let https = bind("[ssl] port", config.ssl.address())?;
        let tls = bind("[ssl] tcp", config.ssl.tcp)?;
        inherited.warn_of_the_rest(log);
        let sockets = Self {
            unix: Rc::new(unix),
            local: Rc::new(local),
            tcp,
            tls,
            http,
            https,
            services,
        };
        let listening = sockets.services.listening();
        sockets.bound().for_each(|at| listening.add(at));
        Ok(sockets)
    }

    /// Returns all TCP addresses except those of services.
    pub fn bound(&self) -> impl Iterator<Item = SocketAddr> {
        [&self.tcp, &self.http, &self.https, &self.tls]
            .into_iter()
            .filter_map(address)
    }
}

/// Returns the address of a TCP socket, if any, with the actual port.
pub(super) fn address(bound: &Option<Rc<Bound>>) -> Option<SocketAddr> {
    bound.as_ref()?.tcp_address()
}

/// Binds an address, if there is one, or takes the socket passed for it.
fn bind(
    inherited: &Inherited,
    key: &'static str,
    address: Option<SocketAddr>,
    backlog: u32,
) -> Result<Option<Rc<Bound>>, StartError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let bound = match inherited.tcp(key)? {
        Some(passed) => passed,
        None => {
            let error = |source| AddressError {
                key,
                address,
                source,
            };
            let bound = Bound::tcp(address).map_err(error)?;
            bound.set_backlog(backlog).map_err(error)?;
            bound
        }
    };
    Ok(Some(Rc::new(bound)))
}
