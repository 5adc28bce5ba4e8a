//! The parts of a running job: a changes reader, a changes manager, workers.
//!
//! SUMMARY   reader -> bounded queue -> manager -> workers -> job. Each part is a task, and its handle notifies the
//!           job of its end, even by a panic.
//! PROMISES  The job is notified of a batch before a worker gets it; a worker reports the end of a batch before it
//!           takes the next. A reader or manager is finished only if it reports so: if one vanishes, the replication
//!           never looks complete.
//! SOURCE    `couch_replicator_changes_reader`, `_changes_queue`, `_changes_manager`, `_worker`.

use std::cell::RefCell;
use std::rc::Rc;

use actix::prelude::*;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinError, spawn_local};

use super::opening::Opened;
use super::reports::Reports;
use super::{PartNews, ReplicationJob};
use crate::messages::replication_job::JobStart;
use crate::otp::Tell;
use replication::changes::feed::{Change, Row};
use replication::changes::query::FeedQuery;
use replication::changes::queue::{self, Consumer, QueueLimits};
use replication::changes::reader::ChangesReader;
use replication::counters::{Counter, Counters, RunCounters};
use replication::crash::Crash;
use replication::db_updates::Subscription;
use replication::endpoint::HttpSettings;
use replication::progress::BatchNumber;
use replication::seq::Seq;
use replication::spec::Feed;
use replication::worker::{Averages, Worker};

/// How a part ended: normally, with a reason, or by a panic.
pub(super) type Ended = Result<Result<(), Crash>, JoinError>;

/// A worker's request for its next batch; it is answered with `None` at the end.
type BatchRequest = oneshot::Sender<Option<Batch>>;

/// A kind of part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Reader,
    Manager,
    Worker,
}

impl Part {
    /// Returns the reason for a part that ended without one.
    pub fn died(self, how: &str) -> Crash {
        match self {
            Self::Reader => Crash::ChangesReaderDied(how.to_owned()),
            Self::Manager => Crash::ChangesManagerDied(how.to_owned()),
            Self::Worker => Crash::WorkerDied(how.to_owned()),
        }
    }

    /// Counts the death of a part that ended a run.
    pub fn count_death(self, counters: &Counters) {
        counters.count(match self {
            Self::Reader => Counter::ChangesReaderDeaths,
            Self::Manager => Counter::ChangesManagerDeaths,
            Self::Worker => Counter::WorkerDeaths,
        });
    }
}

/// Changes that one worker replicates together.
#[derive(Debug)]
struct Batch {
    number: BatchNumber,
    seq: Seq,
    rows: Vec<Row>,
}

/// The tasks of a job. They end with it.
#[derive(Debug)]
pub(super) struct Parts {
    tasks: Vec<AbortHandle>,
    /// Workers that have not ended.
    workers: u32,
}

impl Parts {
    /// Starts the parts of a job.
    ///
    /// # Errors
    /// No request can be made to the source's server.
    pub fn start(
        start: &JobStart,
        opened: &Opened,
        run_counters: &Rc<RunCounters>,
        reports: &Reports,
        ctx: &mut Context<ReplicationJob>,
    ) -> Result<Self, Crash> {
        let JobStart { run, settings } = start;
        let options = &run.replication.options;
        let tuning = &options.tuning;
        let (workers, batch) = (tuning.worker_processes, tuning.worker_batch_size as usize);
        let (producer, consumer) = queue::bounded(QueueLimits::of(workers as usize, batch));
        let log = run.log.clone();
        let reader = ChangesReader {
            source: opened.source.endpoint.clone(),
            query: FeedQuery::new(options),
            since: opened.start_seq.clone(),
            skipped: false,
            retries: tuning.retries_per_request,
            id_max: settings
                .max_document_id_length
                .map(|max| usize::try_from(max).unwrap_or(usize::MAX)),
            run_counters: Rc::clone(run_counters),
            refused: reports.refused(),
            subscription: subscription(start, ctx)?,
            log: log.clone(),
        };
        let worker = Rc::new(Worker {
            source: opened.source.endpoint.clone(),
            target: opened.target.endpoint.clone(),
            reads: tuning.http_connections as usize,
            retries: tuning.retries_per_request,
            use_bulk_get: tuning.use_bulk_get,
            filter: opened.filter.clone(),
            missing_doc_retry: settings.missing_doc_retry,
            run_counters: Rc::clone(run_counters),
            // Only a common checkpoint proves that the target is the one of earlier runs.
            unproven_writes: if opened.history.is_empty() {
                opened.stats.docs_written
            } else {
                0
            },
            refused: reports.refused(),
            averages: RefCell::new(Averages::default()),
            log,
        });
        let (requests, waiting) = mpsc::channel(1);
        let mut parts = Self {
            tasks: Vec::new(),
            workers,
        };
        parts.watch(Part::Reader, reader.run(producer), ctx);
        let manager = manage(consumer, waiting, ctx.address(), batch);
        parts.watch(Part::Manager, manager, ctx);
        for _ in 0..workers {
            let work = work(Rc::clone(&worker), requests.clone(), ctx.address());
            parts.watch(Part::Worker, work, ctx);
            settings.http.counters().count(Counter::WorkersStarted);
        }
        Ok(parts)
    }

