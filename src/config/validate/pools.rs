//! Rules between the keys of a section `[pools.NAME]`, and between it and the languages.

use crate::config::keys::{MANGO, POOLS};
use crate::config::nearest::nearest;
use crate::config::{Config, PoolConfig, Problem, above_ceiling};

/// Returns what does not fit together in the section of a pool.
pub(super) fn check(config: &Config, name: &str, pool: &PoolConfig) -> Vec<Problem> {
    let section = format!("{POOLS}.{name}");
    let mut problems: Vec<Problem> = no_language(config, name, pool).into_iter().collect();
    let mut note = |key: &str, what: String, remedy: String| {
        let what = format!("[{section}] {key}{what}");
        problems.push(Problem::new(config.origin(&section, key), what, remedy));
    };
    let languages = config.language_names();
    let known = |language: &str| languages.contains(&language);
    match pool.language.as_deref() {
        None => {}
        Some(language) if known(name) && language != name => note(
            "language",
            format!(" = {language:?}: the section is that of the language {name:?} itself"),
            "leave the key out, or give the pool another name".to_owned(),
        ),
        Some(language) if !known(language) => {
            let remedy = match nearest(language, languages.iter().copied()) {
                Some(near) if near.likely => format!("did you mean {:?}?", near.name),
                _ => format!(
                    "name its command in [query_servers], or take one of {}",
                    languages.join(", ")
                ),
            };
            let what = format!(" = {language:?}: no such language is configured");
            note("language", what, remedy);
        }
        Some(_) => {}
    }
    if let Some(group) = pool.group.as_deref()
        && let Some((first, other)) = first_of_group(config, group)
        && spoken(first, other) != spoken(name, pool)
    {
        let what = format!(
            " = {group:?}: the pool {first:?} of this group speaks {:?} and not {:?}, so they cannot \
             stand in for each other",
            spoken(first, other),
            spoken(name, pool)
        );
        note("group", what, "take another group".to_owned());
    }
    if let Some(ceiling) = config.processes_max() {
        let sizes = [
            ("max", pool.max),
            ("init_size", Some(pool.init_size)),
            ("min_free", Some(pool.min_free)),
        ];
        for (key, value) in sizes {
            if let Some(value) = value.filter(|value| *value > ceiling) {
                let what = format!(" ({value}) is above [server] processes_max ({ceiling})");
                note(key, what, above_ceiling(key));
            }
        }
    }
    let max = config.pool_max(pool);
    for (key, value) in [("init_size", pool.init_size), ("min_free", pool.min_free)] {
        if value > max {
            let what = format!(" ({value}) is above max ({max})");
            note(
                key,
                what,
                format!("lower {key} to {max} or less, or raise max"),
            );
        }
    }
    if pool.interactive_reserved > 0 && pool.interactive_reserved >= max {
        let what = format!(
            " ({}) leaves nothing of max ({max})",
            pool.interactive_reserved
        );
        note(
            "interactive_reserved",
            what,
            "lower it, or raise max".to_owned(),
        );
    }
    let (soft, hard) = (pool.max_memory, pool.max_memory_hard);
    if hard != 0 && soft > hard {
        let what = format!(" ({soft} bytes) is above max_memory_hard ({hard} bytes)");
        note(
            "max_memory",
            what,
            "raise max_memory_hard, or lower max_memory".to_owned(),
        );
    }
    let first = pool.throttle_delay.unwrap_or_default();
    if first > pool.throttle_delay_max {
        let what = " is above throttle_delay_max".to_owned();
        note(
            "throttle_delay",
            what,
            "raise throttle_delay_max".to_owned(),
        );
    }
    problems
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

/// No key is there whose place could be told, so that of any other one of the section is.
fn no_language(config: &Config, name: &str, pool: &PoolConfig) -> Option<Problem> {
    let languages = config.language_names();
    if pool.language.is_some() || languages.contains(&name) {
        return None;
    }
    let section = format!("{POOLS}.{name}");
    let mut origins = config.origins.iter();
    let place = origins.find(|((other, _), _)| *other == section);
    let place = place.map_or_else(
        || "configuration".to_owned(),
        |(_, origin)| origin.to_string(),
    );
    let remedy = format!("add language = \"NAME\", one of {}", languages.join(", "));
    Some(Problem::new(
        place,
        format!("[{section}] names no language"),
        remedy,
    ))
}

impl Config {
    /// Returns how many processes all pools together may have; `None` is any number.
    pub(crate) fn processes_max(&self) -> Option<u32> {
        Some(self.server.processes_max).filter(|max| *max > 0)
    }

    /// Returns the names of the languages that the configuration knows, which are those of their
    /// own pools too.
    pub fn language_names(&self) -> Vec<&str> {
        let on = self.native_languages.iter().filter(|(_, on)| **on);
        let mut names: Vec<&str> = self
            .languages
            .keys()
            .chain(on.map(|(name, _)| name))
            .map(String::as_str)
            .collect();
        names.push(MANGO);
        names
    }

    /// Returns the limit of a pool.
    pub fn pool_max(&self, pool: &PoolConfig) -> u32 {
        pool.max
            .unwrap_or(self.query_server_config.os_process_limit)
    }
}
