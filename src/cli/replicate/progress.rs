//! How far a replication is, on standard error when that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::messages::replication_job::JobProgress;
use crate::replication::stats::Stats;

/// Goes to the beginning of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[K";

/// A line that is drawn anew with everything the job tells.
pub(super) struct Progress {
    is_seen: bool,
    start: Instant,
    began_with: Stats,
}

impl Progress {
    pub(super) fn start() -> Self {
        Self {
            is_seen: io::stderr().is_terminal(),
            start: Instant::now(),
            began_with: Stats::default(),
        }
    }

    /// The databases are open; what was counted before this run is known.
    pub(super) fn begins(&mut self, now: &JobProgress) {
        self.start = Instant::now();
        self.began_with = now.stats;
        self.shows(now);
    }

    pub(super) fn shows(&self, now: &JobProgress) {
        if self.is_seen {
            let line = line(now, self.began_with, self.start.elapsed());
            // Nobody is left to tell when standard error is gone.
            let _ = io::stderr().write_all(format!("{CLEAR_LINE}{line}").as_bytes());
        }
    }

    /// Clears the line. Returns what was counted before this run.
    pub(super) fn end(self) -> Stats {
        if self.is_seen {
            let _ = io::stderr().write_all(CLEAR_LINE.as_bytes());
        }
        self.began_with
    }
}

fn line(now: &JobProgress, began_with: Stats, elapsed: Duration) -> String {
    let count = |now: u64, before: u64| now.saturating_sub(before);
    let written = count(now.stats.docs_written, began_with.docs_written);
    let looked_at = count(now.stats.missing_checked, began_with.missing_checked);
    let refused = count(now.stats.doc_write_failures, began_with.doc_write_failures);
    let seconds = elapsed.as_secs_f64().max(0.001);
    #[expect(clippy::cast_precision_loss, reason = "rates are rounded anyway")]
    let (rate, speed, pace) = (
        written as f64 / seconds,
        now.bytes_written as f64 / seconds / 1_000_000.0,
        looked_at as f64 / seconds,
    );
    let mut line = format!("{written} documents, {rate:.0} documents/s, {speed:.1} MB/s");
    if refused > 0 {
        line.push_str(&format!(", {refused} refused"));
    }
    if let Some(pending) = now.changes_pending {
        line.push_str(&format!(", {pending} changes to come"));
        #[expect(clippy::cast_precision_loss, reason = "a guess anyway")]
        let left = pending as f64 / pace;
        if left.is_finite() && pending > 0 {
            line.push_str(&format!(", about {}", duration(left)));
        }
    }
    line
}

/// A time for people.
fn duration(seconds: f64) -> String {
    let seconds = Duration::from_secs_f64(seconds.clamp(0.0, 1e9)).as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        _ => format!("{}:{:02} h", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::seq::Seq;

    #[test]
    fn the_line_tells_counts_rates_and_what_is_to_come() {
        let stats = |number| Stats {
            docs_written: number,
            missing_checked: number,
            ..Stats::default()
        };
        let mut now = JobProgress {
            stats: stats(1500),
            bytes_written: 3_000_000,
            source_seq: Seq::zero(),
            through_seq: Seq::zero(),
            checkpointed_source_seq: Seq::zero(),
            changes_pending: Some(50_000),
        };
        let text = line(&now, stats(500), Duration::from_secs(2));
        let expected =
            "1000 documents, 500 documents/s, 1.5 MB/s, 50000 changes to come, about 1:40 min";
        assert_eq!(text, expected);
        now.changes_pending = None;
        now.stats.doc_write_failures = 2;
        let text = line(&now, stats(500), Duration::from_secs(2));
        assert_eq!(text, "1000 documents, 500 documents/s, 1.5 MB/s, 2 refused");
        assert_eq!(
            (duration(59.0), duration(7260.0)),
            ("59 s".into(), "2:01 h".into())
        );
    }
}
