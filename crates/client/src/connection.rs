//! One connection: requests out, replies in, matched by id.
//!
//! SUMMARY   A writer task sends queued requests, several at a time; a reader task passes each reply to its waiting
//!           call.
//! PROMISES  When the connection ends, for any reason, every waiting call is notified. Reading never waits for
//!           writing, so two full buffers cannot block each other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;

use super::error::ClientError;
use super::wire::{self, Outcome, ProcDown};

/// Maximum queued requests; further callers wait.
pub const REQUESTS_QUEUED_MAX: usize = 256;

/// Maximum length of a reply, in bytes.
pub const REPLY_BYTES_MAX: usize = 256 << 20;

/// Bytes of one read.
const READ_BYTES: usize = 64 * 1024;

/// Bytes of one write if many requests are queued.
const WRITE_BYTES: usize = 256 * 1024;

/// A connection; closed with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Vec<u8>>,
    /// The reader and the writer; both end with the connection.
    _tasks: Arc<JoinSet<()>>,
}

/// Notices kept for a slow listener.
const DOWNS_KEPT: usize = 256;

#[derive(Debug)]
struct Shared {
    next_id: AtomicU64,
    calls: Mutex<Calls>,
    /// Reports revoked processes.
    downs: broadcast::Sender<ProcDown>,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) outcome: Outcome,
    /// The whole line, which may have further members; empty if there is none.
    pub(super) line: Vec<u8>,
}

/// Id of a request -> the waiter for its reply.
#[derive(Debug, Default)]
struct Calls {
    waiting: HashMap<u64, oneshot::Sender<Reply>>,
    closed: bool,
    /// Why it closed, until one caller is notified.
    reason: Option<ClientError>,
}

impl Shared {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies all waiting calls that the connection has ended, one of them with the reason.
    fn close(&self, reason: ClientError) {
        let mut calls = self.calls();
        calls.closed = true;
        calls.reason.get_or_insert(reason);
        for waiter in std::mem::take(&mut calls.waiting).into_values() {
            let error = calls.reason.take().unwrap_or(ClientError::Closed);
            let (outcome, line) = (Err(error), Vec::new());
            drop(waiter.send(Reply { outcome, line }));
        }
    }
}

/// Removes a call when its caller gives up.
struct Registration<'a>(&'a Shared, u64);

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.0.calls().waiting.remove(&self.1);
    }
}

impl Connection {
    pub(super) fn on(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        let shared = Arc::new(Shared {
            next_id: AtomicU64::default(),
            calls: Mutex::default(),
            downs: broadcast::Sender::new(DOWNS_KEPT),
        });
        let (requests, queue) = mpsc::channel(REQUESTS_QUEUED_MAX);
        let mut tasks = JoinSet::new();
        let replies = Arc::clone(&shared);
        tasks.spawn(async move { replies.close(read(reader, &replies).await) });
        tasks.spawn(write(writer, queue, Arc::clone(&shared)));
        Self {
            shared,
            requests,
            _tasks: Arc::new(tasks),
        }
    }

    /// Subscribes to notices.
    pub(super) fn downs(&self) -> broadcast::Receiver<ProcDown> {
        self.shared.downs.subscribe()
    }

    /// Sends a request and returns the outcome of its reply.
    pub(super) async fn call(&self, call: &'static str, arguments: &impl Serialize) -> Outcome {
        self.reply(call, arguments).await?.outcome
    }

    /// Sends a request and waits for its reply.
    pub(super) async fn reply(
        &self,
        call: &'static str,
        arguments: &impl Serialize,
    ) -> Result<Reply, ClientError> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let line = wire::request(id, call, arguments)?;
        let (waiter, reply) = oneshot::channel();
        {
            let mut calls = self.shared.calls();
            if calls.closed {
                return Err(calls.reason.take().unwrap_or(ClientError::Closed));
            }
            calls.waiting.insert(id, waiter);
        }
        let _registration = Registration(&self.shared, id);
        // A writer that has ended has notified the waiter.
        drop(self.requests.send(line).await);
        reply.await.map_err(|_| ClientError::Closed)
    }
}

async fn write(
    mut writer: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Vec<u8>>,
    shared: Arc<Shared>,
) {
    while let Some(mut lines) = queue.recv().await {
        while lines.len() < WRITE_BYTES
            && let Ok(more) = queue.try_recv()
        {
            lines.extend_from_slice(&more);
        }
        if let Err(error) = writer.write_all(&lines).await {
            return shared.close(broken(error));
        }
    }
}

/// Reads until the connection ends, and returns the reason.
async fn read(reader: OwnedReadHalf, shared: &Shared) -> ClientError {
    let mut reader = BufReader::with_capacity(READ_BYTES, reader);
    loop {
        let mut line = Vec::new();
        let mut reply = (&mut reader).take(REPLY_BYTES_MAX as u64);
        match reply.read_until(b'\n', &mut line).await {
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(REPLY_BYTES_MAX) => return ClientError::Protocol("a reply is too long".into()),
            Ok(_) => return ClientError::Closed,
            Err(error) => return broken(error),
        }
        if let Some(down) = wire::notice(&line) {
            // There may be no listener.
            let _ = shared.downs.send(down);
            continue;
        }
        match wire::reply(&line) {
            Ok((Some(id), outcome)) => {
                // The caller may have given up.
                if let Some(waiter) = shared.calls().waiting.remove(&id) {
                    drop(waiter.send(Reply { outcome, line }));
                }
            }
            // The service could not parse a request, and reports why before it closes.
            Ok((None, Err(error))) => return error,
            Ok((None, Ok(_))) => return ClientError::Protocol("a reply without an id".into()),
            Err(error) => return error,
        }
    }
}

/// A connection cut by the peer counts as closed, regardless of the system's error.
pub(super) fn broken(error: std::io::Error) -> ClientError {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => ClientError::Closed,
        _ => ClientError::Io(error),
    }
}
