//! Pools that an operator adds, changes and removes while the service runs.
//!
//! PROMISES  A change is checked whole and made whole or not at all; what changed is the answer. What an operator changed stays until the configuration says something else of
//!           the same pool, or the service is restarted.
//! SOURCE    pidq: add_pool, remove_pool; pooler: reconfiguration as a list of changes.

use std::sync::Arc;

use actix::prelude::*;
use serde_json::{Map, Value};

use super::ProcManager;
use crate::config::{NAME_RULE, PoolConfig, above_ceiling, is_name, language_name};
use crate::messages::pools::{
    AddPool, PoolChange, PoolError, ReconfigurePool, RemovePool, TerminateStaleOf, UnthrottlePool,
};
use crate::query_server::language::LanguageName;
use policy::pool::{Change, Event, PoolId, PoolKind, PoolSettings, RemoveMode, keeps_out};

type Changed = Result<Vec<PoolChange>, PoolError>;

impl ProcManager {
    /// Returns the pool of a name as an operator writes it.
    pub(super) fn named(&self, name: &str) -> Result<PoolId, PoolError> {
        let name = language_name(name);
        self.pools.find(&name).ok_or(PoolError::NotFound(name))
    }

    /// Finds what is wrong with the section of a pool in the service as it is.
    fn check(
        &mut self,
        id: Option<PoolId>,
        section: &PoolConfig,
        language: &LanguageName,
        kind: PoolKind,
    ) -> Result<PoolSettings, PoolError> {
        let wrong = |what: String| Err(PoolError::BadSettings(what));
        if let Some(group) = &section.group
            && let Some(other) = keeps_out(language, self.pools.language_of_group(group, id))
        {
            return wrong(format!(
                "'group': the pools of the group '{group}' speak '{other}' and not '{language}', so \
                 they cannot stand in for each other: take another group"
            ));
        }
        if let Some(ceiling) = self.settings.processes_max {
            let sizes = [
                ("max", section.max.unwrap_or_default()),
                ("init_size", section.init_size),
                ("min_free", section.min_free),
            ];
            if let Some((key, value)) = sizes.into_iter().find(|(_, value)| *value > ceiling) {
                return wrong(format!(
                    "'{key}': {value} is above [server] processes_max ({ceiling}): {}",
                    above_ceiling(key)
                ));
            }
        }
        let terms = self.settings.terms_of(language);
        let around = (kind, language);
        for stressed in [false, true] {
            let settings = self.pools.settings(section, around, terms, stressed);
            if let Err(error) = settings.validate() {
                return wrong(format!("the settings do not fit together: {error}"));
            }
        }
        Ok(match id {
            Some(id) => self.settings_in_force(id, section),
            None => {
                let settings = self.pools.settings(section, around, terms, false);
                self.within_level(settings)
            }
        })
    }
}

impl Handler<AddPool> for ProcManager {
    type Result = Changed;

    fn handle(&mut self, AddPool(msg): AddPool, ctx: &mut Self::Context) -> Changed {
        if self.shutting_down {
            return Err(PoolError::ShuttingDown);
        }
        let wrong = |what: String| Err(PoolError::BadSettings(what));
        let name = language_name(&msg.name);
        if !is_name(&name) {
            return wrong(format!("'name' must be {NAME_RULE}"));
        }
        if self.pools.find(&name).is_some() {
            return Err(PoolError::Exists(name));
        }
        let (there, max) = (self.pools.len(), self.settings.pools_max);
        if there >= max {
            return wrong(format!(
                "there are {there} pools already, and [server] pools_max is {max}: remove one, or raise it"
            ));
        }
        let section = PoolConfig::default().patched(&msg.settings);
        let section = section.map_err(|error| PoolError::BadSettings(error.to_string()))?;
        let Some(language) = section.language.as_deref().map(LanguageName::new) else {
            return wrong("'language' is missing: name the one that the pool speaks".to_owned());
        };
        if self.settings.languages.get(&language).is_none() {
            return wrong(format!(
                "'language': no query server is configured for the language '{language}'"
            ));
        }
        let settings = self.check(None, &section, &language, PoolKind::Named)?;
        let mut changes = vec![PoolChange::Add(name.clone())];
        changes.extend(differences(&PoolConfig::default(), &section));
        // Beside its sizes, for those of its group who wait.
        let first = self.core.plan_add(&settings);
        changes.extend((first > 0).then_some(PoolChange::Start(first)));
        if msg.dry_run {
            return Ok(changes);
        }
        let pool = self.place(&name, Arc::new(section), language, settings);
        self.event(Event::StartPool { pool }, ctx);
        // Services may have waited for it, and ask something of it.
        self.refresh(pool, ctx);
        self.try_cells(&[pool]);
        self.watch_memory(ctx);
        Ok(changes)
    }
}

impl Handler<ReconfigurePool> for ProcManager {
    type Result = Changed;

