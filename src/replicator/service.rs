//! Replications as HTTP and clients of the socket see them: the database, the scheduler, and what is
//! between them.
//!
//! SUMMARY   [`Replications`] asks the actors that know and puts together what users see.
//! CALLED    By HTTP and by clients of the socket, on any thread.
//! SOURCE    couch_replicator: replicate/2, cancel_replication/1; couch_replicator_httpd;
//!           couch_replicator_fabric: docs/5.
//! DIFFERS   A job can be paused, resumed, begun anew and given a priority. Filtered documents are
//!           paged after the filter, so that no page is short.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use actix::dev::ToEnvelope;
use actix::{Actor, Context, Handler, Message};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::document::Person;
use super::kept::Kept;
use super::{Database, NAME, defaults, view};
use crate::actors::replication_scheduler::ReplicationScheduler;
use crate::actors::replicator_documents::{DocumentsOptions, ReplicatorDocuments, identify};
use crate::actors::supervisor::Named;
use crate::messages::replication_scheduler::{
    AddJob, AddJobError, GetCounts, GetJob, GetJobs, GetJobsById, JobChoice, JobInfo, Outcome,
    PauseJob, RemoveJob, RestartJob, ResumeJob, SetPriority,
};
use crate::messages::replicator_documents::GetRows;
use crate::policy::schedule::{Census, JobState, Level, Pause, WallTime};
use crate::replication::crash::Crash;
use crate::replication::id::ReplicationId;
use crate::replication::spec::{CallBody, Replication, SpecError, UserCtx};
use crate::store::{Document, Page, StoreError};

/// Documents, and jobs, that are read at a time.
const BATCH: usize = 256;

/// States that documents may be asked for by.
pub const STATES: &[&str] = &[
    "initializing",
    "error",
    "pending",
    "running",
    "crashing",
    "completed",
    "failed",
];

/// Why a request is not answered as it wants.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReplicatorError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The body asks for no replication. The caller's fault.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A database was named and no URL given. The caller's fault.
    #[error(
        "{0:?} is the bare name of a database, and this service holds no databases: give the whole \
         URL of source and target"
    )]
    BareName(String),
    /// The id could not be found out: the source does not say what its filter is. Worth a retry.
    #[error("{0}")]
    Filter(String),
    /// There is no such job.
    #[error("missing")]
    Missing,
    /// The id belongs to a document's job.
    #[error("{0}")]
    Taken(String),
    /// The job failed.
    #[error("{0}")]
    Crashed(Crash),
    /// The job was removed before its end.
    #[error("the replication was cancelled")]
    Cancelled,
    /// The service ends. Worth a retry after its start.
    #[error("the service is shutting down")]
    ShuttingDown,
}

/// What came of a call of `_replicate`.
#[derive(Clone, Debug)]
pub enum Replicated {
    /// A one-shot replication has done its work: the members beside `ok`.
    Done(Box<RawValue>),
    /// A continuous one was begun.
    Begun(ReplicationId),
    /// One was ended.
    Cancelled(ReplicationId),
}

/// What can be done with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// Stop it until it is resumed.
    Pause,
    /// Let it run.
    Resume,
    /// Begin it anew, its failures forgotten.
    Restart,
    /// Give it this priority: the higher, the sooner its turn.
    Priority(i8),
}

/// Replications. Cheap to clone.
#[derive(Clone)]
pub struct Replications {
    options: Arc<DocumentsOptions>,
    documents: Named<ReplicatorDocuments>,
}

impl Replications {
    /// Gathers who knows of replications.
    pub fn new(options: DocumentsOptions, documents: Named<ReplicatorDocuments>) -> Self {
        Self {
            options: Arc::new(options),
            documents,
        }
    }

    /// Returns the replicator database.
    pub fn database(&self) -> &Database {
        &self.options.database
    }

    async fn scheduler<M>(&self, message: M) -> Result<M::Result, ReplicatorError>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        ReplicationScheduler: Handler<M>,
        Context<ReplicationScheduler>: ToEnvelope<ReplicationScheduler, M>,
    {
        ask(&self.options.scheduler, message).await
    }

    /// Returns how many jobs there are in one of the states, all without states, and some of them in
    /// the order of their ids, as users see them.
    ///
    /// # Errors
    /// The service ends.
    pub async fn jobs(
        &self,
        skip: usize,
        limit: usize,
        states: &[String],
    ) -> Result<(usize, Vec<Value>), ReplicatorError> {
        let is_asked_for = |state: &JobState| states.iter().any(|name| name == state.name());
        let of = match states {
            [] => JobChoice::All,
            _ => JobChoice::In(JobState::ALL.into_iter().filter(is_asked_for).collect()),
        };
        let list = self.scheduler(GetJobs { skip, limit, of }).await?;
        Ok((list.total, list.jobs.iter().map(view::job).collect()))
    }

    /// Returns how many jobs there are in which state; no job is looked at.
    ///
    /// # Errors
    /// The service ends.
    pub async fn census(&self) -> Result<Census, ReplicatorError> {
        Ok(self.scheduler(GetCounts).await?.census)
    }

