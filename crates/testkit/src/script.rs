//! Script: the behaviour of a scripted child, as data and as the shell program for it.
//!
//! SUMMARY   A [`Script`] has steps for its start, for each kind of prompt, and for the end of its input;
//!           [`Script::program`] writes it for `sh`, which starts in a millisecond and is on every system.

use std::fmt::Write;
use std::path::Path;

use serde_json::json;

/// One step of a scripted child.
#[derive(Clone, Debug)]
pub enum Step {
    /// Prints this as one line: an answer, a log line, garbage, or with `""` a blank line.
    Print(String),
    /// Prints this without a line feed.
    PrintPart(String),
    /// Prints one line of this many bytes.
    PrintHuge(usize),
    /// Prints the prompt itself.
    Echo,
    /// Prints this line forever, as fast as it can.
    Flood(String),
    /// Writes this line to its standard error forever, as fast as it can.
    FloodErrors(String),
    /// Prints this line every few milliseconds, forever.
    Drip(String),
    /// Writes this as one line to its standard error.
    Complain(String),
    /// Does nothing from now on.
    Hang,
    /// Exits with this status.
    Exit(u8),
    /// Kills itself with this signal, named without `SIG`.
    Signal(&'static str),
    /// Ignores SIGTERM from now on.
    IgnoreTerm,
    /// Closes its standard output.
    CloseOutput,
    /// Closes its standard input.
    CloseInput,
    /// Starts a child that keeps its output open and never exits.
    Grandchild,
    /// Leaves a mark, see [`crate::ScriptedChild::reached`].
    Mark(&'static str),
    /// Waits until the test allows it, see [`crate::ScriptedChild::release`].
    Await(&'static str),
    /// Does these concurrently.
    Background(Vec<Step>),
    /// Does these, but only in the first process of the script that gets here.
    Once(&'static str, Vec<Step>),
}

impl Step {
    /// Prints an answer.
    pub fn answer(json: &str) -> Self {
        Self::Print(json.to_owned())
    }

    /// Prints a log line.
    pub fn log(text: &str) -> Self {
        Self::Print(json!(["log", text]).to_string())
    }

    /// Prints an error line.
    pub fn error(name: &str, reason: &str) -> Self {
        Self::Print(json!(["error", name, reason]).to_string())
    }

    /// Prints a fatal line.
    pub fn fatal(name: &str, reason: &str) -> Self {
        Self::Print(json!(["fatal", name, reason]).to_string())
    }
}

/// The behaviour of a scripted child. Without steps for them, `reset`, `ddoc new`, `add_fun` and `add_lib` get `true`.
/// The first `reset` of each process always does: it shows the opener that the process has started.
#[derive(Clone, Debug, Default)]
pub struct Script {
    at_start: Vec<Step>,
    /// Shell patterns of prompts; the first match applies.
    cases: Vec<(String, Vec<Step>)>,
    otherwise: Vec<Step>,
    at_end_of_input: Vec<Step>,
}

impl Script {
    /// A well-behaved child: answers `true` to `reset`, `ddoc new`, `add_fun` and `add_lib`, and echoes any other
    /// prompt.
    pub fn echo() -> Self {
        Self {
            otherwise: vec![Step::Echo],
            ..Self::default()
        }
    }

    /// Does `steps` before it reads anything.
    #[must_use]
    pub fn at_start(mut self, steps: impl Into<Vec<Step>>) -> Self {
        self.at_start = steps.into();
        self
    }

    /// Does `steps` for prompts with `command` as first element, for example `reset`, or `hang` for a
    /// test's own prompt `["hang"]`.
    #[must_use]
    pub fn on(self, command: &str, steps: impl Into<Vec<Step>>) -> Self {
        let start = json!([command]).to_string();
        self.on_pattern(
            format!("{}*", quote(start.trim_end_matches(']'))),
            steps.into(),
        )
    }

    /// Does `steps` when it is taught the design document `id`.
    #[must_use]
    pub fn on_teach(self, id: &str, steps: impl Into<Vec<Step>>) -> Self {
        let start = json!(["ddoc", "new", id]).to_string();
        self.on_pattern(
            format!("{}*", quote(start.trim_end_matches(']'))),
            steps.into(),
        )
    }

    /// Does `steps` for prompts that contain `text`.
    #[must_use]
    pub fn on_text(self, text: &str, steps: impl Into<Vec<Step>>) -> Self {
        self.on_pattern(format!("*{}*", quote(text)), steps.into())
    }

    /// Does `steps` when its input ends, before it exits.
    #[must_use]
    pub fn at_end_of_input(mut self, steps: impl Into<Vec<Step>>) -> Self {
        self.at_end_of_input = steps.into();
        self
    }

    fn on_pattern(mut self, pattern: String, steps: Vec<Step>) -> Self {
        self.cases.push((pattern, steps));
        self
    }

    /// Writes the program. Its records and marks are in `folder`.
    pub fn program(&self, folder: &Path) -> String {
        let mut text = format!("folder={}\n", quote(&folder.display().to_string()));
        text.push_str("printf '%s\\n' $$ >> \"$folder/started\"\n");
        write_steps(&mut text, &self.at_start);
        text.push_str("fresh=1\nwhile IFS= read -r line; do\ncase \"$fresh$line\" in\n");
        text.push_str("'1[\"reset\"'*) fresh=; echo true; continue ;;\nesac\nfresh=\n");
        text.push_str("printf '%s\\n' \"$line\" >> \"$folder/prompts\"\ncase \"$line\" in\n");
        for (pattern, steps) in &self.cases {
            let _ = writeln!(text, "{pattern})");
            write_steps(&mut text, steps);
            text.push_str(";;\n");
        }
        text.push_str("'[\"reset\"'*|'[\"ddoc\",\"new\"'*|'[\"add_'*) echo true ;;\n*)\n");
        write_steps(&mut text, &self.otherwise);
        text.push_str(":;;\nesac\ndone\n");
        write_steps(&mut text, &self.at_end_of_input);
        text
    }
}

fn write_steps(text: &mut String, steps: &[Step]) {
    for step in steps {
        let line = match step {
            Step::Print(line) => format!("printf '%s\\n' {}", quote(line)),
            Step::PrintPart(part) => format!("printf '%s' {}", quote(part)),
            Step::PrintHuge(bytes) => {
                format!("head -c {bytes} /dev/zero | tr '\\0' 7; echo")
            }
            Step::Echo => "printf '%s\\n' \"$line\"".into(),
            Step::Flood(line) => format!("exec yes {}", quote(line)),
            Step::FloodErrors(line) => format!("exec yes {} >&2", quote(line)),
            Step::Drip(line) => {
                let line = quote(line);
                format!("while printf '%s\\n' {line}; do sleep 0.01; done")
            }
            Step::Complain(line) => format!("printf '%s\\n' {} >&2", quote(line)),
            Step::Hang => "exec sleep 100000".into(),
            Step::Exit(status) => format!("exit {status}"),
            Step::Signal(name) => format!("kill -{name} $$"),
            Step::IgnoreTerm => "trap '' TERM".into(),
            Step::CloseOutput => "exec >&-".into(),
            Step::CloseInput => "exec <&-".into(),
            Step::Grandchild => {
                "sleep 100000 & printf '%s\\n' $! >> \"$folder/grandchildren\"".into()
            }
            Step::Mark(name) => format!(": > \"$folder/mark-{name}\""),
            Step::Await(name) => {
                format!("while [ ! -e \"$folder/release-{name}\" ]; do sleep 0.005; done")
            }
            Step::Background(steps) => format!("(\n{}:) &", written(steps)),
            Step::Once(name, steps) => format!(
                "if mkdir \"$folder/once-{name}\" 2>/dev/null; then\n{}:\nfi",
                written(steps)
            ),
        };
        text.push_str(&line);
        text.push('\n');
    }
}

fn written(steps: &[Step]) -> String {
    let mut text = String::new();
    write_steps(&mut text, steps);
    text
}

/// Quotes a string for the shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
