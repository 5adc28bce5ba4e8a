//! Latency of an innocent client's small calls over HTTP while other clients send arguments of 60 MB or get answers of
//! 33 MB, over HTTP or the socket, and while an operator reloads, sets, scrapes and lists a service of 1,000 pools and 10,000 tenants: the
//! median, the 99th percentile and the maximum, beside those measured without other load. For an operator's call
//! only the maximum, and the CPU time of the pool's thread.
//!
//! The innocent client is a second process of this program: in the first one it would wait for the other clients. It
//! has its own connection and its own database. `SETTEE_BENCH_PROGRAM` names another build to measure.

mod common;

use std::env::{args, current_exe};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::report;
use common::service::Service;

/// The argument that makes this program the innocent.
const INNOCENT: &str = "--innocent";

/// How long the innocent calls without other load, and beside each of an operator's calls.
const ALONE: Duration = Duration::from_secs(3);

/// Pause between two of the innocent's calls.
const REST: Duration = Duration::from_millis(2);

/// Maximum latency of the innocent's calls, relative to that without other load: all share two cores.
const WANTED: f64 = 200.0;

const CLIENTS: usize = 6;

/// On two cores the others' functions need much time and memory.
const TERMS: &str =
    "[couchdb]\nos_process_timeout = 120000\n[sandbox]\njavascript_memory_max = 1000000000";

/// Delay before a refused call is retried.
const RETRY: Duration = Duration::from_millis(500);

/// A load that other clients cause.
struct Load {
    what: &'static str,
    /// Whether they call over the socket.
    socket: bool,
    /// Calls of each client.
    calls: usize,
    body: fn() -> String,
}

const LOADS: [Load; 4] = [
    Load {
        what: "bodies of 60 MB",
        socket: false,
        calls: 1,
        body: long_body,
    },
    Load {
        what: "answers of 33 MB",
        socket: false,
        calls: 7,
        body: || body("others", "large", "null"),
    },
    Load {
        what: "lines of 60 MB",
        socket: true,
        calls: 1,
        body: long_body,
    },
    Load {
        what: "answering lines of 33 MB",
        socket: true,
        calls: 7,
        body: || body("others", "large", "null"),
    },
];

fn long_body() -> String {
    let row = r#"{"i":1000000,"name":"n1000000","v":[1,2,3]}"#;
    let rows = vec![row; 60_000_000 / (row.len() + 1)].join(",");
    body("others", "small", &format!("[{rows}]"))
}

fn body(db: &str, show: &str, doc: &str) -> String {
    let large =
        "function() { var s = '0123456789abcdef'; while (s.length < 20000000) s += s; return s }";
    format!(
        r#"{{"db":"{db}","ddoc":{{"_id":"_design/d","shows":{{"small":"function() {{ return 'x' }}","large":"{large}"}}}},"path":["shows","{show}"],"args":[{doc},{{}}]}}"#
    )
}

/// Calls a function; returns the status and the size of the answer.
fn call(stream: &mut BufReader<TcpStream>, body: &str) -> (String, usize) {
    let head = format!(
        "POST /_query/ddoc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let socket = stream.get_mut();
    socket
        .write_all(head.as_bytes())
        .expect("the service reads");
    socket
        .write_all(body.as_bytes())
        .expect("the service reads");
    let (mut status, mut length) = (String::new(), 0);
    for line in stream.by_ref().lines() {
        let line = line.expect("the service answers");
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().expect("a length");
        }
        if status.is_empty() {
            status = line.split(' ').nth(1).expect("a status").to_owned();
        } else if line.is_empty() {
            break;
        }
    }
    let read = std::io::copy(&mut stream.take(length), &mut std::io::sink());
    assert_eq!(read.expect("the service answers"), length);
    (status, length.try_into().expect("it fits"))
}

fn connect(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("the service listens");
    stream.set_nodelay(true).expect("a socket");
    BufReader::new(stream)
}

/// Calls until standard input ends, then prints how long each call took, in microseconds.
fn innocent(address: SocketAddr) {
    let ends = thread::spawn(|| std::io::stdin().read(&mut [0]));
    let (mut stream, small) = (connect(address), body("innocent", "small", "null"));
    let mut times = Vec::new();
    while !ends.is_finished() {
        let since = Instant::now();
        assert_eq!(call(&mut stream, &small).0, "200");
        times.push(since.elapsed().as_micros().to_string());
        thread::sleep(REST);
    }
    println!("{}", times.join(" "));
}

