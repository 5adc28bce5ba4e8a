//! ServiceManager: starts and stops the configured services.
//!
//! SUMMARY   One [`Service`] for each `[services.NAME]` whose socket is bound; follows changes of the configuration.
//! PROMISES  A removed or moved service accepts no more connections, and has
//!           [`crate::config::Server::shutdown_grace`] to finish calls in flight. One that ended because of a bug is
//!           restarted after a while.
//! CALLED    Last in the supervision tree: stopped first, together with the Listener and the HttpServer.
//! SOURCE    Postfix master: master_refresh, master_start_service, master_stop_service.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use slog::{Logger, error, o, warn};

use crate::actors::changes;
use crate::actors::client::ClientContext;
use crate::actors::service::socket::{ServiceSocket, ServiceSockets};
use crate::actors::service::{Reconfigure, Service};
use crate::config::{ServiceAddress, ServiceConfig};
use crate::otp::{ActorId, Down, PidGuard, Stop, Tell};

/// The delay before a failed service is restarted, so that it does not restart in a loop.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// A running service.
struct RunningService {
    settings: Arc<ServiceConfig>,
    socket: Rc<ServiceSocket>,
    address: Addr<Service>,
    actor: ActorId,
}

/// All services.
pub(crate) struct ServiceManager {
    /// The sockets, bound before the configuration that names them is in force.
    sockets: Rc<ServiceSockets>,
    /// The context of connections.
    services: Rc<ClientContext>,
    running: BTreeMap<String, RunningService>,
    /// Services that are stopping; each keeps its socket until it is gone.
    leaving: Vec<(ActorId, Addr<Service>)>,
    stopping: bool,
    log: Logger,
    pid_guard: PidGuard,
}

impl ServiceManager {
    /// Makes the service manager.
    pub fn new(
        sockets: Rc<ServiceSockets>,
        services: Rc<ClientContext>,
        pid_guard: PidGuard,
    ) -> Self {
        Self {
            log: services.log.new(o!("component" => "service_manager")),
            sockets,
            services,
            running: BTreeMap::new(),
            leaving: Vec::new(),
            stopping: false,
            pid_guard,
        }
    }

    /// Brings the running services in line with the configuration.
    fn follow(&mut self, ctx: &mut Context<Self>) {
        if self.stopping {
            return;
        }
        let config = Arc::clone(&self.services.config.borrow());
        for (name, service) in std::mem::take(&mut self.running) {
            let socket = self.sockets.get(&name);
            let has_socket = socket.is_some_and(|socket| Rc::ptr_eq(&socket, &service.socket));
            if has_socket && config.services.contains_key(&name) {
                self.running.insert(name, service);
            } else {
                self.tell_of_leave(&name, &service);
                self.take_out(service, config.server.shutdown_grace, ctx);
            }
        }
        for (name, settings) in &config.services {
            match self.running.get_mut(name) {
                Some(service) if *service.settings == *settings => {}
                Some(service) => {
                    service.settings = Arc::new(settings.clone());
                    service
                        .address
                        .tell(Reconfigure(Arc::clone(&service.settings)));
                }
                None => self.start_service(name, settings, ctx),
            }
        }
    }

    /// Logs that an address is no longer served.
    fn tell_of_leave(&self, name: &str, service: &RunningService) {
        let Some(reason) = service.socket.left() else {
            return;
        };
        warn!(self.log, "a service leaves its address";
              "service" => name, "listen" => service.socket.shown(), "reason" => &reason,
              "effect" => "new clients are refused there; the address is closed once its connections \
                           have ended");
    }

    fn start_service(&mut self, name: &str, settings: &ServiceConfig, ctx: &mut Context<Self>) {
        // A service without an address was refused before.
        let Some(socket) = self.sockets.get(name) else {
            return;
        };
        if !settings.is_local_only()
            && let Some(ServiceAddress::Tcp(_)) = &settings.listen
        {
            warn!(self.log, "a service can be reached from other machines, without a login";
                  "service" => name, "listen" => socket.shown(),
                  "remedy" => "restrict access with a firewall or a tunnel");
        }
        let settings = Arc::new(settings.clone());
        let services = Rc::clone(&self.services);
        let service = Service::new(name, Arc::clone(&settings), Rc::clone(&socket), services);
        let pid = service.pid();
        let running = RunningService {
            settings,
            socket,
            address: service.start(),
            actor: pid.id(),
        };
        self.running.insert(name.to_owned(), running);
        pid.monitor(ctx.address().recipient());
    }

    /// Stops a service: gracefully, and by force after some time.
    fn take_out(&mut self, service: RunningService, grace: Duration, ctx: &mut Context<Self>) {
        let RunningService { address, actor, .. } = service;
        address.tell(Stop { now: false });
        self.leaving.push((actor, address));
        ctx.run_later(grace, move |manager, _| {
            let late = manager.leaving.iter().find(|(known, _)| *known == actor);
            if let Some((_, address)) = late {
                address.tell(Stop { now: true });
            }
        });
    }

    fn finish_shutdown(&mut self, ctx: &mut Context<Self>) {
        if self.stopping && self.leaving.is_empty() {
            self.pid_guard.shut_down(ctx);
        }
    }
}

/// However it ends, its services end with it: a successor would not know them.
impl Drop for ServiceManager {
    fn drop(&mut self) {
        let running = self.running.values().map(|service| &service.address);
        let all = running.chain(self.leaving.iter().map(|(_, address)| address));
        all.for_each(|service| service.tell(Stop { now: true }));
    }
}

impl Actor for ServiceManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        changes::follow(self.services.config.clone(), ctx, Self::follow);
        self.follow(ctx);
    }
}

impl Handler<Down> for ServiceManager {
    type Result = ();

    fn handle(&mut self, msg: Down, ctx: &mut Self::Context) {
        self.leaving.retain(|(actor, _)| *actor != msg.actor);
        let ended = self.running.iter().find(|(_, s)| s.actor == msg.actor);
        if let Some(name) = ended.map(|(name, _)| name.clone()) {
            error!(self.log, "a service ended and is started again";
                   "service" => &name, "error" => %msg.reason);
            self.running.remove(&name);
            ctx.run_later(RESTART_DELAY, |manager, ctx| manager.follow(ctx));
        }
        self.finish_shutdown(ctx);
    }
}

/// Ends all services.
impl Handler<Stop> for ServiceManager {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        self.stopping = true;
        self.services.refuse_waiters();
        self.sockets.close();
        let running = std::mem::take(&mut self.running)
            .into_values()
            .map(|s| (s.actor, s.address));
        self.leaving.extend(running);
        for (_, service) in &self.leaving {
            service.tell(Stop { now: msg.now });
        }
        self.finish_shutdown(ctx);
    }
}
