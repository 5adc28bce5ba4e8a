//! Memory and CPU time that ten thousand idle replications cost the service's process.
//!
//! SUMMARY   Run with `cargo bench --bench replication_idle`. Starts `settee serve` with its own configuration, and
//!           servers in this process that behave like an idle CouchDB: a continuous feed times out without a change
//!           and is requested again. Writes documents in `_replicator`, waits until all of them run, and reads
//!           `/proc`.
//!           `SETTEE_BENCH_JOBS`, `SETTEE_BENCH_SERVERS` and `SETTEE_BENCH_SECONDS` set the number of replications
//!           and of servers, and the duration (10000, 10, 60). With `SETTEE_BENCH_OUTAGE`, in seconds, all servers
//!           then go down for this long. Prints how long it takes until all jobs run again (one that crashed would
//!           back off for hours), and the maximum of new connections and of requests per second.
//!           `SETTEE_BENCH_FEED` sets `[replicator] feed` (continuous). With `db_updates` the service settles for
//!           longer: idle connections are closed every `connection_close_interval`, so one may stay open for twice as
//!           long.
//!           With `SETTEE_BENCH_STORE`, the URL of an empty PostgreSQL, `SETTEE_BENCH_DAEMONS` services (1) share the
//!           replications; memory and CPU time are their sums.
//! LIMITS    Linux. Without TLS. Both processes need a descriptor for each replication.

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::service::Service;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The targets for ten thousand jobs.
const WANTED_BYTES: u64 = 600 << 20;
const WANTED_CPU: f64 = 0.15;
/// Maximum time until all jobs run again after an outage.
const BACK_MAX: Duration = Duration::from_secs(120);
/// How long the service settles before it is measured; with `db_updates`, until idle connections are closed.
const SETTLE: Duration = Duration::from_secs(12);
const SETTLE_UNTIL_CLOSED: Duration = Duration::from_secs(190);

fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Connections to all servers: the current number and the maximum.
static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);
static CONNECTIONS_MAX: AtomicUsize = AtomicUsize::new(0);
/// Connections opened so far, requests so far, and feeds that are open now.
static OPENED: AtomicUsize = AtomicUsize::new(0);
static REQUESTS: AtomicUsize = AtomicUsize::new(0);
static FEEDS: AtomicUsize = AtomicUsize::new(0);
/// Whether all servers are down.
static IS_DOWN: AtomicBool = AtomicBool::new(false);

/// How often servers check whether they are down.
const POLL: Duration = Duration::from_millis(20);

#[expect(
    clippy::too_many_lines,
    reason = "one story from its beginning to its end"
)]
fn main() {
    let (jobs, seconds) = (
        number("SETTEE_BENCH_JOBS", 10_000),
        number("SETTEE_BENCH_SECONDS", 60),
    );
    let servers = number("SETTEE_BENCH_SERVERS", 10);
    let servers: Vec<SocketAddr> = (0..servers).map(|_| start_database()).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let feed = std::env::var("SETTEE_BENCH_FEED").unwrap_or_else(|_| "continuous".into());
    // One more slot than jobs: the last job of a full table would wait for a cycle.
    let replicator = format!(
        "max_jobs = {}\nbackoff_base = 14400\nfeed = \"{feed}\"",
        jobs + 1
    );
    let services: Vec<Service> = (0..number("SETTEE_BENCH_DAEMONS", 1))
        .map(|n| {
            let folder = folder.path().join(n.to_string());
            std::fs::create_dir(&folder).expect("a folder");
            Service::start(&folder, &replicator)
        })
        .collect();
    let all_memory = || services.iter().map(Service::memory).sum::<u64>();
    let all_cpu = || services.iter().map(Service::cpu).sum::<f64>();
    let before = all_memory();
    let (start, cpu) = (Instant::now(), all_cpu());
    for first in (0..jobs).step_by(500) {
        let docs = (first..jobs.min(first + 500)).zip(servers.iter().cycle());
        let docs: Vec<String> = docs
            .map(|(n, database)| {
                format!(
                    "{{\"_id\":\"job-{n}\",\"source\":\"http://{database}/a{n}\",\
                     \"target\":\"http://{database}/b{n}\",\"continuous\":true}}"
                )
            })
            .collect();
        let body = format!("{{\"docs\":[{}]}}", docs.join(","));
        let answer = services[0].call("POST", "/_replicator/_bulk_docs", &body);
        assert!(!answer.contains("\"error\""), "{answer}");
    }
    Service::until_running(&services, jobs);
    println!("{jobs} replications run after {:.1?}", start.elapsed());
    std::thread::sleep(match &*feed {
        "db_updates" => SETTLE_UNTIL_CLOSED,
        _ => SETTLE,
    });
    let requests = REQUESTS.load(Ordering::Relaxed);
    println!(
        "their start took {:.1} s of processor time",
        all_cpu() - cpu
    );
    let (start, cpu) = (Instant::now(), all_cpu());
    std::thread::sleep(Duration::from_secs(seconds));
    let share = (all_cpu() - cpu) / start.elapsed().as_secs_f64();
    let memory = all_memory();
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{jobs} idle continuous replications: {:.0} MiB resident ({:.1} KiB each above {:.0} MiB), \
         {:.2} % of a core over {seconds} s",
        mib(memory),
        mib(memory.saturating_sub(before)) * 1024.0 / mib(jobs << 20),
        mib(before),
        share * 100.0
    );
    println!(
        "{} requests to the servers in this time",
        REQUESTS.load(Ordering::Relaxed) - requests
    );
    let (descriptors, threads) = services[0].holds();
    println!(
        "{descriptors} descriptors, {threads} threads of the first service; {} connections to {} servers, {} at most",
        CONNECTIONS.load(Ordering::Relaxed),
        servers.len(),
        CONNECTIONS_MAX.load(Ordering::Relaxed)
    );
    if memory > WANTED_BYTES || share > WANTED_CPU {
        println!(
            "(wanted for 10000: {:.0} MiB and {:.0} %)",
            mib(WANTED_BYTES),
            WANTED_CPU * 100.0
        );
    }
    let seconds = number("SETTEE_BENCH_OUTAGE", 0);
    if seconds > 0 {
        outage(
            &services[0],
            usize::try_from(jobs).expect("a number"),
            seconds,
        );
    }
}

