//! What the daemons of one database share beside documents: who owns which document's job, the status of jobs, orders
//! to each other, and settings that were made while they ran.
//!
//! SUMMARY   [`FleetStore`] is the interface of it. A store that one daemon has to itself has none.
//! PROMISES  Every request is one transaction, which was carried out, or was not, or failed and may have been
//!           carried out. Time is the database's.
//! CALLED    By the actors of a fleet; nobody is blocked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::document_store::Answer;
use policy::ownership::{Claim, Claimed, Counts, DocId, Epoch, ListedDoc, Reach};
use policy::schedule::Server;

/// What a daemon says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonName {
    /// Where its HTTP is reached, `host:port`, or the name of its machine. For people; it should be unique, for a daemon
    /// that restarts is shown instead of the former one of the same address.
    pub address: Arc<str>,
    /// The version of the program.
    pub version: Arc<str>,
}

/// A daemon that has a row in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Its start.
    pub epoch: Epoch,
    /// Its address and version.
    pub name: DaemonName,
    /// How long its lease lasts; none if it is over.
    pub lease: Option<Duration>,
    /// Whether it gives away what it has, and claims nothing.
    pub is_leaving: bool,
    /// What it says is wrong at it, if it has.
    pub report: Option<Report>,
}

/// What a daemon says is wrong at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Opaque JSON; its schema is the caller's.
    pub body: String,
    /// How long ago it was written, by the database's clock.
    pub age: Duration,
}

/// Whose status it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusOf {
    /// The document of this id.
    Document(DocId),
    /// A call of `_replicate` of this replication id.
    Transient(Arc<str>),
}

/// What a daemon says of a job of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// Whose it is.
    pub of: StatusOf,
    /// Opaque JSON; its schema is the caller's. `None` once a transient job is gone.
    pub body: Option<String>,
}

/// A status as another daemon reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadStatus {
    /// Whose daemon has written it.
    pub epoch: Epoch,
    /// Counts the writes of one epoch, from 1: a later write has a greater number.
    pub number: u64,
    /// What was written.
    pub status: JobStatus,
    /// How long ago it was written, by the database's clock.
    pub age: Duration,
}

/// What the row of a document's job says to its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRow {
    /// What was set by hand: see [`DocumentStore::kept`](super::DocumentStore::kept).
    pub kept: Option<String>,
    /// What an owner saved of the job's past: see [`FleetStore::save_pasts`].
    pub past: Option<String>,
}

/// An order to the daemon that has a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whose job it is for.
    pub of: StatusOf,
    /// Opaque JSON; its schema is the caller's.
    pub body: String,
}

/// A setting that was made while daemons ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Its section.
    pub section: String,
    /// Its key.
    pub key: String,
    /// As over HTTP; none where the setting was taken back.
    pub value: Option<String>,
}

/// What the database tells daemons of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Documents ask for replications that did not, or were released; daemons came or went.
    Claims,
    /// There are orders for some daemon.
    Orders,
    /// Settings were made.
    Overrides,
}

/// Which replication the job of a document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobNote {
    /// Whose job it is.
    pub doc: DocId,
    /// The replication id.
    pub id: Arc<str>,
    /// Of its source and its target.
    pub servers: [Server; 2],
}

/// Another document's job has the replication id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdTaken {
    /// Whose it is.
    pub by: DocId,
}

/// The results of noting replication ids, in the order of the request.
pub type IdsSet = Vec<Option<Result<(), IdTaken>>>;

/// What daemons share.
///
/// # Errors
/// Each answer is an error if the database does not answer, or the store is closed: see [`StoreError`](super::StoreError).
pub trait FleetStore: Send + Sync + fmt::Debug {
    /// Returns a receiver that changes with each notification of a topic, and when the connection for them was
    /// reopened, as some may have been missed.
    fn told(&self, topic: Topic) -> watch::Receiver<u64>;

    /// Enters an epoch, drawn by the caller, with a lease, and removes its former ones. Expired epochs of others
    /// that own nothing are removed too, with the orders and the transient jobs of all that are gone.
    fn take_epoch(&self, name: DaemonName, epoch: Epoch, former: Vec<Epoch>) -> Answer<'_, Counts>;

    /// Renews a lease that is not over, notes which servers its daemon reaches, and lists what is claimed in its
    /// name; none where it is over.
    fn renew(
        &self,
        epoch: Epoch,
        leaving: bool,
        reach: Reach,
    ) -> Answer<'_, Option<(Vec<ListedDoc>, Counts)>>;

    /// Claims free documents, at most `most`, and an equal part of those that are closed to others, in an order that
    /// differs from daemon to daemon, if the lease is not over. The first claim of an epoch counts its daemon as
    /// alive.
    fn claim(&self, epoch: Epoch, claim: Claim, most: usize) -> Answer<'_, Claimed>;

    /// Releases documents that are still claimed by these claims.
    fn release(&self, epoch: Epoch, docs: Vec<(DocId, Claim)>) -> Answer<'_, ()>;

    /// Removes an epoch, and with it what is claimed in its name.
    fn depart(&self, epoch: Epoch) -> Answer<'_, ()>;

    /// Returns the rows of documents' jobs, in the order asked.
    fn job_rows(&self, docs: Vec<DocId>) -> Answer<'_, Vec<JobRow>>;

    /// Notes which replications the jobs of documents are and their servers, each document once; none for one that the epoch has not. Of
    /// those that ask for the same replication the first gets it.
    fn set_replication_ids(&self, epoch: Epoch, jobs: Vec<JobNote>) -> Answer<'_, IdsSet>;

    /// Saves what the next owner has to know of jobs, JSON text, of the documents that the epoch has.
    fn save_pasts(&self, epoch: Epoch, pasts: Vec<(DocId, String)>) -> Answer<'_, ()>;

    /// Writes statuses, those of documents if the epoch has them. One call of an epoch is under way at a time.
    fn write_statuses(&self, epoch: Epoch, statuses: Vec<JobStatus>) -> Answer<'_, ()>;

    /// Returns at most `limit` statuses that were written by epochs other than `own`, of each those with greater
    /// numbers than `known` says, oldest first.
    fn statuses(
        &self,
        own: Option<Epoch>,
        known: Vec<(Epoch, u64)>,
        limit: usize,
    ) -> Answer<'_, Vec<ReadStatus>>;

    /// Writes what is wrong at the daemon of an epoch, replacing its last report; nothing for an epoch that is gone.
    fn write_report(&self, epoch: Epoch, body: String) -> Answer<'_, ()>;

    /// Returns all daemons, and how many documents each has claimed.
    fn daemons(&self) -> Answer<'_, Vec<(Daemon, usize)>>;

    /// Returns which of these documents has which owner, whether its lease is over or not.
    fn owners(&self, docs: Vec<DocId>) -> Answer<'_, Vec<Option<Epoch>>>;

    /// Leaves orders for the owners of jobs. Returns for each whether there is one with a lease.
    fn leave_orders(&self, orders: Vec<Order>) -> Answer<'_, Vec<bool>>;

    /// Takes the orders that were left for an epoch, oldest first.
    fn take_orders(&self, epoch: Epoch) -> Answer<'_, Vec<Order>>;

    /// Returns all settings that were made.
    fn overrides(&self) -> Answer<'_, Vec<Override>>;

    /// Makes settings, all or none, or takes them back.
    fn set_overrides(&self, overrides: Vec<Override>) -> Answer<'_, ()>;

    /// Returns a secret that all daemons share: the one that is there, else this one, which is there from now on.
    fn secret(&self, name: &str, new: String) -> Answer<'_, String>;
}
