//! The scheduler with jobs that do as they are told, in paused time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use actix::dev::ToEnvelope;
use serde_json::json;
use slog::{Discard, o};
use tokio::sync::oneshot;

use super::*;
use crate::actors::job_supervisor;
use crate::actors::supervisor::Stop;
use crate::messages::job_supervisor::RunningJob;
use crate::messages::replication_job::{JobNews, StopJob};
use crate::messages::replication_scheduler::*;
use crate::metrics::Metrics;
use crate::policy::schedule::{JobState, Level};
use crate::replication::id::ReplicationId;
use crate::replication::seq::Seq;
use crate::replication::spec::{DocRef, Replication, UserCtx};
use crate::replication::stats::Stats;
use crate::testkit::{Probe, eventually, within};

/// How fake jobs answer the order to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stopping {
    AtOnce,
    After(Duration),
    Never,
    /// Not even when it is killed.
    NotEvenKilled,
}

/// A job that does as it is told.
struct FakeJob {
    order: JobOrder,
    stopping: Stopping,
    begun: Rc<RefCell<Vec<Begun>>>,
}

/// What a fake job is told to do.
#[derive(Message)]
#[rtype(result = "()")]
enum Do {
    News(JobNews),
    /// Says how it ended, and ends.
    End(JobEnd),
    /// Ends without a word.
    Vanish,
    Panic,
}

impl FakeJob {
    fn tell(&self, news: JobNews) {
        let (id, run) = (self.order.id.clone(), self.order.run.0);
        self.order.events.do_send(JobEvent { id, run, news });
    }

    fn end(&self, end: JobEnd, ctx: &mut Context<Self>) {
        self.tell(JobNews::Ended(end));
        ctx.stop();
    }
}

impl Actor for FakeJob {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let (order, job) = (self.order.clone(), ctx.address());
        self.begun.borrow_mut().push(Begun { order, job });
    }
}

impl Handler<Do> for FakeJob {
    type Result = ();

    fn handle(&mut self, msg: Do, ctx: &mut Self::Context) {
        match msg {
            Do::News(news) => self.tell(news),
            Do::End(end) => self.end(end, ctx),
            Do::Vanish => ctx.stop(),
            Do::Panic => panic!("as it was told"),
        }
    }
}

impl Handler<StopJob> for FakeJob {
    type Result = ();

    fn handle(&mut self, _: StopJob, ctx: &mut Self::Context) {
        match self.stopping {
            Stopping::AtOnce => self.end(JobEnd::Stopped, ctx),
            Stopping::After(time) => {
                ctx.run_later(time, |job, ctx| job.end(JobEnd::Stopped, ctx));
            }
            Stopping::Never | Stopping::NotEvenKilled => {}
        }
    }
}

/// A run that was begun.
#[derive(Clone)]
struct Begun {
    order: JobOrder,
    job: Addr<FakeJob>,
}

/// What fake jobs do, and those that were started.
#[derive(Clone)]
struct Jobs {
    stopping: Rc<Cell<Stopping>>,
    start: Rc<Cell<Starting>>,
    begun: Rc<RefCell<Vec<Begun>>>,
}

/// What comes of a start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Starting {
    Succeeds,
    Fails,
    Panics,
}

impl StartJobs for Jobs {
    fn start(&mut self, order: JobOrder) -> Result<RunningJob, Crash> {
        match self.start.get() {
            Starting::Succeeds => {}
            Starting::Fails => return Err(Crash::JobDied("refused".into())),
            Starting::Panics => panic!("as it was told"),
        }
        let stopping = self.stopping.get();
        let begun = Rc::clone(&self.begun);
        let mut running = job_supervisor::run(FakeJob {
            order,
            stopping,
            begun,
        });
        if stopping == Stopping::NotEvenKilled {
            running.kill = Box::new(|| {});
        }
        Ok(running)
    }
}

/// A scheduler with fake jobs.
struct World {
    scheduler: Addr<ReplicationScheduler>,
    pulse: Pulse,
    jobs: Jobs,
    metrics: Metrics,
    events: Probe<ReplicationEvent>,
}

