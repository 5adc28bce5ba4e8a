//! If daemons share a store, only documents owned by this daemon have jobs here.
//!
//! SUMMARY   The table of documents has the owned ones. A claimed document is read; the job of a lost one is killed; a
//!           document being released is reported to the FleetMember once its work has ended.
//! PROMISES  For a document that is not owned, nothing is added to the scheduler and no outcome is written.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_stream;
use actix::prelude::*;
use actix_rt::time::{sleep, timeout};
use futures_util::future::join_all;
use futures_util::stream;
use slog::{Logger, warn};

use super::job::{STORE_WAIT, ToAdd, add, identify, is_current};
use super::notes::{JobNotes, Noted};
use super::{Document, DocumentsOptions, ReplicatorDocuments, StepEnd};
use crate::messages::fleet_member::{DocStopped, JoinFleet, OwnedChange, OwnedChanges};
use crate::messages::replication_scheduler::{ADDS_MAX, LoseJob, RemoveJob};
use crate::otp::Tell;
use crate::replicator::document::doc_ref;
use crate::replicator::lease::DocLease;
use crate::replicator::table::{ClaimWork, Event, Taken, Wish};
use crate::replicator::wish::Reading;
use policy::ownership::{Claim, DocId, Epoch};
use replication::id::ReplicationId;
use store::fleet::{FleetStore, JobNote, JobRow};
use store::{Store, StoreError};

/// Documents read at a time.
const BATCH: usize = ADDS_MAX;

/// State that exists only if the store is shared.
pub(super) struct FleetPart {
    pub notes: Rc<JobNotes>,
    /// Notified of documents that can be released.
    member: Option<Recipient<DocStopped>>,
    /// How long the job of the document being released may take to stop.
    stop_within: Duration,
}

/// A claimed document in its current version; `None`: it is gone.
type ClaimedDoc = (DocId, Claim, Option<Document>);

/// Reads claimed documents.
struct ClaimedReader {
    store: Store,
    /// Documents still to be read.
    docs: std::vec::IntoIter<(DocId, Claim)>,
    log: Logger,
    is_told: bool,
}

impl ClaimedReader {
    /// Reads the next ones; retries while the store fails. `None` if all are read, or the store is closed.
    async fn next(mut self) -> Option<(Vec<ClaimedDoc>, Self)> {
        let some: Vec<_> = self.docs.by_ref().take(BATCH).collect();
        if some.is_empty() {
            return None;
        }
        let found = loop {
            let ids = some.iter().map(|(doc, _)| doc.to_string()).collect();
            match self.store.documents(ids).await {
                Ok(found) => break found,
                Err(StoreError::Closed) => return None,
                Err(error) => {
                    if !std::mem::replace(&mut self.is_told, true) {
                        warn!(self.log, "documents that were claimed cannot be read"; "error" => %error,
                              "effect" => "it is retried; their replications begin later");
                    }
                    sleep(STORE_WAIT).await;
                }
            }
        };
        let read = some
            .into_iter()
            .zip(found)
            .map(|((doc, claim), document)| (doc, claim, document));
        Some((read.collect(), self))
    }
}

impl FleetPart {
    pub fn new(store: Arc<dyn FleetStore>) -> Self {
        Self {
            notes: JobNotes::new(store),
            member: None,
            stop_within: Duration::MAX,
        }
    }
}

/// Passes jobs of documents to the scheduler, once their replications are recorded in the store.
pub(super) async fn add_owned(
    options: &DocumentsOptions,
    notes: &Rc<JobNotes>,
    mut jobs: Vec<ToAdd>,
) -> Vec<StepEnd> {
    let mut done = Vec::with_capacity(jobs.len());
    loop {
        let (held, lost): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|job| is_current(options, job));
        done.extend(lost.into_iter().map(|job| job.done(None)));
        let noted = match held.first().and_then(|job| job.owned.as_ref()) {
            None => return done,
            // Valid leases share one epoch.
            Some((lease, _)) => note(notes, lease.owner(), &held).await,
        };
        jobs = match noted {
            Ok(noted) => add_noted(options, held, noted, &mut done).await,
            Err(StoreError::Closed) => {
                done.extend(held.into_iter().map(|job| job.done(None)));
                return done;
            }
            Err(_) => held,
        };
        if jobs.is_empty() {
            return done;
        }
        sleep(STORE_WAIT).await;
    }
}

