//! Every socket that the service listens on.
//!
//! SUMMARY   [`Sockets::bind`] takes the sockets passed to the program, and binds the others.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

use slog::Logger;

use super::StartError;
use crate::actors::listener::address::bind_address;
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
    pub addresses: Addresses,
}

/// The service's addresses, with their actual ports.
pub(super) struct Addresses {
    pub socket: PathBuf,
    pub tcp: Option<SocketAddr>,
    pub tls: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    pub https: Option<SocketAddr>,
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
            addresses: Addresses {
                socket: unix.path().unwrap_or(&config.server.socket).to_owned(),
                tcp: address(&tcp),
                tls: address(&tls),
                http: address(&http),
                https: address(&https),
            },
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
        let Addresses {
            tcp,
            tls,
            http,
            https,
            ..
        } = self.addresses;
        [tcp, http, https, tls].into_iter().flatten()
    }
}

fn address(bound: &Option<Rc<Bound>>) -> Option<SocketAddr> {
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
        None => bind_address(key, address, backlog)?,
    };
    Ok(Some(Rc::new(bound)))
}
