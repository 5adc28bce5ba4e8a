//! `settee check-config --sandbox`: which layers of each pool's cell are effective on this machine.
//!
//! SUMMARY   Tries the cells of each language's own pool and of each named pool, like the service.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::one_line;
use crate::actors::language::Registry;
use crate::app::settings::manager_settings;
use crate::cli::exit::{CliError, CliResult, Exit, IoAt, own_program};
use crate::cli::service_socket::{SocketArgs, block_on};
use crate::config::{Config, SandboxMode};
use crate::query_server::language::LanguageName;
use crate::query_server::status::DaemonStatus;
use child::Spawner;
use child::cell::layers::Layers;
use child::cell::trial::CellTrial;

/// The results, for display.
#[derive(Default)]
pub(super) struct Findings {
    /// Comments of a TOML file.
    pub(super) text: String,
    /// Pools whose program is missing or has unreadable files, one per line.
    programless: Vec<String>,
    /// Layers missing for strict pools, one per line.
    lacking: Vec<String>,
}

impl Findings {
    /// Fails if a process of a pool could not be started.
    pub(super) fn verdict(self) -> CliResult {
        let mut hints = Vec::new();
        if !self.programless.is_empty() {
            hints.push(
                "give the program's full path, or install it in PATH, and make it readable by others \
                 (docs/cells.md)",
            );
        }
        if !self.lacking.is_empty() {
            hints.push(
                "provide the layers (docs/cells.md), or set sandbox = \"standard\" for these \
                 pools",
            );
        }
        if hints.is_empty() {
            return Ok(());
        }
        let what = [self.programless, self.lacking].concat().join("\n");
        Err(CliError::new(Exit::Config, what, hints.join("; ")))
    }
}

/// Tries the cells of all pools.
pub(super) fn try_all(config: &Config, languages: &Registry) -> CliResult<Findings> {
    let program = own_program()?;
    let spawner = Spawner::start().io_at("a thread for children")?;
    let settings = manager_settings(&Arc::new(config.clone()), &program, languages, &[]);
    let names: BTreeSet<&str> = settings
        .languages
        .names()
        .map(LanguageName::as_str)
        .chain(settings.pools.keys().map(String::as_str))
        .collect();
    let mut trials = Vec::new();
    for name in names {
        let section = settings.pools.get(name).cloned().unwrap_or_default();
        let language = LanguageName::new(section.language.as_deref().unwrap_or(name));
        let language = settings.languages.get(&language);
        if let Some(trial) =
            language.and_then(|language| language.cell_trial(&settings.cells.of_pool(&section)))
        {
            trials.push((name, trial));
        }
    }
    crate::cli::system()?.block_on(try_each(&trials, &spawner))
}

/// Returns the layers of the running service's cells, if it answers this user. They may differ from those found here:
/// the service's unit may lack capabilities that this user has.
pub(super) fn of_service(config: &Config) -> String {
    let socket = Some(config.server.socket.clone());
    let status = block_on(async {
        SocketArgs { socket }
            .service()
            .get::<DaemonStatus>("/_status")
            .await
    });
    let pools = status.map_or_else(|_| Vec::new(), |status| status.pools);
    let mut text = String::new();
    for pool in &pools {
        let Some(sandbox) = &pool.sandbox else {
            continue;
        };
        let mut tell = |line: String| text += &comment(&pool.name, &sandbox.mode, &line);
        match &sandbox.error {
            Some(error) => tell(format!("cannot be made: {error}")),
            None => tell(format!("holds {}", sandbox.layers.join(", "))),
        }
        for (layer, why) in &sandbox.missing {
            tell(format!("misses {layer}: {why}"));
        }
    }
    match &*text {
        "" => text,
        told => format!("\n# Cells of the running service:\n{told}"),
    }
}

