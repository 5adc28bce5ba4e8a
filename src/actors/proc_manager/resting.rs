//! Suspends processes that no client holds: nothing in their cells runs until they are lent again.
//!
//! SUMMARY   A process that was returned, started or taught is suspended after [`REST_AFTER`] without a loan. One
//!           timer checks all that are due.
//! PROMISES  A process that is lent again soon after its return needs no timer or order of its own. A suspended one is
//!           resumed before its borrower can send it anything. Processes that run in it nevertheless are stopped
//!           again, at its tenant's cost; if that does not help, the process is killed.
//! LIMITS    A function's children may continue for [`REST_AFTER`] after it. Commands without a cell, and those in a
//!           cell without a pid namespace, are never suspended.

use std::time::{Duration, Instant};

use actix::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use slog::warn;

use super::ProcManager;
use crate::query_server::call::micros;
use crate::query_server::proc_shared::ProcShared;
use child::usage::{self, Activity};
use policy::pool::ProcId;

/// The time without a loan before a process is suspended: suspending and resuming costs as much as a quick prompt.
const REST_AFTER: Duration = Duration::from_millis(50);

/// Minimum interval between checks.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// The interval between checks of suspended cells, until nothing runs in them.
const ACTIVITY_INTERVAL: Duration = Duration::from_millis(250);

/// The processor time that a cell may use after the first check: exiting processes need some to free their memory.
const REST_CPU_MAX: Duration = Duration::from_millis(200);

/// After this many checks everything in a cell must have stopped: 5 seconds.
const ACTIVITY_LOOKS_MAX: u32 = 20;

/// A suspended cell in which something may still run.
struct Settling {
    /// When its process was returned or started.
    since: Instant,
    looks: u32,
    first_cpu_time: Option<Duration>,
    seen: Option<Activity>,
}

impl Settling {
    /// Returns whether the process has not been lent since.
    fn is_of(&self, shared: &ProcShared) -> bool {
        !shared.is_assigned() && shared.work().since == self.since
    }
}

/// Processes that may have to be suspended.
#[derive(Default)]
pub(super) struct Due {
    settling: FxHashMap<ProcId, Settling>,
    /// Whether a timer or a check of them is pending.
    is_settling: bool,
    procs: FxHashSet<ProcId>,
    /// Whether a timer is set for them.
    is_watched: bool,
}

impl ProcManager {
    /// Suspends a process unless it is lent again soon.
    pub(super) fn rest_later(&mut self, proc: ProcId, ctx: &mut Context<Self>) {
        let process = self.procs.get(&proc);
        if process.is_some_and(|process| process.shared.can_rest()) {
            self.resting.procs.insert(proc);
            self.look_at_resting(REST_AFTER, ctx);
        }
    }

    fn look_at_resting(&mut self, wait: Duration, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.resting.is_watched, true) {
            ctx.run_later(wait, |manager, ctx| {
                manager.resting.is_watched = false;
                manager.put_to_rest(ctx);
            });
        }
    }

    /// Suspends processes that are due, and sets a timer for the others.
    fn put_to_rest(&mut self, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        let mut next = None;
        self.resting.procs.retain(|proc| {
            let process = self.procs.get(proc);
            // One that is lent is queued again later.
            let Some(process) = process.filter(|process| !process.shared.is_assigned()) else {
                return false;
            };
            let left = REST_AFTER.saturating_sub(process.shared.idle_time(now));
            if left.is_zero() {
                process.shared.rest();
                let settling = Settling {
                    since: process.shared.work().since,
                    looks: 0,
                    first_cpu_time: None,
                    seen: None,
                };
                self.resting.settling.insert(*proc, settling);
                return false;
            }
            next = Some(next.map_or(left, |next: Duration| next.min(left)));
            true
        });
        if let Some(next) = next {
            self.look_at_resting(next.max(LOOK_INTERVAL_MIN), ctx);
        }
        self.settle_later(ctx);
    }

    fn settle_later(&mut self, ctx: &mut Context<Self>) {
        if !self.resting.settling.is_empty()
            && !std::mem::replace(&mut self.resting.is_settling, true)
        {
            ctx.run_later(ACTIVITY_INTERVAL, Self::look_at_settling);
        }
    }

    fn look_at_settling(&mut self, ctx: &mut Context<Self>) {
        let mut launchers = Vec::new();
        self.resting.settling.retain(|proc, settling| {
            let process = self
                .procs
                .get(proc)
                .filter(|process| settling.is_of(&process.shared));
            let launcher = process.and_then(|process| process.shared.os_pid);
            launchers.extend(launcher.map(|pid| ((*proc, settling.since), pid)));
            launcher.is_some()
        });
        let look = move || {
            launchers
                .into_iter()
                .map(|(rest, pid)| (rest, usage::activity(pid)))
                .collect::<Vec<_>>()
        };
        let seen = blocking::run("rest", look).into_actor(self);
        ctx.spawn(seen.map(|seen, manager, ctx| {
            manager.resting.is_settling = false;
            // Without a thread for the check, it is repeated later.
            for (rest, seen) in seen.unwrap_or_default() {
                manager.judge_rest(rest, seen, ctx);
            }
            manager.settle_later(ctx);
        }));
    }

    /// Stops processes that still run, and kills the query server if they go on nevertheless.
    fn judge_rest(
        &mut self,
        (proc, since): (ProcId, Instant),
        seen: Option<Activity>,
        ctx: &mut Context<Self>,
    ) {
        // A process lent since the check began has a newer entry, or none.
        let settling = self.resting.settling.remove(&proc);
        let Some((mut settling, process)) = settling.zip(self.procs.get(&proc)) else {
            return;
        };
        if settling.since != since {
            self.resting.settling.insert(proc, settling);
            return;
        }
        let Some(seen) = seen.filter(|_| settling.is_of(&process.shared)) else {
            return;
        };
        if seen.is_stopped && settling.seen.as_ref() == Some(&seen) {
            return;
        }
        settling.looks += 1;
        let first = *settling.first_cpu_time.get_or_insert(seen.cpu_time);
        let used = seen.cpu_time.saturating_sub(first);
        if used > REST_CPU_MAX || settling.looks > ACTIVITY_LOOKS_MAX {
            warn!(self.log, "a query server ran while nobody held it, and is killed";
                  "generation" => proc.number, "pool" => &*self.pools.at(proc.pool).name,
                  "cpu_us" => micros(used),
                  "because" => "a function left processes behind that go on when they are stopped");
            return self.stop(proc, false, None);
        }
        process.shared.rest_again();
        settling.seen = Some(seen);
        self.resting.settling.insert(proc, settling);
        self.charge(proc, ctx);
    }
}
