//! Thousands of connections against a limit of 10.

use std::time::{Duration, Instant};

use test_support::effort;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::support::daemon::{Service, directory};

const LIMIT: u64 = 10;
/// Connections that may be open at a time on the client's side.
const OPEN_MAX: usize = 500;
/// Time limit for all connections together.
const DEADLINE: Duration = Duration::from_secs(300);

/// Returns the resident memory of a program, in bytes.
fn memory(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[actix_rt::test]
async fn thousands_of_connections_at_a_limit_of_10_are_answered_in_constant_memory() {
    let count = effort(2_000, 10_000);
    let directory = directory();
    let path = directory.path().join("e.sock");
    let text = format!(
        "[native_query_servers]\necho = true\n\
         [pools.e]\nlanguage = \"echo\"\nmax = {LIMIT}\n\
         [services.e]\nlisten = \"unix:{}\"\npool = \"e\"\nbacklog = 1024\n",
        path.display()
    );
    // A separate program, so that its memory is not that of other tests.
    let service = Service::start_in(directory, &text);
    let operator = service.connect().operator;
    let status = || operator.get("/_status")["services"][0].clone();
    let began = Instant::now();
    let places = std::sync::Arc::new(tokio::sync::Semaphore::new(OPEN_MAX));
    let mut clients = Vec::new();
    let mut warm = 0;
    for number in 0..count {
        let place = std::sync::Arc::clone(&places)
            .acquire_owned()
            .await
            .unwrap();
        let path = path.clone();
        clients.push(actix_rt::spawn(async move {
            let _place = place;
            let mut stream = UnixStream::connect(path).await.unwrap();
            let line = format!("[\"it is\",{number}]\n");
            stream.write_all(line.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, line);
        }));
        if number % 50 == 0 {
            let open = status()["connections"].as_u64().unwrap();
            assert!(open <= LIMIT, "{open} connections are accepted");
            assert!(began.elapsed() < DEADLINE, "{number} in {DEADLINE:?}");
        }
        if number == count / 10 {
            warm = memory(service.pid());
        }
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(status()["accepted"], count);
    let grown = memory(service.pid()).saturating_sub(warm) / 1024;
    assert!(grown < 16 * 1024, "{grown} KiB more than after a tenth");
    service.stop();
}
