//! `list`: rows in, a response in chunks out.

use std::time::Duration;

use crate::functions::support::Functions;
use serde_json::{Value, json};
use settee::functions::ListPart;
use settee::messages::function::{FunctionName, FunctionRequest, ListRow, ListStart};
use settee::query_server::known_ddocs::KnownDdocs;
use settee_testkit::{Script, ScriptedChild, Step, TestPool};
use tokio::sync::mpsc;

use crate::support::program::SETTEE;

const TABLE: &str = "function(head, req) {
    start({code: 200, headers: {'Content-Type': 'text/csv'}});
    send('n=' + head.total_rows);
    var row;
    while (row = getRow()) { send(row.key + ';' + row.value); if (row.value == req.query.last) return 'enough'; }
    return 'end';
}";

fn call(list: &str, rows: Value) -> Value {
    json!({"ddoc": {"lists": {"l": list}}, "name": "l", "head": {"total_rows": 3},
           "req": {"query": {"last": 2}}, "rows": rows})
}

fn rows(values: &[u32]) -> Value {
    let row = |value: &u32| json!({"id": format!("d{value}"), "key": "k", "value": value});
    values.iter().map(row).collect()
}

#[actix_rt::test]
async fn a_list_turns_rows_into_a_response_and_chunks() {
    let functions = Functions::javascript();
    let listed = functions.ok("list", call(TABLE, rows(&[7, 8]))).await;
    assert_eq!(
        listed,
        json!({
            "response": {"code": 200, "headers": {"Content-Type": "text/csv"}},
            "chunks": ["n=3", "k;7", "k;8", "end"],
        })
    );
    let none = functions.ok("list", call(TABLE, json!([]))).await;
    assert_eq!(none["chunks"], json!(["n=3", "end"]));
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_list_that_returns_early_gets_no_more_rows_and_keeps_its_process() {
    let functions = Functions::javascript();
    for _ in 0..2 {
        let listed = functions.ok("list", call(TABLE, rows(&[1, 2, 3, 4]))).await;
        assert_eq!(listed["chunks"], json!(["n=3", "k;1", "k;2", "enough"]));
    }
    assert_eq!(functions.pool.started().len(), 1);
    functions.quiet().await;
}

#[actix_rt::test]
async fn the_prompts_match_those_of_couchdb() {
    let child = ScriptedChild::new(
        Script::echo()
            .on_text(
                "[\"lists\"",
                [Step::answer(r#"["start",["a"],{"headers":{}}]"#)],
            )
            .on("list_row", [Step::answer(r#"["chunks",[]]"#)])
            .on("list_end", [Step::answer(r#"["end",["z"]]"#)]),
    );
    let functions = Functions::scripted(&child);
    let rows = json!([
        {"value": 1.0, "key": null, "doc": {"_id": "a"}, "id": "a", "more": 1},
        {"key": null, "value": 3},
    ]);
    let listed = functions.ok("list", call("", rows)).await;
    assert_eq!(
        listed,
        json!({"response": {"headers": {}}, "chunks": ["a", "z"]})
    );
    assert_eq!(
        child.prompts()[1..],
        [
            r#"["reset",{}]"#,
            r#"["ddoc","_design/d",["lists","l"],[{"total_rows":3},{"query":{"last":2}}]]"#,
            r#"["list_row",{"id":"a","key":null,"value":1.0,"doc":{"_id":"a"}}]"#,
            r#"["list_row",{"key":null,"value":3}]"#,
            r#"["list_end"]"#,
            r#"["reset",{}]"#,
        ]
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_response_can_be_started_until_the_first_chunk_is_sent() {
    let functions = Functions::javascript();
    let late =
        "function() { var r = getRow(); start({headers: {A: 'late'}}); send('x'); getRow(); }";
    let listed = functions.ok("list", call(late, rows(&[1, 2]))).await;
    assert_eq!(listed["response"], json!({"headers": {"A": "late"}}));
    let too_late =
        "function() { send('x'); getRow(); start({headers: {A: 'late'}}); send('y'); getRow(); }";
    let listed = functions.ok("list", call(too_late, rows(&[1, 2]))).await;
    assert_eq!(
        listed,
        json!({"response": {"headers": {}}, "chunks": ["x", "y"]})
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn an_error_in_a_row_fails_the_call_and_the_process_survives() {
    let functions = Functions::javascript();
    let bad = "function() { getRow(); send('a'); throw {error: 'teapot', reason: 'short'} }";
    for _ in 0..2 {
        let error = functions.error("list", call(bad, rows(&[1, 2, 3]))).await;
        assert_eq!(
            (&error["name"], &error["function"]),
            (&json!("teapot"), &json!("lists/l"))
        );
    }
    assert_eq!(functions.pool.started().len(), 1);
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_process_is_replaced_after_an_answer_out_of_turn() {
    let child = ScriptedChild::new(
        Script::echo()
            .on_text(
                "[\"lists\"",
                [Step::answer(r#"["start",[],{"headers":{}}]"#)],
            )
            .on("list_end", [Step::answer(r#"["chunks",["z"]]"#)]),
    );
    let functions = Functions::scripted(&child);
    let error = functions.error("list", call("", json!([]))).await;
    assert_eq!(
        (&error["name"], &error["fault"]),
        (&json!("query_protocol_error"), &json!("query_server"))
    );
    functions.error("list", call("", json!([]))).await;
    assert_eq!(functions.pool.started().len(), 2);
    functions.quiet().await;
}

fn start_of(arguments: &Value) -> ListStart {
    let mut arguments = arguments.clone();
    arguments["db"] = json!("shop");
    arguments["ddoc"]["_id"] = json!("_design/d");
    arguments["ddoc"]["_rev"] = json!("1-a");
    let ddocs = KnownDdocs::default();
    assert!(FunctionRequest::parse(FunctionName::List, &arguments.to_string(), &ddocs).is_ok());
    arguments.as_object_mut().unwrap().remove("rows");
    ListStart::parse(&arguments.to_string(), &ddocs).unwrap().0
}

fn row(value: u32) -> ListRow {
    ListRow::parse(&json!({"key": "k", "value": value}).to_string()).unwrap()
}

#[actix_rt::test]
async fn chunks_arrive_before_all_rows_are_sent() {
    let functions = Functions::javascript();
    let start = start_of(&call(TABLE, json!([])));
    let (rows, rows_in) = mpsc::channel(1);
    let (parts_out, mut parts) = mpsc::channel(1);
    let list = functions.servers.list(&start, rows_in, parts_out);
    let talk = async {
        let response = parts.recv().await.unwrap();
        assert!(matches!(response, ListPart::Response(_)));
        let mut chunk = async || match parts.recv().await {
            Some(ListPart::Chunk(chunk)) => chunk.get().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(chunk().await, "\"n=3\"");
        for value in [5, 6] {
            rows.send(Ok(row(value))).await.unwrap();
            assert_eq!(chunk().await, format!("\"k;{value}\""));
        }
        rows.send(Ok(row(2))).await.unwrap();
        assert_eq!(chunk().await, "\"k;2\"");
        assert_eq!(chunk().await, "\"enough\"");
        // The function has returned: no more rows are read.
        rows.closed().await;
        assert!(parts.recv().await.is_none());
    };
    let (result, ()) = futures_util::join!(list, talk);
    result.unwrap();
    functions.quiet().await;
}

#[actix_rt::test]
async fn an_abandoned_list_ends_and_its_process_is_replaced() {
    let command = format!("{} couchjs", SETTEE);
    let builder = TestPool::builder()
        .timeout(Duration::from_secs(60))
        .hard_limit(1);
    let functions = Functions::on(builder.command("javascript", &command), "javascript");
    let start = start_of(&call(TABLE, json!([])));
    let (rows, rows_in) = mpsc::channel(1);
    let (parts_out, parts) = mpsc::channel(1);
    drop(parts);
    rows.send(Ok(row(5))).await.unwrap();
    functions
        .servers
        .list(&start, rows_in, parts_out)
        .await
        .unwrap();
    assert!(rows.is_closed());
    functions.ok("list", call(TABLE, json!([]))).await;
    assert_eq!(functions.pool.started().len(), 2);
    functions.quiet().await;
}
