//! Malicious input: errors, never crashes or hangs.

use super::super::normal::SELECTOR_DEPTH_MAX;
use super::super::{MatchError, Selector, last_members};
use super::matches;

const DEEP: usize = 100_000;

fn nested(open: &str, inside: &str, close: &str, depth: usize) -> String {
    format!("{}{inside}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn a_selector_that_is_nested_too_deeply_is_refused() {
    for (open, close) in [
        (r#"{"a":"#, "}"),
        (r#"{"$not":"#, "}"),
        (r#"{"$and":["#, "]}"),
        (r#"{"$elemMatch":"#, "}"),
        (r#"{"a":{"$elemMatch":"#, "}}"),
    ] {
        let deepest = if open.len() < 6 { DEEP } else { DEEP / 200 };
        for depth in [SELECTOR_DEPTH_MAX + 1, deepest] {
            let error = Selector::parse(&nested(open, r#"{"x":1}"#, close, depth)).unwrap_err();
            assert_eq!(error.name(), "invalid_selector", "{open}");
            let reason = error.kind.to_string();
            let told = ["nested too deeply", "too many segments"];
            assert!(
                told.iter().any(|told| reason.contains(told)),
                "{open}: {error}"
            );
        }
        let fits = nested(open, r#"{"x":1}"#, close, SELECTOR_DEPTH_MAX / 2 - 1);
        let parsed = Selector::parse(&format!(r#"{{"f":{fits}}}"#));
        parsed.unwrap().matches("{}").unwrap();
    }
}

#[test]
fn values_and_documents_may_be_nested_as_deeply_as_they_like() {
    let deep = nested("[", "1", "]", DEEP);
    let document = format!(
        r#"{{"a":{deep},"b":{}}}"#,
        nested(r#"{"x":"#, "1", "}", DEEP)
    );
    for operator in ["$eq", "$gte", "$lte"] {
        assert!(matches(
            &format!(r#"{{"a":{{"{operator}":{deep}}}}}"#),
            &document
        ));
    }
    assert!(matches(&format!(r#"{{"a":{{"$in":{deep}}}}}"#), &document));
    assert!(matches(&format!(r#"{{"a":{{"$all":{deep}}}}}"#), &document));
    assert!(matches(r#"{"b.x.x.x.x.x":{"$type":"object"}}"#, &document));
    assert!(!matches(
        &format!(r#"{{"_id":{{"$gt":{deep}}}}}"#),
        &document
    ));
}

#[test]
fn repeated_members_may_be_nested_as_deeply_as_they_like() {
    let last = r#""a":0}"#;
    let text = nested(r#"{"a":"#, "0", &format!(",{last}"), DEEP);
    let blank = " ".repeat(text.len() - 1 - last.len());
    assert!(last_members(&text) == format!("{{{blank}{last}"));
}

#[test]
fn many_operands_are_found_in_a_long_array() {
    let numbers = |first: usize| format!("{:?}", (first..first + DEEP).collect::<Vec<_>>());
    let selector = format!(r#"{{"a":{{"$in":{}}}}}"#, numbers(DEEP));
    for (first, is_found) in [(0, false), (1, true)] {
        let document = format!(r#"{{"a":{}}}"#, numbers(first));
        assert_eq!(matches(&selector, &document), is_found);
    }
}

#[test]
fn a_field_of_too_many_segments_is_refused() {
    let name = vec!["a"; DEEP].join(".");
    let error = Selector::parse(&format!(r#"{{"{name}":1}}"#)).unwrap_err();
    assert!(
        error.kind.to_string().contains("too many segments"),
        "{error}"
    );
}

#[test]
fn names_that_are_joined_again_and_again_are_refused() {
    let name = "n".repeat(100_000);
    let members: Vec<String> = (0..1000).map(|number| format!(r#""{number}":1"#)).collect();
    let selector = format!(r#"{{"{name}":{{{}}}}}"#, members.join(","));
    let error = Selector::parse(&selector).unwrap_err();
    assert!(error.kind.to_string().contains("field names"), "{error}");
}

#[test]
fn a_selector_of_too_many_bytes_is_refused() {
    let selector = format!(r#"{{"a":"{}"}}"#, "x".repeat(2 << 20));
    let error = Selector::parse(&selector).unwrap_err();
    assert!(error.kind.to_string().contains("too many bytes"), "{error}");
}

#[test]
fn catastrophic_expressions_answer_or_fail() {
    let document = format!(r#"{{"a":"{}!"}}"#, "a".repeat(10_000));
    for pattern in [
        "(a+)+$",
        "(a|aa)+$",
        "(a*)*b",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
    ] {
        assert!(
            !matches(&format!(r#"{{"a":{{"$regex":"{pattern}"}}}}"#), &document),
            "{pattern}"
        );
    }
    // These require backtracking.
    for pattern in [
        r"^(a+)+\\1$",
        r"(?=(a+))(\\1+)+$",
        r"^(a|a?)+\\1c",
        r"^(a+)+(?<!a)b",
    ] {
        let selector = Selector::parse(&format!(r#"{{"a":{{"$regex":"{pattern}"}}}}"#)).unwrap();
        let result = selector.matches(&document);
        assert!(
            matches!(result, Err(MatchError::Pattern { .. })),
            "{pattern}: {result:?}"
        );
    }
}

#[test]
fn an_element_that_cannot_be_decided_gives_way_to_one_that_matches() {
    let bad = format!(r#""{}!""#, "a".repeat(2_000));
    let selector = r#"{"l":{"$elemMatch":{"$regex":"^(a|a?)+\\1$"}}}"#;
    assert!(matches(selector, &format!(r#"{{"l":[{bad},"aaaa"]}}"#)));
    let parsed = Selector::parse(selector).unwrap();
    let result = parsed.matches(&format!(r#"{{"l":[{bad},"b"]}}"#));
    assert!(
        matches!(result, Err(MatchError::Pattern { .. })),
        "{result:?}"
    );
}

#[test]
fn huge_expressions_are_refused() {
    for pattern in [
        "a".repeat(100_000),
        nested("(", "a", ")", DEEP / 20),
        "(((a{1000}){1000}){1000}){1000}".to_owned(),
        "((((?=a)a{1000}){1000}){1000}){1000}".to_owned(),
        r"(?:\\pL{1000}){1000}".to_owned(),
        "[^a]{60000}".to_owned(),
        "a{99999}".to_owned(),
        "(?=x)".to_owned() + &nested("(?:", "a", ")?", 5_000),
    ] {
        let selector = format!(r#"{{"a":{{"$regex":"{pattern}"}}}}"#);
        assert_eq!(super::error(&selector), "bad_arg", "{:.40}", pattern);
    }
}

#[test]
fn a_wide_selector_matches_a_wide_document() {
    let members = |value: &str| -> String {
        let members = (0..20_000).map(|number| format!(r#""f{number}":{value}"#));
        members.collect::<Vec<_>>().join(",")
    };
    let selector = format!("{{{}}}", members("1"));
    let document = format!("{{{}}}", members("1.0"));
    assert!(matches(&selector, &document));
}
