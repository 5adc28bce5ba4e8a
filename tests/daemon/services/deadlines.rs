//! How long a client may hold its process: without reading, without sending, and in total.

use std::time::Duration;

use serde_json::json;
use settee_testkit::{eventually, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::services::harness::{Client, Daemon, SocketClient};

fn config(settings: &str) -> String {
    config_of("python", settings)
}

/// As [`config`], with a process that echoes long lines quickly.
fn quick(settings: &str) -> String {
    config_of("echo", settings)
}

/// One process, so that its holder blocks all other clients.
fn config_of(language: &str, settings: &str) -> String {
    format!(
        "[query_servers]\npython = \"SCRIPTED\"\n[native_query_servers]\necho = true\n\
         [pools.py]\nlanguage = \"{language}\"\nmax = 1\non_client_crash = \"return\"\n\
         [services.py]\nlisten = \"unix:DIR/py.sock\"\npool = \"py\"\n{settings}\n"
    )
}

/// Asserts that the next client is served, and why the previous one was disconnected.
async fn assert_next_is_served(daemon: &Daemon, reason: &str) {
    let mut next = daemon.connect("py.sock").await;
    assert_eq!(
        within("an answer", next.ask("[\"hello\"]")).await,
        "[\"hello\"]"
    );
    let label = format!("reason=\"{reason}\"");
    let labels = ["service=\"py\"", label.as_str()];
    assert_eq!(daemon.number("settee_service_ends_total", &labels), 1);
}

/// A line whose answer has the same length.
fn long_line() -> String {
    format!("[\"{}\"]\n", "x".repeat(100_000))
}

/// Sends until the service takes nothing more.
async fn flood(client: &mut Client) {
    let line = long_line();
    let stream = client.0.get_mut();
    let stalled = Duration::from_millis(300);
    let send = async |stream: &mut UnixStream| stream.write_all(line.as_bytes()).await;
    while let Ok(Ok(())) = tokio::time::timeout(stalled, send(stream)).await {}
}

#[actix_rt::test]
async fn a_client_that_sends_without_reading_is_disconnected() {
    let daemon = Daemon::start(&quick("client_timeout = \"500ms\"")).await;
    let mut client = daemon.connect("py.sock").await;
    flood(&mut client).await;
    assert_next_is_served(&daemon, "unread").await;
    drop(client);
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_client_that_reads_a_byte_now_and_then_is_disconnected() {
    let daemon = Daemon::start(&quick("client_timeout = \"500ms\"")).await;
    let mut client = daemon.connect("py.sock").await;
    flood(&mut client).await;
    let reading = actix_rt::spawn(async move {
        let mut byte = [0];
        while client
            .0
            .get_mut()
            .read(&mut byte)
            .await
            .is_ok_and(|n| n > 0)
        {
            actix_rt::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert_next_is_served(&daemon, "unread").await;
    reading.abort();
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_half_closed_client_that_does_not_read_is_disconnected() {
    let daemon = Daemon::start(&quick("client_timeout = \"500ms\"")).await;
    let mut client = daemon.connect("py.sock").await;
    let line = long_line();
    let stream = client.0.get_mut();
    for _ in 0..10 {
        stream.write_all(line.as_bytes()).await.unwrap();
    }
    stream.shutdown().await.unwrap();
    assert_next_is_served(&daemon, "unread").await;
    drop(client);
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_client_that_sends_bytes_but_never_a_line_is_disconnected() {
    let daemon = Daemon::start(&config("client_timeout = \"500ms\"")).await;
    let mut client = daemon.connect("py.sock").await;
    client.pid().await;
    let sending = actix_rt::spawn(async move {
        while client.0.get_mut().write_all(b" ").await.is_ok() {
            actix_rt::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert_next_is_served(&daemon, "idle").await;
    sending.abort();
    daemon.stop().await;
}

#[actix_rt::test]
async fn a_client_that_reads_its_answers_stays_however_long_they_are() {
    let daemon = Daemon::start(&quick("client_timeout = \"5s\"")).await;
    let mut client = daemon.connect("py.sock").await;
    let line = long_line();
    let (reading, mut writing) = client.0.into_inner().into_split();
    let sending = actix_rt::spawn(async move {
        for _ in 0..200 {
            writing.write_all(line.as_bytes()).await.unwrap();
        }
        writing.shutdown().await.unwrap();
    });
    let mut all = Vec::new();
    let mut reading = tokio::io::BufReader::new(reading);
    within("all answers", reading.read_to_end(&mut all))
        .await
        .unwrap();
    assert_eq!(all.len(), 200 * long_line().len());
    sending.await.unwrap();
    client = daemon.connect("py.sock").await;
    assert_eq!(client.ask("[1]").await, "[1]");
    daemon.stop_after(client).await;
}

#[actix_rt::test]
async fn a_session_ends_at_its_limit_even_if_its_client_is_busy() {
    let daemon = Daemon::start(&config("session_timeout = \"500ms\"")).await;
    let mut client = daemon.connect("py.sock").await;
    let last = loop {
        let line = client.ask("[\"hello\"]").await;
        if line != "[\"hello\"]" {
            break line;
        }
    };
    assert!(last.contains("session_timeout"), "{last}");
    client.assert_closed().await;
    assert_next_is_served(&daemon, "session").await;
    daemon.stop_after(client).await;
}

#[actix_rt::test]
async fn an_expired_session_waits_for_one_answer_at_most() {
    let settings = "session_timeout = \"300ms\"\nprompt_timeout = \"30s\"";
    let daemon = Daemon::start(&config(settings)).await;
    let mut client = daemon.connect("py.sock").await;
    client.pid().await;
    // Each is answered within prompt_timeout; all together far exceed session_timeout.
    for _ in 0..100 {
        client.send("[\"sleep\",0.6]").await;
    }
    assert_next_is_served(&daemon, "session").await;
    daemon.stop_after(client).await;
}

#[actix_rt::test]
async fn a_client_of_the_socket_that_reads_a_byte_now_and_then_is_disconnected_too() {
    let daemon = Daemon::start(&format!("request_timeout = 1\n{}", config(""))).await;
    let mut slow = SocketClient::connect(&daemon).await;
    let proc = slow.get_proc("py").await;
    let long = "x".repeat(100_000);
    let prompt = json!({"id": 1, "call": "prompt", "proc": proc, "data": [long]});
    slow.send_together(30, &prompt).await;
    let reading = actix_rt::spawn(async move {
        while slow.read_byte().await {
            actix_rt::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut next = daemon.connect("py.sock").await;
    assert_eq!(
        within("an answer", next.ask("[\"hello\"]")).await,
        "[\"hello\"]"
    );
    reading.abort();
    daemon.stop_after(next).await;
}

#[actix_rt::test]
async fn an_attached_client_that_disconnects_cleanly_returns_its_process() {
    let text = config("").replace("\"return\"", "\"replace\"");
    let daemon = Daemon::start(&text).await;
    let mut attached = SocketClient::connect(&daemon).await;
    let reply = attached.call(json!({"call": "attach", "pool": "py"})).await;
    let pid = reply["ok"]["os_pid"].as_u64().unwrap();
    assert_eq!(attached.call(json!(["hello"])).await, json!(["hello"]));
    drop(attached);
    let mut next = daemon.connect("py.sock").await;
    assert_eq!(u64::from(next.pid().await), pid);
    assert_eq!(daemon.pool("py").await.totals.lost, 0);
    daemon.stop_after(next).await;
}

#[actix_rt::test]
async fn each_end_of_a_connection_has_one_reason_and_counts_once() {
    let daemon = Daemon::start(&config("client_timeout = \"300ms\"")).await;
    let reasons = |reason: &str| {
        let label = format!("reason=\"{reason}\"");
        daemon.number("settee_service_ends_total", &["service=\"py\"", &label])
    };
    // A clean disconnect, an idle client, a process that exits, a disconnect during a prompt.
    let mut client = daemon.connect("py.sock").await;
    client.pid().await;
    drop(client);
    eventually("the end of the first", async || reasons("client") == 1).await;
    let mut client = daemon.connect("py.sock").await;
    client.error().await;
    eventually("the end of the second", async || reasons("idle") == 1).await;
    let mut client = daemon.connect("py.sock").await;
    client.send("[\"exit\",3]").await;
    client.error().await;
    eventually("the end of the third", async || reasons("exit") == 1).await;
    let mut client = daemon.connect("py.sock").await;
    client.pid().await;
    client.send("[\"never\"]").await;
    drop(client);
    eventually("the end of the fourth", async || reasons("gone") == 1).await;
    // A client that disconnects before it gets a process.
    let mut first = daemon.connect("py.sock").await;
    first.pid().await;
    drop(daemon.connect("py.sock").await);
    drop(first);
    let ends = || {
        let all = [
            "client", "gone", "refused", "exit", "protocol", "timeout", "idle", "unread",
            "session", "too_much", "shutdown",
        ];
        all.iter().map(|reason| reasons(reason)).sum::<u64>()
    };
    eventually("each has its end", async || {
        daemon.accepted("py") == 6 && ends() == 6
    })
    .await;
    let totals = daemon.pool("py").await.totals;
    let died = 1;
    assert_eq!(
        totals.taken,
        totals.returned + totals.failed + totals.lost + died
    );
    daemon.stop().await;
}
