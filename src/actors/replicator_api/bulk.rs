//! Orders for one job, or all jobs of a selection.
//!
//! SUMMARY   [`ReplicatorApi::order_jobs`] selects jobs and applies the order in batches; the failure of one job is
//!           reported and stops no others. Finished batches stay applied if the caller disconnects.
//! PROMISES  A pause or a priority of a document's job is on disk before the scheduler gets it. An order for another
//!           daemon's job is stored for that daemon. A document without a job is restarted by removing its outcome. An
//!           order waits until all jobs are known, and reports how many documents are still being loaded.
//! LIMITS    Waits at most [`LOADING_MAX`]. One turn of the scheduler, with one or two transactions of the store,
//!           orders at most [`ORDERS_MAX`] jobs; at most [`RESULTS_MAX`] results are returned.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::time::timeout;
use futures_util::future::join_all;
use serde_json::Value;
use settee_client::{BulkAnswer, BulkOrder, BulkOrderName, JobResult, JobSelection};

use super::fleet::OtherJob;
use super::list::Whose;
use super::orders::{AnyOrder, Ordered, Outcome};
use super::statuses::replication_id;
use super::{Job, ReplicatorApi, ReplicatorError, ReplicatorResult};
use crate::messages::replication_scheduler::{ORDERS_MAX, OrderJobs, RemoveJob};
use crate::otp::system_time;
use crate::replicator::JobOrder;
use crate::replicator::document::Person;
use crate::replicator::kept::Kept;
use crate::replicator::selection::{Groups, JobFacts, Selection};
use policy::schedule::{Level, Pause};
use replication::id::ReplicationId;
use store::Edit;
use store::fleet::StatusOf;

/// Maximum returned results.
const RESULTS_MAX: usize = 10_000;

/// How long an order waits for documents that are still being loaded after startup.
const LOADING_MAX: Duration = Duration::from_secs(10);

/// A job to be ordered.
struct ToOrder {
    id: ReplicationId,
    doc: Option<String>,
    at: Place,
}

/// An ordered job.
#[derive(Clone, Debug)]
pub(crate) struct OrderedJob {
    /// Its state as shown after the order, or before it if another daemon has the job, or the document has none.
    pub job: Value,
    /// Its state as shown before the order.
    pub before: Value,
}

/// The jobs of an order.
#[derive(Default)]
struct Selected {
    groups: Groups,
    jobs: Vec<ToOrder>,
    /// Documents without a job.
    docs: Vec<ToOrder>,
}

/// The place of a job.
enum Place {
    /// With this daemon.
    Here,
    /// With another daemon.
    There(OtherJob),
    /// None: the document has no job.
    Document,
}

impl ToOrder {
    fn of(job: Job) -> Self {
        let doc = job.doc().map(str::to_owned);
        match job {
            Job::Own(info) => Self {
                id: info.id.clone(),
                doc,
                at: Place::Here,
            },
            Job::Other(other) => Self {
                id: replication_id(other.job().map_or("", |job| &job.id)),
                doc,
                at: Place::There(other),
            },
        }
    }

    fn of_doc(facts: &JobFacts<'_>) -> Self {
        Self {
            id: replication_id(facts.id),
            doc: facts.doc.map(str::to_owned),
            at: Place::Document,
        }
    }

    const fn other(&self) -> Option<&OtherJob> {
        match &self.at {
            Place::Here | Place::Document => None,
            Place::There(other) => Some(other),
        }
    }
}

impl ReplicatorApi {
    /// Gives an order to a job, and saves it if the job has a document.
    ///
    /// # Errors
    /// There is no such job, the store fails, or the service is shutting down.
    pub async fn order(
        &self,
        name: &str,
        order: JobOrder,
        whose: &Whose,
        person: &Person,
    ) -> ReplicatorResult<OrderedJob> {
        let found = match self.find(name, whose).await {
            Err(ReplicatorError::Missing) if order == JobOrder::Restart => {
                return self.restart_doc(name, whose, person).await;
            }
            found => found?,
        };
        let before = match &found {
            Job::Own(info) => self.shown(info),
            Job::Other(other) => other.shown_job().unwrap_or_default(),
        };
        let job = ToOrder::of(found);
        let ordered = self.order_batch(order, slice::from_ref(&job), person);
        let done = ordered.await?.pop().ok_or(ReplicatorError::Missing)??;
        let mut shown = before.clone();
        match done {
            Ordered::Done => shown = self.shown(&self.info(&job.id.to_string()).await?),
            Ordered::Told(daemon) => shown["told"] = (*daemon).into(),
            Ordered::Kept => shown["told"] = Value::Null,
        }
        Ok(OrderedJob { job: shown, before })
    }

