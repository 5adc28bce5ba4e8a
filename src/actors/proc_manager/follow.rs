//! The pools of the configuration: made at the start, and brought in line with it at a reload.
//!
//! PROMISES  What an operator changed at run time stays until the configuration says something else of
//!           the same pool. Pools of one group speak one language.
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
use policy::exchange::ExchangeWatch;
use policy::pool::{Event, PoolId, PoolKind, PoolSettings, RemoveMode};

impl ProcManager {
    /// Makes the pools that the settings ask for and that are not there, changes those that are,
    /// and returns what the core is still to be told. `before` is what held until now.
    pub(super) fn follow_settings(&mut self, before: Option<&ManagerSettings>) -> Vec<Event> {
        let settings = Arc::clone(&self.settings);
        let max = settings.processes_max;
        let mut events = vec![Event::SetCeiling { max }];
        self.pools.clear_own();
        let languages: Vec<LanguageName> = settings.languages.names().cloned().collect();
        for language in &languages {
            let asked = settings.pools.get(language.as_str());
            self.follow(language.as_str(), asked, before, &mut events);
        }
        let is_language = |name: &str| languages.iter().any(|known| known.as_str() == name);
        for (name, section) in &settings.pools {
            if !is_language(name) {
                self.follow(name, Some(section), before, &mut events);
            }
        }
        let gone = before.iter().flat_map(|before| before.pools.keys());
        let gone: Vec<_> = gone
            .filter(|name| !settings.pools.contains_key(*name) && !is_language(name))
            .filter_map(|name| self.pools.find(name))
            .collect();
        for pool in gone {
            events.push(self.removal_of(pool));
        }
        for pool in self.pools.ids() {
            let name = &*self.pools.at(pool).name;
            if !settings.pools.contains_key(name) && !is_language(name) {
                events.extend(self.changes_of(pool));
            }
        }
        self.refresh_languages();
        events
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

    /// Brings one pool in line with the configuration.
    fn follow(
        &mut self,
        name: &str,
        asked: Option<&Arc<PoolConfig>>,
        before: Option<&ManagerSettings>,
        events: &mut Vec<Event>,
    ) {
        let language = self.settings.languages.get(&LanguageName::new(name));
        let is_language = language.is_some();
        let kind = match is_language {
            true => PoolKind::Language,
            false => PoolKind::Named,
        };
        let earlier = before.and_then(|before| before.pools.get(name));
        let is_news = before.is_none() || earlier != asked;
        let mut known = self.pools.find(name);
        if let Some(id) = known
            && self.pools.at(id).kind != kind
        {
            // A language has come whose name a pool had: the language's own pool has the name.
            warn!(self.log, "pool makes way for a language"; "pool" => name);
            events.push(self.removal_of(id));
            known = None;
        }
        let Some(id) = known else {
            if is_language || is_news {
                let section = asked.cloned().unwrap_or_default();
                if let Some(id) = self.install(name, kind, section) {
                    events.push(Event::StartPool { pool: id });
                }
            }
            return;
        };
        if kind == PoolKind::Language {
            self.pools.set_own(&LanguageName::new(name), id);
        }
        if is_news {
            let section = asked.cloned().unwrap_or_default();
            let language = self.pools.at(id).language.clone();
            let section = self.fit_for_group(name, section, &language, Some(id));
            self.pools.set_section(id, section);
        }
        let section = Arc::clone(&self.pools.at(id).section);
        let settings = self.settings_in_force(id, &section);
        if self.core.settings(id) != Some(&settings) {
            let settings = Box::new(settings);
            events.push(Event::Reconfigure { pool: id, settings });
        }
    }

    /// Makes a pool in the tables. `None`: it names a language that is not there.
    fn install(&mut self, name: &str, kind: PoolKind, section: Arc<PoolConfig>) -> Option<PoolId> {
        let language = LanguageName::new(section.language.as_deref().unwrap_or(name));
        if self.settings.languages.get(&language).is_none() {
            warn!(self.log, "pool names a language that is not configured";
                  "pool" => name, "language" => language.as_str(),
                  "effect" => "there is no such pool",
                  "remedy" => "name the language's command in [query_servers]");
            return None;
        }
        let section = self.fit_for_group(name, section, &language, None);
        let terms = self.settings.terms_of(&language);
        let settings = self
            .pools
            .settings(&section, (kind, &language), terms, false);
        let settings = self.within_level(settings);
        Some(self.place(name, section, language, settings))
    }

    /// Leaves the group out where pools that were added at run time speak another language in it:
    /// whoever asks a group must get one language.
    fn fit_for_group(
        &self,
        name: &str,
        mut section: Arc<PoolConfig>,
        language: &LanguageName,
        id: Option<PoolId>,
    ) -> Arc<PoolConfig> {
        if let Some(group) = &section.group
            && let Some(other) = self.pools.language_of_group(group, id)
            && other != language
        {
            warn!(self.log, "pool cannot join its group";
                  "pool" => name, "language" => other.as_str(),
                  "effect" => "it belongs to no group",
                  "remedy" => "remove the pools of the group that speak another language, and reload");
            Arc::make_mut(&mut section).group = None;
        }
        section
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
