//! Keeps what disturbs a terminal out of the log: names, lines of functions and answers of servers are in it.
//!
//! SUMMARY   [`PlainWriter`] writes each unprintable character of a text as JSON does, `\u202e`; between the strings
//!           of JSON there are none, so that a reader of the log gets the text as it was. [`PlainTexts`] does it for
//!           people, whose colours stay.
//! LIMITS    A writer must be given whole characters: both forms of the log write texts, or parts of texts.

use std::fmt::Write as _;
use std::io::{self, Write};

use json::shown::is_unprintable;
use slog::{OwnedKVList, Record};
use slog_term::{Decorator, RecordDecorator};

/// Writes a text without what is unprintable.
fn write_plain(to: &mut (impl Write + ?Sized), bytes: &[u8]) -> io::Result<usize> {
    match std::str::from_utf8(bytes) {
        // The line feed at the end of a record, which is written alone.
        Ok("\n") => to.write_all(bytes)?,
        Ok(text) if text.contains(is_unprintable) => {
            let mut plain = String::with_capacity(text.len() + 8);
            for character in text.chars() {
                match is_unprintable(character) {
                    // A text in memory takes everything; all of them have four digits.
                    true => drop(write!(plain, "\\u{:04x}", u32::from(character))),
                    false => plain.push(character),
                }
            }
            to.write_all(plain.as_bytes())?;
        }
        _ => to.write_all(bytes)?,
    }
    Ok(bytes.len())
}

/// A writer of the log's lines.
pub(super) struct PlainWriter<W>(pub(super) W);

impl<W: Write> Write for PlainWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_plain(&mut self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// What writes the log for people.
pub(super) struct PlainTexts<D>(pub(super) D);

impl<D: Decorator> Decorator for PlainTexts<D> {
    fn with_record<F>(&self, record: &Record<'_>, values: &OwnedKVList, write: F) -> io::Result<()>
    where
        F: FnOnce(&mut dyn RecordDecorator) -> io::Result<()>,
    {
        self.0
            .with_record(record, values, |inner| write(&mut PlainRecord(inner)))
    }
}

struct PlainRecord<'a>(&'a mut dyn RecordDecorator);

impl Write for PlainRecord<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_plain(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Passes what begins on to the one below, which has the colours.
macro_rules! pass_on {
    ($($what:ident)*) => {
        impl RecordDecorator for PlainRecord<'_> {
            $(fn $what(&mut self) -> io::Result<()> { self.0.$what() })*
        }
    };
}

pass_on! {
    reset start_whitespace start_msg start_timestamp start_level start_comma start_key start_value start_location
    start_separator
}
