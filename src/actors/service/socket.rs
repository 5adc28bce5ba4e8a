//! Sockets of services: opened, kept across restarts and reloads, given up.
//!
//! SUMMARY   [`ServiceSockets`] holds each service's socket by name. A new set of services is first prepared, which
//!           opens new sockets, and then committed, which cannot fail.
//! PROMISES  A kept socket is never closed, even briefly: connections in its queue keep waiting. An unneeded one is
//!           closed, and its file removed, when its last user drops it.
//! SOURCE    Postfix master_listen.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::{Rc, Weak};

use tokio::sync::Notify;

use crate::actors::listener::bound::Bound;
use crate::actors::listener::inherited::{Inherited, InheritedError};
use crate::actors::listener::socket::{SocketError, clear};
use crate::config::{ServiceAddress, ServiceConfig};
use crate::messages::config_listener::ServiceSocketError;
use replication::endpoint::listening::Listening;

/// A listening socket; closed when dropped.
pub struct ServiceSocket {
    address: ServiceAddress,
    /// The address with its actual port.
    shown: String,
    pub(super) bound: Bound,
    /// Why no configured service listens there now.
    left: RefCell<Option<String>>,
    left_or_taken: Notify,
}

impl ServiceSocket {
    /// Binds the address, unless `inherited` has a socket for it.
    async fn bind(
        name: &str,
        address: &ServiceAddress,
        inherited: Option<&Inherited>,
    ) -> Result<Self, Failure> {
        let name = Inherited::of_service(name);
        let passed = match (inherited, address) {
            (None, _) => None,
            (Some(inherited), ServiceAddress::Unix(path)) => inherited.unix(&name, path)?,
            (Some(inherited), ServiceAddress::Tcp(_)) => inherited.tcp(&name)?,
        };
        let bound = match (passed, address) {
            (Some(passed), _) => passed,
            (None, ServiceAddress::Unix(path)) => bind_unix(path).await?,
            (None, ServiceAddress::Tcp(address)) => Bound::tcp(*address)?,
        };
        // A passed socket may have another path than the configuration.
        let path = bound
            .path()
            .map(|path| ServiceAddress::Unix(path.to_owned()));
        let tcp = bound.tcp_address().map(ServiceAddress::Tcp);
        Ok(Self {
            shown: path.or(tcp).as_ref().unwrap_or(address).to_string(),
            address: address.clone(),
            bound,
            left: RefCell::default(),
            left_or_taken: Notify::new(),
        })
    }

    /// Sets the backlog, and the permissions: only this user may connect to a local-only service's Unix socket. The
    /// permissions of passed sockets stay unchanged.
    fn adjust(&self, service: &ServiceConfig) -> io::Result<()> {
        if let Some(path) = self.bound.path()
            && !self.bound.is_passed()
        {
            let mode = if service.is_local_only() {
                0o600
            } else {
                0o666
            };
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        self.bound.set_backlog(service.backlog)
    }

    /// Returns why no configured service listens there now, while connections of a former one remain; `None` if one
    /// does, or the next program will.
    pub(crate) fn left(&self) -> Option<String> {
        self.left.borrow().clone()
    }

    /// Waits until [`Self::left`] may have changed.
    pub(super) async fn left_or_taken(&self) {
        self.left_or_taken.notified().await;
    }

    fn set_left(&self, why: Option<String>) {
        self.left.replace(why);
        self.left_or_taken.notify_waiters();
    }

    /// Returns its address for display, with the actual port.
    pub fn shown(&self) -> &str {
        &self.shown
    }
}

/// The remedy for [`missing_folder`].
pub(crate) const MAKE_FOLDER: &str =
    "create the folder, readable by the service's clients, or correct the path";

/// Returns an error if the folder of a Unix socket is missing.
pub(crate) fn missing_folder(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|folder| !folder.is_dir())?;
    Some(format!("the folder {} does not exist", folder.display()))
}

async fn bind_unix(path: &Path) -> Result<Bound, Failure> {
    if let Some(what) = missing_folder(path) {
        return Err(Failure {
            what,
            kind: ErrorKind::NotFound,
            remedy: MAKE_FOLDER,
        });
    }
    clear(path).await?;
    Ok(Bound::unix(path)?)
}

/// Why a socket could not be opened, and the remedy.
struct Failure {
    what: String,
    kind: ErrorKind,
    remedy: &'static str,
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        let (kind, remedy) = match &error {
            SocketError::InUse(_) => (
                ErrorKind::AddrInUse,
                "stop the program that answers there, or name another path",
            ),
            _ => (
                ErrorKind::PermissionDenied,
                "name a path where this user may make a socket",
            ),
        };
        Self {
            what: error.to_string(),
            kind,
            remedy,
        }
    }
}

