//! TestClient: a scripted client.

use std::time::Duration;

use actix_rt::task::JoinHandle;
use actix_rt::time::timeout;
use bytes::Bytes;

use policy::pool::{ProcId, ReturnStatus};
use settee::actors::proc_manager::{GetStatus, ProcManager};
use settee::messages::proc_manager::{GetProc, GetProcError, Lease, Want};
use settee::messages::process::PromptError;
use settee::otp::pid::{ExitReason, PidGuard};
use settee::otp::registered_name::RegisteredName;
use test_support::within;

/// How long [`TestClient::ping`] waits for a process.
pub const PING: Duration = Duration::from_secs(1);

type Asking = JoinHandle<Result<Lease, GetProcError>>;

/// A scripted client: requests one process at a time, holds it, prompts it, returns it, or dies.
///
/// When dropped, it disconnects cleanly and its process is returned.
pub struct TestClient {
    name: String,
    manager: RegisteredName<ProcManager>,
    pid_guard: PidGuard,
    asking: Option<Asking>,
    lease: Option<Lease>,
    last: Option<ProcId>,
}

/// A sent prompt and its pending answer.
pub struct Sent(JoinHandle<Result<String, PromptError>>);

impl Sent {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The prompt failed.
    ///
    /// # Panics
    /// There is no answer within [`PATIENCE`](crate::PATIENCE).
    pub async fn answer(self) -> Result<String, PromptError> {
        within("the answer to a prompt", self.0)
            .await
            .expect("a prompt's task does not panic")
    }
}

impl TestClient {
    pub(crate) fn new(name: &str, manager: RegisteredName<ProcManager>) -> Self {
        Self {
            name: name.to_owned(),
            manager,
            pid_guard: PidGuard::new(),
            asking: None,
            lease: None,
            last: None,
        }
    }

    /// Requests a process without waiting for it. Drops the lease of an earlier one first.
    pub fn asks(&mut self, want: Want) -> &mut Self {
        self.asks_within(want, None)
    }

    /// As [`Self::asks`], with this timeout, or the configured one.
    pub fn asks_within(&mut self, want: Want, timeout: Option<Duration>) -> &mut Self {
        self.lease = None;
        // The message is in the mailbox when this returns: requests are served in the test's order.
        let answer =
            self.manager
                .address()
                .send(GetProc::of_client(self.pid_guard.pid(), want, timeout));
        self.asking = Some(actix_rt::spawn(async move {
            answer
                .await
                .unwrap_or(Err(Box::new(GetProcError::ShuttingDown)))
                .map_err(|error| *error)
        }));
        self
    }

    /// Waits for the answer to its request.
    ///
    /// # Errors
    /// The manager refused the request.
    ///
    /// # Panics
    /// It has not requested anything, or there is no answer.
    pub async fn answer(&mut self) -> Result<(), GetProcError> {
        let what = format!("{}: an answer to its request", self.name);
        let asking = self
            .asking
            .take()
            .expect("the client has requested a process");
        let answer = within(&what, asking).await;
        self.take_answer(answer.expect("a request's task does not panic"))
    }

    fn take_answer(&mut self, answer: Result<Lease, GetProcError>) -> Result<(), GetProcError> {
        let lease = answer?;
        self.last = Some(lease.proc);
        self.lease = Some(lease);
        Ok(())
    }

    /// Requests a process and waits for it.
    ///
    /// # Panics
    /// It gets an error, or no answer.
    pub async fn takes(&mut self, want: Want) -> &mut Self {
        let answer = self.asks(want).answer().await;
        if let Err(error) = answer {
            panic!("{} got no process: {error}", self.name);
        }
        self
    }

    /// Requests a process and waits for the error instead.
    ///
    /// # Panics
    /// It gets a process, or no answer.
    pub async fn is_refused(&mut self, want: Want) -> GetProcError {
        match self.asks(want).answer().await {
            Ok(()) => panic!("{} got a process", self.name),
            Err(error) => error,
        }
    }

