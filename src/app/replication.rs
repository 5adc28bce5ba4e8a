//! Replication within the service: its threads, its scheduler, and their settings.
//!
//! SUMMARY   The scheduler and ReplicatorDocuments run on their own arbiter, so that they and the pool never block
//!           each other; jobs run on others ([`JobThreads`]). Only [`schedule_settings`] and [`job_settings`] derive
//!           their settings from the configuration.
//! PROMISES  A changed configuration applies to the scheduler immediately, and to each job with its next run. The
//!           threads end with the service.
//! SOURCE    couch_replicator_sup.

use std::cell::OnceCell;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use actix_rt::{Arbiter, ArbiterHandle};
use slog::{Logger, warn};
use tokio::sync::{broadcast, watch};

use crate::ConfigWatch;
use crate::actors::fleet_member::{FleetMember, FleetMemberOptions};
use crate::actors::fleet_status::FleetStatus;
use crate::actors::job_supervisor::{JobThreads, LiveRuns};
use crate::actors::past_writer::PastWriter;
use crate::actors::pool_executor::{PoolHandle, PoolWork, Principal};
use crate::actors::replication_job::ReplicationJob;
use crate::actors::replication_scheduler::{ReplicationScheduler, SchedulerOptions};
use crate::actors::replicator_api::{FleetOptions, ReplicatorApi};
use crate::actors::replicator_documents::{BeginAnew, DocumentsOptions, ReplicatorDocuments};
use crate::audit::AuditLog;
use crate::auth::rights::CallerLimits;
use crate::config::Replicator;
use crate::drain::Drain;
use crate::functions::{QueryServers, SourceFilter};
use crate::machine_bounds;
use crate::messages::fleet_member::ServerReach;
use crate::messages::function::Json;
use crate::messages::replication_job::{JobSettings, JobStart, StartJobs};
use crate::messages::replication_scheduler::{Configure, Reschedule};
use crate::metrics::Metrics;
use crate::otp::{BootClock, ChildSpec, RegisteredName, Tell};
use crate::replicator::identity::ServerIdentity;
use crate::replicator::{Database, DocStates};
pub use crate::replicator::{defaults, http_config};
use policy::schedule::{Backoff, Coefficient, Settings, Shares};
use replication::crash::Crash;
use replication::endpoint::Http;
use replication::filter::FilterPool;
use replication::id::Identity;
use store::fleet::DaemonName;

/// The parts of replication.
#[derive(Clone)]
pub(crate) struct ReplicationOptions {
    /// Shared by all replications.
    pub http: Http,
    /// The server's identity, from which replication ids are computed.
    pub identity: ServerIdentity,
    /// The current configuration.
    pub config: ConfigWatch,
    pub metrics: Metrics,
    /// Runs filters that sources do not run.
    pub filters: FilterPool,
    /// This daemon's name in its fleet.
    pub daemon: DaemonName,
    /// Whether the daemon is drained.
    pub drain: Drain,
    /// Records orders of other daemons.
    pub audit: AuditLog,
    pub log: Logger,
}

/// A thread that ends with its owner.
pub(super) struct OwnArbiter(pub(super) Arbiter);

