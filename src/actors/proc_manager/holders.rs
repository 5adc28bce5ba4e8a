//! Clients are told, if they subscribe, when a process that they hold is taken away.
//!
//! SOURCE    pidq: remove_pool(immediate) and what its consumers are told.

use actix::prelude::*;

use super::ProcManager;
use crate::messages::pools::{ProcRevoked, SubscribeRevocation};
use crate::otp::tell::Tell;
use policy::pool::{ClientId, ProcId, StopReason, Token};

impl ProcManager {
    /// Tells a client that a process which it holds is over.
    pub(super) fn tell_holder(
        &self,
        client: ClientId,
        (proc, token): (ProcId, Token),
        why: StopReason,
    ) {
        let pool = &self.pools.at(proc.pool).name;
        let (name, reason) = match why {
            StopReason::MemoryHard => (
                "memory_exceeded",
                format!(
                    "the process took more memory than it may ({} bytes, max_memory_hard of the \
                     pool '{pool}') and was stopped",
                    self.pools.at(proc.pool).section.max_memory_hard
                ),
            ),
            StopReason::Shutdown => ("shutting_down", "the service is shutting down".to_owned()),
            StopReason::Removed => ("pool_removed", format!("the pool '{pool}' was removed")),
            // None of these is a reason to stop a process that somebody holds.
            StopReason::Idle
            | StopReason::Stale
            | StopReason::Reaped
            | StopReason::OverLimit
            | StopReason::Failed
            | StopReason::Broken
            | StopReason::TeachFailed
            | StopReason::ResetFailed
            | StopReason::ForgetFailed
            | StopReason::Uses
            | StopReason::Age
            | StopReason::Memory
            | StopReason::Culled
            | StopReason::ClientCrashed
            | StopReason::TenantGone
            | StopReason::Stress => ("killed", "the process was stopped".to_owned()),
        };
        self.revoke(client, (proc, token), name, reason);
    }

    /// Tells a client that a process which it holds is over, and why: for programs and for people.
    pub(super) fn revoke(
        &self,
        client: ClientId,
        (proc, token): (ProcId, Token),
        name: &'static str,
        reason: String,
    ) {
        let holder = self.clients.get(&client);
        if let Some(revoked) = holder.and_then(|holder| holder.revoked.as_ref()) {
            revoked.tell(ProcRevoked {
                proc,
                token,
                name,
                reason,
            });
        }
    }
}

impl Handler<SubscribeRevocation> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: SubscribeRevocation, ctx: &mut Self::Context) {
        let (_, client) = self.watch_client(&msg.client, ctx);
        client.revoked = Some(msg.down);
    }
}
