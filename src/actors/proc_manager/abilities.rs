//! ProcManager's part in abilities: refuse what a language cannot do, and find out first.
//!
//! PROMISES  A request that needs an ability nobody knows of waits for its probe, which runs beside
//!           the manager; the pool goes on meanwhile. When the manager ends, no probe's child is left.

use std::sync::Arc;

use actix::prelude::*;
use futures_util::FutureExt;

use super::ProcManager;
use crate::messages::proc_manager::{GetProcError, ProbeDone, Require};
use crate::otp::deferred::{Deferred, deferred};
use crate::query_server::abilities::{Ability, Finding};
use policy::pool::{PoolId, Target};

/// A probe may take this part of the time that its request has, so that something is left.
const PROBE_SHARE: u32 = 2;

/// Reports that a probe is done, also when it is dropped.
pub(super) struct ProbeEnd(pub(super) Recipient<ProbeDone>);

impl Drop for ProbeEnd {
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

    /// Runs a probe beside the manager; `again` is the answer, and handles the request again.
    pub(super) fn probe<T: 'static>(
        &mut self,
        pool: PoolId,
        ability: Ability,
        ctx: &mut Context<Self>,
        again: impl AsyncFnOnce(Addr<Self>) -> T + 'static,
    ) -> Deferred<T> {
        let (answer, replier) = deferred();
        let pool = self.pools.at(pool);
        let (abilities, language) = (Arc::clone(&pool.abilities), pool.language.clone());
        let (spawner, manager) = (self.spawner.clone(), ctx.address());
        let time = self.settings.os_process_timeout / PROBE_SHARE;
        let done = ProbeEnd(ctx.address().recipient());
        self.probing += 1;
        let probe = async move {
            let done = done;
            // Boxed: it is seldom, and large.
            let probe = abilities.probe(ability, &language, &spawner, time);
            probe.boxed_local().await;
            // What follows is a call to the manager, which must not be part of its own turn. A caller that is
            // gone gives a lease back by dropping it.
            actix_rt::spawn(async move { drop(replier.send(again(manager).await)) });
            drop(done);
        };
        let handle = ctx.spawn(probe.into_actor(self));
        self.probes.push(handle);
        answer
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
        self.probe(pool, msg.ability, ctx, async move |manager| {
            let result = manager.send(msg).await;
            result.unwrap_or(Err(GetProcError::ShuttingDown))
        })
    }
}