impl World {
    /// Starts a scheduler in paused time.
    async fn start(change: impl FnOnce(&mut Settings)) -> Self {
        tokio::time::pause();
        let jobs = Jobs {
            stopping: Rc::new(Cell::new(Stopping::AtOnce)),
            start: Rc::new(Cell::new(Starting::Succeeds)),
            begun: Rc::default(),
        };
        let mut settings = Settings::default();
        change(&mut settings);
        let metrics = Metrics::new();
        let scheduler = ReplicationScheduler::new(SchedulerOptions {
            settings,
            jobs: Box::new(jobs.clone()),
            metrics: metrics.replication(),
            log: Logger::root(Discard, o!()),
        });
        let pulse = scheduler.pulse();
        let scheduler = scheduler.start();
        let events = Probe::start();
        let world = Self {
            scheduler,
            pulse,
            jobs,
            metrics,
            events,
        };
        world.ask(Subscribe(world.events.recipient())).await;
        world
    }

    async fn ask<M>(&self, message: M) -> M::Result
    where
        M: Message + Send + 'static,
        M::Result: Send,
        ReplicationScheduler: Handler<M>,
        Context<ReplicationScheduler>: ToEnvelope<ReplicationScheduler, M>,
    {
        let answer = within("an answer", self.scheduler.send(message)).await;
        answer.expect("the scheduler is there")
    }

    async fn add(&self, name: &str) -> Result<Added, AddJobError> {
        self.ask(AddJob::new(permanent(name), id(name))).await
    }

    /// Adds a job and waits for its run.
    async fn add_and_run(&self, name: &str) -> Begun {
        let count = self.jobs.begun.borrow().len();
        assert_eq!(self.add(name).await, Ok(Added::New));
        self.begun(count + 1).await
    }

    /// Waits until as many runs were begun, and returns the latest.
    async fn begun(&self, count: usize) -> Begun {
        let jobs = &self.jobs;
        eventually("a run is begun", || async {
            jobs.begun.borrow().len() >= count
        })
        .await;
        let begun = jobs.begun.borrow();
        assert_eq!(begun.len(), count, "no more than that are begun");
        begun.last().cloned().expect("there is one")
    }

    async fn job(&self, name: &str) -> JobInfo {
        self.ask(GetJob { id: id(name) })
            .await
            .expect("it is known")
    }

    async fn types(&self, name: &str) -> Vec<&'static str> {
        let history = self.job(name).await.history;
        history.iter().map(|entry| entry.what.name()).collect()
    }

    /// Waits until a job has this history.
    async fn history(&self, name: &str, types: &[&str]) {
        let what = format!("{name} has the history {types:?}");
        eventually(&what, || async { self.types(name).await == types }).await;
    }

    async fn counts(&self) -> Counts {
        self.ask(GetCounts).await
    }

    fn stop_jobs(&self, stopping: Stopping) {
        self.jobs.stopping.set(stopping);
    }

    /// Returns what subscribers heard of a job next.
    async fn next_event(&mut self) -> (String, Happening) {
        let event = self.events.next().await;
        (event.id.base, event.what)
    }
}

fn id(name: &str) -> ReplicationId {
    let ext = "+continuous".to_owned();
    ReplicationId {
        base: name.to_owned(),
        ext,
    }
}

fn replication(name: &str, doc: Option<DocRef>) -> Replication {
    let body = json!({
        "source": format!("http://127.0.0.1:5984/{name}"),
        "target": "http://127.0.0.1:5984/target",
        "continuous": true,
        "worker_processes": 20,
    });
    Replication::parse(&body, &Default::default(), UserCtx::default(), doc).expect("it is right")
}

/// A replication of a document that has its name.
fn permanent(name: &str) -> Replication {
    let (database, id) = ("_replicator".to_owned(), name.to_owned());
    replication(name, Some(DocRef { database, id }))
}

fn progress(docs_written: u64) -> JobProgress {
    let stats = Stats {
        docs_written,
        ..Stats::default()
    };
    JobProgress {
        stats,
        bytes_written: 0,
        source_seq: Seq::zero(),
        through_seq: Seq::zero(),
        checkpointed_source_seq: Seq::zero(),
        changes_pending: None,
    }
}

fn normal(docs_written: u64) -> JobEnd {
    let result = serde_json::value::RawValue::from_string("{}".into()).expect("it is JSON");
    JobEnd::Normal {
        result,
        progress: progress(docs_written),
    }
}

fn crash() -> JobEnd {
    JobEnd::Crashed(Crash::WorkerDied("x".into()))
}

