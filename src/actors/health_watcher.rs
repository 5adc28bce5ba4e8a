//! HealthWatcher: checks for problems every few seconds.
//!
//! SUMMARY   Queries the states of pools, services, replications and the fleet; [`findings`] finds conditions,
//!           [`Problems`] tracks which of them persist. Shows the list on the [`HealthBoard`], and saves its losses
//!           in the store.
//! PROMISES  Never blocks, and uses little time: it rests [`REST`] times as long as it took to check the possibly
//!           many replications, but at most [`REST_MAX`].
//! CALLED    Started and stopped by the supervisor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use settee_client::{JobGroup, JobSelection, JobsQuery, Problem};

use crate::actors::config_listener::ConfigListener;
use crate::actors::proc_manager::{GetStatus, ProcManager};
use crate::actors::replicator_api::{ReplicatorApi, ReplicatorError, Whose};
use crate::drain::Drain;
use crate::health::findings::{self, Counted, Kind};
use crate::health::losses::{self, OpenLosses};
use crate::health::problems::Problems;
use crate::lock;
use crate::messages::config_listener::CompareFiles;
use crate::metrics::Metrics;
use crate::otp::{Clock, PidGuard, RegisteredName, Stop};
use crate::query_server::status::DaemonStatus;
use crate::replicator::DocState;
use policy::growth::Growth;
use policy::increases::Increases;
use policy::schedule::JobState;
use store::StoreError;

/// Minimum time from the end of a check to the next one.
const INTERVAL: Duration = Duration::from_secs(2);

/// Rest after a check, as a multiple of the time for replications.
const REST: u32 = 20;

/// Maximum rest: much of a check's time may be waiting.
const REST_MAX: Duration = Duration::from_secs(20);

/// How often the configuration files are compared with the current settings.
const FILES_EVERY: Duration = Duration::from_secs(60);

/// How often the size of the store's documents is read: rarely, because a database has to count all of them.
const SIZE_EVERY: Duration = Duration::from_secs(10 * 60);

/// Delay of the first reading of that size, while documents are being loaded.
const SIZE_FIRST: Duration = Duration::from_secs(60);

/// How long to wait for an answer from the store.
const STORE_ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// An id for requests whose answer does not matter; no document can have it.
const NO_DOCUMENT: &str = "";

/// The checked parts, and the board for results.
#[derive(Clone)]
pub(crate) struct HealthOptions {
    pub manager: RegisteredName<ProcManager>,
    pub config: RegisteredName<ConfigListener>,
    pub replications: ReplicatorApi,
    /// This daemon's name.
    pub daemon: Arc<str>,
    /// Whether the daemon is drained.
    pub drain: Drain,
    /// The metrics, with the board of problems.
    pub metrics: Metrics,
}

/// See the module's documentation.
pub(crate) struct HealthWatcher {
    options: HealthOptions,
    problems: Problems,
    increases: Increases,
    /// The problem of the configuration files, checked every [`FILES_EVERY`].
    of_files: Option<Problem>,
    growth: Growth,
    /// The problem of the store's size, checked every [`SIZE_EVERY`].
    of_growth: Option<Problem>,
    clock: Clock,
    /// The current check, or the wait for the next.
    looking: Option<SpawnHandle>,
    pid_guard: PidGuard,
}

impl HealthWatcher {
    pub fn new(options: HealthOptions, pid_guard: PidGuard) -> Self {
        Self {
            options,
            problems: Problems::default(),
            increases: Increases::default(),
            of_files: None,
            growth: Growth::default(),
            of_growth: None,
            clock: Clock::new(),
            looking: None,
            pid_guard,
        }
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        let looking = look(self.options.clone()).into_actor(self);
        let looked = looking.then(|(status, mut found, took), watcher, _| {
            let now = watcher.clock.now();
            let metrics = &watcher.options.metrics;
            let replication = metrics.replication();
            replication
                .docs_failed
                .set(watcher.options.replications.failed_docs() as u64);
            let store = metrics.store();
            let counted = Counted {
                unwritten: store.refused.get(),
                unwritten_last: store.refused_last(),
                restarts: lock(&metrics.restarts()).clone(),
                requests: store.requests(),
            };
            found.extend(findings::of_increases(
                &mut watcher.increases,
                now,
                &status,
                counted,
            ));
            found.extend(metrics.costs_unsaved().as_deref().map(findings::of_costs));
            let health = metrics.health();
            found.extend(watcher.losses());
            found.extend(watcher.of_files.clone());
            found.extend(watcher.of_growth.clone());
            watcher.problems.look(now, found);
            health.show(&watcher.options.daemon, now, watcher.problems.list());
            let rest = took.saturating_mul(REST).clamp(INTERVAL, REST_MAX);
            watcher.keep_losses().map(move |(), _, _| rest)
        });
        self.looking = Some(ctx.spawn(looked.map(|rest, watcher, ctx| {
            watcher.looking = Some(ctx.run_later(rest, Self::look));
        })));
    }

