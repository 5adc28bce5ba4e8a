//! Rules between the keys of a section `[pools.NAME]`, and between it and the languages.

use super::{Rules, advice};
use crate::keys::{MANGO, POOLS};
use crate::{Config, PoolConfig, above_ceiling};

impl Rules<'_> {
    /// Notes what does not fit together in the section of a pool.
    pub(super) fn pool(&mut self, name: &str, pool: &PoolConfig) {
        let config = self.config;
        let mut section = self.section(format!("{POOLS}.{name}"));
        let languages = config.language_names();
        let known = |language: &str| languages.contains(&language);
        match pool.language.as_deref() {
            None if !known(name) => {
                let remedy = format!("add language = \"NAME\", one of {}", languages.join(", "));
                section.problem("language", "names no language", remedy);
            }
            Some(language) if known(name) && language != name => {
                let what = format!(
                    "language = {language:?}: the section is that of the language {name:?} itself"
                );
                let remedy = "leave the key out, or give the pool another name";
                section.problem("language", what, remedy);
            }
            Some(language) if !known(language) => {
                let what = format!("language = {language:?}: no such language is configured");
                let or = "name its command in [query_servers], or ";
                section.problem("language", what, advice(language, &languages, or));
            }
            _ => {}
        }
        if let Some(group) = pool.group.as_deref()
            && let Some((first, other)) = first_of_group(config, group)
            && spoken(first, other) != spoken(name, pool)
        {
            let what = format!(
                "group = {group:?}: the pool {first:?} of this group speaks {:?} and not {:?}, so \
                 they cannot stand in for each other",
                spoken(first, other),
                spoken(name, pool)
            );
            section.problem("group", what, "take another group");
        }
        let sizes = [
            ("max", pool.max.unwrap_or_default()),
            ("init_size", pool.init_size),
            ("min_free", pool.min_free),
        ];
        let (max, ceiling) = (config.pool_max(pool), config.processes_max());
        for (key, value) in sizes {
            if let Some(ceiling) = ceiling.filter(|ceiling| value > *ceiling) {
                let what = format!("{key} ({value}) is above [server] processes_max ({ceiling})");
                section.problem(key, what, above_ceiling(key));
            }
        }
        for (key, value) in &sizes[1..] {
            if *value > max {
                let what = format!("{key} ({value}) is above max ({max})");
                let remedy = format!("lower {key} to {max} or less, or raise max");
                section.problem(key, what, remedy);
            }
        }
        let reserved = pool.interactive_reserved;
        if reserved > 0 && reserved >= max {
            let what = format!("interactive_reserved ({reserved}) leaves nothing of max ({max})");
            section.problem("interactive_reserved", what, "lower it, or raise max");
        }
        let (soft, hard) = (pool.max_memory, pool.max_memory_hard);
        if hard != 0 && soft > hard {
            let what = format!("max_memory ({soft} bytes) is above max_memory_hard ({hard} bytes)");
            let remedy = "raise max_memory_hard, or lower max_memory";
            section.problem("max_memory", what, remedy);
        }
        if pool.throttle_delay.unwrap_or_default() > pool.throttle_delay_max {
            let what = "throttle_delay is above throttle_delay_max";
            section.problem("throttle_delay", what, "raise throttle_delay_max");
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
    pub fn processes_max(&self) -> Option<u32> {
        Some(self.server.processes_max).filter(|max| *max > 0)
    }

    /// Returns the names of the languages that the configuration or the program knows, which are those of
    /// their own pools too.
    pub(crate) fn language_names(&self) -> Vec<&str> {
        let on = self.native_languages.iter().filter(|(_, on)| **on);
        let names = self.languages.keys().chain(on.map(|(name, _)| name));
        let names = names.chain(&self.program_languages);
        names.map(String::as_str).chain([MANGO]).collect()
    }

    /// Returns the limit of a pool.
    pub(crate) fn pool_max(&self, pool: &PoolConfig) -> u32 {
        pool.max
            .unwrap_or(self.query_server_config.os_process_limit)
    }
}
