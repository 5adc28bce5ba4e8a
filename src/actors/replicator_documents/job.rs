//! From replications to jobs: computes an id, and adds a job to the scheduler.

use std::sync::Arc;
use std::time::Duration;

use actix_rt::time::sleep;

use super::{Attempt, DocumentsOptions, Event, StepEnd};
use crate::actors::replication_scheduler::ReplicationScheduler;
use crate::messages::replication_scheduler::{AddJob, AddJobError, AddJobs};
use crate::otp::RegisteredName;
use crate::replicator::kept::Kept;
use crate::replicator::lease::DocLease;
use crate::replicator::past::{self, Past};
use crate::replicator::table::{ClaimWork, NotYet, Row, Taken};
use replication::crash::Crash;
use replication::endpoint::HttpSettings;
use replication::filter::fetch_code;
use replication::id::{ReplicationId, replication_id};
use replication::spec::Replication;
use store::StoreError;
use store::fleet::JobRow;

/// How long to wait for a scheduler that is restarting.
const SCHEDULER_WAIT: Duration = Duration::from_secs(1);

/// How long to wait after a failure of the store.
pub(super) const STORE_WAIT: Duration = Duration::from_secs(1);

/// A job to add to the scheduler.
pub(super) struct ToAdd {
    pub doc: String,
    pub attempt: Attempt,
    pub id: ReplicationId,
    pub replication: Arc<Replication>,
    /// The lease of its document, and the work that ends with the addition; `None` if this daemon owns every document.
    pub owned: Option<(Arc<DocLease>, ClaimWork)>,
}

impl ToAdd {
    /// Returns the message to the scheduler, for a job with this row.
    fn order(&self, row: &JobRow) -> AddJob {
        let kept = row.kept.as_deref().map(Kept::read).unwrap_or_default();
        let past = row.past.as_deref();
        let past = past.map(|text| past::read(text, &self.replication.digest()));
        let Past { earlier, refused } = past.unwrap_or_default();
        let lease = self.owned.as_ref().map(|(lease, _)| lease);
        let earlier = kept.counts_of(earlier);
        AddJob {
            priority: kept.priority,
            earlier: if lease.is_some_and(|lease| lease.is_extra) {
                earlier.tried_at_once()
            } else {
                earlier
            },
            paused: kept.paused,
            refused,
            guard: lease.map(DocLease::guard).unwrap_or_default(),
            ..AddJob::new(Arc::clone(&self.replication), self.id.clone())
        }
    }

    /// Ends the work with this result; `None` if this daemon may no longer act on the document.
    pub fn done(self, result: Option<Result<(), Taken>>) -> StepEnd {
        let event = result.map(|result| {
            (
                self.doc,
                Event::Scheduled {
                    attempt: self.attempt,
                    job: self.id,
                    result,
                },
            )
        });
        let work = self.owned.map(|(_, work)| work);
        StepEnd { event, work }
    }
}

/// Whether this daemon may still act on a job's document, and no later version requests something else.
pub(super) fn is_current(options: &DocumentsOptions, job: &ToAdd) -> bool {
    let lease = job.owned.as_ref();
    let is_of_row = |row: &Row| Arc::ptr_eq(&row.replication, &job.replication);
    let states = &options.database.states;
    lease.is_none_or(|(lease, _)| lease.holds())
        && states.lock().row(&job.doc).is_some_and(is_of_row)
}

/// Adds jobs to the scheduler with their kept settings, for a daemon that owns every document. Retries while the store
/// fails: a paused job must not run.
pub(super) async fn add_kept(options: &DocumentsOptions, jobs: Vec<ToAdd>) -> Vec<StepEnd> {
    let kept = loop {
        let docs = jobs.iter().map(|job| job.doc.clone()).collect();
        match options.database.store.kept_of(docs).await {
            Ok(kept) => break kept,
            Err(StoreError::Closed) => return jobs.into_iter().map(|job| job.done(None)).collect(),
            Err(_) => sleep(STORE_WAIT).await,
        }
    };
    let rows = kept.into_iter().map(|kept| JobRow { kept, past: None });
    let jobs = jobs.into_iter().zip(rows);
    let (current, former): (Vec<_>, Vec<_>) = jobs.partition(|(job, _)| is_current(options, job));
    let mut done = add(&options.scheduler, current).await;
    done.extend(former.into_iter().map(|(job, _)| job.done(None)));
    done
}

