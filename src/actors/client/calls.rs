//! Carrying out a client's requests.
//!
//! SUMMARY   What can be answered in the turn is; the rest becomes a task that owns the request's
//!           ticket, so that its answer, or its loss, reaches the client. A long line is parsed aside.

use std::rc::Rc;
use std::time::Duration;

use actix::dev::ToEnvelope;
use actix::fut::wrap_future;
use actix::prelude::*;
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::Client;
use super::cancel::Cancellable;
use super::context::ClientContext;
use super::dashboard::dashboard;
use super::handover;
use super::holding::Holding;
use super::jobs::jobs;
use super::login::log_in;
use super::session::Session;
use super::ticket::Ticket;
use crate::actors::config_listener::ConfigListener;
use crate::actors::drained::{drain_state, set_drained};
use crate::actors::proc_manager::ProcManager;
use crate::aside::{aside, is_long};
use crate::audit::{Done, Sender};
use crate::config::reload::Change;
use crate::messages::client::{BadRequest, Call, Request};
use crate::messages::client_error::ErrorReply;
use crate::messages::config_listener::{PlanReload, Reload, ReloadError};
use crate::messages::daemon_call::DaemonCall;
use crate::messages::function::FunctionRequest;
use crate::messages::pools::{PoolChange, PoolError};
use crate::messages::proc_manager::{
    GetProcCount, GetProcError, GetStaleProcCount, GetStatus, SetThresholdTs, TerminateStaleProcs,
    Want,
};
use crate::messages::ps::{KillProc, ListProcs};
use crate::operations::CallName;
use crate::query_server::language::LanguageName;

/// The value of `get_proc`, with `config`, and of `attach`, with `end`.
#[derive(Serialize)]
pub(super) struct Lent<'a> {
    proc: String,
    pool: &'a str,
    lang: &'a str,
    os_pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a RawValue>,
    /// Whether the last line will tell what became of the process.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    end: bool,
}

impl<'a> Lent<'a> {
    pub(super) fn of(holding: &'a Holding, end: bool) -> Self {
        let lender = holding.lender();
        Self {
            proc: holding.name.to_string(),
            pool: &lender.pool,
            lang: lender.language.as_str(),
            os_pid: holding.shared().os_pid,
            config: None,
            end,
        }
    }
}

/// A line that was parsed on another thread.
enum Parsed {
    /// A function is called: the JSON text of the request's id, the name, and the call.
    Function(String, CallName, Box<FunctionRequest>),
    /// The same of a line that is no request, and what is wrong.
    Bad(String, ErrorReply),
    /// Anything else, which is quick to parse.
    Other,
}

impl Parsed {
    fn of(line: &[u8]) -> Self {
        match Request::parse(line) {
            Ok(Request {
                id,
                name,
                call: Call::Function(call),
            }) => Self::Function(id.to_owned(), name, call),
            Ok(_) => Self::Other,
            Err(bad) => Self::Bad(bad.id.to_owned(), bad.error),
        }
    }
}

/// Takes one line of a client: a long one when it has been parsed on another thread, and the next one after it.
pub(super) fn take_line(session: &Rc<Session>, line: Bytes, ctx: &mut Context<Client>) {
    if !is_long(line.len()) {
        return take_request(session, &line, Request::parse(&line), ctx);
    }
    session.pause_reading();
    let unknown = session.ticket(None, line.len());
    let parsing = wrap_future::<_, Client>(aside(line.clone(), Parsed::of));
    // Ends with the parsing.
    ctx.spawn(parsing.map(move |parsed, _, ctx| {
        let session = unknown.session();
        match parsed.unwrap_or(Parsed::Other) {
            Parsed::Function(id, name, call) => {
                let (id, call) = (&*id, Call::Function(call));
                take_request(session, &line, Ok(Request { id, name, call }), ctx);
            }
            Parsed::Bad(id, error) => {
                let bad = BadRequest { id: &id, error };
                take_request(session, &line, Err(bad), ctx);
            }
            Parsed::Other => take_request(session, &line, Request::parse(&line), ctx),
        }
        session.resume_reading();
    }));
}

