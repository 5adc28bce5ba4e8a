//! Identifies the peer of a connection, for display and for the rights of local users.
//!
//! LIMITS    Names of users are those of `/etc/passwd` at the service's start; others are shown as numbers.

use std::fs;

use rustc_hash::FxHashMap;
use tokio::net::UnixStream;

use super::stream::Stream;
use crate::auth::rights::Rights;
use crate::config::Role;
use crate::query_server::status::Holder;

/// Number of a user -> the name.
pub(crate) struct UserNames(FxHashMap<u32, String>);

impl UserNames {
    /// Reads the names of this machine. Blocks.
    pub fn read() -> Self {
        Self::of(&fs::read_to_string("/etc/passwd").unwrap_or_default())
    }

    /// Parses text like `/etc/passwd`: name, password, number, ..
    fn of(users: &str) -> Self {
        let users = users.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, number) = (fields.next()?, fields.nth(1)?);
            Some((number.parse().ok()?, name.to_owned()))
        });
        let mut names = FxHashMap::default();
        for (number, name) in users {
            names.entry(number).or_insert(name);
        }
        Self(names)
    }
}

/// Returns the peer of a Unix socket, as reported by the system.
pub(crate) fn local_holder(unix: &UnixStream, names: &UserNames) -> Holder {
    let Ok(peer) = unix.peer_cred() else {
        return Holder::default();
    };
    Holder {
        pid: peer.pid().and_then(|pid| u32::try_from(pid).ok()),
        uid: Some(peer.uid()),
        user: names.0.get(&peer.uid()).cloned(),
        ..Holder::default()
    }
}

/// Returns the rights of a local user without a login: the service's own user and root may do everything; others,
/// admitted by the socket's permissions for its group, may call functions. Without a known user there are no rights.
pub(crate) fn local_rights(uid: Option<u32>) -> Rights {
    match uid {
        Some(uid) if uid == 0 || uid == rustix::process::geteuid().as_raw() => Rights::all(),
        Some(_) => Rights::of(&[Role::Caller], &[]),
        None => Rights::default(),
    }
}

/// Returns the peer, as reported by the system.
pub(super) fn holder(stream: &Stream, names: &UserNames) -> Holder {
    match stream {
        Stream::Unix(unix) => local_holder(unix, names),
        Stream::Tcp(_) | Stream::Tls { .. } => Holder {
            peer: stream.address().map(|peer| peer.to_string()),
            ..Holder::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_name_of_the_first_entry_with_its_number() {
        let users = UserNames::of(
            "root:x:0:0:root:/root:/bin/sh\nodd\nann:x:1000:1000::/home/ann:\ntoo:x:0:0::/:\n",
        );
        let name = |uid: u32| users.0.get(&uid).map(String::as_str);
        assert_eq!(name(0), Some("root"), "the first counts");
        assert_eq!(name(1000), Some("ann"));
        assert_eq!(name(7), None);
    }
}
