//! Several prompts in one message: each is answered as if it were sent alone, by a child, a native query
//! server and a fake.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use settee::actors::language::{Language, StartContext};
use settee::actors::native_process::{NativeProcess, NativeServer};
use settee::functions::caller::Caller;
use settee::messages::opener::StartError;
use settee::messages::proc_manager::Lease;
use settee::messages::process::{AnswerTo, ProcessRef, Prompt, PromptError};
use settee::policy::pool::ReturnStatus;
use settee::query_server::prompt::Command;
use settee_testkit::{
    FakeLanguage, Script, ScriptedChild, Step, TestPool, TestPoolBuilder, eventually,
};
use tokio::sync::mpsc;

fn with(child: &ScriptedChild) -> TestPoolBuilder {
    TestPool::builder().script("javascript", child)
}

async fn lease(caller: &Caller, pool: &TestPool) -> Lease {
    caller.get_proc(pool.any(), None).await.unwrap()
}

/// Sends the commands in one message and collects answers until the channel closes.
async fn answers(
    lease: &Lease,
    commands: &[&str],
    timeout: Option<Duration>,
) -> Vec<Result<String, PromptError>> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let lines: String = commands.iter().map(|line| format!("{line}\n")).collect();
    lease.prompts(Bytes::from(lines), timeout, sender);
    let mut answers = Vec::new();
    while let Some(answer) = receiver.recv().await {
        answers.push(answer.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()));
    }
    answers
}

