//! A minimal HTTP client, independent of the code under test: one request per connection.

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Answered {
    pub status: u16,
    pub body: Bytes,
}

/// Sends a request, and reads the answer until the connection closes.
pub async fn ask(
    address: &str,
    method: &str,
    path: &str,
    content_type: &str,
    body: Option<Bytes>,
) -> Answered {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut head = format!("{method} /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    if let Some(body) = &body {
        head.push_str(&format!(
            "Content-Type: {content_type}\r\nContent-Length: {}\r\n",
            body.len()
        ));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body.unwrap_or_default()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = memchr::memmem::find(&answer, b"\r\n\r\n").expect("an answer has a head");
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = &answer[end + 4..];
    let body = match head.contains("transfer-encoding: chunked") {
        true => dechunked(body),
        false => body.to_vec(),
    };
    let body = body.into();
    Answered { status, body }
}

fn dechunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = memchr::memmem::find(rest, b"\r\n").expect("a chunk has a length");
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return body;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 4 + length..];
    }
}
