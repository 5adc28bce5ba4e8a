//! The abilities of a language's query servers, used to avoid commands that would end them.
//!
//! SUMMARY   [`Abilities`] belong to one entry of the registry: declared by the language, or each probed when it is
//!           first needed, and kept until the next reload.
//! PROMISES  A probe runs in a separate child outside the pool, with a deadline. An ability is absent only if the
//!           child clearly refused: by an error, by exiting, or by answering a `reduce` of two functions with anything
//!           but two results. Otherwise it is unknown, and nothing is refused. An inconclusive probe (a
//!           signal, a limit, no answer, a command that cannot be started) is logged and retried.
//! CALLED    Probed and read by the ProcManager, on the pool's arbiter.
//! SOURCE    None in CouchDB, where teaching a server without `ddoc` ends the server, and the whole manager with it
//!           (D1). couchpy is such a server.
//! LIMITS    One child at a time for each language is not counted by `os_process_limit`; each ability is probed until a
//!           probe is conclusive, at most [`TRIES_MAX`] times in [`RETRY_INTERVAL`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slog::{Logger, warn};
use strum::{EnumCount, IntoStaticStr, VariantArray};
use tokio::time::Instant;

use super::language::LanguageName;
use super::probe::probe;
use crate::lock;
use child::{CommandSpec, Spawner};

/// The time limit of a probe.
const PROBE_TIME_MAX: Duration = Duration::from_secs(5);

/// Maximum number of children probed, one after the other, until one is conclusive.
const TRIES_MAX: usize = 3;

/// How long an ability stays unknown after inconclusive probes.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// An optional ability of query servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Ability {
    /// Design documents: `ddoc new` and their functions.
    Ddoc,
    /// Libraries of map functions: `add_lib`.
    AddLib,
    /// `reduce` and `rereduce`.
    Reduce,
    /// A fourth element of `reduce` and `rereduce`: the view.
    ReduceContext,
    /// More than one function in a `reduce`.
    SeveralReducers,
    /// Prompts sent before earlier ones are answered.
    Pipelining,
    /// Functions of search indexes: `index_doc`.
    IndexDoc,
}

impl Ability {
    /// Returns its name in `status`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The end of a sentence about a server without it: `the query server .. {}`.
impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ddoc => "knows no design documents (the command 'ddoc')",
            Self::AddLib => "knows no libraries (the command 'add_lib')",
            Self::Reduce => "cannot reduce (the command 'reduce')",
            Self::ReduceContext => "takes no context with 'reduce'",
            Self::SeveralReducers => "runs only one function of a 'reduce'",
            Self::Pipelining => "takes one prompt at a time",
            Self::IndexDoc => "knows no search indexes (the command 'index_doc')",
        })
    }
}

/// The result for one ability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It exists.
    Present,
    /// It is missing; the text explains how this is known.
    Absent(Arc<str>),
    /// Unknown, and not refused.
    Open,
}

/// Findings, each with the time of its next probe, if any.
type Found = [Option<(Finding, Option<Instant>)>; Ability::COUNT];

/// The abilities of one language's processes.
#[derive(Debug)]
pub struct Abilities {
    /// The results, in the order of the abilities; `None`: not probed yet.
    found: Mutex<Found>,
    /// The command to probe; `None`: there are no probes.
    command: Option<CommandSpec>,
    /// Held by one probe at a time: the next may find the result.
    probing: tokio::sync::Mutex<()>,
}

impl Abilities {
    /// Returns abilities of which none is known, probed or refused.
    pub(crate) fn undeclared() -> Self {
        Self::with(|_| Some(Finding::Open), None)
    }

    /// Declares that exactly these abilities are present.
    pub fn declared(present: &[Ability]) -> Self {
        let finding = |ability| {
            if present.contains(&ability) {
                Finding::Present
            } else {
                Finding::Absent("it says so itself".into())
            }
        };
        Self::with(|ability| Some(finding(ability)), None)
    }

    /// Makes abilities that are probed with children of this command.
    pub(crate) fn to_probe(command: CommandSpec) -> Self {
        Self::with(|_| None, Some(command))
    }

    fn with(found: impl Fn(Ability) -> Option<Finding>, command: Option<CommandSpec>) -> Self {
        Self {
            found: Mutex::new(std::array::from_fn(|index| {
                found(Ability::VARIANTS[index]).map(|finding| (finding, None))
            })),
            command,
            probing: tokio::sync::Mutex::new(()),
        }
    }

