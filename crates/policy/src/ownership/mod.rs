//! Which daemon of a fleet owns which document's job, as a pure state machine.
//!
//! SUMMARY   [`Ownership`] is one daemon's side of it. It takes what happened ([`Event`]) and when, and returns
//!           what to do ([`OwnerAction`]). It holds no clock, no connection and no job. Times are of a
//!           local clock that goes on while the machine sleeps (CLOCK_BOOTTIME), since whenever.
//! PROMISES  The invariants FL-1 to FL-5, below, which the model in `tests` judges after every step of random
//!           histories. An event about one document costs a logarithm of the number of documents; an
//!           answer costs that for each document in it.
//! CALLED    By the actor that speaks to the shared database.
//! SOURCE    Leases as in Chubby and etcd: counted from before the request, ended early by the holder.
//!
//! # What the database holds
//!
//! A row for each daemon that is alive (its epoch, when its lease ends) and a row for each document that asks for
//! a replication (who has claimed it: the epoch and the number of the claim). A document is free when nobody has
//! claimed it, or the epoch that has is not there or its lease is over, by the database's clock.
//!
//! # What one daemon does
//!
//! It takes an epoch, a random number that no other start has, and renews its lease every [`RENEW_EVERY`]. It claims
//! free documents up to its share, all documents divided by the daemons that are alive, and gives back
//! what it has beyond that: first the job stops, with a checkpoint, then the document is released. Without a
//! renewal it gives everything up [`STOP_BEFORE_END`] before the end of its lease, at once and without
//! checkpoints, and begins with another epoch.
//!
//! Requests can fail after they were carried out, and be carried out after they failed. So each has a number. A
//! renewal is answered with the documents that are claimed in the name of the epoch, and under which numbers:
//! what the daemon does not know of is released, what it had and is not listed is lost. A release names
//! the claim that it ends, so that a late one ends no later claim.
//!
//! # Servers that one daemon cannot reach
//!
//! A daemon tells the database with its renewals which servers it has not reached for long. From [`SETTLE`] after the
//! first such renewal it *avoids* them, until [`AVOID_FOR`] after the last one; longer, up to [`AVOID_MAX`], if it tells
//! the same soon after that. A document is *closed* to those that avoid one of its servers, while another daemon is alive that
//! has reported nothing of them; else it is open to all, so that an outage for everybody moves nothing. What is closed
//! to a daemon it gives back and does not claim. For the others such a document is *extra*: they own it beyond their
//! shares, and each takes an equal part of those that are closed to the same daemons. Nothing is given back for being extra,
//! so that nothing goes in circles.
//!
//! # Invariants
//!
//! * **FL-1: at most one unfenced owner.** Of a document at most one daemon believes that it may begin a checkpoint. A
//!   failover of the database that loses commits may lose a claim; then there may be two, until the first renewal
//!   after it or the end of the first owner's lease. Both write documents with `new_edits=false`, which
//!   is the same twice, and the second to write a checkpoint meets the first one's `_rev`.
//! * **FL-2: every runnable document has an owner** within [`OWNER_WITHIN`] after the last fault, while one daemon can
//!   reach the database. Within [`SHARE_WITHIN`] every daemon has its share, and no more.
//! * **FL-3: no checkpoint is begun outside a lease.** One that was begun in time and lands late meets a conflict or
//!   records only what is committed.
//! * **FL-4: an outcome that a failover lost is derived again.** No two starts have one epoch.
//! * **FL-5: a checkpoint is given up for the lease only when the lease is over.** However slow the servers of a
//!   replication are, what bounds a checkpoint under a lease that is renewed is the time of its requests.
//! * **FL-6: a daemon gives up what it does not reach** within [`REACHED_WITHIN`] after the last change, while another
//!   is alive that has reported nothing of the server.
//! * **FL-7: a daemon gives a document up for its servers once in [`AVOID_FOR`]** at most, while nothing else changes. A
//!   report about servers counts as a change until [`SETTLE`] after it.
//!
//! FL-1 and FL-3 need clocks that agree on how long [`LEASE`] is, to less than [`STOP_BEFORE_END`], steps of the
//! database's clock included.

mod event;
mod held;
mod owner;
mod reach;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use event::{
    Claim, Claimed, Counts, DocId, Epoch, Event, ListedDoc, OwnerAction, Reach, Request, Standing,
};
pub use owner::Ownership;

/// How long a lease is: after so long without a renewal other daemons may have the documents.
pub const LEASE: Duration = Duration::from_secs(30);

/// How often a lease is renewed.
pub const RENEW_EVERY: Duration = Duration::from_secs(10);

/// So long before its lease ends, a daemon that could not renew it gives up what it has.
pub const STOP_BEFORE_END: Duration = Duration::from_secs(10);

/// How often free documents are polled for without a notification.
pub const CLAIM_EVERY: Duration = Duration::from_secs(3);

/// The shortest time between two polls for free documents, however many notifications arrive.
pub const CLAIM_GAP_MIN: Duration = Duration::from_millis(200);

/// How long a request may take: one without an answer has failed then.
pub const REQUEST_MAX: Duration = Duration::from_secs(5);

/// How long to wait after a request failed.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The most documents that one request claims or releases. The database counts all documents for each claim: a hundred
/// claims of a hundred thousand documents would cost more in counts than in claims.
pub const BATCH: usize = 5000;

/// FL-2: how long a document is without an owner at most.
pub const OWNER_WITHIN: Duration = Duration::from_secs(45);

/// How long after its first report of an unreached server a daemon avoids it. Until then the others have reported the
/// same, if nobody reaches it; and for so long after it is back.
pub const SETTLE: Duration = Duration::from_secs(20);

/// How long a daemon avoids a server after its last report that it is unreached. It may reach it then: it tries.
pub const AVOID_FOR: Duration = Duration::from_mins(10);

/// The same where each try so far has failed: it is doubled each time, up to this.
pub const AVOID_MAX: Duration = Duration::from_hours(1);

/// The most servers that a daemon reports.
pub const SERVERS_MAX: usize = 1000;

/// FL-6: how long a document stays with a daemon that does not reach its server, where another may.
pub const REACHED_WITHIN: Duration = Duration::from_secs(90);

/// FL-2: how long it takes until daemons that come and go have changed the shares.
pub const SHARE_WITHIN: Duration = Duration::from_secs(30);
