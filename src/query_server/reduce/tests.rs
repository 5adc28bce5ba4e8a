//! Cases of the built-in reducers, as CouchDB answers them.

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::*;

const NO_LIMIT: SumLimit = SumLimit {
    enforced: false,
    threshold: 0,
    ratio: 1.0,
};

fn reduce(reducer: Builtin, values: &Value, limit: SumLimit) -> Result<Value, InvalidValue> {
    let id = RawValue::from_string("\"d\"".into()).unwrap();
    let texts: Vec<Box<RawValue>> = values
        .as_array()
        .unwrap()
        .iter()
        .map(|value| to_raw_value(value).unwrap())
        .collect();
    let rows: Vec<ReduceRow<'_>> = texts
        .iter()
        .map(|value| ReduceRow {
            id: &id,
            key: &id,
            value,
        })
        .collect();
    reducer.reduce(rows.iter().copied(), limit)
}

fn sum(values: Value) -> Value {
    reduce(Builtin::Sum, &values, NO_LIMIT).unwrap()
}

#[test]
fn sum_adds_numbers_arrays_and_objects() {
    for (values, expected) in [
        (json!([]), json!(0)),
        (json!([1, 2, 3.5]), json!(6.5)),
        (json!([1.5, 1.5]), json!(3.0)),
        (
            json!([9_007_199_254_740_993_i64, 1]),
            json!(9_007_199_254_740_994_i64),
        ),
        (json!([[]]), json!([0])),
        (json!([[1, 2], [3]]), json!([4, 2])),
        (json!([[1], [2, 3]]), json!([3, 3])),
        (json!([5, [1, 2]]), json!([6, 2])),
        (json!([[1, 2], 5]), json!([6, 2])),
        (json!([[1, "a"]]), json!([1, "a"])),
        (json!([{"b": 1, "a": 2}]), json!({"b": 1, "a": 2})),
        (
            json!([{"b": 1, "x": 0}, {"a": 2, "b": 3}]),
            json!({"a": 2, "b": 4, "x": 0}),
        ),
        (
            json!([{"n": {"m": 1}}, {"n": {"m": 2}}]),
            json!({"n": {"m": 3}}),
        ),
        (json!([{"a": [1]}, {"a": [2, 3]}]), json!({"a": [3, 3]})),
    ] {
        // As text: numbers must have the right kind, members the right order.
        assert_eq!(
            sum(values.clone()).to_string(),
            expected.to_string(),
            "{values}"
        );
    }
}

#[test]
fn a_value_that_cannot_be_added_is_told_in_the_result() {
    for (values, cause) in [
        (json!([1, "x", 2]), json!("x")),
        (json!([null]), json!(null)),
        (json!([true]), json!(true)),
        (json!([{"a": 1}, 2]), json!(2)),
        (json!([{"error": "mine"}]), json!({"error": "mine"})),
        (json!([1, {"a": 1}]), json!({"a": 1})),
        (json!([{"a": 1}, {"a": {"b": 1}}]), json!({"a": {"b": 1}})),
    ] {
        let result = sum(values.clone());
        assert_eq!(result["error"], "builtin_reduce_error", "{values}");
        let reason = result["reason"].as_str().unwrap();
        assert!(reason.starts_with("The _sum function requires that map values be numbers"));
        assert_eq!(result["caused_by"], cause, "{values}");
    }
}

#[test]
fn an_error_is_passed_through_a_rereduction() {
    let error = sum(json!(["x"]));
    let result = Builtin::Sum.rereduce(vec![json!(1), error.clone(), json!(2)], NO_LIMIT);
    assert_eq!(result, Ok(error));
}

#[test]
fn a_sum_that_does_not_shrink_is_an_error() {
    let limit = SumLimit {
        enforced: true,
        threshold: 500,
        ratio: 5.0,
    };
    let member = |name: usize| json!({ format!("member number {name}"): 1 });
    let values: Value = (0..40).map(member).collect();
    let result = reduce(Builtin::Sum, &values, limit).unwrap();
    assert_eq!(result["error"], "builtin_reduce_error");
    let reason = result["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("Reduce output must shrink more rapidly: input size: "),
        "{reason}"
    );
    assert_eq!(
        reduce(Builtin::Sum, &values, NO_LIMIT)
            .unwrap()
            .as_object()
            .unwrap()
            .len(),
        40
    );
    let short: Value = (0..3).map(member).collect();
    assert!(
        reduce(Builtin::Sum, &short, limit)
            .unwrap()
            .get("error")
            .is_none()
    );
}

#[test]
fn count_counts_rows_and_adds_counts() {
    assert_eq!(
        reduce(Builtin::Count, &json!([null, "x", {}]), NO_LIMIT),
        Ok(json!(3))
    );
    assert_eq!(
        Builtin::Count.rereduce(vec![json!(3), json!(4)], NO_LIMIT),
        Ok(json!(7))
    );
}

#[test]
fn stats_of_numbers_and_arrays() {
    let stats = |values: Value| {
        reduce(Builtin::Stats, &values, NO_LIMIT)
            .unwrap()
            .to_string()
    };
    assert_eq!(
        stats(json!([])),
        r#"{"sum":0,"count":0,"min":0,"max":0,"sumsqr":0}"#
    );
    assert_eq!(
        stats(json!([2, -1, 3.5])),
        r#"{"sum":4.5,"count":3,"min":-1,"max":3.5,"sumsqr":17.25}"#
    );
    assert_eq!(
        stats(json!([[1, 2], [3, 4]])),
        r#"[{"sum":4,"count":2,"min":1,"max":3,"sumsqr":10},{"sum":6,"count":2,"min":2,"max":4,"sumsqr":20}]"#
    );
}

#[test]
fn stats_of_stats_are_the_stats_of_all() {
    let of = |values: Value| reduce(Builtin::Stats, &values, NO_LIMIT).unwrap();
    let parts = vec![of(json!([1, 2])), of(json!([5]))];
    assert_eq!(
        Builtin::Stats.rereduce(parts, NO_LIMIT),
        Ok(of(json!([1, 2, 5])))
    );
}

#[test]
fn stats_refuse_what_is_no_number() {
    let error = |values: Value| reduce(Builtin::Stats, &values, NO_LIMIT).unwrap_err().0;
    assert!(error(json!(["x"])).starts_with("non-numeric _stats input: "));
    assert!(error(json!([1, "x"])).starts_with(
        "The _stats function requires that map values be numbers or arrays of numbers, not '"
    ));
    assert!(error(json!([[1], [1, 2]])).contains("arrays of one length"));
    assert!(
        error(json!([{"sum": 1}])).starts_with("user _stats input missing required field count")
    );
    assert_eq!(
        error(json!([{"sum": "x"}])),
        "non-numeric _stats input received for sum: \"x\""
    );
}

#[test]
fn first_and_last_are_the_values_of_the_first_and_last_row() {
    let values = json!([{"a": 1}, 2, "z"]);
    assert_eq!(
        reduce(Builtin::First, &values, NO_LIMIT),
        Ok(json!({"a": 1}))
    );
    assert_eq!(reduce(Builtin::Last, &values, NO_LIMIT), Ok(json!("z")));
    assert_eq!(reduce(Builtin::Last, &json!([]), NO_LIMIT), Ok(json!([])));
}

#[test]
fn names_match_exactly() {
    for name in Builtin::NAMES {
        assert!(Builtin::named(name).is_ok());
    }
    assert_eq!(
        Builtin::named("_sumxyz").unwrap_err().to_string(),
        "`_sumxyz` is not a supported reduce function."
    );
}
