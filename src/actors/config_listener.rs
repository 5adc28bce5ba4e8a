//! ConfigListener: holds the current configuration and replaces it on demand.
//!
//! SUMMARY   Reloads the configuration, compares it with the current one, and notifies its followers of changes.
//! PROMISES  A change is applied whole or not at all. One reload at a time. A value set over HTTP adopts no pending
//!           edit of the files. Files are read and compared, and the manager's settings made, off the arbiter.
//! CALLED    By HUP, and over HTTP.
//! LIMITS    Values set over HTTP are lost when the service ends, unless daemons share them. A plan opens the sockets
//!           that a reload would need, to check that they are available, and closes them at once.
//! SOURCE    couch_proc_manager's config listener; config:reload/0.

pub mod shared;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use rustls::ServerConfig;
use slog::{Logger, error, info, o, warn};
use tokio::sync::watch;

use crate::actors::proc_manager::{ManagerSettings, ProcManager, ReloadConfig};
use crate::actors::service::socket::{Prepared, ServiceSockets};
use crate::audit::AuditLog;
use crate::config::reload::{self, Change, Effect};
use crate::config::{Config, Notice, Origin, Sources, keys, load};
use crate::messages::config_listener::{
    CompareFiles, PlanReload, Reload, ReloadError, SetLogLevel, SetValue,
};
use crate::otp::{PidGuard, RegisteredName, Stop};
use crate::replicator::http_config;
use crate::tls::{self, Certificate};
use replication::endpoint::{Http, PreparedHttp};
use shared::{Refresh, SharedSettings};
use store::fleet::Override;

/// The changes that a reload makes or would make.
type Changes = Result<Vec<Change>, ReloadError>;

/// Derives the manager's settings from a configuration.
pub type ToManagerSettings = dyn Fn(&Arc<Config>) -> ManagerSettings + Send + Sync;

/// The current configuration and its followers, shared by actors that may be restarted.
pub struct ActiveConfig {
    /// Its sources, with the files as last read; `None` for one built in the program, which never changes.
    pub sources: RefCell<Option<Sources>>,
    /// Settings shared with other daemons; `None` without any.
    pub shared: Option<SharedSettings>,
    /// Sockets of services, opened before a configuration with them takes effect.
    pub service_sockets: Rc<ServiceSockets>,
    /// The connections of all replications.
    pub http: Http,
    /// Derives the manager's settings from a configuration.
    pub manager_settings: Arc<ToManagerSettings>,
    /// The configuration in force.
    pub current: watch::Sender<Arc<Config>>,
    /// The certificate for new connections.
    pub(crate) certificate: Arc<Certificate>,
    /// Records changes made by other daemons.
    pub audit: AuditLog,
    /// Called when the log's level changes.
    pub set_log_level: Option<SetLogLevel>,
}

impl ActiveConfig {
    /// Returns the current configuration.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.current.borrow())
    }

    /// Returns the sources, whose files are to be read again.
    fn unread_sources(&self) -> Option<Sources> {
        let sources = self.sources.borrow().clone()?;
        Some(Sources {
            texts: None,
            ..sources
        })
    }
}

/// Keeps the configuration in force.
pub struct ConfigListener {
    active: Rc<ActiveConfig>,
    manager: RegisteredName<ProcManager>,
    log: Logger,
    pid_guard: PidGuard,
}

impl ConfigListener {
    /// Creates the keeper of a configuration.
    pub fn new(
        active: Rc<ActiveConfig>,
        manager: RegisteredName<ProcManager>,
        log: &Logger,
        pid_guard: PidGuard,
    ) -> Self {
        Self {
            active,
            manager,
            log: log.new(o!("component" => "config_listener")),
            pid_guard,
        }
    }

    fn apply(&self, candidate: Candidate) -> Result<Applied, ReloadError> {
        let Candidate {
            compared,
            settings,
            sockets,
            certificate,
            http,
        } = candidate;
        let (changes, overridden) = (compared.changes, compared.overridden);
        reload::require_reload(&changes)?;
        let old = self.active.config();
        // Pools are reloaded even without a change: a cause of failures outside the configuration may be corrected.
        let pools = self.manager.call(ReloadConfig(Arc::new(settings)));
        let applied = |changes| Applied {
            changes,
            // A restarted manager starts with the current settings.
            pools: Box::pin(pools.map(drop)),
        };
        self.active.sources.replace(compared.sources);
        self.active.certificate.set(certificate);
        self.active.http.configure(http);
        if changes.is_empty() {
            if overridden.is_empty() {
                info!(self.log, "configuration is unchanged")
            } else {
                info!(self.log, "configuration is unchanged: values set over HTTP override it";
                    "changes" => describe_all(&overridden))
            }
            return Ok(applied(overridden));
        }
        if let Some(set_level) = &self.active.set_log_level {
            set_level(compared.config.log.level);
        }
        self.active.service_sockets.commit(sockets);
        self.active.current.send_replace(compared.config);
        info!(self.log, "configuration changed"; "changes" => describe_set(&changes, &old, &self.active.config()));
        Ok(applied([changes, overridden].concat()))
    }

