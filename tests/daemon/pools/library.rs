//! Pools through the client library.

use serde_json::{Value, json};
use settee::client::{
    Client, ClientError, Operator, PoolChange, ReturnStatus, TakeFrom, path, with_query,
};

use crate::support::daemon::{DEADLINE, Service};

#[tokio::test]
async fn pools_are_managed_and_used_and_a_revoked_process_is_reported() {
    let service = Service::start("");
    let client = Client::connect(service.socket()).await.unwrap();
    let operator = Operator::at(service.socket());
    let pool = path(["_pools", "p"]);
    let put = async |settings: Value| -> Vec<PoolChange> {
        let done: Value = operator.put(&pool, &settings).await.unwrap();
        serde_json::from_value(done["changes"].clone()).unwrap()
    };
    let changes = put(json!({"language": "python", "group": "g", "max": 1})).await;
    assert_eq!(changes[0], PoolChange::Add("p".into()));
    let changes = put(json!({"max": 2})).await;
    let expected = PoolChange::Set {
        name: "max".into(),
        value: 2.into(),
        before: Value::Null,
    };
    assert_eq!(changes, [expected]);
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
    let mut downs = client.downs();
    let held = client
        .get_proc_from(TakeFrom::Pool("p"), None)
        .await
        .unwrap();
    let remove = with_query(&pool, [("mode", "immediate".to_owned())]);
    let done: Value = operator.delete(&remove).await.unwrap();
    let changes = done["changes"].as_array().unwrap();
    assert!(changes.contains(&json!({"stop_used": 1})), "{changes:?}");
    let down = tokio::time::timeout(DEADLINE, downs.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (down.down, down.name.as_str()),
        (held.proc.clone(), "pool_removed")
    );
    // The connection survives.
    assert!(!client.ret_proc(&held.proc, ReturnStatus::Ok).await.unwrap());
    drop(client);
    service.stop();
}
