//! What keeps the file small, what copies it, and requests with very much of one document.

use super::*;

/// The time by which everything that was deleted so far is old.
fn later() -> u64 {
    unix_now() + 10
}

/// Makes documents with long bodies, and deletes them again.
async fn make_and_delete(store: &Store, count: usize, bytes: usize) {
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

async fn purge_all(store: &Store) -> usize {
    let (mut removed, mut after) = (0, 0);
    loop {
        let purged = store.purge(later(), after, 100).await.unwrap();
        removed += purged.removed;
        match purged.last {
            Some(last) => after = last,
            None => return removed,
        }
    }
}

#[tokio::test]
async fn deleted_documents_are_purged_after_their_time_and_no_live_one_ever() {
    let store = memory();
    let live = one(&store, edit("live", None, "{}")).await.unwrap();
    make_and_delete(&store, 250, 1).await;
    let dead = one(&store, edit("back", None, "{}")).await.unwrap();
    let dead = one(&store, deletion("back", Some(dead))).await.unwrap();
    let back = one(&store, edit("back", Some(dead), "{}")).await.unwrap();
    let seq = store.info().await.unwrap().update_seq;
    let early = store.purge(unix_now() - 10, 0, 1000).await.unwrap();
    assert_eq!(
        (early.removed, early.last),
        (0, None),
        "it is not their time"
    );
    assert_eq!(store.info().await.unwrap().deleted, 250);
    assert_eq!(purge_all(&store).await, 250);
    assert_eq!(purge_all(&store).await, 0);
    let info = store.info().await.unwrap();
    assert_eq!((info.documents, info.deleted, info.bytes), (2, 0, 4));
    assert_eq!(info.update_seq, seq, "sequence numbers go on");
    let changes = store.changes(0, 999).await.unwrap();
    let shown: Vec<_> = changes
        .documents
        .iter()
        .map(|d| (&*d.id, d.revision))
        .collect();
    assert_eq!(shown, [("live", live), ("back", back)]);
    assert_eq!(
        store.pending(0).await.unwrap(),
        2,
        "no row of a dead document is left"
    );
    assert_eq!(store.document("gone-000000").await.unwrap(), None);
    let anew = one(&store, edit("gone-000000", None, "{}")).await.unwrap();
    assert_eq!(anew.number, 1);
}

#[tokio::test]
async fn a_file_in_which_most_is_free_becomes_small_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.redb");
    let store = started(Place::File(path.clone()));
    one(&store, edit("live", None, "{}")).await.unwrap();
    let uuid = store.uuid().await.unwrap();
    make_and_delete(&store, 2000, 8000).await;
    assert_eq!(purge_all(&store).await, 2000);
    let large = path.metadata().unwrap().len();
    assert!(large > 8_000_000, "{large} bytes");
    let (dump, rows) = store.dump(store.begin_dump().await.unwrap()).await.unwrap();
    assert!(!rows.is_empty());
    assert_eq!(store.compact().await, Ok(None), "a copy is being made");
    drop(dump);
    assert!(store.compact().await.unwrap() > Some(7_000_000));
    let small = path.metadata().unwrap().len();
    assert!(small < 1_000_000, "{small} bytes");
    assert_eq!(
        store.compact().await,
        Ok(Some(0)),
        "there is nothing more to give back"
    );
    assert_eq!(store.uuid().await.unwrap(), uuid);
    assert!(store.document("live").await.unwrap().is_some());
    one(&store, edit("later", None, "{}")).await.unwrap();
}

#[tokio::test]
async fn deletions_that_an_earlier_program_did_not_count_are_purged_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.redb");
    let copied = directory.path().join("copy.redb");
    let store = started(Place::File(path.clone()));
    one(&store, edit("live", None, "{}")).await.unwrap();
    make_and_delete(&store, 10, 1).await;
    copy(&store, &copied).await;
    {
        let database = redb::Database::open(&copied).unwrap();
        let write = database.begin_write().unwrap();
        let deaths = redb::TableDefinition::<u64, u64>::new("deaths");
        assert!(write.delete_table(deaths).unwrap());
        write.commit().unwrap();
    }
    let store = started(Place::File(copied));
    assert_eq!(
        store.purge(unix_now() - 10, 0, 99).await.unwrap().removed,
        0
    );
    assert_eq!(purge_all(&store).await, 10);
}

