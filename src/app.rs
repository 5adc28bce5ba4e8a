//! App: the service as a whole, from its configuration to its end.
//!
//! SUMMARY   Binds the socket and the addresses, then starts the supervision tree: ProcManager,
//!           ConfigListener, PressureGauge, PoolExecutor, ReplicationScheduler, ReplicatorDocuments,
//!           FleetMember where the store is shared, Listener, HttpServer, ServiceManager, in this order; stops them in reverse.
//! PROMISES  When [`Daemon::stop`] has returned there is no child, no connection and no socket.
//! CALLED    By `settee serve`; by tests and other programs, inside an actix system. Everything
//!           runs on the arbiter that calls, but for the reading and writing of HTTP and for
//!           replication, which have threads of their own.
//! SOURCE    couch_proc_manager's place in couch_secondary_services.

pub mod replication;
pub mod settings;
mod share;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use rustls::ServerConfig;
use slog::{Logger, warn};
use tokio::sync::{oneshot, watch};

use crate::actors::client::{ClientContext, UserNames};
use crate::actors::config_listener::{ActiveConfig, ConfigListener};
use crate::actors::language::{Language, Registry};
use crate::actors::listener::address::{AddressError, bind_address};
use crate::actors::listener::bound::Bound;
use crate::actors::listener::inherited::{Inherited, InheritedError};
use crate::actors::listener::socket::{SocketError, bind_socket};
use crate::actors::listener::{Listener, ListenerOptions};
use crate::actors::pool_executor::{PoolExecutor, PoolHandle};
use crate::actors::pressure_gauge::{Gauges, Machine, PressureGauge, PressureOptions};
use crate::actors::proc_manager::ProcManager;
use crate::actors::replication_scheduler::ReplicationScheduler;
use crate::actors::service::socket::ServiceSockets;
use crate::actors::service_manager::{ServiceManager, ServiceManagerOptions};
use crate::auth::Authority;
use crate::config::{Config, Origin, Sources};
use crate::functions::records::CallRecords;
use crate::http::HttpContext;
use crate::http::server::{HttpOptions, HttpServer};
use crate::in_flight::InFlight;
use crate::messages::config_listener::ServiceSocketError;
use crate::messages::config_listener::SetLogLevel;
use crate::metrics::Metrics;
use crate::otp::pid::{Down, ExitReason, Pid};
use crate::otp::registered_name::RegisteredName;
use crate::otp::supervisor::{ChildSpec, Intensity, Stop, Supervisor};
use crate::query_server::child::Spawner;
use crate::replicator::identity::ServerIdentity;
use crate::replicator::{Database, DocStates, http_config};
use crate::tls::{self, Certificate, CertificateError};
use ::replication::endpoint::{Http, HttpConfigError};
use blocking;
use replication::{Parts, ReplicationOptions};
use settings::manager_settings;
use share::share;
use store::fleet::DaemonName;
use store::shared_settings::SharedSettingsError;
use store::{Store, StoreError, StorePlace, Watcher};

/// More failures of the service's own actors than this in so short a time, and it gives up.
const INTENSITY: Intensity = Intensity {
    restarts_max: 10,
    period: Duration::from_secs(3),
};

/// How long the service may take to end once it was told to end now.
pub(crate) const STOP_NOW_MAX: Duration = Duration::from_secs(5);

