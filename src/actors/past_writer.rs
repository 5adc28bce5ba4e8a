//! Saves the pasts of jobs, so that the next owner of their documents continues with them.
//!
//! SUMMARY   The scheduler notes the past of a job whenever something happened to it. A task saves what was noted: the
//!           latest past of each job, one request at a time.
//! PROMISES  Noting never waits. A failed save is retried; a caller that waits for the past of a job waits until it
//!           is saved or the writer has ended.
//! CALLED    By the ReplicationScheduler, for the jobs of documents that this daemon owns by a lease.
//! LIMITS    One request in [`SAVE_EVERY`], of [`BATCH`] pasts and about [`BATCH_BYTES`]. [`WAITING_MAX`] jobs wait;
//!           the past of another one is saved after its next event. A past that is not saved costs a job that crashed
//!           one try more or a count that starts over, and nothing else.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use slog::{Logger, o, warn};
use tokio::sync::watch;

use crate::replicator::past::{self, Past};
use policy::ownership::{DocId, Epoch};
use policy::schedule::{Earlier, History, JobView};
use replication::refused::RefusedDoc;
use replication::spec::Replication;
use store::StoreError;

/// The shortest time between two requests.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// The most pasts in a request.
const BATCH: usize = 500;

/// A request takes no further past once its texts have as many bytes.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The most jobs whose pasts wait.
const WAITING_MAX: usize = 20_000;

/// Whose past it is.
#[derive(Debug)]
pub(crate) struct PastOf {
    /// The document whose job it is.
    pub doc: DocId,
    /// The owner of the document.
    pub epoch: Epoch,
    /// What is asked for.
    pub replication: Arc<Replication>,
}

/// Takes notes of the pasts of jobs. Cheap to clone; its task ends with the last clone, or with the store.
#[derive(Clone)]
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

/// The pasts that are to be saved.
#[derive(Debug, Default)]
struct Waiting {
    noted: FxHashMap<DocId, Noted>,
    /// Those of `noted`, the earliest first.
    order: VecDeque<DocId>,
    /// Those of the request under way.
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

    /// Takes the next pasts, all of one owner; none if there are none.
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

    /// The request is over. Pasts that were not saved wait again, unless there are later ones of their jobs.
    fn tried(&mut self, are_saved: bool) {
        for (doc, noted) in std::mem::take(&mut self.under_way) {
            if !are_saved && !self.noted.contains_key(&doc) {
                self.note(noted);
            }
        }
    }
}

impl PastWriter {
    /// Returns a writer, and its task, which saves by `save`.
    pub fn new<S, F>(save: S, log: &Logger) -> (Self, impl Future<Output = ()> + use<S, F>)
    where
        S: Fn(Epoch, Vec<(DocId, String)>) -> F,
        F: Future<Output = Result<(), StoreError>>,
    {
        let (noted, notes) = watch::channel(());
        let (told, tried) = watch::channel(());
        let writer = Self {
            waiting: Arc::default(),
            noted: Arc::new(noted),
            tried,
        };
        let log = log.new(o!("component" => "past_writer"));
        let task = run(Arc::clone(&writer.waiting), notes, told, save, log);
        (writer, task)
    }

    /// Notes the past of a job, and what documents it remembers that were not replicated; replaces what was noted
    /// of it before.
    pub fn note(&self, of: &Arc<PastOf>, job: &JobView<'_>, refused: &VecDeque<Arc<RefusedDoc>>) {
        let kept = job.history.iter().take(past::ENTRIES_MAX).cloned();
        let past = Past {
            earlier: Earlier {
                history: History::of(kept),
                not_before: job.not_before,
            },
            refused: refused.iter().cloned().collect(),
        };
        let of = Arc::clone(of);
        lock(&self.waiting).note(Noted { of, past });
        self.noted.send_replace(());
    }

    /// Returns whether a past of a document's job waits to be saved.
    pub fn has(&self, doc: &DocId) -> bool {
        let waiting = lock(&self.waiting);
        waiting.noted.contains_key(doc) || waiting.under_way.contains_key(doc)
    }

    /// Waits until no past of a document's job waits, or until the writer has ended.
    pub async fn saved(self, doc: DocId) {
        let mut tried = self.tried.clone();
        // An error: it has ended.
        drop(tried.wait_for(|()| !self.has(&doc)).await);
    }
}

impl fmt::Debug for PastWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PastWriter").finish_non_exhaustive()
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run<S, F>(
    waiting: Arc<Mutex<Waiting>>,
    mut notes: watch::Receiver<()>,
    told: watch::Sender<()>,
    save: S,
    log: Logger,
) where
    S: Fn(Epoch, Vec<(DocId, String)>) -> F,
    F: Future<Output = Result<(), StoreError>>,
{
    // An error is logged once until the store works again.
    let mut is_told = false;
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
                Err(error) if !std::mem::replace(&mut is_told, true) => {
                    warn!(log, "what happened to jobs cannot be saved"; "error" => %error,
                          "effect" => "it is retried; the next owners of their documents may count failures from 0");
                }
                Err(_) => {}
            }
            actix_rt::time::sleep(SAVE_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests;
