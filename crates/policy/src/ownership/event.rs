//! The events and actions of one daemon's ownership.
//!
//! SUMMARY   The vocabulary between [`super::Ownership`] and the actor that connects to the database.

use std::sync::Arc;

use crate::schedule::Server;

/// The id of a document that requests a replication.
pub type DocId = Arc<str>;

/// One start of a daemon, or its continuation after losing its lease or being drained: a unique random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The number of a request to the database; never reused by the same daemon process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request(pub u64);

/// The request that claimed a document. Stored with the epoch in the document's row.
pub type Claim = Request;

/// The numbers of documents, and of the daemons that share them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Documents that request a replication, owned or not.
    pub wanted: usize,
    /// Daemons with a valid lease that are not leaving.
    pub live: usize,
}

/// Which servers a daemon reaches, as reported by its renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Servers not reached for long.
    pub unreached: Vec<Server>,
    /// Servers reached again.
    pub back: Vec<Server>,
}

/// Which daemons may claim a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Every daemon.
    Shared,
    /// This daemon, but not some others.
    Extra,
    /// Others: this daemon avoids the server.
    Avoided(Server),
}

/// The claimed documents, and the counts for shares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    pub docs: Vec<DocId>,
    /// Documents closed to other daemons: [`Standing::Extra`].
    pub extra: Vec<DocId>,
    pub counts: Counts,
}

/// A document claimed by an epoch, as listed by a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDoc {
    pub doc: DocId,
    pub claim: Claim,
    /// Whether it still requests a replication.
    pub wanted: bool,
    pub standing: Standing,
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// The daemon starts, or [`super::Ownership::next_wake`] was reached.
    Tick,
    /// [`OwnerAction::TakeEpoch`] was carried out.
    EpochTaken {
        request: Request,
        epoch: Epoch,
        counts: Counts,
    },
    /// [`OwnerAction::Renew`] was carried out. All documents of the epoch are listed.
    Renewed {
        request: Request,
        docs: Vec<ListedDoc>,
        counts: Counts,
    },
    /// [`OwnerAction::Renew`] found no such epoch, or its lease had expired.
    NotRenewed { request: Request },
    /// [`OwnerAction::Claim`] was carried out: these documents were free and are claimed.
    Claimed { request: Request, claimed: Claimed },
    /// [`OwnerAction::Release`] was carried out.
    Released { request: Request },
    /// A request failed; it may have been carried out.
    Failed { request: Request },
    /// The database reported that documents were added or released.
    Notified,
    /// A document's job has completely ended, and its outcome, if any, is written. Requested with
    /// [`OwnerAction::GiveBack`] or not.
    Stopped { doc: DocId, claim: Claim },
    /// A server has not been reached for long (reported repeatedly), or is reached again.
    ServerReach { server: Server, answers: bool },
    /// The daemon is stopping: all claims are released.
    Stop,
    /// The daemon is drained: all claims are released, and nothing is claimed until [`Event::Undrain`].
    Drain,
    /// The daemon claims its share again, with another epoch.
    Undrain,
}

/// An action, to be carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerAction {
    /// Take a fresh epoch, with a lease of [`super::LEASE`]. Removes this daemon's former epoch, none of whose
    /// jobs still run.
    TakeEpoch {
        request: Request,
        former: Option<Epoch>,
    },
    /// Renew the lease if it is valid, and list its claims.
    Renew {
        request: Request,
        epoch: Epoch,
        /// Whether the daemon is leaving, and does not count as alive.
        leaving: bool,
        reach: Reach,
    },
    /// Claim at most `most` free documents, possibly none, and up to this daemon's equal part of the extra ones; the
    /// answer always has the counts.
    Claim {
        request: Request,
        epoch: Epoch,
        most: usize,
    },
    /// Release documents that are still claimed by these claims.
    Release {
        request: Request,
        epoch: Epoch,
        docs: Vec<(DocId, Claim)>,
    },
    /// A document is owned from now on: its job may run.
    Claimed {
        doc: DocId,
        claim: Claim,
        /// Whether some other daemons cannot reach its servers: a back-off that they imposed is lifted.
        is_extra: bool,
    },
    /// Report that this many documents are released, because others reach their server and this daemon does not. A
    /// [`Self::GiveBack`] for each follows.
    GiveUp { server: Server, docs: usize },
    /// Begin to release a document: stop its job, with a checkpoint, then report [`Event::Stopped`]; then it is
    /// released.
    GiveBack { doc: DocId, claim: Claim },
    /// A document is no longer owned: its job is killed, without a checkpoint.
    Lost { doc: DocId, claim: Claim },
    /// The last action of an ending daemon: remove its epoch and claims.
    Depart { epoch: Option<Epoch> },
}
