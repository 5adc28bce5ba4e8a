//! Accepts the next connection of a service while its pool admits one.
//!
//! SUMMARY   [`Entrance`] watches the pool once it exists, decides anew after every change, reports a changed
//!           verdict, and calls accept only while the verdict is `Listen`. If the pool has no spare process,
//!           a pending connection gets a [`QueuePlace`], and is accepted when its turn comes.
//! PROMISES  Nothing else runs between the decision and the call of accept: pool and service share one
//!           event loop. So no more connections are accepted than can be served; the others wait in the
//!           system's backlog, and none is lost.
//! SOURCE    Postfix master_avail: master_avail_listen, _more and _less.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use slog::{Logger, info};
use tokio::sync::watch;

use super::claims::Claims;
use super::queue_place::QueuePlace;
use crate::actors::client::ClientContext;
use crate::actors::client::stream::Stream;
use crate::actors::listener::bound::{AcceptPause, Acceptor};
use crate::config::ServiceConfig;
use crate::logging::RepeatLimiter;
use crate::messages::pools::{PoolState, RETRY_INTERVAL, WatchPool};
use crate::messages::proc_manager::{GetProcError, TakeFrom, Want};
use crate::metrics::{Closed, ServiceState};
use crate::warn_repeating;
use policy::admission::{Verdict, listening, verdict};

/// Waits for the turn of a place; without one, forever. Cancel-safe.
async fn turn_of(place: &mut Option<QueuePlace>) -> Result<(), GetProcError> {
    match place {
        Some(place) => place.turn().await,
        None => std::future::pending().await,
    }
}

/// Returns whether a connection stays in the backlog after this error. Other errors are sent to the client.
const fn may_pass(error: &GetProcError) -> bool {
    !matches!(
        error,
        GetProcError::SpawnFailed { .. }
            | GetProcError::TeachFailed { .. }
            | GetProcError::Timeout { .. }
    )
}

/// The entrance of one service.
pub(crate) struct Entrance {
    services: Rc<ClientContext>,
    pool_name: RefCell<Arc<str>>,
    /// The pool, once it is watched; [`Self::next`] takes it while it waits.
    pool: RefCell<Option<watch::Receiver<PoolState>>>,
    told: RefCell<ServiceWarnings>,
    pause: RefCell<AcceptPause>,
    /// Accepted connections that have no process yet.
    pub claims: Claims,
    /// Whether new processes are started with stress on.
    pub stress: Cell<bool>,
    /// Shows whether connections are accepted, or why not.
    state: Arc<ServiceState>,
}

struct ServiceWarnings {
    last_verdict: Option<Verdict>,
    warning: RepeatLimiter,
    no_pool: RepeatLimiter,
    /// Whether reaching the limit is worth a warning.
    warns: bool,
    log: Logger,
}

fn pool_name(settings: &ServiceConfig) -> &str {
    settings.pool_name().unwrap_or_default()
}

impl Entrance {
    /// Creates a closed entrance.
    pub fn new(
        services: Rc<ClientContext>,
        settings: &ServiceConfig,
        state: Arc<ServiceState>,
        log: Logger,
    ) -> Rc<Self> {
        let pause = RefCell::new(AcceptPause::new(log.clone()));
        let told = ServiceWarnings {
            last_verdict: None,
            warning: RepeatLimiter::default(),
            no_pool: RepeatLimiter::default(),
            warns: !settings.is_local_only(),
            log,
        };
        Rc::new(Self {
            services,
            pool_name: RefCell::new(pool_name(settings).into()),
            pool: RefCell::default(),
            told: RefCell::new(told),
            pause,
            claims: Claims::default(),
            stress: Cell::new(false),
            state,
        })
    }

    /// Applies new settings. Returns whether they name another pool: then call [`Self::next`] again.
    pub fn reconfigure(&self, settings: &ServiceConfig) -> bool {
        // Only a service that other users or machines can reach is worth a warning.
        self.told.borrow_mut().warns = !settings.is_local_only();
        let name = pool_name(settings);
        let moved = **self.pool_name.borrow() != *name;
        if moved {
            self.pool_name.replace(name.into());
            self.pool.take();
            self.close(Closed::NoPool);
        }
        moved
    }

    /// Returns the requirements of a connection.
    pub fn want(&self) -> Want {
        Want::any_from(TakeFrom::Pool(Arc::clone(&self.pool_name.borrow())))
    }

