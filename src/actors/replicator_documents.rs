//! ReplicatorDocuments: turns replicator documents into jobs, and writes the outcomes of jobs into them.
//!
//! SUMMARY   Follows the updates of the store from the first; [`DocTable`](crate::replicator::table::DocTable)
//!           interprets them.
//! PROMISES  After a start every document that requests a replication gets its job again. Handlers never wait: tasks
//!           query the store, the scheduler and sources.
//! CALLED    By the store's updates and the scheduler's events; queried by HTTP.
//! SOURCE    couch_replicator_doc_processor, couch_replicator_docs, couch_multidb_changes.
//! LIMITS    Filters' code is requested from at most [`FETCHES_MAX`] sources at a time.

mod fleet;
mod follow;
mod job;
mod notes;
mod outcome;
mod upkeep;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use actix_rt::time::sleep;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use slog::{Logger, o, warn};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::ConfigWatch;
use crate::actors::replication_scheduler::ReplicationScheduler;
use crate::actors::replicator_api::view;
use crate::config::password::random;
use crate::messages::replication_job::JobEnd;
use crate::messages::replication_scheduler::{Happening, ReplicationEvent, Subscribe};
use crate::otp::{PidGuard, RegisteredName, Stop, Tell, system_time};
use crate::replicator::identity::ServerIdentity;
use crate::replicator::state::Outcome;
use crate::replicator::states::Locked;
use crate::replicator::table::{Attempt, ClaimWork, Event, NotYet, Row, RowAction};
use crate::replicator::wish::{Reading, without_state};
use crate::replicator::{Database, NAME};
use replication::counters::Counter;
use replication::endpoint::Http;
use replication::filter::Filter;
use replication::id::{ReplicationId, replication_id};
use replication::spec::Replication;
use store::Document;
use store::fleet::FleetStore;

use fleet::{FleetPart, add_owned};
use follow::follow;
pub(crate) use job::identify;
use job::{ToAdd, add_kept};
use outcome::{change, write};
use upkeep::keep_small;

/// Maximum number of concurrent requests for filters' code.
const FETCHES_MAX: usize = 32;

/// How long computing an id may take.
const IDENTIFY_MAX: Duration = Duration::from_secs(61);

/// The actor's dependencies.
#[derive(Clone)]
pub(crate) struct DocumentsOptions {
    /// The replicator database.
    pub database: Database,
    /// The state shared with other daemons; `None` if there are none, and this one owns every document.
    pub fleet: Option<Arc<dyn FleetStore>>,
    /// The scheduler of all jobs.
    pub scheduler: RegisteredName<ReplicationScheduler>,
    /// The connections of replications.
    pub http: Http,
    /// The identity that ids are computed with.
    pub identity: ServerIdentity,
    /// The configuration in force.
    pub config: ConfigWatch,
    /// The log.
    pub log: Logger,
}

/// Documents, and their jobs.
pub(crate) struct ReplicatorDocuments {
    options: Rc<DocumentsOptions>,
    fleet: Option<FleetPart>,
    fetches: Arc<Semaphore>,
    /// Fetches and timers, which end with the actor: a context would poll all of them with each message.
    aside: JoinSet<()>,
    /// The task that follows the store.
    following: Option<SpawnHandle>,
    /// The number of the last update that it has read.
    last_read: Rc<Cell<u64>>,
    log: Logger,
    pid_guard: PidGuard,
}

/// The scheduler was restarted and has no jobs: read every document again.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct BeginAnew {
    /// The new scheduler, which may not be registered yet.
    pub scheduler: Addr<ReplicationScheduler>,
}

/// Updated documents.
#[derive(Message)]
#[rtype(result = "()")]
struct Updated(Vec<Document>);

/// Work in progress, which returns its results.
type UnderWay = LocalBoxFuture<'static, Vec<StepEnd>>;

/// A document's event, and the work that it ends.
#[derive(Message)]
#[rtype(result = "()")]
struct StepEnd {
    event: Option<(String, Event)>,
    work: Option<ClaimWork>,
}

