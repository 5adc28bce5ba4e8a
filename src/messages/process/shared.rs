//! What everyone who deals with a process may know of it without asking its actor.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::error::{ExitReport, PromptError};
use policy::pool::{Condition, Token};
use policy::time::Timestamp;

/// What everyone who deals with a process may know of it without asking its actor.
#[derive(Debug)]
pub struct ProcShared {
    /// The operating system's number of it, `None` for one inside this program.
    pub os_pid: Option<u32>,
    assignment: AtomicU64,
    in_flight: AtomicU32,
    list_open: AtomicBool,
    said_no: AtomicBool,
    taught_by_client: AtomicBool,
    touched: AtomicBool,
    closed_output: AtomicBool,
    started: AtomicBool,
    last_activity: AtomicU64,
    exit_error: OnceLock<PromptError>,
}

/// No token is ever zero.
const UNASSIGNED: u64 = 0;

/// The token under which the manager itself teaches and resets a process.
pub(crate) const MANAGER_TOKEN: Token = Token(u64::MAX);

impl ProcShared {
    /// Describes a fresh process.
    pub fn new(os_pid: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            os_pid,
            assignment: AtomicU64::new(UNASSIGNED),
            in_flight: AtomicU32::new(0),
            list_open: AtomicBool::new(false),
            said_no: AtomicBool::new(false),
            taught_by_client: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            closed_output: AtomicBool::new(false),
            started: AtomicBool::new(false),
            last_activity: AtomicU64::new(0),
            exit_error: OnceLock::new(),
        })
    }

    /// Lends the process under `token`: prompts with any other token are refused from now on.
    pub fn assign(&self, token: Token) {
        self.assignment.store(token.0, Ordering::Release);
        self.touched.store(false, Ordering::Relaxed);
    }

    /// Takes the process back: prompts are refused until it is lent again.
    pub(crate) fn unassign(&self, now: Timestamp) {
        self.note_activity(now);
        self.assignment.store(UNASSIGNED, Ordering::Release);
    }

    /// Returns whether `token` is the assignment in force.
    pub(crate) fn is_assigned_to(&self, token: Token) -> bool {
        token.0 != UNASSIGNED && self.assignment.load(Ordering::Acquire) == token.0
    }

    /// Returns whether it is lent, or taught or reset by the manager.
    pub(crate) fn is_assigned(&self) -> bool {
        self.assignment.load(Ordering::Acquire) != UNASSIGNED
    }

    /// Counts prompts that are sent. Called by the process's actor only.
    pub fn prompts_sent(&self, count: u32) {
        self.in_flight.fetch_add(count, Ordering::Relaxed);
        self.touched.store(true, Ordering::Relaxed);
    }

    /// Counts a prompt that is answered. Called by the process's actor only.
    pub(crate) fn prompt_answered(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Says that the process has answered its first `reset`. Called by its opener only.
    pub(crate) fn set_started(&self) {
        self.started.store(true, Ordering::Relaxed);
    }

    /// Returns whether it has: only prompts after that are counted in the metrics.
    pub(crate) fn has_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Says whether the process is in the middle of a list. Called by the process's actor only.
    pub(crate) fn set_list_open(&self, open: bool) {
        self.list_open.store(open, Ordering::Relaxed);
    }

    /// Says whether the latest answer was an error line. Called by the process's actor only.
    pub(crate) fn set_said_no(&self, said_no: bool) {
        self.said_no.store(said_no, Ordering::Relaxed);
    }

    /// Returns whether the latest answer was an error line: a query server may end over that after
    /// it has printed it.
    pub fn said_no(&self) -> bool {
        self.said_no.load(Ordering::Relaxed)
    }

    /// Says that the process will not answer any more, though it has not ended yet. Called by the
    /// process's actor only.
    pub(crate) fn set_closed_output(&self) {
        self.closed_output.store(true, Ordering::Relaxed);
    }

    /// Says that a client taught the process a design document by itself: what the process knows
    /// is not what the tables say, for good. Called by the process's actor only.
    pub(crate) fn set_taught_by_client(&self) {
        self.taught_by_client.store(true, Ordering::Relaxed);
    }

    /// Restarts the time that the process has been idle.
    pub(crate) fn note_activity(&self, now: Timestamp) {
        self.last_activity
            .store(now.as_nanoseconds(), Ordering::Relaxed);
    }

    /// Returns for how long nobody has prompted or returned the process.
    pub(crate) fn idle_time(&self, now: Timestamp) -> Duration {
        now.since(Timestamp::from_nanoseconds(
            self.last_activity.load(Ordering::Relaxed),
        ))
    }

    /// Returns how many prompts are sent and not answered.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Says that the process has ended or is being ended, and why; the first word counts. Called by
    /// the process's actor only.
    pub(crate) fn set_exit_error(&self, why: PromptError) {
        let _ = self.exit_error.set(why);
    }

    /// Returns why the process has ended or is being ended, if it is: what a prompt gets from then
    /// on, also when its actor is gone already.
    pub fn exit_error(&self) -> Option<&PromptError> {
        self.exit_error.get()
    }

    /// Returns what a prompt gets when nobody is there any more to take it.
    pub fn gone(&self) -> PromptError {
        let unknown = || PromptError::Exited(ExitReport::default());
        self.exit_error().cloned().unwrap_or_else(unknown)
    }

    /// Judges the state in which the process comes back from a client that returned it.
    pub(crate) fn condition_on_return(&self) -> Condition {
        let halfway = self.in_flight() > 0 || self.list_open.load(Ordering::Relaxed);
        let taught = self.taught_by_client.load(Ordering::Relaxed);
        let closed = self.closed_output.load(Ordering::Relaxed);
        if halfway || taught || closed || self.exit_error().is_some() {
            Condition::Broken
        } else {
            Condition::Clean
        }
    }

    /// Judges the state in which the process comes back from a client that died, or that let go of
    /// it without a word: what that client left in it is reset before anybody else gets it.
    pub(crate) fn condition_on_loss(&self) -> Condition {
        match self.condition_on_return() {
            Condition::Clean if self.touched.load(Ordering::Relaxed) => Condition::NeedsReset,
            condition => condition,
        }
    }
}
