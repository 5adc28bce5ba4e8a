//! HTTP over TLS: `[ssl]`, certificates that are replaced while the service runs, cookies.

use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rcgen::KeyPair;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use tempfile::TempDir;

use crate::support::daemon::{DEADLINE, configure, directory, in_time, refused, wait_until};
use crate::support::http_client::{Web, closed_command};
use crate::support::tls::{self, ClientAuthority, Encrypted, certify, connect_as};

const ADMINS: &str = "[admins]\nann = \"open sesame\"\n";

fn ssl(directory: &TempDir, more: &str) -> String {
    let ssl = tls::ssl(directory.path());
    format!("{ADMINS}{ssl}enable = true\nport = 0\n{more}")
}

/// Starts a service with HTTP and with HTTP over TLS.
fn start() -> (Web, SocketAddr) {
    start_in(directory(), "")
}

fn start_in(directory: TempDir, more: &str) -> (Web, SocketAddr) {
    certify(directory.path());
    let config = configure(directory.path(), &ssl(&directory, more));
    let mut web = Web::start_command(directory, closed_command(&config));
    let https = web.service.next_address("https://");
    (web, https)
}

fn connect(
    web: &Web,
    address: SocketAddr,
    version: &'static SupportedProtocolVersion,
) -> io::Result<Encrypted> {
    tls::connect(web.service.directory.path(), address, version)
}

/// Sends a request, and returns the head and the body of its answer.
fn ask(client: &mut Encrypted, method: &str, path: &str, body: &str) -> (String, String) {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    client.get_mut().write_all(request.as_bytes()).unwrap();
    answer(client)
}

fn answer(client: &mut Encrypted) -> (String, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(client.read_line(&mut head).unwrap() > 0, "closed: {head}");
    }
    let length = head.lines().find_map(|line| {
        let line = line.to_ascii_lowercase();
        Some(line.strip_prefix("content-length: ")?.parse().unwrap())
    });
    let mut body = vec![0; length.unwrap()];
    client.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

#[test]
fn requests_are_answered_and_session_cookies_are_secure() {
    let (web, https) = start();
    let login = r#"{"name":"ann","password":"open sesame"}"#;
    for version in [&TLS12, &TLS13] {
        let mut client = connect(&web, https, version).unwrap();
        let (head, body) = ask(&mut client, "GET", "/", "");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(body.contains("settee"), "{body}");
        let (head, _) = ask(&mut client, "POST", "/_session", login);
        assert!(head.contains("; Secure"), "{head}");
        let (head, _) = ask(&mut client, "DELETE", "/_session", "");
        assert!(head.contains("; Secure"), "{head}");
    }
    let plain = web.send("POST", "/_session", login);
    assert_eq!(plain.status, 200);
    assert!(!plain.head.contains("Secure"), "{}", plain.head);
    web.service.stop();
}

#[test]
fn a_client_without_tls_is_refused() {
    let (web, https) = start();
    let mut stream = TcpStream::connect(https).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    // The connection may be reset, as the request was not read to its end.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains("HTTP"), "{answer}");
    web.service.stop();
}

#[test]
fn a_connection_is_closed_during_its_handshake_to_make_room() {
    /// The server's limit for a handshake.
    const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
    let (web, https) = start_in(directory(), "[server]\nmax_connections = 4\n");
    in_time("end of a silent handshake", |_| {
        let begun = Instant::now();
        let silent: Vec<_> = (0..5)
            .map(|_| {
                let stream = TcpStream::connect(https).unwrap();
                stream.set_nonblocking(true).unwrap();
                stream
            })
            .collect();
        wait_until("an end", || {
            let mut streams = silent.iter();
            streams.any(|mut stream| matches!(stream.read(&mut [0]), Ok(0)))
        });
        (begun.elapsed() < HANDSHAKE_MAX).then_some(())
    });
    web.service.stop();
}

#[test]
fn the_location_of_a_document_written_over_tls_is_an_https_url() {
    let (web, https) = start();
    let mut client = connect(&web, https, &TLS13).unwrap();
    let request = b"PUT /_replicator/_design/d HTTP/1.1\r\nHost: localhost\r\n\
                    Authorization: Basic YW5uOm9wZW4gc2VzYW1l\r\n\
                    Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    client.get_mut().write_all(request).unwrap();
    let (head, _) = answer(&mut client);
    assert!(head.contains("location: https://localhost/"), "{head}");
    web.service.stop();
}

