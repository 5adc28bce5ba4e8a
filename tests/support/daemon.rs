//! A real `settee serve` for tests: its configuration, query servers, clients and shutdown.
//!
//! PROMISES  [`Service::stop`] stops it and asserts that none of its processes and sockets is left.
//!           Every wait has a deadline, except those for a line that the service prints.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::folder::open_folder;
use super::http_client::{Connection, Response};
use super::program::SETTEE;

/// Deadline of each wait, and of each read and write of a socket.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The number of attempts of [`in_time`].
const ATTEMPTS: usize = 5;

/// A running service.
pub struct Service {
    pub directory: TempDir,
    child: Child,
    stderr: Arc<Mutex<String>>,
    stdout: BufReader<ChildStdout>,
}

/// Creates the directory of a service, with the scripted query server.
pub fn directory() -> TempDir {
    let directory = open_folder();
    let script = directory.path().join("scripted.sh");
    fs::write(script, include_str!("scripted.sh")).unwrap();
    directory
}

/// Creates a folder, and its parents, that only this user can enter, as sockets and data require.
pub fn make_private_folder(path: &Path) {
    let mut folder = fs::DirBuilder::new();
    folder.recursive(true).mode(0o700).create(path).unwrap();
}

/// Returns the command of the scripted query server that [`directory`] has put there.
pub fn scripted(directory: &Path) -> String {
    format!("sh {}/scripted.sh", directory.display())
}

/// Returns a configuration with shared processes outside of cells, unless it sets `reuse` or `sandbox`:
/// most tests expect to get the same process again, and have query servers that write files.
pub fn shared(text: &str) -> String {
    let usual = [("reuse", "any"), ("sandbox", "off")];
    let usual = usual
        .iter()
        .filter(|(key, _)| !text.contains(&format!("{key} = ")));
    let usual: String = usual
        .map(|(key, value)| format!("{key} = {value:?}\n"))
        .collect();
    into_section(text, "query_server_config", &usual)
}

/// Returns a configuration with a process timeout that tolerates a loaded machine, unless it sets one.
fn patient(text: &str) -> String {
    match text.contains("os_process_timeout") {
        true => text.to_owned(),
        false => into_section(text, "couchdb", "os_process_timeout = 60000\n"),
    }
}

fn into_section(text: &str, name: &str, lines: &str) -> String {
    let section = format!("[{name}]\n");
    match text.split_once(&section) {
        Some((before, after)) => format!("{before}{section}{lines}{after}"),
        None => format!("{text}\n{section}{lines}"),
    }
}

/// Writes the configuration: the socket, the language `python`, and `extra`; the processes are [`shared`].
pub fn configure(directory: &Path, extra: &str) -> PathBuf {
    let file = directory.join("settee.toml");
    let socket = socket_of(directory);
    let (mut servers, mut others) = (String::new(), String::new());
    let mut into_servers = false;
    // `extra` may add lines to a section that the text below has already.
    for line in extra.lines() {
        if line.starts_with('[') {
            into_servers = line == "[query_servers]";
            if into_servers {
                continue;
            }
        }
        let text = if into_servers {
            &mut servers
        } else {
            &mut others
        };
        text.push_str(line);
        text.push('\n');
    }
    let (server, others) = match others.split_once("[server]\n") {
        Some((before, rest)) => {
            let end = rest.find("\n[").map_or(rest.len(), |at| at + 1);
            (rest[..end].to_owned(), format!("{before}{}", &rest[end..]))
        }
        None => (String::new(), others),
    };
    let text = format!(
        "[query_servers]\npython = \"{}\"\n{servers}\n[server]\nsocket = {:?}\n{server}\n{others}",
        scripted(directory),
        socket,
    );
    fs::write(&file, patient(&shared(&text))).unwrap();
    file
}

pub fn socket_of(directory: &Path) -> PathBuf {
    directory.join("run").join("s.sock")
}

/// Returns the command `settee serve` with a configuration.
pub fn serve_command(config: &Path) -> Command {
    serve_command_of(SETTEE, config)
}

