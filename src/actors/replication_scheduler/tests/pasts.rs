//! Jobs taken over from another daemon, and the state saved for the next owner.

use std::sync::Mutex;

use super::*;
use crate::replicator::{CheckpointGuard, JobLease, past};
use policy::ownership::{DocId, Epoch};
use policy::schedule::{Earlier, History, HistoryEntry, HistoryEvent};
use replication::refused::RefusedDoc;

#[derive(Debug)]
struct Lease;

impl JobLease for Lease {
    fn left(&self) -> Option<Duration> {
        Some(Duration::MAX)
    }

    fn epoch(&self) -> u64 {
        7
    }
}

/// A job of an owned document.
fn owned(name: &str, earlier: Earlier) -> AddJob {
    AddJob {
        earlier,
        guard: CheckpointGuard::of(Arc::new(Lease)),
        ..AddJob::new(permanent(name), id(name))
    }
}

/// A history of crashes this many seconds ago, latest first.
fn crashes(seconds_ago: &[u64]) -> Earlier {
    let now = WallClock::new().now().as_micros();
    let crashed = HistoryEvent::Crashed(Arc::new(Reason::new("x", false)));
    let history = seconds_ago.iter().flat_map(|seconds| {
        let at = |seconds| WallTime::from_micros(now - seconds * 1_000_000);
        let what = crashed.clone();
        let started = HistoryEvent::Started;
        [
            HistoryEntry {
                at: at(*seconds),
                what,
            },
            HistoryEntry {
                at: at(seconds + 1),
                what: started,
            },
        ]
    });
    Earlier {
        history: History::of(history),
        not_before: WallTime::ZERO,
    }
}

#[actix_rt::test]
async fn a_job_taken_over_after_three_crashes_keeps_its_back_off_and_crash_count() {
    let world = World::start(|_| {}).await;
    let earlier = crashes(&[10, 20, 30]);
    let last = earlier.history.newest().expect("the job has crashed").at;
    assert_eq!(world.ask(owned("a", earlier)).await, Ok(Added::New));
    let job = world.job("a").await;
    assert_eq!(job.shown.summary.error_count, 3);
    assert_eq!(job.shown.summary.state, JobState::Crashing);
    assert_eq!(job.next_try(), Some(last + Duration::from_secs(120)));
    assert!(world.jobs.begun.borrow().is_empty());
    tokio::time::sleep(Duration::from_secs(121)).await;
    world.begun(1).await.job.do_send(Do::End(crash()));
    eventually("the fourth crash is counted", || async {
        world.job("a").await.shown.summary.error_count == 4
    })
    .await;
}

#[actix_rt::test]
async fn a_job_with_a_later_start_time_reports_it_and_starts_then() {
    let world = World::start(|_| {}).await;
    let not_before = WallClock::new().now() + Duration::from_secs(3600);
    let history = History::default();
    let earlier = Earlier {
        history,
        not_before,
    };
    assert_eq!(world.ask(owned("a", earlier)).await, Ok(Added::New));
    let job = world.job("a").await;
    assert_eq!(
        (job.next_try(), job.shown.listed),
        (Some(not_before), JobState::Pending)
    );
    assert_eq!(job.reason().as_deref(), Some("not to start yet"));
    assert!(world.jobs.begun.borrow().is_empty());
    tokio::time::sleep(Duration::from_secs(3601)).await;
    world.begun(1).await;
}

#[actix_rt::test]
async fn jobs_under_leases_are_killed_when_a_new_follower_of_documents_subscribes() {
    let world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::Never);
    let added = world.ask(owned("a", Earlier::default())).await;
    assert_eq!(added, Ok(Added::New));
    world.begun(1).await;
    world.ask(Subscribe(world.events.recipient())).await;
    assert!(world.ask(GetJob { id: id("a") }).await.is_none());
    eventually("the run is killed", || async {
        world.counts().await.census == Census::default()
    })
    .await;
    assert_eq!(world.jobs.asked.get(), 0);
}

/// The latest saved state of each document's job, and whether saving succeeds.
#[derive(Clone, Default)]
struct Saved {
    pasts: Arc<Mutex<std::collections::BTreeMap<DocId, String>>>,
    fails: Arc<std::sync::atomic::AtomicBool>,
}

impl Saved {
    fn writer(&self) -> PastWriter {
        let saved = self.clone();
        let save = move |epoch, pasts: Vec<(DocId, String)>| {
            assert_eq!(epoch, Epoch(7));
            let fails = saved.fails.load(std::sync::atomic::Ordering::Relaxed);
            if !fails {
                saved.pasts.lock().unwrap().extend(pasts);
            }
            let failed = || store::StoreError::Failed("scripted failure".into());
            std::future::ready(if fails { Err(failed()) } else { Ok(()) })
        };
        let (writer, task) = PastWriter::new(save, &Logger::root(Discard, o!()));
        actix_rt::spawn(task);
        writer
    }