fn take_request<'a>(
    session: &Rc<Session>,
    line: &Bytes,
    request: Result<Request<'a>, BadRequest<'a>>,
    ctx: &mut Context<Client>,
) {
    let request = match request {
        Ok(request) => request,
        Err(bad) => {
            session.push_error(bad.id, &bad.error);
            return session.flush();
        }
    };
    let mut ticket = session.ticket(Some(request.id), line.len());
    if let Some((what, on)) = request.changes() {
        let who = session.query_servers.caller().who();
        let sender = Sender::of("socket", &who.unwrap_or_default(), None);
        let order = session.services.audit.begin(sender, what);
        order.on(on);
        ticket.set_order(order);
    }
    if let Some(right) = request.takes() {
        let rights = session.rights();
        if let Err(missing) = rights.require(right) {
            return ticket.error(&ErrorReply::forbidden(missing));
        }
        session.query_servers.caller().hold_to(rights.limits());
    }
    match request.call {
        Call::Prompt {
            proc,
            data,
            timeout,
            report,
        } => match session.holding(proc) {
            Some(holding) => {
                let line = line.slice_ref(data.as_bytes());
                holding.prompt(ticket, line, timeout, report);
            }
            None => ticket.error(&ErrorReply::not_holder()),
        },
        Call::SetTimeout { proc, timeout } => match session.holding(proc) {
            Some(holding) => holding.set_timeout(ticket, timeout),
            None => ticket.error(&ErrorReply::not_holder()),
        },
        Call::RetProc { proc, status } => match session.release(proc) {
            Some(holding) => holding.give_back(ticket, status),
            None => ticket.ok(&false),
        },
        Call::GetProc { want, timeout } => {
            session.subscribe_revocation(ctx.address().recipient());
            get_proc(ticket, want, timeout);
        }
        Call::Attach {
            want,
            descriptors: true,
            ..
        } if session.is_local() => handover::expect(ticket, session.in_its_name(want)),
        Call::Attach { want, end, .. } => attach(ticket, session.in_its_name(want), end, ctx),
        Call::Auth { name, password } => log_in(ticket, name, password, ctx),
        Call::Function(call) => function(ticket, *call),
        Call::Cancel { request } => {
            let is_cancelled = session.cancel(request);
            ticket.ok(&is_cancelled);
        }
        Call::Jobs(call) => jobs(ticket, call),
        Call::Daemon(call) => daemon(ticket, call),
    }
}

/// Takes a call about the daemon.
fn daemon(ticket: Ticket, call: DaemonCall) {
    match call {
        DaemonCall::Dashboard => dashboard(ticket),
        DaemonCall::Functions(query) => {
            let page = ticket.session().services.records.costs(query);
            ticket.ok(&page);
        }
        DaemonCall::Tenants(query) => {
            let page = ticket.session().services.records.tenants(&query);
            ticket.ok(&page);
        }
        DaemonCall::TenantLog { db, since } => {
            let logs = &ticket.session().services.records.tenant_logs;
            let page = logs.page(&db, since);
            ticket.ok(&page);
        }
        DaemonCall::GetProcCount => ask(ticket, GetProcCount, Ok),
        DaemonCall::GetStaleProcCount => ask(ticket, GetStaleProcCount, Ok),
        DaemonCall::Audit(limit) => {
            let page = ticket.session().services.audit.page(limit);
            ticket.ok(&page);
        }
        DaemonCall::Reload => order(ticket, SetThresholdTs, |count| {
            Ok((true, Done::to(count as usize)))
        }),
        DaemonCall::TerminateStaleProcs => ask(ticket, TerminateStaleProcs, |()| Ok(true)),
        DaemonCall::Health { fleet: false } => {
            let health = ticket.session().services.metrics.health().told();
            ticket.ok(&health);
        }
        DaemonCall::Health { fleet: true } => fleet_health(ticket),
        DaemonCall::DrainState => drain(ticket, None),
        DaemonCall::Drain(is_drained) => drain(ticket, Some(is_drained)),
        DaemonCall::Status(pool) => {
            let name = pool.map(|pool| LanguageName::new(&pool).to_string());
            let wanted = name.clone();
            ask(
                ticket,
                GetStatus { pool: name },
                move |status| match wanted {
                    Some(name) if status.pools.is_empty() => {
                        let reason = format!("there is no pool named '{name}'");
                        Err(ErrorReply::not_found(reason))
                    }
                    _ => Ok(status),
                },
            );
        }
        DaemonCall::Procs(pool) => ask(ticket, ListProcs { pool }, |page| Ok(page?)),
        DaemonCall::KillProc { name, now } => {
            let who = ticket.session().query_servers.caller().who();
            order(ticket, KillProc { name, now, who }, move |killed| {
                let killed = killed?;
                let done = Done::of_kill(&killed, now);
                Ok((killed, done))
            });
        }
        DaemonCall::AddPool(add) => order(ticket, add, changed),
        DaemonCall::ReconfigurePool(change) => order(ticket, change, changed),
        DaemonCall::RemovePool(remove) => order(ticket, remove, changed),
        DaemonCall::UnthrottlePool(lift) => order(ticket, lift, |lifted| {
            let lifted = lifted?;
            Ok((lifted, Done::to(usize::from(lifted))))
        }),
        DaemonCall::ReloadConfig => configure(ticket, Reload),
        DaemonCall::PlanConfig => configure(ticket, PlanReload),
    }
}

/// Drains the daemon, or has it take work again, if that is asked for; tells what is left of what it had.
fn drain(ticket: Ticket, is_drained: Option<bool>) {
    actix_rt::spawn(async move {
        let services = Rc::clone(&ticket.session().services);
        let ClientContext {
            drain,
            manager,
            replications,
            ..
        } = &*services;
        if let Some(is_drained) = is_drained {
            ticket.did(set_drained(drain, is_drained));
        }
        ticket.ok(&drain_state(drain, manager, replications).await);
    });
}

