//! A connection's socket with deadlines, so that slow clients do not affect others.
//!
//! SUMMARY   [`Guarded`] is the socket as the server below sees it; [`Exchange`] reports to it whether a request is
//!           open. Both share the [`Connection`].
//! PROMISES  The first head must arrive within [`HEAD_WAIT`] of the connection, each later one within that time of
//!           its first byte; input that arrived while the service was busy is read before a head counts as late, and
//!           a late head is answered with 408. A client that does not read its answer, or reads too slowly, is
//!           disconnected. A connection closed to make room for a new one ends at once.
//! DIFFERS   actix-web has a deadline for the first head only, including time when the server did not read, and none
//!           for a client that does not read.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::HttpRequest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::connections::{Conduct, ConnectionPlace};
use crate::ConfigWatch;
use crate::pace::Pace;
use crate::query_server::status::Holder;

/// How long a client may take to send a head.
pub(super) const HEAD_WAIT: Duration = Duration::from_secs(5);

/// The answer to a late head.
const LATE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// How long a connection without a request is kept.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// How a client connected.
pub(super) enum Way {
    Plain,
    /// Over TLS.
    Encrypted,
    /// By the Unix socket: the user, as reported by the system.
    Local(Arc<Holder>),
}

/// State shared by a connection's socket and requests.
pub(super) struct Connection {
    place: ConnectionPlace,
    /// Open requests: from the end of a head to the end of its answer.
    in_hand: Cell<usize>,
    /// When the last open request ended; before the first one, when the connection was made.
    idle_since: Cell<Instant>,
    /// When the first byte of a head arrived; for the first head, when the connection was made.
    head_since: Cell<Option<Instant>>,
    /// Whether bytes were read during an open request: they may begin another one.
    has_more: Cell<bool>,
    /// Whether the answer is a stream, which may be read slowly.
    is_stream: Cell<bool>,
    way: Way,
    /// The name in the client's certificate, once known.
    pub certified: OnceCell<String>,
    config: ConfigWatch,
}

impl Connection {
    pub fn new(place: ConnectionPlace, way: Way, config: ConfigWatch) -> Rc<Self> {
        Rc::new(Self {
            place,
            in_hand: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            head_since: Cell::new(Some(Instant::now())),
            has_more: Cell::new(false),
            is_stream: Cell::new(false),
            way,
            certified: OnceCell::new(),
            config,
        })
    }

    /// Returns the local user at the other end of the Unix socket.
    pub fn local(&self) -> Option<&Arc<Holder>> {
        match &self.way {
            Way::Local(holder) => Some(holder),
            Way::Plain | Way::Encrypted => None,
        }
    }

    fn conduct(&self) -> &Conduct {
        &self.place.conduct
    }

