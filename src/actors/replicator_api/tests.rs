//! Lists and orders of many jobs, with a real scheduler that starts none.

use actix::Actor;
use futures_util::future::join_all;
use serde_json::json;
use settee_client::{BulkOrder, BulkOrderName, JobSelection, JobsQuery, JobsSort};

use super::*;
use crate::actors::replicator_documents::ReplicatorDocuments;
use crate::actors::replicator_documents::tests::{memory, options};
use crate::messages::replication_scheduler::AddJob;
use crate::otp::PidGuard;
use crate::replicator::JobOrder;
use crate::replicator::document::Person;
use crate::replicator::kept::Kept;
use crate::replicator::table::RowState;
use policy::schedule::Level;
use replication::spec::{DocRef, Replication, UserCtx};
use store::Watcher;
use test_support::within;

const JOBS: usize = 10_000;

/// Starts a scheduler with jobs of documents from `d00000` on.
async fn start(jobs: usize) -> ReplicatorApi {
    let (store, states) = memory();
    let options = options(store, states);
    let scheduler = options.scheduler.address();
    ReplicatorDocuments::new(options.clone(), PidGuard::new()).start();
    for number in 0..jobs {
        let (database, id) = (NAME.to_owned(), format!("d{number:05}"));
        let body = json!({
            "source": format!("http://db{}.example/a", number % 7),
            "target": format!("http://t.example/{id}"), "continuous": true,
        });
        let doc = Some(DocRef { database, id });
        let replication = Replication::parse(
            &body,
            &crate::replicator::defaults(&Default::default()),
            UserCtx::default(),
            doc,
        )
        .unwrap();
        let id = format!("{number:032x}+continuous").parse().unwrap();
        let added = scheduler.send(AddJob::new(replication, id)).await;
        added.unwrap().unwrap();
    }
    ReplicatorApi::new(options, None)
}

/// The scheduler asserts that no turn exceeds its maximum of orders.
#[actix_rt::test]
async fn ten_thousand_jobs_are_listed_and_ordered_in_short_turns() {
    let api = start(JOBS).await;
    let mut order = BulkOrder {
        order: BulkOrderName::Pause,
        priority: None,
        select: JobSelection {
            source: Some("http://db3.*".to_owned()),
            ..JobSelection::default()
        },
        dry_run: true,
        expect: None,
    };
    let ann = Person {
        name: Some("ann".to_owned()),
        is_admin: true,
    };
    let selected = JOBS.div_ceil(7) - 1 + usize::from(JOBS % 7 > 3);
    let planned = api.order_jobs(&order, &Whose::All, &ann).await.unwrap();
    assert_eq!((planned.total, planned.done), (selected, 0));
    assert_eq!(planned.groups[0].example, "d00003");
    order.dry_run = false;
    order.expect = Some(selected);
    let ordered = api.order_jobs(&order, &Whose::All, &ann);
    let paused = within("the order", ordered).await.unwrap();
    assert_eq!((paused.done, paused.failed), (selected, 0));
    let store = &api.database().store;
    assert!(store.kept("d00003").await.unwrap().is_some());
    let mut query = JobsQuery {
        sort: JobsSort::Trouble,
        skip: selected - 1,
        limit: 2,
        ..JobsQuery::default()
    };
    let list = api.list(&query, &Whose::All).await.unwrap();
    assert_eq!(list["total_rows"], JOBS);
    assert_eq!(list["states"]["paused"], selected);
    let jobs: Vec<_> = list["jobs"].as_array().unwrap().iter().collect();
    assert!(jobs[0]["paused"].is_object() && jobs[1]["document"] == "d00000");
    assert_eq!(jobs[0]["reason"], "paused by ann");
    query.groups = true;
    let groups = api.list(&query, &Whose::All).await.unwrap();
    assert_eq!(groups["groups"][1]["count"], selected);
    order.select = JobSelection {
        all: true,
        ..JobSelection::default()
    };
    order.expect = None;
    let all = within("the order", api.order_jobs(&order, &Whose::All, &ann)).await;
    let all = all.unwrap();
    assert_eq!((all.total, all.done), (JOBS, JOBS));
    assert_eq!((all.results.len(), all.results_left_out), (JOBS, 0));
}

