//! The thread that owns the file.
//!
//! SUMMARY   Takes requests in order. Queued writes share one transaction, which costs one wait for the disk.
//! PROMISES  No write is answered before its transaction is on the disk. When a transaction fails, all of it
//!           is undone, all its callers are notified, and the next request reopens the file. A snapshot is
//!           read between other requests; while it is held, the file keeps its data.
//! LIMITS    A snapshot is dropped by the first request made more than [`HELD_IDLE_MAX`] after it was last read, and
//!           when the file is closed after an error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redb::{Database, Error, ReadableDatabase};
use slog::{Logger, warn};
use tokio::sync::{mpsc, oneshot, watch};

use super::file;
use super::records::{Records, Snapshot, prepare};
use super::upkeep::compact;
use crate::ask;
use crate::document_store::Watcher;
use crate::error::{OpenProblem, StoreError, StoreResult};
use crate::export::{ExportRow, RowKind};
use crate::observer::Refusals;
use crate::place::StorePlace;
use crate::uuid_file;

/// Maximum writes of one transaction.
const BATCH_MAX: usize = 256;

/// How long a snapshot may stay unread before the next request drops it.
const HELD_IDLE_MAX: Duration = Duration::from_secs(60);

/// A request to the thread.
pub(super) enum StoreRequest {
    /// Answered when the write is on disk.
    Write(Box<Write>, oneshot::Sender<StoreResult<()>>),
    /// Anything else; sends its answer itself.
    Other(Box<dyn FnOnce(&mut Keeper) + Send>),
}

pub(super) type Write = dyn FnOnce(&mut Records<'_>) -> Result<(), Error> + Send;

/// Runs work on the thread, and waits for its result.
pub(super) async fn run<T: Send + 'static>(
    requests: &mpsc::Sender<StoreRequest>,
    work: impl FnOnce(&mut Keeper) -> StoreResult<T> + Send + 'static,
) -> StoreResult<T> {
    let request = |reply: oneshot::Sender<StoreResult<T>>| {
        StoreRequest::Other(Box::new(move |keeper: &mut Keeper| {
            // The caller may be gone: then the reply is dropped.
            drop(reply.send(keeper.guarded(work)));
        }))
    };
    ask(requests, request).await
}

/// The state of the thread.
pub(super) struct Keeper {
    pub place: StorePlace,
    /// The uuid of a new store.
    pub new_uuid: Arc<str>,
    pub watcher: Arc<dyn Watcher>,
    pub requests: mpsc::Receiver<StoreRequest>,
    pub update_seq: watch::Sender<Option<u64>>,
    pub database: Option<Database>,
    pub held: Vec<Held>,
    /// The number of snapshots taken so far.
    pub held_count: u64,
    pub refusals: Refusals,
    pub log: Logger,
}

/// A snapshot of the tables.
pub(super) struct Held {
    number: u64,
    tables: Snapshot,
    read_at: Instant,
}

impl Keeper {
    /// Runs until the last caller is gone.
    pub fn run(mut self) {
        let mut next = None;
        while let Some(request) = next.take().or_else(|| self.requests.blocking_recv()) {
            self.drop_idle(Instant::now());
            match request {
                StoreRequest::Other(work) => work(&mut self),
                StoreRequest::Write(work, reply) => {
                    let (mut batch, mut replies) = (vec![work], vec![reply]);
                    while batch.len() < BATCH_MAX && next.is_none() {
                        match self.requests.try_recv() {
                            Ok(StoreRequest::Write(work, reply)) => {
                                batch.push(work);
                                replies.push(reply);
                            }
                            Ok(other) => next = Some(other),
                            Err(_) => break,
                        }
                    }
                    let written = self.guarded(|keeper| keeper.write(batch));
                    self.refusals.note(replies.len(), &written);
                    for reply in replies {
                        drop(reply.send(written.clone()));
                    }
                }
            }
        }
    }

