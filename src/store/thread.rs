//! The thread that has the file.
//!
//! SUMMARY   Takes requests in their order. Writes that wait together are one transaction, which costs
//!           one wait for the disk.
//! PROMISES  Nobody is answered before the transaction is on the disk. When it fails, all of it is
//!           undone, everybody in it is told, and the file is opened anew for the next request.

use std::io;
use std::sync::Arc;

use redb::{Database, ReadableDatabase};
use slog::{Logger, warn};
use tokio::sync::{mpsc, oneshot, watch};

use super::file::Place;
use super::migrate::SetAside;
use super::records::{Records, Snapshot, prepare};
use super::upkeep::compact;
use super::{StoreError, Watcher, uuid_file};

/// Most writes of one transaction.
const BATCH_MAX: usize = 256;

/// What the thread is asked, and who is told what came of it.
pub(super) enum Request {
    Read(Box<Read>, Reply<()>),
    /// Told when what was written is on the disk.
    Write(Box<Write>, Reply<()>),
    /// Give what is free in the file back to the system, if that is much. Answers the bytes given back.
    Compact(Reply<u64>),
}

pub(super) type Read = dyn FnOnce(&Snapshot) -> Result<(), redb::Error> + Send;
pub(super) type Write = dyn FnOnce(&mut Records<'_>) -> Result<(), redb::Error> + Send;
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(super) fn failed(error: redb::Error) -> StoreError {
    StoreError::Failed(error.to_string())
}

/// Starts the thread, which ends when nobody can ask any more.
pub(super) fn start(
    place: Place,
    new_uuid: Arc<str>,
    watcher: Arc<dyn Watcher>,
    requests: mpsc::Receiver<Request>,
    update_seq: watch::Sender<Option<u64>>,
    log: Logger,
) -> io::Result<()> {
    let keeper = Keeper {
        place,
        new_uuid,
        watcher,
        requests,
        update_seq,
        database: None,
        log,
    };
    std::thread::Builder::new()
        .name("store".to_owned())
        .spawn(move || keeper.run())
        .map(drop)
}

struct Keeper {
    place: Place,
    /// What a new store is called.
    new_uuid: Arc<str>,
    watcher: Arc<dyn Watcher>,
    requests: mpsc::Receiver<Request>,
    update_seq: watch::Sender<Option<u64>>,
    database: Option<Database>,
    log: Logger,
}

impl Keeper {
    fn run(mut self) {
        let mut next = None;
        // Whoever asked may wait no longer: a reply that nobody takes is dropped.
        while let Some(request) = next.take().or_else(|| self.requests.blocking_recv()) {
            match request {
                Request::Read(work, reply) => drop(reply.send(self.read(work))),
                Request::Compact(reply) => drop(reply.send(self.compact())),
                Request::Write(work, reply) => {
                    let (mut batch, mut replies) = (vec![work], vec![reply]);
                    while batch.len() < BATCH_MAX && next.is_none() {
                        match self.requests.try_recv() {
                            Ok(Request::Write(work, reply)) => {
                                batch.push(work);
                                replies.push(reply);
                            }
                            Ok(other) => next = Some(other),
                            Err(_) => break,
                        }
                    }
                    let written = self.write(batch);
                    for reply in replies {
                        drop(reply.send(written.clone()));
                    }
                }
            }
        }
    }

    /// Opens the file unless it is open.
    fn database(&mut self) -> Result<&Database, StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => {
                let database = self.place.open()?;
                let prepared = prepare(&database, &self.place, &self.new_uuid, &*self.watcher);
                let prepared = prepared.map_err(|error| self.place.unprepared(error))?;
                self.tell(&prepared.uuid);
                if let Some(SetAside { file, count }) = prepared.set_aside {
                    warn!(self.log, "branches of documents were written to a file, the winners stay";
                        "file" => file.display().to_string(), "count" => count,
                        "effect" => "each document has one revision from now on",
                        "remedy" => "settee jobs import --replace takes the lines that are wanted instead");
                }
                self.update_seq.send_replace(Some(prepared.update_seq));
                database
            }
        };
        Ok(self.database.insert(database))
    }

    /// Writes the uuid where `settee replicate` looks for it, unless it is there already.
    fn tell(&self, uuid: &str) {
        if let Some(file) = uuid_file::beside(&self.place)
            && uuid_file::read(&file).is_none()
            && let Err(error) = uuid_file::write(&file, uuid)
        {
            warn!(self.log, "the id of this service cannot be kept";
                "file" => file.display().to_string(), "error" => %error,
                "effect" => "the command has an id of its own and does not find the service's checkpoints");
        }
    }

    fn snapshot(&mut self) -> Result<Snapshot, StoreError> {
        self.database().and_then(|database| {
            let read = database.begin_read().map_err(redb::Error::from);
            read.and_then(|read| Snapshot::of(&read)).map_err(failed)
        })
    }

    fn compact(&mut self) -> Result<u64, StoreError> {
        self.database()?;
        let database = self.database.as_mut().ok_or(StoreError::Closed)?;
        let given_back = compact(database, &self.place);
        if given_back.is_err() {
            self.database = None;
        }
        given_back.map_err(failed)
    }

    fn read(&mut self, work: Box<Read>) -> Result<(), StoreError> {
        let snapshot = self.snapshot();
        let read = snapshot.and_then(|snapshot| work(&snapshot).map_err(failed));
        if read.is_err() {
            self.database = None;
        }
        read
    }

    fn write(&mut self, batch: Vec<Box<Write>>) -> Result<(), StoreError> {
        let watcher = Arc::clone(&self.watcher);
        let database = self.database();
        let written = database.and_then(|database| {
            let written = write(database, &*watcher, batch);
            written.map_err(failed)
        });
        match written {
            Ok(update_seq) => {
                let seq = Some(update_seq);
                self.update_seq.send_if_modified(|known| {
                    let is_news = *known != seq;
                    *known = seq;
                    is_news
                });
                Ok(())
            }
            Err(error) => {
                // After a failed write the library wants the file opened anew.
                self.database = None;
                Err(error)
            }
        }
    }
}

/// Carries out a batch in one transaction; returns the last sequence number.
fn write(
    database: &Database,
    watcher: &dyn Watcher,
    batch: Vec<Box<Write>>,
) -> Result<u64, redb::Error> {
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
