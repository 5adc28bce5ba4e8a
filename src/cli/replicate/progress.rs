//! Shows a replication's progress on standard error, if that is a terminal.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use crate::cli::terminal::{clear_line, draw_line, per_second};
use crate::messages::replication_job::JobProgress;
use replication::counters::Stats;

/// A line redrawn with each report of the job.
pub(super) struct Progress {
    is_seen: bool,
    start: Instant,
    began_with: Stats,
    left: Left,
}

/// The number of pending changes: the source is polled occasionally, and changes read since are subtracted.
#[derive(Default)]
struct Left {
    /// The source's last answer, and the number of revisions read by then.
    told: Option<(u64, u64)>,
}

impl Left {
    /// Updates the number. Returns the remaining changes, if the source reports them.
    fn after(&mut self, now: &JobProgress) -> Option<u64> {
        let pending = now.changes_pending?;
        let looked_at = now.stats.missing_checked;
        let (told, then) = *self.told.get_or_insert((pending, looked_at));
        if told != pending {
            self.told = Some((pending, looked_at));
            return Some(pending);
        }
        Some(pending.saturating_sub(looked_at.saturating_sub(then)))
    }
}

impl Progress {
    pub(super) fn start() -> Self {
        Self {
            is_seen: io::stderr().is_terminal(),
            start: Instant::now(),
            began_with: Stats::default(),
            left: Left::default(),
        }
    }

    /// Shows the first progress, once the databases are open and the counts of earlier runs are known.
    pub(super) fn begins(&mut self, now: &JobProgress) {
        self.start = Instant::now();
        self.began_with = now.stats;
        self.shows(now);
    }

    pub(super) fn shows(&mut self, now: &JobProgress) {
        if self.is_seen {
            draw_line(&line(
                now,
                self.left.after(now),
                self.began_with,
                self.start.elapsed(),
            ));
        }
    }

    /// Clears the line. Returns the counts of earlier runs.
    pub(super) fn end(self) -> Stats {
        clear_line();
        self.began_with
    }
}

fn line(now: &JobProgress, left: Option<u64>, began_with: Stats, elapsed: Duration) -> String {
    let done = now.stats.since(&began_with);
    let (written, refused) = (done.docs_written, done.doc_write_failures);
    let rate = per_second(written, elapsed);
    let speed = per_second(now.bytes_written, elapsed) / 1_000_000.0;
    let mut line = format!("{written} documents, {rate:.0} documents/s, {speed:.1} MB/s");
    if refused > 0 {
        line.push_str(&format!(", {refused} refused"));
    }
    if let Some(pending) = left {
        line.push_str(&format!(", {pending} changes to come"));
        #[expect(clippy::cast_precision_loss, reason = "a guess anyway")]
        let left = pending as f64 / per_second(done.missing_checked, elapsed);
        if left.is_finite() && pending > 0 {
            line.push_str(&format!(", about {}", duration(left)));
        }
    }
    line
}

/// Formats a time.
pub(super) fn duration(seconds: f64) -> String {
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
    use replication::seq::Seq;

    #[test]
    fn pending_changes_are_counted_down_between_the_answers_of_the_source() {
        let mut left = Left::default();
        let mut at = |pending, missing_checked| {
            left.after(&JobProgress {
                stats: Stats {
                    missing_checked,
                    ..Stats::default()
                },
                bytes_written: 0,
                source_seq: Seq::zero(),
                through_seq: Seq::zero(),
                checkpointed_source_seq: Seq::zero(),
                changes_pending: pending,
                own_feed: None,
            })
        };
        assert_eq!(at(None, 0), None);
        let shown = [
            (1000, 10),
            (1000, 60),
            (1000, 500),
            (600, 510),
            (600, 700),
            (600, 2000),
            (0, 2000),
        ];
        let shown = shown.map(|(pending, looked_at)| at(Some(pending), looked_at));
        assert_eq!(shown, [1000, 950, 510, 600, 410, 0, 0].map(Some));
    }

    #[test]
    fn the_line_shows_counts_rates_and_pending_changes() {
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
            own_feed: None,
        };
        let left = now.changes_pending;
        let text = line(&now, left, stats(500), Duration::from_secs(2));
        let expected =
            "1000 documents, 500 documents/s, 1.5 MB/s, 50000 changes to come, about 1:40 min";
        assert_eq!(text, expected);
        now.changes_pending = None;
        now.stats.doc_write_failures = 2;
        let text = line(&now, None, stats(500), Duration::from_secs(2));
        assert_eq!(text, "1000 documents, 500 documents/s, 1.5 MB/s, 2 refused");
        assert_eq!(
            (duration(59.0), duration(7260.0)),
            ("59 s".into(), "2:01 h".into())
        );
    }
}
