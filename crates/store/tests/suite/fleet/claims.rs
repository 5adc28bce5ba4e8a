//! Leases, claims, and writes that only an owner may make.

use super::*;
use crate::fleet::{JobNote, JobRow, Topic};
use policy::ownership::{Claimed, ListedDoc, Standing};

fn listed(doc: &str, claim: u64, wanted: bool) -> ListedDoc {
    ListedDoc {
        doc: doc.into(),
        claim: Request(claim),
        wanted,
        standing: Standing::Shared,
    }
}

/// A document has one owner while the owner's lease lasts.
pub async fn a_document_has_one_owner_while_the_owners_lease_lasts(
    place: &TestPlace,
    end_lease: impl Fn(u64),
) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    // The greatest 64-bit number is a valid epoch too.
    let (first, before) = enter(fleet, u64::MAX).await;
    assert_eq!(before, counts(0, 0));
    ask(&store, &["a", "b", "c"]).await;
    let none = fleet.claim(first, Request(1), 0).await.unwrap();
    let expected = Claimed {
        counts: counts(3, 1),
        ..Claimed::default()
    };
    assert_eq!(none, expected, "a daemon that claims counts as alive");
    let (second, at_entry) = enter(fleet, 2).await;
    assert_eq!(
        at_entry,
        counts(3, 1),
        "a daemon that has not claimed does not count"
    );
    assert_eq!(claim(fleet, first, 2, 2).await.len(), 2);
    let left = fleet.claim(second, Request(1), 9).await.unwrap();
    assert_eq!((left.docs.len(), left.counts), (1, counts(3, 2)));
    assert_eq!(claim(fleet, first, 3, 9).await, []);
    let (docs, seen) = fleet
        .renew(first, false, Reach::default())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((docs.len(), seen), (2, counts(3, 2)));
    assert!(docs.iter().all(|doc| doc.claim == Request(2) && doc.wanted));
    end_lease(first.0);
    assert_eq!(
        fleet.renew(first, false, Reach::default()).await.unwrap(),
        None
    );
    assert_eq!(
        claim(fleet, first, 4, 9).await,
        [],
        "the first lease has expired"
    );
    let (docs, seen) = fleet
        .renew(second, false, Reach::default())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((docs.len(), seen), (1, counts(3, 1)));
    assert_eq!(claim(fleet, second, 2, 9).await.len(), 2);
    let (docs, _) = fleet
        .renew(second, false, Reach::default())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(docs.len(), 3);
}

fn note(doc: &str, id: &str) -> JobNote {
    let servers = ["http://a".into(), "http://b".into()];
    JobNote {
        doc: doc.into(),
        id: id.into(),
        servers,
    }
}

async fn set_id(
    fleet: &dyn FleetStore,
    epoch: Epoch,
    doc: &str,
    id: &str,
) -> Option<Result<(), DocId>> {
    let set = fleet.set_replication_ids(epoch, vec![note(doc, id)]);
    set.await.unwrap().remove(0)
}

/// Documents that request no replication are not claimed, and their owners are notified by the renewal.
pub async fn documents_that_request_no_replication_are_not_claimed_and_owners_are_notified(
    place: &TestPlace,
) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let (first, _) = enter(fleet, 1).await;
    one(&store, edit("done", None, DONE)).await.unwrap();
    let rev = ask(&store, &["a"]).await.remove(0);
    assert_eq!(claim(fleet, first, 1, 9).await, ids(&["a"]));
    assert_eq!(set_id(fleet, first, "a", "rep").await, Some(Ok(())));
    let past = |past: &str| vec![("a".into(), past.to_owned())];
    fleet.save_pasts(first, past("past")).await.unwrap();
    let rev = one(&store, edit("a", Some(rev), "{\"n\":1}"))
        .await
        .unwrap();
    let row = fleet.job_rows(ids(&["a"])).await.unwrap().remove(0);
    assert_eq!(
        row.past.as_deref(),
        Some("past"),
        "a still requests a replication"
    );
    let rev = one(&store, edit("a", Some(rev), DONE)).await.unwrap();
    let (docs, seen) = fleet
        .renew(first, false, Reach::default())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((docs, seen), (vec![listed("a", 1, false)], counts(0, 1)));
    fleet.save_pasts(first, past("late")).await.unwrap();
    let row = fleet.job_rows(ids(&["a"])).await.unwrap().remove(0);
    assert_eq!(row.past, None);
    assert_eq!(set_id(fleet, first, "a", "rep").await, None);
    let released = vec![("a".into(), Request(1))];
    fleet.release(first, released).await.unwrap();
    assert_eq!(claim(fleet, first, 2, 9).await, []);
    one(&store, edit("a", Some(rev), ASKS)).await.unwrap();
    assert_eq!(claim(fleet, first, 3, 9).await, ids(&["a"]));
}

