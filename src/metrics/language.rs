//! What is counted of one language's processes: prompts, answers, ends.

use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

use super::cells::{Counter, CountersBy, Histogram, Times};
use super::names::Absorb;
use crate::messages::process::PromptError;
use crate::query_server::prompt::PromptClass;

/// Why a process was killed, or given up where it cannot be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum KillReason {
    /// It did not answer in time.
    Timeout,
    /// It broke the protocol.
    Protocol,
    /// It reported a fatal error.
    Fatal,
    /// It was told to stop and did not in time.
    Overdue,
    /// It could not be trusted any more, somebody ordered it, or the service had to end at once.
    Stopped,
}

/// What became of a prompt that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Failure {
    Function,
    Timeout,
    Exit,
    Protocol,
}

/// The numbers of one language.
#[derive(Debug, Default)]
pub struct LanguageMetrics {
    pub(super) prompts: Counter,
    pub(super) prompt_bytes: Counter,
    pub(super) answer_bytes: Counter,
    /// The times of prompts that were answered, by class: also how many there were.
    answered: [Histogram; PromptClass::ALL.len()],
    pub(super) failures: CountersBy<Failure>,
    pub(super) vdu_rejects: Counter,
    pub(super) exits: Counter,
    pub(super) error_exits: Counter,
    pub(super) kills: CountersBy<KillReason>,
}

impl Absorb for LanguageMetrics {
    fn absorb(&self, gone: &Self) {
        self.prompts.absorb(&gone.prompts);
        self.prompt_bytes.absorb(&gone.prompt_bytes);
        self.answer_bytes.absorb(&gone.answer_bytes);
        let answered = self.answered.iter().zip(&gone.answered);
        answered.for_each(|(times, gone)| times.absorb(gone));
        self.failures.absorb(&gone.failures);
        self.vdu_rejects.absorb(&gone.vdu_rejects);
        self.exits.absorb(&gone.exits);
        self.error_exits.absorb(&gone.error_exits);
        self.kills.absorb(&gone.kills);
    }
}

impl LanguageMetrics {
    /// Counts prompts that are sent together, `bytes` all in all.
    pub fn prompts_sent(&self, count: usize, bytes: usize) {
        self.prompts.add(count as u64);
        self.prompt_bytes.add(bytes as u64);
    }

    /// Counts what became of a prompt that was sent; `took` is the time from when it was the oldest
    /// one unanswered.
    pub fn prompt_done<A: AsRef<[u8]>>(
        &self,
        class: PromptClass,
        took: Duration,
        result: &Result<A, PromptError>,
    ) {
        match result {
            Ok(answer) => self.answered(class, took, answer.as_ref()),
            Err(error) => self.prompt_failed(error),
        }
    }

    fn answered(&self, class: PromptClass, took: Duration, answer: &[u8]) {
        self.answered[class as usize].observe(took);
        self.answer_bytes.add(answer.len() as u64);
        if class == PromptClass::DdocVdu && !matches!(answer.trim_ascii(), b"1" | b"true") {
            self.vdu_rejects.one();
        }
    }

    /// Counts a prompt that was sent and is not answered any more.
    pub(crate) fn prompt_failed(&self, error: &PromptError) {
        let failure = match error {
            PromptError::Function { .. } => Failure::Function,
            PromptError::Timeout { .. } => Failure::Timeout,
            PromptError::Protocol { .. } => Failure::Protocol,
            PromptError::Exited(_)
            | PromptError::NotRun { .. }
            | PromptError::BadPrompt
            | PromptError::TooMany { .. }
            | PromptError::NotHolder => Failure::Exit,
        };
        self.failures.one(failure);
    }

    /// Counts a process that ended by itself: well, or not.
    pub fn exited(&self, well: bool) {
        let counter = if well { &self.exits } else { &self.error_exits };
        counter.one();
    }

    /// Counts a process that was killed, or given up.
    pub fn killed(&self, why: KillReason) {
        self.kills.one(why);
    }

    pub(super) fn answered_by(&self, class: PromptClass) -> Times {
        self.answered[class as usize].get()
    }
}
