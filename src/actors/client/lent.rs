//! A connection of a service: it is lent one process for its lifetime.
//!
//! SUMMARY   Takes and resets a process before reading anything; then each line goes to the process, and all its
//!           output up to the answer is returned, as with `attach`.
//! PROMISES  A connection not ended by its client gets a last line, `["error", NAME, REASON]`. Its cause is a lack of
//!           processes, the process's exit, a protocol violation, a timeout, or the service's shutdown. A process is
//!           returned after an answered reset, or is replaced.
//! SOURCE    Postfix master: a connection has its process until it ends. The error line is CouchDB's.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::prelude::*;

use super::session::Phase;
use super::{Client, Mode};
use crate::actors::service::claims::Claim;
use crate::actors::service::queue_place::Answer;
use crate::functions::caller::get_clean_proc;
use crate::messages::client_error::ErrorReply;
use crate::messages::proc_manager::{CallError, Lease, Want};
use crate::messages::process::Fault;
use crate::metrics::{ClientMetrics, LendEnd, ServiceMetrics};
use crate::otp::Tell;

/// The loan of a service's connection.
pub(crate) struct Lending {
    /// The requested process.
    pub want: Want,
    /// How long the process may work on a line; `None`: its own timeout.
    pub prompt_timeout: Option<Duration>,
    /// How long the client may hold it without sending a prompt or reading the answers; `None`: no limit.
    pub client_timeout: Option<Duration>,
    /// How long the client may hold it in total; `None`: no limit.
    pub session_timeout: Option<Duration>,
    /// The claim to a process, until one is lent or refused.
    pub claim: Option<Claim>,
    /// The manager's pending answer for its place in the queue.
    pub answer: Option<Answer>,
    /// Counts its end.
    pub end: EndCount,
}

impl Lending {
    pub(super) fn metrics(&self) -> Arc<ClientMetrics> {
        self.end.metrics.connections()
    }

    /// Returns how long the client may leave its answers unread.
    pub(super) fn write_timeout(&self, usual: Duration) -> Duration {
        self.client_timeout.map_or(usual, |limit| limit.min(usual))
    }
}

/// Counts a service connection's end once: with its reason, or as a shutdown if dropped without one.
pub(crate) struct EndCount {
    metrics: Arc<ServiceMetrics>,
    counted: bool,
}

impl EndCount {
    /// Makes one for an accepted connection.
    pub fn new(metrics: Arc<ServiceMetrics>) -> Self {
        Self {
            metrics,
            counted: false,
        }
    }

    fn ended(&mut self, why: LendEnd) {
        if !std::mem::replace(&mut self.counted, true) {
            self.metrics.ends.one(why);
        }
    }
}

impl Drop for EndCount {
    fn drop(&mut self) {
        self.ended(LendEnd::Shutdown);
    }
}

/// Minimum time between two checks of the client's activity.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// Returns an error line of the protocol.
pub(crate) fn last_line(error: &ErrorReply) -> Vec<u8> {
    let words = ("error", &error.name, &error.reason);
    let mut line = serde_json::to_vec(&words).expect("JSON: strings can always be written");
    line.push(b'\n');
    line
}

impl Client {
    /// Gets a process for a service's connection; reading starts once it has one.
    pub(super) fn lend(&mut self, ctx: &mut Context<Self>) {
        let Some(lending) = &mut self.lending else {
            return;
        };
        self.session.pause_reading();
        let session = Rc::clone(&self.session);
        let want = lending.want.clone();
        session.subscribe_revocation(ctx.address().recipient());
        let (mut claim, mut answer) = (lending.claim.take(), lending.answer.take());
        let getting = async move {
            let caller = session.query_servers.caller();
            let get = async || {
                let lease = match answer.take() {
                    Some(answer) => answer.lease().await,
                    None => caller.get_proc(want.clone(), None).await,
                };
                // A process is lent or refused: from now on the pool's own tables count loans and waiters.
                drop(claim.take());
                lease
            };
            let lent = get_clean_proc(get, Lease::reset).await;
            lent.map(|(lease, ())| lease)
        };
        // Ends with the deadlines of the request and the reset, or with the connection.
        ctx.spawn(
            wrap_future::<_, Self>(getting).map(|result, client, ctx| client.lent(result, ctx)),
        );
    }

