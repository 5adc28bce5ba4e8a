//! A service that leaves its address: clients that still connect there learn why, and where to go.
//!
//! SUMMARY   [`dismiss_waiting`] tells those that wait to be accepted, [`turn_away`] those that come later.
//! PROMISES  Never waits for a client: what it has sent is thrown away, what it is sent fits its
//!           socket, and the connection is closed. An address that another service has taken over is
//!           left to that one, and a socket that somebody else keeps to the next program when this one ends.
//! LIMITS    A client on TCP that is still sending may see a reset instead of the line.

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use rustix::net::{SendFlags, Shutdown};

use super::socket::ServiceSocket;
use crate::actors::client::last_line;
use crate::actors::listener::bound::{AcceptPause, Acceptor};
use crate::messages::client_error::ErrorReply;
use crate::messages::process::Fault;

/// Most connections that are answered at a time: what the longest queue of the system holds.
const DISMISSED_MAX: usize = 65_535;

/// What a client has sent that is thrown away, in bytes.
const UNREAD_BYTES_MAX: usize = 1 << 20;

/// Tells every connection that waits to be accepted.
pub(super) fn dismiss_waiting(socket: &ServiceSocket) {
    for _ in 0..DISMISSED_MAX {
        let Some(reason) = socket.left() else {
            return;
        };
        match socket.bound().accept_waiting() {
            Some(client) => dismiss(socket, client.as_fd(), &reason),
            // Where the system lacks something it resets the rest itself.
            None => return,
        }
    }
}

/// Tells those who connect while no service of the configuration listens there.
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
            // It is out of descriptors or memory.
            Err(_) => AcceptPause::untold().await,
        }
    }
}

/// Tells one connection. Errors do not matter: they mean that the client has gone.
fn dismiss(socket: &ServiceSocket, client: BorrowedFd<'_>, reason: &str) {
    // What is not read when it closes would be an error at the other end.
    throw_away(client);
    let line = last_line(&ErrorReply::answer("shutting_down", reason, Fault::Settee));
    let _ = rustix::net::send(client, &line, SendFlags::NOSIGNAL);
    let what = match socket.bound().tcp_address() {
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
