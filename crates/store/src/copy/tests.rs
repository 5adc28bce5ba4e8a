//! A store copied from one file to another.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::Store;
use crate::suite::{PATIENCE, deletion, edit, one, started};

fn place(folder: &Path, name: &str) -> StorePlace {
    StorePlace::File(folder.join(name))
}

fn nobody() -> Arc<dyn Watcher> {
    Arc::new(())
}

async fn copy(from: &StorePlace, to: &StorePlace) -> Result<Copied, CopyError> {
    super::copy(from, to, &nobody()).await
}

/// Waits until the thread of a store has closed its file, and opens it again.
async fn reopened(place: &StorePlace) -> Store {
    let store = started(place.clone(), Arc::new(()));
    let deadline = std::time::Instant::now() + PATIENCE;
    while let Err(error) = store.open().await {
        assert!(std::time::Instant::now() < deadline, "{error}");
        tokio::task::yield_now().await;
    }
    store
}

fn bytes(place: &StorePlace) -> Vec<u8> {
    match place {
        StorePlace::File(path) => std::fs::read(path).unwrap(),
        place => panic!("{place} is no file"),
    }
}

async fn closed(place: &StorePlace) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while let Err(problem) = crate::redb::file::open(place) {
        assert!(std::time::Instant::now() < deadline, "{problem:?}");
        tokio::task::yield_now().await;
    }
}

/// Makes a store with more rows than are copied at a time.
async fn source(folder: &Path) -> StorePlace {
    let place = place(folder, "source.redb");
    let store = started(place.clone(), Arc::new(()));
    let edits = (0..2500).map(|n| edit(&format!("d{n:04}"), None, "{\"n\":1.0}"));
    store.edit(edits.collect()).await.unwrap();
    let gone = one(&store, edit("gone", None, "{}")).await.unwrap();
    one(&store, deletion("gone", Some(gone))).await.unwrap();
    let long = format!("{{\"x\":\"{}\"}}", "x".repeat(2 << 20));
    one(&store, edit("long", None, &long)).await.unwrap();
    let local = store.edit_local("l", None, Some("{}".to_owned())).await;
    local.unwrap().unwrap();
    store.keep("d0007", Some("kept".to_owned())).await.unwrap();
    drop(store);
    closed(&place).await;
    place
}

async fn all(place: &StorePlace) -> (String, u64, String) {
    let store = reopened(place).await;
    let changes = store.changes(0, usize::MAX).await.unwrap();
    let (info, store_uuid) = (store.info().await.unwrap(), store.uuid().await.unwrap());
    let rest = (store.local("l").await, store.kept("d0007").await);
    drop(store);
    closed(place).await;
    (store_uuid, info.bytes, format!("{changes:?} {rest:?}"))
}

#[tokio::test]
async fn a_copy_has_all_that_the_source_has_and_a_second_one_only_compares() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (source(folder.path()).await, place(folder.path(), "to.redb"));
    let copied = copy(&from, &to).await.unwrap();
    assert_eq!((copied.documents, copied.deleted), (2502, 1));
    assert_eq!((copied.locals, copied.jobs, copied.before), (1, 1, 0));
    assert_eq!((copied.seq, copied.hash.len()), (2503, 64));
    assert!(all(&from).await == all(&to).await, "they differ");
    let again = copy(&from, &to).await.unwrap();
    assert_eq!(again.before, 2504);
    assert_eq!(again.hash, copied.hash);
    let store = reopened(&to).await;
    let purged = store.purge(u64::MAX, 0, 9).await.unwrap();
    assert_eq!(purged.removed, 1, "it is known when it was deleted");
}

