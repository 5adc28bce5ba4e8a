#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use slog::Logger;
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use crate::ConfigWatch;
use crate::actors::config_listener::shared::SharedSettings;
use crate::actors::config_listener::{ActiveConfig, ConfigListener};
use crate::actors::language::Registry;
use crate::actors::proc_manager::ProcManager;
use crate::app::settings::manager_settings;
use crate::audit::AuditLog;
use crate::config::{Config, Sources};
use crate::messages::config_listener::{Reload, ReloadError, SetValue};
use crate::otp::{PidGuard, RegisteredName, Stop};
use crate::replicator::http_config;
use child::Spawner;
use replication::endpoint::Http;
use store::fleet::{FleetStore, Override};
use store::suite::fake_fleet::FakeFleet;

/// The deadline for a change to become visible.
const PATIENCE: Duration = Duration::from_secs(60);

/// The part of a daemon that holds its configuration.
struct Daemon {
    listener: Addr<ConfigListener>,
    manager: Addr<ProcManager>,
    config: ConfigWatch,
    active: Rc<ActiveConfig>,
    _folder: tempfile::TempDir,
}

impl Daemon {
    /// Starts a daemon with this text in its configuration file.
    fn start(fleet: &Arc<FakeFleet>, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settee.toml");
        std::fs::write(&file, text).unwrap();
        let sources = Sources {
            files: vec![file],
            ..Sources::default()
        };
        let config = Arc::new(crate::config::load(&sources).unwrap().config);
        let log = Logger::root(slog::Discard, slog::o!());
        let settings = |config: &Arc<Config>| {
            manager_settings(config, Path::new("settee"), &Registry::new(), &[])
        };
        let manager =
            ProcManager::new(Arc::new(settings(&config)), Spawner::start().unwrap(), &log);
        let manager = manager.start();
        let http = Http::new(http_config(&config.replicator), &log).unwrap();
        let (current, config) = watch::channel(config);
        let fleet: Arc<dyn FleetStore> = Arc::clone(fleet) as _;
        let active = Rc::new(ActiveConfig {
            sources: RefCell::new(Some(sources)),
            shared: Some(SharedSettings {
                fleet,
                has_joined: Cell::new(false),
                is_told: Cell::new(false),
            }),
            service_sockets: Rc::default(),
            http,
            manager_settings: Arc::new(settings),
            current,
            audit: AuditLog::new(log.clone(), None),
            set_log_level: None,
            certificate: Arc::default(),
        });
        let name = RegisteredName::new(manager.clone());
        let listener = ConfigListener::new(Rc::clone(&active), name, &log, PidGuard::new()).start();
        Self {
            listener,
            manager,
            config,
            active,
            _folder: folder,
        }
    }

    async fn set(&self, section: &str, key: &str, value: Option<&str>) -> Result<(), ReloadError> {
        let order = SetValue(Override {
            section: section.to_owned(),
            key: key.to_owned(),
            value: value.map(str::to_owned),
        });
        self.listener.send(order).await.unwrap().map(drop)
    }

    async fn wait_for(&self, what: &str, is_so: impl FnMut(&Arc<Config>) -> bool) {
        let mut config = self.config.clone();
        let waiting = timeout(PATIENCE, config.wait_for(is_so)).await;
        waiting.unwrap_or_else(|_| panic!("{what}")).unwrap();
    }

    async fn stop(self) {
        self.listener.send(Stop { now: true }).await.unwrap();
        self.manager.send(Stop { now: true }).await.unwrap();
    }
}

fn max_jobs(config: &Config) -> u64 {
    config.replicator.max_jobs
}

#[actix_rt::test]
async fn a_setting_of_one_daemon_applies_to_all_and_to_later_ones() {
    let fleet = Arc::new(FakeFleet::default());
    let (one, two) = (Daemon::start(&fleet, ""), Daemon::start(&fleet, ""));
    one.set("replicator", "max_jobs", Some("7")).await.unwrap();
    assert_eq!(max_jobs(&one.config.borrow()), 7);
    two.wait_for("the other one has it", |config| max_jobs(config) == 7)
        .await;
    let late = Daemon::start(&fleet, "[replicator]\nmax_jobs = 3\n");
    late.wait_for("a later one has it", |config| max_jobs(config) == 7)
        .await;
    // Files do not override the shared setting, even after a reload.
    late.listener.send(Reload).await.unwrap().unwrap();
    assert_eq!(max_jobs(&late.config.borrow()), 7);
    two.set("replicator", "max_jobs", None).await.unwrap();
    late.wait_for("the file counts again", |config| max_jobs(config) == 3)
        .await;
    let again = two.set("replicator", "max_jobs", None).await;
    assert!(
        matches!(again, Err(ReloadError::NotSet { .. })),
        "{again:?}"
    );
    for daemon in [one, two, late] {
        daemon.stop().await;
    }
}

