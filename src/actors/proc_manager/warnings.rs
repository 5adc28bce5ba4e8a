//! What the operator is told of a pool: failing starts, stress, the end of a pool.
//!
//! PROMISES  A warning names the command, how it ended, its last words, what it means for clients
//!           and what to do. One that repeats is given once in 1000 seconds for each pool.
//! SOURCE    Postfix master: master_spawn.c and master_avail.c say the same on the same occasions.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use slog::{info, warn};

use super::ProcManager;
use crate::logging::RepeatLimiter;
use crate::query_server::prompt_error::shorten;
use crate::warn_repeating;
use policy::invariants::Invariant;
use policy::pool::{PoolId, PoolKind, Target, Warning};
use policy::time::Timestamp;

/// When a warning of a pool was last given.
#[derive(Default)]
pub(super) struct Repeats {
    stressed: FxHashMap<PoolId, RepeatLimiter>,
    ends_early: FxHashMap<PoolId, RepeatLimiter>,
    full: RepeatLimiter,
}

/// How much of what went wrong is kept and told, in characters.
const FAILURE_CHARACTERS: usize = 1000;

impl ProcManager {
    /// Keeps how a process failed, for those who are refused over it later.
    pub(super) fn note_failure(&mut self, pool: PoolId, how: &str) {
        let pool = self.pools.at_mut(pool);
        let text = format!("{}: {how}", pool.command);
        let text: String = text.chars().take(FAILURE_CHARACTERS).collect();
        pool.failure = Some(Arc::from(text));
    }

    /// Returns how starts failed in the pools that a request could have been served by.
    pub(super) fn failure_of(&self, target: Target) -> Arc<str> {
        let pool = self.pools.of_target(target);
        let failure = pool.and_then(|pool| self.pools.at(pool).failure.clone());
        failure.unwrap_or_else(|| Arc::from("its log tells how"))
    }

    /// Returns which limit is in the way of more processes, as an operator finds it.
    pub(super) fn limit_of(&self, target: Target) -> Arc<str> {
        let label = self.pools.label(target);
        if let Target::Group(_) = target {
            return format!("max of a pool of the group '{label}'").into();
        }
        let pool = self.pools.of_target(target).map(|id| self.pools.at(id));
        match pool {
            Some(pool) if pool.kind == PoolKind::Language && pool.section.max.is_none() => {
                Arc::from("os_process_limit")
            }
            _ => format!("max of the pool '{label}'").into(),
        }
    }

    pub(super) fn warn(&mut self, warning: Warning, now: Timestamp) {
        match warning {
            Warning::Throttled { pool, until } => {
                let pool = self.pools.at(pool);
                let remedy = format!(
                    "correct the command in [query_servers] and reload, or run `settee pool \
                     unthrottle {}`",
                    pool.name
                );
                warn!(self.log, "a query server fails to start, none is started for a while";
                      "pool" => &*pool.name,
                      "language" => pool.language.as_str(),
                      "error" => pool.failure.as_deref().unwrap_or_default(),
                      "timeout_ms" => u64::try_from(until.since(now).as_millis()).unwrap_or(u64::MAX),
                      "effect" => "requests that no other process can serve are refused at once",
                      "remedy" => remedy);
            }
            Warning::EndsEarly { pool } => {
                let limiter = self.repeats.ends_early.entry(pool).or_default();
                let pool = self.pools.at(pool);
                warn_repeating!(self.log, limiter, now, "query servers end before they have done anything";
                      "pool" => &*pool.name,
                      "language" => pool.language.as_str(),
                      "error" => pool.failure.as_deref().unwrap_or_default(),
                      "effect" => "each request starts another one, and fails",
                      "remedy" => "correct the command in [query_servers] and reload; `settee conform` tries it");
            }
            Warning::Unthrottled { pool } => {
                let pool = self.pools.at(pool);
                info!(self.log, "query servers are started again"; "pool" => &*pool.name);
            }
            Warning::Unstressed { pool } => {
                self.turned.push(pool);
                let pool = self.pools.at(pool);
                info!(self.log, "pool is no more under stress"; "pool" => &*pool.name);
            }
            Warning::Stressed { pool } => {
                self.turned.push(pool);
                let limit = self.core.settings(pool);
                let limit = limit.map_or(0, |settings| settings.limits.hard_limit);
                let raise = self.limit_of(Target::Pool(pool));
                let remedy = format!("raise {raise}, or shorten the time a client holds a process");
                let limiter = self.repeats.stressed.entry(pool).or_default();
                let name = &*self.pools.at(pool).name;
                warn_repeating!(self.log, limiter, now, "pool is under stress";
                    "pool" => name,
                    "limit" => limit,
                    "effect" => "processes are started with stress on until 1000 seconds after the \
                                 last time at the limit",
                    "remedy" => remedy);
            }
            Warning::SpawnRefused { pool, why } => {
                self.metrics.invariant_violated(Invariant::Pm1);
                let pool = self.pools.at(pool);
                warn!(self.log, "an opening was against the rules of admission";
                      "pool" => &*pool.name,
                      "error" => shorten(&why.to_string()),
                      "remedy" => "please report this");
            }
        }
    }

    /// Warns if requests wait because all pools together have as many processes as may be.
    pub(super) fn warn_if_full(&mut self, now: Timestamp) {
        if !self.core.is_full() {
            return;
        }
        let limiter = &mut self.repeats.full;
        warn_repeating!(self.log, limiter, now, "all pools together have as many processes as may be";
            "limit" => self.settings.processes_max,
            "effect" => "idle processes make way for pools that have waiters, and requests wait longer",
            "remedy" => "raise [server] processes_max, or lower max of the pools that take most");
    }

    /// Forgets a pool that is gone.
    pub(super) fn pool_gone(&mut self, pool: PoolId) {
        self.end_watches(pool);
        self.repeats.stressed.remove(&pool);
        self.repeats.ends_early.remove(&pool);
        self.tell_last_starts(pool);
        if let Some(name) = self.pools.forget(pool) {
            self.forget_cell(pool, &name);
            info!(self.log, "pool is gone"; "pool" => &*name);
        }
    }
}
