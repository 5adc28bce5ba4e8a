//! A child that is stopped by a signal is not dead: it is told of, and counts on.
//!
//! SUMMARY   After each change of any child's state (SIGCHLD) the child is asked whether it was
//!           stopped or continued.
//! PROMISES  One warning in 1000 s, with the count of those left out. Nothing else changes: a prompt
//!           that waits keeps its deadline.
//! SOURCE    Postfix master_reap_child.

use actix::prelude::*;
use slog::info;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::OsProcess;
use crate::query_server::child::StopOrContinue;
use crate::warn_repeating;

/// Some child changed its state.
pub(super) struct ChildChanged;

/// Watches for changes. Where the system does not tell, nothing is told.
pub(super) fn watch(ctx: &mut Context<OsProcess>) {
    if let Ok(changes) = signal(SignalKind::child()) {
        ctx.add_stream(futures_util::stream::unfold(
            changes,
            async |mut changes: Signal| changes.recv().await.map(|()| (ChildChanged, changes)),
        ));
    }
}

impl StreamHandler<ChildChanged> for OsProcess {
    fn handle(&mut self, _: ChildChanged, _: &mut Self::Context) {
        while let Some(change) = self.backend.child.stop_or_continue() {
            let StopOrContinue::Stopped(by) = change else {
                info!(self.context.log, "query server goes on");
                continue;
            };
            let now = self.context.clock.now();
            warn_repeating!(self.context.log, self.backend.stopped, now, "query server was stopped";
                "signal" => by,
                "effect" => "it is not dead and is still counted, but answers nobody",
                "remedy" => "continue it (kill -CONT), or end it (kill -KILL)");
        }
    }

    /// The system does not tell any more, which is no reason to end.
    fn finished(&mut self, _: &mut Self::Context) {}
}
