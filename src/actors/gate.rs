//! Gate: the way to the pool's arbiter for callers on other threads.
//!
//! SUMMARY   Takes a piece of work, runs it where the pool lives, and sends its result back: a call
//!           crosses once there and once back, however often the work speaks with the pool.
//! PROMISES  A caller that is dropped takes its work with it, and what the work held goes back. Work
//!           that panics costs its caller an error and nobody else anything.
//! CALLED    By HTTP and by filters of replications, whose threads are their own.
//! LIMITS    At most [`WORK_MAX`] pieces at a time; who comes then is refused, not kept waiting.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use slog::{Logger, debug, o};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::actors::config_listener::ConfigListener;
use crate::actors::proc_manager::ProcManager;
use crate::auth::rights::CallerLimits;
use crate::functions::QueryServers;
use crate::functions::caller::Caller;
use crate::otp::lifeline::{ExitReason, Lifeline, Pulse};
use crate::otp::named::Named;
use crate::otp::supervisor::Stop;
use crate::query_server::reduce::OverflowLog;
use crate::query_server::status::Holder;

/// Pieces of work at a time.
pub const WORK_MAX: usize = 4096;

/// What work finds on the other side.
pub struct Inside {
    /// The pools.
    pub manager: Named<ProcManager>,
    /// The configuration.
    pub config: Named<ConfigListener>,
    /// Where built-in sums that are too long are told.
    pub sums: Rc<OverflowLog>,
}

impl Inside {
    /// Returns a client of the pool. What it takes comes back when it is dropped.
    pub fn query_servers(&self) -> QueryServers {
        self.query_servers_for(None, None)
    }

    /// Returns a client of the pool that is held to some pools, or to none.
    pub fn query_servers_for(
        &self,
        limits: Option<CallerLimits>,
        who: Option<Arc<Holder>>,
    ) -> QueryServers {
        let caller = Caller::new(self.manager.clone());
        caller.hold_to(limits);
        caller.speak_for(who);
        QueryServers::new(caller).telling(Some(Rc::clone(&self.sums)))
    }
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// A piece of work. It answers by itself, and ends when nobody waits for the answer.
#[derive(Message)]
#[rtype(result = "()")]
struct Work(Box<dyn FnOnce(Rc<Inside>) -> Running + Send>);

/// Runs work on its arbiter.
pub struct Gate {
    inside: Rc<Inside>,
    log: Logger,
    lifeline: Lifeline,
}

impl Gate {
    /// Makes a gate.
    pub fn new(inside: Rc<Inside>, log: &Logger) -> Self {
        Self {
            inside,
            log: log.new(o!("component" => "gate")),
            lifeline: Lifeline::new(),
        }
    }

    /// Returns the name by which its life can be watched.
    pub fn pulse(&self) -> Pulse {
        self.lifeline.pulse()
    }
}

impl Actor for Gate {
    type Context = Context<Self>;
}

impl Handler<Work> for Gate {
    type Result = ();

    fn handle(&mut self, work: Work, _: &mut Self::Context) {
        // Ends with its caller at the latest, whose every wait has a bound. A task of its own: a
        // panic in it is not the gate's.
        actix_rt::spawn(work.0(Rc::clone(&self.inside)));
    }
}

/// The callers have ended before.
impl Handler<Stop> for Gate {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        debug!(self.log, "gate closed");
        self.lifeline.ending(ExitReason::Shutdown);
        ctx.stop();
    }
}

/// There is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// More work is in hand than may be.
    #[error("{WORK_MAX} requests are in hand, which is as many as may be: try again later")]
    Full,
    /// The work was lost: it panicked, or the service ends.
    #[error("the request was lost inside the service; its log may tell why")]
    Lost,
}

/// The gate as callers on any thread know it. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    gate: Named<Gate>,
    room: Arc<Semaphore>,
}

impl Gateway {
    /// Makes the callers' side of a gate.
    pub fn new(gate: Named<Gate>) -> Self {
        Self {
            gate,
            room: Arc::new(Semaphore::new(WORK_MAX)),
        }
    }

