//! Two daemons report their jobs to each other. Each has its own store, and a real scheduler that starts no jobs.
//! Documents of one are known to the other as if they shared the store.

mod fake;

use std::sync::Arc;

use futures_util::future::join;
use serde_json::{Value, json};
use settee_client::{BulkOrder, BulkOrderName, Health, JobSelection, JobsQuery, JobsSort, Problem};
use slog::Discard;
use tokio::sync::watch;

use super::*;
use crate::actors::replication_scheduler::ReplicationScheduler;
use crate::actors::replicator_api::{FleetOptions, Replicated, ReplicatorError, Whose};
use crate::actors::replicator_documents::ReplicatorDocuments;
use crate::actors::replicator_documents::tests::{memory, options, scheduler};
use crate::audit::AuditLog;
use crate::messages::replication_job::{NewRun, RunningJob, StopJob};
use crate::messages::replication_scheduler::LoseJob;
use crate::metrics::Metrics;
use crate::otp::RegisteredName;
use crate::query_server::status::DaemonStatus;
use crate::replicator::document::{Person, doc_ref};
use crate::replicator::kept::Kept;
use crate::replicator::{DocState, DocStates, JobOrder, Page};
use fake::FakeFleet;
use policy::ownership::LEASE;
use policy::schedule::Settings;
use policy::time::Timestamp;
use store::fleet::DaemonName;
use store::{Edit, Watcher};
use test_support::{Probe, within};

/// A daemon of the fleet.
struct Member {
    scheduler: RegisteredName<ReplicationScheduler>,
    api: ReplicatorApi,
    states: Arc<DocStates>,
    metrics: Metrics,
    audit: AuditLog,
    epoch: watch::Sender<Option<Epoch>>,
}

impl Member {
    fn start(fleet: &Arc<FakeFleet>, address: &str, epoch: Epoch) -> Self {
        let (log, metrics) = (Logger::root(Discard, o!()), Metrics::new());
        let (store, states) = memory();
        // This daemon acts on all documents: ownership is not tested here.
        let mut options = options(store, Arc::clone(&states));
        options.identity = fleet.identity.clone();
        let scheduler = options.scheduler.clone();
        ReplicatorDocuments::new(options.clone(), PidGuard::new()).start();
        let name = DaemonName {
            address: address.into(),
            version: "1.2.3".into(),
        };
        fleet.enter(name.clone(), epoch);
        let epoch = watch::Sender::new(Some(epoch));
        let fleet = FleetOptions {
            store: fleet.clone(),
            name,
            epoch: epoch.subscribe(),
            metrics: metrics.fleet(),
        };
        let api = ReplicatorApi::new(options, Some(fleet));
        let audit = AuditLog::new(log.clone(), None);
        let health = metrics.health();
        FleetStatus::new(api.clone(), health, audit.clone(), &log, PidGuard::new()).start();
        Self {
            scheduler,
            api,
            audit,
            states,
            metrics,
            epoch,
        }
    }

    /// Writes documents; this daemon gets their jobs.
    async fn write(&self, ids: &[&str]) {
        let edits = ids.iter().map(|id| Edit {
            id: (*id).to_owned(),
            expected: None,
            deleted: false,
            body: json!({"source": format!("http://u:secret@s.example/{id}"), "owner": "ann",
                         "target": format!("http://t.example/{id}"), "continuous": true})
            .to_string(),
        });
        let store = &self.api.database().store;
        let written = store.edit(edits.collect()).await.unwrap();
        assert!(written.iter().all(Result::is_ok));
    }

    /// Is notified of documents that another daemon owns.
    fn learn_of(&self, ids: &[&str]) {
        let documents = ids.iter().map(|id| ((*id).to_owned(), Some(0)));
        self.states.written(documents.collect());
    }

    async fn list(&self, query: &JobsQuery) -> Value {
        self.api.list(query, &Whose::All).await.unwrap()
    }

