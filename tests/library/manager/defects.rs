//! Regression tests for the defects of couch_proc_manager (D1 to D16), on real actors and real
//! children, or on fakes under paused time where only time matters.
//!
//! Further tests of D1, D4 and D5 are in `children/start.rs`.

use std::time::Duration;

use settee::messages::proc_manager::{GetProcError, RetProc};
use settee::messages::process::PromptError;
use settee::policy::pool::{Phase, ReturnStatus};
use settee::query_server::ddoc::Ddoc;
use settee_testkit::{
    FakeAnswer, FakeLanguage, FakeStart, Script, ScriptedChild, Step, TestPool, eventually,
};

const SECOND: Duration = Duration::from_secs(1);

/// The phase in which a request timed out, and after how many seconds; timers may be a few milliseconds late.
fn timeout_of(error: GetProcError) -> (Phase, u64) {
    match error {
        GetProcError::Timeout { phase, waited, .. } if waited.subsec_millis() < 10 => {
            (phase, waited.as_secs())
        }
        other => panic!("not a punctual timeout: {other}"),
    }
}

fn list_child() -> ScriptedChild {
    ScriptedChild::new(
        Script::echo()
            .on_text(
                "\"lists\"",
                [Step::answer("[\"start\",[],{\"headers\":{}}]")],
            )
            .on("list_row", [Step::answer("[\"chunks\",[]]")])
            .on("list_end", [Step::answer("[\"end\",[]]")]),
    )
}

const OPEN_LIST: &str = r#"["ddoc","_design/a",["lists","l"],[{},{}]]"#;

/// D1b, D13: the next client gets a process without an open list.
#[actix_rt::test]
async fn d1b_a_process_whose_client_dies_mid_list_is_replaced() {
    for rows in 0..2 {
        let pool = TestPool::builder()
            .hard_limit(1)
            .script("x", &list_child())
            .start();
        let mut client = pool.client("1");
        client.takes(pool.ddoc("db", "_design/a")).await;
        client.prompts(OPEN_LIST).await.unwrap();
        for _ in 0..rows {
            client.prompts("[\"list_row\",{}]").await.unwrap();
        }
        let lost = client.proc();
        client.dies();
        let mut next = pool.client("2");
        next.takes(pool.ddoc("db", "_design/b")).await;
        assert_ne!(next.proc(), lost);
        next.returns().await;
        pool.assert_quiet().await;
    }
}

