//! What people are told of the pools, by the PoolReporter: starts, failures, stress, the end of a pool.
//!
//! PROMISES  No loan tells anything. The warning that all pools together are full is given here, because it comes
//!           with every event for as long as they are.

use std::sync::Arc;

use super::ProcManager;
use super::turn::Turn;
use crate::messages::pool_reporter::{PoolEvent, PoolNews};
use crate::messages::process::ProcessRef;
use crate::otp::tell::Tell;
use crate::warn_repeating;
use policy::exchange::Exchanges;
use policy::invariants::Invariant;
use policy::pool::{PoolId, PoolKind, ProcId, Reuse, Target, Warning};
use policy::time::Timestamp;

/// How much of what went wrong is kept and told, in characters.
const FAILURE_CHARACTERS: usize = 1000;

impl ProcManager {
    /// Tells what has happened in a pool.
    fn tell(&self, id: PoolId, event: PoolEvent) {
        let pool = self.pools.at(id);
        self.reporter.tell(PoolNews {
            pool: id,
            name: Arc::clone(&pool.name),
            language: pool.language.clone(),
            event,
        });
    }

    /// Tells of a process that has started.
    pub(super) fn tell_start(&self, proc: ProcId, process: &ProcessRef) {
        let started = PoolEvent::Started {
            generation: proc.number,
            os_pid: process.shared.os_pid,
        };
        self.tell(proc.pool, started);
    }

    /// Tells, after a start, if most calls start a process in place of an idle one of another database.
    pub(super) fn watch_exchanges(&mut self, id: PoolId) {
        let now = self.clock.now();
        let all = Exchanges::of(&self.core.totals(id));
        let Some(exchanges) = self.pools.at_mut(id).exchanges.look(all, now) else {
            return;
        };
        let status = self.core.status(id, now);
        let hard_limit = status.settings.limits.hard_limit;
        let is_at_limit = status.used + status.free + status.opening >= hard_limit;
        let (raise, limit) = match self.settings.processes_max {
            Some(max) if !is_at_limit => ("[server] processes_max".into(), max),
            _ => (self.limit_of(Target::Pool(id)), hard_limit),
        };
        let forgets = self
            .settings
            .terms_of(&self.pools.at(id).language)
            .can_forget;
        let share = match (status.settings.reuse, forgets) {
            (Reuse::Any, _) => "",
            (Reuse::Database, true) => {
                ", or set reuse = \"any\": its processes can forget a database"
            }
            (Reuse::Database, false) => {
                ", or use reuse = \"any\" with a language whose processes can forget a database"
            }
        };
        let event = PoolEvent::MostCallsStart {
            exchanges,
            limit,
            raise,
            share,
        };
        self.tell(id, event);
    }

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

    pub(super) fn warn(&self, warning: Warning, turn: &mut Turn) {
        let failure = |pool| self.pools.at(pool).failure.clone();
        let (pool, event) = match warning {
            Warning::Throttled { pool, until } => {
                let (failure, rest) = (failure(pool), until.since(turn.now));
                (pool, PoolEvent::Throttled { failure, rest })
            }
            Warning::EndsEarly { pool } => {
                let failure = failure(pool);
                (pool, PoolEvent::EndsEarly { failure })
            }
            Warning::Unthrottled { pool } => (pool, PoolEvent::Unthrottled),
            Warning::Unstressed { pool } => {
                turn.turned.push(pool);
                (pool, PoolEvent::Unstressed)
            }
            Warning::Stressed { pool } => {
                turn.turned.push(pool);
                let settings = self.core.settings(pool);
                let limit = settings.map_or(0, |settings| settings.limits.hard_limit);
                let raise = self.limit_of(Target::Pool(pool));
                (pool, PoolEvent::Stressed { limit, raise })
            }
            Warning::SpawnRefused { pool, why } => {
                self.metrics.invariant_violated(Invariant::Pm1);
                (pool, PoolEvent::SpawnRefused(why))
            }
        };
        self.tell(pool, event);
    }

    /// Warns if requests wait because all pools together have as many processes as may be.
    pub(super) fn warn_if_full(&mut self, now: Timestamp) {
        if !self.core.is_full() {
            return;
        }
        warn_repeating!(self.log, self.full, now, "all pools together have as many processes as may be";
            "limit" => self.settings.processes_max,
            "effect" => "idle processes make way for pools that have waiters, and requests wait longer",
            "remedy" => "raise [server] processes_max, or lower max of the pools that take most");
    }

    /// Forgets a pool that is gone.
    pub(super) fn pool_gone(&mut self, pool: PoolId) {
        self.end_watches(pool);
        self.tell(pool, PoolEvent::Gone);
        if let Some(name) = self.pools.forget(pool) {
            self.forget_cell(pool, &name);
        }
    }
}
