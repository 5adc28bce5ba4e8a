//! Orders for jobs: one, or all of a selection.
//!
//! SUMMARY   [`ReplicatorApi::order_jobs`] selects, and then goes on in batches; what fails for one job is told and
//!           stops no other. What was done stays when the caller goes away.
//! PROMISES  A pause or a priority of a document's job is on the disk before the scheduler hears of it.
//! LIMITS    [`ORDERS_MAX`] jobs are ordered in one turn of the scheduler and one transaction of the store or two;
//!           [`RESULTS_MAX`] results are told.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::Value;
use settee_client::{BulkAnswer, BulkOrder, BulkOrderName, JobResult};

use super::list::Whose;
use super::{ReplicatorApi, ReplicatorError, view};
use crate::messages::replication_scheduler::{JobInfo, ORDERS_MAX, OrderJobs, RemoveJob};
use crate::otp::wall_clock::system_time;
use crate::replicator::JobOrder;
use crate::replicator::document::Person;
use crate::replicator::kept::Kept;
use crate::replicator::selection::{Groups, JobFacts, Selection};
use crate::store::Edit;
use policy::schedule::{Level, Pause};
use replication::id::ReplicationId;

/// The most results that are told.
const RESULTS_MAX: usize = 10_000;

/// A job that is to be ordered.
struct Ordered {
    id: ReplicationId,
    doc: Option<String>,
    kept: Kept,
}

impl Ordered {
    fn of(info: &JobInfo) -> Self {
        Self {
            id: info.id.clone(),
            doc: info.replication.doc.as_ref().map(|doc| doc.id.clone()),
            kept: Kept {
                paused: info.paused.clone(),
                priority: info.priority,
            },
        }
    }
}

/// What is to be done.
enum Order {
    Job(JobOrder),
    Cancel,
    Delete,
}

impl Order {
    fn of(order: &BulkOrder) -> Result<Self, ReplicatorError> {
        let wrong = |text: &str| Err(ReplicatorError::Selection(text.to_owned()));
        Ok(match (order.order, order.priority) {
            (BulkOrderName::Priority, Some(level)) => Self::Job(JobOrder::Priority(level)),
            (BulkOrderName::Priority, None) => {
                return wrong("the order priority takes a priority from -128 to 127");
            }
            (_, Some(_)) => return wrong("only the order priority takes a priority"),
            (BulkOrderName::Restart, _) => Self::Job(JobOrder::Restart),
            (BulkOrderName::Pause, _) => Self::Job(JobOrder::Pause),
            (BulkOrderName::Resume, _) => Self::Job(JobOrder::Resume),
            (BulkOrderName::Cancel, _) => Self::Cancel,
            (BulkOrderName::Delete, _) => Self::Delete,
        })
    }
}

impl ReplicatorApi {
    /// Tells a job what to do, and keeps that over restarts where it belongs to a document.
    ///
    /// # Errors
    /// There is no such job, the store fails, or the service ends.
    pub async fn order(
        &self,
        name: &str,
        order: JobOrder,
        whose: &Whose,
        person: &Person,
    ) -> Result<Value, ReplicatorError> {
        let info = self.find(name, whose).await?;
        let job = [Ordered::of(&info)];
        let [done] = &self.order_batch(order, &job, person).await?[..] else {
            return Err(ReplicatorError::Missing);
        };
        done.clone()?;
        let info = self.info(&info.id.to_string()).await?;
        Ok(view::job(&info))
    }

