//! Orders between daemons.

use super::*;
use crate::fleet::{JobStatus, Order, StatusOf, Topic};

fn order(of: StatusOf, body: &str) -> Order {
    Order {
        of,
        body: body.to_owned(),
    }
}

/// An order reaches the daemon that has the job, and is taken once.
pub async fn an_order_reaches_the_daemon_that_has_the_job(
    place: &TestPlace,
    end_lease: impl Fn(u64),
) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    ask(&store, &["a", "free"]).await;
    let (first, second) = (enter(fleet, 1).await.0, enter(fleet, 2).await.0);
    let mut told = fleet.told(Topic::Orders);
    while claim(fleet, first, 1, 1).await != ids(&["a"]) {
        fleet
            .release(first, vec![("free".into(), Request(1))])
            .await
            .unwrap();
        let rest = claim(fleet, second, 1, 9).await;
        let rest = rest.into_iter().filter(|id| &**id == "a");
        fleet
            .release(second, rest.map(|id| (id, Request(1))).collect())
            .await
            .unwrap();
    }
    let transient = JobStatus {
        of: StatusOf::Transient("t".into()),
        body: Some("{}".to_owned()),
    };
    fleet.write_statuses(second, vec![transient]).await.unwrap();
    let document = |id: &str| StatusOf::Document(id.into());
    let job = |id: &str| StatusOf::Transient(id.into());
    let orders = vec![
        order(document("a"), "1"),
        order(document("none\0"), "2"),
        order(job("t"), "3"),
        order(document("t"), "4"),
        order(job("a"), "5"),
        order(document("a"), "6"),
    ];
    told.mark_unchanged();
    let found = fleet.leave_orders(orders).await.unwrap();
    assert_eq!(found, [true, false, true, false, false, true]);
    let heard = tokio::time::timeout(PATIENCE, told.changed()).await;
    heard.expect("a notification").unwrap();
    let taken = fleet.take_orders(first).await.unwrap();
    assert_eq!(
        taken,
        [order(document("a"), "1"), order(document("a"), "6")]
    );
    assert_eq!(fleet.take_orders(first).await.unwrap(), []);
    let taken = fleet.take_orders(second).await.unwrap();
    assert_eq!(taken, [order(job("t"), "3")]);
    end_lease(first.0);
    let late = vec![order(document("a"), "7")];
    assert_eq!(fleet.leave_orders(late).await.unwrap(), [false]);
}
