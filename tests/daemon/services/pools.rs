//! Services whose pool is added and removed while the program runs.

use serde_json::{Value, json};
use settee::actors::proc_manager::GetStatus;
use settee::client::Operator;
use settee_testkit::eventually;

use crate::services::harness::Daemon;

const CONFIG: &str = "[query_servers]\npython = \"SCRIPTED\"\n\
                      [services.late]\nlisten = \"unix:DIR/late.sock\"\npool = \"late\"\n\
                      wait_for_pool = true\nstress = \"yes\"\nthrottle_delay = \"7s\"\n";

async fn wait_until_closed(daemon: &Daemon, why: Option<&str>) {
    eventually("the state of the service", async || {
        let manager = daemon.app.manager.address();
        let status = manager.send(GetStatus::default()).await.unwrap().status();
        status
            .services
            .first()
            .is_some_and(|door| door.closed.as_deref() == why)
    })
    .await;
}

async fn add(operator: &Operator, max: u32) {
    let pool = json!({"language": "python", "max": max});
    let added: Value = operator.put("/_pools/late?mode=add", &pool).await.unwrap();
    assert!(added["changes"].is_array(), "{added}");
}

async fn remove(operator: &Operator, mode: &str) {
    let path = format!("/_pools/late?mode={mode}");
    let removed: Value = operator.delete(&path).await.unwrap();
    assert!(removed["changes"].is_array(), "{removed}");
}

#[actix_rt::test]
async fn a_service_may_wait_for_a_pool_that_is_added_later() {
    let daemon = Daemon::start(CONFIG).await;
    wait_until_closed(&daemon, Some("no_pool")).await;
    let warnings = || daemon.log.with("the pool of a service does not exist");
    eventually("the missing pool is logged", async || warnings().len() == 1).await;
    let mut waiting = daemon.connect("late.sock").await;
    waiting.send("[\"pid\"]").await;
    let operator = daemon.operator();
    add(&operator, 1).await;
    let pid = waiting.line().await;
    // The service's settings for its pool apply to a pool that is added later, too.
    eventually("the pool is under stress", async || {
        daemon.pool("late").await.stressed_ms.is_some()
    })
    .await;
    // A graceful removal lets holders continue.
    remove(&operator, "graceful").await;
    wait_until_closed(&daemon, Some("no_pool")).await;
    assert_eq!(waiting.ask("[\"pid\"]").await, pid);
    let mut next = daemon.connect("late.sock").await;
    next.send("[\"pid\"]").await;
    // The name is free at once, and the service serves again.
    add(&operator, 2).await;
    assert_ne!(next.line().await, pid);
    assert_eq!(waiting.ask("[\"pid\"]").await, pid);
    // An immediate removal notifies holders.
    remove(&operator, "immediate").await;
    assert_eq!(next.error().await.0, "pool_removed");
    wait_until_closed(&daemon, Some("no_pool")).await;
    daemon.stop_after((waiting, next)).await;
}
