//! A listening socket, Unix or TCP: binding, accepting, closing.
//!
//! PROMISES  Only this user can reach a Unix socket until its owner changes that. Its file is removed with it, if it
//!           is still the one that we created. An error of accept delays the next one and loses no connection; one
//!           connection is lost if the event loop cannot register it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use actix_rt::time::Sleep;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::SocketFlags;
use slog::Logger;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};

use crate::actors::client::stream::Stream;
use crate::logging::RepeatLimiter;
use crate::warn_repeating;
use child::{watch, watches};

/// Pause after the system refused an accept: it is out of descriptors or memory, until connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket, until closed or dropped.
pub struct Bound {
    listener: RefCell<Option<OwnedFd>>,
    place: BoundPlace,
    /// Whether it was passed to us: its creator keeps it open.
    is_passed: bool,
}

enum BoundPlace {
    Unix {
        path: PathBuf,
        /// Device and inode of the created file; `None` for a passed socket.
        identity: Option<(u64, u64)>,
    },
    Tcp(SocketAddr),
}

impl Bound {
    /// Creates a Unix socket that only this user can reach.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let file = fs::symlink_metadata(path)?;
        let place = BoundPlace::Unix {
            path: path.to_owned(),
            identity: Some((file.dev(), file.ino())),
        };
        Ok(Self::new(listener, place, false))
    }

    /// Binds a TCP address; port 0 is any free one.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn tcp(address: SocketAddr) -> io::Result<Self> {
        Self::of_tcp(TcpListener::bind(address)?, false)
    }

    /// Uses a passed Unix socket, kept open by its creator: `path` is its path, unless the socket itself reports one.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn passed_unix(listener: UnixListener, path: &Path) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let place = BoundPlace::Unix {
            path: address.as_pathname().unwrap_or(path).to_owned(),
            identity: None,
        };
        Ok(Self::new(listener, place, true))
    }

    /// Uses a TCP socket, possibly a passed one.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn of_tcp(listener: TcpListener, is_passed: bool) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let place = BoundPlace::Tcp(listener.local_addr()?);
        Ok(Self::new(listener, place, is_passed))
    }

    fn new(listener: impl Into<OwnedFd>, place: BoundPlace, is_passed: bool) -> Self {
        Self {
            listener: RefCell::new(Some(listener.into())),
            place,
            is_passed,
        }
    }

    /// Returns whether it was passed and is kept open by its creator: then the next program serves the clients that
    /// are waiting to be accepted.
    pub(crate) const fn is_passed(&self) -> bool {
        self.is_passed
    }

    /// Sets the length of the backlog.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn set_backlog(&self, backlog: u32) -> io::Result<()> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        match &*self.listener.borrow() {
            Some(listener) => Ok(rustix::net::listen(listener, backlog)?),
            None => Ok(()),
        }
    }

    /// Returns the TCP address with the actual port.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match self.place {
            BoundPlace::Tcp(address) => Some(address),
            BoundPlace::Unix { .. } => None,
        }
    }

    /// Returns the path of a Unix socket, even if we did not create its file.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.place {
            BoundPlace::Unix { path, .. } => Some(path),
            BoundPlace::Tcp(_) => None,
        }
    }

    /// Returns a duplicate of the socket; `None` once it is closed.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn duplicate(&self) -> io::Result<Option<OwnedFd>> {
        let listener = self.listener.borrow();
        listener.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// Returns an acceptor of connections; `None` once it is closed.
    ///
    /// # Errors
    /// The process has no descriptor left, or the event loop cannot register it.
    pub(crate) fn acceptor(&self) -> io::Result<Option<Acceptor>> {
        let Some(listener) = self.duplicate()? else {
            return Ok(None);
        };
        Ok(Some(Acceptor {
            listener: watch(listener, Interest::READABLE)?,
            is_tcp: self.tcp_address().is_some(),
            has_failed: Cell::new(false),
        }))
    }

    /// Accepts a pending connection as a non-blocking socket, without waiting for one. `None`: there is none, or the
    /// system is out of resources.
    pub(crate) fn accept_waiting(&self) -> Option<OwnedFd> {
        self.listener.borrow().as_ref().and_then(|l| accept(l).ok())
    }

    /// Stops listening, once all acceptors are dropped, and removes a Unix socket's file if it is still ours.
    pub(crate) fn close(&self) {
        let (Some(_), BoundPlace::Unix { path, identity }) = (self.listener.take(), &self.place)
        else {
            return;
        };
        let found = fs::symlink_metadata(path);
        if found.is_ok_and(|file| Some((file.dev(), file.ino())) == *identity) {
            // If the directory was removed meanwhile, so was the socket.
            let _ = fs::remove_file(path);
        }
    }
}

