//! PoolProber: probes, with its own children, the abilities of the pools' query servers and the layers of their
//! cells.
//!
//! SUMMARY   Probes an ability when a request needs it, and tests each cell once. The results are in
//!           [`Abilities`](crate::query_server::abilities::Abilities) and
//!           [`TriedCell`](crate::query_server::tried_cell::TriedCell), which only this actor writes.
//! PROMISES  Never blocks: probes and tests run concurrently, each with a deadline. When it ends, all their children
//!           are gone.
//! CALLED    By the ProcManager, which starts it and is linked to it.
//! LIMITS    One child at a time for each language, and one for each change of the pools' cells.

mod cells;

use actix::prelude::*;
use futures_util::FutureExt;
use slog::Logger;

use crate::messages::pool_prober::ProbeAbility;
use crate::otp::deferred::{Deferred, deferred};
use crate::otp::pid::{ExitReason, Pid, PidGuard};
use crate::otp::supervisor::Stop;
use crate::otp::tell::Tell;
use cells::PoolCells;
use child::Spawner;

/// Maximum queued messages before senders have to wait.
const MAILBOX_MESSAGES_MAX: usize = 1024;

/// Probes abilities not known yet.
pub(crate) struct PoolProber {
    spawner: Spawner,
    log: Logger,
    cells: PoolCells,
    /// Running probes and tests of cells; each has at most one child.
    probes: Vec<SpawnHandle>,
    /// The number of them that are not done.
    probing: usize,
    is_stopping: bool,
    pid_guard: PidGuard,
}

impl PoolProber {
    /// Makes a prober that logs as the manager does.
    pub(crate) fn new(spawner: Spawner, log: Logger) -> Self {
        Self {
            spawner,
            log,
            cells: PoolCells::default(),
            probes: Vec::new(),
            probing: 0,
            is_stopping: false,
            pid_guard: PidGuard::new(),
        }
    }

    /// Returns the pid by which it can be monitored.
    pub(crate) fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }

    /// Runs a probe or a test concurrently.
    fn run(&mut self, probe: impl Future<Output = ()> + 'static, ctx: &mut Context<Self>) {
        let done = ProbeEnd(ctx.address());
        self.probing += 1;
        let probe = async move {
            // Dropped however the probe ends, which notifies the prober.
            let _done = done;
            probe.await;
        };
        let handle = ctx.spawn(probe.into_actor(self));
        self.probes.push(handle);
    }

    /// Ends all probes, and itself once they are gone.
    fn stop(&mut self, ctx: &mut Context<Self>) {
        self.is_stopping = true;
        for probe in self.probes.drain(..) {
            ctx.cancel_future(probe);
        }
        self.finish(ctx);
    }

    fn finish(&self, ctx: &mut Context<Self>) {
        if self.is_stopping && self.probing == 0 {
            self.pid_guard.ending(ExitReason::Shutdown);
            ctx.stop();
        }
    }
}

impl Actor for PoolProber {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX_MESSAGES_MAX);
    }
}

/// A probe or a test is done, or was dropped.
#[derive(Message)]
#[rtype(result = "()")]
struct ProbeDone;

/// Reports the end of a probe, even if it is dropped.
struct ProbeEnd(Addr<PoolProber>);

impl Drop for ProbeEnd {
    fn drop(&mut self) {
        self.0.tell(ProbeDone);
    }
}

impl Handler<ProbeDone> for PoolProber {
    type Result = ();

    fn handle(&mut self, _: ProbeDone, ctx: &mut Self::Context) {
        self.probing -= 1;
        if self.probing == 0 {
            self.probes.clear();
        }
        self.finish(ctx);
    }
}

impl Handler<ProbeAbility> for PoolProber {
    type Result = Deferred<()>;

    fn handle(&mut self, msg: ProbeAbility, ctx: &mut Self::Context) -> Self::Result {
        if self.is_stopping {
            return Deferred::now(());
        }
        let (answer, replier) = deferred();
        let (spawner, log) = (self.spawner.clone(), self.log.clone());
        let probe = async move {
            let ProbeAbility {
                abilities,
                ability,
                language,
                time,
            } = msg;
            // Boxed: it is rare, and large.
            let probe = abilities.probe(ability, &language, &spawner, time, &log);
            probe.boxed_local().await;
            let _ = replier.send(());
        };
        self.run(probe, ctx);
        answer
    }
}

impl Handler<Stop> for PoolProber {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        self.stop(ctx);
    }
}
