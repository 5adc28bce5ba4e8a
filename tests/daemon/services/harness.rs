//! A daemon in the test's own program: its configuration file, sockets, clients and shutdown.

use std::path::{Path, PathBuf};
use std::time::Duration;

use settee::actors::pressure_gauge::gauges;
use settee::actors::proc_manager::GetStatus;
use settee::client::Operator;
use settee::config::reload::Change;
use settee::config::{Sources, load};
use settee::messages::config_listener::{Reload, ReloadError};
use settee::otp::pid::ExitReason;
use settee::query_server::status::PoolStatus;
use settee_testkit::{eventually, within};
use slog::Logger;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::services::logbook::Logbook;
use crate::support::daemon::{directory, processes_of, scripted, shared};
use crate::support::program::SETTEE;

/// How long a connection that is to be closed may stay open.
const CLOSING_MAX: Duration = Duration::from_secs(20);

/// A daemon with services.
pub struct Daemon {
    pub app: settee::Daemon,
    pub log: Logbook,
    directory: TempDir,
}

impl Daemon {
    /// Starts a daemon. In `text`, `DIR` is its directory, and `SCRIPTED` the command of a scripted
    /// query server, for a section `[query_servers]`.
    pub async fn start(text: &str) -> Self {
        let directory = directory();
        write_config(directory.path(), text);
        let sources = sources(directory.path());
        let config = load(&sources).unwrap_or_else(|e| panic!("{e}")).config;
        let log = Logbook::default();
        let mut builder = settee::Daemon::builder().program(SETTEE);
        builder.sources = Some(sources);
        let proc = directory.path().to_owned();
        builder.gauges = gauges(proc);
        let app = builder.start(config, Logger::root(log.clone(), slog::o!()));
        let app = app.await.unwrap();
        Self {
            app,
            log,
            directory,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes another configuration and reloads it.
    pub async fn reload(&self, text: &str) -> Result<Vec<Change>, ReloadError> {
        write_config(self.directory.path(), text);
        self.reload_same().await
    }

    /// Writes another configuration without a reload.
    pub fn write_config(&self, text: &str) {
        write_config(self.directory.path(), text);
    }

    pub async fn reload_same(&self) -> Result<Vec<Change>, ReloadError> {
        let listener = self.app.config_listener.address();
        within("a reload", listener.send(Reload)).await.unwrap()
    }

    /// Returns a client for operators.
    pub fn operator(&self) -> Operator {
        Operator::at(self.app.socket())
    }

    pub async fn connect(&self, socket: &str) -> Client {
        let stream = UnixStream::connect(self.path(socket)).await.unwrap();
        Client(BufReader::new(stream))
    }

    /// Returns the status of a pool, or a default one if there is none.
    pub async fn pool(&self, name: &str) -> PoolStatus {
        let question = GetStatus {
            pool: Some(name.to_owned()),
        };
        let manager = self.app.manager.address();
        let status = manager.send(question).await.unwrap().status();
        status.pools.into_iter().next().unwrap_or_default()
    }

    /// Returns the value of a metric as served to Prometheus, or 0 if there is none.
    pub fn number(&self, metric: &str, labels: &[&str]) -> u64 {
        let snapshot = self.app.metrics.snapshot(&Default::default());
        let text = settee::metrics::prometheus_text(&snapshot);
        let start = match labels {
            [] => format!("{metric} "),
            _ => format!("{metric}{{"),
        };
        let mut lines = text.lines().filter(|line| line.starts_with(&start));
        let fits = |line: &&str| labels.iter().all(|label| line.contains(label));
        let line = lines.find(fits);
        let value = line.and_then(|line| line.rsplit(' ').next());
        value.map_or(0, |value| value.parse::<f64>().unwrap() as u64)
    }

    /// Returns the number of connections that a service has accepted.
    pub fn accepted(&self, service: &str) -> u64 {
        let label = format!("service=\"{service}\"");
        self.number("settee_service_accepted_total", &[&label])
    }

    /// Returns the number of open connections of a service.
    pub fn connected(&self, service: &str) -> u64 {
        let label = format!("service=\"{service}\"");
        self.number("settee_service_connections", &[&label])
    }

    pub async fn wait_for_pool(&self, name: &str, what: &str, fits: impl Fn(&PoolStatus) -> bool) {
        eventually(what, async || fits(&self.pool(name).await)).await;
    }

    /// Stops the daemon after disconnecting these clients, which it would otherwise wait for.
    pub async fn stop_after<T>(self, clients: T) {
        drop(clients);
        self.stop().await;
    }

    /// Stops the daemon, and asserts that no child and no socket is left.
    pub async fn stop(self) {
        let sockets: Vec<_> = std::fs::read_dir(self.directory.path()).unwrap().collect();
        assert_eq!(self.app.stop(false).await, ExitReason::Shutdown);
        eventually("the end of all children", async || {
            processes_of(self.directory.path()).is_empty()
        })
        .await;
        for file in sockets {
            let path = file.unwrap().path();
            assert!(path.extension().is_none_or(|e| e != "sock") || !path.exists());
        }
    }
}

fn write_config(directory: &Path, text: &str) {
    let dir = directory.display().to_string();
    let text = text
        .replace("SCRIPTED", &scripted(directory))
        .replace("DIR", &dir);
    let server = format!("[server]\nsocket = \"{dir}/run/s.sock\"\nhttp = \"off\"\n");
    std::fs::write(directory.join("settee.toml"), shared(&(server + &text))).unwrap();
}

fn sources(directory: &Path) -> Sources {
    Sources {
        files: vec![directory.join("settee.toml")],
        ..Sources::default()
    }
}

/// Counts the connections that wait in a listening Unix socket's queue, as the system sees them.
pub fn waiting_to_be_accepted(socket: &Path) -> usize {
    let path = socket.display().to_string();
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let lines = table.lines().filter(|line| line.ends_with(&path));
    // Number, references, protocol, flags, type, state, inode: a connection not yet accepted is
    // connecting (2) and has no inode.
    lines
        .filter(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[5] == "02" && fields[6] == "0"
        })
        .count()
}

/// A client of a service.
pub struct Client(pub BufReader<UnixStream>);

impl Client {
    pub async fn send(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0.get_mut().write_all(line.as_bytes()).await.unwrap();
    }

