//! From documents to jobs: which document wants which job, as a pure state machine.
//!
//! SUMMARY   [`Rows`] has one row a document that asks for a replication. It is told what happened
//!           ([`Event`]) and answers what to do ([`Action`]).
//! PROMISES  Whatever comes late, from an attempt that is not the row's last, changes nothing. An edit
//!           that does not touch the replication leaves its job alone.
//! CALLED    By the ReplicatorDocuments actor.
//! SOURCE    couch_replicator_doc_processor and its worker; back-off and re-check times are theirs.
//! DIFFERS   An id that takes no request to the source is computed at once, without a worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::schedule::WallTime;
use crate::replication::filter::Filter;
use crate::replication::id::ReplicationId;
use crate::replication::spec::{DocRef, Replication};

/// The base of the wait after a temporary error.
const BACKOFF_BASE: u64 = 64;
/// It doubles this often.
const BACKOFF_DOUBLINGS_MAX: u32 = 12;
/// The code of a filter is looked at again after this time at the earliest.
const RECHECK_MIN: Duration = Duration::from_secs(60);
/// So much longer at most.
const RECHECK_SPREAD_MAX: u64 = 86_400;

/// One attempt to make a job of a document; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A document was written, or is there at the start.
    Changed {
        /// Its id.
        doc: String,
        /// What it says now.
        wish: Wish,
    },
    /// The id of a replication is known, or not yet.
    Identified {
        /// The document.
        doc: String,
        /// Which attempt.
        attempt: Attempt,
        /// The id, or why there is none yet.
        result: Result<ReplicationId, String>,
    },
    /// The scheduler has, or has not, taken a job.
    Scheduled {
        /// The document.
        doc: String,
        /// Which attempt.
        attempt: Attempt,
        /// The job.
        job: ReplicationId,
        /// Whether the id was free, or this document's already.
        result: Result<(), Taken>,
    },
    /// A time that was asked for has come.
    Due {
        /// The document.
        doc: String,
        /// Which attempt asked.
        attempt: Attempt,
    },
    /// A job has done its work.
    Completed {
        /// The document.
        doc: String,
        /// The job.
        job: ReplicationId,
    },
}

/// What a document asks for.
#[derive(Clone, Debug)]
pub enum Wish {
    /// This replication.
    Run(Arc<Replication>),
    /// Nothing: it is deleted, has completed or has failed.
    Nothing,
    /// Something that is no replication.
    Broken(String),
}

/// Somebody else has a job of the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A call of `_replicate`.
    Transient,
    /// Another document.
    Document(DocRef),
}

/// Something to do, in this order.
#[derive(Clone, Debug)]
pub enum Action {
    /// Compute the id of a replication, and tell [`Event::Identified`].
    Identify {
        /// The document.
        doc: String,
        /// The attempt.
        attempt: Attempt,
        /// The replication.
        replication: Arc<Replication>,
    },
    /// Hand a job to the scheduler, and tell [`Event::Scheduled`].
    Schedule {
        /// The document.
        doc: String,
        /// The attempt.
        attempt: Attempt,
        /// The job.
        job: ReplicationId,
        /// The replication.
        replication: Arc<Replication>,
    },
    /// Remove a job, which may be gone already.
    RemoveJob {
        /// Which.
        job: ReplicationId,
    },
    /// Write into a document that it never will run.
    WriteFailed {
        /// The document.
        doc: String,
        /// Why.
        reason: String,
        /// What it asked for; none where nobody could tell.
        replication: Option<Arc<Replication>>,
    },
    /// Write into a document what went wrong for now.
    WriteError {
        /// The document.
        doc: String,
        /// What.
        reason: String,
        /// What it asked for.
        replication: Arc<Replication>,
    },
    /// Tell [`Event::Due`] after a time between the two, drawn at random.
    Wake {
        /// The document.
        doc: String,
        /// The attempt.
        attempt: Attempt,
        /// The shortest time.
        least: Duration,
        /// The longest.
        most: Duration,
    },
}

/// How far a document is on its way to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// Its id is not known yet.
    Initializing,
    /// Something went wrong for now.
    Error,
    /// The scheduler has its job.
    Scheduled,
}

