//! Requests for processes: their checks, and their answers: a lease or an error.
//!
//! PROMISES  Every request is answered once, or leaves the queue as soon as its caller has gone. It is stored only if
//!           it has to wait after its handler returns. A request that needs an unknown ability waits for its probe; the
//!           pool continues meanwhile. A process with a configured command is lent to users with the role `caller` only
//!           if its pool has `callers`, and never for a design document of another database; a user whose section of
//!           the configuration names pools may use no others. Nothing is started or probed before these checks.
//! SOURCE    couch_proc_manager 001: handle_call(get_proc), the client records, the replies to get_proc.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{self, Wake, Waker};
use std::time::Duration;

use actix::prelude::*;
use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::ProcManager;
use super::turn::Turn;
use crate::auth::rights::CallerLimits;
use crate::messages::proc_manager::{
    GetLanguage, GetProc, GetProcCount, GetProcError, GetResetConfig, GetStaleProcCount, Lease,
    Lender, ProcFailure, Require, Want,
};
use crate::metrics::{PoolMetrics, Refused};
use crate::otp::{Deferred, Replier, Tell, deferred};
use crate::query_server::abilities::{Ability, Finding};
use crate::query_server::call::Call;
use crate::query_server::proc_shared::{ProcFlag, PromptBound};
use crate::query_server::prompt;
use policy::pool::{
    ClientId, Event, Phase, PoolId, ProcId, Refusal, RequestId, ReturnStatus, Select, Target,
    Tenant, TenantBound, Token,
};
use policy::time::Timestamp;

/// A probe may take the default timeout of a request divided by this, so that the request has time left.
const PROBE_SHARE: u32 = 2;

/// A request's result.
pub(super) type Answer = Result<Lease, Box<GetProcError>>;

/// The actor's state of an unanswered request.
pub(super) struct Waiting {
    /// `None` while its call is being handled: then the answer is the handler's result.
    pub replier: Option<Replier<Answer>>,
    pub client: ClientId,
    pub want: Want,
    /// The call.
    pub call: Option<Arc<Call>>,
    /// The pools that may serve it.
    pub target: Target,
    /// The name of the target pool, group or language; `None` while its call is being handled.
    pub label: Option<Arc<str>>,
    pub asked: Timestamp,
}

impl Handler<GetProc> for ProcManager {
    type Result = Deferred<Answer>;

    fn handle(&mut self, mut msg: GetProc, ctx: &mut Self::Context) -> Self::Result {
        let refused = |error| Deferred::now(Err(Box::new(error)));
        if self.drain.is_on() {
            return refused(GetProcError::Draining);
        }
        let asked = self.clock.now();
        let time = msg.timeout.unwrap_or(self.settings.os_process_timeout);
        let (target, pool) = match self.pools.resolve(&msg.want) {
            Ok(found) => found,
            Err(error) => return refused(error),
        };
        if let Err(error) = self.permit(target, msg.limits.as_ref()) {
            return refused(error);
        }
        if let Some(ability) = msg.want.needs() {
            match self.can(pool, ability) {
                Some(Ok(())) => {}
                Some(Err(error)) => return refused(error),
                None => {
                    let clock = self.clock;
                    return self.probe(pool, ability, ctx, async move |manager| {
                        msg.timeout = Some(time.saturating_sub(clock.now().since(asked)));
                        let result = manager.send(msg).await;
                        result.unwrap_or(Err(Box::new(GetProcError::ShuttingDown)))
                    });
                }
            }
        }
        let (client, known) = self.watch_client(&msg.client, ctx);
        known.who = msg.who.or(known.who.take());
        self.next_request += 1;
        let request = RequestId(self.next_request);
        let affinity = msg.want.affinity(self.settings.db_tag);
        let deadline = asked + time;
        let lane = msg.want.lane;
        let waiting = Waiting {
            replier: None,
            client,
            label: None,
            want: msg.want,
            call: msg.call,
            target,
            asked,
        };
        let mut turn = Turn::at(asked);
        turn.arriving = Some((request, waiting));
        self.turn(
            &mut turn,
            Event::GetProc {
                request,
                client,
                target,
                lane,
                affinity,
                deadline,
            },
            ctx,
        );
        if let Some(answer) = turn.answer {
            return Deferred::now(answer);
        }
        let (answer, replier) = deferred();
        let manager = ctx.address();
        let gone = Waker::from(Arc::new(CallerWatch { manager, request }));
        let _ = replier.poll_gone(&mut task::Context::from_waker(&gone));
        if let Some((id, mut request)) = turn.arriving {
            request.replier = Some(replier);
            request.label = Some(self.pools.label(request.target));
            self.requests.insert(id, request);
        }
        answer
    }
}

