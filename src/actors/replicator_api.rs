//! The interface to replications, for HTTP and clients of the socket.
//!
//! SUMMARY   [`ReplicatorApi`] queries the database, the table of documents and the scheduler, and converts their
//!           answers for users.
//! PROMISES  If several daemons share the store, answers cover all of them, except where a method names this daemon.
//! CALLED    By HTTP and by clients of the socket, on any thread.
//! SOURCE    couch_replicator: replicate/2, cancel_replication/1; couch_replicator_httpd; couch_replicator_fabric:
//!           docs/5.
//! DIFFERS   A job can be paused, resumed, restarted and given a priority. Filtered documents are paged after the
//!           filter, so that pages are full.

mod bulk;
mod calls;
mod error;
pub(crate) mod fleet;
mod list;
pub(crate) mod orders;
mod settled;
pub(crate) mod statuses;
#[cfg(test)]
mod tests;
pub(super) mod view;

use std::ops::Bound;
use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Context, Handler, Message};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use settee_client::{FleetHealth, Health};

use crate::ConfigWatch;
use crate::actors::replication_scheduler::ReplicationScheduler;
use crate::actors::replicator_documents::DocumentsOptions;
use crate::health::report;
use crate::messages::replication_scheduler::{
    GetCounts, GetJob, GetJobs, GetJobsById, GetRunTroubles, JobInfo, RunTroubles,
};
use crate::replicator::states::Locked;
use crate::replicator::table::Row;
use crate::replicator::{Database, DocState, NAME, Page};
use policy::schedule::{Census, JobState};
use replication::id::ReplicationId;
use store::{Document, Store};

pub(crate) use calls::Replicated;
pub(crate) use error::ReplicatorError;
use error::ReplicatorResult;
pub(crate) use fleet::FleetOptions;
use fleet::{Fleet, OtherJob};
pub(crate) use list::Whose;

/// Documents or jobs read at a time.
const BATCH: usize = 256;

/// Replications. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReplicatorApi {
    options: Arc<DocumentsOptions>,
    /// The other daemons, if any.
    fleet: Option<Arc<Fleet>>,
}

impl ReplicatorApi {
    /// Connects to the actors of replications.
    pub fn new(options: DocumentsOptions, fleet: Option<FleetOptions>) -> Self {
        let fleet =
            fleet.map(|fleet| Arc::new(Fleet::new(fleet, Arc::clone(&options.database.states))));
        Self {
            options: Arc::new(options),
            fleet,
        }
    }

    /// Returns the state of the other daemons; `None` if this one does not share its store.
    pub fn fleet(&self) -> Option<&Fleet> {
        self.fleet.as_deref()
    }

    /// Returns the state of the other daemons, recent if the database answers.
    async fn fresh_fleet(&self) -> Option<&Fleet> {
        let fleet = self.fleet()?;
        fleet.freshen().await;
        Some(fleet)
    }

    /// Returns the time since the other daemons' state was read, in seconds; `None` without a fleet, or before the
    /// first read.
    pub fn age_s(&self) -> Option<u64> {
        self.fleet()?.age_s()
    }

    /// Returns whether lists are incomplete, because documents are still being read after the start.
    pub fn is_loading(&self) -> bool {
        self.table().loading().is_some()
    }

    /// Returns the daemons that share the store, and the age of this list in seconds; `None` if this one does not
    /// share its store.
    pub async fn daemons(&self) -> Option<Value> {
        let fleet = self.fresh_fleet().await?;
        Some(json!({"daemons": fleet.daemons(), "age_s": fleet.age_s()}))
    }

    /// Returns the problems of all daemons that share the store: this one's, `own`, and those reported by the others.
    pub async fn fleet_health(&self, own: Health) -> FleetHealth {
        let fleet = self.fresh_fleet().await;
        report::of_fleet(own, fleet.map(Fleet::healths).unwrap_or_default())
    }

    /// Returns the configuration.
    pub fn config(&self) -> ConfigWatch {
        self.options.config.clone()
    }

    /// Returns the store if there is one: it is created when first needed.
    pub fn existing_store(&self) -> Option<&Store> {
        let store = &self.database().store;
        let exists = store.updates().borrow().is_some() || store.place().exists();
        exists.then_some(store)
    }

    /// Returns the replicator database.
    pub fn database(&self) -> &Database {
        &self.options.database
    }

