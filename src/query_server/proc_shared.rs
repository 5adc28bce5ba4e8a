//! What is known of a process without asking its actor.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use strum::EnumCount;

use crate::query_server::call::Call;
use crate::query_server::prompt_error::{ExitReport, PromptError};
use child::cell::rest::Orders;
use child::usage;
use policy::pool::{Condition, Select, Tenant, Token};
use policy::time::Timestamp;

/// The least time between two readings of what the command of a cell has started: the system counts it in such steps.
const BESIDE_INTERVAL: Duration = Duration::from_millis(10);

/// How much longer than such a reading the time to the next one is, at the least.
const BESIDE_PAUSE: u32 = 100;

/// The state of a process, shared by its actor, the manager and its holder.
///
/// Each field says who writes it. Where that is the lender, it is the opener until it has handed the process over,
/// and the manager from then on.
#[derive(Debug)]
pub struct ProcShared {
    /// The operating system's number of it, `None` for one inside this program.
    pub os_pid: Option<u32>,
    born: Instant,
    /// The token that it is lent under. Written by the lender.
    assignment: AtomicU64,
    /// Prompts that are not answered. Written by its actor.
    in_flight: AtomicU32,
    /// The assignment under which it was prompted last. Written by its actor.
    prompted_under: AtomicU64,
    /// Each says who sets it.
    flags: [AtomicBool; ProcFlag::COUNT],
    /// When it was prompted last, or started. Written by its actor.
    prompted_at: AtomicU64,
    /// When it was taken back last. Written by the lender.
    taken_back_at: AtomicU64,
    /// How long it took to teach it for its current holder, in microseconds. Written by the manager.
    lesson: AtomicU64,
    /// What it is sent before its next holder's first line, or before what it learns for him: put there by the manager, taken out by its actor, or by a holder who finds it reset.
    ///
    /// It is a letter box, and so has two sides: what nobody has taken out must still be there for the next holder, and
    /// a message to the manager that says so would cost more than the lock. The manager puts something in only before
    /// the process is lent or taught, and something is taken out only under the assignment in force: by its actor with
    /// the first prompt, or by the holder before that is sent. So the two sides never meet.
    first: Mutex<First>,
    /// The isolates that it has ended since it was lent. Written by its actor, taken by the manager when it comes back.
    evicted: Mutex<Vec<Tenant>>,
    /// The `reset` that it has answered last, if a call has ended with it and nothing was asked since. Written by its
    /// actor.
    left_reset: Mutex<Option<Bytes>>,
    /// What was measured last, by any caller.
    memory: Mutex<Option<(Instant, u64)>>,
    /// Its time on processors when it was told to end, or had ended; `None`: not known. Written by its actor, and by the
    /// manager where its holder returns it as failed.
    last_cpu_time: OnceLock<Option<Duration>>,
    /// The processor time of what the command of its cell has started, and when it is read again; set by any caller.
    beside: Mutex<Option<(Instant, Duration)>>,
    /// When it was lent or taken back last, in nanoseconds after `born`. Written by the lender.
    turned_at: AtomicU64,
    /// The call that it was lent for last, and under which token. Written by its holder.
    served: Mutex<Option<(Token, Arc<Call>)>>,
    /// What a launcher has started, found when it is first measured.
    command: OnceLock<Option<u32>>,
    /// How long it may take to answer its current holder, if there is a bound. Written by the lender.
    prompt_bound: Mutex<Option<PromptBound>>,
    /// By what its cell is told to rest and to go on. Put there by its actor before anybody else knows of the process,
    /// and taken out when it ends or is about to.
    orders: Mutex<Option<Orders>>,
    /// Why it ends or has ended, and since when. Written by its actor.
    exit_error: OnceLock<(Instant, PromptError)>,
}

