//! `/_query/ddoc` with a validate function at 1, 10 and 50 keep-alive connections: calls per second and the 99th
//! percentile, beside as many requests for `/_up`, which never reach the pool. Also compares the CPU time of all
//! processes: for calls with and without a report, and, at 10 connections, for calls and for the same function behind
//! nginx with php-fpm (skipped if not installed).

mod common;

use std::io::{BufRead, BufReader as LineReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::php::{Php, terminate};
use common::{children, median, nanoseconds, report};
use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

const CONNECTIONS: [usize; 3] = [1, 10, 50];
const CALLS: usize = 6_000;
const ROUNDS: usize = 3;

/// Maximum time of a call, relative to `/_up`: a call crosses to the pool and back, and a child runs a function.
const WANTED: f64 = 6.0;

/// Maximum CPU time of a call with a report, relative to one without.
const WANTED_REPORT: f64 = 1.05;

/// The same function in PHP.
const PHP_VALIDATE: &str = "<?php $call = json_decode(file_get_contents('php://input'), true); \
    $doc = $call['args'][0]; $answer = 1; \
    if (!isset($doc['type'])) { $answer = ['forbidden' => 'no type']; } \
    elseif ($doc['total'] < 0) { $answer = ['forbidden' => 'negative']; } \
    $answer = json_encode($answer); header('Content-Type: application/json'); \
    header('Content-Length: ' . strlen($answer)); echo $answer;";

const PHP_CONNECTIONS: usize = 10;

/// Maximum CPU time of a call, relative to nginx with php-fpm.
const WANTED_PHP: f64 = 1.5;

/// How often calls with and without a report are measured, in turn.
const PAIRS: usize = 15;

const BODY: &str = r#"{"db":"shop","ddoc":{"_id":"_design/d","_rev":"1-a","validate_doc_update":"function(newDoc, oldDoc, userCtx) { if (!newDoc.type) { throw({forbidden: 'no type'}); } if (newDoc.total < 0) { throw({forbidden: 'negative'}); } }"},"path":["validate_doc_update"],"args":[{"_id":"order-000017","_rev":"3-9f","type":"order","customer":"acme","total":31.5,"lines":[{"sku":"A1","qty":2},{"sku":"B9","qty":1}]},null,{"name":"ann","roles":[]},{}]}"#;

/// A service. Killed when dropped.
struct Service {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

/// An address to measure, and the programs that answer there.
struct Measured {
    address: SocketAddr,
    programs: Vec<u32>,
}

impl Service {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut child = Command::new(env!("CARGO_BIN_EXE_settee"))
            .arg("serve")
            .arg("--socket")
            .arg(directory.path().join("run/s.sock"))
            .env("SETTEE__SERVER__HTTP", "127.0.0.1:0")
            .env("SETTEE__SERVER__OPEN", "true")
            .env("SETTEE__LOG__LEVEL", "error")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let stdout = child.stdout.take().expect("a pipe");
        let lines = LineReader::new(stdout).lines().map_while(Result::ok);
        let address = lines
            .filter_map(|line| {
                let (_, rest) = line.split_once("http://")?;
                rest.trim_end_matches('/').parse().ok()
            })
            .next();
        Self {
            child,
            address: address.expect("the service prints its address"),
            _directory: directory,
        }
    }
}

impl Service {
    fn measured(&self) -> Measured {
        Measured {
            address: self.address,
            programs: vec![self.child.id()],
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends a request `count` times over one connection, and returns how long each took.
async fn client(address: SocketAddr, request: &[u8], count: usize) -> Vec<Duration> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    stream.set_nodelay(true).expect("a socket");
    let mut stream = BufReader::new(stream);
    let (mut line, mut body) = (String::new(), Vec::new());
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let since = Instant::now();
        stream
            .write_all(request)
            .await
            .expect("the request is sent");
        let (mut length, mut is_first) = (0, true);
        loop {
            line.clear();
            stream.read_line(&mut line).await.expect("a head");
            if is_first {
                assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
                is_first = false;
            }
            if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        body.resize(length, 0);
        stream.read_exact(&mut body).await.expect("a body");
        times.push(since.elapsed());
    }
    times
}

/// One run at some number of connections.
#[derive(Clone, Copy)]
struct Run {
    /// Microseconds per call.
    each: f64,
    /// The 99th percentile.
    slow: Duration,
    /// Microseconds of CPU time per call: of the programs, and of their children.
    used: [f64; 2],
}

impl Measured {
    /// Returns the CPU time of the programs so far, and that of their children, in nanoseconds.
    fn used(&self) -> [f64; 2] {
        let own = self.programs.iter().copied();
        let processes = own.clone().flat_map(children).map(nanoseconds);
        [own.map(nanoseconds).sum(), processes.sum()]
    }

    async fn run(&self, request: &[u8], connections: usize) -> Run {
        let count = CALLS / connections;
        let (since, before) = (Instant::now(), self.used());
        let clients = (0..connections).map(|_| client(self.address, request, count));
        let mut times = join_all(clients).await.concat();
        let each = since.elapsed().as_secs_f64() * 1e6 / times.len() as f64;
        let after = self.used();
        times.sort_unstable();
        Run {
            each,
            slow: times[times.len() * 99 / 100],
            used: [0, 1].map(|of| (after[of] - before[of]) / 1e3 / times.len() as f64),
        }
    }

    /// The best figures of a few runs.
    async fn best(&self, request: &[u8], connections: usize) -> Run {
        let mut best = self.run(request, connections).await;
        for _ in 1..ROUNDS {
            let run = self.run(request, connections).await;
            best = Run {
                each: best.each.min(run.each),
                slow: best.slow.min(run.slow),
                used: [0, 1].map(|of| best.used[of].min(run.used[of])),
            };
        }
        best
    }
}

/// Measures the call beside the same function behind nginx and php-fpm.
async fn compare_with_php(request: &[u8]) {
    let Some(php) = Php::start(PHP_VALIDATE, PHP_CONNECTIONS) else {
        return;
    };
    let Some((mut nginx, address)) = php.nginx() else {
        return;
    };
    let floor = Measured {
        address,
        programs: vec![nginx.id(), php.child.id()],
    };
    let started = Service::start();
    let service = started.measured();
    let (mut calls, mut floors) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        for (measured, all) in [(&floor, &mut floors), (&service, &mut calls)] {
            let run = measured.run(request, PHP_CONNECTIONS).await;
            // The first round is the warm-up.
            if round > 0 {
                all.push(run.used.iter().sum());
            }
        }
    }
    terminate(&mut nginx);
    report(
        "validate beside nginx and php-fpm",
        median(calls),
        median(floors),
        "us",
        WANTED_PHP,
    );
}

fn main() {
    let call = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{BODY}",
            BODY.len()
        )
    };
    let (validate, reported) = (call("/_query/ddoc"), call("/_query/ddoc?report=true"));
    let up = "GET /_up HTTP/1.1\r\nHost: localhost\r\n\r\n";
    actix_rt::System::new().block_on(async {
        compare_with_php(validate.as_bytes()).await;
        for connections in CONNECTIONS {
            // A new service each time: a shared one would keep idle processes.
            let started = Service::start();
            let service = started.measured();
            // Warm-up: starts the processes and loads the function.
            service.run(validate.as_bytes(), connections).await;
            let floor = service.best(up.as_bytes(), connections).await;
            let calls = service.best(validate.as_bytes(), connections).await;
            let what = format!("validate over HTTP, {connections} connections");
            report(&what, calls.each, floor.each, "us", WANTED);
            let [own, processes] = calls.used;
            println!(
                "{:<44} {:>10.0} calls/s, 1 in 100 over {:.2} ms   floor {:>9.0} calls/s, {:.2} ms\n\
                 {:<44} {own:>10.1} us of processor time in the service ({:.1} for /_up), {processes:.1} in processes",
                "",
                1e6 / calls.each,
                calls.slow.as_secs_f64() * 1e3,
                1e6 / floor.each,
                floor.slow.as_secs_f64() * 1e3,
                "",
                floor.used[0],
            );
            let (mut with, mut without) = (Vec::new(), Vec::new());
            for _ in 0..PAIRS {
                for (request, all) in [(&validate, &mut without), (&reported, &mut with)] {
                    let run = service.run(request.as_bytes(), connections).await;
                    all.push(run.used.iter().sum());
                }
            }
            let what = format!("with a report, {connections} connections");
            report(&what, median(with), median(without), "us", WANTED_REPORT);
        }
    });
}
