//! The children of the service's supervisor, and how each is made and restarted.

use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::watch;

use super::replication::OwnArbiter;
use super::{Assembly, SHUTDOWN_MAX, daemon_name};
use crate::actors::client::ClientContext;
use crate::actors::config_listener::ConfigListener;
use crate::actors::cost_keeper::{self, CostKeeper};
use crate::actors::health_watcher::{HealthOptions, HealthWatcher};
use crate::actors::listener::{Listener, ListenerOptions};
use crate::actors::pool_executor::{PoolExecutor, PoolHandle};
use crate::actors::pressure_gauge::{PressureGauge, PressureOptions};
use crate::actors::proc_manager::ProcManager;
use crate::actors::service_manager::{ServiceManager, ServiceManagerOptions};
use crate::functions::records::CallRecords;
use crate::http::HttpContext;
use crate::http::server::{HttpOptions, HttpServer};
use crate::otp::registered_name::RegisteredName;
use crate::otp::supervisor::ChildSpec;
use child::Spawner;

impl Assembly {
    pub(super) fn manager(&self, spawner: Spawner) -> (RegisteredName<ProcManager>, ChildSpec) {
        let (active, metrics) = (Rc::clone(&self.active), self.metrics.clone());
        let (drain, log) = (self.drain.clone(), self.log.clone());
        ChildSpec::named("proc_manager", SHUTDOWN_MAX, move || {
            let settings = (active.manager_settings)(&active.config());
            let manager = ProcManager::new(Arc::new(settings), spawner.clone(), &log)
                .with_metrics(metrics.clone())
                .with_drain(drain.clone());
            (manager.pid(), manager.start())
        })
    }

    pub(super) fn config_listener(
        &self,
        manager: &RegisteredName<ProcManager>,
    ) -> (RegisteredName<ConfigListener>, ChildSpec) {
        let (active, manager, log) = (Rc::clone(&self.active), manager.clone(), self.log.clone());
        ChildSpec::named("config_listener", SHUTDOWN_MAX, move || {
            let listener = ConfigListener::new(Rc::clone(&active), manager.clone(), &log);
            (listener.pid(), listener.start())
        })
    }

    pub(super) fn executor(
        &self,
        manager: &RegisteredName<ProcManager>,
        records: &Rc<CallRecords>,
    ) -> (RegisteredName<PoolExecutor>, ChildSpec) {
        let (manager, records, log) = (manager.clone(), Rc::clone(records), self.log.clone());
        ChildSpec::named("pool_executor", SHUTDOWN_MAX, move || {
            let executor = PoolExecutor::new(manager.clone(), Rc::clone(&records), &log);
            (executor.pid(), executor.start())
        })
    }

    /// Makes the records of calls, and the child that saves them.
    pub(super) fn records(&self) -> (Rc<CallRecords>, ChildSpec) {
        let file = self.config.borrow().log.costs.clone();
        let (costs, file) = cost_keeper::load(file.as_deref(), &self.log);
        let records = Rc::new(CallRecords::new(
            self.config.clone(),
            self.log.clone(),
            self.access_log.clone(),
            costs,
        ));
        let (kept, metrics, log) = (Rc::clone(&records), self.metrics.clone(), self.log.clone());
        let keeper = ChildSpec::new("cost_keeper", SHUTDOWN_MAX, move || {
            let keeper = CostKeeper::new(Rc::clone(&kept), file.clone(), metrics.clone(), &log);
            (keeper.pid(), keeper.start())
        });
        (records, keeper)
    }

    pub(super) fn pressure_gauge(&self, manager: &RegisteredName<ProcManager>) -> ChildSpec {
        let options = PressureOptions {
            gauges: self.gauges.clone(),
            manager: manager.clone(),
            config: self.config.clone(),
            log: self.log.clone(),
        };
        ChildSpec::new("pressure_gauge", SHUTDOWN_MAX, move || {
            let actor = PressureGauge::new(options.clone());
            (actor.pid(), actor.start())
        })
    }

    /// The HealthWatcher, on a different thread from the pools, so that they do not wait while it checks.
    pub(super) fn health_watcher(
        &self,
        services: &ClientContext,
        arbiter: Rc<OwnArbiter>,
    ) -> ChildSpec {
        let options = HealthOptions {
            manager: services.manager.clone(),
            config: services.config.clone(),
            replications: services.replications.clone(),
            daemon: daemon_name(&self.sockets.addresses).address,
            drain: self.drain.clone(),
            metrics: self.metrics.clone(),
        };
        ChildSpec::new("health_watcher", SHUTDOWN_MAX, move || {
            let watcher = HealthWatcher::new(options.clone());
            let pid = watcher.pid();
            let address = HealthWatcher::start_in_arbiter(&arbiter.0.handle(), move |_| watcher);
            (pid, address)
        })
    }

    pub(super) fn listener(&self, services: &Rc<ClientContext>) -> ChildSpec {
        let options = ListenerOptions {
            socket: Rc::clone(&self.sockets.unix),
            tcp: self.sockets.tcp.clone(),
            tls: self.sockets.tls.clone(),
            certificate: Arc::clone(&self.certificate),
            services: Rc::clone(services),
            config: self.config.clone(),
            log: self.log.clone(),
        };
        ChildSpec::new("listener", SHUTDOWN_MAX, move || {
            let actor = Listener::new(options.clone());
            (actor.pid(), actor.start())
        })
    }

    pub(super) fn http_server(&self, pool: PoolHandle, services: &ClientContext) -> ChildSpec {
        let options = HttpOptions {
            local: Rc::clone(&self.sockets.local),
            plain: self.sockets.http.clone(),
            encrypted: self.sockets.https.clone(),
            certificate: Arc::clone(&self.certificate),
            shared: Arc::new(HttpContext {
                pool,
                manager: services.manager.clone(),
                config_listener: services.config.clone(),
                config: self.config.clone(),
                authority: Arc::clone(&services.authority),
                user_names: Arc::clone(&services.user_names),
                address: self.sockets.addresses.http,
                audit: self.audit.clone(),
                drain: self.drain.clone(),
                metrics: self.metrics.clone(),
                replications: services.replications.clone(),
                in_flight: Arc::clone(&services.in_flight),
                ddocs: Arc::clone(&services.ddocs),
                tasks: Default::default(),
                tenant_logs: Arc::clone(&services.records.tenant_logs),
                dashboard: Default::default(),
                history: Default::default(),
                stopping: watch::Sender::new(false),
                log: self.log.clone(),
            }),
        };
        let spec = ChildSpec::new("http", SHUTDOWN_MAX, move || {
            let server = HttpServer::new(options.clone());
            (server.pid(), server.start())
        });
        spec.beside()
    }

    pub(super) fn service_manager(&self, services: Rc<ClientContext>) -> ChildSpec {
        let options = ServiceManagerOptions {
            sockets: Rc::clone(&self.sockets.services),
            services,
            config: self.config.clone(),
            log: self.log.clone(),
        };
        let spec = ChildSpec::new("service_manager", SHUTDOWN_MAX, move || {
            let actor = ServiceManager::new(options.clone());
            (actor.pid(), actor.start())
        });
        spec.beside()
    }
}
