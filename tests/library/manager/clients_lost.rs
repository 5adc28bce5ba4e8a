//! Clients that die, let go, or give up, and a manager that dies: held processes are reset or replaced, pending
//! requests are dropped, and no process is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use settee::actors::language::{Language, StartContext};
use settee::actors::proc_manager::ReloadConfig;
use settee::messages::opener::StartError;
use settee::messages::process::ProcessRef;
use settee::otp::pid::{Down, ExitReason};
use settee_testkit::{PATIENCE, Probe, Script, ScriptedChild, Step, TestPool};

fn pool_of_one(child: &ScriptedChild) -> TestPool {
    TestPool::builder().hard_limit(1).script("x", child).start()
}

#[actix_rt::test]
async fn processes_of_a_dead_client_are_reset_before_the_next_loan() {
    let child = ScriptedChild::new(Script::echo());
    let pool = pool_of_one(&child);
    let (mut first, mut next) = (pool.client("1"), pool.client("2"));
    first.takes(pool.any()).await;
    first.prompts("[\"add_fun\",\"mine\"]").await.unwrap();
    let proc = first.proc();
    next.asks(pool.any());
    first.dies();
    assert_eq!(next.answer().await, Ok(()));
    assert_eq!(next.proc(), proc);
    assert_eq!(
        child.prompts(),
        ["[\"add_fun\",\"mine\"]", "[\"reset\",{}]"]
    );
    next.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn released_processes_are_reset_only_if_they_were_used() {
    let child = ScriptedChild::new(Script::echo());
    let pool = pool_of_one(&child);
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let proc = client.proc();
    client.lets_go();
    client.takes(pool.any()).await;
    assert_eq!(child.prompts(), [""; 0], "an unused process is not reset");
    client.prompts("[\"add_fun\",\"mine\"]").await.unwrap();
    client.lets_go();
    client.takes(pool.any()).await;
    assert_eq!(client.proc(), proc);
    assert_eq!(
        child.prompts().last().map(String::as_str),
        Some("[\"reset\",{}]")
    );
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_process_that_fails_its_reset_is_replaced() {
    for steps in [
        vec![Step::error("no", "reset")],
        vec![Step::answer("false")],
        vec![Step::Hang],
        vec![Step::Exit(1)],
    ] {
        let child = ScriptedChild::new(Script::echo().on("reset", steps));
        let pool = TestPool::builder()
            .hard_limit(1)
            .timeout(Duration::from_secs(3))
            .script("x", &child)
            .start();
        let (mut first, mut next) = (pool.client("1"), pool.client("2"));
        first.takes(pool.any()).await;
        first.prompts("[1]").await.unwrap();
        let lost = first.proc();
        first.dies();
        next.asks_within(pool.any(), Some(PATIENCE));
        assert_eq!(next.answer().await, Ok(()));
        assert_ne!(next.proc(), lost);
        next.returns().await;
        pool.assert_quiet().await;
    }
}

#[actix_rt::test]
async fn the_manager_survives_a_client_that_dies_when_its_request_times_out() {
    let child = ScriptedChild::new(Script::echo());
    let pool = pool_of_one(&child);
    let (mut holder, mut waiter) = (pool.client("1"), pool.client("2"));
    holder.takes(pool.any()).await;
    waiter.asks_within(pool.any(), Some(Duration::from_secs(1)));
    assert!(waiter.is_waiting().await);
    tokio::time::pause();
    waiter.dies();
    // The manager is notified of the death before its own timer fires.
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    assert_eq!(pool.status().await.waiting, 0);
    holder.prompts("[1]").await.unwrap();
    holder.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_process_is_replaced_when_its_client_dies_during_a_prompt() {
    let child = ScriptedChild::new(Script::echo().on(
        "rogue",
        [Step::Mark("asked"), Step::Await("go"), Step::Echo],
    ));
    let pool = pool_of_one(&child);
    let (mut first, mut next) = (pool.client("1"), pool.client("2"));
    first.takes(pool.any()).await;
    let lost = first.proc();
    let sent = first.sends("[\"rogue\"]");
    child.reached("asked").await;
    next.asks(pool.any());
    first.dies();
    assert_eq!(next.answer().await, Ok(()));
    assert_ne!(next.proc(), lost);
    assert!(sent.answer().await.is_err());
    assert_eq!(next.prompts("[1]").await.as_deref(), Ok("[1]"));
    next.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_process_that_is_returned_during_a_prompt_is_replaced() {
    let child = ScriptedChild::new(Script::echo().on(
        "rogue",
        [Step::Mark("asked"), Step::Await("go"), Step::Echo],
    ));
    let pool = pool_of_one(&child);
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let sent = client.sends("[\"rogue\"]");
    child.reached("asked").await;
    assert!(client.returns().await);
    assert!(sent.answer().await.is_err());
    client.takes(pool.any()).await;
    assert_eq!(pool.started().len(), 2);
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_process_that_its_client_taught_is_replaced() {
    let child = ScriptedChild::new(Script::echo());
    let pool = pool_of_one(&child);
    let mut client = pool.client("1");
    client.takes(pool.any()).await;
    let own = "[\"ddoc\",\"new\",\"_design/mine\",{}]";
    assert_eq!(client.prompts(own).await.as_deref(), Ok("true"));
    let lost = client.proc();
    client.returns().await;
    client.takes(pool.any()).await;
    assert_ne!(client.proc(), lost);
    client.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_dead_waiter_is_not_served_and_delays_no_other_client() {
    let child = ScriptedChild::new(Script::echo());
    let pool = pool_of_one(&child);
    let mut holder = pool.client("holder");
    holder.takes(pool.any()).await;
    let (mut dead, mut alive) = (pool.client("dead"), pool.client("alive"));
    dead.asks(pool.any());
    alive.asks(pool.any());
    assert!(dead.is_waiting().await && alive.is_waiting().await);
    dead.dies();
    pool.becomes("one waits", |pool| pool.waiting == 1).await;
    holder.returns().await;
    assert_eq!(alive.answer().await, Ok(()));
    alive.returns().await;
    pool.assert_quiet().await;
}

#[actix_rt::test]
async fn a_caller_that_drops_its_request_delays_no_client() {
    let child = ScriptedChild::new(Script::echo());
    let pool = pool_of_one(&child);
    let mut holder = pool.client("holder");
    holder.takes(pool.any()).await;
    let caller = pool.caller();
    let wait = caller.get_proc(pool.any(), None);
    let given_up = actix_rt::time::timeout(Duration::from_millis(20), wait).await;
    assert!(given_up.is_err());
    let mut next = pool.client("next");
    next.asks(pool.any());
    holder.returns().await;
    assert_eq!(next.answer().await, Ok(()));
    next.returns().await;
    pool.assert_quiet().await;
}

/// A language that crashes its manager: once armed, `describe` panics.
struct Booby {
    armed: Arc<AtomicBool>,
}

impl Language for Booby {
    fn describe(&self) -> String {
        assert!(
            !self.armed.load(Ordering::Relaxed),
            "a language that panics in the manager's turn (meant to happen)"
        );
        "booby".into()
    }

    fn start(&self, _: StartContext) -> LocalBoxFuture<'static, Result<ProcessRef, StartError>> {
        Box::pin(std::future::pending())
    }
}

#[actix_rt::test]
async fn when_the_manager_panics_its_children_die_and_its_callers_get_an_error() {
    let child = ScriptedChild::new(
        Script::echo()
            .at_start([Step::IgnoreTerm, Step::Grandchild])
            .on("rogue", [Step::Mark("asked"), Step::Hang])
            .at_end_of_input([Step::Hang]),
    );
    let armed = Arc::new(AtomicBool::new(false));
    let pool = TestPool::builder()
        .hard_limit(2)
        .script("x", &child)
        .language(
            "booby",
            Booby {
                armed: Arc::clone(&armed),
            },
        )
        .start();
    let [mut busy, mut idle] = pool.clients(["busy", "idle"]).await;
    idle.returns().await;
    let sent = busy.sends("[\"rogue\"]");
    child.reached("asked").await;
    let (mut opening, mut probe) = (pool.client("opening"), Probe::<Down>::start());
    opening.asks(pool.any_of("booby"));
    pool.pid().monitor(probe.recipient());

    armed.store(true, Ordering::Relaxed);
    let reload = ReloadConfig(pool.settings());
    assert!(pool.manager().send(reload).await.is_err());
    assert_eq!(probe.next().await.reason, ExitReason::Panicked);
    assert!(sent.answer().await.is_err());
    assert!(opening.answer().await.is_err());
    assert!(!busy.returns().await);
    pool.assert_gone().await;
}

#[actix_rt::test]
async fn when_the_managers_arbiter_stops_its_children_die() {
    let child = ScriptedChild::new(
        Script::echo()
            .at_start([Step::IgnoreTerm, Step::Grandchild])
            .at_end_of_input([Step::Hang]),
    );
    let (sender, receiver) = std::sync::mpsc::channel();
    let arbiter = actix::Arbiter::new();
    let scripted = child.clone();
    arbiter.spawn(async move {
        let pool = TestPool::builder()
            .hard_limit(2)
            .script("x", &scripted)
            .start();
        let [client, mut other] = pool.clients(["1", "2"]).await;
        other.returns().await;
        sender
            .send((pool, client))
            .unwrap_or_else(|_| panic!("the test waits for the pool"));
        std::future::pending::<()>().await;
    });
    let (pool, client) = actix_rt::task::spawn_blocking(move || receiver.recv())
        .await
        .unwrap()
        .unwrap();
    arbiter.stop();
    pool.assert_gone().await;
    drop(client);
    arbiter.join().unwrap();
}

/// Shows that a probe of the test kit is an ordinary actor.
#[actix_rt::test]
async fn a_probe_records_messages_and_returns_them_in_order() {
    let mut probe = Probe::<Note>::start();
    for number in 0..3 {
        assert_eq!(probe.recipient().send(Note(number)).await, Ok(0));
    }
    assert_eq!(probe.next().await, Note(0));
    assert_eq!(probe.take(), [Note(1), Note(2)]);
    assert!(probe.is_silent_for(Duration::from_millis(10)).await);
}

#[derive(Debug, PartialEq)]
struct Note(u32);

impl actix::Message for Note {
    type Result = u32;
}
