//! couch_proc_manager as a pure state machine: every choice the pool makes, and nothing it does.
//!
//! SUMMARY   [`Pools`] is told what happened ([`Event`]) and when, and answers what to do
//!           ([`Action`]). It holds no clock, no actor and no process.
//! PROMISES  The invariants PM-1 to PM-8 and those after PM-10 of [`crate::policy::invariants`].
//!           Every event costs at most a logarithm of what is in the tables, times the number of
//!           processes and requests that it changes. Reload, `terminate_stale_procs` and shutdown
//!           walk the tables.
//! CALLED    By the ProcManager actor; directly by tests and benches.
//! SOURCE    couch_proc_manager 000 and 001: limits, waiters, find, teach, replenish, reap, flush.
//!
//! # Where it differs from the reference on purpose
//!
//! * **Teaching is a state** of a process, not a call in the manager's turn, so a query server
//!   that fails or hangs while it learns costs one process and one answer.
//! * **The end of every event is a flush**: also a reload, an idle close, a replenishing open
//!   that ends, a changed limit.
//! * **A request has one answer and one deadline** in whatever phase it is, and is dropped as soon
//!   as its client is gone. What was started for it goes on and becomes idle.
//! * **A return names its assignment** ([`Token`]); a second or late one changes nothing.
//! * **An opening ends in one of two ways**: `SpawnOk`, or anything else.
//! * **The oldest waiter may wait for a process of its own database** before idle processes of
//!   others are stopped for it ([`Limits::affinity_wait`]).
//! * **Stopping processes are bounded**: a reap waits when a whole batch is still ending.
//! * **Stale is a matter of order, not of clocks**: everything whose opening was decided before
//!   the reload is stale, and a stale process never becomes idle again.
//!
//! # Who waits for whom
//!
//! Waiters are served in order of arrival. A waiter is overtaken only while the oldest waiter sits
//! in its affinity wait, only by one that takes an idle process which the oldest cannot use. That
//! wait is counted from the arrival of the oldest waiter, which is no later than that of anyone
//! behind it. Hence the bound: **a waiter is overtaken during its first `affinity_wait` at most;
//! from then on the order is strict.** With an `affinity_wait` of zero it is always strict, as in
//! the reference.
//!
//! The wait must be longer than the queue is: a waiter whose wait is over when it becomes the
//! oldest reaps like the reference. With a hundred processes, twenty databases and calls of 10 ms,
//! 2,000 calls start about 2,000 processes without a wait at any length of the queue; with a wait
//! of 50 ms about 120 of them when 20 clients queue, 411 when 400 do, 1,497 when 900 do; with
//! 200 ms no more than 109 in any of these cases (the load of the tests of the affinity wait).
//!
//! Nobody waits for a batch of stopping processes without end: each of them was told to end, and
//! its `ProcExit` flushes.

pub mod db_tag;
mod event;
mod flush;
mod idle;
mod ledger;
mod pools;
mod select;
mod status;
mod tables;
mod turn;
mod waiters;

#[cfg(test)]
mod tests;

pub use event::*;
pub use pools::Pools;
pub use status::{PoolStatus, PoolTotals, ProcPhase, ProcStatus};

pub(in crate::policy) use ledger::{Due, Place, Request};
pub(in crate::policy) use select::choose;
pub(in crate::policy) use tables::{Pool, ProcState};
