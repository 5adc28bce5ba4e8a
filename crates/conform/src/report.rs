//! The results of all cases, summed by ability.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::case::Case;
use crate::play::Failure;
use crate::run::is_unsupported;

/// Numbers of cases by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Cases of optional abilities that the command lacks.
    pub not_supported: usize,
    /// Cases that were not run because the command did not answer similar ones.
    pub not_run: usize,
}

/// One ability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ability {
    /// Its name: `map`, `reduce`, `ddoc.shows`, ..
    pub name: String,
    /// Its cases.
    #[serde(flatten)]
    pub counts: Counts,
    /// `able`: all pass; `partly`: some pass; `not_supported`: an optional ability that the command refuses in all
    /// cases; `absent`: none passes.
    pub verdict: &'static str,
}

/// Abilities of the command, and whether a daemon uses them, as shown by `settee status`; `None`: it tries, because its
/// probes did not decide.
pub type DaemonAbilities = BTreeMap<String, Option<bool>>;

/// All results, as `settee conform --json` prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The tested command, or the language of this program.
    pub command: Vec<String>,
    /// The language of the functions in the cases.
    pub language: String,
    /// Whether the language was detected rather than given.
    pub found: bool,
    /// The number of cases for all languages.
    pub known: usize,
    /// The number of cases for `language`.
    pub applying: usize,
    /// Why nothing could be tested, if so; then there are no cases.
    pub problem: Option<String>,
    /// All cases.
    #[serde(flatten)]
    pub counts: Counts,
    /// The cases by ability, in order of appearance.
    pub abilities: Vec<Ability>,
    /// The abilities that a daemon uses.
    pub daemon: DaemonAbilities,
    /// A summary in one line.
    pub badge: String,
    /// The result of each case.
    pub cases: Vec<CaseReport>,
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseReport {
    /// The case.
    pub id: String,
    /// Its ability.
    pub ability: String,
    /// Its purpose.
    pub why: String,
    /// The result.
    pub result: CaseResult,
    /// Its duration; only in the JUnit form.
    #[serde(skip)]
    pub took: Duration,
    /// The difference from the expectation.
    #[serde(flatten)]
    pub failure: Option<Failure>,
}

/// The result of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseResult {
    /// As expected.
    Pass,
    /// Not as expected.
    Fail,
    /// The command lacks an optional ability.
    NotSupported,
    /// The command was silent in similar cases.
    NotRun,
}

impl CaseReport {
    /// Returns the report of a case that was run.
    pub fn of(case: &Case, failure: Option<Failure>, took: Duration) -> Self {
        let result = match &failure {
            None => CaseResult::Pass,
            Some(failure) if is_unsupported(case, failure) => CaseResult::NotSupported,
            Some(_) => CaseResult::Fail,
        };
        Self {
            id: case.id.clone(),
            ability: case.ability.clone(),
            why: case.why.clone(),
            result,
            took,
            failure,
        }
    }
}

impl Report {
    /// Creates a report without cases.
    pub fn new(command: Vec<String>, language: &str) -> Self {
        Self {
            command,
            language: language.to_owned(),
            ..Self::default()
        }
    }

    /// Sums up the cases. A command that passes a case of an ability has that ability: if it refuses other cases, they
    /// count as failures.
    pub fn settle(&mut self) {
        self.counts = Counts::default();
        self.abilities.clear();
        for at in 0..self.cases.len() {
            let name = self.cases[at].ability.clone();
            if self.abilities.iter().any(|known| known.name == name) {
                continue;
            }
            let of_ability = |case: &&mut CaseReport| case.ability == name;
            let is_able = self
                .cases
                .iter_mut()
                .filter(of_ability)
                .any(|case| case.result == CaseResult::Pass);
            let mut counts = Counts::default();
            for case in self.cases.iter_mut().filter(of_ability) {
                if is_able && case.result == CaseResult::NotSupported {
                    case.result = CaseResult::Fail;
                }
                counts.add(case.result);
                self.counts.add(case.result);
            }
            let verdict = counts.verdict();
            self.abilities.push(Ability {
                name,
                counts,
                verdict,
            });
        }
        self.badge = self.badge();
    }

    /// Returns a summary of passed cases and complete abilities.
    fn badge(&self) -> String {
        let able: Vec<&str> = self
            .abilities
            .iter()
            .filter(|it| it.verdict == "able")
            .map(|it| it.name.as_str())
            .collect();
        let (passed, all) = (self.counts.passed, self.counts.all());
        format!("conform: {passed} of {all} cases, {}", able.join(" "))
            .trim_end_matches(", ")
            .to_owned()
    }

