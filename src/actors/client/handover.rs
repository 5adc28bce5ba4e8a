//! An attached client hands over its pipes: from then on the service reads its lines directly.
//!
//! SUMMARY   `attach` with `"descriptors": true` is answered at once; the client then sends two descriptors
//!           (SCM_RIGHTS) with one line: its input and its output. A [`Relay`] serves them. The line is empty, or the
//!           final state from the previous service ([`Resume`]). The connection stays open for the last line, which
//!           reports how the client's process ended.
//! PROMISES  The relay ends with the connection, and the connection soon after the relay. Unexpected descriptors are
//!           closed.
//! LIMITS    Unix sockets only. Each such client takes three of the service's descriptors.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use actix::fut::wrap_future;
use actix::prelude::*;
use bytes::Bytes;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::relay::{Relay, RelayTerms, Resume, Signal};
use super::ticket::Ticket;
use super::tunnel_end::TunnelEnd;
use super::{Client, Mode};
use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::Want;

/// The descriptors that a client hands over: its input and its output.
const PIPES: usize = 2;

/// The pending handover after `attach`.
pub(super) struct Expected {
    id: Box<str>,
    want: Want,
    came: Vec<OwnedFd>,
}

/// Answers `attach`, and expects the pipes next.
pub(super) fn expect(ticket: Ticket, want: Want) {
    let session = ticket.session();
    session.is_tunnel.set(true);
    // Descriptors that arrive from now on are kept.
    session.expected.replace(Some(Expected {
        id: ticket.id().into(),
        want,
        came: Vec::new(),
    }));
    ticket.ok(&json!({"descriptors": true, "end": true}));
}

impl Expected {
    /// Reads from a connection, and keeps descriptors received with the bytes.
    pub fn read(&mut self, socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PIPES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let buffer = &mut [io::IoSliceMut::new(bytes)];
        let received = recvmsg(socket, buffer, &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.came.extend(descriptors.take(PIPES - self.came.len()));
            }
        }
        Ok(received.bytes)
    }
}

/// A running relay. Dropping this aborts its task.
pub(super) struct RunningRelay {
    signals: mpsc::UnboundedSender<Signal>,
    task: AbortHandle,
}

impl RunningRelay {
    /// Sends the relay a signal, which is lost if the relay has just ended.
    pub fn tell(&self, signal: Signal) {
        let _ = self.signals.send(signal);
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Client {
    /// Serves the pipes received with a line.
    pub(super) fn take_over(&mut self, expected: Expected, line: &[u8], ctx: &mut Context<Self>) {
        let Expected { id, want, came } = expected;
        let mut came = came.into_iter();
        let pipes = came.next().zip(came.next());
        let resume = match Resume::read(line) {
            Ok(resume) => resume,
            Err(error) => {
                let reason =
                    format!("the line is not the state that a service sends at its end: {error}");
                return self.turn_away(&id, &ErrorReply::bad_request(reason), ctx);
            }
        };
        let terms = RelayTerms {
            want,
            idle_max: self.attach_idle,
            patience: self.attach_patience,
        };
        // Receives one signal for each process's end and each order to stop.
        let (signals, told) = mpsc::unbounded_channel();
        let relay = pipes
            .ok_or_else(|| io::Error::other("the line must carry two descriptors"))
            .and_then(|pipes| {
                let down = ctx.address().recipient();
                Relay::new(Rc::clone(&self.session), pipes, resume, terms, told, down)
            });
        let relay = match relay {
            Ok(relay) => relay,
            Err(error) => {
                let reason = format!("the pipes cannot be used: {error}");
                return self.turn_away(&id, &ErrorReply::bad_request(reason), ctx);
            }
        };
        // A separate task, because an actor would poll everything it waits for at each line. Ends with the client's
        // input, the process, or the connection.
        let running = actix_rt::spawn(relay.run());
        self.mode = Mode::Relay(RunningRelay {
            signals,
            task: running.abort_handle(),
        });
        self.session
            .push(&id, b",\"ok\":", (&Bytes::from_static(b"true"), b""));
        self.session.flush();
        ctx.spawn(wrap_future::<_, Self>(running).map(|end, client, ctx| {
            let lost = |_| TunnelEnd::ended("was lost inside the service");
            client.relay_ended(&end.unwrap_or_else(lost), ctx);
        }));
    }

    fn relay_ended(&mut self, end: &TunnelEnd, ctx: &mut Context<Self>) {
        self.mode = Mode::Requests;
        self.session.push_raw(&end.line().into());
        // Ends after a bounded time.
        self.end_after(Rc::clone(&self.session).linger(), ctx);
    }
}
