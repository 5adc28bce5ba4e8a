//! The sockets of services: taking them, keeping them over restarts and reloads, giving them up.
//!
//! SUMMARY   [`ServiceSockets`] holds the socket of each service under its name. A new set of
//!           services is prepared first, which takes what is new, and then committed, which cannot
//!           fail.
//! PROMISES  A socket that stays is not closed for an instant: what waits in its queue goes on
//!           waiting. One that nobody needs any more is closed, and its file removed, when the last
//!           of its users drops it.
//! SOURCE    Postfix master_listen.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;

use crate::actors::client::stream::Stream;
use crate::actors::listener::socket::{SocketError, clear};
use crate::config::{ServiceAddress, ServiceConfig};
use crate::messages::config_listener::ServiceSocketError;
use crate::query_server::child::watch;
use replication::endpoint::listening::Listening;

enum Bound {
    Unix {
        listener: UnixListener,
        path: PathBuf,
        /// Device and inode of the file that was made.
        identity: (u64, u64),
    },
    Tcp(TcpListener),
}

/// One socket that is listened on. Its drop closes it.
pub struct ServiceSocket {
    address: ServiceAddress,
    /// The address with the port that it has got.
    shown: String,
    bound: Bound,
    /// Whether no service of the configuration listens there any more.
    left: Cell<bool>,
    left_or_taken: Notify,
}

impl ServiceSocket {
    /// Takes the address.
    async fn bind(address: &ServiceAddress) -> Result<Self, Failure> {
        let (bound, shown) = match address {
            ServiceAddress::Unix(path) => (bind_unix(path).await?, address.to_string()),
            ServiceAddress::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let shown = listener.local_addr()?.to_string();
                (Bound::Tcp(listener), shown)
            }
        };
        let address = address.clone();
        Ok(Self {
            address,
            shown,
            bound,
            left: Cell::new(false),
            left_or_taken: Notify::new(),
        })
    }

    /// Sets how many connections may wait, and who may reach it: with `local_only` a Unix socket is
    /// its user's only.
    fn adjust(&self, backlog: u32, local_only: bool) -> io::Result<()> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        match &self.bound {
            Bound::Unix { listener, path, .. } => {
                let mode = if local_only { 0o600 } else { 0o666 };
                fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
                rustix::net::listen(listener.as_fd(), backlog)?;
            }
            Bound::Tcp(listener) => rustix::net::listen(listener.as_fd(), backlog)?,
        }
        Ok(())
    }

    /// Returns whether no service of the configuration listens there any more, while connections of
    /// one that did are still there.
    pub fn is_left(&self) -> bool {
        self.left.get()
    }

    /// Returns once [`Self::is_left`] may have changed.
    pub(super) async fn left_or_taken(&self) {
        self.left_or_taken.notified().await;
    }

    fn set_left(&self, left: bool) {
        self.left.set(left);
        self.left_or_taken.notify_waiters();
    }

    /// Returns where it is, for people: with the port that it has got.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns the TCP address, with the port that it has got.
    fn tcp(&self) -> Option<SocketAddr> {
        match &self.bound {
            Bound::Tcp(listener) => listener.local_addr().ok(),
            Bound::Unix { .. } => None,
        }
    }

    /// Takes a connection that waits now, without waiting for one; it does not block either.
    pub(super) fn accept_waiting(&self) -> io::Result<Waiting> {
        Ok(match &self.bound {
            Bound::Unix { listener, .. } => {
                let stream = listener.accept()?.0;
                stream.set_nonblocking(true)?;
                Waiting::Unix(stream)
            }
            Bound::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nonblocking(true)?;
                Waiting::Tcp(stream)
            }
        })
    }

    /// Returns another handle to accept connections with.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn acceptor(&self) -> io::Result<Acceptor> {
        Ok(match &self.bound {
            Bound::Unix { listener, .. } => {
                Acceptor::Unix(watch(listener.try_clone()?, Interest::READABLE)?)
            }
            Bound::Tcp(listener) => {
                Acceptor::Tcp(watch(listener.try_clone()?, Interest::READABLE)?)
            }
        })
    }
}

