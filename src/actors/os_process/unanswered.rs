//! The prompts that a child has not answered yet, in the order of the answers.
//!
//! PROMISES  Each is answered once, with the child's answer or with an error. The deadline is that of
//!           the oldest, and counts from when it became the oldest.
//! SOURCE    couch_os_process has one prompt at a time; this is its state, for many.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::time::Instant;
use bytes::Bytes;

use crate::actors::answerer::Answerer;
use crate::messages::process::{ProcShared, PromptError};
use crate::metrics::LanguageMetrics;
use crate::query_server::prompt::{PromptClass, PromptKind, Work};

/// A prompt that waits for its answer, or several of one kind that came together.
pub(super) struct Pending {
    pub(super) answerer: Answerer,
    /// How many of them are unanswered; never none.
    pub(super) count: usize,
    pub(super) kind: PromptKind,
    pub(super) class: PromptClass,
    pub(super) timeout: Duration,
    /// Everything printed for it so far, when it is to be answered verbatim.
    pub(super) transcript: Option<Vec<u8>>,
}

/// What waits for answers.
pub(super) struct Unanswered {
    /// Oldest first.
    queue: VecDeque<Pending>,
    /// How many prompts they are.
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

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn add(&mut self, prompts: Pending) {
        if self.queue.is_empty() {
            self.head_since = Instant::now();
        }
        self.count += prompts.count;
        self.shared
            .prompts_sent(u32::try_from(prompts.count).unwrap_or(u32::MAX));
        self.queue.push_back(prompts);
    }

    /// When the oldest must be answered.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.head_since.checked_add(self.queue.front()?.timeout)
    }

    /// The timeout of the oldest and what that was to do, when its time is over.
    pub(super) fn overdue(&self) -> Option<(Duration, Work)> {
        let head = self.queue.front()?;
        let work = Work::of(head.kind, head.class);
        (self.head_since.elapsed() >= head.timeout).then_some((head.timeout, work))
    }

    /// Where everything is kept that is printed for the oldest, if that is its answer.
    pub(super) fn transcript(&mut self) -> Option<&mut Vec<u8>> {
        self.queue.front_mut()?.transcript.as_mut()
    }

    /// Answers the oldest prompt.
    pub(super) fn answer(
        &mut self,
        result: Result<Bytes, PromptError>,
        leaves_open: bool,
        now: Instant,
    ) {
        let Some(head) = self.queue.front_mut() else {
            return;
        };
        self.count -= 1;
        self.shared.prompt_answered();
        if matches!(head.kind, PromptKind::OpenList | PromptKind::ListRow) {
            self.shared.set_list_open(leaves_open);
        }
        let said_no = matches!(result, Err(PromptError::Function { .. }));
        self.shared.set_said_no(said_no);
        let took = now - std::mem::replace(&mut self.head_since, now);
        if self.shared.has_started() {
            self.metrics.prompt_done(head.class, took, &result);
        }
        if head.count > 1
            && let Answerer::Several(answers) = &head.answerer
        {
            head.count -= 1;
            // As in `Answerer::send`.
            return drop(answers.send(result));
        }
        let Some(head) = self.queue.pop_front() else {
            return;
        };
        let result = match head.transcript {
            // Verbatim: whatever the process printed up to its answer is the answer.
            Some(transcript) if !transcript.is_empty() => Ok(Bytes::from(transcript)),
            _ => result,
        };
        head.answerer.send(result);
    }

    /// Answers all with an error; the oldest gets the reason itself.
    pub(super) fn fail(&mut self, reason: &PromptError) {
        let not_at_fault = match reason {
            // The end itself is the same for all.
            PromptError::Exited(_) | PromptError::NotRun { .. } => reason.clone(),
            _ => PromptError::NotRun {
                because: Box::new(reason.clone()),
            },
        };
        let mut error = reason;
        for prompts in std::mem::take(&mut self.queue) {
            let printed = prompts.transcript.filter(|text| !text.is_empty());
            if let Answerer::Several(answers) = &prompts.answerer {
                for _ in 1..prompts.count {
                    self.shared.prompt_answered();
                    self.count_failure(error);
                    drop(answers.send(Err(error.clone())));
                    error = &not_at_fault;
                }
            }
            self.shared.prompt_answered();
            let result = match printed {
                Some(text) => {
                    self.count_failure(reason);
                    Ok(Bytes::from(text))
                }
                None => {
                    self.count_failure(error);
                    Err(error.clone())
                }
            };
            prompts.answerer.send(result);
            error = &not_at_fault;
        }
        self.count = 0;
    }

    /// A start that fails is counted as that.
    fn count_failure(&self, error: &PromptError) {
        if self.shared.has_started() {
            self.metrics.prompt_failed(error);
        }
    }
}