    /// A worker ended normally. Returns whether it was the last.
    pub fn worker_is_done(&mut self) -> bool {
        self.workers = self.workers.saturating_sub(1);
        self.workers == 0
    }

    /// Aborts all tasks.
    pub fn stop(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }

    fn watch(
        &mut self,
        part: Part,
        work: impl Future<Output = Result<(), Crash>> + 'static,
        ctx: &mut Context<ReplicationJob>,
    ) {
        let task = spawn_local(work);
        self.tasks.push(task.abort_handle());
        let watched = fut::wrap_future::<_, ReplicationJob>(task);
        ctx.spawn(watched.map(move |ended, job, ctx| job.part_ended(part, ended, ctx)));
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Subscribes to the source server's feed, if the replication uses it.
fn subscription(
    start: &JobStart,
    ctx: &Context<ReplicationJob>,
) -> Result<Option<Subscription>, Crash> {
    let JobStart { run, settings } = start;
    let options = &run.replication.options;
    if !options.continuous || options.tuning.feed != Feed::DbUpdates {
        return Ok(None);
    }
    let http_settings = HttpSettings::of_source(options, settings.health_threshold);
    let job = ctx.address();
    let listener = Rc::new(move |why| job.tell(PartNews::OwnFeed(why)));
    Ok(Subscription::new(
        &settings.http,
        &run.replication.source,
        http_settings,
        listener,
    )?)
}

/// Deals out batches until there are no more, and then notifies every worker.
async fn manage(
    changes: Consumer,
    mut requests: mpsc::Receiver<BatchRequest>,
    job: Addr<ReplicationJob>,
    most: usize,
) -> Result<(), Crash> {
    let mut number = 0;
    while let Some(request) = requests.recv().await {
        let batch = next_batch(&changes, &job, most, &mut number).await;
        // The job has already noticed if the worker is gone.
        drop(request.send(batch));
    }
    Ok(())
}

/// Waits for changes that need a worker, and returns them; `None` at the end.
async fn next_batch(
    changes: &Consumer,
    job: &Addr<ReplicationJob>,
    most: usize,
    number: &mut BatchNumber,
) -> Option<Batch> {
    loop {
        let taken = changes.take(most).await;
        let seq = taken.last()?.seq().clone();
        *number += 1;
        let number = *number;
        job.tell(PartNews::BatchBegun(number, seq.clone()));
        let rows: Vec<Row> = taken.into_iter().filter_map(Change::into_row).collect();
        if !rows.is_empty() {
            return Some(Batch { number, seq, rows });
        }
        job.tell(PartNews::BatchDone(number, seq));
    }
}

/// Replicates batches until there are no more.
async fn work(
    worker: Rc<Worker>,
    manager: mpsc::Sender<BatchRequest>,
    job: Addr<ReplicationJob>,
) -> Result<(), Crash> {
    let gone = || Crash::ChangesManagerDied("it is gone".to_owned());
    loop {
        let (request, batch) = oneshot::channel();
        manager.send(request).await.map_err(|_| gone())?;
        let Some(Batch { number, seq, rows }) = batch.await.map_err(|_| gone())? else {
            return Ok(());
        };
        // Boxed, because most workers are idle and should reserve no memory for a batch.
        Box::pin(worker.process(rows)).await?;
        // If the job is gone, so is this task.
        let _ = job.send(PartNews::BatchDone(number, seq)).await;
    }
}
