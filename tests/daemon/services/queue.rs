//! How a service shares a pool with clients of the client socket.

use std::cell::Cell;
use std::rc::Rc;

use serde_json::Value;
use settee_testkit::{eventually, within};

use crate::services::harness::{Daemon, SocketClient, waiting_to_be_accepted};

fn config(settings: &str) -> String {
    format!(
        "[query_servers]\npython = \"SCRIPTED\"\n\
         [pools.py]\nlanguage = \"python\"\nmax = 2\n{settings}\n\
         [services.py]\nlisten = \"unix:DIR/py.sock\"\npool = \"py\"\n"
    )
}

/// Users of the client socket who request a process as soon as they have returned one, so that some
/// of them wait in the pool's queue at any time. Each task returns how often its user was served.
fn busy_users(
    users: Vec<SocketClient>,
    stop: &Rc<Cell<bool>>,
) -> Vec<actix_rt::task::JoinHandle<u32>> {
    let users = users.into_iter().map(|mut user| {
        let stop = Rc::clone(stop);
        actix_rt::spawn(async move {
            let mut served = 0;
            while !stop.get() {
                let proc = user.get_proc("py").await;
                user.ret_proc(&proc).await;
                served += 1;
            }
            served
        })
    });
    users.collect()
}

async fn a_service_is_served_among_busy_users(settings: &str) {
    const CONNECTIONS: usize = 20;
    let daemon = Daemon::start(&config(settings)).await;
    let mut users = Vec::new();
    for _ in 0..4 {
        users.push(SocketClient::connect(&daemon).await);
    }
    let stop = Rc::new(Cell::new(false));
    let users = busy_users(users, &stop);
    let taken = async || daemon.pool("py").await.totals.taken;
    eventually("the users are at work", async || taken().await > 100).await;
    for number in 0..CONNECTIONS {
        let mut client = daemon.connect("py.sock").await;
        let line = format!("[\"it is\",{number}]");
        assert_eq!(within("its turn", client.ask(&line)).await, line);
    }
    stop.set(true);
    for user in users {
        assert!(user.await.unwrap() > 0);
    }
    daemon.stop().await;
}

#[actix_rt::test]
async fn four_busy_users_of_the_socket_do_not_starve_a_service() {
    a_service_is_served_among_busy_users("").await;
}

#[actix_rt::test]
async fn four_busy_users_do_not_starve_a_service_with_per_database_fairness() {
    a_service_is_served_among_busy_users("fairness = \"per_db\"").await;
}

#[actix_rt::test]
async fn a_service_whose_pool_is_fully_lent_queues_once() {
    let daemon = Daemon::start(&config("")).await;
    let mut user = SocketClient::connect(&daemon).await;
    let procs = [user.get_proc("py").await, user.get_proc("py").await];
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(daemon.connect("py.sock").await);
    }
    daemon
        .wait_for_pool("py", "the service queues", |pool| pool.waiting == 1)
        .await;
    assert_eq!(daemon.accepted("py"), 0);
    assert_eq!(waiting_to_be_accepted(&daemon.path("py.sock")), 5);
    user.ret_proc(&procs[0]).await;
    let mut clients = clients.into_iter();
    let mut first = clients.next().unwrap();
    assert_eq!(first.ask("[\"hello\"]").await, "[\"hello\"]");
    assert_eq!(daemon.accepted("py"), 1);
    // The service queues again for the next connection.
    daemon
        .wait_for_pool("py", "the service queues", |pool| pool.waiting == 1)
        .await;
    drop(clients);
    drop(first);
    user.ret_proc(&procs[1]).await;
    eventually("every connection is closed", async || {
        daemon.connected("py") == 0
    })
    .await;
    daemon
        .wait_for_pool("py", "every process is returned", |pool| {
            pool.used + pool.waiting == 0
        })
        .await;
    assert_eq!(
        daemon.number("settee_pool_returns_total", &["status=\"lost\""]),
        0
    );
    daemon.stop_after(user).await;
}

#[actix_rt::test]
async fn a_removed_service_leaves_the_queue_and_loses_no_process() {
    let text = config("on_client_crash = \"replace\"");
    let daemon = Daemon::start(&text).await;
    let mut user = SocketClient::connect(&daemon).await;
    let procs = [user.get_proc("py").await, user.get_proc("py").await];
    let _client = daemon.connect("py.sock").await;
    daemon
        .wait_for_pool("py", "the service queues", |pool| pool.waiting == 1)
        .await;
    let without = text.split("[services.py]").next().unwrap().to_owned();
    daemon.reload(&without).await.unwrap();
    daemon
        .wait_for_pool("py", "no request waits", |pool| pool.waiting == 0)
        .await;
    for proc in &procs {
        user.ret_proc(proc).await;
    }
    daemon
        .wait_for_pool("py", "both are free", |pool| {
            pool.procs.len() == 2 && pool.used == 0
        })
        .await;
    assert_eq!(
        daemon.number("settee_pool_returns_total", &["status=\"lost\""]),
        0
    );
    daemon.stop_after((user, _client)).await;
}

#[actix_rt::test]
async fn a_connection_waits_unaccepted_while_only_reserved_capacity_is_free() {
    let daemon = Daemon::start(&config("interactive_reserved = 1")).await;
    let mut user = SocketClient::connect(&daemon).await;
    let proc = user.get_proc("py").await;
    let mut client = daemon.connect("py.sock").await;
    daemon
        .wait_for_pool("py", "the service queues", |pool| pool.waiting == 1)
        .await;
    assert_eq!(daemon.accepted("py"), 0);
    user.ret_proc(&proc).await;
    assert_eq!(client.ask("[\"hello\"]").await, "[\"hello\"]");
    daemon.stop_after((user, client)).await;
}

#[actix_rt::test]
async fn connections_to_a_service_wait_while_the_daemon_is_drained() {
    let daemon = Daemon::start(&config("")).await;
    let mut before = daemon.connect("py.sock").await;
    assert_eq!(before.ask("[\"before\"]").await, "[\"before\"]");
    let operator = daemon.operator();
    let drained: Value = operator.put("/_drain", &()).await.unwrap();
    assert_eq!(drained["draining"], true);
    loop {
        let status = within("a status", operator.get("/_status")).await;
        let status: Value = status.unwrap();
        if status["services"][0]["closed"] == "draining" {
            break;
        }
    }
    let mut after = daemon.connect("py.sock").await;
    assert_eq!(before.ask("[\"still\"]").await, "[\"still\"]");
    assert_eq!(waiting_to_be_accepted(&daemon.path("py.sock")), 1);
    let drained: Value = operator.delete("/_drain").await.unwrap();
    assert_eq!(drained["draining"], false);
    assert_eq!(after.ask("[\"after\"]").await, "[\"after\"]");
    daemon.stop().await;
}
