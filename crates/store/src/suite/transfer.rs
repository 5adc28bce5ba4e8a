//! Documents on their way out of the store and into it.

use super::*;
use crate::transfer::{Import, Imported};

fn import(id: &str, body: &str, kept: Option<&str>) -> Import {
    Import {
        id: id.to_owned(),
        body: body.to_owned(),
        kept: kept.map(str::to_owned),
    }
}

/// An export has each document once with what is kept of its job.
pub async fn an_export_has_each_document_once_with_what_is_kept_of_its_job(place: &TestPlace) {
    let store = place.handle();
    let edits = (0..1200).map(|n| edit(&format!("d{n:04}"), None, "{}"));
    store.edit(edits.collect()).await.unwrap();
    let gone = one(&store, edit("gone", None, "{}")).await.unwrap();
    one(&store, deletion("gone", Some(gone))).await.unwrap();
    let long = format!("{{\"x\":\"{}\"}}", "x".repeat(300 << 10));
    one(&store, edit("a", None, &long)).await.unwrap();
    store.keep("d0007", Some("kept".to_owned())).await.unwrap();
    let (mut after, mut sizes, mut all) = (None, Vec::new(), Vec::new());
    loop {
        let some = store.export(after).await.unwrap();
        let Some((last, _)) = some.last() else { break };
        after = Some(last.id.clone());
        sizes.push(some.len());
        all.extend(some);
    }
    assert_eq!(sizes, [1, 500, 500, 200], "a long one comes alone");
    assert_eq!(all[0].0.body, long);
    let kept = all
        .iter()
        .filter_map(|(document, kept)| Some((&*document.id, kept.as_deref()?)));
    assert_eq!(kept.collect::<Vec<_>>(), [("d0007", "kept")]);
}

/// An import writes what is not there and replaces only what it is told to.
pub async fn an_import_writes_what_is_not_there_and_replaces_only_what_it_is_told_to(
    place: &TestPlace,
) {
    let store = place.handle();
    let mine = one(&store, edit("mine", None, "{\"a\":1}")).await.unwrap();
    let gone = one(&store, edit("gone", None, "{}")).await.unwrap();
    one(&store, deletion("gone", Some(gone))).await.unwrap();
    let documents = || {
        vec![
            import("new", "{}", Some("kept")),
            import("mine", "{\"a\":2}", Some("kept")),
            import("gone", "{}", None),
            import("new", "{}", None),
        ]
    };
    use Imported::{Conflict, Created, Replaced, Unchanged};
    let first = store.import(documents(), false).await.unwrap();
    assert_eq!(first, [Created, Conflict, Created, Unchanged]);
    let found = store.document("mine").await.unwrap().unwrap();
    assert_eq!((found.revision, &*found.body), (mine, "{\"a\":1}"));
    assert_eq!(store.kept("mine").await.unwrap(), None);
    assert_eq!(store.kept("new").await.unwrap().as_deref(), Some("kept"));
    let second = store.import(documents(), true).await.unwrap();
    assert_eq!(second, [Unchanged, Replaced, Unchanged, Unchanged]);
    let found = store.document("mine").await.unwrap().unwrap();
    assert_eq!((found.revision.number, &*found.body), (2, "{\"a\":2}"));
    assert_eq!(store.kept("mine").await.unwrap().as_deref(), Some("kept"));
    let info = store.info().await.unwrap();
    assert_eq!((info.documents, info.deleted), (3, 0));
}
