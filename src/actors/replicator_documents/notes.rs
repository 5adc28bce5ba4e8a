//! Records the replications of documents' jobs in the shared store, many in one request.
//!
//! SUMMARY   [`JobNotes`] has one request in flight; documents that arrive meanwhile share the next one. So a daemon
//!           that takes over many documents does not wait for each.
//! LIMITS    A request has at most [`BATCH`] documents, or those of a single call, if they are more.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use tokio::sync::oneshot;

use policy::ownership::{DocId, Epoch};
use store::StoreError;
use store::fleet::{FleetStore, JobNote, JobRow};

/// Maximum documents in a request that combines several calls.
const BATCH: usize = 256;

/// The result of each note: the row of the document's job, or the other document that has the replication's id; `None`
/// if the document is not owned.
pub(super) type Noted = Result<Vec<Option<Result<JobRow, DocId>>>, StoreError>;

/// Notes of one epoch written together, one for each document.
struct Waiting {
    epoch: Epoch,
    jobs: Vec<JobNote>,
    answer: oneshot::Sender<Noted>,
}

/// Unwritten notes, used only on the thread of their actor.
pub(super) struct JobNotes {
    store: Arc<dyn FleetStore>,
    waiting: RefCell<VecDeque<Waiting>>,
    is_under_way: Cell<bool>,
}

impl JobNotes {
    pub fn new(store: Arc<dyn FleetStore>) -> Rc<Self> {
        Rc::new(Self {
            store,
            waiting: RefCell::default(),
            is_under_way: Cell::default(),
        })
    }

    /// Records the replications of documents' jobs, and reads their rows. Each document occurs once.
    ///
    /// # Errors
    /// The store failed: they may have been recorded.
    pub async fn note(self: &Rc<Self>, epoch: Epoch, jobs: Vec<JobNote>) -> Noted {
        let (answer, answered) = oneshot::channel();
        self.waiting.borrow_mut().push_back(Waiting {
            epoch,
            jobs,
            answer,
        });
        if !self.is_under_way.replace(true) {
            actix_rt::spawn(Rc::clone(self).run());
        }
        // The writing task ends with the service.
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn run(self: Rc<Self>) {
        loop {
            let batch = self.take();
            let Some(first) = batch.first() else {
                return self.is_under_way.set(false);
            };
            let jobs = batch.iter().flat_map(|one| one.jobs.iter().cloned());
            match self.note_all(first.epoch, jobs.collect()).await {
                Ok(mut all) => {
                    for one in batch {
                        let rest = all.split_off(one.jobs.len().min(all.len()));
                        drop(one.answer.send(Ok(std::mem::replace(&mut all, rest))));
                    }
                }
                Err(error) => {
                    for one in batch {
                        drop(one.answer.send(Err(error.clone())));
                    }
                }
            }
        }
    }

    /// Takes the next notes, all of one epoch and each document once.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.borrow_mut();
        let (mut batch, mut docs): (Vec<Waiting>, FxHashSet<DocId>) = Default::default();
        while let Some(next) = waiting.front()
            && batch.first().is_none_or(|first| {
                first.epoch == next.epoch
                    && docs.len() + next.jobs.len() <= BATCH
                    && next.jobs.iter().all(|job| !docs.contains(&job.doc))
            })
        {
            docs.extend(next.jobs.iter().map(|job| DocId::clone(&job.doc)));
            batch.extend(waiting.pop_front());
        }
        batch
    }

    async fn note_all(&self, epoch: Epoch, jobs: Vec<JobNote>) -> Noted {
        let docs: Vec<DocId> = jobs.iter().map(|job| DocId::clone(&job.doc)).collect();
        let set = self.store.set_replication_ids(epoch, jobs).await?;
        Ok(set
            .into_iter()
            .zip(self.store.job_rows(docs).await?)
            .map(|(set, row)| Some(set?.map(|()| row)))
            .collect())
    }
}
