//! What the ProcManager takes from the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::Message;
use policy::pool::{Limits, Reuse, TenantRules};

use crate::actors::language::{Language, Registry};
use crate::config::{PoolConfig, PoolTerms, ServiceTerms};
use crate::query_server::cells::Cells;
use crate::query_server::language::LanguageName;

/// The settings that the manager works by (`reload_config`). They hold from now on.
#[derive(Clone, Message)]
#[rtype(result = "()")]
pub struct ReloadConfig(pub Arc<ManagerSettings>);

/// What the ProcManager takes from the configuration.
#[derive(Clone)]
pub struct ManagerSettings {
    /// The limits of every language's pool, where its section says nothing else.
    pub limits: Limits,
    /// `processes_max`: most processes of all pools together; `None` is any number.
    pub processes_max: Option<u32>,
    /// Most pools, those of languages included.
    pub pools_max: usize,
    /// How much each tenant may have at a time, over all pools.
    pub tenants: TenantRules,
    /// Name -> the section of a pool, in lower case: a language's own, or a named one.
    /// Shared with the pool while that follows it.
    pub pools: BTreeMap<String, Arc<PoolConfig>>,
    /// Name -> what services ask of a pool that is in no section, in lower case.
    pub service_terms: BTreeMap<String, ServiceTerms>,
    /// `os_process_timeout`: for a request, a reset, a lesson and a prompt.
    pub os_process_timeout: Duration,
    /// `os_process_idle_limit`.
    pub idle_limit: Duration,
    /// How long a process that was told to stop may take before it is killed.
    pub stop_grace: Duration,
    /// The longest line that a process may print, in bytes.
    pub line_bytes_max: usize,
    /// Lines of a process that are logged in a second.
    pub log_lines_max: usize,
    /// Bytes of lines of a pool's processes that are logged in a minute.
    pub log_bytes_max: usize,
    /// Whom the processes of pools may serve; none: it depends on their language.
    pub reuse: Option<Reuse>,
    /// How a database's name becomes a tag.
    pub db_tag: policy::pool::db_tag::DbTag,
    /// The arguments of `reset`: a JSON object.
    pub reset_config: Arc<str>,
    /// The languages and how their processes are started.
    pub languages: Registry,
    /// Those of them whose command comes from the configuration.
    pub external: BTreeSet<LanguageName>,
    /// What the configuration says of the cells of processes.
    pub cells: Cells,
}

impl ManagerSettings {
    /// Returns whom the processes of a language may serve, where their pool's section says nothing else:
    /// a language that keeps functions apart by itself shares its processes.
    fn reuse_of(&self, language: Option<&dyn Language>) -> Reuse {
        let by_language = if language.is_some_and(|language| language.isolates_functions()) {
            Reuse::Any
        } else {
            Reuse::Database
        };
        self.reuse.unwrap_or(by_language)
    }

    /// Returns what holds for the pools of a language.
    pub(super) fn terms_of(&self, language: &LanguageName) -> PoolTerms {
        let language = self.languages.get(language);
        PoolTerms {
            limits: self.limits,
            reuse: self.reuse_of(language.as_deref()),
            can_forget: language
                .as_ref()
                .is_some_and(|language| language.can_forget()),
            isolates_functions: language.is_some_and(|language| language.isolates_functions()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::app::settings::manager_settings;
    use crate::config::Config;

    impl ManagerSettings {
        /// Returns the default settings of a manager that has no language.
        pub(crate) fn without_languages() -> Arc<Self> {
            let config = Config::default();
            let settings = manager_settings(&config, Path::new("settee"), &Registry::new(), &[]);
            Arc::new(settings)
        }
    }
}