/// Adds at most [`ADDS_MAX`](crate::messages::replication_scheduler::ADDS_MAX) jobs to the scheduler, under the
/// leases of their documents if there are any.
pub(super) async fn add(
    scheduler: &RegisteredName<ReplicationScheduler>,
    jobs: Vec<(ToAdd, JobRow)>,
) -> Vec<StepEnd> {
    let results = loop {
        let orders = jobs.iter().map(|(job, row)| job.order(row)).collect();
        match scheduler.address().send(AddJobs(orders)).await {
            Ok(results) => break results,
            // The scheduler is restarting.
            Err(_) => sleep(SCHEDULER_WAIT).await,
        }
    };
    if results.contains(&Err(AddJobError::ShuttingDown)) {
        // The next start of the service recreates the jobs.
        return std::future::pending().await;
    }
    let results = results.into_iter().map(|result| match result {
        Err(AddJobError::Taken { by: Some(by), .. }) => Err(Taken::Document(by)),
        Err(AddJobError::Taken { by: None, .. }) => Err(Taken::Transient),
        Ok(_) | Err(AddJobError::ShuttingDown) => Ok(()),
    });
    jobs.into_iter()
        .zip(results)
        .map(|((job, _), result)| job.done(Some(result)))
        .collect()
}

/// Computes an id, with the code of the filter if there is one.
///
/// # Errors
/// The store fails, or the source does not return the code.
pub(crate) async fn identify(
    options: &DocumentsOptions,
    replication: &Replication,
) -> Result<ReplicationId, NotYet> {
    let identity = options
        .identity
        .get(&options.database.store)
        .await
        .map_err(|error| NotYet::new(error.to_string(), "store failed"))?;
    let threshold = options.config.borrow().replicator.health_threshold;
    let settings = HttpSettings::of_source(&replication.options, threshold);
    let source = options.http.endpoint(&replication.source, settings);
    let source =
        source.map_err(|failed| NotYet::new(failed.to_string(), Crash::from(failed).short()))?;
    let code = fetch_code(&source, &replication.options.filter)
        .await
        .map_err(|error| NotYet::new(error.to_string(), error.short()))?;
    Ok(replication_id(replication, &identity, code.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::replicator_documents::tests::{memory, options};
    use crate::messages::replication_scheduler::GetJob;
    use crate::otp::BootClock;
    use crate::replicator::lease::EpochLease;
    use policy::ownership::{Epoch, Request};
    use policy::schedule::{Earlier, History, WallTime};
    use replication::refused::RefusedDoc;
    use replication::spec::{DocRef, UserCtx};
    use serde_json::json;

    fn replication(password: &str) -> Arc<Replication> {
        let body = json!({
            "source": format!("http://u:{password}@s.example/a"), "target": "http://t.example/b",
        });
        let (database, id) = ("_replicator".to_owned(), "d".to_owned());
        let doc = Some(DocRef { database, id });
        let parsed = Replication::parse(
            &body,
            &crate::replicator::defaults(&Default::default()),
            UserCtx::default(),
            doc,
        );
        Arc::new(parsed.expect("it is right"))
    }

    #[actix_rt::test]
    async fn a_job_has_the_past_of_its_row_unless_the_replication_changed() {
        let (store, states) = memory();
        let scheduler = options(store, states).scheduler;
        let not_before = WallTime::from_micros(u64::MAX);
        let history = History::default();
        let refused = RefusedDoc {
            id: "a".to_owned(),
            rev: None,
            error: "forbidden".to_owned(),
            reason: "no".to_owned(),
        };
        let past = Past {
            earlier: Earlier {
                history,
                not_before,
            },
            refused: vec![Arc::new(refused.clone())],
        };
        let text = past::text(&replication("wrong").digest(), &past);
        let row = JobRow {
            kept: None,
            past: Some(text),
        };
        let mut added_so_far = 0;
        let lease = |is_extra| {
            let epoch = EpochLease::new(Epoch(1), BootClock::default());
            let (doc, claim) = ("d".into(), Request(1));
            let lease = DocLease::new(Arc::new(epoch), claim, is_extra);
            Some((lease, ClaimWork { doc, claim }))
        };
        for (password, owned, keeps_past, waits) in [
            ("wrong", None, true, true),
            ("right", None, false, false),
            ("wrong", lease(false), true, true),
            ("wrong", lease(true), true, false),
        ] {
            added_so_far += 1;
            let id = format!("{password}{added_so_far}");
            let id: ReplicationId = id.parse().expect("it is an id");
            // Each job has its own id, so that none replaces another: this test is only about pasts.
            let job = ToAdd {
                doc: "d".to_owned(),
                attempt: Attempt(1),
                id: id.clone(),
                replication: replication(password),
                owned,
            };
            let added = add(&scheduler, vec![(job, row.clone())]).await;
            let event = added.into_iter().find_map(|done| done.event);
            let is_new = matches!(event, Some((_, Event::Scheduled { result: Ok(()), .. })));
            assert!(is_new);
            let job = scheduler.address().send(GetJob { id }).await;
            let job = job.expect("it is there").expect("it was added");
            assert_eq!(job.next_try() == Some(not_before), waits, "{password}");
            assert_eq!(job.refused == [refused.clone()], keeps_past, "{password}");
        }
    }
}