    fn handle(
        &mut self,
        ReconfigurePool(msg): ReconfigurePool,
        ctx: &mut Self::Context,
    ) -> Changed {
        let id = self.named(&msg.name)?;
        let pool = self.pools.at(id);
        let (kind, language, before) = (pool.kind, pool.language.clone(), pool.section.clone());
        let section = before.patched(&msg.settings);
        let mut section = section.map_err(|error| PoolError::BadSettings(error.to_string()))?;
        let asked = section.language.as_deref().map(LanguageName::new);
        if msg.settings.contains_key("language") && asked.as_ref() != Some(&language) {
            let what = "'language' cannot change while the pool lives: remove the pool and add it \
                        again";
            return Err(PoolError::BadSettings(what.to_owned()));
        }
        section.language.clone_from(&before.language);
        let settings = self.check(Some(id), &section, &language, kind)?;
        let work = self.core.plan(id, &settings);
        let work = work.map_err(|error| PoolError::BadSettings(error.to_string()))?;
        let mut changes = differences(&before, &section);
        changes.extend(work.iter().map(work_of));
        if msg.dry_run {
            return Ok(changes);
        }
        self.pools.set_section(id, Arc::new(section));
        let settings = Box::new(settings);
        self.event(Event::Reconfigure { pool: id, settings }, ctx);
        self.try_cells(&[id]);
        self.watch_memory(ctx);
        Ok(changes)
    }
}

impl Handler<RemovePool> for ProcManager {
    type Result = Changed;

    fn handle(&mut self, msg: RemovePool, ctx: &mut Self::Context) -> Changed {
        let name = language_name(&msg.name);
        // One that goes gracefully can still go at once.
        let found = self
            .pools
            .find(&name)
            .or_else(|| self.pools.find_going(&name));
        let pool = found.ok_or_else(|| PoolError::NotFound(name.clone()))?;
        let mode = msg.mode;
        if self.pools.at(pool).kind == PoolKind::Language {
            return Err(PoolError::BadSettings(format!(
                "the pool '{name}' is the language's own and goes with it: set its max to 0 to \
                 close it"
            )));
        }
        let status = self.core.status(pool, self.clock.now());
        let (word, used) = match mode {
            RemoveMode::Graceful => ("graceful", PoolChange::StopReturned(status.used)),
            RemoveMode::Immediate => ("immediate", PoolChange::StopUsed(status.used)),
        };
        let refused = self.core.plan_removal(pool, mode);
        let counts = [
            (refused, PoolChange::ShrinkQueue(refused)),
            (status.free, PoolChange::StopIdle(status.free)),
            (status.used, used),
        ];
        let mut changes = vec![PoolChange::Remove {
            name: name.clone(),
            mode: word.to_owned(),
            before: set_by_hand(&self.pools.at(pool).section),
        }];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        changes.extend(counts.map(|(_, change)| change));
        if msg.dry_run {
            return Ok(changes);
        }
        self.let_go(pool);
        self.event(Event::RemovePool { pool, mode }, ctx);
        Ok(changes)
    }
}

/// What the core has to do, beside settings, which are told as they stand in the section.
fn work_of(change: &Change) -> PoolChange {
    match change {
        Change::StopIdle(count) => PoolChange::StopIdle(*count),
        Change::StopReturned(count) => PoolChange::StopReturned(*count),
        Change::ShrinkQueue(count) => PoolChange::ShrinkQueue(*count),
        Change::Start(count) => PoolChange::Start(*count),
    }
}

/// Returns the settings that differ.
fn differences(before: &PoolConfig, now: &PoolConfig) -> Vec<PoolChange> {
    let (before, now) = (before.settings(), now.settings());
    let value = |list: &[crate::config::Setting], key: &str| {
        let found = list.iter().find(|setting| setting.key == key);
        found.map(crate::config::Setting::json)
    };
    let mut keys: Vec<&str> = Vec::new();
    for setting in now.iter().chain(&before) {
        if !keys.contains(&setting.key.as_str()) {
            keys.push(&setting.key);
        }
    }
    let changed = keys
        .into_iter()
        .filter(|key| value(&before, key) != value(&now, key));
    let sets = changed.map(|key| PoolChange::Set {
        name: key.to_owned(),
        value: value(&now, key).unwrap_or_default(),
        before: value(&before, key).unwrap_or_default(),
    });
    sets.collect()
}

/// Returns the settings that are not the defaults.
fn set_by_hand(section: &PoolConfig) -> Map<String, Value> {
    let changes = differences(&PoolConfig::default(), section).into_iter();
    let sets = changes.filter_map(|change| match change {
        PoolChange::Set { name, value, .. } => Some((name, value)),
        _ => None,
    });
    sets.collect()
}

impl Handler<UnthrottlePool> for ProcManager {
    type Result = Result<bool, PoolError>;

    fn handle(&mut self, msg: UnthrottlePool, ctx: &mut Self::Context) -> Self::Result {
        let pool = self.named(&msg.name)?;
        let throttled = self.core.status(pool, self.clock.now()).throttled;
        self.event(Event::Unthrottle { pool }, ctx);
        Ok(throttled.is_some())
    }
}

impl Handler<TerminateStaleOf> for ProcManager {
    type Result = Result<(), PoolError>;

    fn handle(&mut self, msg: TerminateStaleOf, ctx: &mut Self::Context) -> Self::Result {
        self.named(&msg.name)?;
        // No stale process is idle in any pool (PM-13): there is nothing to tell them apart for.
        self.event(Event::TerminateStaleProcs, ctx);
        Ok(())
    }
}

impl ProcManager {
    /// A reload lifts every throttle: what was wrong may have been corrected.
    pub(super) fn unthrottle_all(&mut self, ctx: &mut Context<Self>) {
        for pool in self.pools.ids() {
            self.event(Event::Unthrottle { pool }, ctx);
        }
    }
}
