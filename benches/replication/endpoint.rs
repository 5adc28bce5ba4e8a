//! A database that answers at once, on its own thread, so that benches measure its client.
//!
//! Documents are numbered; each has one revision. Writes are discarded.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Number and sizes of the documents.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of documents.
    pub documents: usize,
    /// Bytes of each.
    pub bytes: usize,
    /// Bytes of an attachment of each; none if 0.
    pub attachment: usize,
}

struct Prepared {
    shape: Shape,
    feed: Bytes,
    /// The text of each document after its id.
    rest: String,
    attachment: Bytes,
}

const REV: &str = "1-967a00dff5e02add41819138abb3284d";

/// Starts a database, which serves until the program ends.
pub fn start(shape: Shape) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    let prepared = Arc::new(Prepared::new(shape));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&prepared)));
            }
        });
    });
    address
}

impl Prepared {
    fn new(shape: Shape) -> Self {
        let rows: Vec<String> = (0..shape.documents)
            .map(|number| {
                format!(r#"{{"seq":"{number}-g1AAAACbeJzLYWBgYMpgTmHgz8tPSTV0MDQy1zMAQsMcoARTIkOS_P","id":"{}","changes":[{{"rev":"{REV}"}}]}}"#, id(number))
            })
            .collect();
        let feed = format!(
            "{{\"results\":[\n{}\n],\n\"last_seq\":\"x\",\"pending\":0}}\n",
            rows.join(",\n")
        );
        let hash = REV.trim_start_matches("1-");
        let mut rest = format!(r#"","_rev":"{REV}","_revisions":{{"start":1,"ids":["{hash}"]}}"#);
        if shape.attachment > 0 {
            rest.push_str(&format!(
                r#","_attachments":{{"a.bin":{{"content_type":"application/octet-stream","revpos":1,"digest":"md5-x","length":{},"follows":true}}}}"#,
                shape.attachment
            ));
        }
        let filler = shape.bytes.saturating_sub(rest.len() + 40);
        rest.push_str(&format!(
            r#","text":"{}"}}"#,
            "lorem ipsum ".repeat(filler / 12 + 1).split_at(filler).0
        ));
        Self {
            shape,
            feed: feed.into(),
            rest,
            attachment: vec![b'x'; shape.attachment].into(),
        }
    }

    fn document(&self, id: &[u8], to: &mut Vec<u8>) {
        to.extend_from_slice(b"{\"_id\":\"");
        to.extend_from_slice(id);
        to.extend_from_slice(self.rest.as_bytes());
    }

    fn answer(&self, method: &str, target: &str, body: &[u8]) -> (u16, &'static str, Bytes) {
        let json = "application/json";
        let path = target.split('?').next().unwrap_or_default();
        // The name of the database is ignored.
        let call = path.trim_start_matches('/').split_once('/');
        match (method, call.map_or("", |(_, call)| call)) {
            ("GET", "") => (
                200,
                json,
                Bytes::from_static(
                    br#"{"db_name":"db","update_seq":"9-x","instance_start_time":"1"}"#,
                ),
            ),
            ("GET", "_changes") if target.contains("limit=0") => (
                200,
                json,
                Bytes::from_static(br#"{"results":[],"last_seq":"x","pending":0}"#),
            ),
            ("GET", "_changes") => (200, json, self.feed.clone()),
            ("POST", "_revs_diff") => (200, json, missing(body)),
            ("POST", "_bulk_get") => (200, json, self.bulk_get(body)),
            ("POST", "_bulk_docs") => (201, json, Bytes::from_static(b"[]")),
            ("POST", "_ensure_full_commit") => (
                201,
                json,
                Bytes::from_static(br#"{"ok":true,"instance_start_time":"1"}"#),
            ),
            ("PUT", _) => (
                201,
                json,
                Bytes::from_static(br#"{"ok":true,"id":"x","rev":"0-1"}"#),
            ),
            ("GET", call) if call.starts_with("_local") => (
                404,
                json,
                Bytes::from_static(br#"{"error":"not_found","reason":"missing"}"#),
            ),
            ("GET", id) => (200, "multipart/mixed; boundary=\"outer\"", self.parts(id)),
            _ => (404, json, Bytes::from_static(b"{}")),
        }
    }

    /// Returns the requested documents in the order of the request.
    fn bulk_get(&self, body: &[u8]) -> Bytes {
        let mut answer = Vec::with_capacity(self.shape.bytes * 600);
        answer.extend_from_slice(b"{\"results\":[");
        let mark = b"{\"id\":\"";
        for at in memmem::find_iter(body, mark) {
            let rest = &body[at + mark.len()..];
            let id = &rest[..memchr::memchr(b'"', rest).unwrap_or(0)];
            if !answer.ends_with(b"[") {
                answer.push(b',');
            }
            answer.extend_from_slice(b"{\"id\":\"");
            answer.extend_from_slice(id);
            answer.extend_from_slice(b"\",\"docs\":[{\"ok\":");
            self.document(id, &mut answer);
            answer.extend_from_slice(b"}]}");
        }
        answer.extend_from_slice(b"]}");
        answer.into()
    }

    fn parts(&self, id: &str) -> Bytes {
        let mut answer =
            b"--outer\r\nContent-Type: multipart/related; boundary=\"inner\"\r\n\r\n--inner\r\n\
            Content-Type: application/json\r\n\r\n"
                .to_vec();
        self.document(id.as_bytes(), &mut answer);
        answer.extend_from_slice(
            b"\r\n--inner\r\nContent-Disposition: attachment; filename=\"a.bin\"\r\n\r\n",
        );
        answer.extend_from_slice(&self.attachment);
        answer.extend_from_slice(b"\r\n--inner--\r\n--outer--");
        answer.into()
    }
}

fn id(number: usize) -> String {
    format!("document-{number:08}")
}

/// Reports every revision as missing: `["rev"]` becomes `{"missing":["rev"]}`.
fn missing(body: &[u8]) -> Bytes {
    let mut answer = Vec::with_capacity(body.len() * 2);
    for byte in body {
        match byte {
            b'[' => answer.extend_from_slice(b"{\"missing\":["),
            b']' => answer.extend_from_slice(b"]}"),
            byte => answer.push(*byte),
        }
    }
    answer.into()
}

async fn serve(mut stream: TcpStream, prepared: Arc<Prepared>) {
    drop(stream.set_nodelay(true));
    let mut buffer = BytesMut::with_capacity(1 << 20);
    loop {
        let end = loop {
            if let Some(at) = memmem::find(&buffer, b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
        buffer.advance(end);
        let lower = head.to_ascii_lowercase();
        let length = lower.split("content-length: ").nth(1);
        let length = length
            .and_then(|rest| rest.split("\r\n").next()?.parse().ok())
            .unwrap_or(0);
        let mut first = head.split(' ');
        let (method, target) = (
            first.next().unwrap_or_default(),
            first.next().unwrap_or_default(),
        );
        let is_kept = method == "POST";
        // The body of a PUT is discarded while it arrives.
        let mut left = length;
        while if is_kept {
            buffer.len() < length
        } else {
            left > 0
        } {
            if !is_kept && !buffer.is_empty() {
                let discarded = left.min(buffer.len());
                buffer.advance(discarded);
                left -= discarded;
                continue;
            }
            buffer.reserve(256 << 10);
            if stream.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let body = if is_kept {
            buffer.split_to(length)
        } else {
            BytesMut::new()
        };
        let (status, kind, answer) = prepared.answer(method, target, &body);
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        if stream.write_all(head.as_bytes()).await.is_err()
            || stream.write_all(&answer).await.is_err()
        {
            return;
        }
    }
}