/// Wakes the manager when the caller of a waiting request has gone.
struct CallerWatch {
    manager: Addr<ProcManager>,
    request: RequestId,
}

impl Wake for CallerWatch {
    fn wake(self: Arc<Self>) {
        self.manager.tell(CallerGone(self.request));
    }
}

/// The caller of a request no longer waits for the answer.
#[derive(Message)]
#[rtype(result = "()")]
struct CallerGone(RequestId);

impl Handler<CallerGone> for ProcManager {
    type Result = ();

    fn handle(&mut self, CallerGone(request): CallerGone, ctx: &mut Self::Context) {
        if self.requests.contains_key(&request) {
            self.event(Event::Withdraw { request }, ctx);
            // After the event, which refuses requests that have timed out.
            self.requests.remove(&request);
        }
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
        // Probing would start a process.
        if let Err(error) = self.permit(Target::Pool(pool), msg.limits.as_ref()) {
            return Deferred::now(Err(error));
        }
        self.probe(pool, msg.ability, ctx, async move |manager| {
            let result = manager.send(msg).await;
            result.unwrap_or(Err(GetProcError::ShuttingDown))
        })
    }
}

impl Handler<GetLanguage> for ProcManager {
    type Result = MessageResult<GetLanguage>;

    fn handle(&mut self, GetLanguage(from): GetLanguage, _: &mut Self::Context) -> Self::Result {
        let found = self.pools.resolve(&Want::any_from(from));
        MessageResult(found.map(|(_, pool)| self.pools.at(pool).language.clone()))
    }
}

impl Handler<GetProcCount> for ProcManager {
    type Result = u32;

    fn handle(&mut self, _: GetProcCount, _: &mut Self::Context) -> u32 {
        self.core.proc_count()
    }
}

impl Handler<GetStaleProcCount> for ProcManager {
    type Result = u32;

    fn handle(&mut self, _: GetStaleProcCount, _: &mut Self::Context) -> u32 {
        self.core.stale_proc_count()
    }
}

impl Handler<GetResetConfig> for ProcManager {
    type Result = MessageResult<GetResetConfig>;

    fn handle(&mut self, _: GetResetConfig, _: &mut Self::Context) -> Self::Result {
        MessageResult(Arc::clone(&self.settings.reset_config))
    }
}

/// Checks of requests, and their answers.
impl ProcManager {
    /// Requires that the caller may use each pool that may serve a request.
    fn permit(&self, target: Target, limits: Option<&CallerLimits>) -> Result<(), GetProcError> {
        let Some(limits) = limits else {
            return Ok(());
        };
        for id in self.pools.members_of(target) {
            let pool = self.pools.at(id);
            let (name, language) = (&pool.name, &pool.language);
            let is_external = self.settings.external.contains(language);
            let is_among = |pools: &[String]| pools.iter().any(|known| **known == **name);
            let reason = match &limits.pools {
                Some(pools) if !is_among(pools) => format!(
                    "the pool '{name}' is not among the pools of this user: name one of {}",
                    pools.join(", ")
                ),
                _ if is_external && limits.built_in_only => format!(
                    "'{language}' is a command of the configuration, and a design document of another database \
                     may only use built-in languages: let the source run the filter (`filter_at`), or use a selector"
                ),
                _ if is_external && !pool.section.callers => format!(
                    "the pool '{name}' runs a command of the configuration, which only administrators \
                     may call: set callers = true in [pools.{name}] to let callers use it"
                ),
                _ => continue,
            };
            return Err(GetProcError::NotForCaller(reason));
        }
        Ok(())
    }

