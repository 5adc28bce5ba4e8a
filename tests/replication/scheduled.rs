//! Many replications under the scheduler, with real jobs between servers that answer.

use std::time::Duration;

use actix::{Actor, Addr};
use serde_json::json;
use settee::actors::job_supervisor;
use settee::actors::replication_job::ReplicationJob;
use settee::actors::replication_scheduler::{ReplicationScheduler, SchedulerOptions};
use settee::messages::replication_job::JobStart;
use settee::messages::replication_scheduler::{
    AddJob, Added, GetCounts, GetJob, JobInfo, LoseJob, Outcome, RemoveJob,
};
use settee::metrics::Metrics;
use settee::otp::pid::{Down, ExitReason, Pid};
use settee::otp::supervisor::Stop;
use settee::policy::schedule::{Backoff, JobState, Settings};
use settee::replication::endpoint::Http;
use settee::replication::id::ReplicationId;
use settee::replication::spec::{Defaults, DocRef, Replication, UserCtx};
use settee::testkit::{Probe, eventually, within};
use slog::{Discard, Logger, o};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;

use crate::support::couch::Couch;
use crate::support::http_server::Answer;
use crate::support::job::{Job, body_with};

/// A scheduler with real jobs, and what watches its life.
struct World {
    scheduler: Addr<ReplicationScheduler>,
    pid: Pid,
    http: Http,
}

/// A replication with its id; the document's name decides whether it has one.
fn replication(body: &serde_json::Value, doc: Option<&str>) -> (Replication, ReplicationId) {
    let doc = doc.map(|id| DocRef {
        database: "_replicator".into(),
        id: id.into(),
    });
    let parsed = Replication::parse(body, &Defaults::default(), UserCtx::default(), doc);
    let (start, _) = Job::prepare(body);
    (parsed.unwrap(), start.run.id)
}

impl World {
    fn start(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            interval: Duration::from_millis(500),
            backoff: Backoff {
                base: Duration::from_millis(200),
                ceiling: Duration::from_secs(1),
            },
            ..Settings::default()
        };
        change(&mut settings);
        let (start, _) = Job::prepare(&json!({"source": "http://h/a/", "target": "http://h/b/"}));
        let http = start.settings.http.clone();
        let scheduler = ReplicationScheduler::new(SchedulerOptions {
            states: Default::default(),
            http: http.clone(),
            live: Default::default(),
            settings,
            jobs: Box::new(move |run| {
                let settings = start.settings.clone();
                let job = ReplicationJob::new(JobStart { run, settings });
                Ok(job_supervisor::run(job))
            }),
            metrics: Metrics::new().replication(),
            log: Logger::root(Discard, o!()),
        });
        let pid = scheduler.pid();
        let scheduler = scheduler.start();
        Self {
            scheduler,
            pid,
            http,
        }
    }

    async fn add(&self, body: &serde_json::Value, doc: Option<&str>) -> ReplicationId {
        let (replication, id) = replication(body, doc);
        let added = self.scheduler.send(AddJob::new(replication, id.clone()));
        assert_eq!(added.await.unwrap(), Ok(Added::New));
        id
    }

    async fn job(&self, id: &ReplicationId) -> Option<JobInfo> {
        self.scheduler
            .send(GetJob { id: id.clone() })
            .await
            .unwrap()
    }

    async fn stop(self) -> ExitReason {
        let mut downs = Probe::<Down>::start();
        let _watch = self.pid.watch(downs.recipient());
        self.scheduler.do_send(Stop { now: false });
        downs.next().await.reason
    }
}

/// A continuous replication, with checkpoints as often as can be.
fn continuous(source: &Couch, target: &Couch) -> serde_json::Value {
    let more = json!({"continuous": true, "checkpoint_interval": 50});
    body_with(&source.url(), &target.url(), more)
}

#[actix_rt::test]
async fn a_one_shot_replication_runs_completes_and_is_gone() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    for n in 0..20 {
        source.put(&format!("doc-{n}"), None, json!({"n": n}));
    }
    let world = World::start(|_| {});
    let (replication, id) = replication(&body_with(&source.url(), &target.url(), json!({})), None);
    let (waiter, outcome) = oneshot::channel();
    let mut order = AddJob::new(replication, id.clone());
    order.waiter = Some(waiter);
    world.scheduler.send(order).await.unwrap().unwrap();
    let Ok(Outcome::Completed(completed)) = within("its end", outcome).await else {
        panic!("it does its work");
    };
    assert_eq!(completed.progress.stats.docs_written, 20);
    assert_eq!(source.trees(), target.trees());
    assert!(world.job(&id).await.is_none());
    assert_eq!(world.stop().await, ExitReason::Shutdown);
}

