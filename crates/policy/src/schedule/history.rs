//! What happened to a job, and what follows from it: crashes in a row, the latest start.
//!
//! SOURCE    couch_replicator_scheduler 004: update_history, consecutive_crashes,
//!           latest_crash_timestamp, last_started.

use std::sync::Arc;
use std::time::Duration;

use super::wall_time::WallTime;

/// What the text of a reason may take, in bytes; what is longer is cut. Histories are kept for every
/// job, and reasons come from remote servers.
pub(crate) const REASON_BYTES_MAX: usize = 512;

/// Why a job crashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// In words, as users see it, without credentials.
    pub text: Box<str>,
    /// Whether a server asked for less so often that the job gave up (`max_backoff`).
    pub rate_limited: bool,
}

impl Reason {
    /// Makes a reason, cut to [`REASON_BYTES_MAX`].
    pub fn new(text: &str, rate_limited: bool) -> Self {
        let mut end = text.len().min(REASON_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            text: text[..end].into(),
            rate_limited,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The job became known.
    Added,
    /// It was started.
    Started,
    /// It was stopped, without any fault of its own.
    Stopped,
    /// It failed, or could not be started.
    Crashed(Arc<Reason>),
}

impl What {
    /// Returns the name on the wire.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Started => "started",
            Self::Stopped => "stopped",
            Self::Crashed(_) => "crashed",
        }
    }
}

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: WallTime,
    /// What.
    pub what: What,
}

/// The latest events of a job.
///
/// # Order
/// The oldest first in memory, so that one more is written at the end; [`History::iter`] gives the
/// newest first, as users see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Vec<Entry>);

impl History {
    /// Begins the history of a job.
    pub fn added(at: WallTime) -> Self {
        let what = What::Added;
        Self(vec![Entry { at, what }])
    }

    /// Writes an event down, and forgets the oldest ones beyond `max`, of which at least one stays.
    pub fn push(&mut self, at: WallTime, what: What, max: usize) {
        self.0.push(Entry { at, what });
        let excess = self.0.len().saturating_sub(max.max(1));
        self.0.drain(..excess);
    }

    /// Returns the events, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().rev()
    }

    /// Returns the newest event.
    pub fn newest(&self) -> Option<&Entry> {
        self.0.last()
    }

    /// Returns the reason of the newest event, if that is a crash.
    pub(crate) fn fresh_crash(&self) -> Option<&Arc<Reason>> {
        match &self.newest()?.what {
            What::Crashed(reason) => Some(reason),
            What::Added | What::Started | What::Stopped => None,
        }
    }

    /// Returns the reason of the latest crash that is still known.
    pub(crate) fn latest_crash_reason(&self) -> Option<&Arc<Reason>> {
        self.iter().find_map(|entry| match &entry.what {
            What::Crashed(reason) => Some(reason),
            What::Added | What::Started | What::Stopped => None,
        })
    }

    /// Returns when the latest crash was, [`WallTime::ZERO`] without one.
    pub(crate) fn latest_crash(&self) -> WallTime {
        let mut entries = self.iter();
        let crash = entries.find(|entry| matches!(entry.what, What::Crashed(_)));
        crash.map_or(WallTime::ZERO, |entry| entry.at)
    }

    /// Returns when the latest start was, [`WallTime::ZERO`] without one.
    pub fn last_started(&self) -> WallTime {
        let mut entries = self.iter();
        let start = entries.find(|entry| entry.what == What::Started);
        start.map_or(WallTime::ZERO, |entry| entry.at)
    }

    /// Counts the crashes since the job was last in good health.
    ///
    /// A crash counts when the event before it is no longer ago than `health_threshold`: then the
    /// job had not run for long enough to be called healthy. A crash after a longer time ends the
    /// count and is not part of it; so does a run that was stopped. A crash before which nothing is
    /// known does not count.
    pub(crate) fn consecutive_crashes(&self, health_threshold: Duration) -> u32 {
        let mut count = 0;
        let mut entries = self.iter().peekable();
        while let Some(entry) = entries.next() {
            match (&entry.what, entries.peek()) {
                (What::Crashed(_), Some(before))
                    if entry.at.since(before.at) > health_threshold =>
                {
                    return count;
                }
                (What::Crashed(_), Some(_)) => count += 1,
                (What::Stopped, Some(before)) if before.what == What::Started => return count,
                _ => {}
            }
        }
        count
    }

    /// Returns how long the job ran before its newest event, zero if that is not known.
    pub(crate) fn last_run(&self) -> Duration {
        let mut entries = self.iter();
        match (entries.next(), entries.next()) {
            (Some(newest), Some(before)) if before.what == What::Started => {
                newest.at.since(before.at)
            }
            _ => Duration::ZERO,
        }
    }

    /// Makes a history of any events, the newest first.
    #[cfg(test)]
    pub(super) fn of(newest_first: impl IntoIterator<Item = Entry>) -> Self {
        let mut entries: Vec<_> = newest_first.into_iter().collect();
        entries.reverse();
        Self(entries)
    }
}
