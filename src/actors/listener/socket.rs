//! The service's Unix socket as a file: creating and removing it.
//!
//! SUMMARY   [`bind_socket`] creates a socket that only its owner can reach, or also the members of a group. It
//!           replaces a socket left by an earlier run, but no other file.
//! PROMISES  Two services that start at the same time do not take each other's socket. At the end only the socket
//!           created at the start is removed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::bound::Bound;
use crate::config::Server;
use crate::config::own_folder::{self, OTHERS_ENTER};

/// The permission bits that let others replace the socket.
const OTHERS_WRITE: u32 = 0o022;

/// The bit that lets all users enter a directory.
const STRANGERS_ENTER: u32 = 0o001;

/// The users allowed to connect, as file modes: the owner, or also the members of a group.
#[derive(Clone, Copy)]
struct Modes {
    socket: u32,
    directory: u32,
    /// The bits of a directory that must not be set. The socket's own mode, which only the owner can change, decides
    /// who may connect; so all users may enter the directory of a shared socket.
    too_much: u32,
    /// The group of the socket and its directory.
    group: Option<u32>,
}

impl Modes {
    fn of(server: &Server) -> Result<Self, SocketError> {
        if !server.shares_socket() {
            return Ok(Self {
                socket: 0o600,
                directory: 0o700,
                too_much: OTHERS_ENTER,
                group: None,
            });
        }
        let group = match server.socket_group.as_str() {
            // The owner's group.
            "" => None,
            name => Some(group_number(name).map_err(SocketError::system(
                &server.socket,
                "cannot find the group of [server] socket_group",
            ))?),
        };
        Ok(Self {
            socket: 0o660,
            directory: 0o750,
            too_much: OTHERS_WRITE,
            group,
        })
    }
}

/// Returns the number of a group, from the system's own tool, which knows all sources of groups.
fn group_number(name: &str) -> io::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let output = Command::new("getent")
        .args(["group", name])
        .env_clear()
        .env("PATH", path)
        .output()?;
    String::from_utf8_lossy(&output.stdout)
        .split(':')
        .nth(2)
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no group {name:?}")))
}

/// The socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A program listens there.
    #[error("another settee is running: it answers on {}", .0.display())]
    InUse(PathBuf),
    /// Something else exists there.
    #[error("{}: {what}", path.display())]
    NotOurs {
        /// Its path.
        path: PathBuf,
        /// The problem.
        what: &'static str,
    },
    /// Others could reach the socket.
    #[error("{}: {what}", directory.display())]
    Exposed {
        /// The directory.
        directory: PathBuf,
        /// The users who could enter.
        what: String,
    },
    /// The system refuses.
    #[error("{}: {what}: {source}", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// The attempt.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl SocketError {
    fn system(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::System { path, what, source }
    }

    /// Returns the remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::InUse(_) => "stop it first, or give this one another [server] socket",
            Self::NotOurs { .. } => "name another path as [server] socket, or remove what is there",
            Self::Exposed { .. } => {
                "chmod 0700 it (0755 is enough with socket_group or socket_mode 0660), or name a [server] socket in a directory of this user's own"
            }
            Self::System { .. } => "name a [server] socket where this user may make one",
        }
    }
}

/// Creates a Unix socket of the server at `path`, and its directory if missing. The path is the configured one, or that
/// of the socket for HTTP next to it.
///
/// # Errors
/// See [`SocketError`]; anything at the path is kept, except this user's socket without a listener.
pub(crate) async fn bind_socket(server: &Server, path: &Path) -> Result<Bound, SocketError> {
    let modes = Modes::of(server)?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    prepare(directory, modes)?;
    // Held from the check of the old socket to the creation of the new one.
    let lock = File::open(directory).map_err(SocketError::system(directory, "cannot open"))?;
    lock.lock()
        .map_err(SocketError::system(directory, "cannot lock"))?;
    clear(path).await?;
    let cannot = |what| SocketError::system(path, what);
    let bound = Bound::unix(path).map_err(cannot("cannot make the socket"))?;
    // The group first: until the mode has the group's bits only the owner can connect.
    if modes.group.is_some() {
        chown(path, None, modes.group).map_err(cannot("cannot give it to the group"))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(modes.socket))
        .map_err(cannot("cannot set the permissions"))?;
    bound
        .set_backlog(server.backlog)
        .map_err(cannot("cannot use the socket"))?;
    Ok(bound)
}

/// Creates the directory, or checks that only the intended users can enter it.
fn prepare(directory: &Path, modes: Modes) -> Result<(), SocketError> {
    own_folder::make(directory)
        .map_err(SocketError::system(directory, "cannot make the directory"))?;
    let found = fs::metadata(directory).map_err(SocketError::system(
        directory,
        "cannot look at the directory",
    ))?;
    if let Some(what) = own_folder::exposure(&found, modes.too_much) {
        let directory = directory.to_owned();
        return Err(SocketError::Exposed { directory, what });
    }
    // A directory open to all users admits the group too, and other programs may need it unchanged.
    if modes.directory == 0o700 || found.mode() & STRANGERS_ENTER != 0 {
        return Ok(());
    }
    if modes.group.is_some() {
        chown(directory, None, modes.group).map_err(SocketError::system(
            directory,
            "cannot give the directory to the group",
        ))?;
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(modes.directory)).map_err(
        SocketError::system(directory, "cannot set the permissions of the directory"),
    )
}

/// Removes a stale socket; anything else at the path is an error.
pub(crate) async fn clear(path: &Path) -> Result<(), SocketError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(SocketError::system(path, "cannot look at it"))?,
    };
    let not_ours = |what| {
        Err(SocketError::NotOurs {
            path: path.to_owned(),
            what,
        })
    };
    if !found.file_type().is_socket() {
        return not_ours("it is not a socket, and is left alone");
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return not_ours("the socket there belongs to another user, and is left alone");
    }
    match tokio::net::UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(SocketError::system(path, "cannot remove the old socket"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A listener with a full queue is also in use.
        _ => Err(SocketError::InUse(path.to_owned())),
    }
}
