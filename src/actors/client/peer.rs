//! Who is at the other end of a connection, for people.
//!
//! LIMITS    Names of users are those of `/etc/passwd`; others are shown by their numbers.

use std::cell::RefCell;
use std::fs;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::stream::Stream;
use crate::query_server::status::Holder;

/// Most names that are remembered.
const NAMES_MAX: usize = 1024;

thread_local! {
    /// Number of a user -> the name.
    static NAMES: RefCell<FxHashMap<u32, String>> = RefCell::default();
}

/// Returns who the system says is at the other end.
pub(super) fn holder(stream: &Stream) -> Holder {
    match stream {
        Stream::Unix(unix) => {
            let Ok(peer) = unix.peer_cred() else {
                return Holder::default();
            };
            Holder {
                pid: peer.pid().and_then(|pid| u32::try_from(pid).ok()),
                uid: Some(peer.uid()),
                user: user_name(peer.uid()),
                ..Holder::default()
            }
        }
        Stream::Tcp(tcp) => Holder {
            peer: tcp.peer_addr().ok().map(|peer| peer.to_string()),
            ..Holder::default()
        },
    }
}

/// Returns who that is once a user has logged in.
pub(super) fn logged_in(stream: &Stream, user: &str) -> Arc<Holder> {
    Arc::new(Holder {
        user: Some(user.to_owned()),
        ..holder(stream)
    })
}

fn user_name(uid: u32) -> Option<String> {
    NAMES.with_borrow_mut(|names| {
        if let Some(name) = names.get(&uid) {
            return Some(name.clone());
        }
        let name = look_up(&fs::read_to_string("/etc/passwd").ok()?, uid)?;
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(uid, name.clone());
        Some(name)
    })
}

/// Finds a user in the text of `/etc/passwd`: name, password, number, ..
fn look_up(users: &str, uid: u32) -> Option<String> {
    let mut found = users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    });
    found.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_user_is_that_of_its_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nodd\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(look_up(users, 0).as_deref(), Some("root"));
        assert_eq!(look_up(users, 1000).as_deref(), Some("ann"));
        assert_eq!(look_up(users, 7), None);
    }
}