/// Takes the servers down and up again, and checks every second until nearly all feeds are open.
fn outage(service: &Service, jobs: usize, seconds: u64) {
    IS_DOWN.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_secs(seconds));
    let metrics = service.call("GET", "/metrics", "");
    let crashed = "couchdb_couch_replicator_jobs_crashed ";
    let crashed = metrics.lines().find_map(|line| line.strip_prefix(crashed));
    println!("{} jobs have crashed", crashed.unwrap_or("no"));
    IS_DOWN.store(false, Ordering::Relaxed);
    let count = || {
        (
            OPENED.load(Ordering::Relaxed),
            REQUESTS.load(Ordering::Relaxed),
        )
    };
    let (start, mut before, mut most) = (Instant::now(), count(), (0, 0));
    // Some jobs are always between two requests.
    while FEEDS.load(Ordering::Relaxed) < jobs - jobs / 100 {
        assert!(start.elapsed() < BACK_MAX, "not all jobs run again");
        std::thread::sleep(Duration::from_secs(1));
        let now = count();
        most = (most.0.max(now.0 - before.0), most.1.max(now.1 - before.1));
        before = now;
    }
    println!(
        "after an outage of {seconds} s all run again {:.0?} after its end; at most {} connections and {} requests a second",
        start.elapsed(),
        most.0,
        most.1
    );
}

/// Starts a database without documents, on a thread of its own.
fn start_database() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut listener = Some(listener);
    std::thread::spawn(move || {
        loop {
            let again = || std::net::TcpListener::bind(address).expect("the same port");
            let listening = listener.take().unwrap_or_else(again);
            listening.set_nonblocking(true).expect("a socket");
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            // Returns when the servers go down, and closes all connections.
            runtime.expect("a runtime").block_on(accept(listening));
            FEEDS.store(0, Ordering::Relaxed);
            while IS_DOWN.load(Ordering::Relaxed) {
                std::thread::sleep(POLL);
            }
        }
    });
    address
}

async fn accept(listener: std::net::TcpListener) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    while !IS_DOWN.load(Ordering::Relaxed) {
        let Ok(Ok((stream, _))) = tokio::time::timeout(POLL, listener.accept()).await else {
            continue;
        };
        OPENED.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let now = CONNECTIONS.fetch_add(1, Ordering::Relaxed) + 1;
            CONNECTIONS_MAX.fetch_max(now, Ordering::Relaxed);
            let _ = serve(stream).await;
            CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Answers requests without a body until the other side closes.
async fn serve(mut stream: tokio::net::TcpStream) -> Option<()> {
    let (mut buffer, mut length) = (vec![0; 4 << 10], 0);
    loop {
        let end = memchr::memmem::find(&buffer[..length], b"\r\n\r\n");
        let Some(end) = end else {
            let read = stream.read(&mut buffer[length..]).await.ok()?;
            length += (read > 0).then_some(read)?;
            continue;
        };
        let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
        buffer.copy_within(end + 4..length, 0);
        length -= end + 4;
        let target = head.split(' ').nth(1)?;
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        let chunked = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                           Transfer-Encoding: chunked\r\n\r\n";
        if target.starts_with("/_db_updates") {
            stream.write_all(chunked.as_bytes()).await.ok()?;
            let heartbeat = target.split("heartbeat=").nth(1)?.split('&').next()?;
            let heartbeat = Duration::from_millis(heartbeat.parse().ok()?);
            loop {
                stream.write_all(b"1\r\n\n\r\n").await.ok()?;
                tokio::time::sleep(heartbeat).await;
            }
        }
        if target.contains("feed=continuous") {
            stream.write_all(chunked.as_bytes()).await.ok()?;
            let timeout = target.split("timeout=").nth(1)?.split('&').next()?;
            FEEDS.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(timeout.parse().ok()?)).await;
            FEEDS.fetch_sub(1, Ordering::Relaxed);
            let last = "{\"last_seq\":0,\"pending\":0}\n";
            let end = format!("{:x}\r\n{last}\r\n0\r\n\r\n", last.len());
            stream.write_all(end.as_bytes()).await.ok()?;
            continue;
        }
        let (status, body) = match target.contains("_local") || target == "/_session" {
            true => (404, r#"{"error":"not_found","reason":"missing"}"#),
            false if target.contains("_changes") => {
                (200, r#"{"results":[],"last_seq":0,"pending":0}"#)
            }
            false => (
                200,
                r#"{"db_name":"db","update_seq":0,"instance_start_time":"1"}"#,
            ),
        };
        let answer = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}
