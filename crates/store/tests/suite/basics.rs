//! Revisions, conflicts, the order of updates.

use super::*;
use crate::documents::Document;

/// A write must name the last revision.
pub async fn a_write_must_name_the_last_revision(place: &TestPlace) {
    let store = place.handle();
    let first = one(&store, edit("a", None, "{}")).await.unwrap();
    assert_eq!(first.number, 1);
    assert_eq!(one(&store, edit("a", None, "{}")).await, Err(Conflict));
    let second = one(&store, edit("a", Some(first.clone()), "{\"x\":1}"))
        .await
        .unwrap();
    assert_eq!(second.number, 2);
    assert_eq!(
        one(&store, edit("a", Some(first.clone()), "{}")).await,
        Err(Conflict)
    );
    assert_eq!(
        one(&store, edit("b", Some(first.clone()), "{}")).await,
        Err(Conflict)
    );
    assert_eq!(one(&store, deletion("b", None)).await, Err(Conflict));
    let found = store.document("a").await.unwrap().unwrap();
    assert_eq!((found.revision, found.body.as_str()), (second, "{\"x\":1}"));
}

/// A deleted document keeps its last revision and can be recreated.
pub async fn a_deleted_document_keeps_its_last_revision_and_can_be_recreated(place: &TestPlace) {
    let store = place.handle();
    let first = one(&store, edit("a", None, "{}")).await.unwrap();
    let gone = one(&store, deletion("a", Some(first.clone())))
        .await
        .unwrap();
    let found = store.document("a").await.unwrap().unwrap();
    assert!(found.deleted);
    let info = store.info().await.unwrap();
    assert_eq!((info.documents, info.deleted, info.update_seq), (0, 1, 2));
    let again = one(&store, edit("a", None, "{}")).await.unwrap();
    assert_eq!((gone.number, again.number), (2, 3));
    let info = store.info().await.unwrap();
    assert_eq!((info.documents, info.deleted), (1, 0));
}

/// Edits of one request see the earlier ones.
pub async fn edits_of_one_request_see_the_earlier_ones(place: &TestPlace) {
    let store = place.handle();
    let edits = vec![
        edit("a", None, "1"),
        edit("b", None, "2"),
        edit("a", None, "3"),
    ];
    let results = store.edit(edits).await.unwrap();
    assert!(results[0].is_ok() && results[1].is_ok());
    assert_eq!(results[2], Err(Conflict));
}

/// A recreated document has no kept value of the deleted one.
pub async fn a_recreated_document_has_no_kept_value_of_the_deleted_one(place: &TestPlace) {
    let store = place.handle();
    let first = one(&store, edit("a", None, "{}")).await.unwrap();
    store.keep("a", Some("{}".to_owned())).await.unwrap();
    let edits = vec![deletion("a", Some(first)), edit("a", None, "{}")];
    let results = store.edit(edits).await.unwrap();
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(store.kept("a").await.unwrap(), None);
}

/// Changes list each document once in the order of its last update.
pub async fn changes_list_each_document_once_in_the_order_of_its_last_update(place: &TestPlace) {
    let store = place.handle();
    let updates = store.updates();
    let first = one(&store, edit("a", None, "{}")).await.unwrap();
    one(&store, edit("b", None, "{}")).await.unwrap();
    one(&store, edit("a", Some(first.clone()), "{}"))
        .await
        .unwrap();
    assert_eq!(*updates.borrow(), Some(3));
    let changes = store.changes(0, 9).await.unwrap();
    let ids: Vec<_> = changes
        .documents
        .iter()
        .map(|d| (d.id.as_str(), d.seq))
        .collect();
    assert_eq!(ids, [("b", 2), ("a", 3)]);
    let changes = store.changes(0, 1).await.unwrap();
    assert_eq!(changes.documents.len(), 1);
    assert_eq!(store.pending(2).await.unwrap(), 1);
    assert_eq!(store.changes(3, 9).await.unwrap().documents, []);
}

/// `last_changes` returns the newest changes first.
pub async fn last_changes_returns_the_newest_changes_first(place: &TestPlace) {
    let store = place.handle();
    assert_eq!(store.last_changes(9).await.unwrap(), []);
    let first = one(&store, edit("a", None, "1")).await.unwrap();
    let gone = one(&store, edit("b", None, "2")).await.unwrap();
    one(&store, edit("c", None, "3")).await.unwrap();
    one(&store, deletion("b", Some(gone))).await.unwrap();
    one(&store, edit("a", Some(first), "4")).await.unwrap();
    let mut all = store.changes(0, usize::MAX).await.unwrap().documents;
    all.reverse();
    let seqs: Vec<_> = all.iter().map(|document| document.seq).collect();
    assert_eq!(seqs, [5, 4, 3]);
    for limit in [0, 1, 2, 3, usize::MAX] {
        let last = store.last_changes(limit).await.unwrap();
        assert_eq!(last, all[..limit.min(3)], "limit {limit}");
    }
}

/// A change applies to the current revision or not at all.
pub async fn a_change_applies_to_the_current_revision_or_not_at_all(place: &TestPlace) {
    let store = place.handle();
    let longer = |document: &Document| Some(format!("{}+", document.body));
    assert_eq!(
        store.change(None, "a", Box::new(longer)).await.unwrap(),
        None
    );
    let first = one(&store, edit("a", None, "1")).await.unwrap();
    let second = store
        .change(None, "a", Box::new(longer))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(second.number, 2);
    assert_eq!(
        store.change(None, "a", Box::new(|_| None)).await.unwrap(),
        None
    );
    assert_eq!(store.document("a").await.unwrap().unwrap().body, "1+");
    assert_eq!(
        one(&store, edit("a", Some(first.clone()), "x")).await,
        Err(Conflict)
    );
    one(&store, deletion("a", Some(second.clone())))
        .await
        .unwrap();
    assert_eq!(
        store.change(None, "a", Box::new(longer)).await.unwrap(),
        None
    );
}

/// Local documents count their updates and appear nowhere else.
pub async fn local_documents_count_their_updates_and_appear_nowhere_else(place: &TestPlace) {
    let store = place.handle();
    let put = async |expected, body: Option<&str>| {
        let body = body.map(str::to_owned);
        store.edit_local("x", expected, body).await.unwrap()
    };
    assert_eq!(put(None, None).await, Err(Conflict));
    assert_eq!(put(None, Some("{}")).await, Ok(1));
    assert_eq!(put(None, Some("{}")).await, Err(Conflict));
    assert_eq!(put(Some(1), Some("{\"a\":1}")).await, Ok(2));
    assert_eq!(store.local("x").await.unwrap().unwrap().body, "{\"a\":1}");
    assert_eq!(store.info().await.unwrap().update_seq, 0);
    assert_eq!(put(Some(2), None).await, Ok(3));
    assert_eq!(store.local("x").await.unwrap(), None);
}

/// The order of members and the digits of numbers are kept.
pub async fn the_order_of_members_and_the_digits_of_numbers_are_kept(place: &TestPlace) {
    let store = place.handle();
    let body = r#"{"z":1.0,"a":12345678901234567890123,"e":1e2,"é":"\u0000 \n ☃","z":0.10}"#;
    one(&store, edit("ö/☃ 'x'", None, body)).await.unwrap();
    let found = place.handle().document("ö/☃ 'x'").await.unwrap().unwrap();
    assert_eq!(found.body, body);
}
