//! CPU time of function calls and loans over the socket, in the service and in its processes. Compares function calls
//! with a relay that passes each line through a `cat`, and with php-fpm if installed; compares the growth from 100 to
//! 1,000 clients with an echo's.

mod common;

use std::io::{BufRead, BufReader as LineReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::php::{Php, fast_cgi};
use common::{children, median, nanoseconds, report};
use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{ChildStdin, ChildStdout};

const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(2);
const CLIENTS: [usize; 2] = [100, 1_000];
const DATABASES: usize = 20;
const DDOCS: usize = 5;

/// Maximum growth of a call's cost with ten times the clients, relative to an echo's.
const WANTED_MORE_CLIENTS: f64 = 1.3;

/// Maximum CPU time of a function call, relative to the relay with its `cat`s.
const WANTED_CALL: f64 = 3.0;

/// php-fpm needs a process for each keep-alive connection.
const PHP_CLIENTS: usize = 4;

/// The show function of [`ddoc_prompt`], in PHP.
const PHP_SHOW: &str = "<?php $call = json_decode(file_get_contents('php://input'), true); \
    header('Content-Type: application/json'); \
    echo json_encode(['resp', ['body' => 'hello ' . $call['args'][0]['name']]]);";

/// Maximum CPU time of a function call, relative to php-fpm.
const WANTED_PHP: f64 = 1.3;

/// CPU time of one call, in microseconds, and calls per second.
#[derive(Clone, Copy)]
struct Cost {
    service: f64,
    processes: f64,
    calls: f64,
}

impl Cost {
    fn median(all: &[Self]) -> Self {
        let of = |part: fn(&Self) -> f64| median(all.iter().map(part).collect());
        Self {
            service: of(|cost| cost.service),
            processes: of(|cost| cost.processes),
            calls: of(|cost| cost.calls),
        }
    }

    fn both(self) -> f64 {
        self.service + self.processes
    }

    fn print(&self, what: &str) {
        println!(
            "{what:<44} {:>10.1} us   processes {:>6.1} us   {:>8.0} calls/s",
            self.service, self.processes, self.calls
        );
    }
}

/// Makes a client's next request from a random number and the last answer.
type Next = fn(u64, &str) -> String;

/// A connection.
struct Client {
    stream: BufReader<UnixStream>,
    random: u64,
    /// The last answer.
    line: String,
}

impl Client {
    async fn connect(socket: &Path, number: u64) -> Self {
        let stream = UnixStream::connect(socket).await.expect("a connection");
        Self {
            stream: BufReader::new(stream),
            random: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1,
            line: String::new(),
        }
    }

    /// Sends one request at a time until `end`, and returns their number.
    async fn call(&mut self, next: Next, end: Instant) -> u64 {
        let mut calls = 0;
        // A client that holds a process returns it first: others wait for one.
        while Instant::now() < end || self.line.contains("\"proc\"") {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let request = next(self.random, &self.line);
            let sent = self.stream.write_all(request.as_bytes()).await;
            sent.expect("the service reads");
            self.line.clear();
            let answer = self.stream.read_line(&mut self.line).await;
            answer.expect("the service answers");
            assert!(!self.line.contains("\"error\""), "{}", self.line);
            calls += 1;
        }
        calls
    }
}

fn ddoc_prompt(random: u64, _: &str) -> String {
    let db = random as usize % DATABASES;
    let ddoc = (random >> 32) as usize % DDOCS;
    format!(
        r#"{{"id":1,"call":"ddoc_prompt","db":"db{db}","ddoc":{{"_id":"_design/d{ddoc}","_rev":"1-{ddoc}","shows":{{"s":"function(doc, req) {{ return 'hello ' + doc.name; }}"}}}},"path":["shows","s"],"args":[{{"name":"ida"}},{{}}]}}"#
    ) + "\n"
}

/// Calls the same function each time, as php-fpm runs one script.
fn same_prompt(_: u64, last: &str) -> String {
    ddoc_prompt(1, last)
}

/// Returns the mean cost of a call to a program and its children. `run` makes calls for a duration and returns their
/// number.
async fn measured(service: u32, mut run: impl AsyncFnMut(Duration) -> f64) -> Cost {
    // Warm-up: starts the processes and loads the functions.
    run(TIME / 2).await;
    let processes = children(service);
    let used = || -> f64 { processes.iter().map(|pid| nanoseconds(*pid)).sum() };
    let (own, theirs) = (nanoseconds(service), used());
    let calls = run(TIME).await;
    Cost {
        service: (nanoseconds(service) - own) / 1e3 / calls,
        processes: (used() - theirs) / 1e3 / calls,
        calls: calls / TIME.as_secs_f64(),
    }
}

/// Reads one answer of FastCGI into the line, up to the record that ends the request.
async fn fast_cgi_answer(stream: &mut BufReader<UnixStream>, line: &mut String) {
    const STDOUT: u8 = 6;
    const END: u8 = 3;
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head).await.expect("a record");
        let [_, kind, _, _, high, low, padding, _] = head;
        let length = u16::from_be_bytes([high, low]) as usize;
        let mut content = vec![0; length + padding as usize];
        stream.read_exact(&mut content).await.expect("a record");
        match kind {
            STDOUT => line.push_str(&String::from_utf8_lossy(&content[..length])),
            END => break,
            _ => panic!("php-fpm: {}", String::from_utf8_lossy(&content)),
        }
    }
    assert!(line.contains("hello ida"), "{line}");
}

