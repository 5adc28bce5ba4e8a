//! The pools of the configuration: made at the start, and brought in line with it at a reload.
//!
//! SUMMARY   Carries out what [`policy::pool::follow`] says of each name.
//! PROMISES  Decides nothing.
//! SOURCE    pooler: reconfiguration of running pools; the order, languages' own first, is ours.

use std::collections::BTreeSet;
use std::sync::Arc;

use slog::warn;

use super::ProcManager;
use super::table::Pool;
use crate::actors::proc_manager::ManagerSettings;
use crate::config::PoolConfig;
use crate::query_server::abilities::Abilities;
use crate::query_server::language::LanguageName;
use child::cell::terms::CellTerms;
use policy::exchange::ExchangeWatch;
use policy::pool::{
    ConfiguredName, Event, Follow, PoolId, PoolKind, PoolSettings, RemoveMode, Runs, follow,
    keeps_out,
};

impl ProcManager {
    /// Makes the pools that the settings ask for and that are not there, changes those that are,
    /// and returns what the core is still to be told. `before` is what held until now.
    pub(super) fn follow_settings(&mut self, before: Option<&ManagerSettings>) -> Vec<Event> {
        let max = self.settings.processes_max;
        let rules = Box::new(self.settings.tenants.clone());
        let mut events = vec![Event::SetCeiling { max }, Event::SetTenants { rules }];
        self.pools.clear_own();
        for name in self.configured_names() {
            self.follow(&name, before, &mut events);
        }
        self.refresh_languages();
        events
    }

    /// Returns the names of languages, then those of sections, then those of pools that are there; each once.
    fn configured_names(&self) -> Vec<String> {
        let languages = self.settings.languages.names().map(LanguageName::as_str);
        let sections = self.settings.pools.keys().map(String::as_str);
        let there = self.pools.ids().into_iter();
        let there = there.map(|id| &*self.pools.at(id).name);
        let mut seen = BTreeSet::new();
        let all = languages.chain(sections).chain(there);
        let all = all.filter(|name| seen.insert(*name));
        all.map(ToOwned::to_owned).collect()
    }

    /// Begins the removal of a pool, and returns what the core is to be told of it.
    fn removal_of(&mut self, pool: PoolId) -> Event {
        self.let_go(pool);
        let mode = RemoveMode::Graceful;
        Event::RemovePool { pool, mode }
    }

    /// Frees the name of a pool: services look for another one of that name.
    pub(super) fn let_go(&mut self, pool: PoolId) {
        self.pools.begin_removal(pool);
        self.end_watches(pool);
    }

    /// Brings the pool of a name in line with the configuration.
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
                self.pools.set_section(pool, section);
                self.pools.at_mut(pool).is_kept_out = is_kept_out;
                self.keep(pool, events);
            }
            Follow::Keep(pool) => self.keep(pool, events),
        }
    }

    /// A pool stays: what holds for all of them holds for it too.
    fn keep(&mut self, id: PoolId, events: &mut Vec<Event>) {
        let pool = self.pools.at(id);
        if pool.kind == PoolKind::Language {
            let language = pool.language.clone();
            self.pools.set_own(&language, id);
        }
        events.extend(self.changes_of(id));
    }

    /// Makes a pool in the tables, and returns what starts it. `None`: it names a language that is not there.
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
        let settings = self.settings_of(&section, kind, &language, false);
        let pool = self.place(name, section, language, settings);
        self.pools.at_mut(pool).is_kept_out = is_kept_out;
        Some(Event::StartPool { pool })
    }

    /// Leaves the group out where it keeps the pool out, and returns whether it does: other pools may have been added
    /// to it at run time.
    fn fit_for_group(
        &self,
        name: &str,
        mut section: Arc<PoolConfig>,
        language: &LanguageName,
        id: Option<PoolId>,
    ) -> (Arc<PoolConfig>, bool) {
        let others = self.pools.other_of_group(&section, id);
        let Some(other) = keeps_out(language, others.map(|other| &other.language)) else {
            return (section, false);
        };
        warn!(self.log, "pool cannot join its group";
              "pool" => name, "language" => other.as_str(),
              "effect" => "it belongs to no group",
              "remedy" => "remove the pools of the group that speak another language, and reload");
        Arc::make_mut(&mut section).group = None;
        (section, true)
    }

    /// Returns what starts the processes of all pools that stay.
    pub(super) fn runs(&self) -> Runs<(Arc<str>, CellTerms)> {
        let run_of = |id| {
            let pool = self.pools.at(id);
            let cell = self.settings.cells.of_pool(&pool.section);
            (id, (Arc::clone(&pool.command), cell))
        };
        Runs {
            db_tag: self.settings.db_tag,
            pools: self.pools.ids().into_iter().map(run_of).collect(),
        }
    }

    pub(super) fn place(
        &mut self,
        name: &str,
        section: Arc<PoolConfig>,
        language: LanguageName,
        settings: PoolSettings,
    ) -> PoolId {
        let id = self.core.add_pool(settings);
        // The language's own pool knows already what a reload or a probe has found out.
        let own = self.pools.own(&language).map(|own| self.pools.at(own));
        let command = own.map(|own| Arc::clone(&own.command)).unwrap_or_default();
        let abilities = own.map(|own| Arc::clone(&own.abilities));
        let pool = Pool {
            name: Arc::from(name),
            kind: settings.kind,
            section,
            command,
            abilities: abilities.unwrap_or_else(|| Arc::new(Abilities::undeclared())),
            metrics: self.metrics.pool(name),
            cell: None,
            log: Arc::default(),
            exchanges: ExchangeWatch::default(),
            lender: None,
            failure: None,
            is_kept_out: false,
            is_going: false,
            language,
        };
        self.pools.put(id, pool);
        id
    }

    /// Notes what starts the processes of every language, and what they can do: the pools of one
    /// language share what a probe finds out.
    pub(super) fn refresh_languages(&mut self) {
        let settings = Arc::clone(&self.settings);
        let spoken: BTreeSet<LanguageName> = self
            .pools
            .iter()
            .map(|(_, pool)| pool.language.clone())
            .collect();
        for name in spoken {
            let language = settings.languages.get(&name);
            let command = language.as_ref().map(|language| language.describe());
            let command: Arc<str> = command.unwrap_or_default().into();
            let abilities = language.map(|language| language.abilities());
            let abilities = Arc::new(abilities.unwrap_or_else(Abilities::undeclared));
            for pool in self.pools.iter_mut().filter(|pool| pool.language == name) {
                pool.command.clone_from(&command);
                pool.abilities = Arc::clone(&abilities);
            }
        }
    }
}
