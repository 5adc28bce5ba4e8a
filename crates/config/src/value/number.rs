//! Numbers: counts, durations and sizes with their units, ratios.

use std::ops::RangeInclusive;

use super::Raw;

/// Suffixes of durations, in milliseconds.
pub(super) const DURATIONS: &[(&str, i128)] = &[
    ("ms", 1),
    ("s", 1000),
    ("min", 60_000),
    ("m", 60_000),
    ("h", 3_600_000),
];

/// Suffixes of sizes, in bytes.
pub(super) const BYTES: &[(&str, i128)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

/// Returns an integer in the smallest unit; a number without a unit is multiplied by `scale`.
pub(super) fn whole(
    raw: &Raw,
    scale: u64,
    units: &[(&str, i128)],
    range: RangeInclusive<u64>,
) -> Result<u64, String> {
    let scale = i128::from(scale);
    let number = match raw {
        Raw::Integer(number) => number.map(|number| number.saturating_mul(scale)),
        raw => raw.text().and_then(|text| with_unit(text, scale, units)),
    };
    let number = number.ok_or(raw.misfit())?;
    let problem = match u64::try_from(number) {
        Ok(number) if range.contains(&number) => return Ok(number),
        _ if number < 0 => "negative",
        _ if number < i128::from(*range.start()) => "too small",
        _ => "too large",
    };
    Err(format!("{} is {problem}", raw.describe()))
}

fn with_unit(text: &str, scale: i128, units: &[(&str, i128)]) -> Option<i128> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '-' && c != '+');
    let (digits, unit) = text.split_at(digits_end.unwrap_or(text.len()));
    let number: i128 = digits.parse().ok()?;
    let factor = match unit.trim_start() {
        "" => scale,
        suffix => units.iter().find(|(name, _)| *name == suffix)?.1,
    };
    Some(number.saturating_mul(factor))
}

/// Returns a ratio from 0 to `max`. Integers are allowed: CouchDB silently replaces `3` with 2.0.
pub(super) fn ratio(raw: &Raw, max: f64) -> Result<f64, String> {
    let number = match raw {
        Raw::Float(number) => Some(*number),
        Raw::Integer(number) => number.map(|number| number as f64),
        raw => raw.text().and_then(|text| text.parse().ok()),
    };
    match number {
        Some(number) if (0.0..=max).contains(&number) => Ok(number),
        Some(number) if number < 0.0 => Err(format!("{} is negative", raw.describe())),
        Some(number) if number.is_finite() => Err(format!("{} is too large", raw.describe())),
        _ => Err(raw.misfit()),
    }
}
