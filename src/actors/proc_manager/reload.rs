//! The configured pools: created at the start, and updated at a reload.
//!
//! SUMMARY   Carries out the decisions of [`policy::pool::follow`] for each configured name, some of them in each
//!           turn.
//! PROMISES  A reload does not block others for long, however many pools there are. It is answered when all pools
//!           follow it. Until then a request meets each pool in its old or new state; languages follow in the first
//!           turn.
//! SOURCE    couch_proc_manager 001: reload_config; pooler: reconfiguration of running pools. Updating the
//!           languages' pools first is our addition.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::vec;

use actix::prelude::*;
use actix_rt::task::yield_now;
use slog::warn;
use tokio::sync::oneshot;

use super::news::Told;
use super::table::Pool;
use super::{ManagerSettings, ProcManager};
use crate::config::PoolConfig;
use crate::query_server::abilities::Abilities;
use crate::query_server::language::LanguageName;
use child::cell::terms::CellTerms;
use policy::pool::{
    ConfiguredName, Event, Follow, PoolId, PoolKind, PoolSettings, RemoveMode, follow,
};

/// Maximum pools updated in one turn, about a millisecond of work. The first turn also updates languages' own pools.
const POOLS_EACH_TURN: usize = 64;

/// Replaces the manager's settings (`reload_config`). They are in effect when it has answered.
#[derive(Clone, Message)]
#[rtype(result = "()")]
pub struct ReloadConfig(pub Arc<ManagerSettings>);

/// A reload in progress.
pub(super) struct Following {
    /// The previous settings; `None` at the start.
    before: Option<Arc<ManagerSettings>>,
    /// The pools that do not follow it yet.
    names: vec::IntoIter<String>,
    /// Whether existing processes must be replaced.
    replaces: bool,
    /// Dropped at its end, which notifies the waiter.
    _done: oneshot::Sender<()>,
}

impl Handler<ReloadConfig> for ProcManager {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, msg: ReloadConfig, ctx: &mut Self::Context) -> Self::Result {
        if let Some(following) = self.following.take() {
            self.follow_names(following, usize::MAX, ctx);
        }
        let before = std::mem::replace(&mut self.settings, msg.0);
        // Current loans keep the `reset` arguments that they were lent with.
        self.pools.iter_mut().for_each(|pool| pool.lender = None);
        let (done, ended) = oneshot::channel();
        self.follow_settings(Some(before), done, POOLS_EACH_TURN, ctx);
        Box::pin(async move {
            // The sender is dropped at the end, or with the manager.
            drop(ended.await);
        })
    }
}

impl ProcManager {
    /// Creates all pools of the settings, at the start.
    pub(super) fn follow_first_settings(&mut self, ctx: &mut Context<Self>) {
        self.follow_settings(None, oneshot::channel().0, usize::MAX, ctx);
    }

    fn follow_settings(
        &mut self,
        before: Option<Arc<ManagerSettings>>,
        done: oneshot::Sender<()>,
        pools: usize,
        ctx: &mut Context<Self>,
    ) {
        let max = self.settings.processes_max;
        let rules = Box::new(self.settings.tenants.clone());
        let events = vec![Event::SetCeiling { max }, Event::SetTenants { rules }];
        self.events(events, ctx);
        let tag = before.as_ref().map(|before| before.db_tag);
        let replaces = tag.is_some_and(|tag| tag != self.settings.db_tag);
        let languages = self.settings.languages.names().count();
        let names = self.configured_names().into_iter();
        self.pools.own.clear();
        let following = Following {
            before,
            names,
            // Under another tag rule, a process may have served what is now another database.
            replaces: self.refresh_languages() || replaces,
            _done: done,
        };
        self.follow_names(following, languages.saturating_add(pools), ctx);
    }

