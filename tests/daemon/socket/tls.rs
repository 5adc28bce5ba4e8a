//! Clients on TCP over TLS: `[ssl] tcp`.

use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustls::version::TLS13;
use serde_json::{Value, json};

use crate::support::daemon::{DEADLINE, Service, call_at_once, directory, wait_until};
use crate::support::tls::{ClientAuthority, Encrypted, certify, connect, connect_as, ssl};

/// Starts a service with a certificate authority for clients.
fn start(extra: &str) -> (Service, SocketAddr, ClientAuthority) {
    let directory = directory();
    let place = directory.path();
    certify(place);
    let authority = ClientAuthority::new(&place.join("clients.pem"));
    let config = format!(
        "[admins]\nann = \"open sesame\"\n{}tcp = \"127.0.0.1:0\"\ncacert_file = \
         \"{}/clients.pem\"\n{extra}",
        ssl(place),
        place.display()
    );
    let mut service = Service::start_in(directory, &config);
    let address = service.next_address("tls:");
    (service, address, authority)
}

fn call(client: &mut Encrypted, request: &Value) -> Value {
    let line = format!("{request}\n");
    client.get_mut().write_all(line.as_bytes()).unwrap();
    let mut line = String::new();
    client.read_line(&mut line).expect("a line in time");
    serde_json::from_str(&line).unwrap()
}

/// Borrows a process and has it echo `bytes` bytes.
fn echo(client: &mut Encrypted, bytes: usize) {
    let got = call(
        client,
        &json!({"id": 2, "call": "get_proc", "lang": "python"}),
    );
    let (proc, text) = (&got["ok"]["proc"], "x".repeat(bytes));
    let prompt = json!({"id": 3, "call": "prompt", "proc": proc, "data": ["echo", text]});
    assert!(call(client, &prompt)["ok"] == text, "{got}");
}

#[test]
fn a_logged_in_client_is_served_with_lines_of_any_length() {
    let (service, address, _) = start("");
    let place = service.directory.path();
    let mut client = connect(place, address, &TLS13).unwrap();
    let login = json!({"id": 1, "call": "auth", "name": "ann", "password": "open sesame"});
    assert_eq!(call(&mut client, &login), json!({"id": 1, "ok": true}));
    echo(&mut client, 3_000_000);
    drop(client);
    let mut other = service.connect();
    other.wait_for_pool("python", &[("used", 0), ("free", 1)]);
    service.stop();
}

#[test]
fn a_client_with_the_certificate_of_a_user_is_logged_in() {
    let (service, address, authority) = start("");
    let place = service.directory.path();
    let mut ann = connect_as(place, address, authority.sign("ann")).unwrap();
    echo(&mut ann, 10);
    let mut eve = connect_as(place, address, authority.sign("eve")).unwrap();
    let refused = call(&mut eve, &call_at_once(1));
    assert_eq!(refused["error"]["name"], "unauthorized");
    service.stop();
}

#[test]
fn a_client_that_does_not_use_tls_is_disconnected() {
    let (service, address, _) = start("");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(b"{\"id\":1,\"call\":\"auth\"}\n").unwrap();
    let mut answer = Vec::new();
    // The connection may be reset, as the service has not read all of its input.
    let _ = stream.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("error"));
    service.stop();
}

#[test]
fn handshakes_count_towards_the_client_limit() {
    let (service, address, authority) = start("[server]\nmax_connections = 2\n");
    let place = service.directory.path();
    let silent = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    service.wait_for_log("maximum number of clients reached");
    drop(silent);
    let mut ann = connect_as(place, address, authority.sign("ann")).unwrap();
    echo(&mut ann, 10);
    service.stop();
}

#[test]
fn a_client_that_reads_nothing_is_disconnected_and_its_process_returned() {
    let (service, address, authority) = start("[server]\nrequest_timeout = 1\n");
    let place = service.directory.path();
    let mut ann = connect_as(place, address, authority.sign("ann")).unwrap();
    let got = call(
        &mut ann,
        &json!({"id": 2, "call": "get_proc", "lang": "python"}),
    );
    let text = "x".repeat(1_000_000);
    let prompt =
        json!({"id": 3, "call": "prompt", "proc": got["ok"]["proc"], "data": ["echo", text]});
    let line = format!("{prompt}\n");
    // More than all buffers hold; the answers are never read.
    ann.get_ref()
        .sock
        .set_write_timeout(Some(DEADLINE))
        .unwrap();
    let cut_off = (0..200).any(|_| ann.get_mut().write_all(line.as_bytes()).is_err());
    assert!(cut_off);
    let mut other = service.connect();
    wait_until("the process is back", || other.pool("python")["used"] == 0);
    service.stop();
}

#[test]
fn a_client_that_is_lost_after_close_notify_leaves_its_process() {
    let (service, address, authority) = start("");
    let place = service.directory.path();
    let mut ann = connect_as(place, address, authority.sign("ann")).unwrap();
    let attach = json!({"id": 1, "call": "attach", "lang": "python"});
    let attached = call(&mut ann, &attach);
    assert_eq!(attached["ok"]["lang"], "python", "{attached}");
    let mut ann = ann.into_inner();
    ann.write_all(b"[\"never\"]\n").unwrap();
    ann.conn.send_close_notify();
    ann.flush().unwrap();
    // The connection is reset.
    set_socket_linger(&ann.sock, Some(Duration::ZERO)).unwrap();
    drop(ann);
    let mut other = service.connect();
    other.wait_for_pool("python", &[("used", 0)]);
    service.stop();
}

#[test]
fn a_stopping_service_ends_connections_with_close_notify() {
    let (service, address, authority) = start("");
    let place = service.directory.path();
    let mut ann = connect_as(place, address, authority.sign("ann")).unwrap();
    echo(&mut ann, 10);
    service.signal("TERM");
    let mut rest = String::new();
    // An end without `close_notify` would be an error.
    ann.read_to_string(&mut rest).unwrap();
    service.stop();
}
