//! `settee serve`: runs the service in the foreground.
//!
//! SUMMARY   Loads the configuration, starts the [`Daemon`], and turns signals into orders for it.
//! PROMISES  TERM and INT stop it gracefully within `shutdown_grace`, a second one at once. HUP reopens the log files
//!           and reloads the configuration; if that has an error, the current one stays in force. A query server with
//!           a missing or wrong command never stops it.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use actix_rt::time::{Instant, sleep_until, timeout};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use sd_notify::NotifyState;
use slog::{Logger, error, info, o, warn};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::actors::listener::inherited::Inherited;
use crate::actors::listener::socket::SocketError;
use crate::app::{Daemon, DaemonBuilder, STOP_NOW_MAX, StartError};
use crate::audit::{AuditLog, Done, Sender};
use crate::config::{Loaded, Log, LogFormat, LogLevel, Sources, generated};
use crate::logging::{Logging, Reopener, libraries};
use crate::messages::config_listener::Reload;
use crate::operations::Route;
use crate::otp::ExitReason;
use crate::tls::CertificateError;
use child::cell::OwnGroups;
use child::watches::{self, WATCHES_MIN};
use store::{OpenError, OpenProblem, StoreError};

use super::config_args::ConfigArgs;
use super::exit::{CliError, CliResult, Exit, IoAt};
use super::output;
use super::service_manager;

/// Options of `settee serve`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Listens on the Unix socket [server] socket, for HTTP on X.http.sock beside X.sock, on [server] http
(127.0.0.1:5995 by default, off for none) and with TLS on [ssl], and for clients that log in on
[server] tcp; prints a line for each but X.http.sock. Without an administrator in the configuration,
creates one, and prints which file has the password. Sockets that systemd passes are used instead of
new ones, by name: socket, http-socket, http, https, tcp, tls and service-NAME.

Signals:
  TERM, INT  stop: calls in progress may finish within [server] shutdown_grace; a second one: now
  HUP        reload the configuration, and reopen the files of [log]

Exit codes:
  0   stopped by a signal
  64  the command line is wrong
  70  the service failed too often to continue
  74  the store is damaged, is of another format or has no room, or standard output cannot be written
  75  another settee answers on the socket, an address is in use, or the machine lacks resources
  77  the directory of the socket or the store, or a log file, is not accessible to this user, or
      others can enter it
  78  the configuration is wrong

Example:
  settee serve -c /etc/settee.toml")]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// The Unix socket, instead of [server] socket.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// How long reopening a log file may take before a reload continues without it.
const REOPEN_MAX: Duration = Duration::from_secs(5);

/// Maximum polls of the control groups of cells at shutdown, 10 ms apart, until they are empty.
const GROUP_ROUNDS_MAX: u32 = 100;

/// Runs the subcommand.
///
/// # Errors
/// The configuration or the socket is wrong, or the service gave up.
pub(super) fn run(args: &Args, mut builder: DaemonBuilder) -> CliResult {
    // Anyone who may write to a socket may connect: deny that to others even before the socket gets its own mode.
    let mask = umask(Mode::RWXU);
    umask(mask | Mode::WGRP | Mode::WOTH);
    // Before any thread starts: it changes the environment.
    builder.inherited = Inherited::of_environment().map_err(StartError::Inherited)?;
    let sources = Sources {
        socket: args.socket.clone(),
        is_for_service: true,
        ..args.config.sources(&builder.languages)
    };
    let Loaded {
        config,
        notices,
        texts,
        ..
    } = crate::config::load(&sources)?;
    let logs = Logs::open(&config.log)?;
    let log = logs.log.logger.clone();
    let reopeners = logs.all().filter_map(|(_, log)| log.reopener());
    let files: Vec<Reopener> = reopeners.collect();
    for notice in &notices {
        warn!(log, "a setting has no effect"; "line" => notice.to_string());
    }
    raise_open_files(&log);
    libraries::take_over(log.new(o!("component" => "http")));
    OwnGroups::read().enter_leaf();
    OwnGroups::read().remove_abandoned(0);
    let system = super::system()?;
    let ended = system.block_on(async move {
        builder.sources = Some(Sources {
            texts: Some(texts),
            ..sources
        });
        logs.give(&mut builder, &config.log);
        let mut signals = Signals::catch().io_at("signals")?;
        let app = builder.start(config, log.clone()).await?;
        if let Err(error) = output::print(&listening(&app)) {
            // The service must end inside its runtime.
            app.stop(true).await;
            return Err(error);
        }
        info!(log, "service is ready"; "version" => env!("CARGO_PKG_VERSION"));
        service_manager::notify(&[NotifyState::Ready]);
        let beat = actix_rt::spawn(service_manager::beat(app.manager.clone()));
        let ended = signals.follow(app, &files, &log).await;
        beat.abort();
        ended
    });
    OwnGroups::read().remove_abandoned(GROUP_ROUNDS_MAX);
    ended
}

