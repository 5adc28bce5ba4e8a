//! Requests that are not answered yet, and their answers: a lease, or why there is none.
//!
//! PROMISES  Every request is answered once. An answer that is there before its handler returns needs
//!           no row of its own.
//! SOURCE    couch_proc_manager 001: the client records, and the replies to get_proc.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;

use super::ProcManager;
use super::turn::Turn;
use crate::messages::proc_manager::{GetProcError, Lease, Lender, ProcFailure, Want};
use crate::metrics::{PoolMetrics, Refused};
use crate::otp::deferred::Replier;
use crate::query_server::call::Call;
use crate::query_server::proc_shared::PromptBound;
use crate::query_server::prompt;
use policy::pool::{
    ClientId, Phase, PoolId, ProcId, Refusal, RequestId, Target, Tenant, TenantBound, Token,
};
use policy::time::Timestamp;

/// How a request ends.
pub(super) type Answer = Result<Lease, Box<GetProcError>>;

/// What the actor keeps of a request that is not answered yet.
pub(super) struct Waiting {
    /// None while its call is being handled: then the answer is the handler's result.
    pub(super) replier: Option<Replier<Answer>>,
    pub(super) client: ClientId,
    pub(super) want: Want,
    /// The call that it is for.
    pub(super) call: Option<Arc<Call>>,
    /// The pools that may serve it.
    pub(super) target: Target,
    /// What they are called: a pool's name, or a group's; none while its call is being handled.
    pub(super) label: Option<Arc<str>>,
    pub(super) asked: Timestamp,
}

impl ProcManager {
    /// Returns a request that is not answered yet.
    pub(super) fn request<'a>(&'a self, id: RequestId, turn: &'a Turn) -> Option<&'a Waiting> {
        match &turn.arriving {
            Some((arriving, request)) if *arriving == id => Some(request),
            _ => self.requests.get(&id),
        }
    }

    pub(super) fn assign(
        &mut self,
        id: RequestId,
        (proc, token): (ProcId, Token),
        reset: bool,
        turn: &mut Turn,
        ctx: &mut Context<Self>,
    ) {
        let request = self
            .request(id, turn)
            .expect("PM-4: an open request has a caller");
        let db = self.bounded_tenant(request);
        let bound = self.prompt_bound(db.as_deref());
        let (client, waited) = (request.client, turn.now.since(request.asked));
        self.metrics_of(proc.pool).acquired(waited);
        let process = self
            .procs
            .get(&proc)
            .expect("PM-2: an assigned process is known")
            .clone();
        if reset {
            let config = Arc::clone(&self.settings.reset_config);
            process.shared.reset_first(config);
        }
        process.shared.bound_prompts(bound);
        process.shared.assign(token);
        let lease = Lease {
            proc,
            token,
            process,
            client,
            lender: self.lender(proc.pool, ctx),
            is_out: true,
            loan: None,
        };
        self.begin_cost(proc, db, ctx);
        // A caller that is gone gives the lease back by dropping it.
        self.answer(id, Ok(lease), turn);
    }

    /// Returns what the processes of a pool have in common, which is kept for the next one.
    fn lender(&mut self, pool: PoolId, ctx: &Context<Self>) -> Arc<Lender> {
        let pool = self.pools.at_mut(pool);
        let lender = pool.lender.get_or_insert_with(|| {
            Arc::new(Lender {
                pool: Arc::clone(&pool.name),
                language: pool.language.clone(),
                config: Arc::clone(&self.settings.reset_config),
                resets: [false, true].map(|report| {
                    prompt::reset_for_calls(&self.settings.reset_config, &pool.language, report)
                }),
                held_max: pool.section.held_max,
                manager: ctx.address().recipient(),
            })
        });
        Arc::clone(lender)
    }

    /// Answers a request: through its handler's result while that runs, or else its caller.
    fn answer(&mut self, id: RequestId, answer: Answer, turn: &mut Turn) {
        let is_arriving = |(arriving, _): &(RequestId, _)| *arriving == id;
        if turn.arriving.as_ref().is_some_and(is_arriving) {
            turn.answer = Some(answer);
        } else if let Some(request) = self.requests.remove(&id)
            && let Some(replier) = request.replier
        {
            drop(replier.send(answer));
        }
    }

    /// Returns the database whose functions a request runs, by what counts of its name.
    fn tenant_of(&self, request: &Waiting) -> Option<Arc<str>> {
        match request.want.affinity(self.settings.db_tag)?.tenant {
            Tenant::Database(db) => Some(db),
            Tenant::Databases | Tenant::User(_) | Tenant::Client(_) => None,
        }
    }

