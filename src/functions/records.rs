//! What is kept of calls that are over: what functions cost, slow calls in the log, every call in the access log.
//!
//! SUMMARY   [`CallRecords::note`] takes each call of the socket and of HTTP once; [`CallRecords::costs`] returns what
//!           functions cost, [`CallRecords::tenants`] what databases have cost, [`CallRecords::take_tally`] how many
//!           calls there were lately.
//! PROMISES  At most [`SLOW_MAX`] slow calls are logged a second. What the log cannot take is dropped and counted.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use slog::{Logger, info, warn};
use tokio::sync::watch;

use crate::config::Config;
use crate::messages::client_error::ErrorReply;
use crate::messages::function_costs::{CostsPage, CostsQuery};
use crate::messages::tenant_costs::{Costs, TenantCostsPage, TenantCostsQuery};
use crate::metrics::function_costs::FunctionCosts;
use crate::metrics::history::CallTally;
use crate::metrics::tenant_costs::TenantCosts;
use crate::otp::clock::Clock;
use crate::query_server::call::FinishedCall;
use crate::query_server::reduce::OverflowLog;
use crate::query_server::tenant_logs::TenantLogs;
use policy::time::Timestamp;

/// How many slow calls are logged in a second.
const SLOW_MAX: u32 = 10;

/// What is kept of calls, for all that run on the pool's arbiter.
pub(crate) struct CallRecords {
    /// Where built-in sums that are too long are logged.
    pub(crate) sums: Arc<OverflowLog>,
    /// What functions of each database log.
    pub(crate) tenant_logs: Arc<TenantLogs>,
    costs: RefCell<FunctionCosts>,
    tenants: RefCell<TenantCosts>,
    tally: RefCell<CallTally>,
    slow: RefCell<SlowCalls>,
    clock: Clock,
    config: watch::Receiver<Arc<Config>>,
    log: Logger,
    /// Where every call is logged, if anywhere.
    access: Option<Logger>,
}

/// The slow calls of a second.
struct SlowCalls {
    since: Timestamp,
    told: u32,
    suppressed: u32,
}

impl CallRecords {
    pub(crate) fn new(
        config: watch::Receiver<Arc<Config>>,
        log: Logger,
        access: Option<Logger>,
        tenants: TenantCosts,
    ) -> Self {
        let clock = Clock::new();
        Self {
            sums: Arc::new(OverflowLog::new(log.clone())),
            tenant_logs: TenantLogs::new(),
            costs: RefCell::new(FunctionCosts::new(clock.now())),
            tenants: RefCell::new(tenants),
            tally: RefCell::default(),
            slow: RefCell::new(SlowCalls {
                since: clock.now(),
                told: 0,
                suppressed: 0,
            }),
            clock,
            config,
            log,
            access,
        }
    }

    /// Takes a call that is over.
    pub(crate) fn note(&self, finished: &FinishedCall, error: Option<&ErrorReply>) {
        let (call, cost) = (&finished.call, &finished.cost);
        let now = self.clock.now();
        // What a call was at whose connection was closed is nobody's doing.
        let has_killed = error.is_some_and(|error| {
            !error.is_disconnected() && (finished.has_ended_process || error.ended_its_process())
        });
        let spent = Costs {
            calls: 1,
            errors: error.is_some().into(),
            kills: has_killed.into(),
            wait_us: cost.wait_us + cost.teach_us,
            run_us: cost.run_us,
            cpu_us: cost.cpu_us.unwrap_or_default(),
            bytes: finished.bytes(),
        };
        self.costs.borrow_mut().note(&call.subject, spent, now);
        let db = call.subject.db.as_ref();
        self.tenants.borrow_mut().note(db, spent);
        self.tally
            .borrow_mut()
            .note(finished.pool.as_ref(), error.is_some());
        let name = error.map(|error| &*error.name);
        if let Some(access) = &self.access {
            info!(call.log(access), "function call"; finished, "error" => name);
        }
        let limit = self.config.borrow().log.slow_log_timeout;
        if limit.is_zero() || Duration::from_micros(spent.wait_us + spent.run_us) < limit {
            return;
        }
        if let Some(suppressed) = self.slow.borrow_mut().admit(now) {
            warn!(call.log(&self.log), "function call was slow"; finished,
                "error" => name, "suppressed" => suppressed);
        }
    }

    /// Returns how many calls there were since this was asked last.
    pub(crate) fn take_tally(&self) -> CallTally {
        self.tally.take()
    }

    /// Returns the functions that cost most in a period until now.
    pub(crate) fn costs(&self, query: CostsQuery) -> CostsPage {
        self.costs.borrow_mut().page(query, self.clock.now())
    }

    /// Returns what databases have cost, as it is asked for.
    pub(crate) fn tenants(&self, query: &TenantCostsQuery) -> TenantCostsPage {
        self.tenants.borrow().page(query)
    }

    /// Returns what all databases have cost, to be kept.
    pub(crate) fn tenant_costs(&self) -> TenantCosts {
        self.tenants.borrow().clone()
    }
}

impl SlowCalls {
    /// Returns how many were left out before one that may be logged.
    fn admit(&mut self, now: Timestamp) -> Option<u32> {
        if now.since(self.since) >= Duration::from_secs(1) {
            (self.since, self.told) = (now, 0);
        }
        if self.told == SLOW_MAX {
            self.suppressed += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_calls_beyond_the_bound_are_counted_and_told_with_the_next() {
        let begun = Timestamp::ZERO;
        let mut slow = SlowCalls {
            since: begun,
            told: 0,
            suppressed: 0,
        };
        let told = (0..SLOW_MAX + 3).filter(|_| slow.admit(begun).is_some());
        assert_eq!(told.count() as u32, SLOW_MAX);
        assert_eq!(slow.admit(begun + Duration::from_secs(1)), Some(3));
        assert_eq!(slow.admit(begun + Duration::from_secs(1)), Some(0));
    }
}
