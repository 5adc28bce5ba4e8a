//! The cost of scheduling: a cycle over many jobs, and the start and finish of one among them.
//!
//! SUMMARY   Run with `cargo bench --bench schedule`. The floor of a cycle is one multiplication per job, in an
//!           array; the floor of a start and finish is an insertion into a table of ids and a removal.
//!           `jobs_in_memory` shows, as its largest allocation, the memory of pending jobs.
//!           `registered_jobs_in_memory` adds the actor's state, including the replications (wanted: less than 2 KB
//!           each). `cycle_of_the_actor` is a cycle of that actor with 500 jobs running (wanted: less than 20 ms).
//! LIMITS    All others measure only the core: no actor, no message, no replication.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use serde_json::json;
use settee::actors::job_supervisor;
use settee::actors::replication_scheduler::{ReplicationScheduler, SchedulerOptions};
use settee::app::replication::{defaults, http_config};
use settee::messages::replication_job::{JobEnd, JobEvent, JobNews, NewRun, StopJob};
use settee::messages::replication_scheduler::{AddJob, Added, GetCounts, Reschedule};
use settee::metrics::Metrics;
use settee::otp::pid::PidGuard;
use settee::policy::schedule::{
    Earlier, End, Event, JobId, JobState, JobView, Level, NewJob, Reason, ScheduleAction,
    Scheduler, Settings, WallTime,
};
use settee::replication::endpoint::Http;
use settee::replication::id::ReplicationId;
use settee::replication::spec::{DocRef, Replication, UserCtx};
use slog::{Discard, Logger, o};

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

const JOBS: [usize; 3] = [1_000, 10_000, 100_000];
const INTERVAL: Duration = Duration::from_secs(60);

fn main() {
    divan::main();
}

/// An id with the length of a replication's.
fn id(n: usize) -> JobId {
    format!("{n:032x}+continuous").into()
}

fn new_job(n: usize, dbs: &[Arc<str>]) -> NewJob {
    NewJob {
        id: id(n),
        key: dbs[n % dbs.len()].clone(),
        continuous: true,
        transient: false,
        level: Level::default(),
        paused: None,
        earlier: Earlier::default(),
    }
}

fn dbs() -> Vec<Arc<str>> {
    (0..10)
        .map(|n| format!("team-{n}/_replicator").into())
        .collect()
}

/// A scheduler with running jobs, which stop as soon as it requests that.
struct Bench {
    scheduler: Scheduler,
    now: WallTime,
    out: Vec<ScheduleAction>,
}

impl Bench {
    /// This many jobs, of which as many run as the settings allow.
    fn new(jobs: usize, settings: Settings) -> Self {
        let mut bench = Self {
            scheduler: Scheduler::new(settings),
            now: WallTime::from_micros(1_500_000_000_000_000),
            out: Vec::with_capacity(64),
        };
        let dbs = dbs();
        (0..jobs).for_each(|n| bench.on(Event::Add(new_job(n, &dbs))));
        bench.on(Event::Cycle);
        bench
    }

    /// This many jobs, all of which ran once, so that each has a penalty.
    fn penalised(jobs: usize) -> Self {
        let mut settings = Settings {
            max_jobs: jobs,
            ..Settings::default()
        };
        let mut bench = Self::new(jobs, settings.clone());
        bench.cycle();
        settings.max_jobs = 500;
        bench.on(Event::Configure(settings.into()));
        bench.cycle();
        let penalised = bench.jobs().filter(|job| job.penalty > 0);
        assert_eq!(penalised.count(), jobs);
        bench
    }