    /// Waits until the connection is closed to make room for a new one.
    pub async fn closed(&self) {
        poll_fn(|cx| {
            self.conduct().waker.register(cx.waker());
            if self.conduct().is_closed() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Returns the deadline of the next head; `None` while a request is open.
    fn head_deadline(&self) -> Option<Instant> {
        if self.in_hand.get() > 0 {
            return None;
        }
        let latest = self.idle_since.get() + KEEP_ALIVE + HEAD_WAIT;
        let head = self.head_since.get().map(|since| since + HEAD_WAIT);
        Some(head.map_or(latest, |head| head.min(latest)))
    }
}

/// Returns whether a request arrived over TLS.
pub(super) fn is_encrypted(request: &HttpRequest) -> bool {
    let connection = request.conn_data::<Rc<Connection>>();
    connection.is_some_and(|connection| matches!(connection.way, Way::Encrypted))
}

/// An open request. When the last of these is dropped, the connection waits for the next one.
pub(super) struct Exchange(Option<Rc<Connection>>);

impl Exchange {
    /// Begins when the head is complete.
    pub fn begin(request: &HttpRequest) -> Self {
        let connection = request.conn_data::<Rc<Connection>>().cloned();
        if let Some(connection) = &connection {
            connection.in_hand.set(connection.in_hand.get() + 1);
            connection.head_since.set(None);
        }
        Self(connection)
    }

    /// Records that the request's sender is known: until it ends, its connection is not closed to make room.
    pub fn set_known(&self) {
        if let Some(connection) = &self.0 {
            connection.conduct().set_busy(true);
        }
    }

    /// Records that the answer is a stream.
    pub fn set_stream(&self) {
        if let Some(connection) = &self.0 {
            connection.is_stream.set(true);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let Some(connection) = &self.0 else { return };
        connection.in_hand.set(connection.in_hand.get() - 1);
        if connection.in_hand.get() == 0 {
            connection.idle_since.set(Instant::now());
            connection.is_stream.set(false);
            connection.conduct().set_busy(false);
            if connection.has_more.take() {
                // The deadline of the next head, which may have begun, is not set yet.
                connection.conduct().waker.wake();
            }
        }
    }
}

/// A lazily set timer.
#[derive(Default)]
struct Timer(RefCell<Option<Pin<Box<Sleep>>>>);

impl Timer {
    /// Returns whether the deadline has passed; otherwise wakes the task when it does.
    fn is_past(&self, deadline: Instant, cx: &mut Context<'_>) -> bool {
        let mut timer = self.0.borrow_mut();
        let sleep = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx).is_ready()
    }
}

/// The socket of a connection.
pub(super) struct Guarded<S> {
    pub stream: S,
    pub connection: Rc<Connection>,
    reading: Timer,
    writing: Timer,
    /// Bytes read by the client since it last stalled; `None` while it keeps up.
    blocked: Option<Pace>,
}

impl<S> Guarded<S> {
    pub fn new(stream: S, connection: Rc<Connection>) -> Self {
        Self {
            stream,
            connection,
            reading: Timer::default(),
            writing: Timer::default(),
            blocked: None,
        }
    }

    fn check_closed(&self) -> io::Result<()> {
        if self.connection.conduct().is_closed() {
            Err(io::ErrorKind::ConnectionAborted.into())
        } else {
            Ok(())
        }
    }

    /// Records the result of a write.
    fn wrote(
        &mut self,
        result: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Ready(Ok(length)) => {
                if self.connection.is_stream.get() {
                    self.blocked = None;
                }
                if let Some(pace) = &self.blocked {
                    pace.took(*length);
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let timeout = self.connection.config.borrow().server.request_timeout;
                let pace = self.blocked.get_or_insert_with(|| Pace::new(timeout));
                if self.writing.is_past(pace.deadline(), cx) {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
        }
        result
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.connection.conduct().waker.register(cx.waker());
        self.check_closed()?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let connection = &self.connection;
        if buffer.filled().len() > before {
            match connection.in_hand.get() {
                0 => {
                    connection.head_since.set(Some(
                        connection.head_since.get().unwrap_or_else(Instant::now),
                    ));
                }
                _ => connection.has_more.set(true),
            }
        }
        // Available input is read first, however late it is: the service may have been busy.
        if read.is_ready() {
            return read;
        }
        match connection.head_deadline() {
            Some(deadline) if self.reading.is_past(deadline, cx) => {
                if connection.head_since.get().is_some() {
                    // The client may not read it.
                    let _ = Pin::new(&mut self.stream).poll_write(cx, LATE);
                    let _ = Pin::new(&mut self.stream).poll_flush(cx);
                }
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            _ => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.connection.conduct().waker.register(cx.waker());
        self.check_closed()?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Called once everything is written, so the client keeps up.
        self.blocked = None;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::watch;
    use tokio::time::advance;

    use super::*;
    use crate::config::Config;
    use crate::http::connections::Connections;

    fn guarded() -> (DuplexStream, Guarded<DuplexStream>) {
        let peer = IpAddr::from(Ipv4Addr::LOCALHOST);
        let place = Connections::new(1).enter(peer.into());
        let (_, config) = watch::channel(Arc::new(Config::default()));
        let connection = Connection::new(place.expect("there is room"), Way::Plain, config);
        let (client, server) = tokio::io::duplex(1024);
        (client, Guarded::new(server, connection))
    }

    #[tokio::test(start_paused = true)]
    async fn available_input_is_read_before_a_head_counts_as_late() {
        let (mut client, mut guarded) = guarded();
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        advance(2 * HEAD_WAIT).await;
        let mut head = [0; 100];
        assert_eq!(guarded.read(&mut head).await.unwrap(), 16);
        let late = guarded.read(&mut head).await.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        drop(guarded);
        let mut said = Vec::new();
        client.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, LATE);
    }
}
