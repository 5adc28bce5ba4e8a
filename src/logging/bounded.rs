//! Bounds the values of a record, which include external names, errors and messages.
//!
//! SUMMARY   [`Bounded`] wraps the values of a record; strings that do not fit are cut, and end in `…`.
//! LIMITS    Values that a logger adds to all its records do not count: they are names.

use std::fmt::{self, Write as _};

use slog::{BorrowedKV, KV, Key, Record, Serializer};

/// Maximum bytes of all strings of a record.
pub(super) const RECORD_BYTES_MAX: usize = 64 << 10;

/// The values of a record, within the limit.
pub(super) struct Bounded<'a>(pub(super) BorrowedKV<'a>);

impl KV for Bounded<'_> {
    fn serialize(&self, record: &Record<'_>, to: &mut dyn Serializer) -> slog::Result {
        let left = RECORD_BYTES_MAX;
        self.0.serialize(record, &mut Cutter { to, left })
    }
}

/// Passes on as much as fits.
struct Cutter<'a> {
    to: &'a mut dyn Serializer,
    left: usize,
}

/// A string with a maximum length, in bytes.
struct Within {
    text: String,
    left: usize,
}

impl fmt::Write for Within {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let fits = &more[..more.floor_char_boundary(self.left)];
        self.text.push_str(fits);
        self.left -= fits.len();
        if fits.len() == more.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// Passes on values that are not strings.
macro_rules! pass_on {
    ($($what:ident $type:ty;)*) => {
        $(fn $what(&mut self, key: Key, value: $type) -> slog::Result {
            self.to.$what(key, value)
        })*
    };
}

impl Serializer for Cutter<'_> {
    pass_on! {
        emit_usize usize;
        emit_isize isize;
        emit_bool bool;
        emit_char char;
        emit_u8 u8;
        emit_i8 i8;
        emit_u16 u16;
        emit_i16 i16;
        emit_u32 u32;
        emit_i32 i32;
        emit_u64 u64;
        emit_i64 i64;
        emit_f32 f32;
        emit_f64 f64;
    }

    fn emit_unit(&mut self, key: Key) -> slog::Result {
        self.to.emit_unit(key)
    }

    fn emit_none(&mut self, key: Key) -> slog::Result {
        self.to.emit_none(key)
    }

    fn emit_arguments(&mut self, key: Key, value: &fmt::Arguments<'_>) -> slog::Result {
        let (text, left) = (String::new(), self.left);
        let mut within = Within { text, left };
        if within.write_fmt(*value).is_err() {
            within.text.push('…');
        }
        self.left = within.left;
        self.to.emit_str(key, &within.text)
    }

    fn emit_str(&mut self, key: Key, value: &str) -> slog::Result {
        if value.len() > self.left {
            return self.emit_arguments(key, &format_args!("{value}"));
        }
        self.left -= value.len();
        self.to.emit_str(key, value)
    }
}
