//! Pools through the client library.

use serde_json::{Map, Value, json};
use settee::client::{Client, ClientError, PoolChange, ReturnStatus, TakeFrom};

use crate::support::daemon::{DEADLINE, Service};

fn settings(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(settings) => settings,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn pools_are_shaped_and_used_and_a_process_that_is_taken_away_is_told() {
    let service = Service::start("");
    let client = Client::connect(service.socket()).await.unwrap();
    let added = settings(json!({"language": "python", "group": "g", "max": 1}));
    let changes = client.add_pool("p", &added).await.unwrap();
    assert_eq!(changes[0], PoolChange::Add("p".into()));
    let changes = client
        .reconfigure_pool("p", &settings(json!({"max": 2})))
        .await;
    let expected = PoolChange::Set {
        name: "max".into(),
        value: 2.into(),
        before: Value::Null,
    };
    assert_eq!(changes.unwrap(), [expected]);
    for from in [
        TakeFrom::Pool("p"),
        TakeFrom::Group("g"),
        TakeFrom::AnyOf("python"),
    ] {
        let lent = client.get_proc_from(from, None).await.unwrap();
        assert_eq!(lent.lang, "python");
        let pool = lent.pool.unwrap();
        assert!(pool == "p" || from == TakeFrom::AnyOf("python"), "{pool}");
        assert!(client.ret_proc(&lent.proc, ReturnStatus::Ok).await.unwrap());
    }
    let unknown = client.get_proc_from(TakeFrom::Pool("q"), None).await;
    let Err(ClientError::Service(error)) = unknown else {
        panic!("{unknown:?}");
    };
    assert_eq!(
        (error.name.as_str(), error.fault.as_str()),
        ("not_found", "client")
    );
    assert!(!client.unthrottle_pool("p").await.unwrap());
    let mut downs = client.downs();
    let held = client
        .get_proc_from(TakeFrom::Pool("p"), None)
        .await
        .unwrap();
    let changes = client.remove_pool("p", true).await.unwrap();
    assert!(changes.contains(&PoolChange::StopUsed(1)), "{changes:?}");
    let down = tokio::time::timeout(DEADLINE, downs.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (down.down, down.name.as_str()),
        (held.proc.clone(), "pool_removed")
    );
    // The connection goes on.
    assert!(!client.ret_proc(&held.proc, ReturnStatus::Ok).await.unwrap());
    drop(client);
    service.stop();
}