#[actix_rt::test]
async fn each_prompt_is_answered_in_order_even_with_error_and_log_lines() {
    let child = ScriptedChild::new(
        Script::echo()
            .on("no", [Step::error("not_found", "missing")])
            .on("talk", [Step::log("hello"), Step::Echo]),
    );
    let pool = with(&child).start();
    let caller = pool.caller();
    let lease = lease(&caller, &pool).await;
    let said = answers(&lease, &["[1]", "[\"no\"]", "[\"talk\"]", "[2]"], None).await;
    let [one, no, talk, two] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(one.as_deref(), Ok("[1]"));
    assert!(matches!(no, Err(PromptError::Function { name, .. }) if name == "not_found"));
    assert_eq!(talk.as_deref(), Ok("[\"talk\"]"));
    assert_eq!(two.as_deref(), Ok("[2]"));
    assert_eq!(lease.process.shared.in_flight(), 0);
    assert_eq!(answers(&lease, &["[3]"], None).await, [Ok("[3]".into())]);
    lease.ret_proc(ReturnStatus::Ok).await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn batches_of_prompts_and_single_prompts_are_answered_concurrently() {
    let child = ScriptedChild::new(Script::echo());
    let pool = with(&child).start();
    let caller = pool.caller();
    let lease = lease(&caller, &pool).await;
    let lines: Vec<String> = (0..500).map(|number| format!("[{number}]")).collect();
    let commands: Vec<&str> = lines.iter().map(String::as_str).collect();
    let single = lease.prompt(Bytes::from_static(b"[\"alone\"]"), None);
    let (first, alone, second) = futures_util::future::join3(
        answers(&lease, &commands, None),
        single,
        answers(&lease, &commands, None),
    )
    .await;
    let wanted: Vec<_> = lines.iter().cloned().map(Ok).collect();
    assert!(first == wanted && second == wanted);
    assert_eq!(alone.as_deref(), Ok(&b"[\"alone\"]"[..]));
    lease.ret_proc(ReturnStatus::Ok).await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn after_a_prompt_times_out_the_rest_are_not_run() {
    let child = ScriptedChild::new(Script::echo().on("hang", [Step::Hang]));
    let pool = with(&child).start();
    let caller = pool.caller();
    let lease = lease(&caller, &pool).await;
    let timeout = Duration::from_secs(3);
    let commands = ["[1]", "[2]", "[\"hang\"]", "[3]", "[4]"];
    let said = answers(&lease, &commands, Some(timeout)).await;
    assert_eq!(said.len(), 5);
    assert_eq!(said[1].as_deref(), Ok("[2]"));
    let timed_out = PromptError::Timeout {
        timeout,
        command: Command::Other,
        held_back: false,
        tenant_key: None,
    };
    assert_eq!(said[2], Err(timed_out.clone()));
    let because = Box::new(timed_out);
    let not_run = Err(PromptError::NotRun { because });
    assert_eq!(said[3..], [not_run.clone(), not_run]);
    lease.ret_proc(ReturnStatus::Ok).await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn the_deadline_of_a_prompt_starts_when_it_becomes_the_oldest() {
    let child = ScriptedChild::new(
        Script::echo()
            .on("a", [Step::Mark("a"), Step::Await("a"), Step::Echo])
            .on("b", [Step::Mark("b"), Step::Await("b"), Step::Echo]),
    );
    let pool = with(&child).start();
    let caller = pool.caller();
    let lease = lease(&caller, &pool).await;
    let timeout = Duration::from_secs(6);
    let commands = ["[\"a\"]", "[\"b\"]"];
    // Each takes more than half of the timeout.
    let helper = async {
        for name in ["a", "b"] {
            child.reached(name).await;
            let begun = Instant::now();
            let is_over = async || begun.elapsed() > timeout * 11 / 20;
            eventually("more than half of the timeout has passed", is_over).await;
            child.release(name);
        }
    };
    let (said, ()) =
        futures_util::future::join(answers(&lease, &commands, Some(timeout)), helper).await;
    assert_eq!(said, commands.map(|command| Ok(command.to_owned())));
    lease.ret_proc(ReturnStatus::Ok).await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn prompts_that_a_dead_child_left_unanswered_report_its_exit() {
    let child = ScriptedChild::new(Script::echo().on("exit", [Step::Exit(3)]));
    let pool = with(&child).start();
    let caller = pool.caller();
    let lease = lease(&caller, &pool).await;
    let said = answers(&lease, &["[1]", "[\"exit\"]", "[2]"], None).await;
    assert_eq!(said[0].as_deref(), Ok("[1]"));
    assert_eq!(said.len(), 3);
    for rest in &said[1..] {
        let error = rest.as_ref().unwrap_err();
        assert!(
            matches!(error, PromptError::Exited(end) if end.status == Some(3)),
            "{error}"
        );
    }
    let later = answers(&lease, &["[1]", "[2]"], None).await;
    assert!(
        later.is_empty()
            || later
                .iter()
                .all(|answer| matches!(answer, Err(PromptError::Exited(_)))),
        "{later:?}"
    );
    lease.ret_proc(ReturnStatus::Ok).await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_message_with_an_invalid_command_is_refused_as_a_whole() {
    let child = ScriptedChild::new(Script::echo());
    let pool = with(&child).start();
    let caller = pool.caller();
    let lease = lease(&caller, &pool).await;
    for commands in [&["[1]", "7", "[2]"][..], &["[1]", ""], &["{}"]] {
        let said = answers(&lease, commands, None).await;
        assert_eq!(said.len(), commands.len());
        assert!(
            said.iter()
                .all(|answer| *answer == Err(PromptError::BadPrompt))
        );
    }
    assert_eq!(answers(&lease, &["[1]"], None).await, [Ok("[1]".into())]);
    lease.ret_proc(ReturnStatus::Ok).await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn more_prompts_than_may_queue_are_refused() {
    let child = ScriptedChild::new(Script::echo());
    let pool = with(&child).start();
    let caller = pool.caller();
    let lease = lease(&caller, &pool).await;
    let said = answers(&lease, &["[1]"; 1025], None).await;
    assert_eq!(said.len(), 1025);
    assert!(
        said.iter()
            .all(|answer| matches!(answer, Err(PromptError::TooMany { limit: 1024 })))
    );
    assert_eq!(answers(&lease, &["[1]"; 1024], None).await.len(), 1024);
    lease.ret_proc(ReturnStatus::Ok).await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn prompts_without_the_lease_are_refused() {
    let child = ScriptedChild::new(Script::echo());
    let pool = with(&child).start();
    let caller = pool.caller();
    let held = lease(&caller, &pool).await;
    let process = held.process.clone();
    let token = held.token;
    held.ret_proc(ReturnStatus::Ok).await;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    process.prompts.do_send(Prompt {
        loan: None,
        token,
        lines: Bytes::from_static(b"[1]\n[2]\n"),
        timeout: None,
        verbatim: false,
        answer_to: AnswerTo::Several(sender),
    });
    for _ in 0..2 {
        assert_eq!(receiver.recv().await, Some(Err(PromptError::NotHolder)));
    }
    assert_eq!(receiver.recv().await, None);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn prompts_sent_together_affect_reuse_as_if_sent_alone() {
    for (commands, is_kept) in [
        (["[1]", "[2]"], true),
        // An open list, and a design document taught without the manager.
        (
            ["[1]", "[\"ddoc\",\"_design/a\",[\"lists\",\"l\"],[]]"],
            false,
        ),
        (["[\"ddoc\",\"new\",\"_design/a\",{}]", "[1]"], false),
    ] {
        let open = Step::answer("[\"start\",[],{}]");
        let child = ScriptedChild::new(Script::echo().on_text("\"lists\"", [open]));
        let pool = with(&child).start();
        let caller = pool.caller();
        let lease = lease(&caller, &pool).await;
        let said = answers(&lease, &commands, None).await;
        assert!(said.iter().all(Result::is_ok), "{said:?}");
        lease.ret_proc(ReturnStatus::Ok).await;
        pool.becomes("the process is free or has ended", |pool| {
            pool.used == 0 && pool.stopping == 0
        })
        .await;
        assert_eq!(pool.status().await.free == 1, is_kept, "{commands:?}");
        pool.assert_quiet().await;
    }
}

struct Upper;

impl NativeServer for Upper {
    fn prompt(&mut self, command: &str) -> String {
        assert!(
            !command.contains("panic"),
            "panics on request (meant to happen)"
        );
        command.to_uppercase()
    }
}

impl Language for Upper {
    fn describe(&self) -> String {
        "upper".into()
    }

    fn start(
        &self,
        context: StartContext,
    ) -> LocalBoxFuture<'static, Result<ProcessRef, StartError>> {
        Box::pin(async move { NativeProcess::start_with(Self, context) })
    }
}

#[actix_rt::test]
async fn a_native_query_server_answers_several_prompts_in_one_message() {
    let pool = TestPool::builder().language("upper", Upper).start();
    let caller = pool.caller();
    let held = lease(&caller, &pool).await;
    let said = answers(&held, &["[\"a\"]", "[\"b\"]"], None).await;
    assert_eq!(said, [Ok("[\"A\"]".into()), Ok("[\"B\"]".into())]);
    let said = answers(&held, &["[\"a\"]", "[\"panic\"]", "[\"b\"]"], None).await;
    assert_eq!(said[0].as_deref(), Ok("[\"A\"]"));
    assert_eq!(said.len(), 3);
    assert!(matches!(said[1], Err(PromptError::Exited(_))));
    assert!(matches!(said[2], Err(PromptError::NotRun { .. })));
    held.ret_proc(ReturnStatus::Ok).await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_fake_answers_several_prompts_in_one_message() {
    tokio::time::pause();
    let pool = TestPool::builder()
        .language("fake", FakeLanguage::new())
        .start();
    let caller = pool.caller();
    let held = lease(&caller, &pool).await;
    let said = answers(&held, &["[1]", "[2]", "[3]"], None).await;
    assert!(said.len() == 3 && said.iter().all(|answer| answer.as_deref() == Ok("true")));
    held.ret_proc(ReturnStatus::Ok).await;
    pool.assert_quiet().await;
}
