//! PoolReporter: logs events of the pools, and measures processes.
//!
//! SUMMARY   Logs events of pools, and samples the memory of processes for pools that limit it. [`procs`] describes
//!           processes for `settee ps`.
//! PROMISES  Lends nothing and decides nothing: no loan waits for it. System state is read on other threads than the
//!           arbiter's.
//! CALLED    By the ProcManager, which starts it and is linked to it.

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

/// Maximum queued messages before senders have to wait.
const MAILBOX_MESSAGES_MAX: usize = 1024;

pub(crate) struct PoolReporter {
    log: Logger,
    clock: Clock,
    /// Pools with logged events.
    pools: FxHashMap<PoolId, Told>,
    /// Whether a timer for start summaries is set.
    sums_starts_up: bool,
    /// Whether memory is being read, or a timer for that is set.
    checks_memory: bool,
    pid_guard: PidGuard,
}

impl PoolReporter {
    /// Makes a reporter with its manager's log.
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

    /// Returns the pid by which it can be monitored.
    pub(crate) fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }
}

/// Converts a time for the log.
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
