//! A process's unanswered prompts, in the order of the answers.
//!
//! PROMISES  Each is answered once, by the process or with an error. The deadline is the oldest prompt's, and counts
//!           from when it became the oldest.
//! SOURCE    couch_os_process has one prompt at a time; this is its state for many.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::time::Instant;
use bytes::Bytes;

use crate::messages::process::{AnswerTo, ProcShared, PromptError, RESET_FAILED};
use crate::metrics::LanguageMetrics;
use crate::query_server::call::{Call, Loan};
use crate::query_server::proc_shared::ProcFlag;
use crate::query_server::prompt::{Command, leaves_list_open};
use crate::query_server::prompt_error::TOO_MANY_ANSWERS;

/// The unanswered commands of one message.
pub(super) struct UnansweredPrompt {
    pub answer_to: AnswerTo,
    /// The commands, oldest first; at least one.
    pub commands: std::vec::IntoIter<Command>,
    /// The timeout of each command.
    pub timeout: Duration,
    /// The configuration key that sets this timeout for a tenant, if one does.
    pub tenant_key: Option<Arc<str>>,
    /// The timeout of each `reset` among them.
    pub reset_timeout: Duration,
    /// All output for it so far, if the answer must be verbatim.
    pub transcript: Option<Vec<u8>>,
    /// The loan that they belong to.
    pub loan: Option<Arc<Loan>>,
    /// Whether it begins with an unanswered `reset` after another holder: any answer but `true` may be for that
    /// holder.
    pub unless_true: bool,
    /// Whether it selects an isolate.
    pub selects: bool,
}

impl UnansweredPrompt {
    fn oldest(&self) -> Option<Command> {
        self.commands.as_slice().first().copied()
    }

    /// The timeout of the oldest.
    fn time(&self) -> Duration {
        match self.oldest() {
            Some(Command::Reset) => self.reset_timeout,
            _ => self.timeout,
        }
    }

    /// The line of the oldest, if that is a call's fence.
    fn fence(&self) -> Option<&Bytes> {
        (self.commands.len() == 1)
            .then(|| self.answer_to.fence())
            .flatten()
    }
}

/// All unanswered prompts.
pub struct Unanswered {
    /// Oldest first.
    queue: VecDeque<UnansweredPrompt>,
    /// The number of prompts.
    count: usize,
    /// When the oldest prompt became the oldest.
    head_since: Instant,
    shared: Arc<ProcShared>,
    metrics: Arc<LanguageMetrics>,
}

impl Unanswered {
    pub(super) fn new(shared: Arc<ProcShared>, metrics: Arc<LanguageMetrics>) -> Self {
        Self {
            queue: VecDeque::new(),
            count: 0,
            head_since: Instant::now(),
            shared,
            metrics,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// The loan of the oldest.
    pub(super) fn loan(&self) -> Option<&Arc<Loan>> {
        self.queue.front()?.loan.as_ref()
    }

    /// The call of the oldest.
    pub(super) fn call(&self) -> Option<&Arc<Call>> {
        self.loan().map(|loan| &loan.call)
    }

    /// The fault if the process answers the oldest with anything but the required `true`.
    pub(super) fn unless_true(&self) -> Option<&'static str> {
        let head = self.queue.front()?;
        head.fence()
            .map(|_| TOO_MANY_ANSWERS)
            .or(head.unless_true.then_some(RESET_FAILED))
    }

    /// Whether the oldest selects an isolate.
    pub(super) fn selects(&self) -> bool {
        self.queue.front().is_some_and(|head| head.selects)
    }

    /// Whether the next output may be for an earlier holder.
    pub(super) fn is_for_another(&self) -> bool {
        self.queue.front().is_some_and(|head| head.unless_true)
    }

    pub(super) fn add(&mut self, prompts: UnansweredPrompt) {
        if self.queue.is_empty() {
            self.head_since = Instant::now();
        }
        let count = prompts.commands.len();
        self.count += count;
        if let Some(loan) = &prompts.loan {
            loan.asks(count);
        }
        self.shared
            .prompts_sent(u32::try_from(count).unwrap_or(u32::MAX));
        self.queue.push_back(prompts);
    }

    /// When the oldest must be answered.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.head_since.checked_add(self.queue.front()?.time())
    }

    /// If the oldest is overdue, returns its timeout, its command, and the configuration key that sets the timeout for
    /// a tenant.
    pub(super) fn overdue(&self) -> Option<(Duration, Command, Option<Arc<str>>)> {
        let head = self.queue.front()?;
        let (time, command) = (head.time(), head.oldest()?);
        let is_over = self.head_since.elapsed() >= time;
        let key = head.tenant_key.clone();
        is_over.then(|| (time, command, key.filter(|_| command != Command::Reset)))
    }