/// Records the replications of an epoch's jobs in the store.
async fn note(notes: &Rc<JobNotes>, epoch: Epoch, jobs: &[ToAdd]) -> Noted {
    let noting = jobs.iter().map(|job| {
        let doc = job.owned.as_ref().map(|(_, work)| DocId::clone(&work.doc));
        let sides = [&job.replication.source, &job.replication.target];
        JobNote {
            doc: doc.unwrap_or_else(|| job.doc.as_str().into()),
            id: job.id.to_string().into(),
            servers: sides.map(|side| side.server().into()),
        }
    });
    notes.note(epoch, noting.collect()).await
}

/// Passes recorded jobs to the scheduler. Returns those to retry.
async fn add_noted(
    options: &DocumentsOptions,
    jobs: Vec<ToAdd>,
    noted: Vec<Option<Result<JobRow, DocId>>>,
    done: &mut Vec<StepEnd>,
) -> Vec<ToAdd> {
    let (mut free, mut taken) = (Vec::with_capacity(jobs.len()), Vec::new());
    for (job, noted) in jobs.into_iter().zip(noted) {
        match noted {
            Some(Err(by)) => taken.push((job, by)),
            // No loss or edit can be handled between this check and adding the job; a later loss removes the job.
            Some(Ok(row)) if is_current(options, &job) => free.push((job, row)),
            Some(Ok(_)) | None => done.push(job.done(None)),
        }
    }
    if !free.is_empty() {
        done.extend(add(&options.scheduler, free).await);
    }
    let asking = taken.iter().map(|(job, by)| asks_for(options, by, &job.id));
    let asked = join_all(asking).await;
    let mut again = Vec::new();
    for ((job, by), asks) in taken.into_iter().zip(asked) {
        match asks {
            Ok(true) => {
                done.push(job.done(Some(Err(Taken::Document(doc_ref(&by))))));
            }
            Ok(false) => done.push(job.done(Some(Err(Taken::Former(by))))),
            Err(StoreError::Closed) => done.push(job.done(None)),
            Err(_) => again.push(job),
        }
    }
    again
}

/// Whether a document currently requests a replication.
async fn asks_for(
    options: &DocumentsOptions,
    doc: &str,
    job: &ReplicationId,
) -> Result<bool, StoreError> {
    let Some(document) = options.database.store.document(doc).await? else {
        return Ok(false);
    };
    let reading = Reading::of(&document, &options.config.borrow().replicator);
    Ok(match reading.map(|reading| reading.wish) {
        Some(Wish::Run(asked)) => identify(options, &asked).await.as_ref() == Ok(job),
        Some(Wish::Nothing | Wish::Broken { .. }) | None => false,
    })
}

impl ReplicatorDocuments {
    /// Returns a document's lease; `None` if this daemon owns every document.
    ///
    /// # Errors
    /// The document must not be acted on.
    pub(super) fn lease(&self, doc: &str) -> Result<Option<Arc<DocLease>>, ()> {
        match &self.fleet {
            None => Ok(None),
            Some(_) => self.table().lease(doc).map(Some).ok_or(()),
        }
    }

    /// Ends work that must end before a document is released, and reports the document to the FleetMember if it can
    /// be.
    pub(super) fn end_work(&self, work: Option<ClaimWork>) {
        if let Some(work) = work {
            self.table().end(&work);
            self.settle(&work.doc);
        }
    }

    /// Reports a document to the FleetMember if it can be released: it has no job and no work in progress.
    pub(super) fn settle(&self, doc: &str) {
        let Some(part) = &self.fleet else {
            return;
        };
        let settled = self.table().settle(doc);
        if let Some((ClaimWork { doc, claim }, member)) = settled.zip(part.member.as_ref()) {
            member.tell(DocStopped { doc, claim });
        }
    }