    /// Returns whether it gets a process within [`PING`].
    pub async fn ping(&mut self) -> bool {
        if let Some(asking) = &mut self.asking {
            match timeout(PING, asking).await {
                Err(_) => return false,
                Ok(answer) => {
                    self.asking = None;
                    return self
                        .take_answer(answer.expect("a request's task does not panic"))
                        .is_ok();
                }
            }
        }
        self.lease.is_some()
    }

    /// Returns whether its request is accepted but unanswered. Waits only for the manager's turn.
    pub async fn is_waiting(&mut self) -> bool {
        // The manager handles messages in order: once it has answered this, it has seen the request, and any answer
        // to it was sent before.
        drop(self.manager.address().send(GetStatus::default()).await);
        actix_rt::task::yield_now().await;
        self.asking
            .as_ref()
            .is_some_and(|asking| !asking.is_finished())
    }

    /// Returns its lease.
    ///
    /// # Panics
    /// It holds nothing.
    pub fn lease(&self) -> &Lease {
        self.lease
            .as_ref()
            .unwrap_or_else(|| panic!("{} holds no process", self.name))
    }

    /// Returns its process.
    ///
    /// # Panics
    /// It holds nothing.
    pub fn proc(&self) -> ProcId {
        self.lease().proc
    }

    /// Returns the PID of its child.
    ///
    /// # Panics
    /// It holds nothing, or a process without a child.
    pub fn os_pid(&self) -> u32 {
        self.lease()
            .process
            .shared
            .os_pid
            .unwrap_or_else(|| panic!("the process of {} has no child", self.name))
    }

    /// Returns the process that it got last, even if already returned.
    ///
    /// # Panics
    /// It never held any.
    pub fn last_proc(&self) -> ProcId {
        self.last
            .unwrap_or_else(|| panic!("{} never held a process", self.name))
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// The prompt failed.
    pub async fn prompts(&self, line: &str) -> Result<String, PromptError> {
        self.sends(line).answer().await
    }

    /// Sends a command without waiting for the answer.
    pub fn sends(&self, line: &str) -> Sent {
        self.sends_within(line, None)
    }

    /// Sends a command with this timeout, or the process's.
    pub fn sends_within(&self, line: &str, timeout: Option<Duration>) -> Sent {
        let lease = self.lease();
        // Sent when this returns: the test determines the order.
        let answer = lease.process.prompt(
            lease.token,
            Bytes::copy_from_slice(line.as_bytes()),
            timeout,
        );
        Sent(actix_rt::spawn(async move {
            Ok(String::from_utf8_lossy(&answer.await?).into_owned())
        }))
    }

    /// Gives its process back. Returns whether it still held the process.
    ///
    /// # Panics
    /// It holds nothing.
    pub async fn returns(&mut self) -> bool {
        self.returns_as(ReturnStatus::Ok).await
    }

    /// Gives its process back as broken. Returns whether it still held the process.
    ///
    /// # Panics
    /// It holds nothing.
    pub async fn returns_broken(&mut self) -> bool {
        self.returns_as(ReturnStatus::Fail).await
    }

    async fn returns_as(&mut self, status: ReturnStatus) -> bool {
        self.lease
            .take()
            .unwrap_or_else(|| panic!("{} holds no process", self.name))
            .ret_proc(status)
            .await
    }

    /// Drops its lease, so that its process is returned as lost.
    pub fn lets_go(&mut self) {
        self.lease = None;
    }

    /// Dies like a cut connection: it returns nothing, and only its exit is noticed.
    pub fn dies(mut self) {
        if let Some(asking) = self.asking.take() {
            asking.abort();
        }
        if let Some(lease) = self.lease.take() {
            lease.abandon();
        }
        self.pid_guard.ending(ExitReason::Killed);
    }
}

impl Drop for TestClient {
    fn drop(&mut self) {
        if let Some(asking) = self.asking.take() {
            asking.abort();
        }
    }
}
