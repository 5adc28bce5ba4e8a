//! Plays one case against a query server.
//!
//! PROMISES  Whatever the command does, the case ends within the deadline, and its child and process group end with
//!           it. A failure names the step, what was expected and what arrived.

use std::cell::Cell;

use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::case::{Case, Step};
use crate::compare::{difference, quote};
use crate::peer::{Peer, Target};
use crate::run::Subject;

/// Maximum length of a command's line, in bytes.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// Why a case failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The step that failed, from 1; `None` for the start or the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// What was expected, as JSON text or a description.
    pub expected: String,
    /// What arrived instead.
    pub got: String,
    /// The first difference, in one sentence.
    pub problem: String,
    #[serde(skip)]
    /// The kind of failure.
    pub kind: Kind,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command could not be started.
    Start,
    /// An unexpected error.
    Error,
    /// A line that differs.
    Line,
    /// It ended, or closed its output.
    End,
    /// It ended in time, with an unexpected status.
    Exit,
    /// It printed nothing more in time, and did not end.
    Silence,
}

/// Plays a case with a query server that is started, or borrowed, for it.
///
/// # Errors
/// The first difference from the case. The command's fault, or the host's if it cannot be started.
pub(crate) async fn play(case: &Case, subject: &Subject<impl Target>) -> Result<(), Failure> {
    let time = subject.time;
    let deadline = Instant::now() + time;
    let started = subject.target.start(&subject.spawner, time).await;
    let peer = started.map_err(|error| Failure {
        step: None,
        expected: "a query server".into(),
        got: error.clone(),
        problem: format!("cannot start the command: {error}"),
        kind: Kind::Start,
    })?;
    let at = Cell::new(0);
    let played = timeout_at(deadline, steps(case, peer, &at)).await;
    let failure = match played {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(failure)) => failure,
        Err(_) => {
            let expected = case
                .steps
                .get(at.get())
                .map(expectation)
                .unwrap_or_else(|| "its exit after its input is closed".into());
            Failure::new(
                &expected,
                format!("nothing within {} s", time.as_secs_f64()),
                Kind::Silence,
            )
        }
    };
    Err(failure.at(at.get(), case.steps.len()))
}

impl Failure {
    fn new(expected: &str, got: String, kind: Kind) -> Self {
        let expected = quote(expected);
        let problem = format!("expected {expected}, got {got}");
        Self {
            step: None,
            expected,
            got,
            problem,
            kind,
        }
    }

    /// Makes the failure for a line that does not match, with the first difference.
    fn line(step: &Step, line: &str, difference: String, peer: &impl Peer) -> Self {
        let kind = if peer.is_error(line) {
            Kind::Error
        } else {
            Kind::Line
        };
        Self {
            problem: difference,
            ..Self::new(&expectation(step), quote(line), kind)
        }
    }

    /// Adds the step to the problem.
    fn at(mut self, at: usize, steps: usize) -> Self {
        self.step = (at < steps).then_some(at + 1);
        let place = self
            .step
            .map_or_else(|| "at the end".into(), |step| format!("step {step}"));
        self.problem = format!("{place}: {}", self.problem);
        self
    }
}

async fn steps(case: &Case, mut peer: impl Peer, at: &Cell<usize>) -> Result<(), Failure> {
    for (index, step) in case.steps.iter().enumerate() {
        at.set(index);
        match step {
            Step::Send { bytes, closes } => {
                peer.send(bytes);
                if *closes {
                    peer.close();
                }
            }
            Step::Out(_) | Step::OutRaw(_) => {
                let Some(line) = line(case, step, &mut peer).await? else {
                    return Err(Failure::new(
                        &expectation(step),
                        format!("no more output; it {}", peer.exit_report().await),
                        Kind::End,
                    ));
                };
                check(case, step, &line, &peer)?;
            }
            Step::Closed { may_say } => {
                let mut end = line(case, step, &mut peer).await?;
                if let (Some(words), Some(said)) = (may_say, &end) {
                    let fits = serde_json::from_str(said)
                        .is_ok_and(|got: Value| difference(words, &got, case.ordered).is_none());
                    if fits {
                        end = line(case, step, &mut peer).await?;
                    }
                }
                none(end, step, &peer)?;
            }
        }
    }
    at.set(case.steps.len());
    peer.close();
    let after = Step::Closed { may_say: None };
    none(line(case, &after, &mut peer).await?, &after, &peer)?;
    let exit = match peer.end().await {
        Some(exit) if !case.exit.is_empty() && !case.exit.contains(&exit.status()) => exit,
        _ => return Ok(()),
    };
    let wanted: Vec<String> = case.exit.iter().map(i32::to_string).collect();
    Err(Failure::new(
        &format!("exit status {}", wanted.join(" or ")),
        format!("a process that {exit}"),
        Kind::Exit,
    ))
}

/// Reads a line; skips log lines if the case demands it.
async fn line(case: &Case, step: &Step, peer: &mut impl Peer) -> Result<Option<String>, Failure> {
    loop {
        let line = peer.line().await;
        let line = line.map_err(|error| Failure::line(step, "", error.to_string(), peer))?;
        let line = line.map(|line| String::from_utf8_lossy(&line).into_owned());
        let is_log = line
            .as_ref()
            .is_some_and(|line| line.starts_with("[\"log\""));
        if !case.skip_logs || !is_log {
            return Ok(line);
        }
    }
}

fn check(case: &Case, step: &Step, line: &str, peer: &impl Peer) -> Result<(), Failure> {
    let difference = match step {
        Step::Out(expected) => match serde_json::from_str::<Value>(line) {
            Ok(got) => difference(expected, &got, case.ordered),
            Err(_) => Some(format!("not JSON: {}", quote(line))),
        },
        Step::OutRaw(expected) if *expected != line => Some(format!(
            "expected exactly {}, got {}",
            quote(expected),
            quote(line)
        )),
        _ => None,
    };
    match difference {
        None => Ok(()),
        Some(difference) => Err(Failure::line(step, line, difference, peer)),
    }
}

/// Requires the end of the output.
fn none(line: Option<String>, step: &Step, peer: &impl Peer) -> Result<(), Failure> {
    let Some(line) = line else {
        return Ok(());
    };
    Err(Failure::line(
        step,
        &line,
        format!("expected the end of the output, got {}", quote(&line)),
        peer,
    ))
}

fn expectation(step: &Step) -> String {
    match step {
        Step::Send { .. } => "its input to be read".into(),
        Step::Out(expected) => expected.to_string(),
        Step::OutRaw(expected) => expected.clone(),
        Step::Closed { .. } => "the end of the output".into(),
    }
}
