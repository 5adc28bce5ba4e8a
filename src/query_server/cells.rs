//! The cells of a pool's processes, and their environment.
//!
//! SUMMARY   [`Cells`] is the configuration of cells; [`CellTerms`] is derived from it for one pool's processes.
//! PROMISES  No cell contains the folders of the configuration, the store and the sockets, or the private keys, or
//!           reaches the ports that the service listens on. From the service's environment a command gets only the
//!           search path, the language, the time zone, and variables that its configuration names.
//! CALLED    By the ProcManager for each start, and by commands that start query servers.

use std::path::PathBuf;
use std::sync::Arc;

use crate::config::{Config, PoolConfig, Surroundings};
use child::cell::CellSpec;
use child::cell::terms::CellTerms;

/// Variables that every command inherits from the service.
const PASSED_ON: [&str; 3] = ["PATH", "LANG", "TZ"];
/// Prefix of further variables that every command inherits.
const PASSED_ON_PREFIX: &str = "LC_";

/// The configuration of cells. By default there are none.
#[derive(Clone, Debug, Default)]
pub struct Cells(Option<Arc<Known>>);

#[derive(Clone, Debug)]
struct Known {
    config: Arc<Config>,
    hidden_paths: Vec<PathBuf>,
    refused_ports: Vec<u16>,
    /// The service's environment.
    variables: Vec<(String, String)>,
    is_tried: bool,
}

impl Cells {
    /// Returns the cells of a configuration. `ports` are TCP ports that the service listens on besides the configured
    /// ones.
    pub(crate) fn of(config: &Arc<Config>, ports: &[u16]) -> Self {
        // Variables that are not UTF-8 are left out.
        let variables = Surroundings::of_process().variables.into_iter();
        let texts = variables.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self::with(config, ports, texts.collect())
    }

    fn with(config: &Arc<Config>, ports: &[u16], variables: Vec<(String, String)>) -> Self {
        let mut hidden_paths: Vec<PathBuf> = config
            .kept_paths()
            .into_iter()
            .map(|(_, place)| place)
            .collect();
        hidden_paths.sort();
        hidden_paths.dedup();
        let mut refused_ports = [&*config.own_ports(), ports].concat();
        refused_ports.sort_unstable();
        refused_ports.dedup();
        Self(Some(Arc::new(Known {
            config: Arc::clone(config),
            hidden_paths,
            refused_ports,
            variables,
            is_tried: true,
        })))
    }

    /// Skips tests of the layers: for a short-lived program.
    #[must_use]
    pub(crate) fn untried(mut self) -> Self {
        if let Some(known) = &mut self.0 {
            Arc::make_mut(known).is_tried = false;
        }
        self
    }

    /// Returns whether the layers are tested.
    pub(crate) fn are_tried(&self) -> bool {
        self.0.as_ref().is_some_and(|known| known.is_tried)
    }

    /// Returns the terms for the processes of a pool with this section.
    pub(crate) fn of_pool(&self, section: &PoolConfig) -> CellTerms {
        let Some(known) = &self.0 else {
            return CellTerms::default();
        };
        let (spec, env) = known.config.cell(&section.cell);
        CellTerms {
            environment: known.environment(&env),
            spec: CellSpec {
                hidden_paths: known.hidden_paths.clone(),
                refused_ports: known.refused_ports.clone(),
                ..spec
            },
        }
    }

    /// Returns a pool's section with the cell settings in force.
    pub(crate) fn in_force(&self, section: PoolConfig) -> PoolConfig {
        match &self.0 {
            Some(known) => known.config.with_cell(section),
            None => section,
        }
    }
}

impl Known {
    /// Returns the inherited variables, and those that `env` adds or replaces.
    fn environment(&self, env: &[String]) -> Vec<(String, String)> {
        let is_passed_on =
            |name: &str| PASSED_ON.contains(&name) || name.starts_with(PASSED_ON_PREFIX);
        let mut environment: Vec<(String, String)> = self
            .variables
            .iter()
            .filter(|(name, _)| is_passed_on(name))
            .cloned()
            .collect();
        for entry in env {
            let inherited = || {
                let variable = self.variables.iter().find(|(name, _)| name == entry)?;
                Some((&*variable.0, &*variable.1))
            };
            if let Some((name, value)) = entry.split_once('=').or_else(inherited) {
                environment.retain(|(known, _)| known != name);
                environment.push((name.to_owned(), value.to_owned()));
            }
        }
        environment
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::SandboxMode;
    use child::CommandSpec;
    use child::cell::Cell;

    fn cells(config: &Config) -> Cells {
        let variables = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("TZ", "UTC"),
            ("HOME", "/home/ann"),
            ("SETTEE__ADMINS__ANN", "secret"),
            ("HTTP_PROXY", "http://p"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Cells::with(&Arc::new(config.clone()), &[7777], variables.to_vec())
    }

    fn command() -> CommandSpec {
        CommandSpec {
            program: "server".into(),
            arguments: Vec::new(),
            environment: vec![("SETTEE_STRESS".into(), "yes".into())],
            cell: Cell::None,
        }
    }

    fn environment(command: &CommandSpec) -> Vec<String> {
        let pairs = command.environment.iter();
        pairs
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    #[test]
    fn a_command_finds_the_usual_variables_and_those_that_are_named() {
        let mut config = Config::default();
        config.query_server_config.cell.env =
            Some(vec!["HTTP_PROXY".into(), "TZ=CET".into(), "MISSING".into()]);
        let terms = cells(&config).of_pool(&PoolConfig::default());
        let launched = terms.launched(Path::new("/settee"), command());
        let expected = [
            "PATH=/bin",
            "LC_ALL=C",
            "HTTP_PROXY=http://p",
            "TZ=CET",
            "SETTEE_STRESS=yes",
        ];
        assert_eq!(environment(&launched), expected);
    }

    #[test]
    fn a_cell_is_as_its_pool_configures_it_and_hides_the_services_own_folders_and_ports() {
        let config = Config::default();
        let mut pool = PoolConfig::default();
        pool.cell.sandbox = Some(SandboxMode::Strict);
        pool.cell.cpu_max = Some(50);
        let launched = cells(&config)
            .of_pool(&pool)
            .launched(Path::new("/settee"), command());
        let Cell::Launched { launcher, spec } = launched.cell else {
            panic!("no cell: {launched:?}");
        };
        assert_eq!(launcher, Path::new("/settee"));
        assert_eq!((spec.mode, spec.cpu_max), (SandboxMode::Strict, 50));
        assert_eq!(spec.memory_max, 512 << 20);
        assert_eq!(spec.refused_ports, [5995, 7777]);
        let store = config.store.file().and_then(Path::parent).unwrap();
        let socket = config.server.socket.parent().unwrap();
        for folder in [store, socket] {
            assert!(spec.hidden_paths.iter().any(|hidden| hidden == folder));
        }
    }

    #[test]
    fn a_command_is_unchanged_if_the_sandbox_is_off_or_there_is_no_configuration() {
        let mut off = PoolConfig::default();
        off.cell.sandbox = Some(SandboxMode::Off);
        let cells = [cells(&Config::default()), Cells::default()];
        for cells in cells {
            let terms = cells.of_pool(&off);
            assert_eq!(terms.launched(Path::new("/settee"), command()), command());
            assert_eq!(terms.own(command()).cell, Cell::Own(SandboxMode::Off));
        }
    }
}
