//! The settings of a pool that are in force: what its section says, with stress or without, and no
//! higher limit than the machine bears.
//!
//! SUMMARY   [`ProcManager::settings_in_force`] says what they are now; what changes them beside an
//!           operator is noted in the turn in which it happens, and followed at its end.
//! PROMISES  A limit that goes down costs nobody a process that is held: what is too much goes when it
//!           comes back.
//! SOURCE    Postfix master: stress-adaptive settings, `${stress?{10}:{300}}`; for the limits see
//!           [`policy::pressure`].

use std::sync::Arc;

use actix::prelude::*;
use slog::info;

use super::ProcManager;
use crate::config::PoolConfig;
use crate::messages::pools::SetLevel;
use crate::query_server::language::LanguageName;
use policy::pool::{Event, Limits, PoolId, PoolKind, PoolSettings};

impl ProcManager {
    /// Returns what the core is to be told of a pool with this section as things are now.
    pub(super) fn settings_in_force(&mut self, pool: PoolId, section: &PoolConfig) -> PoolSettings {
        let stressed = self.core.is_stressed(pool);
        let known = self.pools.at(pool);
        let (kind, language) = (known.kind, known.language.clone());
        let asked = self.settings.service_terms.get(&*known.name);
        let told = asked.map(|asked| asked.applied_to(section.clone()));
        let section = told.as_ref().unwrap_or(section);
        self.settings_of(section, kind, &language, stressed)
    }

    /// Returns what the core is to be told of a pool, with the limit that is in force: never so low that the other
    /// settings do not fit.
    pub(super) fn settings_of(
        &mut self,
        section: &PoolConfig,
        kind: PoolKind,
        language: &LanguageName,
        stressed: bool,
    ) -> PoolSettings {
        let terms = self.settings.terms_of(language);
        let settings = self
            .pools
            .settings(section, (kind, language), terms, stressed);
        let Limits {
            soft_limit,
            hard_limit,
            ..
        } = settings.limits;
        let reserved = settings.interactive_reserved;
        let reserved = reserved + u32::from(reserved > 0);
        let least = settings.init_size.max(settings.min_free).max(reserved);
        let limit = self.level.limit(soft_limit, hard_limit);
        let hard_limit = limit.max(least).min(hard_limit);
        PoolSettings {
            limits: Limits {
                hard_limit,
                soft_limit: soft_limit.min(hard_limit),
                ..settings.limits
            },
            ..settings
        }
    }

    /// Returns what brings a pool in line with what is in force now, if it is not that already: stress, new
    /// limits, what services ask of it.
    pub(super) fn changes_of(&mut self, pool: PoolId) -> Option<Event> {
        if !self.core.is_open(pool) {
            return None;
        }
        let section = Arc::clone(&self.pools.at(pool).section);
        let settings = self.settings_in_force(pool, &section);
        let changed = self.core.settings(pool) != Some(&settings);
        changed.then(|| Event::Reconfigure {
            pool,
            settings: Box::new(settings),
        })
    }

    /// Tells the core what is in force, if it is not that already.
    pub(super) fn refresh(&mut self, pool: PoolId, ctx: &mut Context<Self>) {
        if let Some(changes) = self.changes_of(pool) {
            self.event(changes, ctx);
        }
    }
}

/// The machine bears more, or less. Each limit that moves is told with why it does.
impl Handler<SetLevel> for ProcManager {
    type Result = ();

    fn handle(&mut self, msg: SetLevel, ctx: &mut Self::Context) {
        if std::mem::replace(&mut self.level, msg.level) == msg.level {
            return;
        }
        for pool in self.pools.ids() {
            let limit = |manager: &Self| manager.core.settings(pool).map(|s| s.limits.hard_limit);
            let from = limit(self);
            self.refresh(pool, ctx);
            let to = limit(self);
            if from != to {
                info!(self.log, "process limit moved";
                      "pool" => &*self.pools.at(pool).name,
                      "from" => from, "to" => to, "because" => &msg.because);
            }
        }
    }
}
