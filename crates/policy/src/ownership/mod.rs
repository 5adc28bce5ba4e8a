//! Which daemon of a fleet owns which document's job, as a pure state machine.
//!
//! SUMMARY   [`Ownership`] is one daemon's side. It takes an event ([`Event`]) and its time, and returns actions
//!           ([`OwnerAction`]). It has no clock, connection or jobs. Times are readings of a local clock that continues
//!           while the machine sleeps (CLOCK_BOOTTIME); any zero will do.
//! PROMISES  The invariants FL-1 to FL-7 below, checked by the model in `tests` after every step of random histories.
//!           An event about one document takes time logarithmic in the number of documents; an answer takes this time
//!           for each document in it.
//! CALLED    By the actor that connects to the shared database.
//! SOURCE    Leases as in Chubby and etcd: the holder counts from before its request, and stops early.
//!
//! # The content of the database
//!
//! A row for each live daemon (its epoch, its lease's expiry) and a row for each document that requests a
//! replication (its claim: the epoch and the number of the claim). A document is free if it is unclaimed, or if its
//! epoch is missing or has an expired lease, by the database's clock.
//!
//! # One daemon
//!
//! It takes an epoch, a random number unique to this start, and renews its lease every [`RENEW_EVERY`]. It claims free
//! documents up to its share, all documents divided by the live daemons, and releases the surplus: first the job
//! stops, with a checkpoint, then the document is released. Without a renewal it releases everything
//! [`STOP_BEFORE_END`] before its lease expires, at once and without checkpoints, and starts over with another epoch.
//!
//! Requests can fail after they were carried out, and be carried out after they failed, so each has a number. The
//! answer to a renewal lists the documents claimed by the epoch, with the numbers of the claims: unknown ones are
//! released, and owned ones that are missing are lost. A release names the claim that it ends, so that a late one
//! ends no later claim.
//!
//! # Servers that one daemon cannot reach
//!
//! A daemon's renewals report servers that it has not reached for long. From [`SETTLE`] after the first such renewal it
//! *avoids* them, until [`AVOID_FOR`] after the last one; longer, up to [`AVOID_MAX`], if the same report follows soon
//! after that. A document is *closed* to daemons that avoid one of its servers, while another live daemon has
//! reported neither of its servers; otherwise it is open to all, so that a global outage moves nothing. A daemon
//! releases documents closed to it and does not claim them. For the other daemons such a document is *extra*: they
//! own it in addition to their shares, and each takes an equal part of the documents closed to the same daemons. No
//! document is released for being extra, which prevents cycles.
//!
//! # Invariants
//!
//! * **FL-1: at most one unfenced owner.** At most one daemon believes that it may begin a checkpoint of a document. A
//!   failover of the database that loses commits may lose a claim; then there may be two, until the first renewal
//!   after the failover or the expiry of the first owner's lease. Both write documents with `new_edits=false`, which
//!   is idempotent, and the second to write a checkpoint conflicts with the first one's `_rev`.
//! * **FL-2: every runnable document has an owner** within 45 s after the last fault, while one daemon can
//!   reach the database. Within 30 s every daemon has its share, and no more.
//! * **FL-3: no checkpoint begins outside a lease.** One that begins in time and arrives late meets a conflict or
//!   records only committed work.
//! * **FL-4: an outcome lost by a failover is derived again.** No two starts share an epoch.
//! * **FL-5: a checkpoint is abandoned because of the lease only once the lease has expired.** However slow a
//!   replication's servers are, under a renewed lease only the time of its requests bounds a checkpoint.
//! * **FL-6: a daemon releases documents whose servers it cannot reach** within 90 s after the last
//!   change, while another live daemon has not reported the server.
//! * **FL-7: a daemon releases a document because of its servers at most once in [`AVOID_FOR`]**, without other
//!   changes. A report about servers counts as a change until [`SETTLE`] after it.
//!
//! FL-1 and FL-3 require clocks that agree on the duration of [`LEASE`] to within [`STOP_BEFORE_END`], including
//! steps of the database's clock.

mod event;
mod held;
mod owner;
mod reach;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use event::*;
pub use owner::Ownership;

/// Duration of a lease: after this time without a renewal other daemons may take the documents.
pub const LEASE: Duration = Duration::from_secs(30);

/// Interval of renewals.
pub const RENEW_EVERY: Duration = Duration::from_secs(10);

/// How long before its lease expires a daemon that could not renew it releases everything.
pub const STOP_BEFORE_END: Duration = Duration::from_secs(10);

/// Poll interval for free documents without a notification.
pub const CLAIM_EVERY: Duration = Duration::from_secs(3);

/// Minimum time between two polls for free documents, however many notifications arrive.
pub const CLAIM_GAP_MIN: Duration = Duration::from_millis(200);

/// Timeout of a request.
pub const REQUEST_MAX: Duration = Duration::from_secs(5);

/// Delay after a failed request.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Maximum documents that one request claims or releases. Each request makes the database count all documents: a
/// hundred requests for a hundred thousand documents would take longer to count than to claim.
pub const BATCH: usize = 5000;

/// How long after its first report of an unreachable server a daemon begins to avoid it. In the meantime the other
/// daemons report it as well, if none reaches it; the same delay applies once the server is back.
pub const SETTLE: Duration = Duration::from_secs(20);

/// How long a daemon avoids a server after its last report that it is unreachable. Then it retries.
pub const AVOID_FOR: Duration = Duration::from_mins(10);

/// Maximum time that a daemon avoids a server: the time doubles with each failed retry.
pub const AVOID_MAX: Duration = Duration::from_hours(1);

/// Maximum servers that a daemon reports.
pub const SERVERS_MAX: usize = 1000;