async fn copy(store: &Store, to: &std::path::Path) {
    let mut file = NewFile::create(to).unwrap();
    let mut dump = store.begin_dump().await.unwrap();
    loop {
        let (next, rows) = store.dump(dump).await.unwrap();
        dump = next;
        if rows.is_empty() {
            return file.finish().unwrap();
        }
        file.write(rows).unwrap();
    }
}

#[tokio::test]
async fn a_copy_is_of_one_moment_and_a_store_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("copy.redb");
    let store = memory();
    let foreign = vec![
        foreign("a", 2, &["b", "a"], false),
        foreign("a", 2, &["c", "a"], false),
    ];
    store.merge(foreign).await.unwrap();
    make_and_delete(&store, 3, 1).await;
    let edits = (0..1200).map(|n| edit(&format!("d{n:04}"), None, "{}"));
    store.edit(edits.collect()).await.unwrap();
    store.keep("a", Some("kept".to_owned())).await.unwrap();
    let local = store.edit_local("l", None, Some("{}".to_owned())).await;
    assert_eq!(local, Ok(Ok(1)));
    let mut file = NewFile::create(&to).unwrap();
    let mut dump = store.begin_dump().await.unwrap();
    let mut times = 0;
    loop {
        let (next, rows) = store.dump(dump).await.unwrap();
        dump = next;
        if rows.is_empty() {
            break;
        }
        file.write(rows).unwrap();
        times += 1;
        // What is written meanwhile is not in it.
        one(&store, edit(&format!("zz{times}"), None, "{}"))
            .await
            .unwrap();
    }
    assert!(times > 3, "{times}");
    assert!(!to.exists(), "it has its name once it is whole");
    file.finish().unwrap();
    assert_eq!(to.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let beside: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(beside.len(), 1, "nothing is left of its making");
    let second = NewFile::create(&to).err().unwrap();
    assert!(matches!(second, BackupError::Exists(_)), "{second}");
    drop(NewFile::create(&directory.path().join("other")).unwrap());
    let other = started(Place::File(to));
    let (info, own) = (other.info().await.unwrap(), store.info().await.unwrap());
    assert_eq!(
        (info.documents, info.deleted, info.uuid),
        (1201, 3, own.uuid)
    );
    assert_eq!(info.update_seq + times, own.update_seq);
    assert_eq!(
        other.trees(vec!["a".to_owned()]).await.unwrap(),
        store.trees(vec!["a".to_owned()]).await.unwrap()
    );
    assert_eq!(other.kept("a").await.unwrap().as_deref(), Some("kept"));
    assert!(other.local("l").await.unwrap().is_some());
    assert_eq!(purge_all(&other).await, 3);
    assert!(!directory.path().join("other.part").exists());
}

/// Reading and writing all branches for each of them would take minutes.
#[tokio::test]
async fn a_request_with_very_many_branches_of_a_document_holds_the_store_for_no_longer_than_it_must()
 {
    let store = memory();
    let branch = |n: usize| foreign("a", 2, &[&format!("b{n:05}"), "a"], false);
    let taken = store
        .merge((0..20_000).map(branch).collect())
        .await
        .unwrap();
    assert_eq!(
        taken.iter().filter(|one| **one == Ok(true)).count(),
        LEAVES_MAX
    );
    assert_eq!(taken[LEAVES_MAX], Err(TooManyBranches));
    let tree = store.trees(vec!["a".to_owned()]).await.unwrap().remove(0);
    let asked: Vec<Revision> = (0..20_000)
        .map(|n| format!("2-b{n:05}").parse().unwrap())
        .collect();
    assert_eq!(tree.missing(&asked).missing, asked[LEAVES_MAX..]);
}
