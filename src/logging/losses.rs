//! Lost log records, and the record with their count.
//!
//! SUMMARY   [`Losses`] counts records that did not fit the queue, and records that could not be written. [`Gap`]
//!           writes records; when it can write again, it first writes a record with the number of missing ones.
//! CALLED    By the queue and the writing thread; read by health, metrics and the audit.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use slog::{Drain, Level, OwnedKVList, Record, b, o, record};

use crate::lock;

/// Lost records since the start.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    lost: AtomicU64,
    /// Why the last record could not be written; `None` after a success.
    failure: Mutex<Option<String>>,
}

impl Losses {
    /// Returns the number of lost records.
    pub fn count(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns why records cannot be written, if the last one failed.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Counts a lost record.
    pub(crate) fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a record that could not be written.
    pub(crate) fn fail(&self, error: String) {
        self.lose();
        *lock(&self.failure) = Some(error);
    }
}

/// Writes records with another drain, whose failures it counts.
pub(super) struct Gap<D> {
    drain: D,
    losses: Arc<Losses>,
    /// Unwritten records since the last written one.
    missing: Cell<u64>,
}

impl<D: Drain<Err = io::Error>> Gap<D> {
    pub(super) fn new(drain: D, losses: Arc<Losses>) -> Self {
        Self {
            drain,
            losses,
            missing: Cell::new(0),
        }
    }

    /// Writes the number of missing records, if any.
    fn report(&self) -> io::Result<()> {
        let count = self.missing.get();
        if count == 0 {
            return Ok(());
        }
        self.drain.log(
            &record!(
                Level::Error,
                "",
                &format_args!("log records could not be written"),
                b!(
                    "count" => count,
                    "error" => self.losses.failure(),
                    "effect" => "these records are lost",
                    "remedy" => "make room where the log is written",
                )
            ),
            &o!().into(),
        )?;
        self.missing.set(0);
        *lock(&self.losses.failure) = None;
        Ok(())
    }
}

impl<D: Drain<Err = io::Error>> Drain for Gap<D> {
    type Ok = ();
    type Err = slog::Never;

    fn log(&self, record: &Record<'_>, values: &OwnedKVList) -> Result<(), slog::Never> {
        let written = self
            .report()
            .and_then(|()| self.drain.log(record, values).map(drop));
        if let Err(error) = written {
            self.missing.set(self.missing.get() + 1);
            self.losses.fail(error.to_string());
        }
        Ok(())
    }
}
