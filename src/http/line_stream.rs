//! Requests that stream lines in both directions at once.
//!
//! SUMMARY   The first line of the body has the arguments. [`answer`] passes the other lines to the work, which runs
//!           on the pool's arbiter, and passes its results to the client.
//! PROMISES  Memory is bounded: a client that sends faster than functions run, or reads slower, has to wait. An
//!           error after the first answer is a last line `{"error", "reason", ..}`; an earlier one has its status code.
//!           However the request ends, the work and its resources end with it.
//! LIMITS    A client has to read while it writes. The answer's head is sent with its first piece.

use std::sync::atomic::{AtomicBool, Ordering};

use actix_web::http::StatusCode;
use bytes::Bytes;
use futures_util::future::{LocalBoxFuture, OptionFuture};
use tokio::sync::mpsc;

use super::HttpContext;
use super::access::User;
use super::answer::{Answer, HttpResult, Piece, Pieces, Refusal, streamed};
use super::body::{IDLE_MAX, Incoming};
use super::request::NDJSON;
use crate::actors::pool_executor::PoolWork;
use crate::messages::client_error::ErrorReply;
use child::line_buffer::{LineBuffer, LineTooLong};

/// Maximum pieces of the answer queued for the client.
pub(super) const ANSWERS_AHEAD: usize = 16;

/// The lines of a body, as they arrive.
pub(super) struct Lines {
    pub incoming: Incoming,
    /// Received but not yet consumed.
    pub buffer: LineBuffer,
    is_over: bool,
}

impl Lines {
    /// Reads the arguments from the first line.
    ///
    /// # Errors
    /// The line is too long, or the body is too slow or truncated; or the arguments have a mistake, and the error has
    /// the line's number.
    pub async fn begin<T>(
        incoming: Incoming,
        shared: &HttpContext,
        parse: impl FnOnce(&str) -> Result<T, ErrorReply>,
    ) -> HttpResult<(T, Self)> {
        let buffer = LineBuffer::new(shared.config.borrow().server.line_max);
        let mut lines = Self {
            incoming,
            buffer,
            is_over: false,
        };
        let line = lines.next_line("the first line").await?.unwrap_or_default();
        let text = std::str::from_utf8(&line)
            .map_err(|_| Refusal::bad_request("the first line is not UTF-8"));
        let arguments = text
            .and_then(|text| parse(text).map_err(Refusal::from))
            .map_err(|refusal| {
                let reason = format!("the first line holds the arguments: {}", refusal.reason());
                refusal.with_member("reason", reason).with_member("line", 1)
            })?;
        Ok((arguments, lines))
    }

    /// Returns the next line; at the end of the body an unterminated line, then `None`. Errors name the line by `what`.
    ///
    /// # Errors
    /// It is too long, or the body is too slow or truncated.
    pub async fn next_line(&mut self, what: &str) -> Piece {
        let too_long = |error: LineTooLong| Refusal::too_large(what, error.limit, Some("line_max"));
        while !self.is_over {
            if let Some(line) = self.buffer.next_line().map_err(too_long)? {
                return Ok(Some(line));
            }
            match self.incoming.next().await? {
                Some(chunk) => self.buffer.add(chunk),
                None => self.is_over = true,
            }
        }
        Ok(Some(self.buffer.take_rest()).filter(|rest| !rest.is_empty()))
    }
}

/// Answers with the output of `answers` until the work drops the sender. Meanwhile `pump` passes the body to the work.
pub(super) async fn answer<W: PoolWork<Output = HttpResult<()>>>(
    pump: impl Future<Output = ()> + 'static,
    answers: mpsc::Receiver<Bytes>,
    work: W,
    (shared, user): (&HttpContext, &User),
) -> Answer {
    let work = shared.pool.run(work, user.principal());
    streamed(
        NDJSON,
        LineStream {
            pump: Some(Box::pin(pump)),
            answers,
            work: Some(Box::pin(async move { work.await? })),
        },
    )
    .await
}

/// A request in progress: its input, work and output.
struct LineStream {
    /// `None` once everything has arrived.
    pump: Option<LocalBoxFuture<'static, ()>>,
    answers: mpsc::Receiver<Bytes>,
    /// `None` once it has ended.
    work: Option<LocalBoxFuture<'static, HttpResult<()>>>,
}

impl Pieces for LineStream {
    async fn next(&mut self) -> Piece {
        let answer = loop {
            tokio::select! {
                biased;
                answer = self.answers.recv() => break answer,
                Some(()) = OptionFuture::from(self.pump.as_mut()) => self.pump = None,
            }
        };
        // The work drops the sender when done.
        if answer.is_none()
            && let Some(work) = self.work.take()
        {
            work.await?;
        }
        Ok(answer)
    }
}

/// Returns the error to record for a stream: a disconnection if the client has gone or its body is cut off (`is_cut`).
pub(super) fn recorded(
    error: ErrorReply,
    answers: &mpsc::Sender<Bytes>,
    is_cut: &AtomicBool,
) -> ErrorReply {
    if answers.is_closed() || is_cut.load(Ordering::Relaxed) {
        ErrorReply::disconnected()
    } else {
        error
    }
}

/// Returns the refusal of a client that does not read its answer.
pub(super) fn not_read() -> Refusal {
    let reason = format!("the answer was not read for {} s", IDLE_MAX.as_secs());
    Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", reason)
}