    fn jobs(&self) -> impl Iterator<Item = JobView<'_>> {
        let ids = self.scheduler.page(&JobState::ALL, None, 0, usize::MAX);
        ids.into_iter().filter_map(|id| self.scheduler.job(&id))
    }

    fn on(&mut self, event: Event) {
        self.now = self.now + Duration::from_micros(1);
        self.out.clear();
        self.scheduler.handle(event, self.now, &mut self.out);
        let mut stops = Vec::new();
        stops.extend(self.out.iter().filter_map(|action| match action {
            ScheduleAction::Stop { run, .. } => Some(*run),
            _ => None,
        }));
        for run in stops {
            let end = End::Stopped;
            let event = Event::Exited { run, end };
            self.scheduler.handle(event, self.now, &mut self.out);
        }
    }

    fn cycle(&mut self) {
        self.now = self.now + INTERVAL;
        self.on(Event::Cycle);
    }

    /// Adds a job and lets it finish.
    fn run_one(&mut self, job: NewJob) {
        self.on(Event::Add(job));
        let run = self.started();
        self.on(Event::Exited {
            run,
            end: End::Normal,
        });
    }

    fn started(&self) -> policy::schedule::Run {
        let started = self.out.iter().find_map(|action| match action {
            ScheduleAction::Start { run, .. } => Some(*run),
            _ => None,
        });
        started.expect("there is a slot")
    }
}

#[divan::bench(args = JOBS)]
fn floor_of_a_cycle(bencher: Bencher<'_, '_>, jobs: usize) {
    let mut penalties: Vec<u64> = (0..jobs as u64).map(|n| n << 32).collect();
    bencher.bench_local(|| {
        for penalty in &mut penalties {
            *penalty = (*penalty as f64 * black_box(0.98)) as u64;
        }
        black_box(&mut penalties);
    });
}

/// 500 jobs run, 20 are swapped; at the start, the others have never run.
#[divan::bench(args = JOBS)]
fn cycle(bencher: Bencher<'_, '_>, jobs: usize) {
    let mut bench = Bench::new(jobs, Settings::default());
    bencher.bench_local(|| bench.cycle());
}

/// 500 jobs run, 20 are swapped; every job ran recently and has a penalty that decays.
#[divan::bench(args = JOBS)]
fn cycle_over_penalties(bencher: Bencher<'_, '_>, jobs: usize) {
    let make = || Bench::penalised(jobs);
    bencher
        .with_inputs(make)
        .bench_local_refs(|bench| bench.cycle());
}

/// Half of the jobs run, half are pending, and all are swapped: the worst case.
#[divan::bench(args = JOBS, sample_count = 10)]
fn cycle_of_everything(bencher: Bencher<'_, '_>, jobs: usize) {
    let settings = Settings {
        max_jobs: jobs / 2,
        max_churn: usize::MAX,
        ..Settings::default()
    };
    let mut bench = Bench::new(jobs, settings);
    bencher.bench_local(|| bench.cycle());
}

#[divan::bench(args = JOBS)]
fn floor_of_a_start(bencher: Bencher<'_, '_>, jobs: usize) {
    let mut table: HashMap<JobId, usize> = (0..jobs).map(|n| (id(n), n)).collect();
    bencher.with_inputs(|| id(jobs)).bench_local_values(|id| {
        table.insert(id.clone(), 0);
        table.remove(&id)
    });
}

/// All jobs run; one more is added, starts, and finishes.
#[divan::bench(args = JOBS)]
fn start_and_finish(bencher: Bencher<'_, '_>, jobs: usize) {
    let settings = Settings {
        max_jobs: jobs + 2,
        ..Settings::default()
    };
    let mut bench = Bench::new(jobs, settings);
    let dbs = dbs();
    bencher
        .with_inputs(|| new_job(jobs, &dbs))
        .bench_local_values(|job| bench.run_one(job));
}

/// A running job crashes and backs off; the next pending one gets its slot.
#[divan::bench(args = JOBS)]
fn crash_and_start_the_next(bencher: Bencher<'_, '_>, jobs: usize) {
    let settings = Settings {
        max_jobs: 500,
        ..Settings::default()
    };
    let mut bench = Bench::new(jobs, settings);
    let reason: Arc<_> = Reason::new("db_not_found: could not open http://h/db/", false).into();
    let mut run = bench.jobs().find_map(|job| job.shown.run);
    bencher.bench_local(|| {
        let end = End::Crashed(reason.clone());
        bench.now = bench.now + Duration::from_secs(1);
        bench.on(Event::Exited {
            run: run.expect("a running job"),
            end,
        });
        run = Some(bench.started());
    });
}