/// A release ends the claim that it names and no later one.
pub async fn a_release_ends_the_claim_that_it_names_and_no_later_one(place: &TestPlace) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    ask(&store, &["a", "b"]).await;
    let ((first, _), (second, _)) = (enter(fleet, 1).await, enter(fleet, 2).await);
    assert_eq!(claim(fleet, first, 1, 9).await.len(), 2);
    let both = vec![("b".into(), Request(1)), ("a".into(), Request(1))];
    fleet.release(second, both.clone()).await.unwrap();
    fleet
        .release(first, vec![("a".into(), Request(2))])
        .await
        .unwrap();
    assert_eq!(claim(fleet, second, 1, 9).await, []);
    fleet.release(first, both.clone()).await.unwrap();
    assert_eq!(claim(fleet, first, 3, 9).await.len(), 2);
    fleet.release(first, both).await.unwrap();
    let (docs, _) = fleet
        .renew(first, false, Reach::default())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(docs.len(), 2, "both are under a later claim");
}

/// Daemons that claim at the same time never get the same document. Documents that they skip can be claimed later.
pub async fn daemons_that_claim_at_the_same_time_never_get_the_same_document(place: &TestPlace) {
    const DOCUMENTS: usize = 400;
    const DAEMONS: u64 = 4;
    let (store, _) = fleet_of(place);
    let edits = (0..DOCUMENTS).map(|n| edit(&format!("d{n}"), None, ASKS));
    store.edit(edits.collect()).await.unwrap();
    let claiming = (1..=DAEMONS).map(|epoch| {
        // Each with its own connections.
        let (store, fleet) = fleet_of(place);
        async move {
            let _store = store;
            let (epoch, _) = enter(&*fleet, epoch).await;
            let mut all = Vec::new();
            for n in 1.. {
                let some = fleet.claim(epoch, Request(n), 7).await.unwrap();
                if some.docs.is_empty() && some.counts.wanted == DOCUMENTS {
                    let renewed = fleet.renew(epoch, false, Reach::default()).await;
                    let (owned, _) = renewed.unwrap().unwrap();
                    assert_eq!(owned.len(), all.len());
                    return all;
                }
                all.extend(some.docs);
            }
            all
        }
    });
    let claimed = futures_util::future::join_all(claiming).await;
    let mut all: Vec<DocId> = claimed.into_iter().flatten().collect();
    let (_store, fleet) = fleet_of(place);
    let (late, _) = enter(&*fleet, 99).await;
    // Documents locked by another daemon at that moment were skipped.
    all.extend(claim(&*fleet, late, 1, DOCUMENTS).await);
    all.sort();
    assert_eq!(all.len(), DOCUMENTS);
    all.dedup();
    assert_eq!(all.len(), DOCUMENTS);
}

/// A claim reads only the free documents that it claims. `read` returns the number of index entries read, with a delay.
pub async fn a_claim_reads_only_the_free_documents_that_it_claims(
    place: &TestPlace,
    read: impl Fn() -> usize,
) {
    const CLAIMED: usize = 10;
    let (store, fleet) = fleet_of(place);
    let edits = (0..2000).map(|n| edit(&format!("d{n}"), None, ASKS));
    store.edit(edits.collect()).await.unwrap();
    let (epoch, _) = enter(&*fleet, 1).await;
    assert_eq!(claim(&*fleet, epoch, 1, CLAIMED).await.len(), CLAIMED);
    let counted = async {
        while read() == 0 {
            // The database counts the reads of a connection at its next request.
            fleet.daemons().await.unwrap();
            claim(&*fleet, epoch, 2, 0).await;
        }
    };
    let counted = tokio::time::timeout(PATIENCE, counted).await;
    counted.expect("the index of free documents is read");
    // Both ends of a range are checked.
    assert!(read() <= CLAIMED + 2, "{} entries were read", read());
}

/// Each daemon claims in its own order.
pub async fn each_daemon_claims_in_its_own_order(place: &TestPlace) {
    let (store, fleet) = fleet_of(place);
    let edits = (0..100).map(|n| edit(&format!("d{n}"), None, ASKS));
    store.edit(edits.collect()).await.unwrap();
    let mut orders = Vec::new();
    for epoch in 1..3 {
        let (epoch, _) = enter(&*fleet, epoch).await;
        let docs = claim(&*fleet, epoch, 1, 10).await;
        fleet.depart(epoch).await.unwrap();
        orders.push(docs);
    }
    assert_ne!(orders[0], orders[1]);
}

