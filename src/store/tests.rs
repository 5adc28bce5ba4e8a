//! Tests of [`super`]: revisions, conflicts, order, what survives.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt;

use super::revision::InvalidRevision;
use super::*;

mod migrate;
mod transfer;
mod upkeep;

fn edit(id: &str, expected: Option<Revision>, body: &str) -> Edit {
    Edit {
        id: id.to_owned(),
        expected,
        deleted: false,
        body: body.to_owned(),
    }
}

fn deletion(id: &str, expected: Option<Revision>) -> Edit {
    Edit {
        deleted: true,
        ..edit(id, expected, "{}")
    }
}

fn started(place: StorePlace) -> Store {
    let log = Logger::root(slog::Discard, slog::o!());
    Store::start(place, Arc::new(()), &log).unwrap()
}

fn memory() -> Store {
    started(StorePlace::Memory)
}

async fn one(store: &Store, wish: Edit) -> Result<Revision, Conflict> {
    store.edit(vec![wish]).await.unwrap().remove(0)
}

#[tokio::test]
async fn who_writes_must_know_the_last_revision() {
    let store = memory();
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

#[tokio::test]
async fn a_deleted_document_stays_as_its_last_revision_and_can_be_made_again() {
    let store = memory();
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

#[tokio::test]
async fn edits_of_one_request_see_those_before_them() {
    let store = memory();
    let edits = vec![
        edit("a", None, "1"),
        edit("b", None, "2"),
        edit("a", None, "3"),
    ];
    let results = store.edit(edits).await.unwrap();
    assert!(results[0].is_ok() && results[1].is_ok());
    assert_eq!(results[2], Err(Conflict));
}

#[tokio::test]
async fn changes_have_each_document_once_in_the_order_of_its_last_update() {
    let store = memory();
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

#[tokio::test]
async fn a_change_is_made_to_what_is_there_at_that_moment_or_not_at_all() {
    let store = memory();
    let longer = |document: &Document| Some(format!("{}+", document.body));
    assert_eq!(store.change("a", longer).await.unwrap(), None);
    let first = one(&store, edit("a", None, "1")).await.unwrap();
    let second = store.change("a", longer).await.unwrap().unwrap();
    assert_eq!(second.number, 2);
    assert_eq!(store.change("a", |_| None).await.unwrap(), None);
    assert_eq!(store.document("a").await.unwrap().unwrap().body, "1+");
    assert_eq!(
        one(&store, edit("a", Some(first.clone()), "x")).await,
        Err(Conflict)
    );
    one(&store, deletion("a", Some(second.clone())))
        .await
        .unwrap();
    assert_eq!(store.change("a", longer).await.unwrap(), None);
}

#[tokio::test]
async fn local_documents_count_their_updates_and_are_nowhere_else() {
    let store = memory();
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

#[test]
fn a_revision_reads_as_it_is_written() {
    let revision = Revision::after(None, false, "{}");
    assert_eq!(revision.to_string().parse(), Ok(revision.clone()));
    assert_ne!(Revision::after(None, true, "{}"), revision);
    assert_ne!(
        Revision::after(Some(&revision), false, "{}").hash,
        revision.hash
    );
    for text in ["1-a", "12-xyz", "3-00000000000000000000000000000abc"] {
        assert_eq!(text.parse::<Revision>().unwrap().to_string(), text);
    }
    let upper = "1-0123456789ABCDEF0123456789ABCDEF";
    let same: Revision = upper.parse().unwrap();
    assert_eq!(same.to_string(), upper.to_lowercase());
    let long = format!("1-{}", "x".repeat(33));
    for text in ["", "1", "1-", "-1", "0-1", "x-1", "1-+1", "+1-1", &long] {
        assert_eq!(text.parse::<Revision>(), Err(InvalidRevision), "{text}");
    }
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