    /// Restarts a document without a job, if it failed or cannot start yet. Returns its previous state.
    async fn restart_doc(
        &self,
        name: &str,
        whose: &Whose,
        person: &Person,
    ) -> ReplicatorResult<OrderedJob> {
        let mut selection = Selection::new(&JobSelection {
            patterns: vec![name.to_owned()],
            ..JobSelection::default()
        })
        .map_err(ReplicatorError::Selection)?;
        selection.take_troubled_docs();
        let mut found = None;
        self.each_settled(&mut selection, whose, |doc, facts, _| {
            if facts.doc == Some(name) {
                found = Some((ToOrder::of_doc(facts), doc.clone()));
            }
        })
        .await?;
        let (doc, shown) = found.ok_or(ReplicatorError::Missing)?;
        self.restart_batch(&[doc], person)
            .await
            .pop()
            .unwrap_or(Err(ReplicatorError::Missing))?;
        let before = shown.clone();
        Ok(OrderedJob { job: shown, before })
    }

    /// Restarts documents without a job.
    async fn restart_batch(&self, docs: &[ToOrder], person: &Person) -> Vec<Outcome> {
        let by = name_of(person);
        let restarting = docs.iter().map(|doc| async {
            let doc = doc.doc.as_deref().ok_or(ReplicatorError::Missing)?;
            self.keep(JobOrder::Restart, doc, &by).await?;
            self.run_again(doc).await
        });
        join_all(restarting).await
    }