    /// Lets at most `most` pools follow a reload, and ends it after the last one.
    fn follow_names(&mut self, mut following: Following, most: usize, ctx: &mut Context<Self>) {
        let names: Vec<String> = following.names.by_ref().take(most).collect();
        let before = following.before.as_deref();
        let mut events = Vec::new();
        for name in &names {
            let run = self
                .pools
                .find(name)
                .map(|pool| (pool, Arc::clone(&self.pools.at(pool).cell_terms)));
            self.follow(name, before, &mut events);
            following.replaces |= run.is_some_and(|(pool, terms)| {
                self.pools.find(name) == Some(pool) && self.renew_terms(pool) != terms
            });
        }
        self.events(events, ctx);
        // The cause of a failure may have been corrected.
        if before.is_some() {
            for name in &names {
                if let Some(pool) = self.pools.find(name) {
                    self.try_again(pool, ctx);
                }
            }
        }
        if following.names.len() > 0 {
            self.following = Some(following);
            return self.follow_later(ctx);
        }
        self.watch_memory(ctx);
        self.try_all_cells(ctx);
        if following.replaces {
            self.event(Event::SetThresholdTs, ctx);
        }
        if let Some(before) = following.before {
            // Freeing the settings of many pools and tenants is slow. Without a thread they are freed here.
            drop(blocking::run("reload", move || drop(before)));
        }
    }

    /// Lets the next pools follow a reload once other messages and other actors have had a turn.
    fn follow_later(&self, ctx: &mut Context<Self>) {
        let turn = yield_now().into_actor(self);
        ctx.spawn(turn.map(|(), manager, ctx| {
            let following = manager.following.take();
            if let Some(following) = following.filter(|_| !manager.shutting_down) {
                manager.follow_names(following, POOLS_EACH_TURN, ctx);
            }
        }));
    }

    /// Updates a pool's cell terms, and returns them.
    fn renew_terms(&mut self, id: PoolId) -> Arc<CellTerms> {
        let pool = self.pools.at_mut(id);
        let terms = self.settings.cells.of_pool(&pool.section);
        if *pool.cell_terms != terms {
            pool.cell_terms = Arc::new(terms);
        }
        Arc::clone(&pool.cell_terms)
    }

    /// Changes a pool's section.
    pub(super) fn set_section(&mut self, id: PoolId, section: Arc<PoolConfig>) {
        self.pools.set_section(id, section);
        self.renew_terms(id);
    }

    /// Returns the unique names of languages, then sections, then existing pools.
    fn configured_names(&self) -> Vec<String> {
        let languages = self.settings.languages.names().map(LanguageName::as_str);
        let sections = self.settings.pools.keys().map(String::as_str);
        let there = self
            .pools
            .ids()
            .into_iter()
            .map(|id| &*self.pools.at(id).name);
        let mut seen = BTreeSet::new();
        let all = languages.chain(sections).chain(there);
        all.filter(|name| seen.insert(*name))
            .map(ToOwned::to_owned)
            .collect()
    }

    /// Begins the removal of a pool, and returns the core's event for it.
    fn removal_of(&mut self, pool: PoolId) -> Event {
        self.let_go(pool);
        let mode = RemoveMode::Graceful;
        Event::RemovePool { pool, mode }
    }

    /// Frees a pool's name: services look for another pool with that name.
    pub(super) fn let_go(&mut self, pool: PoolId) {
        self.pools.begin_removal(pool);
        self.watchers.remove(&pool);
    }

    /// Updates the pool with a name to match the configuration.
    fn follow(&mut self, name: &str, before: Option<&ManagerSettings>, events: &mut Vec<Event>) {
        let settings = Arc::clone(&self.settings);
        let language = LanguageName::new(name);
        let id = self.pools.find(name);
        let asked = settings.pools.get(name);
        let section = || asked.cloned().unwrap_or_default();
        let step = follow(&ConfiguredName {
            is_first: before.is_none(),
            is_language: settings.languages.get(&language).is_some(),
            before: before.and_then(|before| before.pools.get(name)),
            now: asked,
            pool: id.map(|id| (id, self.pools.at(id).kind)),
            is_kept_out: id.is_some_and(|id| self.pools.at(id).is_kept_out),
        });
        match step {
            Follow::Nothing => {}
            Follow::Add(kind) => events.extend(self.install(name, kind, section())),
            Follow::Remove(pool) => events.push(self.removal_of(pool)),
            Follow::Replace(pool, kind) => {
                if kind == PoolKind::Language {
                    warn!(self.log, "pool makes way for a language"; "pool" => name);
                }
                events.push(self.removal_of(pool));
                events.extend(self.install(name, kind, section()));
            }
            Follow::Change(pool) => {
                let language = self.pools.at(pool).language.clone();
                let (section, is_kept_out) = self.fit_for_group(name, section(), &language, id);
                self.set_section(pool, section);
                self.pools.at_mut(pool).is_kept_out = is_kept_out;
                self.keep(pool, events);
            }
            Follow::Keep(pool) => self.keep(pool, events),
        }
    }

