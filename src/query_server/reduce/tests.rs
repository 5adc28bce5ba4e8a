//! Cases of the built-in reducers, with CouchDB's answers.

use serde_json::Value;

use super::*;
use crate::config::ReduceLimit;

const LIMIT: SumLimit = SumLimit {
    mode: ReduceLimit::True,
    threshold: 500,
    ratio: 5.0,
};

impl ReduceContext<'_> {
    /// A context without a limit.
    const NONE: Self = Self {
        limit: SumLimit::NONE,
        name: "",
        log: None,
        call: None,
    };
}

fn texts(values: &[&str]) -> Vec<Box<RawValue>> {
    let text = |json: &&str| RawValue::from_string((*json).to_owned()).unwrap();
    values.iter().map(text).collect()
}

fn rows_of(texts: &[Box<RawValue>]) -> Vec<ReduceRow<'_>> {
    let mut texts = texts.iter().map(|text| text.get());
    let key = texts.next().unwrap();
    let row = |value| ReduceRow {
        id: key,
        key,
        value,
    };
    texts.map(row).collect()
}

/// Reduces rows of one key and document with these values, and finalizes the result.
fn reduce(name: &str, values: &[&str], context: &ReduceContext<'_>) -> Result<String, String> {
    let texts = texts(&[&["\"d\""], values].concat());
    let reducer = Builtin::named(name).unwrap();
    let reduced = reducer.reduce(rows_of(&texts).iter().copied(), context);
    let value = reduced.and_then(|value| reducer.finalize(&value));
    value
        .map(|value| value.get().to_owned())
        .map_err(|error| error.0)
}

fn rereduce(name: &str, values: &[&str]) -> Result<String, String> {
    let reducer = Builtin::named(name).unwrap();
    let values = values.iter().copied();
    let value = reducer.rereduce(values, &ReduceContext::NONE);
    value
        .map(|value| value.get().to_owned())
        .map_err(|error| error.0)
}

