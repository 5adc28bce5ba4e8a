//! A store of format 2, in which documents have branches, becomes one of today's.
//!
//! `format_2.redb.gz` was made by the last program that wrote format 2 (the commit "Read the names of this machine's users
//! once, before anybody is served"): `settee serve` with `[server] open = true` and `[replicator] max_jobs = 0`, then
//! `POST _bulk_docs` with `"new_edits": false` and the documents `a` (revisions `2-b`, `2-c` after `1-a`, and `3-d`, a
//! deletion) and `gone` (`2-y`, a deletion), `PUT plain`, `PUT _design/d`, `PUT _local/note`, `POST _pause` for the job of
//! `plain`, TERM, `gzip -9n store.redb`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// Every branch but the winner, in their order.
const BRANCHES: &str = r#"{"_id":"a","_rev":"2-b","source":"http://u:pw@127.0.0.1:1/a","target":"http://127.0.0.1:1/b","continuous":true,"n":1.0}
{"_id":"a","_rev":"3-d","_deleted":true}
"#;

/// The store's.
const UUID: &str = "d30821d8b062a99ef4a2f57fda1b7277";

/// Writes the store of format 2 into a directory, and returns the files of the store and of its branches.
fn old_store(directory: &Path) -> (PathBuf, PathBuf) {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/redb/tests/format_2.redb.gz");
    let unpacked = Command::new("gzip")
        .arg("-dc")
        .arg(packed)
        .output()
        .unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
    let path = directory.join("s.redb");
    std::fs::write(&path, unpacked.stdout).unwrap();
    let branches = format!("s.redb.branches-{UUID}-4.ndjson");
    (path, directory.join(branches))
}

async fn check(path: &Path) {
    let store = opened(StorePlace::File(path.to_owned())).await;
    let info = store.info().await.unwrap();
    assert_eq!((info.documents, info.deleted, info.update_seq), (3, 1, 4));
    assert_eq!(info.mark, UUID[..8]);
    let winner = store.document("a").await.unwrap().unwrap();
    assert_eq!(winner.revision.to_string(), "2-c");
    assert!(
        winner.body.contains("http://127.0.0.1:1/c"),
        "{}",
        winner.body
    );
    let changes = store.changes(0, 9).await.unwrap();
    let ids = changes.documents.iter().map(|document| &*document.id);
    assert_eq!(ids.collect::<Vec<_>>(), ["a", "gone", "plain", "_design/d"]);
    let kept = store.kept("plain").await.unwrap().unwrap();
    assert!(kept.contains("paused"), "{kept}");
    assert!(store.local("note").await.unwrap().is_some());
}

#[tokio::test]
async fn the_winner_of_each_document_stays_and_other_branches_go_to_a_file_beside_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let (path, branches) = old_store(directory.path());
    check(&path).await;
    assert_eq!(std::fs::read_to_string(&branches).unwrap(), BRANCHES);
    let mode = branches.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Once is enough.
    std::fs::remove_file(&branches).unwrap();
    check(&path).await;
    assert!(!branches.exists());
    let store = opened(StorePlace::File(path)).await;
    let known = Some("2-c".parse().unwrap());
    let next = one(&store, edit("a", known, "{}")).await.unwrap();
    assert_eq!(next.number, 3);
}

#[tokio::test]
async fn a_migration_that_was_interrupted_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (path, branches) = old_store(directory.path());
    let database = redb::Database::open(&path).unwrap();
    let place = StorePlace::File(path.clone());
    // What a crash before the transaction's end leaves: both files, and the store as it was.
    let transaction = database.begin_write().unwrap();
    {
        let records = Records::of(&transaction, &()).unwrap();
        let set_aside = crate::redb::migrate::from_format_2(&transaction, &records, &place);
        assert_eq!(set_aside.unwrap().unwrap().count, 2);
    }
    transaction.abort().unwrap();
    drop(database);
    assert_eq!(std::fs::read_to_string(&branches).unwrap(), BRANCHES);
    std::fs::write(branches.with_extension("part"), "half a li").unwrap();
    check(&path).await;
    assert_eq!(std::fs::read_to_string(&branches).unwrap(), BRANCHES);
    assert!(!branches.with_extension("part").exists());
}

#[tokio::test]
async fn the_branches_of_a_store_that_stood_in_the_same_place_before_stay() {
    let directory = tempfile::tempdir().unwrap();
    let (path, branches) = old_store(directory.path());
    check(&path).await;
    std::fs::remove_file(&path).unwrap();
    old_store(directory.path());
    let other = "0123456789abcdef0123456789abcdef";
    set_uuid(&path, other);
    opened(StorePlace::File(path)).await;
    let name = format!("s.redb.branches-{other}-4.ndjson");
    for file in [branches, directory.path().join(name)] {
        assert_eq!(std::fs::read_to_string(file).unwrap(), BRANCHES);
    }
}

/// Makes another store of one.
fn set_uuid(path: &Path, uuid: &str) {
    let meta: redb::TableDefinition<'_, &str, &str> = redb::TableDefinition::new("meta");
    let database = redb::Database::open(path).unwrap();
    let transaction = database.begin_write().unwrap();
    let mut table = transaction.open_table(meta).unwrap();
    table.insert("uuid", uuid).unwrap();
    drop(table);
    transaction.commit().unwrap();
}

#[tokio::test]
async fn a_store_whose_branches_cannot_be_written_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (path, branches) = old_store(directory.path());
    std::fs::create_dir_all(branches.join("in the way")).unwrap();
    let store = started(StorePlace::File(path.clone()));
    let error = store.open().await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Open(error) if matches!(error.problem, OpenProblem::Io(..))),
        "{error}"
    );
    std::fs::remove_dir_all(&branches).unwrap();
    drop(store);
    check(&path).await;
    assert_eq!(std::fs::read_to_string(&branches).unwrap(), BRANCHES);
}

#[tokio::test]
async fn a_copy_has_the_winners_and_leaves_the_file_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (path, branches) = old_store(directory.path());
    let before = std::fs::read(&path).unwrap();
    let target = directory.path().join("target.redb");
    let places = [&path, &target].map(|path| StorePlace::File(path.clone()));
    let nobody: Arc<dyn Watcher> = Arc::new(());
    let copied = crate::copy::copy(&places[0], &places[1], &nobody).await;
    assert_eq!(copied.unwrap().documents, 4);
    assert!(std::fs::read(&path).unwrap() == before, "it is of format 2");
    assert_eq!(std::fs::read_to_string(&branches).unwrap(), BRANCHES);
    check(&target).await;
}