    /// Locks the table of documents for one statement.
    fn table(&self) -> Locked<'_> {
        self.database().states.lock()
    }

    async fn scheduler<M>(&self, message: M) -> ReplicatorResult<M::Result>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        ReplicationScheduler: Handler<M>,
        Context<ReplicationScheduler>: ToEnvelope<ReplicationScheduler, M>,
    {
        let answer = self.options.scheduler.call(message).await;
        answer.map_err(|_| ReplicatorError::ShuttingDown)
    }

    /// Queries jobs in several requests: each answer is short, so that the scheduler is not blocked.
    async fn some_jobs(
        &self,
        states: Vec<JobState>,
        mut skip: usize,
        limit: usize,
    ) -> ReplicatorResult<(usize, Vec<JobInfo>)> {
        let (mut jobs, mut after): (Vec<JobInfo>, _) = (Vec::new(), None);
        loop {
            let order = GetJobs {
                after,
                skip: std::mem::take(&mut skip),
                limit: limit - jobs.len(),
                states: states.clone(),
            };
            let list = self.scheduler(order).await?;
            after = list.jobs.last().map(|job| job.id.to_string());
            jobs.extend(list.jobs);
            if after.is_none() || jobs.len() >= limit {
                return Ok((list.total, jobs));
            }
        }
    }

    /// Returns the number of jobs by state, without reading this daemon's jobs.
    ///
    /// # Errors
    /// The service is shutting down.
    pub async fn census(&self) -> ReplicatorResult<Census> {
        let mut census = self.scheduler(GetCounts).await?.census;
        let Some(fleet) = self.fresh_fleet().await else {
            return Ok(census);
        };
        for other in fleet.others() {
            let (Some(job), state) = (other.job(), other.status.body.state) else {
                continue;
            };
            census.total += 1;
            match state {
                Some(DocState::Running) => census.running += 1,
                Some(DocState::Crashing) => census.crashed += 1,
                _ => census.pending += 1,
            }
            census.paused += usize::from(job.listed() == Some(JobState::Paused));
        }
        Ok(census)
    }

    /// Returns the number of jobs running or stopping in this daemon; 0 while its scheduler restarts.
    pub async fn running_here(&self) -> u64 {
        let counts = self.scheduler(GetCounts).await;
        counts.map_or(0, |counts| counts.census.running as u64)
    }

    /// Returns the problems of this daemon's running jobs; none while its scheduler restarts.
    pub async fn run_troubles(&self) -> RunTroubles {
        self.scheduler(GetRunTroubles).await.unwrap_or_default()
    }

    /// Returns the number of permanently failed documents: they have no job.
    pub fn failed_docs(&self) -> usize {
        self.table().count(DocState::Failed)
    }

    /// Finds a job by its id or its document's id, and returns it as users see it.
    ///
    /// # Errors
    /// There is none, or the service is shutting down.
    pub async fn job(&self, name: &str, whose: &Whose) -> ReplicatorResult<Value> {
        Ok(match self.find(name, whose).await? {
            Job::Own(info) => self.shown(&info),
            Job::Other(other) => other.shown_job().ok_or(ReplicatorError::Missing)?,
        })
    }

    /// Returns a job of this daemon as users see it.
    fn shown(&self, info: &JobInfo) -> Value {
        self.with_daemon(view::job(info))
    }

    /// Adds the address of this daemon, in a fleet.
    fn with_daemon(&self, mut value: Value) -> Value {
        if let Some(fleet) = self.fleet() {
            value["daemon"] = (**fleet.address()).into();
        }
        value
    }

    async fn info(&self, name: &str) -> ReplicatorResult<JobInfo> {
        let Ok(id) = name.parse();
        if let Some(found) = self.scheduler(GetJob { id }).await? {
            return Ok(found);
        }
        let job = self.table().job_of(name);
        let Ok(id) = job.ok_or(ReplicatorError::Missing)?.parse();
        self.scheduler(GetJob { id })
            .await?
            .ok_or(ReplicatorError::Missing)
    }

    /// Returns running replications, as in `_active_tasks`.
    ///
    /// # Errors
    /// The service is shutting down.
    pub async fn tasks(&self) -> ReplicatorResult<Vec<Value>> {
        let mut tasks: Vec<Value> = self
            .own_tasks()
            .await?
            .into_iter()
            .map(|task| self.with_daemon(task))
            .collect();
        if let Some(fleet) = self.fresh_fleet().await {
            tasks.extend(fleet.others().iter().filter_map(OtherJob::shown_task));
        }
        Ok(tasks)
    }

    /// Returns running replications of this daemon.
    ///
    /// # Errors
    /// The service is shutting down.
    pub async fn own_tasks(&self) -> ReplicatorResult<Vec<Value>> {
        let (_, jobs) = self
            .some_jobs(vec![JobState::Running], 0, usize::MAX)
            .await?;
        Ok(jobs.iter().filter_map(view::task).collect())
    }

    /// Returns the number of documents, the offset of the page, and the page's documents in these states, as in
    /// `_scheduler/docs`.
    ///
    /// # Errors
    /// The store fails, or the service is shutting down. In a fleet, a failure after the store was opened is no
    /// error: documents are shown as far as they are known.
    pub async fn docs(
        &self,
        mut page: Page,
        states: &[DocState],
    ) -> ReplicatorResult<(usize, usize, Vec<Box<RawValue>>)> {
        let database = self.database();
        let fleet = self.fresh_fleet().await;
        // The states are known once the store is open.
        let was_open = database.store.updates().borrow().is_some();
        if fleet.is_none() || !was_open {
            database.store.open().await?;
        }
        let limit = std::mem::replace(&mut page.limit, 0);
        let head = self.table().page(&page, states);
        let mut shown = Vec::new();
        // After a failure the store is not queried again.
        let mut has_store = true;
        loop {
            page.limit = (limit - shown.len()).min(BATCH);
            let ids = self.table().page(&page, states).ids;
            let Some(last) = ids.last() else { break };
            (page.start, page.skip) = (Bound::Excluded(last.to_string()), 0);
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let found = if has_store {
                database.store.documents(ids.clone()).await.map(Some)
            } else {
                Ok(None)
            };
            let documents = match found {
                Ok(Some(found)) => found
                    .into_iter()
                    .flatten()
                    .filter(|one| !one.deleted)
                    .map(|one| (one.id.clone(), Some(one)))
                    .collect(),
                Err(error) if fleet.is_none() => return Err(error.into()),
                Ok(None) | Err(_) => {
                    has_store = false;
                    ids.into_iter().map(|id| (id, None)).collect()
                }
            };
            for (state, value) in self.summaries(documents).await? {
                // Its state may have changed since.
                if states.is_empty() || states.contains(&state) {
                    shown.push(value);
                }
            }
        }
        Ok((head.total, head.offset, shown))
    }

    /// Returns a document as in `_scheduler/docs`.
    ///
    /// # Errors
    /// There is none, the store fails, or the service is shutting down.
    pub async fn doc(&self, id: &str) -> ReplicatorResult<Box<RawValue>> {
        let found = self.database().store.document(id).await?;
        self.fresh_fleet().await;
        let existing = found.filter(|document| !document.deleted);
        let named = existing.map(|document| (id.to_owned(), Some(document)));
        let mut shown = self.summaries(named.into_iter().collect()).await?;
        let (_, value) = shown.pop().ok_or(ReplicatorError::Missing)?;
        Ok(value)
    }

    /// Returns documents as in `_scheduler/docs`; of one without its content, which the store does not return, only the
    /// id is known.
    async fn summaries(
        &self,
        mut documents: Vec<(String, Option<Document>)>,
    ) -> ReplicatorResult<Vec<(DocState, Box<RawValue>)>> {
        documents.retain(|(id, _)| !id.starts_with("_design/"));
        let docs = documents.iter().map(|(id, _)| id.clone()).collect();
        let documents = documents.iter().zip(self.known(docs).await?);
        let shown = documents.map(|((id, document), (row, info))| {
            if let Some((state, value)) = view::unsettled(id, row.as_ref(), info.as_ref()) {
                return (state, view::raw(&self.with_daemon(value)));
            }
            let other = self.fleet().and_then(|fleet| fleet.other(id));
            if let Some(other) = other
                && let (Some(state), Some(value)) = (other.status.body.state, other.shown_doc())
            {
                return (state, view::raw(&value));
            }
            match document {
                Some(document) => view::settled(document, self.fleet().map(|_| view::UNCLAIMED)),
                None => {
                    let state = self.table().state_of(id);
                    let value = json!({"database": NAME, "doc_id": id, "state": state.name()});
                    (state, view::raw(&value))
                }
            }
        });
        Ok(shown.collect())
    }

    /// Returns this daemon's state of documents: their progress and jobs.
    async fn known(
        &self,
        docs: Vec<String>,
    ) -> ReplicatorResult<Vec<(Option<Row>, Option<JobInfo>)>> {
        let rows: Vec<Option<Row>> = {
            let table = self.table();
            docs.iter().map(|doc| table.row(doc).cloned()).collect()
        };
        let ids: Vec<ReplicationId> = rows
            .iter()
            .filter_map(|row| row.as_ref()?.job.clone())
            .collect();
        let mut infos = self.scheduler(GetJobsById { ids }).await?.into_iter();
        let known = docs.into_iter().zip(rows).map(|(id, row)| {
            let job = row.as_ref().and_then(|row| row.job.as_ref());
            let info = job.and_then(|_| infos.next().flatten());
            // A job with the same id may belong to another user.
            let own = info.filter(|info| {
                let doc = info.replication.doc.as_ref();
                doc.is_some_and(|doc| doc.database == NAME && doc.id == id)
            });
            (row, own)
        });
        Ok(known.collect())
    }
}

/// A job of this or another daemon.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    Own(Box<JobInfo>),
    Other(OtherJob),
}
