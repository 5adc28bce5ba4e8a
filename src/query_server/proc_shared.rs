//! The state of a process that can be read without its actor.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use strum::EnumCount;

use super::call::{Call, micros};
use super::prompt_error::{ExitReport, PromptError};
use crate::lock;
use child::cell::rest::Orders;
use child::usage;
use policy::pool::{Condition, Select, Tenant, Token};
use policy::time::Timestamp;

/// Minimum time between two readings of the processor time of a cell command's descendants: the system's resolution.
const BESIDE_INTERVAL: Duration = Duration::from_millis(10);

/// Minimum pause after such a reading, as a multiple of its duration.
const BESIDE_PAUSE: u32 = 100;

/// The state of a process, shared by its actor, the manager and its holder.
///
/// Each field names its writer. The lender is the opener until it has passed the process on, and then the manager.
#[derive(Debug, Default)]
pub struct ProcShared {
    /// The PID, `None` inside this program.
    pub os_pid: Option<u32>,
    born: Born,
    /// The current token. Written by the lender.
    assignment: AtomicU64,
    /// Unanswered prompts. Written by its actor.
    in_flight: AtomicU32,
    /// The assignment of the last prompt. Written by its actor.
    prompted_under: AtomicU64,
    /// Each flag names its writer.
    flags: [AtomicBool; ProcFlag::COUNT],
    /// Time of the last prompt, or of the start. Written by its actor.
    prompted_at: AtomicU64,
    /// Time of the last return. Written by the lender.
    taken_back_at: AtomicU64,
    /// The duration of lessons for its current holder, in microseconds. Written by the manager.
    lesson: AtomicU64,
    /// Sent before its next holder's first line or lesson: set by the manager, taken by its actor, or by a holder
    /// that finds it already reset.
    ///
    /// A mailbox with two sides: an item that was not taken must remain for the next holder, and notifying the manager
    /// would cost more than the lock. The manager adds items only before the process is lent or taught, and they are
    /// taken only under the current assignment: by its actor with the first prompt, or by the holder before the first
    /// prompt is sent. So the two sides never contend.
    first: Mutex<First>,
    /// Isolates evicted since it was lent. Written by its actor, taken by the manager on return.
    evicted: Mutex<Vec<Tenant>>,
    /// The last answered `reset`, if it ended a call and no prompt followed. Written by its actor.
    left_reset: Mutex<Option<Bytes>>,
    /// The last measurement, by any caller.
    memory: Mutex<Option<(Instant, u64)>>,
    /// Its processor time when it was asked to end, or had ended; `None`: unknown. Written by its actor, or by the
    /// manager if its holder returns it as failed.
    last_cpu_time: OnceLock<Option<Duration>>,
    /// Processor time of a cell command's descendants, and when it is read next; written by any caller.
    beside: Mutex<Option<(Instant, Duration)>>,
    /// When it was last lent or returned, in nanoseconds after `born`. Written by the lender.
    turned_at: AtomicU64,
    /// Its last call, and the token of that loan. Written by its holder.
    served: Mutex<Option<(Token, Arc<Call>)>>,
    /// The command started by a launcher, found at the first measurement.
    command: OnceLock<Option<u32>>,
    /// The maximum response time for its current holder, if any. Written by the lender.
    prompt_bound: Mutex<Option<PromptBound>>,
    /// Suspends and resumes its cell. Set by its actor before the process is shared, and taken when it ends or is
    /// about to.
    orders: Mutex<Option<Orders>>,
    /// Why it ends or has ended, and since when. Written by its actor.
    exit_error: OnceLock<(Instant, PromptError)>,
}

/// When a process was described.
#[derive(Debug)]
struct Born(Instant);

impl Default for Born {
    fn default() -> Self {
        Self(Instant::now())
    }
}

/// Items sent to a process before a line of its holder.
#[derive(Debug, Default)]
pub(crate) struct First {
    /// The arguments of a `reset`.
    pub(crate) config: Option<Arc<str>>,
    /// The isolate selected before that.
    pub(crate) select: Option<Select>,
}

