//! Progress on standard error, if that is a terminal.

use std::io::{self, IsTerminal};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::cli::terminal::{clear_line, draw_line, per_second};
use crate::functions::view::Counts;

/// Interval of redraws.
const INTERVAL: Duration = Duration::from_millis(200);

/// A line with the progress; drawn by a task on the same thread.
pub(super) struct Progress {
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Progress {
    /// Starts drawing if standard error is a terminal, unless rows are printed (`prints`) to a terminal, too.
    pub(super) fn start(counts: Rc<Counts>, prints: bool) -> Self {
        let draw = async move {
            let start = Instant::now();
            let mut ticks = actix_rt::time::interval(INTERVAL);
            loop {
                ticks.tick().await;
                draw_line(&line(&counts, start.elapsed()));
            }
        };
        let is_seen = io::stderr().is_terminal() && !(prints && io::stdout().is_terminal());
        let task = is_seen.then(|| actix_rt::spawn(draw));
        Self { task }
    }

    /// Stops drawing and clears the line.
    pub(super) fn end(&self) {
        if let Some(task) = &self.task
            && !task.is_finished()
        {
            task.abort();
            clear_line();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

fn line(counts: &Counts, elapsed: Duration) -> String {
    let documents = counts.documents.get();
    let rate = per_second(documents, elapsed);
    let speed = per_second(counts.bytes.get(), elapsed) / 1_000_000.0;
    let rows = counts.rows.get();
    format!("{documents} documents, {rows} rows, {rate:.0} documents/s, {speed:.1} MB/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_counts_and_rates() {
        let counts = Counts::default();
        counts.documents.set(1000);
        counts.rows.set(2500);
        counts.bytes.set(3_000_000);
        assert_eq!(
            line(&counts, Duration::from_secs(2)),
            "1000 documents, 2500 rows, 500 documents/s, 1.5 MB/s"
        );
    }
}
