//! PoolExecutor: runs functions on the pool's arbiter for callers on other threads.
//!
//! SUMMARY   A caller sends [`PoolWork`], a message with everything it needs; it runs on the pool's thread, and its
//!           output is sent back: a call crosses threads once each way, however often it uses the pool.
//! PROMISES  Dropping a caller ends its work, which returns everything it held. A panic of work is an error only for
//!           its caller.
//! CALLED    By HTTP and by filters of replications, which have their own threads.
//! LIMITS    At most [`WORK_MAX`] pieces of work at a time; more are refused and do not wait. Each is a separate
//!           client of the pool: the pool forgets a client's requests when the client ends.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use slog::{Logger, debug, o};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::actors::proc_manager::ProcManager;
use crate::auth::rights::CallerLimits;
use crate::functions::QueryServers;
use crate::functions::caller::{Caller, Manager};
use crate::functions::records::CallRecords;
use crate::functions::served::Served;
use crate::messages::function::FunctionRequest;
use crate::otp::{PidGuard, RegisteredName, Stop, Tell};
use crate::query_server::status::Holder;

/// Maximum number of concurrent pieces of work.
pub(crate) const WORK_MAX: usize = 4096;

/// Work on the pool's arbiter.
pub(crate) trait PoolWork: Send + 'static {
    /// The result for its caller.
    type Output: Send + 'static;

    /// Runs with a separate client of the pool.
    fn run(self, servers: QueryServers) -> impl Future<Output = Self::Output>;
}

impl PoolWork for FunctionRequest {
    type Output = Served;

    async fn run(self, servers: QueryServers) -> Self::Output {
        servers.serve(self).await
    }
}

/// The principal that work runs for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Principal {
    /// The pools that the work is limited to; `None`: no limit.
    pub limits: Option<CallerLimits>,
    /// The sender, for display.
    pub who: Option<Arc<Holder>>,
}

/// Work in flight. Aborted when no receiver waits for its output.
#[derive(Message)]
#[rtype(result = "()")]
struct Execute<W: PoolWork> {
    work: W,
    principal: Principal,
    reply: oneshot::Sender<W::Output>,
    permit: OwnedSemaphorePermit,
}

/// Runs work on its arbiter.
pub(crate) struct PoolExecutor {
    manager: Manager,
    records: Rc<CallRecords>,
    log: Logger,
    pid_guard: PidGuard,
}

impl PoolExecutor {
    pub fn new(
        manager: RegisteredName<ProcManager>,
        records: Rc<CallRecords>,
        log: &Logger,
        pid_guard: PidGuard,
    ) -> Self {
        Self {
            manager: manager.into(),
            records,
            log: log.new(o!("component" => "pool_executor")),
            pid_guard,
        }
    }
}

impl Actor for PoolExecutor {
    type Context = Context<Self>;
}

impl<W: PoolWork> Handler<Execute<W>> for PoolExecutor {
    type Result = ();

    fn handle(&mut self, message: Execute<W>, _: &mut Self::Context) {
        let caller = Caller::new(self.manager.clone());
        caller.hold_to(message.principal.limits);
        caller.speak_for(message.principal.who);
        let servers = QueryServers::new(caller).recording(Rc::clone(&self.records));
        let (work, mut reply, permit) = (message.work, message.reply, message.permit);
        // Ends at the latest with its caller, whose waits are all bounded. A separate task, so that a panic does not
        // reach the executor.
        actix_rt::spawn(async move {
            let _permit = permit;
            tokio::select! {
                biased;
                output = work.run(servers) => drop(reply.send(output)),
                () = reply.closed() => {}
            }
        });
    }
}

/// The callers have already ended.
impl Handler<Stop> for PoolExecutor {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        debug!(self.log, "pool executor stopped");
        self.pid_guard.shut_down(ctx);
    }
}

/// Why there is no output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExecuteError {
    /// [`WORK_MAX`] pieces of work are running.
    #[error("{WORK_MAX} requests are in progress, the maximum: try again later")]
    Full,
    /// The work was lost: it panicked, or the service is ending.
    #[error("the request was lost inside the service; its log may tell why")]
    Lost,
}

/// A handle to the executor for callers on any thread. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PoolHandle {
    executor: RegisteredName<PoolExecutor>,
    room: Arc<Semaphore>,
}

impl PoolHandle {
    pub fn new(executor: RegisteredName<PoolExecutor>) -> Self {
        Self {
            executor,
            room: Arc::new(Semaphore::new(WORK_MAX)),
        }
    }

