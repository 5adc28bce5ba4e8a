//! An HTTP server whose answers a test controls byte by byte, even faulty ones.
//!
//! It records every request, except those refused as [`TOO_LARGE`]. A function returns the
//! answer, which can be slow, cut off, endless, or a reset of the connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

/// A document with this in its id is refused with 413 before its body is read, and is not recorded.
pub const TOO_LARGE: &str = "too-large";

/// A received request.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: String,
    /// The path after the first slash, percent-encoded.
    pub path: String,
    /// Parameters, decoded, in their order.
    pub query: Vec<(String, String)>,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Bytes,
}

impl Received {
    pub fn param(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the part of the path after the database.
    pub fn call(&self) -> &str {
        self.path.split_once('/').map_or("", |(_, call)| call)
    }

    /// Returns the method and the call, such as `POST _bulk_docs`. For a database, a document, an attachment or a
    /// `_local` document the call is `db`, `doc`, `attachment` or `_local`.
    pub fn kind(&self) -> String {
        let call = match self.call() {
            "" => "db",
            call if call.starts_with("_local/") => "_local",
            call if call.starts_with('_') && !call.starts_with("_design") => call,
            call if call.trim_start_matches("_design/").contains('/') => "attachment",
            _ => "doc",
        };
        format!("{} {call}", self.method)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the request's body is JSON")
    }
}

/// A piece of an answer's body.
#[derive(Clone, Debug)]
pub enum Piece {
    Bytes(Bytes),
    Wait(Duration),
    /// Waits until the test notifies it.
    Until(Arc<tokio::sync::Notify>),
    /// Lines from a channel until it closes, with an empty line after each interval without one.
    Lines(Arc<tokio::sync::Mutex<UnboundedReceiver<Bytes>>>, Duration),
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The answer is complete.
    Complete,
    /// The connection is closed before the body is complete.
    Cut,
    /// The connection is reset.
    Reset,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub pieces: Vec<Piece>,
    pub end: End,
    /// Whether the body is sent in chunks instead of with a length.
    pub chunked: bool,
}

impl Answer {
    pub fn bytes(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: vec![("Content-Type".into(), content_type.into())],
            pieces: vec![Piece::Bytes(body.into())],
            end: End::Complete,
            chunked: false,
        }
    }

    pub fn json(status: u16, body: impl ToString) -> Self {
        Self::bytes(status, "application/json", body.to_string())
    }

    pub fn error(status: u16, error: &str, reason: &str) -> Self {
        Self::json(
            status,
            serde_json::json!({"error": error, "reason": reason}),
        )
    }

    /// No answer at all: the connection is reset.
    pub fn reset() -> Self {
        let mut answer = Self::bytes(0, "", "");
        answer.end = End::Reset;
        answer
    }

    /// A body in pieces, without a length.
    pub fn stream(status: u16, content_type: &str, pieces: Vec<Piece>) -> Self {
        Self {
            pieces,
            chunked: true,
            ..Self::bytes(status, content_type, "")
        }
    }

    /// Cuts the answer in the middle of its body.
    pub fn cut(mut self) -> Self {
        let body = self.body();
        self.pieces = vec![Piece::Bytes(body.slice(..body.len() / 2))];
        self.end = End::Cut;
        self.headers
            .push(("Content-Length".into(), body.len().to_string()));
        self
    }

    /// Cuts the answer after `at` bytes of its body.
    pub fn cut_at(mut self, at: usize) -> Self {
        let body = self.body();
        self.pieces = vec![Piece::Bytes(body.slice(..at))];
        self.end = End::Cut;
        self.headers
            .push(("Content-Length".into(), body.len().to_string()));
        self
    }

    /// Sends the body in pieces of `size` bytes, with a wait after each.
    pub fn slow(mut self, size: usize, wait: Duration) -> Self {
        let body = self.body();
        self.headers
            .push(("Content-Length".into(), body.len().to_string()));
        self.pieces = body
            .chunks(size)
            .flat_map(|piece| {
                [
                    Piece::Bytes(Bytes::copy_from_slice(piece)),
                    Piece::Wait(wait),
                ]
            })
            .collect();
        self
    }

    fn body(&self) -> Bytes {
        let mut body = BytesMut::new();
        for piece in &self.pieces {
            if let Piece::Bytes(bytes) = piece {
                body.extend_from_slice(bytes);
            }
        }
        body.freeze()
    }
}

type Answering = dyn Fn(&Received) -> Answer + Send + Sync;

