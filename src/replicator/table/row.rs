//! How a document that requests a replication gets its job.
//!
//! SUMMARY   [`Row`] is its state. [`RowTurn`] takes an event ([`Event`]) and returns the actions ([`RowAction`]).
//! PROMISES  An event of an attempt other than the row's latest has no effect. An edit that does not change the
//!           replication does not affect its job.
//! SOURCE    couch_replicator_doc_processor and its worker, including back-off and re-check times.
//! DIFFERS   An id that needs no request to the source is computed at once, without a worker.

use std::sync::Arc;
use std::time::Duration;

use super::event::{Attempt, Event, NotYet, RowAction, Taken, Wish};
use crate::replicator::DocState;
use crate::replicator::state::{TAKEN, already_started};
use policy::schedule::WallTime;
use replication::filter::Filter;
use replication::id::ReplicationId;
use replication::spec::Replication;

/// Maximum wait after the first temporary error, in seconds; each further error doubles it.
const BACKOFF_BASE: u64 = 64;
/// Maximum number of doublings of [`BACKOFF_BASE`].
const BACKOFF_DOUBLINGS_MAX: u32 = 12;
/// Minimum time until a filter's code is checked again.
const RECHECK_MIN: Duration = Duration::from_secs(60);
/// Maximum random addition to [`RECHECK_MIN`], in seconds.
const RECHECK_SPREAD_MAX: u64 = 86_400;

/// The progress of a document to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowState {
    /// Its id is not known yet.
    Initializing,
    /// It has a temporary error.
    Error,
    /// The scheduler has its job.
    Scheduled,
}

/// A document that requests a replication.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Its progress.
    pub state: RowState,
    /// The replication.
    pub replication: Arc<Replication>,
    /// Its job, once there is one.
    pub job: Option<ReplicationId>,
    /// The latest error or change of id, for users.
    pub info: Option<String>,
    /// The latest error in a few words.
    pub reason: Option<Arc<str>>,
    /// Consecutive temporary errors.
    pub errors: u32,
    /// When its state changed.
    pub last_updated: WallTime,
    attempt: Attempt,
}

impl RowState {
    /// Returns its state in lists of documents.
    pub const fn shown(self) -> DocState {
        match self {
            Self::Initializing => DocState::Initializing,
            Self::Error => DocState::Error,
            // Until the scheduler reports the job's state.
            Self::Scheduled => DocState::Pending,
        }
    }
}

impl Row {
    /// Returns the action that requests the id of the replication.
    fn identify(&self) -> RowAction {
        RowAction::Identify {
            attempt: self.attempt,
            replication: Arc::clone(&self.replication),
        }
    }
}

/// The context of a document's event: the document's row, and what all rows share.
pub(super) struct RowTurn<'t> {
    /// The document.
    pub doc: &'t str,
    /// `None` while the document requests nothing.
    pub row: &'t mut Option<Box<Row>>,
    /// The number of attempts so far.
    pub attempts: &'t mut u64,
    /// The number of documents with a row.
    pub rows: usize,
    pub now: WallTime,
}

