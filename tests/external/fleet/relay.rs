//! A relay between a daemon and its database that can stall all traffic.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Accepts connections until dropped, and forwards each to a server's socket.
pub struct Relay {
    pub address: SocketAddr,
    /// Whether traffic is stalled.
    held: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Relay {
    pub async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (held, is_held) = watch::channel(false);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (socket, is_held) = (socket.clone(), is_held.clone());
                tokio::spawn(async move {
                    let Ok(server) = UnixStream::connect(socket).await else {
                        return;
                    };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    // The end of one direction closes both connections.
                    tokio::select! {
                        () = forward(from_client, to_server, is_held.clone()) => {}
                        () = forward(from_server, to_client, is_held) => {}
                    }
                });
            }
        });
        Self {
            address,
            held,
            accepting,
        }
    }

    /// Stalls traffic like a cut network: neither end is notified.
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Lets traffic through, including what was stalled.
    pub fn release(&self) {
        self.held.send_replace(false);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Forwards bytes until either end is closed, or the relay is dropped while it stalls traffic.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut is_held: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if is_held.wait_for(|held| !held).await.is_err() {
            return;
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