/// A server on a port of its own; it stops when dropped.
pub struct Server {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    /// Cloned once for each open connection.
    open: Arc<()>,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        Self::start_at(any, answer).await
    }

    /// Starts a server at an address that another one may still be releasing.
    pub async fn start_at(
        address: SocketAddr,
        answer: impl Fn(&Received) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let answer: Arc<Answering> = Arc::new(answer);
        let record = Arc::clone(&received);
        let open = Arc::new(());
        let connection = Arc::downgrade(&open);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let is_open = connection.upgrade();
                let serving = serve(stream, Arc::clone(&answer), Arc::clone(&record));
                connections.spawn(async move {
                    serving.await;
                    drop(is_open);
                });
            }
        });
        Self {
            address,
            received,
            open,
            task,
        }
    }

    pub fn url(&self, database: &str) -> String {
        format!("http://{}/{database}", self.address)
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }

    /// Returns the requests received so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Returns the number of received requests of a kind.
    pub fn count(&self, kind: &str) -> usize {
        let received = self.received.lock().unwrap();
        received
            .iter()
            .filter(|request| request.kind() == kind)
            .count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, answer: Arc<Answering>, record: Arc<Mutex<Vec<Received>>>) {
    drop(stream.set_nodelay(true));
    let mut buffer = BytesMut::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        record.lock().unwrap().push(request.clone());
        let answer = answer(&request);
        if answer.end == End::Reset {
            // Closing with this option set sends a reset.
            drop(stream.set_zero_linger());
        }
        if answer.status == 0 || write_answer(&mut stream, &answer).await.is_err() {
            return;
        }
        if answer.end != End::Complete {
            return;
        }
    }
}

async fn write_answer(stream: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Whatever\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let has_length = answer
        .headers
        .iter()
        .any(|(name, _)| name == "Content-Length");
    if answer.chunked {
        head.push_str("Transfer-Encoding: chunked\r\n");
    } else if !has_length {
        head.push_str(&format!("Content-Length: {}\r\n", answer.body().len()));
    }
    head.push_str("\r\n");
    let mut out = head.into_bytes();
    for piece in &answer.pieces {
        match piece {
            Piece::Bytes(bytes) if answer.chunked && !bytes.is_empty() => {
                out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Piece::Bytes(bytes) => out.extend_from_slice(bytes),
            Piece::Wait(time) => {
                stream.write_all(&std::mem::take(&mut out)).await?;
                tokio::time::sleep(*time).await;
            }
            Piece::Until(notify) => {
                stream.write_all(&std::mem::take(&mut out)).await?;
                notify.notified().await;
            }
            Piece::Lines(lines, heartbeat) => {
                stream.write_all(&std::mem::take(&mut out)).await?;
                let mut lines = lines.lock().await;
                loop {
                    let line = match tokio::time::timeout(*heartbeat, lines.recv()).await {
                        Ok(Some(line)) => line,
                        Ok(None) => break,
                        Err(_) => Bytes::from_static(b"\n"),
                    };
                    let head = format!("{:x}\r\n", line.len());
                    let chunk = [head.as_bytes(), &line, b"\r\n"].concat();
                    stream.write_all(&chunk).await?;
                }
            }
        }
    }
    if answer.chunked && answer.end == End::Complete {
        out.extend_from_slice(b"0\r\n\r\n");
    }
    stream.write_all(&out).await
}

async fn read_request(stream: &mut TcpStream, buffer: &mut BytesMut) -> Option<Received> {
    let head_end = loop {
        if let Some(at) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer.split_to(head_end + 4).to_vec()).expect("a head is text");
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    if path.contains(TOO_LARGE) && method == "PUT" {
        // Refuses before the body arrives, then discards the body for a while: the system would reset a connection
        // that is closed with unread data.
        let refusal = Answer::error(413, "too_large", "x");
        drop(write_answer(stream, &refusal).await);
        drop(stream.shutdown().await);
        let lingering = async {
            while stream.read_buf(buffer).await.is_ok_and(|read| read > 0) {
                buffer.clear()
            }
        };
        drop(tokio::time::timeout(Duration::from_secs(2), lingering).await);
        return None;
    }
    let body = match headers.get("content-length") {
        Some(length) => {
            let length: usize = length.parse().expect("a length is a number");
            read_exactly(stream, buffer, length).await?
        }
        None if headers.contains_key("transfer-encoding") => read_chunks(stream, buffer).await?,
        None => Bytes::new(),
    };
    Some(Received {
        method,
        path: path.trim_start_matches('/').to_owned(),
        query,
        headers,
        body,
    })
}

async fn read_exactly(
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
    length: usize,
) -> Option<Bytes> {
    while buffer.len() < length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    Some(buffer.split_to(length).freeze())
}

async fn read_chunks(stream: &mut TcpStream, buffer: &mut BytesMut) -> Option<Bytes> {
    let mut body = BytesMut::new();
    loop {
        let end = loop {
            if let Some(at) = memchr::memmem::find(buffer, b"\r\n") {
                break at;
            }
            if stream.read_buf(buffer).await.ok()? == 0 {
                return None;
            }
        };
        let line = buffer.split_to(end + 2);
        let length = usize::from_str_radix(std::str::from_utf8(&line[..end]).ok()?, 16).ok()?;
        body.extend_from_slice(&read_exactly(stream, buffer, length).await?);
        read_exactly(stream, buffer, 2).await?;
        if length == 0 {
            return Some(body.freeze());
        }
    }
}
