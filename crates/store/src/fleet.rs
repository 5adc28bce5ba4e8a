//! State, other than documents, shared by the daemons of one database: ownership of jobs, their statuses, orders to
//! each other, and settings made at run time.
//!
//! SUMMARY   [`FleetStore`] is its interface. A store that cannot be shared has none.
//! PROMISES  Every request is one transaction, which takes effect as a whole or not at all. A failed one may have taken
//!           effect. Times are the database's.
//! CALLED    By the actors of a fleet; never blocks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use strum::{EnumCount, EnumString};
use tokio::sync::watch;

use super::document_store::Answer;
use policy::ownership::{Claim, Claimed, Counts, DocId, Epoch, ListedDoc, Reach};
use policy::schedule::Server;

/// A daemon's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonName {
    /// The address of its HTTP server, `host:port`, or its machine's name. For display; should be unique, since a
    /// restarted daemon is shown instead of the former one with the same address.
    pub address: Arc<str>,
    /// The version of the program.
    pub version: Arc<str>,
}

/// A daemon with a row in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its address and version.
    pub name: DaemonName,
    /// The remaining time of its lease; `None` if it has expired.
    pub lease: Option<Duration>,
    /// Whether it releases everything, and claims nothing.
    pub is_leaving: bool,
    /// Its reported problems, if any.
    pub report: Option<Report>,
}

/// A daemon's report of its problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Opaque JSON; its schema is the caller's.
    pub body: String,
    /// Its age, by the database's clock.
    pub age: Duration,
}

/// Identifies the job of a status or of an order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusOf {
    /// The job of the document with this id.
    Document(DocId),
    /// The job of a `_replicate` call, with this replication id.
    Transient(Arc<str>),
}

/// A daemon's report on one of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// The job.
    pub of: StatusOf,
    /// Opaque JSON; its schema is the caller's. `None` once a transient job has ended.
    pub body: Option<String>,
}

/// A status as read by another daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadStatus {
    /// The epoch of its writer.
    pub epoch: Epoch,
    /// Counts the writes of one epoch, from 1: later writes have greater numbers.
    pub number: u64,
    /// The status as written.
    pub status: JobStatus,
    /// Its age, by the database's clock.
    pub age: Duration,
}

/// A job's row, for its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRow {
    /// Values set by users: see [`DocumentStore::kept`](super::DocumentStore::kept).
    pub kept: Option<String>,
    /// The job's past, saved by an owner: see [`FleetStore::save_pasts`].
    pub past: Option<String>,
}

/// An order to a job's daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The job.
    pub of: StatusOf,
    /// Opaque JSON; its schema is the caller's.
    pub body: String,
}

/// A setting made at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Its section.
    pub section: String,
    /// Its key.
    pub key: String,
    /// The value as set over HTTP; `None` if the setting was deleted.
    pub value: Option<String>,
}

/// Topics of the database's notifications, in which they have these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumCount, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Topic {
    /// Documents newly request replications, or were released; daemons arrived or left.
    Claims,
    /// There are new orders for a daemon.
    Orders,
    /// Settings were changed.
    Overrides,
}

/// The replication of a document's job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobNote {
    /// The document of the job.
    pub doc: DocId,
    /// The replication id.
    pub id: Arc<str>,
    /// Servers of source and target.
    pub servers: [Server; 2],
}

/// The results of recording replication ids, in the order of the request. An error is the other document whose job has
/// the id.
pub type IdsSet = Vec<Option<Result<(), DocId>>>;

/// The interface to the state that the daemons share.
///
/// # Errors
/// Each answer is an error if the database does not answer, or the store is closed: see
/// [`StoreError`](super::StoreError).
pub trait FleetStore: Send + Sync + fmt::Debug {
    /// Returns a receiver that changes with each notification of a topic, and when the notification connection is
    /// reopened, since notifications may have been missed.
    fn told(&self, topic: Topic) -> watch::Receiver<u64>;

    /// Adds an epoch, drawn at random by the caller, with a lease, and removes the daemon's former ones. Also
    /// removes other daemons' expired epochs that own nothing, and the orders and transient jobs of all removed epochs.
    fn take_epoch(&self, name: DaemonName, epoch: Epoch, former: Vec<Epoch>) -> Answer<'_, Counts>;

    /// Renews a valid lease, records which servers its daemon reaches, and lists its claims; `None` if the lease has
    /// expired.
    fn renew(
        &self,
        epoch: Epoch,
        leaving: bool,
        reach: Reach,
    ) -> Answer<'_, Option<(Vec<ListedDoc>, Counts)>>;

    /// If the lease is valid, claims at most `most` free documents, and this daemon's share of the documents whose
    /// servers other daemons cannot reach, in an order that differs between daemons. The first claim of an epoch makes
    /// its daemon count as alive.
    fn claim(&self, epoch: Epoch, claim: Claim, most: usize) -> Answer<'_, Claimed>;

    /// Releases documents that are still claimed by these claims.
    fn release(&self, epoch: Epoch, docs: Vec<(DocId, Claim)>) -> Answer<'_, ()>;

    /// Removes an epoch and its claims.
    fn depart(&self, epoch: Epoch) -> Answer<'_, ()>;

    /// Returns the rows of documents' jobs, in the order of the request.
    fn job_rows(&self, docs: Vec<DocId>) -> Answer<'_, Vec<JobRow>>;

    /// Records the replications and servers of documents' jobs, each document once; `None` for one that the epoch
    /// does not own. If several request the same replication, the first gets it.
    fn set_replication_ids(&self, epoch: Epoch, jobs: Vec<JobNote>) -> Answer<'_, IdsSet>;

    /// Saves the pasts of jobs, as JSON text, for documents that the epoch owns.
    fn save_pasts(&self, epoch: Epoch, pasts: Vec<(DocId, String)>) -> Answer<'_, ()>;

    /// Writes statuses; those of documents only if the epoch owns them. An epoch makes one call at a time.
    fn write_statuses(&self, epoch: Epoch, statuses: Vec<JobStatus>) -> Answer<'_, ()>;

    /// Returns at most `limit` statuses written by epochs other than `own`, oldest first; for each epoch those with
    /// numbers greater than in `known`.
    fn statuses(
        &self,
        own: Option<Epoch>,
        known: Vec<(Epoch, u64)>,
        limit: usize,
    ) -> Answer<'_, Vec<ReadStatus>>;

    /// Writes the problem report of an epoch's daemon, replacing its last one; ignored for a removed epoch.
    fn write_report(&self, epoch: Epoch, body: String) -> Answer<'_, ()>;

    /// Returns all daemons, with the number of documents claimed by each.
    fn daemons(&self) -> Answer<'_, Vec<(Daemon, usize)>>;

    /// Leaves orders for the owners of jobs. Returns for each whether an owner has a lease.
    fn leave_orders(&self, orders: Vec<Order>) -> Answer<'_, Vec<bool>>;

    /// Removes and returns the orders for an epoch, oldest first.
    fn take_orders(&self, epoch: Epoch) -> Answer<'_, Vec<Order>>;

    /// Returns all settings made at run time.
    fn overrides(&self) -> Answer<'_, Vec<Override>>;

    /// Sets or deletes settings, all or none.
    fn set_overrides(&self, overrides: Vec<Override>) -> Answer<'_, ()>;

    /// Returns a secret shared by all daemons: the existing one, or else `new`, which is stored.
    fn secret(&self, name: &str, new: String) -> Answer<'_, String>;
}