impl Drop for OwnArbiter {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The parts that replicate, and how they are restarted.
pub(super) struct Parts {
    /// The scheduler.
    pub scheduler: RegisteredName<ReplicationScheduler>,
    /// The interface for HTTP.
    pub replications: ReplicatorApi,
    /// In the order of starting.
    pub specs: Vec<ChildSpec>,
    /// The thread of these parts.
    pub arbiter: OwnArbiter,
}

/// Maximum unreceived reports about servers.
const SERVERS_TOLD_MAX: usize = 1024;

/// ReplicatorDocuments, once it exists.
type Told = Rc<OnceCell<RegisteredName<ReplicatorDocuments>>>;

/// Starts the scheduler and ReplicatorDocuments on their own thread, and the parts that communicate with other
/// daemons if the store is shared. The FleetMember is stopped before the others, which have to stop the jobs it
/// releases.
pub(super) fn parts(options: ReplicationOptions, database: Database) -> Parts {
    let arbiter = OwnArbiter(Arbiter::new());
    let handle = arbiter.0.handle();
    let told = Told::default();
    let pasts = past_writer(&database, &handle, &options.log);
    let servers = broadcast::Sender::new(SERVERS_TOLD_MAX);
    let (scheduler, scheduler_spec) = scheduler_spec(
        options.clone(),
        &database,
        pasts.map(|pasts| (pasts, servers.clone())),
        handle.clone(),
        Rc::clone(&told),
    );
    let epoch = watch::Sender::new(None);
    let (metrics, health) = (options.metrics.fleet(), options.metrics.health());
    let (daemon, audit, drain) = (options.daemon, options.audit, options.drain);
    let fleet = database.store.fleet().map(|store| FleetOptions {
        store,
        name: daemon.clone(),
        epoch: epoch.subscribe(),
        metrics: Arc::clone(&metrics),
    });
    let options = DocumentsOptions {
        fleet: database.store.fleet(),
        database,
        scheduler: scheduler.clone(),
        http: options.http,
        identity: options.identity,
        config: options.config,
        log: options.log,
    };
    let (documents, documents_spec) = documents_spec(options.clone(), handle.clone());
    drop(told.set(documents.clone()));
    let replications = ReplicatorApi::new(options.clone(), fleet);
    let mut specs = vec![scheduler_spec, documents_spec];
    if let Some(fleet) = options.fleet {
        let member = FleetMemberOptions {
            fleet,
            name: daemon,
            documents,
            clock: BootClock::default(),
            epoch,
            drain,
            servers,
            metrics,
            log: options.log.clone(),
        };
        let (replications, log) = (replications.clone(), options.log);
        let member_handle = handle.clone();
        specs.push(ChildSpec::new("fleet_status", move |pid_guard| {
            let (replications, health) = (replications.clone(), health.clone());
            let (audit, log) = (audit.clone(), log.clone());
            FleetStatus::start_in_arbiter(&handle, move |_| {
                FleetStatus::new(replications, health, audit, &log, pid_guard)
            })
        }));
        // Each one has another epoch.
        specs.push(ChildSpec::new("fleet_member", move |pid_guard| {
            let options = member.clone();
            FleetMember::start_in_arbiter(&member_handle, move |_| {
                FleetMember::new(options, pid_guard)
            })
        }));
    }
    Parts {
        scheduler,
        replications,
        specs,
        arbiter,
    }
}

/// Starts the writer of jobs' pasts; `None` if the store is not shared.
fn past_writer(database: &Database, arbiter: &ArbiterHandle, log: &Logger) -> Option<PastWriter> {
    let fleet = database.store.fleet()?;
    let save = move |epoch, pasts| {
        let fleet = Arc::clone(&fleet);
        async move { fleet.save_pasts(epoch, pasts).await }
    };
    let (writer, task) = PastWriter::new(save, log);
    arbiter.spawn(task);
    Some(writer)
}

/// Starts ReplicatorDocuments, and returns how its successors are started.
fn documents_spec(
    options: DocumentsOptions,
    arbiter: ArbiterHandle,
) -> (RegisteredName<ReplicatorDocuments>, ChildSpec) {
    ChildSpec::named("replicator_documents", move |pid_guard| {
        let options = options.clone();
        ReplicatorDocuments::start_in_arbiter(&arbiter, move |_| {
            ReplicatorDocuments::new(options, pid_guard)
        })
    })
}

/// Starts the scheduler, and returns how its successors are started: a successor knows no jobs, so ReplicatorDocuments
/// starts over; remaining runs of the previous scheduler delay new runs of the same replications until they have ended.
fn scheduler_spec(
    options: ReplicationOptions,
    database: &Database,
    shared: Option<(PastWriter, broadcast::Sender<ServerReach>)>,
    arbiter: ArbiterHandle,
    told: Told,
) -> (RegisteredName<ReplicationScheduler>, ChildSpec) {
    let live = LiveRuns::default();
    let states = Arc::clone(&database.states);
    ChildSpec::named("replication_scheduler", move |pid_guard| {
        let (options, live, states) = (options.clone(), live.clone(), Arc::clone(&states));
        let (pasts, servers) = shared.clone().unzip();
        let scheduler = ReplicationScheduler::start_in_arbiter(&arbiter, move |ctx| {
            ctx.spawn(wrap_future(follow(options.clone(), ctx.address())));
            ReplicationScheduler::new(scheduler_options(options, live, states), pid_guard)
                .with_fleet(pasts, servers)
        });
        if let Some(documents) = told.get() {
            documents.tell(BeginAnew {
                scheduler: scheduler.clone(),
            });
        }
        scheduler
    })
}

fn scheduler_options(
    options: ReplicationOptions,
    live: LiveRuns,
    states: Arc<DocStates>,
) -> SchedulerOptions {
    let mut settings = schedule_settings(&options.config.borrow().replicator);
    bound_connections(settings.max_jobs, &options);
    stop_if_drained(&mut settings, &options.drain);
    let metrics = options.metrics.replication();
    metrics.watch(&options.http);
    SchedulerOptions {
        settings,
        metrics,
        log: options.log.clone(),
        http: options.http.clone(),
        jobs: start_jobs(options),
        live,
        states,
    }
}

/// Applies a changed configuration, or a drain, to the scheduler and to the limit of connections.
async fn follow(mut options: ReplicationOptions, scheduler: Addr<ReplicationScheduler>) {
    let mut max_jobs = schedule_settings(&options.config.borrow().replicator).max_jobs;
    let (mut drain, mut was_drained) = (options.drain.follow(), options.drain.is_on());
    loop {
        tokio::select! {
            changed = options.config.changed() => if changed.is_err() {
                return;
            },
            // The options keep the sender of `drain`.
            _ = drain.changed() => {}
        }
        let mut settings = schedule_settings(&options.config.borrow_and_update().replicator);
        if settings.max_jobs != max_jobs {
            max_jobs = settings.max_jobs;
            bound_connections(max_jobs, &options);
        }
        stop_if_drained(&mut settings, &options.drain);
        let is_drained = options.drain.is_on();
        // The scheduler has ended, and this task ends with it.
        if scheduler.send(Configure(settings)).await.is_err() {
            return;
        }
        // Otherwise jobs would continue, or wait, until the next cycle.
        if std::mem::replace(&mut was_drained, is_drained) != is_drained {
            scheduler.tell(Reschedule);
        }
    }
}

/// Lets no job run while the daemon is drained.
fn stop_if_drained(settings: &mut Settings, drain: &Drain) {
    if drain.is_on() {
        settings.max_jobs = 0;
    }
}

/// Limits the connections of replications so that descriptors remain for everything else; warns if more replications
/// may run than have enough connections.
fn bound_connections(max_jobs: usize, options: &ReplicationOptions) {
    let connections = machine_bounds::replication_connections(max_jobs);
    options.http.bound_connections(connections);
    let room = machine_bounds::replications_max(&connections);
    if max_jobs > room {
        warn!(options.log, "more replications may run than the limit of open files has room for";
              "max_jobs" => max_jobs, "limit" => room,
              "remedy" => "raise the limit (LimitNOFILE= of the unit, ulimit -n), or lower [replicator] max_jobs");
    }
}

/// Starts jobs with the current configuration.
fn start_jobs(options: ReplicationOptions) -> StartJobs {
    let mut threads = JobThreads::new(options.http.clone(), &options.log);
    Box::new(move |run| {
        let Some(identity) = options.identity.known() else {
            let why = "the id of this server is not known yet";
            return Err(Crash::JobDied(why.to_owned()));
        };
        let config = options.config.borrow().replicator.clone();
        let filters = options.filters.clone();
        threads.run(job_threads(&config), move |http| {
            let mut settings = job_settings(&config, http, identity, filters);
            // A client waits for a `_replicate` call, and thousands of these do not start at once.
            if run.replication.is_transient() {
                settings.startup_jitter = Duration::ZERO;
            }
            ReplicationJob::new(JobStart { run, settings })
        })
    })
}

/// Returns the number of threads for jobs: one per core by default.
fn job_threads(config: &Replicator) -> usize {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    config
        .threads
        .and_then(|threads| threads.try_into().ok())
        .unwrap_or_else(cores)
}

/// Returns the scheduler's settings.
pub fn schedule_settings(config: &Replicator) -> Settings {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let mut shares = Shares::default();
    for (key, share) in &config.shares {
        shares.set(key, i64::try_from(*share).unwrap_or(i64::MAX));
    }
    Settings {
        max_jobs: number(config.max_jobs),
        max_churn: number(config.max_churn),
        max_history: number(config.max_history),
        interval: config.interval,
        health_threshold: config.health_threshold,
        backoff: Backoff {
            base: config.backoff_base,
            ceiling: config.backoff_max,
        },
        usage_coeff: Coefficient::new(config.usage_coeff),
        priority_coeff: Coefficient::new(config.priority_coeff),
        shares,
        rules: config.rules,
    }
}

/// Documents to filter by another database's filter.
struct AskFilter {
    filter: SourceFilter,
    docs: Vec<Json>,
}

impl PoolWork for AskFilter {
    type Output = Result<Vec<bool>, String>;