/// Longer than any shutdown takes: [`Daemon::stop`] and `settee serve` set the deadlines.
const SHUTDOWN_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The socket cannot be used.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// An address cannot be had.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The socket of a service cannot be had.
    #[error(transparent)]
    Service(#[from] ServiceSocketError),
    /// A socket that was passed cannot be used.
    #[error(transparent)]
    Inherited(#[from] InheritedError),
    /// The store that was named, or is there, cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The secrets are not those of the other daemons, or cannot be kept.
    #[error(transparent)]
    Shared(#[from] SharedSettingsError),
    /// The certificate of `[ssl]` cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Replications cannot speak to databases.
    #[error(transparent)]
    Replication(#[from] HttpConfigError),
    /// The system has no room for a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    /// The system does not say which program runs.
    #[error("cannot find this program's own file: {0}")]
    Program(#[source] io::Error),
}

/// A program or a service with languages of its own.
///
/// [`run`](Self::run) makes the whole program `settee` of it, whose commands know the languages;
/// [`start`](Self::start) a service inside another program.
pub struct DaemonBuilder {
    pub(crate) languages: Registry,
    program: Option<PathBuf>,
    /// Where a reload reads the configuration; none, and it never changes.
    #[doc(hidden)]
    pub sources: Option<Sources>,
    /// Follows a change of `[log] level`.
    #[doc(hidden)]
    pub set_log_level: Option<SetLogLevel>,
    /// Where every function call is logged, if anywhere.
    pub(crate) access_log: Option<Logger>,
    /// What the pressure on the machine is read with.
    #[doc(hidden)]
    pub gauges: Gauges,
    /// The listening sockets that the program was started with.
    #[doc(hidden)]
    pub inherited: Inherited,
    /// Where the service counts; it may have counted before.
    #[doc(hidden)]
    pub metrics: Metrics,
}

impl DaemonBuilder {
    /// Adds a language. One of the configuration wins over it, and so do the built-in ones.
    #[must_use]
    pub fn language(mut self, name: &str, language: impl Language + 'static) -> Self {
        self.languages.register(name, language);
        self
    }

    /// Sets the program that runs the built-in query servers and makes cells: one that calls
    /// [`run`](Self::run), or `settee`. The running one unless it is set.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Starts a service on this arbiter and returns once it accepts connections.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left of what was started.
    pub async fn start(self, config: Config, log: Logger) -> Result<Daemon, StartError> {
        let program = self.program.map_or_else(std::env::current_exe, Ok);
        let program = program.map_err(StartError::Program)?;
        let spawner = Spawner::start()?;
        let inherited = Rc::new(self.inherited);
        let passed = inherited.unix("[server] socket", &config.server.socket)?;
        let socket = match passed {
            Some(socket) => socket,
            None => bind_socket(&config.server).await?,
        };
        let path = socket.path().unwrap_or(&config.server.socket).to_owned();
        let (tcp, http) = (config.server.tcp, config.server.http);
        let bind = |key, address| bind(&inherited, key, address, config.server.backlog);
        let tcp = bind("[server] tcp", tcp)?;
        let http = bind("[server] http", http)?;
        let service_sockets = Rc::new(ServiceSockets::new(Rc::clone(&inherited)));
        service_sockets.commit(service_sockets.prepare(&config.services).await?);
        let listening = service_sockets.listening();
        let https = bind("[ssl] port", config.ssl.address())?;
        let tls = bind("[ssl] tcp", config.ssl.tcp)?;
        inherited.warn_of_the_rest(&log);
        let certificate = Arc::new(Certificate::default());
        certificate.set(read_certificate(&config).await?);
        let address_of = |bound: &Option<Rc<Bound>>| bound.as_ref()?.tcp_address();
        let (tcp_address, http_address) = (address_of(&tcp), address_of(&http));
        let (https_address, tls_address) = (address_of(&https), address_of(&tls));
        let addresses = [tcp_address, http_address, https_address, tls_address];
        let addresses: Vec<SocketAddr> = addresses.into_iter().flatten().collect();
        addresses.iter().for_each(|address| listening.add(*address));
        let (current, changes) = watch::channel(Arc::new(config));
        let authority = Arc::new(Authority::new(changes.clone()));
        let in_flight = InFlight::new(changes.clone());
        let states = Arc::new(DocStates::default());
        let (store, is_open) =
            open_store(&changes.borrow().clone(), &states, &self.metrics, &log).await?;
        let shared = share(&store, is_open, self.sources.as_ref(), &current).await?;
        let database = Database::new(store, states, changes.clone());
        let active = Rc::new(ActiveConfig {
            sources: RefCell::new(self.sources),
            shared,
            service_sockets: Rc::clone(&service_sockets),
            manager_settings: {
                let languages = self.languages;
                let ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
                Box::new(move |config| manager_settings(config, &program, &languages, &ports))
            },
            current,
            set_log_level: self.set_log_level,
            certificate: Arc::clone(&certificate),
        });
        let metrics = self.metrics;
        let replicator_config = http_config(&changes.borrow().replicator);
        let replicator_http = Http::beside(listening, replicator_config, &log)?;

        let (manager, manager_spec) =
            manager_spec(Rc::clone(&active), spawner, metrics.clone(), log.clone());
        let (config_listener, config_spec) =
            config_spec(Rc::clone(&active), manager.clone(), log.clone());
        let records = CallRecords::new(changes.clone(), log.clone(), self.access_log);
        let records = Rc::new(records);
        let (executor, executor_spec) =
            executor_spec(manager.clone(), Rc::clone(&records), log.clone());
        let pool = PoolHandle::new(executor);
        let replicator = ReplicationOptions {
            http: replicator_http,
            identity: ServerIdentity::default(),
            config: changes.clone(),
            metrics: metrics.clone(),
            filters: replication::filters_through(pool.clone()),
            daemon: daemon_name(http_address),
            log: log.clone(),
        };
        // Where there is no room for its thread, the start of an arbiter panics.
        blocking::run("replication", || ()).await?;
        let Parts {
            scheduler,
            replications,
            specs: replication_specs,
        } = replication::parts(replicator, database);
        let services = Rc::new(ClientContext {
            manager: manager.clone(),
            config: config_listener.clone(),
            metrics: metrics.clone(),
            records,
            replications: replications.clone(),
            in_flight: Arc::clone(&in_flight),
            authority: Arc::clone(&authority),
            http: http_address,
            held: Default::default(),
            user_names: UserNames::read(),
            stopping: watch::Sender::new(false),
        });
        let service_options = ServiceManagerOptions {
            sockets: Rc::clone(&service_sockets),
            services: Rc::clone(&services),
            config: changes.clone(),
            log: log.clone(),
        };
        let service_manager = ChildSpec::new("service_manager", SHUTDOWN_MAX, move || {
            let actor = ServiceManager::new(service_options.clone());
            (actor.pid(), actor.start())
        });
        let listening = ListenerOptions {
            socket: Rc::new(socket),
            tcp,
            tls,
            certificate: Arc::clone(&certificate),
            services,
            config: changes.clone(),
            log: log.clone(),
        };
        let listener_spec = ChildSpec::new("listener", SHUTDOWN_MAX, move || {
            let actor = Listener::new(listening.clone());
            (actor.pid(), actor.start())
        });
        let gauge = PressureOptions {
            gauges: self.gauges,
            manager: manager.clone(),
            config: changes.clone(),
            log: log.clone(),
        };
        let pressure_spec = ChildSpec::new("pressure_gauge", SHUTDOWN_MAX, move || {
            let actor = PressureGauge::new(gauge.clone());
            (actor.pid(), actor.start())
        });
        let mut children = vec![manager_spec, config_spec, pressure_spec, executor_spec];
        children.extend(replication_specs);
        children.push(listener_spec);
        if http.is_some() || https.is_some() {
            let shared = HttpContext {
                pool,
                manager: manager.clone(),
                config_listener: config_listener.clone(),
                config: changes,
                authority,
                metrics: metrics.clone(),
                replications,
                in_flight,
                tasks: Default::default(),
                history: Default::default(),
                stopping: watch::Sender::new(false),
                log: log.clone(),
            };
            let options = HttpOptions {
                plain: http,
                encrypted: https,
                certificate,
                shared: Arc::new(shared),
            };
            children.push(ChildSpec::new("http", SHUTDOWN_MAX, move || {
                let server = HttpServer::new(options.clone());
                (server.pid(), server.start())
            }));
        }
        children.push(service_manager);
        let supervisor = Supervisor::new(children, INTENSITY, &log);
        let ended = when_ended(&supervisor.pid());
        Ok(Daemon {
            supervisor: supervisor.start(),
            manager,
            config_listener,
            scheduler,
            metrics,
            socket: path,
            service_sockets,
            tcp: tcp_address,
            http: http_address,
            https: https_address,
            tls: tls_address,
            active,
            ended,
        })
    }
}

/// A service that runs. Dropping it without [`Daemon::stop`] leaves its end to the arbiter's.
pub struct Daemon {
    /// The pools.
    pub manager: RegisteredName<ProcManager>,
    /// The configuration.
    pub config_listener: RegisteredName<ConfigListener>,
    /// The scheduler of replications.
    pub scheduler: RegisteredName<ReplicationScheduler>,
    /// What it counts.
    pub metrics: Metrics,
    supervisor: Addr<Supervisor>,
    socket: PathBuf,
    service_sockets: Rc<ServiceSockets>,
    tcp: Option<SocketAddr>,
    http: Option<SocketAddr>,
    https: Option<SocketAddr>,
    tls: Option<SocketAddr>,
    active: Rc<ActiveConfig>,
    ended: oneshot::Receiver<ExitReason>,
}

impl Daemon {
    /// Begins a program or a service, which has the built-in languages.
    pub fn builder() -> DaemonBuilder {
        DaemonBuilder {
            languages: Registry::new(),
            program: None,
            sources: None,
            set_log_level: None,
            access_log: None,
            gauges: Machine::default().gauges(),
            inherited: Inherited::default(),
            metrics: Metrics::new(),
        }
    }

    /// Returns where clients connect.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the TCP address for clients, if there is one, with the port that it has got.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Returns where a service listens, as in the configuration, with the port that it has got;
    /// `None` for one that is not there.
    pub fn service(&self, name: &str) -> Option<String> {
        let socket = self.service_sockets.get(name)?;
        Some(socket.shown().to_owned())
    }

    /// Returns the services with where they listen.
    pub fn services(&self) -> Vec<(String, String)> {
        self.service_sockets.shown()
    }

    /// Returns the address of HTTP, if there is one, with the port that it has got.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Returns the address of HTTP over TLS, if there is one, with the port that it has got.
    pub fn https(&self) -> Option<SocketAddr> {
        self.https
    }

    /// Returns the address for clients over TLS, if there is one, with the port that it has got.
    pub fn tls(&self) -> Option<SocketAddr> {
        self.tls
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.active.config()
    }

    /// Begins to stop: accepts nobody, lets calls in hand finish unless it has to be `now`, then
    /// ends the processes. May be asked again with `now`. [`Daemon::ended`] tells when it is over.
    pub fn begin_stop(&self, now: bool) {
        // Ignores the mailbox's bound: the order must not be lost, and is given a few times.
        self.supervisor.do_send(Stop { now });
    }

    /// Waits for the end of the service, however it comes about, and returns why it ended. Safe to
    /// cancel.
    pub async fn ended(&mut self) -> ExitReason {
        (&mut self.ended).await.unwrap_or(ExitReason::Killed)
    }

    /// Stops the service: at once, or as gracefully as `shutdown_grace` allows. Returns why it
    /// ended; [`ExitReason::Killed`] when a part of it did not end in time and was left behind.
    pub async fn stop(mut self, now: bool) -> ExitReason {
        self.begin_stop(now);
        let grace = self.config().server.shutdown_grace;
        if !now && let Ok(reason) = actix_rt::time::timeout(grace, self.ended()).await {
            return reason;
        }
        self.begin_stop(true);
        let ended = actix_rt::time::timeout(STOP_NOW_MAX, self.ended()).await;
        ended.unwrap_or(ExitReason::Killed)
    }
}

fn manager_spec(
    active: Rc<ActiveConfig>,
    spawner: Spawner,
    metrics: Metrics,
    log: Logger,
) -> (RegisteredName<ProcManager>, ChildSpec) {
    let make = move || {
        let settings = (active.manager_settings)(&active.config());
        let manager = ProcManager::new(Arc::new(settings), spawner.clone(), &log)
            .with_metrics(metrics.clone());
        (manager.pid(), manager.start())
    };
    ChildSpec::named("proc_manager", SHUTDOWN_MAX, make)
}

fn config_spec(
    active: Rc<ActiveConfig>,
    manager: RegisteredName<ProcManager>,
    log: Logger,
) -> (RegisteredName<ConfigListener>, ChildSpec) {
    let make = move || {
        let listener = ConfigListener::new(Rc::clone(&active), manager.clone(), &log);
        (listener.pid(), listener.start())
    };
    ChildSpec::named("config_listener", SHUTDOWN_MAX, make)
}

/// Starts the store, and returns whether it is open.
///
/// One that was named, or is there, has to be usable, for it may hold replications. One in the usual
/// place that is not there is made when it is needed first: a service that only lends processes needs
/// none. One in the usual place that another service has, or that this user may not open, is tried
/// again whenever it is needed.
async fn open_store(
    config: &Config,
    states: &Arc<DocStates>,
    metrics: &Metrics,
    log: &Logger,
) -> Result<(Store, bool), StartError> {
    let place = StorePlace::of_config(&config.store);
    // Nobody waits for a file of another service; a database comes back.
    let is_named = config.store.url.is_none() && config.origin("store", "path") != Origin::Default;
    let watcher: Arc<dyn Watcher> = states.clone();
    let store = Store::start(place.clone(), watcher, metrics.store(), log)?;
    if !is_named && !place.exists() {
        return Ok((store, false));
    }
    if place.exists() {
        states.lock().await_store();
    }
    match store.open().await {
        Err(StoreError::Open(error)) if !is_named && error.may_pass() => {
            warn!(log, "the store cannot be opened"; "error" => %error,
                  "effect" => "no replication runs until it can be");
            Ok((store, false))
        }
        opened => Ok(opened.map(|()| (store, true))?),
    }
}

/// Returns what this daemon tells others of itself.
fn daemon_name(http: Option<SocketAddr>) -> DaemonName {
    let system = rustix::system::uname();
    let machine = system.nodename().to_string_lossy().into_owned();
    let address = match http {
        Some(address) if address.ip().is_unspecified() => format!("{machine}:{}", address.port()),
        Some(address) => address.to_string(),
        None => machine,
    };
    DaemonName {
        address: address.into(),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

async fn read_certificate(config: &Config) -> Result<Option<Arc<ServerConfig>>, StartError> {
    let config = config.clone();
    Ok(blocking::run("certificate", move || tls::read(&config)).await??)
}

/// Takes an address, if there is one to be taken, or the socket that was passed for it.
fn bind(
    inherited: &Inherited,
    key: &'static str,
    address: Option<SocketAddr>,
    backlog: u32,
) -> Result<Option<Rc<Bound>>, StartError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let bound = match inherited.tcp(key)? {
        Some(passed) => passed,
        None => bind_address(key, address, backlog)?,
    };
    Ok(Some(Rc::new(bound)))
}

fn executor_spec(
    manager: RegisteredName<ProcManager>,
    records: Rc<CallRecords>,
    log: Logger,
) -> (RegisteredName<PoolExecutor>, ChildSpec) {
    let make = move || {
        let executor = PoolExecutor::new(manager.clone(), Rc::clone(&records), &log);
        (executor.pid(), executor.start())
    };
    ChildSpec::named("pool_executor", SHUTDOWN_MAX, make)
}

/// Returns what resolves when an actor ends.
pub(crate) fn when_ended(pid: &Pid) -> oneshot::Receiver<ExitReason> {
    struct Watcher(Option<oneshot::Sender<ExitReason>>);

    impl Actor for Watcher {
        type Context = Context<Self>;
    }

    impl Handler<Down> for Watcher {
        type Result = ();

        fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
            if let Some(waiting) = self.0.take() {
                // Nobody may wait any more.
                let _ = waiting.send(msg.reason);
            }
            ctx.stop();
        }
    }

    let (sender, receiver) = oneshot::channel();
    pid.monitor(Watcher(Some(sender)).start().recipient());
    receiver
}