/// What a process is sent before a line of its holder.
#[derive(Debug, Default)]
pub(crate) struct First {
    /// The arguments of a `reset`.
    pub(crate) config: Option<Arc<str>>,
    /// The isolate that it selects before that.
    pub(crate) select: Option<Select>,
}

/// How long a process may take to answer a prompt of a tenant.
#[derive(Clone, Debug)]
pub(crate) struct PromptBound {
    pub(crate) timeout: Duration,
    /// Where it is set.
    pub(crate) key: Arc<str>,
}

/// What a process works for.
#[derive(Debug)]
pub(crate) struct Occupation {
    /// When it was lent, taken back, or told to end.
    pub(crate) since: Instant,
    /// The call that it serves.
    pub(crate) call: Option<Arc<Call>>,
}

/// What may be true of a process. Set by its actor, but for [`ProcFlag::Started`] and
/// [`ProcFlag::LeftByAnother`]. [`ProcFlag::Launcher`], and `Started` where there is no opener to set it, are set before
/// anybody else knows of the process.
#[derive(Clone, Copy, EnumCount)]
pub(crate) enum ProcFlag {
    /// It has answered its first `reset`: only prompts after that are counted in the metrics. Set by its
    /// opener.
    Started,
    /// It has answered a prompt since it has started, or it ended over one that was no `reset`, which may have ended it.
    Worked,
    /// Somebody else had it, and it was not reset since: there are arguments of a `reset` to be sent first. Set with
    /// them, and taken back with them.
    LeftByAnother,
    /// There is an isolate to be selected first. Set and taken back as `LeftByAnother`.
    Selects,
    /// It has ended isolates that the manager does not know of. Set by its actor, taken back by the manager.
    Evicted,
    /// It is in the middle of a list.
    ListOpen,
    /// Its latest answer was an error line: a query server may end over that after it has printed it.
    SaidNo,
    /// A client taught it a design document by itself, or made it forget those that it knew: what it knows is
    /// not what the tables say. Taken back by the manager, which acts on it.
    TaughtByClient,
    /// It has closed its output or its input: unusable, though still running.
    PipeClosed,
    /// It is the launcher of a cell: its command is the query server.
    Launcher,
    /// Prompts of the current holder have a bound. Set with it, by the lender.
    Bounded,
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
            born: Instant::now(),
            assignment: AtomicU64::new(UNASSIGNED),
            in_flight: AtomicU32::new(0),
            prompted_under: AtomicU64::new(UNASSIGNED),
            flags: Default::default(),
            prompted_at: AtomicU64::new(0),
            taken_back_at: AtomicU64::new(0),
            lesson: AtomicU64::new(0),
            first: Mutex::default(),
            evicted: Mutex::default(),
            left_reset: Mutex::default(),
            memory: Mutex::default(),
            last_cpu_time: OnceLock::new(),
            beside: Mutex::default(),
            turned_at: AtomicU64::new(0),
            served: Mutex::default(),
            command: OnceLock::new(),
            prompt_bound: Mutex::default(),
            orders: Mutex::default(),
            exit_error: OnceLock::new(),
        })
    }

    /// Lends the process under `token`: prompts with any other token are refused from now on. One that rests goes on.
    pub fn assign(&self, token: Token) {
        if let Some(orders) = &mut *self.lock_orders() {
            orders.go_on();
        }
        self.turn();
        self.assignment.store(token.0, Ordering::Release);
    }

    /// Bounds the prompts of the next borrower. Called by the manager only, before it lends the process.
    pub(crate) fn bound_prompts(&self, bound: Option<PromptBound>) {
        if bound.is_some() || self.is(ProcFlag::Bounded) {
            self.set(ProcFlag::Bounded, bound.is_some());
            *self.lock_prompt_bound() = bound;
        }
    }

    /// Returns the bound for prompts of the current holder.
    pub(crate) fn prompt_bound(&self) -> Option<PromptBound> {
        self.is(ProcFlag::Bounded)
            .then(|| self.lock_prompt_bound().clone())
            .flatten()
    }

    /// Has the process reset before the first line of the next borrower, in the isolate that is selected by then.
    /// Called by the manager only.
    pub(crate) fn reset_first(&self, config: Arc<str>, select: Option<Select>) {
        if select.is_some() {
            self.set(ProcFlag::Selects, true);
        }
        let mut first = self.lock_first();
        first.config = Some(config);
        // One that nobody has sent is in force.
        first.select = select.or(first.select.take());
        drop(first);
        self.set(ProcFlag::LeftByAnother, true);
    }

    /// Takes what it is to be sent now.
    pub(crate) fn take_first(&self) -> First {
        self.set(ProcFlag::LeftByAnother, false);
        self.set(ProcFlag::Selects, false);
        std::mem::take(&mut *self.lock_first())
    }

    /// Notes that it has ended isolates. Called by its actor only.
    pub(crate) fn note_evicted(&self, tenants: Vec<Tenant>) {
        if !tenants.is_empty() {
            self.lock_evicted().extend(tenants);
            self.set(ProcFlag::Evicted, true);
        }
    }

    /// Takes whose isolates it has ended. Called by the manager only.
    pub(crate) fn take_evicted(&self) -> Vec<Tenant> {
        if !self.is(ProcFlag::Evicted) {
            return Vec::new();
        }
        self.set(ProcFlag::Evicted, false);
        std::mem::take(&mut *self.lock_evicted())
    }

    /// A call has left it reset by this line; `None`: something was asked since. Called by the process's actor only.
    pub(crate) fn set_left_reset(&self, line: Option<Bytes>) {
        *self.lock_left_reset() = line;
    }

    /// Returns whether a call has left it reset, and nothing was asked since.
    pub(crate) fn is_left_by_call(&self) -> bool {
        self.lock_left_reset().is_some()
    }

    /// Returns whether it was left reset by this line: its holder need not send it again.
    pub(crate) fn is_left_reset(&self, line: &Bytes) -> bool {
        !self.is(ProcFlag::Selects) && self.lock_left_reset().as_ref() == Some(line)
    }

    fn lock_prompt_bound(&self) -> MutexGuard<'_, Option<PromptBound>> {
        let bound = self.prompt_bound.lock();
        bound.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_left_reset(&self) -> MutexGuard<'_, Option<Bytes>> {
        let left = self.left_reset.lock();
        left.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_first(&self) -> MutexGuard<'_, First> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_evicted(&self) -> MutexGuard<'_, Vec<Tenant>> {
        self.evicted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the process back: prompts are refused until it is lent again.
    pub(crate) fn unassign(&self, now: Timestamp) {
        let now = now.as_nanoseconds();
        self.taken_back_at.store(now, Ordering::Relaxed);
        self.lesson.store(0, Ordering::Relaxed);
        self.turn();
        self.assignment.store(UNASSIGNED, Ordering::Release);
    }

    /// Its state begins now.
    fn turn(&self) {
        let now = u64::try_from(self.age().as_nanos()).unwrap_or(u64::MAX);
        self.turned_at.store(now, Ordering::Relaxed);
    }

    /// Has it rest by these orders where it is lent to nobody. Called by its actor only.
    pub(crate) fn set_orders(&self, orders: Option<Orders>) {
        *self.lock_orders() = orders;
    }

    /// Returns whether it can be told to rest.
    pub(crate) fn can_rest(&self) -> bool {
        self.lock_orders().is_some()
    }

    /// Has everything in its cell stop until it is lent. Called by the lender only.
    pub(crate) fn rest(&self) {
        if let Some(orders) = &mut *self.lock_orders() {
            orders.rest();
        }
    }

    /// Stops again what has gone on in its cell at rest. Called by the lender only.
    pub(crate) fn rest_again(&self) {
        if let Some(orders) = &mut *self.lock_orders() {
            orders.rest_again();
        }
    }

    /// Lets it go on, and never rest again: it ends, or is asked to. Called by its actor only.
    pub(crate) fn stay_awake(&self) {
        if let Some(mut orders) = self.lock_orders().take() {
            orders.go_on();
        }
    }

    fn lock_orders(&self) -> MutexGuard<'_, Option<Orders>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the call that it was lent for under `token`. Called by its holder only.
    pub(crate) fn serve(&self, token: Token, call: Arc<Call>) {
        *self.lock_served() = Some((token, call));
    }

    /// Returns what it works for: a call until it is taken back.
    pub(crate) fn work(&self) -> Occupation {
        let served = self.lock_served();
        let served = served.as_ref();
        let call = served.filter(|(token, _)| self.is_assigned_to(*token));
        let turned_at = Duration::from_nanos(self.turned_at.load(Ordering::Relaxed));
        let turned_at = self.born + turned_at;
        let ending_since = self.exit_error.get().map(|(since, _)| *since);
        Occupation {
            since: ending_since.map_or(turned_at, |since| since.max(turned_at)),
            call: call.map(|(_, call)| Arc::clone(call)),
        }
    }

    fn lock_served(&self) -> MutexGuard<'_, Option<(Token, Arc<Call>)>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how long it has learned for its next borrower. Called by the manager only.
    pub(crate) fn set_lesson(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.lesson.store(took, Ordering::Relaxed);
    }

    /// Returns how long it has learned for its current holder.
    pub(crate) fn lesson(&self) -> Duration {
        Duration::from_micros(self.lesson.load(Ordering::Relaxed))
    }

    /// Returns the operating system's number of what runs the functions. That of a command in a cell is known once it
    /// has answered.
    pub(crate) fn measured_pid(&self) -> Option<u32> {
        let pid = self.os_pid?;
        if !self.is(ProcFlag::Launcher) {
            return Some(pid);
        }
        let find = || *(self.command).get_or_init(|| usage::launched_command(pid));
        self.is(ProcFlag::Started).then(find).flatten()
    }

    /// Returns its time on processors: that of its command as it is now, that of what this has started as it was at most
    /// [`BESIDE_INTERVAL`] ago, or longer where there is much to be read. That of one that ends is what it was then.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        let last = self.last_cpu_time.get().copied();
        last.unwrap_or_else(|| self.cpu_time_now())
    }

    /// Notes its time on processors when it had ended, unless that is known. Called before anybody hears
    /// of the end.
    pub(crate) fn set_last_cpu_time(&self, time: Option<Duration>) {
        let _ = self.last_cpu_time.set(time);
    }

    fn cpu_time_now(&self) -> Option<Duration> {
        let command = self.measured_pid()?;
        let own = usage::cpu_time(command)?;
        if !self.is(ProcFlag::Launcher) {
            return Some(own);
        }
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Returns the most memory that it has had, in bytes, as it was at most `age` ago; of a cell, that of all processes
    /// that are there.
    pub(crate) fn memory_peak(&self, pid: u32, age: Duration) -> Option<u64> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Returns the assignment in force.
    pub(crate) fn token(&self) -> Option<Token> {
        let token = self.assignment.load(Ordering::Acquire);
        (token != UNASSIGNED).then_some(Token(token))
    }

    /// Returns whether `token` is the assignment in force.
    pub(crate) fn is_assigned_to(&self, token: Token) -> bool {
        token.0 != UNASSIGNED && self.assignment.load(Ordering::Acquire) == token.0
    }

    /// Returns whether it is lent, or taught or reset by the manager.
    pub(crate) fn is_assigned(&self) -> bool {
        self.token().is_some()
    }

    pub(crate) fn set(&self, flag: ProcFlag, value: bool) {
        self.flags[flag as usize].store(value, Ordering::Relaxed);
    }

    pub(crate) fn is(&self, flag: ProcFlag) -> bool {
        self.flags[flag as usize].load(Ordering::Relaxed)
    }

    /// Counts prompts that are sent. Called by the process's actor only.
    pub fn prompts_sent(&self, count: u32) {
        self.in_flight.fetch_add(count, Ordering::Relaxed);
        let assignment = self.assignment.load(Ordering::Acquire);
        self.prompted_under.store(assignment, Ordering::Relaxed);
    }

    /// Counts a prompt that is answered. Called by the process's actor only.
    pub(crate) fn prompt_answered(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns how many prompts are sent and not answered.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Restarts the time that the process has been idle. Called by the process's actor only.
    pub(crate) fn note_activity(&self, now: Timestamp) {
        self.prompted_at
            .store(now.as_nanoseconds(), Ordering::Relaxed);
    }

    /// Returns for how long nobody has prompted or returned the process.
    pub(crate) fn idle_time(&self, now: Timestamp) -> Duration {
        let prompted = self.prompted_at.load(Ordering::Relaxed);
        let taken_back = self.taken_back_at.load(Ordering::Relaxed);
        now.since(Timestamp::from_nanoseconds(prompted.max(taken_back)))
    }

    /// Says that the process has ended or is being ended, and why; the first word counts. Called by the process's
    /// actor, and by the manager where its holder returns it as failed.
    pub(crate) fn set_exit_error(&self, why: PromptError) {
        // While the process is there: its number may be another's later.
        if self.last_cpu_time.get().is_none()
            && let time @ Some(_) = self.cpu_time_now()
        {
            self.set_last_cpu_time(time);
        }
        // Whatever comes later follows from the first.
        let _ = self.exit_error.set((Instant::now(), why));
    }

    /// Returns why the process has ended or is being ended, if it is: what a prompt gets from then
    /// on, also when its actor is gone already.
    pub fn exit_error(&self) -> Option<&PromptError> {
        self.exit_error.get().map(|(_, why)| why)
    }

    /// Returns what a prompt gets when its process is gone.
    pub fn gone(&self) -> PromptError {
        let unknown = || PromptError::Exited(ExitReport::default());
        self.exit_error().cloned().unwrap_or_else(unknown)
    }

    /// Returns for how long there is a process.
    pub(crate) fn age(&self) -> Duration {
        self.born.elapsed()
    }

    /// Returns whether a process that has ended did so by its own fault, before it had worked for anybody.
    pub(crate) fn has_failed(&self) -> bool {
        let is_at_fault = match self.exit_error() {
            Some(PromptError::Exited(report)) if report.is_from_outside() => false,
            Some(error) => error.is_own_end(),
            None => false,
        };
        is_at_fault && self.is(ProcFlag::Started) && !self.is(ProcFlag::Worked)
    }

    /// Judges the state in which the process comes back from a client that returned it.
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

    /// Judges the state in which the process comes back from a client that died, or that let go of
    /// it without a word: what that client left in it is reset before anybody else gets it. It was lent under `token`.
    pub(crate) fn condition_on_loss(&self, token: Token) -> Condition {
        let was_prompted = self.prompted_under.load(Ordering::Relaxed) == token.0;
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
    fn a_call_is_worked_for_until_the_process_is_taken_back_and_by_no_later_holder() {
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
        assert!(is_served(&shared), "it ends over the call");
        shared.unassign(Timestamp::ZERO);
        assert!(!is_served(&shared));
        shared.assign(Token(2));
        assert!(!is_served(&shared));
        // A holder that it was taken from is late.
        shared.serve(Token(1), call);
        assert!(!is_served(&shared));
    }

    #[test]
    fn its_state_is_as_old_as_the_last_of_lending_taking_back_and_ending() {
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
        // The first word counts.
        shared.set_exit_error(PromptError::BadPrompt);
        assert_eq!(shared.work().since, before);
        assert!(matches!(shared.exit_error(), Some(PromptError::NotHolder)));
    }
}