    /// The history that a document's next owner reads, if any was saved.
    fn types(&self, name: &str) -> Option<Vec<&'static str>> {
        let pasts = self.pasts.lock().unwrap();
        let past = past::read(pasts.get(name)?, &permanent(name).digest());
        let history = past.earlier.history.iter();
        Some(history.map(|entry| entry.what.name()).collect())
    }

    /// The ids of refused documents that the next owner reads.
    fn refused(&self, name: &str) -> Vec<String> {
        let pasts = self.pasts.lock().unwrap();
        let past = pasts
            .get(name)
            .map(|text| past::read(text, &permanent(name).digest()));
        let refused = past.unwrap_or_default().refused;
        refused.iter().map(|doc| doc.id.clone()).collect()
    }
}

#[actix_rt::test]
async fn events_of_owned_jobs_are_saved_for_the_next_owner() {
    let saved = Saved::default();
    let world = World::saving(saved.writer()).await;
    let types = |name: &'static str, expected: &'static [&'static str]| {
        let saved = saved.clone();
        async move {
            let what = format!("{expected:?} is saved for {name}");
            eventually(&what, || async {
                saved.types(name).is_some_and(|types| types == expected)
            })
            .await;
        }
    };
    world.ask(owned("a", Earlier::default())).await.unwrap();
    let run = world.begun(1).await;
    types("a", &["started", "added"]).await;
    run.job.do_send(Do::End(crash()));
    types("a", &["crashed", "started", "added"]).await;
    // A restart clears the crash from the history.
    world.order("a", JobOrder::Restart).await;
    types("a", &["started", "added"]).await;
    world.order("a", JobOrder::Pause).await;
    types("a", &["stopped", "started", "added"]).await;
    // A job without a lease is not saved.
    world.add("b").await.unwrap();
    world.begun(3).await;
    world.ask(owned("c", Earlier::default())).await.unwrap();
    types("c", &["started", "added"]).await;
    assert_eq!(saved.types("b"), None);
}

#[actix_rt::test]
async fn removing_a_job_without_a_run_waits_at_most_two_seconds_for_its_past_to_be_saved() {
    let saved = Saved::default();
    let world = World::saving(saved.writer()).await;
    world.ask(owned("a", Earlier::default())).await.unwrap();
    let crashes = || async {
        world.history("a", &["crashed", "started", "added"]).await;
    };
    world.begun(1).await.job.do_send(Do::End(crash()));
    crashes().await;
    assert!(world.ask(remove("a")).await);
    let expected = ["crashed", "started", "added"];
    assert_eq!(saved.types("a").as_deref(), Some(&expected[..]));

    saved
        .fails
        .store(true, std::sync::atomic::Ordering::Relaxed);
    world.ask(owned("a", Earlier::default())).await.unwrap();
    world.begun(2).await.job.do_send(Do::End(crash()));
    crashes().await;
    let before = Instant::now();
    assert!(world.ask(remove("a")).await);
    assert_eq!(before.elapsed().as_secs(), 2, "in paused time");
}

#[actix_rt::test]
async fn refused_documents_of_a_job_are_saved_and_kept_by_the_next_owner() {
    let refused = |id: &str| RefusedDoc {
        id: id.to_owned(),
        rev: Some("1-x".to_owned()),
        error: "forbidden".to_owned(),
        reason: "no".to_owned(),
    };
    let saved = Saved::default();
    let world = World::saving(saved.writer()).await;
    let former = AddJob {
        refused: vec![Arc::new(refused("former"))],
        ..owned("a", Earlier::default())
    };
    world.ask(former).await.unwrap();
    assert_eq!(world.job("a").await.refused, [refused("former")]);
    let job = world.begun(1).await.job;
    job.do_send(Do::News(JobNews::Refused(refused("new"))));
    // They are saved before the run ends.
    job.do_send(Do::News(JobNews::Progress(progress(1))));
    let both = ["former", "new"];
    let are_saved = || async { saved.refused("a") == both };
    eventually("both are saved", are_saved).await;
    world.order("a", JobOrder::Restart).await;
    eventually("the job restarts", || async {
        saved
            .types("a")
            .is_some_and(|types| types == ["started", "added"])
    })
    .await;
    assert_eq!(saved.refused("a"), both);
}
