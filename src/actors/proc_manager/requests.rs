//! Requests that are not answered yet, and their answers: a lease, or why there is none.
//!
//! PROMISES  Every request is answered once. An answer that is there before its handler returns needs
//!           no row of its own.
//! SOURCE    couch_proc_manager 001: the client records, and the replies to get_proc.

use std::sync::Arc;

use super::ProcManager;
use crate::actors::deferred::Replier;
use crate::messages::opener::StartError;
use crate::messages::proc_manager::{GetProcError, HelpError, Lease, Want};
use crate::messages::process::{Fault, PromptError};
use crate::metrics::Refused;
use crate::policy::pool::{ClientId, ProcId, Refusal, RequestId, Target, Token};
use crate::policy::time::Timestamp;

/// What the actor keeps of a request that is not answered yet.
pub(super) struct Request {
    /// None while its call is being handled: then the answer is the handler's result.
    pub(super) replier: Option<Replier<Result<Lease, GetProcError>>>,
    pub(super) client: ClientId,
    pub(super) want: Want,
    /// The pools that may serve it.
    pub(super) target: Target,
    /// What they are called: a pool's name, or a group's.
    pub(super) label: Arc<str>,
    pub(super) asked: Timestamp,
}

/// Why a process could not be opened, taught or reset.
#[derive(Clone)]
pub(super) struct Cause {
    pub(super) reason: String,
    pub(super) fault: Fault,
    /// How the process failed, if that is what happened.
    pub(super) error: Option<PromptError>,
}

impl From<StartError> for Cause {
    fn from(error: StartError) -> Self {
        Self {
            reason: error.reason,
            fault: error.fault,
            error: None,
        }
    }
}

impl From<HelpError> for Cause {
    fn from(error: HelpError) -> Self {
        Self {
            reason: error.reason,
            fault: Fault::QueryServer,
            error: error.error,
        }
    }
}

impl ProcManager {
    pub(super) fn request(&self, id: RequestId) -> Option<&Request> {
        match &self.arriving {
            Some((arriving, request)) if *arriving == id => Some(request),
            _ => self.requests.get(&id),
        }
    }

    pub(super) fn take_request(&mut self, id: RequestId) -> Option<Request> {
        match self.arriving.take_if(|(arriving, _)| *arriving == id) {
            Some((_, request)) => Some(request),
            None => self.requests.remove(&id),
        }
    }

    pub(super) fn assign(&mut self, id: RequestId, proc: ProcId, token: Token, now: Timestamp) {
        let request = self
            .take_request(id)
            .expect("PM-4: an open request has a caller");
        let waited = now.since(request.asked);
        self.metrics_of(proc.pool).acquired(waited);
        let process = self
            .procs
            .get(&proc)
            .expect("PM-2: an assigned process is known")
            .clone();
        process.shared.assign(token);
        let pool = self.pools.at(proc.pool);
        let lease = Lease {
            proc,
            token,
            pool: Arc::clone(&pool.name),
            language: pool.language.clone(),
            config: Arc::clone(&self.settings.reset_config),
            process,
            client: request.client,
            manager: self.returns.clone(),
        };
        // A caller that is gone gives the lease back by dropping it.
        self.answer(request.replier, Ok(lease));
    }

    pub(super) fn answer(
        &mut self,
        replier: Option<Replier<Result<Lease, GetProcError>>>,
        answer: Result<Lease, GetProcError>,
    ) {
        match replier {
            Some(replier) => drop(replier.send(answer)),
            None => self.immediate = Some(answer),
        }
    }

    pub(super) fn refuse(&mut self, id: RequestId, why: Refusal, now: Timestamp) {
        let request = self
            .take_request(id)
            .expect("PM-4: an open request has a caller");
        let pool = self.pools.of_target(request.target);
        let language = pool.map(|pool| self.pools.at(pool).language.to_string());
        let language = language.unwrap_or_else(|| request.label.to_string());
        let label = Arc::clone(&request.label);
        let cause = self.cause.clone().unwrap_or_else(|| Cause {
            reason: "the query server ended".into(),
            fault: Fault::QueryServer,
            error: None,
        });
        let refused = match why {
            Refusal::PoolBusy => Some(Refused::Busy),
            Refusal::Throttled { .. } => Some(Refused::Throttled),
            Refusal::PoolRemoved | Refusal::NoPool => Some(Refused::Removed),
            _ => None,
        };
        if let Some((pool, why)) = pool.zip(refused) {
            self.metrics_of(pool).refused(why);
        }
        let error = match why {
            Refusal::Timeout { phase } => {
                if let Some(pool) = pool {
                    self.metrics_of(pool).request_timed_out(phase);
                }
                GetProcError::Timeout {
                    phase,
                    waited: now.since(request.asked),
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
            Refusal::PoolRemoved => GetProcError::PoolRemoved { pool: label },
            Refusal::NoPool => GetProcError::NoSuchPool(format!("there is no pool in '{label}'")),
            Refusal::Throttled { until } => GetProcError::Throttled {
                pool: label,
                reason: self.failure_of(request.target),
                retry_in: until.since(now),
            },
            Refusal::ShuttingDown => GetProcError::ShuttingDown,
        };
        self.answer(request.replier, Err(error));
    }
}
