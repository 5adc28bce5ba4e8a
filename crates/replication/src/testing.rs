//! A test server that sends scripted answers, byte for byte.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::endpoint::{Endpoint, Http, HttpConfig, HttpSettings, Side};
use super::spec::{Defaults, EndpointSpec, Feed, Replication, Tuning, UserCtx};

/// A request as received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    /// Counts requests of all connections, from 0.
    pub(crate) nth: usize,
    /// Counts connections, from 0.
    pub(crate) connection: usize,
    /// Method, and path with its query.
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut named = self
            .headers
            .iter()
            .filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| &**value)
    }
}

/// What the server does with a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Reads the next request.
    Next,
    /// Closes it.
    Close,
    /// Keeps it open without reading.
    Hang,
}

/// An answer in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) then: Then,
    /// It is sent once there is a permit.
    gate: Arc<Semaphore>,
}

impl Answer {
    /// Answers with a status and JSON, or any other body.
    pub(crate) fn new(status: u16, body: &str) -> Self {
        Self::with(status, &[], body)
    }

    /// Answers with additional headers.
    pub(crate) fn with(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        Self::binary(status, headers, body.as_bytes())
    }

    pub(crate) fn binary(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let mut text = format!(
            "HTTP/1.1 {status} Whatever\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let bytes = [text.as_bytes(), body].concat();
        Self::of(bytes, Then::Next)
    }

    /// Answers with exactly these bytes.
    pub(crate) fn raw(bytes: &str, then: Then) -> Self {
        Self::of(bytes.as_bytes().to_vec(), then)
    }

    fn of(bytes: Vec<u8>, then: Then) -> Self {
        let gate = Arc::new(Semaphore::new(1));
        Self { bytes, then, gate }
    }

    /// Waits until this has a permit.
    pub(crate) fn after(mut self, gate: &Arc<Semaphore>) -> Self {
        self.gate = Arc::clone(gate);
        self
    }
}

/// The server; ends when dropped.
pub(crate) struct Server {
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts a server that answers with `answer`.
    pub(crate) async fn start(
        answer: impl Fn(&Received) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(None, answer).await
    }

    /// Starts a server; with TLS if given an acceptor.
    pub(crate) async fn start_with(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&Received) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let context = Arc::new(Context {
            answer: Box::new(answer),
            received: received.clone(),
        });
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, context) = (tls.clone(), context.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, connection, context).await,
                        // A client that rejects the certificate disconnects.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, connection, context).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            port,
            received,
            task,
        }
    }

    /// Returns the requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Returns method and path of the requests so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.received()
            .into_iter()
            .map(|received| received.line)
            .collect()
    }

    /// Returns the URL of its database. `credentials` is empty, or ends in `@`.
    pub(crate) fn url(&self, credentials: &str) -> String {
        format!("http://{credentials}127.0.0.1:{}/db/", self.port)
    }

    /// Returns its endpoint.
    pub(crate) fn endpoint(&self) -> Endpoint {
        endpoint(&self.url(""), |_, _| {})
    }
}

struct Context {
    answer: Box<dyn Fn(&Received) -> Answer + Send + Sync>,
    received: Arc<Mutex<Vec<Received>>>,
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    connection: usize,
    context: Arc<Context>,
) {
    let mut stream = BufReader::new(stream);
    while let Some(mut received) = read(&mut stream).await {
        received.connection = connection;
        {
            let mut all = context.received.lock().unwrap();
            received.nth = all.len();
            all.push(received.clone());
        }
        let answer = (context.answer)(&received);
        drop(answer.gate.acquire().await);
        if stream.write_all(&answer.bytes).await.is_err() {
            return;
        }
        match answer.then {
            Then::Next => {}
            Then::Close => return,
            Then::Hang => std::future::pending().await,
        }
    }
}

