//! Logging: the slog set-up of the service.
//!
//! SUMMARY   Records of at least a certain level, which can change at run time, go through a bounded queue to a thread
//!           that writes them to standard error or a file: readable on a terminal, as JSON lines otherwise.
//! PROMISES  Logging never blocks its caller. Records that do not fit the queue, or cannot be written, are counted,
//!           and the count is logged. Dropping [`Logging`] writes queued records. Strings contain no terminal control
//!           characters, and their length is bounded.
//! CALLED    `settee serve` makes one and passes its `Logger` to its users; there is no global logger, except for the
//!           [library](libraries) of the HTTP server.
//! LIMITS    Records have only the keys in [`KEYS`], and contain neither bodies of documents nor credentials.

mod bounded;
mod file;
pub(crate) mod libraries;
mod losses;
mod overflow;
mod plain;
mod repeat;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use slog::{
    BorrowedKV, Drain, FilterLevel, FnValue, Level, Logger, OwnedKVList, PushFnValue, Record,
    RecordStatic, o,
};
use slog_async::AsyncGuard;

use crate::config::{Log, LogFormat, LogLevel};
use policy::schedule::WallTime;

use bounded::Bounded;
pub(crate) use file::Reopener;
use file::{Lines, LogFile};
use losses::Gap;
pub(crate) use losses::Losses;
use overflow::Overflow;
use plain::{PlainTexts, PlainWriter};
pub(crate) use repeat::{BurstLimiter, RepeatLimiter, SUMMARY_PERIOD, Summary};

/// Maximum records queued for the writing thread. `slog-async`'s default, 128, lost nearly all of a burst of 5,000.
const QUEUE_RECORDS_MAX: usize = 8192;

/// Every key of records, with its meaning; a test compares `docs/logging.md` with it.
pub const KEYS: &[(&str, &str)] = &[
    ("ts", "time, UTC (RFC 3339)"),
    (
        "level",
        "severity: trace, debug, info, warning, error, critical",
    ),
    ("msg", "what happened: a constant, one of the events"),
    ("ability", "an ability of a query server: ddoc, reduce, .."),
    ("actor", "a supervised part of the service"),
    ("argument_bytes", "length of a call's arguments"),
    (
        "asked",
        "what an order asked for, values after a change; JSON",
    ),
    ("because", "why something was done"),
    ("before", "what an order or a change found; JSON"),
    ("call", "a system call"),
    ("calls", "number of calls and loans"),
    ("changes", "what changed in the configuration"),
    ("client", "number of the client"),
    ("component", "the part of the service"),
    ("count", "how many"),
    ("cpu_us", "processor time"),
    ("db", "a call's database"),
    ("ddoc", "id of a call's design document"),
    ("document", "id of a document"),
    ("effect", "what it means for clients"),
    (
        "epoch",
        "one start of a fleet's daemon, 16 hexadecimal digits",
    ),
    ("error", "why it failed"),
    ("exit", "how a process ended"),
    ("file", "a file"),
    ("from", "a value before; the origin of an order"),
    (
        "function",
        "a call's function: its path in the design document, or the call's name",
    ),
    ("generation", "number of a process, unique in the service"),
    ("interval_ms", "time between the scheduler's cycles"),
    ("language", "a language"),
    ("limit", "the limit that was reached"),
    (
        "line",
        "what a process wrote to its log or standard error; ignored input",
    ),
    ("listen", "address, path or name of a socket"),
    ("max_churn", "most replications replaced in a cycle"),
    ("max_history", "events kept of a replication"),
    ("max_jobs", "most replications running at a time"),
    ("next_try", "earliest time of the next try"),
    ("on", "target of an order"),
    ("option", "an option of a replication"),
    ("os_pid", "process id of the operating system"),
    ("period_ms", "period of a limit"),
    ("pool", "a pool"),
    ("reason", "why a document was not replicated"),
    ("refused", "id of a document that was not replicated"),
    ("remedy", "what the operator can do"),
    ("replication", "id of a replication"),
    ("request_id", "id of the request"),
    ("retries_left", "remaining tries"),
    ("rev", "a revision of a document, or several"),
    ("run", "number of a run of a replication"),
    ("run_us", "time since a process was ready"),
    ("running", "running replications"),
    ("server", "a server of replications: scheme, host and port"),
    ("service", "a service: a section [services.NAME]"),
    ("signal", "a signal"),
    ("suppressed", "similar records left out since the last"),
    ("teach_us", "time to teach a process a design document"),
    ("timeout_ms", "time allowed"),
    ("to", "a value after"),
    ("user", "who asks"),
    ("value_bytes", "length of a call's value"),
    ("version", "version of the program"),
    ("wait_us", "time until a process was ready"),
    ("what", "name of the operation"),
    ("who", "who gave an order, or changed something"),
];

/// The logger with its thread.
pub struct Logging {
    /// Clone it, or make a child with `logger.new(o!(..))`, and pass it on.
    pub logger: Logger,
    level: Arc<AtomicUsize>,
    overflow: Arc<Overflow>,
    /// Only for a log file.
    reopener: Option<Reopener>,
    /// Dropped last: waits until the queue is written.
    _guard: AsyncGuard,
}

