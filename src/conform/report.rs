//! What came out of all cases, added up by ability.

use serde::Serialize;

use super::case::Case;
use super::run::{Verdict, is_unsupported};

/// The result of a case, and the verdict on an ability, that the command does without.
const NOT_SUPPORTED: &str = "not_supported";

/// How many cases came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Cases of abilities that the command may do without, and does.
    pub not_supported: usize,
    /// Cases that were not played, because the command kept silent in others like them.
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
    /// `able`: all pass; `partly`: some do; `not_supported`: the command may do without, and says so in
    /// all cases; `absent`: none passes.
    pub verdict: &'static str,
}

/// Everything that came out, as `settee conform --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    /// The command that was tested.
    pub command: Vec<String>,
    /// The language of the functions in the cases.
    pub language: String,
    /// Whether the language was found by trying, and not given.
    pub found: bool,
    /// How many cases there are, whatever the language.
    pub known: usize,
    /// How many of them are written for this one.
    pub applying: usize,
    /// Why there was nothing to test, if that is so: then there are no cases.
    pub problem: Option<String>,
    /// All cases.
    #[serde(flatten)]
    pub counts: Counts,
    /// The cases by ability, in the order in which they were first met.
    pub abilities: Vec<Ability>,
    /// Case by case.
    pub cases: Vec<CaseReport>,
}

/// What came out of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CaseReport {
    /// The case.
    pub id: String,
    /// Its ability.
    pub ability: String,
    /// What it is about.
    pub why: String,
    /// `pass`, `fail`, `not_supported` or `not_run`.
    pub result: &'static str,
    /// The step that failed, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// What was expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub got: Option<String>,
    /// Both in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Report {
    /// Begins a report without cases.
    pub fn new(command: Vec<String>, language: &str, found: bool) -> Self {
        Self {
            command,
            language: language.to_owned(),
            found,
            known: 0,
            applying: 0,
            problem: None,
            counts: Counts::default(),
            abilities: Vec::new(),
            cases: Vec::new(),
        }
    }

    /// Adds what came out of a case.
    pub fn add(&mut self, case: &Case, verdict: Verdict) {
        let at = self.ability(&case.ability);
        let ability = &mut self.abilities[at];
        for counts in [&mut self.counts, &mut ability.counts] {
            match verdict {
                Verdict::Pass => counts.passed += 1,
                Verdict::Fail(ref failure) if is_unsupported(case, failure) => {
                    counts.not_supported += 1;
                }
                Verdict::Fail(_) => counts.failed += 1,
                Verdict::NotRun => counts.not_run += 1,
            }
        }
        ability.verdict = ability.counts.verdict();
        self.cases.push(CaseReport::of(case, verdict));
    }

    /// Settles what could not be told case by case: who can do a part of an ability has it.
    pub fn settle(&mut self) {
        for ability in &mut self.abilities {
            if ability.counts.passed > 0 {
                let moved = std::mem::take(&mut ability.counts.not_supported);
                ability.counts.failed += moved;
                self.counts.not_supported -= moved;
                self.counts.failed += moved;
                let cases = self.cases.iter_mut();
                let refused = cases
                    .filter(|case| case.ability == ability.name && case.result == NOT_SUPPORTED);
                refused.for_each(|case| case.result = "fail");
            }
            ability.verdict = ability.counts.verdict();
        }
    }

    /// Returns whether everything passed, and there was something to pass.
    pub fn is_success(&self) -> bool {
        let Counts {
            passed,
            failed,
            not_run,
            not_supported: _,
        } = self.counts;
        passed > 0 && failed + not_run == 0
    }

    fn ability(&mut self, name: &str) -> usize {
        let known = self.abilities.iter().position(|known| known.name == name);
        known.unwrap_or_else(|| {
            self.abilities.push(Ability {
                name: name.to_owned(),
                counts: Counts::default(),
                verdict: Counts::default().verdict(),
            });
            self.abilities.len() - 1
        })
    }
}

impl Counts {
    const fn verdict(self) -> &'static str {
        match self {
            Self {
                passed: 0,
                failed: 0,
                not_run: 0,
                not_supported: 1..,
            } => NOT_SUPPORTED,
            Self { passed: 0, .. } => "absent",
            Self {
                failed: 0,
                not_run: 0,
                not_supported: 0,
                ..
            } => "able",
            _ => "partly",
        }
    }
}

impl CaseReport {
    fn of(case: &Case, verdict: Verdict) -> Self {
        let (result, failure) = match verdict {
            Verdict::Pass => ("pass", None),
            Verdict::Fail(failure) if is_unsupported(case, &failure) => {
                (NOT_SUPPORTED, Some(failure))
            }
            Verdict::Fail(failure) => ("fail", Some(failure)),
            Verdict::NotRun => ("not_run", None),
        };
        let step = failure.as_ref().and_then(|failure| failure.step);
        let (expected, got, problem) = failure.map_or((None, None, None), |failure| {
            (
                Some(failure.expected),
                Some(failure.got),
                Some(failure.problem),
            )
        });
        Self {
            id: case.id.clone(),
            ability: case.ability.clone(),
            why: case.why.clone(),
            result,
            step,
            expected,
            got,
            problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conform::play::{Failure, Kind};

    fn case(id: &str, ability: &str) -> Case {
        Case {
            id: id.into(),
            ability: ability.into(),
            why: "Why.".into(),
            steps: Vec::new(),
            exit: Vec::new(),
            ordered: false,
            skip_logs: false,
        }
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
        let mut report = Report::new(vec!["x".into()], "python", true);
        assert!(!report.is_success(), "nothing was tested");
        report.add(&case("a", "map"), Verdict::Pass);
        assert!(report.is_success());
        report.add(&case("b", "reduce"), Verdict::Pass);
        report.add(&case("c", "reduce"), Verdict::Fail(failure));
        report.add(&case("d", "ddoc"), Verdict::NotRun);
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
        let mut report = Report::new(vec!["x".into()], "none", false);
        report.add(&case("a", "reset"), Verdict::Pass);
        report.add(&case("b", "ddoc"), Verdict::Fail(failure(Kind::Error)));
        report.add(&case("c", "ddoc.shows"), Verdict::Fail(failure(Kind::End)));
        report.settle();
        assert!(report.is_success());
        let verdict = |report: &Report, at: usize| report.abilities[at].verdict;
        assert_eq!(verdict(&report, 1), "not_supported");
        assert_eq!(report.cases[2].result, "not_supported");
        report.add(&case("d", "ddoc"), Verdict::Pass);
        report.settle();
        assert_eq!((report.counts.failed, report.counts.not_supported), (1, 1));
        assert_eq!(
            (verdict(&report, 1), report.cases[1].result),
            ("partly", "fail")
        );
        // What nobody does without, a wrong answer and silence are failures.
        for (ability, kind) in [
            ("map", Kind::Error),
            ("ddoc", Kind::Line),
            ("ddoc", Kind::Silence),
        ] {
            let mut report = Report::new(vec!["x".into()], "none", false);
            report.add(&case("a", ability), Verdict::Fail(failure(kind)));
            report.settle();
            assert_eq!((report.counts.failed, verdict(&report, 0)), (1, "absent"));
        }
    }
}
