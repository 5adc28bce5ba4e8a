//! The report as JUnit XML, which continuous integration shows by case.
//!
//! SUMMARY   A test suite for each ability, a test case for each case, with times in seconds. Failed cases and those
//!           that were not run are failures; unsupported ones are skipped; a command that is not a query server is an
//!           error.
//! PROMISES  Well-formed XML for any output of the command.

use std::fmt::Write;
use std::time::Duration;

use crate::report::{Ability, CaseReport, CaseResult, Counts, Report};

/// Returns the report as XML.
pub fn junit(report: &Report) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let totals = totals(
        report.counts,
        usize::from(report.problem.is_some()),
        time(&report.cases),
    );
    let suites = report
        .abilities
        .iter()
        .map(|ability| suite(report, ability));
    let problem = report.problem.as_deref().map(unusable).unwrap_or_default();
    let suites: String = suites.chain([problem]).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "<testsuites name=\"settee conform\" {totals}>\n{suites}</testsuites>"
    );
    text
}

fn suite(report: &Report, ability: &Ability) -> String {
    let cases = report
        .cases
        .iter()
        .filter(|case| case.ability == ability.name);
    let totals = totals(ability.counts, 0, time(cases.clone()));
    let (name, cases) = (escaped(&ability.name), cases.map(case).collect::<String>());
    format!("<testsuite name=\"{name}\" {totals}>\n{cases}</testsuite>\n")
}

fn case(case: &CaseReport) -> String {
    let failure = case.failure.as_ref();
    let problem = escaped(failure.map_or("", |failure| &failure.problem));
    let inside = match case.result {
        CaseResult::Pass => String::new(),
        CaseResult::NotSupported => format!("<skipped message=\"not supported: {problem}\"/>"),
        CaseResult::NotRun => {
            "<failure message=\"not run: it did not answer other cases of this ability\"/>".into()
        }
        CaseResult::Fail => {
            let why = escaped(&case.why);
            format!("<failure message=\"{problem}\">{why}</failure>")
        }
    };
    let (ability, id) = (escaped(&case.ability), escaped(&case.id));
    let time = seconds(case.took);
    format!("<testcase classname=\"{ability}\" name=\"{id}\" {time}>{inside}</testcase>\n")
}

/// Returns the sum of the times of cases. Several run at a time, so together they took less.
fn time<'a>(cases: impl IntoIterator<Item = &'a CaseReport>) -> Duration {
    cases.into_iter().map(|case| case.took).sum()
}

fn seconds(time: Duration) -> String {
    format!("time=\"{:.3}\"", time.as_secs_f64())
}

/// Returns the suite of a command that cannot be tested.
fn unusable(problem: &str) -> String {
    let (totals, problem) = (
        totals(Counts::default(), 1, Duration::ZERO),
        escaped(problem),
    );
    format!(
        "<testsuite name=\"reset\" {totals}>\n\
         <testcase classname=\"reset\" name=\"it answers reset\"><error message=\"{problem}\"/></testcase>\n\
         </testsuite>\n"
    )
}

fn totals(counts: Counts, errors: usize, time: Duration) -> String {
    let (tests, failures) = (counts.all() + errors, counts.failed + counts.not_run);
    let (skipped, time) = (counts.not_supported, seconds(time));
    format!(
        "tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" {time}"
    )
}

/// Escapes a string for an attribute or an element. Characters that XML cannot represent become question marks.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('?'),
            character if character.is_control() => escaped.push('?'),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_escaped_and_what_xml_cannot_hold_is_replaced() {
        assert_eq!(
            escaped("a<b> & \"c\"\n\u{0}\u{1b}\u{ffff}é"),
            "a&lt;b&gt; &amp; &quot;c&quot;&#10;???é"
        );
    }

    #[test]
    fn the_time_of_a_suite_and_of_the_report_is_the_sum_of_its_cases() {
        let mut report = Report::new(vec!["x".into()], "none");
        for (id, ability, took) in [("a", "map", 1500), ("b", "map", 20), ("c", "reduce", 3)] {
            report.cases.push(CaseReport {
                id: id.into(),
                ability: ability.into(),
                why: String::new(),
                result: CaseResult::Pass,
                took: Duration::from_millis(took),
                failure: None,
            });
        }
        report.settle();
        let text = junit(&report);
        for part in [
            "<testcase classname=\"map\" name=\"a\" time=\"1.500\">",
            "<testcase classname=\"map\" name=\"b\" time=\"0.020\">",
            "<testsuite name=\"map\" tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"0\" time=\"1.520\">",
            "skipped=\"0\" time=\"1.523\">\n<testsuite",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn a_command_that_is_not_a_query_server_is_one_error() {
        let mut report = Report::new(vec!["x".into()], "none");
        report.problem = Some("it exited & \"died\"".into());
        let text = junit(&report);
        assert!(
            text.contains("tests=\"1\" failures=\"0\" errors=\"1\""),
            "{text}"
        );
        assert!(
            text.contains("<error message=\"it exited &amp; &quot;died&quot;\"/>"),
            "{text}"
        );
    }
}