    /// Returns whether a pool's processes have an ability; `None` if a probe is needed.
    fn can(&self, pool: PoolId, ability: Ability) -> Option<Result<(), GetProcError>> {
        let pool = self.pools.at(pool);
        match pool.abilities.known(ability) {
            Some(Finding::Absent(how)) => Some(Err(GetProcError::Unable {
                language: pool.language.to_string(),
                ability,
                how,
            })),
            Some(Finding::Present | Finding::Open) => Some(Ok(())),
            // Nothing more is started: the core refuses.
            None if self.shutting_down => Some(Ok(())),
            None => None,
        }
    }

    /// Probes an ability, and then answers with the result of `again`, which sends the request again.
    fn probe<T: 'static>(
        &mut self,
        pool: PoolId,
        ability: Ability,
        ctx: &mut Context<Self>,
        again: impl AsyncFnOnce(Addr<Self>) -> T + 'static,
    ) -> Deferred<T> {
        let (answer, replier) = deferred();
        let (done, probed) = oneshot::channel::<()>();
        let pool = self.pools.at(pool);
        let (abilities, language) = (Arc::clone(&pool.abilities), pool.language.clone());
        let time = self.settings.os_process_timeout / PROBE_SHARE;
        let (spawner, log) = (self.spawner.clone(), self.log.clone());
        let probe = async move {
            // Dropped at the end of the probe.
            let _done = done;
            // Boxed: it is rare, and large.
            abilities
                .probe(ability, &language, &spawner, time, &log)
                .boxed_local()
                .await;
        };
        self.run_probe(probe, ctx);
        let manager = ctx.address();
        // Ends with the answer, or with the caller.
        actix_rt::spawn(async move {
            // A probe that a shutdown interrupts leaves the ability unknown.
            let _ = probed.await;
            tokio::select! {
                result = again(manager) => drop(replier.send(result)),
                () = poll_fn(|cx| replier.poll_gone(cx)) => {}
            }
        });
        answer
    }

    /// Returns an unanswered request.
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
        (reset, select): (bool, Option<Select>),
        turn: &mut Turn,
        ctx: &mut Context<Self>,
    ) {
        let request = self
            .request(id, turn)
            .expect("PM-4: an open request has a caller");
        let db = self.bounded_tenant(request);
        let bound = self.prompt_bound(db.as_deref());
        let (client, waited) = (request.client, turn.now.since(request.asked));
        self.metrics_of(proc.pool).count().wait.observe(waited);
        let process = self
            .procs
            .get(&proc)
            .expect("PM-2: an assigned process is known")
            .clone();
        if reset || select.is_some() {
            let config = Arc::clone(&self.settings.reset_config);
            process.shared.reset_first(config, select);
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
        self.answer(id, Ok(lease), turn);
    }

    /// Returns the common part of a pool's leases, cached for the next one.
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

    /// Answers a request: through its handler's result while the handler runs, otherwise directly.
    fn answer(&mut self, id: RequestId, answer: Answer, turn: &mut Turn) {
        let is_arriving = |(arriving, _): &(RequestId, _)| *arriving == id;
        if turn.arriving.as_ref().is_some_and(is_arriving) {
            turn.answer = Some(answer);
        } else if let Some(request) = self.requests.remove(&id)
            && let Some(replier) = request.replier
            && let Err(Ok(lease)) = replier.send(answer)
        {
            // The caller has gone: the process was not used.
            lease.put_back();
        }
    }

    /// Returns the database of a request's functions: the part of its name that identifies a tenant.
    fn tenant_of(&self, request: &Waiting) -> Option<Arc<str>> {
        match request.want.affinity(self.settings.db_tag)?.tenant {
            Tenant::Database(db) => Some(db),
            Tenant::Databases | Tenant::User(_) | Tenant::Client(_) => None,
        }
    }

    /// Returns the database of a request's functions if any database has bounds.
    pub(super) fn bounded_tenant(&self, request: &Waiting) -> Option<Arc<str>> {
        let is_any = !self.settings.tenants.is_empty();
        is_any.then(|| self.tenant_of(request)).flatten()
    }

    /// Returns the maximum response time for a database, if it has one.
    fn prompt_bound(&self, db: Option<&str>) -> Option<PromptBound> {
        let timeout = self.settings.tenants.bound(db?, TenantBound::Timeout)?;
        Some(PromptBound {
            timeout: Duration::from_millis(timeout.into()),
            key: self.tenant_key(db?, TenantBound::Timeout),
        })
    }

    /// Returns the limit that holds a waiting request back, in the operator's terms, and until when, if known.
    fn in_the_way(&self, request: &Waiting) -> (Arc<str>, Option<Timestamp>) {
        let db = self.bounded_tenant(request);
        db.and_then(|db| {
            let tenant = Tenant::Database(Arc::clone(&db));
            let (bound, until) = self.core.held_back_by(&tenant)?;
            Some((self.tenant_key(&db, bound), until))
        })
        .unwrap_or_else(|| (self.limit_of(request.target), None))
    }

    /// Returns the configuration key that sets a tenant's bound.
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
        let label = request
            .label
            .clone()
            .unwrap_or_else(|| self.pools.label(request.target));
        let language = pool
            .map(|pool| self.pools.at(pool).language.to_string())
            .unwrap_or_else(|| label.to_string());
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
            Refusal::TenantBusy => {
                let tenant = self.tenant_of(request).unwrap_or_default();
                let rule = self.tenant_key(&tenant, TenantBound::QueueMax);
                GetProcError::TenantBusy { tenant, rule }
            }
            Refusal::PoolRemoved => GetProcError::PoolRemoved { pool: label },
            Refusal::NoPool => GetProcError::NoSuchPool(format!("there is no pool in '{label}'")),
            Refusal::Throttled { until } => GetProcError::Throttled {
                pool: label,
                // In the target's pool, or in the first pool of its group.
                reason: pool
                    .and_then(|pool| self.pools.at(pool).failure.clone())
                    .unwrap_or_else(|| Arc::from("see the log")),
                retry_in: until.since(now),
            },
            Refusal::ShuttingDown => GetProcError::ShuttingDown,
        };
        self.answer(id, Err(Box::new(error)), turn);
    }

    pub(super) fn client_down(&mut self, client: ClientId, normal: bool, ctx: &mut Context<Self>) {
        for proc in self.core.held_by(client) {
            self.charge(proc, ctx);
            self.note_evicted(proc, ctx);
        }
        let requests = self.core.requests_of(client);
        let held = self.core.held_by(client);
        held.iter().for_each(|proc| self.rest_later(*proc, ctx));
        let now = self.clock.now();
        let conditions = held
            .into_iter()
            .filter_map(|proc| {
                let shared = &self.procs.get(&proc)?.shared;
                let metrics = self.metrics_of(proc.pool);
                metrics.count().returns.one(ReturnStatus::Lost);
                let condition = shared.condition_on_loss(shared.token()?);
                shared.set(ProcFlag::TaughtByClient, false);
                shared.unassign(now);
                Some((proc, condition))
            })
            .collect();
        let down = Event::ClientDown {
            client,
            normal,
            conditions,
        };
        self.event(down, ctx);
        // After the event, which refuses requests that have timed out.
        for request in requests {
            self.requests.remove(&request);
        }
    }
}

fn count_refusal(metrics: &PoolMetrics, why: Refusal) {
    let refused = match why {
        Refusal::Timeout { phase } => return metrics.request_timed_out(phase),
        Refusal::PoolBusy => Refused::Busy,
        Refusal::TenantBusy => Refused::Tenant,
        Refusal::Throttled { .. } => Refused::Throttled,
        Refusal::PoolRemoved | Refusal::NoPool => Refused::Removed,
        Refusal::SpawnFailed | Refusal::TeachFailed | Refusal::ShuttingDown => return,
    };
    metrics.count().refusals.one(refused);
}