fn sum(values: &[&str]) -> String {
    reduce("_sum", values, &ReduceContext::NONE).unwrap()
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

#[test]
fn sum_adds_numbers_arrays_and_objects() {
    for (values, expected) in [
        (&[][..], "0"),
        (&["1", "2", "3.5"], "6.5"),
        (&["1.5", "1.5"], "3.0"),
        (&["9007199254740993", "1"], "9007199254740994"),
        (&["18446744073709551615", "1"], "18446744073709551616"),
        (
            &["100000000000000000000000000000000000000000", "1"],
            "100000000000000000000000000000000000000001",
        ),
        (&["[]"], "[0]"),
        (&["[]", "[1]"], "[1]"),
        (&["5", "[]"], "[5]"),
        (&["[1,2]", "[3]"], "[4,2]"),
        (&["[1]", "[2,3]"], "[3,3]"),
        (&["5", "[1,2]"], "[6,2]"),
        (&["[1,2]", "5"], "[6,2]"),
        (&[r#"[1,"a"]"#], r#"[1,"a"]"#),
        (&[r#"{"b":1,"a":"x"}"#], r#"{"b":1,"a":"x"}"#),
        (&["5", "-5", r#"{"a":1}"#], r#"{"a":1}"#),
        (
            &[r#"{"b":1,"x":"kept"}"#, r#"{"a":2,"b":3}"#],
            r#"{"a":2,"b":4,"x":"kept"}"#,
        ),
        (
            &[r#"{"n":{"m":1}}"#, r#"{"n":{"m":2,"l":1}}"#],
            r#"{"n":{"l":1,"m":3}}"#,
        ),
        (&[r#"{"a":[1]}"#, r#"{"a":[2,3]}"#], r#"{"a":[3,3]}"#),
        (&[r#"{"a":0}"#, r#"{"a":{"b":1}}"#], r#"{"a":{"b":1}}"#),
        (&[r#"{"\u0061":1}"#, r#"{"a":1,"a":2}"#], r#"{"a":3}"#),
    ] {
        // Compared as text, because the kinds of numbers and the order of members matter.
        assert_eq!(sum(values), expected, "{values:?}");
    }
}

#[test]
fn a_value_that_cannot_be_added_is_reported_in_the_result() {
    let nested = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    let deep = nested(1000);
    for (values, cause) in [
        (&["1", "\"x\"", "2"][..], Some("\"x\"")),
        (&["null"], Some("null")),
        (&["true"], Some("true")),
        (&[r#"{"a":1}"#, "2"], Some("2")),
        (&[r#"{"a":1}"#, "[2]"], Some("[2]")),
        (&["[2]", r#"{"a":1}"#], Some(r#"{"a":1}"#)),
        (&[r#"{"error":"mine"}"#], Some(r#"{"error":"mine"}"#)),
        (&["1", r#"{"a":1}"#], Some(r#"{"a":1}"#)),
        (&[r#"{"a":1}"#, r#"{"a":{"b":1}}"#], Some(r#"{"b":1}"#)),
        (&[r#"{"a":1}"#, r#"{"a":"x"}"#], Some("\"x\"")),
        (&["[[1]]"], Some("[0]")),
        (&["[\"a\",1]", "5"], Some("[0]")),
        (&["7", "[1]", "[\"a\"]"], Some("[8]")),
        (&["[1]", r#"[1,"a"]"#, "[1,2]"], Some("[\"a\"]")),
        (&["[1,2,3]", r#"[1,"a",3]"#], Some("[2,3]")),
        (&["[1.5,2,[3]]", r#"[1,2,3,4]"#], Some("[[3]]")),
        (
            &["[1]", r#"[1,"a",{}]"#, "[1]", "[1,1]"],
            Some(r#"["a",{}]"#),
        ),
        (&[r#"{"a":[1,2]}"#, r#"{"a":[1,null]}"#], Some("[2]")),
        (
            &[r#"{"a":{"b":[1,"x"]}}"#, r#"{"a":{"b":[1,2,3]}}"#],
            Some(r#"["x"]"#),
        ),
        (&[r#"{"a":["x"]}"#, r#"{"a":1}"#], Some(r#"["x"]"#)),
        (&[r#"{"a":"x"}"#, r#"{"a":[1]}"#], Some("[1]")),
        (&["1e308", "1e308"], Some("1e308")),
        (&["1e400"], Some("1e400")),
        (&[&deep, &deep], None),
    ] {
        let result = sum(values);
        let start = "{\"error\":\"builtin_reduce_error\",\"reason\":\"The _sum function requires \
                     that map values be numbers";
        assert!(result.starts_with(start), "{result}");
        let cause = cause.map(|cause| format!(",\"caused_by\":{cause}}}"));
        assert!(
            cause.is_none_or(|cause| result.ends_with(&cause)),
            "{result}"
        );
    }
}

#[test]
fn an_error_of_an_earlier_sum_is_passed_through() {
    let error = sum(&["\"x\""]);
    assert_eq!(rereduce("_sum", &["1", &error, "2"]).unwrap(), error);
    assert_eq!(rereduce("_sum", &["[1]", "2"]).unwrap(), "[3]");
    let inner = format!("{{\"a\":{error}}}");
    assert_eq!(sum(&[r#"{"a":0}"#, &inner]), error);
}

fn members(count: usize) -> Vec<String> {
    let member = |name| format!("{{\"member number {name:03}\":1}}");
    (0..count).map(member).collect()
}

#[test]
fn a_sum_that_does_not_shrink_is_an_error() {
    let values = members(40);
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let context = ReduceContext {
        call: None,
        limit: LIMIT,
        name: "db/_design/d/_view/v",
        log: None,
    };
    let result = parsed(&reduce("_sum", &values, &context).unwrap());
    assert_eq!(result["error"], "builtin_reduce_error");
    // Bytes of external terms. A member: its pair 2, name 5 + 17, value 2; an object: its tuple 2, list 5 and 1;
    // a row: two pairs of 6 each, key and id 6 each.
    let (member, object, row) = (26, 8, 24);
    let input = 1 + 5 + 40 * (row + object + member) + 1;
    let output = 1 + object + 40 * member;
    assert_eq!(
        result["reason"],
        format!(
            "Reduce output must shrink more rapidly: input size: {input} output size: {output} \
             context: db/_design/d/_view/v"
        )
    );
    let short = reduce("_sum", &values[..3], &context).unwrap();
    assert_eq!(parsed(&short).as_object().unwrap().len(), 3);
    for mode in [ReduceLimit::False, ReduceLimit::Log] {
        let limit = SumLimit { mode, ..LIMIT };
        let kept = reduce("_sum", &values, &ReduceContext { limit, ..context }).unwrap();
        assert_eq!(parsed(&kept).as_object().unwrap().len(), 40, "{mode:?}");
    }
}

#[test]
fn a_sum_is_refused_only_beyond_both_threshold_and_ratio() {
    let reduce = |threshold: u64, ratio: f64| {
        let limit = SumLimit {
            mode: ReduceLimit::True,
            threshold,
            ratio,
        };
        let context = ReduceContext {
            call: None,
            limit,
            ..ReduceContext::NONE
        };
        // The output has 5 bytes, the input 1 + 5 + 28 + 1.
        let result = reduce("_sum", &["[1]"], &context).unwrap();
        result == "[1]"
    };
    assert!(reduce(5, 100.0) && !reduce(4, 100.0));
    assert!(
        reduce(0, 7.0) && !reduce(0, 7.1),
        "strictly more than the input"
    );
}

#[test]
fn count_counts_rows_and_adds_counts() {
    let count = reduce("_count", &["null", "\"x\"", "{}"], &ReduceContext::NONE);
    assert_eq!(count.unwrap(), "3");
    assert_eq!(rereduce("_count", &["3", "4"]).unwrap(), "7");
    assert_eq!(rereduce("_count", &[]).unwrap(), "0");
}

fn stats(values: &[&str]) -> Result<String, String> {
    reduce("_stats", values, &ReduceContext::NONE)
}

#[test]
fn stats_are_computed_for_numbers_and_for_each_element_of_arrays() {
    let user = r#"{"max":9,"min":1,"sumsqr":82,"count":2,"sum":10,"more":"x"}"#;
    for (values, expected) in [
        (&[][..], r#"{"sum":0,"count":0,"min":0,"max":0,"sumsqr":0}"#),
        (
            &["2", "-1", "3.5"],
            r#"{"sum":4.5,"count":3,"min":-1,"max":3.5,"sumsqr":17.25}"#,
        ),
        (
            &["[1,2]", "[3,4]"],
            r#"[{"sum":4,"count":2,"min":1,"max":3,"sumsqr":10},{"sum":6,"count":2,"min":2,"max":4,"sumsqr":20}]"#,
        ),
        // Of equal numbers the later one is kept.
        (
            &["1", "1.0"],
            r#"{"sum":2.0,"count":2,"min":1.0,"max":1.0,"sumsqr":2.0}"#,
        ),
        (
            &["[1.0]", "[1]"],
            r#"[{"sum":2.0,"count":2,"min":1,"max":1,"sumsqr":2.0}]"#,
        ),
        (&["[]", "[]"], "[]"),
        (
            &["[1,[2,[3]]]", "[3,[4,[5]]]"],
            r#"[{"sum":4,"count":2,"min":1,"max":3,"sumsqr":10},[{"sum":6,"count":2,"min":2,"max":4,"sumsqr":20},[{"sum":8,"count":2,"min":3,"max":5,"sumsqr":34}]]]"#,
        ),
        (&["[[],[[]]]", "[[],[[]]]"], "[[],[[]]]"),
        (
            &[
                "[[1]]",
                r#"[[{"sum":3,"count":2,"min":1,"max":2,"sumsqr":5}]]"#,
            ],
            r#"[[{"sum":4,"count":3,"min":1,"max":2,"sumsqr":6}]]"#,
        ),
        (
            &[user, "11"],
            r#"{"sum":21,"count":3,"min":1,"max":11,"sumsqr":203}"#,
        ),
        (
            &["10000000000", "-10000000000"],
            r#"{"sum":0,"count":2,"min":-10000000000,"max":10000000000,"sumsqr":200000000000000000000}"#,
        ),
        (
            &["9007199254740993", "9007199254740992.0"],
            r#"{"sum":1.8014398509481984e16,"count":2,"min":9007199254740992.0,"max":9007199254740993,"sumsqr":1.6225927682921336e32}"#,
        ),
    ] {
        assert_eq!(stats(values).unwrap(), expected, "{values:?}");
    }
}

#[test]
fn merged_stats_equal_the_stats_of_all_values() {
    let parts = [stats(&["1", "2"]).unwrap(), stats(&["5"]).unwrap()];
    let merged = rereduce("_stats", &[&parts[0], &parts[1]]);
    assert_eq!(merged, stats(&["1", "2", "5"]));
    let parts = [stats(&["[1,2]"]).unwrap(), stats(&["[5,6]"]).unwrap()];
    let merged = rereduce("_stats", &[&parts[0], &parts[1]]);
    assert_eq!(merged, stats(&["[1,2]", "[5,6]"]));
    let parts = [stats(&["[[1],2]"]).unwrap(), stats(&["[[5],6]"]).unwrap()];
    let merged = rereduce("_stats", &[&parts[0], &parts[1]]);
    assert_eq!(merged, stats(&["[[1],2]", "[[5],6]"]));
}

#[test]
fn stats_refuse_values_that_are_not_numbers() {
    let error = |values: &[&str]| stats(values).unwrap_err();
    for (values, expected) in [
        (&["\"x\""][..], "non-numeric _stats input: \"x\""),
        (&["[\"x\"]"], "non-numeric _stats input: \"x\""),
        (
            &["1", "null"],
            "The _stats function requires that map values be numbers or arrays of numbers, not \
             'null'",
        ),
        (
            &["1", "[1]"],
            "The _stats function requires that map values be numbers or arrays of numbers, not \
             '[1]'",
        ),
        (
            &["[1]", "[[2]]"],
            "The _stats function requires that map values be numbers or arrays of numbers, not \
             '[2]'",
        ),
        (
            &["[[1]]", "[1]"],
            "The _stats function requires that map values be arrays of equal length, here 1, not \
             '1'",
        ),
        (&["[[1,\"x\"]]"], "non-numeric _stats input: \"x\""),
        (
            &["[1]", "[1,2]"],
            "The _stats function requires that map values be arrays of equal length, here 1, not \
             '[1,2]'",
        ),
        (
            &["[1]", "1"],
            "The _stats function requires that map values be arrays of equal length, here 1, not \
             '1'",
        ),
        (
            &[r#"{"sum":1}"#],
            r#"user _stats input missing required field count ({"sum":1})"#,
        ),
        (
            &[r#"{"sum":"x"}"#],
            "non-numeric _stats input received for sum: \"x\"",
        ),
        (&["1e200"], "_stats input is too large to be added: 1e200"),
    ] {
        assert_eq!(error(values), expected, "{values:?}");
    }
    let long = format!("\"{}\"", "\u{e9}".repeat(100_000));
    assert!(error(&[&long]).len() < 1000);
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(error(&[&deep]).contains("levels deep"));
}

fn distinct(keys: impl Iterator<Item = String>) -> String {
    let keys: Vec<String> = keys.collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let row = |key| ReduceRow {
        id: "null",
        key,
        value: "null",
    };
    let rows: Vec<ReduceRow<'_>> = keys.into_iter().map(row).collect();
    let reducer = Builtin::named("_approx_count_distinct").unwrap();
    let reduced = reducer.reduce(rows.iter().copied(), &ReduceContext::NONE);
    let value = reducer.finalize(&reduced.unwrap()).unwrap();
    value.get().to_owned()
}

#[test]
fn counts_of_distinct_keys_equal_couchdbs_estimates() {
    for (keys, estimate) in [
        (0, "0"),
        (1, "1"),
        (2, "2"),
        (10, "10"),
        (50, "50"),
        (200, "199"),
        (500, "512"),
        (1000, "1005"),
        (2000, "1983"),
        (3000, "2929"),
        (10_000, "9944"),
        (50_000, "50864"),
    ] {
        let integers = distinct((1..=keys).map(|key: u32| key.to_string()));
        assert_eq!(integers, estimate, "{keys} integers");
    }
    let thousand = |key: fn(u32) -> String| distinct((1..=1000).map(key));
    assert_eq!(thousand(|key| format!("\"{key}\"")), "1010");
    assert_eq!(thousand(|key| format!("{key}.0")), "996");
    assert_eq!(thousand(|key| format!("[{key},\"x\"]")), "985");
}

#[test]
fn spellings_of_a_key_count_once_but_an_integer_and_a_float_are_distinct() {
    let distinct = |keys: &[&str]| distinct(keys.iter().map(|key| (*key).to_owned()));
    assert_eq!(distinct(&["1", "1.0"]), "2");
    assert_eq!(distinct(&["1.0", "1e0", "10e-1"]), "1");
    assert_eq!(distinct(&[r#"["\u0061"]"#, r#"[ "a" ]"#]), "1");
    assert_eq!(distinct(&[r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#]), "2");
}

#[test]
fn an_invalid_count_of_distinct_keys_is_refused() {
    let full = format!(r#"{{"precision":11,"registers":"{}"}}"#, "A".repeat(2048));
    assert!(rereduce("_approx_count_distinct", &[&full]).is_ok());
    for value in [
        "5",
        "{}",
        &full.replace("11", "12"),
        &full.replace("AA\"", "A\""),
        &full.replace("AA\"", "AAA\""),
        &full.replace("AA\"", "A-\""),
        &full.replace("AA\"", "A3\""),
        &full.replace("AA\"", "A~\""),
        &full.replace("AA\"", "~//\""),
        &full.replace("AA\"", "~//A\""),
    ] {
        let error = rereduce("_approx_count_distinct", &[value]).unwrap_err();
        assert!(error.starts_with("_approx_count_distinct merges its own results, not '"));
        let reducer = Builtin::named("_approx_count_distinct").unwrap();
        let finalized = reducer.finalize(&texts(&[value])[0]);
        assert!(finalized.is_err(), "{value}");
    }
}

#[test]
fn ranks_keep_distinct_values_in_view_order() {
    for (name, values, expected) in [
        ("_top_2", &["5", "5", "3"][..], "[5,3]"),
        ("_bottom_2", &["5", "5", "3"], "[3,5]"),
        (
            "_top_3",
            &["null", "3", "\"a\"", "{}", "true"],
            r#"[{},"a",3]"#,
        ),
        ("_bottom_1", &["3", "null", "[]"], "[null]"),
        ("_top_2", &["1.0", "1", "0"], "[1,0]"),
        ("_top_100", &[], "[]"),
    ] {
        let value = reduce(name, values, &ReduceContext::NONE);
        assert_eq!(value.unwrap(), expected, "{name} {values:?}");
    }
    assert_eq!(
        rereduce("_top_2", &["[9,1]", "[5]", "[]", "[9,8]"]).unwrap(),
        "[9,8]"
    );
    let error = rereduce("_top_2", &["5"]).unwrap_err();
    assert_eq!(error, "rank reducers merge lists of values, not '5'");
}

#[test]
fn first_and_last_are_the_values_of_the_first_and_last_row() {
    let texts = ["[\"b\"]", "[\"a\"]", "\"x\"", "\"y\"", "1", "2", "3"];
    let row = |key: usize, id: usize, value: usize| ReduceRow {
        key: texts[key],
        id: texts[id],
        value: texts[value],
    };
    let rows = [row(0, 2, 4), row(1, 3, 5), row(1, 2, 6), row(1, 2, 5)];
    for (name, expected, value) in [
        ("_first", r#"[[["a"],"x"],2]"#, "2"),
        ("_last", r#"[[["b"],"x"],1]"#, "1"),
    ] {
        let reducer = Builtin::named(name).unwrap();
        let reduced = reducer.reduce(rows.iter().copied(), &ReduceContext::NONE);
        let reduced = reduced.unwrap();
        assert_eq!(reduced.get(), expected);
        assert_eq!(reducer.finalize(&reduced).unwrap().get(), value);
        assert_eq!(
            reduce(name, &[], &ReduceContext::NONE).unwrap(),
            "[]",
            "{name}"
        );
    }
    // Partial results may be merged in any order.
    let merged = rereduce("_last", &["[]", r#"[[2,"d"],"x"]"#, r#"[[1,"e"],"y"]"#]);
    assert_eq!(merged.unwrap(), r#"[[2,"d"],"x"]"#);
    for wrong in ["1", "[1]", "[[1,2]]", "[[1],3]", "{}"] {
        let error = rereduce("_first", &[wrong]).unwrap_err();
        assert!(error.starts_with("_first and _last merge rows"), "{wrong}");
    }
}

#[test]
fn ids_are_ordered_by_their_bytes() {
    let rows = [
        r#"[["k","a"],1]"#,
        r#"[["k","B"],2]"#,
        r#"[["k","a\u0000"],3]"#,
    ];
    assert_eq!(rereduce("_first", &rows).unwrap(), rows[1]);
    assert_eq!(rereduce("_last", &rows).unwrap(), rows[2]);
}

#[test]
fn passed_on_values_are_unchanged() {
    let value = r#"{"n": 123456789012345678901234567890.0, "half": "\ud800"}"#;
    for name in ["_sum", "_first", "_last"] {
        let reduced = reduce(name, &[value], &ReduceContext::NONE);
        assert_eq!(reduced.unwrap(), value, "{name}");
    }
    let ranked = reduce("_top_1", &[value], &ReduceContext::NONE);
    assert_eq!(ranked.unwrap(), format!("[{value}]"));
}

#[test]
fn names_match_exactly() {
    for name in Builtin::names() {
        let name = name.replace("_N", "_7");
        assert!(Builtin::named(&name).is_ok(), "{name}");
    }
    for name in ["_sumxyz", "_counter", "_", "_top", "_first_1"] {
        let error = Builtin::named(name).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("`{name}` is not a supported reduce function.")
        );
    }
}

#[test]
fn ranks_are_from_1_to_100() {
    let named = |name: &str| match Builtin::named(name) {
        Ok(builtin) => Ok((builtin.reducer.name, builtin.number)),
        Err(error) => Err(error.to_string()),
    };
    assert_eq!(named("_top_1"), Ok(("_top_N", 1)));
    assert_eq!(named("_bottom_100"), Ok(("_bottom_N", 100)));
    for name in [
        "_top_0",
        "_bottom_101",
        "_top_-1",
        "_top_99999999999999999999",
    ] {
        let expected = "rank value must be between 1 and 100";
        assert_eq!(named(name), Err(expected.to_owned()), "{name}");
    }
    for name in ["_top_", "_bottom_x", "_top_1.5", "_top_ 1", "_top_-"] {
        assert_eq!(
            named(name),
            Err("invalid rank reducer".to_owned()),
            "{name}"
        );
    }
}

/// Collects levels and messages of records.
#[derive(Clone, Default)]
struct Records(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl slog::Drain for Records {
    type Ok = ();
    type Err = slog::Never;

    fn log(&self, record: &slog::Record<'_>, _: &slog::OwnedKVList) -> Result<(), slog::Never> {
        let text = format!("{}: {}", record.level().as_str(), record.msg());
        self.0.lock().unwrap().push(text);
        Ok(())
    }
}

#[test]
fn a_sum_that_is_too_long_is_logged_at_a_limited_rate() {
    let records = Records::default();
    let log = OverflowLog::new(slog::Logger::root(records.clone(), slog::o!()));
    let values = members(40);
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let reduce = |mode| {
        let context = ReduceContext {
            call: None,
            limit: SumLimit { mode, ..LIMIT },
            name: "",
            log: Some(&log),
        };
        reduce("_sum", &values, &context).unwrap();
        records.0.lock().unwrap().len()
    };
    assert_eq!(reduce(ReduceLimit::False), 0);
    assert_eq!(reduce(ReduceLimit::Log), 1);
    assert_eq!(reduce(ReduceLimit::True), 1);
    let logged = records.0.lock().unwrap().clone();
    assert_eq!(logged, ["ERROR: a built-in sum is too long"]);
}
