//! Logs when a signal stops or continues a child. A stopped child is not dead, and still counts as a process.
//!
//! SUMMARY   After each change of any child's state (SIGCHLD) the child is checked for having stopped or continued.
//! PROMISES  One warning in 1000 s, with the count of suppressed ones. No other effect: pending prompts keep their
//!           deadlines.
//! SOURCE    Postfix master_reap_child.

use actix::fut::wrap_stream;
use actix::prelude::*;
use futures_util::stream;
use slog::info;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::OsProcess;
use crate::warn_repeating;
use child::StopOrContinue;

/// Watches for changes. If the system does not report them, nothing is logged.
pub(super) fn watch(ctx: &mut Context<OsProcess>) {
    if let Ok(changes) = signal(SignalKind::child()) {
        let changes = stream::unfold(changes, async |mut changes: Signal| {
            changes.recv().await.map(|()| ((), changes))
        });
        let changes = wrap_stream(changes).map(|(), process, _| tell(process));
        ctx.spawn(changes.finish());
    }
}

/// Logs this child's changes, after some child of the program changed its state.
fn tell(process: &mut OsProcess) {
    while let Some(change) = process.backend.child.stop_or_continue() {
        let StopOrContinue::Stopped(by) = change else {
            info!(process.context.log, "query server was continued");
            continue;
        };
        warn_repeating!(process.context.log, process.backend.stopped, "query server was stopped";
            "signal" => by,
            "effect" => "it still counts as a process, but answers nobody",
            "remedy" => "continue it (kill -CONT), or end it (kill -KILL)");
    }
}