impl ReplicatorDocuments {
    /// Creates the actor, which has read nothing yet; its supervisor already monitors it.
    pub fn new(options: DocumentsOptions, pid_guard: PidGuard) -> Self {
        // Rows left by a predecessor, whose tasks ended with it.
        options.database.states.lock().forget_rows();
        Self {
            log: options.log.new(o!("component" => "replicator_documents")),
            fleet: options.fleet.clone().map(FleetPart::new),
            options: Rc::new(options),
            fetches: Arc::new(Semaphore::new(FETCHES_MAX)),
            aside: JoinSet::new(),
            following: None,
            last_read: Rc::default(),
            pid_guard,
        }
    }

    /// Follows the store, from its first update, and the scheduler.
    fn begin(&mut self, ctx: &mut Context<Self>) {
        self.options
            .scheduler
            .tell(Subscribe(ctx.address().recipient()));
        let counters = self.options.http.counters();
        counters.count(Counter::DbScans);
        counters.count(Counter::DocsDbsFound);
        let following = follow(
            Rc::clone(&self.options),
            ctx.address(),
            Rc::clone(&self.last_read),
            self.log.clone(),
        );
        let following = ctx.spawn(wrap_future(following));
        if let Some(before) = self.following.replace(following) {
            ctx.cancel_future(before);
        }
    }