/// The logs of the service.
struct Logs {
    log: Rc<Logging>,
    access: Option<Logging>,
    audit: Option<Logging>,
}

impl Logs {
    fn open(config: &Log) -> CliResult<Self> {
        let calls = Log {
            level: LogLevel::Info,
            format: LogFormat::Json,
            ..config.clone()
        };
        let file = |key, path: &Option<PathBuf>, config| {
            let open = |path| {
                let log = Logging::to_file(config, path);
                log.map_err(|error| log_file_error(key, path, &error))
            };
            path.as_deref().map(open).transpose()
        };
        let log = file("file", &config.file, config)?;
        Ok(Self {
            log: Rc::new(log.unwrap_or_else(|| Logging::to_stderr(config))),
            access: file("access_log", &config.access_log, &calls)?,
            audit: file("audit", &config.audit, &calls)?,
        })
    }

    /// Returns the open logs with their names.
    fn all(&self) -> impl Iterator<Item = (&'static str, &Logging)> {
        let access = self.access.iter().map(|log| ("access_log", log));
        let audit = self.audit.iter().map(|log| ("audit", log));
        [("log", &*self.log)].into_iter().chain(access).chain(audit)
    }

    /// Makes a service use these logs.
    fn give(&self, builder: &mut DaemonBuilder, config: &Log) {
        builder.access_log = self.access.as_ref().map(|access| access.logger.clone());
        builder.audit = self.audit.as_ref().map(|audit| {
            AuditLog::new(
                audit.logger.clone(),
                config.audit_required.then(|| audit.losses()),
            )
        });
        let losses = self.all().map(|(name, log)| (name, log.losses()));
        builder.metrics.watch_logs(losses.collect());
        let log = Rc::clone(&self.log);
        builder.set_log_level = Some(Rc::new(move |level| log.set_level(level)));
    }
}

/// Returns the error of a log file that cannot be opened.
pub(super) fn log_file_error(key: &str, path: &Path, error: &io::Error) -> CliError {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    let place = format!("[log] {key} {}", path.display());
    match error.kind() {
        NotFound | NotADirectory | IsADirectory => CliError::at(
            Exit::Config,
            place,
            error,
            "make its folder, or name a file",
        ),
        _ => CliError::io(place, error),
    }
}

/// Returns the addresses of the service, one per line.
fn listening(app: &Daemon) -> String {
    let mut lines = vec![format!("listening on unix:{}", app.socket().display())];
    let addresses = [
        ("tcp:", app.tcp(), ""),
        ("tls:", app.tls(), ""),
        ("http://", app.http(), "/"),
        ("https://", app.https(), "/"),
    ];
    for (scheme, address, end) in addresses {
        lines.extend(address.map(|address| format!("listening on {scheme}{address}{end}")));
    }
    for (name, address) in app.services() {
        lines.push(format!("service {name} listening on {address}"));
    }
    if let Some(path) = app.config().admin_password_file() {
        let (name, path) = (generated::NAME, path.display());
        lines.push(format!(
            "the password of the administrator {name} is in {path}"
        ));
    }
    lines
        .iter()
        .map(|line| format!("settee: {line}\n"))
        .collect()
}

/// The signals that the service handles.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Installs handlers for the signals, which by default end the program.
    fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Handles signals until the service has ended.
    async fn follow(&mut self, mut app: Daemon, files: &[Reopener], log: &Logger) -> CliResult {
        let mut stopping = Stopping::No;
        let mut until = Instant::now();
        loop {
            tokio::select! {
                reason = app.ended() => return outcome(&reason),
                _ = self.terminate.recv() => info!(log, "received a signal to stop"; "signal" => "TERM"),
                _ = self.interrupt.recv() => info!(log, "received a signal to stop"; "signal" => "INT"),
                _ = self.hang_up.recv() => {
                    reload(&app, files.to_vec(), log.clone());
                    continue;
                }
                () = sleep_until(until), if stopping != Stopping::No => match stopping {
                    Stopping::Now => return outcome(&ExitReason::Killed),
                    _ => warn!(log, "the grace is over"; "effect" => "running calls are cut off"),
                },
            }
            service_manager::notify(&[NotifyState::Stopping]);
            (stopping, until) = match stopping {
                Stopping::No => {
                    let grace = app.config().server.shutdown_grace;
                    (Stopping::Gracefully, Instant::now() + grace)
                }
                Stopping::Gracefully => (Stopping::Now, Instant::now() + STOP_NOW_MAX),
                Stopping::Now => (Stopping::Now, until),
            };
            app.begin_stop(stopping == Stopping::Now);
        }
    }
}

