//! A language defined by a command: any program that speaks the line protocol.
//!
//! SUMMARY   Converts the configured command text to a program and its arguments, for pools with and without stress.
//! PROMISES  Under stress a process has `SETTEE_STRESS=yes` in its environment. Every child of a configured command,
//!           including probes, runs in a cell with the terms of its pool.
//! SOURCE    couch_os_process: `sh -c "exec COMMAND"`. Postfix: `-o stress=yes`, `${stress?..}`.
//! DIFFERS   A command without shell syntax is started directly: a missing program is an immediate error rather than
//!           exit status 127, and no shell is started in between.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::actors::language::{Language, StartContext};
use crate::actors::os_process::OsProcess;
use crate::config::stressed::expand;
use crate::messages::opener::StartError;
use crate::messages::process::{Fault, ProcessRef};
use crate::query_server::abilities::{Abilities, Ability};
use crate::query_server::isolates::IsolateTerms;
use child::cell::Cell;
use child::cell::terms::CellTerms;
use child::cell::trial::{CellTrial, check_program};
use child::{CommandSpec, SpawnError};

/// The shell that runs commands with shell syntax.
const SHELL: &str = "/bin/sh";

/// Characters with a meaning in a shell.
const SHELL_SYNTAX: &str = "|&;<>()$`\\\"'*?[]#~={}!\n\r";

/// The variable that informs a process that its pool is under stress.
const STRESS_VARIABLE: (&str, &str) = ("SETTEE_STRESS", "yes");

/// A language whose processes are children started by one command.
#[derive(Clone)]
pub struct CommandLanguage {
    text: String,
    spec: CommandSpec,
    stressed: CommandSpec,
    abilities: Arc<dyn Fn(CommandSpec) -> Abilities + Send + Sync>,
    isolates_functions: bool,
    confinement: Confinement,
    /// The cell for children that probe abilities.
    probe_terms: CellTerms,
}

/// How processes get their cells.
#[derive(Clone)]
enum Confinement {
    None,
    /// They enter their own cells, as the built-in server's do.
    Own,
    /// This program makes them, with its subcommand `cell`.
    Launched(PathBuf),
}

impl Confinement {
    fn confine(&self, terms: &CellTerms, command: CommandSpec) -> CommandSpec {
        match self {
            Self::None => command,
            Self::Own => terms.own(command),
            Self::Launched(launcher) => terms.launched(launcher, command),
        }
    }
}

impl CommandLanguage {
    /// Makes the language from a configured command.
    pub fn new(text: &str) -> Self {
        let [spec, stressed] = [false, true].map(|stress| command_spec(&expand(text, stress)));
        Self::of(text.to_owned(), spec, stressed)
    }

    /// Makes the language from a program and its arguments, without shell syntax.
    pub fn from_spec(spec: CommandSpec) -> Self {
        let mut text = spec.program.display().to_string();
        for word in &spec.arguments {
            text.push(' ');
            text.push_str(&word.to_string_lossy());
        }
        Self::of(text, spec.clone(), spec)
    }

    /// Returns why a command cannot be started, as far as known without starting it. Blocks: for shell syntax it runs
    /// a shell.
    pub(crate) fn mistake(text: &str) -> Option<String> {
        let CommandSpec {
            program, arguments, ..
        } = command_spec(&expand(text, false));
        if let Err(error) = check_program(&program) {
            return Some(error.to_string());
        }
        let [option, script] = &arguments[..] else {
            return None;
        };
        if program != Path::new(SHELL) || option != "-c" {
            return None;
        }
        let read = Command::new(SHELL)
            .args(["-n", "-c"])
            .arg(script)
            .output()
            .ok()
            .filter(|read| !read.status.success())?;
        Some(String::from_utf8_lossy(&read.stderr).trim().to_owned())
    }

    fn of(text: String, spec: CommandSpec, mut stressed: CommandSpec) -> Self {
        let (name, value) = STRESS_VARIABLE;
        stressed.environment.push((name.into(), value.into()));
        Self {
            text,
            spec,
            stressed,
            abilities: Arc::new(Abilities::to_probe),
            isolates_functions: false,
            confinement: Confinement::None,
            probe_terms: CellTerms::default(),
        }
    }

    /// Makes `launcher` create the cells of the language's processes. Abilities are probed in the cell of the
    /// language's own pool.
    fn launched_by(mut self, launcher: &Path, of_own_pool: CellTerms) -> Self {
        self.confinement = Confinement::Launched(launcher.to_owned());
        self.probe_terms = of_own_pool;
        self
    }

    /// Declares that its processes are the built-in server's: they enter their own cells, support `forget`, and have
    /// isolates.
    #[must_use]
    pub(crate) fn built_in(mut self) -> Self {
        self.confinement = Confinement::Own;
        self
    }

    /// Declares its abilities, so that it is never probed: others are refused without asking a process.
    #[must_use]
    pub fn with_abilities(mut self, present: &[Ability]) -> Self {
        let present = present.to_vec();
        self.abilities = Arc::new(move |_| Abilities::declared(&present));
        self
    }

    /// Declares that no function can see or change what another function of the same process does.
    #[must_use]
    pub fn isolating_functions(mut self) -> Self {
        self.isolates_functions = true;
        self
    }

    fn is_built_in(&self) -> bool {
        matches!(self.confinement, Confinement::Own)
    }

    /// Neither probes nor refuses any ability.
    #[must_use]
    pub fn without_probes(mut self) -> Self {
        self.abilities = Arc::new(|_| Abilities::undeclared());
        self
    }
}