    /// Returns the current result; `None` if a probe may find one.
    pub fn known(&self, ability: Ability) -> Option<Finding> {
        let found = lock(&self.found);
        let (finding, until) = found[ability as usize].as_ref()?;
        let is_known = until.is_none_or(|until| Instant::now() < until);
        is_known.then(|| finding.clone())
    }

    /// Returns them by name, for `status`: false if absent, null if open or not probed.
    pub fn by_name(&self) -> BTreeMap<String, Option<bool>> {
        let found = lock(&self.found);
        let known = |found: &Option<(Finding, _)>| match found {
            Some((Finding::Present, _)) => Some(true),
            Some((Finding::Absent(_), _)) => Some(false),
            Some((Finding::Open, _)) | None => None,
        };
        Ability::VARIANTS
            .iter()
            .zip(found.iter())
            .map(|(ability, finding)| (ability.name().to_owned(), known(finding)))
            .collect()
    }

    /// Probes an ability, unless it is known by then, and logs an inconclusive probe. Each probe, including those
    /// queued before, takes at most `time` and never more than [`PROBE_TIME_MAX`]. Dropping the future
    /// ends the probe's child.
    pub async fn probe(
        &self,
        ability: Ability,
        language: &LanguageName,
        spawner: &Spawner,
        time: Duration,
        log: &Logger,
    ) -> Finding {
        let _turn = self.probing.lock().await;
        if let Some(finding) = self.known(ability) {
            return finding;
        }
        let Some(command) = &self.command else {
            return Finding::Open;
        };
        let deadline = Instant::now() + time.min(PROBE_TIME_MAX);
        let mut found = None;
        for _ in 0..TRIES_MAX {
            let tried = probe(ability, language.as_str(), command, spawner);
            let error = match tokio::time::timeout_at(deadline, tried).await {
                Ok(Ok(finding)) => {
                    found = Some(finding);
                    break;
                }
                Ok(Err(error)) => error,
                Err(_) => "did not answer in time".to_owned(),
            };
            warn!(log, "a probe of a query server was inconclusive";
                  "language" => language.as_str(), "ability" => ability.name(), "error" => error,
                  "effect" => "no request is refused because of this, and the probe is repeated",
                  "remedy" => "none if it is rare: something other than the command ended the probe, or the machine \
                               is slow");
            if Instant::now() >= deadline {
                break;
            }
        }
        let until = found.is_none().then(|| Instant::now() + RETRY_INTERVAL);
        let finding = found.unwrap_or(Finding::Open);
        lock(&self.found)[ability as usize] = Some((finding.clone(), until));
        finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(script: &str) -> Abilities {
        Abilities::to_probe(CommandSpec {
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
            cell: child::cell::Cell::None,
        })
    }

    async fn found(abilities: &Abilities, ability: Ability) -> Finding {
        let spawner = Spawner::start().unwrap();
        let python = LanguageName::new("Python");
        let time = Duration::from_secs(20);
        let log = Logger::root(slog::Discard, slog::o!());
        abilities
            .probe(ability, &python, &spawner, time, &log)
            .await
    }

    #[actix_rt::test]
    async fn an_ability_is_absent_only_if_the_child_refuses_it() {
        let absent = |how: &str| Finding::Absent(how.into());
        let reset = "read -r line; echo true; read -r line; ";
        for (script, finding) in [
            ("while read -r line; do echo true; done", Finding::Present),
            (
                "echo true; echo true; read -r line; echo true; exit 3",
                Finding::Present,
            ),
            (
                &format!("{reset} echo '[\"error\", \"unknown_command\", \"x\"]'"),
                absent("when tried, it answered [\"error\", \"unknown_command\", \"x\"]"),
            ),
            (
                &format!("{reset} echo no ddoc >&2; exit 1"),
                absent("when tried, it exited with status 1, its last words: no ddoc"),
            ),
            (
                &format!("{reset} exit 255"),
                absent("when tried, it exited with status 255"),
            ),
            // Ended by a signal, answered wrongly, or not a query server at all.
            (&format!("{reset} kill -KILL $$"), Finding::Open),
            (&format!("{reset} kill -TERM $$"), Finding::Open),
            (&format!("{reset} exit 137"), Finding::Open),
            ("kill -KILL $$", Finding::Open),
            (&format!("{reset} echo '[]'"), Finding::Open),
            ("cat", Finding::Open),
            ("exec /no/such/program", Finding::Open),
            ("echo '[\"error\", \"x\", \"y\"]'", Finding::Open),
        ] {
            assert_eq!(
                found(&server(script), Ability::Ddoc).await,
                finding,
                "{script}"
            );
        }
    }

    #[actix_rt::test]
    async fn an_ability_is_unknown_if_the_child_hangs() {
        let abilities = server("exec sleep 600");
        let spawner = Spawner::start().unwrap();
        let language = LanguageName::new("x");
        let time = Duration::from_millis(50);
        let log = Logger::root(slog::Discard, slog::o!());
        let finding = abilities
            .probe(Ability::Ddoc, &language, &spawner, time, &log)
            .await;
        assert_eq!(finding, Finding::Open);
        assert_eq!(abilities.known(Ability::Ddoc), Some(Finding::Open));
    }

    /// Returns a server without `ddoc`; a signal ends each of its first `times` children.
    fn killed_at_first(folder: &std::path::Path, times: usize) -> Abilities {
        let count = folder.join("count");
        server(&format!(
            "echo x >>{count}; read -r line; echo true; read -r line; \
             [ $(wc -l <{count}) -gt {times} ] || kill -KILL $$; exit 1",
            count = count.display()
        ))
    }

    #[actix_rt::test]
    async fn a_probe_ended_by_a_signal_is_retried_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let abilities = killed_at_first(folder.path(), TRIES_MAX - 1);
        let finding = found(&abilities, Ability::Ddoc).await;
        assert!(matches!(finding, Finding::Absent(_)), "{finding:?}");
    }

