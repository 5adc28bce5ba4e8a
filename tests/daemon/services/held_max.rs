//! The limit on processes that one user holds at a time, over services and the client socket together.

use serde_json::{Value, json};
use settee_testkit::eventually;

use crate::services::harness::{Daemon, SocketClient};

const TWO_OF_FOUR: &str = "[query_servers]\npython = \"SCRIPTED\"\n\
                           [pools.py]\nlanguage = \"python\"\nmax = 4\nheld_max = 2\n\
                           [pools.other]\nlanguage = \"python\"\nmax = 2\n\
                           [services.py]\nlisten = \"unix:DIR/py.sock\"\npool = \"py\"\n";

async fn assert_refused(user: &mut SocketClient, call: &str) {
    let refused = user.call(json!({"call": call, "pool": "py"})).await;
    assert_eq!(refused["error"]["name"], "too_many_held", "{refused}");
    let reason = refused["error"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("held_max") && reason.contains("'py'"),
        "{reason}"
    );
}

#[actix_rt::test]
async fn one_user_holds_at_most_held_max_processes_over_all_connections() {
    let daemon = Daemon::start(TWO_OF_FOUR).await;
    let mut first = SocketClient::connect(&daemon).await;
    let mut second = SocketClient::connect(&daemon).await;
    let proc = first.get_proc("py").await;
    let mut client = daemon.connect("py.sock").await;
    client.pid().await;
    assert_refused(&mut second, "get_proc").await;
    assert_refused(&mut second, "attach").await;
    let mut refused = daemon.connect("py.sock").await;
    let (name, reason) = refused.error().await;
    assert_eq!(name, "too_many_held", "{reason}");
    // The refusals hold no process, and another pool has its own limit.
    daemon
        .wait_for_pool("py", "two are lent", |pool| {
            pool.used == 2 && pool.waiting == 0
        })
        .await;
    let mut second = SocketClient::connect(&daemon).await;
    second.get_proc("other").await;
    // A return counts at once, and so does a disconnect.
    first.ret_proc(&proc).await;
    second.get_proc("py").await;
    assert_refused(&mut first, "get_proc").await;
    drop(client);
    eventually("the disconnect", async || daemon.connected("py") == 0).await;
    daemon
        .wait_for_pool("py", "its process is returned", |pool| pool.used == 1)
        .await;
    first.get_proc("py").await;
    daemon.stop_after((first, second, refused)).await;
}

#[actix_rt::test]
async fn concurrent_requests_of_one_user_do_not_exceed_the_limit() {
    let daemon = Daemon::start(TWO_OF_FOUR).await;
    let mut user = SocketClient::connect(&daemon).await;
    let granted = user
        .call_together(6, &json!({"call": "get_proc", "pool": "py"}))
        .await;
    assert_eq!(
        granted
            .iter()
            .filter(|reply| reply["error"].is_null())
            .count(),
        2
    );
    daemon
        .wait_for_pool("py", "two are lent", |pool| {
            pool.used == 2 && pool.waiting == 0
        })
        .await;
    daemon.stop_after(user).await;
}

#[actix_rt::test]
async fn a_changed_limit_applies_to_later_loans() {
    let daemon = Daemon::start(TWO_OF_FOUR).await;
    let mut user = SocketClient::connect(&daemon).await;
    user.get_proc("py").await;
    user.get_proc("py").await;
    assert_refused(&mut user, "get_proc").await;
    let set = json!({"held_max": 3});
    let done: Value = daemon.operator().put("/_pools/py", &set).await.unwrap();
    assert_eq!(done["changes"], json!([{"set": "held_max", "value": 3}]));
    user.get_proc("py").await;
    assert_refused(&mut user, "get_proc").await;
    daemon
        .reload(&TWO_OF_FOUR.replace("held_max = 2", "held_max = 0"))
        .await
        .unwrap();
    user.get_proc("py").await;
    daemon.stop_after(user).await;
}
