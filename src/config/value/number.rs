//! Numbers: counts, durations and sizes with their units, ratios.

use config::ValueKind;

use super::super::keys::Kind;
use super::{Fault, Raw, expectation, misfit};

/// Suffixes of durations, in milliseconds.
pub(super) const DURATION_UNITS: &[(&str, i128)] = &[
    ("ms", 1),
    ("s", 1000),
    ("min", 60_000),
    ("m", 60_000),
    ("h", 3_600_000),
];

/// Suffixes of sizes, in bytes.
pub(super) const BYTE_UNITS: &[(&str, i128)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

/// Returns the whole number that `raw` is, or that `of_text` makes of its text.
pub(super) fn whole(raw: &Raw, of_text: impl Fn(&str) -> Option<i128>) -> Option<i128> {
    match raw {
        Raw::Integer(number) => *number,
        Raw::Text(text) => of_text(text.trim()),
        _ => None,
    }
}

/// Returns a plain number in milliseconds; text has been scaled by its own unit already.
pub(super) fn plain(raw: &Raw, number: i128, scale: i128) -> i128 {
    if matches!(raw, Raw::Integer(_)) {
        number.saturating_mul(scale)
    } else {
        number
    }
}

pub(super) fn text_count(text: &str) -> Option<i128> {
    text.parse().ok()
}

/// Returns what `text` is in the smallest unit; a number without a unit counts `scale` of them.
pub(super) fn with_unit(text: &str, scale: i128, units: &[(&str, i128)]) -> Option<i128> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '-' && c != '+');
    let (digits, unit) = text.split_at(digits_end.unwrap_or(text.len()));
    let number: i128 = digits.parse().ok()?;
    let factor = match unit.trim_start() {
        "" => scale,
        suffix => units.iter().find(|(name, _)| *name == suffix)?.1,
    };
    Some(number.saturating_mul(factor))
}

pub(super) fn within(
    kind: Kind,
    number: i128,
    (min, max): (u64, u64),
    raw: &Raw,
) -> Result<ValueKind, Fault> {
    let found = raw.describe();
    let problem = if number < 0 {
        format!("{found} is negative")
    } else if number < i128::from(min) {
        format!("{found} is too small")
    } else if number > i128::from(max) {
        format!("{found} is too large")
    } else {
        let number = u64::try_from(number).expect("value: it lies between two u64");
        return Ok(ValueKind::U64(number));
    };
    Err(Fault {
        what: problem,
        remedy: format!("it must be {}", expectation(kind)),
    })
}

/// A whole number is fine: CouchDB takes `3` for a mistake and falls back to 2.0 without a word.
pub(super) fn ratio(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    let number = match raw {
        Raw::Float(number) => Some(*number),
        Raw::Integer(number) => number.map(|number| number as f64),
        Raw::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    match number {
        Some(number) if number.is_finite() && number >= 0.0 => Ok(ValueKind::Float(number)),
        Some(number) if number < 0.0 => Err(Fault {
            what: format!("{} is negative", raw.describe()),
            remedy: format!("it must be {}", expectation(kind)),
        }),
        _ => Err(misfit(kind, raw)),
    }
}

/// CouchDB takes what is outside of the range for its end, and what is no float, `1` for example,
/// for nothing.
pub(super) fn coefficient(kind: Kind, raw: &Raw) -> Result<ValueKind, Fault> {
    match ratio(kind, raw)? {
        ValueKind::Float(number) if number > 1.0 => Err(Fault {
            what: format!("{} is too large", raw.describe()),
            remedy: format!("it must be {}", expectation(kind)),
        }),
        value => Ok(value),
    }
}
