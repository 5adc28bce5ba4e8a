//! The interface to replications, for HTTP and clients of the socket.
//!
//! SUMMARY   [`ReplicatorApi`] asks the database, the scheduler and the actor between them, and makes what users
//!           see of their answers.
//! CALLED    By HTTP and by clients of the socket, on any thread.
//! SOURCE    couch_replicator: replicate/2, cancel_replication/1; couch_replicator_httpd;
//!           couch_replicator_fabric: docs/5.
//! DIFFERS   A job can be paused, resumed, begun anew and given a priority. Filtered documents are
//!           paged after the filter, so that no page is short.

mod bulk;
mod calls;
mod error;
mod list;
mod settled;
#[cfg(test)]
mod tests;
pub(super) mod view;

use std::ops::Bound;
use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Context, Handler, Message};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::actors::replication_scheduler::ReplicationScheduler;
use crate::actors::replicator_documents::{DocumentsOptions, ReplicatorDocuments};
use crate::messages::replication_scheduler::{GetCounts, GetJob, GetJobs, GetJobsById, JobInfo};
use crate::messages::replicator_documents::GetRows;
use crate::otp::registered_name::RegisteredName;
use crate::replicator::{Database, NAME, Page};
use crate::store::Document;
use policy::schedule::{Census, JobState};
use replication::id::ReplicationId;

pub(crate) use calls::Replicated;
pub(crate) use error::ReplicatorError;
pub(crate) use list::Whose;

/// Documents, and jobs, that are read at a time.
const BATCH: usize = 256;

/// Replications. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReplicatorApi {
    options: Arc<DocumentsOptions>,
    documents: RegisteredName<ReplicatorDocuments>,
}

impl ReplicatorApi {
    /// Gathers who knows of replications.
    pub fn new(options: DocumentsOptions, documents: RegisteredName<ReplicatorDocuments>) -> Self {
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

    /// Asks for jobs, as many times as it takes: each answer is short, so that the scheduler is not
    /// kept from its work.
    async fn some_jobs(
        &self,
        states: Vec<JobState>,
        mut skip: usize,
        limit: usize,
    ) -> Result<(usize, Vec<JobInfo>), ReplicatorError> {
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

    /// Returns how many jobs there are in which state; no job is looked at.
    ///
    /// # Errors
    /// The service ends.
    pub async fn census(&self) -> Result<Census, ReplicatorError> {
        Ok(self.scheduler(GetCounts).await?.census)
    }

    /// Returns a job by its id or its document's, as users see it.
    ///
    /// # Errors
    /// There is none, or the service ends.
    pub async fn job(&self, name: &str, whose: &Whose) -> Result<Value, ReplicatorError> {
        Ok(view::job(&self.find(name, whose).await?))
    }

    async fn info(&self, name: &str) -> Result<JobInfo, ReplicatorError> {
        let Ok(id) = name.parse();
        if let Some(found) = self.scheduler(GetJob { id }).await? {
            return Ok(found);
        }
        let job = self.database().states().job_of(name);
        let Ok(id) = job.ok_or(ReplicatorError::Missing)?.parse();
        let found = self.scheduler(GetJob { id }).await?;
        found.ok_or(ReplicatorError::Missing)
    }

    /// Returns what runs, as in `_active_tasks`.
    ///
    /// # Errors
    /// The service ends.
    pub async fn tasks(&self) -> Result<Vec<Value>, ReplicatorError> {
        let (_, jobs) = self
            .some_jobs(vec![JobState::Running], 0, usize::MAX)
            .await?;
        Ok(jobs.iter().filter_map(view::task).collect())
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
    ) -> Result<(usize, usize, Vec<Box<RawValue>>), ReplicatorError> {
        let database = self.database();
        // The states are known once the store is open.
        database.store().open().await?;
        let limit = std::mem::replace(&mut page.limit, 0);
        let head = database.states().page(&page, states);
        let mut shown = Vec::new();
        loop {
            page.limit = (limit - shown.len()).min(BATCH);
            let ids = database.states().page(&page, states).ids;
            let Some(last) = ids.last() else { break };
            (page.start, page.skip) = (Bound::Excluded(last.to_string()), 0);
            let ids = ids.iter().map(ToString::to_string).collect();
            let found = database.store().documents(ids).await?.into_iter();
            let there = found.flatten().filter(|document| !document.deleted);
            for (state, value) in self.summaries(there.collect()).await? {
                // It may be in another one by now.
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
    /// There is none, the store fails, or the service ends.
    pub async fn doc(&self, id: &str) -> Result<Box<RawValue>, ReplicatorError> {
        let found = self.database().store().document(id).await?;
        let documents = found.into_iter().filter(|document| !document.deleted);
        let shown = self.summaries(documents.collect()).await?;
        let first = shown.into_iter().next().ok_or(ReplicatorError::Missing)?;
        Ok(first.1)
    }

    async fn summaries(
        &self,
        mut documents: Vec<Document>,
    ) -> Result<Vec<(String, Box<RawValue>)>, ReplicatorError> {
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
            let job = row.as_ref().and_then(|row| row.job.as_ref());
            let info = job.and_then(|_| infos.next().flatten());
            // A job of the same id may belong to somebody else.
            let own = info.filter(|info| {
                let doc = info.replication.doc.as_ref();
                doc.is_some_and(|doc| doc.database == NAME && doc.id == document.id)
            });
            view::document(document, row.as_ref(), own.as_ref())
        });
        Ok(shown.collect())
    }
}

/// Sends a message to an actor that is there as long as the service runs.
async fn ask<A, M>(actor: &RegisteredName<A>, message: M) -> Result<M::Result, ReplicatorError>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
    Context<A>: ToEnvelope<A, M>,
{
    let answer = actor.address().send(message).await;
    answer.map_err(|_| ReplicatorError::ShuttingDown)
}
