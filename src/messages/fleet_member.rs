//! Messages between the FleetMember, which owns documents for this daemon, and ReplicatorDocuments, which turns them
//! into jobs.
//!
//! SUMMARY   [`JoinFleet`] and [`OwnedChanges`] are sent to ReplicatorDocuments, [`DocStopped`] to the FleetMember;
//!           the scheduler sends it [`ServerReach`].

use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use strum::IntoStaticStr;

use crate::otp::Pid;
use crate::replicator::lease::DocLease;
use policy::ownership::{Claim, DocId};
use policy::schedule::Server;

/// Whether this daemon can reach a server that jobs wait for. An unreachable server is reported repeatedly.
#[derive(Clone, Debug)]
pub(crate) struct ServerReach {
    pub server: Server,
    pub answers: bool,
}

/// A member starts, so earlier ownership is lost. The answer is the pid of the actor that the member depends on.
#[derive(Message)]
#[rtype(result = "Pid")]
pub(crate) struct JoinFleet {
    /// Notified of documents that can be released.
    pub member: Recipient<DocStopped>,
}

/// Changes of documents, in order.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct OwnedChanges(pub Vec<OwnedChange>);

/// A change of a document. Its text is for the log.
#[derive(Clone, Debug, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum OwnedChange {
    /// It is owned from now on.
    Claimed {
        doc: DocId,
        /// Until when it is owned.
        lease: Arc<DocLease>,
    },
    /// Its job has to stop with a checkpoint; then [`DocStopped`] is sent.
    #[strum(serialize = "given_back")]
    GiveBack {
        doc: DocId,
        claim: Claim,
        /// After this time the job is killed.
        within: Duration,
    },
    /// It is no longer owned: its job is killed.
    Lost { doc: DocId, claim: Claim },
}

/// A document's job has ended, and its outcome, if any, is written.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct DocStopped {
    pub doc: DocId,
    pub claim: Claim,
}
