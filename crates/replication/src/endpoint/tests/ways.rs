//! Ways to connect: proxies, `connect_to`, shared connections.

use std::sync::Mutex;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::super::*;
use crate::testing::{Answer, Server, endpoint, endpoint_of, line, replication, spec};

/// A proxy that connects to one port, whatever is requested.
pub(super) struct Tunnel {
    pub(super) port: u16,
    /// The received requests, as text.
    pub(super) asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The protocol of a proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// HTTP's `CONNECT`.
    Connect,
    /// SOCKS5, with a name and a password.
    Socks,
}

impl Tunnel {
    pub(super) async fn start(asks: Asks, to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let told = asked.clone();
        let task = tokio::spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let text = match asks {
                    Asks::Connect => connect(&mut near).await,
                    Asks::Socks => socks(&mut near).await,
                };
                told.lock().unwrap().push(text.unwrap());
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self { port, asked, task }
    }
}

async fn connect(near: &mut TcpStream) -> Option<String> {
    let mut text = line(near).await?;
    loop {
        let header = line(near).await?;
        if header.is_empty() {
            break;
        }
        if header
            .to_ascii_lowercase()
            .starts_with("proxy-authorization")
        {
            text = format!("{text}, {header}");
        }
    }
    near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
    Some(text)
}

async fn socks(near: &mut TcpStream) -> Option<String> {
    async fn take(near: &mut TcpStream) -> Option<Vec<u8>> {
        let mut bytes = vec![0; near.read_u8().await.ok()?.into()];
        near.read_exact(&mut bytes).await.ok()?;
        Some(bytes)
    }
    assert_eq!(near.read_u8().await.ok()?, 5);
    assert!(
        take(near).await?.contains(&2),
        "it offers to send a name and a password"
    );
    near.write_all(&[5, 2]).await.ok()?;
    assert_eq!(near.read_u8().await.ok()?, 1);
    let (user, password) = (take(near).await?, take(near).await?);
    near.write_all(&[1, 0]).await.ok()?;
    let mut head = [0; 4];
    near.read_exact(&mut head).await.ok()?;
    assert_eq!(head[..3], [5, 1, 0], "it asks for a connection");
    let length = if head[3] == 1 { 4 } else { 16 };
    let mut address = vec![0; length];
    near.read_exact(&mut address).await.ok()?;
    let port = near.read_u16().await.ok()?;
    near.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.ok()?;
    let user = String::from_utf8_lossy(&user).into_owned();
    let password = String::from_utf8_lossy(&password).into_owned();
    Some(format!("{user} {password} {address:?} {port}"))
}

#[tokio::test]
async fn connections_go_through_a_socks_proxy_with_its_credentials() {
    let server = Server::start(|_| Answer::new(200, "")).await;
    let proxy = Tunnel::start(Asks::Socks, server.port).await;
    let body = json!({
        "source": "http://127.0.0.9:1/db/", "target": "http://t/",
        "source_proxy": format!("socks5://u%:p:@127.0.0.1:{}", proxy.port),
    });
    let endpoint = endpoint_of(&replication(&body).source, |_, _| {});
    endpoint.request(Request::get("")).await.unwrap();
    assert_eq!(*proxy.asked.lock().unwrap(), ["u% p: [127, 0, 0, 9] 1"]);
    assert_eq!(server.received()[0].header("host"), Some("127.0.0.9:1"));
}

#[tokio::test]
async fn requests_go_through_the_proxy_with_its_credentials() {
    let proxy = Server::start(|_| Answer::new(200, "")).await;
    let body = json!({
        "source": "http://far.invalid:1/db/", "target": "http://t/",
        "source_proxy": format!("http://u%:p:@127.0.0.1:{}", proxy.port),
    });
    let spec = replication(&body).source;
    endpoint_of(&spec, |_, _| {})
        .request(Request::get(""))
        .await
        .unwrap();
    let received = &proxy.received()[0];
    assert_eq!(received.line, "GET http://far.invalid:1/db/");
    assert_eq!(
        received.header("proxy-authorization"),
        Some("Basic dSU6cDo=")
    );
}

#[tokio::test]
async fn connections_go_where_connect_to_says_and_requests_keep_their_host() {
    let server = Server::start(|_| Answer::new(200, "")).await;
    let rules = format!(
        "*.example.invalid:123:127.0.0.1:{0},10.1.2.3:80:localhost:{0}",
        server.port
    );
    for (url, host) in [
        (
            "http://db.example.invalid:123/db/",
            "db.example.invalid:123",
        ),
        ("http://10.1.2.3/db/", "10.1.2.3"),
    ] {
        let connect_to = Some(rules.clone());
        let endpoint = endpoint(url, |config, _| config.connect_to = connect_to);
        endpoint.request(Request::get("x")).await.unwrap();
        let received = server.received().pop().unwrap();
        assert_eq!(
            (&*received.line, received.header("host")),
            ("GET /db/x", Some(host))
        );
    }
}

#[tokio::test]
async fn endpoints_of_many_jobs_share_connections() {
    let server = Server::start(|_| Answer::new(200, "")).await;
    let http = Http::new(HttpConfig::default(), &crate::testing::logger()).unwrap();
    let settings = server.endpoint().0.settings.clone();
    for nth in 0..10 {
        let url = format!("http://127.0.0.1:{}/db{nth}", server.port);
        let endpoint = http.endpoint(&spec(&json!(url)), settings.clone()).unwrap();
        endpoint.request(Request::get("")).await.unwrap();
    }
    assert!(
        server
            .received()
            .iter()
            .all(|request| request.connection == 0)
    );
}
