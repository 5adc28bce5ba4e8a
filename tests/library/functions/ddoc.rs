//! Shows, updates, rewrites and plain prompts of design-document functions: the prompts, how answers are parsed, and
//! the consequences of errors.

use std::time::Duration;

use crate::functions::support::Functions;
use serde_json::json;
use settee_testkit::{Script, ScriptedChild, Step, TestPool};

const RESET: &str = r#"["reset",{}]"#;

#[actix_rt::test]
async fn a_show_gets_its_document_and_request_and_returns_a_response() {
    let functions = Functions::javascript();
    let ddoc = json!({"shows": {
        "s": "function(doc, req) { return {code: 418, headers: {'X-A': 'b'}, body: doc.name + req.query.q} }",
        "none": "function(doc, req) { return doc === null ? 'no document' : 'a document' }",
    }});
    let shown = functions
        .ok("show", json!({"ddoc": ddoc, "name": "s", "doc": {"name": "ida"}, "req": {"query": {"q": "!"}}}))
        .await;
    assert_eq!(
        shown,
        json!({"code": 418, "headers": {"X-A": "b"}, "body": "ida!"})
    );
    let shown = functions
        .ok("show", json!({"ddoc": ddoc, "name": "none"}))
        .await;
    assert_eq!(shown, json!({"body": "no document"}));
    functions.quiet().await;
}

