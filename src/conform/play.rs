//! Plays one case against a command.
//!
//! PROMISES  Ends within the deadline, whatever the command does; the child and its group are gone by
//!           then. A failure names the step, what was expected and what came.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::case::{Case, Step};
use super::compare::{difference, quote};
use crate::query_server::child::{CommandSpec, Exit, Spawner};
use crate::query_server::line::{Line, classify};
use crate::query_server::unpooled_child::UnpooledChild;

/// The longest line that a command may answer, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 64 << 20;

/// Why a case failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{problem}")]
pub struct Failure {
    /// The step that failed, from 1; none when it was the start or the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// What was expected of it, as JSON text or in words.
    pub expected: String,
    /// What came instead.
    pub got: String,
    /// Both in one sentence: the first difference.
    pub problem: String,
    /// What kind of failure it is.
    #[serde(skip)]
    pub kind: Kind,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command could not be started.
    Start,
    /// It answered an error where none was expected.
    Error,
    /// It printed another line.
    Line,
    /// It ended, or closed its output.
    End,
    /// It ended in time, with another status.
    Exit,
    /// The time was up: it said nothing more and did not end.
    Silence,
}

/// Plays a case. The command is started once, for this case alone.
///
/// # Errors
/// The first difference from the case. The command's fault, or the host's if it cannot be started.
pub async fn play(
    case: &Case,
    command: &CommandSpec,
    spawner: &Spawner,
    time: Duration,
) -> Result<(), Failure> {
    let deadline = Instant::now() + time;
    let start = UnpooledChild::start(spawner, command.clone(), LINE_BYTES_MAX);
    let mut child = start.await.map_err(|error| Failure {
        step: None,
        expected: "a query server".into(),
        got: error.to_string(),
        problem: format!("cannot start the command: {error}"),
        kind: Kind::Start,
    })?;
    let at = Cell::new(0);
    let played = timeout_at(deadline, steps(case, &mut child, &at)).await;
    let failure = match played {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(failure)) => failure,
        Err(_) => Failed {
            expected: case
                .steps
                .get(at.get())
                .map_or_else(|| "its end after that of its input".into(), expectation),
            got: Got::Nothing(time),
        },
    };
    Err(failure.told(at.get(), case.steps.len(), &mut child).await)
}

/// What went wrong, before the child was asked for its last words.
struct Failed {
    expected: String,
    got: Got,
}

enum Got {
    /// A line that does not fit, and the first difference.
    Line { line: String, difference: String },
    /// The end of the output.
    End,
    /// Nothing, for this long.
    Nothing(Duration),
    /// Another end than expected.
    Exit(Exit),
}

async fn steps(case: &Case, child: &mut UnpooledChild, at: &Cell<usize>) -> Result<(), Failed> {
    for (index, step) in case.steps.iter().enumerate() {
        at.set(index);
        match step {
            Step::Send { bytes, closes } => {
                child.send(bytes);
                if *closes {
                    child.close();
                }
            }
            Step::Out(_) | Step::OutRaw(_) => {
                let line = line(case, step, child).await?;
                check(case, step, line)?;
            }
            Step::Closed { may_say } => {
                let mut end = line(case, step, child).await?;
                if let (Some(words), Some(said)) = (may_say, &end) {
                    let fits = serde_json::from_str(said)
                        .is_ok_and(|got: Value| difference(words, &got, case.ordered).is_none());
                    if fits {
                        end = line(case, step, child).await?;
                    }
                }
                none(end, step)?;
            }
        }
    }
    at.set(case.steps.len());
    child.close();
    let after = Step::Closed { may_say: None };
    none(line(case, &after, child).await?, &after)?;
    let exit = child.end().await;
    if case.exit.is_empty() || case.exit.contains(&exit.status()) {
        return Ok(());
    }
    let wanted: Vec<String> = case.exit.iter().map(i32::to_string).collect();
    Err(Failed {
        expected: format!("exit status {}", wanted.join(" or ")),
        got: Got::Exit(exit),
    })
}

/// Reads a line, past log lines where the case says so.
async fn line(
    case: &Case,
    step: &Step,
    child: &mut UnpooledChild,
) -> Result<Option<String>, Failed> {
    loop {
        let line = child.line().await.map_err(|error| Failed {
            expected: expectation(step),
            got: Got::Line {
                line: String::new(),
                difference: error.to_string(),
            },
        })?;
        let line = line.map(|line| String::from_utf8_lossy(&line).into_owned());
        let log = |line: &String| line.starts_with("[\"log\"");
        if !case.skip_logs || !line.as_ref().is_some_and(log) {
            return Ok(line);
        }
    }
}

fn check(case: &Case, step: &Step, line: Option<String>) -> Result<(), Failed> {
    let failed = |got| Failed {
        expected: expectation(step),
        got,
    };
    let line = line.ok_or_else(|| failed(Got::End))?;
    let difference = match step {
        Step::Out(expected) => match serde_json::from_str::<Value>(&line) {
            Ok(got) => difference(expected, &got, case.ordered),
            Err(_) => Some(format!("not JSON: {}", quote(&line))),
        },
        Step::OutRaw(expected) if *expected != line => Some(format!(
            "expected exactly {}, got {}",
            quote(expected),
            quote(&line)
        )),
        _ => None,
    };
    match difference {
        None => Ok(()),
        Some(difference) => Err(failed(Got::Line { line, difference })),
    }
}

/// Requires the end of the output.
fn none(line: Option<String>, step: &Step) -> Result<(), Failed> {
    let Some(line) = line else {
        return Ok(());
    };
    let difference = format!("expected the end of the output, got {}", quote(&line));
    Err(Failed {
        expected: expectation(step),
        got: Got::Line { line, difference },
    })
}

fn expectation(step: &Step) -> String {
    match step {
        Step::Send { .. } => "its input to be read".into(),
        Step::Out(expected) => expected.to_string(),
        Step::OutRaw(expected) => expected.clone(),
        Step::Closed { .. } => "the end of the output".into(),
    }
}

impl Failed {
    /// Makes the full failure, with how the child ended if it did.
    async fn told(self, at: usize, steps: usize, child: &mut UnpooledChild) -> Failure {
        let step = (at < steps).then_some(at + 1);
        let (got, problem, kind) = match self.got {
            Got::Line { line, difference } => {
                let kind = match classify(Bytes::from(line.clone())) {
                    Line::Error(_) | Line::Fatal(_) => Kind::Error,
                    _ => Kind::Line,
                };
                (quote(&line), difference, kind)
            }
            Got::End => {
                let got = format!("no more output; it {}", child.exit_report().await);
                let problem = format!("expected {}, got {got}", quote(&self.expected));
                (got, problem, Kind::End)
            }
            Got::Exit(exit) => {
                let got = format!("it {exit}");
                let problem = format!("expected {}, got {got}", self.expected);
                (got, problem, Kind::Exit)
            }
            Got::Nothing(time) => {
                let got = format!("nothing within {} s", time.as_secs_f64());
                let problem = format!("expected {}, got {got}", quote(&self.expected));
                (got, problem, Kind::Silence)
            }
        };
        let place = step.map_or_else(|| "at the end".into(), |step| format!("step {step}"));
        Failure {
            step,
            expected: quote(&self.expected),
            got,
            problem: format!("{place}: {problem}"),
            kind,
        }
    }
}
