//! Negations are pushed to the leaves: a missing field fails before they are evaluated.

use super::{check, matches};

#[test]
fn negated_comparisons_are_inverted() {
    check(r#"{"$not":{"$lt":5}}"#, &["5", "6"], &["4"]);
    check(r#"{"$not":{"$lte":5}}"#, &["6"], &["5"]);
    check(r#"{"$not":{"$gt":5}}"#, &["5", "4"], &["6"]);
    check(r#"{"$not":{"$gte":5}}"#, &["4"], &["5"]);
    check(r#"{"$not":{"$eq":5}}"#, &["4", "null"], &["5", "5.0"]);
    check(r#"{"$not":{"$ne":5}}"#, &["5"], &["4"]);
    check(r#"{"$not":{"$in":[1,2]}}"#, &["3"], &["1", "[2]"]);
    check(r#"{"$not":{"$nin":[1,2]}}"#, &["1", "[2]"], &["3"]);
}

#[test]
fn other_operators_are_negated_in_place() {
    check(r#"{"$not":{"$regex":"^a"}}"#, &["\"b\"", "5"], &["\"a\""]);
    check(r#"{"$not":{"$type":"number"}}"#, &["\"b\""], &["5"]);
    check(r#"{"$not":{"$size":1}}"#, &["[]", "5"], &["[1]"]);
    check(r#"{"$not":{"$all":[]}}"#, &["[]", "5"], &[]);
    check(r#"{"$not":{"$mod":[2,0]}}"#, &["1", "\"x\""], &["2"]);
    check(
        r#"{"$not":{"$beginsWith":"a"}}"#,
        &["\"b\"", "5"],
        &["\"ab\""],
    );
    check(
        r#"{"$not":{"$elemMatch":{"$eq":1}}}"#,
        &["[2]", "[]", "5"],
        &["[1]"],
    );
    check(
        r#"{"$not":{"$allMatch":{"$eq":1}}}"#,
        &["[1,2]", "[]"],
        &["[1,1]"],
    );
    check(
        r#"{"$not":{"$keyMapMatch":{"$eq":"k"}}}"#,
        &["{}"],
        &[r#"{"k":1}"#],
    );
}

#[test]
fn a_missing_field_fails_a_negation_too() {
    assert!(!matches(r#"{"$not":{"x":1}}"#, "{}"));
    assert!(matches(r#"{"$not":{"x":1}}"#, r#"{"x":2}"#));
    assert!(!matches(r#"{"x":{"$not":{"$regex":"a"}}}"#, "{}"));
    assert!(!matches(r#"{"x":{"$not":{"$not":{"$regex":"a"}}}}"#, "{}"));
}

#[test]
fn exists_flips() {
    assert!(matches(r#"{"x":{"$not":{"$exists":true}}}"#, "{}"));
    assert!(!matches(r#"{"x":{"$not":{"$exists":true}}}"#, r#"{"x":1}"#));
    assert!(matches(r#"{"x":{"$not":{"$exists":false}}}"#, r#"{"x":1}"#));
    assert!(matches(r#"{"x":{"$not":{"$exists":true,"$eq":0}}}"#, "{}"));
    assert!(matches(
        r#"{"x":{"$not":{"$exists":true,"$eq":0}}}"#,
        r#"{"x":1}"#
    ));
    assert!(!matches(
        r#"{"x":{"$not":{"$exists":true,"$eq":0}}}"#,
        r#"{"x":0}"#
    ));
}

#[test]
fn and_becomes_or_and_or_becomes_and() {
    let not_both = r#"{"$not":{"$and":[{"a":1},{"b":1}]}}"#;
    assert!(matches(not_both, r#"{"a":2,"b":1}"#));
    assert!(
        matches(not_both, r#"{"a":2}"#),
        "one present field is enough"
    );
    assert!(!matches(not_both, r#"{"a":1,"b":1}"#));
    assert!(!matches(not_both, "{}"));
    let neither = r#"{"$not":{"$or":[{"a":1},{"b":1}]}}"#;
    assert!(matches(neither, r#"{"a":2,"b":2}"#));
    assert!(
        !matches(neither, r#"{"a":2}"#),
        "both fields must be present"
    );
}

#[test]
fn not_and_nor_cancel() {
    assert!(matches(r#"{"$not":{"$not":{"a":1}}}"#, r#"{"a":1}"#));
    assert!(matches(
        r#"{"$not":{"$nor":[{"a":1},{"a":2}]}}"#,
        r#"{"a":2}"#
    ));
    assert!(!matches(
        r#"{"$not":{"$nor":[{"a":1},{"a":2}]}}"#,
        r#"{"a":3}"#
    ));
    assert!(matches(r#"{"$nor":[{"$not":{"a":1}}]}"#, r#"{"a":1}"#));
    assert!(matches(
        r#"{"a":{"$nor":[{"$eq":1},{"$not":{"$lt":5}}]}}"#,
        r#"{"a":2}"#
    ));
}

#[test]
fn a_negated_empty_combination_matches_everything() {
    for selector in [
        r#"{"$not":{"$and":[]}}"#,
        r#"{"$not":{"$or":[]}}"#,
        r#"{"$not":{"$nor":[]}}"#,
    ] {
        assert!(matches(selector, "{}"), "{selector}");
    }
}

#[test]
fn inside_elem_match_a_negation_stays_in_place() {
    let without_x = r#"{"a":{"$elemMatch":{"$not":{"x":1}}}}"#;
    assert!(matches(without_x, r#"{"a":[{}]}"#));
    assert!(matches(without_x, r#"{"a":[{"x":1},{"x":2}]}"#));
    assert!(!matches(without_x, r#"{"a":[{"x":1}]}"#));
    let neither = r#"{"a":{"$allMatch":{"$nor":[{"$eq":1},{"$eq":2}]}}}"#;
    assert!(matches(neither, r#"{"a":[3,4]}"#));
    assert!(!matches(neither, r#"{"a":[3,2]}"#));
}