#[actix_rt::test]
async fn more_continuous_replications_than_slots_all_get_their_turn() {
    let world = World::start(|settings| {
        settings.max_jobs = 2;
        settings.max_churn = 1;
    });
    let mut pairs = Vec::new();
    for n in 0..5 {
        let (source, target) = (Couch::start().await, Couch::start().await);
        source.put("before", None, json!({"n": n}));
        world
            .add(&continuous(&source, &target), Some(&format!("doc-{n}")))
            .await;
        pairs.push((source, target));
    }
    let all_equal = || async { pairs.iter().all(|(s, t)| s.trees() == t.trees()) };
    eventually("every target has what its source has", all_equal).await;
    // And again, from where each stopped.
    for (source, _) in &pairs {
        source.put("after", None, json!({}));
    }
    eventually("every target has what came later", all_equal).await;
    let counts = world.scheduler.send(GetCounts).await.unwrap();
    assert!(counts.census.running <= 2);
    assert_eq!((counts.census.total, counts.totals.crashes), (5, 0));
    assert!(counts.totals.stops >= 3, "they took turns");
    assert_eq!(world.stop().await, ExitReason::Shutdown);
}

#[actix_rt::test]
async fn a_replication_whose_target_fails_backs_off_and_goes_on_when_that_is_healed() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    source.put("doc", None, json!({}));
    target.fault(|_| Some(Answer::error(401, "unauthorized", "no")));
    let world = World::start(|_| {});
    let id = world.add(&continuous(&source, &target), Some("doc")).await;
    let crashes = || async {
        world
            .job(&id)
            .await
            .map_or(0, |job| job.summary.error_count)
    };
    eventually("it crashed twice", || async { crashes().await >= 2 }).await;
    let waits = || async {
        let why = world.job(&id).await.and_then(|job| job.why_not);
        why.is_some_and(|why| why.to_string().starts_with("backing off until 20"))
    };
    eventually("it says that it backs off", waits).await;
    target.heal();
    let equal = || async { source.trees() == target.trees() };
    eventually("the target has the document", equal).await;
    let job = world.job(&id).await.unwrap();
    assert_eq!(job.summary.state, JobState::Running);
    assert_eq!(world.stop().await, ExitReason::Shutdown);
}

#[actix_rt::test]
async fn replications_that_could_not_reach_a_server_go_on_when_it_is_back_and_not_after_their_backoff()
 {
    let source = Couch::start().await;
    source.put("doc", None, json!({}));
    // A port where nobody listens yet.
    let away = TcpSocket::new_v4().unwrap();
    away.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let here = away.local_addr().unwrap();
    let url = format!("http://{here}/db/");
    let hour = Duration::from_secs(3600);
    let world = World::start(|settings| {
        settings.backoff = Backoff {
            base: hour,
            ceiling: hour,
        };
    });
    let mut jobs = Vec::new();
    for n in 0..3 {
        let target = Couch::start().await;
        let more = json!({"continuous": true, "retries_per_request": 0});
        let body = body_with(&url, &target.url(), more);
        let id = world.add(&body, Some(&format!("doc-{n}"))).await;
        jobs.push((id, target));
    }
    for (id, _) in &jobs {
        let crashed = || async {
            let job = world.job(id).await;
            job.is_some_and(|job| job.summary.state == JobState::Crashing)
        };
        eventually("it has crashed", crashed).await;
    }
    // One request of each job, one question to each target, and two to the server that is away: the first of them was
    // not answered.
    let requests = || async {
        let all = world.http.counters().all();
        let requests = all.iter().find(|(name, _)| *name == "requests");
        requests.is_some_and(|(_, n)| *n >= 2 * jobs.len() as u64 + 2)
    };
    eventually("the server was asked", requests).await;
    let listener = away.listen(16).unwrap();
    let behind = source.url();
    let behind = behind
        .trim_start_matches("http://")
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    let forwarding = actix_rt::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let behind = behind.clone();
            actix_rt::spawn(async move {
                let mut other = TcpStream::connect(behind).await.unwrap();
                drop(copy_bidirectional(&mut stream, &mut other).await);
            });
        }
    });
    for (_, target) in &jobs {
        let equal = || async { source.trees() == target.trees() };
        eventually("the target has the document", equal).await;
    }
    assert_eq!(world.stop().await, ExitReason::Shutdown);
    forwarding.abort();
}

#[actix_rt::test]
async fn the_end_of_the_service_leaves_checkpoints() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    source.put("doc", None, json!({}));
    let world = World::start(|_| {});
    let more = json!({"continuous": true, "checkpoint_interval": 3_600_000});
    let body = body_with(&source.url(), &target.url(), more);
    let id = world.add(&body, Some("doc")).await;
    let written = || async {
        let progress = world.job(&id).await.and_then(|job| job.progress);
        progress.is_some_and(|progress| progress.stats.docs_written == 1)
    };
    eventually("the target has the document", written).await;
    let log = format!("_local/{}", id.base);
    assert_eq!(target.local(&log), None);
    assert_eq!(world.stop().await, ExitReason::Shutdown);
    assert!(target.local(&log).is_some() && source.local(&log).is_some());
}

