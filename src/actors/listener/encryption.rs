//! TLS for clients on TCP: the handshake, and the relay between a client and the session that serves it.
//!
//! SUMMARY   [`encrypt`] shakes hands and makes the stream that a session is given; the [`Relay`] that comes with
//!           it carries bytes between the two until either is gone.
//! PROMISES  A client that is late with its handshake, or takes nothing of an answer, is disconnected.
//! LIMITS    A connection takes three descriptors: a session reads and writes a plain socket.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::actors::client::stream::Stream;
use crate::tls::{Certificate, client_name};

/// How long a client may take for its handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// What is carried at a time, in bytes: one record of TLS.
const CARRIED_MAX: usize = 16 << 10;

/// Descriptors of a connection beside that of its session.
pub(super) const DESCRIPTORS: usize = 2;

/// What carries bytes between a client and its session.
pub(super) struct Relay {
    client: TlsStream<TcpStream>,
    session: UnixStream,
}

/// Shakes hands with a client.
///
/// # Errors
/// It speaks no TLS, or is late: the client's fault. The system has no more descriptors.
pub(super) async fn encrypt(
    tcp: TcpStream,
    certificate: &Certificate,
) -> io::Result<(Stream, Relay)> {
    let peer = tcp.peer_addr()?;
    let missing = || io::Error::other("there is no certificate");
    let acceptor = certificate.acceptor().ok_or_else(missing)?;
    let client = timeout(HANDSHAKE_MAX, acceptor.accept(tcp)).await??;
    let certified = client_name(client.get_ref().1);
    let (relayed, session) = UnixStream::pair()?;
    let stream = Stream::Tls {
        relayed,
        peer,
        certified,
    };
    Ok((stream, Relay { client, session }))
}

impl Relay {
    /// Carries until either side is gone. A client that takes nothing of an answer for as long as
    /// `write_timeout` is.
    pub(super) async fn run(self, write_timeout: Duration) {
        let (mut from_client, mut to_client) = split(self.client);
        let (mut from_session, mut to_session) = self.session.into_split();
        let answers = async {
            // Whatever goes wrong, the client is gone.
            let _ = carry(&mut from_session, &mut to_client, write_timeout).await;
            let _ = timeout(write_timeout, to_client.shutdown()).await;
        };
        let requests = async {
            // A session takes what it can and is not bound to any time.
            let carried = carry(&mut from_client, &mut to_session, Duration::MAX).await;
            let _ = to_session.shutdown().await;
            if carried.is_ok() {
                // The client may have closed its side alone, and wait for answers.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = answers => {}
            () = requests => {}
        }
    }
}

async fn carry(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    write_timeout: Duration,
) -> io::Result<()> {
    let mut carried = vec![0; CARRIED_MAX];
    loop {
        let length = from.read(&mut carried).await?;
        if length == 0 {
            return Ok(());
        }
        let write = async {
            to.write_all(&carried[..length]).await?;
            to.flush().await
        };
        timeout(write_timeout, write).await??;
    }
}
