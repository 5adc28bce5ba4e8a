//! Messages between the owner of this daemon's documents and the actor that acts on them.
//!
//! SUMMARY   [`JoinFleet`] and [`OwnedChanges`] go to ReplicatorDocuments, [`DocStopped`] to the FleetMember; the
//!           scheduler tells it of servers ([`ServerReach`]).

use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};

use crate::otp::pid::Pid;
use crate::replicator::lease::DocLease;
use policy::ownership::{Claim, DocId};
use policy::schedule::Server;

/// Whether this daemon reaches a server that jobs wait for. That it does not is reported again and again.
#[derive(Clone, Debug)]
pub(crate) struct ServerReach {
    pub server: Server,
    pub answers: bool,
}

/// A member begins: whatever was owned before is lost. Answers the life that the member depends on.
#[derive(Message)]
#[rtype(result = "Pid")]
pub(crate) struct JoinFleet {
    /// Is notified of documents that can be released.
    pub member: Recipient<DocStopped>,
}

/// Changes of documents, in this order.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct OwnedChanges(pub Vec<OwnedChange>);

/// The outcome of a document.
#[derive(Clone, Debug)]
pub(crate) enum OwnedChange {
    /// It is owned from now on.
    Claimed {
        doc: DocId,
        /// For how long.
        lease: Arc<DocLease>,
    },
    /// Its job is to stop, with a checkpoint, and [`DocStopped`] to be sent.
    GiveBack {
        doc: DocId,
        claim: Claim,
        /// After this time the job is killed; none: it takes as long as any stop may take.
        within: Option<Duration>,
    },
    /// It is no longer owned: its job is killed.
    Lost { doc: DocId, claim: Claim },
}

/// Nothing of a document's job is running, and its outcome, if it has one, is written.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct DocStopped {
    pub doc: DocId,
    pub claim: Claim,
}
