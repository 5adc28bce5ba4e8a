//! Resolves host names of databases through the system.
//!
//! PROMISES  At most [`LOOKUPS_MAX`] lookups run at a time, each on a thread. If a thread cannot be started, the
//!           request fails.
//! DIFFERS   The resolver of reqwest panics if a thread cannot be started.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use blocking::Turns;

/// Maximum number of lookups at a time; more wait.
const LOOKUPS_MAX: usize = 64;

static LOOKUPS: Turns = Turns::new(LOOKUPS_MAX);

/// Resolves a name.
///
/// # Errors
/// It has no address, or the system cannot create another thread.
pub(super) async fn look_up(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    // Held until the lookup ends, even if its caller is gone.
    let turn = LOOKUPS.turn().await;
    let look_up = move || (host, port).to_socket_addrs().map(Vec::from_iter);
    turn.run("names", look_up).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_resolves_to_its_addresses_and_an_unknown_one_is_an_error() {
        let found = look_up("localhost".to_owned(), 5984).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()));
        assert!(!found.is_empty());
        assert!(look_up("no such name".to_owned(), 1).await.is_err());
    }
}
