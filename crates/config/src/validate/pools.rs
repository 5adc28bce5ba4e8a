//! Rules for the keys of a section `[pools.NAME]` and for its language. They apply to the configuration and to orders
//! to the service.

use super::{Rules, advice};
use crate::keys::{MANGO, POOLS};
use crate::{Config, Fault, PoolConfig};

/// The context that a pool's section has to fit.
#[derive(Clone, Copy, Debug)]
pub struct PoolPlace<'a> {
    /// The pool's language.
    pub language: &'a str,
    /// Name and language of another pool of its group.
    pub other: Option<(&'a str, &'a str)>,
    /// `[query_server_config] os_process_limit`.
    pub os_process_limit: u32,
    /// `[server] processes_max`; `None`: no limit.
    pub processes_max: Option<u32>,
}

impl PoolConfig {
    /// Returns what is wrong with the language of a pool with this name, given the configured languages.
    pub fn language_fault(&self, name: &str, languages: &[&str]) -> Option<Fault> {
        let known = |language: &str| languages.contains(&language);
        let (what, remedy) = match self.language.as_deref() {
            None if !known(name) => (
                "language is missing".to_owned(),
                format!("add language = \"NAME\", one of {}", languages.join(", ")),
            ),
            Some(language) if known(name) && language != name => (
                format!(
                    "language = {language:?}: the section is that of the language {name:?} itself"
                ),
                "leave the key out, or give the pool another name".to_owned(),
            ),
            Some(language) if !known(language) => (
                format!("language = {language:?}: no such language is configured"),
                advice(
                    language,
                    languages,
                    "name its command in [query_servers], or ",
                ),
            ),
            _ => return None,
        };
        Some(Fault::new(what, remedy))
    }

    /// Returns all other contradictions, each with its key.
    pub fn faults(&self, place: &PoolPlace<'_>) -> Vec<(&'static str, Fault)> {
        let mut faults = Vec::new();
        let mut fault = |key, what: String, remedy: String| {
            faults.push((key, Fault::new(what, remedy)));
        };
        let language = place.language;
        if let Some((other, spoken)) = place.other.filter(|(_, spoken)| *spoken != language) {
            fault(
                "group",
                format!(
                    "group = {:?}: the pool {other:?} of this group speaks {spoken:?} and not \
                     {language:?}, but a group has one language",
                    self.group.as_deref().unwrap_or_default()
                ),
                "take another group".to_owned(),
            );
        }
        let max = self.max.unwrap_or(place.os_process_limit);
        let sizes = [
            ("max", self.max.unwrap_or_default()),
            ("init_size", self.init_size),
            ("min_free", self.min_free),
        ];
        for (key, value) in sizes {
            if let Some(ceiling) = place.processes_max.filter(|ceiling| value > *ceiling) {
                fault(
                    key,
                    format!("{key} ({value}) is above [server] processes_max ({ceiling})"),
                    format!(
                        "lower {key}, or raise [server] processes_max, or set it to 0 for no ceiling"
                    ),
                );
            }
            if value > max {
                fault(
                    key,
                    format!("{key} ({value}) is above max ({max})"),
                    format!("lower {key} to {max} or less, or raise max"),
                );
            }
        }
        let reserved = self.interactive_reserved;
        if reserved > 0 && reserved >= max {
            fault(
                "interactive_reserved",
                format!("interactive_reserved ({reserved}) leaves nothing of max ({max})"),
                "lower it, or raise max".to_owned(),
            );
        }
        let (soft, hard) = (self.max_memory, self.max_memory_hard);
        if hard != 0 && soft > hard {
            fault(
                "max_memory",
                format!("max_memory ({soft} bytes) is above max_memory_hard ({hard} bytes)"),
                "raise max_memory_hard, or lower max_memory".to_owned(),
            );
        }
        if self.throttle_delay.unwrap_or_default() > self.throttle_delay_max {
            fault(
                "throttle_delay",
                "throttle_delay is above throttle_delay_max".to_owned(),
                "raise throttle_delay_max".to_owned(),
            );
        }
        faults
    }
}

/// Returns a pool's language; by default the one with the pool's name.
fn spoken<'a>(name: &'a str, pool: &'a PoolConfig) -> &'a str {
    pool.language.as_deref().unwrap_or(name)
}

impl Rules<'_> {
    /// Reports contradictions in a pool's section.
    pub(super) fn pool(&mut self, name: &str, pool: &PoolConfig) {
        let config = self.config;
        let mut others = config.pools.iter();
        let other = others.find(|(_, other)| pool.group.is_some() && other.group == pool.group);
        let faults = pool.faults(&PoolPlace {
            language: spoken(name, pool),
            other: other.map(|(other, section)| (other.as_str(), spoken(other, section))),
            os_process_limit: config.query_server_config.os_process_limit,
            processes_max: config.processes_max(),
        });
        let of_language = pool.language_fault(name, &config.language_names());
        let of_language = of_language.map(|fault| ("language", fault));
        let mut section = self.section(format!("{POOLS}.{name}"));
        for (key, Fault { what, remedy }) in of_language.into_iter().chain(faults) {
            section.problem(key, what, remedy);
        }
    }
}

impl Config {
    /// Returns the maximum number of processes of all pools together; `None`: no limit.
    pub fn processes_max(&self) -> Option<u32> {
        Some(self.server.processes_max).filter(|max| *max > 0)
    }

    /// Returns the names of the configured languages and the program's own; a language's own pool has the same name.
    pub(crate) fn language_names(&self) -> Vec<&str> {
        let names = self.languages.keys().chain(
            self.native_languages
                .iter()
                .filter(|(_, on)| **on)
                .map(|(name, _)| name),
        );
        let names = names.chain(&self.program_languages);
        let mut names: Vec<&str> = names.map(String::as_str).chain([MANGO]).collect();
        names.sort_unstable();
        names
    }
}
