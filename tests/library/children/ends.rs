//! Children that exit by themselves, on request or by force, together with everything they started.

use std::time::{Duration, Instant};

use settee::messages::process::{ExitReport, Fault, PromptError};
use settee::otp::supervisor::Stop;
use settee_testkit::{
    PATIENCE, Script, ScriptedChild, Step, TestPool, TestPoolBuilder, eventually,
};

/// Grace for a child to exit.
const GRACE: Duration = Duration::from_millis(600);

fn builder(child: &ScriptedChild) -> TestPoolBuilder {
    TestPool::builder()
        .hard_limit(2)
        .settings(|settings| settings.stop_grace = GRACE)
        .script("javascript", child)
}

fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    status.is_ok_and(|text| !text.contains(") Z "))
}

fn exit_report(exit: &str, status: i32, stderr: &[&str]) -> PromptError {
    PromptError::Exited(ExitReport {
        exit: Some(exit.to_owned()),
        status: Some(status),
        stderr: stderr.iter().map(|line| (*line).to_owned()).collect(),
        ..ExitReport::default()
    })
}

/// Makes a child exit on the prompt `["rogue"]`. Asserts that its client gets `expected`, for a later prompt as well,
/// that its slot is free, and that the other process continues.
async fn assert_ends(steps: impl Into<Vec<Step>>, expected: PromptError) {
    let child = ScriptedChild::new(Script::echo().on("rogue", steps));
    let pool = builder(&child).start();
    let [mut client, mut other] = pool.clients(["rogue", "other"]).await;
    let both = [client.sends("[\"rogue\"]"), client.sends("[\"next\"]")];
    for sent in both {
        assert_eq!(sent.answer().await, Err(expected.clone()));
    }
    assert_eq!(
        (expected.fault(), expected.retryable()),
        (Fault::QueryServer, true)
    );
    pool.becomes("the slot is free", |pool| pool.procs.len() == 1)
        .await;
    assert!(matches!(
        client.prompts("[1]").await,
        Err(PromptError::Exited(_))
    ));
    assert!(!client.returns().await, "an exited process is not held");
    client.takes(pool.any()).await;
    assert_eq!(client.prompts("[1]").await.as_deref(), Ok("[1]"));
    assert_eq!(other.prompts("[2]").await.as_deref(), Ok("[2]"));
    client.returns().await;
    other.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn an_exit_during_a_prompt_is_reported_with_status_and_last_words() {
    let steps = [
        Step::Complain("Traceback:".into()),
        Step::Complain(String::new()),
        Step::Complain("MemoryError".into()),
        Step::Exit(3),
    ];
    let expected = exit_report("exited with status 3", 3, &["Traceback:", "MemoryError"]);
    assert_eq!(
        expected.to_string(),
        "the query server exited with status 3; its last words: Traceback: | MemoryError"
    );
    assert_ends(steps, expected).await;
}

#[actix_rt::test]
async fn a_clean_exit_during_a_prompt_is_an_error_too() {
    assert_ends([Step::Exit(0)], exit_report("exited with status 0", 0, &[])).await;
}

#[actix_rt::test]
async fn an_incomplete_answer_is_discarded_when_its_child_exits() {
    let steps = [Step::PrintPart("true".into()), Step::Exit(1)];
    assert_ends(steps, exit_report("exited with status 1", 1, &[])).await;
}

#[actix_rt::test]
async fn a_signal_is_reported_by_name_and_as_a_shell_status() {
    let crash = exit_report("was killed by SIGSEGV (it crashed)", 139, &[]);
    assert_ends([Step::Signal("SEGV")], crash).await;
    let kill = exit_report("was killed by SIGKILL", 137, &[]);
    assert_ends([Step::Signal("KILL")], kill).await;
}

#[actix_rt::test]
async fn a_refused_system_call_is_reported_with_the_signal() {
    let words = "settee couchjs: refused system call ptrace (101)";
    let steps = [Step::Complain(words.into()), Step::Signal("SYS")];
    let expected = exit_report(
        "was killed by SIGSYS (a forbidden system call)",
        159,
        &[words],
    );
    assert_ends(steps, expected).await;
}

#[actix_rt::test]
async fn the_last_ten_lines_of_stderr_are_kept() {
    let mut steps: Vec<Step> = (0..50).map(|n| Step::Complain(n.to_string())).collect();
    steps.push(Step::Exit(1));
    let kept: Vec<String> = (40..50).map(|n| n.to_string()).collect();
    let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
    assert_ends(steps, exit_report("exited with status 1", 1, &kept)).await;
}

#[actix_rt::test]
async fn an_answer_before_the_exit_is_delivered() {
    for status in [0, 3] {
        let steps = [Step::Echo, Step::Exit(status)];
        let child = ScriptedChild::new(Script::echo().on("rogue", steps));
        let pool = builder(&child).start();
        let mut client = pool.client("1");
        client.takes(pool.any()).await;
        let (first, second) = (client.sends("[\"rogue\"]"), client.sends("[\"next\"]"));
        assert_eq!(first.answer().await.as_deref(), Ok("[\"rogue\"]"));
        let expected = exit_report(
            &format!("exited with status {status}"),
            i32::from(status),
            &[],
        );
        assert_eq!(second.answer().await, Err(expected));
        client.lets_go();
        pool.becomes("the process is gone", |pool| pool.procs.is_empty())
            .await;
        pool.assert_quiet().await;
    }
}

#[actix_rt::test]
async fn a_prompt_to_a_dead_process_returns_its_exit_report() {
    let steps = [
        Step::Await("end"),
        Step::Complain("no such script".into()),
        Step::Exit(2),
    ];
    let child = ScriptedChild::new(Script::echo().on("x", steps));
    let pool = builder(&child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    drop(client.sends("[\"x\"]"));
    child.release("end");
    pool.becomes("the process is gone", |pool| pool.procs.is_empty())
        .await;
    let expected = exit_report("exited with status 2", 2, &["no such script"]);
    assert_eq!(client.prompts("[1]").await, Err(expected));
    assert!(!client.returns().await);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_child_that_exits_while_idle_leaves_the_pool() {
    let child = ScriptedChild::new(
        Script::echo().on("rogue", [Step::Echo, Step::Await("end"), Step::Exit(1)]),
    );
    let pool = builder(&child).hard_limit(1).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    assert!(client.prompts("[\"rogue\"]").await.is_ok());
    client.returns().await;
    assert_eq!(pool.status().await.free, 1);
    child.release("end");
    pool.becomes("the process is gone", |pool| pool.procs.is_empty())
        .await;
    client.takes(pool.any()).await;
    assert_eq!(pool.started().len(), 2);
    client.returns().await;
    pool.assert_quiet().await;
}

/// Reloads a pool with one idle process, and returns how long the process took to exit.
async fn time_to_end(script: Script, grace: Duration) -> Duration {
    let child = ScriptedChild::new(script);
    let pool = builder(&child)
        .settings(|settings| settings.stop_grace = grace)
        .start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    client.returns().await;
    let begun = Instant::now();
    pool.reload().await;
    assert_eq!(pool.proc_count().await, 0, "the slot is free at once");
    pool.becomes("the process has exited", |pool| pool.stopping == 0)
        .await;
    let took = begun.elapsed();
    pool.stop_at_once().await;
    took
}

#[actix_rt::test]
async fn a_child_can_exit_by_itself_at_end_of_input() {
    let grace = PATIENCE * 4;
    let took = time_to_end(Script::echo(), grace).await;
    assert!(took < grace / 2, "{took:?}");
}

#[actix_rt::test]
async fn a_child_that_ignores_end_of_input_gets_sigterm() {
    let (script, grace) = (Script::echo(), Duration::from_secs(10));
    let took = time_to_end(script.at_end_of_input([Step::Hang]), grace).await;
    assert!(took >= grace / 2 && took < grace, "{took:?}");
}

#[actix_rt::test]
async fn a_child_that_ignores_sigterm_is_killed_after_the_grace() {
    let script = Script::echo()
        .at_start([Step::IgnoreTerm])
        .at_end_of_input([Step::Hang]);
    let took = time_to_end(script, GRACE).await;
    assert!(took >= GRACE, "{took:?}");
}

#[actix_rt::test]
async fn descendants_of_a_child_are_killed_however_it_exits() {
    for end in [Step::Echo, Step::Exit(0), Step::Hang, Step::Signal("KILL")] {
        let steps = [Step::Grandchild, Step::Mark("born"), end];
        let child = ScriptedChild::new(Script::echo().on("rogue", steps));
        let pool = builder(&child).timeout(Duration::from_secs(3)).start();
        let mut client = pool.client("1");
        client.takes(pool.any()).await;
        let sent = client.sends("[\"rogue\"]");
        child.reached("born").await;
        let [grandchild] = child.grandchildren()[..] else {
            panic!("the child has one grandchild: {:?}", child.grandchildren());
        };
        drop(sent.answer().await);
        // The grandchild holds the pipes, and must not delay anything.
        client.lets_go();
        pool.reload().await;
        pool.becomes("the process is gone", |pool| {
            pool.procs.len() + pool.stopping as usize == 0
        })
        .await;
        eventually("the grandchild is gone", async || !is_alive(grandchild)).await;
        pool.assert_quiet().await;
    }
}

#[actix_rt::test]
async fn a_detached_descendant_that_floods_the_output_delays_nothing() {
    // In a session of its own, the descendant survives the kill of the process group.
    let text =
        "true; setsid yes '[\"log\",\"x\"]' & echo $! >> \"$folder/grandchildren\"; exit 0 #";
    let folder = ScriptedChild::new(Script::echo());
    let program = format!(
        "folder='{}'; read -r line; echo true; read -r line; {text}",
        folder.folder().display()
    );
    let path = folder.folder().join("stranger.sh");
    std::fs::write(&path, program).unwrap();
    let pool = TestPool::builder()
        .script("unused", &folder)
        .command("stranger", &format!("/bin/sh {}", path.display()))
        .start();
    let mut client = pool.client("1");
    client.takes(pool.any_of("stranger")).await;
    let answer = client.prompts("[\"go\"]").await;
    assert!(matches!(answer, Err(PromptError::Exited(_))), "{answer:?}");
    client.lets_go();
    eventually("the descendant dies of the closed pipe", async || {
        folder.grandchildren().iter().all(|pid| !is_alive(*pid))
    })
    .await;
    pool.assert_quiet().await;
}

/// Starts a pool with two children that ignore SIGTERM, one of them lent.
async fn stubborn_pool(grace: Duration) -> (TestPool, ScriptedChild, settee_testkit::TestClient) {
    let child = ScriptedChild::new(
        Script::echo()
            .at_start([Step::IgnoreTerm, Step::Grandchild])
            .on("rogue", [Step::Mark("asked"), Step::Hang])
            .at_end_of_input([Step::Hang]),
    );
    let pool = builder(&child)
        .settings(|settings| settings.stop_grace = grace)
        .start();
    let [client, mut other] = pool.clients(["1", "2"]).await;
    other.returns().await;
    eventually("both have grandchildren", async || {
        child.grandchildren().len() == 2
    })
    .await;
    (pool, child, client)
}

#[actix_rt::test]
async fn no_child_is_left_after_a_clean_shutdown() {
    let (pool, child, client) = stubborn_pool(GRACE).await;
    let sent = client.sends("[\"rogue\"]");
    child.reached("asked").await;
    pool.manager().send(Stop { now: false }).await.unwrap();
    let error = sent.answer().await.unwrap_err();
    assert!(matches!(error, PromptError::Exited(_)), "{error}");
    pool.assert_gone().await;
}

#[actix_rt::test]
async fn an_immediate_shutdown_does_not_wait_for_the_grace() {
    let (pool, child, client) = stubborn_pool(Duration::from_secs(100)).await;
    let sent = client.sends("[\"rogue\"]");
    child.reached("asked").await;
    pool.manager().send(Stop { now: false }).await.unwrap();
    assert!(
        pool.pid().is_alive(),
        "the pool waits for the other child's grace"
    );
    pool.manager().send(Stop { now: true }).await.unwrap();
    assert!(sent.answer().await.is_err());
    pool.assert_gone().await;
}
