//! `reduce`, `rereduce`, `finalize`: sources and built-in reducers side by side.

use crate::functions::support::Functions;
use serde_json::{Value, json};
use settee_testkit::{Script, ScriptedChild, Step, TestPool};
use test_support::turns_beside;

use crate::support::program::SETTEE;

const LENGTH: &str =
    "function(keys, values, rereduce) { return rereduce ? sum(values) : values.length }";
const ALL: &str = "function(keys, values, rereduce) { return [keys, values, rereduce] }";

fn rows() -> Value {
    json!([[["a", "i"], 1], [["b", "j"], 2.5], [["b", "k"], 4]])
}

#[actix_rt::test]
async fn results_are_in_the_order_of_the_functions() {
    let functions = Functions::javascript();
    let funs = ["_count", LENGTH, "_sum", ALL, "_stats"];
    let results = functions
        .ok("reduce", json!({"funs": funs, "rows": rows()}))
        .await;
    assert_eq!(
        results,
        json!([
            3,
            3,
            7.5,
            [[["a", "i"], ["b", "j"], ["b", "k"]], [1, 2.5, 4], false],
            {"sum": 7.5, "count": 3, "min": 1, "max": 4, "sumsqr": 23.25},
        ])
    );
    assert_eq!(functions.pool.started().len(), 1);
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_built_in_reducer_named_twice_runs_once_and_others_have_a_turn_before_it() {
    let functions = Functions::javascript();
    let funs = ["_count", "_top_1", "_count", "_top_01"];
    let call = functions.ok("reduce", json!({"funs": funs, "rows": rows()}));
    assert_eq!(turns_beside(call).await, (json!([3, [4], 3, [4]]), 2));
    functions.quiet().await;
}

#[actix_rt::test]
async fn rereduce_combines_results_column_by_column() {
    let functions = Functions::javascript();
    let values = json!([[1, 10, ["a"]], [2, 20, ["b"]], [3, 30, ["c"]]]);
    let results = functions
        .ok(
            "rereduce",
            json!({"funs": ["_sum", LENGTH, ALL], "values": values}),
        )
        .await;
    // In the order of the rows, for every function.
    assert_eq!(results, json!([6, 60, [null, [["a"], ["b"], ["c"]], true]]));
    let flat = functions
        .ok("rereduce", json!({"funs": [ALL], "values": [1, 2]}))
        .await;
    assert_eq!(flat, json!([[null, [1, 2], true]]));
    functions.quiet().await;
}

#[actix_rt::test]
async fn the_prompts_match_those_of_couchdb() {
    let child = ScriptedChild::new(
        Script::echo()
            .on("reduce", [Step::answer("[true,[1,2]]")])
            .on("rereduce", [Step::answer("[true,[3]]")]),
    );
    let functions = Functions::scripted(&child);
    let with = |mut more: Value| {
        more["context"] = json!("db/_design/d/_view/v");
        more
    };
    let funs = ["f", "_count", "g"];
    let row = json!({"id": "i", "key": "a", "value": 1.0});
    let results = functions
        .ok("reduce", with(json!({"funs": funs, "rows": [row]})))
        .await;
    assert_eq!(results, json!([1, 1, 2]));
    let values = json!([["x", 1, 1.0], ["y", 2, {}]]);
    let results = functions
        .ok("rereduce", with(json!({"funs": funs, "values": values})))
        .await;
    assert_eq!(results, json!([3, 3, 3]));
    functions
        .ok("rereduce", json!({"funs": ["f"], "values": []}))
        .await;
    assert_eq!(
        child.prompts(),
        [
            r#"["reset",{}]"#,
            r#"["reduce",["f","g"],[[["a","i"],1.0]],"db/_design/d/_view/v"]"#,
            r#"["reset",{}]"#,
            r#"["rereduce",["f"],["x","y"],"db/_design/d/_view/v"]"#,
            r#"["reset",{}]"#,
            r#"["rereduce",["g"],[1.0,{}],"db/_design/d/_view/v"]"#,
            r#"["reset",{}]"#,
            r#"["rereduce",["f"],[],""]"#,
            r#"["reset",{}]"#,
        ]
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn calls_with_only_built_in_reducers_start_no_process() {
    let functions = Functions::javascript();
    assert_eq!(
        functions
            .ok("reduce", json!({"funs": [], "rows": rows()}))
            .await,
        json!([])
    );
    let counted = functions
        .ok("reduce", json!({"funs": ["_count"], "rows": []}))
        .await;
    assert_eq!(counted, json!([0]));
    let again = functions
        .ok("rereduce", json!({"funs": ["_sum"], "values": [1, 2]}))
        .await;
    assert_eq!(again, json!([3]));
    assert_eq!(functions.pool.started().len(), 0);
    functions.quiet().await;
}

#[actix_rt::test]
async fn intermediate_results_are_finalized_on_request() {
    let functions = Functions::javascript();
    let funs = json!(["_approx_count_distinct", "_first", "_count", "f"]);
    let some = json!(["_approx_count_distinct", "_first", "_count"]);
    let between = functions
        .ok("reduce", json!({"funs": some, "rows": rows()}))
        .await;
    let mut values = between.clone();
    values.as_array_mut().unwrap().push(json!({"as": "it is"}));
    let finals = functions
        .ok("finalize", json!({"funs": funs, "values": values}))
        .await;
    assert_eq!(finals, json!([2, 1, 3, {"as": "it is"}]));
    let at_once = functions
        .ok(
            "reduce",
            json!({"funs": some, "rows": rows(), "finalize": true}),
        )
        .await;
    assert_eq!(at_once, json!([2, 1, 3]));
    let again = functions
        .ok(
            "rereduce",
            json!({"funs": some, "values": [between, between], "finalize": true}),
        )
        .await;
    assert_eq!(again, json!([2, 1, 6]));
    assert_eq!(functions.pool.started().len(), 0);
    functions.quiet().await;
}

const LIMITED: &str =
    r#"{"reduce_limit":true,"reduce_limit_threshold":50,"reduce_limit_ratio":2.0}"#;

#[actix_rt::test]
async fn an_overflow_is_the_result_of_every_source_function_and_of_later_rereduces() {
    let command = format!("{} couchjs", SETTEE);
    let builder = TestPool::builder().settings(|settings| settings.reset_config = LIMITED.into());
    let functions = Functions::on(builder.command("javascript", &command), "javascript");
    let funs = json!([ALL, "_count", LENGTH]);
    let results = functions
        .ok("reduce", json!({"funs": funs, "rows": rows()}))
        .await;
    let overflow = results[0].clone();
    let text = overflow["reduce_overflow_error"].as_str().unwrap();
    assert!(
        text.starts_with("Reduce output must shrink more rapidly"),
        "{text}"
    );
    assert_eq!(results, json!([overflow, 3, overflow]));
    // A column with an overflow is not sent.
    let values = json!([[["x"], 1, 5], [overflow, 1, 6]]);
    let again = functions
        .ok("rereduce", json!({"funs": funs, "values": values}))
        .await;
    assert_eq!(again, json!([overflow, 2, 11]));
    // The process survives.
    assert_eq!(functions.pool.started().len(), 1);
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_built_in_sum_obeys_the_configured_limit() {
    let mut members = json!({});
    for n in 0..30 {
        members[format!("member{n}")] = json!(1);
    }
    let rows = json!([[["k", "i"], members]]);
    let call = json!({"funs": ["_sum"], "rows": rows, "context": "shop/d/_view/v"});
    let functions = Functions::on(
        TestPool::builder().settings(|settings| settings.reset_config = LIMITED.into()),
        "javascript",
    );
    let results = functions.ok("reduce", call.clone()).await;
    assert_eq!(results[0]["error"], "builtin_reduce_error");
    assert!(
        results[0]["reason"]
            .as_str()
            .unwrap()
            .ends_with("context: shop/d/_view/v")
    );
    functions.quiet().await;
    let functions = Functions::on(TestPool::builder(), "javascript");
    assert_eq!(functions.ok("reduce", call).await[0]["member29"], 1);
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_result_for_only_the_first_function_is_an_error() {
    let child = ScriptedChild::new(Script::echo().on("reduce", [Step::answer("[true, [6]]")]));
    let functions = Functions::scripted(&child);
    let error = functions
        .error("reduce", json!({"funs": ["f", "g"], "rows": rows()}))
        .await;
    assert_eq!(
        (&error["name"], &error["fault"]),
        (&json!("query_protocol_error"), &json!("query_server"))
    );
    assert_eq!(
        error["reason"],
        "the query server answered [true, [6]] instead of [true, [RESULT, ..]] with a result for each of 2 functions"
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn errors_name_the_function() {
    let functions = Functions::javascript();
    let call = |fun: &str| json!({"funs": [fun], "rows": rows()});
    let error = functions.error("reduce", call("function(")).await;
    assert_eq!(
        (&error["name"], &error["function"]),
        (&json!("compilation_error"), &json!("reduce"))
    );
    let error = functions.error("reduce", call("_sumxyz")).await;
    assert_eq!(
        (&error["name"], &error["function"]),
        (&json!("compilation_error"), &json!("_sumxyz"))
    );
    assert_eq!(
        error["reason"],
        "`_sumxyz` is not a supported reduce function."
    );
    let bad = json!({"funs": ["_count", "_stats"], "rows": [[["k", "i"], "x"]]});
    let error = functions.error("reduce", bad).await;
    assert_eq!(
        (&error["name"], &error["function"]),
        (&json!("invalid_value"), &json!("_stats"))
    );
    let bad = json!({"funs": [LENGTH, "function("], "values": [[1, 1]]});
    let error = functions.error("rereduce", bad).await;
    assert_eq!(
        (&error["name"], &error["function"]),
        (&json!("compilation_error"), &json!("reduce 2"))
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn the_total_size_of_the_results_of_a_call_is_bounded() {
    let functions = Functions::javascript();
    let rows = json!([[["a", "i"], "x".repeat(1_000_000)]]);
    let error = functions
        .error("reduce", json!({"funs": vec!["_first"; 100], "rows": rows}))
        .await;
    assert_eq!(error["name"], "too_large", "{error}");
    let few = json!({"funs": vec!["_first"; 10], "rows": rows});
    assert_eq!(
        functions.ok("reduce", few).await.as_array().unwrap().len(),
        10
    );
    let values = json!([vec![rows[0].clone(); 100]]);
    let error = functions
        .error(
            "rereduce",
            json!({"funs": vec!["_first"; 100], "values": values}),
        )
        .await;
    assert_eq!(error["name"], "too_large", "{error}");
    functions.quiet().await;
}
