//! This daemon's reports to the others of its fleet: the states of its documents and transient jobs.

use std::sync::Arc;

use super::{ReplicatorApi, ReplicatorError, view};
use crate::messages::replication_scheduler::{GetJobsById, JobInfo};
use crate::replicator::status::{JobBody, StatusBody};
use crate::replicator::table::Row;
use policy::schedule::{JobState, WallTime};
use replication::id::ReplicationId;
use store::fleet::{JobStatus, StatusOf};

impl ReplicatorApi {
    /// Returns the current state of documents and transient jobs.
    ///
    /// # Errors
    /// The service is shutting down.
    pub(crate) async fn statuses(
        &self,
        of: &[StatusOf],
    ) -> Result<Vec<JobStatus>, ReplicatorError> {
        let mut statuses = Vec::with_capacity(of.len());
        let docs = of.iter().filter_map(|of| match of {
            StatusOf::Document(doc) => Some(doc),
            StatusOf::Transient(_) => None,
        });
        let docs: Vec<&Arc<str>> = docs.collect();
        let ids = docs.iter().map(ToString::to_string).collect();
        for (doc, (row, info)) in docs.iter().zip(self.known(ids).await?) {
            statuses.push(JobStatus {
                of: StatusOf::Document(Arc::clone(doc)),
                body: Some(of_document(doc, row.as_ref(), info.as_ref()).text()),
            });
        }
        let ids = of.iter().filter_map(|of| match of {
            StatusOf::Transient(id) => Some(Arc::clone(id)),
            StatusOf::Document(_) => None,
        });
        let transient: Vec<Arc<str>> = ids.collect();
        let ids = transient.iter().map(|id| replication_id(id)).collect();
        let infos = self.scheduler(GetJobsById { ids }).await?;
        for (id, info) in transient.into_iter().zip(infos) {
            // A job with this id may now be a document's.
            let own = info.filter(|info| info.replication.doc.is_none());
            let body = own.map(|info| StatusBody {
                state: Some(info.shown.summary.state.into()),
                doc: None,
                job: Some(of_job(&info)),
            });
            statuses.push(JobStatus {
                of: StatusOf::Transient(id),
                body: body.map(|body| body.text()),
            });
        }
        Ok(statuses)
    }

    /// Returns the running jobs that made progress since a time.
    ///
    /// # Errors
    /// The service is shutting down.
    pub(crate) async fn came_on(&self, since: WallTime) -> Result<Vec<StatusOf>, ReplicatorError> {
        let running = vec![JobState::Running];
        let (_, jobs) = self.some_jobs(running, 0, usize::MAX).await?;
        let jobs = jobs.into_iter();
        let came_on = jobs.filter(|info| info.progress_at.is_some_and(|at| at >= since));
        Ok(came_on.map(|info| status_of(&info)).collect())
    }

    /// Returns all transient jobs.
    ///
    /// # Errors
    /// The service is shutting down.
    pub(crate) async fn transient(&self) -> Result<Vec<StatusOf>, ReplicatorError> {
        let all = JobState::ALL.to_vec();
        let (_, jobs) = self.some_jobs(all, 0, usize::MAX).await?;
        let jobs = jobs.iter().filter(|info| info.replication.doc.is_none());
        Ok(jobs.map(status_of).collect())
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

fn of_document(id: &str, row: Option<&Row>, info: Option<&JobInfo>) -> StatusBody {
    let Some((state, doc)) = view::unsettled(id, row, info) else {
        return StatusBody::default();
    };
    StatusBody {
        state: Some(state),
        doc: Some(view::raw(&doc)),
        job: info.map(of_job),
    }
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
