//! A function call: its caller, subject, reports and final statistics.
//!
//! SUMMARY   [`Call`] goes with every prompt of a call, so that what a process writes meanwhile can be named in the
//!           log, and collected if a report is wanted. [`Loan`] is one process that serves it.
//!           [`FinishedCall`] is a call that is over: report, log and statistics read it.
//! PROMISES  What is collected is bounded. Without a report nothing is collected, and no memory is read. What functions log
//!           and the errors that they end with are lines of their tenant, a database.
//! LIMITS    The memory of a process is read at most every [`MEMORY_INTERVAL`]: a peak since then is not seen. What the
//!           children of a command take on processors counts for the call at whose end it is read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use slog::{KV, Logger, OwnedKV, Record, Serializer};
use tokio::time::Instant;

use crate::query_server::proc_shared::ProcShared;
use crate::query_server::request_id::RequestId;
use crate::query_server::run_time::{RunTime, WorkingTime};
use crate::query_server::status::Holder;
use crate::query_server::tally::Tally;
use crate::query_server::tenant_logs::{LineKind, TenantLine, TenantLogs};
use crate::query_server::told::{FunctionName, Level, LogEntry, LogLine, ReportedError, Told};
use policy::pool::Token;

/// The least time between two readings of a process's memory: a reading costs as much as a quick call.
pub(crate) const MEMORY_INTERVAL: Duration = Duration::from_millis(100);

/// The bytes of a name that are shown: what is longer is cut behind a character, and ends with `…`. It is longer then
/// than the name of any tenant that has a row or lines of its own.
const NAME_BYTES_TOLD: usize = 256;

/// What a call is about, as shown in the log and in tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    /// The database.
    pub(crate) db: Option<Arc<str>>,
    /// The design document's id.
    pub(crate) ddoc: Option<Arc<str>>,
    /// The function: its path in the design document, or the name of the call.
    pub(crate) function: String,
}

impl Subject {
    /// Takes as much of the names as is shown.
    pub(crate) fn new(db: Option<&Arc<str>>, ddoc: Option<&Arc<str>>, function: &str) -> Self {
        let told = |name: &Arc<str>| cut(name).map_or_else(|| Arc::clone(name), Arc::from);
        Self {
            db: db.map(told),
            ddoc: ddoc.map(told),
            function: cut(function).unwrap_or_else(|| function.to_owned()),
        }
    }

    /// Returns how long its names are together, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let names = [self.db.as_ref(), self.ddoc.as_ref()].into_iter().flatten();
        names.map(|name| name.len()).sum::<usize>() + self.function.len()
    }
}

/// Returns the shortened form of a name that is too long.
fn cut(name: &str) -> Option<String> {
    let told = &name[..name.ceil_char_boundary(NAME_BYTES_TOLD)];
    (name.len() > NAME_BYTES_TOLD).then(|| format!("{told}…"))
}

/// A call on its way.
#[derive(Debug)]
pub struct Call {
    pub(crate) request_id: RequestId,
    who: Option<Arc<Holder>>,
    pub(crate) subject: Subject,
    /// Whether its caller wants a report.
    pub(crate) reports: bool,
    run_time: RunTime,
    /// Where its tenant finds what functions log.
    tenants: Option<Arc<TenantLogs>>,
    begun: Instant,
    progress: Mutex<Progress>,
}

/// The state of a call.
#[derive(Debug, Default)]
struct Progress {
    /// The pool of the first process.
    pool: Option<Arc<str>>,
    /// The pool that refused it one.
    refused_by: Option<Arc<str>>,
    wait: Duration,
    teach: Duration,
    work: WorkingTime,
    cpu: Option<Duration>,
    memory_peak_bytes: Option<u64>,
    argument_bytes: usize,
    value_bytes: usize,
    told: Told,
    /// What map functions have done, if a report is wanted.
    tally: Tally,
    /// Whether the process also reported the error of the answer.
    is_explained: bool,
    /// The same of the lines of its tenant.
    is_explained_to_tenant: bool,
    /// Whether a process was given back as unusable.
    has_ended_process: bool,
    /// The functions that are run now, by their places in the call's list.
    functions: Vec<usize>,
}

