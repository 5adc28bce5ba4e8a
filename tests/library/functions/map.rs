//! `map_docs` and its stream: functions, modules and documents in, lists of rows out.

use bytes::Bytes;

use crate::functions::support::Functions;
use serde_json::{Value, json};
use settee::functions::view::{self, MapSink, Mapped, ViewError};
use settee::messages::function::MapStart;
use settee_testkit::{Script, ScriptedChild, Step, TestPool};
use tokio::sync::mpsc;

fn docs(count: usize) -> Value {
    (0..count)
        .map(|n| json!({"_id": format!("d{n:05}"), "n": n}))
        .collect()
}

#[actix_rt::test]
async fn each_document_has_a_list_of_rows_for_each_function() {
    let functions = Functions::javascript();
    let call = json!({
        "lib": {"plus": "exports.one = function(n) { return n + 1 }"},
        "funs": [
            "function(doc) { emit(doc._id, require('views/lib/plus').one(doc.n)) }",
            "function(doc) { for (var i = 0; i < doc.n; i++) emit(i, null) }",
        ],
        "docs": docs(3),
    });
    assert_eq!(
        functions.ok("map_docs", call).await,
        json!([
            [[["d00000", 1]], []],
            [[["d00001", 2]], [[0, null]]],
            [[["d00002", 3]], [[0, null], [1, null]]],
        ])
    );
    let none = json!({"funs": [], "docs": docs(2)});
    assert_eq!(functions.ok("map_docs", none).await, json!([[], []]));
    let none = json!({"funs": ["function(doc) {}"], "docs": []});
    assert_eq!(functions.ok("map_docs", none).await, json!([]));
    functions.quiet().await;
}

#[actix_rt::test]
async fn an_answer_that_a_function_printed_fails_the_whole_call() {
    // The function prints an extra line for the first document. Mapped alone, the last document has one answer.
    let lines = "[[[\"forged\",0]]]\n[[[0,0]]]\n[[[1,0]]]\n[[[2,0]]]\n[[[3,0]]]";
    let together = [
        Step::Once("together", vec![Step::Print(lines.into())]),
        Step::Print("[[[3,0]]]".into()),
    ];
    let child = ScriptedChild::new(Script::echo().on_text("d00003", together).on("map_doc", []));
    let functions = Functions::scripted(&child);
    let call = json!({"funs": ["f"], "docs": docs(4)});
    let error = functions.perform("map_docs", call).await.unwrap_err();
    let reason = error["reason"].as_str().unwrap();
    assert!(reason.contains("more answers than prompts"), "{error}");
    functions.quiet().await;
}

