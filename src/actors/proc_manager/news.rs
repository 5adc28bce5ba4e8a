//! Log records about pools: process starts, the first ones individually, later ones as a summary per minute and pool;
//! failing starts, stress, too few processes for the databases; the end of a pool.
//!
//! PROMISES  Under any load a pool has a bounded number of start records, and then one a minute; a loan logs nothing.
//!           Counted starts are logged, at the latest when the pool is gone or the manager has stopped. Every warning
//!           has a remedy; that of a failed start also has the command, how it ended and its last output. Repeated
//!           warnings of stress, of too few processes and of early ends are logged once in 1000 seconds for each pool.
//! SOURCE    Postfix master: master_spawn.c and master_avail.c log the same on the same occasions.

use actix::prelude::*;
use slog::{Logger, info, o, warn};

use super::table::Pool;
use super::{ProcManager, milliseconds};
use crate::logging::{BurstLimiter, RepeatLimiter, SUMMARY_PERIOD, Summary};
use crate::query_server::prompt_error::shorten;
use crate::warn_repeating;
use policy::exchange::{self, ExchangeWatch, Exchanges};
use policy::invariants::Invariant;
use policy::pool::{PoolId, ProcId, Reuse, Target, Warning};
use policy::time::Timestamp;

/// Limits a pool's log records.
#[derive(Default)]
pub(super) struct Told {
    /// Tracks whether its databases take processes from each other.
    watch: ExchangeWatch,
    /// Start records.
    starts: BurstLimiter,
    /// Warnings that its databases take processes from each other.
    exchanges: RepeatLimiter,
    /// Warnings that it is under stress.
    stressed: RepeatLimiter,
    /// Warnings that its query servers end early.
    ends_early: RepeatLimiter,
}

impl Pool {
    /// Logs the remaining counted starts.
    fn tell_last_starts(&mut self, now: Timestamp, log: &Logger) {
        if let Some(summary) = self.told.starts.rest(now) {
            self.tell_starts(summary, log);
        }
    }

    fn tell_starts(&self, summary: Summary, log: &Logger) {
        info!(log, "query servers started"; "pool" => &*self.name, "language" => self.language.as_str(),
              "count" => summary.count, "period_ms" => milliseconds(summary.period));
    }
}

impl ProcManager {
    /// Logs a started process, or counts it for the next summary.
    pub(super) fn tell_start(
        &mut self,
        proc: ProcId,
        os_pid: Option<u32>,
        ctx: &mut Context<Self>,
    ) {
        let now = self.clock.now();
        let pool = self.pools.at_mut(proc.pool);
        if pool.told.starts.admit(now) {
            let of_child = os_pid.map(|pid| self.log.new(o!("os_pid" => pid)));
            info!(of_child.as_ref().unwrap_or(&self.log), "query server started";
                  "generation" => proc.number, "pool" => &*pool.name,
                  "language" => pool.language.as_str());
        }
        if pool.told.starts.is_counting() && !std::mem::replace(&mut self.sums_starts_up, true) {
            ctx.run_later(SUMMARY_PERIOD, Self::sum_starts_up);
        }
    }

    fn sum_starts_up(&mut self, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        let mut more = false;
        for pool in self.pools.iter_mut() {
            more |= pool.told.starts.is_counting();
            if let Some(summary) = pool.told.starts.summary(now) {
                pool.tell_starts(summary, &self.log);
            }
        }
        self.sums_starts_up = more;
        if more {
            ctx.run_later(SUMMARY_PERIOD, Self::sum_starts_up);
        }
    }

    /// Logs the remaining counted starts of all pools.
    pub(super) fn tell_last_starts(&mut self) {
        let now = self.clock.now();
        for pool in self.pools.iter_mut() {
            pool.tell_last_starts(now, &self.log);
        }
    }

