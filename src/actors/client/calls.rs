//! Executes a client's requests.
//!
//! SUMMARY   Answers some requests at once; every other request becomes a task that owns its ticket, so that its
//!           answer, or its loss, reaches the client. A long line is parsed on another thread.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::Client;
use super::cancel::Cancellable;
use super::handover;
use super::holding::Holding;
use super::login::log_in;
use super::session::Session;
use super::ticket::Ticket;
use crate::aside::{aside, is_long};
use crate::auth::rights::Right;
use crate::messages::client::{BadRequest, Call, Request};
use crate::messages::client_error::ErrorReply;
use crate::messages::function::FunctionRequest;
use crate::messages::proc_manager::Want;
use crate::query_server::known_ddocs::KnownDdocs;
use child::line_buffer::PiecedLine;

/// The value that answers `get_proc`, with `config`, or `attach`, with `end`.
#[derive(Serialize)]
pub(super) struct Lent<'a> {
    proc: String,
    pool: &'a str,
    lang: &'a str,
    os_pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a RawValue>,
    /// Whether the last line will report how the process ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    end: bool,
}

impl<'a> Lent<'a> {
    pub fn of(holding: &'a Holding, end: bool) -> Self {
        let lender = &holding.lender;
        Self {
            proc: holding.name.to_string(),
            pool: &lender.pool,
            lang: lender.language.as_str(),
            os_pid: holding.shared.os_pid,
            config: None,
            end,
        }
    }
}

/// Handles one line of a client. A long one is first parsed on another thread; the next line waits for it.
pub(super) fn take_line(session: &Rc<Session>, line: PiecedLine, ctx: &mut Context<Client>) {
    let ddocs = ddocs_of(session);
    let length = line.length();
    let parse = move || Request::parse(&line.join(), ddocs.as_deref());
    if !is_long(length) {
        return take_request(session, length, parse(), ctx);
    }
    session.pause_reading();
    let unknown = session.ticket(None, length);
    let parsing = wrap_future::<_, Client>(aside(length, parse.clone()));
    // Ends with the parsing.
    ctx.spawn(parsing.map(move |parsed, _, ctx| {
        let session = unknown.session();
        // Without a thread it is parsed here.
        let request = parsed.unwrap_or_else(|_| parse());
        // First: the request may pause reading again.
        session.resume_reading();
        take_request(session, length, request, ctx);
    }));
}

/// Returns the design documents that requests may name by digest, if the client may call functions.
fn ddocs_of(session: &Session) -> Option<Arc<KnownDdocs>> {
    session
        .rights()
        .has(Right::Call)
        .then(|| Arc::clone(&session.services.ddocs))
}

fn take_request(
    session: &Rc<Session>,
    length: usize,
    request: Result<Request, BadRequest>,
    ctx: &mut Context<Client>,
) {
    let request = match request {
        Ok(request) => request,
        Err(bad) => {
            session.push_error(&bad.id, &bad.error);
            return session.flush();
        }
    };
    let ticket = session.ticket(Some(request.id), length);
    if let Some(right) = request.name.who().right() {
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
            Some(holding) => holding.prompt(ticket, data, timeout, report),
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
        Call::Limits => {
            let line_max = session.line_bytes_max();
            ticket.ok(&json!({"line_max": line_max, "ddoc_sha256": true}));
        }
        Call::Cancel { request } => {
            let is_cancelled = session.cancel(&request);
            ticket.ok(&is_cancelled);
        }
    }
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
                let config = serde_json::from_str(&holding.lender.config)
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

/// Borrows a process for a tunnel; reading pauses until it is lent or refused.
fn attach(ticket: Ticket, want: Want, end: bool, ctx: &mut Context<Client>) {
    let session = Rc::clone(ticket.session());
    session.pause_reading();
    session.is_tunnel.set(true);
    let get = async move {
        let proc = session.query_servers.caller().get_clean_proc(&want);
        session.services.unless_stopping(proc).await
    };
    // Ends with the deadlines of the request and the reset, or with the connection.
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