    fn lent(&mut self, result: Result<Lease, CallError>, ctx: &mut Context<Self>) {
        let Some(lending) = &self.lending else {
            return;
        };
        if self.session.phase() >= Phase::Closing {
            // The client has gone, or a stop no longer waits for it.
            return;
        }
        let (timeout, session_timeout) = (lending.prompt_timeout, lending.session_timeout);
        let opened = result
            .map_err(ErrorReply::from)
            .and_then(|lease| self.open_tunnel(lease, timeout, false, ctx));
        match opened {
            Ok(_) => {
                self.session.note_activity();
                self.watch_idleness(ctx);
                if let Some(limit) = session_timeout {
                    ctx.run_later(limit, |_, ctx| {
                        ctx.address().tell(TimeIsUp(Self::end_session))
                    });
                }
            }
            Err(error) => self.session.end_tunnel(error),
        }
        self.session.resume_reading();
    }

    /// Ends the connection of a client that holds its process without sending prompts, or without reading its
    /// answers.
    fn watch_idleness(&mut self, ctx: &mut Context<Self>) {
        let limit = self.lending.as_ref().and_then(|l| l.client_timeout);
        let Some(limit) = limit else {
            return;
        };
        let idle = self.session.idle_time().unwrap_or_default();
        match self.session.phase() {
            Phase::Over => return,
            // The process has answered, but the client does not read.
            _ if idle >= limit && !self.session.is_written() => {
                return self.session.cut(ErrorReply::unread());
            }
            Phase::Open if idle >= limit => {
                return self.session.end_tunnel(idle_too_long(limit));
            }
            Phase::Open | Phase::Last | Phase::Closing => {}
        }
        let left = limit.saturating_sub(idle).max(LOOK_PAUSE);
        ctx.run_later(left, |_, ctx| {
            ctx.address().tell(TimeIsUp(Self::watch_idleness))
        });
    }

    /// The session has reached its maximum duration. Open prompts are still answered, within one prompt's time.
    fn end_session(&mut self, ctx: &mut Context<Self>) {
        let Some(Lending {
            prompt_timeout,
            session_timeout: Some(limit),
            ..
        }) = &self.lending
        else {
            return;
        };
        let answer_max = prompt_timeout.unwrap_or(self.attach_patience);
        let too_long = ErrorReply::session_too_long(*limit);
        self.session.end_tunnel(too_long.clone());
        ctx.run_later(answer_max, move |client, _| {
            let session = &client.session;
            if session.phase() == Phase::Over {
                return;
            }
            if session.is_written() {
                session.push_raw(&last_line(&too_long).into());
                session.flush();
            }
            session.cut(too_long);
        });
    }

    /// Ends a connection at once: its client has gone, or the service stops now.
    pub(super) fn lending_cut(&mut self, who: LendEnd, ctx: &mut Context<Self>) {
        let why = self.session.take_close_reason();
        if let Some(lending) = &mut self.lending {
            lending.end.ended(why.as_ref().map_or(who, LendEnd::of));
        }
        self.end(ctx);
    }

    /// Returns the process, sends the reason unless the client ended the connection, and ends.
    pub(super) fn end_lending(&mut self, ctx: &mut Context<Self>) {
        let why = self.session.take_close_reason();
        if let Some(lending) = &mut self.lending {
            let end = why.as_ref().map_or(LendEnd::Client, LendEnd::of);
            lending.end.ended(end);
        }
        // Dropped before the process is free, so that connections never outnumber processes, except while a last line
        // is being sent.
        self.connected = None;
        if why.is_none() {
            self.session.end();
        }
        let process = match &self.mode {
            Mode::Tunnel(tunnel) => Some(Rc::clone(&tunnel.process)),
            _ => None,
        };
        let session = Rc::clone(&self.session);
        let closing = async move {
            if let Some(why) = &why {
                session.push_raw(&last_line(why).into());
                session.flush();
            }
            if let Some(process) = process {
                process.finish().await;
            }
            if why.is_some() {
                session.linger().await;
            }
        };
        // Ends with the deadline of a reset, plus a bounded time.
        self.end_after(closing, ctx);
    }
}

/// A limit of a service's connection is due. Sent through the mailbox, because all readers of the client are polled
/// after a message, and then notice that the connection is to end.
#[derive(Message)]
#[rtype(result = "()")]
struct TimeIsUp(fn(&mut Client, &mut Context<Client>));

impl Handler<TimeIsUp> for Client {
    type Result = ();

    fn handle(&mut self, TimeIsUp(act): TimeIsUp, ctx: &mut Self::Context) {
        act(self, ctx);
    }
}

fn idle_too_long(limit: Duration) -> ErrorReply {
    let reason = format!(
        "the connection held a process for {} s without sending it a prompt",
        limit.as_secs_f64()
    );
    ErrorReply::answer("timeout", &reason, Fault::Client)
}
