//! A service that leaves its address: who still connects there is told why, and where to go.
//!
//! SUMMARY   [`dismiss_waiting`] tells all that wait to be accepted, [`turn_away`] who comes later.
//! PROMISES  Never waits for a client: what it has sent is thrown away, what it is told fits its
//!           socket, and the connection is closed. An address that another service has taken over is
//!           left to that one.
//! LIMITS    A client on TCP that is still sending may see a reset in place of the line.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::rc::Rc;

use super::ACCEPT_PAUSE;
use super::socket::{Acceptor, ServiceSocket, Waiting};
use crate::actors::client::last_line;
use crate::actors::client::stream::Stream;
use crate::messages::client_error::ErrorReply;
use crate::messages::process::Fault;

/// Most connections that are told at a time: what the longest queue of the system holds.
const DISMISSED_MAX: usize = 65_535;

/// What a client has sent that is thrown away, in bytes.
const UNREAD_BYTES_MAX: usize = 1 << 20;

/// Returns the last line of a connection that came too late.
pub(super) fn line(reason: &str) -> Vec<u8> {
    last_line(&ErrorReply::answer("shutting_down", reason, Fault::Settee))
}

/// Tells every connection that waits to be accepted.
pub(super) fn dismiss_waiting(socket: &ServiceSocket, line: &[u8]) {
    for _ in 0..DISMISSED_MAX {
        if !socket.is_left() {
            return;
        }
        match socket.accept_waiting() {
            Ok(waiting) => dismiss(waiting, line),
            // None is left, or the system lacks something: the rest is reset by the system.
            Err(_) => return,
        }
    }
}

/// Tells whoever comes while no service of the configuration listens there.
pub(super) async fn turn_away(socket: Rc<ServiceSocket>, acceptor: Rc<Acceptor>, line: Rc<[u8]>) {
    dismiss_waiting(&socket, &line);
    loop {
        if !socket.is_left() {
            socket.left_or_taken().await;
            continue;
        }
        let accepted = tokio::select! {
            biased;
            () = socket.left_or_taken() => continue,
            accepted = acceptor.accept() => accepted,
        };
        let client = match accepted {
            Ok(Stream::Unix(stream)) => stream.into_std().map(Waiting::Unix),
            Ok(Stream::Tcp(stream)) => stream.into_std().map(Waiting::Tcp),
            Err(error) => Err(error),
        };
        match client {
            Ok(client) => dismiss(client, &line),
            // It is out of descriptors or memory.
            Err(_) => actix_rt::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Tells one connection. Whoever has gone meanwhile need not be told, so errors do not matter.
fn dismiss(client: Waiting, line: &[u8]) {
    match client {
        Waiting::Unix(mut stream) => {
            // What is not read when it closes would be an error at the other end.
            throw_away(&mut stream);
            let _ = stream.write(line);
            let _ = stream.shutdown(Shutdown::Both);
        }
        Waiting::Tcp(mut stream) => {
            throw_away(&mut stream);
            let _ = stream.write(line);
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

fn throw_away(stream: &mut impl Read) {
    let mut scratch = [0; 8192];
    let mut left = UNREAD_BYTES_MAX;
    while let Ok(length @ 1..) = stream.read(&mut scratch) {
        left = left.saturating_sub(length);
        if left == 0 {
            return;
        }
    }
}
