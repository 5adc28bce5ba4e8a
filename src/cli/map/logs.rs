//! Log lines of functions on standard error: the first ones, and their number.
//!
//! SUMMARY   A drain for the pool's log that passes only lines of standard error and remarks on sums; functions' log
//!           lines arrive with their answers.
//! LIMITS    With --socket, lines of standard error are only in the service's log.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cli::output::print_error;
use crate::cli::terminal::clear_line;
use json::shown::is_unprintable;
use slog::{Drain, KV, Key, Never, OwnedKVList, Record, Serializer};

/// Maximum lines shown.
const SHOWN_MAX: u64 = 5;

/// The messages of records to show: a line that a query server wrote to standard error, a reducer's error.
const MESSAGES: [&str; 2] = ["query server stderr", "a built-in sum is too long"];

/// The keys of the text to show in these records.
const KEYS: [&str; 2] = ["line", "error"];

/// Shows lines logged by functions. As a drain of the pool's log, it finds some of them in its records.
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

    /// Reports the number of all lines, unless all were shown.
    pub(super) fn summarise(&self) {
        let count = self.count.load(Ordering::Relaxed);
        if count > SHOWN_MAX {
            tell(&format!(
                "{count} log lines, the first {SHOWN_MAX} are shown"
            ));
        }
    }
}

/// Prints text on its own line.
pub(super) fn tell(text: &str) {
    // A function's line is one line here, regardless of its characters.
    let text = text.replace(is_unprintable, " ");
    clear_line();
    print_error(&format!("settee: {text}\n"));
}

impl Drain for LogLines {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        let message = record.msg().to_string();
        if MESSAGES.contains(&message.as_str()) {
            let mut line = Line(String::new());
            // The serializer below cannot fail.
            let _ = record.kv().serialize(record, &mut line);
            self.add(&line.0);
        }
        Ok(())
    }
}

/// Extracts the value of a key in [`KEYS`].
struct Line(String);

impl Serializer for Line {
    fn emit_arguments(&mut self, key: Key, value: &fmt::Arguments<'_>) -> slog::Result {
        if KEYS.contains(&key) {
            self.0 = value.to_string();
        }
        Ok(())
    }
}
