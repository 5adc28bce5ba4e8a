//! A process that survives an error is lent again; one that exits after it, or closes its output, is not.

use settee_testkit::{Script, ScriptedChild, Step, TestPool, eventually};

use crate::support::program::SETTEE;

/// Rounds of two clients each.
const ROUNDS: usize = 200;

/// In each round a client gets an error and returns its process; the next client gets a process that works.
async fn assert_next_clients_are_served(pool: TestPool, error: &str) {
    for round in 0..ROUNDS {
        let mut client = pool.client("1");
        client.takes(pool.any()).await;
        client.prompts(error).await.unwrap_err();
        client.returns().await;
        let mut next = pool.client("2");
        next.takes(pool.any()).await;
        let answer = next.prompts("[\"reset\",{}]").await;
        assert_eq!(answer.as_deref(), Ok("true"), "round {round}");
        assert!(next.returns().await);
    }
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn the_built_in_server_that_exits_on_an_error_is_not_lent_again() {
    let command = format!("{} couchjs", SETTEE);
    let pool = TestPool::builder().command("javascript", &command).start();
    assert_next_clients_are_served(pool, "[\"no such command\"]").await;
}

#[actix_rt::test]
async fn a_query_server_that_reports_an_error_and_exits_is_not_lent_again() {
    let child =
        ScriptedChild::new(Script::echo().on("bad", [Step::error("bad", "so"), Step::Exit(1)]));
    let pool = TestPool::builder().script("scripted", &child).start();
    assert_next_clients_are_served(pool, "[\"bad\"]").await;
}

#[actix_rt::test]
async fn a_query_server_that_reports_a_fatal_error_is_not_lent_again() {
    let child =
        ScriptedChild::new(Script::echo().on("bad", [Step::fatal("bad", "so"), Step::Hang]));
    let pool = TestPool::builder().script("scripted", &child).start();
    assert_next_clients_are_served(pool, "[\"bad\"]").await;
}

#[actix_rt::test]
async fn a_process_that_survives_an_error_is_lent_again() {
    let child = ScriptedChild::new(Script::echo().on("bad", [Step::error("bad", "so")]));
    let pool = TestPool::builder().script("scripted", &child).start();
    for _ in 0..3 {
        let mut client = pool.client("1");
        client.takes(pool.any()).await;
        client.prompts("[\"bad\"]").await.unwrap_err();
        assert!(client.returns().await);
    }
    assert_eq!(pool.started().len(), 1);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_process_that_closed_its_output_is_not_lent_again() {
    let closes = [
        Step::Echo,
        Step::CloseOutput,
        Step::Mark("closed"),
        Step::Hang,
    ];
    let child = ScriptedChild::new(Script::echo().on("bad", closes));
    let pool = TestPool::builder().script("scripted", &child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    client.prompts("[\"bad\"]").await.unwrap();
    child.reached("closed").await;
    client.returns().await;
    // Regardless of whether the end of its output is read before the return or after it.
    eventually("the process is gone", async || pool.proc_count().await == 0).await;
    client.takes(pool.any()).await;
    assert_eq!(client.prompts("[1]").await.as_deref(), Ok("[1]"));
    assert!(client.returns().await);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn an_idle_process_that_closes_its_output_is_stopped() {
    let closes = [Step::Echo, Step::Await("go"), Step::CloseOutput, Step::Hang];
    let child = ScriptedChild::new(Script::echo().on("bad", closes));
    let pool = TestPool::builder().script("scripted", &child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    client.prompts("[\"bad\"]").await.unwrap();
    assert!(client.returns().await);
    child.release("go");
    eventually("the process is gone", async || pool.proc_count().await == 0).await;
    pool.assert_quiet().await;
}
