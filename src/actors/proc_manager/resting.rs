//! Processes that nobody holds are put to rest: nothing in their cells runs until they are lent again.
//!
//! SUMMARY   One that was given back, started or taught is due to rest when nobody has had it for [`REST_AFTER`]. One
//!           timer looks at all that are due.
//! PROMISES  A process that comes back and goes again costs no timer and no order of its own. One that rests goes on
//!           before whom it is lent to can send it anything.
//! LIMITS    Children of a function may run on for [`REST_AFTER`] after it. Commands without a cell, and those in a cell
//!           without a pid namespace, never rest.

use std::time::Duration;

use actix::prelude::*;
use rustc_hash::FxHashSet;

use super::ProcManager;
use policy::pool::ProcId;

/// How long nobody has had a process that is put to rest: that, and going on, costs as much as a quick prompt.
const REST_AFTER: Duration = Duration::from_millis(50);

/// The least time between two looks.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// Processes that may have to rest soon.
#[derive(Default)]
pub(super) struct Due {
    procs: FxHashSet<ProcId>,
    /// Whether a timer is set for them.
    is_watched: bool,
}

impl ProcManager {
    /// Puts a process to rest unless it is lent again soon.
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

    /// Puts those to rest whose time has come, and comes back for those whose time will.
    fn put_to_rest(&mut self, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        let mut next = None;
        self.resting.procs.retain(|proc| {
            let process = self.procs.get(proc);
            // One that is lent comes here again.
            let Some(process) = process.filter(|process| !process.shared.is_assigned()) else {
                return false;
            };
            let left = REST_AFTER.saturating_sub(process.shared.idle_time(now));
            if left.is_zero() {
                process.shared.rest();
                return false;
            }
            next = Some(next.map_or(left, |next: Duration| next.min(left)));
            true
        });
        if let Some(next) = next {
            self.look_at_resting(next.max(LOOK_INTERVAL_MIN), ctx);
        }
    }
}
