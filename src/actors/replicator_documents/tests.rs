//! The actor with a store in memory, and a scheduler that starts no job.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use serde_json::json;
use slog::Discard;
use tokio::sync::watch;

use super::notes::JobNotes;
use super::*;
use crate::actors::fleet_member::tests::completed;
use crate::actors::fleet_member::tests::fake_fleet::FakeFleet;
use crate::actors::replication_scheduler::SchedulerOptions;
use crate::config::Config;
use crate::messages::replication_job::StartJobs;
use crate::messages::replication_scheduler::{GetCounts, GetJob};
use crate::metrics::Metrics;
use crate::otp::BootClock;
use crate::replicator::DocStates;
use crate::replicator::document::{asked_by, members};
use crate::replicator::lease::{DocLease, EpochLease};
use crate::replicator::state::{COMPLETED, STATE};
use crate::replicator::table::Wish;
use policy::ownership::{Epoch, Request};
use policy::schedule::Settings;
use replication::crash::Crash;
use store::suite::counted::counted;
use store::{Edit, Revision, Store, StorePlace};
use test_support::eventually;

/// Enough documents for some full requests and a partial one.
const DOCUMENTS: usize = 600;

/// Starts a store in memory, with the states of its documents.
pub(crate) fn memory() -> (Store, Arc<DocStates>) {
    let (log, states): (_, Arc<DocStates>) = (Logger::root(Discard, o!()), Arc::default());
    let watcher = Arc::clone(&states);
    let store = Store::start(StorePlace::Memory, watcher, Arc::new(()), &log);
    (store.unwrap(), states)
}

fn http() -> Http {
    let log = Logger::root(Discard, o!());
    Http::new(crate::replicator::http_config(&Default::default()), &log).unwrap()
}

/// Starts a scheduler whose runs are started by `jobs`.
pub(crate) fn scheduler(
    settings: Settings,
    jobs: StartJobs,
    states: &Arc<DocStates>,
) -> Addr<ReplicationScheduler> {
    let options = SchedulerOptions {
        settings,
        jobs,
        live: Default::default(),
        states: Arc::clone(states),
        http: http(),
        metrics: Metrics::new().replication(),
        log: Logger::root(Discard, o!()),
    };
    ReplicationScheduler::new(options, PidGuard::new()).start()
}

/// Returns the options of a daemon that owns every document, with a scheduler that starts no job.
pub(crate) fn options(store: Store, states: Arc<DocStates>) -> DocumentsOptions {
    let settings = Settings {
        max_jobs: 0,
        ..Settings::default()
    };
    let jobs: StartJobs = Box::new(|_| Err(Crash::JobDied("no job may start".to_owned())));
    let scheduler = scheduler(settings, jobs, &states);
    let (_, config) = watch::channel(Arc::new(Config::default()));
    DocumentsOptions {
        database: Database::new(store, states, config.clone()),
        fleet: None,
        scheduler: RegisteredName::new(scheduler),
        http: http(),
        identity: ServerIdentity::default(),
        config,
        log: Logger::root(Discard, o!()),
    }
}

/// A version of a document.
fn version(seq: u64) -> Document {
    let body = json!({"source": "http://s/a", "target": "http://t/b", "worker_processes": seq});
    let body = body.to_string();
    Document {
        id: "d".to_owned(),
        revision: Revision::after(None, false, &body),
        deleted: false,
        seq,
        body,
    }
}

/// Creates the document of a version.
fn creation(document: &Document) -> Edit {
    Edit {
        id: document.id.clone(),
        expected: None,
        deleted: false,
        body: document.body.clone(),
    }
}

fn requested(document: &Document) -> Arc<Replication> {
    Arc::new(asked_by(&document.id, &members(document)).unwrap())
}

#[actix_rt::test]
async fn a_delayed_error_does_not_replace_the_final_state_of_a_document() {
    let (store, states) = memory();
    let (options, document) = (Rc::new(options(store.clone(), states)), version(1));
    store.edit(vec![creation(&document)]).await.unwrap();
    let completed = Outcome::Completed {
        stats: json!({}),
        id: "x".to_owned(),
    };
    let error = Outcome::Error {
        id: None,
        reason: "late".to_owned(),
    };
    for outcome in [completed, error] {
        let (options, doc) = (Rc::clone(&options), document.id.clone());
        let asked = Some(requested(&document));
        let log = options.log.clone();
        let writing = write(options, doc, None, asked, outcome, true, &log);
        writing.await.unwrap();
    }
    let written = store.document(&document.id).await.unwrap().unwrap();
    assert_eq!(members(&written).text(STATE).as_deref(), Some(COMPLETED));
}

