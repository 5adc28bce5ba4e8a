//! The system's queue: who cannot be served is not accepted, waits there, and is served later.

use settee::testkit::{eventually, within};

use crate::services::harness::{Front, waiting_to_be_accepted};

fn config(max: u32, backlog: u32) -> String {
    format!(
        "[query_servers]\npython = \"SCRIPTED\"\n\
         [pools.py]\nlanguage = \"python\"\nmax = {max}\n\
         [services.py]\nlisten = \"unix:DIR/py.sock\"\npool = \"py\"\nbacklog = {backlog}\n"
    )
}

#[actix_rt::test]
async fn of_200_connections_against_a_limit_of_3_every_one_is_answered_and_3_are_accepted_at_most()
{
    const COUNT: usize = 200;
    const LIMIT: usize = 3;
    let front = Front::start(&config(LIMIT as u32, 256)).await;
    let mut clients = Vec::new();
    for number in 0..COUNT {
        let mut client = front.connect("py.sock").await;
        client.send(&format!("[\"it is\",{number}]")).await;
        clients.push((number, client));
    }
    let socket = front.path("py.sock");
    let all_in = || front.accepted("py") as usize == LIMIT;
    eventually("as many are accepted as can be served", async || all_in()).await;
    front
        .wait_for_pool("py", "all are lent", |pool| pool.used == LIMIT as u32)
        .await;
    assert_eq!(waiting_to_be_accepted(&socket), COUNT - LIMIT);
    // Who came first is served first: that is how the system's queue works.
    for (number, mut client) in clients {
        assert_eq!(client.line().await, format!("[\"it is\",{number}]"));
        assert!(front.connected("py") as usize <= LIMIT);
        let accepted = front.accepted("py") as usize;
        assert!(
            accepted <= number + LIMIT,
            "{accepted} accepted, {number} done"
        );
        drop(client);
    }
    assert_eq!(front.accepted("py") as usize, COUNT);
    eventually("all have gone", async || front.connected("py") == 0).await;
    assert_eq!(waiting_to_be_accepted(&socket), 0);
    assert!(front.pool("py").await.procs.len() <= LIMIT);
    front.stop().await;
}

#[actix_rt::test]
async fn a_limit_that_is_raised_lets_those_in_who_wait() {
    let front = Front::start(&config(1, 16)).await;
    let mut first = front.connect("py.sock").await;
    let pid = first.pid().await;
    let mut second = front.connect("py.sock").await;
    second.send("[\"pid\"]").await;
    assert_eq!(front.accepted("py"), 1);
    front.reload(&config(2, 16)).await.unwrap();
    assert_ne!(second.line().await.parse::<u32>().unwrap(), pid);
    front.stop_after((first, second)).await;
}

#[actix_rt::test]
async fn a_process_that_ends_makes_room_for_the_next_connection() {
    let front = Front::start(&config(1, 16)).await;
    let mut first = front.connect("py.sock").await;
    first.pid().await;
    let mut second = front.connect("py.sock").await;
    second.send("[\"hello\"]").await;
    first.send("[\"exit\",0]").await;
    first.error().await;
    assert_eq!(second.line().await, "[\"hello\"]");
    front.stop_after((first, second)).await;
}

#[actix_rt::test]
async fn who_takes_processes_elsewhere_keeps_the_service_from_accepting() {
    let front = Front::start(&config(1, 16)).await;
    let mut taker = crate::services::harness::SocketClient::connect(&front).await;
    let proc = taker.get_proc("py").await;
    let mut client = front.connect("py.sock").await;
    client.send("[\"hello\"]").await;
    // The client socket always accepts, and answers.
    for _ in 0..10 {
        let status = taker
            .call(serde_json::json!({"call": "status", "pool": "py"}))
            .await;
        assert_eq!(status["ok"]["pools"][0]["used"], 1);
    }
    assert_eq!(front.accepted("py"), 0);
    assert_eq!(waiting_to_be_accepted(&front.path("py.sock")), 1);
    taker.ret_proc(&proc).await;
    assert_eq!(client.line().await, "[\"hello\"]");
    front.stop_after((taker, client)).await;
}

#[actix_rt::test]
async fn a_connection_that_went_away_in_the_queue_costs_nothing() {
    let front = Front::start(&config(1, 16)).await;
    let mut first = front.connect("py.sock").await;
    first.pid().await;
    for _ in 0..5 {
        drop(front.connect("py.sock").await);
    }
    let mut last = front.connect("py.sock").await;
    last.send("[\"hello\"]").await;
    drop(first);
    assert_eq!(within("the answer", last.line()).await, "[\"hello\"]");
    front.stop_after(last).await;
}