    /// Returns whether a case passed and none failed or was not run; unsupported abilities do not count.
    pub fn is_success(&self) -> bool {
        let Counts {
            passed,
            failed,
            not_run,
            not_supported: _,
        } = self.counts;
        passed > 0 && failed + not_run == 0
    }
}

impl Counts {
    /// Returns the number of cases.
    pub const fn all(self) -> usize {
        self.passed + self.failed + self.not_supported + self.not_run
    }

    fn add(&mut self, result: CaseResult) {
        let count = match result {
            CaseResult::Pass => &mut self.passed,
            CaseResult::Fail => &mut self.failed,
            CaseResult::NotSupported => &mut self.not_supported,
            CaseResult::NotRun => &mut self.not_run,
        };
        *count += 1;
    }

    const fn verdict(self) -> &'static str {
        match (self.passed, self.failed + self.not_run, self.not_supported) {
            (0, 0, 1..) => "not_supported",
            (0, ..) => "absent",
            (_, 0, 0) => "able",
            _ => "partly",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::play::Kind;

    fn ran(id: &str, ability: &str, failure: Option<Failure>) -> CaseReport {
        let case = Case {
            id: id.into(),
            ability: ability.into(),
            why: "Why.".into(),
            steps: Vec::new(),
            exit: Vec::new(),
            ordered: false,
            skip_logs: false,
        };
        CaseReport::of(&case, failure, Duration::ZERO)
    }

    #[test]
    fn cases_are_added_up_by_ability() {
        let failure = Failure {
            step: Some(2),
            expected: "true".into(),
            got: "false".into(),
            problem: "step 2: $: expected true, got false".into(),
            kind: Kind::Line,
        };
        let mut report = Report::new(vec!["x".into()], "python");
        assert!(!report.is_success(), "nothing was tested");
        report.cases.push(ran("a", "map", None));
        report.settle();
        assert!(report.is_success());
        report.cases.push(ran("b", "reduce", None));
        report.cases.push(ran("c", "reduce", Some(failure)));
        report.cases.push(CaseReport {
            result: CaseResult::NotRun,
            ..ran("d", "ddoc", None)
        });
        report.settle();
        assert!(!report.is_success());
        let verdicts: Vec<_> = report
            .abilities
            .iter()
            .map(|ability| (ability.name.as_str(), ability.verdict))
            .collect();
        assert_eq!(
            verdicts,
            [("map", "able"), ("reduce", "partly"), ("ddoc", "absent")]
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["passed"], 2);
        assert_eq!(json["badge"], "conform: 2 of 4 cases, map");
        assert_eq!(json["abilities"][1]["failed"], 1);
        assert_eq!(json["cases"][2]["got"], "false");
        assert_eq!(json["cases"][0].get("problem"), None);
    }

    #[test]
    fn an_optional_ability_that_is_refused_is_not_supported_unless_a_part_of_it_is() {
        let failure = |kind| Failure {
            step: Some(2),
            expected: "true".into(),
            got: "[\"error\",\"unknown\",\"x\"]".into(),
            problem: "step 2".into(),
            kind,
        };
        let mut report = Report::new(vec!["x".into()], "none");
        report.cases.push(ran("a", "reset", None));
        let refused = ran("b", "ddoc", Some(failure(Kind::Error)));
        report.cases.push(refused);
        let refused = ran("c", "ddoc.shows", Some(failure(Kind::End)));
        report.cases.push(refused);
        report.settle();
        assert!(report.is_success());
        let verdict = |report: &Report, at: usize| report.abilities[at].verdict;
        assert_eq!(verdict(&report, 1), "not_supported");
        assert_eq!(report.cases[2].result, CaseResult::NotSupported);
        report.cases.push(ran("d", "ddoc", None));
        report.settle();
        assert_eq!((report.counts.failed, report.counts.not_supported), (1, 1));
        assert_eq!(
            (verdict(&report, 1), report.cases[1].result),
            ("partly", CaseResult::Fail)
        );
        // An error is a failure only for a mandatory ability, a wrong answer or silence also for an optional one.
        for (ability, kind) in [
            ("map", Kind::Error),
            ("ddoc", Kind::Line),
            ("ddoc", Kind::Silence),
        ] {
            let mut report = Report::new(vec!["x".into()], "none");
            report.cases.push(ran("a", ability, Some(failure(kind))));
            report.settle();
            assert_eq!((report.counts.failed, verdict(&report, 0)), (1, "absent"));
        }
    }
}
