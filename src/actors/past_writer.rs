//! Saves the pasts of jobs, so that their documents' next owner continues with them.
//!
//! SUMMARY   The scheduler notes a job's past after each of its events. A task saves the latest past of each job, one
//!           request at a time.
//! PROMISES  Noting never waits. A failed save is retried; a caller waiting for a job's past waits until it is saved
//!           or the writer has ended.
//! CALLED    By the ReplicationScheduler, for jobs whose documents this daemon owns by a lease.
//! LIMITS    At most one request per [`SAVE_EVERY`], of at most [`BATCH`] pasts and about [`BATCH_BYTES`]. At most
//!           [`WAITING_MAX`] jobs wait; the past of any other job is dropped, and noted again after its next event. The
//!           only cost of an unsaved past is one extra attempt of a crashed job, or a count restarted from zero.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustc_hash::FxHashMap;
use slog::{Logger, o, warn};
use tokio::sync::watch;

use crate::lock;
use crate::replicator::past::{self, Past};
use policy::ownership::{DocId, Epoch};
use policy::schedule::{Earlier, History, JobView};
use replication::refused::RefusedDoc;
use replication::spec::Replication;
use store::StoreError;

/// Minimum time between two requests.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Maximum pasts in a request.
const BATCH: usize = 500;

/// Size of a request's pasts, in bytes, at which no further past is added.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Maximum jobs with unsaved pasts.
const WAITING_MAX: usize = 20_000;

/// The key of a past.
#[derive(Debug)]
pub(crate) struct PastOf {
    /// The job's document.
    pub doc: DocId,
    /// The owner of the document.
    pub epoch: Epoch,
    pub replication: Arc<Replication>,
}

/// Collects the pasts of jobs. Cheap to clone; its task ends with the last clone, or with the store.
#[derive(Clone, Debug)]
pub(crate) struct PastWriter {
    waiting: Arc<Mutex<Waiting>>,
    noted: Arc<watch::Sender<()>>,
    /// Changes after each request.
    tried: watch::Receiver<()>,
}

#[derive(Debug)]
struct Noted {
    of: Arc<PastOf>,
    past: Past,
}

/// Unsaved pasts.
#[derive(Debug, Default)]
struct Waiting {
    noted: FxHashMap<DocId, Noted>,
    /// The keys of `noted`, earliest first.
    order: VecDeque<DocId>,
    /// The pasts of the request in flight.
    under_way: FxHashMap<DocId, Noted>,
}

impl Waiting {
    fn note(&mut self, noted: Noted) {
        let doc = DocId::clone(&noted.of.doc);
        if !self.noted.contains_key(&doc) {
            if self.noted.len() >= WAITING_MAX {
                return;
            }
            self.order.push_back(DocId::clone(&doc));
        }
        self.noted.insert(doc, noted);
    }

    /// Takes the next pasts, all of one owner; `None` if there are none.
    fn take(&mut self) -> Option<(Epoch, Vec<(DocId, String)>)> {
        let epoch = self.noted[self.order.front()?].of.epoch;
        let (mut texts, mut bytes) = (Vec::new(), 0);
        while texts.len() < BATCH
            && bytes < BATCH_BYTES
            && let Some(doc) = self.order.front()
            && self.noted[doc].of.epoch == epoch
            && let Some(doc) = self.order.pop_front()
            && let Some(noted) = self.noted.remove(&doc)
        {
            let text = past::text(&noted.of.replication.digest(), &noted.past);
            bytes += text.len();
            texts.push((DocId::clone(&doc), text));
            self.under_way.insert(doc, noted);
        }
        Some((epoch, texts))
    }

    /// The request has ended. Unsaved pasts are queued again, unless newer ones exist.
    fn tried(&mut self, are_saved: bool) {
        for (doc, noted) in mem::take(&mut self.under_way) {
            if !are_saved && !self.noted.contains_key(&doc) {
                self.note(noted);
            }
        }
    }
}

impl PastWriter {
    /// Returns a writer, and its task, which saves with `save`.
    pub fn new<S, F>(save: S, log: &Logger) -> (Self, impl Future<Output = ()> + use<S, F>)
    where
        S: Fn(Epoch, Vec<(DocId, String)>) -> F,
        F: Future<Output = Result<(), StoreError>>,
    {
        let (noted, mut notes) = watch::channel(());
        let (told, tried) = watch::channel(());
        let writer = Self {
            waiting: Arc::default(),
            noted: Arc::new(noted),
            tried,
        };
        let waiting = Arc::clone(&writer.waiting);
        let log = log.new(o!("component" => "past_writer"));
        // An error is logged once until the store works again.
        let mut is_told = false;
        let task = async move {
            while notes.changed().await.is_ok() {
                loop {
                    let Some((epoch, pasts)) = lock(&waiting).take() else {
                        break;
                    };
                    let result = save(epoch, pasts).await;
                    lock(&waiting).tried(result.is_ok());
                    told.send_replace(());
                    match result {
                        Ok(()) => is_told = false,
                        Err(StoreError::Closed) => return,
                        Err(error) if !mem::replace(&mut is_told, true) => {
                            warn!(log, "what happened to jobs cannot be saved"; "error" => %error,
                                  "effect" => "it is retried; the next owners of their documents may count failures from 0");
                        }
                        Err(_) => {}
                    }
                    actix_rt::time::sleep(SAVE_EVERY).await;
                }
            }
        };
        (writer, task)
    }

    /// Notes a job's past and its remembered unreplicated documents, replacing an earlier note.
    pub fn note(&self, of: &Arc<PastOf>, job: &JobView<'_>, refused: &VecDeque<Arc<RefusedDoc>>) {
        let past = Past {
            earlier: Earlier {
                history: History::of(job.history.iter().take(past::ENTRIES_MAX).cloned()),
                not_before: job.not_before,
            },
            refused: refused.iter().cloned().collect(),
        };
        let of = Arc::clone(of);
        lock(&self.waiting).note(Noted { of, past });
        self.noted.send_replace(());
    }

    /// Returns whether a document's job has an unsaved past.
    pub fn has(&self, doc: &DocId) -> bool {
        let waiting = lock(&self.waiting);
        waiting.noted.contains_key(doc) || waiting.under_way.contains_key(doc)
    }

    /// Waits until a document's job has no unsaved past, or the writer has ended.
    pub async fn saved(self, doc: DocId) {
        let mut tried = self.tried.clone();
        // An error means that the writer's task has ended.
        drop(tried.wait_for(|()| !self.has(&doc)).await);
    }
}

#[cfg(test)]
mod tests;