    /// Runs work on the pool's arbiter and returns its output. The work is sent at once; dropping the returned future
    /// ends it.
    ///
    /// # Errors
    /// See [`ExecuteError`]; a retry may succeed.
    pub fn run<W: PoolWork>(
        &self,
        work: W,
        principal: Principal,
    ) -> impl Future<Output = Result<W::Output, ExecuteError>> + use<W> {
        let permit = Arc::clone(&self.room).try_acquire_owned();
        let sent = permit.map_err(|_| ExecuteError::Full).map(|permit| {
            let (reply, output) = oneshot::channel();
            self.executor.tell(Execute {
                work,
                principal,
                reply,
                permit,
            });
            output
        });
        async move { sent?.await.map_err(|_| ExecuteError::Lost) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::actors::proc_manager::ManagerSettings;
    use crate::metrics::tenant_costs::TenantCosts;
    use crate::otp::system_time;
    use child::Spawner;
    use test_support::{eventually, within};

    /// A test's work.
    struct Test<F>(F);

    impl<F, W> PoolWork for Test<W>
    where
        W: FnOnce(QueryServers) -> F + Send + 'static,
        F: Future<Output: Send + 'static>,
    {
        type Output = F::Output;

        async fn run(self, servers: QueryServers) -> Self::Output {
            self.0(servers).await
        }
    }

    /// Runs a test's work without a principal.
    fn run<F, W>(
        handle: &PoolHandle,
        work: W,
    ) -> impl Future<Output = Result<F::Output, ExecuteError>> + use<F, W>
    where
        W: FnOnce(QueryServers) -> F + Send + 'static,
        F: Future<Output: Send + 'static> + 'static,
    {
        handle.run(Test(work), Principal::default())
    }

    /// A handle to a pool without languages.
    fn handle() -> PoolHandle {
        let log = Logger::root(slog::Discard, o!());
        let spawner = Spawner::start().unwrap();
        let manager = ProcManager::new(ManagerSettings::without_languages(), spawner, &log).start();
        let (_, config) = tokio::sync::watch::channel(Arc::default());
        let records = Rc::new(CallRecords::new(
            config,
            log.clone(),
            None,
            TenantCosts::new(system_time()),
        ));
        let executor =
            PoolExecutor::new(RegisteredName::new(manager), records, &log, PidGuard::new());
        PoolHandle::new(RegisteredName::new(executor.start()))
    }

    /// Runs a future on a separate thread.
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
    async fn work_runs_on_the_pools_arbiter_and_its_result_is_returned() {
        thread_local!(static HERE: Cell<bool> = const { Cell::new(false) });
        HERE.set(true);
        let handle = handle();
        let result = elsewhere(async move {
            let here = run(&handle, |_| async { HERE.get() });
            (HERE.get(), here.await)
        });
        let result = within("the result", result).await.unwrap();
        assert_eq!(result, (false, Ok(true)));
    }

    /// Records its drop.
    struct Dropped(Arc<AtomicBool>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[actix_rt::test]
    async fn dropping_a_caller_ends_its_work() {
        let handle = handle();
        let ended = Arc::new(AtomicBool::new(false));
        let held = Dropped(Arc::clone(&ended));
        let (begun, begins) = oneshot::channel();
        let call = run(&handle, |_| async move {
            let _held = held;
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        within("the beginning", begins).await.unwrap();
        drop(call);
        eventually("the end of the work", async || ended.load(Ordering::SeqCst)).await;
        assert_eq!(handle.room.available_permits(), WORK_MAX);
    }

    #[actix_rt::test]
    async fn a_panic_fails_only_its_own_caller() {
        let handle = handle();
        let lost = run(&handle, |_| async {
            let panics = true;
            assert!(!panics, "work that panics (meant to happen)");
        });
        assert_eq!(lost.await, Err(ExecuteError::Lost));
        assert_eq!(run(&handle, |_| async { 7 }).await, Ok(7));
    }

    #[actix_rt::test]
    async fn work_beyond_the_bound_is_refused() {
        let handle = handle();
        let all: Vec<_> = (0..WORK_MAX)
            .map(|_| run(&handle, |_| std::future::pending::<()>()))
            .collect();
        assert_eq!(run(&handle, |_| async {}).await, Err(ExecuteError::Full));
        drop(all);
        eventually("room again", async || {
            run(&handle, |_| async {}).await == Ok(())
        })
        .await;
    }
}
