//! Derives the ProcManager's settings from the configuration; no other module does.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::actors::language::Registry;
use crate::actors::proc_manager::ManagerSettings;
use crate::config::keys::MANGO;
use crate::config::{Config, LanguageCommand, SandboxMode};
use crate::languages::command::CommandLanguage;
use crate::languages::echo::echo;
use crate::languages::query::query;
use crate::query_server::abilities::Ability;
use crate::query_server::cells::Cells;
use crate::query_server::language::LanguageName;
use child::CommandSpec;
use child::cell::Cell;
use policy::pool::Limits;
use strum::VariantArray;

/// Minimum line limit of query servers, in bytes, even if clients may send less.
const ANSWER_BYTES_MIN: usize = 64 << 20;

/// Returns the manager's settings. Configured languages replace those of `languages`.
///
/// `program` is this program: the built-in query servers and the launcher of cells are its subcommands. `ports` are
/// the TCP ports that the service listens on.
pub(crate) fn manager_settings(
    config: &Arc<Config>,
    program: &Path,
    languages: &Registry,
    ports: &[u16],
) -> ManagerSettings {
    let query_servers = &config.query_server_config;
    let cells = Cells::of(config, ports);
    let (languages, external) = registry(config, program, languages, &cells);
    ManagerSettings {
        limits: Limits {
            hard_limit: query_servers.os_process_limit,
            soft_limit: query_servers.os_process_soft_limit,
            affinity_wait: query_servers.affinity_wait,
        },
        processes_max: config.processes_max(),
        pools_max: config.server.pools_max,
        tenants: config.tenant_rules(),
        pools: config
            .pools_with_services()
            .into_iter()
            .map(|(name, pool)| (name, Arc::new(pool)))
            .collect(),
        service_terms: config.terms_of_later_pools(),
        os_process_timeout: config.couchdb.os_process_timeout,
        idle_limit: query_servers.os_process_idle_limit,
        // A process gets TERM after half of this time, and KILL at its end.
        stop_grace: config.server.stop_grace * 2,
        line_bytes_max: answer_bytes_max(config),
        log_lines_max: config.log.child_lines_max,
        log_bytes_max: config.log.pool_bytes_max,
        reuse: query_servers.cell.reuse,
        isolates_max: query_servers.isolates_max,
        db_tag: query_servers.db_tag,
        reset_config: Arc::from(config.reset_config()),
        languages,
        external,
        cells,
    }
}

/// Returns all languages, and the names of those whose commands the service puts into cells.
fn registry(
    config: &Config,
    program: &Path,
    languages: &Registry,
    cells: &Cells,
) -> (Registry, BTreeSet<LanguageName>) {
    let mut registry = languages.clone();
    for (name, command) in &config.languages {
        match command {
            LanguageCommand::Builtin => registry.register(name, builtin(config, program)),
            LanguageCommand::Command(text) => registry.register(name, CommandLanguage::new(text)),
        }
    }
    // `keys::NATIVE_LANGUAGES` lists the valid names.
    if config.native_languages.get("echo") == Some(&true) {
        registry.register("echo", echo());
    }
    // Always present: the configuration refuses a command of this name.
    registry.register(MANGO, query());
    let mut external = BTreeSet::new();
    for (name, language) in registry.clone().iter() {
        let terms = cells.of_pool(&config.pools.get(name.as_str()).cloned().unwrap_or_default());
        if let Some(confined) = language.in_cells(program, terms) {
            registry.insert(name.clone(), confined);
            external.insert(name.clone());
        }
    }
    (registry, external)
}

/// The line limit of query servers, in bytes.
fn answer_bytes_max(config: &Config) -> usize {
    config.server.line_max.max(ANSWER_BYTES_MIN)
}

fn builtin(config: &Config, program: &Path) -> CommandLanguage {
    let memory = config.sandbox.javascript_memory_max.to_string();
    let line_max = answer_bytes_max(config).to_string();
    let mut arguments = vec!["couchjs", "-S", &memory, "--line-max", &line_max];
    if !config.query_server_config.optimize_functions {
        arguments.push("--no-optimize-functions");
    }
    let time_zone = std::env::var("TZ").ok();
    CommandLanguage::from_spec(CommandSpec {
        program: program.to_owned(),
        arguments: arguments.into_iter().map(Into::into).collect(),
        // Functions see local time, as CouchDB's do.
        environment: time_zone
            .map(|zone| ("TZ".to_owned(), zone))
            .into_iter()
            .collect(),
        cell: Cell::Own(SandboxMode::Standard),
    })
    .with_abilities(Ability::VARIANTS)
    .isolating_functions()
    .built_in()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PoolConfig;

    #[test]
    fn every_configured_language_is_found_by_its_name_in_any_case() {
        let mut config = Config::default();
        let python = LanguageCommand::Command("couchpy --debug".into());
        config.languages.insert("python".into(), python);
        config.native_languages.insert("echo".into(), true);
        let settings = manager_settings(
            &Arc::new(config),
            Path::new("/bin/settee"),
            &Registry::new(),
            &[],
        );
        let described = |name| {
            let language = settings.languages.get(&LanguageName::new(name));
            language.map(|language| language.describe())
        };
        let javascript = described("JavaScript");
        assert_eq!(
            javascript.as_deref(),
            Some("/bin/settee couchjs -S 67108864 --line-max 67108864")
        );
        assert_eq!(described("python").as_deref(), Some("couchpy --debug"));
        assert_eq!(described("echo").as_deref(), Some("native"));
        assert_eq!(described("Query").as_deref(), Some("native"));
        assert_eq!(described("perl"), None);
    }

    #[test]
    fn commands_of_the_configuration_and_of_the_program_are_put_into_cells() {
        let mut config = Config::default();
        let python = LanguageCommand::Command("couchpy".into());
        config.languages.insert("python".into(), python);
        let mut languages = Registry::new();
        languages.register("lua", CommandLanguage::new("lua server.lua"));
        languages.register("javascript", CommandLanguage::new("node"));
        languages.register("native", echo());
        let settings = manager_settings(&Arc::new(config), Path::new("settee"), &languages, &[]);
        let external: Vec<_> = settings.external.iter().map(LanguageName::as_str).collect();
        assert_eq!(external, ["lua", "python"]);
        let terms = settings.cells.of_pool(&PoolConfig::default());
        for name in external {
            let language = settings.languages.get(&LanguageName::new(name));
            let trial = language.and_then(|language| language.cell_trial(&terms));
            assert!(trial.is_some(), "{name}");
        }
    }

    #[test]
    fn the_built_in_server_is_told_not_to_optimize_functions() {
        let mut config = Config::default();
        config.query_server_config.optimize_functions = false;
        let settings = manager_settings(
            &Arc::new(config),
            Path::new("settee"),
            &Registry::new(),
            &[],
        );
        let javascript = settings.languages.get(&LanguageName::new("javascript"));
        let command = javascript.map(|language| language.describe());
        assert!(command.is_some_and(|command| command.ends_with(" --no-optimize-functions")));
    }

    #[test]
    fn limits_and_times_of_the_default_configuration_are_passed_on() {
        let config = Config::default();
        let settings = manager_settings(
            &Arc::new(config),
            Path::new("settee"),
            &Registry::new(),
            &[],
        );
        assert_eq!(settings.limits.hard_limit, 100);
        assert_eq!(settings.os_process_timeout.as_millis(), 5000);
        assert_eq!(settings.idle_limit.as_secs(), 300);
        assert_eq!(settings.stop_grace.as_millis(), 4000);
    }
}
