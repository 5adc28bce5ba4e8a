//! ProcManager's part in abilities: refuse what a language cannot do, and find out first.
//!
//! PROMISES  A request that needs an ability nobody knows of waits for its probe, which runs beside
//!           the manager; the pool goes on meanwhile. When the manager ends, no probe's child is left.

use std::sync::Arc;

use actix::prelude::*;
use futures_util::FutureExt;

use super::ProcManager;
use super::requests::Answer;
use crate::messages::proc_manager::{GetProc, GetProcError, ProbeDone, Require};
use crate::otp::deferred::{Deferred, deferred};
use crate::query_server::abilities::{Ability, Finding};
use policy::pool::{PoolId, Target};

/// A probe may take this part of the time that its request has, so that something is left.
const PROBE_SHARE: u32 = 2;

/// Reports that a probe is done, also when it is dropped.
struct Done(Recipient<ProbeDone>);

impl Drop for Done {
    fn drop(&mut self) {
        // Ignores the mailbox's bound: the end of the manager may wait for it.
        self.0.do_send(ProbeDone);
    }
}

impl ProcManager {
    /// Returns whether the processes of a pool can do something; `None` when a probe has to tell.
    pub(super) fn can(&self, pool: PoolId, ability: Ability) -> Option<Result<(), GetProcError>> {
        let pool = self.pools.at(pool);
        match pool.abilities.known(ability) {
            Some(Finding::Absent(how)) => Some(Err(GetProcError::Unable {
                language: pool.language.to_string(),
                ability,
                how,
            })),
            Some(Finding::Present | Finding::Open) => Some(Ok(())),
            // Nothing is started any more: the core refuses.
            None if self.shutting_down => Some(Ok(())),
            None => None,
        }
    }

    /// Handles a request again, with the time that is left, once its ability was probed.
    pub(super) fn probe_and_ask_again(
        &mut self,
        pool: PoolId,
        ability: Ability,
        mut request: GetProc,
        ctx: &mut Context<Self>,
    ) -> Deferred<Answer> {
        let (answer, replier) = deferred();
        let (clock, manager) = (self.clock, ctx.address());
        let asked = clock.now();
        let time = request.timeout.unwrap_or(self.settings.os_process_timeout);
        self.probe(pool, ability, ctx, async move || {
            request.timeout = Some(time.saturating_sub(clock.now().since(asked)));
            let result = manager.send(request).await;
            // A caller that is gone gives the lease back by dropping it.
            drop(replier.send(result.unwrap_or(Err(Box::new(GetProcError::ShuttingDown)))));
        });
        answer
    }

    /// Runs a probe beside the manager, and then `after`.
    fn probe(
        &mut self,
        pool: PoolId,
        ability: Ability,
        ctx: &mut Context<Self>,
        after: impl AsyncFnOnce() + 'static,
    ) {
        let pool = self.pools.at(pool);
        let (abilities, language) = (Arc::clone(&pool.abilities), pool.language.clone());
        let spawner = self.spawner.clone();
        let time = self.settings.os_process_timeout / PROBE_SHARE;
        let done = Done(ctx.address().recipient());
        self.probing += 1;
        let probe = async move {
            let done = done;
            // Boxed: it is seldom, and large.
            let probe = abilities.probe(ability, &language, &spawner, time);
            probe.boxed_local().await;
            // What follows is a call to the manager, which must not be part of its own turn.
            actix_rt::spawn(after());
            drop(done);
        };
        let handle = ctx.spawn(probe.into_actor(self));
        self.probes.push(handle);
    }

    /// Ends all probes; each says when it is gone.
    pub(super) fn cancel_probes(&mut self, ctx: &mut Context<Self>) {
        for probe in self.probes.drain(..) {
            ctx.cancel_future(probe);
        }
    }
}

impl Handler<ProbeDone> for ProcManager {
    type Result = ();

    fn handle(&mut self, _: ProbeDone, ctx: &mut Self::Context) {
        self.probing -= 1;
        if self.probing == 0 {
            self.probes.clear();
        }
        self.finish_shutdown(ctx);
    }
}

impl Handler<Require> for ProcManager {
    type Result = Deferred<Result<(), GetProcError>>;

    fn handle(&mut self, msg: Require, ctx: &mut Self::Context) -> Self::Result {
        let Some(pool) = self.pools.own(&msg.language) else {
            let error = GetProcError::UnknownQueryLanguage(msg.language.to_string());
            return Deferred::now(Err(error));
        };
        if let Some(known) = self.can(pool, msg.ability) {
            return Deferred::now(known);
        }
        // To find out would be to start a process.
        if let Err(error) = self.permit(Target::Pool(pool), msg.limits.as_ref()) {
            return Deferred::now(Err(error));
        }
        let (answer, replier) = deferred();
        let manager = ctx.address();
        self.probe(pool, msg.ability, ctx, async move || {
            let result = manager.send(msg).await;
            drop(replier.send(result.unwrap_or(Err(GetProcError::ShuttingDown))));
        });
        answer
    }
}