/// Epochs are removed when they depart, are succeeded, or have expired and own nothing.
pub async fn departed_and_succeeded_epochs_and_expired_ones_that_own_nothing_are_removed(
    place: &TestPlace,
    end_lease: impl Fn(u64),
) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    ask(&store, &["a", "b"]).await;
    for epoch in 1..=4 {
        enter(fleet, epoch).await;
    }
    assert_eq!(claim(fleet, Epoch(1), 1, 1).await.len(), 1);
    assert_eq!(claim(fleet, Epoch(2), 1, 1).await.len(), 1);
    end_lease(1);
    end_lease(3);
    let taken = fleet
        .take_epoch(name("h:2"), Epoch(5), vec![Epoch(2), Epoch(77)])
        .await;
    assert_eq!(
        taken.unwrap(),
        counts(2, 0),
        "epoch 2 is removed, 1 has expired"
    );
    fleet.depart(Epoch(4)).await.unwrap();
    let daemons = fleet.daemons().await.unwrap();
    let seen: Vec<_> = daemons
        .iter()
        .map(|(daemon, docs)| (daemon.epoch.0, daemon.lease.is_some(), *docs))
        .collect();
    assert_eq!(
        seen,
        [(5, true, 0), (1, false, 1)],
        "epoch 1 owns a document"
    );
    let (daemon, _) = &daemons[0];
    assert!(daemon.lease.unwrap() <= LEASE && daemon.name == name("h:2"));
    assert_eq!(claim(fleet, Epoch(5), 1, 9).await, ids(&["a", "b"]));
    enter(fleet, 6).await;
    assert_eq!(
        fleet.daemons().await.unwrap().len(),
        2,
        "epoch 1 owns nothing"
    );
}

/// A daemon that leaves does not count as alive, even if a late renewal arrives.
pub async fn a_daemon_that_leaves_does_not_count_as_alive(place: &TestPlace) {
    let (_store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let ((first, _), (second, _)) = (enter(fleet, 1).await, enter(fleet, 2).await);
    for epoch in [first, second] {
        claim(fleet, epoch, 1, 0).await;
    }
    let live = async |epoch, leaving| {
        let renewed = fleet.renew(epoch, leaving, Reach::default()).await.unwrap();
        renewed.unwrap().1.live
    };
    assert_eq!(live(second, false).await, 2);
    assert_eq!(live(first, true).await, 1);
    assert_eq!(live(first, false).await, 1);
    assert_eq!(live(second, false).await, 1);
    let daemons = fleet.daemons().await.unwrap();
    let leaving: Vec<bool> = daemons.iter().map(|(one, _)| one.is_leaving).collect();
    assert_eq!(leaving, [true, false]);
}

/// One of two documents that request the same replication gets it.
pub async fn one_of_two_documents_with_the_same_replication_gets_it(place: &TestPlace) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    let revs = ask(&store, &["a", "b"]).await;
    let ((first, _), (second, _)) = (enter(fleet, 1).await, enter(fleet, 2).await);
    claim(fleet, first, 1, 9).await;
    let set = |epoch, doc, id| set_id(fleet, epoch, doc, id);
    assert_eq!(set(second, "a", "rep").await, None, "not the owner");
    // Either one first, or both at the same moment.
    let (one_of, other) =
        futures_util::future::join(set(first, "a", "rep"), set(first, "b", "rep")).await;
    let (one_of, other) = (one_of.unwrap(), other.unwrap());
    let has_a = one_of.is_ok();
    let (has, has_not, refused) = if has_a {
        ("a", "b", other)
    } else {
        ("b", "a", one_of)
    };
    assert_eq!(refused, Err(DocId::from(has)));
    assert_eq!(
        set(first, has, "rep").await,
        Some(Ok(())),
        "the owner keeps the replication"
    );
    let rev = revs[usize::from(!has_a)].clone();
    one(&store, edit(has, Some(rev), DONE)).await.unwrap();
    assert_eq!(set(first, has_not, "rep").await, Some(Ok(())));
}