    /// Locks the table of documents; do not hold it longer than a statement.
    fn table(&self) -> Locked<'_> {
        self.options.database.states.lock()
    }

    /// Handles an event of a document and executes the actions. Returns the jobs to add.
    fn take(&mut self, doc: &str, event: Event, ctx: &mut Context<Self>) -> Vec<ToAdd> {
        let (mut next, mut jobs) = (Some(event), Vec::new());
        while let Some(event) = next.take() {
            let actions = self.table().handle(doc, event, system_time());
            for action in actions {
                match action {
                    RowAction::Identify {
                        attempt,
                        replication,
                    } => match self.identify(&replication) {
                        Some(job) => {
                            next = Some(Event::Identified {
                                attempt,
                                result: Ok(job),
                            });
                        }
                        None => self.fetch(doc.to_owned(), attempt, replication, ctx),
                    },
                    RowAction::Schedule {
                        attempt,
                        job,
                        replication,
                    } => jobs.extend(self.begin_add(doc, attempt, job, replication)),
                    RowAction::RemoveJob(job) => self.remove_job(doc, job, ctx),
                    RowAction::WriteFailed {
                        reason,
                        replication,
                    } => {
                        warn!(self.log, "replication document failed"; "document" => doc, "error" => &reason);
                        self.write(doc.to_owned(), replication, Outcome::Failed { reason }, ctx);
                    }
                    RowAction::WriteError {
                        reason,
                        replication,
                    } => {
                        warn!(self.log, "replication cannot start yet"; "document" => doc, "error" => &reason,
                              "effect" => "it is retried");
                        self.write(
                            doc.to_owned(),
                            Some(replication),
                            Outcome::Error { id: None, reason },
                            ctx,
                        );
                    }
                    RowAction::Wake {
                        attempt,
                        least,
                        most,
                    } => {
                        let waiting = sleep(between(least, most));
                        let event = Some((doc.to_owned(), Event::Due(attempt)));
                        let step = StepEnd { event, work: None };
                        self.aside(waiting.map(|()| step), ctx);
                    }
                }
            }
        }
        self.settle(doc);
        jobs
    }

    /// As [`Self::take`]; hands the jobs to the scheduler.
    fn act_on(&mut self, doc: &str, event: Event, ctx: &mut Context<Self>) {
        let jobs = self.take(doc, event, ctx);
        if !jobs.is_empty() {
            ctx.spawn(Self::finish(self.add(jobs)));
        }
    }

    /// Computes an id; `None` if that needs a request.
    fn identify(&self, replication: &Replication) -> Option<ReplicationId> {
        let identity = self.options.identity.known()?;
        let has_code = matches!(replication.options.filter, Filter::Function { .. });
        (!has_code).then(|| replication_id(replication, &identity, None))
    }

    /// Computes an id that needs code from the source.
    fn fetch(
        &mut self,
        doc: String,
        attempt: Attempt,
        replication: Arc<Replication>,
        ctx: &Context<Self>,
    ) {
        let (options, fetches) = (Rc::clone(&self.options), Arc::clone(&self.fetches));
        let fetching = async move {
            // The timeout starts after the wait for a turn.
            let _turn = fetches.acquire().await;
            let work = identify(&options, &replication);
            let timed = actix_rt::time::timeout(IDENTIFY_MAX, work).await;
            let result = timed.unwrap_or_else(|_| {
                let text = format!(
                    "Replication for db {NAME} doc {doc} failed to start due to timeout after {} \
                     seconds",
                    IDENTIFY_MAX.as_secs()
                );
                Err(NotYet::new(text, "filter code timed out"))
            });
            let event = Some((doc, Event::Identified { attempt, result }));
            StepEnd { event, work: None }
        };
        self.aside(fetching, ctx);
    }

    /// Does work of which there may be much at a time, and handles its result.
    fn aside(&mut self, work: impl Future<Output = StepEnd> + 'static, ctx: &Context<Self>) {
        // Forgets what has ended. A panic ends the actor, as that of a handler does.
        while let Some(ended) = self.aside.try_join_next() {
            ended.expect("work aside does not panic");
        }
        let to = ctx.address();
        self.aside.spawn_local(work.map(move |end| to.tell(end)));
    }

    /// Begins to add a job; `None` if this daemon may no longer act on the document.
    fn begin_add(
        &self,
        doc: &str,
        attempt: Attempt,
        id: ReplicationId,
        replication: Arc<Replication>,
    ) -> Option<ToAdd> {
        let owned = match self.fleet {
            Some(_) => {
                let mut table = self.table();
                Some((table.lease(doc)?, table.begin(doc)?))
            }
            None => None,
        };
        Some(ToAdd {
            doc: doc.to_owned(),
            attempt,
            id,
            replication,
            owned,
        })
    }

    /// Hands jobs to the scheduler.
    fn add(&self, jobs: Vec<ToAdd>) -> UnderWay {
        let options = Rc::clone(&self.options);
        let notes = self.fleet.as_ref().map(|part| Rc::clone(&part.notes));
        Box::pin(async move {
            match notes {
                _ if jobs.is_empty() => Vec::new(),
                Some(notes) => add_owned(&options, &notes, jobs).await,
                None => add_kept(&options, jobs).await,
            }
        })
    }

    /// Waits for work, and handles its results.
    fn finish(pending: UnderWay) -> ResponseActFuture<Self, ()> {
        let pending = wrap_future::<_, Self>(pending);
        Box::pin(pending.map(|done, actor, ctx| actor.done(done, ctx)))
    }

    /// Handles the results of finished work.
    fn done(&mut self, done: Vec<StepEnd>, ctx: &mut Context<Self>) {
        for StepEnd { event, work } in done {
            if let Some((doc, event)) = event {
                self.act_on(&doc, event, ctx);
            }
            self.end_work(work);
        }
    }

    /// Handles a version of a document that was read. Returns the jobs to add.
    fn read(&mut self, document: Document, ctx: &mut Context<Self>) -> Vec<ToAdd> {
        // It is owned, and no later version was handled.
        let is_acted_upon = self.fleet.is_none() || self.table().see(&document.id, document.seq);
        let reading = if is_acted_upon {
            Reading::of(&document, &self.options.config.borrow().replicator)
        } else {
            None
        };
        let doc = document.id;
        let Some(reading) = reading else {
            self.settle(&doc);
            return Vec::new();
        };
        if reading.is_state_unwanted {
            self.remove_state(doc.clone(), ctx);
        }
        let mut jobs = self.take(&doc, Event::Changed(reading.wish), ctx);
        if !reading.has_state {
            jobs.extend(self.take(&doc, Event::Written, ctx));
        }
        jobs
    }

    /// Writes an outcome into a document, unless its request has changed since.
    fn write(
        &mut self,
        doc: String,
        replication: Option<Arc<Replication>>,
        outcome: Outcome,
        ctx: &mut Context<Self>,
    ) {
        let update_docs = self.options.config.borrow().replicator.update_docs;
        if !outcome.is_written(update_docs) {
            return;
        }
        let counter = match &outcome {
            Outcome::Completed { .. } => Some(Counter::DocsCompleted),
            Outcome::Failed { .. } => Some(Counter::DocsFailed),
            Outcome::Triggered { .. } | Outcome::Error { .. } => None,
        };
        let (log, options) = (self.log.clone(), Rc::clone(&self.options));
        let Ok(lease) = self.lease(&doc) else {
            return;
        };
        let work = self.table().begin(&doc);
        let writing = async move {
            let writing = write(
                Rc::clone(&options),
                doc,
                lease,
                replication,
                outcome,
                update_docs,
                &log,
            );
            if let (Ok(true), Some(counter)) = (writing.await, counter) {
                options.http.counters().count(counter);
            }
            vec![StepEnd { event: None, work }]
        };
        ctx.spawn(Self::finish(Box::pin(writing)));
    }

    /// Removes a state written with `update_docs` from a document.
    fn remove_state(&self, doc: String, ctx: &mut Context<Self>) {
        let Ok(lease) = self.lease(&doc) else {
            return;
        };
        let options = Rc::clone(&self.options);
        ctx.spawn(wrap_future(async move {
            let removed = change(&options, lease.as_ref(), &doc, without_state);
            // A failure is harmless; the next update tries again.
            drop(removed.await);
        }));
    }
}

