//! A function call: its caller, subject, reports and final statistics.
//!
//! SUMMARY   [`Call`] accompanies every prompt of a call, so that a process's output during the call is attributed to
//!           it in the log, and collected if a report is requested. [`Loan`] is one process that serves it.
//!           [`FinishedCall`] is a finished call, read by report, log and statistics.
//! PROMISES  Collected data is bounded. Without a report nothing is collected, and memory is not read. Functions' log
//!           lines and the errors that end them are also added to the log of their tenant, a database.
//! LIMITS    A process's memory is read at most every [`MEMORY_INTERVAL`]: peaks in between are missed. Processor
//!           time of a command's children is charged to the call at whose end it is read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::Serialize;
use slog::{KV, Logger, OwnedKV, Record, Serializer};
use tokio::time::Instant;

use super::proc_shared::ProcShared;
use super::request_id::RequestId;
use super::run_time::{RunTime, WorkingTime};
use super::status::Holder;
use super::tally::Tally;
use super::tenant_logs::{LineKind, TenantLine, TenantLogs};
use super::told::{FunctionName, Level, LogEntry, LogLine, ReportedError, Told};
use crate::lock;
use policy::pool::Token;

/// Minimum time between two readings of a process's memory: a reading costs as much as a quick call.
const MEMORY_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes shown of a name: a longer one is cut after the character at this length, and ends with `…`. Tenants with their
/// own row or lines have names of at most this length, so a cut name never equals one of theirs.
const NAME_BYTES_TOLD: usize = 256;

/// A call's subject, as shown in the log and in tables.
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
    /// Makes a subject of the shown parts of the names.
    pub(crate) fn new(db: Option<&Arc<str>>, ddoc: Option<&Arc<str>>, function: &str) -> Self {
        let told = |name: &Arc<str>| cut(name).map_or_else(|| Arc::clone(name), Arc::from);
        Self {
            db: db.map(told),
            ddoc: ddoc.map(told),
            function: cut(function).unwrap_or_else(|| function.to_owned()),
        }
    }

    /// Returns the names' total length, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        [self.db.as_ref(), self.ddoc.as_ref()]
            .into_iter()
            .flatten()
            .map(|name| name.len())
            .sum::<usize>()
            + self.function.len()
    }
}

/// Returns the shortened form of an overlong name.
fn cut(name: &str) -> Option<String> {
    let told = &name[..name.ceil_char_boundary(NAME_BYTES_TOLD)];
    (name.len() > NAME_BYTES_TOLD).then(|| format!("{told}…"))
}

/// A call in progress.
#[derive(Debug)]
pub struct Call {
    pub(crate) request_id: RequestId,
    who: Option<Arc<Holder>>,
    pub(crate) subject: Subject,
    /// Whether a report is requested.
    pub(crate) reports: bool,
    run_time: RunTime,
    /// Collects the tenant's log lines.
    tenants: Option<Arc<TenantLogs>>,
    begun: Instant,
    progress: Mutex<Progress>,
}

/// The state of a call.
#[derive(Debug, Default)]
struct Progress {
    /// The pool of the first process.
    pool: Option<Arc<str>>,
    /// The pool that refused it a process.
    refused_by: Option<Arc<str>>,
    wait: Duration,
    teach: Duration,
    work: WorkingTime,
    cpu: Option<Duration>,
    memory_peak_bytes: Option<u64>,
    argument_bytes: usize,
    value_bytes: usize,
    told: Told,
    /// Counts of the map functions' results, if a report is requested.
    tally: Tally,
    /// Whether the process also reported the error of the answer.
    is_explained: bool,
    /// Whether its tenant's lines already have that error.
    is_explained_to_tenant: bool,
    /// Whether a process was returned as unusable.
    has_ended_process: bool,
    /// The functions being run, by their places in the call's list.
    functions: Vec<usize>,
}

