//! Compaction of the file, and purges.

use super::*;
use crate::suite::{make_and_delete, purge_all};
use crate::unix_now;

#[tokio::test]
async fn a_mostly_free_file_shrinks_when_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.redb");
    let store = started(StorePlace::File(path.clone()));
    one(&store, edit("live", None, "{}")).await.unwrap();
    let uuid = store.uuid().await.unwrap();
    make_and_delete(&store, 2000, 8000).await;
    assert_eq!(purge_all(&store).await, 2000);
    let large = path.metadata().unwrap().len();
    assert!(large > 8_000_000, "{large} bytes");
    assert!(store.compact().await.unwrap() > 7_000_000);
    let small = path.metadata().unwrap().len();
    assert!(small < 1_000_000, "{small} bytes");
    assert_eq!(store.compact().await, Ok(0), "no free space is left");
    assert_eq!(store.uuid().await.unwrap(), uuid);
    assert!(store.document("live").await.unwrap().is_some());
    one(&store, edit("later", None, "{}")).await.unwrap();
}

#[tokio::test]
async fn deletions_without_a_recorded_time_are_purged_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.redb");
    let store = started(StorePlace::File(path.clone()));
    one(&store, edit("live", None, "{}")).await.unwrap();
    make_and_delete(&store, 10, 1).await;
    drop(store);
    {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let database = loop {
            match redb::Database::open(&path) {
                Ok(database) => break database,
                // The store's thread closes the file once it has noticed that no caller is left.
                Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
            }
            tokio::task::yield_now().await;
        };
        let write = database.begin_write().unwrap();
        let deaths = redb::TableDefinition::<u64, u64>::new("deaths");
        assert!(write.delete_table(deaths).unwrap());
        write.commit().unwrap();
    }
    let store = started(StorePlace::File(path));
    let early = store.purge(unix_now() - 10, 0..=u64::MAX, 99).await;
    assert_eq!(early.unwrap().removed, 0);
    assert_eq!(purge_all(&store).await, 10);
}
