//! HttpServer: runs the HTTP server as a part of the service.
//!
//! SUMMARY   Starts actix-web on threads of its own, and ends with it: gracefully or now.
//! PROMISES  When it has ended, the address is free and no request is in hand. Connections that do
//!           nothing are closed as soon as it is told to stop; requests in hand may finish.
//! CALLED    Started and stopped by the supervisor.
//! LIMITS    With connections open, a graceful stop takes up to a second longer than the last
//!           request: the server looks once a second whether they are gone.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use actix::prelude::*;
use actix_web::dev::{Server, ServerHandle};
use slog::{Logger, error, info, o, warn};

use crate::actors::listener::address::BoundAddress;
use crate::http::{self, Shared};
use crate::otp::lifeline::{ExitReason, Lifeline, Pulse};
use crate::otp::supervisor::Stop;

/// What an HTTP server needs.
#[derive(Clone)]
pub struct HttpOptions {
    /// Where it listens.
    pub address: Rc<BoundAddress>,
    /// What requests are answered with.
    pub shared: Arc<Shared>,
    /// The log.
    pub log: Logger,
}

/// Runs the HTTP server.
pub struct HttpServer {
    options: HttpOptions,
    running: Option<(SpawnHandle, ServerHandle)>,
    log: Logger,
    lifeline: Lifeline,
}

impl HttpServer {
    /// Makes a server.
    pub fn new(options: HttpOptions) -> Self {
        Self {
            log: options.log.new(o!("component" => "http")),
            options,
            running: None,
            lifeline: Lifeline::new(),
        }
    }

    /// Returns the name by which its life can be watched.
    pub fn pulse(&self) -> Pulse {
        self.lifeline.pulse()
    }

    fn listen(&self) -> io::Result<Option<Server>> {
        let listener = self.options.address.listener()?;
        listener
            .map(|listener| http::server(listener, Arc::clone(&self.options.shared)))
            .transpose()
    }

    fn end(&mut self, reason: ExitReason, ctx: &mut Context<Self>) {
        self.lifeline.ending(reason);
        ctx.stop();
    }
}

impl Actor for HttpServer {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let server = match self.listen() {
            Ok(Some(server)) => server,
            Ok(None) => return self.end(ExitReason::Shutdown, ctx),
            Err(error) => {
                error!(self.log, "cannot listen"; "error" => %error);
                let reason = ExitReason::Failed(format!("cannot listen: {error}"));
                return self.end(reason, ctx);
            }
        };
        let address = self.options.address.address();
        info!(self.log, "listening"; "listen" => format!("http://{address}/"));
        if self.options.shared.authority.is_open() {
            warn!(self.log, "nobody has to log in over HTTP";
                "effect" => "whoever can reach the HTTP address from this machine may do everything",
                "remedy" => "leave [server] open out");
        }
        let handle = server.handle();
        let serving = server.into_actor(self).map(|ended, server, ctx| {
            let reason = match ended {
                Ok(()) => ExitReason::Shutdown,
                Err(error) => ExitReason::Failed(format!("the HTTP server failed: {error}")),
            };
            server.end(reason, ctx);
        });
        self.running = Some((ctx.spawn(serving), handle));
    }
}

/// Ends: accepts nobody, lets requests in hand finish, or not.
impl Handler<Stop> for HttpServer {
    type Result = ();

    fn handle(&mut self, msg: Stop, ctx: &mut Self::Context) {
        self.options.shared.begin_stop();
        self.options.address.close();
        let Some((serving, handle)) = &self.running else {
            return self.end(ExitReason::Shutdown, ctx);
        };
        if msg.now {
            // Dropping the server is what ends it at once, also in the middle of a graceful stop.
            ctx.cancel_future(*serving);
            info!(self.log, "stopped listening");
            return self.end(ExitReason::Shutdown, ctx);
        }
        info!(self.log, "stopped listening");
        // Sends the order at once; that the server has ended is told by its own future.
        drop(handle.stop(true));
    }
}
