//! Children that print invalid output: it is never taken for an answer (PM-10), the client gets the exact error, and no
//! other client is affected.

use std::time::Instant;

use bytes::Bytes;
use settee::messages::process::PromptError;
use settee_testkit::{
    PATIENCE, Script, ScriptedChild, Step, TestClient, TestPool, TestPoolBuilder, eventually,
};

const LINE_BYTES_MAX: usize = 10_000;

/// Length of a line that is read on another thread, in bytes.
const LONG_BYTES: usize = 300_000;

fn builder(child: &ScriptedChild) -> TestPoolBuilder {
    TestPool::builder()
        .hard_limit(2)
        .settings(|settings| settings.line_bytes_max = LINE_BYTES_MAX)
        .script("javascript", child)
}

/// Returns a child that does `steps` for the prompt `["rogue"]`.
fn rogue(steps: impl Into<Vec<Step>>) -> ScriptedChild {
    ScriptedChild::new(Script::echo().on("rogue", steps))
}

fn broken(what: &'static str, excerpt: &str) -> PromptError {
    PromptError::Protocol {
        what,
        excerpt: excerpt.to_owned(),
    }
}

/// Asserts that the other client continues, the slot is free again, and the next process works.
async fn assert_only_that_process_is_lost(
    pool: TestPool,
    mut client: TestClient,
    mut other: TestClient,
) {
    let lost = client.proc();
    assert_eq!(other.prompts("[\"x\"]").await.as_deref(), Ok("[\"x\"]"));
    client.returns().await;
    pool.becomes("the process is gone", |pool| pool.procs.len() == 1)
        .await;
    client.takes(pool.any()).await;
    assert_ne!(client.proc(), lost);
    assert_eq!(client.prompts("[\"y\"]").await.as_deref(), Ok("[\"y\"]"));
    client.returns().await;
    other.returns().await;
    pool.assert_quiet().await;
}

async fn assert_breaks_the_protocol(steps: impl Into<Vec<Step>>, expected: PromptError) {
    let child = rogue(steps);
    let pool = builder(&child).start();
    let [client, other] = pool.clients(["rogue", "other"]).await;
    assert_eq!(client.prompts("[\"rogue\"]").await, Err(expected));
    assert_only_that_process_is_lost(pool, client, other).await;
}

#[actix_rt::test]
async fn garbage_is_not_an_answer() {
    for line in [
        "garbage",
        "true junk",
        "[1,",
        "Traceback (most recent call last):",
    ] {
        let expected = broken("a line that is not JSON", line);
        assert_breaks_the_protocol([Step::answer(line)], expected).await;
    }
}

#[actix_rt::test]
async fn a_blank_line_is_not_an_answer() {
    assert_breaks_the_protocol([Step::answer("")], broken("a blank line", "")).await;
    assert_breaks_the_protocol([Step::answer(" \t")], broken("a blank line", " \t")).await;
}

#[actix_rt::test]
async fn a_malformed_error_line_is_not_an_answer() {
    let line = "[\"error\",\"x\"]";
    let expected = broken("an error line without a name and a reason", line);
    assert_breaks_the_protocol([Step::answer(line)], expected).await;
}

#[actix_rt::test]
async fn a_huge_line_is_not_an_answer_and_is_not_kept() {
    let expected = broken("a line that is too long", "");
    assert_breaks_the_protocol([Step::PrintHuge(50_000_000)], expected).await;
}

#[actix_rt::test]
async fn a_long_line_that_is_not_json_is_not_an_answer() {
    let child = rogue([Step::PrintPart("[".to_owned()), Step::PrintHuge(LONG_BYTES)]);
    let pool = builder(&child)
        .settings(|settings| settings.line_bytes_max = 2 * LONG_BYTES)
        .start();
    let [client, other] = pool.clients(["rogue", "other"]).await;
    let expected = broken("a line that is not JSON", &format!("[{}", "7".repeat(199)));
    assert_eq!(client.prompts("[\"rogue\"]").await, Err(expected));
    assert_only_that_process_is_lost(pool, client, other).await;
}

