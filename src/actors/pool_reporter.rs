//! PoolReporter: logs events of the pools, and measures processes.
//!
//! SUMMARY   Logs what happens in pools, and reads the memory of processes for pools that limit it. [`procs`] describes
//!           processes for `settee ps`.
//! PROMISES  Lends nothing and decides nothing: no loan waits for it. What it reads of the system is read off the
//!           arbiter.
//! CALLED    By the ProcManager, which starts it and to which it is linked.

mod memory;
mod news;
pub(crate) mod procs;

use std::time::Duration;

use actix::prelude::*;
use rustc_hash::FxHashMap;
use slog::Logger;

use crate::otp::clock::Clock;
use crate::otp::pid::{ExitReason, Pid, PidGuard};
use crate::otp::supervisor::Stop;
use news::Told;
use policy::pool::PoolId;

/// How many messages may wait for it before senders have to wait.
const MAILBOX_MESSAGES_MAX: usize = 1024;

/// Tells people of the pools.
pub(crate) struct PoolReporter {
    log: Logger,
    clock: Clock,
    /// The pools about which anything was logged.
    pools: FxHashMap<PoolId, Told>,
    /// Whether a timer is set for the summaries of starts.
    sums_starts_up: bool,
    /// Whether the memory of processes is being read, or a timer is set for that.
    checks_memory: bool,
    pid_guard: PidGuard,
}

impl PoolReporter {
    /// Makes a reporter that logs as its manager does.
    pub(crate) fn new(clock: Clock, log: Logger) -> Self {
        Self {
            log,
            clock,
            pools: FxHashMap::default(),
            sums_starts_up: false,
            checks_memory: false,
            pid_guard: PidGuard::new(),
        }
    }

    /// Returns the name by which its life can be watched.
    pub(crate) fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }
}

/// Returns a time as it is logged.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

impl Actor for PoolReporter {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX_MESSAGES_MAX);
    }
}

impl Handler<Stop> for PoolReporter {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        self.tell_last_starts();
        self.pid_guard.ending(ExitReason::Shutdown);
        ctx.stop();
    }
}