    /// Returns that database if any has bounds.
    pub(super) fn bounded_tenant(&self, request: &Waiting) -> Option<Arc<str>> {
        let is_any = !self.settings.tenants.is_empty();
        is_any.then(|| self.tenant_of(request)).flatten()
    }

    /// Returns how long a process may take to answer for a database, where that has a bound.
    fn prompt_bound(&self, db: Option<&str>) -> Option<PromptBound> {
        let timeout = self.settings.tenants.bound(db?, TenantBound::Timeout)?;
        Some(PromptBound {
            timeout: Duration::from_millis(timeout.into()),
            key: self.tenant_key(db?, TenantBound::Timeout),
        })
    }

    /// Returns which limit is in the way of a request that waits, as an operator finds it, and until when if that is
    /// known.
    fn in_the_way(&self, request: &Waiting) -> (Arc<str>, Option<Timestamp>) {
        let db = self.bounded_tenant(request);
        let held_back = db.and_then(|db| {
            let tenant = Tenant::Database(Arc::clone(&db));
            let (bound, until) = self.core.held_back_by(&tenant)?;
            Some((self.tenant_key(&db, bound), until))
        });
        held_back.unwrap_or_else(|| (self.limit_of(request.target), None))
    }

    /// Returns where a bound of a tenant is set, as the configuration has it.
    fn tenant_key(&self, db: &str, bound: TenantBound) -> Arc<str> {
        let name = self.settings.tenants.set_by(db, bound).unwrap_or_default();
        format!("[tenants.{name:?}] {}", bound.key()).into()
    }

    pub(super) fn refuse(&mut self, id: RequestId, why: Refusal, turn: &mut Turn) {
        let now = turn.now;
        let request = self
            .request(id, turn)
            .expect("PM-4: an open request has a caller");
        let pool = self.pools.of_target(request.target);
        let label = request.label.clone();
        let label = label.unwrap_or_else(|| self.pools.label(request.target));
        let language = pool.map(|pool| self.pools.at(pool).language.to_string());
        let language = language.unwrap_or_else(|| label.to_string());
        let ended = || ProcFailure::of_server("the query server ended");
        let cause = turn.cause.clone().unwrap_or_else(ended);
        if let Some(pool) = pool {
            count_refusal(self.metrics_of(pool), why);
        }
        let error = match why {
            Refusal::Timeout { phase } => {
                let (raise, until) = self.in_the_way(request);
                let until = until.filter(|_| phase == Phase::Queue);
                GetProcError::Timeout {
                    phase,
                    waited: now.since(request.asked),
                    raise,
                    retry_in: until.map(|until| until.since(now)),
                }
            }
            Refusal::SpawnFailed => GetProcError::SpawnFailed {
                language,
                reason: cause.reason,
                fault: cause.fault,
            },
            Refusal::TeachFailed => GetProcError::TeachFailed {
                language,
                ddoc: request.want.ddoc_id(),
                reason: cause.reason,
                error: cause.error.map(Box::new),
            },
            Refusal::PoolBusy => GetProcError::PoolBusy { pool: label },
            Refusal::TenantBusy(bound) => {
                let tenant = self.tenant_of(request).unwrap_or_default();
                let rule = self.tenant_key(&tenant, bound);
                GetProcError::TenantBusy {
                    tenant,
                    waits: bound == TenantBound::QueueMax,
                    rule,
                }
            }
            Refusal::PoolRemoved => GetProcError::PoolRemoved { pool: label },
            Refusal::NoPool => GetProcError::NoSuchPool(format!("there is no pool in '{label}'")),
            Refusal::Throttled { until } => GetProcError::Throttled {
                pool: label,
                reason: self.failure_of(request.target),
                retry_in: until.since(now),
            },
            Refusal::ShuttingDown => GetProcError::ShuttingDown,
        };
        self.answer(id, Err(Box::new(error)), turn);
    }
}

fn count_refusal(metrics: &PoolMetrics, why: Refusal) {
    match why {
        Refusal::Timeout { phase } => metrics.request_timed_out(phase),
        Refusal::PoolBusy => metrics.refused(Refused::Busy),
        Refusal::TenantBusy(_) => metrics.refused(Refused::Tenant),
        Refusal::Throttled { .. } => metrics.refused(Refused::Throttled),
        Refusal::PoolRemoved | Refusal::NoPool => metrics.refused(Refused::Removed),
        Refusal::SpawnFailed | Refusal::TeachFailed | Refusal::ShuttingDown => {}
    }
}
