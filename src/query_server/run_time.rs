//! The run time of a call.
//!
//! SUMMARY   [`RunTime`] selects which part of a call's time is its run time. [`WorkingTime`] is the time during which
//!           any process has an unanswered prompt of the call.

use std::time::Duration;

use tokio::time::Instant;

/// Which time of a call counts as run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RunTime {
    /// From the first process to the end of the call.
    #[default]
    Whole,
    /// Only while a process works for it: the client may send and read slowly in between.
    Work,
}

/// The time during which processes work for a call.
#[derive(Debug, Default)]
pub(crate) struct WorkingTime {
    /// The number of unanswered prompts.
    unanswered: usize,
    /// Start of the current working time.
    since: Option<Instant>,
    /// Working time before that.
    time: Duration,
}

impl WorkingTime {
    /// Adds this many prompts.
    pub(crate) fn ask(&mut self, count: usize) {
        self.unanswered += count;
        self.since.get_or_insert_with(Instant::now);
    }

    /// Records an answer.
    pub(crate) fn answer(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if self.unanswered == 0 {
            self.time = self.so_far();
            self.since = None;
        }
    }

    /// Returns the time until now.
    pub(crate) fn so_far(&self) -> Duration {
        self.time + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_time_in_which_a_prompt_waits_for_its_answer_is_work() {
        let mut work = WorkingTime::default();
        let pass = async |seconds| tokio::time::advance(Duration::from_secs(seconds)).await;
        pass(1).await;
        assert_eq!(work.so_far(), Duration::ZERO);
        work.ask(2);
        pass(10).await;
        work.answer();
        work.ask(1);
        pass(100).await;
        assert_eq!(work.so_far(), Duration::from_secs(110));
        work.answer();
        work.answer();
        pass(1000).await;
        work.ask(1);
        pass(1).await;
        assert_eq!(work.so_far(), Duration::from_secs(111));
    }
}
