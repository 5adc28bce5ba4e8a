//! The report as JUnit XML, which continuous integration shows case by case.
//!
//! SUMMARY   A test suite for each ability, a test case for each case. A case that failed or was not run is a
//!           failure; one that is not supported is skipped; a command that is no query server is an error.
//! PROMISES  Whatever the command printed, it is well-formed XML.

use std::fmt::Write;

use super::report::{Ability, CaseReport, CaseResult, Counts, Report};

/// Returns the report as XML.
pub(crate) fn junit(report: &Report) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let errors = usize::from(report.problem.is_some());
    let totals = totals(report.counts, errors);
    let suites = report
        .abilities
        .iter()
        .map(|ability| suite(report, ability));
    let problem = report.problem.as_deref().map(unusable).unwrap_or_default();
    let suites: String = suites.chain([problem]).collect();
    // A String takes any text.
    let _ = writeln!(
        text,
        "<testsuites name=\"settee conform\" {totals}>\n{suites}</testsuites>"
    );
    text
}

fn suite(report: &Report, ability: &Ability) -> String {
    let cases = report.cases.iter();
    let cases = cases.filter(|case| case.ability == ability.name).map(case);
    let (name, totals) = (escaped(&ability.name), totals(ability.counts, 0));
    let cases: String = cases.collect();
    format!("<testsuite name=\"{name}\" {totals}>\n{cases}</testsuite>\n")
}

fn case(case: &CaseReport) -> String {
    let failure = case.failure.as_ref();
    let problem = escaped(failure.map_or("", |failure| &failure.problem));
    let inside = match case.result {
        CaseResult::Pass => String::new(),
        CaseResult::NotSupported => format!("<skipped message=\"not supported: {problem}\"/>"),
        CaseResult::NotRun => {
            "<failure message=\"not run: it kept silent in other cases of this ability\"/>".into()
        }
        CaseResult::Fail => {
            let why = escaped(&case.why);
            format!("<failure message=\"{problem}\">{why}</failure>")
        }
    };
    let (ability, id) = (escaped(&case.ability), escaped(&case.id));
    format!("<testcase classname=\"{ability}\" name=\"{id}\">{inside}</testcase>\n")
}

/// Returns the suite of a command that cannot be tested.
fn unusable(problem: &str) -> String {
    let (totals, problem) = (totals(Counts::default(), 1), escaped(problem));
    format!(
        "<testsuite name=\"reset\" {totals}>\n\
         <testcase classname=\"reset\" name=\"it answers reset\"><error message=\"{problem}\"/></testcase>\n\
         </testsuite>\n"
    )
}

fn totals(counts: Counts, errors: usize) -> String {
    let (tests, failures) = (counts.all() + errors, counts.failed + counts.not_run);
    let skipped = counts.not_supported;
    format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\"")
}

/// Returns a text as it may stand in an attribute or an element. Characters that XML has no form for
/// become question marks.
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
    fn a_text_is_escaped_and_what_xml_cannot_hold_is_replaced() {
        assert_eq!(
            escaped("a<b> & \"c\"\n\u{0}\u{1b}\u{ffff}é"),
            "a&lt;b&gt; &amp; &quot;c&quot;&#10;???é"
        );
    }

    #[test]
    fn a_command_that_is_no_query_server_is_one_error() {
        let mut report = Report::new(vec!["x".into()], "none", false);
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