#[actix_rt::test]
async fn a_job_is_started_and_tells_how_far_it_is() {
    let mut world = World::start(|_| {}).await;
    let run = world.add_and_run("a").await;
    run.job.do_send(Do::News(JobNews::Started(progress(1))));
    run.job.do_send(Do::News(JobNews::Progress(progress(7))));
    assert!(matches!(world.next_event().await.1, Happening::Triggered));
    assert!(matches!(world.next_event().await.1, Happening::Started));
    eventually("its progress is known", || async {
        world
            .job("a")
            .await
            .progress
            .is_some_and(|last| last.stats.docs_written == 7)
    })
    .await;
    let job = world.job("a").await;
    assert_eq!(job.summary.state, JobState::Running);
    assert_eq!((job.run, job.why_not), (Some(1), None));
    assert_eq!(world.types("a").await, ["started", "added"]);
}

#[actix_rt::test]
async fn a_job_that_is_done_is_gone_and_says_what_it_did() {
    let mut world = World::start(|_| {}).await;
    let (waiter, outcome) = oneshot::channel();
    let mut order = AddJob::new(permanent("a"), id("a"));
    order.waiter = Some(waiter);
    assert_eq!(world.ask(order).await, Ok(Added::New));
    world.begun(1).await.job.do_send(Do::End(normal(3)));
    let Ok(Outcome::Completed(completed)) = within("its end", outcome).await else {
        panic!("it has done its work");
    };
    assert_eq!(completed.progress.stats.docs_written, 3);
    assert!(matches!(world.next_event().await.1, Happening::Triggered));
    let ended = world.next_event().await.1;
    assert!(matches!(ended, Happening::Ended(Outcome::Completed(_))));
    assert!(world.ask(GetJob { id: id("a") }).await.is_none());
    assert_eq!(
        world
            .ask(FindJobs {
                database: "_replicator".into(),
                doc_id: None
            })
            .await,
        []
    );
}

