//! TLS for clients on TCP: the handshake, and the relay between a client and the session that serves it.
//!
//! SUMMARY   [`encrypt`] does the handshake and makes the session's stream; the accompanying [`Relay`] copies bytes
//!           between client and session until either is gone.
//! PROMISES  A client that is late with its handshake, or does not read an answer, is disconnected.
//! LIMITS    A connection takes four descriptors, since a session uses a plain socket.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::actors::client::stream::{HangUp, Stream};
use crate::tls::{Certificate, client_name};

/// Timeout of a client's handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Bytes copied at a time: one TLS record.
const CARRIED_MAX: usize = 16 << 10;

/// Descriptors of a connection, not counting its session's.
pub(super) const DESCRIPTORS: usize = 3;

/// Copies bytes between a client and its session.
pub(super) struct Relay {
    client: TlsStream<TcpStream>,
    session: UnixStream,
    /// Notifies that the client is gone, even while nothing is read from it.
    hang_up: HangUp,
}

/// Does the handshake with a client. Returns the stream of its session, and the relay that must run alongside it.
///
/// # Errors
/// The client does not use TLS, or is late. The host has no certificate, or no descriptors left.
pub(super) async fn encrypt(
    tcp: TcpStream,
    certificate: &Certificate,
) -> io::Result<(Stream, Relay)> {
    let peer = tcp.peer_addr()?;
    let missing = || io::Error::other("there is no certificate");
    let acceptor = certificate.acceptor().ok_or_else(missing)?;
    let client = timeout(HANDSHAKE_MAX, acceptor.accept(tcp)).await??;
    let certified = client_name(client.get_ref().1);
    let hang_up = HangUp::of(client.get_ref().0)?;
    let (relayed, session) = UnixStream::pair()?;
    let stream = Stream::Tls {
        relayed,
        peer,
        certified,
    };
    let relay = Relay {
        client,
        session,
        hang_up,
    };
    Ok((stream, relay))
}

impl Relay {
    /// Copies until either side is gone. A client that reads nothing of an answer for `write_timeout` counts as gone.
    pub async fn run(self, write_timeout: Duration) {
        let (mut from_client, mut to_client) = split(self.client);
        let (mut from_session, mut to_session) = self.session.into_split();
        let answers = async {
            let carried = carry(&mut from_session, &mut to_client, write_timeout).await;
            let _ = timeout(write_timeout, to_client.shutdown()).await;
            // The session may read on: unread input would discard the last answers.
            let session: &UnixStream = from_session.as_ref();
            if matches!(carried, Ok(true))
                && let Ok(session_end) = HangUp::of(session)
            {
                std::future::poll_fn(|cx| session_end.poll(cx)).await;
            }
        };
        let requests = async {
            // A session reads when it can, without a timeout.
            let carried = carry(&mut from_client, &mut to_session, Duration::MAX).await;
            let _ = to_session.shutdown().await;
            if carried.is_ok() {
                // The client may have closed only its sending side, or the session has ended: answers are still sent.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            // Requests that have arrived are relayed, even if their client is gone.
            biased;
            () = answers => {}
            () = requests => {}
            () = std::future::poll_fn(|cx| self.hang_up.poll(cx)) => {}
        }
    }
}

/// Copies until `from` ends or `to` takes no more. Returns whether `to` took everything.
///
/// # Errors
/// `from` cannot be read.
async fn carry(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    write_timeout: Duration,
) -> io::Result<bool> {
    let mut carried = vec![0; CARRIED_MAX];
    loop {
        let length = from.read(&mut carried).await?;
        if length == 0 {
            return Ok(true);
        }
        let write = async {
            to.write_all(&carried[..length]).await?;
            to.flush().await
        };
        if !matches!(timeout(write_timeout, write).await, Ok(Ok(()))) {
            return Ok(false);
        }
    }
}