impl Drop for ServiceSocket {
    fn drop(&mut self) {
        let Bound::Unix { path, identity, .. } = &self.bound else {
            return;
        };
        let found = fs::symlink_metadata(path);
        if found.is_ok_and(|file| (file.dev(), file.ino()) == *identity) {
            // A directory that was taken away meanwhile has taken the socket with it.
            let _ = fs::remove_file(path);
        }
    }
}

/// A connection that is turned away.
pub(super) enum Waiting {
    /// Of this machine.
    Unix(std::os::unix::net::UnixStream),
    /// Of any machine.
    Tcp(std::net::TcpStream),
}

async fn bind_unix(path: &Path) -> Result<Bound, Failure> {
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        return Err(Failure {
            what: format!("the folder {} is not there", folder.display()),
            kind: io::ErrorKind::NotFound,
            remedy: "make the folder, readable by whom the service is for, or correct the path",
        });
    }
    clear(path).await?;
    let listener = UnixListener::bind(path)?;
    // Until it is known who may come in, nobody else may.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    let file = fs::symlink_metadata(path)?;
    Ok(Bound::Unix {
        listener,
        path: path.to_owned(),
        identity: (file.dev(), file.ino()),
    })
}

/// Why a socket could not be taken, and what to do.
struct Failure {
    what: String,
    kind: io::ErrorKind,
    remedy: &'static str,
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        let (kind, remedy) = match &error {
            SocketError::InUse(_) => (
                io::ErrorKind::AddrInUse,
                "stop who answers there, or name another path",
            ),
            _ => (
                io::ErrorKind::PermissionDenied,
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

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => "stop the program that listens there, or take another port",
            io::ErrorKind::PermissionDenied => {
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

/// Takes connections of a socket.
pub enum Acceptor {
    /// A Unix socket.
    Unix(AsyncFd<UnixListener>),
    /// A TCP socket.
    Tcp(AsyncFd<TcpListener>),
}

impl Acceptor {
    /// Waits for the next connection. Safe to cancel.
    ///
    /// # Errors
    /// The system lacks something, or the connection was ended before it was accepted.
    pub async fn accept(&self) -> io::Result<Stream> {
        let take = || self.take();
        match self {
            Self::Unix(listener) => listener.async_io(Interest::READABLE, |_| take()).await,
            Self::Tcp(listener) => listener.async_io(Interest::READABLE, |_| take()).await,
        }
    }

    /// Takes a connection that waits; `None`: there is none any more.
    pub fn accept_now(&self) -> Option<io::Result<Stream>> {
        match self.take() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            taken => Some(taken),
        }
    }

    /// Waits until a connection waits to be accepted. Safe to cancel.
    pub async fn pending(&self) {
        match self {
            Self::Unix(listener) => pending(listener).await,
            Self::Tcp(listener) => pending(listener).await,
        }
    }

    fn take(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => {
                let stream = listener.get_ref().accept()?.0;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(UnixStream::from_std(stream)?))
            }
            Self::Tcp(listener) => {
                let stream = listener.get_ref().accept()?.0;
                stream.set_nonblocking(true)?;
                Ok(Stream::of_tcp(TcpStream::from_std(stream)?))
            }
        }
    }
}

async fn pending<L: AsFd + AsRawFd>(listener: &AsyncFd<L>) {
    // Fails only when the event loop ends, and with it whoever waits.
    while let Ok(mut ready) = listener.readable().await {
        let mut waits = [PollFd::new(listener.get_ref(), PollFlags::IN)];
        let at_once = Timespec::default();
        if rustix::event::poll(&mut waits, Some(&at_once)).is_ok_and(|count| count > 0) {
            return;
        }
        ready.clear_ready();
    }
    std::future::pending().await
}

type Sockets = BTreeMap<String, Rc<ServiceSocket>>;

/// The sockets of all services.
#[derive(Default)]
pub struct ServiceSockets {
    bound: RefCell<Sockets>,
    /// Those that were given up, as long as somebody still uses them.
    retired: RefCell<Vec<Weak<ServiceSocket>>>,
    listening: Listening,
}

/// Sockets for a set of services that is not in force yet.
pub struct Prepared {
    sockets: Sockets,
    services: BTreeMap<String, (u32, bool)>,
}

impl ServiceSockets {
    /// Takes what a set of services needs and is not held yet; nothing else changes.
    ///
    /// # Errors
    /// The first socket that cannot be had; none is taken then.
    pub async fn prepare(
        &self,
        services: &BTreeMap<String, ServiceConfig>,
    ) -> Result<Prepared, ServiceSocketError> {
        let mut prepared = Prepared {
            sockets: Sockets::new(),
            services: BTreeMap::new(),
        };
        for (name, service) in services {
            let Some(address) = &service.listen else {
                continue;
            };
            let socket = match self.held(name, address) {
                Some(socket) => socket,
                None => {
                    let bound = ServiceSocket::bind(address).await;
                    let bound = bound.map_err(|failure| ServiceSocketError {
                        service: name.clone(),
                        address: address.to_string(),
                        what: failure.what,
                        kind: failure.kind,
                        remedy: failure.remedy,
                    });
                    Rc::new(bound?)
                }
            };
            prepared.sockets.insert(name.clone(), socket);
            let terms = (service.backlog, service.is_local_only());
            prepared.services.insert(name.clone(), terms);
        }
        Ok(prepared)
    }

