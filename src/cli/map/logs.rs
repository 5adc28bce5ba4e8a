//! What functions log, on standard error: the first lines, and how many there were.
//!
//! SUMMARY   A drain for the pool's log that lets only lines of standard error and remarks on sums through; what
//!           functions log comes beside their answers.
//! LIMITS    With --socket, lines of standard error are in the service's log alone.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cli::terminal::clear_line;
use json::shown::is_unprintable;
use slog::{Drain, KV, Key, Never, OwnedKVList, Record, Serializer};

/// How many lines are shown.
const SHOWN_MAX: u64 = 5;

/// Records that carry a line of a query server, or of a built-in reducer.
const MESSAGES: [&str; 2] = ["query server stderr", "a built-in sum is too long"];

/// The keys under which they carry it.
const KEYS: [&str; 2] = ["line", "error"];

/// The lines that functions logged: a drain for the log that has them among its records.
#[derive(Clone, Debug, Default)]
pub(super) struct LogLines {
    count: Arc<AtomicU64>,
}

impl LogLines {
    pub(super) fn add(&self, line: &str) {
        if self.count.fetch_add(1, Ordering::Relaxed) < SHOWN_MAX {
            tell(&format!("log: {line}"));
        }
    }

    /// Tells how many lines were not shown.
    pub(super) fn summarise(&self) {
        let count = self.count.load(Ordering::Relaxed);
        if count > SHOWN_MAX {
            tell(&format!(
                "{count} log lines, the first {SHOWN_MAX} are shown"
            ));
        }
    }
}

/// Tells something on a line of its own.
pub(super) fn tell(text: &str) {
    // A function's line is one line here, whatever is in it.
    let text = text.replace(is_unprintable, " ");
    clear_line();
    // Nobody is left to tell when standard error is gone.
    let _ = io::stderr().write_all(format!("settee: {text}\n").as_bytes());
}

impl Drain for LogLines {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        let message = record.msg().to_string();
        if MESSAGES.contains(&message.as_str()) {
            let mut line = Line(String::new());
            // The serializer below refuses nothing.
            let _ = record.kv().serialize(record, &mut line);
            self.add(&line.0);
        }
        Ok(())
    }
}

/// Picks the value of the key that carries it.
struct Line(String);

impl Serializer for Line {
    fn emit_arguments(&mut self, key: Key, value: &fmt::Arguments<'_>) -> slog::Result {
        if KEYS.contains(&key) {
            self.0 = value.to_string();
        }
        Ok(())
    }
}
