//! Damaged files: everything read from one was written, or an error reports the damage. Nothing panics.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use test_support::TestRandom;

use super::*;

const DOCUMENTS: usize = 300;
/// Number of damaged copies of each sample.
const DAMAGES: usize = 40;
const PAGE: usize = 4096;
/// Length of redb's header in the first page.
const HEADER: usize = 320;

/// A file's bytes and content.
struct Sample {
    bytes: Vec<u8>,
    /// Every content that may be read from it.
    content: Vec<String>,
}

/// Reads everything, and writes something.
async fn used(store: &Store) -> Result<String, StoreError> {
    let changes = store.changes(0, usize::MAX).await?;
    let rest = (store.local("l").await?, store.kept("j").await?);
    let (info, uuid) = (store.info().await?, store.uuid().await?);
    store.keep("j", Some("again".into())).await?;
    Ok(format!("{changes:?} {rest:?} {info:?} {uuid}"))
}

/// Reads the content of a file with these bytes, and restores the file. Checks that a refused file was not written to.
async fn content(path: &Path, bytes: &[u8]) -> Result<String, StoreError> {
    fs::write(path, bytes).unwrap();
    let store = started(StorePlace::File(path.into()));
    let content = used(&store).await;
    drop(store);
    let closed = async || file::open(&StorePlace::File(path.into()));
    while matches!(closed().await, Err(OpenProblem::InUse)) {}
    assert!(content.is_ok() || fs::read(path).unwrap() == bytes);
    fs::write(path, bytes).unwrap();
    content
}

/// A closed file, and the file of a killed service.
async fn samples(path: &Path) -> [Sample; 2] {
    let store = started(StorePlace::File(path.into()));
    let body = format!("{{\"x\":\"{}\"}}", "x".repeat(300));
    let edits = (0..DOCUMENTS).map(|n| edit(&format!("d{n:04}"), None, &body));
    store.edit(edits.collect()).await.unwrap();
    let local = store.edit_local("l", None, Some("{}".into())).await;
    local.unwrap().unwrap();
    store.keep("j", Some("{}".into())).await.unwrap();
    let before = fs::read(path).unwrap();
    store.keep("j", Some("last".into())).await.unwrap();
    let killed = fs::read(path).unwrap();
    drop(store);
    drop(opened(StorePlace::File(path.into())).await);
    while matches!(
        file::open(&StorePlace::File(path.into())),
        Err(OpenProblem::InUse)
    ) {}
    let closed = fs::read(path).unwrap();
    let (last, before) = (
        content(path, &killed).await.unwrap(),
        content(path, &before).await.unwrap(),
    );
    assert!(last != before && last == content(path, &closed).await.unwrap());
    let of = |bytes, content| Sample { bytes, content };
    // The kill may have cut off the file's last transaction.
    [
        of(closed, vec![last.clone()]),
        of(killed, vec![last, before]),
    ]
}

/// Damages a used page of a file; returns how.
fn damage(random: &mut TestRandom, bytes: &mut Vec<u8>) -> String {
    let in_use = |page: &[u8]| page.iter().any(|byte| *byte != 0);
    let pages: Vec<usize> = (0..bytes.len() / PAGE)
        .filter(|page| in_use(&bytes[page * PAGE..][..PAGE]))
        .collect();
    let at = match random.below(3) {
        0 => random.below(HEADER),
        _ => random.one_of(&pages) * PAGE + random.below(PAGE),
    };
    match random.below(10) {
        0 => {
            bytes.truncate(at);
            format!("cut at {at}")
        }
        1 | 2 => {
            let end = bytes.len().min(at + 1 + random.below(2 * PAGE));
            bytes[at..end].fill(0);
            format!("zeros from {at} to {end}")
        }
        _ => {
            bytes[at] ^= 0xff;
            format!("flipped byte at {at}")
        }
    }
}

#[tokio::test]
async fn a_damaged_file_returns_written_data_or_is_refused_as_damaged() {
    let mut random =
        TestRandom::for_test("a_damaged_file_returns_written_data_or_is_refused_as_damaged");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.redb");
    let place = StorePlace::File(path.clone());
    let mut refused = 0;
    for sample in samples(&path).await {
        for _ in 0..DAMAGES {
            let mut bytes = sample.bytes.clone();
            let what = damage(&mut random, &mut bytes);
            let content = content(&path, &bytes).await;
            let offline = place.snapshot().await.map(drop);
            match content {
                Ok(content) => {
                    assert!(sample.content.contains(&content), "{what}: {content}");
                    offline.unwrap();
                }
                Err(error) => {
                    let text = error.to_string();
                    let StoreError::Open(open) = &error else {
                        panic!("{what}: {text}");
                    };
                    assert!(!open.may_pass(), "{what}: {text}");
                    assert!(text.contains("s.redb is "), "{what}: {text}");
                    assert_eq!(offline.as_ref(), Err(open), "{what}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > DAMAGES / 4, "only {refused} damages were noticed");
}

#[tokio::test]
async fn an_empty_file_and_one_of_another_program_are_not_stores() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.redb");
    fs::write(&path, "").unwrap();
    let place = StorePlace::File(path.clone());
    let error = started(place.clone()).open().await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("s.redb is damaged (it has 0 bytes): stop the service, move this one away"),
        "{text}"
    );
    let offline = place.snapshot().await.map(drop);
    assert_eq!(StoreError::from(offline.unwrap_err()), error);
    assert_eq!(fs::read(&path).unwrap(), b"");
    fs::remove_file(&path).unwrap();
    drop(redb::Database::create(&path).unwrap());
    let text = format!("{:?}", place.snapshot().await.map(drop));
    assert!(text.contains("NoStore(\"it has no format\")"), "{text}");
    let other = redb::Database::create(&path).unwrap();
    let write = other.begin_write().unwrap();
    let table = redb::TableDefinition::<u64, u64>::new("other");
    drop(write.open_table(table).unwrap());
    write.commit().unwrap();
    drop(other);
    let before = fs::read(&path).unwrap();
    let text = started(place).open().await.unwrap_err().to_string();
    assert!(text.contains("is not a store (it has no format)"), "{text}");
    assert!(fs::read(&path).unwrap() == before);
}

#[tokio::test]
async fn damage_to_an_open_file_is_reported_by_the_requests_that_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.redb");
    let place = StorePlace::File(path.clone());
    // Larger than the cache.
    let body = format!("{{\"x\":\"{}\"}}", "x".repeat(1 << 20));
    let store = started(place.clone());
    for n in 0..24 {
        one(&store, edit(&n.to_string(), None, &body))
            .await
            .unwrap();
    }
    drop(store);
    let store = opened(place).await;
    let bytes = path.metadata().unwrap().len() as usize - PAGE;
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0xff; bytes], PAGE as u64).unwrap();
    let mut last = None;
    for n in 0..24 {
        last = store.document(&n.to_string()).await.err().or(last);
    }
    let error = last.expect("a read fails");
    assert_ne!(error, StoreError::Closed);
    let text = store.open().await.unwrap_err().to_string();
    assert!(text.contains("s.redb is damaged"), "{text}");
}
