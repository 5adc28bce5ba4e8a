//! Determines which layers of a cell are effective on this machine.
//!
//! SUMMARY   [`CellTrial`] starts this program as `settee cell --report`, which enters a cell and prints the
//!           effective layers, as one line of JSON.
//! PROMISES  A trial takes at most [`TRIAL_TIME_MAX`]; dropping it ends its child. If a signal ends the child,
//!           another is started.
//! CALLED    By the ProcManager, concurrently, and by `settee check-config --sandbox`.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::layers::Layers;
use super::terms::CellTerms;
use super::{Cell, SandboxMode};
use crate::unpooled_child::{ChildEnd, UnpooledChild};
use crate::{CommandSpec, SpawnError, Spawner, find_program};

/// The time limit of a trial.
const TRIAL_TIME_MAX: Duration = Duration::from_secs(5);

/// Maximum children started, one after the other, if signals end them.
const TRIES_MAX: usize = 3;

/// Maximum length of a report, in bytes.
const REPORT_BYTES_MAX: usize = 1 << 16;

/// Maximum characters of an invalid report that are quoted.
const QUOTED_CHARACTERS: usize = 200;

/// A cell to test. Cells with equal trials have the same layers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CellTrial {
    /// How strict the cell is.
    pub mode: SandboxMode,
    /// The program that has the subcommand `cell`.
    launcher: PathBuf,
    /// The arguments after `cell`.
    arguments: Vec<OsString>,
    /// The program to start; the built-in server is the launcher itself.
    program: Option<PathBuf>,
}

impl CellTrial {
    /// Returns the trial of a command's cell.
    pub fn launched(terms: &CellTerms, launcher: &Path, program: &Path) -> Self {
        let spec = serde_json::to_string(&terms.spec).expect("cell: a spec is always JSON");
        Self {
            mode: terms.spec.mode,
            launcher: launcher.to_owned(),
            arguments: ["--report", &spec, "--"].map(Into::into).to_vec(),
            program: Some(program.to_owned()),
        }
    }

    /// Returns the trial of the cell that the built-in server enters.
    pub fn own(terms: &CellTerms, program: &Path) -> Self {
        let mode = terms.spec.mode;
        Self {
            mode,
            launcher: program.to_owned(),
            arguments: ["--report-own", &mode.to_string()].map(Into::into).to_vec(),
            program: None,
        }
    }

    /// Checks the command's program, which the cell does not depend on.
    ///
    /// # Errors
    /// See [`check_program`].
    pub fn check_program(&self) -> Result<(), SpawnError> {
        self.program.as_deref().map_or(Ok(()), check_program)
    }

    /// Finds the effective layers; with `off` there are none.
    ///
    /// # Errors
    /// Why the cell cannot be created at all.
    pub async fn run(&self, spawner: &Spawner) -> Result<Layers, String> {
        if self.mode == SandboxMode::Off {
            return Ok(Layers::default());
        }
        let reported = async {
            let mut reported = self.report(spawner).await;
            for _ in 1..TRIES_MAX {
                if reported.as_ref().is_err_and(|end| !end.is_its_own) {
                    reported = self.report(spawner).await;
                }
            }
            reported.map_err(|end| end.report)
        };
        tokio::time::timeout(TRIAL_TIME_MAX, reported)
            .await
            .unwrap_or_else(|_| {
                let seconds = TRIAL_TIME_MAX.as_secs();
                Err(format!("nothing was reported within {seconds} s"))
            })
    }

    async fn report(&self, spawner: &Spawner) -> Result<Layers, ChildEnd> {
        let wrong = |report| ChildEnd {
            report,
            is_its_own: true,
        };
        let mut arguments = self.arguments.clone();
        if let Some(program) = &self.program {
            // A missing program is reported when it is started.
            let found = find_program(program).unwrap_or_else(|_| program.clone());
            arguments.push(found.into());
        }
        let command = CommandSpec {
            program: self.launcher.clone(),
            arguments,
            environment: Vec::new(),
            cell: Cell::Trial,
        };
        let mut child = UnpooledChild::start(spawner, command, REPORT_BYTES_MAX)
            .await
            .map_err(|error| wrong(error.to_string()))?;
        child.close();
        match child.line().await {
            Ok(Some(line)) => layers_of(&line).map_err(wrong),
            Ok(None) => Err(child.exit_report().await),
            Err(error) => Err(wrong(error.to_string())),
        }
    }
}

