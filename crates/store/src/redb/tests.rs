//! Tests of what only a store in a file can: formats, permissions, a file that is in use.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use super::*;
use crate::Store;
use crate::error::OpenProblem;
use crate::suite::{edit, one};

mod migrate;
mod upkeep;

fn started(place: StorePlace) -> Store {
    crate::suite::started(place, Arc::new(()))
}

#[tokio::test]
async fn what_was_written_is_there_after_the_file_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in/there/s.redb");
    let place = StorePlace::of(Some(&path));
    let store = started(place.clone());
    let revision = one(&store, edit("a", None, "{}")).await.unwrap();
    store.keep("j", Some("{}".into())).await.unwrap();
    let uuid = store.uuid().await.unwrap();
    assert_eq!(uuid.len(), 32);
    drop(store);
    let store = opened(place).await;
    let found = store.document("a").await.unwrap().unwrap();
    assert_eq!((found.revision, found.seq), (revision, 1));
    assert_eq!(store.uuid().await.unwrap(), uuid);
    assert_eq!(*store.updates().borrow(), Some(1));
    assert_eq!(store.kept("j").await.unwrap().as_deref(), Some("{}"));
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}

#[tokio::test]
async fn a_file_that_somebody_else_has_is_an_error_and_is_opened_when_it_is_free() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.redb");
    let first = redb::Database::create(&path).unwrap();
    let store = started(StorePlace::of(Some(&path)));
    let error = store.open().await.unwrap_err();
    let StoreError::Open(open) = &error else {
        panic!("{error}");
    };
    assert_eq!(open.problem, OpenProblem::InUse);
    assert!(
        error
            .to_string()
            .contains("s.redb is in use by another process")
    );
    drop(first);
    store.open().await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_no_store_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.redb");
    let text = "this is a letter to my grandmother\n".repeat(1000);
    std::fs::write(&path, &text).unwrap();
    let store = started(StorePlace::of(Some(&path)));
    let error = store.open().await.unwrap_err();
    assert!(matches!(&error, StoreError::Open(e) if matches!(e.problem, OpenProblem::Broken(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_an_error_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let store = started(StorePlace::of(Some(&file.join("below/s.redb"))));
    let error = store.open().await.unwrap_err().to_string();
    assert!(
        error.contains("cannot be opened") && error.contains("[store] path"),
        "{error}"
    );
}

#[tokio::test]
async fn a_file_of_the_first_form_is_taken_over() {
    type Row = (u64, u128, bool, u64, &'static str);
    const DOCUMENTS: redb::TableDefinition<&str, Row> = redb::TableDefinition::new("documents");
    const UPDATES: redb::TableDefinition<u64, &str> = redb::TableDefinition::new("updates");
    const COUNTERS: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("counters");
    const META: redb::TableDefinition<&str, &str> = redb::TableDefinition::new("meta");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.redb");
    {
        let before = redb::Database::create(&path).unwrap();
        let write = before.begin_write().unwrap();
        {
            let mut documents = write.open_table(DOCUMENTS).unwrap();
            documents.insert("a", (2, 0xabc, false, 7, "{}")).unwrap();
            write.open_table(UPDATES).unwrap().insert(7, "a").unwrap();
            write
                .open_table(COUNTERS)
                .unwrap()
                .insert("last_update", 7)
                .unwrap();
            let mut meta = write.open_table(META).unwrap();
            meta.insert("format", "1").unwrap();
            meta.insert("uuid", "0123").unwrap();
        }
        write.commit().unwrap();
    }
    let store = started(StorePlace::of(Some(&path)));
    let found = store.document("a").await.unwrap().unwrap();
    assert_eq!(found.revision.to_string(), format!("2-{:032x}", 0xabc));
    assert_eq!(
        store.changes(0, 9).await.unwrap().documents,
        std::slice::from_ref(&found)
    );
    assert_eq!(store.uuid().await.unwrap(), "0123");
    let next = one(&store, edit("a", Some(found.revision.clone()), "{}"))
        .await
        .unwrap();
    assert_eq!(next.number, 3);
}

#[tokio::test]
async fn a_file_of_a_later_form_is_refused() {
    const META: redb::TableDefinition<&str, &str> = redb::TableDefinition::new("meta");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.redb");
    {
        let later = redb::Database::create(&path).unwrap();
        let write = later.begin_write().unwrap();
        write
            .open_table(META)
            .unwrap()
            .insert("format", "99")
            .unwrap();
        write.commit().unwrap();
    }
    let store = started(StorePlace::of(Some(&path)));
    let error = store.open().await.unwrap_err().to_string();
    assert!(
        error.contains("(format 99, this program knows 3): start the program that wrote it"),
        "{error}"
    );
}

/// Opens a store again: the thread of the one before closes the file when it has seen that nobody asks any more.
async fn opened(place: StorePlace) -> Store {
    let store = started(place);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while let Err(error) = store.open().await {
        assert!(std::time::Instant::now() < deadline, "{error}");
        tokio::task::yield_now().await;
    }
    store
}
