//! What functions log, on standard error: the first lines, and how many there were.
//!
//! SUMMARY   A drain for the pool's log that lets only the functions' own lines through.
//! LIMITS    With --socket the lines are in the service's log.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cli::terminal::clear_line;
use slog::{Drain, KV, Key, Never, OwnedKVList, Record, Serializer};

/// How many lines are shown.
const SHOWN_MAX: u64 = 5;

/// Records that carry a line of a function, of its query server, or of a built-in reducer.
const MESSAGES: [&str; 3] = [
    "query server log",
    "query server stderr",
    "a built-in sum is too long",
];

/// The record that tells how many lines were left out.
const LEFT_OUT: &str = "lines of a query server were left out";

/// The keys under which they carry it.
const KEYS: [&str; 2] = ["line", "error"];

/// The lines that functions logged: a drain for the log that has them among its records.
#[derive(Clone, Debug, Default)]
pub(super) struct LogLines {
    count: Arc<AtomicU64>,
}

impl LogLines {
    fn add(&self, line: &str) {
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

fn tell(text: &str) {
    // A function's line is one line here, whatever is in it.
    let text = text.replace(char::is_control, " ");
    clear_line();
    // Nobody is left to tell when standard error is gone.
    let _ = io::stderr().write_all(format!("settee: {text}\n").as_bytes());
}

impl Drain for LogLines {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        let message = record.msg().to_string();
        let (is_line, is_count) = (MESSAGES.contains(&message.as_str()), message == LEFT_OUT);
        if is_line || is_count {
            let mut line = Line(String::new(), if is_line { &KEYS } else { &["count"] });
            // The serializer below refuses nothing.
            let _ = record.kv().serialize(record, &mut line);
            match is_line {
                true => self.add(&line.0),
                // Lines that were left out of the log count too.
                false => {
                    let lines = line.0.parse().unwrap_or_default();
                    self.count.fetch_add(lines, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }
}

/// Picks the value of the key that carries it.
struct Line(String, &'static [&'static str]);

impl Serializer for Line {
    fn emit_arguments(&mut self, key: Key, value: &fmt::Arguments<'_>) -> slog::Result {
        if self.1.contains(&key) {
            self.0 = value.to_string();
        }
        Ok(())
    }
}