    /// Finds a socket that is held: the service's own, or one that another service had or has.
    fn held(&self, name: &str, address: &ServiceAddress) -> Option<Rc<ServiceSocket>> {
        let bound = self.bound.borrow();
        let own = bound.get(name).filter(|socket| socket.address == *address);
        let other = || {
            bound
                .values()
                .find(|socket| socket.address.excludes(address))
        };
        if let Some(socket) = own.or_else(other) {
            return Some(Rc::clone(socket));
        }
        let retired = self.retired.borrow();
        let mut retired = retired.iter().filter_map(Weak::upgrade);
        retired.find(|socket| socket.address.excludes(address))
    }

    /// Puts a prepared set in force.
    pub fn commit(&self, prepared: Prepared) {
        for (name, socket) in &prepared.sockets {
            let (backlog, local_only) = prepared.services[name];
            // What worked when it was made fails only where the file was taken away.
            let _ = socket.adjust(backlog, local_only);
        }
        let before = self.bound.replace(prepared.sockets);
        before.values().for_each(|socket| socket.set_left(true));
        let now = self.bound.borrow();
        now.values().for_each(|socket| socket.set_left(false));
        drop(now);
        let mut retired = self.retired.borrow_mut();
        retired.extend(before.values().map(Rc::downgrade));
        drop(before);
        retired.retain(|socket| socket.strong_count() > 0);
        let retired = retired.iter().filter_map(Weak::upgrade);
        let held = self
            .bound
            .borrow()
            .values()
            .cloned()
            .chain(retired)
            .collect::<Vec<_>>();
        let addresses = held.iter().filter_map(|socket| socket.tcp());
        self.listening.set_services(addresses.collect());
    }

    /// Returns where the TCP addresses of the services that are in force are noted.
    pub fn listening(&self) -> Listening {
        self.listening.clone()
    }

    /// Returns the socket of a service.
    pub fn get(&self, name: &str) -> Option<Rc<ServiceSocket>> {
        self.bound.borrow().get(name).cloned()
    }

    /// Returns the services with where they listen, for people.
    pub fn shown(&self) -> Vec<(String, String)> {
        let bound = self.bound.borrow();
        let shown = bound
            .iter()
            .map(|(name, s)| (name.clone(), s.shown().to_owned()));
        shown.collect()
    }

    /// Gives all sockets up; each is closed when its service has ended.
    pub fn close(&self) {
        self.commit(Prepared {
            sockets: Sockets::new(),
            services: BTreeMap::new(),
        });
    }
}
