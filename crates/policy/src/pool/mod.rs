//! couch_proc_manager as a pure state machine: every decision of the pool, without side effects.
//!
//! SUMMARY   [`Pools`] takes an event ([`Event`]) and its time, and returns actions ([`PoolAction`]). It has no
//!           clock, actor or process. A language's own pool and a named pool are the same tables with different
//!           [`PoolSettings`].
//! PROMISES  The invariants PM-1 to PM-8 and those after PM-10 of [`crate::invariants`]. Every event costs at most
//!           the logarithm of the tables' size for each process and request that it changes. Reload
//!           and shutdown scan the tables.
//! CALLED    By the ProcManager actor; directly by tests and benches.
//! SOURCE    couch_proc_manager 000 and 001: limits, waiters, find, teach, replenish, reap, flush.
//!           pidq and pooler: named pools, groups, sizes, recycling. Postfix master: throttle, stress.
//!
//! # Deliberate differences from the reference
//!
//! * **Teaching is a state** of a process, not a call in the manager's turn, so a query server that fails or hangs
//!   while it learns costs one process and one answer.
//! * **Every event ends with a flush**, including a reload, an idle close, the end of a background opening, and a
//!   changed limit.
//! * **A request has one answer and one deadline** in every phase, and is dropped as soon as its client is gone. A
//!   process started for it becomes idle.
//! * **A return names its loan** ([`Token`]); a second or late one has no effect.
//! * **Any end of an opening but `SpawnOk`** is a failure.
//! * **The oldest waiter may wait for a process of its own database** before idle processes of others are stopped for
//!   it ([`Limits::affinity_wait`]).
//! * **Stopping processes are bounded**: a reap waits while a whole batch is still ending.
//! * **A process that can forget is not reaped**: it forgets its database ([`PoolAction::Forget`]) and serves the
//!   waiter. From that decision on the process has the waiter's tag and no documents, but it is taught or lent only
//!   once it has forgotten. If it fails to forget, the waiter returns to its place in the queue.
//! * **Order decides what is stale, not a clock**: a process is stale if its opening was decided before the reload. A
//!   stale process never becomes idle again.
//! # Waiters
//!
//! Waiters are served in order of arrival, or in the order of lanes and tenants (`fairness.rs`); below, the oldest
//! waiter is the first in this order. Waiters of a tenant at its bound are skipped. Otherwise a waiter is overtaken
//! only while the pool is throttled or during the affinity wait of the oldest waiter, and only by one that takes an
//! idle process which the oldest cannot use.
//!
//! The affinity wait lasts while a process of the oldest waiter's database is in use, but at most `affinity_wait` from
//! the waiter's arrival or from the last reap for such a waiter, whichever is later. Then one idle process is reaped
//! for it. So at most one process is exchanged each `affinity_wait`, even under a load where every wait is longer. (If
//! the wait were counted only from the arrival, every call would exchange a process.) Hence the bound: **if any process
//! is idle, the oldest waiter is served at the latest an `affinity_wait` after it became the oldest**, and a waiter
//! with n before it is overtaken for at most n + 1 times `affinity_wait`. If `affinity_wait` is zero the order is
//! always strict, as in the reference.
//!
//! # Where to look
//!
//! | for | file |
//! |---|---|
//! | events and actions | `event.rs`, `action.rs`, `id.rs`, `settings.rs`, `status.rs` |
//! | one event on one pool | `turn.rs` (processes), `returning.rs`, `withdraw.rs` (requests); at its end `flush.rs` (waiters), then `upkeep.rs` (sizes, age, culling) |
//! | several pools at a time | `groups.rs`, `route.rs` (which pool), `remove.rs` |
//! | the ceiling over all pools | `ceiling.rs` |
//! | the bounds of a tenant over all pools | `tenants.rs`, `shares.rs` (processor time) |
//! | failing starts, stress | `trouble.rs`, with [`crate::admission`] |
//! | how pools follow the configuration | `follow.rs` |
//! | what new settings change | `plan.rs` (in advance), `resize.rs` |
//! | whose turn it is | `waiters.rs`, `fairness.rs`, `uses.rs` |
//! | which process serves whom | `select.rs`, `isolates.rs` (several tenants in one) |
//!
//! # Where processes are not shared
//!
//! With [`Reuse::Database`], or if processes can forget ([`PoolSettings::can_forget`]), every request wants a process
//! of its tenant: a database, a user, or the client itself. It gets a process tagged for that tenant, or an untagged
//! one, and every loan tags the process. So an untagged process never ran a function, and a tagged one never leaves its
//! tenant, unless it forgets. Its slot may serve another tenant: an idle process is reaped to free the slot, or forgets
//! its tenant if it can. An idle process without design documents forgets before another process is opened. A client's
//! process ends with the client, or forgets it. A change of `reuse` replaces the processes, because their past is
//! meaningless under the other rule.
//!
//! A process with isolates ([`PoolSettings::isolates_max`], `isolates.rs`) has the tags of several tenants, one
//! selected at a time. It counts as untagged while it can hold another isolate; when full, its least recently used
//! isolate is evicted first.
//! # Named pools
//!
//! * **A waiter of a group is not bound to the queue that it joined**: the first pool that can serve it takes it
//!   over. So a new pool serves the waiters of its group at once, and a removed pool leaves its waiters to the
//!   others.
//! * **`init_size` and `min_free` always hold**, not only after a loan: also after a death, a reload, and a throttle.
//! * **Stopping processes beyond one reap batch keep their slots** ([`PoolKind::Named`]), so that a pool never has
//!   more children than `max` and one batch. Optional stops (culling, age, stress) wait for their batch; necessary
//!   ones do not.
//! * **While a pool is throttled**, a request waits if an existing process may serve it, even a lent one, or if the
//!   next try is before its deadline. Others move to another pool of their group, or are refused at once.
//! * **A start ends with the answer to the first `reset`**, which the opener sends. Every earlier failure is a failed
//!   start, and so is the end of a process soon after its start and before any work. A later failure is not a failed
//!   start, so no client can throttle a pool by what it sends.
//! * **The throttle needs evidence**: [`FAILURES_MIN`](crate::admission::FAILURES_MIN) consecutive failures. A signal
//!   from outside is the command's failure only after [`KILLS_MIN`](crate::admission::KILLS_MIN) consecutive ones.

mod action;
mod ceiling;
pub mod db_tag;
mod event;
mod fairness;
mod flush;
mod follow;
mod groups;
mod id;
mod idle;
mod isolates;
mod ledger;
mod life;
mod plan;
mod pools;
mod random;
mod ranking;
mod remove;
mod resize;
mod returning;
mod route;
mod select;
mod settings;
mod shares;
mod status;
mod tables;
mod tenants;
mod trouble;
mod turn;
mod upkeep;
mod uses;
mod waiters;
mod withdraw;

#[cfg(test)]
mod tests;

pub use action::*;
pub use event::*;
pub use follow::*;
pub use id::*;
pub use plan::Change;
pub use pools::Pools;
pub use settings::*;
pub use status::*;
pub use tenants::*;

pub(crate) use ceiling::EXCHANGE_AFTER;
pub(crate) use ledger::{Due, Ledger, RequestPlace, RequestRow, Roaming};
pub(crate) use shares::{ACCOUNTS_MAX, WINDOW};
pub(crate) use tables::{Pool, Proc, ProcState};
use turn::Turn;
