//! The login of TCP clients, before anything else.
//!
//! SUMMARY   [`take_first`] handles lines of a connection before admission, [`log_in`] the call `auth`.
//! PROMISES  Before admission, a connection may send lines of at most [`LINE_BYTES_MAX`] within [`WAIT`]; anything
//!           but a valid name and password ends it. Reading pauses while a password is checked.
//! LIMITS    `[server] tcp` is not encrypted: use `[ssl] tcp` for other machines.

use std::rc::Rc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;
use bytes::Bytes;

use super::Client;
use super::ticket::Ticket;
use crate::auth::LoginError;
use crate::messages::client::{Call, Request};
use crate::messages::client_error::ErrorReply;

/// Maximum length of a line before a login, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 4096;

/// How long a connection may take to log in.
pub(super) const WAIT: Duration = Duration::from_secs(10);

impl Client {
    /// Handles a line of a connection before admission.
    pub(super) fn take_first(&mut self, line: &Bytes, ctx: &mut Context<Self>) {
        match Request::parse(line, None) {
            Ok(Request {
                id,
                call: Call::Auth { name, password },
                ..
            }) => {
                let ticket = self.session.ticket(Some(id), line.len());
                log_in(ticket, name, password, ctx);
            }
            Ok(request) => {
                let reason = "the first call over TCP must be 'auth', with 'name' and 'password'";
                self.turn_away(&request.id, &ErrorReply::unauthorized(reason), ctx);
            }
            Err(bad) => self.turn_away(&bad.id, &bad.error, ctx),
        }
    }

    /// Ends a connection that does not log in within its time.
    pub(super) fn expect_login(&mut self, ctx: &mut Context<Self>) {
        if self.session.is_admitted() {
            return;
        }
        ctx.run_later(WAIT, |client, ctx| {
            if !client.session.is_admitted() {
                let reason = format!("no login within {} s", WAIT.as_secs());
                client.turn_away("null", &ErrorReply::unauthorized(reason), ctx);
            }
        });
    }
}

/// Checks a name and a password, and admits the user if they are valid.
pub(super) fn log_in(ticket: Ticket, name: String, password: String, ctx: &mut Context<Client>) {
    let session = Rc::clone(ticket.session());
    session.pause_reading();
    let checking = async move {
        let authority = &session.services.authority;
        authority
            .log_in(&name, &password, session.peer)
            .await
            .map(|()| name)
    };
    // Ends with the check, whose queue is bounded, or with the connection.
    ctx.spawn(
        wrap_future::<_, Client>(checking).map(|result, client, ctx| {
            match result {
                Ok(user) => {
                    client.session.admit(user);
                    ticket.ok(&true);
                }
                Err(error) => {
                    ticket.error(&error.into());
                    if !client.session.is_admitted() {
                        client.close(ctx);
                    }
                }
            }
            client.session.resume_reading();
        }),
    );
}

impl From<LoginError> for ErrorReply {
    fn from(error: LoginError) -> Self {
        let reason = error.to_string();
        match error {
            LoginError::Incorrect => Self::unauthorized(reason),
            LoginError::LockedOut | LoginError::Busy | LoginError::NoThread => {
                Self::too_many_logins(reason)
            }
        }
    }
}