pub(crate) async fn line<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await.ok()? {
            b'\n' => return Some(String::from_utf8_lossy(&line).trim_end().to_owned()),
            byte => line.push(byte),
        }
    }
}

async fn read<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Option<Received> {
    let first = line(stream).await?;
    let mut received = Received {
        line: first.trim_end_matches(" HTTP/1.1").to_owned(),
        ..Received::default()
    };
    loop {
        let header = line(stream).await?;
        let Some((name, value)) = header.split_once(": ") else {
            break;
        };
        received.headers.push((name.to_owned(), value.to_owned()));
    }
    let mut body = Vec::new();
    if let Some(length) = received.header("content-length") {
        body = vec![0; length.parse().ok()?];
        stream.read_exact(&mut body).await.ok()?;
    } else if received.header("transfer-encoding").is_some() {
        loop {
            let length = usize::from_str_radix(&line(stream).await?, 16).ok()?;
            let mut chunk = vec![0; length];
            stream.read_exact(&mut chunk).await.ok()?;
            line(stream).await?;
            if length == 0 {
                break;
            }
            body.extend(chunk);
        }
    }
    received.body = String::from_utf8_lossy(&body).into_owned();
    Some(received)
}

/// Returns a logger that discards everything.
pub(crate) fn logger() -> slog::Logger {
    slog::Logger::root(slog::Discard, slog::o!())
}

/// Returns an endpoint for a URL, with [`settings`] as changed by `change`.
pub(crate) fn endpoint(
    url: &str,
    change: impl FnOnce(&mut HttpConfig, &mut HttpSettings),
) -> Endpoint {
    endpoint_of(&spec(&serde_json::json!(url)), change)
}

pub(crate) fn endpoint_of(
    spec: &EndpointSpec,
    change: impl FnOnce(&mut HttpConfig, &mut HttpSettings),
) -> Endpoint {
    let mut config = HttpConfig::default();
    let mut settings = settings();
    change(&mut config, &mut settings);
    let http = Http::new(config, &logger()).unwrap();
    http.endpoint(spec, settings).unwrap()
}

/// Returns settings with a timeout of 20 s, and without retries.
pub(crate) fn settings() -> HttpSettings {
    HttpSettings {
        connection_timeout: Duration::from_secs(20),
        retries: 0,
        side: Side::Source,
        http_connections: 20,
        health_threshold: Duration::from_secs(120),
    }
}

/// Parses the source of a replication.
pub(crate) fn spec(source: &serde_json::Value) -> EndpointSpec {
    let body = serde_json::json!({"source": source, "target": "http://nowhere.invalid/t"});
    replication(&body).source
}

/// Parses a replication.
pub(crate) fn replication(body: &serde_json::Value) -> Replication {
    Replication::parse(body, &Defaults::default(), UserCtx::default(), None).unwrap()
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            request_timeout: None,
            verify_ssl_certificates: true,
            ssl_trusted_certificates_file: None,
            cacert_reload_interval: Duration::from_secs(24 * 3600),
            cert_file: None,
            key_file: None,
            password: None,
            connection_close_interval: Duration::from_secs(90),
            connect_to: None,
            endpoints_allowed: "*".to_owned(),
            endpoints_denied: String::new(),
            redirects_to: String::new(),
            sessions: true,
            session_refresh_interval: Duration::from_secs(550),
            session_min_update_interval: Duration::from_secs(5),
        }
    }
}

impl Default for Defaults {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Self {
            tuning: Tuning {
                use_checkpoints: true,
                use_bulk_get: true,
                worker_processes: 4,
                worker_batch_size: 500,
                http_connections: 20,
                connection_timeout: Duration::from_secs(30),
                retries_per_request: 5,
                checkpoint_interval: Duration::from_secs(30),
                feed: Feed::default(),
            },
            valid_endpoint_protocols: names(&["http", "https"]),
            valid_proxy_protocols: names(&["http", "https", "socks5"]),
        }
    }
}