/// The maximum response time of a process for a tenant.
#[derive(Clone, Debug)]
pub(crate) struct PromptBound {
    pub(crate) timeout: Duration,
    /// The key that sets it.
    pub(crate) key: Arc<str>,
}

/// The current work of a process.
#[derive(Debug)]
pub(crate) struct Occupation {
    /// When it was lent, returned, or asked to end.
    pub(crate) since: Instant,
    pub(crate) call: Option<Arc<Call>>,
}

/// Facts about a process. Set and cleared by its actor, unless their docs name another writer.
/// [`ProcFlag::Launcher`], and `Started` without an opener, are set before the process is shared.
#[derive(Clone, Copy, EnumCount)]
pub(crate) enum ProcFlag {
    /// It has answered its first `reset`: only later prompts count in the metrics. Set by its opener.
    Started,
    /// It has answered a prompt since its start, or a prompt other than `reset` may have ended it.
    Worked,
    /// Another client had it, and it was not reset since: `reset` arguments are waiting to be sent first. Set and
    /// cleared together with them.
    LeftByAnother,
    /// An isolate has to be selected first. Set and cleared like `LeftByAnother`.
    Selects,
    /// It is in the middle of a list.
    ListOpen,
    /// Its latest answer was an error line: a query server may end after printing one.
    SaidNo,
    /// A client taught it a design document directly, or made it forget known ones: the tables do not match its
    /// knowledge. Cleared by the manager, which handles it.
    TaughtByClient,
    /// It has closed its output or its input: unusable, though still running.
    PipeClosed,
    /// It is a cell's launcher: its command is the query server.
    Launcher,
}

/// The assignment of a process that is not lent, as a new one is: no token is ever zero.
const UNASSIGNED: u64 = 0;

/// The manager's own token for teaching and resetting a process.
pub(crate) const MANAGER_TOKEN: Token = Token(u64::MAX);

