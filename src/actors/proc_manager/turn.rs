//! One turn of the ProcManager: an event is told to the core, and everything that follows from it is done.
//!
//! PROMISES  What is known of the event at hand is in the [`Turn`] and in no field of the manager.

use actix::prelude::*;

use super::ProcManager;
use super::requests::{Answer, Waiting};
use crate::messages::proc_manager::ProcFailure;
use crate::query_server::prompt;
use policy::pool::{Event, PoolAction, PoolId, RequestId};
use policy::time::Timestamp;

/// What is known of the event at hand.
pub(super) struct Turn {
    pub(super) now: Timestamp,
    /// The request that has come, before it is known whether it has to wait in the table.
    pub(super) arriving: Option<(RequestId, Waiting)>,
    /// Its answer, when it has one at once.
    pub(super) answer: Option<Answer>,
    /// What failed, for those who are refused because of it.
    pub(super) cause: Option<ProcFailure>,
    /// The pools whose stress has begun or ended, until their settings follow.
    pub(super) turned: Vec<PoolId>,
}

impl Turn {
    pub(super) const fn at(now: Timestamp) -> Self {
        Self {
            now,
            arriving: None,
            answer: None,
            cause: None,
            turned: Vec::new(),
        }
    }
}

impl ProcManager {
    /// Tells the core what happened and does what it says.
    pub(super) fn event(&mut self, event: Event, ctx: &mut Context<Self>) {
        let mut turn = Turn::at(self.clock.now());
        self.turn(&mut turn, event, ctx);
    }

    /// The same for an event that something failed.
    pub(super) fn failed(&mut self, cause: ProcFailure, event: Event, ctx: &mut Context<Self>) {
        let mut turn = Turn::at(self.clock.now());
        turn.cause = Some(cause);
        self.turn(&mut turn, event, ctx);
    }

    /// Tells the core several things that belong together: the invariants hold only after the last one.
    pub(super) fn events(&mut self, events: Vec<Event>, ctx: &mut Context<Self>) {
        for event in events {
            let mut turn = Turn::at(self.clock.now());
            self.step(&mut turn, event, ctx);
        }
        self.assert_invariants();
    }

    pub(super) fn turn(&mut self, turn: &mut Turn, event: Event, ctx: &mut Context<Self>) {
        self.step(turn, event, ctx);
        self.assert_invariants();
    }

    fn step(&mut self, turn: &mut Turn, event: Event, ctx: &mut Context<Self>) {
        let mut actions = std::mem::take(&mut self.actions);
        self.core.handle(event, turn.now, &mut actions);
        for action in actions.drain(..) {
            self.perform(action, turn, ctx);
        }
        self.actions = actions;
        turn.cause = None;
        self.tell_watchers();
        self.warn_if_full(turn.now);
        self.watch_deadline(turn.now, ctx);
        // Pools that came under stress, or out of it, get what they have for that.
        while let Some(pool) = turn.turned.pop() {
            if let Some(changes) = self.changes_of(pool) {
                self.step(turn, changes, ctx);
            }
        }
    }

    fn perform(&mut self, action: PoolAction, turn: &mut Turn, ctx: &mut Context<Self>) {
        match action {
            PoolAction::Open { proc, .. } => self.open(proc, ctx),
            PoolAction::Teach { proc, request } => self.teach(proc, request, turn, ctx),
            PoolAction::Reset { proc } => {
                let line = prompt::reset(&self.settings.reset_config);
                self.help(proc, line, None, ctx);
            }
            PoolAction::Forget { proc } => {
                self.metrics_of(proc.pool).forgets();
                let line = prompt::forget(&self.settings.reset_config);
                self.help(proc, line, None, ctx);
            }
            PoolAction::Assign {
                request,
                proc,
                token,
                reset,
            } => self.assign(request, (proc, token), reset, turn, ctx),
            PoolAction::Refuse { request, why } => self.refuse(request, why, turn),
            PoolAction::ProcRevoked {
                client,
                proc,
                token,
                why,
            } => self.tell_holder(client, (proc, token), why),
            PoolAction::PoolGone { pool } => self.pool_gone(pool),
            PoolAction::Warn(warning) => self.warn(warning, turn),
            PoolAction::Stop { proc, why } => {
                self.metrics_of(proc.pool).stopped(why);
                self.stop(proc, why.is_polite(), None);
            }
        }
    }

    fn watch_deadline(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        if let Some(deadline) = self.core.next_deadline() {
            self.timer.look_by(
                deadline,
                deadline.since(now),
                ctx,
                |manager: &mut Self, ctx| {
                    manager.timer.fired();
                    manager.event(Event::Tick, ctx);
                },
            );
        }
    }
}
