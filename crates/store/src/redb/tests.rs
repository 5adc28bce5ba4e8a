//! Tests specific to a store in a file: formats, permissions, a file in use.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::*;
use crate::error::OpenProblem;
use crate::export::RowKind;
use crate::suite::{edit, one};
use crate::{ExportLines, ExportReader, OpenError, Store, uuid_file};

mod damage;
mod upkeep;

fn started(place: StorePlace) -> Store {
    crate::suite::started(place, Arc::new(()))
}

#[tokio::test]
async fn writes_survive_reopening_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("in/there/s.redb");
    let place = StorePlace::File(path.clone());
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
    let folder = path.parent().unwrap();
    assert_eq!(mode(folder), 0o700);
    let files = folder.read_dir().unwrap().count();
    assert_eq!(files, 2, "the store and its uuid; no temporary file");
}

#[tokio::test]
async fn a_store_replaces_another_uuid_beside_it_with_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let place = StorePlace::File(directory.path().join("s.redb"));
    let uuid = started(place.clone()).uuid().await.unwrap();
    let file = uuid_file::beside(&place).unwrap();
    uuid_file::write(&file, &"f".repeat(32)).unwrap();
    drop(opened(place).await);
    assert_eq!(uuid_file::read(&file), Some(uuid));
}

#[tokio::test]
async fn a_file_in_use_is_an_error_and_opens_once_it_is_free() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.redb");
    let first = redb::Database::create(&path).unwrap();
    let store = started(StorePlace::File(path.clone()));
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
async fn opening_waits_briefly_for_a_file_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.redb");
    drop(redb::Database::create(&path).unwrap());
    let mut other = Command::new("flock")
        .arg(&path)
        .args(["sh", "-c", "echo; exec sleep 0.3"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0];
    other
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    let store = started(StorePlace::File(path.clone()));
    store.open().await.unwrap();
    assert!(other.wait().unwrap().success());
}

#[tokio::test]
async fn a_file_that_is_not_a_store_is_left_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.redb");
    let text = "this is a letter to my grandmother\n".repeat(1000);
    fs::write(&path, &text).unwrap();
    let store = started(StorePlace::File(path.clone()));
    let error = store.open().await.unwrap_err();
    assert!(matches!(&error, StoreError::Open(e) if matches!(e.problem, OpenProblem::NoStore(_))));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn a_directory_that_cannot_be_created_is_an_error_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let store = started(StorePlace::File(file.join("below/s.redb")));
    let error = store.open().await.unwrap_err().to_string();
    assert!(
        error.contains("cannot be read or written") && error.contains("[store] path"),
        "{error}"
    );
}

#[derive(Debug, Default)]
struct Refused(std::sync::Mutex<Vec<u64>>);

impl StoreObserver for Refused {
    fn ended(&self, _: crate::DatabaseRequest, _: std::time::Duration) {}
    fn connected(&self) {}
    fn disconnected(&self) {}
    fn refused(&self, writes: u64, _: &StoreError) {
        self.0.lock().unwrap().push(writes);
    }
}

#[tokio::test]
async fn refused_writes_are_counted_except_while_another_process_holds_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file/s.redb");
    fs::write(path.parent().unwrap(), "").unwrap();
    let refused = Arc::new(Refused::default());
    let log = Logger::root(slog::Discard, slog::o!());
    let place = StorePlace::File(path.clone());
    let store = Store::start(place, Arc::new(()), Arc::clone(&refused) as _, &log).unwrap();
    let counted = || refused.0.lock().unwrap().clone();
    store.open().await.unwrap_err();
    assert_eq!(counted(), [0; 0], "there was nothing to write");
    store.keep("a", None).await.unwrap_err();
    assert_eq!(counted(), [1]);
    fs::remove_file(path.parent().unwrap()).unwrap();
    fs::create_dir(path.parent().unwrap()).unwrap();
    let other = redb::Database::create(&path).unwrap();
    store.keep("a", None).await.unwrap_err();
    drop(other);
    store.keep("a", None).await.unwrap();
    assert_eq!(counted(), [1]);
}

#[tokio::test]
async fn a_file_of_another_format_is_refused() {
    const META: redb::TableDefinition<&str, &str> = redb::TableDefinition::new("meta");
    for format in ["2", "99"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.redb");
        {
            let other = redb::Database::create(&path).unwrap();
            let write = other.begin_write().unwrap();
            let mut meta = write.open_table(META).unwrap();
            meta.insert("format", format).unwrap();
            drop(meta);
            write.commit().unwrap();
        }
        let store = started(StorePlace::File(path.clone()));
        let error = store.open().await.unwrap_err().to_string();
        let expected =
            format!("(format {format}, this program knows 3): start the program that wrote it");
        assert!(error.contains(&expected), "{error}");
    }
}

/// Reopens a store: the previous one's thread closes the file once it has noticed that no caller is left.
async fn opened(place: StorePlace) -> Store {
    let store = started(place);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while let Err(error) = store.open().await {
        assert!(std::time::Instant::now() < deadline, "{error}");
        tokio::task::yield_now().await;
    }
    store
}