impl Call {
    pub(crate) fn new(
        request_id: RequestId,
        who: Option<Arc<Holder>>,
        subject: Subject,
        reports: bool,
        run_time: RunTime,
        tenants: Option<Arc<TenantLogs>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            request_id,
            who,
            subject,
            reports,
            run_time,
            tenants,
            begun: Instant::now(),
            progress: Mutex::default(),
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the pool that gives it no process.
    pub(crate) fn refused_by(&self, pool: &Arc<str>) {
        self.progress().refused_by = Some(Arc::clone(pool));
    }

    /// Lends it a process under `token` that it has waited for since `asked`.
    pub(crate) fn lend(
        self: &Arc<Self>,
        asked: Instant,
        pool: &Arc<str>,
        token: Token,
        process: &ProcShared,
    ) -> Arc<Loan> {
        let mut progress = self.progress();
        // Further processes are waited for beside the work of the first.
        if progress.pool.is_none() {
            progress.teach = process.lesson();
            progress.wait = asked.elapsed().saturating_sub(progress.teach);
            progress.pool = Some(Arc::clone(pool));
        }
        progress.is_explained = false;
        progress.is_explained_to_tenant = false;
        process.serve(token, Arc::clone(self));
        Arc::new(Loan {
            call: Arc::clone(self),
            is_run: true,
            told: Mutex::default(),
            has_told_error: AtomicBool::new(false),
            cpu_before: process.cpu_time(),
        })
    }

    /// Names the functions that are run from now on by their places in the list of the call; the process knows these
    /// alone.
    pub(crate) fn run_functions(&self, functions: Vec<usize>) {
        self.progress().functions = functions;
    }

    /// Takes what was reported before an answer. `failed`: the answer is an error.
    pub(crate) fn take(&self, mut told: Told, failed: bool) {
        let mut progress = self.progress();
        if failed {
            // Prompts behind the one that failed may fail without a word.
            progress.is_explained |= !told.errors.is_empty();
        }
        for error in &mut told.errors {
            if let Some(FunctionName::Index(index)) = &mut error.function
                && let Some(place) = progress.functions.get(*index)
            {
                *index = *place;
            }
        }
        progress.told.append(told);
    }

    /// Gives its tenant a line that a process logged. Returns whether it is an error.
    fn tell_tenant(&self, entry: &LogEntry) -> bool {
        let Some((logs, db)) = self.tenant() else {
            return false;
        };
        if entry.returned().is_some() {
            return false;
        }
        let (line, mut error) = entry.clone().read();
        let (pool, functions) = {
            let progress = self.progress();
            (progress.pool.clone(), progress.functions.clone())
        };
        if let Some(FunctionName::Index(index)) = error.as_mut().and_then(|e| e.function.as_mut()) {
            *index = functions.get(*index).copied().unwrap_or(*index);
        }
        let kind = match line.level {
            Level::Error => LineKind::Error,
            Level::Info | Level::Warning => LineKind::Log,
        };
        let told = self.tenant_line(kind, pool.as_deref(), error.as_ref(), &line.message);
        logs.note(db, told);
        kind == LineKind::Error
    }

    /// Returns where its tenant finds lines, and the tenant.
    fn tenant(&self) -> Option<(&TenantLogs, &Arc<str>)> {
        self.tenants.as_deref().zip(self.subject.db.as_ref())
    }

    /// Returns a line for its tenant: an error, or a message.
    fn tenant_line<'a>(
        &'a self,
        kind: LineKind,
        pool: Option<&'a str>,
        error: Option<&'a ReportedError>,
        message: &'a str,
    ) -> TenantLine<'a> {
        let (function, index) = match error.and_then(|error| error.function.as_ref()) {
            Some(FunctionName::Path(path)) => (path, None),
            Some(FunctionName::Index(index)) => (&self.subject.function, Some(*index)),
            None => (&self.subject.function, None),
        };
        TenantLine {
            kind,
            request_id: &self.request_id,
            pool,
            ddoc: self.subject.ddoc.as_deref(),
            function,
            index,
            doc: error.and_then(|error| error.doc.as_deref()),
            name: error.map(|error| &*error.name),
            message: error.map_or(message, |error| &error.message),
            line: error.and_then(|error| error.line),
        }
    }

    /// Takes the length of the arguments, in bytes of JSON.
    pub(crate) fn count_arguments(&self, bytes: usize) {
        self.progress().argument_bytes = bytes;
    }

    /// Takes the length of the value, in bytes of JSON.
    pub(crate) fn count_value(&self, bytes: usize) {
        self.progress().value_bytes = bytes;
    }

    /// Its process is no longer usable.
    pub(crate) fn process_ended(&self) {
        self.progress().has_ended_process = true;
    }

    /// Counts a document that so many map functions were run over: which have rows for it, and what was reported.
    pub(crate) fn count_rows(
        &self,
        functions: usize,
        with_rows: impl Iterator<Item = usize>,
        told: Option<&Told>,
    ) {
        self.progress().tally.count(functions, with_rows, told);
    }

    /// Returns, once, a sentence for each map function whose work came to nothing.
    pub(crate) fn take_hints(&self) -> Vec<String> {
        let mut progress = self.progress();
        let tally = std::mem::take(&mut progress.tally);
        tally.hints(&progress.told.returned)
    }

    /// Takes an error that the service itself found.
    pub(crate) fn error(&self, error: ReportedError) {
        self.progress().told.error(error);
    }

    /// Takes a remark of the service itself.
    pub(crate) fn remark(&self, level: Level, message: &str) {
        if self.reports {
            let message = message.to_owned();
            self.progress().told.log(LogLine { level, message });
        }
    }

    /// Ends the call. This is the one place where calls end: what is known of one is complete here.
    pub(crate) fn finish(self: &Arc<Self>, error: Option<ReportedError>) -> FinishedCall {
        let hints = self.take_hints();
        let mut progress = std::mem::take(&mut *self.progress());
        if error.is_none() {
            let level = Level::Warning;
            let lines = hints.into_iter().map(|message| LogLine { level, message });
            // Few as they are, they have room beside what functions log.
            progress.told.logs.extend(lines);
        }
        if let Some(error) = error.filter(|_| self.reports && !progress.is_explained) {
            progress.told.error(error);
        }
        let since_lent = self.begun.elapsed().saturating_sub(progress.wait);
        let run = match self.run_time {
            RunTime::Whole => since_lent.saturating_sub(progress.teach),
            RunTime::Work => progress.work.so_far(),
        };
        let cost = Cost {
            wait_us: micros(progress.wait),
            teach_us: micros(progress.teach),
            run_us: micros(run),
            cpu_us: progress.cpu.map(micros),
            memory_peak_bytes: progress.memory_peak_bytes,
        };
        FinishedCall {
            call: Arc::clone(self),
            pool: progress.pool.or(progress.refused_by),
            cost,
            has_ended_process: progress.has_ended_process,
            is_explained_to_tenant: progress.is_explained_to_tenant,
            argument_bytes: progress.argument_bytes,
            value_bytes: progress.value_bytes,
            told: progress.told,
        }
    }

    /// Returns a log whose records name the call.
    pub(crate) fn log(self: &Arc<Self>, log: &Logger) -> Logger {
        log.new(OwnedKV(LogKeys(Arc::clone(self))))
    }
}

