//! A service that reaches its limit: what is logged, and with which arguments new processes start.

use serde_json::{Value, json};
use settee_testkit::eventually;

use crate::services::harness::{Daemon, SocketClient};

/// A service with a limit of 2, whose processes report their arguments; with `more` keys.
fn config(more: &str) -> String {
    format!(
        "[query_servers]\npython = \"SCRIPTED --time ${{stress?{{10}}:{{300}}}} --stress={{stress}}\"\n\
         [pools.py]\nlanguage = \"python\"\nmax = 2\n\
         [services.py]\nlisten = \"unix:DIR/py.sock\"\npool = \"py\"\n{more}"
    )
}

const NORMAL: &str = "[\"--time\",\"300\",\"--stress=\"]";
const STRESSED: &str = "[\"--time\",\"10\",\"--stress=yes\"]";

#[actix_rt::test]
async fn at_the_limit_new_processes_start_with_stress_on_and_lent_ones_are_kept() {
    let daemon = Daemon::start(&config("stress = \"yes\"\n")).await;
    let mut first = daemon.connect("py.sock").await;
    assert_eq!(first.ask("[\"args\"]").await, NORMAL);
    assert_eq!(first.ask("[\"env\",\"SETTEE_STRESS\"]").await, "null");
    let pid = first.pid().await;
    assert!(daemon.log.with("pool is under stress").is_empty());
    // The second connection reaches the limit.
    let mut second = daemon.connect("py.sock").await;
    assert_eq!(second.ask("[\"args\"]").await, STRESSED);
    assert_eq!(second.ask("[\"env\",\"SETTEE_STRESS\"]").await, "\"yes\"");
    assert_eq!(daemon.log.with("pool is under stress").len(), 1);
    // The first connection keeps its process.
    assert_eq!(first.pid().await, pid);
    daemon.stop_after((first, second)).await;
}

/// A request for a process of the pool that knows a design document of a database.
fn take(db: &str) -> Value {
    let ddoc = json!({"_id": "_design/d", "_rev": "1-a", "language": "python"});
    json!({"call": "get_proc", "pool": "py", "db": db, "ddoc": ddoc})
}

#[actix_rt::test]
async fn idle_processes_are_replaced_when_stress_begins() {
    let text = config("stress = \"yes\"\n").replace("max = 2", "max = 4");
    let daemon = Daemon::start(&text).await;
    let mut asks = SocketClient::connect(&daemon).await;
    let mut lent = Vec::new();
    for db in ["one", "two", "three"] {
        lent.push(asks.call(take(db)).await["ok"].clone());
    }
    for idle in &lent[..2] {
        asks.ret_proc(idle["proc"].as_str().unwrap()).await;
    }
    assert!(daemon.log.with("pool is under stress").is_empty());
    // A fourth database needs another process, which reaches the limit.
    let fourth = asks.call(take("four")).await["ok"].clone();
    assert_eq!(daemon.log.with("pool is under stress").len(), 1);
    // It replaced one idle process; the other is replaced after it.
    daemon
        .wait_for_pool("py", "both are replaced", |pool| {
            pool.totals.recycled["stress"] == 2 && pool.free == 1 && pool.stopping == 0
        })
        .await;
    let there = daemon.pool("py").await.procs;
    let is_there = |lent: &Value| {
        let pid = lent["os_pid"].as_u64();
        there.iter().any(|proc| proc.os_pid.map(u64::from) == pid)
    };
    let still: Vec<bool> = lent.iter().chain([&fourth]).map(is_there).collect();
    assert_eq!(
        still,
        [false, false, true, true],
        "only lent processes are kept"
    );
    // The replacement was started with stress on.
    let mut client = daemon.connect("py.sock").await;
    assert_eq!(client.ask("[\"args\"]").await, STRESSED);
    daemon.stop_after((asks, client)).await;
}

#[actix_rt::test]
async fn a_process_returned_under_stress_is_kept_with_its_normal_arguments() {
    let daemon = Daemon::start(&config("stress = \"yes\"\n")).await;
    let mut first = daemon.connect("py.sock").await;
    let pid = first.pid().await;
    let mut second = daemon.connect("py.sock").await;
    assert_eq!(second.ask("[\"args\"]").await, STRESSED);
    drop(first);
    let mut third = daemon.connect("py.sock").await;
    assert_eq!(third.pid().await, pid);
    assert_eq!(third.ask("[\"args\"]").await, NORMAL);
    daemon.stop_after((second, third)).await;
}

#[actix_rt::test]
async fn a_client_accepted_under_stress_may_hold_a_process_idle_for_a_shorter_time() {
    let more = "stress = \"yes\"\nclient_timeout = \"1h\"\nclient_timeout_stress = \"100ms\"\n";
    let daemon = Daemon::start(&config(more)).await;
    let mut first = daemon.connect("py.sock").await;
    first.pid().await;
    let mut second = daemon.connect("py.sock").await;
    second.pid().await;
    // It is accepted under stress, once another client has disconnected.
    let mut third = daemon.connect("py.sock").await;
    third.send("[\"pid\"]").await;
    drop(second);
    third.line().await;
    let (name, _) = third.error().await;
    assert_eq!(name, "timeout");
    assert_eq!(first.ask("[\"x\"]").await, "[\"x\"]");
    daemon.stop_after((first, third)).await;
}

#[actix_rt::test]
async fn a_local_service_is_exempt_from_stress_and_limit_warnings_by_default() {
    let daemon = Daemon::start(&config("")).await;
    let mut first = daemon.connect("py.sock").await;
    first.pid().await;
    let mut second = daemon.connect("py.sock").await;
    assert_eq!(second.ask("[\"args\"]").await, NORMAL);
    let label = ["service=\"py\""];
    let reached = || daemon.number("settee_service_limit_reached_total", &label);
    eventually("the limit is reached", async || reached() > 0).await;
    assert_eq!(reached(), 1);
    assert!(daemon.log.with("process limit").is_empty());
    assert!(daemon.log.with("stress").is_empty());
    daemon.stop_after((first, second)).await;
}

#[actix_rt::test]
async fn a_public_service_repeatedly_at_its_limit_is_logged_once_with_a_remedy() {
    let daemon = Daemon::start(&config("local_only = false\nstress = \"no\"\n")).await;
    let label = ["service=\"py\""];
    for round in 1..=3 {
        let mut first = daemon.connect("py.sock").await;
        first.pid().await;
        let mut second = daemon.connect("py.sock").await;
        second.pid().await;
        let reached = || daemon.number("settee_service_limit_reached_total", &label) >= round;
        eventually("the limit is reached", async || reached()).await;
        drop((first, second));
        daemon
            .wait_for_pool("py", "every process is returned", |pool| pool.used == 0)
            .await;
        let listening = || daemon.number("settee_service_listening", &label) == 1;
        eventually("the service listens", async || listening()).await;
    }
    let warnings = daemon.log.with("service has reached its process limit");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for word in [
        "service=py",
        "limit=2",
        "may have to wait",
        "raise max",
        "docs/services.md",
    ] {
        assert!(warnings[0].contains(word), "{word} in {}", warnings[0]);
    }
    daemon.stop().await;
}
