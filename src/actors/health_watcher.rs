//! HealthWatcher: looks every few seconds at what is wrong.
//!
//! SUMMARY   Asks for the states of pools, services, replications and the fleet; [`findings`] says what of it is a
//!           trouble, [`Problems`] what of that lasts. Shows the list on the [`HealthBoard`].
//! PROMISES  Never waits, and takes little: it rests [`REST`] times as long as it looked at replications, of which there
//!           are many, but for [`REST_MAX`] at most.
//! CALLED    Started and stopped by the supervisor.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use settee_client::{JobGroup, JobSelection, JobsQuery};

use crate::actors::proc_manager::ProcManager;
use crate::actors::replicator_api::{ReplicatorApi, Whose};
use crate::health::findings::{self, Counted};
use crate::messages::proc_manager::GetStatus;
use crate::metrics::Metrics;
use crate::otp::clock::Clock;
use crate::otp::pid::{ExitReason, Pid, PidGuard};
use crate::otp::registered_name::RegisteredName;
use crate::otp::supervisor::Stop;
use crate::query_server::status::DaemonStatus;
use crate::replicator::DocState;
use policy::increases::Increases;
use policy::problems::{Finding, Problems};
use policy::schedule::JobState;

/// The shortest time from the end of a look to the next one.
const INTERVAL: Duration = Duration::from_secs(2);

/// How many times as long as the last look at replications took it rests.
const REST: u32 = 20;

/// The longest time that it rests: much of what a look takes may be waiting.
const REST_MAX: Duration = Duration::from_secs(20);

/// For how long the store may take to answer.
const STORE_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The id that is asked for where any answer will do; no document can have it.
const NO_DOCUMENT: &str = "";

/// What it looks at, and where it shows what it found.
#[derive(Clone)]
pub(crate) struct HealthOptions {
    /// The pools.
    pub manager: RegisteredName<ProcManager>,
    /// The replications.
    pub replications: ReplicatorApi,
    /// What this daemon is called.
    pub daemon: Arc<str>,
    /// What is counted, and where problems are shown.
    pub metrics: Metrics,
}

/// See the module's documentation.
pub(crate) struct HealthWatcher {
    options: HealthOptions,
    problems: Problems,
    increases: Increases,
    clock: Clock,
    pid_guard: PidGuard,
}

impl HealthWatcher {
    /// Makes one that has seen nothing.
    pub fn new(options: HealthOptions) -> Self {
        Self {
            options,
            problems: Problems::default(),
            increases: Increases::default(),
            clock: Clock::new(),
            pid_guard: PidGuard::new(),
        }
    }

    /// Returns the name by which its life can be watched.
    pub fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        let looking = look(self.options.clone()).into_actor(self);
        ctx.spawn(looking.map(|look, watcher, ctx| {
            let Look {
                status,
                mut found,
                took,
            } = look;
            let now = watcher.clock.now();
            let metrics = &watcher.options.metrics;
            let counted = Counted {
                dropped: metrics.log_dropped(),
                refused: metrics.replication().refused.get(),
                refused_last: metrics.replication().refused_last(),
            };
            let increases = &mut watcher.increases;
            found.extend(findings::of_increases(increases, now, &status, counted));
            watcher.problems.look(now, found);
            let daemon = &watcher.options.daemon;
            metrics.health().show(daemon, now, watcher.problems.list());
            let rest = took.saturating_mul(REST).clamp(INTERVAL, REST_MAX);
            ctx.run_later(rest, Self::look);
        }));
    }
}

/// What was seen.
struct Look {
    /// The state of the pools.
    status: DaemonStatus,
    /// What is wrong.
    found: Vec<Finding>,
    /// How long the look at replications took.
    took: Duration,
}

/// Looks at everything. A manager that is started again has no pools to look at.
async fn look(options: HealthOptions) -> Look {
    let status = options.manager.call(GetStatus { pool: None }).await;
    let status = status.unwrap_or_default();
    let mut found = findings::of_status(&status);
    let replications = &options.replications;
    let asked = Instant::now();
    let answer = within(ask_store(replications)).await;
    let answered = asked.elapsed();
    // Without the store the daemon knows of its jobs only.
    let docs: &[DocState] = match &answer {
        Ok(()) => &DocState::TROUBLED,
        Err(_) => &[],
    };
    let begun = Instant::now();
    let jobs = within(of_jobs(replications, docs)).await;
    let took = begun.elapsed();
    let error = answer.err().or(jobs.as_ref().err().cloned());
    found.extend(jobs.unwrap_or_default());
    let is_loading = replications.is_loading();
    found.extend(findings::of_store(error.as_deref(), answered, is_loading));
    let fleet = replications.daemons().await;
    found.extend(findings::of_daemons(&fleet.unwrap_or_default()));
    Look {
        status,
        found,
        took,
    }
}

/// Gives the store its time.
async fn within<T>(asked: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let seconds = STORE_ANSWERS_WITHIN.as_secs();
    let late = |_| Err(format!("it has not answered within {seconds} s"));
    let answer = actix_rt::time::timeout(STORE_ANSWERS_WITHIN, asked).await;
    answer.unwrap_or_else(late)
}

/// Has the store answer, if there is one: asking would make it.
async fn ask_store(replications: &ReplicatorApi) -> Result<(), String> {
    if !replications.has_store() {
        return Ok(());
    }
    let store = replications.database().store();
    let asked = store.documents(vec![NO_DOCUMENT.to_owned()]).await;
    asked.map(drop).map_err(|error| error.to_string())
}

/// Looks at the jobs, and at documents without one in some states.
async fn of_jobs(replications: &ReplicatorApi, docs: &[DocState]) -> Result<Vec<Finding>, String> {
    let of_jobs = JobState::ALL.into_iter().map(DocState::from);
    let states = of_jobs.chain(docs.iter().copied());
    let query = JobsQuery {
        select: JobSelection {
            states: states.map(|state| state.name().to_owned()).collect(),
            ..JobSelection::default()
        },
        groups: true,
        ..JobsQuery::default()
    };
    let listed = replications.list(&query, &Whose::All).await;
    let list = listed.map_err(|error| error.to_string())?;
    let total = list["total_rows"].as_u64().unwrap_or(0);
    let groups: Vec<JobGroup> = serde_json::from_value(list["groups"].clone()).unwrap_or_default();
    Ok(findings::of_jobs(total, &groups))
}

impl Actor for HealthWatcher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.look(ctx);
    }
}

impl Handler<Stop> for HealthWatcher {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        self.pid_guard.ending(ExitReason::Shutdown);
        ctx.stop();
    }
}