    /// Keeps a line printed for the oldest, if its answer must be verbatim. Returns `false` if that needs more than
    /// `most` bytes for all its output.
    pub(super) fn note_printed(&mut self, line: &[u8], most: usize) -> bool {
        let head = self.queue.front_mut();
        let Some(transcript) = head.and_then(|head| head.transcript.as_mut()) else {
            return true;
        };
        let has_room = transcript.len() + line.len() < most;
        if has_room {
            transcript.extend_from_slice(line);
            transcript.push(b'\n');
        }
        has_room
    }

    /// Answers the oldest prompt.
    pub fn answer(&mut self, result: Result<Bytes, PromptError>, now: Instant) {
        let Some(head) = self.queue.front_mut() else {
            return;
        };
        let fence = head.fence().filter(|_| result.is_ok()).cloned();
        let Some(command) = head.commands.next() else {
            return;
        };
        self.count -= 1;
        head.unless_true = false;
        // Set before the holder gets the answer and returns the process.
        if self.count == 0 && fence.is_some() {
            self.shared.set_left_reset(fence);
        }
        self.shared.prompt_answered();
        if matches!(command, Command::OpenList | Command::ListRow) {
            let is_open = result.as_deref().is_ok_and(leaves_list_open);
            self.shared.set(ProcFlag::ListOpen, is_open);
        }
        let said_no = matches!(result, Err(PromptError::Function { .. }));
        self.shared.set(ProcFlag::SaidNo, said_no);
        let failed = result.is_err();
        let took = now - std::mem::replace(&mut self.head_since, now);
        if self.shared.is(ProcFlag::Started) {
            self.shared.set(ProcFlag::Worked, true);
            self.metrics.prompt_done(command.class(), took, &result);
        }
        let result = match head.transcript.take() {
            // Verbatim: the answer is all output up to it.
            Some(transcript) if !transcript.is_empty() => Ok(Bytes::from(transcript)),
            _ => result,
        };
        if let Some(loan) = &head.loan {
            loan.answers(failed);
        }
        head.answer_to.send(result);
        if head.commands.len() == 0 {
            self.queue.pop_front();
        }
    }

    /// Fails all. The oldest gets the reason; the others get `NotRun` with it, or the reason itself if that is `Exited`
    /// or `NotRun`. A verbatim prompt gets its output so far instead, if any.
    pub(super) fn fail(&mut self, reason: &PromptError) {
        let oldest = self.queue.front().and_then(UnansweredPrompt::oldest);
        if oldest.is_some_and(|command| !matches!(command, Command::Reset)) {
            self.shared.set(ProcFlag::Worked, true);
        }
        let not_at_fault = match reason {
            // The same for all.
            PromptError::Exited(_) | PromptError::NotRun { .. } => reason.clone(),
            _ => PromptError::NotRun {
                because: Box::new(reason.clone()),
            },
        };
        let mut error = reason;
        for mut prompts in std::mem::take(&mut self.queue) {
            let printed = prompts
                .transcript
                .filter(|text| !text.is_empty())
                .map(Bytes::from);
            for _ in prompts.commands {
                self.shared.prompt_answered();
                // A process that has not started counts as a failed start instead.
                if self.shared.is(ProcFlag::Started) {
                    self.metrics.prompt_failed(error);
                }
                let answer = printed.clone().ok_or_else(|| error.clone());
                if let Some(loan) = &prompts.loan {
                    loan.answers(true);
                }
                prompts.answer_to.send(answer);
                error = &not_at_fault;
            }
        }
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_has_its_own_timeout() {
        let metrics = LanguageMetrics::default();
        let mut unanswered = Unanswered::new(ProcShared::new(None), Arc::new(metrics));
        let [of_reset, of_command] = [60, 1].map(Duration::from_secs);
        let sent = Instant::now();
        let (sender, _answers) = tokio::sync::mpsc::unbounded_channel();
        unanswered.add(UnansweredPrompt {
            answer_to: AnswerTo::Several(sender),
            commands: vec![Command::Reset, Command::Other].into_iter(),
            timeout: of_command,
            tenant_key: None,
            reset_timeout: of_reset,
            transcript: None,
            loan: None,
            unless_true: false,
            selects: false,
        });
        assert!(unanswered.deadline().unwrap() >= sent + of_reset);
        let answered = Instant::now();
        unanswered.answer(Ok(Bytes::from_static(b"true")), answered);
        assert_eq!(unanswered.deadline(), Some(answered + of_command));
    }
}