    #[actix_rt::test]
    async fn an_ability_without_a_conclusive_probe_is_unknown_for_a_while_and_probed_again() {
        let folder = tempfile::tempdir().unwrap();
        let abilities = killed_at_first(folder.path(), TRIES_MAX);
        assert_eq!(found(&abilities, Ability::Ddoc).await, Finding::Open);
        assert_eq!(abilities.known(Ability::Ddoc), Some(Finding::Open));
        tokio::time::pause();
        tokio::time::advance(RETRY_INTERVAL).await;
        tokio::time::resume();
        assert_eq!(abilities.known(Ability::Ddoc), None);
        let finding = found(&abilities, Ability::Ddoc).await;
        assert!(matches!(finding, Finding::Absent(_)), "{finding:?}");
    }

    #[actix_rt::test]
    async fn an_ability_is_probed_once() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("count");
        let script = format!(
            "echo x >>{}; read -r line; echo true; exit 1",
            count.display()
        );
        let abilities = server(&script);
        assert_eq!(abilities.known(Ability::Ddoc), None);
        for _ in 0..3 {
            assert!(matches!(
                found(&abilities, Ability::Ddoc).await,
                Finding::Absent(_)
            ));
        }
        let both = futures_util::future::join(
            found(&abilities, Ability::AddLib),
            found(&abilities, Ability::AddLib),
        );
        both.await;
        assert_eq!(std::fs::read_to_string(count).unwrap(), "x\nx\n");
        let shown = abilities.by_name();
        assert_eq!((shown["ddoc"], shown["index_doc"]), (Some(false), None));
    }

    #[actix_rt::test]
    async fn a_child_with_one_result_for_two_functions_lacks_several_reducers() {
        let script = "read -r line; echo true; read -r line; echo '[true, [6.5]]'";
        let finding = found(&server(script), Ability::SeveralReducers).await;
        let how = "when tried with two, it answered [true, [6.5]]";
        assert_eq!(finding, Finding::Absent(how.into()));
    }

    #[actix_rt::test]
    async fn declared_abilities_need_no_child() {
        let abilities = Abilities::declared(&[Ability::Reduce]);
        assert_eq!(found(&abilities, Ability::Reduce).await, Finding::Present);
        assert!(matches!(
            found(&abilities, Ability::Ddoc).await,
            Finding::Absent(_)
        ));
        let abilities = Abilities::undeclared();
        assert_eq!(found(&abilities, Ability::Ddoc).await, Finding::Open);
    }
}
