//! Records of finished calls: costs of functions, slow calls in the log, every call in the access log.
//!
//! SUMMARY   [`CallRecords::note`] takes each call of the socket and of HTTP once; [`CallRecords::costs`] returns the
//!           costs of functions, [`CallRecords::tenants`] those of databases, [`CallRecords::take_tally`] the number
//!           of recent calls.
//! PROMISES  At most [`SLOW_MAX`] slow calls are logged a second. Records that do not fit the log's queue are dropped
//!           and counted.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use slog::{Logger, info, warn};

use crate::ConfigWatch;
use crate::messages::client_error::ErrorReply;
use crate::messages::costs::{Costs, CostsPage, CostsQuery, TenantCostsPage, TenantCostsQuery};
use crate::metrics::function_costs::FunctionCosts;
use crate::metrics::history::CallTally;
use crate::metrics::tenant_costs::TenantCosts;
use crate::otp::Clock;
use crate::query_server::call::FinishedCall;
use crate::query_server::reduce::OverflowLog;
use crate::query_server::tenant_logs::TenantLogs;
use policy::time::Timestamp;

/// Maximum slow calls logged a second.
const SLOW_MAX: u32 = 10;

/// Records of all calls that run on the pool's arbiter.
pub(crate) struct CallRecords {
    /// The log of built-in sums that overflow.
    pub sums: Arc<OverflowLog>,
    /// The logs of each database's functions.
    pub tenant_logs: Arc<TenantLogs>,
    costs: RefCell<FunctionCosts>,
    tenants: RefCell<TenantCosts>,
    tally: RefCell<CallTally>,
    slow: RefCell<SlowCalls>,
    clock: Clock,
    config: ConfigWatch,
    log: Logger,
    /// The log of every call, if enabled.
    access: Option<Logger>,
}

/// Slow calls within a second.
struct SlowCalls {
    since: Timestamp,
    told: u32,
    suppressed: u32,
}

impl CallRecords {
    pub fn new(
        config: ConfigWatch,
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

    /// Records a finished call.
    pub fn note(&self, finished: &FinishedCall, error: Option<&ErrorReply>) {
        let (call, cost) = (&finished.call, &finished.cost);
        let now = self.clock.now();
        // A call ended by its closed connection was not necessarily at fault.
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

    /// Returns the number of calls since the previous query.
    pub fn take_tally(&self) -> CallTally {
        self.tally.take()
    }

    /// Returns the most expensive functions of a recent period.
    pub fn costs(&self, query: CostsQuery) -> CostsPage {
        self.costs.borrow_mut().page(query, self.clock.now())
    }

    /// Returns the costs of databases that a query selects.
    pub fn tenants(&self, query: &TenantCostsQuery) -> TenantCostsPage {
        self.tenants.borrow().page(query)
    }

    /// Returns the costs of all databases, for saving.
    pub fn tenant_costs(&self) -> TenantCosts {
        self.tenants.borrow().clone()
    }
}

impl SlowCalls {
    /// Returns the number of calls suppressed before this one; `None` if this one must not be logged.
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
    fn slow_calls_beyond_the_maximum_are_counted_in_the_next_record() {
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
