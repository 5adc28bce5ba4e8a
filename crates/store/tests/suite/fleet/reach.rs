//! Servers that some daemons cannot reach.

use data_encoding::HEXLOWER;

use super::*;
use crate::fleet::JobNote;
use policy::ownership::{AVOID_FOR, AVOID_MAX, Claimed, ListedDoc, SETTLE, Standing};
use settee_config::password::random;
use std::time::Duration;

const SERVER: &str = "http://far:5984";

/// Creates six documents that `by` claims and records: four with the target [`SERVER`], two with another one.
async fn documents(store: &Store, fleet: &dyn FleetStore, by: Epoch) {
    ask(store, &["a", "b", "c", "d", "e", "f"]).await;
    let claimed = claim(fleet, by, 1, 9).await;
    let notes = claimed.iter().map(|doc| {
        let target = if **doc < *"e" { SERVER } else { "http://near" };
        JobNote {
            doc: doc.clone(),
            id: format!("rep-{doc}").into(),
            servers: ["http://source".into(), target.into()],
        }
    });
    let set = fleet.set_replication_ids(by, notes.collect()).await;
    assert!(set.unwrap().iter().all(Option::is_some));
}

/// Reports that an epoch does not reach the server, or does again; returns the state of its documents.
async fn report(
    fleet: &dyn FleetStore,
    epoch: Epoch,
    unreached: bool,
    back: bool,
) -> Vec<ListedDoc> {
    let server = |is: bool| is.then(|| SERVER.into()).into_iter().collect();
    let reach = Reach {
        unreached: server(unreached),
        back: server(back),
    };
    let renewed = fleet.renew(epoch, false, reach).await.unwrap();
    let (mut docs, _) = renewed.expect("its lease holds");
    docs.sort_by(|one, other| one.doc.cmp(&other.doc));
    docs
}

fn avoided(docs: &[ListedDoc]) -> Vec<DocId> {
    let avoided = docs
        .iter()
        .filter(|row| row.standing == Standing::Avoided(SERVER.into()));
    avoided.map(|row| row.doc.clone()).collect()
}

async fn release(fleet: &dyn FleetStore, epoch: Epoch, docs: &[DocId], claim: u64) {
    let docs = docs.iter().map(|doc| (doc.clone(), Request(claim)));
    fleet.release(epoch, docs.collect()).await.unwrap();
}

async fn claim_all(fleet: &dyn FleetStore, epoch: Epoch, claim: u64, max: usize) -> Claimed {
    let mut claimed = fleet.claim(epoch, Request(claim), max).await.unwrap();
    claimed.docs.sort();
    claimed.extra.sort();
    claimed
}

/// Documents of a server that one daemon does not reach are closed to it and shared equally by the others. `pass` ages
/// the reports by a duration.
pub async fn documents_of_a_server_that_one_daemon_does_not_reach_go_to_the_others(
    place: &TestPlace,
    pass: impl Fn(Duration),
) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let (first, _) = enter(fleet, 1).await;
    documents(&store, fleet, first).await;
    let ((second, _), (third, _)) = (enter(fleet, 2).await, enter(fleet, 3).await);
    for other in [second, third] {
        claim(fleet, other, 1, 0).await;
    }
    assert_eq!(avoided(&report(fleet, first, true, false).await), []);
    pass(SETTLE / 2);
    let listed = report(fleet, first, true, false).await;
    assert_eq!(avoided(&listed), [], "others may not reach it either");
    pass(SETTLE);
    let given_up = avoided(&report(fleet, first, true, false).await);
    assert_eq!(given_up, ids(&["a", "b", "c", "d"]));
    release(fleet, first, &given_up, 1).await;
    let none = claim_all(fleet, first, 2, 9).await;
    assert_eq!((none.docs, none.extra), (vec![], vec![]));
    // Each gets two, half of four, however many it requests.
    let mut all = Vec::new();
    for other in [second, third] {
        for number in 2..5 {
            let some = claim_all(fleet, other, number, 9).await;
            assert_eq!(some.docs, []);
            assert_eq!(some.extra.len(), if number == 2 { 2 } else { 0 });
            all.extend(some.extra);
        }
        let listed = report(fleet, other, false, false).await;
        assert!(listed.iter().all(|row| row.standing == Standing::Extra));
    }
    all.sort();
    assert_eq!(all, given_up);
    release(fleet, first, &ids(&["e"]), 1).await;
    let docs = claim_all(fleet, second, 5, 9).await.docs;
    assert_eq!(docs, ids(&["e"]), "the other server is reached");
    fleet.depart(third).await.unwrap();
    let rest = claim_all(fleet, second, 6, 9).await.extra;
    assert_eq!(rest.len(), 2, "no other daemon is left");
    fleet.depart(second).await.unwrap();
    let back = claim_all(fleet, first, 7, 9).await;
    assert_eq!((back.docs.len(), back.extra), (5, vec![]));
    assert_eq!(avoided(&report(fleet, first, true, false).await), []);
}

