//! The socket of a connection: Unix, TCP, or TLS over it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use tokio::net::{TcpStream, UnixStream};

use child::watch;

/// One connected socket.
#[derive(Debug)]
pub enum Stream {
    /// From this machine.
    Unix(UnixStream),
    /// From any machine.
    Tcp(TcpStream),
    /// From any machine, over TLS: our end of a socket whose other end is relayed to the client.
    Tls {
        /// Our end.
        relayed: UnixStream,
        /// The client's address.
        peer: SocketAddr,
        /// The name in the client's certificate.
        certified: Option<String>,
    },
}

/// Handles all kinds alike.
macro_rules! either {
    ($stream:expr, $inner:ident => $what:expr) => {
        match $stream {
            Stream::Unix($inner) => $what,
            Stream::Tcp($inner) => $what,
            Stream::Tls {
                relayed: $inner, ..
            } => $what,
        }
    };
}

/// Time without traffic after which TCP checks whether the peer still exists.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

impl Stream {
    /// Wraps a TCP connection. Keepalive detects clients whose machine is gone, so that their processes are returned.
    pub(crate) fn of_tcp(stream: TcpStream) -> Self {
        // Answers are already batched; fails only if the client has gone.
        let _ = stream.set_nodelay(true);
        let _ = sockopt::set_socket_keepalive(&stream, true);
        let _ = sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE);
        Self::Tcp(stream)
    }

    /// Returns the peer's address; `None` for a Unix socket.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(tcp) => tcp.peer_addr().ok(),
            Self::Tls { peer, .. } => Some(*peer),
        }
    }

    /// Returns the name in the client's certificate.
    pub(super) fn certified(&self) -> Option<&str> {
        match self {
            Self::Tls { certified, .. } => certified.as_deref(),
            Self::Unix(_) | Self::Tcp(_) => None,
        }
    }

    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read_ready(cx))
    }

    pub(super) fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        either!(self, stream => stream.try_io(interest, operation))
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        either!(self, stream => stream.writable().await)
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, stream => stream.try_write(bytes))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(self, stream => stream.as_fd())
    }
}

/// Notifies when both directions of a socket are closed.
pub(crate) struct HangUp(AsyncFd<OwnedFd>);

impl HangUp {
    /// Watches a duplicate of the socket's descriptor.
    ///
    /// # Errors
    /// The process has no descriptor left, or the event loop cannot register it.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        // Registered for urgent data only, which also reports the end of both directions.
        watch(socket.as_fd().try_clone_to_owned()?, Interest::PRIORITY).map(Self)
    }

    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match ready!(self.0.poll_read_ready(cx)) {
                Ok(mut guard) if !guard.ready().is_read_closed() => {
                    guard.clear_ready_matching(Ready::READABLE);
                }
                _ => return Poll::Ready(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_rt::test]
    async fn tcp_keepalive_is_on() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = TcpStream::connect(listener.local_addr().unwrap());
        let _client = connect.await.unwrap();
        let stream = Stream::of_tcp(listener.accept().await.unwrap().0);
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(KEEPALIVE_IDLE));
    }
}
