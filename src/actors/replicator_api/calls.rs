//! Calls of `_replicate`: start, await and cancel a replication without a document.
//!
//! SOURCE    couch_replicator: replicate/2, cancel_replication/1.

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::{Job, ReplicatorApi, ReplicatorError, ReplicatorResult, Whose};
use crate::actors::replicator_documents::identify;
use crate::messages::replication_job::JobEnd;
use crate::messages::replication_scheduler::{AddJob, AddJobError, GetJob, JobInfo};
use crate::replicator::document::Person;
use crate::replicator::{NAME, defaults};
use replication::id::ReplicationId;
use replication::spec::{CallBody, DocRef, Replication, UserCtx};

/// The result of a call of `_replicate`.
#[derive(Clone, Debug)]
pub(crate) enum Replicated {
    /// A one-shot replication has completed: the members besides `ok`.
    Done(ReplicationId, Box<RawValue>),
    /// A continuous one was started.
    Begun(ReplicationId),
    /// One was cancelled.
    Cancelled(ReplicationId),
}

impl ReplicatorApi {
    /// Carries out a `_replicate` call with this body; waits for the end of a one-shot replication.
    ///
    /// # Errors
    /// See [`ReplicatorError`].
    pub async fn replicate(&self, body: &Value, person: &Person) -> ReplicatorResult<Replicated> {
        refuse_bare_names(body)?;
        let role = person.is_admin.then(|| "_admin".to_owned());
        let user = UserCtx {
            name: person.name.clone(),
            roles: role.into_iter().collect(),
        };
        let defaults = defaults(&self.options.config.borrow().replicator);
        match CallBody::parse(body, &defaults, user)? {
            CallBody::CancelId(id) => self.cancel(id, person).await,
            CallBody::Cancel(replication) => {
                self.cancel(self.identify(&replication).await?, person)
                    .await
            }
            CallBody::Start(replication) => self.start(*replication).await,
        }
    }

    async fn identify(&self, replication: &Replication) -> ReplicatorResult<ReplicationId> {
        // Errors of the store are reported as such.
        self.options.identity.get(&self.database().store).await?;
        identify(&self.options, replication)
            .await
            .map_err(|error| ReplicatorError::Filter(error.text))
    }

    async fn start(&self, replication: Replication) -> ReplicatorResult<Replicated> {
        let id = self.identify(&replication).await?;
        self.refuse_others(&id, &replication.user).await?;
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
            Ok(JobEnd::Normal(completed)) => Ok(Replicated::Done(id, completed.result.clone())),
            Ok(JobEnd::Crashed(crash)) => Err(ReplicatorError::Crashed(crash)),
            Ok(JobEnd::Stopped) => Err(ReplicatorError::Cancelled),
            Err(_) => Err(ReplicatorError::ShuttingDown),
        }
    }

    /// Refuses a replication that another daemon has for a document or another user. The scheduler does so for the jobs
    /// of this daemon.
    async fn refuse_others(&self, id: &ReplicationId, user: &UserCtx) -> ReplicatorResult<()> {
        let Ok(Job::Other(other)) = self.find(&id.to_string(), &Whose::All).await else {
            return Ok(());
        };
        let by = other.status.doc().map(|doc| DocRef {
            database: NAME.to_owned(),
            id: doc.to_owned(),
        });
        let owner = other.job().and_then(|job| job.user.as_deref());
        let is_admin = user.roles.iter().any(|role| role == "_admin");
        let may_start = is_admin || owner == user.name.as_deref();
        // A transient job may have ended with its daemon.
        if by.is_none() && (may_start || other.lost.is_some()) {
            return Ok(());
        }
        let id = id.clone();
        Err(ReplicatorError::Taken(
            AddJobError::Taken { id, by }.to_string(),
        ))
    }

    /// Cancels a job, which only its owner and administrators can see; one of another daemon through that daemon.
    async fn cancel(&self, id: ReplicationId, person: &Person) -> ReplicatorResult<Replicated> {
        let found = self.scheduler(GetJob { id: id.clone() }).await?;
        let job = if found.is_none() && self.fleet().is_some() {
            let whose = match (person.is_admin, &person.name) {
                (true, _) => Whose::All,
                (false, Some(user)) => Whose::Of(user.clone()),
                (false, None) => return Err(ReplicatorError::Missing),
            };
            self.find(&id.to_string(), &whose).await?
        } else {
            let is_theirs = |info: &JobInfo| {
                let user = &info.replication.user.name;
                person.is_admin || user.is_some() && *user == person.name
            };
            let info = found.filter(is_theirs).ok_or(ReplicatorError::Missing)?;
            if let Some(doc) = &info.replication.doc {
                let text = format!(
                    "Replication `{id}` belongs to document `{}` from db `{}`: delete that document",
                    doc.id, doc.database
                );
                return Err(ReplicatorError::Taken(text));
            }
            Job::Own(Box::new(info))
        };
        self.cancel_job(job, person).await?;
        Ok(Replicated::Cancelled(id))
    }
}

/// Refuses bare names of databases, for which CouchDB uses its own databases.
fn refuse_bare_names(body: &Value) -> ReplicatorResult<()> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_bare_name_of_a_database_is_refused() {
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
