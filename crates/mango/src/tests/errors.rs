//! Invalid selectors, with CouchDB's error names and positions; invalid documents.

use super::super::{MatchError, Selector};
use super::error;

#[test]
fn a_condition_without_a_field_at_the_root_is_refused() {
    for selector in [
        r#"{"$eq":1}"#,
        r#"{"$not":{"$eq":1}}"#,
        r#"{"$not":{}}"#,
        r#"{"$elemMatch":{"a":1}}"#,
        r#"{"$allMatch":{"a":1}}"#,
        r#"{"$keyMapMatch":{"$eq":"a"}}"#,
        r#"{"$exists":true}"#,
        r#"{"":1}"#,
    ] {
        let error = Selector::parse(selector).unwrap_err();
        assert_eq!(error.name(), "invalid_selector", "{selector}");
        assert!(
            error.kind.to_string().contains("missing_field_name"),
            "{selector}: {error}"
        );
    }
}

#[test]
fn a_selector_that_is_not_an_object_is_invalid_selector_json() {
    for selector in ["\"bare\"", "1", "null", "true", " []", "[{\"a\":1}]"] {
        let error = Selector::parse(selector).unwrap_err();
        assert_eq!(error.name(), "invalid_selector_json", "{selector}");
        assert_eq!(
            error.column,
            selector.len() - selector.trim_start().len() + 1
        );
    }
}