#[actix_rt::test]
async fn a_lost_replication_is_gone_without_a_checkpoint_when_that_is_answered() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    source.put("doc", None, json!({}));
    let world = World::start(|_| {});
    let more = json!({"continuous": true, "checkpoint_interval": 3_600_000});
    let body = body_with(&source.url(), &target.url(), more);
    let id = world.add(&body, Some("doc")).await;
    let written = || async {
        let progress = world.job(&id).await.and_then(|job| job.progress);
        progress.is_some_and(|progress| progress.stats.docs_written == 1)
    };
    eventually("the target has the document", written).await;
    let lost = LoseJob { id: id.clone() };
    assert!(world.scheduler.send(lost).await.unwrap());
    let counts = world.scheduler.send(GetCounts).await.unwrap();
    assert_eq!(counts.census.running, 0);
    assert_eq!(world.stop().await, ExitReason::Shutdown);
    let log = format!("_local/{}", id.base);
    assert_eq!((target.local(&log), source.local(&log)), (None, None));
}

#[actix_rt::test]
async fn a_removed_replication_is_gone_when_that_is_answered() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    let world = World::start(|_| {});
    let id = world.add(&continuous(&source, &target), Some("doc")).await;
    let runs = || async {
        world
            .job(&id)
            .await
            .is_some_and(|job| job.progress.is_some())
    };
    eventually("it runs", runs).await;
    assert!(
        world
            .scheduler
            .send(RemoveJob { id: id.clone() })
            .await
            .unwrap()
    );
    source.put("late", None, json!({}));
    let counts = world.scheduler.send(GetCounts).await.unwrap();
    assert_eq!(counts.census.running, 0);
    assert_eq!(world.stop().await, ExitReason::Shutdown);
    assert!(target.trees().is_empty());
}

#[actix_rt::test]
async fn what_was_counted_is_kept_without_checkpoints_too() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    for n in 0..10 {
        source.put(&format!("doc-{n}"), None, json!({ "n": n }));
    }
    target.refuse("doc-3");
    let world = World::start(|_| {});
    let more = json!({"continuous": true, "use_checkpoints": false});
    let body = body_with(&source.url(), &target.url(), more);
    let id = world.add(&body, Some("doc")).await;
    let stats = || async {
        let progress = world.job(&id).await.and_then(|job| job.progress);
        progress.map(|progress| progress.stats).unwrap_or_default()
    };
    eventually("all are looked at", || async {
        stats().await.missing_checked == 10
    })
    .await;
    // It crashes, and begins at the beginning.
    source.fault(|request| {
        let fails = request.kind() == "GET _changes";
        fails.then(|| Answer::error(400, "bad_request", "no"))
    });
    eventually("it crashes", || async {
        let counts = world.scheduler.send(GetCounts).await.unwrap();
        counts.totals.crashes > 0
    })
    .await;
    source.put("later", None, json!({}));
    source.heal();
    eventually("it looked at all of them again", || async {
        stats().await.missing_checked >= 21
    })
    .await;
    let stats = stats().await;
    assert_eq!(
        (stats.docs_written, stats.doc_write_failures),
        (10, 2),
        "the counters went on"
    );
    assert!(source.locals().is_empty() && target.locals().is_empty());
    assert_eq!(world.stop().await, ExitReason::Shutdown);
}

#[actix_rt::test]
async fn a_job_tells_of_the_latest_documents_that_were_refused() {
    let (source, target) = (Couch::start().await, Couch::start().await);
    for n in 0..30 {
        let id = format!("doc-{n:02}");
        source.put(&id, None, json!({ "n": n }));
        target.refuse(&id);
    }
    let world = World::start(|_| {});
    let more = json!({"continuous": true, "worker_processes": 1});
    let body = body_with(&source.url(), &target.url(), more);
    let id = world.add(&body, Some("doc")).await;
    let job = || async { world.job(&id).await.unwrap() };
    let failures = |job: &JobInfo| {
        let progress = job.progress.as_ref();
        progress.map_or(0, |progress| progress.stats.doc_write_failures)
    };
    eventually("all were refused", || async {
        failures(&job().await) == 30
    })
    .await;
    let refused = job().await.refused;
    let ids: Vec<&str> = refused.iter().map(|doc| doc.id.as_str()).collect();
    let expected: Vec<String> = (10..30).map(|n| format!("doc-{n:02}")).collect();
    assert_eq!(ids, expected);
    let last = &refused[19];
    assert_eq!((&*last.error, &*last.reason), ("forbidden", "not this one"));
    assert!(last.rev.as_ref().is_some_and(|rev| rev.starts_with("1-")));
    assert_eq!(world.stop().await, ExitReason::Shutdown);
}
