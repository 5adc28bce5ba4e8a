//! Limits on one client: time, memory, connections, descriptors.

use std::fs::read_to_string;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::support::daemon::{DEADLINE, Service, call_at_once, configure, directory, wait_until};
use crate::support::http_client::{Connection, Web, command};
use crate::support::program::SETTEE;
use crate::support::refused_calls::without_watches_from;

const JSON: &str = "application/json";

/// A call that needs a child.
fn call() -> String {
    json!({"lang": "javascript", "funs": ["function(doc) { emit(doc._id, 1); }"],
           "docs": [{"_id": "a"}]})
    .to_string()
}

/// Begins a request without its body; returns once the service waits for the body.
fn announce(connection: &mut Connection, path: &str, length: usize) {
    connection.write(&format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n\
         Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
    ));
    assert_eq!(connection.head().status, 100);
}

/// Sends a piece repeatedly until the service closes the connection; returns its answer.
fn trickle(stream: &mut TcpStream, piece: &str) -> String {
    stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    wait_until("an end of the connection", || {
        match stream.read(&mut buffer) {
            Ok(0) => true,
            Ok(length) => {
                said.extend_from_slice(&buffer[..length]);
                false
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // If the write fails, an earlier answer is still to be read.
                drop(stream.write_all(piece.as_bytes()));
                false
            }
            // The end of another test's child interrupts a read with a timeout.
            Err(error) => error.kind() != ErrorKind::Interrupted,
        }
    });
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn a_login_with_a_larger_body_than_a_login_needs_is_refused() {
    let web = Web::start("[admins]\nann = \"open sesame\"\n");
    let long = format!(
        "{{\"name\": \"ann\", \"password\": \"{}\"}}",
        "x".repeat(5000)
    );
    let reason = web
        .send("POST", "/_session", &long)
        .reason(413, "too_large");
    assert!(
        !reason.contains("body_max"),
        "no key raises this limit: {reason}"
    );
    let mut connection = web.connect();
    connection.begin_chunked("/_session", JSON);
    connection.send_chunk(&"x".repeat(5000));
    connection.response().error(413, "too_large");
    web.service.stop();
}

#[test]
fn every_request_head_of_a_connection_has_a_deadline() {
    let web = Web::start("");
    let mut connection = web.connect();
    assert_eq!(connection.request("GET", "/_up", &[], "").status, 200);
    connection.write("GET /_up HT");
    let said = connection.closed();
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    web.service.stop();
}

#[test]
fn a_second_head_that_trickles_times_out() {
    let web = Web::start("");
    let mut connection = web.connect();
    assert_eq!(connection.request("GET", "/_up", &[], "").status, 200);
    connection.write("GET /_up HTTP/1.1\r\nX: ");
    let said = trickle(&mut connection.stream, "x");
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    web.service.stop();
}

#[test]
fn a_body_is_requested_only_from_an_authenticated_sender() {
    let web = Web::start("[admins]\nann = \"open sesame\"\n");
    let announced = |credentials: &str| {
        let mut connection = web.connect();
        connection.write(&format!(
            "POST /_query/map HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n\
             {credentials}Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
        ));
        connection
    };
    for wrong in ["", "Authorization: Basic YW5uOndyb25n\r\n"] {
        let mut connection = announced(wrong);
        let refused = connection.response();
        refused.error(401, "unauthorized");
        assert!(refused.header("x-request-id").is_some());
        assert_eq!(connection.closed(), "");
    }
    let mut connection = announced("Authorization: Basic YW5uOm9wZW4gc2VzYW1l\r\n");
    assert_eq!(connection.head().status, 100);
    connection.disconnect();
    web.service.stop();
}

#[test]
fn a_body_that_trickles_times_out() {
    let web = Web::start("[server]\nrequest_timeout = 1\n");
    let mut connection = web.connect();
    announce(&mut connection, "/_query/map", 1000);
    let said = trickle(&mut connection.stream, "x");
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    web.service.stop();
}

#[test]
fn a_line_of_a_stream_that_trickles_times_out() {
    let web = Web::start("[server]\nrequest_timeout = 1\n");
    let mut connection = web.connect();
    connection.begin_chunked("/_query/map", "application/x-ndjson");
    let said = trickle(&mut connection.stream, "1\r\n{\r\n");
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    web.service.stop();
}

#[test]
fn large_bodies_beyond_in_flight_max_are_refused_and_small_requests_are_not() {
    const LARGE: usize = 60_000_000;
    let web = Web::start("[server]\nin_flight_max = 104857600\n");
    let mut first = web.connect();
    announce(&mut first, "/_query/map", LARGE);
    for _ in 0..7 {
        let mut other = web.connect();
        other.write(&format!(
            "POST /_query/map HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n\
             Content-Length: {LARGE}\r\n\r\n"
        ));
        let refused = other.response();
        let reason = refused.reason(503, "too_many_requests");
        assert!(reason.contains("in_flight_max"), "{reason}");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    web.send("POST", "/_query/map", &call()).ok();
    first.disconnect();
    wait_until("room for another large body", || {
        let mut other = web.connect();
        other.write(&format!(
            "POST /_query/map HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n\
             Content-Length: {LARGE}\r\nExpect: 100-continue\r\n\r\n"
        ));
        other.head();
        let mut piece = [0; 1];
        let stream = &other.stream;
        stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        // A refusal would arrive at once.
        stream.peek(&mut piece).is_err()
    });
    web.service.stop();
}

#[test]
fn a_client_that_does_not_read_its_answer_is_disconnected() {
    let web = Web::start("[server]\nrequest_timeout = 5\n");
    let mut connection = web.connect();
    // The service's end of the connection in /proc/net/tcp: its port, the peer, the state.
    let client = connection.stream.local_addr().unwrap().port();
    let established = format!(":{:04X} 0100007F:{client:04X} 01 ", web.address.port());
    let is_open = || {
        let table = read_to_string("/proc/net/tcp").unwrap();
        table.contains(&established)
    };
    wait_until("a connection", is_open);
    let long = json!({"lang": "javascript", "funs": ["function(doc) { emit(1, doc.s); }"],
                      "docs": vec![json!({"_id": "a", "s": "x".repeat(100 << 10)}); 160]});
    connection.send(
        "POST",
        "/_query/map",
        &[("Content-Type", JSON)],
        &long.to_string(),
    );
    let head = connection.head();
    assert_eq!(head.status, 200, "{head:?}");
    wait_until("an end of the connection", || !is_open());
    let mut rest = Vec::new();
    // The connection may be reset.
    let _ = connection.stream.read_to_end(&mut rest);
    assert!(rest.len() < 16 << 20, "{}", rest.len());
    web.service.stop();
}

/// Ends the crowd, even if the test has failed.
struct EndCrowd<'a>(&'a AtomicBool);

impl Drop for EndCrowd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keeps trickling and idle connections open, and reopens closed ones.
fn crowd(
    address: SocketAddr,
    trickling: usize,
    idle: usize,
    arrived: &AtomicUsize,
    over: &AtomicBool,
) {
    let open = || {
        let stream = TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    let mut streams: Vec<Option<TcpStream>> = (0..trickling + idle).map(|_| None).collect();
    while !over.load(Ordering::Relaxed) {
        for (at, place) in streams.iter_mut().enumerate() {
            let is_open = match place {
                Some(stream) if at < trickling => stream.write_all(b"G").is_ok(),
                Some(stream) => matches!(
                    stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock
                ),
                None => false,
            };
            if !is_open {
                *place = open();
            }
        }
        arrived.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn idle_connections_do_not_lock_out_other_clients() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )
    .unwrap();
    let directory = directory();
    let config = configure(directory.path(), "");
    let mut command = Command::new("sh");
    let limited = "ulimit -n 256; exec \"$0\" serve -c \"$1\"";
    command
        .args(["-c", limited, SETTEE])
        .arg(config)
        .env("SETTEE__SERVER__HTTP", "127.0.0.1:0")
        .env("SETTEE__SERVER__OPEN", "true")
        .env("SETTEE__STORE__PATH", "memory");
    let mut service = Service::start_command(directory, command);
    let address = service.next_address("http://");
    // A connection from the crowd's address may be closed to make room for a new one before its request is read.
    let ask = || -> io::Result<String> {
        let (mut stream, body) = (TcpStream::connect(address)?, call());
        stream.set_read_timeout(Some(DEADLINE))?;
        write!(
            stream,
            "POST /_query/map HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    let (arrived, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _end_crowd = EndCrowd(&over);
        scope.spawn(|| crowd(address, 1000, 600, &arrived, &over));
        wait_until("a crowd", || arrived.load(Ordering::Relaxed) > 1);
        let idle_clients: Vec<_> = (0..300).map(|_| service.connect()).collect();
        for _ in 0..10 {
            service.status();
            wait_until("an answer", || {
                ask().is_ok_and(|said| said.starts_with("HTTP/1.1 200 "))
            });
        }
        drop(idle_clients);
    });
    service.stop();
}

/// Sends a request that connects to an unreachable server, before and after the service runs out of `epoll` watches.
/// Returns both answers.
fn answers_before_and_without_watches(
    config: &str,
    method: &str,
    path: &str,
    body: &str,
) -> [String; 2] {
    // Startup uses fewer; `epoll` refuses to watch further ones.
    const DESCRIPTORS: u64 = 200;
    let directory = directory();
    let command = command(&configure(directory.path(), config));
    let web = without_watches_from(DESCRIPTORS, || Web::start_command(directory, command));
    let mut kept = web.connect();
    let mut ask = || {
        kept.request(method, path, &[("Content-Type", JSON)], body)
            .body
    };
    let before = ask();
    let mut crowd = Vec::new();
    wait_until("a connection that cannot be served", || {
        crowd.extend(TcpStream::connect(web.address));
        web.service
            .log()
            .contains("the HTTP server cannot serve a connection")
    });
    let then = ask();
    drop(crowd);
    web.service.stop();
    [before, then]
}

#[test]
fn a_lack_of_epoll_watches_is_not_reported_as_a_full_disk() {
    let [source, target] = ["a", "b"].map(|db| format!("http://127.0.0.1:1/{db}"));
    let replication = json!({"source": source, "target": target}).to_string();
    let replicator = "[replicator]\nretries_per_request = 0\n";
    let store = "[store]\nurl = \"postgres://ann@127.0.0.1:1/settee\"\n";
    for [before, then] in [
        answers_before_and_without_watches(replicator, "POST", "/_replicate", &replication),
        answers_before_and_without_watches(store, "GET", "/_replicator/a", ""),
    ] {
        assert!(before.contains("Connection refused"), "{before}");
        assert!(then.contains("sysctl fs.epoll.max_user_watches"), "{then}");
        assert!(!then.contains("No space left"), "{then}");
    }
}

#[test]
fn a_lack_of_epoll_watches_is_logged_and_clients_of_the_socket_wait_for_it_to_end() {
    // Startup uses fewer; `epoll` refuses to watch further ones.
    const DESCRIPTORS: u64 = 200;
    let directory = directory();
    let command = command(&configure(directory.path(), ""));
    let web = without_watches_from(DESCRIPTORS, || Web::start_command(directory, command));
    let mut crowd = Vec::new();
    wait_until("a connection that cannot be served", || {
        crowd.extend(TcpStream::connect(web.address));
        web.service
            .log()
            .contains("the HTTP server cannot serve a connection")
    });
    let lost = web.service.connect();
    web.service.wait_for_log("cannot accept a client");
    let mut waits = web.service.connect();
    drop((crowd, lost));
    assert_eq!(waits.ok(&call_at_once(1)), false);
    let log = web.service.log();
    for what in ["cannot serve a connection", "cannot accept a client"] {
        let record = log.lines().find(|line| line.contains(what)).unwrap();
        assert!(
            record.contains("sysctl fs.epoll.max_user_watches"),
            "{record}"
        );
        assert!(record.contains("raise that limit"), "{record}");
    }
    web.service.stop();
}

#[test]
fn a_body_counts_with_its_parsed_size() {
    let web = Web::start("[server]\nin_flight_max = 10485760\n");
    let lists = format!("[{}[]]", "[],".repeat(2_000_000));
    let refused = web.send("POST", "/_replicator/_bulk_docs", &lists);
    refused.error(503, "too_many_requests");
    let ones = format!("{{\"docs\": [{}1]}}", "1,".repeat(3_000_000));
    let refused = web.send("POST", "/_query/map", &ones);
    refused.error(503, "too_many_requests");
    web.send("POST", "/_query/map", &call()).ok();
    web.service.stop();
}

#[test]
fn a_client_of_the_socket_that_does_not_read_loses_its_process() {
    let service = Service::start("[server]\nrequest_timeout = 3\n");
    let mut client = service.connect();
    let proc = client.get_proc("python");
    let echo = json!({"id": 1, "call": "prompt", "proc": proc,
                      "data": ["echo", "x".repeat(100_000)]});
    // More than the socket and the limit of unread answers hold together.
    for _ in 0..10 {
        client.send(&echo);
    }
    let mut other = service.connect();
    other.wait_for_pool("python", &[("used", 0)]);
    drop(client);
    service.stop();
}

#[test]
fn a_line_of_the_socket_beyond_in_flight_max_is_refused() {
    let service = Service::start("[server]\nin_flight_max = 1048576\n");
    let mut client = service.connect();
    client.send_raw(&vec![b' '; 2 << 20]);
    let reply = client.reply();
    assert_eq!(reply["error"]["name"], "too_many_requests", "{reply}");
    let mut other = service.connect();
    let proc = other.get_proc("python");
    assert_eq!(other.prompt(&proc, json!(["echo", 1])), 1);
    service.stop();
}