/// Tells what is wrong at all daemons.
fn fleet_health(ticket: Ticket) {
    actix_rt::spawn(async move {
        let services = Rc::clone(&ticket.session().services);
        let own = services.metrics.health().told();
        ticket.ok(&services.replications.fleet_health(own).await);
    });
}

/// Returns what an order to a pool changed.
fn changed(
    changes: Result<Vec<PoolChange>, PoolError>,
) -> Result<(Vec<PoolChange>, Done), ErrorReply> {
    let changes = changes?;
    let done = Done::of_pool(&changes);
    Ok((changes, done))
}

/// Asks the keeper of the configuration for changes.
fn configure<M>(ticket: Ticket, order: M)
where
    M: Message<Result = Result<Vec<Change>, ReloadError>> + Send + 'static,
    ConfigListener: Handler<M>,
    Context<ConfigListener>: ToEnvelope<ConfigListener, M>,
{
    actix_rt::spawn(async move {
        let asked = ticket.session().services.config.call(order);
        match asked.await.unwrap_or(Err(ReloadError::ShuttingDown)) {
            Ok(changes) => {
                ticket.did(Done::of_config(&changes));
                ticket.ok(&changes);
            }
            Err(ReloadError::ShuttingDown) => ticket.error(&GetProcError::ShuttingDown.into()),
            Err(error) => ticket.error(&ErrorReply::bad_config(error.to_string())),
        }
    });
}

/// Asks the manager something that it answers at once.
fn ask<M, V>(
    ticket: Ticket,
    question: M,
    value: impl FnOnce(M::Result) -> Result<V, ErrorReply> + 'static,
) where
    M: Message + Send + 'static,
    M::Result: Send,
    V: Serialize,
    ProcManager: Handler<M>,
    Context<ProcManager>: ToEnvelope<ProcManager, M>,
{
    order(ticket, question, |answer| {
        Ok((value(answer)?, Done::default()))
    });
}

/// As [`ask`], with what was done.
fn order<M, V>(
    ticket: Ticket,
    order: M,
    value: impl FnOnce(M::Result) -> Result<(V, Done), ErrorReply> + 'static,
) where
    M: Message + Send + 'static,
    M::Result: Send,
    V: Serialize,
    ProcManager: Handler<M>,
    Context<ProcManager>: ToEnvelope<ProcManager, M>,
{
    let asked = ticket.session().services.manager.call(order);
    actix_rt::spawn(async move {
        match asked.await.map_err(ErrorReply::from).and_then(value) {
            Ok((value, done)) => {
                ticket.did(done);
                ticket.ok(&value);
            }
            Err(error) => ticket.error(&error),
        }
    });
}

/// Lends a process.
fn get_proc(ticket: Ticket, want: Want, timeout: Option<Duration>) {
    let Some(ticket) = ticket.wait_for_process() else {
        return;
    };
    // Ends with the request's deadline, or with the connection.
    actix_rt::spawn(async move {
        let session = Rc::clone(ticket.session());
        let proc = session.query_servers.caller().get_proc(want, timeout);
        let held = match session.services.unless_stopping(proc).await {
            Ok(lease) => {
                let holding = Holding::new(lease);
                session.take_within_limit(&holding).map(|()| holding)
            }
            Err(error) => Err(error.into()),
        };
        match held {
            Ok(holding) => {
                let config = serde_json::from_str(&holding.lender().config)
                    .expect("JSON: the arguments of reset are JSON");
                ticket.ok(&Lent {
                    config: Some(config),
                    ..Lent::of(&holding, false)
                });
                session.hold(holding);
            }
            Err(error) => ticket.error(&error),
        }
    });
}

/// Gets a process for a tunnel; nothing more is read until it is there or is not to be had.
fn attach(ticket: Ticket, want: Want, end: bool, ctx: &mut Context<Client>) {
    let session = Rc::clone(ticket.session());
    session.pause_reading();
    session.set_tunnel();
    let get = async move {
        let proc = session.query_servers.caller().get_clean_proc(&want, None);
        session.services.unless_stopping(proc).await
    };
    // Ends with the request's deadline and the reset's, or with the connection.
    ctx.spawn(
        wrap_future::<_, Client>(get).map(move |result, client, ctx| {
            client.attached(ticket, result, end, ctx);
        }),
    );
}

/// Runs functions.
fn function(ticket: Ticket, request: FunctionRequest) {
    let Some(ticket) = ticket.wait_for_process() else {
        return;
    };
    let cancellable = Cancellable::of(&ticket);
    // Ends with the deadlines of the processes and their answers, when it is cancelled, or with the connection.
    actix_rt::spawn(async move {
        let session = Rc::clone(ticket.session());
        let call = session.query_servers.serve(request);
        let Some(served) = cancellable.perform(call).await else {
            return ticket.error(&ErrorReply::cancelled());
        };
        match &served.value {
            Ok(answer) => ticket.ok_with(answer, &served.members()),
            Err(error) => ticket.error_with(error, &served.members()),
        }
        session.flush();
    });
}