/// Runs clients against php-fpm, and returns the cost of a call.
async fn php_cost(php: &Php) -> Cost {
    let call = ddoc_prompt(1, "");
    let request = fast_cgi(&php.script, call.trim_end());
    let connections = (0..PHP_CLIENTS).map(|_| UnixStream::connect(&php.socket));
    let mut clients: Vec<_> = join_all(connections)
        .await
        .into_iter()
        .map(|stream| BufReader::new(stream.expect("a connection")))
        .collect();
    let run = async |time| {
        let end = Instant::now() + time;
        let calls = clients.iter_mut().map(async |stream| {
            let (mut calls, mut line) = (0.0, String::new());
            while Instant::now() < end {
                stream.write_all(&request).await.expect("php-fpm reads");
                line.clear();
                fast_cgi_answer(stream, &mut line).await;
                calls += 1.0;
            }
            calls
        });
        join_all(calls).await.into_iter().sum::<f64>()
    };
    measured(php.child.id(), run).await
}

/// Borrows and returns a process, alternately.
fn loan(random: u64, last: &str) -> String {
    let token = last
        .split_once("\"proc\":\"")
        .and_then(|(_, rest)| rest.split('"').next());
    match token {
        Some(token) => format!("{{\"id\":2,\"call\":\"ret_proc\",\"proc\":\"{token}\"}}\n"),
        None => format!(
            "{{\"id\":1,\"call\":\"get_proc\",\"lang\":\"javascript\",\"db\":\"db{}\"}}\n",
            random as usize % DATABASES
        ),
    }
}

/// Runs this many clients, and returns the cost of a call.
async fn cost(socket: &Path, service: u32, clients: usize, next: Next) -> Cost {
    let connected = (0..clients as u64).map(|number| Client::connect(socket, number));
    let mut clients = join_all(connected).await;
    let run = async |time| {
        let end = Instant::now() + time;
        let calls = clients.iter_mut().map(|client| client.call(next, end));
        join_all(calls).await.into_iter().sum::<u64>() as f64
    };
    measured(service, run).await
}

/// A child that echoes each line.
struct Cat {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _child: tokio::process::Child,
}

impl Cat {
    fn start() -> Self {
        let mut child = tokio::process::Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("cat starts");
        Self {
            input: child.stdin.take().expect("a pipe"),
            output: BufReader::new(child.stdout.take().expect("a pipe")),
            _child: child,
        }
    }

    async fn copy(&mut self, line: &mut String) {
        self.input
            .write_all(line.as_bytes())
            .await
            .expect("cat reads");
        line.clear();
        self.output.read_line(line).await.expect("cat answers");
    }
}

/// The relay, with a `cat` for each connection, or the echo.
async fn echo_lines(socket: &Path, by_cat: bool) {
    std::fs::create_dir(socket.parent().expect("a folder")).expect("a new folder");
    let listener = UnixListener::bind(socket).expect("a socket");
    println!("ready");
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        actix_rt::spawn(async move {
            let mut cat = by_cat.then(Cat::start);
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
                if let Some(cat) = &mut cat {
                    cat.copy(&mut line).await;
                }
                let sent = stream.write_all(line.as_bytes()).await;
                sent.expect("the client reads");
                line.clear();
            }
        });
    }
}