#[actix_rt::test]
async fn an_order_keeps_the_pause_that_another_order_has_just_saved() {
    let api = start(1).await;
    let store = &api.database().store;
    // The scheduler does not have it yet.
    let paused = json!({"paused": {"by": "ben", "since": 1}}).to_string();
    store.keep("d00000", Some(paused)).await.unwrap();
    let ann = Person {
        name: Some("ann".to_owned()),
        is_admin: true,
    };
    let ordered = api.order("d00000", JobOrder::Priority(5), &Whose::All, &ann);
    ordered.await.unwrap();
    let kept = Kept::read(&store.kept("d00000").await.unwrap().unwrap());
    assert_eq!(
        (&*kept.paused.unwrap().by, kept.priority),
        ("ben", Level(5))
    );
}

#[actix_rt::test]
async fn orders_given_at_the_same_time_are_all_saved() {
    let api = start(1).await;
    let ann = Person {
        name: Some("ann".to_owned()),
        is_admin: true,
    };
    let order = |order| api.order("d00000", order, &Whose::All, &ann);
    let orders = [JobOrder::Pause, JobOrder::Priority(5)].map(order);
    for ordered in join_all(orders).await {
        ordered.unwrap();
    }
    let store = &api.database().store;
    let kept = Kept::read(&store.kept("d00000").await.unwrap().unwrap());
    assert_eq!(
        (&*kept.paused.unwrap().by, kept.priority),
        ("ann", Level(5))
    );
}

#[actix_rt::test]
async fn an_order_reports_how_many_documents_are_still_loading() {
    let api = start(3).await;
    tokio::time::pause();
    let states = &api.database().states;
    let documents = ["d00000", "d00001", "d00002", "unread"];
    states.opened(documents.map(|id| (id.to_owned(), 0)).into());
    for known in &documents[..3] {
        states.lock().set_row(known, Some(RowState::Scheduled));
    }
    let order = BulkOrder {
        order: BulkOrderName::Pause,
        priority: None,
        select: JobSelection {
            all: true,
            ..JobSelection::default()
        },
        dry_run: true,
        expect: None,
    };
    let ann = Person {
        name: None,
        is_admin: true,
    };
    let ordered = api.order_jobs(&order, &Whose::All, &ann).await.unwrap();
    assert_eq!(
        (ordered.total, ordered.loading, ordered.unknown),
        (3, true, 1)
    );
    let list = api.list(&JobsQuery::default(), &Whose::All).await.unwrap();
    assert_eq!(
        (&list["total_rows"], &list["loading"]),
        (&json!(3), &json!(true))
    );
    states.lock().set_row("unread", Some(RowState::Error));
    let ordered = api.order_jobs(&order, &Whose::All, &ann).await.unwrap();
    assert_eq!((ordered.loading, ordered.unknown), (false, 0));
    let list = api.list(&JobsQuery::default(), &Whose::All).await.unwrap();
    assert!(list.get("loading").is_none());
}

#[actix_rt::test]
async fn a_deletion_fails_for_jobs_with_a_missing_document_and_applies_to_the_others() {
    let api = start(3).await;
    let order = BulkOrder {
        order: BulkOrderName::Delete,
        priority: None,
        select: JobSelection {
            patterns: vec!["d0000?".to_owned(), "d00001".to_owned(), "none".to_owned()],
            ..JobSelection::default()
        },
        dry_run: false,
        expect: None,
    };
    let ann = Person {
        name: None,
        is_admin: true,
    };
    let edit = store::Edit {
        id: "d00001".to_owned(),
        expected: None,
        deleted: false,
        body: json!({"source": "http://db1.example/a", "target": "http://t.example/d00001", "continuous": true})
            .to_string(),
    };
    let written = api.database().store.edit(vec![edit]).await.unwrap();
    assert!(written[0].is_ok());
    let deleted = api.order_jobs(&order, &Whose::All, &ann).await.unwrap();
    assert_eq!((deleted.total, deleted.done, deleted.failed), (3, 1, 2));
    assert_eq!(deleted.missing, ["none"]);
    let reported: Vec<_> = deleted
        .results
        .iter()
        .map(|result| (result.document.as_deref().unwrap(), &*result.error))
        .collect();
    assert_eq!(
        reported,
        [
            ("d00000", "not_found"),
            ("d00002", "not_found"),
            ("d00001", "")
        ]
    );
}
