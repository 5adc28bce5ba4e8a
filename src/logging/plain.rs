//! Keeps terminal escapes out of the log, which contains names, lines of functions and answers of servers.
//!
//! SUMMARY   [`PlainWriter`] writes each unprintable character of a text as JSON does, such as `\u202e`; in JSON such
//!           characters occur only inside strings, so that a parser of the log gets the original text. [`PlainTexts`]
//!           does so in the human-readable log, and keeps its colours.
//! LIMITS    Bytes that are not whole characters are written unchanged, but both forms of the log write only whole
//!           characters.

use std::fmt::Write as _;
use std::io::{self, Write};

use json::shown::is_unprintable;
use slog::{OwnedKVList, Record};
use slog_term::{Decorator, RecordDecorator};

/// Writes the texts of the log with unprintable characters escaped.
pub(super) struct PlainWriter<W>(pub(super) W);

impl<W: Write> Write for PlainWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            // The line feed that ends a record is written alone.
            Ok("\n") => self.0.write_all(bytes)?,
            Ok(text) if text.contains(is_unprintable) => {
                let mut plain = String::with_capacity(text.len() + 8);
                for character in text.chars() {
                    if is_unprintable(character) {
                        // Writing to memory does not fail; all unprintable characters fit four digits.
                        let _ = write!(plain, "\\u{:04x}", u32::from(character));
                    } else {
                        plain.push(character);
                    }
                }
                self.0.write_all(plain.as_bytes())?;
            }
            _ => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes the human-readable log.
pub(super) struct PlainTexts<D>(pub(super) D);

impl<D: Decorator> Decorator for PlainTexts<D> {
    fn with_record<F>(&self, record: &Record<'_>, values: &OwnedKVList, write: F) -> io::Result<()>
    where
        F: FnOnce(&mut dyn RecordDecorator) -> io::Result<()>,
    {
        self.0
            .with_record(record, values, |inner| write(&mut PlainWriter(inner)))
    }
}

/// Forwards the start of each part of a record to the inner decorator, which adds colours.
macro_rules! pass_on {
    ($($what:ident)*) => {
        impl RecordDecorator for PlainWriter<&mut dyn RecordDecorator> {
            $(fn $what(&mut self) -> io::Result<()> { self.0.$what() })*
        }
    };
}

pass_on! {
    reset start_whitespace start_msg start_timestamp start_level start_comma start_key start_value start_location
    start_separator
}
