//! Answers being sent to the client.
//!
//! SUMMARY   [`Outgoing`] is the body of every answer. A complete body is sent in pieces as the client reads them. The
//!           request's resources are held until the body ends.
//! DIFFERS   actix-web copies a whole answer into a buffer, which is not charged to the request.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tokio::task::yield_now;

use super::body::{Account, TURN_BYTES};
use super::guard::Exchange;

/// Maximum length of a piece, in bytes.
const PIECE_BYTES: usize = 32 << 10;

/// The body's content.
enum Content {
    Whole(Bytes),
    Stream(BoxBody),
}

/// An answer's body.
pub(super) struct Outgoing {
    content: Content,
    /// Bytes sent in this turn.
    turn_bytes: usize,
    /// The turn of other tasks.
    pause: Option<LocalBoxFuture<'static, ()>>,
    _exchange: Exchange,
    _account: Option<Account>,
}

impl Outgoing {
    /// Wraps an answer's body.
    pub fn new(body: BoxBody, exchange: Exchange, account: Option<Account>) -> Self {
        let content = match body.size() {
            BodySize::Sized(_) => body
                .try_into_bytes()
                .map_or_else(Content::Stream, Content::Whole),
            BodySize::None | BodySize::Stream => Content::Stream(body),
        };
        if let Content::Stream(_) = content {
            exchange.set_stream();
        }
        Self {
            content,
            turn_bytes: 0,
            pause: None,
            _exchange: exchange,
            _account: account,
        }
    }
}

impl MessageBody for Outgoing {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        match &self.content {
            Content::Whole(bytes) => BodySize::Sized(bytes.len() as u64),
            Content::Stream(body) => body.size(),
        }
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = &mut *self;
        // A fast reader makes nobody else wait.
        if this.turn_bytes >= TURN_BYTES {
            ready!(
                this.pause
                    .get_or_insert_with(|| yield_now().boxed_local())
                    .poll_unpin(cx)
            );
            (this.pause, this.turn_bytes) = (None, 0);
        }
        let piece = match &mut this.content {
            Content::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Content::Whole(bytes) => Ok(bytes.split_to(bytes.len().min(PIECE_BYTES))),
            Content::Stream(body) => match ready!(Pin::new(body).poll_next(cx)) {
                Some(piece) => piece,
                None => return Poll::Ready(None),
            },
        };
        this.turn_bytes += piece.as_ref().map_or(0, Bytes::len);
        Poll::Ready(Some(piece))
    }
}