    /// Tells all jobs of a selection what to do.
    ///
    /// # Errors
    /// The order is wrong, more jobs are selected than expected, or the service ends: then nothing was done, or what
    /// was done until then.
    pub async fn order_jobs(
        &self,
        order: &BulkOrder,
        whose: &Whose,
        person: &Person,
    ) -> Result<BulkAnswer, ReplicatorError> {
        let what = Order::of(order)?;
        if order.select.is_empty() {
            let text = "the selection names no job: \"all\": true selects all";
            return Err(ReplicatorError::Selection(text.to_owned()));
        }
        let mut selection = Selection::new(&order.select).map_err(ReplicatorError::Selection)?;
        let (mut groups, mut jobs) = (Groups::default(), Vec::new());
        let each = |info: &JobInfo, facts: &JobFacts<'_>| {
            groups.add(facts);
            if !order.dry_run {
                jobs.push(Ordered::of(info));
            }
        };
        self.each_selected(&mut selection, whose, each).await?;
        let total = groups.total();
        if let Some(expected) = order.expect.filter(|expected| total > *expected) {
            return Err(ReplicatorError::Unexpected { expected, total });
        }
        let mut answer = BulkAnswer {
            total,
            missing: selection.into_missing(),
            groups: groups.into_groups(),
            ..BulkAnswer::default()
        };
        let (mut failures, mut successes) = (Vec::new(), Vec::new());
        for batch in jobs.chunks(ORDERS_MAX) {
            let results = match what {
                Order::Job(order) => self.order_batch(order, batch, person).await?,
                Order::Cancel => self.cancel_batch(batch).await?,
                Order::Delete => self.delete_batch(batch).await,
            };
            for (job, result) in batch.iter().zip(results) {
                match result {
                    Ok(()) => successes.push(result_of(job, None)),
                    Err(error) => failures.push(result_of(job, Some(&error))),
                }
            }
        }
        (answer.done, answer.failed) = (successes.len(), failures.len());
        failures.append(&mut successes);
        answer.results_left_out = failures.len().saturating_sub(RESULTS_MAX);
        failures.truncate(RESULTS_MAX);
        answer.results = failures;
        Ok(answer)
    }

    /// Fails if the service ends.
    async fn order_batch(
        &self,
        order: JobOrder,
        jobs: &[Ordered],
        person: &Person,
    ) -> Result<Vec<Result<(), ReplicatorError>>, ReplicatorError> {
        let by: Arc<str> = person.name.as_deref().unwrap_or("admin").into();
        // First: what was answered outlives the service. Writes that wait together are one transaction.
        let keeping = jobs.iter().map(|job| self.keep(order, job, &by));
        let mut results = join_all(keeping).await;
        let kept = jobs.iter().zip(&mut results);
        let kept: Vec<_> = kept.filter(|(_, result)| result.is_ok()).collect();
        let ids = kept.iter().map(|(job, _)| job.id.clone()).collect();
        let known = self.scheduler(OrderJobs { ids, order, by }).await?;
        for ((_, result), is_known) in kept.into_iter().zip(known) {
            if !is_known {
                *result = Err(ReplicatorError::Missing);
            }
        }
        Ok(results)
    }

    /// Keeps what an order changes of a document's job.
    async fn keep(
        &self,
        order: JobOrder,
        job: &Ordered,
        by: &Arc<str>,
    ) -> Result<(), ReplicatorError> {
        let Some(doc) = &job.doc else { return Ok(()) };
        let mut kept = job.kept.clone();
        match order {
            JobOrder::Pause => {
                let (by, since) = (Arc::clone(by), system_time());
                kept.paused = kept.paused.or(Some(Pause { by, since }));
            }
            JobOrder::Resume | JobOrder::Restart => kept.paused = None,
            JobOrder::Priority(level) => kept.priority = Level(level),
        }
        if kept != job.kept {
            self.database().store().keep(doc, kept.text()).await?;
        }
        Ok(())
    }

    /// Fails if the service ends.
    async fn cancel_batch(
        &self,
        jobs: &[Ordered],
    ) -> Result<Vec<Result<(), ReplicatorError>>, ReplicatorError> {
        let cancelling = jobs.iter().map(|job| async {
            if let Some(doc) = &job.doc {
                return Ok(Err(ReplicatorError::Taken(format!(
                    "it belongs to document `{doc}`: delete or pause it"
                ))));
            }
            let id = job.id.clone();
            Ok(match self.scheduler(RemoveJob { id }).await? {
                true => Ok(()),
                false => Err(ReplicatorError::Missing),
            })
        });
        join_all(cancelling).await.into_iter().collect()
    }

    async fn delete_batch(&self, jobs: &[Ordered]) -> Vec<Result<(), ReplicatorError>> {
        let store = self.database().store();
        let no_document = || {
            let text = "it belongs to no document: cancel it";
            Err(ReplicatorError::Taken(text.to_owned()))
        };
        let docs = jobs.iter().filter_map(|job| job.doc.clone()).collect();
        let deleting = async {
            let found = store.documents(docs).await?;
            let there = found.iter().flatten().filter(|document| !document.deleted);
            let edits = there.map(|document| Edit {
                id: document.id.clone(),
                expected: Some(document.revision.clone()),
                deleted: true,
                body: "{}".to_owned(),
            });
            let mut edited = store.edit(edits.collect()).await?.into_iter();
            let deleted = found.iter().map(|document| match document {
                Some(document) if document.deleted => Err(ReplicatorError::Missing),
                Some(_) => match edited.next() {
                    Some(Ok(_)) => Ok(()),
                    _ => Err(ReplicatorError::Taken(
                        "the document was changed meanwhile".to_owned(),
                    )),
                },
                None => Err(ReplicatorError::Missing),
            });
            Ok(deleted.collect::<Vec<_>>())
        };
        let deleted: Result<Vec<_>, ReplicatorError> = deleting.await;
        let mut deleted = deleted.map(Vec::into_iter);
        let results = jobs.iter().map(|job| match (&job.doc, &mut deleted) {
            (None, _) => no_document(),
            (Some(_), Ok(deleted)) => deleted.next().unwrap_or(Err(ReplicatorError::Missing)),
            (Some(_), Err(error)) => Err(error.clone()),
        });
        results.collect()
    }
}

fn result_of(job: &Ordered, error: Option<&ReplicatorError>) -> JobResult {
    JobResult {
        id: job.id.to_string(),
        document: job.doc.clone(),
        ok: error.is_none(),
        error: error.map_or("", ReplicatorError::name).to_owned(),
        reason: error.map(ToString::to_string).unwrap_or_default(),
    }
}
