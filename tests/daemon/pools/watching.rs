//! The state of a pool, as reported to the services that lend its processes.

use serde_json::{Map, Value, json};
use settee::messages::pools::{AddPool, PoolOrder, RemovePool};
use settee::messages::pools::{PoolState, WatchPool};
use settee::messages::proc_manager::{TakeFrom, Want};
use settee::policy::pool::RemoveMode;
use settee_testkit::{Script, ScriptedChild, TestPool, within};
use tokio::sync::watch;

fn settings(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

/// Waits for a state that `wanted` accepts, and returns it.
async fn state(
    states: &mut watch::Receiver<PoolState>,
    what: &str,
    wanted: impl FnMut(&PoolState) -> bool,
) -> PoolState {
    let found = within(what, states.wait_for(wanted)).await;
    *found.unwrap()
}

#[actix_rt::test]
async fn a_watcher_of_a_pool_gets_every_change_until_its_removal() {
    let child = ScriptedChild::new(Script::echo());
    let pool = TestPool::builder().script("echo", &child).start();
    let manager = pool.manager();
    let watch_pool = WatchPool {
        pool: "p".to_owned(),
    };
    assert!(manager.send(watch_pool.clone()).await.unwrap().is_none());
    let add = AddPool(PoolOrder {
        name: "p".to_owned(),
        settings: settings(json!({"language": "echo", "max": 1})),
        dry_run: false,
    });
    manager.send(add).await.unwrap().unwrap();
    let mut states = manager.send(watch_pool).await.unwrap().unwrap();
    let first = *states.borrow_and_update();
    assert_eq!(
        (first.pool.avail, first.pool.total, first.pool.max),
        (0, 0, 1)
    );
    let want = Want::any_from(TakeFrom::Pool("p".into()));
    let mut client = pool.client("one");
    client.takes(want.clone()).await;
    state(&mut states, "a used process", |s| {
        (s.pool.avail, s.pool.total) == (0, 1)
    })
    .await;
    let mut waiter = pool.client("two");
    waiter.asks(want);
    state(&mut states, "a waiter", |s| s.pool.claims == 1).await;
    client.returns().await;
    state(&mut states, "no waiter", |s| s.pool.claims == 0).await;
    assert!(waiter.ping().await);
    waiter.returns().await;
    state(&mut states, "a free process", |s| s.pool.avail == 1).await;
    let remove = RemovePool {
        name: "p".to_owned(),
        mode: RemoveMode::Graceful,
        dry_run: false,
    };
    manager.send(remove).await.unwrap().unwrap();
    let ended = async { while states.changed().await.is_ok() {} };
    within("the end of the pool", ended).await;
    pool.assert_quiet().await;
}