/// Ids of many documents are set in one request, each as if requested alone.
pub async fn ids_of_many_documents_are_set_in_one_request(place: &TestPlace) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    ask(&store, &["a", "b", "c", "d"]).await;
    let (first, _) = enter(fleet, 1).await;
    claim(fleet, first, 1, 9).await;
    assert_eq!(set_id(fleet, first, "d", "old").await, Some(Ok(())));
    let asked = [
        ("c", "same"),
        ("none", "x"),
        ("b", "old"),
        ("a", "same"),
        ("d", "new"),
    ];
    let asked = asked.map(|(doc, id)| note(doc, id));
    let taken = |by: &str| Some(Err(DocId::from(by)));
    let set = fleet
        .set_replication_ids(first, asked.into())
        .await
        .unwrap();
    assert_eq!(
        set,
        [Some(Ok(())), None, taken("d"), taken("c"), Some(Ok(()))]
    );
    assert_eq!(
        set_id(fleet, first, "b", "old").await,
        Some(Ok(())),
        "the old id is free now"
    );
}

/// The kept value and the past of a job are read together, and only the owner saves a past.
pub async fn only_the_owner_saves_a_past(place: &TestPlace) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    ask(&store, &["a", "b"]).await;
    let ((first, _), (second, _)) = (enter(fleet, 1).await, enter(fleet, 2).await);
    claim(fleet, first, 1, 9).await;
    store.keep("b", Some("kept".to_owned())).await.unwrap();
    let pasts = |text: &str| {
        let past = |id: &str| (DocId::from(id), text.to_owned());
        vec![past("b"), past("none"), past("a"), past("a")]
    };
    fleet.save_pasts(first, pasts("mine")).await.unwrap();
    fleet.save_pasts(second, pasts("other's")).await.unwrap();
    let row = |kept: Option<&str>| JobRow {
        kept: kept.map(str::to_owned),
        past: Some("mine".to_owned()),
    };
    let rows = fleet.job_rows(ids(&["b", "x\0", "a"])).await.unwrap();
    assert_eq!(rows, [row(Some("kept")), JobRow::default(), row(None)]);
}

/// A document is changed for its owner only.
pub async fn a_document_is_changed_for_its_owner_only(place: &TestPlace) {
    let (store, fleet) = fleet_of(place);
    let fleet = &*fleet;
    ask(&store, &["a"]).await;
    let ((first, _), (second, _)) = (enter(fleet, 1).await, enter(fleet, 2).await);
    let change = |epoch, body: &'static str| {
        let changed = store.change(Some(epoch), "a", Box::new(move |_| Some(body.to_owned())));
        async move { changed.await.unwrap().map(|revision| revision.number) }
    };
    assert_eq!(change(first, "{\"n\":1}").await, None);
    claim(fleet, first, 1, 9).await;
    assert_eq!(change(second, "{\"n\":2}").await, None);
    assert_eq!(change(first, "{\"n\":3}").await, Some(2));
    fleet
        .release(first, vec![("a".into(), Request(1))])
        .await
        .unwrap();
    claim(fleet, second, 1, 9).await;
    assert_eq!(change(first, "{\"n\":4}").await, None);
    assert_eq!(change(second, DONE).await, Some(3));
    let found = store.document("a").await.unwrap().unwrap();
    assert_eq!(found.body, DONE);
}

/// Daemons are notified of documents that request a replication, of releases, and of daemons that claim or leave.
pub async fn daemons_are_notified_when_there_may_be_something_to_claim(place: &TestPlace) {
    let (store, fleet) = fleet_of(place);
    let (others, other) = fleet_of(place);
    store.open().await.unwrap();
    let mut claims = other.told(Topic::Claims);
    let fleet = &*fleet;
    let mut notified = async |what: &str| {
        let changed = tokio::time::timeout(PATIENCE, claims.changed()).await;
        changed.expect(what).unwrap();
    };
    others.open().await.unwrap();
    notified("listening has begun").await;
    let rev = ask(&store, &["a"]).await.remove(0);
    notified("a document").await;
    let (first, _) = enter(fleet, 1).await;
    assert_eq!(claim(fleet, first, 1, 9).await.len(), 1);
    notified("a daemon that claims").await;
    let release = vec![("a".into(), Request(1))];
    fleet.release(first, release).await.unwrap();
    notified("a release").await;
    fleet.renew(first, true, Reach::default()).await.unwrap();
    notified("a daemon that leaves").await;
    fleet.depart(first).await.unwrap();
    notified("a daemon that is gone").await;
    let rev = one(&store, edit("a", Some(rev), DONE)).await.unwrap();
    one(&store, edit("a", Some(rev), ASKS)).await.unwrap();
    notified("a document that requests a replication again").await;
}