    /// Returns a job, as users see it.
    ///
    /// # Errors
    /// There is none, or the service ends.
    pub async fn job(&self, id: &str) -> Result<Value, ReplicatorError> {
        let info = self.info(id).await?;
        Ok(view::job(&info))
    }

    async fn info(&self, id: &str) -> Result<JobInfo, ReplicatorError> {
        let Ok(id) = id.parse();
        let found = self.scheduler(GetJob { id }).await?;
        found.ok_or(ReplicatorError::Missing)
    }

    /// Returns what runs, as in `_active_tasks`.
    ///
    /// # Errors
    /// The service ends.
    pub async fn tasks(&self) -> Result<Vec<Value>, ReplicatorError> {
        let order = GetJobs {
            skip: 0,
            limit: usize::MAX,
            of: JobChoice::Running,
        };
        let list = self.scheduler(order).await?;
        Ok(list.jobs.iter().filter_map(view::task).collect())
    }

    /// Tells a job what to do, and keeps that over restarts where it belongs to a document.
    ///
    /// # Errors
    /// There is no such job, the store fails, or the service ends.
    pub async fn order(
        &self,
        id: &str,
        order: JobOrder,
        person: &Person,
    ) -> Result<Value, ReplicatorError> {
        let info = self.info(id).await?;
        let by: Arc<str> = person.name.as_deref().unwrap_or("admin").into();
        if let Some(doc) = &info.replication.doc {
            let mut kept = Kept {
                paused: info.paused.clone(),
                priority: info.priority,
            };
            match order {
                JobOrder::Pause => {
                    let since = now();
                    let by = Arc::clone(&by);
                    kept.paused = kept.paused.or(Some(Pause { by, since }));
                }
                JobOrder::Resume => kept.paused = None,
                JobOrder::Priority(level) => kept.priority = Level(level),
                JobOrder::Restart => {}
            }
            // First: what was answered outlives the service.
            self.database().store().keep(&doc.id, kept.text()).await?;
        }
        let id = info.id.clone();
        let is_there = match order {
            JobOrder::Pause => self.scheduler(PauseJob { id, by }).await?,
            JobOrder::Resume => self.scheduler(ResumeJob { id }).await?,
            JobOrder::Restart => self.scheduler(RestartJob { id }).await?,
            JobOrder::Priority(level) => {
                let priority = Level(level);
                self.scheduler(SetPriority { id, priority }).await?
            }
        };
        if !is_there {
            return Err(ReplicatorError::Missing);
        }
        self.job(&info.id.to_string()).await
    }

    /// Returns how many documents there are, where the page begins, and those of the page that are in
    /// one of the states, as in `_scheduler/docs`.
    ///
    /// # Errors
    /// The store fails, or the service ends.
    pub async fn docs(
        &self,
        mut page: Page,
        states: &[String],
    ) -> Result<(u64, u64, Vec<Value>), ReplicatorError> {
        let (mut skip, limit) = (page.skip, page.limit);
        (page.skip, page.limit) = (0, BATCH);
        let (mut shown, mut total, mut offset) = (Vec::new(), 0, 0);
        loop {
            let listing = self.database().store().list(page.clone()).await?;
            total = listing.total.max(total);
            let is_last = listing.documents.len() < BATCH;
            page.start = match listing.documents.last() {
                Some(last) => std::ops::Bound::Excluded(last.id.clone()),
                None => page.start,
            };
            for (state, value) in self.summaries(listing.documents).await? {
                if !states.is_empty() && !states.contains(&state) {
                    continue;
                }
                if skip > 0 {
                    skip -= 1;
                    offset += 1;
                } else if shown.len() < limit {
                    shown.push(value);
                }
            }
            if is_last || shown.len() >= limit {
                return Ok((total, offset, shown));
            }
        }
    }

    /// Returns a document as in `_scheduler/docs`.
    ///
    /// # Errors
    /// There is none, the store fails, or the service ends.
    pub async fn doc(&self, id: &str) -> Result<Value, ReplicatorError> {
        let found = self.database().store().document(id).await?;
        let documents = found.into_iter().filter(|document| !document.deleted);
        let shown = self.summaries(documents.collect()).await?;
        let first = shown.into_iter().next().ok_or(ReplicatorError::Missing)?;
        Ok(first.1)
    }

    async fn summaries(
        &self,
        mut documents: Vec<Document>,
    ) -> Result<Vec<(String, Value)>, ReplicatorError> {
        documents.retain(|document| !document.id.starts_with("_design/"));
        let docs = documents
            .iter()
            .map(|document| document.id.clone())
            .collect();
        let rows = ask(&self.documents, GetRows { docs }).await?;
        let ids: Vec<ReplicationId> = rows
            .iter()
            .filter_map(|row| row.as_ref()?.job.clone())
            .collect();
        let infos = self.scheduler(GetJobsById { ids }).await?;
        let mut infos = infos.into_iter();
        let shown = documents.iter().zip(&rows).map(|(document, row)| {
            let has_job = row.as_ref().is_some_and(|row| row.job.is_some());
            let info = if has_job {
                infos.next().flatten()
            } else {
                None
            };
            // Of the same id there may be a job of somebody else.
            let own = info.filter(|info| {
                let doc = info.replication.doc.as_ref();
                doc.is_some_and(|doc| doc.database == NAME && doc.id == document.id)
            });
            view::document(document, row.as_ref(), own.as_ref())
        });
        Ok(shown.collect())
    }