fn layers_of(line: &[u8]) -> Result<Layers, String> {
    let mut layers: Layers = serde_json::from_slice(line).map_err(|_| {
        let start: String = String::from_utf8_lossy(line)
            .chars()
            .take(QUOTED_CHARACTERS)
            .collect();
        format!("the report makes no sense: {start}")
    })?;
    layers.held.sort_unstable();
    Ok(layers)
}

/// Checks that a command's program can be executed.
///
/// # Errors
/// It does not exist, or cannot be executed.
pub fn check_program(program: &Path) -> Result<(), SpawnError> {
    let program = find_program(program)?;
    let source = match access(&program, Access::EXEC_OK) {
        Ok(()) if program.is_dir() => io::ErrorKind::IsADirectory.into(),
        Ok(()) => return Ok(()),
        Err(Errno::NOENT | Errno::NOTDIR) => return Err(SpawnError::NotFound(program)),
        Err(error) => error.into(),
    };
    Err(SpawnError::NotExecutable { program, source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cell::layers::Layer;

    fn stand_in(script: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settee");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        (folder, path)
    }

    fn standard() -> CellTerms {
        let mut terms = CellTerms::default();
        terms.spec.mode = SandboxMode::Standard;
        terms
    }

    #[actix_rt::test]
    async fn the_launcher_is_asked_for_a_report_with_the_path_of_the_program() {
        let script = r#"[ "$1 $2 $4" = "cell --report --" ] || exit 3
            case $3 in '{"mode":"standard",'*) ;; *) exit 4;; esac
            case $5 in /*/sh) ;; *) exit 5;; esac
            echo '{"held":["network","files"],"missing":{"cpu":"no cgroup"}}'"#;
        let (_folder, launcher) = stand_in(script);
        let spawner = Spawner::start().unwrap();
        let trial = CellTrial::launched(&standard(), &launcher, Path::new("sh"));
        let layers = trial.run(&spawner).await.unwrap();
        assert_eq!(layers.held, [Layer::Files, Layer::Network]);
        assert_eq!(layers.missing[&Layer::Cpu], "no cgroup");
    }

    #[actix_rt::test]
    async fn the_built_in_server_is_asked_for_a_report_with_its_mode() {
        let script =
            r#"[ "$*" = "cell --report-own standard" ] && echo '{"held":[],"missing":{}}'"#;
        let (_folder, program) = stand_in(script);
        let spawner = Spawner::start().unwrap();
        let trial = CellTrial::own(&standard(), &program);
        assert_eq!(trial.run(&spawner).await, Ok(Layers::default()));
    }

    #[actix_rt::test]
    async fn a_trial_that_a_signal_ends_is_made_again() {
        let script = r#"[ -e "$0.once" ] || { : >"$0.once"; kill -KILL $$; }
            echo '{"held":["files"],"missing":{}}'"#;
        let (_folder, launcher) = stand_in(script);
        let spawner = Spawner::start().unwrap();
        let trial = CellTrial::launched(&standard(), &launcher, Path::new("sh"));
        assert_eq!(trial.run(&spawner).await.unwrap().held, [Layer::Files]);
    }

    #[actix_rt::test]
    async fn a_cell_that_cannot_be_made_is_reported_with_its_last_words() {
        let (_folder, launcher) = stand_in("echo 'no room' >&2; exit 125");
        let spawner = Spawner::start().unwrap();
        let trial = CellTrial::launched(&standard(), &launcher, Path::new("sh"));
        let error = trial.run(&spawner).await.unwrap_err();
        assert_eq!(error, "exited with status 125, its last words: no room");
        let (_folder, launcher) = stand_in("echo nonsense");
        let trial = CellTrial::launched(&standard(), &launcher, Path::new("sh"));
        let error = trial.run(&spawner).await.unwrap_err();
        assert_eq!(error, "the report makes no sense: nonsense");
    }
}
