//! Pools that an operator adds, changes and removes, and the effective settings of each.
//!
//! SUMMARY   [`ProcManager::settings_in_force`] returns a pool's current settings: its section, the terms of its
//!           services, and a limit that suits the machine's load.
//! PROMISES  An operator's change is validated and applied as a whole or not at all; the answer lists the changes. It
//!           persists until the configuration changes the same pool, or the service is restarted. Lowering a limit
//!           never revokes a lent process; the surplus is stopped on return.
//! SOURCE    pidq: add_pool, remove_pool; pooler: reconfiguration of running pools as a list of changes.

use std::sync::Arc;

use actix::prelude::*;
use serde_json::{Map, Value};
use slog::info;

use super::ProcManager;
use crate::config::{NAME_RULE, PoolConfig, PoolPlace, Setting, is_name, language_name};
use crate::messages::pools::{
    AddPool, PoolChange, PoolError, ReconfigurePool, RemovePool, SetLevel, UnthrottlePool,
};
use crate::messages::proc_manager::{GetProc, TakeFrom, Want};
use crate::otp::PidGuard;
use crate::query_server::language::LanguageName;
use policy::pool::{Change, Event, PoolId, PoolKind, PoolSettings, RemoveMode};

type Changed = Result<Vec<PoolChange>, PoolError>;

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
        let section = PoolConfig::default().patched(&msg.settings)?;
        let languages = self.settings.languages.names();
        let languages: Vec<&str> = languages.map(LanguageName::as_str).collect();
        if let Some(fault) = section.language_fault(&name, &languages) {
            return Err(fault.into());
        }
        let language = LanguageName::new(section.language.as_deref().unwrap_or(&name));
        self.check(None, &section, &language)?;
        let settings = self.settings_of(&section, PoolKind::Named, &language);
        let mut changes = vec![PoolChange::Add(name.clone())];
        changes.extend(differences(&PoolConfig::default(), &section));
        // The processes to open: for its own sizes, and for waiters of its group.
        let first = self.core.plan_add(&settings);
        changes.extend((first > 0).then_some(PoolChange::Start(first)));
        if msg.dry_run {
            return Ok(changes);
        }
        let pool = self.place(&name, Arc::new(section), language, settings);
        self.event(Event::StartPool { pool }, ctx);
        // Services may have waited for it, with their own terms.
        self.refresh(pool, ctx);
        self.try_cells(&[pool], ctx);
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
        let (language, before) = (pool.language.clone(), Arc::clone(&pool.section));
        let mut section = before.patched(&msg.settings)?;
        let asked = section.language.as_deref().map(LanguageName::new);
        if msg.settings.contains_key("language") && asked.as_ref() != Some(&language) {
            let what = "'language' cannot change while the pool lives: remove the pool and add it \
                        again";
            return Err(PoolError::BadSettings(what.to_owned()));
        }
        section.language.clone_from(&before.language);
        self.check(Some(id), &section, &language)?;
        let settings = self.settings_in_force(id, &section);
        let mut changes = differences(&before, &section);
        changes.extend(self.core.plan(id, &settings).into_iter().map(work_of));
        if msg.dry_run {
            return Ok(changes);
        }
        self.set_section(id, Arc::new(section));
        let settings = Box::new(settings);
        self.event(Event::Reconfigure { pool: id, settings }, ctx);
        self.try_cells(&[id], ctx);
        self.watch_memory(ctx);
        Ok(changes)
    }
}

impl Handler<RemovePool> for ProcManager {
    type Result = Changed;