fn start_innocent(address: SocketAddr) -> Child {
    Command::new(current_exe().expect("this program"))
        .args([INNOCENT, &address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the innocent starts")
}

/// Stops the innocent; returns the median, 99th percentile and maximum of its calls, in milliseconds, and their number.
fn stop_innocent(innocent: Child) -> ([f64; 3], usize) {
    let output = innocent.wait_with_output().expect("the innocent ends");
    let text = String::from_utf8(output.stdout).expect("numbers");
    let words = text
        .split_whitespace()
        .map(|word| word.parse::<f64>().expect("a number"));
    let mut times: Vec<f64> = words.map(|micros| micros / 1e3).collect();
    times.sort_by(f64::total_cmp);
    let count = times.len();
    (
        [count / 2, count * 99 / 100, count - 1].map(|at| times[at]),
        count,
    )
}

/// Calls as one of the other clients; returns the size of the last answer.
fn load(address: SocketAddr, body: &str, calls: usize) -> usize {
    let mut stream = connect(address);
    let mut done = 0;
    let mut length = 0;
    while done < calls {
        let (status, bytes) = call(&mut stream, body);
        match status.as_str() {
            "200" => (done, length) = (done + 1, bytes),
            // The bound on memory in flight is reached.
            "503" => {
                thread::sleep(RETRY);
                stream = connect(address);
            }
            _ => panic!("status {status}"),
        }
    }
    length
}

/// Like [`load`], over the socket.
fn load_socket(socket: &Path, body: &str, calls: usize) -> usize {
    let mut stream = BufReader::new(UnixStream::connect(socket).expect("the service listens"));
    let request = format!("{{\"id\":1,\"call\":\"ddoc_prompt\",{}\n", &body[1..]);
    let mut answer = Vec::new();
    for _ in 0..calls {
        let sent = stream.get_mut().write_all(request.as_bytes());
        sent.expect("the service reads");
        answer.clear();
        let read = stream.read_until(b'\n', &mut answer);
        read.expect("the service answers");
        assert!(answer.starts_with(b"{\"id\":1,\"ok\":"), "refused");
    }
    answer.len()
}

/// An operator's call, which is repeated.
struct Operation {
    what: &'static str,
    call: fn(&Service, u32),
}

fn ok(answer: &str) {
    let is_good = answer.starts_with("HTTP/1.1 200");
    assert!(is_good, "{}", answer.lines().next().unwrap_or_default());
}

const OPERATIONS: [Operation; 7] = [
    Operation {
        what: "nothing",
        call: |_, _| thread::sleep(RETRY),
    },
    Operation {
        what: "unchanged reload",
        call: |service, _| ok(&service.call("POST", "/_node/_local/_config/_reload", "")),
    },
    Operation {
        what: "a tenant's bound set",
        call: |service, turn| {
            let path = "/_node/_local/_config/tenants.db1/queue_max";
            ok(&service.call("PUT", path, &format!("\"{}\"", turn % 5 + 10)));
        },
    },
    Operation {
        what: "a pool's bound set",
        call: |service, turn| {
            let path = "/_node/_local/_config/pools.p1/queue_max";
            ok(&service.call("PUT", path, &format!("\"{}\"", turn % 5 + 10)));
        },
    },
    Operation {
        what: "a scrape",
        call: |service, _| ok(&service.call("GET", "/metrics", "")),
    },
    Operation {
        what: "the dashboard",
        call: |service, _| ok(&service.call("GET", "/_dashboard/state", "")),
    },
    Operation {
        what: "a list of 5,000 processes",
        call: |service, _| ok(&service.call("GET", "/_procs", "")),
    },
];

/// A service of 1,000 pools, one of which has 5,000 processes, and 10,000 tenants.
fn large_service() -> String {
    let mut text = TERMS.to_owned();
    text += "\n[native_query_servers]\necho = true\n";
    text += "[pools.many]\nlanguage = \"echo\"\nmax = 5000\ninit_size = 5000\n";
    for pool in 1..1_000 {
        text += &format!("[pools.p{pool}]\nlanguage = \"javascript\"\nmax = 2\n");
    }
    for tenant in 0..10_000 {
        text += &format!("[tenants.db{tenant}]\nqueue_max = 20\n");
    }
    text
}

/// Measures the innocent during each of an operator's calls.
fn measure_operations() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = "processes_max = 6000\npools_max = 2000";
    let service = Service::with_server(folder.path(), server, &large_service());
    let address = service.address;
    load(address, &body("innocent", "small", "null"), 100);
    let mut floor = None;
    for Operation { what, call } in OPERATIONS {
        let innocent = start_innocent(address);
        let (since, before, mut turns) = (Instant::now(), service.loop_cpu(), 0);
        while since.elapsed() < ALONE {
            call(&service, turns);
            turns += 1;
        }
        let took = 1e3 * (service.loop_cpu() - before) / f64::from(turns);
        let (waits, count) = stop_innocent(innocent);
        let floor = *floor.get_or_insert(waits);
        report(
            &format!("{what}, longest"),
            waits[2],
            floor[2],
            "ms",
            WANTED,
        );
        println!(
            "{:<44} {turns} times, {took:.1} ms of the loop each; the innocent made {count}",
            ""
        );
    }
}

fn main() {
    let arguments: Vec<String> = args().collect();
    if let Some(at) = arguments.iter().position(|word| word == INNOCENT) {
        return innocent(arguments[at + 1].parse().expect("an address"));
    }
    measure_operations();
    for Load {
        what,
        socket,
        calls,
        body,
    } in LOADS
    {
        let folder = tempfile::tempdir().expect("a folder");
        let service = Service::start(folder.path(), TERMS);
        let address = service.address;
        // Warm-up: starts the innocent's process.
        load(address, &self::body("innocent", "small", "null"), 100);
        let alone = start_innocent(address);
        thread::sleep(ALONE);
        let (floor, _) = stop_innocent(alone);
        let (body, since) = (body(), Instant::now());
        let beside = start_innocent(address);
        let path = folder.path().join("run").join("s.sock");
        let lengths: Vec<usize> = thread::scope(|scope| {
            let one = || {
                if socket {
                    load_socket(&path, &body, calls)
                } else {
                    load(address, &body, calls)
                }
            };
            let others: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
            others
                .into_iter()
                .map(|other| other.join().expect("all calls succeed"))
                .collect()
        });
        let took = since.elapsed();
        let (waits, count) = stop_innocent(beside);
        for (at, name) in ["median", "slowest hundredth", "longest"]
            .into_iter()
            .enumerate()
        {
            report(
                &format!("{what}, {name}"),
                waits[at],
                floor[at],
                "ms",
                WANTED,
            );
        }
        println!(
            "{:<44} {CLIENTS} clients, {} calls in {:.1} s, answers of {} bytes; the innocent made {count}",
            "",
            CLIENTS * calls,
            took.as_secs_f64(),
            lengths[0],
        );
    }
}
