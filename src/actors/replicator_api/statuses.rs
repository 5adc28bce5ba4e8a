//! This daemon's reports to the others of its fleet: the states of its documents and transient jobs.

use std::sync::Arc;

use super::{ReplicatorApi, ReplicatorResult, view};
use crate::messages::replication_scheduler::{GetJobsById, JobInfo};
use crate::replicator::status::{JobBody, StatusBody};
use policy::schedule::{JobState, WallTime};
use replication::id::ReplicationId;
use store::fleet::{JobStatus, StatusOf};

impl ReplicatorApi {
    /// Returns the current state of documents and transient jobs.
    ///
    /// # Errors
    /// The service is shutting down.
    pub(crate) async fn statuses(&self, of: &[StatusOf]) -> ReplicatorResult<Vec<JobStatus>> {
        let mut statuses = Vec::with_capacity(of.len());
        let (mut docs, mut transient): (Vec<&Arc<str>>, Vec<&Arc<str>>) = Default::default();
        for of in of {
            match of {
                StatusOf::Document(doc) => docs.push(doc),
                StatusOf::Transient(id) => transient.push(id),
            }
        }
        let ids = docs.iter().map(ToString::to_string).collect();
        for (doc, (row, info)) in docs.iter().zip(self.known(ids).await?) {
            let shown = view::unsettled(doc, row.as_ref(), info.as_ref());
            let body = shown.map(|(state, doc)| StatusBody {
                state: Some(state),
                doc: Some(view::raw(&doc)),
                job: info.as_ref().map(of_job),
            });
            statuses.push(JobStatus {
                of: StatusOf::Document(Arc::clone(doc)),
                body: Some(body.unwrap_or_default().text()),
            });
        }
        let ids = transient.iter().map(|id| replication_id(id)).collect();
        for (id, info) in transient
            .into_iter()
            .zip(self.scheduler(GetJobsById { ids }).await?)
        {
            // A job with this id may now be a document's.
            let body = info
                .filter(|info| info.replication.doc.is_none())
                .map(|info| StatusBody {
                    state: Some(info.shown.summary.state.into()),
                    doc: None,
                    job: Some(of_job(&info)),
                });
            statuses.push(JobStatus {
                of: StatusOf::Transient(Arc::clone(id)),
                body: body.map(|body| body.text()),
            });
        }
        Ok(statuses)
    }

    /// Returns the running jobs that made progress since a time.
    ///
    /// # Errors
    /// The service is shutting down.
    pub(crate) async fn came_on(&self, since: WallTime) -> ReplicatorResult<Vec<StatusOf>> {
        let states = vec![JobState::Running];
        let has_moved = |info: &JobInfo| info.progress_at.is_some_and(|at| at >= since);
        self.jobs_that(states, has_moved).await
    }

    /// Returns all transient jobs.
    ///
    /// # Errors
    /// The service is shutting down.
    pub(crate) async fn transient(&self) -> ReplicatorResult<Vec<StatusOf>> {
        let states = JobState::ALL.to_vec();
        self.jobs_that(states, |info| info.replication.doc.is_none())
            .await
    }

    async fn jobs_that(
        &self,
        states: Vec<JobState>,
        fit: impl Fn(&JobInfo) -> bool,
    ) -> ReplicatorResult<Vec<StatusOf>> {
        let (_, jobs) = self.some_jobs(states, 0, usize::MAX).await?;
        let fitting = jobs.iter().filter(|info| fit(info));
        Ok(fitting.map(status_of).collect())
    }
}

fn status_of(info: &JobInfo) -> StatusOf {
    match &info.replication.doc {
        Some(doc) => StatusOf::Document(doc.id.as_str().into()),
        None => StatusOf::Transient(info.id.to_string().into()),
    }
}

pub(super) fn replication_id(id: &str) -> ReplicationId {
    let Ok(id) = id.parse();
    id
}

fn of_job(info: &JobInfo) -> JobBody {
    let task = view::task(info).map(|task| view::raw(&task));
    info.facts(None, |facts| JobBody {
        id: facts.id.to_owned(),
        listed: facts.state,
        source: facts.source.to_owned(),
        target: facts.target.to_owned(),
        reason: facts.reason.map(str::to_owned),
        since: info.shown.since.as_micros(),
        user: info.replication.user.name.clone(),
        shown: view::raw(&view::job(info)),
        task,
    })
}
