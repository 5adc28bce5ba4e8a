//! The children of the service's supervisor, and how each is made and restarted.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use slog::Logger;

use super::SHUTDOWN_MAX;
use super::replication::OwnArbiter;
use crate::actors::config_listener::{ActiveConfig, ConfigListener};
use crate::actors::cost_keeper::CostKeeper;
use crate::actors::health_watcher::{HealthOptions, HealthWatcher};
use crate::actors::listener::{Listener, ListenerOptions};
use crate::actors::pool_executor::PoolExecutor;
use crate::actors::pressure_gauge::{PressureGauge, PressureOptions};
use crate::actors::proc_manager::ProcManager;
use crate::actors::service_manager::{ServiceManager, ServiceManagerOptions};
use crate::drain::Drain;
use crate::functions::records::CallRecords;
use crate::http::server::{HttpOptions, HttpServer};
use crate::metrics::Metrics;
use crate::otp::registered_name::RegisteredName;
use crate::otp::supervisor::ChildSpec;
use child::Spawner;

pub(super) fn manager(
    active: Rc<ActiveConfig>,
    spawner: Spawner,
    metrics: Metrics,
    drain: Drain,
    log: Logger,
) -> (RegisteredName<ProcManager>, ChildSpec) {
    let make = move || {
        let settings = (active.manager_settings)(&active.config());
        let manager = ProcManager::new(Arc::new(settings), spawner.clone(), &log)
            .with_metrics(metrics.clone())
            .with_drain(drain.clone());
        (manager.pid(), manager.start())
    };
    ChildSpec::named("proc_manager", SHUTDOWN_MAX, make)
}

pub(super) fn config_listener(
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

pub(super) fn executor(
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

pub(super) fn cost_keeper(
    records: Rc<CallRecords>,
    file: Option<PathBuf>,
    metrics: Metrics,
    log: Logger,
) -> ChildSpec {
    ChildSpec::new("cost_keeper", SHUTDOWN_MAX, move || {
        let metrics = metrics.clone();
        let keeper = CostKeeper::new(Rc::clone(&records), file.clone(), metrics, &log);
        (keeper.pid(), keeper.start())
    })
}

pub(super) fn pressure_gauge(options: PressureOptions) -> ChildSpec {
    ChildSpec::new("pressure_gauge", SHUTDOWN_MAX, move || {
        let actor = PressureGauge::new(options.clone());
        (actor.pid(), actor.start())
    })
}

/// The HealthWatcher, on a different thread from the pools, so that they do not wait while it checks.
pub(super) fn health_watcher(options: HealthOptions, arbiter: Rc<OwnArbiter>) -> ChildSpec {
    ChildSpec::new("health_watcher", SHUTDOWN_MAX, move || {
        let watcher = HealthWatcher::new(options.clone());
        let pid = watcher.pid();
        let address = HealthWatcher::start_in_arbiter(&arbiter.0.handle(), move |_| watcher);
        (pid, address)
    })
}

pub(super) fn listener(options: ListenerOptions) -> ChildSpec {
    ChildSpec::new("listener", SHUTDOWN_MAX, move || {
        let actor = Listener::new(options.clone());
        (actor.pid(), actor.start())
    })
}

pub(super) fn http_server(options: HttpOptions) -> ChildSpec {
    ChildSpec::new("http", SHUTDOWN_MAX, move || {
        let server = HttpServer::new(options.clone());
        (server.pid(), server.start())
    })
    .beside()
}

pub(super) fn service_manager(options: ServiceManagerOptions) -> ChildSpec {
    ChildSpec::new("service_manager", SHUTDOWN_MAX, move || {
        let actor = ServiceManager::new(options.clone());
        (actor.pid(), actor.start())
    })
    .beside()
}