    async fn run(self, servers: QueryServers) -> Self::Output {
        self.filter
            .ask(self.docs, &servers)
            .await
            .map_err(|error| error.to_string())
    }
}

/// Returns replications' access to the service's pool. The code, and the choice of its language, are another
/// database's: only built-in languages are allowed.
pub(super) fn filters_through(pool: PoolHandle) -> FilterPool {
    FilterPool::new(move |function| {
        let filter = SourceFilter::parse(function).map_err(|error| error.to_string())?;
        let pool = pool.clone();
        Ok(Box::new(move |docs| {
            let filter = filter.clone();
            let asking = pool.run(
                AskFilter { filter, docs },
                Principal {
                    limits: Some(CallerLimits::of_other_databases()),
                    who: None,
                },
            );
            Box::pin(async move { asking.await.unwrap_or_else(|error| Err(error.to_string())) })
        }))
    })
}

/// Returns the settings of jobs.
pub(crate) fn job_settings(
    config: &Replicator,
    http: Http,
    identity: Identity,
    filters: FilterPool,
) -> JobSettings {
    JobSettings {
        http,
        identity,
        startup_jitter: config.startup_jitter,
        health_threshold: config.health_threshold,
        max_document_id_length: config.max_document_id_length,
        missing_doc_retry: config.missing_doc_retry_msec,
        filters,
    }
}

#[cfg(test)]
mod tests {
    use policy::schedule::RuleSet;