#[tokio::test]
async fn the_file_of_a_source_is_the_same_afterwards_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(folder.path()).await;
    let before = bytes(&from);
    let copied = copy(&from, &place(folder.path(), "to.redb")).await.unwrap();
    assert!(bytes(&from) == before, "it was closed in order");
    // What a service leaves that is killed.
    let killed = place(folder.path(), "killed.redb");
    let store = reopened(&from).await;
    one(&store, edit("more", None, "{}")).await.unwrap();
    std::fs::write(folder.path().join("killed.redb"), bytes(&from)).unwrap();
    let before = bytes(&killed);
    let again = copy(&killed, &place(folder.path(), "too.redb"))
        .await
        .unwrap();
    assert_eq!(again.documents, copied.documents + 1);
    assert!(bytes(&killed) == before, "it was not closed");
    let in_use = copy(&from, &place(folder.path(), "not.redb")).await;
    let in_use = format!("{:?}", in_use.unwrap_err());
    assert!(in_use.contains("InUse"), "{in_use}");
    drop(store);
    // No service has it while it is read.
    closed(&from).await;
    let side = Side::open(&from, &nobody(), true).await.unwrap();
    let refused = crate::redb::file::open(&from);
    assert!(matches!(refused, Err(OpenProblem::InUse)), "{refused:?}");
    drop(side);
    closed(&from).await;
}

#[tokio::test]
async fn an_interrupted_copy_is_opened_by_no_service_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (source(folder.path()).await, place(folder.path(), "to.redb"));
    {
        let side = Side::open(&from, &nobody(), true).await.unwrap();
        let head = side.head().await.unwrap();
        let rows = side.rows(RowKind::Documents, "").await.unwrap();
        assert_eq!(rows.len(), ROWS_MAX);
        let target = Side::open(&to, &nobody(), false).await.unwrap();
        target.begin(&head.uuid).await.unwrap();
        target.put(RowKind::Documents, &rows).await.unwrap();
    }
    let store = started(to.clone(), Arc::new(()));
    let error = store.open().await.unwrap_err();
    assert!(error.to_string().contains(UNFINISHED), "{error}");
    drop(store);
    closed(&to).await;
    let as_source = copy(&to, &place(folder.path(), "third.redb")).await;
    assert!(
        matches!(as_source, Err(CopyError::Store(_))),
        "{as_source:?}"
    );
    let copied = copy(&from, &to).await.unwrap();
    assert_eq!((copied.documents, copied.before), (2502, 1000));
    assert!(all(&from).await == all(&to).await, "they differ");
}

#[tokio::test]
async fn a_target_that_holds_something_else_and_a_source_that_is_not_there_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (source(folder.path()).await, place(folder.path(), "to.redb"));
    let other = started(to.clone(), Arc::new(()));
    one(&other, edit("mine", None, "{}")).await.unwrap();
    let in_use = copy(&from, &to).await.unwrap_err();
    assert!(format!("{in_use:?}").contains("InUse"), "{in_use:?}");
    drop(other);
    closed(&to).await;
    let foreign = copy(&from, &to).await;
    assert_eq!(foreign, Err(CopyError::Foreign(to.to_string())));
    let store = reopened(&to).await;
    assert!(store.document("mine").await.unwrap().is_some());
    let missing = place(folder.path(), "missing.redb");
    let refused = copy(&missing, &place(folder.path(), "new.redb")).await;
    assert_eq!(refused, Err(CopyError::NoSource(missing.to_string())));
    assert!(!missing.exists());
}

#[tokio::test]
async fn a_copy_whose_source_has_changed_meanwhile_is_told_and_stays_unfinished() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (source(folder.path()).await, place(folder.path(), "to.redb"));
    {
        let side = Side::open(&from, &nobody(), true).await.unwrap();
        let rows = side.rows(RowKind::Documents, "").await.unwrap();
        let target = Side::open(&to, &nobody(), false).await.unwrap();
        let uuid = side.head().await.unwrap().uuid;
        target.begin(&uuid).await.unwrap();
        target.put(RowKind::Documents, &rows).await.unwrap();
    }
    let store = reopened(&from).await;
    store
        .change("d0001", |_| Some("{}".to_owned()))
        .await
        .unwrap();
    drop(store);
    closed(&from).await;
    let differs = copy(&from, &to).await;
    assert_eq!(differs, Err(CopyError::Differs(to.to_string())));
    let store = started(to, Arc::new(()));
    assert!(store.open().await.is_err());
}
