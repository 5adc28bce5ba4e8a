//! The children of the service's supervisor, and how each is made and restarted.

use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::watch;

use super::replication::OwnArbiter;
use super::sockets::address;
use super::{Assembly, daemon_name};
use crate::actors::client::ClientContext;
use crate::actors::config_listener::ConfigListener;
use crate::actors::cost_keeper::{self, CostKeeper};
use crate::actors::health_watcher::{HealthOptions, HealthWatcher};
use crate::actors::listener::{Listener, ListenerOptions};
use crate::actors::pool_executor::{PoolExecutor, PoolHandle};
use crate::actors::pressure_gauge::{PressureGauge, PressureOptions};
use crate::actors::proc_manager::ProcManager;
use crate::actors::replicator_api::ReplicatorApi;
use crate::actors::service_manager::ServiceManager;
use crate::functions::records::CallRecords;
use crate::http::HttpContext;
use crate::http::server::{HttpOptions, HttpServer};
use crate::otp::{ChildSpec, RegisteredName};
use child::Spawner;

impl Assembly {
    pub(super) fn manager(&self, spawner: Spawner) -> (RegisteredName<ProcManager>, ChildSpec) {
        let (active, metrics) = (Rc::clone(&self.active), self.metrics.clone());
        let (drain, log) = (self.drain.clone(), self.log.clone());
        ChildSpec::named("proc_manager", move |pid_guard| {
            let settings = (active.manager_settings)(&active.config());
            ProcManager::new(Arc::new(settings), spawner.clone(), &log)
                .with_metrics(metrics.clone())
                .of_daemon(drain.clone(), pid_guard)
                .start()
        })
    }

    pub(super) fn config_listener(
        &self,
        manager: &RegisteredName<ProcManager>,
    ) -> (RegisteredName<ConfigListener>, ChildSpec) {
        let (active, manager, log) = (Rc::clone(&self.active), manager.clone(), self.log.clone());
        ChildSpec::named("config_listener", move |pid_guard| {
            ConfigListener::new(Rc::clone(&active), manager.clone(), &log, pid_guard).start()
        })
    }

    pub(super) fn executor(
        &self,
        manager: &RegisteredName<ProcManager>,
        records: &Rc<CallRecords>,
    ) -> (RegisteredName<PoolExecutor>, ChildSpec) {
        let (manager, records, log) = (manager.clone(), Rc::clone(records), self.log.clone());
        ChildSpec::named("pool_executor", move |pid_guard| {
            PoolExecutor::new(manager.clone(), Rc::clone(&records), &log, pid_guard).start()
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
        let keeper = ChildSpec::new("cost_keeper", move |pid_guard| {
            let (records, file, metrics) = (Rc::clone(&kept), file.clone(), metrics.clone());
            CostKeeper::new(records, file, metrics, &log, pid_guard).start()
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
        ChildSpec::new("pressure_gauge", move |pid_guard| {
            PressureGauge::new(options.clone(), pid_guard).start()
        })
    }

    /// The HealthWatcher, on a different thread from the pools, so that they do not wait while it checks.
    pub(super) fn health_watcher(
        &self,
        manager: RegisteredName<ProcManager>,
        config: RegisteredName<ConfigListener>,
        replications: ReplicatorApi,
        arbiter: OwnArbiter,
    ) -> ChildSpec {
        let options = HealthOptions {
            manager,
            config,
            replications,
            daemon: daemon_name(&self.sockets).address,
            drain: self.drain.clone(),
            metrics: self.metrics.clone(),
        };
        ChildSpec::new("health_watcher", move |pid_guard| {
            let watcher = HealthWatcher::new(options.clone(), pid_guard);
            HealthWatcher::start_in_arbiter(&arbiter.0.handle(), move |_| watcher)
        })
    }

    pub(super) fn listener(&self, services: &Rc<ClientContext>) -> ChildSpec {
        let options = ListenerOptions {
            socket: Rc::clone(&self.sockets.unix),
            tcp: self.sockets.tcp.clone(),
            tls: self.sockets.tls.clone(),
            certificate: Arc::clone(&self.active.certificate),
            services: Rc::clone(services),
        };
        ChildSpec::new("listener", move |pid_guard| {
            Listener::new(options.clone(), pid_guard).start()
        })
    }

    pub(super) fn http_server(
        &self,
        pool: PoolHandle,
        config_listener: RegisteredName<ConfigListener>,
        replications: ReplicatorApi,
        services: &ClientContext,
    ) -> ChildSpec {
        let options = HttpOptions {
            local: Rc::clone(&self.sockets.local),
            plain: self.sockets.http.clone(),
            encrypted: self.sockets.https.clone(),
            certificate: Arc::clone(&self.active.certificate),
            shared: Arc::new(HttpContext {
                pool,
                manager: services.manager.clone(),
                config_listener,
                config: self.config.clone(),
                authority: Arc::clone(&services.authority),
                user_names: Arc::clone(&services.user_names),
                address: address(&self.sockets.http),
                audit: self.active.audit.clone(),
                drain: self.drain.clone(),
                metrics: self.metrics.clone(),
                replications,
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
        let spec = ChildSpec::new("http", move |pid_guard| {
            HttpServer::new(options.clone(), pid_guard).start()
        });
        spec.beside()
    }

    pub(super) fn service_manager(&self, services: Rc<ClientContext>) -> ChildSpec {
        let sockets = Rc::clone(&self.sockets.services);
        let spec = ChildSpec::new("service_manager", move |pid_guard| {
            ServiceManager::new(Rc::clone(&sockets), Rc::clone(&services), pid_guard).start()
        });
        spec.beside()
    }
}
