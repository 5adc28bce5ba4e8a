//! The bounded queue in front of the writing thread, and the count of dropped records.
//!
//! SUMMARY   Takes records at least as severe as a changeable level. One that does not fit the queue is dropped and
//!           counted; a record with the count precedes the next one that fits.
//! DIFFERS   `slog_async::Async` does the same but hides the count, which operators need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use slog::{
    BorrowedKV, Drain, FilterLevel, Level, OwnedKVList, Record, RecordStatic, b, o, record,
};
use slog_async::{AsyncCore, AsyncError};

use super::bounded::Bounded;
use super::losses::Losses;
use crate::config::LogLevel;

/// Attempts of the last report, with pauses in between: half a second in total.
const LAST_REPORT_TRIES: u32 = 100;
const LAST_REPORT_PAUSE: Duration = Duration::from_millis(5);

/// A queue that counts dropped records.
pub(super) struct Overflow {
    core: AsyncCore,
    /// Dropped since the last report.
    unreported: AtomicU64,
    /// Losses since the start.
    pub(super) losses: Arc<Losses>,
    /// The least severe level that is queued.
    level: AtomicUsize,
}

impl Overflow {
    /// Wraps a queue.
    pub fn new(core: AsyncCore, losses: Arc<Losses>, level: LogLevel) -> Self {
        Self {
            core,
            unreported: AtomicU64::new(0),
            losses,
            level: AtomicUsize::new(level as usize),
        }
    }

    pub(super) fn set_level(&self, level: LogLevel) {
        self.level.store(level as usize, Ordering::Relaxed);
    }

    /// Reports the remaining count, waiting briefly for space in the queue: there may be no later record to report it
    /// with.
    pub(crate) fn report_last(&self) {
        for _ in 0..LAST_REPORT_TRIES {
            if self.report() {
                return;
            }
            thread::sleep(LAST_REPORT_PAUSE);
        }
    }

    /// Queues a record with the count, if not zero. Returns whether the count is now zero.
    fn report(&self) -> bool {
        let count = self.unreported.swap(0, Ordering::Relaxed);
        if count == 0 {
            return true;
        }
        let reported = self.core.log(
            &record!(
                Level::Warning,
                "",
                &format_args!("log records were dropped because they came too fast"),
                b!(
                    "count" => count,
                    "limit" => super::QUEUE_RECORDS_MAX,
                    "effect" => "these records are lost",
                    "remedy" => "raise [log] level, or find what logs that much",
                )
            ),
            &o!().into(),
        );
        match reported {
            Err(AsyncError::Full) => {
                self.unreported.fetch_add(count, Ordering::Relaxed);
                false
            }
            _ => true,
        }
    }
}

impl Drain for Overflow {
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
        let room = self.report();
        let full = !room || matches!(self.core.log(&record, values), Err(AsyncError::Full));
        if full {
            self.unreported.fetch_add(1, Ordering::Relaxed);
            self.losses.lose();
        }
        // Other errors mean that the writing thread has ended: the service is stopping.
        Ok(())
    }

    fn is_enabled(&self, level: Level) -> bool {
        let least = FilterLevel::from_usize(self.level.load(Ordering::Relaxed));
        least.is_some_and(|least| least.accepts(level))
    }
}