/// Returns the command `serve` of a program with a configuration.
pub fn serve_command_of(program: &str, config: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("serve").arg("-c").arg(config);
    command.stdin(Stdio::null());
    // Services run side by side; tests of HTTP request a port.
    command.env("SETTEE__SERVER__HTTP", "off");
    // A test must not run the user's own replications.
    command.env("SETTEE__STORE__PATH", "memory");
    // The built-in server writes no files: it runs in the cell that it has by default.
    command.env("SETTEE__POOLS__JAVASCRIPT__SANDBOX", "standard");
    command
}

impl Service {
    /// Starts a service with additional configuration, and waits until it is ready.
    pub fn start(extra: &str) -> Self {
        Self::start_in(directory(), extra)
    }

    pub fn start_in(directory: TempDir, extra: &str) -> Self {
        let config = configure(directory.path(), extra);
        Self::start_command(directory, serve_command(&config))
    }

    pub fn start_command(directory: TempDir, mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = collect(child.stderr.take().unwrap());
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let socket = socket_of(directory.path());
        let expected = format!("settee: listening on unix:{}\n", socket.display());
        let service = Self {
            directory,
            child,
            stderr,
            stdout,
        };
        assert_eq!(line, expected, "{}", service.log());
        service
    }

    /// Reads another listening address from the next printed line.
    pub fn next_address(&mut self, scheme: &str) -> SocketAddr {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let address = line.strip_prefix("settee: listening on ");
        let address = address.and_then(|rest| rest.trim_end().strip_prefix(scheme));
        let address = address.unwrap_or_else(|| panic!("{line} {}", self.log()));
        address.trim_end_matches('/').parse().unwrap()
    }