impl Logging {
    /// Starts logging to standard error, in colours on a terminal.
    pub(crate) fn to_stderr(config: &Log) -> Self {
        let terminal = io::stderr().is_terminal();
        if terminal && config.format != LogFormat::Json {
            let decorator = slog_term::TermDecorator::new().stderr().build();
            return Self::start(config.level, terminal_form(decorator));
        }
        Self::to_writer(config, terminal, io::stderr())
    }

    /// Starts logging to `sink`, without colours; `terminal`: whether it is a terminal.
    pub(crate) fn to_writer(
        config: &Log,
        terminal: bool,
        sink: impl Write + Send + 'static,
    ) -> Self {
        let sink = Lines::new(sink);
        if config.format == LogFormat::Terminal || config.format == LogFormat::Auto && terminal {
            let decorator = slog_term::PlainDecorator::new(sink);
            return Self::start(config.level, terminal_form(decorator));
        }
        Self::start(config.level, json_form(PlainWriter(sink)))
    }

    /// Starts logging to the end of a file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn to_file(config: &Log, path: &Path) -> io::Result<Self> {
        // A service's standard error may be a socket, which this name cannot open.
        if path == Path::new("/dev/stderr") {
            return Ok(Self::to_stderr(config));
        }
        let (file, reopener) = LogFile::open(path)?;
        let mut logging = Self::to_writer(config, false, file);
        logging.reopener = Some(reopener);
        Ok(logging)
    }

    fn start(level: LogLevel, drain: impl Drain<Err = io::Error> + Send + 'static) -> Self {
        let losses = Arc::<Losses>::default();
        let writing = Gap::new(drain, Arc::clone(&losses));
        let (core, guard) = slog_async::AsyncCore::custom(writing)
            .chan_size(QUEUE_RECORDS_MAX)
            .thread_name("settee-log".to_owned())
            .build_with_guard();
        let overflow = Arc::new(Overflow::new(core, losses));
        let level = Arc::new(AtomicUsize::new(level as usize));
        let switch = LevelSwitch {
            level: level.clone(),
            drain: overflow.clone(),
        };
        Self {
            logger: Logger::root(switch, o!()),
            level,
            overflow,
            reopener: None,
            _guard: guard,
        }
    }

    /// Changes the level immediately, for this logger and all its children.
    pub fn set_level(&self, level: LogLevel) {
        self.level.store(level as usize, Ordering::Relaxed);
    }

    /// Returns the reopener of its file, if it logs to one.
    pub(crate) fn reopener(&self) -> Option<Reopener> {
        self.reopener.clone()
    }

    /// Returns the live counters of lost records.
    pub(crate) fn losses(&self) -> Arc<Losses> {
        Arc::clone(&self.overflow.losses)
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.overflow.report_last();
    }
}

/// Passes records at least as severe as a changeable level.
struct LevelSwitch<D> {
    level: Arc<AtomicUsize>,
    drain: D,
}

impl<D: Drain<Ok = (), Err = slog::Never>> Drain for LevelSwitch<D> {
    type Ok = ();
    type Err = slog::Never;

    fn log(&self, record: &Record<'_>, values: &OwnedKVList) -> Result<(), slog::Never> {
        if !self.is_enabled(record.level()) {
            return Ok(());
        }
        let from = RecordStatic {
            location: record.location(),
            tag: record.tag(),
            level: record.level(),
        };
        let bounded = Bounded(record.kv());
        let record = Record::new(&from, record.msg(), BorrowedKV(&bounded));
        self.drain.log(&record, values)
    }

    fn is_enabled(&self, level: Level) -> bool {
        let least = FilterLevel::from_usize(self.level.load(Ordering::Relaxed));
        least.is_some_and(|least| least.accepts(level))
    }
}

fn terminal_form<D: slog_term::Decorator>(decorator: D) -> slog_term::FullFormat<PlainTexts<D>> {
    slog_term::FullFormat::new(PlainTexts(decorator))
        .use_utc_timestamp()
        .use_original_order()
        .build()
}

fn json_form<W: Write>(sink: W) -> slog_json::Json<W> {
    // slog writes pairs from last to first.
    slog_json::Json::new(sink)
        .set_newlines(true)
        .add_key_value(o!(
            "msg" => PushFnValue(|record: &Record<'_>, to| to.emit(record.msg())),
            "level" => FnValue(|record: &Record<'_>| record.level().as_str().to_lowercase()),
            "ts" => FnValue(|_: &Record<'_>| timestamp(SystemTime::now())),
        ))
        .build()
}

/// Returns the time in UTC as RFC 3339, to the millisecond.
pub(crate) fn timestamp(now: SystemTime) -> String {
    let since_1970 = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = (WallTime::ZERO + since_1970).to_string();
    let seconds = seconds.trim_end_matches('Z');
    format!("{seconds}.{:03}Z", since_1970.subsec_millis())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