/// A document that asks for a replication.
#[derive(Clone, Debug)]
pub struct Row {
    /// How far it is.
    pub state: RowState,
    /// The replication.
    pub replication: Arc<Replication>,
    /// Its job, once there is one.
    pub job: Option<ReplicationId>,
    /// What is to be said of it.
    pub info: Option<String>,
    /// Temporary errors in a row.
    pub errors: u32,
    /// When its state changed.
    pub last_updated: WallTime,
    attempt: Attempt,
}

impl Row {
    /// Returns whether the id depends on code that the source may change.
    fn has_code(&self) -> bool {
        matches!(self.replication.options.filter, Filter::Function { .. })
    }
}

/// Documents that ask for replications.
#[derive(Debug, Default)]
pub struct Rows {
    rows: BTreeMap<String, Row>,
    attempts: u64,
}

impl Rows {
    /// Returns the row of a document.
    pub fn get(&self, doc: &str) -> Option<&Row> {
        self.rows.get(doc)
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Forgets all of them. What is under way for them comes late.
    pub fn clear(&mut self) {
        self.rows.clear();
    }

    /// Takes in what happened, and says what to do.
    pub fn handle(&mut self, event: Event, now: WallTime) -> Vec<Action> {
        match event {
            Event::Changed { doc, wish } => self.changed(doc, wish, now),
            Event::Identified {
                doc,
                attempt,
                result,
            } => match (self.current(&doc, attempt), result) {
                (None, _) => Vec::new(),
                (Some(_), Ok(job)) => self.identified(doc, attempt, job, now),
                (Some(_), Err(reason)) => self.failed_for_now(doc, reason, now),
            },
            Event::Scheduled {
                doc,
                attempt,
                job,
                result,
            } => match self.current(&doc, attempt) {
                None => self.scheduled_late(&doc, job, result.is_ok()),
                Some(_) => self.scheduled(doc, result, now),
            },
            Event::Due { doc, attempt } => match self.current(&doc, attempt) {
                None => Vec::new(),
                Some(_) => vec![self.identify(doc)],
            },
            Event::Completed { doc, job } => {
                if self
                    .rows
                    .get(&doc)
                    .is_some_and(|row| row.job.as_ref() == Some(&job))
                {
                    self.rows.remove(&doc);
                }
                Vec::new()
            }
        }
    }

    /// Returns the row of a document if this is its last attempt.
    fn current(&mut self, doc: &str, attempt: Attempt) -> Option<&mut Row> {
        self.rows.get_mut(doc).filter(|row| row.attempt == attempt)
    }

    fn next_attempt(&mut self) -> Attempt {
        self.attempts += 1;
        Attempt(self.attempts)
    }

    fn changed(&mut self, doc: String, wish: Wish, now: WallTime) -> Vec<Action> {
        match wish {
            Wish::Run(replication) => self.wanted(doc, replication, now),
            Wish::Nothing => self.forget(&doc),
            Wish::Broken(reason) => {
                let mut actions = self.forget(&doc);
                let replication = None;
                actions.push(Action::WriteFailed {
                    doc,
                    reason,
                    replication,
                });
                actions
            }
        }
    }

    fn forget(&mut self, doc: &str) -> Vec<Action> {
        let job = self.rows.remove(doc).and_then(|row| row.job);
        job.map(|job| Action::RemoveJob { job })
            .into_iter()
            .collect()
    }

    /// The order to remove a job may have come before the job.
    fn scheduled_late(&self, doc: &str, job: ReplicationId, is_there: bool) -> Vec<Action> {
        let is_wanted = self
            .rows
            .get(doc)
            .is_some_and(|row| row.job.as_ref() == Some(&job));
        match is_there && !is_wanted {
            true => vec![Action::RemoveJob { job }],
            false => Vec::new(),
        }
    }

    fn wanted(&mut self, doc: String, replication: Arc<Replication>, now: WallTime) -> Vec<Action> {
        let known = self.rows.get(&doc);
        if known.is_some_and(|row| row.replication.same_as(&replication)) {
            return Vec::new();
        }
        let mut actions = self.forget(&doc);
        let row = Row {
            state: RowState::Initializing,
            replication,
            job: None,
            info: None,
            errors: 0,
            last_updated: now,
            attempt: Attempt(0),
        };
        self.rows.insert(doc.clone(), row);
        actions.push(self.identify(doc));
        actions
    }

    /// Begins an attempt.
    fn identify(&mut self, doc: String) -> Action {
        let attempt = self.next_attempt();
        let row = self
            .rows
            .get_mut(&doc)
            .expect("rows: the caller has seen the row");
        row.attempt = attempt;
        Action::Identify {
            attempt,
            replication: Arc::clone(&row.replication),
            doc,
        }
    }

    fn identified(
        &mut self,
        doc: String,
        attempt: Attempt,
        job: ReplicationId,
        now: WallTime,
    ) -> Vec<Action> {
        let row = self
            .rows
            .get_mut(&doc)
            .expect("rows: the caller has seen the row");
        let mut actions = Vec::new();
        if let Some(before) = row.job.take_if(|known| *known != job) {
            row.info = Some(format!("Replication id changed: {before} -> {job}"));
            row.last_updated = now;
            actions.push(Action::RemoveJob { job: before });
        }
        actions.push(Action::Schedule {
            attempt,
            job: job.clone(),
            replication: Arc::clone(&row.replication),
            doc,
        });
        row.job = Some(job);
        actions
    }

    fn scheduled(&mut self, doc: String, result: Result<(), Taken>, now: WallTime) -> Vec<Action> {
        let row = self
            .rows
            .get_mut(&doc)
            .expect("rows: the caller has seen the row");
        match result {
            Ok(()) => {
                if row.state != RowState::Scheduled {
                    row.state = RowState::Scheduled;
                    row.last_updated = now;
                    row.info = None;
                }
                row.errors = 0;
                if !row.has_code() {
                    return Vec::new();
                }
                let attempt = row.attempt;
                let spread = (self.rows.len() as u64 * 2 / 10).min(RECHECK_SPREAD_MAX);
                vec![Action::Wake {
                    doc,
                    attempt,
                    least: RECHECK_MIN + Duration::from_secs(1),
                    most: RECHECK_MIN + Duration::from_secs(1 + spread),
                }]
            }
            Err(Taken::Transient) => {
                let id = row.job.take().map_or_else(String::new, |id| id.to_string());
                let reason = format!(
                    "Replication `{id}` specified by document `{doc}` already running as a \
                     transient replication, started via `_replicate` API endpoint"
                );
                self.failed_for_now(doc, reason, now)
            }
            Err(Taken::Document(other)) => {
                let id = row.job.take().map_or_else(String::new, |id| id.to_string());
                let reason = format!(
                    "Replication `{id}` specified by document `{doc}` already started, triggered \
                     by document `{}` from db `{}`",
                    other.id, other.database
                );
                let replication = self.rows.remove(&doc).map(|row| row.replication);
                vec![Action::WriteFailed {
                    doc,
                    reason,
                    replication,
                }]
            }
        }
    }

    fn failed_for_now(&mut self, doc: String, reason: String, now: WallTime) -> Vec<Action> {
        let row = self
            .rows
            .get_mut(&doc)
            .expect("rows: the caller has seen the row");
        row.state = RowState::Error;
        row.last_updated = now;
        row.info = Some(reason.clone());
        let doublings = row.errors.min(BACKOFF_DOUBLINGS_MAX);
        row.errors = row.errors.saturating_add(1);
        let wake = Action::Wake {
            doc: doc.clone(),
            attempt: row.attempt,
            least: Duration::from_secs(1),
            most: Duration::from_secs(BACKOFF_BASE << doublings),
        };
        let replication = Arc::clone(&row.replication);
        let write = Action::WriteError {
            doc,
            reason,
            replication,
        };
        vec![write, wake]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::replication::spec::Defaults;
    use crate::replicator::document::parse;

    const NOW: WallTime = WallTime::from_micros(7);

    fn replication(doc: &str, more: &Value) -> Arc<Replication> {
        let mut body = json!({"source": "http://s/a", "target": "http://t/b"});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        Arc::new(parse(doc, &body, &Defaults::default()).unwrap())
    }

    fn id(base: &str) -> ReplicationId {
        base.parse().unwrap()
    }

    /// Rows, and what was to be done last, in short.
    #[derive(Default)]
    struct Fixture {
        rows: Rows,
        last: Option<Attempt>,
    }

    impl Fixture {
        fn handle(&mut self, event: Event) -> Vec<String> {
            let actions = self.rows.handle(event, NOW);
            let shorten = |action: Action| match action {
                Action::Identify { doc, attempt, .. } => {
                    self.last = Some(attempt);
                    format!("identify {doc}")
                }
                Action::Schedule { doc, job, .. } => format!("schedule {doc} {job}"),
                Action::RemoveJob { job } => format!("remove {job}"),
                Action::WriteFailed { doc, reason, .. } => format!("failed {doc}: {reason}"),
                Action::WriteError { doc, .. } => format!("error {doc}"),
                Action::Wake { least, most, .. } => {
                    format!("wake {}..{}", least.as_secs(), most.as_secs())
                }
            };
            actions.into_iter().map(shorten).collect()
        }

        fn wish(&mut self, wish: Wish) -> Vec<String> {
            let doc = "d".to_owned();
            self.handle(Event::Changed { doc, wish })
        }

        fn run(&mut self, more: Value) -> Vec<String> {
            self.wish(Wish::Run(replication("d", &more)))
        }

        fn identified(&mut self, result: Result<&str, &str>) -> Vec<String> {
            self.handle(Event::Identified {
                doc: "d".to_owned(),
                attempt: self.last.unwrap(),
                result: result.map(id).map_err(str::to_owned),
            })
        }

        fn scheduled(&mut self, result: Result<(), Taken>) -> Vec<String> {
            self.handle(Event::Scheduled {
                doc: "d".to_owned(),
                attempt: self.last.unwrap(),
                job: id("abc"),
                result,
            })
        }

        fn due(&mut self) -> Vec<String> {
            self.handle(Event::Due {
                doc: "d".to_owned(),
                attempt: self.last.unwrap(),
            })
        }

        /// Brings the document all the way to a job.
        fn started(more: Value) -> Self {
            let mut fixture = Self::default();
            fixture.run(more);
            fixture.identified(Ok("abc"));
            fixture.scheduled(Ok(()));
            fixture
        }

        fn state(&self) -> Option<RowState> {
            self.rows.get("d").map(|row| row.state)
        }
    }

    fn filtered() -> Value {
        json!({"filter": "ddoc/name"})
    }

    #[test]
    fn a_document_gets_an_id_and_then_a_job() {
        let mut fixture = Fixture::default();
        assert_eq!(fixture.run(json!({})), ["identify d"]);
        assert_eq!(fixture.state(), Some(RowState::Initializing));
        assert_eq!(fixture.identified(Ok("abc")), ["schedule d abc"]);
        assert_eq!(fixture.scheduled(Ok(())), [""; 0]);
        assert_eq!(fixture.state(), Some(RowState::Scheduled));
    }

    #[test]
    fn what_cannot_be_read_is_written_as_failed_and_its_job_goes() {
        let mut fixture = Fixture::default();
        let broken = || Wish::Broken("why".to_owned());
        assert_eq!(fixture.wish(broken()), ["failed d: why"]);
        let mut fixture = Fixture::started(json!({}));
        assert_eq!(fixture.wish(broken()), ["remove abc", "failed d: why"]);
        assert_eq!(fixture.state(), None);
    }

    #[test]
    fn an_edit_that_does_not_touch_the_replication_leaves_its_job_alone() {
        let mut fixture = Fixture::started(json!({}));
        assert_eq!(fixture.run(json!({"note": "x"})), [""; 0]);
        assert_eq!(
            fixture.run(json!({"continuous": true})),
            ["remove abc", "identify d"]
        );
    }

    #[test]
    fn a_document_that_is_deleted_completed_or_failed_has_no_job_and_no_row() {
        let mut fixture = Fixture::started(json!({}));
        assert_eq!(fixture.wish(Wish::Nothing), ["remove abc"]);
        assert!(fixture.rows.is_empty());
        assert_eq!(fixture.wish(Wish::Nothing), [""; 0]);
        let mut fixture = Fixture::started(json!({}));
        let completed = |job| Event::Completed {
            doc: "d".to_owned(),
            job: id(job),
        };
        fixture.handle(completed("other"));
        assert_eq!(fixture.rows.len(), 1);
        assert_eq!(fixture.handle(completed("abc")), [""; 0]);
        assert!(fixture.rows.is_empty());
    }

    #[test]
    fn what_comes_late_changes_nothing() {
        let mut fixture = Fixture::default();
        fixture.run(json!({}));
        let late = fixture.last;
        fixture.run(json!({"continuous": true}));
        let current = std::mem::replace(&mut fixture.last, late);
        assert_eq!(fixture.identified(Ok("abc")), [""; 0]);
        assert_eq!(
            fixture.scheduled(Ok(())),
            ["remove abc"],
            "nobody wants it any more"
        );
        assert_eq!(fixture.scheduled(Err(Taken::Transient)), [""; 0]);
        assert_eq!(fixture.due(), [""; 0]);
        fixture.last = current;
        assert_eq!(fixture.identified(Ok("def")), ["schedule d def"]);
        assert_eq!(fixture.wish(Wish::Nothing), ["remove def"]);
        let mut fixture = Fixture::default();
        fixture.run(json!({}));
        let late = fixture.last;
        fixture.rows.clear();
        fixture.run(json!({}));
        fixture.last = late;
        assert_eq!(
            fixture.identified(Ok("abc")),
            [""; 0],
            "numbers of attempts are not used again"
        );
    }

    #[test]
    fn a_temporary_error_is_tried_again_after_a_growing_random_time() {
        let mut fixture = Fixture::default();
        fixture.run(filtered());
        for most in [64, 128, 256] {
            let wake = format!("wake 1..{most}");
            assert_eq!(fixture.identified(Err("no")), ["error d", wake.as_str()]);
            assert_eq!(fixture.state(), Some(RowState::Error));
            assert_eq!(fixture.due(), ["identify d"]);
        }
        for _ in 0..20 {
            fixture.identified(Err("no"));
            fixture.due();
        }
        let longest = fixture.identified(Err("no"));
        assert_eq!(longest[1], format!("wake 1..{}", 64 << 12));
        assert_eq!(fixture.rows.get("d").unwrap().errors, 24);
        fixture.identified(Ok("abc"));
        fixture.scheduled(Ok(()));
        assert_eq!(fixture.rows.get("d").unwrap().errors, 0);
    }

    #[test]
    fn a_transient_job_of_the_same_id_is_waited_for() {
        let mut fixture = Fixture::default();
        fixture.run(json!({}));
        fixture.identified(Ok("abc"));
        let actions = fixture.scheduled(Err(Taken::Transient));
        assert_eq!(actions, ["error d", "wake 1..64"]);
        let info = fixture.rows.get("d").unwrap().info.clone().unwrap();
        assert!(info.starts_with("Replication `abc` specified by document `d` already running"));
    }

    #[test]
    fn another_documents_job_of_the_same_id_is_a_failure_for_good() {
        let mut fixture = Fixture::default();
        fixture.run(json!({}));
        fixture.identified(Ok("a81a+continuous"));
        let other = DocRef {
            database: "_replicator".to_owned(),
            id: "rep1".to_owned(),
        };
        let expected = "failed d: Replication `a81a+continuous` specified by document `d` already \
                        started, triggered by document `rep1` from db `_replicator`";
        assert_eq!(fixture.scheduled(Err(Taken::Document(other))), [expected]);
        assert!(fixture.rows.is_empty());
    }

    #[test]
    fn the_code_of_a_filter_is_looked_at_again_and_a_new_id_gets_a_new_job() {
        let mut fixture = Fixture::default();
        fixture.run(filtered());
        fixture.identified(Ok("abc"));
        assert_eq!(fixture.scheduled(Ok(())), ["wake 61..61"]);
        assert_eq!(fixture.due(), ["identify d"]);
        assert_eq!(fixture.state(), Some(RowState::Scheduled));
        assert_eq!(fixture.identified(Ok("abc")), ["schedule d abc"]);
        assert_eq!(fixture.scheduled(Ok(())), ["wake 61..61"]);
        fixture.due();
        assert_eq!(
            fixture.identified(Ok("def")),
            ["remove abc", "schedule d def"]
        );
        let info = fixture.rows.get("d").unwrap().info.clone();
        assert_eq!(info.as_deref(), Some("Replication id changed: abc -> def"));
    }
}
