//! Cases for a store that several services share, with failing connections.

use std::future::Future;
use std::time::Instant;

use super::shared::Noted;
use super::*;
use crate::error::{OpenError, OpenProblem};

/// Number of writers whose connections are cut.
const WRITERS: usize = 10;
/// Number of writes that each writer attempts.
const WRITES: u64 = 20;

/// Retries until it succeeds; every error must be a temporary one.
async fn until_it_works<T, F: Future<Output = Result<T, StoreError>>>(
    mut work: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match work().await {
            Ok(value) => return value,
            Err(StoreError::Open(error)) if error.may_pass() && Instant::now() < deadline => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Acknowledged writes survive lost connections. `cut` cuts all connections, and returns their number.
pub async fn acknowledged_writes_survive_lost_connections(
    place: &TestPlace,
    cut: impl Fn() -> usize,
) {
    let noted = Arc::new(Noted::default());
    let watched = place.watched(Arc::clone(&noted) as Arc<dyn Watcher>);
    watched.open().await.unwrap();
    let stores = [place.handle(), place.handle()];
    let writes = (0..WRITERS).map(|writer| {
        let (store, id, cut) = (&stores[writer % 2], format!("d{writer}"), &cut);
        async move {
            let mut known: Option<Revision> = None;
            for n in 0..WRITES {
                if writer == 0 && n % 5 == 4 {
                    assert!(cut() > 0, "connections were cut");
                }
                let wish = || edit(&id, known.clone(), "1");
                known = match try_one(store, wish()).await {
                    Ok(written) => Some(written.expect("no other writer")),
                    // This write, and no other, may have been made.
                    Err(_) => {
                        let found = until_it_works(|| store.document(&id)).await;
                        let (number, before) = (
                            found
                                .as_ref()
                                .map_or(0, |document| document.revision.number),
                            known.as_ref().map_or(0, |revision| revision.number),
                        );
                        assert!(
                            number == before || number == before + 1,
                            "{number} {before}"
                        );
                        found.map(|document| document.revision)
                    }
                };
            }
            (id, known)
        }
    });
    for (id, known) in futures_util::future::join_all(writes).await {
        let found = until_it_works(|| stores[0].document(&id)).await;
        assert_eq!(found.map(|document| document.revision), known, "{id}");
    }
    let seq = until_it_works(|| stores[0].info()).await.update_seq;
    wait_for_updates(&watched, seq).await;
    assert_eq!(noted.all().len(), WRITERS);
}

async fn wait_for_updates(store: &Store, seq: u64) {
    let mut updates = store.updates();
    let heard = updates.wait_for(|known| known.is_some_and(|known| known >= seq));
    let heard = tokio::time::timeout(PATIENCE, heard).await;
    drop(heard.expect("all updates").unwrap());
}

/// While the database is down requests fail with the reason, and afterwards they succeed.
pub async fn while_the_database_is_down_requests_fail_and_afterwards_they_succeed(
    place: &TestPlace,
    stop: impl FnOnce(),
    start: impl FnOnce(),
) {
    let noted = Arc::new(Noted::default());
    let watched = place.watched(Arc::clone(&noted) as Arc<dyn Watcher>);
    let other = place.handle();
    let first = one(&other, edit("a", None, "1")).await.unwrap();
    watched.open().await.unwrap();
    stop();
    let write = try_one(&other, edit("b", None, "1")).await;
    let read = watched.document("a").await;
    for error in [write.map(drop).unwrap_err(), read.map(drop).unwrap_err()] {
        let StoreError::Open(open) = &error else {
            panic!("{error}");
        };
        assert!(matches!(open.problem, OpenProblem::Database(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("the store postgres://"), "{text}");
        assert!(text.contains("see whether PostgreSQL runs there"), "{text}");
    }
    start();
    let known = until_it_works(|| other.document("a"))
        .await
        .unwrap()
        .revision;
    assert_eq!(known, first);
    until_it_works(|| try_one(&other, edit("c", None, "2")))
        .await
        .unwrap();
    let seq = other.info().await.unwrap().update_seq;
    wait_for_updates(&watched, seq).await;
    assert!(noted.all().contains(&("c".to_owned(), 2)));
}

/// Acknowledged orders for jobs survive a failover that lost them: `back_up` saves the standby's state, `fail_over` lets
/// the standby take over.
pub async fn acknowledged_orders_for_jobs_survive_a_failover_that_lost_them(
    place: &TestPlace,
    back_up: impl FnOnce(),
    fail_over: impl FnOnce(),
) {
    let (first, second, third) = (place.handle(), place.handle(), place.handle());
    let keep = async |store: &Store, id: &str, value: Option<&str>| {
        let kept = store.keep(id, value.map(str::to_owned)).await;
        kept.unwrap();
    };
    let edits = ["a", "b", "c"].map(|id| edit(id, None, "{}"));
    first.edit(edits.into()).await.unwrap();
    third.open().await.unwrap();
    keep(&third, "b", Some("before")).await;
    back_up();
    keep(&first, "a", Some("first")).await;
    keep(&second, "a", Some("second")).await;
    keep(&first, "b", Some("after")).await;
    keep(&second, "c", Some("set")).await;
    one(&second, edit("lost", None, "{}")).await.unwrap();
    keep(&second, "lost", Some("set")).await;
    fail_over();
    let kept = until_it_works(|| second.kept("c")).await;
    assert_eq!(kept.as_deref(), Some("set"), "the writer of c restores it");
    until_it_works(|| first.document("a")).await;
    let of = ["a", "b", "c", "lost"].map(str::to_owned);
    let expected = [Some("second"), Some("after"), Some("set"), None];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = until_it_works(|| third.kept_of(of.to_vec())).await;
        if found.iter().map(Option::as_deref).eq(expected) {
            break;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        tokio::task::yield_now().await;
    }
    // A later write wins over what other handles have acknowledged.
    keep(&third, "c", Some("later")).await;
    one(&third, edit("lost", None, "{}")).await.unwrap();
    for store in [&first, &second] {
        let kept = store.kept_of(vec!["c".to_owned(), "lost".to_owned()]).await;
        assert_eq!(kept.unwrap(), [Some("later".to_owned()), None]);
    }
}

/// Requests to a silent database time out, and do not delay later ones. `pause` stops the processes with connections
/// to it, `resume` continues them.
pub async fn requests_to_a_silent_database_time_out(
    place: &TestPlace,
    pause: impl FnOnce(),
    resume: impl FnOnce(),
) {
    let store = place.handle();
    let first = one(&store, edit("a", None, "1")).await.unwrap();
    pause();
    let write = try_one(&store, edit("a", Some(first.clone()), "2"));
    let (write, read) = futures_util::future::join(write, store.document("a")).await;
    for error in [write.map(drop).unwrap_err(), read.map(drop).unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains("nothing came back within 10 s"), "{text}");
    }
    resume();
    let found = until_it_works(|| store.document("a")).await.unwrap();
    assert_eq!(found.revision, first);
    let wish = || edit("a", Some(first.clone()), "3");
    until_it_works(|| try_one(&store, wish())).await.unwrap();
}

/// Services that start at the same time create one store.
pub async fn services_that_start_at_the_same_time_create_one_store(place: &TestPlace) {
    let stores: Vec<Store> = (0..4).map(|_| place.handle()).collect();
    let opened = stores.iter().map(|store| async move {
        store.open().await.unwrap();
        store.uuid().await.unwrap()
    });
    let uuids = futures_util::future::join_all(opened).await;
    assert_eq!(uuids[0].len(), 32);
    assert!(uuids.iter().all(|uuid| *uuid == uuids[0]), "{uuids:?}");
}

/// Returns the permanent error of opening a store.
pub async fn refusal(place: &TestPlace) -> String {
    let error = place.handle().open().await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Open(open) if !open.may_pass()),
        "{error:?}"
    );
    error.to_string()
}

/// Opens a store; returns the handle.
pub async fn opens(place: &TestPlace) -> impl Sized {
    let store = place.handle();
    store.open().await.unwrap();
    store
}

/// Returns the temporary error of opening a store while the server misbehaves.
pub async fn failure(place: &TestPlace) -> String {
    let error = place.handle().open().await.unwrap_err();
    let passes = |open: &OpenError| open.may_pass();
    assert!(
        matches!(&error, StoreError::Open(open) if passes(open)),
        "{error:?}"
    );
    error.to_string()
}

/// An id that the database cannot store fails only its own write.
pub async fn an_id_that_cannot_be_stored_fails_only_its_own_write(place: &TestPlace) {
    let store = place.handle();
    for id in ["a\0b", &"x".repeat(2601)] {
        let error = try_one(&store, edit(id, None, "{}")).await.unwrap_err();
        assert!(matches!(error, StoreError::Unstorable(_)), "{error}");
        assert_eq!(store.document(id).await.unwrap(), None);
        assert_eq!(store.kept(id).await.unwrap(), None);
        assert_eq!(store.local(id).await.unwrap(), None);
    }
    let long = "y".repeat(2600);
    one(&store, edit(&long, None, "{}")).await.unwrap();
    assert!(store.document(&long).await.unwrap().is_some());
}
