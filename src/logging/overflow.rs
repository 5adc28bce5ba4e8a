//! The bounded queue in front of the writing thread, and the count of dropped records.
//!
//! SUMMARY   A record that does not fit the queue is dropped and counted; a record with the count precedes the next one
//!           that fits.
//! DIFFERS   `slog_async::Async` does the same but hides the count, which operators need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use slog::{Drain, Level, OwnedKVList, Record, b, o, record};
use slog_async::{AsyncCore, AsyncError};

use super::losses::Losses;

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
}

impl Overflow {
    /// Wraps a queue.
    pub fn new(core: AsyncCore, losses: Arc<Losses>) -> Self {
        Self {
            core,
            unreported: AtomicU64::new(0),
            losses,
        }
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
        let room = self.report();
        let full = !room || matches!(self.core.log(record, values), Err(AsyncError::Full));
        if full {
            self.unreported.fetch_add(1, Ordering::Relaxed);
            self.losses.lose();
        }
        // Other errors mean that the writing thread has ended: the service is stopping.
        Ok(())
    }
}