    /// Returns the unacknowledged losses.
    fn losses(&self) -> Vec<Problem> {
        let metrics = &self.options.metrics;
        let health = metrics.health();
        let mut refused = metrics.replication().refused_by();
        health.with_earlier(Kind::DocumentsRefused, &mut refused);
        findings::of_losses(refused, metrics.logs(), |kind, subject, count| {
            health.open(kind, subject, count)
        })
    }

    /// Saves the losses in the store if they changed. Retried at the next check.
    fn keep_losses(&self) -> impl ActorFuture<Self, Output = ()> + use<> {
        let options = self.options.clone();
        let losses = losses::of(self.losses());
        let keeping = async move {
            let health = options.metrics.health();
            if health.kept().is_none_or(|kept| kept == losses) {
                return;
            }
            let store = &options.replications.database().store;
            let written = within(losses::write(store, &options.daemon, &losses)).await;
            if let Some(Ok(true)) = written {
                health.keep(losses);
            }
        };
        keeping.into_actor(self)
    }

    /// Periodically compares the configuration files with the current settings.
    fn look_at_files(&mut self, ctx: &mut Context<Self>) {
        let comparing = self.options.config.call(CompareFiles).into_actor(self);
        ctx.spawn(comparing.map(|compared, watcher, ctx| {
            // While the ConfigListener restarts, the last result remains.
            if let Ok(planned) = compared {
                watcher.of_files = findings::of_files(&planned);
            }
            ctx.run_later(FILES_EVERY, Self::look_at_files);
        }));
    }

    /// Periodically checks the size of the store's documents.
    fn look_at_size(&mut self, ctx: &mut Context<Self>) {
        let replications = self.options.replications.clone();
        let measuring = async move { replications.existing_store()?.info().await.ok() };
        ctx.spawn(measuring.into_actor(self).map(|info, watcher, ctx| {
            // While the store does not answer, the last result remains.
            if let Some(size) = info.map(|info| info.bytes) {
                let smallest = watcher.growth.note(watcher.clock.now(), size);
                watcher.of_growth = smallest.map(|smallest| findings::of_growth(size, smallest));
            }
            ctx.run_later(SIZE_EVERY, Self::look_at_size);
        }));
    }
}

/// Checks everything. A restarting manager has no pools to check. Returns the status, the problems, and the time for
/// checking replications.
async fn look(options: HealthOptions) -> (DaemonStatus, Vec<Problem>, Duration) {
    let health = options.metrics.health();
    if health.kept().is_none()
        && let Some(Ok(losses)) = within(earlier_losses(&options)).await
    {
        health.restore(losses);
    }
    let snapshot = options.manager.call(GetStatus { pool: None }).await;
    let status = snapshot
        .map(|snapshot| snapshot.summary())
        .unwrap_or_default();
    let mut found = findings::of_status(&status);
    found.extend(options.drain.is_on().then(findings::of_drain));
    let replications = &options.replications;
    let asked = Instant::now();
    let answer = within(ask_store(replications)).await;
    let mut answered = asked.elapsed();
    // Without the store the daemon knows only its jobs.
    let docs: &[DocState] = match &answer {
        Some(Ok(())) => &DocState::TROUBLED,
        _ => &[],
    };
    let begun = Instant::now();
    let jobs = within(of_jobs(replications, docs)).await;
    let took = begun.elapsed();
    if jobs.is_none() {
        answered = answered.max(took);
    }
    let jobs = jobs.unwrap_or_else(|| Ok(Vec::new()));
    let late = || {
        let seconds = STORE_ANSWERS_WITHIN.as_secs();
        Err(format!("it has not answered within {seconds} s"))
    };
    let error = answer
        .unwrap_or_else(late)
        .err()
        .or(jobs.as_ref().err().cloned());
    found.extend(jobs.unwrap_or_default());
    let is_loading = replications.is_loading();
    found.extend(findings::of_store(error.as_deref(), answered, is_loading));
    found.extend(findings::of_runs(&replications.run_troubles().await));
    let fleet = replications.daemons().await;
    found.extend(findings::of_daemons(&fleet.unwrap_or_default()));
    let reports = replications.fleet().and_then(|fleet| fleet.reports());
    if let Some((own, others)) = reports {
        found.extend(findings::of_differences(&own, &others));
    }
    (status, found, took)
}