fn command_spec(text: &str) -> CommandSpec {
    let direct = !text
        .chars()
        .any(|character| SHELL_SYNTAX.contains(character));
    let mut words = text.split_whitespace();
    let (program, arguments) = match words.next() {
        Some(program) if direct => (program, words.map(Into::into).collect()),
        _ => (SHELL, vec!["-c".into(), format!("exec {text}").into()]),
    };
    CommandSpec {
        program: program.into(),
        arguments,
        environment: Vec::new(),
        cell: Cell::None,
    }
}

impl Language for CommandLanguage {
    fn describe(&self) -> String {
        self.text.clone()
    }

    fn abilities(&self) -> Abilities {
        let command = self.spec.clone();
        (self.abilities)(self.confinement.confine(&self.probe_terms, command))
    }

    fn cell_trial(&self, terms: &CellTerms) -> Option<CellTrial> {
        let program = &self.spec.program;
        match &self.confinement {
            Confinement::None => None,
            Confinement::Own => Some(CellTrial::own(terms, program)),
            Confinement::Launched(launcher) => Some(CellTrial::launched(terms, launcher, program)),
        }
    }

    fn isolates_functions(&self) -> bool {
        self.isolates_functions
    }

    fn in_cells(&self, launcher: &Path, of_own_pool: CellTerms) -> Option<Arc<dyn Language>> {
        if self.is_built_in() {
            return None;
        }
        Some(Arc::new(self.clone().launched_by(launcher, of_own_pool)))
    }

    fn can_forget(&self) -> bool {
        self.is_built_in()
    }

    fn has_isolates(&self) -> bool {
        self.is_built_in()
    }

    fn start(
        &self,
        context: StartContext,
    ) -> LocalBoxFuture<'static, Result<ProcessRef, StartError>> {
        let spec = if context.stress {
            &self.stressed
        } else {
            &self.spec
        };
        let mut spec = self.confinement.confine(&context.cell, spec.clone());
        let isolates = context.isolates.iter().flat_map(IsolateTerms::environment);
        spec.environment.extend(isolates);
        async move {
            let (child, pipes) = context.spawner.spawn(spec).await.map_err(|error| {
                let fault = match error {
                    SpawnError::NotFound(_) | SpawnError::NotExecutable { .. } => {
                        Fault::QueryServer
                    }
                    SpawnError::Refused(_) | SpawnError::Ending => Fault::Host,
                };
                StartError::new(error.to_string(), fault)
            })?;
            OsProcess::start_with(child, pipes, context).map_err(|error| {
                let reason = format!("cannot use the pipes of the query server: {error}");
                StartError::new(reason, Fault::Host)
            })
        }
        .boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{PoolConfig, SandboxMode};
    use crate::query_server::cells::Cells;

    #[test]
    fn a_plain_command_is_started_directly() {
        let spec = command_spec(" /usr/bin/couchpy  --log-file=- ");
        // An equals sign may be a shell assignment.
        assert_eq!(spec.program.to_str(), Some("/bin/sh"));
        let spec = command_spec(" couchpy  --debug ");
        assert_eq!(spec.program.to_str(), Some("couchpy"));
        assert_eq!(spec.arguments, ["--debug"]);
    }

    #[test]
    fn a_command_is_expanded_for_stress_and_the_environment_says_so() {
        let language = CommandLanguage::new("server --timeout ${stress?{10}:{300}} x{stress}");
        let (normal, stressed) = (language.spec, language.stressed);
        assert_eq!(normal.program.to_str(), Some("server"));
        assert_eq!(normal.arguments, ["--timeout", "300", "x"]);
        assert_eq!(normal.environment, []);
        assert_eq!(stressed.arguments, ["--timeout", "10", "xyes"]);
        let variable = ("SETTEE_STRESS".to_owned(), "yes".to_owned());
        assert_eq!(stressed.environment, [variable]);
        // A shell variable of that name is left to the shell.
        let language = CommandLanguage::new("server ${stress}");
        assert_eq!(language.spec.program.to_str(), Some("/bin/sh"));
    }

    #[test]
    fn shell_syntax_goes_through_a_shell() {
        for text in ["a 'b c'", "A=1 b", "a > /dev/null", "$HOME/x", "a; b"] {
            let spec = command_spec(text);
            assert_eq!(spec.program.to_str(), Some("/bin/sh"));
            assert_eq!(spec.arguments[1], format!("exec {text}").as_str());
        }
    }

    #[test]
    fn a_command_of_the_configuration_gets_the_cell_of_its_pool_and_the_built_in_server_its_own() {
        let terms = Cells::of(&Arc::default(), &[]).of_pool(&PoolConfig::default());
        let language =
            CommandLanguage::new("server").launched_by(Path::new("/settee"), terms.clone());
        let confined = |language: &CommandLanguage| {
            let command = language.stressed.clone();
            language.confinement.confine(&terms, command)
        };
        let command = confined(&language);
        assert!(matches!(command.cell, Cell::Launched { .. }), "{command:?}");
        let stress = ("SETTEE_STRESS".to_owned(), "yes".to_owned());
        assert_eq!(command.environment.last(), Some(&stress));
        assert!(language.cell_trial(&terms).is_some());
        let language = CommandLanguage::new("settee couchjs").built_in();
        assert_eq!(confined(&language).cell, Cell::Own(SandboxMode::Standard));
        assert!(language.cell_trial(&terms).is_some());
        // For a program that embeds the service.
        let language = CommandLanguage::new("server");
        assert_eq!(confined(&language).cell, Cell::None);
        assert!(language.cell_trial(&terms).is_none());
    }
}