#[actix_rt::test]
async fn a_long_answer_keeps_its_place_among_short_ones() {
    let child = rogue([Step::PrintHuge(LONG_BYTES)]);
    let pool = builder(&child)
        .settings(|settings| settings.line_bytes_max = LONG_BYTES)
        .start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let sent = ["[\"x\"]", "[\"rogue\"]", "[\"y\"]", "[\"rogue\"]"].map(|line| client.sends(line));
    let long = "7".repeat(LONG_BYTES);
    for (sent, expected) in sent.into_iter().zip(["[\"x\"]", &long, "[\"y\"]", &long]) {
        assert_eq!(sent.answer().await.as_deref(), Ok(expected));
    }
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_line_of_exactly_the_maximum_length_is_an_answer() {
    let child = rogue([Step::PrintHuge(LINE_BYTES_MAX)]);
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let answer = client.prompts("[\"rogue\"]").await.unwrap();
    assert_eq!(answer, "7".repeat(LINE_BYTES_MAX));
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_child_that_logs_without_end_before_a_verbatim_answer_is_stopped() {
    let log = "[\"log\",\"again\"]";
    let child = rogue([Step::Flood(log.to_owned())]);
    let pool = builder(&child).start();
    let [client, other] = pool.clients(["rogue", "other"]).await;
    let lease = client.lease();
    let line = Bytes::from_static(b"[\"rogue\"]");
    let printed = lease.process.prompt_verbatim(lease.token, line, None).await;
    assert!(printed.unwrap().len() <= 2 * LINE_BYTES_MAX);
    let expected = broken("too much log output before an answer", log);
    assert_eq!(lease.process.shared.exit_error(), Some(&expected));
    assert_only_that_process_is_lost(pool, client, other).await;
}

#[actix_rt::test]
async fn a_child_that_closes_its_output_and_keeps_running_is_stopped() {
    let expected = broken("a closed standard output", "");
    assert_breaks_the_protocol([Step::CloseOutput, Step::Hang], expected).await;
}

#[actix_rt::test]
async fn a_child_that_closes_its_input_and_keeps_running_is_stopped() {
    let expected = broken("a closed standard input", "");
    assert_breaks_the_protocol([Step::CloseInput, Step::Hang], expected).await;
}

#[actix_rt::test]
async fn an_extra_line_after_the_last_answer_turns_it_into_an_error() {
    let child = rogue([Step::Print("\"forged\"\n[\"rogue\"]".into())]);
    let pool = builder(&child).start();
    let [client, other] = pool.clients(["rogue", "other"]).await;
    let what = "more answers than prompts, as when a function prints,";
    let expected = broken(what, "[\"rogue\"]");
    assert_eq!(client.prompts("[\"rogue\"]").await, Err(expected));
    assert_only_that_process_is_lost(pool, client, other).await;
}

#[actix_rt::test]
async fn log_lines_after_the_last_answer_are_logged_and_the_answer_is_valid() {
    let child = rogue([Step::Print("1\n[\"log\",\"behind\"]".into())]);
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    assert_eq!(client.prompts("[\"rogue\"]").await.as_deref(), Ok("1"));
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn prompts_of_a_child_can_be_read_when_its_pool_is_gone() {
    let child = rogue([Step::Echo]);
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    assert!(client.prompts("[\"rogue\"]").await.is_ok());
    client.returns().await;
    pool.assert_quiet().await;
    assert_eq!(child.prompts(), ["[\"rogue\"]"]);
    assert_eq!(child.started().len(), 1);
}

#[actix_rt::test]
async fn a_second_answer_is_never_the_answer_to_the_next_prompt() {
    let child = rogue([Step::Echo, Step::Await("second"), Step::answer("\"twice\"")]);
    let pool = builder(&child).start();
    let [client, other] = pool.clients(["rogue", "other"]).await;
    assert_eq!(
        client.prompts("[\"rogue\"]").await.as_deref(),
        Ok("[\"rogue\"]")
    );
    child.release("second");
    let shared = &client.lease().process.shared;
    eventually("the second line is seen", async || {
        shared.exit_error().is_some()
    })
    .await;
    let expected = broken("output that nobody asked for", "\"twice\"");
    assert_eq!(client.prompts("[\"next\"]").await, Err(expected));
    assert!(!child.prompts().contains(&"[\"next\"]".to_owned()));
    assert_only_that_process_is_lost(pool, client, other).await;
}

#[actix_rt::test]
async fn a_process_that_answered_twice_is_not_lent_to_the_next_client() {
    let child = rogue([Step::Print("1\n2".into())]);
    let pool = builder(&child).hard_limit(1).start();
    let (mut client, mut next) = (pool.client("rogue"), pool.client("next"));
    client.takes(pool.any()).await;
    next.asks(pool.any());
    assert!(client.prompts("[\"rogue\"]").await.is_err());
    client.returns().await;
    assert_eq!(next.answer().await, Ok(()));
    assert_ne!(next.proc(), client.last_proc());
    assert_eq!(next.prompts("[\"x\"]").await.as_deref(), Ok("[\"x\"]"));
    next.returns().await;
    pool.assert_quiet().await;
}

/// Makes a child print `late` after its answer, and returns before any actor can have read it.
async fn prompt_after(late: Step) -> (ScriptedChild, TestPool, [TestClient; 2]) {
    let steps = [Step::Echo, Step::Await("late"), late, Step::Mark("late")];
    let child = ScriptedChild::new(
        Script::echo()
            .on("rogue", steps)
            .on("rest", [Step::answer("\"x\"]"), Step::answer("true")]),
    );
    let pool = builder(&child).start();
    let clients = pool.clients(["rogue", "other"]).await;
    let answer = clients[0].prompts("[\"rogue\"]").await;
    assert_eq!(answer.as_deref(), Ok("[\"rogue\"]"));
    child.release("late");
    // Blocks the arbiter on purpose: the line is in the pipe, and no actor can have seen it.
    let mark = child.folder().join("mark-late");
    let deadline = Instant::now() + PATIENCE;
    while !mark.exists() {
        assert!(Instant::now() < deadline, "the child prints its late line");
        std::thread::yield_now();
    }
    (child, pool, clients)
}

#[actix_rt::test]
async fn a_stale_line_before_a_prompt_is_not_its_answer() {
    let (child, pool, [client, other]) = prompt_after(Step::answer("\"late\"")).await;
    let expected = broken("output that nobody asked for", "\"late\"");
    assert_eq!(client.prompts("[\"next\"]").await, Err(expected));
    assert!(!child.prompts().contains(&"[\"next\"]".to_owned()));
    assert_only_that_process_is_lost(pool, client, other).await;
}

#[actix_rt::test]
async fn a_stale_partial_line_before_a_prompt_is_not_part_of_its_answer() {
    let (_child, pool, [client, other]) = prompt_after(Step::PrintPart("1".into())).await;
    let answer = client.prompts("[\"add_fun\"]").await;
    // The stale "1" and the answer "true" are both JSON, but "1true" is not. A stale "1" before "2" would read as 12.
    assert!(
        matches!(answer, Err(PromptError::Protocol { .. })),
        "{answer:?}"
    );
    assert_only_that_process_is_lost(pool, client, other).await;

    let (_child, pool, [client, other]) = prompt_after(Step::PrintPart("[".into())).await;
    let answer = client.prompts("[\"rest\"]").await;
    let expected = broken("output that nobody asked for", "[\"x\"]");
    assert_eq!(answer, Err(expected));
    assert_only_that_process_is_lost(pool, client, other).await;
}

#[actix_rt::test]
async fn a_stale_half_log_line_is_only_logged() {
    let (_child, pool, [mut client, mut other]) =
        prompt_after(Step::PrintPart("[\"log\",".into())).await;
    assert_eq!(client.prompts("[\"rest\"]").await.as_deref(), Ok("true"));
    client.returns().await;
    other.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn log_lines_are_never_answers() {
    let child = rogue([
        Step::log("before"),
        Step::answer("[\"log\"]"),
        Step::answer("[ \"lo\\u0067\", {\"a\":1}, 2]"),
        Step::answer("[\"logs\",\"x\"]"),
        Step::log("after"),
        Step::Mark("after"),
    ]);
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let answer = client.prompts("[\"rogue\"]").await;
    assert_eq!(answer.as_deref(), Ok("[\"logs\",\"x\"]"));
    child.reached("after").await;
    assert_eq!(client.prompts("[\"x\"]").await.as_deref(), Ok("[\"x\"]"));
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn an_answer_can_arrive_in_pieces() {
    let child = rogue([
        Step::PrintPart("[1,".into()),
        Step::Mark("half"),
        Step::Await("rest"),
        Step::answer("2]"),
    ]);
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let sent = client.sends("[\"rogue\"]");
    child.reached("half").await;
    child.release("rest");
    assert_eq!(sent.answer().await.as_deref(), Ok("[1,2]"));
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn an_error_line_is_the_answer_and_the_process_survives() {
    let child = rogue([Step::answer("[\"error\",\"not_found\",{\"a\":[\"b\"]}]")]);
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let error = client.prompts("[\"rogue\"]").await.unwrap_err();
    let expected = PromptError::Function {
        name: "not_found".into(),
        reason: "{\"a\":[\"b\"]}".into(),
        raw_reason: "{\"a\":[\"b\"]}".into(),
        fatal: false,
    };
    assert_eq!(error, expected);
    assert_eq!(client.prompts("[\"x\"]").await.as_deref(), Ok("[\"x\"]"));
    assert!(client.returns().await);
    let first = client.last_proc();
    client.takes(pool.any()).await;
    assert_eq!(client.proc(), first);
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_fatal_line_is_the_answer_and_the_process_is_stopped() {
    // A child should exit by itself; this one does not.
    let child = rogue([Step::fatal("query_protocol_error", "no"), Step::Hang]);
    let pool = builder(&child).start();
    let [client, other] = pool.clients(["rogue", "other"]).await;
    let (first, second) = (client.sends("[\"rogue\"]"), client.sends("[\"x\"]"));
    let fatal = PromptError::Function {
        name: "query_protocol_error".into(),
        reason: "no".into(),
        raw_reason: "\"no\"".into(),
        fatal: true,
    };
    assert_eq!(first.answer().await, Err(fatal));
    let error = second.answer().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the prompt was not run, because an earlier one ended the process: query_protocol_error: no"
    );
    assert_only_that_process_is_lost(pool, client, other).await;
}
