//! The actor with a store that counts requests, and no other daemon.

use serde_json::json;
use slog::Discard;
use tokio::sync::watch;

use super::*;
use crate::actors::replication_scheduler::SchedulerOptions;
use crate::config::Config;
use crate::messages::replication_scheduler::GetCounts;
use crate::metrics::Metrics;
use crate::replicator::DocStates;
use policy::schedule::Settings;
use replication::crash::Crash;
use store::suite::counted::counted;
use store::{Edit, Store, StorePlace};
use test_support::eventually;

/// Enough documents for some full requests and a partial one.
const DOCUMENTS: usize = 600;

#[actix_rt::test]
async fn a_start_reads_the_kept_state_of_jobs_in_batches() {
    let log = Logger::root(Discard, o!());
    let states: Arc<DocStates> = Arc::default();
    let watcher = Arc::clone(&states);
    let store = Store::start(StorePlace::Memory, watcher, Arc::new(()), &log).unwrap();
    let body = json!({"source": "http://s/a", "target": "http://t/b"});
    let edit = |number: usize| Edit {
        id: format!("d{number}"),
        expected: None,
        deleted: false,
        body: {
            let mut body = body.clone();
            body["target"] = json!(format!("http://t/{number}"));
            body.to_string()
        },
    };
    store
        .edit((0..DOCUMENTS).map(edit).collect())
        .await
        .unwrap();
    let paused = json!({"paused": {"by": "ann", "since": 1}}).to_string();
    store.keep("d7", Some(paused)).await.unwrap();

    let (store, asked) = counted(store);
    let settings = Settings {
        max_jobs: 0,
        ..Settings::default()
    };
    let scheduler = ReplicationScheduler::new(
        SchedulerOptions {
            settings,
            jobs: Box::new(|_| Err(Crash::JobDied("this test starts no job".to_owned()))),
            live: Default::default(),
            states: Arc::clone(&states),
            http: Http::new(crate::replicator::http_config(&Default::default()), &log).unwrap(),
            metrics: Metrics::new().replication(),
            log: log.clone(),
        },
        PidGuard::new(),
    );
    let scheduler = RegisteredName::new(scheduler.start());
    let (_, config) = watch::channel(Arc::new(Config::default()));
    let options = DocumentsOptions {
        database: Database::new(store, states, config.clone()),
        fleet: None,
        scheduler: scheduler.clone(),
        http: Http::new(crate::replicator::http_config(&Default::default()), &log).unwrap(),
        identity: ServerIdentity::default(),
        config,
        log,
    };
    let documents = ReplicatorDocuments::new(options, PidGuard::new()).start();
    let census = || async { scheduler.address().send(GetCounts).await.unwrap().census };
    eventually("all are jobs", || async {
        census().await.total == DOCUMENTS
    })
    .await;
    assert_eq!(census().await.paused, 1);
    let requests = asked.lock().unwrap().clone();
    assert_eq!(requests.iter().sum::<usize>(), DOCUMENTS);
    assert!(requests.len() <= 3, "{requests:?}");
    drop(documents);
}
