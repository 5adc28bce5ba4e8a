//! Listening sockets passed to the program at its start, by the names that the configuration uses.
//!
//! SUMMARY   [`Inherited::of_environment`] takes the descriptors that a service manager passes (`LISTEN_FDS`,
//!           `LISTEN_FDNAMES`, `LISTEN_PID`); before making a listener, a caller checks whether a socket with its name
//!           was passed.
//! PROMISES  A passed socket is used unchanged: its file keeps its permissions and is not removed. No child inherits
//!           it.
//! SOURCE    `sd_listen_fds_with_names(3)`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;

use listenfd::ListenFd;
use slog::{Logger, warn};

use super::bound::Bound;

/// The name of the Unix socket for HTTP, which has no configuration key.
pub(crate) const HTTP_SOCKET: &str = "http-socket";

/// The names of the listeners, with their configuration keys.
const NAMES: [(&str, &str); 6] = [
    ("socket", "[server] socket"),
    (HTTP_SOCKET, HTTP_SOCKET),
    ("http", "[server] http"),
    ("https", "[ssl] port"),
    ("tcp", "[server] tcp"),
    ("tls", "[ssl] tcp"),
];

/// The prefix of a service's listener.
const SERVICE: &str = "service-";

/// A passed socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritedError {
    /// The numbers of names and descriptors differ.
    #[error("LISTEN_FDS passes {sockets} sockets, and LISTEN_FDNAMES names {names}")]
    Unnamed {
        /// The number of sockets.
        sockets: usize,
        /// The number of names.
        names: usize,
    },
    /// No listener has this name.
    #[error("a socket with the name '{0}' was passed, and no listener has that name")]
    Unknown(String),
    /// Two sockets have the same name.
    #[error("two sockets with the name '{0}' were passed")]
    Twice(String),
    /// It is a socket of another kind, or not a socket.
    #[error("the socket '{name}' that was passed cannot be listened on: {source}")]
    Unusable {
        /// Its name.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

impl InheritedError {
    /// Returns the remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unnamed { .. } | Self::Unknown(_) => {
                "set FileDescriptorName= of each socket unit to socket, http-socket, http, https, tcp, tls or \
                 service-NAME"
            }
            Self::Twice(_) => "make a socket unit with one ListenStream= for each listener",
            Self::Unusable { .. } => {
                "pass a listening stream socket: Unix as 'socket' and 'http-socket', TCP as 'http', 'https', 'tcp' and 'tls'"
            }
        }
    }

    fn unusable(name: &str) -> impl FnOnce(io::Error) -> Self {
        let name = name.to_owned();
        move |source| Self::Unusable { name, source }
    }
}

enum Passed {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// The passed sockets, by name, each with whether it was taken. They stay open: a reload may be refused after it took
/// one, and a removed service may be added again.
#[derive(Default)]
pub struct Inherited(BTreeMap<String, (Passed, Cell<bool>)>);

impl Inherited {
    /// Takes the passed sockets, and removes their variables from the environment: to be called once, before there
    /// are other threads. Sockets for another `LISTEN_PID` are ignored.
    ///
    /// # Errors
    /// A name is missing, unknown, or used twice; or a descriptor is not a listening socket.
    pub fn of_environment() -> Result<Self, InheritedError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut passed = ListenFd::from_env();
        if passed.len() == 0 {
            return Ok(Self::default());
        }
        let names: Vec<&str> = names.split(':').filter(|name| !name.is_empty()).collect();
        if names.len() != passed.len() {
            let (sockets, names) = (passed.len(), names.len());
            return Err(InheritedError::Unnamed { sockets, names });
        }
        let mut sockets = BTreeMap::new();
        for (at, name) in names.into_iter().enumerate() {
            if !is_known(name) {
                return Err(InheritedError::Unknown(name.to_owned()));
            }
            let socket = take(&mut passed, at).map_err(InheritedError::unusable(name))?;
            if sockets
                .insert(name.to_owned(), (socket, Cell::default()))
                .is_some()
            {
                return Err(InheritedError::Twice(name.to_owned()));
            }
        }
        Ok(Self(sockets))
    }

    /// Takes the Unix socket for a key or a service, if it was passed. Its path is the one it was bound to, or `path`
    /// if unknown.
    ///
    /// # Errors
    /// It is a TCP socket.
    pub(crate) fn unix(&self, key: &str, path: &Path) -> Result<Option<Bound>, InheritedError> {
        self.bound(key, |passed| match passed {
            Passed::Unix(listener) => Bound::passed_unix(listener.try_clone()?, path),
            Passed::Tcp(_) => Err(io::Error::other("it is not a Unix socket")),
        })
    }

    /// Takes the TCP socket for a key or a service, if it was passed.
    ///
    /// # Errors
    /// It is a Unix socket.
    pub(crate) fn tcp(&self, key: &str) -> Result<Option<Bound>, InheritedError> {
        self.bound(key, |passed| match passed {
            Passed::Tcp(listener) => Bound::of_tcp(listener.try_clone()?, true),
            Passed::Unix(_) => Err(io::Error::other("it is not a TCP socket")),
        })
    }

    fn bound(
        &self,
        key: &str,
        bind: impl FnOnce(&Passed) -> io::Result<Bound>,
    ) -> Result<Option<Bound>, InheritedError> {
        let name = name_of(key);
        let passed = self.0.get(name).map(|(passed, is_taken)| {
            is_taken.set(true);
            bind(passed)
        });
        passed.transpose().map_err(InheritedError::unusable(name))
    }

    /// Returns the name of a service's passed socket.
    pub(crate) fn of_service(service: &str) -> String {
        format!("{SERVICE}{service}")
    }

    /// Warns of sockets not taken; a reload may add a service of their name.
    pub(crate) fn warn_of_the_rest(&self, log: &Logger) {
        let left = |(_, (_, is_taken)): &(&String, &(Passed, Cell<bool>))| !is_taken.get();
        for (name, _) in self.0.iter().filter(left) {
            warn!(log, "a socket was passed that nothing listens on"; "listen" => name,
                "effect" => "clients that connect to it wait",
                "remedy" => "configure that listener, or remove the socket's unit");
        }
    }
}

/// Returns the name of the listener for a key; the key of a service's listener is its name.
fn name_of(key: &str) -> &str {
    NAMES
        .iter()
        .find(|(_, known)| *known == key)
        .map_or(key, |(name, _)| name)
}

fn is_known(name: &str) -> bool {
    let service = name.strip_prefix(SERVICE);
    NAMES.iter().any(|(known, _)| *known == name)
        || service.is_some_and(|service| !service.is_empty())
}

fn take(passed: &mut ListenFd, at: usize) -> io::Result<Passed> {
    let missing = || io::Error::other("it was taken already");
    if let Ok(listener) = passed.take_unix_listener(at) {
        return Ok(Passed::Unix(listener.ok_or_else(missing)?));
    }
    let listener = passed.take_tcp_listener(at)?;
    Ok(Passed::Tcp(listener.ok_or_else(missing)?))
}