    /// Applies the current settings to a pool that stays.
    fn keep(&mut self, id: PoolId, events: &mut Vec<Event>) {
        let pool = self.pools.at(id);
        if pool.kind == PoolKind::Language {
            let language = pool.language.clone();
            self.pools.own.insert(language, id);
        }
        events.extend(self.changes_of(id));
    }

    /// Adds a pool to the tables, and returns its start event. `None`: it names a missing language.
    fn install(&mut self, name: &str, kind: PoolKind, section: Arc<PoolConfig>) -> Option<Event> {
        let language = LanguageName::new(section.language.as_deref().unwrap_or(name));
        if self.settings.languages.get(&language).is_none() {
            warn!(self.log, "pool names a language that is not configured";
                  "pool" => name, "language" => language.as_str(),
                  "effect" => "there is no such pool",
                  "remedy" => "name the language's command in [query_servers]");
            return None;
        }
        let (section, is_kept_out) = self.fit_for_group(name, section, &language, None);
        let settings = self.settings_of(&section, kind, &language);
        let pool = self.place(name, section, language, settings);
        self.pools.at_mut(pool).is_kept_out = is_kept_out;
        Some(Event::StartPool { pool })
    }

    /// Returns a pool's section, without its group if the group excludes the pool, and whether it does: pools of
    /// another language may have been added to the group at run time.
    fn fit_for_group(
        &self,
        name: &str,
        mut section: Arc<PoolConfig>,
        language: &LanguageName,
        id: Option<PoolId>,
    ) -> (Arc<PoolConfig>, bool) {
        let others = self.pools.other_of_group(&section, id);
        let others = others.map(|other| &other.language);
        // All requests to a group must get the same language.
        let Some(other) = others.filter(|other| *other != language) else {
            return (section, false);
        };
        warn!(self.log, "pool cannot join its group";
              "pool" => name, "language" => other.as_str(),
              "effect" => "it belongs to no group",
              "remedy" => "remove the pools of the group that speak another language, and reload");
        Arc::make_mut(&mut section).group = None;
        (section, true)
    }

    pub(super) fn place(
        &mut self,
        name: &str,
        section: Arc<PoolConfig>,
        language: LanguageName,
        settings: PoolSettings,
    ) -> PoolId {
        let id = self.core.add_pool(settings);
        // The language's own pool already has the results of probes.
        let own = self.pools.own(&language).map(|own| self.pools.at(own));
        let known = own.map(|own| (Arc::clone(&own.command), Arc::clone(&own.abilities)));
        let (command, abilities) = known.unwrap_or_else(|| self.known_of_language(&language));
        let pool = Pool {
            name: Arc::from(name),
            kind: settings.kind,
            cell_terms: Arc::new(self.settings.cells.of_pool(&section)),
            section,
            command,
            abilities,
            metrics: self.metrics.pool(name),
            cell: None,
            log: Arc::default(),
            told: Told::default(),
            lender: None,
            failure: None,
            is_kept_out: false,
            is_going: false,
            language,
        };
        self.pools.put(id, pool);
        id
    }

    /// Updates how each language starts processes, and its abilities: pools of one language share the results of
    /// probes. Returns whether any pool's processes are now started differently.
    fn refresh_languages(&mut self) -> bool {
        let pools = self.pools.iter();
        let spoken: BTreeSet<LanguageName> = pools.map(|(_, pool)| pool.language.clone()).collect();
        let mut are_others = false;
        for name in spoken {
            let (command, abilities) = self.known_of_language(&name);
            let is_configured = self.settings.languages.get(&name).is_some();
            for pool in self.pools.iter_mut().filter(|pool| pool.language == name) {
                are_others |= is_configured && !pool.is_going && pool.command != command;
                pool.command = Arc::clone(&command);
                pool.abilities = Arc::clone(&abilities);
            }
        }
        are_others
    }

    fn known_of_language(&self, name: &LanguageName) -> (Arc<str>, Arc<Abilities>) {
        let language = self.settings.languages.get(name);
        let command = language.as_ref().map(|language| language.describe());
        let abilities = language
            .map(|language| language.abilities())
            .unwrap_or_else(Abilities::undeclared);
        (command.unwrap_or_default().into(), Arc::new(abilities))
    }
}