#[tokio::test]
async fn free_space_is_returned_once_no_snapshot_is_held() {
    let directory = tempfile::tempdir().unwrap();
    let store = started(StorePlace::File(directory.path().join("s.redb")));
    crate::suite::make_and_delete(&store, 2000, 8000).await;
    let (first, second) = (
        store.snapshot().await.unwrap(),
        store.snapshot().await.unwrap(),
    );
    crate::suite::purge_all(&store).await;
    assert_eq!(store.compact().await, Ok(0), "two snapshots are held");
    drop(first);
    assert_eq!(store.compact().await, Ok(0), "one snapshot is held");
    drop(second);
    // Space kept by a snapshot is free after the next write.
    one(&store, edit("later", None, "{}")).await.unwrap();
    assert!(store.compact().await.unwrap() > 0);
}

#[test]
fn an_unread_snapshot_is_dropped_after_a_minute() {
    let (_, requests) = mpsc::channel(1);
    let mut keeper = Keeper {
        place: StorePlace::Memory,
        new_uuid: "u".into(),
        watcher: Arc::new(()),
        requests,
        update_seq: watch::channel(None).0,
        database: None,
        held: Vec::new(),
        held_count: 0,
        refusals: Refusals::new(Arc::new(()), Logger::root(slog::Discard, slog::o!())),
        log: Logger::root(slog::Discard, slog::o!()),
    };
    let (number, ..) = keeper.hold().unwrap();
    let after = |seconds| std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    keeper.drop_idle(after(59));
    let rows = keeper.read_held(number, RowKind::Locals, "");
    assert!(rows.unwrap().is_empty());
    keeper.drop_idle(after(61));
    let error = keeper.read_held(number, RowKind::Locals, "").unwrap_err();
    assert!(
        error.to_string().contains("was not read for a minute"),
        "{error}"
    );
}

/// Waits until a store's thread has closed the file, once it has noticed that no caller is left.
async fn closed(place: &StorePlace) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while let Err(error) = place.snapshot().await
        && error.problem == OpenProblem::InUse
    {
        assert!(std::time::Instant::now() < deadline, "{error}");
    }
}

/// Replaces a store with an export.
async fn replaced(place: &StorePlace, bytes: &[u8]) -> Result<(), OpenError> {
    let (head, mut reader) = ExportReader::open(bytes).unwrap();
    let rows = std::iter::from_fn(|| reader.row().unwrap().map(Ok));
    place.replace(&head, rows, &()).await
}

#[tokio::test]
async fn an_export_replaces_the_whole_store() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| StorePlace::File(folder.path().join(name));
    let first = started(at("first.redb"));
    crate::suite::make_and_delete(&first, 700, 10).await;
    let local = first.edit_local("l", None, Some("{\"a\":1.0}".to_owned()));
    local.await.unwrap().unwrap();
    one(&first, edit("live", None, "{}")).await.unwrap();
    first.keep("live", Some("{}".to_owned())).await.unwrap();
    let (bytes, _) = crate::suite::exported(&first).await;
    let second = started(at("second.redb"));
    one(&second, edit("other", None, "{}")).await.unwrap();
    let error = replaced(&at("second.redb"), &bytes).await.unwrap_err();
    assert_eq!(error.problem, OpenProblem::InUse);
    assert!(second.document("other").await.unwrap().is_some());
    drop(second);
    for place in [at("second.redb"), at("new/third.redb")] {
        closed(&place).await;
        replaced(&place, &bytes).await.unwrap();
        let mut lines = ExportLines::new(place.snapshot().await.unwrap(), None);
        let mut again = Vec::new();
        while let Some(some) = lines.next().await.unwrap() {
            again.extend(some);
        }
        drop(lines);
        assert!(again == bytes, "the exports differ");
        let store = opened(place).await;
        assert_eq!(store.changes(0, 9999).await, first.changes(0, 9999).await);
        assert_eq!(store.info().await, first.info().await);
        let purged = store.purge(u64::MAX, 0..=u64::MAX, 9999).await.unwrap();
        assert_eq!(purged.removed, 700, "deletion times are kept");
    }
}

#[tokio::test]
async fn a_failed_import_leaves_the_store_unchanged_and_an_import_replaces_a_damaged_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.redb");
    let place = StorePlace::File(path.clone());
    let store = started(place.clone());
    one(&store, edit("mine", None, "{}")).await.unwrap();
    let (bytes, _) = crate::suite::exported(&store).await;
    drop(store);
    drop(opened(place.clone()).await);
    closed(&place).await;
    let before = fs::read(&path).unwrap();
    let (head, mut reader) = ExportReader::open(&*bytes).unwrap();
    let first = reader.row().unwrap().map(Ok);
    let failing = place.cannot_open(OpenProblem::Failed("it ended early".to_owned()));
    let rows = [first.unwrap(), Err(failing.clone())].into_iter();
    assert_eq!(place.replace(&head, rows, &()).await, Err(failing));
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        2,
        "the store and replicate.uuid"
    );
    // An export does not change the file, and no service can open it meanwhile.
    let snapshot = place.snapshot().await.unwrap();
    let refused = file::open(&place);
    assert!(matches!(refused, Err(OpenProblem::InUse)), "{refused:?}");
    drop(snapshot);
    assert!(fs::read(&path).unwrap() == before);
    fs::write(&path, &before[..before.len() / 2]).unwrap();
    replaced(&place, &bytes).await.unwrap();
    let store = opened(place).await;
    assert!(store.document("mine").await.unwrap().is_some());
}