/// Progress of the service's shutdown.
#[derive(PartialEq)]
enum Stopping {
    No,
    Gracefully,
    Now,
}

/// Notifies service managers, reopens the log files and reloads the configuration; the listener logs the outcome.
fn reload(app: &Daemon, files: Vec<Reopener>, log: Logger) {
    let listener = app.config_listener.clone();
    let order = app.audit.begin(
        Sender::known(None, "signal HUP"),
        Route::ReloadConfig.into(),
    );
    actix_rt::spawn(async move {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            service_manager::notify(&[NotifyState::Reloading, now]);
        }
        for file in files {
            reopen(file, &log).await;
        }
        // Already logged by the listener.
        match listener.call(Reload).await {
            Ok(Ok(changes)) => {
                order.did(Done::of_config(&changes));
                order.finish(None);
            }
            Ok(Err(_)) => order.finish(Some("bad_config")),
            Err(_) => order.finish(Some("shutting_down")),
        }
        service_manager::notify(&[NotifyState::Ready]);
    });
}

async fn reopen(file: Reopener, log: &Logger) {
    let path = file.path().to_owned();
    let opened = match timeout(REOPEN_MAX, blocking::run("log-file", move || file.reopen())).await {
        Ok(opened) => opened.flatten(),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    if let Err(error) = opened {
        error!(log, "a log file was not reopened"; "file" => %path.display(), "error" => %error,
            "effect" => "records still go to the old file", "remedy" => "correct its path or permissions, and send HUP");
    }
}

fn outcome(reason: &ExitReason) -> CliResult {
    match reason {
        ExitReason::Normal | ExitReason::Shutdown => Ok(()),
        reason => Err(match watches::require(WATCHES_MIN) {
            // If watches are lacking even now that the ended parts have freed theirs, this explains the failure.
            Err(error) => CliError::no_room("the service gave up", &error),
            Ok(()) => CliError::new(
                Exit::Internal,
                format!("the service gave up: {reason}"),
                "see its log, and please report this",
            ),
        }),
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        let message = error.to_string();
        let (code, hint): (Exit, String) = match error {
            StartError::Socket(error) => {
                let code = match &error {
                    SocketError::InUse(_) => Exit::TryAgain,
                    SocketError::NotOurs { .. } => Exit::Config,
                    SocketError::Exposed { .. } | SocketError::System { .. } => Exit::NoPermission,
                };
                (code, error.remedy().into())
            }
            StartError::Address(error) => (listen_code(error.source.kind()), error.remedy()),
            StartError::Service(error) => (listen_code(error.kind), error.remedy.into()),
            StartError::Inherited(error) => (Exit::Config, error.remedy().into()),
            StartError::Store(StoreError::Open(error)) => return error.into(),
            StartError::Store(_) => (Exit::Io, "look at the disk".into()),
            StartError::Shared(error) => (Exit::Config, error.remedy().into()),
            StartError::Certificate(_) => (Exit::Config, CertificateError::remedy().into()),
            StartError::Replication(_) => {
                let hint = "correct it in [replicator] of the configuration";
                (Exit::Config, hint.into())
            }
            StartError::Thread(error) => return Self::no_room("cannot start a thread", &error),
            StartError::Program(error) => return Self::no_program(&error),
        };
        Self::new(code, message, hint)
    }
}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> Self {
        let code = match &error.problem {
            OpenProblem::InUse | OpenProblem::Database(_) | OpenProblem::Limit(_) => Exit::TryAgain,
            OpenProblem::Refused(_) | OpenProblem::Rights(_) => Exit::Config,
            OpenProblem::Io(io::ErrorKind::PermissionDenied, _) => Exit::NoPermission,
            _ => Exit::Io,
        };
        Self::new(code, error.to_string(), error.remedy())
    }
}

/// Returns the exit code for an address that cannot be bound.
fn listen_code(kind: io::ErrorKind) -> Exit {
    match kind {
        io::ErrorKind::AddrInUse => Exit::TryAgain,
        io::ErrorKind::PermissionDenied => Exit::NoPermission,
        _ => Exit::Config,
    }
}

/// Raises the limit of open files to the maximum: every client and process needs some.
fn raise_open_files(log: &Logger) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, raised).is_err() {
        warn!(log, "cannot raise the limit of open files"; "limit" => ?limit.current);
    }
}