    /// Returns the next line, empty at the end.
    pub async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.0.read_line(&mut line);
        within("a line", read).await.unwrap();
        line.trim_end().to_owned()
    }

    pub async fn ask(&mut self, line: &str) -> String {
        self.send(line).await;
        self.line().await
    }

    /// Returns the pid of the process that it is lent.
    pub async fn pid(&mut self) -> u32 {
        self.ask("[\"pid\"]").await.parse().unwrap()
    }

    /// Returns the error that the service sends before it closes the connection.
    pub async fn error(&mut self) -> (String, String) {
        let line = self.line().await;
        let [word, name, reason]: [String; 3] =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("no error line: {line}"));
        assert_eq!(word, "error");
        self.assert_closed().await;
        (name, reason)
    }

    /// Asserts that the connection is closed without more output.
    pub async fn assert_closed(&mut self) {
        let mut rest = Vec::new();
        let read = self.0.read_to_end(&mut rest);
        let read = tokio::time::timeout(CLOSING_MAX, read).await;
        assert!(read.is_ok(), "the connection is still open");
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
}

/// A client of the client socket.
pub struct SocketClient(Client);

impl SocketClient {
    pub async fn connect(daemon: &Daemon) -> Self {
        let stream = UnixStream::connect(daemon.app.socket()).await.unwrap();
        Self(Client(BufReader::new(stream)))
    }

    pub async fn call(&mut self, request: serde_json::Value) -> serde_json::Value {
        let line = self.0.ask(&request.to_string()).await;
        serde_json::from_str(&line).unwrap()
    }

    /// Sends the same request `count` times, or fewer times if the service stops reading.
    pub async fn send_together(&mut self, count: usize, request: &serde_json::Value) {
        let line = format!("{request}\n");
        let stream = self.0.0.get_mut();
        let send = async {
            for _ in 0..count {
                stream.write_all(line.as_bytes()).await.unwrap();
            }
        };
        // The service stops reading from a client that does not read.
        let _ = tokio::time::timeout(Duration::from_millis(500), send).await;
    }

    /// Reads one byte; false at the end.
    pub async fn read_byte(&mut self) -> bool {
        let mut byte = [0];
        let read = self.0.0.get_mut().read(&mut byte);
        read.await.is_ok_and(|count| count > 0)
    }

    /// Sends the same request `count` times at once, and returns the replies as they arrive.
    pub async fn call_together(
        &mut self,
        count: usize,
        request: &serde_json::Value,
    ) -> Vec<serde_json::Value> {
        self.send_together(count, request).await;
        let mut replies = Vec::new();
        for _ in 0..count {
            replies.push(serde_json::from_str(&self.0.line().await).unwrap());
        }
        replies
    }

    /// Takes a process of a pool and returns its token.
    pub async fn get_proc(&mut self, pool: &str) -> String {
        let got = self
            .call(serde_json::json!({"call": "get_proc", "pool": pool}))
            .await;
        let proc = got["ok"]["proc"].as_str();
        proc.unwrap_or_else(|| panic!("{got}")).to_owned()
    }

    pub async fn ret_proc(&mut self, proc: &str) {
        let done = self
            .call(serde_json::json!({"call": "ret_proc", "proc": proc}))
            .await;
        assert_eq!(done["ok"], true);
    }
}
