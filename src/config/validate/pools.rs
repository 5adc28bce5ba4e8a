//! Rules between the keys of a section `[pools.NAME]`, and between it and the languages.

use super::{Rules, advice};
use crate::config::keys::{MANGO, POOLS};
use crate::config::{Config, PoolConfig, above_ceiling};

impl Rules<'_> {
    /// Notes what does not fit together in the section of a pool.
    pub(super) fn pool(&mut self, name: &str, pool: &PoolConfig) {
        let config = self.config;
        let section = format!("{POOLS}.{name}");
        let languages = config.language_names();
        let known = |language: &str| languages.contains(&language);
        if pool.language.is_none() && !known(name) {
            let remedy = format!("add language = \"NAME\", one of {}", languages.join(", "));
            self.problem((&section, "language"), "names no language", remedy);
        }
        let mut note = |key: &str, what: String, remedy: String| {
            self.problem((&section, key), format!("{key}{what}"), remedy);
        };
        match pool.language.as_deref() {
            Some(language) if known(name) && language != name => note(
                "language",
                format!(" = {language:?}: the section is that of the language {name:?} itself"),
                "leave the key out, or give the pool another name".to_owned(),
            ),
            Some(language) if !known(language) => note(
                "language",
                format!(" = {language:?}: no such language is configured"),
                advice(
                    language,
                    &languages,
                    "name its command in [query_servers], or ",
                ),
            ),
            _ => {}
        }
        if let Some(group) = pool.group.as_deref()
            && let Some((first, other)) = first_of_group(config, group)
            && spoken(first, other) != spoken(name, pool)
        {
            let what = format!(
                " = {group:?}: the pool {first:?} of this group speaks {:?} and not {:?}, so they \
                 cannot stand in for each other",
                spoken(first, other),
                spoken(name, pool)
            );
            note("group", what, "take another group".to_owned());
        }
        let sizes = [
            ("max", pool.max.unwrap_or_default()),
            ("init_size", pool.init_size),
            ("min_free", pool.min_free),
        ];
        let (max, ceiling) = (config.pool_max(pool), config.processes_max());
        for (key, value) in sizes {
            if let Some(ceiling) = ceiling.filter(|ceiling| value > *ceiling) {
                let what = format!(" ({value}) is above [server] processes_max ({ceiling})");
                note(key, what, above_ceiling(key));
            }
        }
        for (key, value) in &sizes[1..] {
            if *value > max {
                let what = format!(" ({value}) is above max ({max})");
                let remedy = format!("lower {key} to {max} or less, or raise max");
                note(key, what, remedy);
            }
        }
        let reserved = pool.interactive_reserved;
        if reserved > 0 && reserved >= max {
            let what = format!(" ({reserved}) leaves nothing of max ({max})");
            let remedy = "lower it, or raise max".to_owned();
            note("interactive_reserved", what, remedy);
        }
        let (soft, hard) = (pool.max_memory, pool.max_memory_hard);
        if hard != 0 && soft > hard {
            let what = format!(" ({soft} bytes) is above max_memory_hard ({hard} bytes)");
            let remedy = "raise max_memory_hard, or lower max_memory".to_owned();
            note("max_memory", what, remedy);
        }
        if pool.throttle_delay.unwrap_or_default() > pool.throttle_delay_max {
            let remedy = "raise throttle_delay_max".to_owned();
            let what = " is above throttle_delay_max".to_owned();
            note("throttle_delay", what, remedy);
        }
    }
}

/// Returns the language of a pool; its own name is that of a language's own one.
fn spoken<'a>(name: &'a str, pool: &'a PoolConfig) -> &'a str {
    pool.language.as_deref().unwrap_or(name)
}

fn first_of_group<'a>(config: &'a Config, group: &str) -> Option<(&'a str, &'a PoolConfig)> {
    let mut pools = config.pools.iter();
    let found = pools.find(|(_, pool)| pool.group.as_deref() == Some(group));
    found.map(|(name, pool)| (name.as_str(), pool))
}

impl Config {
    /// Returns how many processes all pools together may have; `None` is any number.
    pub(crate) fn processes_max(&self) -> Option<u32> {
        Some(self.server.processes_max).filter(|max| *max > 0)
    }

    /// Returns the names of the languages that the configuration knows, which are those of their
    /// own pools too.
    pub(crate) fn language_names(&self) -> Vec<&str> {
        let on = self.native_languages.iter().filter(|(_, on)| **on);
        let names = self.languages.keys().chain(on.map(|(name, _)| name));
        names.map(String::as_str).chain([MANGO]).collect()
    }

    /// Returns the limit of a pool.
    pub(crate) fn pool_max(&self, pool: &PoolConfig) -> u32 {
        pool.max
            .unwrap_or(self.query_server_config.os_process_limit)
    }
}
