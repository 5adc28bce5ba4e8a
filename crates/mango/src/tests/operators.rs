//! The table of operators, with a test for each row.

use super::{check, error, holds, matches};

#[test]
fn an_empty_selector_matches_everything() {
    assert!(matches("{}", "{}"));
    assert!(matches(" { } ", r#"{"a":1}"#));
}

#[test]
fn a_bare_value_means_eq() {
    check("1", &["1", "1.0", "1e0"], &["2", "\"1\"", "[1]", "null"]);
    check("[1,2]", &["[1,2.0]"], &["[2,1]", "[1]", "1"]);
    check("null", &["null"], &["false", "0", "{}"]);
}

#[test]
fn an_empty_object_means_equal_to_it() {
    check("{}", &["{}"], &["[]", "{\"x\":1}", "null"]);
    assert!(matches(r#"{"a":{"$eq":{}}}"#, r#"{"a":{}}"#));
}

#[test]
fn several_keys_mean_and() {
    let selector = r#"{"a":{"$gt":1,"$lt":5},"b":2}"#;
    assert!(matches(selector, r#"{"a":3,"b":2}"#));
    assert!(!matches(selector, r#"{"a":5,"b":2}"#));
    assert!(!matches(selector, r#"{"a":3,"b":3}"#));
    assert!(!matches(selector, r#"{"a":3}"#));
}

#[test]
fn fields_may_be_nested_or_joined_by_points() {
    for selector in [
        r#"{"a":{"b":{"c":1}}}"#,
        r#"{"a.b.c":1}"#,
        r#"{"a.b":{"c":1}}"#,
    ] {
        assert!(
            matches(selector, r#"{"a":{"b":{"c":1,"d":2}}}"#),
            "{selector}"
        );
        assert!(!matches(selector, r#"{"a":{"b":{"c":2}}}"#), "{selector}");
    }
    // Not an equality with the whole object.
    assert!(matches(r#"{"a":{"b":1}}"#, r#"{"a":{"b":1,"c":2}}"#));
    // A leading empty name is skipped.
    assert!(matches(r#"{"":{"a":1}}"#, r#"{"a":1}"#));
}

#[test]
fn a_point_or_a_dollar_in_a_name_is_escaped() {
    assert!(matches(r#"{"a\\.b":1}"#, r#"{"a.b":1}"#));
    assert!(!matches(r#"{"a\\.b":1}"#, r#"{"a":{"b":1}}"#));
    assert!(matches(r#"{"\\$or":1}"#, r#"{"$or":1}"#));
}

#[test]
fn a_number_in_a_name_is_an_index_of_an_array() {
    assert!(matches(r#"{"a.1":"y"}"#, r#"{"a":["x","y"]}"#));
    assert!(matches(r#"{"a.+1.b":"y"}"#, r#"{"a":["x",{"b":"y"}]}"#));
    assert!(matches(r#"{"a.0":"y"}"#, r#"{"a":{"0":"y"}}"#));
    for past in ["a.2", "a.-1", "a.x"] {
        assert!(!matches(
            &format!(r#"{{"{past}":{{"$ne":1}}}}"#),
            r#"{"a":["x","y"]}"#
        ));
        assert!(!matches(
            &format!(r#"{{"{past}":{{"$exists":false}}}}"#),
            r#"{"a":["x","y"]}"#
        ));
    }
}

#[test]
fn eq_is_equality_of_the_collation() {
    check(r#"{"$eq":1}"#, &["1", "1.0", "10e-1"], &["1.1", "true"]);
    check(
        r#"{"$eq":"ab"}"#,
        &[r#""ab""#, "\"a\u{200d}b\"", r#""\u0061b""#],
        &[r#""aB""#],
    );
    check(
        r#"{"$eq":9007199254740993}"#,
        &["9007199254740993"],
        &["9007199254740992"],
    );
}

#[test]
fn objects_compare_in_their_stored_order() {
    check(
        r#"{"$eq":{"a":1,"b":2}}"#,
        &[r#"{"a":1,"b":2.0}"#],
        &[r#"{"b":2,"a":1}"#],
    );
    check(
        r#"{"$lt":{"b":2,"a":1}}"#,
        &[r#"{"a":1,"b":2}"#, "[]"],
        &[r#"{"b":2,"a":1}"#],
    );
}

#[test]
fn ne_lt_lte_gt_gte_compare_by_collation_and_need_the_field() {
    check(
        r#"{"$ne":1}"#,
        &["2", "null", "\"1\"", "[1]"],
        &["1", "1.0"],
    );
    check(
        r#"{"$lt":"b"}"#,
        &["\"a\"", "\"A\"", "5", "null", "true"],
        &["\"b\"", "\"B\"", "[]"],
    );
    check(r#"{"$lte":"b"}"#, &["\"a\"", "\"b\""], &["\"B\"", "{}"]);
    check(
        r#"{"$gt":10}"#,
        &["10.5", "\"\"", "[]", "{}"],
        &["10", "2", "null", "true"],
    );
    check(r#"{"$gte":10}"#, &["10", "10.0", "11"], &["9.999", "false"]);
    check(
        r#"{"$gt":null}"#,
        &["false", "0", "\"\"", "[]", "{}"],
        &["null"],
    );
    check(
        r#"{"$gt":[1]}"#,
        &["[1,0]", "[2]", "{}"],
        &["[1]", "[]", "\"z\""],
    );
}

#[test]
fn and_needs_all_and_is_true_of_an_empty_list() {
    assert!(matches(r#"{"$and":[{"a":1},{"b":2}]}"#, r#"{"a":1,"b":2}"#));
    assert!(!matches(
        r#"{"$and":[{"a":1},{"b":2}]}"#,
        r#"{"a":1,"b":3}"#
    ));
    assert!(matches(r#"{"$and":[]}"#, "{}"));
    assert!(matches(
        r#"{"a":{"$and":[{"$gt":1},{"$lt":3}]}}"#,
        r#"{"a":2}"#
    ));
}

#[test]
fn or_needs_one_and_is_true_of_an_empty_list() {
    assert!(matches(r#"{"$or":[{"a":1},{"b":2}]}"#, r#"{"b":2}"#));
    assert!(!matches(r#"{"$or":[{"a":1},{"b":2}]}"#, r#"{"a":2,"b":1}"#));
    assert!(matches(r#"{"$or":[]}"#, "{}"));
    // Also below a missing field.
    assert!(matches(r#"{"a":{"$or":[]}}"#, "{}"));
}

#[test]
fn nor_needs_none_and_is_true_of_an_empty_list() {
    assert!(matches(r#"{"$nor":[{"a":1},{"a":2}]}"#, r#"{"a":3}"#));
    assert!(!matches(r#"{"$nor":[{"a":1},{"a":2}]}"#, r#"{"a":2}"#));
    assert!(
        !matches(r#"{"$nor":[{"a":1}]}"#, "{}"),
        "the field has to be there"
    );
    assert!(matches(r#"{"$nor":[]}"#, "{}"));
}

#[test]
fn in_is_equality_with_one_and_looks_into_arrays() {
    check(
        r#"{"$in":[1,"b",null,[7]]}"#,
        &["1", "1.0", "\"b\"", "null", "[5,1]", "[[7]]", "[null]"],
        &["2", "[]", "[2]", "[7]", "{}"],
    );
    check(r#"{"$in":[]}"#, &[], &["1", "[]", "null"]);
}

#[test]
fn nin_is_the_negation_of_in() {
    check(
        r#"{"$nin":[1,"b",[7]]}"#,
        &["2", "[]", "[7]", "{}", "null"],
        &["1", "1.0", "\"b\"", "[5,1]", "[[7]]"],
    );
    check(r#"{"$nin":[]}"#, &["1", "[]"], &[]);
}

#[test]
fn all_is_exact_equality_of_terms() {
    check(
        r#"{"$all":[1,"x"]}"#,
        &["[1,\"x\"]", "[\"x\",2,1]"],
        &["[1.0,\"x\"]", "[1]", "1", "\"x\"", "{}", "[\"X\",1]"],
    );
    check(
        r#"{"$all":[{"a":1,"b":2}]}"#,
        &[r#"[{"a":1,"b":2}]"#],
        &[r#"[{"b":2,"a":1}]"#],
    );
    check(
        r#"{"$all":["ab"]}"#,
        &[r#"["\u0061b"]"#],
        &["[\"a\u{200d}b\"]"],
    );
    check(r#"{"$all":[]}"#, &[], &["[]", "[1]", "1"]);
}

#[test]
fn all_of_one_array_may_be_the_field_itself() {
    check(
        r#"{"$all":[[1,2]]}"#,
        &["[1,2]", "[1.0,2]", "[[1,2]]"],
        &["[[1.0,2]]", "[2,1]", "[1]"],
    );
    check(r#"{"$all":[[1],[2]]}"#, &["[[2],[1]]"], &["[1]"]);
}

#[test]
fn elem_match_needs_one_element() {
    check(
        r#"{"$elemMatch":{"$gte":80,"$lt":85}}"#,
        &["[82,100]", "[1,84.5]"],
        &["[79,85]", "[]", "82", "{\"0\":82}", "[\"x\"]"],
    );
    check(
        r#"{"$elemMatch":{"b":1,"c":{"$gt":2}}}"#,
        &[r#"[{"b":1,"c":3}]"#, r#"[5,{"b":1,"c":3}]"#],
        &[r#"[{"b":1},{"c":3}]"#, r#"[[{"b":1,"c":3}]]"#],
    );
    check(r#"{"$elemMatch":{}}"#, &["[{}]"], &["[1]", "[]"]);
    check(
        r#"{"$elemMatch":{"$elemMatch":{"$eq":1}}}"#,
        &["[[2],[1]]"],
        &["[1]"],
    );
    check(
        r#"{"$elemMatch":{"b":{"$exists":false}}}"#,
        &["[{}]"],
        &["[1]", "[{\"b\":1}]"],
    );
}

#[test]
fn all_match_needs_all_elements_and_one_at_least() {
    check(
        r#"{"$allMatch":{"$gt":1}}"#,
        &["[2]", "[2,3]", "[\"a\"]"],
        &["[]", "[1,2]", "2", "{}"],
    );
    check(
        r#"{"$allMatch":{"b":1}}"#,
        &[r#"[{"b":1},{"b":1}]"#],
        &[r#"[{"b":1},{}]"#],
    );
}

#[test]
fn key_map_match_needs_one_key() {
    check(
        r#"{"$keyMapMatch":{"$eq":"b"}}"#,
        &[r#"{"a":1,"b":2}"#, r#"{"\u0062":0}"#],
        &[r#"{"a":"b"}"#, "{}", "[\"b\"]", "\"b\""],
    );
    check(
        r#"{"$keyMapMatch":{"$regex":"^c_"}}"#,
        &[r#"{"c_1":null}"#],
        &[r#"{"c":1}"#],
    );
}

#[test]
fn exists_tells_a_missing_key_from_a_bad_path() {
    assert!(matches(r#"{"a":{"$exists":true}}"#, r#"{"a":null}"#));
    assert!(!matches(r#"{"a":{"$exists":true}}"#, "{}"));
    assert!(matches(r#"{"a":{"$exists":false}}"#, "{}"));
    assert!(!matches(r#"{"a":{"$exists":false}}"#, r#"{"a":null}"#));
    for exists in ["true", "false"] {
        let selector = format!(r#"{{"x.y":{{"$exists":{exists}}}}}"#);
        assert!(
            !matches(&selector, r#"{"x":5}"#),
            "x.y of a scalar x, {exists}"
        );
        assert!(
            !matches(&selector, r#"{"x":[]}"#),
            "x.y of an array x, {exists}"
        );
    }
    assert!(matches(r#"{"x.y":{"$exists":false}}"#, r#"{"x":{}}"#));
    assert!(matches(r#"{"x.y":{"$exists":false}}"#, "{}"));
}

#[test]
fn type_knows_six_names() {
    for (name, value) in [
        ("null", "null"),
        ("boolean", "false"),
        ("number", "-1e5"),
        ("string", "\"\""),
        ("array", "[]"),
        ("object", "{}"),
    ] {
        for (other, _) in [
            ("null", 0),
            ("boolean", 0),
            ("number", 0),
            ("string", 0),
            ("array", 0),
        ] {
            let condition = format!(r#"{{"$type":"{other}"}}"#);
            assert_eq!(
                holds(&condition, value),
                name == other,
                "{other} of {value}"
            );
        }
    }
    check(r#"{"$type":"object"}"#, &["{}"], &["[]", "null"]);
    check(r#"{"$type":"integer"}"#, &[], &["1"]);
}

#[test]
fn mod_is_of_integers_and_keeps_the_sign() {
    check(
        r#"{"$mod":[3,1]}"#,
        &["7", "1"],
        &["-7", "7.0", "8", "\"7\"", "null"],
    );
    check(r#"{"$mod":[3,-1]}"#, &["-7"], &["7"]);
    check(r#"{"$mod":[-3,1]}"#, &["7"], &["-7"]);
}

#[test]
fn mod_of_zero_is_refused_before_a_document_comes() {
    assert_eq!(error(r#"{"a":{"$mod":[0,1]}}"#), "bad_arg");
}

#[test]
fn regex_is_of_strings_and_looks_at_bytes() {
    check(
        r#"{"$regex":"^a.c$"}"#,
        &["\"abc\""],
        &["\"abbc\"", "5", "[\"abc\"]", "null"],
    );
    check(r#"{"$regex":"^.$"}"#, &["\"e\""], &["\"é\"", "\"€\""]);
    check(r#"{"$regex":"^..$"}"#, &["\"é\"", "\"ab\""], &["\"€\""]);
    check(r#"{"$regex":"^...$"}"#, &["\"€\""], &["\"é\""]);
}

#[test]
fn begins_with_respects_grapheme_clusters() {
    check(
        r#"{"$beginsWith":"foo"}"#,
        &["\"foo\"", "\"foobar\""],
        &["\"Foo\"", "\"fo\"", "5"],
    );
    check(r#"{"$beginsWith":""}"#, &["\"\"", "\"x\""], &["5", "[]"]);
    check(r#"{"$beginsWith":"e"}"#, &["\"ex\""], &["\"e\u{301}x\""]);
    check(
        "{\"$beginsWith\":\"e\u{301}\"}",
        &["\"e\u{301}x\""],
        &["\"ex\"", "\"\u{e9}\""],
    );
    check(r#"{"$beginsWith":"\r"}"#, &[r#""\rx""#], &[r#""\r\n""#]);
    check(
        "{\"$beginsWith\":\"\u{1f1e9}\"}",
        &["\"\u{1f1e9}x\""],
        &["\"\u{1f1e9}\u{1f1ea}\""],
    );
}

#[test]
fn size_is_of_arrays() {
    check(
        r#"{"$size":2}"#,
        &["[1,[2,3]]"],
        &["[1]", "[]", "\"ab\"", "{\"a\":1,\"b\":2}"],
    );
    check(r#"{"$size":0}"#, &["[]", "[ ]"], &["[1]", "{}", "0"]);
}

#[test]
fn text_is_left_to_the_index() {
    assert!(matches(r#"{"$text":"some words"}"#, "{}"));
    assert!(matches(r#"{"$and":[{"$text":5},{"a":1}]}"#, r#"{"a":1}"#));
    assert!(!matches(r#"{"$text":true,"a":1}"#, r#"{"a":2}"#));
    // In the form of a normalised selector.
    assert!(matches(r#"{"$default":{"$text":"x"}}"#, "{}"));
}

#[test]
fn id_compares_byte_by_byte() {
    let lower = r#"{"_id":{"$lt":"a"}}"#;
    assert!(
        matches(lower, r#"{"_id":"B"}"#),
        "byte by byte, capitals come first"
    );
    assert!(
        !matches(r#"{"x":{"$lt":"a"}}"#, r#"{"x":"B"}"#),
        "by collation, a comes first"
    );
    assert!(!matches(r#"{"_id":"ab"}"#, "{\"_id\":\"a\u{200d}b\"}"));
    assert!(matches(r#"{"x":"ab"}"#, "{\"x\":\"a\u{200d}b\"}"));
    // Numbers come before strings, strings after everything.
    assert!(matches(r#"{"_id":{"$gt":[]}}"#, r#"{"_id":"a"}"#));
    assert!(!matches(r#"{"_id":{"$gt":[]}}"#, r#"{"_id":{}}"#));
}

#[test]
fn id_compares_byte_by_byte_also_below_elem_match_but_only_under_its_own_name() {
    let elements = r#"{"a":[{"_id":"B"}]}"#;
    assert!(matches(
        r#"{"a":{"$elemMatch":{"_id":{"$lt":"a"}}}}"#,
        elements
    ));
    let nested = r#"{"a":{"_id":"B"}}"#;
    assert!(!matches(r#"{"a._id":{"$lt":"a"}}"#, nested));
    // Values below _id are compared like it.
    assert!(matches(
        r#"{"_id":{"$elemMatch":{"$lt":"a"}}}"#,
        r#"{"_id":["B"]}"#
    ));
}