#[actix_rt::test]
async fn a_job_that_crashes_is_tried_again_after_its_backoff() {
    let mut world = World::start(|_| {}).await;
    let run = world.add_and_run("a").await;
    run.job.do_send(Do::News(JobNews::Progress(progress(5))));
    run.job.do_send(Do::End(crash()));
    world.next_event().await;
    let Happening::Crashed { crash, crashes, .. } = world.next_event().await.1 else {
        panic!("it crashed");
    };
    assert_eq!((crash.to_string(), crashes), ("worker_died: x".into(), 1));
    let job = world.job("a").await;
    assert_eq!(job.summary.state, JobState::Crashing);
    let why = job.why_not.map(|why| why.to_string()).unwrap_or_default();
    assert!(
        why.starts_with("backing off until 20") && why.ends_with("after 1 crash: worker_died: x")
    );
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(world.jobs.begun.borrow().len(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let again = world.begun(2).await;
    assert_eq!(again.order.earlier.docs_written, 5, "it goes on counting");
    assert_eq!(
        world.types("a").await,
        ["started", "crashed", "started", "added"]
    );
}

#[actix_rt::test]
async fn every_end_of_a_run_is_noticed_once() {
    let world = World::start(|settings| settings.backoff.base = Duration::from_secs(3600)).await;
    for (name, end) in [("a", Do::Vanish), ("b", Do::Panic), ("c", Do::End(crash()))] {
        world.add_and_run(name).await.job.do_send(end);
        world.history(name, &["crashed", "started", "added"]).await;
    }
    world.jobs.start.set(Starting::Fails);
    assert_eq!(world.add("d").await, Ok(Added::New));
    world.history("d", &["crashed", "started", "added"]).await;
    world.jobs.start.set(Starting::Panics);
    assert_eq!(world.add("e").await, Ok(Added::New));
    world.history("e", &["crashed", "started", "added"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let counts = world.counts().await;
    assert_eq!((counts.totals.starts, counts.totals.crashes), (5, 5));
    assert_eq!((counts.census.crashed, counts.census.running), (5, 0));
    let error = |job: JobInfo| job.summary.error.map(|reason| reason.text.to_string());
    assert_eq!(
        error(world.job("b").await),
        Some("job_died: panicked".into())
    );
    assert_eq!(
        error(world.job("d").await),
        Some("job_died: refused".into())
    );
}

#[actix_rt::test]
async fn a_job_without_a_document_that_crashes_is_gone() {
    let world = World::start(|_| {}).await;
    let (waiter, outcome) = oneshot::channel();
    let mut order = AddJob::new(replication("a", None), id("a"));
    order.waiter = Some(waiter);
    assert_eq!(world.ask(order).await, Ok(Added::New));
    world.begun(1).await.job.do_send(Do::End(crash()));
    let Ok(Outcome::Crashed(crash)) = within("its end", outcome).await else {
        panic!("it crashed");
    };
    assert_eq!(crash.name(), "worker_died");
    assert!(world.ask(GetJob { id: id("a") }).await.is_none());
}

#[actix_rt::test]
async fn a_job_that_is_added_again_goes_on_undisturbed() {
    let world = World::start(|_| {}).await;
    world.add_and_run("a").await;
    assert_eq!(world.add("a").await, Ok(Added::Unchanged));
    let mut other = permanent("a");
    other.options.worker_processes = 1;
    let (waiter, outcome) = oneshot::channel();
    let mut order = AddJob::new(permanent("a"), id("a"));
    order.waiter = Some(waiter);
    assert_eq!(world.ask(order).await, Ok(Added::Unchanged));
    // One that asks for something else replaces it, once it is gone.
    world.stop_jobs(Stopping::After(Duration::from_secs(3)));
    assert_eq!(
        world.ask(AddJob::new(other, id("a"))).await,
        Ok(Added::Replaced)
    );
    assert!(matches!(
        within("its end", outcome).await,
        Ok(Outcome::Removed)
    ));
    assert_eq!(
        world
            .begun(2)
            .await
            .order
            .replication
            .options
            .worker_processes,
        1
    );
    assert_eq!(world.types("a").await, ["started", "added"]);
}

#[actix_rt::test]
async fn the_id_of_another_documents_job_is_taken() {
    let world = World::start(|_| {}).await;
    world.add_and_run("a").await;
    let other = world.ask(AddJob::new(permanent("b"), id("a"))).await;
    assert_eq!(
        other.map_err(|error| error.to_string()),
        Err(
            "Replication `a+continuous` already started, triggered by document `a` from db \
             `_replicator`"
                .into()
        )
    );
    world
        .ask(AddJob::new(replication("t", None), id("t")))
        .await
        .expect("it is new");
    let other = world.ask(AddJob::new(permanent("t"), id("t"))).await;
    assert!(matches!(other, Err(AddJobError::Taken { by: None, .. })));
}

#[actix_rt::test]
async fn a_removal_is_answered_when_the_run_is_gone() {
    let mut world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::After(Duration::from_secs(3)));
    world.add_and_run("a").await;
    let before = Instant::now();
    assert!(world.ask(RemoveJob { id: id("a") }).await);
    assert!(before.elapsed() >= Duration::from_secs(3));
    assert!(!world.ask(RemoveJob { id: id("a") }).await);
    world.next_event().await;
    assert!(matches!(
        world.next_event().await.1,
        Happening::Ended(Outcome::Removed)
    ));
    assert_eq!(world.counts().await.census, Default::default());
}

/// Returns after how many seconds a job is gone that does not stop.
async fn seconds_to_end(stopping: Stopping) -> u64 {
    let world = World::start(|_| {}).await;
    world.stop_jobs(stopping);
    world.add_and_run("a").await;
    let before = Instant::now();
    assert!(world.ask(RemoveJob { id: id("a") }).await);
    before.elapsed().as_secs()
}

#[actix_rt::test]
async fn a_job_that_does_not_stop_is_killed_after_five_seconds() {
    assert_eq!(seconds_to_end(Stopping::Never).await, 5);
}

#[actix_rt::test]
async fn a_job_that_cannot_be_killed_is_left_behind() {
    assert_eq!(seconds_to_end(Stopping::NotEvenKilled).await, 6);
}

#[actix_rt::test]
async fn jobs_that_stop_keep_their_slots_until_they_are_gone() {
    let world = World::start(|settings| settings.max_jobs = 1).await;
    world.stop_jobs(Stopping::After(Duration::from_secs(4)));
    assert_eq!(world.add("a").await, Ok(Added::New));
    world.ask(Reschedule).await;
    world.begun(1).await;
    assert_eq!(world.add("b").await, Ok(Added::New));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(
        world.jobs.begun.borrow().len(),
        1,
        "a writes its checkpoint"
    );
    assert_eq!(
        world.job("a").await.why_not.map(|why| why.to_string()),
        Some("stopping".into())
    );
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.begun(2).await.order.id, id("b"));
    assert_eq!(world.types("a").await, ["stopped", "started", "added"]);
}

#[actix_rt::test]
async fn cycles_come_at_their_interval_and_a_changed_one_holds_at_once() {
    let world = World::start(|settings| {
        settings.max_jobs = 1;
        settings.interval = Duration::from_secs(3600);
    })
    .await;
    let begun = || world.jobs.begun.borrow().len();
    world.add("a").await.expect("it is new");
    world.add("b").await.expect("it is new");
    tokio::time::sleep(Duration::from_secs(3590)).await;
    assert_eq!(begun(), 0);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(begun(), 1);
    let settings = Settings {
        max_jobs: 1,
        interval: Duration::from_secs(60),
        ..Settings::default()
    };
    world.ask(Configure(settings)).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(begun(), 2, "they change places");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(begun(), 4);
}

#[actix_rt::test]
async fn settings_are_obeyed_at_run_time() {
    let world = World::start(|_| {}).await;
    for name in ["a", "b", "c"] {
        world.add_and_run(name).await;
    }
    let settings = Settings {
        max_jobs: 1,
        max_history: 2,
        max_churn: 0,
        ..Settings::default()
    };
    world.ask(Configure(settings)).await;
    world.ask(Reschedule).await;
    eventually("two are stopped", || async {
        world.counts().await.census.running == 1
    })
    .await;
    assert_eq!(world.types("a").await, ["stopped", "started"]);
    assert_eq!(world.types("c").await, ["started", "added"]);
}

#[actix_rt::test]
async fn a_job_is_paused_and_resumed_and_begun_anew_and_given_a_priority() {
    let world = World::start(|_| {}).await;
    world.add_and_run("a").await;
    assert!(
        world
            .ask(PauseJob {
                id: id("a"),
                by: "ann".into()
            })
            .await
    );
    world.history("a", &["stopped", "started", "added"]).await;
    let job = world.job("a").await;
    assert_eq!(job.paused.map(|pause| pause.by), Some("ann".into()));
    assert!(
        job.why_not
            .is_some_and(|why| why.to_string().starts_with("paused by ann since 20"))
    );
    assert!(world.ask(ResumeJob { id: id("a") }).await);
    world.begun(2).await;
    assert!(world.ask(RestartJob { id: id("a") }).await);
    world.begun(3).await;
    assert_eq!(world.types("a").await, ["started", "added"]);
    assert!(
        world
            .ask(SetPriority {
                id: id("a"),
                priority: Level(9)
            })
            .await
    );
    assert_eq!(world.job("a").await.priority, Level(9));
    assert!(
        !world
            .ask(PauseJob {
                id: id("b"),
                by: "ann".into()
            })
            .await
    );
    assert!(!world.ask(RestartJob { id: id("b") }).await);
}

#[actix_rt::test]
async fn a_rate_limited_job_makes_fewer_requests() {
    let world = World::start(|_| {}).await;
    let run = world.add_and_run("a").await;
    assert_eq!(run.order.replication.options.worker_processes, 20);
    run.job.do_send(Do::End(JobEnd::Crashed(Crash::MaxBackoff)));
    tokio::time::sleep(Duration::from_secs(31)).await;
    let again = world.begun(2).await;
    assert_eq!(again.order.replication.options.worker_processes, 2);
    assert_eq!(
        world.job("a").await.replication.options.worker_processes,
        20,
        "as it was asked for"
    );
}

#[actix_rt::test]
async fn jobs_are_listed_by_id_and_found_by_document() {
    let world = World::start(|settings| settings.max_jobs = 3).await;
    for name in ["c", "a", "b"] {
        world.add(name).await.expect("it is new");
    }
    let list = |skip, limit, of| world.ask(GetJobs { skip, limit, of });
    let names = |list: JobList| -> (usize, Vec<String>) {
        (
            list.total,
            list.jobs.into_iter().map(|job| job.id.base).collect(),
        )
    };
    assert_eq!(
        names(list(0, 9, JobChoice::All).await),
        (3, vec!["a".into(), "b".into(), "c".into()])
    );
    assert_eq!(
        names(list(1, 1, JobChoice::All).await),
        (3, vec!["b".into()])
    );
    let runs = (2, vec!["a".into(), "c".into()]);
    assert_eq!(names(list(0, 9, JobChoice::Running).await), runs);
    let choice = |states: &[JobState]| JobChoice::In(states.to_vec());
    assert_eq!(names(list(0, 9, choice(&[JobState::Running])).await), runs);
    let waiting = choice(&[JobState::Pending, JobState::Crashing]);
    assert_eq!(names(list(0, 9, waiting).await), (1, vec!["b".into()]));
    let second = list(1, 1, choice(&[JobState::Running])).await;
    assert_eq!(names(second), (2, vec!["c".into()]));
    let find = |doc_id: Option<&str>| {
        let doc_id = doc_id.map(str::to_owned);
        world.ask(FindJobs {
            database: "_replicator".into(),
            doc_id,
        })
    };
    assert_eq!(find(Some("b")).await, [id("b")]);
    assert_eq!(find(None).await, [id("a"), id("b"), id("c")]);
    assert_eq!(find(Some("")).await, []);
    let by_id = world
        .ask(GetJobsById {
            ids: vec![id("x"), id("c")],
        })
        .await;
    assert!(by_id[0].is_none() && by_id[1].is_some());
}

#[actix_rt::test]
async fn all_runs_are_told_to_stop_together_when_the_service_ends() {
    let world = World::start(|_| {}).await;
    world.stop_jobs(Stopping::After(Duration::from_secs(3)));
    for name in ["a", "b", "c"] {
        world.add_and_run(name).await;
    }
    world.stop_jobs(Stopping::Never);
    world.add_and_run("d").await;
    let before = Instant::now();
    let downs = Probe::start();
    let _watch = world.pulse.watch(downs.recipient());
    world.scheduler.do_send(Stop { now: false });
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.counts().await.census.running, 1);
    assert!(matches!(
        world.add("e").await,
        Err(AddJobError::ShuttingDown)
    ));
    let mut downs = downs;
    assert_eq!(downs.next().await.reason, ExitReason::Shutdown);
    let took = before.elapsed();
    assert!(
        took >= SHUTDOWN_MAX && took < SHUTDOWN_MAX + Duration::from_secs(1),
        "{took:?}"
    );
}

#[actix_rt::test]
async fn jobs_end_with_a_scheduler_that_ends_without_a_word() {
    let world = World::start(|_| {}).await;
    let run = world.add_and_run("a").await;
    let (jobs, job) = (world.jobs.clone(), run.job.clone());
    world.scheduler.do_send(Doom);
    eventually("the job is gone", || async { !job.connected() }).await;
    assert_eq!(jobs.begun.borrow().len(), 1);
}

/// Panics.
#[derive(Message)]
#[rtype(result = "()")]
struct Doom;

impl Handler<Doom> for ReplicationScheduler {
    type Result = ();

    fn handle(&mut self, _: Doom, _: &mut Self::Context) {
        panic!("as it was told");
    }
}

#[actix_rt::test]
async fn what_happens_is_counted() {
    let world = World::start(|settings| settings.backoff.base = Duration::from_secs(60)).await;
    world.add_and_run("a").await.job.do_send(Do::End(crash()));
    world.history("a", &["crashed", "started", "added"]).await;
    world.add_and_run("b").await;
    world.add("b").await.expect("it is the same");
    world
        .ask(PauseJob {
            id: id("b"),
            by: "ann".into(),
        })
        .await;
    world.history("b", &["stopped", "started", "added"]).await;
    world.add_and_run("c").await;
    world.ask(RemoveJob { id: id("c") }).await;
    let snapshot = world.metrics.snapshot(&Default::default());
    let number =
        |name: &str| snapshot.number(&format!("couchdb_couch_replicator_jobs_{name}"), &[]);
    for (name, expected) in [
        ("adds_total", 3.0),
        ("duplicate_adds_total", 1.0),
        ("removes_total", 1.0),
        ("starts_total", 3.0),
        ("stops_total", 1.0),
        ("crashes_total", 1.0),
        ("total", 2.0),
        ("running", 0.0),
        ("pending", 1.0),
        ("crashed", 1.0),
    ] {
        assert_eq!(number(name), Some(expected), "{name}");
    }
    assert_eq!(
        snapshot.number("settee_replication_jobs_paused", &[]),
        Some(1.0)
    );
}