/// A program that listens on a socket. Killed when dropped.
struct Served {
    child: Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Served {
    /// Starts a program and waits for the line that it prints when it listens.
    fn start(mut command: impl FnMut(&Path) -> Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("run").join("s.sock");
        let mut child = command(&socket)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut ready = LineReader::new(child.stdout.take().expect("a pipe"));
        ready
            .read_line(&mut String::new())
            .expect("the program listens");
        Self {
            child,
            socket,
            _folder: folder,
        }
    }

    async fn cost(&self, clients: usize, next: Next) -> Cost {
        cost(&self.socket, self.child.id(), clients, next).await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn service() -> Served {
    Served::start(|socket| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_settee"));
        command.arg("serve").stderr(Stdio::null());
        for (key, value) in [
            ("SERVER__HTTP", "off"),
            ("STORE__PATH", "memory"),
            ("LOG__LEVEL", "error"),
        ] {
            command.env(format!("SETTEE__{key}"), value);
        }
        command.env("SETTEE__SERVER__SOCKET", socket);
        command
    })
}

/// Starts this program in another role.
fn as_role(role: &str) -> Served {
    Served::start(|socket| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(role).arg(socket);
        command
    })
}

async fn compare_with_php(php: &Php) {
    let service = service();
    let (mut calls, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floors.push(php_cost(php).await);
        calls.push(service.cost(PHP_CLIENTS, same_prompt).await);
    }
    let (call, floor) = (Cost::median(&calls), Cost::median(&floors));
    floor.print("php-fpm, 4 clients");
    call.print("ddoc_prompt, 4 clients");
    report(
        "ddoc_prompt vs php-fpm",
        call.both(),
        floor.both(),
        "us",
        WANTED_PHP,
    );
}

#[actix_rt::main]
async fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    match &*arguments.iter().map(String::as_str).collect::<Vec<_>>() {
        [_, "relay", socket] => return echo_lines(Path::new(socket), true).await,
        [_, "echo", socket] => return echo_lines(Path::new(socket), false).await,
        _ => {}
    }
    if let Some(php) = Php::start(PHP_SHOW, PHP_CLIENTS) {
        compare_with_php(&php).await;
    }
    let programs = [as_role("relay"), as_role("echo"), service(), service()];
    let [relay, echo, calls, loans] = &programs;
    let [few, many] = CLIENTS;
    let runs: [(&str, &Served, usize, Next); 7] = [
        ("relay, 100 clients", relay, few, ddoc_prompt),
        ("ddoc_prompt, 100 clients", calls, few, ddoc_prompt),
        ("ddoc_prompt, 1000 clients", calls, many, ddoc_prompt),
        ("echo, 100 clients", echo, few, loan),
        ("echo, 1000 clients", echo, many, loan),
        ("get or return, 100 clients", loans, few, loan),
        ("get or return, 1000 clients", loans, many, loan),
    ];
    let mut costs = runs.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, served, clients, next), costs) in runs.iter().zip(&mut costs) {
            costs.push(served.cost(*clients, *next).await);
        }
    }
    let costs = costs.map(|all| Cost::median(&all));
    for ((what, ..), cost) in runs.iter().zip(&costs) {
        cost.print(what);
    }
    let [relay, call, many_calls, echo, many_echoes, loan, many_loans] = costs;
    report(
        "ddoc_prompt vs the relay",
        call.both(),
        relay.both(),
        "us",
        WANTED_CALL,
    );
    // More connections slow down an echo, too: they compete for the caches.
    let more = many_echoes.service / echo.service;
    report("an echo, 1000 vs 100 clients", more, 1.0, "", more);
    for (what, many, few) in [
        ("ddoc_prompt, 1000 vs 100 clients", many_calls, call),
        ("a loan, 1000 vs 100 clients", many_loans, loan),
    ] {
        report(
            what,
            many.service / few.service,
            more,
            "",
            WANTED_MORE_CLIENTS,
        );
    }
}