async fn try_each(trials: &[(&str, CellTrial)], spawner: &Spawner) -> CliResult<Findings> {
    let mut findings = Findings {
        text: "\n# Cells of pools:\n".to_owned(),
        ..Findings::default()
    };
    let mut known: FxHashMap<&CellTrial, Result<Layers, String>> = FxHashMap::default();
    for (name, trial) in trials {
        if let Err(error) = trial.check_program() {
            // Its processes cannot be started in any cell.
            let why = error.to_string();
            findings.text += &comment(name, trial.mode, &why);
            findings
                .programless
                .push(format!("the pool {name:?}: {why}"));
            continue;
        }
        if !known.contains_key(trial) {
            known.insert(trial, trial.run(spawner).await);
        }
        findings.add(name, trial.mode, &known[trial]);
    }
    Ok(findings)
}

/// Returns a comment about a pool; a program's output does not end it.
fn comment(name: &str, mode: impl Display, line: &str) -> String {
    format!("# {name} ({mode}): {}\n", one_line(line))
}

impl Findings {
    fn add(&mut self, name: &str, mode: SandboxMode, found: &Result<Layers, String>) {
        let mut lines = Vec::new();
        match found {
            Ok(_) if mode == SandboxMode::Off => lines.push("no cell".to_owned()),
            Ok(layers) => {
                let held: Vec<String> = layers.held.iter().map(ToString::to_string).collect();
                lines.push(format!("holds {}", held.join(", ")));
                let missing = layers.missing.iter();
                lines.extend(missing.map(|(layer, why)| format!("misses {layer}: {why}")));
                let unreadable = layers.unreadable.iter();
                self.programless
                    .extend(unreadable.map(|why| format!("the pool {name:?}: {why}")));
                lines.extend(layers.unreadable.iter().cloned());
            }
            Err(error) => lines.push(format!("cannot be made: {error}")),
        }
        let comments = lines.iter().map(|line| comment(name, mode, line));
        self.text.extend(comments);
        let is_whole = found.as_ref().is_ok_and(|layers| layers.missing.is_empty());
        if mode == SandboxMode::Strict && !is_whole {
            let told: Vec<&str> = lines
                .iter()
                .filter(|line| !line.starts_with("holds"))
                .map(String::as_str)
                .collect();
            let told = told.join("; ");
            self.lacking.push(format!(
                "[pools.{name}] sandbox = \"strict\": the cell {told}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use child::cell::layers::Layer;

    fn findings(mode: SandboxMode, found: Result<Layers, String>) -> Findings {
        let mut findings = Findings::default();
        findings.add("python", mode, &found);
        findings
    }

    fn lacking_cpu() -> Layers {
        Layers {
            held: vec![Layer::Files, Layer::Network],
            missing: [(Layer::Cpu, "no cgroup\ncan be made".to_owned())].into(),
            ..Layers::default()
        }
    }

    #[test]
    fn effective_and_missing_layers_are_printed_as_comments() {
        let found = findings(SandboxMode::Standard, Ok(lacking_cpu()));
        let expected = "# python (standard): holds files, network\n\
                        # python (standard): misses cpu: no cgroup can be made\n";
        assert_eq!(found.text, expected);
        assert!(found.verdict().is_ok());
        let off = findings(SandboxMode::Off, Ok(Layers::default()));
        assert_eq!(off.text, "# python (off): no cell\n");
    }

    #[test]
    fn a_strict_pool_that_lacks_a_layer_is_a_configuration_error() {
        for found in [Ok(lacking_cpu()), Err("no room".to_owned())] {
            let error = findings(SandboxMode::Strict, found).verdict().unwrap_err();
            assert_eq!(error.code, Exit::Config);
            assert!(error.message.contains("[pools.python]"), "{error}");
        }
        let whole = Layers {
            held: vec![Layer::Files],
            ..Layers::default()
        };
        assert!(findings(SandboxMode::Strict, Ok(whole)).verdict().is_ok());
    }
}