/// Waits for the store; `None` if it times out.
async fn within<T>(asked: impl Future<Output = T>) -> Option<T> {
    actix_rt::time::timeout(STORE_ANSWERS_WITHIN, asked)
        .await
        .ok()
}

/// Returns the losses of earlier runs from the store, if there is one.
async fn earlier_losses(options: &HealthOptions) -> Result<OpenLosses, StoreError> {
    match options.replications.existing_store() {
        Some(store) => losses::read(store, &options.daemon).await,
        None => Ok(OpenLosses::new()),
    }
}

/// Requires an answer from the store. Asks only an existing store: a request would create a missing one.
async fn ask_store(replications: &ReplicatorApi) -> Result<(), String> {
    let Some(store) = replications.existing_store() else {
        return Ok(());
    };
    store
        .documents(vec![NO_DOCUMENT.to_owned()])
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Checks the jobs, and the documents in these states that have no job. While the scheduler restarts, jobs are unknown.
///
/// # Errors
/// The store fails.
async fn of_jobs(replications: &ReplicatorApi, docs: &[DocState]) -> Result<Vec<Problem>, String> {
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
    let list = match replications.list(&query, &Whose::All).await {
        Ok(list) => list,
        Err(ReplicatorError::Store(error)) => return Err(error.to_string()),
        Err(_) => return Ok(Vec::new()),
    };
    let total = list["total_rows"].as_u64().unwrap_or(0);
    let groups: Vec<JobGroup> = serde_json::from_value(list["groups"].clone()).unwrap_or_default();
    Ok(findings::of_jobs(total, &groups))
}

impl Actor for HealthWatcher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.look(ctx);
        ctx.run_later(SIZE_FIRST, Self::look_at_size);
        // The files were read at the start.
        ctx.run_later(FILES_EVERY, Self::look_at_files);
    }
}

impl Handler<Stop> for HealthWatcher {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        if msg.now {
            return self.pid_guard.shut_down(ctx);
        }
        // Of two writers, the earlier might win.
        if let Some(looking) = self.looking.take() {
            ctx.cancel_future(looking);
        }
        let keeping = self.keep_losses();
        // An order to stop at once may follow.
        ctx.spawn(keeping.map(|(), watcher, ctx| watcher.pid_guard.shut_down(ctx)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use slog::{Discard, Logger, o};

    use super::*;
    use crate::actors::replicator_documents::tests::options;
    use crate::otp::Down;
    use policy::counted::Class;
    use store::{Store, StorePlace, Watcher};
    use test_support::Probe;

    /// Keeps a store from answering until the sender is dropped.
    #[derive(Debug)]
    struct Stuck(Mutex<mpsc::Receiver<()>>);

    impl Watcher for Stuck {
        fn class(&self, _: &str, _: &str) -> Class {
            0
        }

        fn opened(&self, _: Vec<(String, Class)>) {
            // The test has ended.
            let _ = lock(&self.0).recv();
        }

        fn written(&self, _: Vec<(String, Option<Class>)>) {}
    }

    #[actix_rt::test]
    async fn an_immediate_stop_does_not_wait_for_the_store() {
        tokio::time::pause();
        let (_answers, stuck) = mpsc::channel();
        let stuck = Arc::new(Stuck(Mutex::new(stuck)));
        let log = Logger::root(Discard, o!());
        let store = Store::start(StorePlace::Memory, stuck, Arc::new(()), &log).unwrap();
        let (metrics, mut downs) = (Metrics::new(), Probe::<Down>::start());
        // The next loss is not saved yet.
        metrics.health().keep(OpenLosses::new());
        metrics.replication().refuse("d".to_owned());
        let options = HealthOptions {
            manager: RegisteredName::new(Context::<ProcManager>::new().address()),
            config: RegisteredName::new(Context::<ConfigListener>::new().address()),
            replications: ReplicatorApi::new(options(store, Arc::default()), None),
            daemon: "one".into(),
            drain: Drain::default(),
            metrics,
        };
        let pid_guard = PidGuard::new();
        pid_guard.pid().monitor(downs.recipient());
        let watcher = HealthWatcher::new(options, pid_guard).start();
        let begun = actix_rt::time::Instant::now();
        watcher.do_send(Stop { now: false });
        watcher.do_send(Stop { now: true });
        downs.next().await;
        assert!(begun.elapsed() < STORE_ANSWERS_WITHIN);
    }
}
