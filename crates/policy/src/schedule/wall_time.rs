//! Wall-clock times, used in histories.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Days from 1 March of the year 0 to 1 January 1970.
const FROM_YEAR_ZERO: u64 = 719_468;

/// An instant in UTC, as shown to users in histories.
///
/// # Units
/// Microseconds since 1970. Shown in whole seconds: `2026-11-22T00:07:17Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

impl WallTime {
    /// The beginning of 1970; for starts it also means "never".
    pub const ZERO: Self = Self(0);

    /// Returns the instant this many microseconds after the beginning of 1970.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the beginning of 1970.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Parses the shown form. Days and times of day out of range are accepted.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let of_day = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
        // The day of a year that begins in March, as in `date`.
        let (year, month) = match month {
            1 | 2 => (year.checked_sub(1)?, month + 9),
            3..=12 => (year, month - 3),
            _ => return None,
        };
        let day = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
        let days = day.checked_sub(FROM_YEAR_ZERO + 1)?;
        Some(Self((days * SECONDS_PER_DAY + of_day) * 1_000_000))
    }

    /// Returns the time since `earlier`, zero if that is in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for WallTime {
    type Output = Self;

    /// Saturates.
    fn add(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000_000;
        let (year, month, day) = date(seconds / SECONDS_PER_DAY);
        let of_day = seconds % SECONDS_PER_DAY;
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

/// Returns year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last day of its year; the calendar repeats every 400
/// years.
const fn date(day: u64) -> (u64, u64, u64) {
    const DAYS_PER_PERIOD: u64 = 146_097;
    let day = day + FROM_YEAR_ZERO;
    let of_period = day % DAYS_PER_PERIOD;
    let leap_days = of_period / 1_460 - of_period / 36_524 + of_period / 146_096;
    let year_of_period = (of_period - leap_days) / 365;
    let of_year = of_period - (365 * year_of_period + year_of_period / 4 - year_of_period / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * month_from_march + 2) / 5 + 1;
    let year = day / DAYS_PER_PERIOD * 400 + year_of_period;
    if month_from_march < 10 {
        (year, month_from_march + 3, day_of_month)
    } else {
        (year + 1, month_from_march - 9, day_of_month)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_shown_in_whole_seconds_of_utc() {
        let shown = |seconds: u64| WallTime::from_micros(seconds * 1_000_000 + 999_999).to_string();
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_493_442_097, "2017-04-29T05:01:37Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(shown(seconds), text);
            let read = WallTime::parse(text);
            assert_eq!(read, Some(WallTime::from_micros(seconds * 1_000_000)));
        }
        for text in [
            "",
            "2017",
            "2017-13-01T00:00:00Z",
            "1969-12-31T00:00:00Z",
            "x",
        ] {
            assert_eq!(WallTime::parse(text), None, "{text}");
        }
    }
}