/// Returns a log whose records name a call, if there is one.
pub(crate) fn call_log(call: Option<&Arc<Call>>, log: &Logger) -> Logger {
    call.map_or_else(|| log.clone(), |call| call.log(log))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What names a call in records of the log.
struct LogKeys(Arc<Call>);

impl KV for LogKeys {
    fn serialize(&self, _: &Record<'_>, to: &mut dyn Serializer) -> slog::Result {
        let Call {
            request_id,
            who,
            subject,
            ..
        } = &*self.0;
        let user = who.as_ref().and_then(|who| who.user.as_deref());
        // They are written from last to first.
        to.emit_str("function", &subject.function)?;
        for (key, value) in [
            ("ddoc", subject.ddoc.as_deref()),
            ("db", subject.db.as_deref()),
            ("user", user),
        ] {
            if let Some(value) = value {
                to.emit_str(key, value)?;
            }
        }
        to.emit_arguments("request_id", &format_args!("{request_id}"))
    }
}

/// A process that serves a call.
#[derive(Debug)]
pub struct Loan {
    pub(crate) call: Arc<Call>,
    /// Whether what the process does is the run of the call.
    is_run: bool,
    told: Mutex<Telling>,
    /// Whether the lines of the tenant have an error since the last answer.
    has_told_error: AtomicBool,
    /// The time on processors that the process had used before.
    cpu_before: Option<Duration>,
}

/// What a process has reported and is not taken yet.
#[derive(Debug, Default)]
struct Telling {
    /// Before each answer, oldest first.
    answered: VecDeque<Told>,
    /// What those hold, in bytes.
    bytes: usize,
    /// Before the next answer.
    current: Told,
}

/// How much a process may report before that is taken, in bytes.
const UNTAKEN_BYTES_MAX: usize = 512 << 10;

impl Loan {
    /// Keeps what a process tells beside its answers to single prompts of somebody.
    pub(crate) fn of_prompts(who: Option<Arc<Holder>>) -> Arc<Self> {
        let subject = Subject {
            function: "prompt".to_owned(),
            ..Subject::default()
        };
        let id = RequestId::made();
        let call = Call::new(id, who, subject, true, RunTime::Whole, None);
        Self::beside(call)
    }

    /// Names a call in what a process writes to the log while it learns for it.
    pub(crate) fn of_lesson(call: &Arc<Call>) -> Arc<Self> {
        Self::beside(Arc::clone(call))
    }

    fn beside(call: Arc<Call>) -> Arc<Self> {
        Arc::new(Self {
            call,
            is_run: false,
            told: Mutex::default(),
            has_told_error: AtomicBool::new(false),
            cpu_before: None,
        })
    }

    fn telling(&self) -> Option<MutexGuard<'_, Telling>> {
        let told = self.call.reports.then(|| self.told.lock());
        told.map(|told| told.unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a line that the process logged.
    pub(crate) fn said(&self, entry: LogEntry) {
        if self.call.tell_tenant(&entry) {
            self.has_told_error.store(true, Ordering::Relaxed);
        }
        if let Some(mut telling) = self.telling() {
            let is_room = telling.bytes + telling.current.bytes() < UNTAKEN_BYTES_MAX;
            if is_room {
                telling.current.add(entry)
            } else {
                telling.current.logs_dropped += 1
            }
        }
    }

    /// Takes a remark of the service.
    pub(crate) fn warn(&self, message: String) {
        if let Some(mut telling) = self.telling() {
            let level = Level::Warning;
            telling.current.log(LogLine { level, message });
        }
    }

    /// The process is given that many prompts.
    pub(crate) fn asks(&self, count: usize) {
        if self.is_run && self.call.run_time == RunTime::Work {
            self.call.progress().work.ask(count);
        }
    }

    /// The process gives its next answer. `failed`: it is an error.
    pub(crate) fn answers(&self, failed: bool) {
        if self.has_told_error.load(Ordering::Relaxed) {
            self.has_told_error.store(false, Ordering::Relaxed);
            self.call.progress().is_explained_to_tenant |= failed;
        }
        if self.is_run && self.call.run_time == RunTime::Work {
            self.call.progress().work.answer();
        }
        if let Some(mut telling) = self.telling() {
            let told = std::mem::take(&mut telling.current);
            telling.bytes += told.bytes();
            telling.answered.push_back(told);
        }
    }

    /// Takes what was reported before the oldest answer of which that was not taken.
    pub(crate) fn take(&self) -> Told {
        let Some(mut telling) = self.telling() else {
            return Told::default();
        };
        let told = telling.answered.pop_front().unwrap_or_default();
        telling.bytes -= told.bytes();
        told
    }

    /// Ends the loan, before anybody else can be served.
    pub(crate) fn end(&self, process: &ProcShared) {
        let Some(pid) = process.measured_pid() else {
            return;
        };
        let cpu = process.cpu_time().zip(self.cpu_before);
        let memory = if self.call.reports {
            process.memory_peak(pid, MEMORY_INTERVAL)
        } else {
            None
        };
        let mut progress = self.call.progress();
        if let Some((after, before)) = cpu {
            *progress.cpu.get_or_insert_default() += after.saturating_sub(before);
        }
        progress.memory_peak_bytes = progress.memory_peak_bytes.max(memory);
    }
}

/// What a call cost. Times are in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cost {
    /// Until it had a process, without what that had to learn.
    pub(crate) wait_us: u64,
    /// Until the process had learned the design document.
    pub(crate) teach_us: u64,
    /// The rest; of a stream the time in which a process worked for it.
    pub(crate) run_us: u64,
    /// On processors, of all its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_us: Option<u64>,
    /// The most memory that one of its processes has had since it was started, with the children that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_peak_bytes: Option<u64>,
}

/// A call that is over: who asked for what, who served it, what it cost, and what was reported.
#[derive(Clone, Debug)]
pub(crate) struct FinishedCall {
    pub(crate) call: Arc<Call>,
    pub(crate) pool: Option<Arc<str>>,
    pub(crate) cost: Cost,
    /// Whether a process was given back as unusable.
    pub(crate) has_ended_process: bool,
    is_explained_to_tenant: bool,
    argument_bytes: usize,
    value_bytes: usize,
    pub(crate) told: Told,
}

/// What is reported of a call.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    request_id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a str>,
    #[serde(flatten)]
    told: Option<&'a Told>,
    cost: Cost,
}

