//! A plain HTTP/1.1 client for tests: one connection, requests written by hand.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::daemon::{DEADLINE, Service, configure, directory, serve_command, wait_until};

/// A service with HTTP on a port of its own.
pub struct Web {
    pub service: Service,
    pub address: SocketAddr,
}

impl Web {
    pub fn start(extra: &str) -> Self {
        let directory = directory();
        let command = command(&configure(directory.path(), extra));
        Self::start_command(directory, command)
    }

    pub fn start_command(directory: TempDir, command: Command) -> Self {
        let mut service = Service::start_command(directory, command);
        let address = service.next_address("http://");
        Self { service, address }
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Sends a request on a new connection.
    pub fn get(&self, path: &str) -> Response {
        self.connect().request("GET", path, &[], "")
    }

    pub fn send(&self, method: &str, path: &str, body: &str) -> Response {
        let json = [("Content-Type", "application/json")];
        self.connect().request(method, path, &json, body)
    }

    /// Waits until no process of the built-in JavaScript is in use or starting, and no request waits for one.
    pub fn wait_until_idle(&self) {
        let mut client = self.service.connect();
        client.wait_for_pool("javascript", &[("used", 0), ("opening", 0), ("waiting", 0)]);
    }

    /// Waits until a process of the built-in JavaScript is in use.
    pub fn wait_until_used(&self) {
        let mut client = self.service.connect();
        wait_until("a process in use", || {
            client.pool("javascript")["used"].as_u64() >= Some(1)
        });
    }
}

/// Returns the command `settee serve` with HTTP on a port of its own, without login unless the
/// configuration names users.
pub fn command(config: &Path) -> Command {
    let mut command = closed_command(config);
    let text = std::fs::read_to_string(config).unwrap();
    if !["[admins]", "[users."]
        .iter()
        .any(|section| text.contains(section))
    {
        command.env("SETTEE__SERVER__OPEN", "true");
    }
    command
}

/// As [`command`], with login required, as it is by default.
pub fn closed_command(config: &Path) -> Command {
    let mut command = serve_command(config);
    command.env("SETTEE__SERVER__HTTP", "127.0.0.1:0");
    command
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(
            self.header("content-type"),
            Some("application/json"),
            "{self:?}"
        );
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// Asserts that it is an error with this code and name, and returns its reason.
    #[track_caller]
    pub fn error(&self, status: u16, name: &str) -> Value {
        let body = self.json();
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(body["error"], name, "{self:?}");
        assert!(body.get("reason").is_some(), "{self:?}");
        body["reason"].clone()
    }

    #[track_caller]
    pub fn reason(&self, status: u16, name: &str) -> String {
        self.error(status, name).as_str().unwrap().to_owned()
    }
}

/// A connection.
pub struct Connection<S = TcpStream> {
    pub stream: S,
    reader: BufReader<S>,
    is_chunked: bool,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = stream.try_clone().unwrap();
        Self::on(stream, reader)
    }

    /// Disconnects without finishing a request.
    pub fn disconnect(self) {
        self.stream.shutdown(Shutdown::Both).unwrap();
    }
}

impl Connection<UnixStream> {
    /// Connects to a Unix socket.
    pub fn local(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        let reader = stream.try_clone().unwrap();
        Self::on(stream, reader)
    }
}

impl<S: Read + Write> Connection<S> {
    fn on(stream: S, reader: S) -> Self {
        Self {
            stream,
            reader: BufReader::new(reader),
            is_chunked: false,
        }
    }

    pub fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nContent-Length: {}\r\n",
            body.len()
        );
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text.push_str("Host: localhost\r\n");
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        self.write(&format!("{text}\r\n{body}"));
    }

    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        self.send(method, path, headers, body);
        match method {
            "HEAD" => self.head(),
            _ => self.response(),
        }
    }

    /// Reads a response's head.
    pub fn head(&mut self) -> Response {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let length = self.reader.read_line(&mut head).expect("a head in time");
            assert!(length > 0, "closed after: {head:?}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let response = Response {
            status,
            head,
            body: String::new(),
        };
        self.is_chunked = response.header("transfer-encoding") == Some("chunked");
        response
    }

    /// Fills `body` with the next bytes of a response's body.
    pub fn read_exact(&mut self, body: &mut [u8]) {
        self.reader.read_exact(body).expect("a body in time");
    }

    pub fn response(&mut self) -> Response {
        let mut response = self.head();
        if self.is_chunked {
            while let Some(chunk) = self.chunk() {
                response.body.push_str(&chunk);
            }
        } else if let Some(length) = response.header("content-length") {
            let mut body = vec![0; length.parse().unwrap()];
            self.reader.read_exact(&mut body).unwrap();
            response.body = String::from_utf8(body).unwrap();
        }
        response
    }

    /// Begins a request whose body is sent piece by piece.
    pub fn begin_chunked(&mut self, path: &str, content_type: &str) {
        self.write(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        ));
    }

    pub fn send_chunk(&mut self, text: &str) {
        self.write(&format!("{:x}\r\n{text}\r\n", text.len()));
    }

    pub fn end_chunks(&mut self) {
        self.write("0\r\n\r\n");
    }

    /// Reads the next piece of a response, `None` at its end.
    pub fn chunk(&mut self) -> Option<String> {
        let mut size = String::new();
        self.reader.read_line(&mut size).expect("a chunk in time");
        let size = usize::from_str_radix(size.trim_end(), 16).expect("the size of a chunk");
        let mut text = vec![0; size + 2];
        self.reader.read_exact(&mut text).unwrap();
        text.truncate(size);
        (size > 0).then(|| String::from_utf8(text).unwrap())
    }

    /// Waits until the service closes the connection; returns the remaining bytes.
    pub fn closed(&mut self) -> String {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("open: {error}"),
            _ => String::from_utf8_lossy(&rest).into_owned(),
        }
    }
}