/// Documents of a server that no daemon reaches stay with their owners, even while one daemon reaches it again before
/// another.
pub async fn documents_of_a_server_that_no_daemon_reaches_stay_with_their_owners(
    place: &TestPlace,
    pass: impl Fn(Duration),
) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let (first, _) = enter(fleet, 1).await;
    documents(&store, fleet, first).await;
    let (second, _) = enter(fleet, 2).await;
    claim(fleet, second, 1, 0).await;
    release(fleet, first, &ids(&["a"]), 1).await;
    for _ in 0..4 {
        for epoch in [first, second] {
            assert_eq!(avoided(&report(fleet, epoch, true, false).await), []);
        }
        pass(SETTLE);
    }
    let claimed = claim_all(fleet, second, 2, 9).await;
    assert_eq!((claimed.docs, claimed.extra), (ids(&["a"]), vec![]));
    report(fleet, second, false, true).await;
    pass(SETTLE / 2);
    assert_eq!(avoided(&report(fleet, first, true, false).await), []);
    assert_eq!(avoided(&report(fleet, second, false, false).await), []);
    report(fleet, first, false, true).await;
    pass(SETTLE * 2);
    for epoch in [first, second] {
        let listed = report(fleet, epoch, false, false).await;
        assert!(listed.iter().all(|row| row.standing == Standing::Shared));
    }
}

/// A daemon's report counts for a while, longer each time it is repeated, and not for the daemon's next epoch.
pub async fn a_daemon_avoids_a_server_for_longer_each_time_and_not_in_its_next_epoch(
    place: &TestPlace,
    pass: impl Fn(Duration),
) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let (first, _) = enter(fleet, 1).await;
    documents(&store, fleet, first).await;
    let (second, _) = enter(fleet, 2).await;
    claim(fleet, second, 1, 0).await;
    let mut span = AVOID_FOR;
    for _ in 0..5 {
        report(fleet, first, true, false).await;
        pass(SETTLE);
        assert_eq!(avoided(&report(fleet, first, true, false).await).len(), 4);
        pass(span - Duration::from_secs(5));
        assert_eq!(avoided(&report(fleet, first, false, false).await).len(), 4);
        pass(Duration::from_secs(6));
        assert_eq!(avoided(&report(fleet, first, false, false).await), []);
        span = (span * 2).min(AVOID_MAX);
    }
    pass(AVOID_MAX);
    report(fleet, first, true, false).await;
    pass(SETTLE);
    assert_eq!(avoided(&report(fleet, first, false, false).await).len(), 4);
    pass(AVOID_FOR);
    assert_eq!(
        avoided(&report(fleet, first, false, false).await),
        [],
        "earlier reports no longer count"
    );
    report(fleet, first, true, false).await;
    pass(SETTLE);
    release(fleet, first, &ids(&["a", "b", "c", "d", "e", "f"]), 1).await;
    let next = Epoch(7);
    let entered = fleet.take_epoch(name("host:1"), next, vec![first]).await;
    entered.unwrap();
    assert_eq!(claim_all(fleet, next, 1, 9).await.docs.len(), 6);
}

/// A server with a name that no host can have does not cost its daemon the lease.
pub async fn an_overlong_name_of_a_server_does_not_cost_the_lease(place: &TestPlace) {
    let (_store, fleet) = fleet_of(place);
    let (epoch, _) = enter(&*fleet, 1).await;
    // Random, since an index compresses what repeats.
    let reach = Reach {
        unreached: vec![HEXLOWER.encode(&random::<6000>()).into()],
        back: vec![],
    };
    let renewed = fleet.renew(epoch, false, reach).await.unwrap();
    assert!(renewed.is_some(), "its lease holds");
}