#[actix_rt::test]
async fn the_end_of_a_run_leaves_its_document_the_job_of_a_later_version() {
    let (store, states) = memory();
    let options = options(store, states);
    let identity = options.identity.get(&options.database.store).await.unwrap();
    let scheduler = options.scheduler.address();
    let documents = ReplicatorDocuments::new(options, PidGuard::new()).start();
    let (before, after) = (version(1), version(2));
    let id = replication_id(&requested(&before), &identity, None);
    let ended = ReplicationEvent {
        id: id.clone(),
        replication: requested(&before),
        refused: Vec::new(),
        what: Happening::Ended(JobEnd::Normal(completed())),
    };
    documents.send(Updated(vec![before])).await.unwrap();
    let edited = documents.send(Updated(vec![after.clone()]));
    documents.do_send(ended);
    edited.await.unwrap();
    let job = scheduler.send(GetJob { id }).await.unwrap();
    assert!(job.is_some_and(|job| job.replication.same_as(&requested(&after))));
}

#[actix_rt::test]
async fn no_job_is_added_for_an_earlier_version_of_an_owned_document() {
    let ((store, states), clock) = (memory(), BootClock::default());
    let fleet = FakeFleet::new(store.clone(), clock.clone()).connect();
    let options = options(store, Arc::clone(&states));
    let epoch = EpochLease::new(Epoch(1), clock);
    epoch.set_until(Duration::MAX);
    let lease = DocLease::new(Arc::new(epoch), Request(1), false);
    states.lock().claimed("d", Arc::clone(&lease));
    let wish = Wish::Run(requested(&version(2)));
    states
        .lock()
        .handle("d", Event::Changed(wish), system_time());
    let work = states.lock().begin("d").unwrap();
    let job = ToAdd {
        doc: "d".to_owned(),
        attempt: Attempt(1),
        id: "abc".parse().unwrap(),
        replication: requested(&version(1)),
        owned: Some((lease, work)),
    };
    let notes = JobNotes::new(fleet.clone());
    let done = add_owned(&options, &notes, vec![job]).await;
    assert!(done[0].event.is_none() && fleet.noted().is_empty());
}

/// Begins work that never ends, and counts how often it is polled.
#[derive(Message)]
#[rtype(result = "()")]
struct BeginEndless(Arc<AtomicUsize>);

impl Handler<BeginEndless> for ReplicatorDocuments {
    type Result = ();

    fn handle(&mut self, BeginEndless(polls): BeginEndless, ctx: &mut Self::Context) {
        let endless = poll_fn(move |_| {
            polls.fetch_add(1, Ordering::SeqCst);
            Poll::Pending
        });
        self.aside(endless, ctx);
    }
}

#[actix_rt::test]
async fn a_message_polls_no_fetches_and_timers_of_documents() {
    let (store, states) = memory();
    let documents = ReplicatorDocuments::new(options(store, states), PidGuard::new()).start();
    let polls = Arc::new(AtomicUsize::new(0));
    let begin = BeginEndless(Arc::clone(&polls));
    documents.send(begin).await.unwrap();
    for _ in 0..10 {
        documents.send(Updated(Vec::new())).await.unwrap();
    }
    assert_eq!(polls.load(Ordering::SeqCst), 1);
}

#[actix_rt::test]
async fn a_start_reads_the_kept_state_of_jobs_in_batches() {
    let (store, states) = memory();
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

    let (store, asked) = counted(store, 0);
    let options = options(store, states);
    let scheduler = options.scheduler.clone();
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

#[actix_rt::test]
async fn a_job_is_paused_even_if_the_store_fails_before_it_is_added() {
    let (store, states) = memory();
    store.edit(vec![creation(&version(1))]).await.unwrap();
    let paused = json!({"paused": {"by": "ann", "since": 1}}).to_string();
    store.keep("d", Some(paused)).await.unwrap();
    let options = options(counted(store, 1).0, states);
    let scheduler = options.scheduler.clone();
    let documents = ReplicatorDocuments::new(options, PidGuard::new()).start();
    let census = || async { scheduler.address().send(GetCounts).await.unwrap().census };
    eventually("it is a job", || async { census().await.total == 1 }).await;
    assert_eq!(census().await.paused, 1);
    drop(documents);
}

#[actix_rt::test]
async fn a_deletion_is_not_purged_before_its_job_is_removed() {
    let (store, states) = memory();
    let created = store.edit(vec![creation(&version(1))]).await.unwrap();
    let (config, watched) = watch::channel(Arc::new(Config::default()));
    let options = DocumentsOptions {
        config: watched,
        ..options(store.clone(), states)
    };
    let scheduler = options.scheduler.clone();
    let documents = ReplicatorDocuments::new(options, PidGuard::new()).start();
    let census = || async { scheduler.address().send(GetCounts).await.unwrap().census };
    eventually("it is a job", || async { census().await.total == 1 }).await;
    let mut purging = Config::default();
    purging.store.deleted_kept_for = Duration::ZERO;
    // The store gets the purge next after the deletion.
    config.send_replace(Arc::new(purging));
    let deletion = Edit {
        expected: created[0].clone().ok(),
        deleted: true,
        ..creation(&version(1))
    };
    store.edit(vec![deletion]).await.unwrap();
    eventually("no job", || async { census().await.total == 0 }).await;
    drop(documents);
}