    /// Waits until the list satisfies `is_so`.
    async fn lists(
        &self,
        what: &str,
        query: &JobsQuery,
        is_so: impl Fn(&[Value]) -> bool,
    ) -> Value {
        let asking = async {
            loop {
                let list = self.list(query).await;
                if is_so(list["jobs"].as_array().unwrap()) {
                    return list;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        within(what, asking).await
    }
}

fn all() -> JobsQuery {
    JobsQuery {
        limit: 100,
        ..JobsQuery::default()
    }
}

fn names(jobs: &Value) -> Vec<&str> {
    let jobs = jobs["jobs"].as_array().unwrap().iter();
    jobs.map(|job| job["document"].as_str().unwrap()).collect()
}

fn ann() -> Person {
    Person {
        name: Some("ann".to_owned()),
        is_admin: true,
    }
}

/// Whether `a1` is listed as paused by ann.
fn is_paused(jobs: &[Value]) -> bool {
    let mut jobs = jobs.iter();
    jobs.any(|job| job["document"] == "a1" && job["reason"] == "paused by ann")
}

/// Two daemons; the first has the jobs of `a1` and `a2`, the second that of `b1`.
async fn two() -> (Arc<FakeFleet>, Member, Member) {
    let fleet = FakeFleet::new();
    let one = Member::start(&fleet, "one.example:5984", Epoch(1));
    let two = Member::start(&fleet, "two.example:5984", Epoch(2));
    one.write(&["a1", "a2"]).await;
    one.learn_of(&["b1"]);
    two.write(&["b1"]).await;
    two.learn_of(&["a1", "a2"]);
    for member in [&one, &two] {
        member
            .lists("all jobs", &all(), |jobs| jobs.len() == 3)
            .await;
    }
    (fleet, one, two)
}

#[actix_rt::test]
async fn every_daemon_lists_the_jobs_documents_and_counts_of_all() {
    let (fleet, one, two) = two().await;
    for (member, other) in [(&one, "two.example:5984"), (&two, "one.example:5984")] {
        let list = member.list(&all()).await;
        assert_eq!(list["total_rows"], 3);
        assert!(list["age_s"].is_u64());
        let ids: Vec<&str> = list["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["id"].as_str().unwrap())
            .collect();
        assert!(ids.is_sorted(), "{ids:?}");
        for job in list["jobs"].as_array().unwrap() {
            let is_others = job["daemon"] == other;
            assert_eq!(
                job["age_s"].as_u64().is_some_and(|age| age >= 7),
                is_others,
                "{job}"
            );
            assert_eq!(job["state"], "pending");
            assert!(!job.to_string().contains("secret"), "{job}");
        }
        let page = JobsQuery {
            skip: 1,
            limit: 1,
            sort: JobsSort::Trouble,
            ..all()
        };
        let page = member.list(&page).await;
        assert_eq!(
            (
                page["total_rows"].as_u64(),
                page["jobs"].as_array().unwrap().len()
            ),
            (Some(3), 1)
        );
        let daemon = JobSelection {
            daemon: Some(other.replace(":5984", ":*")),
            ..JobSelection::default()
        };
        let of_other = member
            .list(&JobsQuery {
                select: daemon,
                ..all()
            })
            .await;
        let expected: &[&str] = if other.starts_with("two") {
            &["b1"]
        } else {
            &["a1", "a2"]
        };
        let mut found = names(&of_other);
        found.sort_unstable();
        assert_eq!(found, expected);
        let (total, _, docs) = member
            .api
            .docs(Page::default(), &[DocState::Pending])
            .await
            .unwrap();
        let docs: Vec<Value> = docs
            .iter()
            .map(|doc| serde_json::from_str(doc.get()).unwrap())
            .collect();
        let ids: Vec<&str> = docs
            .iter()
            .map(|doc| doc["doc_id"].as_str().unwrap())
            .collect();
        // In this test a daemon can show only documents in its own store.
        assert_eq!((total, ids.len() + expected.len()), (3, 3));
        let census = member.api.census().await.unwrap();
        assert_eq!((census.total, census.pending), (3, 3));
        let one_job = member.api.job(expected[0], &Whose::All).await.unwrap();
        assert_eq!(
            (&one_job["document"], &one_job["daemon"]),
            (&expected[0].into(), &other.into())
        );
        let by_id = member
            .api
            .job(one_job["id"].as_str().unwrap(), &Whose::All)
            .await
            .unwrap();
        assert_eq!(by_id["document"], expected[0]);
        let daemons = member.api.daemons().await.unwrap();
        assert_eq!(daemons["daemons"][0]["address"], "one.example:5984");
        assert_eq!(daemons["daemons"][0]["documents"], 2);
        let own: Vec<bool> = daemons["daemons"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["self"] == true)
            .collect();
        assert_eq!(own, [!other.starts_with("one"), other.starts_with("one")]);
    }
    let snapshot = one.metrics.snapshot(&DaemonStatus::default());
    let number = |name: &str| snapshot.number(name, &[]);
    assert_eq!(number("settee_fleet_daemons"), Some(2.0));
    assert_eq!(number("settee_fleet_documents_owned"), Some(2.0));
    assert_eq!(number("settee_fleet_documents_unowned"), Some(0.0));
    assert!(number("settee_fleet_lease_left_seconds") > Some(0.0));
    assert!(fleet.largest_write() <= STATUSES_MAX);
}

#[actix_rt::test]
async fn an_order_for_a_job_of_another_daemon_is_kept_and_carried_out_there() {
    let (_fleet, one, two) = two().await;
    let ordered = two
        .api
        .order("a1", JobOrder::Pause, &Whose::All, &ann())
        .await
        .unwrap();
    assert_eq!(ordered.job["told"], "one.example:5984");
    let kept = two.api.database().store.kept("a1").await.unwrap();
    assert_eq!(&*Kept::read(&kept.unwrap()).paused.unwrap().by, "ann");
    one.lists("the pause in its owner", &all(), is_paused).await;
    let recorded = async {
        while one.audit.page(1).total_rows == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    within("the record of the pause", recorded).await;
    let record = one.audit.page(2).records.remove(0);
    assert_eq!(one.audit.page(2).total_rows, 1);
    assert_eq!(
        (&*record.who, &*record.from, &*record.what, &*record.on),
        ("ann", "daemon two.example:5984", "pause_job", "a1")
    );
    assert_eq!((record.count, record.error), (Some(1), None));
    assert_eq!(record.before["state"], "pending", "{}", record.before);
    two.lists("the pause reported back", &all(), is_paused)
        .await;
    let paused = JobsQuery {
        select: JobSelection {
            states: vec!["paused".to_owned()],
            ..JobSelection::default()
        },
        ..all()
    };
    assert_eq!(names(&two.list(&paused).await), ["a1"]);
    let order = BulkOrder {
        order: BulkOrderName::Priority,
        priority: Some(7),
        select: JobSelection {
            all: true,
            ..JobSelection::default()
        },
        dry_run: false,
        expect: Some(3),
    };
    let done = two
        .api
        .order_jobs(&order, &Whose::All, &ann())
        .await
        .unwrap();
    assert_eq!((done.done, done.told, done.failed), (3, 2, 0));
    for result in &done.results {
        let told = result.told.as_deref();
        assert_eq!(
            told,
            (result.document.as_deref() != Some("b1")).then_some("one.example:5984")
        );
    }
    let have_it = |jobs: &[Value]| jobs.iter().all(|job| job["priority"] == 7);
    one.lists("the priority in its owner", &all(), have_it)
        .await;
    two.lists("the priority reported back", &all(), have_it)
        .await;
}

#[actix_rt::test]
async fn an_order_for_a_job_that_has_moved_to_another_daemon_meanwhile_is_carried_out_there() {
    let (_fleet, one, two) = two().await;
    // The second daemon still has the job as well, and reports nothing.
    two.epoch.send_replace(None);
    two.write(&["a1"]).await;
    let is_own = |job: &Value| job["document"] == "a1" && job["daemon"] == "two.example:5984";
    two.lists("its job", &all(), |jobs| jobs.iter().any(is_own))
        .await;
    let job = two.api.job("a1", &Whose::All).await.unwrap();
    let id = job["id"].as_str().unwrap();
    let (scheduler, ann) = (two.scheduler.address(), ann());
    let ordering = two.api.order(id, JobOrder::Pause, &Whose::All, &ann);
    let losing = async {
        let (id, doc) = (id.parse().unwrap(), doc_ref("a1"));
        scheduler.send(LoseJob { id, doc }).await
    };
    // It is lost once the order has found it.
    let (ordered, lost) = join(ordering, losing).await;
    assert!(lost.unwrap());
    assert!(ordered.unwrap().job["told"].is_string());
    one.lists("the pause in its new owner", &all(), is_paused)
        .await;
}

#[actix_rt::test]
async fn after_a_failover_that_lost_statuses_all_are_written_and_read_again() {
    let (fleet, one, two) = two().await;
    fleet.lose_statuses();
    for member in [&one, &two] {
        member.states.lock().renumbered();
    }
    one.api
        .order("a1", JobOrder::Pause, &Whose::All, &ann())
        .await
        .unwrap();
    two.lists("a status with a lower number", &all(), is_paused)
        .await;
    let three = Member::start(&fleet, "three.example:5984", Epoch(3));
    three.learn_of(&["a1", "a2", "b1"]);
    three
        .lists("all jobs", &all(), |jobs| jobs.len() == 3)
        .await;
}

#[actix_rt::test]
async fn a_transient_job_is_seen_and_cancelled_from_another_daemon_by_authorized_users_only() {
    let (fleet, one, two) = two().await;
    let body =
        json!({"source": "http://s.example/x", "target": "http://t.example/x", "continuous": true});
    one.api.replicate(&body, &ann()).await.unwrap();
    let list = two
        .lists("the transient job", &all(), |jobs| jobs.len() == 4)
        .await;
    let jobs = list["jobs"].as_array().unwrap();
    let job = jobs.iter().find(|job| job["document"].is_null()).unwrap();
    let (id, whose) = (job["id"].as_str().unwrap(), |name: &str| {
        Whose::Of(name.to_owned())
    });
    assert!(two.api.job(id, &whose("ann")).await.is_ok());
    assert!(matches!(
        two.api.job(id, &whose("bob")).await,
        Err(ReplicatorError::Missing)
    ));
    let cancel = json!({"cancel": true, "id": id});
    let bob = Person {
        name: Some("bob".to_owned()),
        is_admin: false,
    };
    let refused = two.api.replicate(&cancel, &bob).await;
    assert!(matches!(refused, Err(ReplicatorError::Missing)));
    two.api.replicate(&cancel, &ann()).await.unwrap();
    one.lists("the end of the job", &all(), |jobs| jobs.len() == 3)
        .await;
    two.lists("the end of the job, reported", &all(), |jobs| {
        jobs.len() == 3
    })
    .await;
    assert!(fleet.has(&StatusOf::Transient(id.into())));
}

#[actix_rt::test]
async fn every_daemon_refuses_a_call_for_the_job_of_a_document_or_of_another_user() {
    let (_fleet, one, two) = two().await;
    let body = |name: &str, worker_processes: u32| {
        json!({"source": format!("http://u:secret@s.example/{name}"), "continuous": true,
               "target": format!("http://t.example/{name}"), "worker_processes": worker_processes})
    };
    one.api.replicate(&body("x", 1), &ann()).await.unwrap();
    two.lists("the transient job", &all(), |jobs| jobs.len() == 4)
        .await;
    let bob = Person {
        name: Some("bob".to_owned()),
        is_admin: false,
    };
    for (person, name, expected) in [
        (ann(), "a1", Err("conflict")),
        (bob, "x", Err("conflict")),
        (ann(), "x", Ok(())),
    ] {
        for member in [&one, &two] {
            let answer = member.api.replicate(&body(name, 2), &person).await;
            let answer = answer.map(drop).map_err(|error| error.name());
            assert_eq!(answer, expected, "{name}");
        }
    }
}

#[actix_rt::test]
async fn an_order_to_cancel_a_job_does_not_wait_for_the_end_of_its_run() {
    let fleet = FakeFleet::new();
    let one = Member::start(&fleet, "one.example:5984", Epoch(1));
    // A run that does not stop.
    let (run, asked) = (PidGuard::new(), Probe::<StopJob>::start());
    let (pid, stop) = (run.pid(), asked.recipient());
    let jobs = move |_: NewRun| {
        Ok(RunningJob {
            pid: pid.clone(),
            stop: stop.clone(),
            kill: Box::new(|| {}),
        })
    };
    let jobs = scheduler(Settings::default(), Box::new(jobs), &one.states);
    one.scheduler.replace(jobs);
    let body =
        json!({"source": "http://s.example/x", "target": "http://t.example/x", "continuous": true});
    let Replicated::Begun(id) = one.api.replicate(&body, &ann()).await.unwrap() else {
        panic!("a continuous replication has no end");
    };
    let order = Order {
        of: StatusOf::Transient(id.to_string().into()),
        body: json!({"order": "cancel", "by": "ann"}).to_string(),
    };
    assert!(one.api.take_order(&order).await.unwrap().is_some());
    assert_eq!(one.api.running_here().await, 1);
}

#[actix_rt::test]
async fn a_job_whose_daemon_lost_its_lease_reports_that_and_its_orders_are_kept_for_the_next() {
    let (fleet, one, two) = two().await;
    // The first daemon has stopped reporting.
    one.epoch.send_replace(None);
    fleet.end_lease(Epoch(1));
    let is_lost = |jobs: &[Value]| {
        let of_one = jobs
            .iter()
            .filter(|job| job["daemon"] == "one.example:5984");
        let text = "its daemon one.example:5984 has lost its lease";
        let lost = of_one.filter(|job| job["reason"] == text);
        lost.count() == 2
    };
    two.lists("the reason", &all(), is_lost).await;
    let groups = two
        .list(&JobsQuery {
            groups: true,
            ..all()
        })
        .await;
    assert_eq!(groups["groups"][0]["count"], 2, "{groups}");
    let order = |order| BulkOrder {
        order,
        priority: None,
        select: JobSelection {
            patterns: vec!["a1".to_owned()],
            ..JobSelection::default()
        },
        dry_run: false,
        expect: None,
    };
    let paused = two
        .api
        .order_jobs(&order(BulkOrderName::Pause), &Whose::All, &ann())
        .await
        .unwrap();
    assert_eq!((paused.done, paused.told), (1, 0));
    assert!(
        paused.results[0]
            .reason
            .starts_with("no daemon has the job now")
    );
    assert!(two.api.database().store.kept("a1").await.unwrap().is_some());
    let again = two
        .api
        .order_jobs(&order(BulkOrderName::Restart), &Whose::All, &ann())
        .await
        .unwrap();
    assert_eq!((again.done, again.told), (1, 0));
    let kept = two.api.database().store.kept("a1").await.unwrap();
    let kept = Kept::read(&kept.unwrap());
    assert!(
        kept.paused.is_none() && kept.restarted.is_some(),
        "{kept:?}"
    );
    let snapshot = two.metrics.snapshot(&DaemonStatus::default());
    assert_eq!(
        snapshot.number("settee_fleet_documents_unowned", &[]),
        Some(2.0)
    );
}

#[actix_rt::test]
async fn while_the_database_is_down_lists_come_from_memory_with_their_age() {
    let (fleet, one, two) = two().await;
    fleet.set_down(true);
    let grows = async {
        while two.list(&all()).await["age_s"].as_u64() < Some(3) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    within("an old reading", grows).await;
    assert_eq!(two.list(&all()).await["total_rows"], 3);
    let refused = two
        .api
        .order("a1", JobOrder::Restart, &Whose::All, &ann())
        .await;
    assert!(matches!(refused, Err(ReplicatorError::Store(_))));
    one.write(&["a3"]).await;
    two.learn_of(&["a3"]);
    fleet.set_down(false);
    two.lists("the job written meanwhile", &all(), |jobs| jobs.len() == 4)
        .await;
}

#[actix_rt::test]
async fn a_restarted_daemon_is_counted_once_and_both_daemons_at_one_address_are_counted() {
    let fleet = FakeFleet::new();
    let one = Member::start(&fleet, "one.example:5984", Epoch(1));
    let name = DaemonName {
        address: "two.example:5984".into(),
        version: "1.2.3".into(),
    };
    let epochs = || async {
        let daemons = one.api.daemons().await.unwrap();
        let daemons = daemons["daemons"].as_array().unwrap();
        let epochs = daemons
            .iter()
            .map(|daemon| daemon["epoch"].as_str().unwrap());
        let epochs = epochs.map(|epoch| u64::from_str_radix(epoch, 16).unwrap());
        epochs.collect::<Vec<_>>()
    };
    let epochs = &epochs;
    let are_shown = |expected: &'static [u64]| async move {
        let read = async {
            while epochs().await != expected {
                sleep(Duration::from_millis(20)).await;
            }
        };
        within(&format!("{expected:?} are shown"), read).await;
    };
    fleet.enter(name.clone(), Epoch(7));
    are_shown(&[1, 7]).await;
    // Killed 9 s after a renewal, and restarted.
    fleet.set_lease(Epoch(7), Some(LEASE - Duration::from_secs(9)));
    fleet.enter(name.clone(), Epoch(3));
    are_shown(&[1, 3]).await;
    let snapshot = one.metrics.snapshot(&DaemonStatus::default());
    assert_eq!(snapshot.number("settee_fleet_daemons", &[]), Some(2.0));
    // A renewed lease shows that epoch 7 is another daemon at the same address.
    fleet.set_lease(Epoch(7), Some(LEASE));
    are_shown(&[1, 3, 7]).await;
}

/// Lets a daemon's check find these problems.
fn find_problems(member: &Member, address: &str, subjects: &[&str]) {
    let problems = subjects.iter().map(|subject| {
        let problem = Problem {
            kind: "pool_failing".to_owned(),
            severity: "critical".to_owned(),
            subject: (*subject).to_owned(),
            ..Problem::default()
        };
        (problem, Timestamp::ZERO)
    });
    let board = member.metrics.health();
    board.show(address, Timestamp::ZERO, problems.collect());
}

/// Waits until a daemon reports each daemon's health and the subjects of its problems.
async fn reports(member: &Member, expected: Value) {
    let mut reported = Value::Null;
    let asking = async {
        while reported != expected {
            sleep(Duration::from_millis(20)).await;
            let own = member.metrics.health().told();
            let health = member.api.fleet_health(own).await;
            let of_one = |one: &Health| {
                let about = one.problems.iter().map(|problem| problem.subject.as_str());
                json!([one.daemon, one.status, about.collect::<Vec<_>>()])
            };
            reported = health.daemons.iter().map(of_one).collect();
        }
    };
    within(&format!("{expected} is reported"), asking).await;
}

#[actix_rt::test]
async fn problems_of_a_daemon_are_reported_by_all_while_it_is_alive() {
    let fleet = FakeFleet::new();
    let (one, two) = ("one.example:5984", "two.example:5984");
    let first = Member::start(&fleet, one, Epoch(1));
    let second = Member::start(&fleet, two, Epoch(2));
    find_problems(&first, one, &[]);
    // So far the second one is only known to exist.
    reports(&first, json!([[one, "ok", []], [two, "unknown", []]])).await;
    find_problems(&second, two, &["js", "python"]);
    let both = json!([one, "ok", []]);
    let bad = json!([two, "critical", ["js", "python"]]);
    reports(&first, json!([both, bad])).await;
    reports(&second, json!([bad, both])).await;
    let health = first.api.fleet_health(first.metrics.health().told()).await;
    assert_eq!(
        (health.status.as_str(), health.daemons[0].age_s),
        ("critical", None)
    );
    assert!(health.daemons[1].age_s.is_some_and(|age| age >= 7));
    // A failed write is repeated later with the current state; the reported state stays meanwhile.
    fleet.set_down(true);
    find_problems(&second, two, &["js"]);
    reports(&first, json!([both, bad])).await;
    fleet.set_down(false);
    let better = json!([two, "critical", ["js"]]);
    reports(&first, json!([both, better])).await;
    // Under a new epoch the problems are reported again.
    let name = DaemonName {
        address: two.into(),
        version: "1.2.3".into(),
    };
    fleet.end_lease(Epoch(2));
    reports(&first, json!([both])).await;
    fleet.enter(name, Epoch(3));
    second.epoch.send_replace(Some(Epoch(3)));
    reports(&first, json!([both, better])).await;
}

#[actix_rt::test]
async fn lasting_problems_are_rewritten_three_times_a_minute() {
    let fleet = FakeFleet::new();
    let one = Member::start(&fleet, "one.example:5984", Epoch(1));
    tokio::time::pause();
    sleep(REPORT_AGAIN * 2).await;
    assert_eq!(fleet.reports_written(), 0, "no check has run");
    find_problems(&one, "one.example:5984", &["js"]);
    sleep(REPORT_AGAIN * 6).await;
    let written = fleet.reports_written();
    assert!((5..=7).contains(&written), "{written}");
}