    /// Removes a job; kills it if its document is no longer owned, or if it does not stop in time for a release.
    pub(super) fn remove_job(&self, doc: &str, id: ReplicationId, ctx: &mut Context<Self>) {
        let scheduler = self.options.scheduler.address();
        let of = doc_ref(doc);
        let remove = RemoveJob {
            id: id.clone(),
            doc: Some(of.clone()),
        };
        let lose = LoseJob { id, doc: of };
        let Some(part) = &self.fleet else {
            return scheduler.tell(remove);
        };
        let work = self.table().begin(doc);
        let Some(work) = work else {
            // The document is no longer owned.
            return scheduler.tell(lose);
        };
        let within = part.stop_within;
        let removing = scheduler.send(remove);
        let gone = async move {
            // A scheduler that has ended has no runs.
            if timeout(within, removing).await.is_err() {
                let _ = scheduler.send(lose).await;
            }
            let (event, work) = (None, Some(work));
            vec![StepEnd { event, work }]
        };
        ctx.spawn(Self::finish(Box::pin(gone)));
    }

    /// Forgets a document's replication.
    fn forget(&mut self, doc: &str, ctx: &mut Context<Self>) {
        self.act_on(doc, Event::Changed(Wish::Nothing), ctx);
    }

    fn change(&mut self, change: OwnedChange, ctx: &mut Context<Self>) -> Option<(DocId, Claim)> {
        match change {
            OwnedChange::Claimed { doc, lease } => {
                let claim = lease.claim;
                self.table().claimed(&doc, lease);
                return Some((doc, claim));
            }
            OwnedChange::GiveBack { doc, claim, within } => {
                if self.table().give_back(&doc, claim) {
                    self.fleet.as_mut()?.stop_within = within;
                    self.forget(&doc, ctx);
                }
            }
            OwnedChange::Lost { doc, claim } => {
                if self.table().lost(&doc, claim) {
                    self.forget(&doc, ctx);
                }
            }
        }
        None
    }

    /// Reads claimed documents in batches: the next batch once the scheduler has the jobs of this one.
    fn read_claimed(&self, mut docs: Vec<(DocId, Claim)>, ctx: &mut Context<Self>) {
        // Claims are unordered; sorted documents are found faster, here and in the database.
        docs.sort_unstable();
        let reader = ClaimedReader {
            store: self.options.database.store.clone(),
            docs: docs.into_iter(),
            log: self.log.clone(),
            is_told: false,
        };
        let read = wrap_stream(stream::unfold(reader, ClaimedReader::next));
        let added = read.then(|docs, actor: &mut Self, ctx| actor.take_claimed(docs, ctx));
        ctx.spawn(added.finish());
    }

    /// Makes jobs for claimed documents. The returned future ends when the scheduler has them.
    fn take_claimed(
        &mut self,
        docs: Vec<ClaimedDoc>,
        ctx: &mut Context<Self>,
    ) -> ResponseActFuture<Self, ()> {
        let mut jobs = Vec::new();
        for (doc, claim, document) in docs {
            let is_owned = self.table().has(&doc, claim);
            if !is_owned {
                continue;
            }
            match document {
                Some(document) => jobs.extend(self.read(document, ctx)),
                // The document was deleted and purged.
                None => {
                    self.table().see(&doc, 0);
                    self.forget(&doc, ctx);
                }
            }
        }
        Self::finish(self.add(jobs))
    }
}

impl Handler<JoinFleet> for ReplicatorDocuments {
    type Result = MessageResult<JoinFleet>;

    fn handle(&mut self, msg: JoinFleet, ctx: &mut Self::Context) -> Self::Result {
        let before = self.table().all_owned();
        for ClaimWork { doc, claim } in before {
            self.change(OwnedChange::Lost { doc, claim }, ctx);
        }
        if let Some(part) = &mut self.fleet {
            (part.member, part.stop_within) = (Some(msg.member), Duration::MAX);
        }
        MessageResult(self.pid_guard.pid())
    }
}

impl Handler<OwnedChanges> for ReplicatorDocuments {
    type Result = ();

    fn handle(&mut self, OwnedChanges(changes): OwnedChanges, ctx: &mut Self::Context) {
        let claimed: Vec<_> = changes
            .into_iter()
            .filter_map(|one| self.change(one, ctx))
            .collect();
        if !claimed.is_empty() {
            self.read_claimed(claimed, ctx);
        }
    }
}