#[test]
fn hup_replaces_the_certificate_for_new_connections() {
    let (web, https) = start();
    let mut first = connect(&web, https, &TLS13).unwrap();
    ask(&mut first, "GET", "/_up", "");
    certify(web.service.directory.path());
    let error = connect(&web, https, &TLS13).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    web.service.signal("HUP");
    web.service.wait_for_log("configuration is unchanged");
    let mut second = connect(&web, https, &TLS13).unwrap();
    for client in [&mut first, &mut second] {
        let (head, _) = ask(client, "GET", "/_up", "");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    }
    web.service.stop();
}

#[test]
fn an_unusable_certificate_does_not_replace_the_current_one() {
    let (web, https) = start();
    let key = web.service.path("key.pem");
    let good = fs::read(&key).unwrap();
    fs::write(&key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    web.service.signal("HUP");
    web.service.wait_for_log("configuration was not reloaded");
    assert!(web.service.log().contains("cert_file and key_file"));
    fs::write(&key, good).unwrap();
    let mut client = connect(&web, https, &TLS13).unwrap();
    ask(&mut client, "GET", "/_up", "");
    web.service.stop();
}

#[test]
fn disabled_tls_versions_are_refused_from_the_next_reload_on() {
    let (web, https) = start();
    connect(&web, https, &TLS12).unwrap();
    let file = web.service.path("settee.toml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("[ssl]\n", "[ssl]\ntls_versions = [\"tlsv1.3\"]\n");
    fs::write(&file, text).unwrap();
    web.service.signal("HUP");
    web.service.wait_for_log("configuration changed");
    let error = connect(&web, https, &TLS12).unwrap_err();
    assert!(error.to_string().contains("ProtocolVersion"), "{error}");
    connect(&web, https, &TLS13).unwrap();
    web.service.stop();
}

#[test]
fn a_missing_certificate_is_a_configuration_error() {
    let directory = directory();
    let config = configure(directory.path(), &ssl(&directory, ""));
    let (status, complaint) = refused(&config);
    assert_eq!(status, Some(78), "{complaint}");
    assert!(complaint.contains("cert.pem"), "{complaint}");
    assert!(complaint.contains("cert_file and key_file"), "{complaint}");
}

#[test]
fn the_name_in_a_client_certificate_is_the_user_unless_the_request_has_a_login() {
    let directory = directory();
    let authority = ClientAuthority::new(&directory.path().join("clients.pem"));
    let stranger = ClientAuthority::new(&directory.path().join("other.pem"));
    let more = format!(
        "cacert_file = \"{}/clients.pem\"\n[users.bob]\npassword = \"x\"\nroles = [\"caller\"]\n",
        directory.path().display()
    );
    let (web, https) = start_in(directory, &more);
    let place = web.service.directory.path();
    let session = |client: &mut Encrypted| {
        let (_, body) = ask(client, "GET", "/_session", "");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let by = body["info"]["authenticated"].clone();
        (body["userCtx"]["name"].clone(), by)
    };
    let known = |name: &str| (name.into(), "certificate".into());
    for name in ["ann", "bob"] {
        let mut client = connect_as(place, https, authority.sign(name)).unwrap();
        assert_eq!(session(&mut client), known(name));
    }
    let nobody = (serde_json::Value::Null, serde_json::Value::Null);
    let mut unknown = connect_as(place, https, authority.sign("eve")).unwrap();
    assert_eq!(session(&mut unknown), nobody, "eve is not a user");
    let mut without = connect(&web, https, &TLS13).unwrap();
    assert_eq!(session(&mut without), nobody, "a certificate is optional");
    let mut bob = connect_as(place, https, authority.sign("bob")).unwrap();
    let (head, _) = ask(&mut bob, "GET", "/_node/_local/_config", "");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    let head = "GET /_session HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic \
                YW5uOm9wZW4gc2VzYW1l\r\n\r\n";
    bob.get_mut().write_all(head.as_bytes()).unwrap();
    let (_, body) = answer(&mut bob);
    assert!(body.contains("\"ann\""), "{body}");
    // A client learns of the refusal in the handshake, or when it reads its first answer.
    let signed_by_another = connect_as(place, https, stranger.sign("ann"));
    let is_refused = signed_by_another.map_or(true, |mut client| {
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let sent = client.get_mut().write_all(request);
        sent.is_err() || !matches!(client.read_line(&mut String::new()), Ok(1..))
    });
    assert!(is_refused);
    web.service.stop();
}
