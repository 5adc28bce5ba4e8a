//! Rest: a cell's processes are suspended between loans.
//!
//! SUMMARY   [`Orders`] is the service's end of the socket for reports: it orders suspension and resumption. [`Rest`]
//!           is the other end, in the cell's first process, which stops or continues all other processes of its pid
//!           namespace.
//! PROMISES  Everything that the command has started is suspended, even if it has another parent now: a signal to a
//!           whole namespace skips no process, not even one being forked. Orders take effect in order.
//! SOURCE    kill(2) with -1, pid_namespaces(7), signal(7).
//! LIMITS    Without a pid namespace, such a signal would reach the whole machine, so orders have no effect. A
//!           SIGCONT in flight between processes, or sent by the kernel when a process ends, may arrive after the
//!           stop: the service checks for activity ([`crate::usage::activity`]) and suspends again.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, WaitStatus, kill_process_group};

/// The orders to suspend and to resume, one byte each.
const REST: u8 = b'r';
const GO_ON: u8 = b'g';

/// Maximum number of orders read at once. Only the last one is obeyed.
const ORDERS_READ: usize = 64;

/// Suspends and resumes a cell, which runs at first.
#[derive(Debug)]
pub struct Orders {
    socket: OwnedFd,
    is_at_rest: bool,
}

impl Orders {
    /// Sends orders to the cell that reports over this socket, which does not block.
    pub fn by(report: &OwnedFd) -> io::Result<Self> {
        Ok(Self {
            socket: report.try_clone()?,
            is_at_rest: false,
        })
    }

    /// Suspends the cell, unless it is suspended.
    pub fn rest(&mut self) {
        self.order(true);
    }

    /// Resumes the cell, if it is suspended.
    pub fn go_on(&mut self) {
        self.order(false);
    }

    /// Stops processes that continued although the cell is suspended; has no effect on a running cell.
    pub fn rest_again(&mut self) {
        if std::mem::take(&mut self.is_at_rest) {
            self.order(true);
        }
    }

    fn order(&mut self, rest: bool) {
        if std::mem::replace(&mut self.is_at_rest, rest) == rest {
            return;
        }
        // Fails only if the cell is ending: the socket buffers hundreds of orders.
        let _ = rustix::io::write(&self.socket, &[if rest { REST } else { GO_ON }]);
    }
}

/// Executes orders in the first process of a cell.
pub(super) struct Rest<'a> {
    /// The source of orders; `None` if there is none, or without a pid namespace.
    pub orders: Option<&'a File>,
    /// Whether the cell is suspended.
    pub is_at_rest: bool,
}

impl<'a> Rest<'a> {
    pub(super) fn new(orders: Option<&'a File>, has_namespace: bool) -> Self {
        Self {
            orders: orders.filter(|_| has_namespace),
            is_at_rest: false,
        }
    }

    /// Reads all pending orders and executes the last one.
    pub(super) fn follow(&mut self) {
        let Some(mut orders) = self.orders else {
            return;
        };
        let mut read = [0; ORDERS_READ];
        let last = match orders.read(&mut read) {
            Ok(length) if length > 0 => read[length - 1],
            Err(error) if error.kind() == ErrorKind::Interrupted => return,
            // The service is gone, or reports go to something that is not a socket.
            Ok(_) | Err(_) => return self.orders = None,
        };
        self.is_at_rest = last == REST;
        signal_all(if self.is_at_rest {
            Signal::STOP
        } else {
            Signal::CONT
        });
    }

    /// Returns whether a process stopped or continued only because the cell is suspended, which needs no other
    /// handling. Stops all processes again if one was continued from outside.
    pub(super) fn explains(&self, status: WaitStatus) -> bool {
        if self.is_at_rest && status.continued() {
            signal_all(Signal::STOP);
        }
        self.is_at_rest && (status.stopped() || status.continued())
    }
}

/// Sends a signal to every process of this pid namespace except this one, the first.
fn signal_all(signal: Signal) {
    // To the system, group 1 means all processes. The call fails if there are no others.
    let _ = kill_process_group(Pid::INIT, signal);
}