impl RowTurn<'_> {
    /// Handles an event, and returns the actions.
    pub fn handle(&mut self, event: Event) -> Vec<RowAction> {
        match event {
            Event::Changed(Wish::Run(replication)) => self.wanted(replication),
            Event::Changed(Wish::Nothing) => self.forget(),
            Event::Changed(Wish::Broken {
                reason,
                replication,
            }) => {
                let mut actions = self.forget();
                actions.push(RowAction::WriteFailed {
                    reason,
                    replication,
                });
                actions
            }
            Event::Written => self.written(),
            Event::Identified {
                attempt,
                result: Ok(job),
            } => self.identified(attempt, job),
            Event::Identified {
                attempt,
                result: Err(why),
            } => self.failed_for_now(attempt, why),
            Event::Scheduled {
                attempt,
                job,
                result,
            } => self.scheduled(attempt, job, result),
            Event::Due(attempt) => self.due(attempt),
            Event::Completed(job) => {
                if self.has_job(&job) {
                    *self.row = None;
                }
                Vec::new()
            }
        }
    }

    fn has_job(&self, job: &ReplicationId) -> bool {
        let row = self.row.as_ref();
        row.is_some_and(|row| row.job.as_ref() == Some(job))
    }

    /// Returns the row if this is its latest attempt.
    fn current(&mut self, attempt: Attempt) -> Option<&mut Row> {
        let row = self.row.as_deref_mut();
        row.filter(|row| row.attempt == attempt)
    }

    const fn next_attempt(&mut self) -> Attempt {
        *self.attempts += 1;
        Attempt(*self.attempts)
    }

    fn forget(&mut self) -> Vec<RowAction> {
        self.row
            .take()
            .and_then(|row| row.job)
            .map(RowAction::RemoveJob)
            .into_iter()
            .collect()
    }

    fn wanted(&mut self, replication: Arc<Replication>) -> Vec<RowAction> {
        let mut actions = match &self.row {
            Some(known) if known.replication.same_as(&replication) => return Vec::new(),
            Some(_) => self.forget(),
            None => Vec::with_capacity(1),
        };
        let row = Row {
            state: RowState::Initializing,
            replication,
            job: None,
            info: None,
            reason: None,
            errors: 0,
            last_updated: self.now,
            attempt: self.next_attempt(),
        };
        actions.push(row.identify());
        *self.row = Some(Box::new(row));
        actions
    }

    /// Retries a written document now if it has a temporary error.
    fn written(&mut self) -> Vec<RowAction> {
        let row = self.row.as_deref_mut();
        let Some(row) = row.filter(|row| row.state == RowState::Error) else {
            return Vec::new();
        };
        row.errors = 0;
        let attempt = row.attempt;
        self.due(attempt)
    }

    fn due(&mut self, attempt: Attempt) -> Vec<RowAction> {
        let next = self.next_attempt();
        let Some(row) = self.current(attempt) else {
            return Vec::new();
        };
        row.attempt = next;
        vec![row.identify()]
    }

    fn identified(&mut self, attempt: Attempt, job: ReplicationId) -> Vec<RowAction> {
        let now = self.now;
        let Some(row) = self.current(attempt) else {
            return Vec::new();
        };
        let mut actions = Vec::new();
        if let Some(before) = row.job.take_if(|known| *known != job) {
            row.info = Some(format!("Replication id changed: {before} -> {job}"));
            row.last_updated = now;
            actions.push(RowAction::RemoveJob(before));
        }
        actions.push(RowAction::Schedule {
            attempt,
            job: job.clone(),
            replication: Arc::clone(&row.replication),
        });
        row.job = Some(job);
        actions
    }

    fn scheduled(
        &mut self,
        attempt: Attempt,
        job: ReplicationId,
        result: Result<(), Taken>,
    ) -> Vec<RowAction> {
        let (doc, now) = (self.doc, self.now);
        let spread = (self.rows as u64 * 2 / 10).min(RECHECK_SPREAD_MAX);
        let Some(row) = self.current(attempt) else {
            // The order to remove a job may have preceded the job.
            return if result.is_ok() && !self.has_job(&job) {
                vec![RowAction::RemoveJob(job)]
            } else {
                Vec::new()
            };
        };
        let reason = match result {
            Ok(()) => {
                if row.state != RowState::Scheduled {
                    row.state = RowState::Scheduled;
                    row.last_updated = now;
                    (row.info, row.reason) = (None, None);
                }
                row.errors = 0;
                let filter = &row.replication.options.filter;
                // Only a filter function's code, which is read from the source, can change the id.
                if !matches!(filter, Filter::Function { .. }) {
                    return Vec::new();
                }
                return vec![RowAction::Wake {
                    attempt,
                    least: RECHECK_MIN + Duration::from_secs(1),
                    most: RECHECK_MIN + Duration::from_secs(1 + spread),
                }];
            }
            Err(Taken::Document(other)) => {
                return vec![RowAction::WriteFailed {
                    reason: already_started(&job, doc, &other),
                    replication: self.row.take().map(|row| row.replication),
                }];
            }
            Err(Taken::Transient) => format!(
                "Replication `{job}` specified by document `{doc}` already running as a \
                 transient replication, started via `_replicate` API endpoint"
            ),
            Err(Taken::Former(other)) => format!(
                "Replication `{job}` specified by document `{doc}` is still recorded for \
                 document `{other}`"
            ),
        };
        row.job = None;
        self.failed_for_now(attempt, NotYet::new(reason, TAKEN))
    }

    fn failed_for_now(&mut self, attempt: Attempt, why: NotYet) -> Vec<RowAction> {
        let now = self.now;
        let Some(row) = self.current(attempt) else {
            return Vec::new();
        };
        row.state = RowState::Error;
        row.last_updated = now;
        (row.info, row.reason) = (Some(why.text.clone()), Some(why.short));
        let doublings = row.errors.min(BACKOFF_DOUBLINGS_MAX);
        row.errors = row.errors.saturating_add(1);
        let write = RowAction::WriteError {
            reason: why.text,
            replication: Arc::clone(&row.replication),
        };
        let wake = RowAction::Wake {
            attempt,
            least: Duration::from_secs(1),
            most: Duration::from_secs(BACKOFF_BASE << doublings),
        };
        vec![write, wake]
    }
}

#[cfg(test)]
mod tests;
