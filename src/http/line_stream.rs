//! Requests whose body and answer are streams of lines, both at the same time.
//!
//! SUMMARY   The first line of the body holds the arguments. [`answer`] brings the further lines to
//!           work on the pool's arbiter and what that work makes to the client.
//! PROMISES  Memory is bounded: who sends faster than functions run, or reads slower, has to wait. An
//!           error in the middle is a last line `{"error", "reason", ..}`; one before the first
//!           answer has its code. However the request ends, the work and what it holds end with it.
//! LIMITS    A client has to read while it writes. The head of the answer comes with its first piece.

use std::future::Future;
use std::pin::Pin;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;

use super::Shared;
use super::answer::{Answer, Refusal};
use super::body::{IDLE_MAX, Incoming};
use crate::actors::gate::GateError;

/// The content type of both directions.
pub(super) const NDJSON: &str = "application/x-ndjson";

/// Pieces of the answer that wait for the client.
pub(super) const ANSWERS_AHEAD: usize = 16;

/// What brings the body to the work, until the body ends or nobody takes more of it.
pub(super) type Pump = Pin<Box<dyn Future<Output = ()>>>;

/// The work: its own result, unless it is lost on the way to the pool.
type Work = Pin<Box<dyn Future<Output = Result<Result<(), Refusal>, GateError>>>>;

/// The first line of a body, and what came after it.
pub(super) struct FirstLine {
    line: BytesMut,
    /// The beginning of the lines that follow.
    pub(super) rest: BytesMut,
}

impl FirstLine {
    /// Reads up to the first line feed.
    ///
    /// # Errors
    /// The line is too long, or the body is too slow or cut off.
    pub(super) async fn read(incoming: &mut Incoming, shared: &Shared) -> Result<Self, Refusal> {
        let limit = shared.config.borrow().server.line_max;
        let mut line = BytesMut::new();
        loop {
            let searched = line.len();
            let chunk = incoming.next().await?;
            let is_end = chunk.is_none();
            line.extend_from_slice(&chunk.unwrap_or_default());
            let end = memchr::memchr(b'\n', &line[searched..]).map(|at| searched + at);
            if end.unwrap_or(line.len()) > limit {
                return Err(Refusal::too_large(
                    "the first line",
                    limit,
                    Some("line_max"),
                ));
            }
            match end {
                Some(end) => {
                    let rest = line.split_off(end + 1);
                    return Ok(Self { line, rest });
                }
                None if is_end => {
                    let rest = BytesMut::new();
                    return Ok(Self { line, rest });
                }
                None => {}
            }
        }
    }

    /// Takes the arguments out of the line.
    ///
    /// # Errors
    /// What is wrong with them, with the line's number.
    pub(super) fn arguments<T, E: Into<Refusal>>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Refusal> {
        let text = std::str::from_utf8(&self.line)
            .map_err(|_| Refusal::bad_request("the first line is not UTF-8"));
        let parsed = text.and_then(|text| parse(text).map_err(Into::into));
        parsed.map_err(|refusal| {
            let reason = format!("the first line holds the arguments: {}", refusal.reason());
            refusal.because(reason).with_member("line", 1)
        })
    }
}

/// Answers with what comes out of `answers` until the work lets go of its end of it. What has to
/// last as long as the request is `kept`.
pub(super) async fn answer(
    pump: Pump,
    answers: mpsc::Receiver<Bytes>,
    work: impl Future<Output = Result<Result<(), Refusal>, GateError>> + 'static,
    kept: impl Sized + 'static,
) -> Answer {
    let mut stream = Stream {
        pump: Some(pump),
        answers,
        work: Some(Box::pin(work)),
    };
    // What fails before there is anything to answer fails with a code.
    let first = stream.next().await?;
    let rest = stream::unfold(Some((stream, kept)), async |going_on| {
        let (mut stream, kept) = going_on?;
        match stream.next().await {
            Ok(None) => None,
            Ok(Some(piece)) => Some((Ok(piece), Some((stream, kept)))),
            Err(refusal) => Some((Ok(refusal.line()), None)),
        }
    });
    let first = stream::iter(first.map(Ok::<_, GateError>));
    Ok(HttpResponse::Ok()
        .content_type(NDJSON)
        .streaming(first.chain(rest)))
}

/// A request in progress: what comes, what is done with it, what goes out.
struct Stream {
    /// None once everything has come.
    pump: Option<Pump>,
    answers: mpsc::Receiver<Bytes>,
    /// None once it is over.
    work: Option<Work>,
}

impl Stream {
    /// Returns the next piece of the answer; none at its end.
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            tokio::select! {
                biased;
                answer = self.answers.recv() => match answer {
                    Some(answer) => return Ok(Some(answer)),
                    // The work lets go of its end when it is over.
                    None => return self.finish().await.map(|()| None),
                },
                () = pending_or(&mut self.pump) => self.pump = None,
            }
        }
    }

    async fn finish(&mut self) -> Result<(), Refusal> {
        match self.work.take() {
            Some(work) => work.await?,
            None => Ok(()),
        }
    }
}

async fn pending_or(pump: &mut Option<Pump>) {
    match pump {
        Some(pump) => pump.await,
        None => std::future::pending().await,
    }
}

/// The client reads nothing of its answer.
pub(super) fn not_read() -> Refusal {
    let reason = format!(
        "nothing of the answer was read for {} s",
        IDLE_MAX.as_secs()
    );
    Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", reason)
}
