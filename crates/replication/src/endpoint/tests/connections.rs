//! All endpoints together stay within the maximum number of connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::endpoint::{ConnectionsMax, Endpoint, Http, HttpSettings, Request, Side};
use crate::testing::{Answer, Server, logger, settings, spec};

/// A server that answers each request on demand.
struct Held {
    url: String,
    /// The number of unanswered requests.
    waiting: watch::Sender<usize>,
    peak: Arc<AtomicUsize>,
    answers: Arc<Semaphore>,
    _task: JoinSet<()>,
}

impl Held {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/db/", listener.local_addr().unwrap());
        let (waiting, peak) = (watch::Sender::new(0), Arc::<AtomicUsize>::default());
        let answers = Arc::new(Semaphore::new(0));
        let mut task = JoinSet::new();
        let (counted, highest, may) = (waiting.clone(), Arc::clone(&peak), Arc::clone(&answers));
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (counted, highest) = (counted.clone(), Arc::clone(&highest));
                connections.spawn(serve(stream, counted, highest, Arc::clone(&may)));
            }
        });
        Self {
            url,
            waiting,
            peak,
            answers,
            _task: task,
        }
    }

    fn endpoint(&self, http: &Http, side: Side) -> Endpoint {
        let settings = HttpSettings { side, ..settings() };
        http.endpoint(&spec(&serde_json::json!(self.url)), settings)
            .unwrap()
    }

    async fn wait_for(&self, count: usize) {
        let mut waiting = self.waiting.subscribe();
        waiting.wait_for(|waiting| *waiting >= count).await.unwrap();
    }
}

/// Answers requests that have no body, each with a permit of `may`.
async fn serve(
    mut stream: TcpStream,
    waiting: watch::Sender<usize>,
    peak: Arc<AtomicUsize>,
    may: Arc<Semaphore>,
) {
    let mut read = Vec::new();
    while let Ok(byte) = stream.read_u8().await {
        read.push(byte);
        if !read.ends_with(b"\r\n\r\n") {
            continue;
        }
        read.clear();
        waiting.send_modify(|waiting| {
            *waiting += 1;
            peak.fetch_max(*waiting, Ordering::SeqCst);
        });
        may.acquire().await.unwrap().forget();
        waiting.send_modify(|waiting| *waiting -= 1);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

/// Descriptors for 2 feeds and 32 connections: 16 requests in flight, 6 of them to sources.
fn bounded(in_use: fn() -> usize) -> Http {
    let http = Http::new(Default::default(), &logger()).unwrap();
    http.bound_connections(ConnectionsMax {
        feeds: 2,
        descriptors: 34,
        in_use,
    });
    http
}

#[tokio::test]
async fn requests_of_many_jobs_queue_for_a_slow_server_and_feeds_do_not() {
    let server = Held::start().await;
    let http = bounded(|| 0);
    let mut jobs = JoinSet::new();
    for _ in 0..50 {
        let endpoint = server.endpoint(&http, Side::Source);
        jobs.spawn(async move { endpoint.request(Request::get("")).await.is_ok() });
    }
    server.wait_for(6).await;
    let target = server.endpoint(&http, Side::Target);
    jobs.spawn(async move { target.request(Request::get("")).await.is_ok() });
    server.wait_for(7).await;
    let feed = server.endpoint(&http, Side::Source);
    jobs.spawn(async move {
        feed.stream(Request::get("_changes").endless())
            .await
            .is_ok()
    });
    server.wait_for(8).await;
    server.answers.add_permits(52);
    assert!(jobs.join_all().await.into_iter().all(|is_ok| is_ok));
    assert_eq!(server.peak.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn no_idle_connection_is_kept_while_descriptors_are_short() {
    let connections = async |http: Http| {
        let server = Server::start(|_| Answer::new(200, "{}")).await;
        let endpoint = http.endpoint(&spec(&serde_json::json!(server.url(""))), settings());
        let endpoint = endpoint.unwrap();
        for _ in 0..9 {
            endpoint.request(Request::get("")).await.unwrap();
        }
        server.received()[8].connection + 1
    };
    assert_eq!(connections(bounded(|| 33)).await, 9);
    assert!(connections(bounded(|| 0)).await < 9);
}
