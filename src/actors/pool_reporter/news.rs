//! Log records about pools: process starts, the first ones individually, later ones as a summary per minute and pool;
//! failing starts, stress, too few processes for the databases; the end of a pool.
//!
//! PROMISES  Under any load a pool has a bounded number of start records, and then one a minute. Counted starts are
//!           logged, at the latest when the pool is gone or the manager ends. Every warning has a remedy; that
//!           of a failed start also has the command, how it ended and its last output. Repeated warnings of stress, of
//!           too few processes and of early ends are logged once in 1000 seconds for each pool.
//! SOURCE    Postfix master: master_spawn.c and master_avail.c log the same on the same occasions.

use std::sync::Arc;

use actix::prelude::*;
use slog::{Logger, info, o, warn};

use super::{PoolReporter, milliseconds};
use crate::logging::{BurstLimiter, RepeatLimiter, SUMMARY_PERIOD, Summary};
use crate::messages::pool_reporter::{PoolEvent, PoolNews};
use crate::query_server::language::LanguageName;
use crate::query_server::prompt_error::shorten;
use crate::warn_repeating;
use policy::exchange;
use policy::time::Timestamp;

/// A pool, and the state of its log records.
pub(super) struct Told {
    name: Arc<str>,
    language: LanguageName,
    /// Limits start records.
    starts: BurstLimiter,
    /// Limits warnings that its databases take processes from each other.
    exchanges: RepeatLimiter,
    /// Limits warnings that it is under stress.
    stressed: RepeatLimiter,
    /// Limits warnings that its query servers end early.
    ends_early: RepeatLimiter,
}

impl Told {
    fn new(name: Arc<str>, language: LanguageName) -> Self {
        Self {
            name,
            language,
            starts: BurstLimiter::default(),
            exchanges: RepeatLimiter::default(),
            stressed: RepeatLimiter::default(),
            ends_early: RepeatLimiter::default(),
        }
    }

    /// Logs the remaining counted starts.
    fn tell_last_starts(&mut self, now: Timestamp, log: &Logger) {
        if let Some(summary) = self.starts.rest(now) {
            self.tell_starts(summary, log);
        }
    }

    fn tell_starts(&self, summary: Summary, log: &Logger) {
        info!(log, "query servers started"; "pool" => &*self.name, "language" => self.language.as_str(),
              "count" => summary.count, "period_ms" => milliseconds(summary.period));
    }

    /// Logs or counts a started process.
    fn started(&mut self, generation: u64, os_pid: Option<u32>, now: Timestamp, log: &Logger) {
        if self.starts.admit(now) {
            let of_child = os_pid.map(|pid| log.new(o!("os_pid" => pid)));
            info!(of_child.as_ref().unwrap_or(log), "query server started";
                  "generation" => generation, "pool" => &*self.name,
                  "language" => self.language.as_str());
        }
    }

    fn tell(&mut self, event: PoolEvent, now: Timestamp, log: &Logger) {
        let name = &*self.name;
        match event {
            PoolEvent::Started { generation, os_pid } => self.started(generation, os_pid, now, log),
            PoolEvent::MostCallsStart {
                exchanges,
                limit,
                raise,
                share,
            } => warn_repeating!(log, self.exchanges, now, "most calls start a query server";
                "pool" => name,
                "calls" => exchanges.requests,
                "count" => exchanges.starts,
                "limit" => limit,
                "period_ms" => milliseconds(exchange::PERIOD),
                "because" => "more databases than processes are in use, and each start replaces an idle process \
                              of another database",
                "effect" => "calls take as long as a start, and the machine is busy with starts",
                "remedy" => format!("raise {raise}, have fewer databases in the pool{share}")),
            PoolEvent::Throttled { failure, rest } => {
                let remedy = format!(
                    "correct the command in [query_servers] and reload, or run `settee pool \
                     unthrottle {name}`"
                );
                warn!(log, "a query server fails to start, none is started for a while";
                      "pool" => name,
                      "language" => self.language.as_str(),
                      "error" => failure.as_deref().unwrap_or_default(),
                      "timeout_ms" => milliseconds(rest),
                      "effect" => "requests that no other process can serve are refused at once",
                      "remedy" => remedy);
            }
            PoolEvent::EndsEarly { failure } => {
                warn_repeating!(log, self.ends_early, now, "query servers end before they have done anything";
                      "pool" => name,
                      "language" => self.language.as_str(),
                      "error" => failure.as_deref().unwrap_or_default(),
                      "effect" => "each request starts another one, and fails",
                      "remedy" => "correct the command in [query_servers] and reload; `settee conform` tries it");
            }
            PoolEvent::Unthrottled => info!(log, "query servers are started again"; "pool" => name),
            PoolEvent::Unstressed => info!(log, "pool is no longer under stress"; "pool" => name),
            PoolEvent::Stressed { limit, raise } => {
                let remedy = format!("raise {raise}, or shorten the time a client holds a process");
                warn_repeating!(log, self.stressed, now, "pool is under stress";
                    "pool" => name,
                    "limit" => limit,
                    "effect" => "processes start with stress on until 1000 s after the pool \
                                 was last at its limit",
                    "remedy" => remedy);
            }
            PoolEvent::SpawnRefused(why) => {
                warn!(log, "a process was not started: that would break the admission rules";
                      "pool" => name,
                      "error" => shorten(&why.to_string()),
                      "remedy" => "please report this");
            }
            PoolEvent::Gone => {
                self.tell_last_starts(now, log);
                info!(log, "pool is gone"; "pool" => &*self.name);
            }
        }
    }
}

impl PoolReporter {
    fn sum_starts_up(&mut self, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        let mut more = false;
        for pool in self.pools.values_mut() {
            more |= pool.starts.is_counting();
            if let Some(summary) = pool.starts.summary(now) {
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
        let mut pools: Vec<_> = self.pools.iter_mut().collect();
        pools.sort_unstable_by_key(|(id, _)| **id);
        pools
            .into_iter()
            .for_each(|(_, pool)| pool.tell_last_starts(now, &self.log));
    }
}

impl Handler<PoolNews> for PoolReporter {
    type Result = ();

    fn handle(&mut self, msg: PoolNews, ctx: &mut Self::Context) {
        let PoolNews {
            pool: id,
            name,
            language,
            event,
        } = msg;
        let now = self.clock.now();
        let is_gone = matches!(event, PoolEvent::Gone);
        let pool = self
            .pools
            .entry(id)
            .or_insert_with(|| Told::new(name, language));
        pool.tell(event, now, &self.log);
        if pool.starts.is_counting() && !std::mem::replace(&mut self.sums_starts_up, true) {
            ctx.run_later(SUMMARY_PERIOD, Self::sum_starts_up);
        }
        if is_gone {
            self.pools.remove(&id);
        }
    }
}