    /// Carries out a request. redb panics on some pages damaged while the file was open: the next request reopens the
    /// file, which detects the damage.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> StoreResult<T>) -> StoreResult<T> {
        catch_unwind(AssertUnwindSafe(|| work(self))).unwrap_or_else(|_| {
            drop(catch_unwind(AssertUnwindSafe(|| self.close())));
            Err(self.failed(OpenProblem::Failed(
                "a panic, reported on standard error".to_owned(),
            )))
        })
    }

    /// Returns a problem as this store's error.
    fn failed(&self, problem: impl Into<OpenProblem>) -> StoreError {
        self.place.cannot_open(problem.into()).into()
    }

    /// Returns the database; opens the file if needed.
    fn database(&mut self) -> StoreResult<&Database> {
        let database = if let Some(database) = self.database.take() {
            database
        } else {
            let database = file::open(&self.place).map_err(|problem| self.failed(problem))?;
            let (uuid, update_seq) = prepare(&database, &self.new_uuid, &*self.watcher)
                .map_err(|problem| self.failed(problem))?;
            self.tell(&uuid);
            self.update_seq.send_replace(Some(update_seq));
            database
        };
        Ok(self.database.insert(database))
    }

    /// Writes the uuid where `settee replicate` looks for it.
    fn tell(&self, uuid: &str) {
        if let Some(file) = uuid_file::beside(&self.place)
            && uuid_file::read(&file).as_deref() != Some(uuid)
            && let Err(error) = uuid_file::write(&file, uuid)
        {
            warn!(self.log, "the id of this service cannot be kept";
                "file" => file.display().to_string(), "error" => %error,
                "effect" => "`settee replicate` uses another id and does not find the service's checkpoints");
        }
    }

    fn snapshot(&mut self) -> StoreResult<Snapshot> {
        let read = self.database()?.begin_read().map_err(Error::from);
        read.and_then(|read| Snapshot::of(&read))
            .map_err(|error| self.failed(error))
    }

    /// Closes the file, which a held snapshot would keep open.
    fn close(&mut self) {
        self.held.clear();
        self.database = None;
    }

    /// Holds a snapshot. Returns its number, the uuid and the last sequence number.
    pub fn hold(&mut self) -> StoreResult<(u64, String, u64)> {
        let tables = self.snapshot()?;
        let head = || Ok((tables.uuid()?, tables.info()?.update_seq));
        let (uuid, seq) = head().map_err(|error: Error| self.failed(error))?;
        self.held_count += 1;
        self.held.push(Held {
            number: self.held_count,
            tables,
            read_at: Instant::now(),
        });
        Ok((self.held_count, uuid, seq))
    }

    /// Reads the next rows after an id of the held snapshot with this number.
    pub fn read_held(
        &mut self,
        number: u64,
        kind: RowKind,
        after: &str,
    ) -> StoreResult<Vec<ExportRow>> {
        let held = self.held.iter_mut().find(|held| held.number == number);
        let Some(held) = held else {
            let what = "a snapshot was given up: it was not read for a minute, or the store failed";
            return Err(StoreError::Failed(what.to_owned()));
        };
        held.read_at = Instant::now();
        let rows = held.tables.rows(kind, after);
        if rows.is_err() {
            self.close();
        }
        rows.map_err(|error| self.failed(error))
    }

    /// Releases the snapshot with this number.
    pub fn release(&mut self, number: u64) {
        self.held.retain(|held| held.number != number);
    }

    /// Drops unread snapshots, which make the file grow.
    pub fn drop_idle(&mut self, now: Instant) {
        self.held
            .retain(|held| now.duration_since(held.read_at) <= HELD_IDLE_MAX);
    }

    /// Returns free space of the file to the system, if much is free and no snapshot is held. Returns the number of
    /// bytes.
    pub fn compact(&mut self) -> StoreResult<u64> {
        if !self.held.is_empty() {
            return Ok(0);
        }
        self.database()?;
        let given_back = compact(
            self.database.as_mut().ok_or(StoreError::Closed)?,
            &self.place,
        );
        if given_back.is_err() {
            self.close();
        }
        given_back.map_err(|error| self.failed(error))
    }

    pub fn read<T>(&mut self, work: impl FnOnce(&Snapshot) -> Result<T, Error>) -> StoreResult<T> {
        let read = self
            .snapshot()
            .and_then(|tables| work(&tables).map_err(|error| self.failed(error)));
        if read.is_err() {
            self.close();
        }
        read
    }

    fn write(&mut self, batch: Vec<Box<Write>>) -> StoreResult<()> {
        let watcher = Arc::clone(&self.watcher);
        let written = self
            .database()
            .map(|database| write(database, &*watcher, batch));
        let written = written.and_then(|written| written.map_err(|error| self.failed(error)));
        match written {
            Ok(seq) => {
                self.update_seq
                    .send_if_modified(|known| known.replace(seq) != Some(seq));
                Ok(())
            }
            Err(error) => {
                // redb requires reopening the file after a failed write.
                self.close();
                Err(error)
            }
        }
    }
}

/// Carries out a batch in one transaction; returns the last sequence number.
fn write(database: &Database, watcher: &dyn Watcher, batch: Vec<Box<Write>>) -> Result<u64, Error> {
    let transaction = database.begin_write()?;
    let (update_seq, saved) = {
        let mut tables = Records::of(&transaction, watcher)?;
        for work in batch {
            work(&mut tables)?;
        }
        (tables.update_seq()?, tables.saved)
    };
    transaction.commit()?;
    watcher.written(saved);
    Ok(update_seq)
}
