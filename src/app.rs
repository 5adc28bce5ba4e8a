//! App: the whole service, from its configuration to its end.
//!
//! SUMMARY   Binds the socket and the addresses, then starts the supervision tree: ProcManager, ConfigListener,
//!           PressureGauge, CostKeeper, PoolExecutor, ReplicationScheduler, ReplicatorDocuments, FleetStatus and
//!           FleetMember if the store is shared, HealthWatcher, Listener, HttpServer, ServiceManager, in this order;
//!           stops them in reverse, the last three together: each may wait for its clients.
//! PROMISES  When [`Daemon::stop`] has returned, no child, connection or socket remains.
//! CALLED    By `settee serve`; by tests and other programs, inside an actix system. Everything runs on the calling
//!           arbiter, except HTTP's input and output, replication and health, which have their own threads.
//! SOURCE    couch_proc_manager's place in couch_secondary_services.

mod children;
pub mod replication;
pub mod settings;
mod share;
mod sockets;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use slog::{Logger, warn};
use tokio::sync::{oneshot, watch};

use crate::ConfigWatch;
use crate::actors::client::{ClientContext, UserNames};
use crate::actors::config_listener::{ActiveConfig, ConfigListener};
use crate::actors::language::{Language, Registry};
use crate::actors::listener::address::AddressError;
use crate::actors::listener::inherited::{Inherited, InheritedError};
use crate::actors::listener::socket::SocketError;
use crate::actors::pool_executor::PoolHandle;
use crate::actors::pressure_gauge::{Gauges, gauges};
use crate::actors::proc_manager::ProcManager;
use crate::actors::replication_scheduler::ReplicationScheduler;
use crate::audit::AuditLog;
use crate::auth::Authority;
use crate::config::{Config, Origin, Sources};
use crate::drain::Drain;
use crate::in_flight::InFlight;
use crate::messages::config_listener::{ServiceSocketError, SetLogLevel};
use crate::metrics::Metrics;
use crate::otp::{Down, ExitReason, Intensity, Pid, RegisteredName, Stop, Supervisor, Tell};
use crate::replicator::identity::ServerIdentity;
use crate::replicator::{Database, DocStates, http_config};
use crate::tls::{self, Certificate, CertificateError};
use ::replication::endpoint::{Http, HttpConfigError};
use child::Spawner;
use child::watches::{self, WATCHES_MIN};
use replication::ReplicationOptions;
use settings::manager_settings;
use share::share;
use sockets::{Sockets, address};
use store::fleet::DaemonName;
use store::shared_settings::SharedSettingsError;
use store::{Store, StoreError, StorePlace, Watcher};

/// Beyond this number of failures of its own actors in this time, the service gives up.
const INTENSITY: Intensity = Intensity {
    restarts_max: 10,
    period: Duration::from_secs(3),
};

/// Maximum duration of an immediate shutdown.
pub(crate) const STOP_NOW_MAX: Duration = Duration::from_secs(5);

