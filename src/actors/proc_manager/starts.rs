//! What the log tells of processes that were started: of the first ones each, then a summary a minute for each
//! pool, and a warning where most calls start one because databases take processes from each other.
//!
//! PROMISES  Under any load a pool has so many records and then one a minute. What was counted is told, at the
//!           latest when the pool is gone or the manager ends.

use actix::prelude::*;
use slog::{info, o};

use super::ProcManager;
use super::table::Pool;
use crate::actors::pool_reporter::milliseconds;
use crate::logging::{SUMMARY_PERIOD, Summary};
use crate::messages::process::ProcessRef;
use crate::warn_repeating;
use policy::exchange::{self, Exchanges};
use policy::pool::{PoolId, ProcId, Reuse, Target};
use policy::time::Timestamp;

impl ProcManager {
    /// Logs or counts a process that has started.
    pub(super) fn note_start(
        &mut self,
        proc: ProcId,
        process: &ProcessRef,
        ctx: &mut Context<Self>,
    ) {
        let now = self.clock.now();
        let pool = self.pools.at_mut(proc.pool);
        if pool.starts.admit(now) {
            let os_pid = process.shared.os_pid;
            let log = os_pid.map(|pid| self.log.new(o!("os_pid" => pid)));
            info!(log.as_ref().unwrap_or(&self.log), "query server started";
                  "generation" => proc.number, "pool" => &*pool.name,
                  "language" => pool.language.as_str());
        } else if !std::mem::replace(&mut self.sums_starts_up, true) {
            ctx.run_later(SUMMARY_PERIOD, Self::sum_starts_up);
        }
    }

    fn sum_starts_up(&mut self, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        let mut more = false;
        for pool in self.pools.iter_mut() {
            more |= pool.starts.is_counting();
            if let Some(summary) = pool.starts.summary(now) {
                tell(&self.log, pool, summary);
            }
        }
        self.sums_starts_up = more;
        if more {
            ctx.run_later(SUMMARY_PERIOD, Self::sum_starts_up);
        }
    }

    /// Tells what was counted of a pool and is not told yet.
    pub(super) fn tell_last_starts(&mut self, pool: PoolId) {
        let now = self.clock.now();
        let pool = self.pools.at_mut(pool);
        if let Some(summary) = pool.starts.rest(now) {
            tell(&self.log, pool, summary);
        }
    }

    /// Warns if most calls start a process in place of an idle one of another database.
    pub(super) fn warn_of_exchanges(&mut self, id: PoolId, now: Timestamp) {
        let all = Exchanges::of(&self.core.totals(id));
        let pool = self.pools.at_mut(id);
        let Some(exchanges) = pool.exchanges.look(all, now) else {
            return;
        };
        let status = self.core.status(id, now);
        let hard_limit = status.settings.limits.hard_limit;
        let is_at_limit = status.used + status.free + status.opening >= hard_limit;
        let (raise, limit) = match self.settings.processes_max {
            Some(max) if !is_at_limit => ("[server] processes_max".into(), max),
            _ => (self.limit_of(Target::Pool(id)), hard_limit),
        };
        let pool = self.pools.at_mut(id);
        let forgets = self.settings.terms_of(&pool.language).can_forget;
        let share = match (status.settings.reuse, forgets) {
            (Reuse::Any, _) => "",
            (Reuse::Database, true) => {
                ", or set reuse = \"any\": its processes can forget a database"
            }
            (Reuse::Database, false) => {
                ", or use reuse = \"any\" with a language whose processes can forget a database"
            }
        };
        warn_repeating!(self.log, pool.exchanges_told, now, "most calls start a query server";
            "pool" => &*pool.name,
            "calls" => exchanges.requests,
            "count" => exchanges.starts,
            "limit" => limit,
            "period_ms" => milliseconds(exchange::PERIOD),
            "because" => "more databases than processes are in use, and each start replaces an idle process \
                          of another database",
            "effect" => "calls take as long as a start, and the machine is busy with starts",
            "remedy" => format!("raise {raise}, have fewer databases in the pool{share}"));
    }
}

fn tell(log: &slog::Logger, pool: &Pool, summary: Summary) {
    info!(log, "query servers started"; "pool" => &*pool.name, "language" => pool.language.as_str(),
          "count" => summary.count, "period_ms" => milliseconds(summary.period));
}
