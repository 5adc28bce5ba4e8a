//! How a child ends: told to, killed, or by itself.
//!
//! PROMISES  Whoever waits is told, before the actor ends. A child is killed once and that is counted
//!           once. One that did nothing wrong is ended politely.
//! SOURCE    couch_os_process, terminate and the exit of the port.

use actix::prelude::*;
use slog::{debug, warn};

use super::OsProcess;
use crate::messages::process::{Obituary, PromptError, StopProc, TOLD_TO_STOP};
use crate::metrics::KillReason;
use crate::otp::lifeline::{Down, ExitReason};
use crate::query_server::child::Exit;

impl OsProcess {
    /// Kills the child for `reason`, which everybody who waits gets.
    pub(super) fn end_for(&mut self, reason: PromptError, why: KillReason) {
        self.kill(why);
        self.stdin = None;
        // First, so that whoever hears of it and returns the process at once returns a broken one.
        self.shared.set_doom(match &reason {
            PromptError::Timeout { .. } => PromptError::NotRun {
                because: Box::new(reason.clone()),
            },
            _ => reason.clone(),
        });
        self.unanswered.fail(&reason);
    }

    fn kill(&mut self, why: KillReason) {
        if !std::mem::replace(&mut self.killed, true) {
            self.context.metrics.language.killed(why);
        }
        self.child.kill();
    }

    /// The child has ended: takes its last words, answers what it answered, fails the rest.
    pub(super) fn child_exited(&mut self, exit: Exit, ctx: &mut Context<Self>) {
        self.take_what_is_there();
        self.take_complaints();
        let obituary = Obituary {
            exit: Some(exit.to_string()),
            status: Some(exit.status()),
            stderr: self.stderr_log.last_words(),
        };
        let wanted = self.stopping || self.shared.doom().is_some();
        if !wanted {
            self.context.metrics.language.exited(exit.is_success());
        }
        if wanted || exit.is_success() {
            debug!(self.log, "query server ended"; "exit" => %exit);
            self.lifeline.ending(ExitReason::Normal);
        } else {
            warn!(self.log, "query server ended unasked"; "exit" => %exit);
            self.lifeline
                .ending(ExitReason::Failed(obituary.to_string()));
        }
        let gone = PromptError::Exited(obituary);
        self.unanswered.fail(&gone);
        self.shared.set_doom(gone);
        ctx.stop();
    }
}

impl Handler<StopProc> for OsProcess {
    type Result = ();

    fn handle(&mut self, msg: StopProc, ctx: &mut Self::Context) {
        let again = std::mem::replace(&mut self.stopping, true);
        // Closed behind the line. What the child says to it is nobody's, and is passed over.
        if let Some(stdin) = self.stdin.take()
            && let Some(line) = &self.context.stop_send
            && msg.polite
            && !again
        {
            stdin.write_line(line.as_bytes());
        }
        self.shared.set_doom(PromptError::Exited(Obituary {
            exit: Some(TOLD_TO_STOP.into()),
            ..Obituary::default()
        }));
        if !msg.polite {
            return self.kill(KillReason::Stopped);
        }
        let grace = self.context.stop_grace;
        ctx.run_later(grace / 2, |process, _| process.child.terminate());
        ctx.run_later(grace, |process, _| process.kill(KillReason::Overdue));
    }
}

/// The manager is gone: so is every process of its.
impl Handler<Down> for OsProcess {
    type Result = ();

    fn handle(&mut self, _: Down, _: &mut Self::Context) {
        self.stopping = true;
        self.kill(KillReason::Stopped);
    }
}
