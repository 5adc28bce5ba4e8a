//! Children that fail to start or to be taught: their client gets the cause at once, the slot is free, nothing is
//! retried without end, and no other language waits.

use std::time::Duration;

use settee::functions::{FunctionErrorKind, QueryServers};
use settee::messages::function::{DdocPrompt, InDdoc};
use settee::messages::proc_manager::CallError;
use settee::messages::proc_manager::{GetProcError, TakeFrom, What};
use settee::messages::process::Fault;
use settee::policy::pool::Phase;
use settee_testkit::{Script, ScriptedChild, Step, TestPool};

const SHORT: Duration = Duration::from_secs(2);

fn spawn_failed(error: &GetProcError) -> (String, Fault) {
    match error {
        GetProcError::SpawnFailed { reason, fault, .. } => (reason.clone(), *fault),
        other => panic!("not a failed start: {other}"),
    }
}

fn teach_failed(error: &GetProcError) -> &str {
    match error {
        GetProcError::TeachFailed { reason, ddoc, .. } => {
            assert_eq!(ddoc, "_design/bad");
            reason
        }
        other => panic!("not a failed lesson: {other}"),
    }
}

#[actix_rt::test]
async fn a_missing_program_fails_the_request_at_once() {
    let pool = TestPool::builder()
        .command("bare", "no-such-program-anywhere --flag")
        .command("path", "/no/such/program")
        .start();
    for (language, program) in [
        ("bare", "no-such-program-anywhere"),
        ("path", "/no/such/program"),
    ] {
        let error = pool.client("1").is_refused(pool.any_of(language)).await;
        let (reason, fault) = spawn_failed(&error);
        let expected =
            format!("the program '{program}' was not found; correct the command or install it");
        assert_eq!((reason, fault), (expected, Fault::QueryServer));
        assert!(!error.retryable());
    }
    assert_eq!(pool.proc_count().await, 0);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_program_that_cannot_be_executed_fails_the_request_at_once() {
    let pool = TestPool::builder().command("x", "/etc/passwd").start();
    let error = pool.client("1").is_refused(pool.any()).await;
    let (reason, fault) = spawn_failed(&error);
    assert!(
        reason.contains("'/etc/passwd' cannot be executed"),
        "{reason}"
    );
    assert_eq!(fault, Fault::QueryServer);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_missing_program_is_started_once_per_request() {
    let child = ScriptedChild::new(Script::echo().at_start([
        Step::Complain("sh: couchpy: not found".into()),
        Step::Exit(127),
    ]));
    let pool = TestPool::builder().script("x", &child).start();
    let caller = pool.caller();
    let ddoc = pool.ddoc("db", "_design/bad");
    let error = pool.client("1").is_refused(ddoc.clone()).await;
    let (reason, _) = spawn_failed(&error);
    assert!(
        reason.contains("exited with status 127 (the command was not found)"),
        "{reason}"
    );
    assert!(reason.contains("couchpy: not found"), "{reason}");
    let error = caller.get_clean_proc(&pool.any()).await.unwrap_err();
    assert!(matches!(error, CallError::GetProc(_)), "{error}");
    assert_eq!(child.started().len(), 1 + 1);
    let What::Ddoc { ddoc, .. } = ddoc.what else {
        unreachable!()
    };
    let args = serde_json::value::RawValue::from_string("[]".into()).unwrap();
    let path = vec!["shows".to_owned(), "s".to_owned()];
    let at = InDdoc {
        db: "db".into(),
        ddoc,
        from: TakeFrom::Own,
        timeout: None,
    };
    let query_servers = QueryServers::new(caller);
    let call = DdocPrompt { at, path, args };
    let error = query_servers.ddoc_prompt(&call).await.unwrap_err();
    assert!(
        matches!(error.kind, FunctionErrorKind::Call(CallError::GetProc(_))),
        "{error}"
    );
    assert_eq!(child.started().len(), 1 + 1 + 1);
    drop(query_servers);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_program_that_prints_its_usage_fails_to_start() {
    let child = ScriptedChild::new(
        Script::echo().at_start([Step::answer("usage: couchpy [options]"), Step::Exit(0)]),
    );
    let pool = TestPool::builder().script("x", &child).start();
    let error = pool
        .client("1")
        .is_refused(pool.ddoc("db", "_design/bad"))
        .await;
    let (reason, fault) = spawn_failed(&error);
    assert!(reason.contains("usage: couchpy"), "{reason}");
    assert_eq!(fault, Fault::QueryServer);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_child_that_never_answers_a_lesson_is_killed_at_the_timeout_of_the_request() {
    let child = ScriptedChild::new(Script::echo().on_teach("_design/bad", [Step::Hang]));
    let pool = TestPool::builder()
        .hard_limit(1)
        .timeout(SHORT)
        .script("x", &child)
        .start();
    let error = pool
        .client("1")
        .is_refused(pool.ddoc("db", "_design/bad"))
        .await;
    assert!(
        matches!(
            error,
            GetProcError::Timeout {
                phase: Phase::Teach,
                ..
            } | GetProcError::TeachFailed { .. }
        ),
        "{error}"
    );
    pool.becomes("the slot is free", |pool| pool.procs.is_empty())
        .await;
    let mut next = pool.client("2");
    next.takes(pool.ddoc("db", "_design/good")).await;
    assert_eq!(next.prompts("[1]").await.as_deref(), Ok("[1]"));
    next.returns().await;
    pool.assert_quiet().await;
}

/// Each way to fail a lesson loses one process and one request, on a fresh process (D4, D5) and on a used one (D1).
#[actix_rt::test]
async fn a_failed_lesson_loses_only_one_process_and_one_request() {
    for (steps, expected) in [
        (
            vec![Step::error("compilation_error", "no")],
            "compilation_error: no",
        ),
        (vec![Step::fatal("fatal_error", "no")], "fatal_error: no"),
        (
            vec![Step::answer("false")],
            "it answered false instead of true",
        ),
        (
            vec![Step::answer("junk")],
            "broke the protocol with a line that is not JSON",
        ),
        (vec![Step::Exit(1)], "exited with status 1"),
        (vec![Step::Exit(0)], "exited with status 0"),
        (
            vec![Step::Signal("SEGV")],
            "was killed by SIGSEGV (it crashed)",
        ),
    ] {
        let child = ScriptedChild::new(Script::echo().on_teach("_design/bad", steps));
        let pool = TestPool::builder()
            .hard_limit(1)
            .script("x", &child)
            .start();
        let (mut client, mut next) = (pool.client("1"), pool.client("2"));
        // On a fresh process.
        client.asks(pool.ddoc("db", "_design/bad"));
        next.asks(pool.ddoc("db", "_design/good"));
        let error = client.answer().await.unwrap_err();
        assert!(teach_failed(&error).contains(expected), "{error}");
        assert_eq!(next.answer().await, Ok(()));
        next.returns().await;
        // On a used process that another client waits for.
        client.asks(pool.ddoc("db", "_design/bad"));
        next.asks(pool.ddoc("db", "_design/good"));
        let error = client.answer().await.unwrap_err();
        assert!(teach_failed(&error).contains(expected), "{error}");
        assert_eq!(next.answer().await, Ok(()));
        next.returns().await;
        assert_eq!(pool.started().len(), 3);
        let status = pool.status().await;
        assert_eq!((status.free, status.used, status.waiting), (1, 0, 0));
        pool.assert_quiet().await;
    }
}

#[actix_rt::test]
async fn a_child_that_hangs_while_it_is_taught_delays_no_other_client() {
    let child = ScriptedChild::new(
        Script::echo().on_teach("_design/bad", [Step::Mark("asked"), Step::Hang]),
    );
    let pool = TestPool::builder()
        .hard_limit(2)
        .script("x", &child)
        .script("y", &ScriptedChild::new(Script::echo()))
        .start();
    // The process is used: CouchDB's manager would teach such a process itself, which blocks all clients.
    let mut used = pool.client("0");
    used.takes(pool.ddoc("db", "_design/good")).await;
    used.returns().await;
    let mut stuck = pool.client("stuck");
    stuck.asks(pool.ddoc("db", "_design/bad"));
    child.reached("asked").await;
    let (mut same, mut other) = (pool.client("same"), pool.client("other"));
    same.takes(pool.any()).await;
    other.takes(pool.any_of("y")).await;
    assert!(same.prompts("[1]").await.is_ok() && other.prompts("[1]").await.is_ok());
    same.returns().await;
    other.returns().await;
    assert!(stuck.is_waiting().await, "the request is still waiting");
    pool.stop_at_once().await;
}

#[actix_rt::test]
async fn a_process_is_taught_each_content_of_a_document_verbatim_and_once() {
    let child = ScriptedChild::new(Script::echo());
    let pool = TestPool::builder()
        .hard_limit(1)
        .script("x", &child)
        .start();
    let mut client = pool.client("1");
    for body in [
        "\"v\":1.0,\"s\":\"\\u00e9\u{e9}\"",
        "\"v\":1.0,\"s\":\"\\u00e9\u{e9}\"",
        "\"other\":\"text, same revision\"",
        "\"other\":\"text, same revision\",\"_revisions\":{},\"_local_seq\":7",
    ] {
        let body = format!("\"language\":\"X\",{body}");
        client.takes(pool.ddoc_with("db", "_design/a", &body)).await;
        client.returns().await;
    }
    let taught = |body: &str| {
        let head = r#"["ddoc","new","_design/a",{"_id":"_design/a","_rev":"1-a","language":"X","#;
        format!("{head}{body}}}]")
    };
    let first = taught("\"v\":1.0,\"s\":\"\\u00e9\u{e9}\"");
    let second = taught("\"other\":\"text, same revision\"");
    assert_eq!(child.prompts(), [first, second]);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_server_without_support_for_design_documents_fails_only_the_lesson() {
    // As couchpy does on any `ddoc` command.
    let child = ScriptedChild::new(Script::echo().on(
        "ddoc",
        [Step::Complain("KeyError: 'ddoc'".into()), Step::Exit(1)],
    ));
    let pool = TestPool::builder()
        .hard_limit(1)
        .script("python", &child)
        .start();
    let mut view = pool.client("view");
    view.takes(pool.any()).await;
    assert_eq!(view.prompts("[\"reset\",{}]").await.as_deref(), Ok("true"));
    view.returns().await;
    let error = pool
        .client("ddoc")
        .is_refused(pool.ddoc("db", "_design/bad"))
        .await;
    assert!(teach_failed(&error).contains("KeyError: 'ddoc'"), "{error}");
    view.takes(pool.any()).await;
    assert_eq!(view.prompts("[\"reset\",{}]").await.as_deref(), Ok("true"));
    view.returns().await;
    assert_eq!(pool.started().len(), 2);
    pool.assert_quiet().await;
}