    /// Does what the body of a call of `_replicate` asks for; a one-shot replication is waited for.
    ///
    /// # Errors
    /// See [`ReplicatorError`].
    pub async fn replicate(
        &self,
        body: &Value,
        person: &Person,
    ) -> Result<Replicated, ReplicatorError> {
        refuse_bare_names(body)?;
        let roles = if person.is_admin {
            vec!["_admin".to_owned()]
        } else {
            Vec::new()
        };
        let user = UserCtx {
            name: person.name.clone(),
            roles,
        };
        let defaults = defaults(&self.options.config.borrow().replicator);
        match CallBody::parse(body, &defaults, user)? {
            CallBody::CancelId(id) => self.cancel(id).await,
            CallBody::Cancel(replication) => {
                let id = self.identify(&replication).await?;
                self.cancel(id).await
            }
            CallBody::Start(replication) => self.start(*replication).await,
        }
    }

    async fn identify(&self, replication: &Replication) -> Result<ReplicationId, ReplicatorError> {
        // An error of the store is told as such.
        let store = self.database().store();
        self.options.identity.get(store).await?;
        let id = identify(&self.options, replication).await;
        id.map_err(ReplicatorError::Filter)
    }

    async fn start(&self, replication: Replication) -> Result<Replicated, ReplicatorError> {
        let id = self.identify(&replication).await?;
        let is_continuous = replication.options.continuous;
        let (waiter, end) = oneshot::channel();
        let order = AddJob {
            waiter: (!is_continuous).then_some(waiter),
            ..AddJob::new(replication, id.clone())
        };
        match self.scheduler(order).await? {
            Ok(_) => {}
            Err(AddJobError::ShuttingDown) => return Err(ReplicatorError::ShuttingDown),
            Err(error) => return Err(ReplicatorError::Taken(error.to_string())),
        }
        if is_continuous {
            return Ok(Replicated::Begun(id));
        }
        match end.await {
            Ok(Outcome::Completed(completed)) => Ok(Replicated::Done(completed.result.clone())),
            Ok(Outcome::Crashed(crash)) => Err(ReplicatorError::Crashed(crash)),
            Ok(Outcome::Removed) => Err(ReplicatorError::Cancelled),
            Err(_) => Err(ReplicatorError::ShuttingDown),
        }
    }

    async fn cancel(&self, id: ReplicationId) -> Result<Replicated, ReplicatorError> {
        let found = self.scheduler(GetJob { id: id.clone() }).await?;
        let info = found.ok_or(ReplicatorError::Missing)?;
        if let Some(doc) = &info.replication.doc {
            let text = format!(
                "Replication `{id}` belongs to document `{}` from db `{}`: delete that document",
                doc.id, doc.database
            );
            return Err(ReplicatorError::Taken(text));
        }
        match self.scheduler(RemoveJob { id: id.clone() }).await? {
            true => Ok(Replicated::Cancelled(id)),
            false => Err(ReplicatorError::Missing),
        }
    }
}

/// Sends a message to an actor that is there as long as the service runs.
async fn ask<A, M>(actor: &Named<A>, message: M) -> Result<M::Result, ReplicatorError>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
    Context<A>: ToEnvelope<A, M>,
{
    let answer = actor.address().send(message).await;
    answer.map_err(|_| ReplicatorError::ShuttingDown)
}

/// CouchDB takes a bare name for one of its own databases.
fn refuse_bare_names(body: &Value) -> Result<(), ReplicatorError> {
    for side in ["source", "target"] {
        let url = match &body[side] {
            Value::String(url) => url.as_str(),
            other => other["url"].as_str().unwrap_or("://"),
        };
        if !url.contains("://") && !url.is_empty() {
            return Err(ReplicatorError::BareName(url.to_owned()));
        }
    }
    Ok(())
}

fn now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    WallTime::ZERO + since.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bare_name_is_refused_with_what_to_do() {
        let refused = |body: Value| refuse_bare_names(&body).map_err(|error| error.to_string());
        let text = refused(json!({"source": "shop", "target": "http://h/b"})).unwrap_err();
        assert!(
            text.starts_with("\"shop\" is the bare name of a database"),
            "{text}"
        );
        assert!(refused(json!({"source": "http://h/a", "target": {"url": "b"}})).is_err());
        for fine in [
            json!({"source": "http://h/a", "target": {"url": "https://h/b"}}),
            json!({"cancel": true, "id": "x"}),
            json!({"source": 1}),
            json!([]),
        ] {
            assert_eq!(refused(fine), Ok(()));
        }
    }
}