#[actix_rt::test]
async fn the_prompts_match_those_of_couchdb() {
    let child = ScriptedChild::new(Script::echo().on("map_doc", [Step::answer("[[],[]]")]));
    let functions = Functions::scripted(&child);
    let call = json!({"lib": {"a": "b"}, "funs": ["f", {"fields": ["x"]}],
                      "docs": [{"_id": "a", "n": 1.0}]});
    let value = functions.perform_text("map_docs", call).await.unwrap();
    assert_eq!(value, "[[[],[]]]");
    functions
        .ok(
            "map_docs",
            json!({"lib": {}, "funs": ["f", "g"], "docs": [{"_id": "b"}]}),
        )
        .await;
    assert_eq!(
        child.prompts(),
        [
            r#"["reset",{}]"#,
            r#"["add_lib",{"a":"b"}]"#,
            r#"["add_fun","f"]"#,
            r#"["add_fun",{"fields":["x"]}]"#,
            r#"["map_doc",{"_id":"a","n":1.0}]"#,
            r#"["reset",{}]"#,
            r#"["add_fun","f"]"#,
            r#"["add_fun","g"]"#,
            r#"["map_doc",{"_id":"b"}]"#,
            r#"["reset",{}]"#,
        ]
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn many_documents_are_answered_in_order_by_at_most_one_process_per_core() {
    let functions = Functions::javascript();
    let call = json!({"funs": ["function(doc) { emit(doc.n, null) }"], "docs": docs(2000)});
    let value = functions.ok("map_docs", call).await;
    let keys: Vec<u64> = value
        .as_array()
        .unwrap()
        .iter()
        .map(|doc| doc[0][0][0].as_u64().unwrap())
        .collect();
    assert_eq!(keys, (0..2000).collect::<Vec<u64>>());
    let cores = std::thread::available_parallelism().unwrap().get();
    assert!((1..=cores).contains(&functions.pool.started().len()));
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_function_that_does_not_compile_is_named_in_the_error() {
    let functions = Functions::javascript();
    let funs = ["function(doc) {}", "function(doc) { emit( }"];
    let error = functions
        .error("map_docs", json!({"funs": funs, "docs": docs(1)}))
        .await;
    assert_eq!(
        (
            &error["name"],
            &error["function"],
            &error["phase"],
            &error["fault"]
        ),
        (
            &json!("compilation_error"),
            &json!("map 2"),
            &json!("prompt"),
            &json!("client")
        ),
        "{error}"
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_document_that_crashes_the_process_is_named_with_its_last_words() {
    let child = ScriptedChild::new(
        Script::echo()
            .on_text(
                "d00007",
                [Step::Complain("no memory".into()), Step::Exit(1)],
            )
            .on("map_doc", [Step::answer("[[]]")]),
    );
    let functions = Functions::scripted(&child);
    let error = functions
        .error("map_docs", json!({"funs": ["f"], "docs": docs(20)}))
        .await;
    assert_eq!(
        (
            &error["name"],
            &error["doc"],
            &error["status"],
            &error["stderr"]
        ),
        (
            &json!("os_process_error"),
            &json!("d00007"),
            &json!(1),
            &json!(["no memory"])
        ),
        "{error}"
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn an_answer_for_the_wrong_number_of_functions_is_an_error() {
    let child = ScriptedChild::new(Script::echo().on("map_doc", [Step::answer("[[]]")]));
    let functions = Functions::scripted(&child);
    let error = functions
        .error("map_docs", json!({"funs": ["f", "g"], "docs": docs(1)}))
        .await;
    assert_eq!(
        (&error["name"], &error["doc"]),
        (&json!("query_protocol_error"), &json!("d00000"))
    );
    assert!(
        error["reason"]
            .as_str()
            .unwrap()
            .contains("for 1 functions, not for 2"),
        "{error}"
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_document_without_an_id_is_reported_by_its_position() {
    let functions = Functions::javascript();
    let docs = json!([{"_id": "a"}, {"n": 1}]);
    let error = functions
        .error("map_docs", json!({"funs": [], "docs": docs}))
        .await;
    assert_eq!(error["name"], "bad_request");
    assert!(
        error["reason"]
            .as_str()
            .unwrap()
            .starts_with("document 2: "),
        "{error}"
    );
    let error = functions
        .error("map_docs", json!({"funs": [], "docs": [7]}))
        .await;
    assert_eq!(error["name"], "bad_request");
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_language_without_a_server_is_unknown() {
    let functions = Functions::on(TestPool::builder(), "klingon");
    let error = functions
        .error("map_docs", json!({"funs": [], "docs": docs(1)}))
        .await;
    assert_eq!(error["name"], "unknown_query_language");
    functions.quiet().await;
}

/// Documents sent to a stream at once.
const AT_ONCE: usize = 25;

/// Forwards answers to a channel.
struct Answers(mpsc::UnboundedSender<Bytes>);

impl MapSink for Answers {
    fn mapped(&self, mapped: &Mapped<'_>) {
        // `ready` reports that the reader is gone.
        let _ = self.0.send(mapped.answer().clone());
    }

    async fn ready(&self) -> bool {
        !self.0.is_closed()
    }
}

#[actix_rt::test]
async fn a_stream_answers_before_all_documents_are_sent() {
    let functions = Functions::javascript();
    let start = json!({"lang": "javascript", "funs": ["function(doc) { emit(doc.n, 1) }"]});
    let (start, _) = MapStart::parse(&start.to_string()).unwrap();
    let (documents, documents_in) = mpsc::channel(AT_ONCE);
    let (answers_out, mut answers) = mpsc::unbounded_channel();
    let map = async {
        let sink = Answers(answers_out);
        functions.servers.map(&start, documents_in, 2, &sink).await
    };
    let talk = async {
        for n in 0..300 {
            let text = json!({"_id": "a", "n": n}).to_string();
            let batch = view::Documents::of([text.as_str()]).next_batch().unwrap();
            documents.send(Ok(batch)).await.unwrap();
            let answer = answers.recv().await.unwrap();
            assert_eq!(&answer[..], format!("[[[{n},1]]]").as_bytes());
        }
        // Many at once stay in order.
        for first in (0..1000).step_by(AT_ONCE) {
            for n in first..first + AT_ONCE {
                let text = json!({"_id": "a", "n": n}).to_string();
                let batch = view::Documents::of([text.as_str()]).next_batch().unwrap();
                documents.try_send(Ok(batch)).unwrap();
            }
            for n in first..first + AT_ONCE {
                let answer = answers.recv().await.unwrap();
                assert_eq!(&answer[..], format!("[[[{n},1]]]").as_bytes());
            }
        }
        drop(documents);
        assert!(answers.recv().await.is_none());
    };
    let (result, ()) = futures_util::join!(map, talk);
    result.unwrap();
    functions.quiet().await;
}

#[actix_rt::test]
async fn an_abandoned_stream_ends() {
    let functions = Functions::javascript();
    let start = json!({"lang": "javascript", "funs": ["function(doc) { emit(doc.n, 1) }"]});
    let (start, _) = MapStart::parse(&start.to_string()).unwrap();
    let (documents, documents_in) = mpsc::channel(view::BATCHES_AHEAD);
    let (answers_out, answers) = mpsc::unbounded_channel();
    drop(answers);
    documents
        .send(Ok(view::Documents::of([r#"{"_id":"a"}"#])
            .next_batch()
            .unwrap()))
        .await
        .unwrap();
    let sink = Answers(answers_out);
    let mapped = functions.servers.map(&start, documents_in, 2, &sink);
    assert!(matches!(mapped.await, Err(ViewError::Unwanted)));
    assert!(documents.is_closed());
    functions.quiet().await;
}