/// Only pending jobs.
#[divan::bench(args = JOBS, sample_count = 5, sample_size = 1)]
fn jobs_in_memory(bencher: Bencher<'_, '_>, jobs: usize) {
    let dbs = dbs();
    bencher.counter(ItemsCount::new(jobs)).bench_local(|| {
        let mut scheduler = Scheduler::new(Settings::default());
        let mut out = Vec::new();
        let now = WallTime::from_micros(1_500_000_000_000_000);
        for n in 0..jobs {
            scheduler.handle(Event::Add(new_job(n, &dbs)), now, &mut out);
        }
        scheduler
    });
}

/// Pending jobs with their replications, in the scheduler's actor.
#[divan::bench(args = JOBS, sample_count = 1, sample_size = 1)]
fn registered_jobs_in_memory(bencher: Bencher<'_, '_>, jobs: usize) {
    let system = System::new();
    bencher
        .counter(ItemsCount::new(jobs))
        .bench_local(|| system.block_on(register(jobs, 0)));
}

/// A cycle through the actor: 500 jobs run, each an actor that does nothing, and 20 are swapped.
#[divan::bench(args = JOBS, sample_count = 20, sample_size = 1)]
fn cycle_of_the_actor(bencher: Bencher<'_, '_>, jobs: usize) {
    let system = System::new();
    let scheduler = system.block_on(register(jobs, 500));
    let running = || async {
        let counts = scheduler.send(GetCounts).await;
        counts.expect("the scheduler is alive").census.running
    };
    bencher
        .with_inputs(|| {
            system.block_on(async {
                while running().await < 500.min(jobs) {
                    tokio::task::yield_now().await;
                }
            });
        })
        .bench_local_values(|()| system.block_on(scheduler.send(Reschedule)));
}

/// Starts a scheduler that runs at most `running` jobs, and adds documents' jobs to it.
async fn register(jobs: usize, running: usize) -> Addr<ReplicationScheduler> {
    let scheduler = ReplicationScheduler::new(
        SchedulerOptions {
            live: Default::default(),
            states: Default::default(),
            settings: Settings {
                max_jobs: running,
                ..Settings::default()
            },
            http: Http::new(
                http_config(&Default::default()),
                &Logger::root(Discard, o!()),
            )
            .expect("HTTP"),
            jobs: Box::new(|run| Ok(job_supervisor::run(IdleJob(run)))),
            metrics: Metrics::new().replication(),
            log: Logger::root(Discard, o!()),
        },
        PidGuard::new(),
    );
    let scheduler = scheduler.start();
    for n in 0..jobs {
        let body = json!({
            "source": format!("https://source.example.org:6984/account-{n:06}"),
            "target": format!("https://target.example.org:6984/account-{n:06}"),
            "continuous": true,
        });
        let (database, id) = ("_replicator".into(), format!("account-{n:06}"));
        let doc = Some(DocRef { database, id });
        let replication = Replication::parse(
            &body,
            &defaults(&Default::default()),
            UserCtx::default(),
            doc,
        );
        let (base, ext) = (format!("{n:032x}"), "+continuous".into());
        let job = AddJob::new(
            replication.expect("a valid replication"),
            ReplicationId { base, ext },
        );
        let added = scheduler.send(job).await;
        assert_eq!(added, Ok(Ok(Added::New)));
    }
    // Starts jobs that were not started when they were added.
    let cycled = scheduler.send(Reschedule).await;
    cycled.expect("the scheduler is alive");
    scheduler
}

/// A run that does nothing until it is stopped.
struct IdleJob(NewRun);

impl Actor for IdleJob {
    type Context = Context<Self>;
}

impl Handler<StopJob> for IdleJob {
    type Result = ();

    fn handle(&mut self, _: StopJob, ctx: &mut Context<Self>) {
        let Self(run) = self;
        run.events.do_send(JobEvent {
            run: run.number,
            news: JobNews::Ended(JobEnd::Stopped),
        });
        ctx.stop();
    }
}
