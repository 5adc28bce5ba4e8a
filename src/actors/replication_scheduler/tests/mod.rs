//! The scheduler with scripted jobs, in paused time.

mod ends;
mod orders;
mod pasts;
mod runs;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use actix::dev::ToEnvelope;
use serde_json::json;
use slog::{Discard, o};
use tokio::sync::oneshot;

use super::*;
use crate::actors::job_supervisor;
use crate::messages::replication_job::RunningJob;
use crate::messages::replication_job::{Completed, JobEnd, JobEvent, JobNews, StopJob};
use crate::messages::replication_scheduler::*;
use crate::metrics::Metrics;
use crate::otp::{ExitReason, Pid, Stop};
use crate::replicator::JobOrder;
use policy::schedule::{JobState, Level};
use replication::counters::Stats;
use replication::endpoint::Http;
use replication::id::ReplicationId;
use replication::seq::Seq;
use replication::spec::{DocRef, Replication, UserCtx};
use test_support::{Probe, eventually, within};

/// How fake jobs answer the order to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stopping {
    AtOnce,
    After(Duration),
    Never,
    /// Not even when killed.
    Unkillable,
    /// Only when killed; the first kill panics.
    PanicsOnKill,
}

/// A scripted job.
struct FakeJob {
    order: NewRun,
    stopping: Stopping,
    asked: Rc<Cell<usize>>,
    begun: Rc<RefCell<Vec<Begun>>>,
}

/// An order to a fake job.
#[derive(Message)]
#[rtype(result = "()")]
enum Do {
    News(JobNews),
    /// Reports its end, and ends.
    End(JobEnd),
    /// Ends without a report.
    Vanish,
    Panic,
}

impl FakeJob {
    fn report(&self, news: JobNews) {
        let run = self.order.number;
        self.order.events.do_send(JobEvent { run, news });
    }

    fn end(&self, end: JobEnd, ctx: &mut Context<Self>) {
        self.report(JobNews::Ended(end));
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
            Do::News(news) => self.report(news),
            Do::End(end) => self.end(end, ctx),
            Do::Vanish => ctx.stop(),
            Do::Panic => panic!("scripted panic"),
        }
    }
}

impl Handler<StopJob> for FakeJob {
    type Result = ();

    fn handle(&mut self, _: StopJob, ctx: &mut Self::Context) {
        self.asked.update(|asked| asked + 1);
        match self.stopping {
            Stopping::AtOnce => self.end(JobEnd::Stopped, ctx),
            Stopping::After(time) => {
                ctx.run_later(time, |job, ctx| job.end(JobEnd::Stopped, ctx));
            }
            Stopping::Never | Stopping::Unkillable | Stopping::PanicsOnKill => {}
        }
    }
}

/// A started run.
#[derive(Clone)]
struct Begun {
    order: NewRun,
    job: Addr<FakeJob>,
}

/// The behaviour of fake jobs, and the runs started so far.
#[derive(Clone)]
struct Jobs {
    stopping: Rc<Cell<Stopping>>,
    /// The number of orders to stop.
    asked: Rc<Cell<usize>>,
    start: Rc<Cell<Starting>>,
    begun: Rc<RefCell<Vec<Begun>>>,
}

/// The result of a start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Starting {
    Succeeds,
    Fails,
    Panics,
}

impl Jobs {
    /// Jobs that start, and stop at once.
    fn new() -> Self {
        Self {
            stopping: Rc::new(Cell::new(Stopping::AtOnce)),
            asked: Rc::default(),
            start: Rc::new(Cell::new(Starting::Succeeds)),
            begun: Rc::default(),
        }
    }

    fn start(&self, order: NewRun) -> Result<RunningJob, Crash> {
        match self.start.get() {
            Starting::Succeeds => {}
            Starting::Fails => return Err(Crash::JobDied("refused".into())),
            Starting::Panics => panic!("scripted panic"),
        }
        let stopping = self.stopping.get();
        let begun = Rc::clone(&self.begun);
        let mut running = job_supervisor::run(FakeJob {
            order,
            stopping,
            asked: Rc::clone(&self.asked),
            begun,
        });
        match stopping {
            Stopping::Unkillable => running.kill = Box::new(|| {}),
            Stopping::PanicsOnKill => {
                let (kill, is_tried) = (running.kill, Cell::new(false));
                running.kill = Box::new(move || {
                    assert!(is_tried.replace(true), "scripted panic");
                    kill();
                });
            }
            _ => {}
        }
        Ok(running)
    }
}

/// A scheduler with fake jobs.
struct World {
    scheduler: Addr<ReplicationScheduler>,
    pid: Pid,
    jobs: Jobs,
    live: LiveRuns,
    settings: Settings,
    metrics: Metrics,
    http: Http,
    events: Probe<ReplicationEvent>,
}

