//! Logging: the slog set-up of the service.
//!
//! SUMMARY   Records of at least a certain level, which can change at run time, go through a bounded queue to a thread
//!           that writes them to standard error or a file: readable on a terminal, as JSON lines otherwise.
//! PROMISES  Logging never blocks its caller. Records that do not fit the queue, or cannot be written, are counted,
//!           and the count is logged. Dropping [`Logging`] writes queued records. Strings contain no terminal control
//!           characters, and their length is bounded.
//! CALLED    `settee serve` makes one and passes its `Logger` to its users; there is no global logger, except for the
//!           [library](libraries) of the HTTP server.
//! LIMITS    Records have only the keys that `docs/logging.md` lists, and contain neither bodies of documents nor
//!           credentials.

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
use std::time::SystemTime;

use slog::{Drain, FnValue, Logger, PushFnValue, Record, o};
use slog_async::AsyncGuard;

use crate::config::{Log, LogFormat, LogLevel};
use policy::schedule::WallTime;

pub(crate) use file::Reopener;
use file::{Lines, LogFile};
use losses::Gap;
pub(crate) use losses::Losses;
use overflow::Overflow;
use plain::{PlainTexts, PlainWriter};
pub(crate) use repeat::{BurstLimiter, RepeatLimiter, SUMMARY_PERIOD, Summary};

/// Maximum records queued for the writing thread. `slog-async`'s default, 128, lost nearly all of a burst of 5,000.
const QUEUE_RECORDS_MAX: usize = 8192;

/// The logger with its thread.
pub struct Logging {
    /// Clone it, or make a child with `logger.new(o!(..))`, and pass it on.
    pub logger: Logger,
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
            return Self::start(
                config.level,
                terminal_form(slog_term::TermDecorator::new().stderr().build()),
            );
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
            return Self::start(
                config.level,
                terminal_form(slog_term::PlainDecorator::new(sink)),
            );
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
        let (core, guard) = slog_async::AsyncCore::custom(Gap::new(drain, Arc::clone(&losses)))
            .chan_size(QUEUE_RECORDS_MAX)
            .thread_name("settee-log".to_owned())
            .build_with_guard();
        let overflow = Arc::new(Overflow::new(core, losses, level));
        Self {
            logger: Logger::root(Arc::clone(&overflow), o!()),
            overflow,
            reopener: None,
            _guard: guard,
        }
    }

    /// Changes the level immediately, for this logger and all its children.
    pub fn set_level(&self, level: LogLevel) {
        self.overflow.set_level(level);
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