impl From<InheritedError> for Failure {
    fn from(error: InheritedError) -> Self {
        Self {
            what: error.to_string(),
            kind: ErrorKind::InvalidInput,
            remedy: error.remedy(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "stop the program that listens there, or take another port",
            ErrorKind::PermissionDenied => {
                "take a port above 1023, or a path where this user may make a socket"
            }
            _ => "name an address of this machine, or a path where this user may make a socket",
        };
        Self {
            what: format!("cannot listen there: {error}"),
            kind: error.kind(),
            remedy,
        }
    }
}

type Sockets = BTreeMap<String, Rc<ServiceSocket>>;

/// The sockets of all services.
#[derive(Default)]
pub struct ServiceSockets {
    bound: RefCell<Sockets>,
    /// Sockets given up but still in use.
    retired: RefCell<Vec<Weak<ServiceSocket>>>,
    listening: Listening,
    inherited: Rc<Inherited>,
}

/// Sockets for a set of services that is not in effect yet.
pub struct Prepared(BTreeMap<String, (Rc<ServiceSocket>, ServiceConfig)>);

impl ServiceSockets {
    /// Returns a set without services. A service prepared later takes the socket passed for it, if any.
    pub fn new(inherited: Rc<Inherited>) -> Self {
        Self {
            inherited,
            ..Self::default()
        }
    }

    /// Opens the missing sockets of a set of services; changes nothing else.
    ///
    /// # Errors
    /// The first unavailable socket; none is opened then.
    pub async fn prepare(
        &self,
        services: &BTreeMap<String, ServiceConfig>,
    ) -> Result<Prepared, ServiceSocketError> {
        let mut prepared = BTreeMap::new();
        for (name, service) in services {
            let Some(address) = &service.listen else {
                continue;
            };
            let socket = match self.held(name, address) {
                Some(socket) => socket,
                None => {
                    // One that moves leaves its passed socket.
                    let inherited = self.get(name).is_none().then_some(&*self.inherited);
                    let bound =
                        ServiceSocket::bind(name, address, inherited)
                            .await
                            .map_err(|failure| ServiceSocketError {
                                service: name.clone(),
                                address: address.to_string(),
                                what: failure.what,
                                kind: failure.kind,
                                remedy: failure.remedy,
                            });
                    Rc::new(bound?)
                }
            };
            prepared.insert(name.clone(), (socket, service.clone()));
        }
        Ok(Prepared(prepared))
    }

    /// Finds a held socket for an address: the service's own, or another service's current or former one.
    fn held(&self, name: &str, address: &ServiceAddress) -> Option<Rc<ServiceSocket>> {
        let bound = self.bound.borrow();
        let own = bound.get(name).filter(|socket| socket.address == *address);
        let mut others = bound.values();
        let kept = own.or_else(|| others.find(|socket| socket.address.excludes(address)));
        if let Some(socket) = kept {
            return Some(Rc::clone(socket));
        }
        let retired = self.retired.borrow();
        let mut retired = retired.iter().filter_map(Weak::upgrade);
        retired.find(|socket| socket.address.excludes(address))
    }

    /// Puts a prepared set into effect.
    pub fn commit(&self, prepared: Prepared) {
        let mut sockets = Sockets::new();
        for (name, (socket, service)) in prepared.0 {
            // Can only fail if the socket's file was removed.
            let _ = socket.adjust(&service);
            sockets.insert(name, socket);
        }
        self.replace(sockets, |(name, _), now| {
            Some(match now {
                Some(now) => format!("the service '{name}' listens on {} now", now.shown),
                None => format!("the service '{name}' was removed from the configuration"),
            })
        });
    }

    /// Listens on exactly these sockets. `why` returns why a service has left its former socket, given its current
    /// one.
    fn replace(
        &self,
        sockets: Sockets,
        why: impl Fn((&str, &ServiceSocket), Option<&ServiceSocket>) -> Option<String>,
    ) {
        let before = self.bound.replace(sockets);
        let now = self.bound.borrow();
        for (name, socket) in &before {
            socket.set_left(why((name, socket), now.get(name).map(|now| &**now)));
        }
        now.values().for_each(|socket| socket.set_left(None));
        let mut retired = self.retired.borrow_mut();
        retired.extend(before.values().map(Rc::downgrade));
        drop(before);
        retired.retain(|socket| socket.strong_count() > 0);
        let retired = retired.iter().filter_map(Weak::upgrade);
        let addresses = now
            .values()
            .cloned()
            .chain(retired)
            .filter_map(|socket| socket.bound.tcp_address());
        self.listening.set_services(addresses.collect());
    }

    /// Returns the record of the TCP addresses that this program listens on.
    pub fn listening(&self) -> Listening {
        self.listening.clone()
    }

    /// Returns the socket of a service.
    pub fn get(&self, name: &str) -> Option<Rc<ServiceSocket>> {
        self.bound.borrow().get(name).cloned()
    }

    /// Returns the services with their addresses for display.
    pub fn shown(&self) -> Vec<(String, String)> {
        let bound = self.bound.borrow();
        bound
            .iter()
            .map(|(name, s)| (name.clone(), s.shown().to_owned()))
            .collect()
    }

    /// Gives up all sockets because the program ends; each closes when its service has ended. Connections waiting at
    /// a socket held for the next program keep waiting.
    pub fn close(&self) {
        self.replace(Sockets::new(), |(_, socket), _| {
            (!socket.bound.is_passed()).then(|| "the service is shutting down".to_owned())
        });
    }
}