impl World {
    /// Starts a scheduler in paused time.
    async fn start(change: impl FnOnce(&mut Settings)) -> Self {
        tokio::time::pause();
        let mut settings = Settings::default();
        change(&mut settings);
        Self::with(Jobs::new(), LiveRuns::default(), settings, None).await
    }

    /// Starts a scheduler that saves pasts, in paused time.
    async fn saving(pasts: PastWriter) -> Self {
        tokio::time::pause();
        let (live, settings) = (LiveRuns::default(), Settings::default());
        Self::with(Jobs::new(), live, settings, Some(pasts)).await
    }

    /// Starts the successor of this scheduler.
    async fn successor(&self) -> Self {
        let (jobs, live) = (self.jobs.clone(), self.live.clone());
        Self::with(jobs, live, self.settings.clone(), None).await
    }

    async fn with(
        jobs: Jobs,
        live: LiveRuns,
        settings: Settings,
        pasts: Option<PastWriter>,
    ) -> Self {
        let metrics = Metrics::new();
        let http = Http::new(
            crate::replicator::http_config(&Default::default()),
            &Logger::root(Discard, o!()),
        )
        .unwrap();
        let starter = jobs.clone();
        let pid_guard = PidGuard::new();
        let pid = pid_guard.pid();
        let scheduler = ReplicationScheduler::new(
            SchedulerOptions {
                settings: settings.clone(),
                jobs: Box::new(move |order| starter.start(order)),
                live: live.clone(),
                states: Arc::default(),
                http: http.clone(),
                metrics: metrics.replication(),
                log: Logger::root(Discard, o!()),
            },
            pid_guard,
        )
        .with_fleet(pasts, None);
        let scheduler = scheduler.start();
        let events = Probe::start();
        let world = Self {
            scheduler,
            pid,
            jobs,
            live,
            settings,
            metrics,
            http,
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
        answer.expect("the scheduler is alive")
    }

    async fn add(&self, name: &str) -> Result<Added, AddJobError> {
        self.ask(AddJob::new(permanent(name), id(name))).await
    }

    async fn order(&self, name: &str, order: JobOrder) -> bool {
        let (ids, by) = (vec![id(name)], "ann".into());
        self.ask(OrderJobs { ids, order, by }).await == [true]
    }

    /// Adds a job and waits for its run.
    async fn add_and_run(&self, name: &str) -> Begun {
        let count = self.jobs.begun.borrow().len();
        assert_eq!(self.add(name).await, Ok(Added::New));
        self.begun(count + 1).await
    }

    /// Adds another job and waits for its run, so that everything due earlier has happened.
    async fn add_and_run_others(&self) {
        assert_eq!(self.add("other").await, Ok(Added::New));
        eventually("the other job runs", || async {
            self.runs_of("other") == 1
        })
        .await;
    }

    /// The number of a job's started runs.
    fn runs_of(&self, name: &str) -> usize {
        let begun = self.jobs.begun.borrow();
        let of_it = begun.iter().filter(|begun| begun.order.id == id(name));
        of_it.count()
    }

    /// Waits until this many runs were started, and returns the latest.
    async fn begun(&self, count: usize) -> Begun {
        let jobs = &self.jobs;
        eventually("a run starts", || async {
            jobs.begun.borrow().len() >= count
        })
        .await;
        let begun = jobs.begun.borrow();
        assert_eq!(begun.len(), count, "no further run starts");
        begun.last().cloned().expect("a started run")
    }

    async fn job(&self, name: &str) -> JobInfo {
        self.ask(GetJob { id: id(name) })
            .await
            .expect("the job exists")
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

    /// Returns the next event sent to subscribers.
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
    Replication::parse(
        &body,
        &crate::replicator::defaults(&Default::default()),
        UserCtx::default(),
        doc,
    )
    .expect("the replication is valid")
}

fn doc(name: &str) -> DocRef {
    let (database, id) = ("_replicator".to_owned(), name.to_owned());
    DocRef { database, id }
}

/// A replication of a document with this name.
fn permanent(name: &str) -> Replication {
    replication(name, Some(doc(name)))
}

/// Removes the job of a document with this name.
fn remove(name: &str) -> RemoveJob {
    let (id, doc) = (id(name), Some(doc(name)));
    RemoveJob { id, doc }
}

/// Kills the job of a document with this name.
fn lose(name: &str) -> LoseJob {
    let (id, doc) = (id(name), doc(name));
    LoseJob { id, doc }
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
        own_feed: None,
    }
}

fn normal(docs_written: u64) -> JobEnd {
    let result = serde_json::value::RawValue::from_string("{}".into()).expect("the result is JSON");
    let progress = progress(docs_written);
    JobEnd::Normal(Arc::new(Completed { result, progress }))
}

fn crash() -> JobEnd {
    JobEnd::Crashed(Crash::WorkerDied("x".into()))
}
