//! A service that gives up its address: its remaining clients are answered with the reason and where to go.
//!
//! SUMMARY   [`dismiss_waiting`] answers connections waiting to be accepted, [`turn_away`] later ones.
//! PROMISES  Never waits for a client: its input is discarded, the reply fits the socket's buffer, and the connection
//!           is closed. Leaves alone an address that another service has taken over, and a socket held for the next
//!           program.
//! LIMITS    A client on TCP that is still sending may see a reset instead of the line.

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use rustix::net::{SendFlags, Shutdown};

use super::socket::ServiceSocket;
use crate::actors::client::last_line;
use crate::actors::listener::bound::{AcceptPause, Acceptor};
use crate::messages::client_error::ErrorReply;
use crate::messages::process::Fault;

/// Maximum connections answered at a time: the system's longest queue.
const DISMISSED_MAX: usize = 65_535;

/// Maximum unread client bytes that are discarded.
const UNREAD_BYTES_MAX: usize = 1 << 20;

/// Answers every connection that waits to be accepted.
pub(super) fn dismiss_waiting(socket: &ServiceSocket) {
    for _ in 0..DISMISSED_MAX {
        let Some(reason) = socket.left() else {
            return;
        };
        match socket.bound.accept_waiting() {
            Some(client) => dismiss(socket, client.as_fd(), &reason),
            // None is left, or the system is out of resources and resets the rest.
            None => return,
        }
    }
}

/// Answers new connections while no configured service listens there.
pub(super) async fn turn_away(socket: Rc<ServiceSocket>, acceptor: Rc<Acceptor>) {
    dismiss_waiting(&socket);
    loop {
        let Some(reason) = socket.left() else {
            socket.left_or_taken().await;
            continue;
        };
        let accepted = tokio::select! {
            biased;
            () = socket.left_or_taken() => continue,
            accepted = acceptor.accept() => accepted,
        };
        match accepted {
            Ok(client) => dismiss(&socket, client.as_fd(), &reason),
            // Out of descriptors or memory.
            Err(_) => AcceptPause::untold().await,
        }
    }
}

/// Answers one connection. Errors mean that the client has gone, and are ignored.
fn dismiss(socket: &ServiceSocket, client: BorrowedFd<'_>, reason: &str) {
    // Unread input would make the close a reset for the client.
    throw_away(client);
    let _ = rustix::net::send(
        client,
        &last_line(&ErrorReply::answer("shutting_down", reason, Fault::Settee)),
        SendFlags::NOSIGNAL,
    );
    let what = match socket.bound.tcp_address() {
        Some(_) => Shutdown::Write,
        None => Shutdown::Both,
    };
    let _ = rustix::net::shutdown(client, what);
}

fn throw_away(client: BorrowedFd<'_>) {
    let mut scratch = [0; 8192];
    let mut left = UNREAD_BYTES_MAX;
    while let Ok(length @ 1..) = rustix::io::read(client, &mut scratch) {
        left = left.saturating_sub(length);
        if left == 0 {
            return;
        }
    }
}