    /// Warns, after a start, if most calls start a process and evict an idle one of another database.
    pub(super) fn watch_exchanges(&mut self, id: PoolId) {
        let now = self.clock.now();
        let all = Exchanges::of(&self.core.totals(id));
        let Some(exchanges) = self.pools.at_mut(id).told.watch.look(all, now) else {
            return;
        };
        let status = self.core.status(id, now);
        let hard_limit = status.settings.limits.hard_limit;
        let is_at_limit = status.used + status.free + status.opening >= hard_limit;
        let (raise, limit) = match self.settings.processes_max {
            Some(max) if !is_at_limit => ("[server] processes_max".into(), max),
            _ => (self.limit_of(Target::Pool(id)), hard_limit),
        };
        let language = &self.pools.at(id).language;
        let forgets = self.settings.terms_of(language).can_forget;
        let share = match (status.settings.reuse, forgets) {
            (Reuse::Any | Reuse::Isolates, _) => "",
            (Reuse::Database, true) => {
                ", or set reuse = \"any\": its processes can forget a database"
            }
            (Reuse::Database, false) => {
                ", or use reuse = \"any\" with a language whose processes can forget a database"
            }
        };
        let pool = self.pools.at_mut(id);
        warn_repeating!(self.log, pool.told.exchanges, "most calls start a query server";
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

    /// Logs a warning of the core.
    pub(super) fn warn(&mut self, id: PoolId, warning: Warning, now: Timestamp) {
        let raise = self.limit_of(Target::Pool(id));
        let settings = self.core.settings(id);
        let limit = settings.map_or(0, |settings| settings.limits.hard_limit);
        let (log, pool) = (&self.log, self.pools.at_mut(id));
        let (name, language) = (&*pool.name, pool.language.as_str());
        let failure = pool.failure.as_deref().unwrap_or_default();
        match warning {
            Warning::Throttled { until } => {
                let remedy = format!(
                    "correct the command in [query_servers] and reload, or run `settee pool \
                     unthrottle {name}`"
                );
                warn!(log, "a query server fails to start, none is started for a while";
                      "pool" => name,
                      "language" => language,
                      "error" => failure,
                      "timeout_ms" => milliseconds(until.since(now)),
                      "effect" => "requests that no other process can serve are refused at once",
                      "remedy" => remedy);
            }
            Warning::EndsEarly => {
                warn_repeating!(log, pool.told.ends_early, "query servers end before they have done anything";
                    "pool" => name,
                    "language" => language,
                    "error" => failure,
                    "effect" => "each request starts another one, and fails",
                    "remedy" => "correct the command in [query_servers] and reload; `settee conform` tries it");
            }
            Warning::Unthrottled => info!(log, "query servers are started again"; "pool" => name),
            Warning::Unstressed => info!(log, "pool is no longer under stress"; "pool" => name),
            Warning::Stressed => {
                warn_repeating!(log, pool.told.stressed, "pool is under stress";
                    "pool" => name,
                    "limit" => limit,
                    "effect" => "processes start with stress on until 1000 s after the pool \
                                 was last at its limit",
                    "remedy" => format!("raise {raise}, or shorten the time a client holds a process"));
            }
            Warning::SpawnRefused(why) => {
                self.metrics.invariant_violated(Invariant::Pm1);
                warn!(log, "a process was not started: that would break the admission rules";
                      "pool" => name,
                      "error" => shorten(&why.to_string()),
                      "remedy" => "please report this");
            }
        }
    }

    /// Warns if requests wait because the maximum of processes over all pools is reached.
    pub(super) fn warn_if_full(&mut self) {
        if !self.core.is_full() {
            return;
        }
        warn_repeating!(self.log, self.full, "maximum number of processes of all pools reached";
            "limit" => self.settings.processes_max,
            "effect" => "idle processes make way for pools that have waiters, and requests wait longer",
            "remedy" => "raise [server] processes_max, or lower max of the pools that take most");
    }

    /// Removes a pool that is gone.
    pub(super) fn pool_gone(&mut self, id: PoolId) {
        self.watchers.remove(&id);
        let now = self.clock.now();
        let pool = self.pools.at_mut(id);
        pool.tell_last_starts(now, &self.log);
        info!(self.log, "pool is gone"; "pool" => &*pool.name);
        self.pools.forget(id);
    }
}
