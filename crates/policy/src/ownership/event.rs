//! The events of one daemon's ownership, and its actions.
//!
//! SUMMARY   The vocabulary between [`super::Ownership`] and the actor that speaks to the database.

use std::sync::Arc;

use crate::schedule::Server;

/// The id of a document that asks for a replication.
pub type DocId = Arc<str>;

/// One start of one daemon, or what follows the loss of its lease: a random number that no other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The number of a request to the database; never reused by the same daemon process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request(pub u64);

/// The request by which a document was claimed. With the epoch it is in the document's row.
pub type Claim = Request;

/// The number of documents to share, and of daemons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Documents that ask for a replication, owned or not.
    pub wanted: usize,
    /// Daemons whose lease is not over and that are not leaving.
    pub live: usize,
}

/// What servers a daemon reaches, as its renewal tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Those that it has not reached for long.
    pub unreached: Vec<Server>,
    /// Those that it reaches again.
    pub back: Vec<Server>,
}

/// Which daemons may claim a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// To every daemon.
    Shared,
    /// To this daemon, and not to some others.
    Extra,
    /// To others: this daemon avoids the server.
    Avoided(Server),
}

/// The claimed documents, and the numbers to share by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    pub docs: Vec<DocId>,
    /// Documents that are closed to other daemons: [`Standing::Extra`].
    pub extra: Vec<DocId>,
    pub counts: Counts,
}

/// A document that is claimed in the name of an epoch, as a renewal lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDoc {
    pub doc: DocId,
    pub claim: Claim,
    /// Whether it still asks for a replication.
    pub wanted: bool,
    pub standing: Standing,
}

/// Something that happened.
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
    /// [`OwnerAction::Renew`] found no such epoch, or its lease was over.
    NotRenewed { request: Request },
    /// [`OwnerAction::Claim`] was carried out: these documents were free and are claimed.
    Claimed { request: Request, claimed: Claimed },
    /// [`OwnerAction::Release`] was carried out.
    Released { request: Request },
    /// A request failed; whether it was carried out is not known.
    Failed { request: Request },
    /// The database reported that documents were added or released.
    Notified,
    /// Nothing of a document's job still runs, and its outcome, if it has one, is written. Asked for
    /// with [`OwnerAction::GiveBack`] or not.
    Stopped { doc: DocId, claim: Claim },
    /// A server has not been reached for long, reported repeatedly; or is reached again.
    ServerReach { server: Server, answers: bool },
    /// The daemon is to end: everything is given back.
    Stop,
    /// The daemon is drained: everything is given back, and nothing is claimed until [`Event::Undrain`].
    Drain,
    /// The daemon takes its part again, with another epoch.
    Undrain,
}

/// Something to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerAction {
    /// Take an epoch that no start has had, with a lease of [`super::LEASE`]. Another epoch of this daemon, of
    /// which nothing still runs, is removed.
    TakeEpoch {
        request: Request,
        former: Option<Epoch>,
    },
    /// Renew the lease if it is not over, and list what is claimed in its name.
    Renew {
        request: Request,
        epoch: Epoch,
        /// Whether the daemon is leaving, and does not count as alive.
        leaving: bool,
        reach: Reach,
    },
    /// Claim free documents, `most` at most, which may be none, and extra ones up to an equal part: the counts are
    /// answered anyway.
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
        /// Whether others do not reach its servers: what happened to its job there does not count.
        is_extra: bool,
    },
    /// This many documents are given back, because others reach their server and this daemon does not.
    GiveUp { server: Server, docs: usize },
    /// Stop a document's job, with a checkpoint, then report [`Event::Stopped`].
    GiveBack { doc: DocId, claim: Claim },
    /// A document is no longer owned: its job is killed, without a checkpoint.
    Lost { doc: DocId, claim: Claim },
    /// The last action of a daemon that was to end: remove its epoch, and with it what is claimed in its name.
    Depart { epoch: Option<Epoch> },
}