    use super::*;
    use crate::config::Config;

    #[test]
    fn the_rules_of_the_first_scheduler_can_be_configured() {
        let mut config = Config::default().replicator;
        config.rules = RuleSet::First;
        let settings = schedule_settings(&config);
        assert_eq!(settings.rules, RuleSet::First);
    }

    #[test]
    fn the_configurations_defaults_are_those_of_the_scheduler() {
        let config = Config::default().replicator;
        assert_eq!(schedule_settings(&config), Settings::default());
    }

    /// The complete effect of a configuration on replications, as text.
    fn effect(config: &Replicator) -> String {
        let http = http_config(config);
        let log = Logger::root(slog::Discard, slog::o!());
        let shared = Http::new(http_config(&Default::default()), &log).unwrap();
        let job = job_settings(config, shared, identity(), FilterPool::none());
        format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {} {:?}",
            (schedule_settings(config), job_threads(config)),
            defaults(config),
            (
                job.startup_jitter,
                job.health_threshold,
                job.missing_doc_retry
            ),
            job.max_document_id_length,
            (
                http.request_timeout,
                http.verify_ssl_certificates,
                &http.cert_file,
                &http.key_file
            ),
            (
                &http.ssl_trusted_certificates_file,
                http.cacert_reload_interval,
                http.sessions
            ),
            config.update_docs,
            (
                &http.password,
                http.connection_close_interval,
                &http.connect_to,
                (
                    &http.endpoints_allowed,
                    &http.endpoints_denied,
                    &http.redirects_to,
                ),
                http.session_refresh_interval,
                http.session_min_update_interval,
            ),
        )
    }

    fn identity() -> Identity {
        Identity {
            uuid: String::new(),
            host: String::new(),
            port: 0,
        }
    }

    #[test]
    fn every_key_has_an_effect() {
        use crate::config::keys;
        use serde_json::json;
        let whole = serde_json::to_value(Config::default().replicator).unwrap();
        let before = effect(&Config::default().replicator);
        for name in keys::names(keys::REPLICATOR) {
            let other = match &whole[name] {
                serde_json::Value::Bool(known) => (!known).into(),
                serde_json::Value::Number(known) if known.is_f64() => 0.25.into(),
                serde_json::Value::Number(known) => (known.as_u64().unwrap() + 1).into(),
                serde_json::Value::Object(_) => json!(Duration::from_secs(7)),
                serde_json::Value::Array(_) => json!(["other"]),
                _ if name == "request_timeout" => json!(Duration::from_secs(7)),
                _ if name == "max_document_id_length" || name == "threads" => 7.into(),
                _ if name == "feed" => "db_updates".into(),
                _ if name == "rules" => "2017".into(),
                // Strings and paths.
                _ => "other".into(),
            };
            let mut changed = whole.clone();
            changed[name] = other;
            let changed: Replicator = serde_json::from_value(changed).unwrap();
            assert_ne!(effect(&changed), before, "{name} has no effect");
            let runtime = keys::runtime(keys::REPLICATOR, name);
            assert!(runtime, "{name} is not taken by a running service");
        }
    }

    #[test]
    fn every_setting_of_the_scheduler_comes_from_the_configuration() {
        let mut config = Config::default().replicator;
        config.max_jobs = 1;
        config.max_churn = 2;
        config.max_history = 3;
        config.shares.insert("team/_replicator".into(), 400);
        let settings = schedule_settings(&config);
        assert_eq!(
            (settings.max_jobs, settings.max_churn, settings.max_history),
            (1, 2, 3)
        );
        assert_eq!(settings.shares.get("team/_replicator"), 400);
        assert_eq!(settings.shares.get("_replicator"), Shares::DEFAULT);
    }
}
