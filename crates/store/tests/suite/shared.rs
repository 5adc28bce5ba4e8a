//! Concurrent readers and writers.

use std::collections::BTreeMap;

use super::*;
use crate::documents::Document;
use policy::counted::Class;

/// Number of concurrent writers, each of one document.
const WRITERS: usize = 20;
/// Number of updates by each writer.
const UPDATES: u64 = 10;

/// A write is visible to every handle.
pub async fn a_write_is_visible_to_every_handle(place: &TestPlace) {
    let (first, second) = (place.handle(), place.handle());
    let revision = one(&first, edit("a", None, "{}")).await.unwrap();
    first.keep("a", Some("{}".to_owned())).await.unwrap();
    let local = first.edit_local("x", None, Some("{}".to_owned())).await;
    assert_eq!(local.unwrap(), Ok(1));
    let found = second.document("a").await.unwrap().unwrap();
    assert_eq!((found.revision, found.seq), (revision.clone(), 1));
    assert_eq!(second.kept("a").await.unwrap().as_deref(), Some("{}"));
    assert_eq!(second.local("x").await.unwrap().unwrap().number, 1);
    assert_eq!(second.uuid().await.unwrap(), first.uuid().await.unwrap());
    let next = one(&second, edit("a", Some(revision), "{\"n\":1}")).await;
    assert_eq!(next.unwrap().number, 2);
    first.keep("a", None).await.unwrap();
    assert_eq!(second.kept("a").await.unwrap(), None);
    let body = |store: Store| async move { store.document("a").await.unwrap().unwrap().body };
    assert_eq!(body(first).await, "{\"n\":1}");
    assert_eq!(place.handle().info().await.unwrap().update_seq, 2);
}

/// One of fifty concurrent writers of one revision wins.
pub async fn one_of_fifty_concurrent_writers_of_one_revision_wins(place: &TestPlace) {
    let stores = [place.handle(), place.handle()];
    let mut known = None;
    for round in 1..=4 {
        let writes = (0..50).map(|writer| {
            let body = format!("{{\"n\":{writer}}}");
            let wish = edit("a", known.clone(), &body);
            let store = &stores[writer % 2];
            async move { one(store, wish).await.map(|revision| (revision, body)) }
        });
        let results = futures_util::future::join_all(writes).await;
        let won: Vec<_> = results.into_iter().flatten().collect();
        let [(revision, body)] = &*won else {
            panic!("{won:?}");
        };
        assert_eq!(revision.number, round);
        let found = stores[0].document("a").await.unwrap().unwrap();
        assert_eq!((&found.revision, &found.body), (revision, body));
        known = Some(revision.clone());
    }
    assert_eq!(stores[1].info().await.unwrap().update_seq, 4);
}

/// Reads updates up to the sequence `last`; each must be later than the one before.
async fn follow(store: Store, last: u64) -> BTreeMap<String, Document> {
    let mut updates = store.updates();
    store.open().await.unwrap();
    let (mut since, mut seen) = (0, BTreeMap::new());
    while since < last {
        let changes = store.changes(since, 7).await.unwrap();
        for document in changes.documents {
            assert!(document.seq > since, "{} after {since}", document.seq);
            since = document.seq;
            seen.insert(document.id.clone(), document);
        }
        if since < last && store.pending(since).await.unwrap() == 0 {
            let more = updates.wait_for(|seq| seq.is_some_and(|seq| seq > since));
            let more = tokio::time::timeout(PATIENCE, more).await;
            drop(more.expect("more updates").unwrap());
        }
    }
    seen
}

/// Followers miss no update of twenty writers.
pub async fn followers_miss_no_update_of_twenty_writers(place: &TestPlace) {
    let last = WRITERS as u64 * UPDATES;
    let followers = (0..3).map(|_| follow(place.handle(), last));
    let stores = [place.handle(), place.handle()];
    let writes = (0..WRITERS).map(|writer| {
        let (store, id) = (&stores[writer % 2], format!("d{writer}"));
        async move {
            let mut known = None;
            for n in 0..UPDATES {
                let body = format!("{{\"n\":{n}}}");
                known = Some(one(store, edit(&id, known, &body)).await.unwrap());
            }
        }
    });
    let writes = futures_util::future::join_all(writes);
    let followers = futures_util::future::join_all(followers);
    let (seen, _) = futures_util::future::join(followers, writes).await;
    for documents in seen {
        assert_eq!(documents.len(), WRITERS);
        for (id, document) in documents {
            assert_eq!(document.revision.number, UPDATES, "{id}");
            assert_eq!(document.body, format!("{{\"n\":{}}}", UPDATES - 1));
        }
    }
}

/// Records the reported class of each existing document, by id.
#[derive(Debug, Default)]
pub(super) struct Noted(Mutex<BTreeMap<String, Class>>);

impl Watcher for Noted {
    fn class(&self, _: &str, body: &str) -> Class {
        body.parse().unwrap()
    }

    fn opened(&self, documents: Vec<(String, Class)>) {
        *self.0.lock().unwrap() = documents.into_iter().collect();
    }

    fn written(&self, documents: Vec<(String, Option<Class>)>) {
        let mut noted = self.0.lock().unwrap();
        for (id, class) in documents {
            match class {
                Some(class) => noted.insert(id, class),
                None => noted.remove(&id),
            };
        }
    }
}

impl Noted {
    pub fn all(&self) -> Vec<(String, Class)> {
        let noted = self.0.lock().unwrap();
        noted
            .iter()
            .map(|(id, class)| (id.clone(), *class))
            .collect()
    }
}

/// Watchers see the writes of other handles in order, and those of their own handle before they are answered.
pub async fn watchers_see_the_writes_of_other_handles_in_order(place: &TestPlace) {
    let noted = Arc::new(Noted::default());
    let watched = place.watched(Arc::clone(&noted) as Arc<dyn Watcher>);
    let other = place.handle();
    let pairs = |pairs: &[(&str, Class)]| -> Vec<(String, Class)> {
        let owned = pairs.iter().map(|(id, class)| ((*id).to_owned(), *class));
        owned.collect()
    };
    one(&other, edit("early", None, "1")).await.unwrap();
    watched.open().await.unwrap();
    assert_eq!(noted.all(), pairs(&[("early", 1)]));
    let own = one(&watched, edit("own", None, "2")).await.unwrap();
    assert_eq!(noted.all(), pairs(&[("early", 1), ("own", 2)]));
    // Both write one document in turns: an earlier write that is reported late must not win.
    let mut known = own;
    for n in 0..20 {
        let store = [&other, &watched][n % 2];
        let body = (n % 6).to_string();
        known = one(store, edit("own", Some(known), &body)).await.unwrap();
        if n % 2 == 1 {
            assert_eq!(noted.all()[1].1, (n % 6) as Class, "update {n}");
        }
    }
    one(&other, edit("late", None, "3")).await.unwrap();
    one(&other, deletion("own", Some(known))).await.unwrap();
    let seq = other.info().await.unwrap().update_seq;
    let mut updates = watched.updates();
    let caught_up = updates.wait_for(|known| known.is_some_and(|known| known >= seq));
    let caught_up = tokio::time::timeout(PATIENCE, caught_up).await;
    drop(caught_up.expect("all updates").unwrap());
    assert_eq!(noted.all(), pairs(&[("early", 1), ("late", 3)]));
}
