//! The kernel's queue: clients that cannot be served yet are not accepted; they wait there and are served later.

use settee_testkit::{eventually, within};

use crate::services::harness::{Daemon, waiting_to_be_accepted};
use crate::support::daemon::call_at_once;

fn config(max: u32, backlog: u32) -> String {
    format!(
        "[query_servers]\npython = \"SCRIPTED\"\n\
         [pools.py]\nlanguage = \"python\"\nmax = {max}\n\
         [services.py]\nlisten = \"unix:DIR/py.sock\"\npool = \"py\"\nbacklog = {backlog}\n"
    )
}

#[actix_rt::test]
async fn all_of_200_connections_are_answered_with_at_most_3_accepted_at_a_time() {
    const COUNT: usize = 200;
    const LIMIT: usize = 3;
    let daemon = Daemon::start(&config(LIMIT as u32, 256)).await;
    let mut clients = Vec::new();
    for number in 0..COUNT {
        let mut client = daemon.connect("py.sock").await;
        client.send(&format!("[\"it is\",{number}]")).await;
        clients.push((number, client));
    }
    let socket = daemon.path("py.sock");
    let all_in = || daemon.accepted("py") as usize == LIMIT;
    eventually(
        "as many clients are accepted as there are processes",
        async || all_in(),
    )
    .await;
    daemon
        .wait_for_pool("py", "all are lent", |pool| pool.used == LIMIT as u32)
        .await;
    assert_eq!(waiting_to_be_accepted(&socket), COUNT - LIMIT);
    // The kernel's queue is first in, first out.
    for (number, mut client) in clients {
        assert_eq!(client.line().await, format!("[\"it is\",{number}]"));
        assert!(daemon.connected("py") as usize <= LIMIT);
        let accepted = daemon.accepted("py") as usize;
        assert!(
            accepted <= number + LIMIT,
            "{accepted} accepted, {number} done"
        );
        drop(client);
    }
    assert_eq!(daemon.accepted("py") as usize, COUNT);
    eventually("every connection is closed", async || {
        daemon.connected("py") == 0
    })
    .await;
    assert_eq!(waiting_to_be_accepted(&socket), 0);
    assert!(daemon.pool("py").await.procs.len() <= LIMIT);
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_raised_limit_lets_waiting_clients_in() {
    let daemon = Daemon::start(&config(1, 16)).await;
    let mut first = daemon.connect("py.sock").await;
    let pid = first.pid().await;
    let mut second = daemon.connect("py.sock").await;
    second.send("[\"pid\"]").await;
    assert_eq!(daemon.accepted("py"), 1);
    daemon.reload(&config(2, 16)).await.unwrap();
    assert_ne!(second.line().await.parse::<u32>().unwrap(), pid);
    daemon.stop_after((first, second)).await;
}

#[actix_rt::test]
async fn a_process_that_ends_makes_room_for_the_next_connection() {
    let daemon = Daemon::start(&config(1, 16)).await;
    let mut first = daemon.connect("py.sock").await;
    first.pid().await;
    let mut second = daemon.connect("py.sock").await;
    second.send("[\"hello\"]").await;
    first.send("[\"exit\",0]").await;
    first.error().await;
    assert_eq!(second.line().await, "[\"hello\"]");
    daemon.stop_after((first, second)).await;
}

#[actix_rt::test]
async fn loans_outside_the_service_keep_it_from_accepting() {
    let daemon = Daemon::start(&config(1, 16)).await;
    let mut taker = crate::services::harness::SocketClient::connect(&daemon).await;
    let proc = taker.get_proc("py").await;
    let mut client = daemon.connect("py.sock").await;
    client.send("[\"hello\"]").await;
    // The client socket always accepts, and answers.
    for _ in 0..10 {
        let reply = taker.call(call_at_once(1)).await;
        assert_eq!(reply["ok"], false);
    }
    assert_eq!(daemon.accepted("py"), 0);
    assert_eq!(waiting_to_be_accepted(&daemon.path("py.sock")), 1);
    taker.ret_proc(&proc).await;
    assert_eq!(client.line().await, "[\"hello\"]");
    daemon.stop_after((taker, client)).await;
}

#[actix_rt::test]
async fn connections_that_close_while_queued_do_not_delay_the_next() {
    let daemon = Daemon::start(&config(1, 16)).await;
    let mut first = daemon.connect("py.sock").await;
    first.pid().await;
    for _ in 0..5 {
        drop(daemon.connect("py.sock").await);
    }
    let mut last = daemon.connect("py.sock").await;
    last.send("[\"hello\"]").await;
    drop(first);
    assert_eq!(within("the answer", last.line()).await, "[\"hello\"]");
    daemon.stop_after(last).await;
}
