//! Slow children: deadlines, the order of pipelined answers, floods.

use std::time::{Duration, Instant};

use bytes::Bytes;
use settee::messages::process::{PromptError, SetTimeout};
use settee::query_server::prompt::Command;
use settee_testkit::{Script, ScriptedChild, Step, TestPool, TestPoolBuilder, eventually};

const SHORT: Duration = Duration::from_millis(300);

fn timed_out() -> PromptError {
    PromptError::Timeout {
        timeout: SHORT,
        command: Command::Other,
        held_back: false,
        tenant_key: None,
    }
}

/// Time limit of a test: far more than any test here needs, far less than a wait for a hung child takes.
const SOON: Duration = Duration::from_secs(60);

fn builder(child: &ScriptedChild) -> TestPoolBuilder {
    TestPool::builder()
        .hard_limit(2)
        .script("javascript", child)
}

/// Asserts that the prompt `["rogue"]` times out, even if the child does `steps` meanwhile.
async fn assert_times_out(steps: impl Into<Vec<Step>>) {
    let child = ScriptedChild::new(Script::echo().on("rogue", steps));
    let pool = builder(&child).start();
    let [mut client, mut other] = pool.clients(["rogue", "other"]).await;
    let asked = Instant::now();
    let rogue = client.sends_within("[\"rogue\"]", Some(SHORT));
    assert_eq!(other.prompts("[\"x\"]").await.as_deref(), Ok("[\"x\"]"));
    let expected = timed_out();
    assert_eq!(rogue.answer().await, Err(expected.clone()));
    assert!(asked.elapsed() >= SHORT && asked.elapsed() < SOON);
    let because = Box::new(expected);
    let later = Err(PromptError::NotRun { because });
    assert_eq!(client.prompts("[\"x\"]").await, later);
    client.returns().await;
    pool.becomes("the process is gone", |pool| pool.procs.len() == 1)
        .await;
    other.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_child_that_hangs_is_killed_at_the_deadline() {
    assert_times_out([Step::Hang]).await;
}

#[actix_rt::test]
async fn a_child_that_hangs_in_the_middle_of_an_answer_is_killed_at_the_deadline() {
    assert_times_out([Step::PrintPart("[1,".into()), Step::Hang]).await;
}

#[actix_rt::test]
async fn log_lines_do_not_extend_the_deadline() {
    assert_times_out([Step::Drip("[\"log\",\"still here\"]".into())]).await;
}

#[actix_rt::test]
async fn a_flood_of_log_lines_neither_extends_the_deadline_nor_blocks_other_clients() {
    assert_times_out([Step::Flood("[\"log\",\"still here\"]".into())]).await;
}

#[actix_rt::test]
async fn a_flood_on_standard_error_neither_extends_the_deadline_nor_blocks_other_clients() {
    assert_times_out([Step::FloodErrors("x".into())]).await;
}

#[actix_rt::test]
async fn an_idle_child_that_floods_its_log_delays_no_other_client() {
    let flood = Step::Background(vec![Step::Flood("[\"log\",\"x\"]".into())]);
    let child = ScriptedChild::new(Script::echo().on("rogue", [Step::Echo, flood]));
    let pool = builder(&child).start();
    let [mut client, mut other] = pool.clients(["rogue", "other"]).await;
    assert!(client.prompts("[\"rogue\"]").await.is_ok());
    client.returns().await;
    let asked = Instant::now();
    for _ in 0..20 {
        assert_eq!(other.prompts("[\"x\"]").await.as_deref(), Ok("[\"x\"]"));
    }
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    other.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn pipelined_prompts_are_answered_in_order() {
    let child = ScriptedChild::new(Script::echo());
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let lines: Vec<String> = (0..200).map(|n| format!("[\"map_doc\",{n}]")).collect();
    let sent: Vec<_> = lines.iter().map(|line| client.sends(line)).collect();
    for (line, sent) in lines.iter().zip(sent) {
        assert_eq!(sent.answer().await.as_ref(), Ok(line));
    }
    assert_eq!(child.prompts(), lines);
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn more_prompts_and_answers_than_the_pipes_hold_do_not_deadlock() {
    let child = ScriptedChild::new(Script::echo());
    let pool = builder(&child).timeout(SOON * 2).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let line = format!("[\"map_doc\",\"{}\"]", "x".repeat(10_000));
    let sent: Vec<_> = (0..60).map(|_| client.sends(&line)).collect();
    for sent in sent {
        assert_eq!(sent.answer().await.as_ref(), Ok(&line));
    }
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_prompt_arrives_byte_for_byte() {
    let child = ScriptedChild::new(Script::echo());
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let lines = [
        "[\"a\",\"\u{e9}\u{2028}\u{1f600}\\ud800\\n\\u0000\"]",
        " [ \"reset\" , {} ]\t",
        "[\"'; exit 1 #\", 1.0, 1e5, \"$HOME `id` \\\\\"]",
    ];
    for line in lines {
        assert!(client.prompts(line).await.is_ok());
    }
    assert_eq!(child.prompts(), lines);
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn the_deadline_of_a_pipelined_prompt_starts_when_it_becomes_the_oldest() {
    let pause = |name| [Step::Await(name), Step::Echo];
    let child = ScriptedChild::new(
        Script::echo()
            .on("one", pause("one"))
            .on("two", [Step::Hang]),
    );
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let first = client.sends("[\"one\"]");
    let second = client.sends_within("[\"two\"]", Some(SHORT));
    let third = client.sends("[\"three\"]");
    let asked = Instant::now();
    // The second prompt's deadline does not run while the first is processed.
    eventually("the deadline would have passed", async || {
        asked.elapsed() > SHORT * 2
    })
    .await;
    child.release("one");
    assert_eq!(first.answer().await.as_deref(), Ok("[\"one\"]"));
    assert_eq!(second.answer().await, Err(timed_out()));
    let error = third.answer().await.unwrap_err();
    assert!(matches!(error, PromptError::NotRun { .. }), "{error}");
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn too_many_prompts_in_flight_are_refused_and_the_others_are_not_lost() {
    let child = ScriptedChild::new(Script::echo().on("rogue", [Step::Await("go"), Step::Echo]));
    let pool = builder(&child).timeout(SOON).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let first = client.sends("[\"rogue\"]");
    // One message at a time, so that no mailbox fills up.
    let mut others = Vec::new();
    let refused = loop {
        let sent = client.sends(&format!("[{}]", others.len()));
        pool.status().await;
        if others.len() == 1023 {
            break sent;
        }
        others.push(sent);
    };
    assert_eq!(
        refused.answer().await,
        Err(PromptError::TooMany { limit: 1024 })
    );
    child.release("go");
    assert!(first.answer().await.is_ok());
    for (n, sent) in others.into_iter().enumerate() {
        assert_eq!(sent.answer().await, Ok(format!("[{n}]")));
    }
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn an_invalid_prompt_is_refused_and_never_sent() {
    let child = ScriptedChild::new(Script::echo());
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    for line in ["", "7", "{}", "[\"reset\"]\n[\"reset\"]"] {
        assert_eq!(client.prompts(line).await, Err(PromptError::BadPrompt));
    }
    assert_eq!(client.prompts("[1]").await.as_deref(), Ok("[1]"));
    assert_eq!(child.prompts(), ["[1]"]);
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_prompt_after_the_return_of_a_failed_process_gets_its_exit_report() {
    let child = ScriptedChild::new(Script::echo());
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let (process, token) = (client.lease().process.clone(), client.lease().token);
    client.returns_broken().await;
    let late = Bytes::from_static(b"[\"late\"]");
    let answer = process.prompt(token, late, None).await;
    assert!(matches!(answer, Err(PromptError::Exited(_))), "{answer:?}");
    assert_eq!(child.prompts(), [""; 0]);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_process_accepts_prompts_and_timeouts_only_from_its_holder() {
    let child = ScriptedChild::new(Script::echo());
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let (process, token) = (client.lease().process.clone(), client.lease().token);
    client.returns().await;
    let late = Bytes::from_static(b"[\"late\"]");
    let unknown = policy::pool::Token(0);
    for token in [token, unknown] {
        let answer = process.prompt(token, late.clone(), None).await;
        assert_eq!(answer, Err(PromptError::NotHolder));
        let timeout = SHORT;
        let set = process
            .set_timeout
            .send(SetTimeout { token, timeout })
            .await;
        assert!(!set.unwrap());
    }
    assert_eq!(child.prompts(), [""; 0]);
    pool.assert_quiet().await;
}
