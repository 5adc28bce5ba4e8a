//! Subscriptions: when they read, how many at a time, and who opens the connection.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::endpoint::HttpConfig;
use crate::spec::{Defaults, Replication, UserCtx};
use crate::testing::{Answer, Server as HttpServer, Then, logger, spec};

/// Timeout for required events.
const PATIENCE: Duration = Duration::from_secs(60);

fn http() -> Http {
    Http::new(HttpConfig::default(), &logger()).unwrap()
}

fn subscribe(http: &Http, url: &str, listener: FeedListener) -> Subscription {
    let body = json!({"source": url, "target": "http://t/b"});
    let parsed = Replication::parse(&body, &Defaults::default(), UserCtx::default(), None);
    let settings = HttpSettings::of_source(&parsed.unwrap().options, Duration::from_secs(120));
    let made = Subscription::new(http, &spec(&json!(url)), settings, listener);
    made.unwrap().unwrap()
}

fn quiet() -> FeedListener {
    Rc::new(|_| {})
}

/// Subscriptions to one server with a fake connection.
fn connected<const N: usize>() -> [Subscription; N] {
    let http = http();
    let all = std::array::from_fn(|n| subscribe(&http, &format!("http://s/db-{n}"), quiet()));
    let server = &all[0].server;
    assert!(lock(&server.subscribers).take_connection(Instant::now()));
    lock(&server.subscribers).opened();
    all
}

#[tokio::test(start_paused = true)]
async fn a_replication_polls_even_without_notifications() {
    let [mut one] = connected();
    assert_eq!(one.turn().await, Turn::Short);
    one.complete();
    let read = Instant::now();
    assert_eq!(one.turn().await, Turn::Short);
    let waited = read.elapsed();
    assert!((READ_EVERY..READ_EVERY * 2).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_read_is_repeated() {
    let [mut one] = connected();
    assert_eq!(one.turn().await, Turn::Short);
    let again = timeout(READ_EVERY / 2, one.turn());
    assert_eq!(again.await, Ok(Turn::Short));
}

#[tokio::test(start_paused = true)]
async fn polls_for_changes_are_bounded_and_one_that_found_changes_does_not_count() {
    let mut all: [Subscription; READS_MAX + 1] = connected();
    let (last, others) = all.split_last_mut().unwrap();
    for other in &mut *others {
        assert_eq!(other.turn().await, Turn::Short);
    }
    let waits = timeout(READ_EVERY / 2, last.turn());
    assert!(waits.await.is_err());
    others[3].release();
    let turn = timeout(READ_EVERY / 2, last.turn());
    assert_eq!(turn.await, Ok(Turn::Short));
}

#[tokio::test(start_paused = true)]
async fn a_fallback_feed_is_reported_with_its_reason_and_its_end() {
    let told: Rc<RefCell<Vec<Option<Arc<str>>>>> = Rc::default();
    let listener = Rc::clone(&told);
    let listener: FeedListener = Rc::new(move |why| listener.borrow_mut().push(why));
    let mut one = subscribe(&http(), "http://s/db", listener);
    let server = Arc::clone(&one.server);
    assert!(lock(&server.subscribers).take_connection(Instant::now()));
    lock(&server.subscribers).refused("403", Instant::now());
    for _ in 0..2 {
        assert_eq!(one.turn().await, Turn::OwnFeed);
    }
    lock(&server.subscribers).opened();
    assert_eq!(one.turn().await, Turn::Short);
    assert_eq!(*told.borrow(), [Some("403".into()), None]);
}

#[test]
fn sources_with_the_same_server_and_credentials_share_a_connection() {
    let http = http();
    let server = |url: &str| Arc::clone(&subscribe(&http, url, quiet()).server);
    let one = server("http://u:p@s/x/a");
    assert!(Arc::ptr_eq(&one, &server("http://u:p@s/x/b/")));
    for other in [
        "http://u:q@s/x/a",
        "http://s/x/a",
        "http://u:p@s/a",
        "https://u:p@s/x/a",
    ] {
        assert!(!Arc::ptr_eq(&one, &server(other)), "{other}");
    }
    let shared = http.with_own_connections();
    let elsewhere = Arc::clone(&subscribe(&shared, "http://u:p@s/x/a", quiet()).server);
    assert!(Arc::ptr_eq(&one, &elsewhere), "on another thread");
}

#[tokio::test]
async fn another_replication_opens_the_connection_when_the_thread_of_the_first_one_ends() {
    let updates = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n\n\r\n";
    let server = HttpServer::start(move |_| Answer::raw(updates, Then::Hang)).await;
    let url = server.url("");
    let shared = http();
    let asked = async || {
        while server.lines().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let other = shared.with_own_connections();
    let (sender, began) = tokio::sync::oneshot::channel();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async move {
            let mut first = subscribe(&other, &url, quiet());
            assert_eq!(first.turn().await, Turn::Short);
            sender.send(()).unwrap();
            // This thread follows the connection until it ends.
            ended.await.unwrap();
        });
    });
    timeout(PATIENCE, began).await.unwrap().unwrap();
    timeout(PATIENCE, asked()).await.unwrap();
    let mut second = subscribe(&shared, &server.url(""), quiet());
    assert_eq!(second.turn().await, Turn::Short);
    second.complete();
    end.send(()).unwrap();
    let turn = timeout(PATIENCE, second.turn()).await;
    assert_eq!(
        turn,
        Ok(Turn::Short),
        "it reads once after the connection is reopened"
    );
    thread.join().unwrap();
    let lines = server.lines();
    assert!(lines.len() >= 2, "{lines:?}");
    assert_eq!(
        lines[1],
        "GET /_db_updates?feed=continuous&since=now&heartbeat=10000"
    );
}
