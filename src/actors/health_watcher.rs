//! HealthWatcher: looks every few seconds at what is wrong.
//!
//! SUMMARY   Asks for the states of pools, services, replications and the fleet; [`findings`] says what of it is a
//!           trouble, [`Problems`] what of that lasts. Shows the list on the [`HealthBoard`].
//! PROMISES  Never waits, and takes little: it rests [`REST`] times as long as a look took.
//! CALLED    Started and stopped by the supervisor.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use settee_client::{JobGroup, JobSelection, JobsQuery};

use crate::actors::proc_manager::ProcManager;
use crate::actors::replicator_api::{ReplicatorApi, Whose};
use crate::health::{HealthBoard, findings};
use crate::messages::proc_manager::GetStatus;
use crate::otp::clock::Clock;
use crate::otp::pid::{ExitReason, Pid, PidGuard};
use crate::otp::registered_name::RegisteredName;
use crate::otp::supervisor::Stop;
use crate::replicator::DocState;
use policy::problems::{Finding, Problems};
use policy::schedule::JobState;
use store::Store;

/// The shortest time from the end of a look to the next one.
const INTERVAL: Duration = Duration::from_secs(2);

/// How many times as long as the last look took it rests.
const REST: u32 = 20;

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
    /// Where problems are shown.
    pub board: HealthBoard,
}

/// See the module's documentation.
pub(crate) struct HealthWatcher {
    options: HealthOptions,
    problems: Problems,
    clock: Clock,
    pid_guard: PidGuard,
}

impl HealthWatcher {
    /// Makes one that has seen nothing.
    pub fn new(options: HealthOptions) -> Self {
        Self {
            options,
            problems: Problems::default(),
            clock: Clock::new(),
            pid_guard: PidGuard::new(),
        }
    }

    /// Returns the name by which its life can be watched.
    pub fn pid(&self) -> Pid {
        self.pid_guard.pid()
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        let begun = self.clock.now();
        let looking = look(self.options.clone()).into_actor(self);
        ctx.spawn(looking.map(move |found, watcher, ctx| {
            let now = watcher.clock.now();
            watcher.problems.look(now, found);
            let options = &watcher.options;
            options
                .board
                .show(&options.daemon, now, watcher.problems.list());
            let rest = INTERVAL.max(now.since(begun).saturating_mul(REST));
            ctx.run_later(rest, Self::look);
        }));
    }
}

/// Returns what is wrong at this moment. A manager that is started again has no pools to look at.
async fn look(options: HealthOptions) -> Vec<Finding> {
    let status = options.manager.call(GetStatus { pool: None }).await;
    let mut found = findings::of_status(&status.unwrap_or_default());
    let replications = &options.replications;
    let answer = within(ask_store(replications.database().store())).await;
    // Without the store the daemon knows of its jobs only.
    let docs: &[DocState] = match &answer {
        Ok(true) => &DocState::TROUBLED,
        Ok(false) | Err(_) => &[],
    };
    let jobs = within(of_jobs(replications, docs)).await;
    let error = answer.err().or(jobs.as_ref().err().cloned());
    found.extend(jobs.unwrap_or_default());
    let is_loading = replications.is_loading();
    found.extend(findings::of_store(error.as_deref(), is_loading));
    let fleet = replications.daemons().await;
    found.extend(findings::of_daemons(&fleet.unwrap_or_default()));
    found
}

/// Gives the store its time.
async fn within<T>(asked: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let seconds = STORE_ANSWERS_WITHIN.as_secs();
    let late = |_| Err(format!("it has not answered within {seconds} s"));
    let answer = actix_rt::time::timeout(STORE_ANSWERS_WITHIN, asked).await;
    answer.unwrap_or_else(late)
}

/// Has the store answer. Returns false for one that nobody has needed yet: asking would make it.
async fn ask_store(store: &Store) -> Result<bool, String> {
    let is_needed = store.updates().borrow().is_some() || store.place().exists();
    if is_needed {
        let asked = store.documents(vec![NO_DOCUMENT.to_owned()]).await;
        asked.map_err(|error| error.to_string())?;
    }
    Ok(is_needed)
}

/// Looks at the jobs, and at documents without one in some states.
async fn of_jobs(
    replications: &ReplicatorApi,
    docs: &[DocState],
) -> Result<Vec<Finding>, String> {
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
