//! Rest: the processes of a cell are stopped while nobody holds it.
//!
//! SUMMARY   [`Orders`] is the service's end of the socket for reports: it orders rest, and the end of it. [`Rest`] is
//!           the end of the cell's first process, which stops all others of its pid namespace or lets them go on.
//! PROMISES  Whatever the command has started rests with it, whatever its parent is now: a signal to all of a namespace
//!           skips none, not even a process that is just being made. Orders take effect in their order.
//! SOURCE    kill(2) with -1, pid_namespaces(7), signal(7).
//! LIMITS    Without a pid namespace, such a signal would reach the whole machine: there orders change nothing.
//!           A SIGCONT that is on its way from one process to another, or that the kernel sends when a process ends, may
//!           come after the stop: the service looks for what goes on ([`crate::usage::activity`]) and orders rest again.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, WaitStatus, kill_process_group};

/// The orders, of one byte each.
const REST: u8 = b'r';
const GO_ON: u8 = b'g';

/// The most orders that are read at once. The last one counts.
const ORDERS_READ: usize = 64;

/// Tells a cell when to rest. One that has just been started does not.
#[derive(Debug)]
pub struct Orders {
    socket: OwnedFd,
    is_at_rest: bool,
}

impl Orders {
    /// Gives orders to the cell that reports by this socket, which does not block.
    pub(crate) fn by(report: &OwnedFd) -> io::Result<Self> {
        Ok(Self {
            socket: report.try_clone()?,
            is_at_rest: false,
        })
    }

    /// Has everything in the cell stop, if it has not.
    pub fn rest(&mut self) {
        self.order(true);
    }

    /// Has everything in the cell go on, if it has stopped.
    pub fn go_on(&mut self) {
        self.order(false);
    }

    /// Stops everything once more that has gone on at rest. Changes nothing unless the cell rests.
    pub fn rest_again(&mut self) {
        if std::mem::take(&mut self.is_at_rest) {
            self.order(true);
        }
    }

    fn order(&mut self, rest: bool) {
        if std::mem::replace(&mut self.is_at_rest, rest) == rest {
            return;
        }
        // Fails only where the cell is at its end: one that takes no order reads none either, and there is room
        // for hundreds of them.
        let _ = rustix::io::write(&self.socket, &[if rest { REST } else { GO_ON }]);
    }
}

/// What the first process of a cell does about orders.
pub(super) struct Rest<'a> {
    /// Where they come from; `None` where nobody gives any that it could follow.
    orders: Option<&'a File>,
    is_at_rest: bool,
}

impl<'a> Rest<'a> {
    pub(super) fn new(orders: Option<&'a File>, has_namespace: bool) -> Self {
        Self {
            orders: orders.filter(|_| has_namespace),
            is_at_rest: false,
        }
    }

    /// Returns what can be read when there is an order.
    pub(super) fn orders(&self) -> Option<&'a File> {
        self.orders
    }

    /// Returns whether the cell rests.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_at_rest
    }

    /// Follows the order that is there.
    pub(super) fn follow(&mut self) {
        let Some(mut orders) = self.orders else {
            return;
        };
        let mut read = [0; ORDERS_READ];
        let last = match orders.read(&mut read) {
            Ok(length) if length > 0 => read[length - 1],
            Err(error) if error.kind() == ErrorKind::Interrupted => return,
            // The service is gone, or somebody else has reports go to what is no socket.
            Ok(_) | Err(_) => return self.orders = None,
        };
        self.is_at_rest = last == REST;
        signal_all(if self.is_at_rest {
            Signal::STOP
        } else {
            Signal::CONT
        });
    }

    /// Whether a process has changed its state by an order, which is nobody else's business. One that somebody
    /// outside has let go on rests again.
    pub(super) fn explains(&self, status: WaitStatus) -> bool {
        if self.is_at_rest && status.continued() {
            signal_all(Signal::STOP);
        }
        self.is_at_rest && (status.stopped() || status.continued())
    }
}

/// Sends a signal to every process of this pid namespace but this one, its first.
fn signal_all(signal: Signal) {
    // To the system, the group 1 stands for all processes. It fails where there are no others.
    let _ = kill_process_group(Pid::INIT, signal);
}
