//! A job's history, and values derived from it: consecutive crashes, the latest start.
//!
//! SOURCE    couch_replicator_scheduler 004: update_history, consecutive_crashes,
//!           latest_crash_timestamp, last_started.

use std::sync::Arc;
use std::time::Duration;

use super::WallTime;

/// Maximum length of a reason's text, in bytes; longer ones are cut. Every job has a history, and reasons come from
/// remote servers.
pub(crate) const REASON_BYTES_MAX: usize = 512;

/// Why a job crashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// As shown to users, without credentials.
    pub text: Box<str>,
    /// For lists: one line without ids, equal for equal causes.
    pub short: Box<str>,
    /// Whether the job gave up after too many 429 responses (`max_backoff`).
    pub rate_limited: bool,
}

impl Reason {
    /// Makes a reason, cut to [`REASON_BYTES_MAX`], with a summary short enough for lists.
    pub fn new(text: &str, rate_limited: bool) -> Self {
        Self::with_short(text, text, rate_limited)
    }

    /// Makes a reason with another text for lists; both are cut to [`REASON_BYTES_MAX`].
    pub fn with_short(text: &str, short: &str, rate_limited: bool) -> Self {
        let cut = |text: &str| text[..text.floor_char_boundary(REASON_BYTES_MAX)].into();
        Self {
            text: cut(text),
            short: cut(short),
            rate_limited,
        }
    }
}

/// The kind of event.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum HistoryEvent {
    /// The job became known.
    Added,
    /// It was started.
    Started,
    /// It was stopped, not because of an error.
    Stopped,
    /// It failed, or could not be started.
    Crashed(Arc<Reason>),
}

impl HistoryEvent {
    /// Returns its name in APIs.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    const fn crash(&self) -> Option<&Arc<Reason>> {
        match self {
            Self::Crashed(reason) => Some(reason),
            _ => None,
        }
    }
}

/// An event and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    pub at: WallTime,
    pub what: HistoryEvent,
}

/// A job's latest events.
///
/// # Order
/// Oldest first in memory, so that new events are appended; [`History::iter`] yields the newest first, as shown to
/// users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Vec<HistoryEntry>);

impl History {
    /// Starts a job's history.
    pub fn added(at: WallTime) -> Self {
        let what = HistoryEvent::Added;
        Self(vec![HistoryEntry { at, what }])
    }

    /// Continues the history of another scheduler's job. A run without a known end counts as ended with its
    /// scheduler, not as a crash.
    pub(super) fn resume(mut self, now: WallTime, max: usize) -> Self {
        for entry in &mut self.0 {
            entry.at = entry.at.min(now);
        }
        match self.newest() {
            None => return Self::added(now),
            Some(newest) if newest.what == HistoryEvent::Started => {
                self.push(now, HistoryEvent::Stopped, max);
            }
            Some(_) => self.trim(max),
        }
        self
    }

    /// Appends an event, and drops the oldest ones beyond `max`; at least one is kept.
    pub fn push(&mut self, at: WallTime, what: HistoryEvent, max: usize) {
        self.0.push(HistoryEntry { at, what });
        self.trim(max);
    }

    fn trim(&mut self, max: usize) {
        let excess = self.0.len().saturating_sub(max.max(1));
        self.0.drain(..excess);
    }

    /// Returns the events, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &HistoryEntry> {
        self.0.iter().rev()
    }

    /// Returns the newest event.
    pub fn newest(&self) -> Option<&HistoryEntry> {
        self.0.last()
    }

    /// Returns the newest event's reason, if it is a crash.
    pub(crate) fn fresh_crash(&self) -> Option<&Arc<Reason>> {
        self.newest()?.what.crash()
    }

    /// Returns the latest known crash reason.
    pub(crate) fn latest_crash_reason(&self) -> Option<&Arc<Reason>> {
        self.iter().find_map(|entry| entry.what.crash())
    }

    /// Returns the time of the latest crash, [`WallTime::ZERO`] without one.
    pub(crate) fn latest_crash(&self) -> WallTime {
        let mut entries = self.iter();
        let crash = entries.find(|entry| entry.what.crash().is_some());
        crash.map_or(WallTime::ZERO, |entry| entry.at)
    }

    /// Returns the time of the latest start, [`WallTime::ZERO`] without one.
    pub fn last_started(&self) -> WallTime {
        let mut entries = self.iter();
        let start = entries.find(|entry| entry.what == HistoryEvent::Started);
        start.map_or(WallTime::ZERO, |entry| entry.at)
    }

    /// Counts the crashes since the job was last healthy.
    ///
    /// A crash counts if the event before it is at most `health_threshold` older: then the job had not run long
    /// enough to be healthy. A crash after a longer time ends the count and is not part of it; so does a stopped run.
    /// A crash without a known earlier event does not count.
    pub(crate) fn consecutive_crashes(&self, health_threshold: Duration) -> u32 {
        let mut count = 0;
        let mut entries = self.iter().peekable();
        while let Some(entry) = entries.next() {
            match (&entry.what, entries.peek()) {
                (HistoryEvent::Crashed(_), Some(before))
                    if entry.at.since(before.at) > health_threshold =>
                {
                    return count;
                }
                (HistoryEvent::Crashed(_), Some(_)) => count += 1,
                (HistoryEvent::Stopped, Some(before)) if before.what == HistoryEvent::Started => {
                    return count;
                }
                _ => {}
            }
        }
        count
    }

    /// Returns the time of the first of the latest consecutive crashes; `None` if the latest end was not a crash.
    pub(super) fn failing_since(&self, health_threshold: Duration) -> Option<WallTime> {
        let (mut since, mut started) = (None, WallTime::ZERO);
        for entry in &self.0 {
            match entry.what {
                HistoryEvent::Added => {}
                HistoryEvent::Started => started = entry.at,
                HistoryEvent::Stopped => since = None,
                HistoryEvent::Crashed(_) if entry.at.since(started) > health_threshold => {
                    since = Some(entry.at);
                }
                HistoryEvent::Crashed(_) => since = since.or(Some(entry.at)),
            }
        }
        since
    }

    /// Returns how long the job ran before its newest event, zero if unknown.
    pub(crate) fn last_run(&self) -> Duration {
        let mut entries = self.iter();
        match (entries.next(), entries.next()) {
            (Some(newest), Some(before)) if before.what == HistoryEvent::Started => {
                newest.at.since(before.at)
            }
            _ => Duration::ZERO,
        }
    }

    /// Makes a history of these events, newest first.
    pub fn of(newest_first: impl IntoIterator<Item = HistoryEntry>) -> Self {
        let mut entries: Vec<_> = newest_first.into_iter().collect();
        entries.reverse();
        Self(entries)
    }
}