    /// Returns the sources with the value set, or reset.
    fn candidate(&self, wanted: Override) -> Result<Sources, ReloadError> {
        let Override {
            section,
            key,
            value,
        } = wanted;
        let sources = self.active.sources.borrow().clone();
        let mut sources = sources.ok_or(ReloadError::NoSources)?;
        let origin = self.active.config().origin(&section, &key);
        let place = (section, key);
        if let Some(value) = value {
            sources.overlay.insert(place, value);
        } else if sources.overlay.remove(&place).is_none() {
            let (section, key) = place;
            return Err(ReloadError::NotSet {
                section,
                key,
                origin,
            });
        }
        Ok(sources)
    }

    fn finish(&self, loaded: Loading) -> Result<Applied, ReloadError> {
        let result = loaded.and_then(|candidate| {
            for notice in &candidate.compared.notices {
                warn!(self.log, "a setting has no effect"; "line" => notice.to_string());
            }
            self.apply(candidate)
        });
        if let Err(error) = &result {
            error!(self.log, "configuration was not reloaded, the old one stays in force";
                   "error" => %error, "remedy" => "settee check-config shows the mistakes");
        }
        result
    }
}

/// The current configuration after a change.
struct Applied {
    changes: Vec<Change>,
    /// Ends when all pools follow it.
    pools: LocalBoxFuture<'static, ()>,
}

impl Applied {
    /// Returns the changes once all pools follow them, so that requests sent after the answer see them.
    async fn by_all(this: Result<Self, ReloadError>) -> Changes {
        let Self { changes, pools } = this?;
        pools.await;
        Ok(changes)
    }
}

/// A configuration compared with the current one.
struct Compared {
    sources: Option<Sources>,
    config: Arc<Config>,
    notices: Vec<Notice>,
    overridden: Vec<Change>,
    changes: Vec<Change>,
}

impl Compared {
    /// Returns what a reload would do: all differences, and all values overridden over HTTP.
    fn preview(self) -> Vec<Change> {
        [self.changes, self.overridden].concat()
    }
}

/// A configuration that may be applied, with its resources.
struct Candidate {
    compared: Compared,
    settings: ManagerSettings,
    sockets: Prepared,
    certificate: Option<Arc<ServerConfig>>,
    http: PreparedHttp,
}

type Loading = Result<Candidate, ReloadError>;

/// Reads the configuration, and opens the sockets that it needs.
async fn read(active: Rc<ActiveConfig>, sources: Option<Sources>) -> Loading {
    let (http, manager_settings) = (active.http.clone(), Arc::clone(&active.manager_settings));
    let read = compare(&active, sources, move |config| {
        let certificate = tls::read(config).map_err(Arc::new)?;
        let http = http.prepare(http_config(&config.replicator))?;
        Ok((certificate, http, manager_settings(config)))
    });
    let (compared, (certificate, http, settings)) = read.await?;
    let sockets = active.service_sockets.prepare(&compared.config.services);
    Ok(Candidate {
        sockets: sockets.await.map_err(Arc::new)?,
        compared,
        settings,
        certificate,
        http,
    })
}

/// Reads the configuration, compares it with the current one, and derives a value from it, on a separate thread;
/// without sources the configuration is unchanged.
async fn compare<T: Send + 'static>(
    active: &ActiveConfig,
    sources: Option<Sources>,
    also: impl FnOnce(&Arc<Config>) -> Result<T, ReloadError> + Send + 'static,
) -> Result<(Compared, T), ReloadError> {
    let old = active.config();
    let comparing = blocking::run("configuration", move || {
        let (config, notices, overridden, sources) = match sources {
            Some(mut sources) => {
                let loaded = load(&sources)?;
                sources.texts = Some(loaded.texts);
                let config = Arc::new(loaded.config);
                (config, loaded.notices, loaded.overridden, Some(sources))
            }
            None => (Arc::clone(&old), Vec::new(), Vec::new(), None),
        };
        let made = also(&config)?;
        let changes = reload::diff(&old, &config);
        let compared = Compared {
            sources,
            config,
            notices,
            overridden,
            changes,
        };
        Ok((compared, made))
    });
    comparing
        .await
        .map_err(|error| ReloadError::NotRead(error.to_string()))?
}