#[test]
fn of_members_of_one_name_the_last_counts() {
    for (selector, document, expected) in [
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#, true),
        (r#"{"a":1,"a":2}"#, r#"{"a":1}"#, false),
        (r#"{"a":1,"\u0061":2}"#, r#"{"a":2}"#, true),
        (r#"{"a":{"$gt":1,"$gt":5}}"#, r#"{"a":3}"#, false),
        (r#"{"a":{"$foo":1,"b":2},"a":7}"#, r#"{"a":7}"#, true),
        (
            r#"{"$or":[{"a":1}],"$or":[{"b":1,"b":2}]}"#,
            r#"{"b":2}"#,
            true,
        ),
        (r#"{"a":{"$eq":{"x":1,"x":2}}}"#, r#"{"a":{"x":2}}"#, true),
        (
            r#"{"a":{"$in":[{"x":1,"y":0,"x":2}]}}"#,
            r#"{"a":{"y":0,"x":2}}"#,
            true,
        ),
        (r#"{"a":{"$eq":{"x":2}}}"#, r#"{"a":{"x":1,"x":2}}"#, true),
        (
            r#"{"a":{"$all":[{"x":2}]}}"#,
            r#"{"a":[{"x":1,"x":2}]}"#,
            true,
        ),
        (
            r#"{"_id":{"$eq":{"x":2}}}"#,
            r#"{"_id":{"x":1,"x":2}}"#,
            true,
        ),
        (
            r#"{"a":{"$elemMatch":{"x":1,"x":2}}}"#,
            r#"{"a":[{"x":2}]}"#,
            true,
        ),
        (r#"{"a.b":2}"#, r#"{"a":{"b":2},"a":{"c":2}}"#, false),
    ] {
        let parsed = Selector::parse(selector).unwrap();
        assert_eq!(
            parsed.matches(document),
            Ok(expected),
            "{selector} {document}"
        );
    }
    let error = Selector::parse("{\"a\":1,\n\"a\":{\"$foo\":1}}").unwrap_err();
    assert_eq!((error.line, error.column), (2, 6));
}

#[test]
fn below_an_operator_a_condition_without_a_field_is_on_the_document() {
    for (selector, expected) in [
        (r#"{"$and":[{}]}"#, false),
        (r#"{"$and":[{"$gt":1}]}"#, true),
    ] {
        let selector = Selector::parse(selector).unwrap();
        assert_eq!(selector.matches(r#"{"a":1}"#), Ok(expected));
    }
}

#[test]
fn invalid_arguments_are_a_bad_arg() {
    for selector in [
        r#"{"$and":{}}"#,
        r#"{"$or":1}"#,
        r#"{"$nor":"x"}"#,
        r#"{"$not":[]}"#,
        r#"{"a":{"$in":1}}"#,
        r#"{"a":{"$nin":{}}}"#,
        r#"{"a":{"$all":"x"}}"#,
        r#"{"a":{"$elemMatch":[]}}"#,
        r#"{"a":{"$allMatch":1}}"#,
        r#"{"a":{"$keyMapMatch":"x"}}"#,
        r#"{"a":{"$exists":"true"}}"#,
        r#"{"a":{"$exists":1}}"#,
        r#"{"a":{"$type":null}}"#,
        r#"{"a":{"$mod":[2]}}"#,
        r#"{"a":{"$mod":[2.0,1]}}"#,
        r#"{"a":{"$regex":"("}}"#,
        r#"{"a":{"$size":-1}}"#,
        r#"{"a":{"$size":1.0}}"#,
        r#"{"a":{"$size":"1"}}"#,
        r#"{"$text":null}"#,
        r#"{"$text":[]}"#,
        r#"{"$not":{"$text":"x"}}"#,
        r#"{"$nor":[{"$text":"x"}]}"#,
    ] {
        assert_eq!(error(selector), "bad_arg", "{selector}");
    }
}

#[test]
fn operators_of_mongodb_are_not_supported() {
    for operator in [
        "$where",
        "$geoWithin",
        "$geoIntersects",
        "$near",
        "$nearSphere",
    ] {
        assert_eq!(
            error(&format!(r#"{{"a":{{"{operator}":1}}}}"#)),
            "not_supported"
        );
    }
}

#[test]
fn unknown_operators_and_some_wrong_arguments_are_an_invalid_operator() {
    for selector in [
        r#"{"a":{"$foo":1}}"#,
        r#"{"$foo":1}"#,
        r#"{"a":{"$":1}}"#,
        r#"{"a":{"$EQ":1}}"#,
        r#"{"a":{"$beginsWith":1}}"#,
        r#"{"a":{"$beginsWith":null}}"#,
        r#"{"a":{"$regex":1}}"#,
    ] {
        assert_eq!(error(selector), "invalid_operator", "{selector}");
    }
}

#[test]
fn text_below_a_field_and_a_wrong_default_are_a_bad_field() {
    assert_eq!(error(r#"{"a":{"$text":"x"}}"#), "bad_field");
    assert_eq!(error(r#"{"a":{"$and":[{"$text":"x"}]}}"#), "bad_field");
    assert_eq!(error(r#"{"$default":1}"#), "bad_field");
}

#[test]
fn an_empty_segment_is_an_invalid_field_name() {
    for selector in [
        r#"{"a..b":1}"#,
        r#"{".a":1}"#,
        r#"{"a.":1}"#,
        r#"{"a":{"":1}}"#,
        r#"{".":1}"#,
    ] {
        assert_eq!(error(selector), "invalid_field_name", "{selector}");
    }
}

#[test]
fn an_error_has_its_place() {
    for (selector, place) in [
        ("{\n  \"a\": 1,\n  \"b\": {\"$foo\": 1}\n}", (3, 9)),
        ("\n {\"$and\": 5}", (2, 3)),
        ("  {\"$eq\": 5}", (1, 3)),
        ("{\"a\": }", (1, 7)),
        ("{\"a\":1", (1, 6)),
        ("", (1, 1)),
        ("{} x", (1, 4)),
    ] {
        let error = Selector::parse(selector).unwrap_err();
        assert_eq!((error.line, error.column), place, "{selector}: {error}");
    }
    assert_eq!(error("{"), "invalid_json");
}

#[test]
fn a_document_is_a_json_object() {
    for selector in ["{}", r#"{"a":1}"#] {
        let selector = Selector::parse(selector).unwrap();
        for text in ["", "[]", "1", "{\"a\"", "{} {}", "null", "nonsense"] {
            let result = selector.matches(text);
            assert!(
                matches!(result, Err(MatchError::NotADocument(_))),
                "{text}: {result:?}"
            );
        }
    }
}
