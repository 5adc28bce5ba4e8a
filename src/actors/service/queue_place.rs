//! A place in the pool's queue for a connection that is about to be accepted.
//!
//! SUMMARY   A service whose pool has no spare process requests one like any other client, on behalf of the
//!           connection that it is about to accept: the [`QueuePlace`] is handed to that connection.
//! PROMISES  Dropping it leaves the queue, and returns its loan at once, unused.
//! CALLED    By [`super::accept`], one at a time for each service.
//! SOURCE    Postfix master leaves connections in the system's queue; each of its processes serves only one service.
//! DIFFERS   Here other clients wait for the same processes, so a service queues with them.

use std::time::Duration;

use tokio::sync::oneshot;

use super::claims::Claim;
use crate::actors::proc_manager::ProcManager;
use crate::functions::caller::Caller;
use crate::messages::proc_manager::{GetProcError, Lease, Want};
use crate::otp::{ExitReason, PidGuard, RegisteredName};
use policy::pool::ReturnStatus;

/// A process, or why there is none. Dropping it returns the process.
struct Grant(Option<Result<Lease, GetProcError>>);

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(Ok(lease)) = self.0.take() {
            lease.put_back();
        }
    }
}

/// The manager's pending answer, for the connection that the place was handed to.
pub struct Answer {
    early: Option<Grant>,
    later: oneshot::Receiver<Grant>,
}

impl Answer {
    /// Waits for the process.
    ///
    /// # Errors
    /// See [`GetProcError`].
    pub async fn lease(mut self) -> Result<Lease, GetProcError> {
        self.arrive().await;
        self.early
            .as_mut()
            .and_then(|grant| grant.0.take())
            .unwrap_or(Err(GetProcError::ShuttingDown))
    }

    /// Waits for the answer. Cancel-safe.
    async fn arrive(&mut self) {
        if self.early.is_none() {
            // The sender is dropped only at shutdown.
            self.early = (&mut self.later).await.ok();
        }
    }
}

/// A place in the pool's queue.
pub struct QueuePlace {
    /// The pid of the future connection.
    pid_guard: PidGuard,
    answer: Answer,
}

impl QueuePlace {
    /// Joins the queue. The claim lasts until there is an answer.
    pub fn take(manager: RegisteredName<ProcManager>, want: Want, claim: Claim) -> Self {
        let pid_guard = PidGuard::new();
        // Dropping it is not a death: a process that arrives too late is returned.
        pid_guard.ending(ExitReason::Normal);
        let caller = Caller::in_the_name_of(pid_guard.pid(), manager);
        let (sender, later) = oneshot::channel();
        // Ends when the manager answers; dropping the place makes it answer.
        actix_rt::spawn(wait_in_line((caller, want), claim, sender));
        Self {
            pid_guard,
            answer: Answer { early: None, later },
        }
    }

    /// Waits for its turn. `Err`: no process will be lent. Cancel-safe.
    pub async fn turn(&mut self) -> Result<(), GetProcError> {
        self.answer.arrive().await;
        match self.answer.early.as_ref().map(|grant| &grant.0) {
            Some(Some(Ok(_))) => Ok(()),
            Some(Some(Err(error))) => Err(error.clone()),
            _ => Err(GetProcError::ShuttingDown),
        }
    }

    /// Hands the place to a connection.
    pub fn hand_over(self) -> (PidGuard, Answer) {
        // A connection that ends without a reason was killed.
        self.pid_guard.ending(ExitReason::Killed);
        (self.pid_guard, self.answer)
    }
}

async fn wait_in_line(
    (caller, want): (Caller, Want),
    claim: Claim,
    mut to: oneshot::Sender<Grant>,
) {
    // A place waits for its turn, however long.
    let mut get = std::pin::pin!(caller.get_proc(want, Some(Duration::MAX)));
    let result = tokio::select! {
        biased;
        result = &mut get => result,
        () = to.closed() => {
            // The manager knows that the place is gone, or has already answered.
            if let Ok(lease) = get.await {
                lease.ret_proc(ReturnStatus::Ok).await;
            }
            return;
        }
    };
    drop(claim);
    // Without a receiver, the dropped grant returns the process.
    drop(to.send(Grant(Some(result))));
}