#[actix_rt::test]
async fn the_prompts_match_those_of_couchdb() {
    let child = ScriptedChild::new(
        Script::echo()
            .on_text("\"shows\"", [Step::answer(r#"["resp",{}]"#)])
            .on_text("\"updates\"", [Step::answer(r#"["up",null,{}]"#)])
            .on_text("\"rewrites\"", [Step::answer(r#"["no_dispatch_rule"]"#)]),
    );
    let functions = Functions::scripted(&child);
    let req = json!({"info": {}, "uuid": "u", "id": null, "method": "GET", "form": {}});
    functions
        .ok(
            "show",
            json!({"ddoc": {}, "name": "s", "doc": {"_id": "a", "n": 1.0}, "req": req}),
        )
        .await;
    functions
        .ok("update", json!({"ddoc": {}, "name": "u", "req": req}))
        .await;
    functions
        .ok("rewrite", json!({"ddoc": {}, "req": req}))
        .await;
    let teach =
        r#"["ddoc","new","_design/d",{"_id":"_design/d","_rev":"1-a","language":"scripted"}]"#;
    let req = r#"{"info":{},"uuid":"u","id":null,"method":"GET","form":{}}"#;
    assert_eq!(
        child.prompts(),
        [
            teach,
            RESET,
            &format!(r#"["ddoc","_design/d",["shows","s"],[{{"_id":"a","n":1.0}},{req}]]"#),
            RESET,
            &format!(r#"["ddoc","_design/d",["updates","u"],[null,{req}]]"#),
            RESET,
            r#"["ddoc","_design/d",["rewrites"],[{"method":"GET"}]]"#,
            RESET,
        ]
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn an_update_returns_a_response_with_or_without_a_document() {
    let functions = Functions::javascript();
    let ddoc = json!({"updates": {
        "make": "function(doc, req) { return [{_id: req.uuid, was: doc}, 'made'] }",
        "leave": "function(doc, req) { return [null, {code: 202, body: 'left'}] }",
    }});
    let req = json!({"method": "POST", "uuid": "u1"});
    let made = functions
        .ok("update", json!({"ddoc": ddoc, "name": "make", "req": req}))
        .await;
    assert_eq!(
        made,
        json!([{"_id": "u1", "was": null}, {"code": 201, "body": "made"}])
    );
    let left = functions
        .ok("update", json!({"ddoc": ddoc, "name": "leave", "req": req}))
        .await;
    assert_eq!(left, json!([null, {"code": 202, "body": "left"}]));
    let get = json!({"ddoc": ddoc, "name": "make", "req": {"method": "GET"}});
    assert_eq!(
        functions.error("update", get).await["name"],
        "method_not_allowed"
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_request_is_rewritten_or_matches_no_rule() {
    let functions = Functions::javascript();
    let rewrites = "function(req) { if (req.path[0] == 'no') return; if (req.path[0] == 'bad') return {path: 7}; return {path: '_show/' + req.path[0], method: 'POST'} }";
    let call = |path: &str| json!({"ddoc": {"rewrites": rewrites}, "req": {"path": [path]}});
    assert_eq!(
        functions.ok("rewrite", call("a")).await,
        json!({"path": "_show/a", "method": "POST"})
    );
    assert_eq!(functions.ok("rewrite", call("no")).await, json!(null));
    let error = functions.error("rewrite", call("bad")).await;
    assert_eq!(
        (&error["name"], &error["reason"]),
        (&json!("rewrite_error"), &json!("bad path"))
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn credentials_never_reach_a_function() {
    let functions = Functions::javascript();
    let echo = "function(doc, req) { return JSON.stringify(req) }";
    let ddoc = json!({
        "shows": {"f": echo},
        "updates": {"f": "function(doc, req) { return [null, JSON.stringify(req)] }"},
        "lists": {"f": "function(head, req) { send(JSON.stringify(req)) }"},
        "filters": {"f": "function(doc, req) { return JSON.stringify(req).indexOf('secret') < 0 }"},
        "rewrites": "function(req) { return {path: JSON.stringify(req)} }",
    });
    let req = json!({
        "method": "POST",
        "headers": {"Host": "h", "Authorization": "secret", "COOKIE": "secret",
                    "Proxy-authorization": "secret", "X-Auth-CouchDB-UserName": "secret"},
        "cookie": {"AuthSession": "secret"},
    });
    for (call, more) in [
        ("show", json!({"name": "f"})),
        ("update", json!({"name": "f"})),
        ("list", json!({"name": "f", "rows": []})),
        ("rewrite", json!({})),
        (
            "ddoc_prompt",
            json!({"path": ["shows", "f"], "args": [null, req]}),
        ),
        (
            "ddoc_prompt",
            json!({"path": ["updates", "f"], "args": [null, req]}),
        ),
        ("ddoc_prompt", json!({"path": ["rewrites"], "args": [req]})),
        (
            "ddoc_prompt",
            json!({"path": ["lists", "f"], "args": [{}, req]}),
        ),
    ] {
        let mut arguments = more;
        arguments["ddoc"] = ddoc.clone();
        if call != "ddoc_prompt" {
            arguments["req"] = req.clone();
        }
        let text = functions.perform_text(call, arguments).await.unwrap();
        assert!(!text.contains("secret"), "{call}: {text}");
        if !text.starts_with("[\"start\"") {
            assert!(text.contains("Host"), "{call}: {text}");
        }
    }
    let docs = json!([{"_id": "a"}]);
    let passed = functions
        .ok(
            "filter_docs",
            json!({"ddoc": ddoc, "name": "f", "docs": docs, "req": req}),
        )
        .await;
    assert_eq!(passed, json!([true]));
    let args = json!([docs, req]);
    let answer = functions
        .ok(
            "ddoc_prompt",
            json!({"ddoc": ddoc, "path": ["filters", "f"], "args": args}),
        )
        .await;
    assert_eq!(answer, json!([true, [true]]));
    functions.quiet().await;
}

#[actix_rt::test]
async fn an_error_names_database_design_document_function_and_document() {
    let functions = Functions::javascript();
    let ddoc = json!({"shows": {"s": "function(doc) { throw {error: 'teapot', reason: doc.n} }"}});
    let error = functions
        .error(
            "show",
            json!({"ddoc": ddoc, "name": "s", "doc": {"_id": "d1", "n": {"a": 1}}}),
        )
        .await;
    assert_eq!(
        error,
        json!({
            "name": "teapot", "reason": "{\"a\":1}", "phase": "prompt", "fault": "client", "retry": false,
            "db": "shop", "ddoc": "_design/d", "function": "shows/s", "doc": "d1",
        })
    );
    let error = functions
        .error(
            "ddoc_prompt",
            json!({"ddoc": ddoc, "path": ["shows", "gone"], "args": [null, {}]}),
        )
        .await;
    assert_eq!(
        (&error["name"], &error["function"]),
        (&json!("not_found"), &json!("shows/gone"))
    );
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_process_survives_a_function_error_and_is_replaced_after_a_fatal_one() {
    let functions = Functions::javascript();
    let ddoc = json!({"shows": {
        "no": "function(doc) { throw {error: 'not_found', reason: 'no'} }",
        "odd": "function(doc) { return {status: 200} }",
        "fatal": "function(doc) { throw ['fatal', 'too_bad', 'really'] }",
        "ok": "function(doc) { return 'ok' }",
    }});
    let call = |name: &str| json!({"ddoc": ddoc, "name": name, "req": {"path": []}});
    for _ in 0..3 {
        assert_eq!(
            functions.error("show", call("no")).await["name"],
            "not_found"
        );
        let odd = functions.error("show", call("odd")).await;
        assert_eq!(
            (&odd["name"], &odd["fault"]),
            (&json!("external_response_error"), &json!("client"))
        );
        functions.ok("show", call("ok")).await;
    }
    assert_eq!(functions.pool.started().len(), 1);
    let fatal = functions.error("show", call("fatal")).await;
    assert_eq!(
        (&fatal["name"], &fatal["reason"]),
        (&json!("too_bad"), &json!("really"))
    );
    functions.ok("show", call("ok")).await;
    assert_eq!(functions.pool.started().len(), 2);
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_process_is_replaced_after_an_answer_that_is_invalid_for_its_function() {
    let functions = Functions::scripted(&ScriptedChild::new(
        Script::echo()
            .on_teach("_design/d", [Step::answer("true")])
            .on("ddoc", [Step::answer(r#"["up",7]"#)]),
    ));
    let error = functions
        .error("show", json!({"ddoc": {}, "name": "s"}))
        .await;
    assert_eq!(
        (&error["name"], &error["fault"]),
        (&json!("query_protocol_error"), &json!("query_server"))
    );
    assert_eq!(
        error["reason"],
        r#"the query server answered ["up",7] instead of ["resp", {..}]"#
    );
    functions
        .error("show", json!({"ddoc": {}, "name": "s"}))
        .await;
    assert_eq!(functions.pool.started().len(), 2);
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_process_killed_by_a_function_is_reported_with_its_exit_and_last_words() {
    let child = ScriptedChild::new(Script::echo().on_text(
        "\"shows\"",
        [Step::Complain("out of cheese".into()), Step::Signal("KILL")],
    ));
    let functions = Functions::scripted(&child);
    let error = functions
        .error("show", json!({"ddoc": {}, "name": "s"}))
        .await;
    assert_eq!(error["name"], "os_process_error");
    assert_eq!(
        (&error["phase"], &error["fault"]),
        (&json!("exit"), &json!("query_server"))
    );
    assert_eq!(
        (&error["retry"], &error["status"]),
        (&json!(true), &json!(137))
    );
    assert_eq!(error["exit"], "was killed by SIGKILL");
    assert_eq!(error["stderr"], json!(["out of cheese"]));
    assert_eq!(error["function"], "shows/s");
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_slow_function_times_out_and_its_process_is_replaced() {
    let functions = Functions::javascript();
    let ddoc = json!({"shows": {"s": "function(doc) { while (doc) {} return 'ok' }"}});
    let call = |doc| json!({"ddoc": ddoc, "name": "s", "doc": doc, "timeout_ms": 3000});
    functions.ok("show", call(json!(null))).await;
    let error = functions.error("show", call(json!({"_id": "d1"}))).await;
    assert_eq!(
        (&error["name"], &error["phase"]),
        (&json!("timeout"), &json!("ddoc call"))
    );
    assert_eq!(
        (&error["doc"], &error["retry"]),
        (&json!("d1"), &json!(false))
    );
    assert_eq!(
        (&error["fault"], &error["limit_ms"]),
        (&json!("function"), &json!(3000))
    );
    functions.ok("show", call(json!(null))).await;
    assert_eq!(functions.pool.started().len(), 2);
    functions.quiet().await;
}

#[actix_rt::test]
async fn a_failed_lesson_is_retryable_only_if_the_process_died() {
    let dies = [Step::Complain("oh".into()), Step::Exit(3)];
    let no = [Step::error("bad_ddoc", "no")];
    for (steps, retry, fault) in [
        (&dies[..], true, "query_server"),
        (&no, false, "client"),
        (&[Step::answer("17")], false, "query_server"),
    ] {
        let child = ScriptedChild::new(Script::echo().on_teach("_design/d", steps));
        let functions = Functions::scripted(&child);
        let call = json!({"ddoc": {}, "name": "s"});
        let error = functions.error("show", call).await;
        assert_eq!(
            (&error["phase"], &error["retry"], &error["db"]),
            (&json!("teach"), &json!(retry), &json!("shop")),
            "{error}"
        );
        assert_eq!(error["fault"], fault, "{error}");
        if retry {
            assert_eq!(
                (&error["status"], &error["stderr"]),
                (&json!(3), &json!(["oh"]))
            );
        }
        functions.quiet().await;
    }
}

#[actix_rt::test]
async fn a_failed_reset_is_retried_on_another_process() {
    let child = ScriptedChild::new(
        Script::echo()
            .on(
                "reset",
                [
                    Step::Once("first", vec![Step::Exit(1)]),
                    Step::answer("true"),
                ],
            )
            .on_text("\"shows\"", [Step::answer(r#"["resp",{}]"#)]),
    );
    let functions = Functions::scripted(&child);
    functions.ok("show", json!({"ddoc": {}, "name": "s"})).await;
    assert_eq!(functions.pool.started().len(), 2);
    functions.quiet().await;
}

/// Answers a read of one line with `true`, and a read of several lines with `true`, a reduction to their number, and
/// `true`.
const COUNTS_LINES: &str = r#"
while :; do
    lines=$(dd bs=65536 count=1 2>/dev/null | wc -l)
    [ "$lines" -gt 0 ] || exit 0
    echo true
    [ "$lines" -eq 1 ] || printf '[true,[%s]]\ntrue\n' "$lines"
done
"#;

#[actix_rt::test]
async fn a_command_and_the_resets_around_it_reach_the_query_server_in_one_write() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("counts_lines.sh");
    std::fs::write(&script, COUNTS_LINES).unwrap();
    let command = format!("sh {}", script.display());
    let functions = Functions::on(TestPool::builder().command("counts", &command), "counts");
    let arguments = json!({"funs": ["any"], "rows": [[["k", "i"], 1]]});
    assert_eq!(functions.ok("reduce", arguments).await, json!([3]));
    functions.quiet().await;
}

#[actix_rt::test]
async fn dropping_a_call_returns_its_process() {
    let child =
        ScriptedChild::new(Script::echo().on_text("\"shows\"", [Step::Mark("here"), Step::Hang]));
    let functions = Functions::on(
        TestPool::builder()
            .timeout(Duration::from_secs(60))
            .script("scripted", &child),
        "scripted",
    );
    let call = functions.perform("show", json!({"ddoc": {}, "name": "s"}));
    tokio::select! {
        _ = call => panic!("the call hangs"),
        () = child.reached("here") => {}
    }
    functions.quiet().await;
}