/// Its address for display.
impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            BoundPlace::Unix { path, .. } => path.display().fmt(f),
            BoundPlace::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.close();
    }
}

fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let accept = || rustix::net::accept_with(listener.as_fd(), flags);
    Ok(rustix::io::retry_on_intr(accept)?)
}

/// Accepts connections of a socket.
pub(crate) struct Acceptor {
    listener: AsyncFd<OwnedFd>,
    is_tcp: bool,
    /// Whether the last connection was lost because the event loop could not register it.
    has_failed: Cell<bool>,
}

impl Acceptor {
    /// Waits for the next connection. Safe to cancel.
    ///
    /// # Errors
    /// The system is out of resources, or the connection ended before it was accepted.
    pub async fn accept(&self) -> io::Result<Stream> {
        let take = |_: &OwnedFd| self.take();
        self.listener.async_io(Interest::READABLE, take).await
    }

    /// Accepts a waiting connection; `None`: there are no more.
    pub fn accept_now(&self) -> Option<io::Result<Stream>> {
        match self.take() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            taken => Some(taken),
        }
    }

    fn take(&self) -> io::Result<Stream> {
        if self.has_failed.get() {
            // The next one waits in the backlog until there is room.
            watches::require(1)?;
        }
        let client = accept(self.listener.get_ref())?;
        let stream = if self.is_tcp {
            TcpStream::from_std(client.into()).map(Stream::of_tcp)
        } else {
            UnixStream::from_std(client.into()).map(Stream::Unix)
        };
        self.has_failed.set(stream.is_err());
        stream.map_err(watches::named)
    }

    /// Waits until a connection is pending. Safe to cancel.
    pub async fn pending(&self) {
        // Fails only when the event loop ends, and with it the waiting task.
        while let Ok(mut ready) = self.listener.readable().await {
            let mut waits = [PollFd::new(self.listener.get_ref(), PollFlags::IN)];
            let at_once = Timespec::default();
            if rustix::event::poll(&mut waits, Some(&at_once)).is_ok_and(|count| count > 0) {
                return;
            }
            ready.clear_ready();
        }
        std::future::pending().await
    }
}

/// Pauses after an error of accept, which usually means a lack of resources.
pub(crate) struct AcceptPause {
    told: RepeatLimiter,
    log: Logger,
}

impl AcceptPause {
    pub fn new(log: Logger) -> Self {
        Self {
            told: RepeatLimiter::default(),
            log,
        }
    }

    /// Warns of an error. Returns the pause before the next connection may be accepted.
    pub fn after(&mut self, error: &io::Error) -> Sleep {
        warn_repeating!(self.log, self.told,
            "cannot accept a client"; "error" => %error,
            "effect" => "clients wait to be accepted",
            "remedy" => watches::remedy(error).unwrap_or("raise the limit of open files (ulimit -n)"));
        Self::untold()
    }

    /// Returns the pause without a warning.
    pub fn untold() -> Sleep {
        actix_rt::time::sleep(ACCEPT_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::Bound;

    #[test]
    fn connections_within_the_backlog_wait_to_be_accepted() {
        let bound = Bound::tcp(([127, 0, 0, 1], 0).into()).unwrap();
        bound.set_backlog(300).unwrap();
        let address = bound.tcp_address().unwrap();
        let wait = std::time::Duration::from_secs(1);
        let connect = |_| TcpStream::connect_timeout(&address, wait);
        let waiting: std::io::Result<Vec<TcpStream>> = (0..250).map(connect).collect();
        assert_eq!(waiting.unwrap().len(), 250);
    }
}
