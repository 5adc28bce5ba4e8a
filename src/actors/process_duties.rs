//! What every actor that stands for a process does in the same way: it says when it is idle, and
//! takes a timeout from its holder.
//!
//! CALLED    By [`OsProcess`](super::os_process::OsProcess),
//!           [`NativeProcess`](super::native_process::NativeProcess) and the test kit's fake; by a
//!           process actor of your own.
//! SOURCE    couch_os_process: its idle timeout and set_timeout/2.
//! LIMITS    Nothing here is called for each prompt.

use std::time::Duration;

use actix::prelude::*;

use crate::actors::language::StartContext;
use crate::messages::proc_manager::OsProcIdle;
use crate::messages::process::{ProcShared, SetTimeout};

/// The least time between two looks at whether a process is idle.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(1);

/// An actor that stands for a process.
pub trait ProcessDuties: Actor<Context = Context<Self>> {
    /// What it was started with.
    fn start_context(&self) -> &StartContext;

    /// What others see of it.
    fn shared(&self) -> &ProcShared;

    /// Whether a prompt is unanswered.
    fn is_busy(&self) -> bool;

    /// The timeout of prompts that bring none.
    fn prompt_timeout(&mut self) -> &mut Duration;
}

/// Tells the manager when the process has been idle for `idle_limit`, again and again. Call it once,
/// when the actor starts.
pub fn watch_idleness<P: ProcessDuties>(process: &P, ctx: &mut Context<P>) {
    look_after(process.start_context().idle_limit, ctx);
}

fn look_after<P: ProcessDuties>(wait: Duration, ctx: &mut Context<P>) {
    ctx.run_later(wait, |process, ctx| {
        let context = process.start_context();
        let limit = context.idle_limit;
        let idle = process.shared().idle_time(context.clock.now());
        if idle < limit || process.is_busy() {
            let rest = limit.saturating_sub(idle).max(LOOK_AGAIN_MIN);
            return look_after(rest, ctx);
        }
        // May be lost when the manager is gone: then the process ends with it anyway.
        context.manager.do_send(OsProcIdle { proc: context.proc });
        look_after(limit, ctx);
    });
}

/// Sets the timeout of prompts that bring none. Returns whether whoever says so holds the process.
pub fn set_timeout<P: ProcessDuties>(process: &mut P, msg: &SetTimeout) -> bool {
    let holds = process.shared().is_assigned_to(msg.token);
    if holds {
        *process.prompt_timeout() = msg.timeout;
    }
    holds
}
