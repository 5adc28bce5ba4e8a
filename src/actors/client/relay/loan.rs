//! An attached client's current process, and how it gets one.
//!
//! SUMMARY   [`ask`] waits for a process and repeats the client's lessons; [`LentProcess`] is one that has learned
//!           them.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix::Recipient;
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, watch};

use crate::actors::client::session::Session;
use crate::functions::caller::get_clean_proc;
use crate::messages::pools::{PoolState, WatchPool};
use crate::messages::proc_manager::{CallError, Lease, TakeFrom, Want};
use crate::messages::process::PromptError;
use crate::otp::{Down, Watch};
use crate::query_server::taught::Taught;
use policy::time::Timestamp;

/// The pool that serves a client.
#[derive(Clone, Debug)]
pub(super) struct WatchedPool {
    pub name: Arc<str>,
    state: watch::Receiver<PoolState>,
}

impl WatchedPool {
    /// Returns whether more clients wait for a process than processes are being started.
    pub fn others_wait(&self) -> bool {
        waits(&self.state.borrow())
    }

    /// Returns the maximum number of its processes.
    pub fn limit(&self) -> u32 {
        self.state.borrow().pool.max
    }
}

fn waits(state: &PoolState) -> bool {
    state.pool.claims > state.pool.opening
}

/// A pending request for a process: its answer, and the pool, if known.
pub(super) type Asked = LocalBoxFuture<'static, (Result<Lease, CallError>, Option<WatchedPool>)>;

/// Requests a process with this timeout, and repeats the client's lessons to it. A process that fails a lesson is
/// returned as broken, and another is tried.
pub(super) fn ask(
    session: &Rc<Session>,
    want: &Want,
    timeout: Duration,
    taught: Taught,
    known: Option<WatchedPool>,
) -> Asked {
    let (session, want) = (Rc::clone(session), want.clone());
    Box::pin(async move {
        let mut pool = known;
        if pool.is_none()
            && let Some(name) = own_pool(&want)
        {
            pool = watch_pool(&session, name).await;
        }
        let caller = session.query_servers.caller();
        let get = async || caller.get_proc(want.clone(), Some(timeout)).await;
        let teach = async |lease: &Lease| teach(lease, &taught).await;
        let lease = session
            .services
            .unless_stopping(get_clean_proc(get, teach))
            .await
            .map(|(lease, ())| lease);
        if let Ok(lease) = &lease
            && pool
                .as_ref()
                .is_none_or(|pool| pool.name != lease.lender.pool)
        {
            pool = watch_pool(&session, Arc::clone(&lease.lender.pool)).await;
        }
        (lease, pool)
    })
}

/// Repeats the client's lessons to a process, which has to answer each line with `true`.
async fn teach(lease: &Lease, taught: &Taught) -> Result<(), PromptError> {
    let (lines, count) = taught.lines(&lease.lender.config);
    let (sender, mut answers) = mpsc::unbounded_channel();
    lease.prompts(lines, None, sender);
    for _ in 0..count {
        let gone = || Err(lease.process.shared.gone());
        let answer = answers.recv().await.unwrap_or_else(gone)?;
        if answer.trim_ascii() != b"true" {
            let what = "an answer other than true to a lesson";
            return Err(PromptError::protocol(what, &answer));
        }
    }
    Ok(())
}

/// Returns the only pool that may serve a request.
fn own_pool(want: &Want) -> Option<Arc<str>> {
    match &want.from {
        TakeFrom::Own => want.spoken().map(|language| Arc::from(language.as_str())),
        TakeFrom::Pool(name) => Some(Arc::clone(name)),
        TakeFrom::Group(_) | TakeFrom::Any => None,
    }
}

async fn watch_pool(session: &Session, name: Arc<str>) -> Option<WatchedPool> {
    let question = WatchPool {
        pool: name.to_string(),
    };
    let state = session.services.manager.call(question).await.ok()??;
    Some(WatchedPool { name, state })
}

/// A lent process.
pub(super) struct LentProcess {
    pub lease: Lease,
    pub since: Timestamp,
    /// Ends when others wait; created when first needed.
    waiters: Option<LocalBoxFuture<'static, ()>>,
    _end: Watch,
}

impl LentProcess {
    /// Wraps a process lent at `since`; `down` is notified of its end.
    pub fn new(lease: Lease, since: Timestamp, down: Recipient<Down>) -> Self {
        Self {
            _end: lease.process.pid.watch(down),
            lease,
            since,
            waiters: None,
        }
    }

    /// Ready when others wait for a process of the pool.
    pub fn poll_waiters(&mut self, pool: &WatchedPool, cx: &mut Context<'_>) -> Poll<()> {
        let waiters = self.waiters.get_or_insert_with(|| {
            let mut state = pool.state.clone();
            Box::pin(async move {
                // Without the pool, which also ends its processes, waits forever.
                if state.wait_for(waits).await.is_err() {
                    std::future::pending::<()>().await;
                }
            })
        });
        let poll = waiters.as_mut().poll(cx);
        if poll.is_ready() {
            self.waiters = None;
        }
        poll
    }

    /// Returns whether the process has ended, or is ending.
    pub fn is_gone(&self) -> bool {
        let process = &self.lease.process;
        process.shared.exit_error().is_some() || !process.pid.is_alive()
    }
}
