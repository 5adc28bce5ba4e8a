//! A place in the pool's queue for a connection that waits to be accepted.
//!
//! SUMMARY   A service whose pool has nothing to spare asks for a process like any other client, in
//!           the name of the connection that it is about to accept: the [`QueuePlace`] is handed to that
//!           connection.
//! PROMISES  One that is dropped leaves the queue, and its loan is returned at once,
//!           unused.
//! CALLED    By [`super::accept`], one at a time for each service.
//! SOURCE    Postfix master leaves connections in the system's queue; its processes serve this service only.
//! DIFFERS   Here other clients wait for the same processes, so a service queues with them.

use std::time::Duration;

use tokio::sync::oneshot;

use super::claims::Claim;
use crate::actors::proc_manager::ProcManager;
use crate::functions::caller::Caller;
use crate::messages::proc_manager::{GetProcError, Lease, Want};
use crate::otp::pid::{ExitReason, PidGuard};
use crate::otp::registered_name::RegisteredName;
use policy::pool::ReturnStatus;

/// How long it lasts: as long as the connection waits in the system's queue.
const PATIENCE: Duration = Duration::MAX;

/// A process, or why there is none. Its drop gives the process back.
struct Grant(Option<Result<Lease, GetProcError>>);

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(Ok(lease)) = self.0.take() {
            lease.put_back();
        }
    }
}

/// What the manager answers, for the connection that the place was handed to.
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
        let grant = self.early.as_mut().and_then(|grant| grant.0.take());
        grant.unwrap_or(Err(GetProcError::ShuttingDown))
    }

    /// Waits until it is there. Safe to cancel.
    async fn arrive(&mut self) {
        if self.early.is_none() {
            // A task that is lost ends with the service.
            self.early = (&mut self.later).await.ok();
        }
    }
}

/// A place in the pool's queue.
pub struct QueuePlace {
    /// The life of the connection to be.
    pid_guard: PidGuard,
    answer: Answer,
}

impl QueuePlace {
    /// Joins the queue. The claim lasts until there is an answer.
    pub fn take(manager: RegisteredName<ProcManager>, want: Want, claim: Claim) -> Self {
        let pid_guard = PidGuard::new();
        // Where it is dropped nobody died: what comes too late for it is returned.
        pid_guard.ending(ExitReason::Normal);
        let caller = Caller::in_the_name_of(pid_guard.pid(), manager);
        let (sender, later) = oneshot::channel();
        // Ends with the manager's answer, which the end of the place brings about.
        actix_rt::spawn(wait_in_line((caller, want), claim, sender));
        let answer = Answer { early: None, later };
        Self { pid_guard, answer }
    }

    /// Waits until its turn has come. `Err`: there is no process for it. Safe to cancel.
    pub async fn turn(&mut self) -> Result<(), GetProcError> {
        self.answer.arrive().await;
        match self.answer.early.as_ref().map(|grant| &grant.0) {
            Some(Some(Ok(_))) => Ok(()),
            Some(Some(Err(error))) => Err(error.clone()),
            _ => Err(GetProcError::ShuttingDown),
        }
    }

    /// Hands it to a connection.
    pub fn hand_over(self) -> (PidGuard, Answer) {
        // A connection that ends without a word was killed.
        self.pid_guard.ending(ExitReason::Killed);
        (self.pid_guard, self.answer)
    }
}

async fn wait_in_line(
    (caller, want): (Caller, Want),
    claim: Claim,
    mut to: oneshot::Sender<Grant>,
) {
    let mut get = std::pin::pin!(caller.get_proc(want, Some(PATIENCE)));
    let result = tokio::select! {
        biased;
        result = &mut get => result,
        () = to.closed() => {
            // The manager knows that the place is gone, or has answered before.
            if let Ok(lease) = get.await {
                lease.ret_proc(ReturnStatus::Ok).await;
            }
            return;
        }
    };
    drop(claim);
    // One that nobody takes gives the process back.
    drop(to.send(Grant(Some(result))));
}