    fn handle(&mut self, msg: RemovePool, ctx: &mut Self::Context) -> Changed {
        let name = language_name(&msg.name);
        // A graceful removal can still become immediate.
        let pool = self
            .pools
            .find(&name)
            .or_else(|| self.pools_named(&name).first().copied())
            .ok_or_else(|| PoolError::NotFound(name.clone()))?;
        let mode = msg.mode;
        if self.pools.at(pool).kind == PoolKind::Language {
            return Err(PoolError::BadSettings(format!(
                "the pool '{name}' is the language's own and goes with it: set its max to 0 to \
                 close it"
            )));
        }
        let status = self.core.status(pool, self.clock.now());
        let used = match mode {
            RemoveMode::Graceful => PoolChange::StopReturned(status.used),
            RemoveMode::Immediate => PoolChange::StopUsed(status.used),
        };
        let refused = self.core.plan_removal(pool, mode);
        let counts = [
            (refused, PoolChange::ShrinkQueue(refused)),
            (status.free, PoolChange::StopIdle(status.free)),
            (status.used, used),
        ];
        let mut changes = vec![PoolChange::Remove {
            name: name.clone(),
            mode: <&str>::from(mode).to_owned(),
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

impl Handler<UnthrottlePool> for ProcManager {
    type Result = Result<bool, PoolError>;

    fn handle(&mut self, msg: UnthrottlePool, ctx: &mut Self::Context) -> Self::Result {
        let pool = self.named(&msg.name)?;
        let throttled = self.core.status(pool, self.clock.now()).throttled;
        self.try_again(pool, ctx);
        Ok(throttled.is_some())
    }
}

/// Adapts limits to the machine's load. Each changed limit is logged with the reason.
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

/// Orders of operators.
impl ProcManager {
    /// Returns the pool with a name given by an operator.
    pub(super) fn named(&self, name: &str) -> Result<PoolId, PoolError> {
        let name = language_name(name);
        self.pools.find(&name).ok_or(PoolError::NotFound(name))
    }

    /// Refuses a section that contradicts the service's other pools or settings.
    fn check(
        &self,
        id: Option<PoolId>,
        section: &PoolConfig,
        language: &LanguageName,
    ) -> Result<(), PoolError> {
        let other = self.pools.other_of_group(section, id);
        let faults = section.faults(&PoolPlace {
            language: language.as_str(),
            other: other.map(|pool| (&*pool.name, pool.language.as_str())),
            os_process_limit: self.settings.limits.hard_limit,
            processes_max: self.settings.processes_max,
        });
        let faults: Vec<String> = faults.iter().map(|(_, fault)| fault.to_string()).collect();
        if faults.is_empty() {
            return Ok(());
        }
        Err(PoolError::BadSettings(faults.join("; ")))
    }

    /// Lifts a pool's throttle. If the pool's last start failed, borrows a process, so that one is started: a success
    /// clears the failure.
    pub(super) fn try_again(&mut self, id: PoolId, ctx: &mut Context<Self>) {
        self.event(Event::Unthrottle { pool: id }, ctx);
        let pool = self.pools.at(id);
        if pool.failure.is_none() {
            return;
        }
        let (manager, borrower) = (ctx.address(), PidGuard::new());
        let want = Want::any_from(TakeFrom::Pool(Arc::clone(&pool.name)));
        // Ends with the answer, at the latest with the request's timeout. The handler of `Exit` records the start's
        // result.
        actix_rt::spawn(async move {
            let answer = manager.send(GetProc::of_client(borrower.pid(), want, None));
            if let Ok(Ok(lease)) = answer.await {
                lease.put_back();
            }
        });
    }
}

/// Settings in force.
impl ProcManager {
    /// Returns the core's current settings for a pool with this section.
    fn settings_in_force(&mut self, pool: PoolId, section: &PoolConfig) -> PoolSettings {
        let known = self.pools.at(pool);
        let (kind, language) = (known.kind, known.language.clone());
        let asked = self.settings.service_terms.get(&*known.name);
        let told = asked.map(|asked| asked.applied_to(section.clone()));
        let section = told.as_ref().unwrap_or(section);
        self.settings_of(section, kind, &language)
    }

    /// Returns the core's settings for a pool, with the effective limit: never too low for the other settings.
    pub(super) fn settings_of(
        &mut self,
        section: &PoolConfig,
        kind: PoolKind,
        language: &LanguageName,
    ) -> PoolSettings {
        let terms = self.settings.terms_of(language);
        let mut settings = self.pools.settings(section, (kind, language), terms);
        let reserved = settings.interactive_reserved;
        let reserved = reserved + u32::from(reserved > 0);
        let least = settings.init_size.max(settings.min_free).max(reserved);
        let limits = &mut settings.limits;
        let moved = self.level.limit(limits.soft_limit, limits.hard_limit);
        limits.hard_limit = moved.max(least).min(limits.hard_limit);
        limits.soft_limit = limits.soft_limit.min(limits.hard_limit);
        settings
    }

    /// Returns the event that applies the current settings (limits, terms of services) to a pool; `None` if they are
    /// unchanged, or the pool is gone or being removed.
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

    /// Passes the current settings to the core, if they differ.
    fn refresh(&mut self, pool: PoolId, ctx: &mut Context<Self>) {
        if let Some(changes) = self.changes_of(pool) {
            self.event(changes, ctx);
        }
    }
}

/// Returns the operator's view of a change that the core plans; changed settings are listed by [`differences`].
fn work_of(change: Change) -> PoolChange {
    match change {
        Change::StopIdle(count) => PoolChange::StopIdle(count),
        Change::StopReturned(count) => PoolChange::StopReturned(count),
        Change::ShrinkQueue(count) => PoolChange::ShrinkQueue(count),
        Change::Start(count) => PoolChange::Start(count),
    }
}

/// Returns the settings that differ.
fn differences(before: &PoolConfig, now: &PoolConfig) -> Vec<PoolChange> {
    let (before, now) = (before.settings(), now.settings());
    let find = |list: &[Setting], key: &str| {
        list.iter()
            .find(|setting| setting.key == key)
            .map(Setting::json)
    };
    let gone = before
        .iter()
        .filter(|old| now.iter().all(|new| new.key != old.key));
    now.iter()
        .chain(gone)
        .filter_map(|Setting { key, .. }| {
            let (value, old) = (find(&now, key), find(&before, key));
            (value != old).then(|| PoolChange::Set {
                name: key.clone(),
                value: value.unwrap_or_default(),
                before: old.unwrap_or_default(),
            })
        })
        .collect()
}

/// Returns the settings that differ from the defaults.
fn set_by_hand(section: &PoolConfig) -> Map<String, Value> {
    differences(&PoolConfig::default(), section)
        .into_iter()
        .filter_map(|change| match change {
            PoolChange::Set { name, value, .. } => Some((name, value)),
            _ => None,
        })
        .collect()
}