    /// Gives an order to all jobs of a selection.
    ///
    /// # Errors
    /// The order is invalid or selects more jobs than expected, and nothing was done; or the service is shutting
    /// down, and only some jobs were ordered.
    pub async fn order_jobs(
        &self,
        order: &BulkOrder,
        whose: &Whose,
        person: &Person,
    ) -> ReplicatorResult<BulkAnswer> {
        let wrong = |text: &str| ReplicatorError::Selection(text.to_owned());
        let what = AnyOrder::of(order.order, order.priority)
            .ok_or_else(|| wrong("the order priority takes a priority from -128 to 127"))?;
        if order.order != BulkOrderName::Priority && order.priority.is_some() {
            return Err(wrong("only the order priority takes a priority"));
        }
        if order.select.is_empty() {
            return Err(wrong(
                "the selection names no job: \"all\": true selects all",
            ));
        }
        let mut selection = Selection::new(&order.select).map_err(ReplicatorError::Selection)?;
        if order.order == BulkOrderName::Restart {
            selection.take_troubled_docs();
        }
        let loading = self.wait_for_all().await;
        let Selected { groups, jobs, docs } = self.select(order, &mut selection, whose).await?;
        let total = groups.total;
        if let Some(expected) = order.expect.filter(|expected| total > *expected) {
            return Err(ReplicatorError::Unexpected { expected, total });
        }
        let mut answer = BulkAnswer {
            total,
            loading: loading.is_some(),
            unknown: loading.unwrap_or(0),
            missing: selection.into_missing(),
            groups: groups.into_groups(),
            ..BulkAnswer::default()
        };
        let (mut failures, mut successes) = (Vec::new(), Vec::new());
        let docs = docs.chunks(ORDERS_MAX).map(|batch| (batch, true));
        let batches = jobs.chunks(ORDERS_MAX).map(|batch| (batch, false));
        for (batch, is_of_docs) in batches.chain(docs) {
            let results = match what {
                AnyOrder::Job(_) if is_of_docs => self.restart_batch(batch, person).await,
                AnyOrder::Job(order) => self.order_batch(order, batch, person).await?,
                AnyOrder::Cancel => self.cancel_batch(batch, person).await?,
                AnyOrder::Delete => self.delete_batch(batch).await,
            };
            for (job, result) in batch.iter().zip(results) {
                answer.told += usize::from(matches!(result, Ok(Ordered::Told(_))));
                if result.is_ok() {
                    successes.push(result_of(job, &result))
                } else {
                    failures.push(result_of(job, &result))
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

    /// Selects the jobs of an order, and counts them for a dry run.
    async fn select(
        &self,
        order: &BulkOrder,
        selection: &mut Selection,
        whose: &Whose,
    ) -> ReplicatorResult<Selected> {
        let mut selected = Selected::default();
        self.fresh_fleet().await;
        self.each_selected(selection, whose, |job, facts| {
            selected.groups.add(facts);
            if !order.dry_run {
                selected.jobs.push(ToOrder::of(job));
            }
        })
        .await?;
        if matches!(order.order, BulkOrderName::Restart | BulkOrderName::Delete) {
            self.each_settled(selection, whose, |_, facts, _| {
                selected.groups.add(facts);
                if !order.dry_run {
                    selected.docs.push(ToOrder::of_doc(facts));
                }
            })
            .await?;
        }
        Ok(selected)
    }

    /// Waits until all jobs are known, at most [`LOADING_MAX`]. Returns the number of documents still unknown, if any.
    async fn wait_for_all(&self) -> Option<usize> {
        let states = &self.database().states;
        if self.is_loading() {
            // The rest is reported as unknown.
            drop(timeout(LOADING_MAX, states.loaded()).await);
        }
        states.lock().loading()
    }

    /// Saves an order, and gives it to jobs of this and other daemons. Returns the result for each; fails if the
    /// service ends.
    async fn order_batch(
        &self,
        order: JobOrder,
        jobs: &[ToOrder],
        person: &Person,
    ) -> ReplicatorResult<Vec<Outcome>> {
        let by = name_of(person);
        let others = jobs.iter().filter_map(ToOrder::other).collect();
        let mut others = self
            .order_others(AnyOrder::Job(order), others, &by)
            .await
            .into_iter();
        // Saved first: an acknowledged order survives a restart. Concurrent writes share one transaction.
        let keeping = jobs.iter().map(|job| async {
            match (&job.at, &job.doc) {
                (Place::Here, Some(doc)) => self.keep(order, doc, &by).await,
                _ => Ok(()),
            }
        });
        let results = join_all(keeping).await;
        let kept: Vec<_> = jobs
            .iter()
            .zip(&results)
            .filter(|(job, result)| result.is_ok() && job.other().is_none())
            .collect();
        let ids = kept.iter().map(|(job, _)| job.id.clone()).collect();
        let ordering = OrderJobs {
            ids,
            order,
            by: Arc::clone(&by),
        };
        let known = self.scheduler(ordering).await?;
        // This daemon may have given away the other documents since the jobs were selected.
        let gone = kept.iter().zip(&known).filter(|(_, is_known)| !**is_known);
        let docs = gone.filter_map(|((job, _), _)| job.doc.as_deref());
        let docs = docs.map(|doc| StatusOf::Document(doc.into())).collect();
        let left = self.leave(AnyOrder::Job(order), docs, &by).await;
        let mut left = left.into_iter();
        let mut done = kept.into_iter().zip(known).map(|((job, _), is_known)| {
            if is_known {
                return Ok(Ordered::Done);
            }
            let (Some(doc), Some(fleet)) = (&job.doc, self.fleet()) else {
                return Err(ReplicatorError::Missing);
            };
            let owner = fleet.other(doc).map(|other| other.daemon);
            match left.next().unwrap_or(Ok(false))? {
                true => Ok(Ordered::Told(owner.unwrap_or_else(|| "unknown".into()))),
                false => Ok(Ordered::Kept),
            }
        });
        let results = jobs.iter().zip(&results).map(|(job, result)| match job.at {
            Place::Here => {
                result.clone()?;
                done.next().unwrap_or(Err(ReplicatorError::Missing))
            }
            Place::There(_) => others.next().unwrap_or(Err(ReplicatorError::Missing)),
            Place::Document => Err(ReplicatorError::Missing),
        });
        Ok(results.collect())
    }

    /// Saves an order's change for a document's job.
    pub(super) async fn keep(
        &self,
        order: JobOrder,
        doc: &str,
        by: &Arc<str>,
    ) -> ReplicatorResult<()> {
        let (by, since) = (Arc::clone(by), system_time());
        let restarted = self.fleet().map(|_| since);
        // Runs in the store: other orders may change it at the same time.
        let change = move |before: Option<&str>| {
            let mut kept = before.map_or_else(Kept::default, Kept::read);
            match order {
                JobOrder::Pause => kept.paused = kept.paused.or(Some(Pause { by, since })),
                JobOrder::Resume => kept.paused = None,
                JobOrder::Restart => (kept.paused, kept.restarted) = (None, restarted),
                JobOrder::Priority(level) => kept.priority = Level(level),
            }
            kept.text()
        };
        let store = &self.database().store;
        store.change_kept(doc, Box::new(change)).await?;
        Ok(())
    }

    /// Cancels jobs without documents, and refuses to cancel others. Returns the result for each; fails if the service
    /// ends.
    async fn cancel_batch(
        &self,
        jobs: &[ToOrder],
        person: &Person,
    ) -> ReplicatorResult<Vec<Outcome>> {
        let others = jobs
            .iter()
            .filter(|job| job.doc.is_none())
            .filter_map(ToOrder::other)
            .collect();
        let by = name_of(person);
        let mut others = self
            .order_others(AnyOrder::Cancel, others, &by)
            .await
            .into_iter();
        let cancelling = jobs.iter().map(|job| {
            let there = (job.doc.is_none() && job.other().is_some())
                .then(|| others.next().unwrap_or(Err(ReplicatorError::Missing)));
            async {
                if let Some(doc) = &job.doc {
                    return Ok(Err(ReplicatorError::Taken(format!(
                        "it belongs to document `{doc}`: delete or pause it"
                    ))));
                }
                if let Some(there) = there {
                    return Ok(there);
                }
                let id = job.id.clone();
                Ok(if self.scheduler(RemoveJob { id, doc: None }).await? {
                    Ok(Ordered::Done)
                } else {
                    Err(ReplicatorError::Missing)
                })
            }
        });
        join_all(cancelling).await.into_iter().collect()
    }

    /// Ends a transient job on any daemon.
    ///
    /// # Errors
    /// The job is gone or belongs to a document, its daemon's lease has expired, the store fails, or the service is
    /// shutting down.
    pub(super) async fn cancel_job(&self, job: Job, person: &Person) -> Outcome {
        self.cancel_batch(&[ToOrder::of(job)], person)
            .await?
            .pop()
            .unwrap_or(Err(ReplicatorError::Missing))
    }

    async fn delete_batch(&self, jobs: &[ToOrder]) -> Vec<Outcome> {
        let store = &self.database().store;
        let docs = jobs.iter().filter_map(|job| job.doc.clone()).collect();
        let deleting = async {
            let found = store.documents(docs).await?;
            let edits = found
                .iter()
                .flatten()
                .filter(|document| !document.deleted)
                .map(|document| Edit {
                    id: document.id.clone(),
                    expected: Some(document.revision.clone()),
                    deleted: true,
                    body: "{}".to_owned(),
                });
            let mut edited = store.edit(edits.collect()).await?.into_iter();
            let deleted = found.iter().map(|document| match document {
                Some(document) if document.deleted => Err(ReplicatorError::Missing),
                Some(_) => match edited.next() {
                    Some(Ok(_)) => Ok(Ordered::Done),
                    _ => Err(ReplicatorError::Taken(
                        "the document was changed meanwhile".to_owned(),
                    )),
                },
                None => Err(ReplicatorError::Missing),
            });
            Ok::<_, ReplicatorError>(deleted.collect::<Vec<_>>().into_iter())
        };
        let mut deleted = deleting.await;
        let results = jobs.iter().map(|job| match (&job.doc, &mut deleted) {
            (None, _) => Err(ReplicatorError::Taken(
                "it belongs to no document: cancel it".to_owned(),
            )),
            (Some(_), Ok(deleted)) => deleted.next().unwrap_or(Err(ReplicatorError::Missing)),
            (Some(_), Err(error)) => Err(error.clone()),
        });
        results.collect()
    }
}

/// Returns the name of the order's sender.
fn name_of(person: &Person) -> Arc<str> {
    person.name.as_deref().unwrap_or("admin").into()
}

fn result_of(job: &ToOrder, result: &Outcome) -> JobResult {
    let mut shown = JobResult {
        id: job.id.to_string(),
        document: job.doc.clone(),
        ok: result.is_ok(),
        ..JobResult::default()
    };
    match result {
        Ok(Ordered::Done) => {}
        Ok(Ordered::Told(daemon)) => shown.told = Some(daemon.to_string()),
        Ok(Ordered::Kept) => {
            shown.reason = "no daemon has the job now: its next owner applies the order".to_owned();
        }
        Err(error) => {
            shown.error = error.name().to_owned();
            shown.reason = error.to_string();
        }
    }
    shown
}
