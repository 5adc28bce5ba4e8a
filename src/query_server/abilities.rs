//! What the query servers of a language can do, so that they are not sent commands they would end over.
//!
//! SUMMARY   [`Abilities`] belong to one entry of the registry: declared by the language, or probed, each
//!           when it is first needed, and kept until the next reload.
//! PROMISES  A probe runs in a child of its own, outside the pool, with a deadline. An ability is absent
//!           only if the child clearly refused: by an error, its end, or one result for two functions.
//!           After anything else (silence, another answer, a command that cannot be started) the ability
//!           is unknown, and nothing is refused.
//! CALLED    Probed by the PoolProber; read by the ProcManager, both on the pool's arbiter.
//! SOURCE    None in CouchDB, where teaching a server without `ddoc` ends the server, and the whole
//!           manager with it (D1). couchpy is such a server.
//! LIMITS    One child at a time for each language lives beside `os_process_limit`; each ability is probed
//!           once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strum::{EnumCount, IntoStaticStr, VariantArray};

use crate::query_server::language::LanguageName;
use crate::query_server::probe::probe;
use child::{CommandSpec, Spawner};

/// The longest that a probe may take.
pub(crate) const PROBE_TIME_MAX: Duration = Duration::from_secs(5);

/// Something that not every query server can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Ability {
    /// Design documents: `ddoc new` and their functions.
    Ddoc,
    /// Libraries of map functions: `add_lib`.
    AddLib,
    /// `reduce` and `rereduce`.
    Reduce,
    /// A fourth element of `reduce` and `rereduce`: the view that is reduced for.
    ReduceContext,
    /// More than one function in a `reduce`.
    SeveralReducers,
    /// Prompts that are sent before earlier ones are answered.
    Pipelining,
    /// Functions of search indexes: `index_doc`.
    IndexDoc,
}

impl Ability {
    /// Returns its name, as `status` has it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// As the end of a sentence about a server without it: `the query server .. {}`.
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

/// What is known of one ability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is there.
    Present,
    /// It is not; the text says how that is known.
    Absent(Arc<str>),
    /// Unknown, and not refused.
    Open,
}

type Found = [Option<Finding>; Ability::COUNT];

/// What the processes of one language can do.
#[derive(Debug)]
pub struct Abilities {
    /// What is known, in the order of the abilities; `None`: to be probed.
    found: Mutex<Found>,
    /// The command to probe; `None`: there are no probes.
    command: Option<CommandSpec>,
    /// Held by one probe at a time: the next one may find the answer there.
    probing: tokio::sync::Mutex<()>,
}

impl Abilities {
    /// Nothing is known, nothing is probed, and nothing is refused.
    pub(crate) fn undeclared() -> Self {
        Self::with(|_| Some(Finding::Open), None)
    }

    /// Exactly these are there.
    pub fn declared(present: &[Ability]) -> Self {
        let finding = |ability| match present.contains(&ability) {
            true => Finding::Present,
            false => Finding::Absent("it says so itself".into()),
        };
        Self::with(|ability| Some(finding(ability)), None)
    }

    /// Makes abilities that are probed with children of this command.
    pub(crate) fn to_probe(command: CommandSpec) -> Self {
        Self::with(|_| None, Some(command))
    }

    fn with(found: impl Fn(Ability) -> Option<Finding>, command: Option<CommandSpec>) -> Self {
        Self {
            found: Mutex::new(std::array::from_fn(|index| found(Ability::VARIANTS[index]))),
            command,
            probing: tokio::sync::Mutex::new(()),
        }
    }

    /// Returns what is known now; `None` if a probe would tell.
    pub fn known(&self, ability: Ability) -> Option<Finding> {
        self.found()[ability as usize].clone()
    }

    /// Returns them by name, for `status`: absent is false, open or not probed is null.
    pub fn by_name(&self) -> BTreeMap<String, Option<bool>> {
        let found = self.found();
        let known = |finding: &Option<Finding>| match finding {
            Some(Finding::Present) => Some(true),
            Some(Finding::Absent(_)) => Some(false),
            Some(Finding::Open) | None => None,
        };
        Ability::VARIANTS
            .iter()
            .zip(found.iter())
            .map(|(ability, finding)| (ability.name().to_owned(), known(finding)))
            .collect()
    }

    /// Probes an ability, unless it is known by then. Takes no longer than `time` and
    /// [`PROBE_TIME_MAX`] for itself and each probe before it. Dropping it ends the probe's child.
    pub async fn probe(
        &self,
        ability: Ability,
        language: &LanguageName,
        spawner: &Spawner,
        time: Duration,
    ) -> Finding {
        let _turn = self.probing.lock().await;
        if let Some(finding) = self.known(ability) {
            return finding;
        }
        let finding = match &self.command {
            None => Finding::Open,
            Some(command) => {
                let time = time.min(PROBE_TIME_MAX);
                let tried = probe(ability, language.as_str(), command, spawner);
                let tried = actix_rt::time::timeout(time, tried).await;
                tried.unwrap_or(Finding::Open)
            }
        };
        self.found()[ability as usize] = Some(finding.clone());
        finding
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
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
        abilities.probe(ability, &python, &spawner, time).await
    }

    #[actix_rt::test]
    async fn an_ability_is_absent_only_when_the_child_says_so() {
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
    async fn a_child_that_hangs_is_ended_and_leaves_the_question_open() {
        let abilities = server("exec sleep 600");
        let spawner = Spawner::start().unwrap();
        let language = LanguageName::new("x");
        let time = Duration::from_millis(50);
        let finding = abilities
            .probe(Ability::Ddoc, &language, &spawner, time)
            .await;
        assert_eq!(finding, Finding::Open);
        assert_eq!(abilities.known(Ability::Ddoc), Some(Finding::Open));
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
    async fn one_result_for_two_functions_is_one_reducer() {
        let script = "read -r line; echo true; read -r line; echo '[true, [6.5]]'";
        let finding = found(&server(script), Ability::SeveralReducers).await;
        let how = "when tried with two, it answered [true, [6.5]]";
        assert_eq!(finding, Finding::Absent(how.into()));
    }

    #[actix_rt::test]
    async fn what_is_declared_needs_no_child() {
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
