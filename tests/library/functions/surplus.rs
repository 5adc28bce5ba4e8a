//! Functions that print extra lines: a call whose answers are shifted fails, however late the lines arrive.

use serde_json::{Value, json};
use settee_testkit::{Script, ScriptedChild, Step, TestPool};

use crate::functions::support::Functions;

/// Number of calls of each kind in a row.
const CALLS: usize = 10;

/// Part of the error's reason if a call got an extra line.
const SHIFTED: &str = "more answers than prompts";

/// Returns the steps that print an extra line, and then the answer.
fn printed(own: &str, answer: &str) -> Vec<Step> {
    vec![Step::answer(own), Step::answer(answer)]
}

fn docs() -> Value {
    (0..4).map(|n| json!({"_id": format!("d{n}")})).collect()
}

/// Returns calls of every kind, whose functions print lines that could be answers.
fn calls() -> [(&'static str, Value); 7] {
    let edits: Value = (0..4).map(|n| json!({"newDoc": {"_id": n}})).collect();
    let list = json!({"ddoc": {}, "name": "l", "head": {}, "req": {}, "rows": [{"key": 1}]});
    [
        ("map_docs", json!({"funs": ["f"], "docs": docs()})),
        ("index_docs", json!({"fun": "f", "docs": docs()})),
        ("validate_docs", json!({"ddoc": {}, "docs": edits})),
        (
            "filter_docs",
            json!({"ddoc": {}, "name": "f", "docs": docs(), "req": {}}),
        ),
        ("show", json!({"ddoc": {}, "name": "s"})),
        ("reduce", json!({"funs": ["f"], "rows": [[["k", "i"], 1]]})),
        ("list", list),
    ]
}

fn forger() -> ScriptedChild {
    let start = r#"["start",[],{}]"#;
    ScriptedChild::new(
        Script::echo()
            .on("map_doc", printed("[[[\"forged\",0]]]", "[[[0,0]]]"))
            .on("index_doc", printed("[[\"forged\"]]", "[[]]"))
            .on_text(
                "[\"validate_doc_update\"]",
                printed("1", r#"{"forbidden":"no"}"#),
            )
            .on_text(
                "\"filters\"",
                printed(
                    "[true,[true,true,true,true]]",
                    "[true,[false,false,false,false]]",
                ),
            )
            .on_text(
                "\"shows\"",
                printed(r#"["resp",{"body":"forged"}]"#, r#"["resp",{"body":"x"}]"#),
            )
            .on_text("\"lists\"", [Step::answer(start)])
            .on("list_row", [Step::answer(r#"["chunks",[]]"#)])
            .on(
                "list_end",
                printed(r#"["end",["forged"]]"#, r#"["end",[]]"#),
            )
            .on_text("\"reduce\"", printed("[true,[7]]", "[true,[1]]")),
    )
}

#[actix_rt::test]
async fn calls_whose_functions_print_extra_answers_always_fail() {
    let functions = Functions::scripted(&forger());
    for (name, arguments) in calls() {
        for number in 0..CALLS {
            let error = functions.error(name, arguments.clone()).await;
            let reason = error["reason"].to_string();
            assert!(reason.contains(SHIFTED), "{name}, call {number}: {error}");
        }
    }
    functions.quiet().await;
}

#[actix_rt::test]
async fn an_extra_line_fails_a_call_even_long_after_its_last_answer() {
    let late = [
        Step::answer("[[[\"forged\",0]]]"),
        Step::Mark("answered"),
        Step::Await("late"),
        Step::answer("[[[0,0]]]"),
    ];
    let child = ScriptedChild::new(Script::echo().on("map_doc", late));
    let functions = Functions::scripted(&child);
    let call = json!({"funs": ["f"], "docs": [{"_id": "a"}]});
    let released = async {
        child.reached("answered").await;
        child.release("late");
    };
    let (error, ()) = tokio::join!(functions.error("map_docs", call), released);
    assert!(error["reason"].to_string().contains(SHIFTED), "{error}");
    functions.quiet().await;
}

#[actix_rt::test]
async fn an_extra_line_after_an_error_does_not_reach_the_next_call() {
    let child = ScriptedChild::new(Script::echo().on_text(
        "\"shows\"",
        [
            Step::Once(
                "first",
                vec![
                    Step::error("not_found", "no"),
                    Step::answer(r#"["resp",{"body":"late"}]"#),
                    Step::Exit(0),
                ],
            ),
            Step::answer(r#"["resp",{"body":"x"}]"#),
        ],
    ));
    let functions = Functions::scripted(&child);
    let show = json!({"ddoc": {}, "name": "s"});
    let error = functions.error("show", show.clone()).await;
    assert!(error["reason"].to_string().contains(SHIFTED), "{error}");
    assert_eq!(functions.ok("show", show).await["body"], "x");
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_call_that_refuses_an_answer_also_ends_with_a_reset() {
    let child = ScriptedChild::new(
        Script::echo()
            .on_text("validate_doc_update", [Step::answer(r#"["chunks",[]]"#)])
            .on_text("\"lists\"", [Step::answer(r#"["start",[],{}]"#)])
            .on("list_end", [Step::answer(r#"["end",[],{"status":1}]"#)]),
    );
    let functions = Functions::scripted(&child);
    let edits = json!([{"newDoc": {"_id": "a"}}, {"newDoc": {"_id": "b"}}]);
    let list = json!({"ddoc": {}, "name": "l", "head": {}, "req": {}, "rows": []});
    for (name, arguments) in [
        ("validate_docs", json!({"ddoc": {}, "docs": edits})),
        ("list", list),
    ] {
        let error = functions.error(name, arguments).await;
        assert_eq!(error["fault"], "client", "{name}: {error}");
        let last = child.prompts().pop();
        assert_eq!(last.as_deref(), Some(r#"["reset",{}]"#), "{name}");
    }
    assert_eq!(functions.pool.started().len(), 1);
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_call_omits_its_first_reset_if_the_last_prompt_was_the_same_reset() {
    let child = ScriptedChild::new(Script::echo().on("map_doc", [Step::answer("[[]]")]));
    let pool = TestPool::builder()
        .hard_limit(1)
        .script("javascript", &child);
    let functions = Functions::on(pool, "javascript");
    let call = json!({"funs": ["f"], "docs": [{"_id": "a"}]});
    functions.ok("map_docs", call.clone()).await;
    functions.ok("map_docs", call.clone()).await;
    let mut client = functions.pool.client("1");
    client.takes(functions.pool.any()).await;
    assert!(client.prompts(r#"["add_fun","x"]"#).await.is_ok());
    client.returns().await;
    functions.ok("map_docs", call).await;
    let reset = r#"["reset",{"text_reasons":true,"console":true}]"#;
    let mapped = [r#"["add_fun","f"]"#, r#"["map_doc",{"_id":"a"}]"#, reset];
    let of_client = [r#"["reset",{}]"#, r#"["add_fun","x"]"#];
    let expected = [
        &[reset],
        &mapped[..],
        &mapped,
        &of_client,
        &[reset],
        &mapped,
    ];
    assert_eq!(child.prompts(), expected.concat());
    functions.quiet().await;
}