impl KV for FinishedCall {
    fn serialize(&self, _: &Record<'_>, to: &mut dyn Serializer) -> slog::Result {
        // They are written from last to first.
        to.emit_usize("value_bytes", self.value_bytes)?;
        to.emit_usize("argument_bytes", self.argument_bytes)?;
        if let Some(cpu_us) = self.cost.cpu_us {
            to.emit_u64("cpu_us", cpu_us)?;
        }
        to.emit_u64("run_us", self.cost.run_us)?;
        to.emit_u64("teach_us", self.cost.teach_us)?;
        to.emit_u64("wait_us", self.cost.wait_us)?;
        match &self.pool {
            Some(pool) => to.emit_str("pool", pool),
            None => Ok(()),
        }
    }
}

impl FinishedCall {
    /// Returns how long its arguments and its value are, in bytes of JSON; of a stream only the first line counts.
    pub(crate) fn bytes(&self) -> u64 {
        (self.argument_bytes + self.value_bytes) as u64
    }

    /// Gives its tenant the error that it ended with, unless the process has reported it.
    pub(crate) fn tell_tenant(&self, error: &ReportedError) {
        if let Some((logs, db)) = self.call.tenant().filter(|_| !self.is_explained_to_tenant) {
            let pool = self.pool.as_deref();
            let kind = LineKind::Error;
            logs.note(db, self.call.tenant_line(kind, pool, Some(error), ""));
        }
    }

    /// Returns the report, if its caller wants one.
    pub(crate) fn report(&self) -> Option<Report<'_>> {
        self.call.reports.then(|| Report {
            told: Some(&self.told),
            ..self.summary()
        })
    }

    /// Returns the last part of a report that was given piece by piece: what no piece had, if any, and the cost.
    pub(crate) fn rest(&self) -> Report<'_> {
        let told = Some(&self.told).filter(|told| !told.is_empty());
        Report {
            told,
            ..self.summary()
        }
    }

    /// Returns the report without what was reported on the way.
    fn summary(&self) -> Report<'_> {
        Report {
            request_id: &self.call.request_id,
            pool: self.pool.as_deref(),
            told: None,
            cost: self.cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_process_is_reported_once_though_later_prompts_fail_too() {
        let (id, subject) = (RequestId::made(), Subject::default());
        let call = Call::new(id, None, subject, true, RunTime::Whole, None);
        let error = ReportedError {
            name: "out_of_memory".into(),
            line: Some(1),
            ..ReportedError::default()
        };
        let mut told = Told::default();
        told.error(error.clone());
        call.take(told, true);
        call.take(Told::default(), true);
        let finished = call.finish(Some(error));
        assert_eq!(finished.told.errors.len(), 1);
    }
}
