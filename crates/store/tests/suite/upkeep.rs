//! Purges of deleted documents.

use super::*;
use crate::unix_now;

/// A time at which every deletion so far is due for a purge.
pub fn later() -> u64 {
    unix_now() + 10
}

/// Creates documents with bodies of about `bytes` bytes, and deletes them.
pub async fn make_and_delete(store: &Store, count: usize, bytes: usize) {
    let body = format!("{{\"x\":\"{}\"}}", "x".repeat(bytes));
    for first in (0..count).step_by(500) {
        let ids = (first..count.min(first + 500)).map(|n| format!("gone-{n:06}"));
        let edits: Vec<Edit> = ids.map(|id| edit(&id, None, &body)).collect();
        let ids: Vec<String> = edits.iter().map(|edit| edit.id.clone()).collect();
        let made = store.edit(edits).await.unwrap().into_iter();
        let deletions = ids.iter().zip(made);
        let deletions = deletions.map(|(id, rev)| deletion(id, Some(rev.unwrap())));
        store.edit(deletions.collect()).await.unwrap();
    }
}

pub(crate) async fn purge_all(store: &Store) -> usize {
    let (mut removed, mut next) = (0, 0);
    loop {
        let purged = store.purge(later(), next..=u64::MAX, 100).await.unwrap();
        removed += purged.removed;
        match purged.last {
            Some(last) => next = last + 1,
            None => return removed,
        }
    }
}

/// Deleted documents are purged once they are due, live ones never.
pub async fn only_deleted_documents_are_purged_after_their_time(place: &TestPlace) {
    let store = place.handle();
    let live = one(&store, edit("live", None, "{}")).await.unwrap();
    make_and_delete(&store, 250, 1).await;
    let dead = one(&store, edit("back", None, "{}")).await.unwrap();
    let dead = one(&store, deletion("back", Some(dead))).await.unwrap();
    let back = one(&store, edit("back", Some(dead), "{}")).await.unwrap();
    let seq = store.info().await.unwrap().update_seq;
    let early = store.purge(unix_now() - 10, 0..=u64::MAX, 1000).await;
    let early = early.unwrap();
    assert_eq!(
        (early.removed, early.last),
        (0, None),
        "no deletion is due yet"
    );
    assert_eq!(store.info().await.unwrap().deleted, 250);
    assert_eq!(purge_all(&store).await, 250);
    assert_eq!(purge_all(&store).await, 0);
    let info = store.info().await.unwrap();
    assert_eq!((info.documents, info.deleted, info.bytes), (2, 0, 4));
    assert_eq!(info.update_seq, seq, "sequence numbers continue");
    let changes = store.changes(0, 999).await.unwrap();
    let shown: Vec<_> = changes
        .documents
        .iter()
        .map(|d| (&*d.id, d.revision.clone()))
        .collect();
    assert_eq!(shown, [("live", live), ("back", back)]);
    assert_eq!(
        store.pending(0).await.unwrap(),
        2,
        "no row of a purged document is left"
    );
    assert_eq!(store.document("gone-000000").await.unwrap(), None);
    let recreated = one(&store, edit("gone-000000", None, "{}")).await.unwrap();
    assert_eq!(recreated.number, 1);
}