impl ProcShared {
    /// Describes a new process.
    pub fn new(os_pid: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            os_pid,
            ..Self::default()
        })
    }

    /// Lends the process under `token`: prompts with other tokens are refused from now on. Resumes a suspended one.
    pub fn assign(&self, token: Token) {
        if let Some(orders) = &mut *lock(&self.orders) {
            orders.go_on();
        }
        self.turn();
        self.assignment.store(token.0, Release);
    }

    /// Bounds the prompts of the next borrower. Called by the manager only, before it lends the process.
    pub(crate) fn bound_prompts(&self, bound: Option<PromptBound>) {
        *lock(&self.prompt_bound) = bound;
    }

    /// Returns the maximum response time for the current holder.
    pub(crate) fn prompt_bound(&self) -> Option<PromptBound> {
        lock(&self.prompt_bound).clone()
    }

    /// Orders a reset before the next borrower's first line or lesson. The isolate in `select`, or an earlier one still
    /// unsent, is selected before the reset. Called by the manager only.
    pub(crate) fn reset_first(&self, config: Arc<str>, select: Option<Select>) {
        if select.is_some() {
            self.set(ProcFlag::Selects, true);
        }
        let mut first = lock(&self.first);
        first.config = Some(config);
        // An unsent earlier selection remains.
        first.select = select.or(first.select.take());
        drop(first);
        self.set(ProcFlag::LeftByAnother, true);
    }

    /// Takes the items to be sent now.
    pub(crate) fn take_first(&self) -> First {
        self.set(ProcFlag::LeftByAnother, false);
        self.set(ProcFlag::Selects, false);
        std::mem::take(&mut *lock(&self.first))
    }

    /// Records evicted isolates. Called by its actor only.
    pub(crate) fn note_evicted(&self, tenants: Vec<Tenant>) {
        lock(&self.evicted).extend(tenants);
    }

    /// Takes the tenants of evicted isolates. Called by the manager only.
    pub(crate) fn take_evicted(&self) -> Vec<Tenant> {
        std::mem::take(&mut *lock(&self.evicted))
    }

    /// Records that a call ended with this `reset`; `None`: a prompt followed. Called by the process's actor only.
    pub(crate) fn set_left_reset(&self, line: Option<Bytes>) {
        *lock(&self.left_reset) = line;
    }

    /// Returns whether a call ended with a `reset` and no prompt followed.
    pub(crate) fn is_left_by_call(&self) -> bool {
        lock(&self.left_reset).is_some()
    }

    /// Returns whether it was left reset by this line, so its holder need not resend it.
    pub(crate) fn is_left_reset(&self, line: &Bytes) -> bool {
        !self.is(ProcFlag::Selects) && lock(&self.left_reset).as_ref() == Some(line)
    }

    /// Ends the loan: prompts are refused until it is lent again.
    pub(crate) fn unassign(&self, now: Timestamp) {
        self.taken_back_at.store(now.as_nanoseconds(), Relaxed);
        self.lesson.store(0, Relaxed);
        self.turn();
        self.assignment.store(UNASSIGNED, Release);
    }

    /// Starts a new state now.
    fn turn(&self) {
        self.turned_at.store(
            u64::try_from(self.age().as_nanos()).unwrap_or(u64::MAX),
            Relaxed,
        );
    }

    /// Sets the orders that suspend it while it is not lent. Called by its actor only.
    pub(crate) fn set_orders(&self, orders: Option<Orders>) {
        *lock(&self.orders) = orders;
    }

    /// Returns whether it can be suspended.
    pub(crate) fn can_rest(&self) -> bool {
        lock(&self.orders).is_some()
    }

    /// Suspends its cell until it is lent. Called by the lender only.
    pub(crate) fn rest(&self) {
        if let Some(orders) = &mut *lock(&self.orders) {
            orders.rest();
        }
    }

    /// Re-suspends processes that resumed in its suspended cell. Called by the lender only.
    pub(crate) fn rest_again(&self) {
        if let Some(orders) = &mut *lock(&self.orders) {
            orders.rest_again();
        }
    }

    /// Resumes it permanently, because it ends or is about to. Called by its actor only.
    pub(crate) fn stay_awake(&self) {
        if let Some(mut orders) = lock(&self.orders).take() {
            orders.go_on();
        }
    }

    /// Records the call that it was lent for under `token`. Called by its holder only.
    pub(crate) fn serve(&self, token: Token, call: Arc<Call>) {
        *lock(&self.served) = Some((token, call));
    }

    /// Returns the call that it is lent for, if any, and when it was lent, returned or began to end.
    pub(crate) fn work(&self) -> Occupation {
        let served = lock(&self.served);
        let call = served
            .as_ref()
            .filter(|(token, _)| self.is_assigned_to(*token));
        let turned_at = Duration::from_nanos(self.turned_at.load(Relaxed));
        let turned_at = self.born.0 + turned_at;
        let ending_since = self.exit_error.get().map(|(since, _)| *since);
        Occupation {
            since: ending_since.map_or(turned_at, |since| since.max(turned_at)),
            call: call.map(|(_, call)| Arc::clone(call)),
        }
    }

    /// Records the duration of lessons for its next borrower. Called by the manager only.
    pub(crate) fn set_lesson(&self, took: Duration) {
        self.lesson.store(micros(took), Relaxed);
    }

    /// Returns the duration of lessons for its current holder.
    pub(crate) fn lesson(&self) -> Duration {
        Duration::from_micros(self.lesson.load(Relaxed))
    }

    /// Returns the PID of the program that runs the functions. A command in a cell is known once it has answered.
    pub(crate) fn measured_pid(&self) -> Option<u32> {
        let pid = self.os_pid?;
        if !self.is(ProcFlag::Launcher) {
            return Some(pid);
        }
        let find = || *(self.command).get_or_init(|| usage::launched_command(pid));
        self.is(ProcFlag::Started).then(find).flatten()
    }

    /// Returns its processor time: its command's current time, plus that of its descendants as of at most
    /// [`BESIDE_INTERVAL`] ago, or longer if reading is slow. For an ending process the time at its end.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        self.last_cpu_time
            .get()
            .copied()
            .unwrap_or_else(|| self.cpu_time_now())
    }

    /// Records its final processor time, unless known. Called before its end is announced.
    pub(crate) fn set_last_cpu_time(&self, time: Option<Duration>) {
        let _ = self.last_cpu_time.set(time);
    }

    fn cpu_time_now(&self) -> Option<Duration> {
        let command = self.measured_pid()?;
        let own = usage::cpu_time(command)?;
        if !self.is(ProcFlag::Launcher) {
            return Some(own);
        }
        let mut beside = lock(&self.beside);
        let now = Instant::now();
        let (next, time) = beside.unwrap_or((now, Duration::ZERO));
        if next > now {
            return Some(own + time);
        }
        let read = usage::cpu_time_beside(self.os_pid?, command).max(time);
        let pause = BESIDE_INTERVAL.max(now.elapsed() * BESIDE_PAUSE);
        *beside = Some((Instant::now() + pause, read));
        Some(own + read)
    }

    /// Returns its peak memory in bytes, as of at most `age` ago; for a cell, of all existing processes.
    pub(crate) fn memory_peak(&self, pid: u32, age: Duration) -> Option<u64> {
        let mut memory = lock(&self.memory);
        let is_old = memory.is_none_or(|(read, _)| read.elapsed() >= age);
        if is_old {
            let launcher = self.os_pid.filter(|_| self.is(ProcFlag::Launcher));
            let peak = match launcher {
                Some(launcher) => usage::memory_peak_of_cell(launcher),
                None => usage::memory_peak(pid),
            };
            *memory = peak.map(|bytes| (Instant::now(), bytes));
        }
        memory.map(|(_, bytes)| bytes)
    }

    /// Returns the current assignment.
    pub(crate) fn token(&self) -> Option<Token> {
        let token = self.assignment.load(Acquire);
        (token != UNASSIGNED).then_some(Token(token))
    }

    /// Returns whether `token` is the current assignment.
    pub(crate) fn is_assigned_to(&self, token: Token) -> bool {
        token.0 != UNASSIGNED && self.assignment.load(Acquire) == token.0
    }

    /// Returns whether it is lent, or taught or reset by the manager.
    pub(crate) fn is_assigned(&self) -> bool {
        self.token().is_some()
    }

    pub(crate) fn set(&self, flag: ProcFlag, value: bool) {
        self.flags[flag as usize].store(value, Relaxed);
    }

    pub(crate) fn is(&self, flag: ProcFlag) -> bool {
        self.flags[flag as usize].load(Relaxed)
    }

    /// Counts sent prompts. Called by the process's actor only.
    pub fn prompts_sent(&self, count: u32) {
        self.in_flight.fetch_add(count, Relaxed);
        self.prompted_under
            .store(self.assignment.load(Acquire), Relaxed);
    }

    /// Counts an answered prompt. Called by the process's actor only.
    pub(crate) fn prompt_answered(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// Returns the number of unanswered prompts.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Restarts the process's idle time. Called by the process's actor only.
    pub(crate) fn note_activity(&self, now: Timestamp) {
        self.prompted_at.store(now.as_nanoseconds(), Relaxed);
    }

    /// Returns the time since the process was last prompted or returned.
    pub(crate) fn idle_time(&self, now: Timestamp) -> Duration {
        let prompted = self.prompted_at.load(Relaxed);
        let taken_back = self.taken_back_at.load(Relaxed);
        now.since(Timestamp::from_nanoseconds(prompted.max(taken_back)))
    }

    /// Records why the process ends or has ended; only the first call counts. Called by the process's actor, or by
    /// the manager if its holder returns it as failed.
    pub(crate) fn set_exit_error(&self, why: PromptError) {
        // While the process exists: its number may be reused later.
        if self.last_cpu_time.get().is_none()
            && let time @ Some(_) = self.cpu_time_now()
        {
            self.set_last_cpu_time(time);
        }
        // Later causes follow from the first.
        let _ = self.exit_error.set((Instant::now(), why));
    }

    /// Returns why the process ends or has ended, if it does. Later prompts fail with this error, even
    /// once its actor is gone.
    pub fn exit_error(&self) -> Option<&PromptError> {
        self.exit_error.get().map(|(_, why)| why)
    }

    /// Returns the error of prompts to an ended process.
    pub fn gone(&self) -> PromptError {
        self.exit_error()
            .cloned()
            .unwrap_or_else(|| PromptError::Exited(ExitReport::default()))
    }

    /// Returns the process's age.
    pub(crate) fn age(&self) -> Duration {
        self.born.0.elapsed()
    }

    /// Returns whether an ended process ended by its own fault, after its first `reset` and before it had worked for a
    /// client.
    pub(crate) fn has_failed(&self) -> bool {
        let is_at_fault = match self.exit_error() {
            Some(PromptError::Exited(report)) if report.is_from_outside() => false,
            Some(error) => error.is_own_end(),
            None => false,
        };
        is_at_fault && self.is(ProcFlag::Started) && !self.is(ProcFlag::Worked)
    }

    /// Judges the condition of a process returned by its client.
    pub(crate) fn condition_on_return(&self) -> Condition {
        let spoilt = [ProcFlag::ListOpen, ProcFlag::PipeClosed];
        let is_spoilt = self.in_flight() > 0 || spoilt.into_iter().any(|flag| self.is(flag));
        if is_spoilt || self.exit_error().is_some() {
            Condition::Broken
        } else if self.is(ProcFlag::TaughtByClient) {
            Condition::NeedsForgetting
        } else {
            Condition::Clean
        }
    }

    /// Judges the condition of a process that was lent under `token`, and whose client died or dropped it: if it was
    /// prompted, it is reset before anyone else gets it.
    pub(crate) fn condition_on_loss(&self, token: Token) -> Condition {
        let was_prompted = self.prompted_under.load(Relaxed) == token.0;
        match self.condition_on_return() {
            Condition::Clean if was_prompted => Condition::NeedsReset,
            condition => condition,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_server::call::Subject;
    use crate::query_server::request_id::RequestId;
    use crate::query_server::run_time::RunTime;

    #[test]
    fn a_process_serves_a_call_until_its_return_and_not_for_a_later_holder() {
        let call = Call::new(
            RequestId::made(),
            None,
            Subject::default(),
            false,
            RunTime::Whole,
            None,
        );
        let is_served = |shared: &ProcShared| shared.work().call.is_some();
        let shared = ProcShared::new(None);
        shared.assign(Token(1));
        assert!(!is_served(&shared));
        shared.serve(Token(1), Arc::clone(&call));
        assert!(is_served(&shared));
        shared.set_exit_error(PromptError::BadPrompt);
        assert!(is_served(&shared), "an ending process still has its call");
        shared.unassign(Timestamp::ZERO);
        assert!(!is_served(&shared));
        shared.assign(Token(2));
        assert!(!is_served(&shared));
        // A late call of a holder whose process was revoked.
        shared.serve(Token(1), call);
        assert!(!is_served(&shared));
    }

    #[test]
    fn a_state_begins_with_the_latest_loan_return_or_end() {
        let shared = ProcShared::new(None);
        let mut before = shared.work().since;
        let steps: [fn(&ProcShared); 4] = [
            |shared| shared.assign(Token(1)),
            |shared| shared.set_exit_error(PromptError::NotHolder),
            |shared| shared.unassign(Timestamp::ZERO),
            |shared| shared.assign(Token(2)),
        ];
        for step in steps {
            while Instant::now() <= before {}
            step(&shared);
            let since = shared.work().since;
            assert!(since > before);
            before = since;
        }
        // Only the first call counts.
        shared.set_exit_error(PromptError::BadPrompt);
        assert_eq!(shared.work().since, before);
        assert!(matches!(shared.exit_error(), Some(PromptError::NotHolder)));
    }
}
