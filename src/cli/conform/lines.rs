//! The output of `settee conform`: the language, a line for each case, and a summary by ability.
//!
//! PROMISES  A case is one line, regardless of the command's output.

use conform::report::{CaseReport, CaseResult, DaemonAbilities, Report};
use conform::suite;
use json::shown::is_unprintable;

/// Returns the language, how it was found, and how many of the cases apply to it.
pub(super) fn headline(report: &Report, is_given: bool, has_further: bool) -> String {
    let language = &report.language;
    let origin = match (is_given, report.found) {
        (true, _) => "",
        (false, true) => " (found by trying)",
        (false, false) => " (the command runs functions in no language that has cases)",
    };
    let mut text = format!("language: {language}{origin}\n");
    if !suite::has_functions(language) {
        let (applying, known) = (report.applying, report.known);
        let what = if has_further {
            "those without functions, and those of --cases"
        } else {
            "those without functions; --cases FILE adds some in another language"
        };
        text.push_str(&format!("{applying} of {known} cases apply: {what}\n"));
    }
    text
}

/// Returns the line of a case.
pub(super) fn line(case: &CaseReport) -> String {
    let line = |word: &str| format!("{word:<4}  {:<13}  {}", case.ability, case.id);
    let problem = case.failure.as_ref().map(|failure| &*failure.problem);
    // A command's output must not move the cursor or break a line.
    let problem = problem
        .unwrap_or_default()
        .replace(['\n', '\r', '\t'], " ")
        .replace(is_unprintable, "?");
    match case.result {
        CaseResult::Pass => line("ok") + "\n",
        CaseResult::NotSupported => format!("{}  not supported: {problem}\n", line("no")),
        CaseResult::Fail => format!("{}  {problem}\n", line("FAIL")),
        CaseResult::NotRun => {
            line("skip") + "  not run: it did not answer other cases of this ability\n"
        }
    }
}

/// Returns the table of abilities, those that a daemon uses, and the counts.
pub(super) fn summary(report: &Report) -> String {
    let mut text = format!("\n{:<16}  {:>6}  {:>6}\n", "ABILITY", "PASSED", "OF");
    for ability in &report.abilities {
        let (name, passed) = (&ability.name, ability.counts.passed);
        let verdict = match ability.verdict {
            "able" => "",
            "not_supported" => "not supported",
            verdict => verdict,
        };
        let all = ability.counts.all();
        let row = format!("{name:<16}  {passed:>6}  {all:>6}  {verdict}");
        text.push_str(row.trim_end());
        text.push('\n');
    }
    let counts = report.counts;
    let more = |count, what| match count {
        0 => String::new(),
        count => format!(", {count} {what}"),
    };
    let not_supported = more(counts.not_supported, "not supported");
    let not_run = more(counts.not_run, "not run");
    let (passed, failed) = (counts.passed, counts.failed);
    let daemon = daemon(&report.daemon);
    let badge = &report.badge;
    format!("{text}\n{daemon}{passed} passed, {failed} failed{not_supported}{not_run}\n{badge}\n")
}

/// Returns the abilities that a daemon uses.
fn daemon(abilities: &DaemonAbilities) -> String {
    let row = |what: &str, wanted: Option<bool>| {
        let names: Vec<&str> = abilities
            .iter()
            .filter(|(_, known)| **known == wanted)
            .map(|(name, _)| name.as_str())
            .collect();
        if names.is_empty() {
            String::new()
        } else {
            format!("{what}: {}\n", names.join(" "))
        }
    };
    row("the daemon will use", Some(true))
        + &row("the daemon will do without", Some(false))
        + &row("the daemon will try, undecided by its probes", None)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use conform::play::{Failure, Kind};

    #[test]
    fn a_case_is_one_line_whatever_the_command_printed() {
        let case = suite::first_function("perl").unwrap();
        let report = |failure| CaseReport::of(&case, failure, Duration::ZERO);
        let failure = Failure {
            step: Some(4),
            expected: "true".into(),
            got: "x".into(),
            problem: "step 4: expected true, got \x1b[2J\nx".into(),
            kind: Kind::Line,
        };
        assert_eq!(
            line(&report(Some(failure))),
            "FAIL  map            basic/map/one-row  step 4: expected true, got ?[2J x\n"
        );
        assert_eq!(
            line(&report(None)),
            "ok    map            basic/map/one-row\n"
        );
    }

    #[test]
    fn abilities_are_listed_as_used_done_without_or_tried() {
        let known = [
            ("ddoc", Some(false)),
            ("index_doc", None),
            ("reduce", Some(true)),
        ];
        let abilities = known.map(|(name, known)| (name.to_owned(), known)).into();
        let text = "the daemon will use: reduce\nthe daemon will do without: ddoc\n\
                    the daemon will try, undecided by its probes: index_doc\n";
        assert_eq!(daemon(&abilities), text);
    }
}