    /// Runs work on the pool's arbiter and returns its result. The work is sent off at once; to drop
    /// the returned future is to end it.
    ///
    /// # Errors
    /// See [`GateError`]; worth another try.
    pub fn run<T, F, W>(&self, work: W) -> impl Future<Output = Result<T, GateError>> + use<T, F, W>
    where
        W: FnOnce(Rc<Inside>) -> F + Send + 'static,
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let permit = Arc::clone(&self.room).try_acquire_owned();
        let sent = permit
            .map_err(|_| GateError::Full)
            .map(|permit| self.send(work, permit));
        async move { sent?.await.map_err(|_| GateError::Lost) }
    }

    fn send<T, F>(
        &self,
        work: impl FnOnce(Rc<Inside>) -> F + Send + 'static,
        permit: OwnedSemaphorePermit,
    ) -> oneshot::Receiver<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (mut reply, result) = oneshot::channel();
        let run = move |inside: Rc<Inside>| -> Running {
            Box::pin(async move {
                let _permit = permit;
                tokio::select! {
                    biased;
                    value = work(inside) => drop(reply.send(value)),
                    () = reply.closed() => {}
                }
            })
        };
        // Ignores the mailbox's bound: the permit is the bound. A gate that is gone drops the work,
        // which its caller sees.
        self.gate.address().do_send(Work(Box::new(run)));
        result
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::testkit::{TestPool, eventually, within};

    /// A gate of a pool without any language.
    fn gateway() -> (TestPool, Gateway) {
        let pool = TestPool::builder().start();
        let log = Logger::root(slog::Discard, o!());
        let manager = Named::new(pool.manager());
        let active = Rc::new(crate::actors::config_listener::ActiveConfig {
            service_sockets: Default::default(),
            sources: std::cell::RefCell::new(None),
            manager_settings: Box::new(|_| unreachable!("the configuration never changes")),
            current: tokio::sync::watch::channel(Arc::new(crate::config::Config::default())).0,
            set_log_level: None,
        });
        let config = ConfigListener::new(active, manager.clone(), &log).start();
        let config = Named::new(config);
        let inside = Inside {
            manager,
            config,
            sums: Rc::new(OverflowLog::new(log.clone())),
        };
        let gate = Gate::new(Rc::new(inside), &log).start();
        (pool, Gateway::new(Named::new(gate)))
    }

    /// Runs a future on a thread of its own.
    fn elsewhere<T: Send + 'static>(
        future: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        std::thread::spawn(move || {
            let value = actix_rt::Runtime::new().unwrap().block_on(future);
            drop(sender.send(value));
        });
        receiver
    }

    #[actix_rt::test]
    async fn work_runs_where_the_pool_lives_and_its_result_comes_back() {
        thread_local!(static HERE: Cell<bool> = const { Cell::new(false) });
        HERE.set(true);
        let (pool, gateway) = gateway();
        let result = elsewhere(async move {
            let here = gateway.run(|inside| async move {
                let address = inside.manager.address();
                let count = address.send(crate::messages::proc_manager::GetProcCount);
                (HERE.get(), count.await.unwrap())
            });
            (HERE.get(), here.await)
        });
        let result = within("the result", result).await.unwrap();
        assert_eq!(result, (false, Ok((true, 0))));
        pool.assert_quiet().await;
    }

    /// Tells when it is dropped.
    struct Dropped(Arc<AtomicBool>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[actix_rt::test]
    async fn a_caller_that_is_dropped_takes_its_work_with_it() {
        let (pool, gateway) = gateway();
        let ended = Arc::new(AtomicBool::new(false));
        let held = Dropped(Arc::clone(&ended));
        let (begun, begins) = oneshot::channel();
        let call = gateway.run(|_| async move {
            let _held = held;
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        within("the beginning", begins).await.unwrap();
        drop(call);
        eventually("the end of the work", async || ended.load(Ordering::SeqCst)).await;
        assert_eq!(gateway.room.available_permits(), WORK_MAX);
        pool.assert_quiet().await;
    }

    #[actix_rt::test]
    async fn work_that_panics_costs_its_caller_an_error_and_nobody_else_anything() {
        let (pool, gateway) = gateway();
        let lost = gateway.run(|_| async {
            let panics = true;
            assert!(!panics, "work that panics (meant to happen)");
        });
        assert_eq!(lost.await, Err(GateError::Lost));
        assert_eq!(gateway.run(|_| async { 7 }).await, Ok(7));
        pool.assert_quiet().await;
    }

    #[actix_rt::test]
    async fn more_work_than_may_be_is_refused() {
        let (pool, gateway) = gateway();
        let all: Vec<_> = (0..WORK_MAX)
            .map(|_| gateway.run(|_| std::future::pending::<()>()))
            .collect();
        assert_eq!(gateway.run(|_| async {}).await, Err(GateError::Full));
        drop(all);
        eventually("room again", async || {
            gateway.run(|_| async {}).await == Ok(())
        })
        .await;
        pool.assert_quiet().await;
    }
}
