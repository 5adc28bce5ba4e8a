//! Export and import of documents.

use super::*;
use crate::export::{ExportLines, ExportReader, ExportRow};
use crate::tables::{Import, Imported};

/// Reads all lines of an export, and verifies them.
pub async fn exported(store: &Store) -> (Vec<u8>, Vec<ExportRow>) {
    let mut lines = ExportLines::new(store.snapshot().await.unwrap(), None);
    let mut all = Vec::new();
    while let Some(some) = lines.next().await.unwrap() {
        all.extend(some);
    }
    let (_, mut reader) = ExportReader::open(&*all).unwrap();
    let mut rows = Vec::new();
    while let Some(row) = reader.row().unwrap() {
        rows.push(row);
    }
    (all, rows)
}

/// An export has each document once with the kept value of its job.
pub async fn an_export_has_each_document_once_with_the_kept_value_of_its_job(place: &TestPlace) {
    let store = place.handle();
    let edits = (0..1200).map(|n| edit(&format!("d{n:04}"), None, "{}"));
    store.edit(edits.collect()).await.unwrap();
    let gone = one(&store, edit("gone", None, "{}")).await.unwrap();
    one(&store, deletion("gone", Some(gone))).await.unwrap();
    let long = format!("{{\"x\":\"{}\"}}", "x".repeat(300 << 10));
    one(&store, edit("a", None, &long)).await.unwrap();
    let kept = Some("{\"k\":1.0}".to_owned());
    store.keep("d0007", kept).await.unwrap();
    let local = store.edit_local("l", None, Some("{}".to_owned())).await;
    local.unwrap().unwrap();
    let mut snapshot = store.snapshot().await.unwrap();
    let mut sizes = Vec::new();
    while let rows = snapshot.rows().await.unwrap()
        && !rows.is_empty()
    {
        sizes.push(rows.len());
    }
    assert_eq!(
        sizes,
        [1, 500, 500, 201, 1],
        "a long document is a batch of its own"
    );
    let (_, rows) = exported(&store).await;
    assert_eq!(rows[0].doc.get(), long);
    let kept = rows
        .iter()
        .filter_map(|row| Some((&*row.id, row.job.as_ref()?.get())));
    assert_eq!(kept.collect::<Vec<_>>(), [("d0007", "{\"k\":1.0}")]);
    let gone = rows.iter().filter(|row| row.deleted_at.is_some());
    assert_eq!(gone.map(|row| &*row.id).collect::<Vec<_>>(), ["gone"]);
    let local = rows.last().unwrap();
    assert_eq!((&*local.id, &*local.rev), ("_local/l", "0-1"));
}

/// An export does not have changes made after it began.
pub async fn an_export_does_not_have_changes_made_after_it_began(place: &TestPlace) {
    let store = place.handle();
    make_and_delete(&store, 600, 200).await;
    let (before, _) = exported(&store).await;
    let mut lines = ExportLines::new(store.snapshot().await.unwrap(), None);
    let mut all = lines.next().await.unwrap().unwrap();
    purge_all(&store).await;
    one(&store, edit("later", None, "{}")).await.unwrap();
    store.compact().await.unwrap();
    while let Some(some) = lines.next().await.unwrap() {
        all.extend(some);
    }
    assert!(all == before, "the export has changed");
    let (_, rows) = exported(&store).await;
    assert!(rows.iter().any(|row| row.id == "later"));
}

/// An import writes missing documents and leaves existing ones.
pub async fn an_import_writes_missing_documents_and_leaves_existing_ones(place: &TestPlace) {
    let store = place.handle();
    let mine = one(&store, edit("mine", None, "{\"a\":1}")).await.unwrap();
    let gone = one(&store, edit("gone", None, "{}")).await.unwrap();
    one(&store, deletion("gone", Some(gone))).await.unwrap();
    let import = |id: &str, body: &str, kept: Option<&str>| Import {
        id: id.to_owned(),
        body: body.to_owned(),
        kept: kept.map(str::to_owned),
    };
    let documents = vec![
        import("new", "{}", Some("kept")),
        import("mine", "{\"a\":2}", Some("kept")),
        import("gone", "{}", None),
        import("new", "{}", None),
    ];
    let imported = store.import(documents).await.unwrap();
    use Imported::{Conflict, Created, Unchanged};
    assert_eq!(imported, [Created, Conflict, Created, Unchanged]);
    let found = store.document("mine").await.unwrap().unwrap();
    assert_eq!((found.revision, &*found.body), (mine, "{\"a\":1}"));
    assert_eq!(store.kept("mine").await.unwrap(), None);
    assert_eq!(store.kept("new").await.unwrap().as_deref(), Some("kept"));
    let info = store.info().await.unwrap();
    assert_eq!((info.documents, info.deleted), (3, 0));
}