#[actix_rt::test]
async fn d1b_a_process_whose_list_has_ended_is_reused() {
    let pool = TestPool::builder()
        .hard_limit(1)
        .script("x", &list_child())
        .start();
    let mut client = pool.client("1");
    client.takes(pool.ddoc("db", "_design/a")).await;
    for line in [OPEN_LIST, "[\"list_row\",{}]", "[\"list_end\"]"] {
        client.prompts(line).await.unwrap();
    }
    let first = client.proc();
    client.returns().await;
    client.takes(pool.ddoc("db", "_design/b")).await;
    assert_eq!(client.proc(), first);
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn d3_an_opener_that_fails_hangs_or_panics_frees_its_slot_and_answers_its_client() {
    tokio::time::pause();
    let fake = FakeLanguage::new().starts(|number| match number {
        1 => FakeStart::Fails("no luck".into()),
        2 => FakeStart::Hangs,
        3 => panic!("a language that panics while starting a process (meant to happen)"),
        _ => FakeStart::Runs,
    });
    let pool = TestPool::builder()
        .hard_limit(1)
        .language("x", fake.clone())
        .start();
    let mut client = pool.client("1");
    let error = client.is_refused(pool.any()).await;
    assert!(error.to_string().ends_with("no luck"), "{error}");
    let error = client.is_refused(pool.any()).await;
    assert!(matches!(
        error,
        GetProcError::SpawnFailed { .. }
            | GetProcError::Timeout {
                phase: Phase::Open,
                ..
            }
    ));
    // A hanging opener outlasts a client's default timeout.
    client.asks_within(pool.any(), Some(Duration::from_secs(60)));
    let error = client.answer().await.unwrap_err();
    assert!(matches!(error, GetProcError::SpawnFailed { .. }), "{error}");
    client.takes(pool.any()).await;
    client.returns().await;
    assert_eq!(fake.start_count(), 4);
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn d6_a_process_opened_to_replenish_the_pool_serves_waiters() {
    tokio::time::pause();
    let fake = FakeLanguage::new().starts(|number| match number {
        1 => FakeStart::Runs,
        _ => FakeStart::RunsAfter(SECOND),
    });
    let pool = TestPool::builder()
        .hard_limit(2)
        .language("x", fake)
        .start();
    let mut first = pool.client("1");
    first.takes(pool.any()).await;
    first.returns().await;
    first.takes(pool.ddoc("db", "_design/a")).await;
    assert_eq!(pool.status().await.opening, 1);
    let mut second = pool.client("2");
    second.asks(pool.any());
    assert!(second.is_waiting().await);
    assert_eq!(second.answer().await, Ok(()));
    first.returns().await;
    second.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn d7_a_client_that_times_out_while_its_process_starts_keeps_no_slot() {
    tokio::time::pause();
    let fake = FakeLanguage::new().starts(|_| FakeStart::RunsAfter(3 * SECOND));
    let pool = TestPool::builder()
        .hard_limit(1)
        .language("x", fake.clone())
        .start();
    let mut client = pool.client("1");
    let error = client.asks_within(pool.any(), Some(SECOND)).answer().await;
    assert_eq!(timeout_of(error.unwrap_err()), (Phase::Open, 1));
    // The start continues and serves the next client.
    let mut next = pool.client("2");
    next.takes(pool.any()).await;
    next.returns().await;
    assert_eq!((fake.start_count(), pool.status().await.free), (1, 1));
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn d8_a_second_return_of_the_same_process_changes_nothing() {
    let child = ScriptedChild::new(Script::echo());
    let pool = TestPool::builder().script("x", &child).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let again = return_of(&client);
    assert!(client.returns().await);
    for _ in 0..2 {
        assert!(!pool.manager().send(again()).await.unwrap());
    }
    assert_eq!(pool.status().await.free, 1);
    pool.assert_quiet().await;
}

/// Returns a closure that builds the same return each time.
fn return_of(client: &settee_testkit::TestClient) -> impl Fn() -> RetProc + use<> {
    let lease = client.lease();
    let (client, proc, token) = (lease.client, lease.proc, lease.token);
    move || RetProc {
        client,
        proc,
        token,
        status: ReturnStatus::Ok,
    }
}

#[actix_rt::test]
async fn d9_a_late_return_by_the_former_holder_changes_nothing() {
    let child = ScriptedChild::new(Script::echo());
    let pool = TestPool::builder()
        .hard_limit(1)
        .script("x", &child)
        .start();
    let mut former = pool.client("former");
    former.takes(pool.any()).await;
    let late = return_of(&former);
    former.returns().await;
    let mut present = pool.client("present");
    present.takes(pool.any()).await;
    assert_eq!(present.proc(), former.last_proc());
    // A return that claims to come from the present holder changes nothing either.
    let mut forged = late();
    forged.client = present.lease().client;
    assert!(!pool.manager().send(late()).await.unwrap());
    assert!(!pool.manager().send(forged).await.unwrap());
    let mut third = pool.client("third");
    third.asks(pool.any());
    assert!(third.is_waiting().await);
    assert_eq!(present.prompts("[1]").await.as_deref(), Ok("[1]"));
    assert!(present.returns().await);
    assert!(third.ping().await);
    third.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn d10_waiters_are_served_after_a_reload_and_after_an_idle_close() {
    // A waiter, and an idle process that cannot serve it.
    let child = ScriptedChild::new(Script::echo());
    let mut pool = TestPool::builder()
        .hard_limit(2)
        .settings(|settings| settings.limits.affinity_wait = 60 * SECOND)
        .script("x", &child)
        .start();
    let (mut a, mut b) = (pool.client("a"), pool.client("b"));
    a.takes(pool.ddoc("a", "_design/1")).await;
    b.takes(pool.ddoc("b", "_design/1")).await;
    b.returns().await;
    // Waits for a's process rather than evict b's.
    let mut waiter = pool.client("waiter");
    waiter.asks(pool.ddoc("a", "_design/1"));
    assert!(waiter.is_waiting().await);
    pool.reload().await;
    assert_eq!(waiter.answer().await, Ok(()));
    assert_ne!(waiter.proc(), a.proc());
    a.returns().await;
    waiter.returns().await;
    assert_eq!(pool.stale_proc_count().await, 0);

    // The same with an idle close, after 200 ms.
    pool.reconfigure(|settings| settings.idle_limit = SECOND / 5)
        .await;
    pool.reload().await;
    a.takes(pool.ddoc("a", "_design/1")).await;
    b.takes(pool.ddoc("b", "_design/1")).await;
    b.returns().await;
    waiter.asks(pool.ddoc("a", "_design/1"));
    assert!(waiter.is_waiting().await);
    assert_eq!(waiter.answer().await, Ok(()));
    assert_ne!(waiter.proc(), a.proc());
    a.returns().await;
    waiter.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn d11_waiters_are_served_once_the_limit_is_raised_from_zero() {
    let child = ScriptedChild::new(Script::echo());
    let mut pool = TestPool::builder()
        .hard_limit(0)
        .script("x", &child)
        .start();
    let (mut first, mut second) = (pool.client("1"), pool.client("2"));
    first.asks(pool.any());
    second.asks(pool.ddoc("db", "_design/a"));
    assert!(first.is_waiting().await && second.is_waiting().await);
    assert_eq!((pool.proc_count().await, child.started().len()), (0, 0));
    pool.reconfigure(|settings| settings.limits.hard_limit = 2)
        .await;
    assert_eq!(
        (first.answer().await, second.answer().await),
        (Ok(()), Ok(()))
    );
    first.returns().await;
    second.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn with_a_limit_of_zero_requests_time_out_in_the_queue() {
    tokio::time::pause();
    let pool = TestPool::builder()
        .hard_limit(0)
        .language("x", FakeLanguage::new())
        .start();
    let error = pool.client("1").is_refused(pool.any()).await;
    assert_eq!(timeout_of(error), (Phase::Queue, 5));
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn d12_a_changed_timeout_applies_to_the_next_request() {
    tokio::time::pause();
    let mut pool = TestPool::builder()
        .hard_limit(0)
        .language("x", FakeLanguage::new())
        .start();
    pool.reconfigure(|settings| settings.os_process_timeout = SECOND)
        .await;
    let error = pool.client("1").is_refused(pool.any()).await;
    assert_eq!(timeout_of(error), (Phase::Queue, 1));
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn d16_upper_and_lower_case_spellings_of_a_language_share_one_pool_and_one_limit() {
    let child = ScriptedChild::new(Script::echo());
    let pool = TestPool::builder()
        .hard_limit(1)
        .script("JavaScript", &child)
        .start();
    let mut client = pool.client("1");
    client.takes(pool.any_of("javascript")).await;
    let mut other = pool.client("2");
    for spelling in ["JAVASCRIPT", "JavaScript", "javascript"] {
        other.asks(pool.any_of(spelling));
        assert!(other.is_waiting().await, "{spelling}");
    }
    client.returns().await;
    assert!(other.ping().await);
    assert_eq!(other.proc(), client.last_proc());
    other.returns().await;
    let plain = Ddoc::parse(r#"{"_id":"_design/a","_rev":"1-a"}"#).unwrap();
    assert_eq!(plain.language.as_str(), "javascript");
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_waiter_that_timed_out_is_not_served_later() {
    tokio::time::pause();
    let pool = TestPool::builder()
        .hard_limit(1)
        .language("x", FakeLanguage::new())
        .start();
    let (mut holder, mut waiter) = (pool.client("holder"), pool.client("waiter"));
    holder.takes(pool.any()).await;
    let answer = waiter.asks_within(pool.any(), Some(SECOND)).answer().await;
    assert_eq!(timeout_of(answer.unwrap_err()), (Phase::Queue, 1));
    holder.returns().await;
    assert_eq!(
        (pool.status().await.free, pool.status().await.waiting),
        (1, 0)
    );
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn simulated_prompts_time_out_in_simulated_time() {
    tokio::time::pause();
    let fake = FakeLanguage::new().answers(|prompt| match prompt {
        "[\"slow\"]" => FakeAnswer::After(3 * SECOND, "1".into()),
        "[\"never\"]" => FakeAnswer::Never,
        "[\"exit\"]" => FakeAnswer::Exits,
        other => FakeAnswer::Now(other.to_owned()),
    });
    let pool = TestPool::builder().language("x", fake).start();
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let began = tokio::time::Instant::now();
    assert_eq!(client.prompts("[\"slow\"]").await.as_deref(), Ok("1"));
    assert!(began.elapsed() >= 3 * SECOND && began.elapsed() < 4 * SECOND);
    let expected = PromptError::Timeout {
        timeout: 5 * SECOND,
        command: settee::query_server::prompt::Command::Other,
        held_back: false,
        tenant_key: None,
    };
    assert_eq!(client.prompts("[\"never\"]").await, Err(expected));
    client.lets_go();
    client.takes(pool.any()).await;
    let error = client.prompts("[\"exit\"]").await.unwrap_err();
    assert!(matches!(error, PromptError::Exited(_)), "{error}");
    client.lets_go();
    eventually("both processes have ended", async || {
        pool.proc_count().await == 0
    })
    .await;
    pool.assert_quiet().await;
}