fn describe_all(changes: &[Change]) -> String {
    let text: Vec<String> = changes.iter().map(describe).collect();
    text.join("; ")
}

/// As [`describe_all`]; for added or removed sections only explicitly set values.
fn describe_set(changes: &[Change], old: &Config, new: &Config) -> String {
    let is_set = |change: &&Change| {
        let config = match (&change.old, &change.new) {
            (None, Some(_)) => new,
            (Some(_), None) => old,
            _ => return true,
        };
        config.origin(&change.section, &change.key) != Origin::Default
    };
    let set: Vec<Change> = changes.iter().filter(is_set).cloned().collect();
    match (set.is_empty(), changes.first()) {
        (true, Some(first)) => format!("[{}]: nothing is set", first.section),
        _ => describe_all(&set),
    }
}

fn describe(change: &Change) -> String {
    let Change {
        section,
        key,
        old,
        new,
        effect,
    } = change;
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let (old, new) = (shown(old), shown(new));
    match effect {
        Effect::Overridden => format!("[{section}] {key}: {old} stays, not {new}"),
        Effect::Reload | Effect::Restart => format!("[{section}] {key}: {old} -> {new}"),
    }
}

impl Actor for ConfigListener {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if let Some(shared) = &self.active.shared {
            shared::follow(&*shared.fleet, ctx);
        }
    }
}

impl Handler<Reload> for ConfigListener {
    type Result = AtomicResponse<Self, Changes>;

    fn handle(&mut self, _: Reload, _: &mut Self::Context) -> Self::Result {
        let sources = self.active.unread_sources();
        let loading = read(Rc::clone(&self.active), sources).into_actor(self);
        AtomicResponse::new(Box::pin(loading.then(|loaded, listener, ctx| {
            let applied = listener.finish(loaded);
            if let Some(shared) = &listener.active.shared {
                // A previously invalid combination may be valid now.
                shared.is_told.set(false);
                ctx.notify(Refresh);
            }
            Applied::by_all(applied).into_actor(listener)
        })))
    }
}

impl Handler<PlanReload> for ConfigListener {
    type Result = AtomicResponse<Self, Changes>;

    fn handle(&mut self, _: PlanReload, _: &mut Self::Context) -> Self::Result {
        let sources = self.active.unread_sources();
        let loading = read(Rc::clone(&self.active), sources).into_actor(self);
        AtomicResponse::new(Box::pin(
            loading.map(|candidate, _, _| Ok(candidate?.compared.preview())),
        ))
    }
}

impl Handler<CompareFiles> for ConfigListener {
    type Result = ResponseFuture<Changes>;

    fn handle(&mut self, _: CompareFiles, _: &mut Self::Context) -> Self::Result {
        let active = Rc::clone(&self.active);
        Box::pin(async move {
            let sources = active.unread_sources();
            let (compared, ()) = compare(&active, sources, |_| Ok(())).await?;
            Ok(compared.preview())
        })
    }
}

/// A set value is kept only if the whole configuration is valid with it.
impl Handler<SetValue> for ConfigListener {
    type Result = AtomicResponse<Self, Changes>;

    fn handle(&mut self, SetValue(wanted): SetValue, _: &mut Self::Context) -> Self::Result {
        let candidate = self.candidate(wanted.clone());
        let active = Rc::clone(&self.active);
        let setting = async move {
            // The next message waits until the value is applied.
            let candidate = read(Rc::clone(&active), Some(candidate?)).await?;
            let shared = active.shared.as_ref();
            if let Some(shared) = shared.filter(|_| keys::is_shared(&wanted.section)) {
                reload::require_reload(&candidate.compared.changes)?;
                shared.fleet.set_overrides(vec![wanted]).await?;
            }
            Ok::<_, ReloadError>(candidate)
        };
        let setting = setting.into_actor(self);
        AtomicResponse::new(Box::pin(setting.then(|result, listener, _| {
            let applied = result.and_then(|candidate| listener.apply(candidate));
            Applied::by_all(applied).into_actor(listener)
        })))
    }
}

impl Handler<Stop> for ConfigListener {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        self.pid_guard.shut_down(ctx);
    }
}