/// The service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The socket cannot be used.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// An address is not available.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A service's socket is unavailable.
    #[error(transparent)]
    Service(#[from] ServiceSocketError),
    /// A passed socket cannot be used.
    #[error(transparent)]
    Inherited(#[from] InheritedError),
    /// The configured or existing store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The secrets differ from the other daemons', or cannot be saved.
    #[error(transparent)]
    Shared(#[from] SharedSettingsError),
    /// The certificate of `[ssl]` cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The replicator's HTTP settings are unusable.
    #[error(transparent)]
    Replication(#[from] HttpConfigError),
    /// The system cannot create a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    /// The system does not report the running program.
    #[error("cannot find this program's own file: {0}")]
    Program(#[source] io::Error),
}

/// Builds a program, or a service, with its own languages.
///
/// [`run`](Self::run) turns it into the whole program `settee`, whose commands know the languages;
/// [`start`](Self::start) into a service inside another program.
pub struct DaemonBuilder {
    pub(crate) languages: Registry,
    program: Option<PathBuf>,
    /// Where a reload reads the configuration; `None`: it never changes.
    #[doc(hidden)]
    pub sources: Option<Sources>,
    /// Called when `[log] level` changes.
    #[doc(hidden)]
    pub set_log_level: Option<SetLogLevel>,
    /// Logs every function call, if enabled.
    pub(crate) access_log: Option<Logger>,
    /// Logs orders and changes, if separate from everything else.
    pub(crate) audit: Option<AuditLog>,
    /// Sources of the machine's pressure.
    #[doc(hidden)]
    pub gauges: Gauges,
    /// The listening sockets passed to the program.
    #[doc(hidden)]
    pub inherited: Inherited,
    /// The service's metrics, possibly with earlier counts.
    #[doc(hidden)]
    pub metrics: Metrics,
}

impl DaemonBuilder {
    /// Adds a language. A configured or built-in one of the same name overrides it.
    #[must_use]
    pub fn language(mut self, name: &str, language: impl Language + 'static) -> Self {
        self.languages.register(name, language);
        self
    }

    /// Sets the program that runs the built-in query servers and makes cells: one that calls [`run`](Self::run), or
    /// `settee`. By default the running one.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Starts a service on this arbiter and returns once it accepts connections.
    ///
    /// # Errors
    /// See [`StartError`]; everything started has ended.
    pub async fn start(self, config: Config, log: Logger) -> Result<Daemon, StartError> {
        let program = self
            .program
            .map_or_else(std::env::current_exe, Ok)
            .map_err(StartError::Program)?;
        let spawner = Spawner::start()?;
        let sockets = Sockets::bind(&config, self.inherited, &log).await?;
        let certificate = Arc::new(Certificate::default());
        let wanted = config.clone();
        certificate.set(blocking::run("certificate", move || tls::read(&wanted)).await??);
        let (current, changes) = watch::channel(Arc::new(config));
        let states = Arc::new(DocStates::default());
        let (store, is_open) =
            open_store(&changes.borrow().clone(), &states, &self.metrics, &log).await?;
        let shared = share(&store, is_open, self.sources.as_ref(), &current).await?;
        let database = Database::new(store, states, changes.clone());
        let replicator_config = http_config(&changes.borrow().replicator);
        let http = Http::beside(sockets.services.listening(), replicator_config, &log)?;
        let active = Rc::new(ActiveConfig {
            sources: RefCell::new(self.sources),
            shared,
            service_sockets: Rc::clone(&sockets.services),
            http: http.clone(),
            manager_settings: {
                let languages = self.languages;
                let ports: Vec<u16> = sockets.bound().map(|at| at.port()).collect();
                Arc::new(move |config| manager_settings(config, &program, &languages, &ports))
            },
            current,
            audit: self
                .audit
                .unwrap_or_else(|| AuditLog::new(log.clone(), None)),
            set_log_level: self.set_log_level,
            certificate,
        });
        // An arbiter panics if its thread or event loop cannot be created: this checks both first.
        blocking::run("replication", || ()).await?;
        watches::require(WATCHES_MIN)?;
        let parts = Assembly {
            sockets,
            active,
            config: changes,
            metrics: self.metrics,
            access_log: self.access_log,
            drain: Drain::default(),
            gauges: self.gauges,
            log,
        };
        Ok(parts.supervise(spawner, database, http))
    }
}

/// State shared by the parts of a service, before it is supervised.
struct Assembly {
    sockets: Sockets,
    active: Rc<ActiveConfig>,
    config: ConfigWatch,
    metrics: Metrics,
    access_log: Option<Logger>,
    drain: Drain,
    gauges: Gauges,
    log: Logger,
}

impl Assembly {
    /// Starts the supervision tree.
    fn supervise(self, spawner: Spawner, database: Database, http: Http) -> Daemon {
        let (manager, manager_spec) = self.manager(spawner);
        let (config_listener, config_spec) = self.config_listener(&manager);
        let (records, keeper_spec) = self.records();
        let (executor, executor_spec) = self.executor(&manager, &records);
        let pressure_spec = self.pressure_gauge(&manager);
        let pool = PoolHandle::new(executor);
        let options = ReplicationOptions {
            http,
            identity: ServerIdentity::default(),
            config: self.config.clone(),
            metrics: self.metrics.clone(),
            filters: replication::filters_through(pool.clone()),
            daemon: daemon_name(&self.sockets),
            drain: self.drain.clone(),
            audit: self.active.audit.clone(),
            log: self.log.clone(),
        };
        let replication = replication::parts(options, database);
        let services = Rc::new(ClientContext {
            manager: manager.clone(),
            config: self.config.clone(),
            metrics: self.metrics.clone(),
            records,
            in_flight: InFlight::new(self.config.clone()),
            ddocs: Default::default(),
            drain: self.drain.clone(),
            authority: Arc::new(Authority::new(self.config.clone())),
            held: Default::default(),
            user_names: Arc::new(UserNames::read()),
            stopping: watch::Sender::new(false),
            log: self.log.clone(),
        });
        let mut specs = vec![
            manager_spec,
            config_spec,
            pressure_spec,
            keeper_spec,
            executor_spec,
        ];
        specs.extend(replication.specs);
        let replications = replication.replications;
        specs.push(self.health_watcher(
            manager.clone(),
            config_listener.clone(),
            replications.clone(),
            replication.arbiter,
        ));
        specs.push(self.listener(&services));
        specs.push(self.http_server(pool, config_listener.clone(), replications, &services));
        specs.push(self.service_manager(services));
        let supervisor = Supervisor::new(specs, INTENSITY, self.metrics.restarts(), &self.log);
        let ended = when_ended(&supervisor.pid());
        Daemon {
            supervisor: supervisor.start(),
            manager,
            config_listener,
            scheduler: replication.scheduler,
            metrics: self.metrics,
            audit: self.active.audit.clone(),
            sockets: self.sockets,
            active: self.active,
            ended,
        }
    }
}

/// A running service. If dropped without [`Daemon::stop`], it ends with the arbiter.
pub struct Daemon {
    /// The pools.
    pub manager: RegisteredName<ProcManager>,
    /// The configuration.
    pub config_listener: RegisteredName<ConfigListener>,
    /// The scheduler of replications.
    pub scheduler: RegisteredName<ReplicationScheduler>,
    /// Its metrics.
    pub metrics: Metrics,
    /// Records orders and changes.
    pub(crate) audit: AuditLog,
    supervisor: Addr<Supervisor>,
    sockets: Sockets,
    active: Rc<ActiveConfig>,
    ended: oneshot::Receiver<ExitReason>,
}

impl Daemon {
    /// Creates a builder with the built-in languages.
    pub fn builder() -> DaemonBuilder {
        DaemonBuilder {
            languages: Registry::new(),
            program: None,
            sources: None,
            set_log_level: None,
            access_log: None,
            audit: None,
            gauges: gauges("/proc".into()),
            inherited: Inherited::default(),
            metrics: Metrics::new(),
        }
    }

    /// Returns the clients' socket.
    pub fn socket(&self) -> &Path {
        let path = self.sockets.unix.path();
        path.expect("app: the clients' socket is a Unix socket")
    }

    /// Returns the TCP address for clients, if any, with the actual port.
    pub fn tcp(&self) -> Option<SocketAddr> {
        address(&self.sockets.tcp)
    }

    /// Returns a service's address, as in the configuration, with the actual port; `None` if there is no such
    /// service.
    pub fn service(&self, name: &str) -> Option<String> {
        Some(self.sockets.services.get(name)?.shown().to_owned())
    }

    /// Returns the services with their addresses.
    pub fn services(&self) -> Vec<(String, String)> {
        self.sockets.services.shown()
    }

    /// Returns the address of HTTP, if any, with the actual port.
    pub fn http(&self) -> Option<SocketAddr> {
        address(&self.sockets.http)
    }

    /// Returns the address of HTTP over TLS, if any, with the actual port.
    pub fn https(&self) -> Option<SocketAddr> {
        address(&self.sockets.https)
    }

    /// Returns the address for clients over TLS, if any, with the actual port.
    pub fn tls(&self) -> Option<SocketAddr> {
        address(&self.sockets.tls)
    }

    /// Returns the current configuration.
    pub fn config(&self) -> Arc<Config> {
        self.active.config()
    }

    /// Begins the shutdown: accepts no clients, lets open calls finish unless `now`, then ends the processes. May be
    /// repeated with `now`. [`Daemon::ended`] reports the end.
    pub fn begin_stop(&self, now: bool) {
        self.supervisor.tell(Stop { now });
    }

    /// Waits until the service ends, and returns the reason. Cancel safe.
    pub async fn ended(&mut self) -> ExitReason {
        (&mut self.ended).await.unwrap_or(ExitReason::Killed)
    }

    /// Stops the service, at once or gracefully within `shutdown_grace`. Returns why it ended; [`ExitReason::Killed`]
    /// if a part of it did not end in time and was abandoned.
    pub async fn stop(mut self, now: bool) -> ExitReason {
        self.begin_stop(now);
        let grace = self.config().server.shutdown_grace;
        if !now && let Ok(reason) = actix_rt::time::timeout(grace, self.ended()).await {
            return reason;
        }
        self.begin_stop(true);
        actix_rt::time::timeout(STOP_NOW_MAX, self.ended())
            .await
            .unwrap_or(ExitReason::Killed)
    }
}

/// Starts the store. Returns it, and whether it is open.
///
/// A configured or existing store has to be usable, since it may hold replications. A missing file in the default place
/// is created when first needed: a service that only lends processes needs none. A file in the default place that
/// another service uses, or that this user may not open, and a database that does not answer, are retried whenever
/// they are needed.
async fn open_store(
    config: &Config,
    states: &Arc<DocStates>,
    metrics: &Metrics,
    log: &Logger,
) -> Result<(Store, bool), StartError> {
    let place = StorePlace::of_config(&config.store);
    // A named file has to be usable now: another service would not release it. A database may return.
    let is_named = config.store.url.is_none() && config.origin("store", "path") != Origin::Default;
    let watcher: Arc<dyn Watcher> = states.clone();
    let store = Store::start(place.clone(), watcher, metrics.store(), log)?;
    if place.exists() {
        states.lock().await_store();
    } else if !is_named {
        return Ok((store, false));
    }
    match store.open().await {
        Err(StoreError::Open(error)) if !is_named && error.may_pass() => {
            warn!(log, "the store cannot be opened"; "error" => %error,
                  "effect" => "no replications run until it is open");
            Ok((store, false))
        }
        opened => Ok(opened.map(|()| (store, true))?),
    }
}

/// Returns this daemon's description for other daemons.
fn daemon_name(sockets: &Sockets) -> DaemonName {
    let system = rustix::system::uname();
    DaemonName {
        address: told_address(
            &system.nodename().to_string_lossy(),
            address(&sockets.http).or(address(&sockets.https)),
        )
        .into(),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

/// Returns the address of this daemon for other machines. An address that other machines cannot use is replaced by
/// this machine's name, as in CouchDB's node names.
fn told_address(machine: &str, http: Option<SocketAddr>) -> String {
    let Some(address) = http else {
        return machine.to_owned();
    };
    let ip = address.ip().to_canonical();
    if ip.is_unspecified() || ip.is_loopback() {
        format!("{machine}:{}", address.port())
    } else {
        address.to_string()
    }
}

/// Returns a future that resolves when an actor ends.
pub(crate) fn when_ended(pid: &Pid) -> oneshot::Receiver<ExitReason> {
    struct Watcher(Option<oneshot::Sender<ExitReason>>);

    impl Actor for Watcher {
        type Context = Context<Self>;
    }

    impl Handler<Down> for Watcher {
        type Result = ();

        fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
            if let Some(waiting) = self.0.take() {
                // The caller may be gone.
                let _ = waiting.send(msg.reason);
            }
            ctx.stop();
        }
    }

    let (sender, receiver) = oneshot::channel();
    pid.monitor(Watcher(Some(sender)).start().recipient());
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ambiguous_address_is_reported_with_the_name_of_the_machine() {
        for (http, told) in [
            ("127.0.0.1:5995", "db1:5995"),
            ("127.0.0.2:5995", "db1:5995"),
            ("[::1]:5995", "db1:5995"),
            ("[::ffff:127.0.0.1]:5995", "db1:5995"),
            ("0.0.0.0:5995", "db1:5995"),
            ("[::]:5995", "db1:5995"),
            ("10.0.0.7:5995", "10.0.0.7:5995"),
            ("[fd00::7]:5995", "[fd00::7]:5995"),
        ] {
            assert_eq!(told_address("db1", http.parse().ok()), told, "{http}");
        }
        assert_eq!(told_address("db1", None), "db1");
    }
}