#[actix_rt::test]
async fn two_concurrent_changes_settle_on_the_last_one_at_both_daemons() {
    let fleet = Arc::new(FakeFleet::default());
    let (one, two) = (Daemon::start(&fleet, ""), Daemon::start(&fleet, ""));
    for number in 0..20 {
        let (odd, even) = ((1000 + number).to_string(), (2000 + number).to_string());
        let (odd, even) = tokio::join!(
            one.set("replicator", "max_jobs", Some(&odd)),
            two.set("replicator", "max_jobs", Some(&even)),
        );
        odd.and(even).unwrap();
        let kept = fleet.overrides().await.unwrap();
        let last: u64 = kept[0].value.as_ref().unwrap().parse().unwrap();
        for daemon in [&one, &two] {
            daemon
                .wait_for("both have the last one", |config| max_jobs(config) == last)
                .await;
        }
    }
    one.stop().await;
    two.stop().await;
}

#[actix_rt::test]
async fn invalid_settings_are_not_written_and_local_ones_not_shared() {
    let fleet = Arc::new(FakeFleet::default());
    let one = Daemon::start(&fleet, "");
    one.set("replicator", "max_jobs", Some("many"))
        .await
        .unwrap_err();
    one.set("server", "socket", Some("/elsewhere"))
        .await
        .unwrap_err();
    one.set("log", "level", Some("debug")).await.unwrap();
    one.set("server", "body_max", Some("2048")).await.unwrap();
    assert_eq!(one.config.borrow().server.body_max, 2048);
    assert_eq!(fleet.overrides().await.unwrap(), []);
    // The local setting stays when settings of other daemons are applied.
    one.set("replicator", "max_jobs", Some("7")).await.unwrap();
    one.listener.send(Reload).await.unwrap().unwrap();
    assert_eq!(one.config.borrow().server.body_max, 2048);
    one.stop().await;
}

#[actix_rt::test]
async fn a_daemon_keeps_its_old_setting_until_it_can_apply_the_new_one() {
    let fleet = Arc::new(FakeFleet::default());
    let (one, two) = (
        Daemon::start(&fleet, "[pools.a]\nlanguage = \"query\"\n"),
        Daemon::start(&fleet, ""),
    );
    one.set("pools.a", "max", Some("7")).await.unwrap();
    one.set("replicator", "max_jobs", Some("7")).await.unwrap();
    // The reload is handled after the refresh that the database's notification caused.
    let refused = two.listener.send(Reload).await.unwrap();
    refused.unwrap();
    assert_ne!(max_jobs(&two.config.borrow()), 7);
    let file = two.active.sources.borrow().clone().unwrap().files[0].clone();
    std::fs::write(file, "[pools.a]\nlanguage = \"query\"\n").unwrap();
    two.listener.send(Reload).await.unwrap().unwrap();
    two.wait_for("it can", |config| max_jobs(config) == 7).await;
    one.stop().await;
    two.stop().await;
}

#[actix_rt::test]
async fn a_shared_setting_is_not_applied_while_the_database_is_gone() {
    let fleet = Arc::new(FakeFleet::default());
    let one = Daemon::start(&fleet, "");
    let before = max_jobs(&one.config.borrow());
    fleet.set_gone(true);
    let refused = one.set("replicator", "max_jobs", Some("7")).await;
    assert!(matches!(refused, Err(ReloadError::Store(_))), "{refused:?}");
    assert_eq!(max_jobs(&one.config.borrow()), before);
    // A daemon's own settings do not need the database.
    one.set("server", "body_max", Some("2048")).await.unwrap();
    one.listener.send(Reload).await.unwrap().unwrap();
    fleet.set_gone(false);
    let made = Override {
        section: "replicator".to_owned(),
        key: "max_jobs".to_owned(),
        value: Some("9".to_owned()),
    };
    fleet.set_overrides(vec![made]).await.unwrap();
    one.wait_for("the database is back", |config| max_jobs(config) == 9)
        .await;
    one.stop().await;
}