    /// Accepts the next connection once the pool admits one. Returns it with its place, if it queued for one.
    /// Cancel-safe.
    pub(super) async fn next(
        self: Rc<Self>,
        acceptor: Rc<Acceptor>,
    ) -> (Stream, Option<QueuePlace>) {
        if self.services.drain.is_on() {
            self.close(Closed::Draining);
            self.services.drain.is_over().await;
        }
        loop {
            let mut pool = match self.pool.take() {
                Some(pool) => pool,
                None => self.watch_pool().await,
            };
            if let Some(next) = self.next_for(&acceptor, &mut pool).await {
                self.pool.replace(Some(pool));
                return next;
            }
            self.close(Closed::NoPool);
        }
    }

    /// Waits until the pool exists.
    async fn watch_pool(&self) -> watch::Receiver<PoolState> {
        loop {
            let pool = self.pool_name.borrow().to_string();
            let question = WatchPool { pool: pool.clone() };
            if let Ok(Some(state)) = self.services.manager.call(question).await {
                return state;
            }
            self.told.borrow_mut().no_pool(&pool);
            actix_rt::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Waits for the next connection; `None`: the pool, or its manager, is gone.
    async fn next_for(
        &self,
        acceptor: &Acceptor,
        pool: &mut watch::Receiver<PoolState>,
    ) -> Option<(Stream, Option<QueuePlace>)> {
        let mut place: Option<QueuePlace> = None;
        // Whether a place was refused: another one would be refused as well.
        let mut refused = false;
        loop {
            let state = *pool.borrow_and_update();
            let open = self.look(&state);
            // No queue for processes that cannot be started.
            let has_line = !state.pool.throttled || state.pool.total > 0;
            let may_queue = !open && has_line && place.is_none() && !refused;
            // In this order: a pool change that arrived with a connection is applied first.
            let accepted = tokio::select! {
                biased;
                changed = pool.changed() => {
                    changed.ok()?;
                    refused = false;
                    None
                }
                () = self.claims.fewer() => None,
                turn = turn_of(&mut place) => {
                    refused = turn.as_ref().is_err_and(may_pass);
                    let accepted = (!refused).then(|| acceptor.accept_now()).flatten();
                    // Without a connection the place is dropped.
                    place = place.take().filter(|_| accepted.is_some());
                    accepted
                }
                accepted = acceptor.accept(), if open => Some(accepted),
                () = acceptor.pending(), if may_queue => {
                    let manager = self.services.manager.clone();
                    place = Some(QueuePlace::take(manager, self.want(), self.claims.claim()));
                    None
                }
                () = actix_rt::time::sleep(RETRY_INTERVAL), if refused => {
                    refused = false;
                    None
                }
            };
            match accepted {
                Some(Ok(stream)) => return Some((stream, place)),
                Some(Err(error)) => {
                    place = None;
                    self.close(Closed::AcceptFailed);
                    let pause = self.pause.borrow_mut().after(&error);
                    pause.await;
                }
                None => {}
            }
        }
    }

    /// Decides whether to listen, and reports a changed verdict.
    fn look(&self, pool: &PoolState) -> bool {
        self.stress.set(pool.stress);
        let told = &mut *self.told.borrow_mut();
        // The report ignores claims, since a connection that has just got its process may still have its claim
        // and count twice. The decision below is only delayed by this.
        let verdict = verdict(&pool.pool);
        if told.last_verdict.replace(verdict) != Some(verdict) {
            self.state.set_closed(match verdict {
                Verdict::AtLimit => {
                    self.state.metrics().limit_reached.one();
                    told.limit_reached(pool.pool.max);
                    Some(Closed::AtLimit)
                }
                Verdict::Throttled => {
                    info!(told.log, "service does not accept while throttled");
                    Some(Closed::Throttled)
                }
                Verdict::Listen => None,
            });
        }
        listening(&pool.with_claims(self.claims.count()))
    }

    /// Accepts nothing until the next decision.
    pub fn close(&self, why: Closed) {
        self.state.set_closed(Some(why));
        self.told.borrow_mut().last_verdict = None;
    }
}

impl ServiceWarnings {
    fn no_pool(&mut self, pool: &str) {
        warn_repeating!(self.log, self.no_pool,
            "the pool of a service does not exist"; "pool" => pool,
            "effect" => "its connections wait to be accepted",
            "remedy" => "add the pool, or name another one in the service's section");
    }

    fn limit_reached(&mut self, max: u32) {
        if self.warns {
            warn_repeating!(self.log, self.warning, "service has reached its process limit";
                "limit" => max,
                "effect" => "new clients may have to wait to be accepted",
                "remedy" => "raise max of the service's pool, or shorten the time for which a client \
                             holds a process; see docs/services.md");
        }
    }
}
