//! Taking the next connection of a service, when admission says so.
//!
//! SUMMARY   [`Entrance`] looks at the pool after every change of it, tells what changed of the
//!           verdict, and calls accept only while the verdict is to listen.
//!           Where the pool has nothing to spare, a connection that waits gets a [`Ticket`] in its
//!           queue, and is accepted when the ticket's turn has come.
//! PROMISES  Between a look at the pool and the call of accept nothing else runs: pool and service
//!           share one event loop. So there are never more connections let in than can be served;
//!           what comes beyond that waits in the system's queue and is lost to nobody.
//! SOURCE    Postfix master_avail: master_avail_listen, _more and _less.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use slog::{Logger, info};
use tokio::sync::watch;

use super::claims::{Claim, Claims};
use super::ticket::Ticket;
use crate::actors::client::stream::Stream;
use crate::actors::listener::bound::Acceptor;
use crate::logging::RepeatLimiter;
use crate::messages::pool_watch::{PoolState, RETRY_INTERVAL};
use crate::messages::proc_manager::GetProcError;
use crate::metrics::{Closed, Front, ServiceMetrics};
use crate::otp::clock::Clock;
use crate::warn_repeating;
use policy::admission::{LastVerdict, Verdict, listening};

/// Waits for the turn of a ticket. Safe to cancel.
async fn turn_of(ticket: &mut Option<Ticket>) -> Result<(), GetProcError> {
    match ticket {
        Some(ticket) => ticket.turn().await,
        None => std::future::pending().await,
    }
}

/// Returns whether a connection waits on in the system's queue over this error; others are told.
const fn may_pass(error: &GetProcError) -> bool {
    !matches!(
        error,
        GetProcError::SpawnFailed { .. }
            | GetProcError::TeachFailed { .. }
            | GetProcError::Timeout { .. }
    )
}

/// The entrance of one service. Its drop closes it.
pub(crate) struct Entrance {
    /// What is told, and where.
    told: RefCell<Told>,
    /// Those who were let in and have no process yet.
    pub claims: Claims,
    /// Whether processes are started with stress on now.
    stress: Cell<bool>,
    metrics: Arc<ServiceMetrics>,
    /// Where it is shown whether connections are accepted.
    front: Arc<Front>,
}

struct Told {
    last_verdict: LastVerdict,
    warning: RepeatLimiter,
    /// Whether it is worth a warning that the limit is reached.
    warns: bool,
    clock: Clock,
    log: Logger,
}

/// What came of waiting.
pub enum Next {
    /// A connection, or why there is none, with the ticket that was taken for it.
    Accepted(io::Result<Stream>, Option<Ticket>),
    /// The pool, or its manager, is gone.
    PoolGone,
}

impl Entrance {
    /// Makes the entrance of a service, closed. A service for others than this user or machine
    /// `warns` when its limit is reached.
    pub fn new(
        metrics: Arc<ServiceMetrics>,
        front: Arc<Front>,
        warns: bool,
        log: Logger,
    ) -> Rc<Self> {
        let told = Told {
            last_verdict: LastVerdict::default(),
            warning: RepeatLimiter::default(),
            warns,
            clock: Clock::new(),
            log,
        };
        Rc::new(Self {
            told: RefCell::new(told),
            claims: Claims::default(),
            stress: Cell::new(false),
            metrics,
            front,
        })
    }

    /// Says whether it is worth a warning that the limit is reached.
    pub(crate) fn set_warns(&self, warns: bool) {
        self.told.borrow_mut().warns = warns;
    }

    /// Returns whether processes are started with stress on now.
    pub fn stress(&self) -> bool {
        self.stress.get()
    }

    /// Waits until a connection may be let in and one is there. Safe to cancel.
    pub(super) async fn next(
        self: Rc<Self>,
        acceptor: Rc<Acceptor>,
        mut pool: watch::Receiver<PoolState>,
        take_ticket: impl Fn(Claim) -> Ticket,
    ) -> Next {
        let mut ticket: Option<Ticket> = None;
        // Whether a ticket was refused, and another one would be.
        let mut refused = false;
        loop {
            let state = *pool.borrow_and_update();
            let open = self.look(&state);
            // Nobody waits in line for processes that cannot come.
            let has_line = !state.pool.throttled || state.pool.total > 0;
            let may_queue = !open && has_line && ticket.is_none() && !refused;
            // In this order: a change that came with the connection counts first.
            tokio::select! {
                biased;
                changed = pool.changed() => match changed {
                    Ok(()) => refused = false,
                    Err(_) => {
                        self.close(Closed::NoPool);
                        return Next::PoolGone;
                    }
                },
                () = self.claims.fewer() => {}
                turn = turn_of(&mut ticket) => {
                    refused = turn.as_ref().is_err_and(may_pass);
                    // A connection that has gone meanwhile, or has to wait on, has no use for it.
                    let ticket = ticket.take().filter(|_| !refused);
                    if ticket.is_some() && let Some(accepted) = acceptor.accept_now() {
                        return Next::Accepted(accepted, ticket);
                    }
                }
                accepted = acceptor.accept(), if open => {
                    return Next::Accepted(accepted, ticket);
                }
                () = acceptor.pending(), if may_queue => {
                    ticket = Some(take_ticket(self.claims.claim()));
                }
                () = actix_rt::time::sleep(RETRY_INTERVAL), if refused => refused = false,
            }
        }
    }

    /// Decides anew, and tells what has changed.
    fn look(&self, state: &PoolState) -> bool {
        self.stress.set(state.stress);
        let told = &mut *self.told.borrow_mut();
        let was_open = told.last_verdict.is_listening();
        // What is told is about the pool: who was let in and is about to get a process may be counted
        // twice for a moment, which only keeps others waiting for as long.
        if let Some(verdict) = told.last_verdict.changed(&state.pool) {
            self.count(was_open, told.last_verdict.is_listening());
            self.front.set_closed(match verdict {
                Verdict::AtLimit => Some(Closed::AtLimit),
                Verdict::Throttled => Some(Closed::Throttled),
                Verdict::Listen => None,
            });
            match verdict {
                Verdict::AtLimit => {
                    self.metrics.limit_reached.one();
                    told.limit_reached(state.pool.max);
                }
                Verdict::Throttled => info!(told.log, "service does not accept while throttled"),
                Verdict::Listen => {}
            }
        }
        listening(&state.with_claims(self.claims.count()))
    }

    /// Lets nobody in until the next look.
    pub fn close(&self, why: Closed) {
        self.front.set_closed(Some(why));
        let last_verdict = std::mem::take(&mut self.told.borrow_mut().last_verdict);
        self.count(last_verdict.is_listening(), false);
    }

    fn count(&self, was_open: bool, is_open: bool) {
        match (was_open, is_open) {
            (false, true) => self.metrics.listening.up(),
            (true, false) => self.metrics.listening.down(),
            _ => {}
        }
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.close(Closed::Stopping);
    }
}

impl Told {
    fn limit_reached(&mut self, max: Option<u32>) {
        if self.warns {
            let now = self.clock.now();
            warn_repeating!(self.log, self.warning, now, "service has reached its process limit";
                "limit" => max,
                "effect" => "new clients may have to wait to be accepted",
                "remedy" => "raise max of the service's pool, or shorten the time for which a client \
                             holds a process; see docs/services.md");
        }
    }
}