impl Progress {
    /// Names an error's function by its place in the call's list; the process knows only the functions being run.
    fn place(&self, error: &mut ReportedError) {
        if let Some(FunctionName::Index(index)) = &mut error.function
            && let Some(place) = self.functions.get(*index)
        {
            *index = *place;
        }
    }
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
        lock(&self.progress)
    }

    /// Records the pool that refuses it a process.
    pub(crate) fn refused_by(&self, pool: &Arc<str>) {
        self.progress().refused_by = Some(Arc::clone(pool));
    }

    /// Lends it a process under `token`, requested at `asked`.
    pub(crate) fn lend(
        self: &Arc<Self>,
        asked: Instant,
        pool: &Arc<str>,
        token: Token,
        process: &ProcShared,
    ) -> Arc<Loan> {
        let mut progress = self.progress();
        // Waiting for further processes overlaps with the first one's work.
        if progress.pool.is_none() {
            progress.teach = process.lesson();
            progress.wait = asked.elapsed().saturating_sub(progress.teach);
            progress.pool = Some(Arc::clone(pool));
        }
        progress.is_explained = false;
        progress.is_explained_to_tenant = false;
        process.serve(token, Arc::clone(self));
        Loan::new(self, true, process.cpu_time())
    }

    /// Sets the functions that run from now on, by their places in the call's list; the process knows only these.
    pub(crate) fn run_functions(&self, functions: Vec<usize>) {
        self.progress().functions = functions;
    }

    /// Adds the reports that preceded an answer. `failed`: the answer is an error.
    pub(crate) fn take(&self, mut told: Told, failed: bool) {
        let mut progress = self.progress();
        if failed {
            // Prompts after the failed one may fail without a report.
            progress.is_explained |= !told.errors.is_empty();
        }
        told.errors
            .iter_mut()
            .for_each(|error| progress.place(error));
        progress.told.append(told);
    }

    /// Passes a process's log line to the tenant, if there is one. Returns whether the passed line is an error.
    fn tell_tenant(&self, entry: &LogEntry) -> bool {
        let Some((logs, db)) = self.tenant() else {
            return false;
        };
        if entry.returned().is_some() {
            return false;
        }
        let (line, mut error) = entry.clone().read();
        let pool = {
            let progress = self.progress();
            error.iter_mut().for_each(|error| progress.place(error));
            progress.pool.clone()
        };
        let kind = match line.level {
            Level::Error => LineKind::Error,
            Level::Info | Level::Warning => LineKind::Log,
        };
        logs.note(
            db,
            self.tenant_line(kind, pool.as_deref(), error.as_ref(), &line.message),
        );
        kind == LineKind::Error
    }

    /// Returns the tenant and its log, if there is one.
    fn tenant(&self) -> Option<(&TenantLogs, &Arc<str>)> {
        self.tenants.as_deref().zip(self.subject.db.as_ref())
    }

    /// Converts an entry to a line for the tenant: an error, or a message.
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

    /// Counts the arguments' length, in bytes of JSON.
    pub(crate) fn count_arguments(&self, bytes: usize) {
        self.progress().argument_bytes = bytes;
    }

    /// Counts the value's length, in bytes of JSON.
    pub(crate) fn count_value(&self, bytes: usize) {
        self.progress().value_bytes = bytes;
    }

    /// Records that its process is unusable.
    pub(crate) fn process_ended(&self) {
        self.progress().has_ended_process = true;
    }

    /// Counts a document that `functions` map functions ran over: those with rows for it, and the reports.
    pub(crate) fn count_rows(
        &self,
        functions: usize,
        with_rows: impl Iterator<Item = usize>,
        told: Option<&Told>,
    ) {
        self.progress().tally.count(functions, with_rows, told);
    }

    /// Returns, once, a hint for each map function without any result.
    pub(crate) fn take_hints(&self) -> Vec<String> {
        let mut progress = self.progress();
        std::mem::take(&mut progress.tally).hints(&progress.told.returned)
    }

    /// Adds an error found by the service itself.
    pub(crate) fn error(&self, error: ReportedError) {
        self.progress().told.error(error);
    }

    /// Adds a remark by the service itself.
    pub(crate) fn warn(&self, message: String) {
        if self.reports {
            let level = Level::Warning;
            self.progress().told.log(LogLine { level, message });
        }
    }

    /// Ends the call. All calls end here, with complete data.
    pub(crate) fn finish(self: &Arc<Self>, error: Option<ReportedError>) -> FinishedCall {
        let hints = self.take_hints();
        let mut progress = std::mem::take(&mut *self.progress());
        if error.is_none() {
            let level = Level::Warning;
            let lines = hints.into_iter().map(|message| LogLine { level, message });
            // Hints are few, and are added even if the functions' lines have reached their limit.
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

    /// Returns a log with records attributed to the call.
    pub(crate) fn log(self: &Arc<Self>, log: &Logger) -> Logger {
        log.new(OwnedKV(Arc::clone(self)))
    }
}

/// Returns a log with records attributed to a call, if there is one.
pub(crate) fn call_log(call: Option<&Arc<Call>>, log: &Logger) -> Logger {
    call.map_or_else(|| log.clone(), |call| call.log(log))
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The keys that attribute log records to a call.
impl KV for Call {
    fn serialize(&self, _: &Record<'_>, to: &mut dyn Serializer) -> slog::Result {
        let Call {
            request_id,
            who,
            subject,
            ..
        } = self;
        let user = who.as_ref().and_then(|who| who.user.as_deref());
        // Written from last to first.
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
    /// Whether the process's work counts as the call's run.
    is_run: bool,
    told: Mutex<Telling>,
    /// Whether the tenant's lines contain an error since the last answer.
    has_told_error: AtomicBool,
    /// Processor time that the process had used before the loan.
    cpu_before: Option<Duration>,
}

/// Reports of a process that have not been taken.
#[derive(Debug, Default)]
struct Telling {
    /// The reports before each answer, oldest first.
    answered: VecDeque<Told>,
    /// Their size in bytes.
    bytes: usize,
    /// The reports before the next answer.
    current: Told,
}

/// Maximum bytes of reports that have not been taken.
const UNTAKEN_BYTES_MAX: usize = 512 << 10;

impl Loan {
    /// Returns a loan that collects the reports between the answers to a client's single prompts.
    pub(crate) fn of_prompts(who: Option<Arc<Holder>>) -> Arc<Self> {
        let subject = Subject {
            function: "prompt".to_owned(),
            ..Subject::default()
        };
        let call = Call::new(RequestId::made(), who, subject, true, RunTime::Whole, None);
        Self::new(&call, false, None)
    }

    /// Returns a loan that attributes log output during a lesson to the call that needs the lesson.
    pub(crate) fn of_lesson(call: &Arc<Call>) -> Arc<Self> {
        Self::new(call, false, None)
    }

    fn new(call: &Arc<Call>, is_run: bool, cpu_before: Option<Duration>) -> Arc<Self> {
        Arc::new(Self {
            call: Arc::clone(call),
            is_run,
            told: Mutex::default(),
            has_told_error: AtomicBool::new(false),
            cpu_before,
        })
    }

    fn telling(&self) -> Option<MutexGuard<'_, Telling>> {
        self.call.reports.then(|| lock(&self.told))
    }

    /// Takes a line logged by the process.
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

    /// Adds a remark by the service.
    pub(crate) fn warn(&self, message: String) {
        if let Some(mut telling) = self.telling() {
            let level = Level::Warning;
            telling.current.log(LogLine { level, message });
        }
    }

    /// Records that the process gets this many prompts.
    pub(crate) fn asks(&self, count: usize) {
        if self.is_run && self.call.run_time == RunTime::Work {
            self.call.progress().work.ask(count);
        }
    }

    /// Records the process's next answer. `failed`: it is an error.
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

    /// Takes the reports that preceded the oldest answer whose reports have not been taken.
    pub(crate) fn take(&self) -> Told {
        let Some(mut telling) = self.telling() else {
            return Told::default();
        };
        let told = telling.answered.pop_front().unwrap_or_default();
        telling.bytes -= told.bytes();
        told
    }

    /// Adds the process's processor time and memory peak to the call's, before the process can serve anyone else.
    pub(crate) fn end(&self, process: &ProcShared) {
        let Some(pid) = process.measured_pid() else {
            return;
        };
        let cpu = process.cpu_time().zip(self.cpu_before);
        let reports = self.call.reports;
        let memory = reports.then(|| process.memory_peak(pid, MEMORY_INTERVAL));
        let mut progress = self.call.progress();
        if let Some((after, before)) = cpu {
            *progress.cpu.get_or_insert_default() += after.saturating_sub(before);
        }
        progress.memory_peak_bytes = progress.memory_peak_bytes.max(memory.flatten());
    }
}

/// The cost of a call. Times are in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cost {
    /// Time until it had a process, without its lessons.
    pub(crate) wait_us: u64,
    /// Time until the process had learned the design document.
    pub(crate) teach_us: u64,
    /// The remaining time; for a stream the time during which a process worked for it.
    pub(crate) run_us: u64,
    /// Processor time of all its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_us: Option<u64>,
    /// Peak memory of any of its processes, including current children, since the start of that process; of one with
    /// isolates, since it last changed tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_peak_bytes: Option<u64>,
}

/// A finished call: its caller and subject, its pool, its cost, and its reports.
#[derive(Clone, Debug)]
pub(crate) struct FinishedCall {
    pub(crate) call: Arc<Call>,
    pub(crate) pool: Option<Arc<str>>,
    pub(crate) cost: Cost,
    /// Whether a process was returned as unusable.
    pub(crate) has_ended_process: bool,
    is_explained_to_tenant: bool,
    argument_bytes: usize,
    value_bytes: usize,
    pub(crate) told: Told,
}

/// The report of a call.
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
        // Written from last to first.
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
    /// Returns the length of its arguments and its value, in bytes of JSON; for a stream only the first line counts.
    pub(crate) fn bytes(&self) -> u64 {
        (self.argument_bytes + self.value_bytes) as u64
    }

    /// Passes its final error to the tenant, unless the process has reported it.
    pub(crate) fn tell_tenant(&self, error: &ReportedError) {
        if let Some((logs, db)) = self.call.tenant().filter(|_| !self.is_explained_to_tenant) {
            let pool = self.pool.as_deref();
            logs.note(
                db,
                self.call
                    .tenant_line(LineKind::Error, pool, Some(error), ""),
            );
        }
    }

    /// Returns the report, if requested.
    pub(crate) fn report(&self) -> Option<Report<'_>> {
        self.call.reports.then(|| Report {
            told: Some(&self.told),
            ..self.summary()
        })
    }

    /// Returns the last part of a streamed report: everything not streamed before, and the cost.
    pub(crate) fn rest(&self) -> Report<'_> {
        let told = Some(&self.told).filter(|told| !told.is_empty());
        Report {
            told,
            ..self.summary()
        }
    }

    /// Returns the report without streamed parts.
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