    /// Reads the next printed line.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    pub fn socket(&self) -> PathBuf {
        socket_of(self.directory.path())
    }

    /// Prepares the program as a client of this service, without the test's environment.
    pub fn client(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(SETTEE);
        command.args(arguments).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("SETTEE__SERVER__SOCKET", self.socket());
        command
    }

    /// Returns the output of `settee status --json`.
    pub fn status(&self) -> Value {
        let output = self.client(&["status", "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until the state of the first pool is `wanted`.
    pub fn wait_for_first_pool(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) {
        wait_until(what, || wanted(&self.status()["pools"][0]));
    }

    /// Returns what it has logged so far.
    pub fn log(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Returns a reader of the log that outlives the service.
    pub fn log_reader(&self) -> impl Fn() -> String + use<> {
        let stderr = Arc::clone(&self.stderr);
        move || stderr.lock().unwrap().clone()
    }

    /// Waits until it has logged `text`.
    pub fn wait_for_log(&self, text: &str) {
        wait_until(&format!("{text:?} in the log"), || {
            self.log().contains(text)
        });
    }

    pub fn connect(&self) -> Client {
        Client::connect(&self.socket())
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns a path inside its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Stops it, and asserts that it exits cleanly and leaves nothing behind.
    pub fn stop(self) {
        self.signal("TERM");
        self.exits_cleanly();
    }

    /// Stops it, and keeps its files.
    pub fn stop_and_keep(mut self) -> TempDir {
        self.signal("TERM");
        let status = wait_for_exit(&mut self.child);
        assert_eq!(status, Some(0), "{}", self.log());
        self.take_directory()
    }

    /// Kills it with `SIGKILL`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills it with `SIGKILL`, and keeps its files.
    pub fn kill_and_keep(mut self) -> TempDir {
        self.kill();
        self.take_directory()
    }

    fn take_directory(&mut self) -> TempDir {
        let other = tempfile::tempdir().unwrap();
        std::mem::replace(&mut self.directory, other)
    }

    /// Asserts that it exits cleanly by itself and leaves nothing behind.
    pub fn exits_cleanly(mut self) {
        let status = wait_for_exit(&mut self.child);
        assert_eq!(status, Some(0), "{}", self.log());
        let sockets = [self.socket(), self.socket().with_extension("http.sock")];
        let left = sockets.iter().find(|socket| socket.exists());
        assert_eq!(left, None, "a socket is left");
        assert_nothing_runs_for(self.directory.path());
        assert!(!self.log().contains("panicked"), "{}", self.log());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Only after a failed test: a stopped service has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a process has ended, and returns its exit status.
pub fn wait_for_exit(child: &mut Child) -> Option<i32> {
    let mut status = None;
    wait_until("the end of a process", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code()
}

/// Runs a `settee serve` that must not start, and returns its exit status and error message.
pub fn refused(config: &Path) -> (Option<i32>, String) {
    refused_command(&mut serve_command(config))
}

/// As [`refused`], for a command.
pub fn refused_command(command: &mut Command) -> (Option<i32>, String) {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = collect(child.stderr.take().unwrap());
    let status = wait_for_exit(&mut child);
    let mut text = String::new();
    wait_until("an error message", || {
        text = stderr.lock().unwrap().clone();
        text.contains("settee: ")
    });
    (status, text)
}

/// Sends a signal by name.
pub fn signal(pid: u32, name: &str) {
    let done = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .unwrap();
    assert!(done.success(), "kill -{name} {pid}");
}

/// Sets a flag when dropped, even if a test fails.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The poll interval of all waits.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Polls until `happened` returns true; panics at the deadline.
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < DEADLINE, "not in time: {what}");
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// Repeats an attempt until one is in time: a reaction that must come soon may be late on a loaded machine.
pub fn in_time<T>(what: &str, attempt: impl FnMut(usize) -> Option<T>) -> T {
    let made = (0..ATTEMPTS).find_map(attempt);
    made.unwrap_or_else(|| panic!("no {what} in {ATTEMPTS} attempts"))
}

/// Returns the processes whose command line names `directory`.
pub fn processes_of(directory: &Path) -> Vec<String> {
    let needle = directory.to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let text = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).replace('\0', " ");
        if text.contains(needle) {
            found.push(text);
        }
    }
    found
}

/// Waits until no process of a service is left: killed ones may take a moment to exit.
pub fn assert_nothing_runs_for(directory: &Path) {
    let until = Instant::now() + DEADLINE;
    loop {
        let left = processes_of(directory);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "left behind: {left:?}");
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

pub fn pid_exists(pid: u64) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn collect(mut stderr: ChildStderr) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let shared = Arc::clone(&text);
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = stderr.read(&mut chunk) {
            let piece = String::from_utf8_lossy(&chunk[..length]);
            shared.lock().unwrap().push_str(&piece);
        }
    });
    text
}

/// An operator's request over HTTP.
#[derive(Clone, Debug)]
pub struct Order {
    method: &'static str,
    path: String,
    body: Value,
}

impl Order {
    pub fn new(method: &'static str, path: impl Into<String>, body: Value) -> Self {
        let path = path.into();
        Self { method, path, body }
    }

    /// Reloads the configuration.
    pub fn reload_config() -> Self {
        Self::new("POST", "/_node/_local/_config/_reload", json!({}))
    }
}

/// An operator, who manages a service over HTTP, on the Unix socket beside the one for processes.
pub struct Operator(PathBuf);

impl Operator {
    /// Returns the operator of the service that lends processes at `socket`.
    pub fn of(socket: &Path) -> Self {
        Self(socket.with_extension("http.sock"))
    }

    pub fn send(&self, order: &Order) -> Response {
        let body = match order.method {
            "GET" | "DELETE" => String::new(),
            _ => order.body.to_string(),
        };
        let json = [("Content-Type", "application/json")];
        let mut connection = Connection::local(&self.0);
        connection.request(order.method, &order.path, &json, &body)
    }

    pub fn get(&self, path: &str) -> Value {
        self.ok(&Order::new("GET", path, Value::Null))
    }

    /// Sends an order that must succeed; returns its `changes`, or the whole answer if it has none.
    #[track_caller]
    pub fn ok(&self, order: &Order) -> Value {
        let response = self.send(order);
        assert!(response.status < 300, "{order:?}: {response:?}");
        let answer = response.json();
        answer.get("changes").unwrap_or(&answer).clone()
    }

    /// Sends an order that must fail; returns its error, with the error's name as `name`.
    #[track_caller]
    pub fn error(&self, order: &Order) -> Value {
        let response = self.send(order);
        assert!(response.status >= 400, "{order:?}: {response:?}");
        let mut error = response.json();
        error["name"] = error["error"].take();
        error
    }

    /// Returns the state of a pool with its processes, if it exists.
    pub fn pool(&self, name: &str) -> Option<Value> {
        let status = self.get("/_status");
        let pools = status["pools"].as_array().unwrap();
        let mut named = pools.iter().filter(|pool| pool["name"] == name);
        named.next().cloned()
    }

    /// Reloads the configuration; returns what changed.
    #[track_caller]
    pub fn reload_config(&self) -> Value {
        self.ok(&Order::reload_config())
    }
}

/// A call that is answered at once with `false`: it cancels a request that does not exist.
pub fn call_at_once(id: impl Into<Value>) -> Value {
    json!({"id": id.into(), "call": "cancel", "request": "none"})
}

/// A client of the service.
pub struct Client {
    pub stream: UnixStream,
    /// The operator of the same service.
    pub operator: Operator,
    reader: BufReader<UnixStream>,
}

impl Client {
    pub fn connect(socket: &Path) -> Self {
        Self::try_connect(socket).unwrap()
    }

    pub fn try_connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        let reader = BufReader::new(stream.try_clone()?);
        let operator = Operator::of(socket);
        Ok(Self {
            stream,
            operator,
            reader,
        })
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn send(&mut self, request: &Value) {
        self.send_raw(format!("{request}\n").as_bytes());
    }

    /// Returns the next line, or `None` if the connection has ended. It ends with a reset if the service did not read
    /// the last bytes sent.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line);
        let is_reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
        if !read.as_ref().is_err_and(is_reset) {
            read.expect("a line in time");
        }
        (!line.is_empty()).then_some(line)
    }

    pub fn reply(&mut self) -> Value {
        let line = self.line().expect("a reply before the end");
        serde_json::from_str(&line).expect("a reply is JSON")
    }

    /// Sends a request and returns the reply.
    pub fn call(&mut self, request: &Value) -> Value {
        self.send(request);
        self.reply()
    }

    /// Sends a request that must succeed and returns the value.
    pub fn ok(&mut self, request: &Value) -> Value {
        let reply = self.call(request);
        assert!(reply.get("ok").is_some(), "{request}: {reply}");
        reply["ok"].clone()
    }

    /// Sends a request that must fail and returns the error.
    pub fn error(&mut self, request: &Value) -> Value {
        let reply = self.call(request);
        let error = reply["error"].clone();
        for member in ["name", "reason", "phase", "fault", "retry"] {
            assert!(error.get(member).is_some(), "{request}: {reply}");
        }
        error
    }

    /// Takes a process and returns its token.
    pub fn get_proc(&mut self, lang: &str) -> String {
        let got = self.ok(&json!({"id": "get", "call": "get_proc", "lang": lang}));
        got["proc"].as_str().unwrap().to_owned()
    }

    pub fn prompt(&mut self, proc: &str, data: Value) -> Value {
        self.ok(&json!({"id": "prompt", "call": "prompt", "proc": proc, "data": data}))
    }

    pub fn ret_proc(&mut self, proc: &str) -> bool {
        let value = self.ok(&json!({"id": "ret", "call": "ret_proc", "proc": proc}));
        value.as_bool().unwrap()
    }

    /// Returns the state of a pool; null if it does not exist.
    pub fn pool(&mut self, name: &str) -> Value {
        self.operator.pool(name).unwrap_or_default()
    }

    /// Waits until a pool has these numbers.
    pub fn wait_for_pool(&mut self, name: &str, numbers: &[(&str, u64)]) {
        wait_until(&format!("{numbers:?}"), || {
            let pool = self.pool(name);
            numbers.iter().all(|(key, number)| pool[key] == *number)
        });
    }

    /// Asserts that the service closes the connection without sending more.
    pub fn assert_closed(&mut self) {
        assert_eq!(self.line(), None, "the connection is still open");
    }
}