/// Returns a random time between the two.
fn between(least: Duration, most: Duration) -> Duration {
    let spread = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
    let drawn = u64::from_le_bytes(random::<8>()) % spread.saturating_add(1);
    least + Duration::from_millis(drawn)
}

impl Actor for ReplicatorDocuments {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.spawn(wrap_future(keep_small(
            Rc::clone(&self.options),
            Rc::clone(&self.last_read),
            self.log.clone(),
        )));
        self.begin(ctx);
    }
}

impl Handler<BeginAnew> for ReplicatorDocuments {
    type Result = ();

    fn handle(&mut self, msg: BeginAnew, ctx: &mut Self::Context) {
        self.options.scheduler.replace(msg.scheduler);
        self.table().forget_jobs();
        self.begin(ctx);
    }
}

/// Answered once the jobs are with the scheduler: the next documents are read then.
impl Handler<Updated> for ReplicatorDocuments {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, Updated(documents): Updated, ctx: &mut Self::Context) -> Self::Result {
        let mut jobs = Vec::new();
        for document in documents {
            self.options.http.counters().count(Counter::DocsDbChanges);
            jobs.extend(self.read(document, ctx));
        }
        Self::finish(self.add(jobs))
    }
}

impl Handler<StepEnd> for ReplicatorDocuments {
    type Result = ();

    fn handle(&mut self, msg: StepEnd, ctx: &mut Self::Context) {
        self.done(vec![msg], ctx);
    }
}

impl Handler<ReplicationEvent> for ReplicatorDocuments {
    type Result = ();

    fn handle(&mut self, msg: ReplicationEvent, ctx: &mut Self::Context) {
        let ReplicationEvent {
            id,
            replication,
            refused,
            what,
        } = msg;
        let Some(doc) = replication.doc.as_ref().map(|doc| doc.id.clone()) else {
            return;
        };
        // Only events of the document's job under the current claim count.
        let is_of_job = |row: &Row| Arc::ptr_eq(&row.replication, &replication);
        if self.fleet.is_some() && !self.table().row(&doc).is_some_and(is_of_job) {
            return;
        }
        // The document is released only after its outcome is written.
        let work = self.table().begin(&doc);
        let outcome = match what {
            Happening::Triggered => Outcome::Triggered { id: id.to_string() },
            Happening::Crashed(crash) => Outcome::Error {
                id: Some(id.to_string()),
                reason: crash.to_string(),
            },
            Happening::Ended(JobEnd::Normal(completed)) => {
                // The run of an edited document's former replication may end before the new job is added.
                let is_of_row = |row: &Row| row.replication.same_as(&replication);
                if self.table().row(&doc).is_some_and(is_of_row) {
                    self.act_on(&doc, Event::Completed(id.clone()), ctx);
                }
                Outcome::Completed {
                    stats: view::completed_stats(&completed.progress, &replication, &refused),
                    id: id.to_string(),
                }
            }
            Happening::Ended(_) => return self.end_work(work),
        };
        self.write(doc, Some(replication), outcome, ctx);
        self.end_work(work);
    }
}

impl Handler<Stop> for ReplicatorDocuments {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        self.pid_guard.shut_down(ctx);
    }
}

#[cfg(test)]
pub(crate) mod tests;
