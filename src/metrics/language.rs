//! Counters of one language's processes: prompts, answers, exits.

use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

use super::cells::{Counted, Counter, CountersBy, Each, Histogram, Times};
use super::definition::metrics;
use super::names::Absorb;
use crate::messages::process::PromptError;
use crate::query_server::prompt::PromptClass;

/// Why a process was killed, or abandoned if it cannot be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum KillReason {
    /// It did not answer in time.
    Timeout,
    /// It broke the protocol.
    Protocol,
    /// It reported a fatal error.
    Fatal,
    /// It was asked to stop, but did not in time.
    Overdue,
    /// It could no longer be trusted, a user ordered it, or the service had to end at once.
    Stopped,
}

/// The result of a prompt without an answer.
#[derive(Clone, Copy, Debug, PartialEq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Failure {
    Function,
    Timeout,
    Exit,
    Protocol,
}

metrics! {
    /// The metrics of one language.
    #[derive(Debug, Default)]
    pub struct LanguageMetrics {
        /// Time of answered prompts
        Histogram("settee.prompt_time", "settee_prompt_seconds").labels("language")
            => answered: AnswerTimes;
        /// Prompts that failed: function (an error line), timeout, exit (the process ended), protocol (the process
        /// broke it)
        Counter("settee.prompt_errors", "settee_prompt_errors_total").labels("language", "reason")
            => pub(super) failures: CountersBy<Failure>;
        /// Size of the prompts sent, without line feeds
        Counter("settee.prompt_bytes", "settee_prompt_bytes_total").labels("language")
            => prompt_bytes: Counter;
        /// Size of the answers, without line feeds
        Counter("settee.answer_bytes", "settee_answer_bytes_total").labels("language")
            => answer_bytes: Counter;
        /// Processes killed, or given up if inside the service: timeout, protocol (broke it), fatal (reported a fatal
        /// error), overdue (did not stop in time), stopped (no longer trusted, by order, or at the service's immediate
        /// end)
        Counter("settee.kills", "settee_kills_total").labels("language", "reason")
            => pub(crate) kills: CountersBy<KillReason>;
    }
    beside {
        /// Shown as sums over all languages.
        pub(super) prompts: Counter;
        pub(super) vdu_rejects: Counter;
        pub(super) exits: Counter;
        pub(super) error_exits: Counter;
    }
}

/// Times and number of answered prompts, by class. Shown by class over all languages, and by language over all
/// classes.
#[derive(Debug, Default)]
struct AnswerTimes([Histogram; PromptClass::VARIANTS.len()]);

impl Counted for AnswerTimes {
    fn samples(&self, each: Each<'_>) {
        each(&[], Times::merged(self.0.iter().map(Histogram::get)).into());
    }

    fn absorb(&self, gone: &Self) {
        self.0
            .iter()
            .zip(&gone.0)
            .for_each(|(times, gone)| times.absorb(gone));
    }
}

impl Absorb for LanguageMetrics {
    fn absorb(&self, gone: &Self) {
        self.absorb_fields(gone);
        self.prompts.absorb(&gone.prompts);
        self.vdu_rejects.absorb(&gone.vdu_rejects);
        self.exits.absorb(&gone.exits);
        self.error_exits.absorb(&gone.error_exits);
    }
}

impl LanguageMetrics {
    /// Counts prompts sent together, with `bytes` in total.
    pub fn prompts_sent(&self, count: usize, bytes: usize) {
        self.prompts.add(count as u64);
        self.prompt_bytes.add(bytes as u64);
    }

    /// Counts the result of a prompt; `took` is the time since it became the oldest unanswered one.
    pub fn prompt_done<A: AsRef<[u8]>>(
        &self,
        class: PromptClass,
        took: Duration,
        result: &Result<A, PromptError>,
    ) {
        match result {
            Ok(answer) => {
                let answer = answer.as_ref();
                self.answered.0[class as usize].observe(took);
                self.answer_bytes.add(answer.len() as u64);
                if class == PromptClass::DdocVdu && !matches!(answer.trim_ascii(), b"1" | b"true") {
                    self.vdu_rejects.one();
                }
            }
            Err(error) => self.prompt_failed(error),
        }
    }

    /// Counts a prompt that will not be answered.
    pub(crate) fn prompt_failed(&self, error: &PromptError) {
        self.failures.one(match error {
            PromptError::Function { .. } => Failure::Function,
            PromptError::Timeout { .. } => Failure::Timeout,
            PromptError::Protocol { .. } => Failure::Protocol,
            PromptError::Exited(_)
            | PromptError::NotRun { .. }
            | PromptError::BadPrompt
            | PromptError::TooMany { .. }
            | PromptError::NotHolder => Failure::Exit,
        });
    }

    /// Counts a process that ended by itself, successfully or not.
    pub fn exited(&self, well: bool) {
        let counter = if well { &self.exits } else { &self.error_exits };
        counter.one();
    }

    pub(super) fn answered_by(&self, class: PromptClass) -> Times {
        self.answered.0[class as usize].get()
    }
}
