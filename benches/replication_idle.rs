//! What a thousand replications cost a service while nothing changes: memory and processor time of the
//! service's process alone.
//!
//! SUMMARY   Run with `cargo bench --bench replication_idle`. Starts `settee serve` with a configuration of
//!           its own and a database in this process that behaves as an idle CouchDB does: a continuous
//!           feed is ended by time-out, without a change, and asked for again. Writes documents in
//!           `_replicator`, waits until all of them run, and reads `/proc`.
//!           `SETTEE_BENCH_JOBS` and `SETTEE_BENCH_SECONDS` are how many and for how long (1000, 60).
//! LIMITS    Linux. One database for all jobs, on one address, without TLS.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What is wanted for a thousand jobs.
const WANTED_BYTES: u64 = 150 << 20;
const WANTED_CPU: f64 = 0.03;
/// Clock ticks a second in `/proc`; the same on every Linux.
const TICKS: f64 = 100.0;
/// How long all jobs may take to be running.
const START_MAX: Duration = Duration::from_secs(120);
/// How long the service is left alone before it is measured.
const SETTLE: Duration = Duration::from_secs(12);

fn number(variable: &str, usual: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given
        .and_then(|text| text.parse().ok())
        .unwrap_or(usual)
        .max(1)
}

fn main() {
    let (jobs, seconds) = (
        number("SETTEE_BENCH_JOBS", 1000),
        number("SETTEE_BENCH_SECONDS", 60),
    );
    let database = start_database();
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start(folder.path(), jobs);
    let before = service.memory();
    for first in (0..jobs).step_by(500) {
        let docs: Vec<String> = (first..jobs.min(first + 500))
            .map(|n| {
                format!(
                    "{{\"_id\":\"job-{n}\",\"source\":\"http://{database}/a{n}\",\
                     \"target\":\"http://{database}/b{n}\",\"continuous\":true}}"
                )
            })
            .collect();
        let body = format!("{{\"docs\":[{}]}}", docs.join(","));
        let answer = service.call("POST", "/_replicator/_bulk_docs", &body);
        assert!(!answer.contains("\"error\""), "{answer}");
    }
    service.until_running(jobs);
    std::thread::sleep(SETTLE);
    let (start, cpu) = (Instant::now(), service.cpu());
    std::thread::sleep(Duration::from_secs(seconds));
    let share = (service.cpu() - cpu) / start.elapsed().as_secs_f64();
    let memory = service.memory();
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
    if memory > WANTED_BYTES || share > WANTED_CPU {
        println!(
            "(wanted for 1000: {:.0} MiB and {:.0} %)",
            mib(WANTED_BYTES),
            WANTED_CPU * 100.0
        );
    }
}

/// A service in a process of its own. It ends with the bench.
struct Service {
    child: Child,
    address: SocketAddr,
}

impl Service {
    fn start(folder: &Path, jobs: u64) -> Self {
        let config = folder.join("settee.toml");
        let text = format!(
            "[server]\nsocket = \"{}\"\nhttp = \"127.0.0.1:0\"\nopen = true\n[log]\nlevel = \"warning\"\n\
             [store]\npath = \"memory\"\n[replicator]\nmax_jobs = {}\nstartup_jitter = 2000\n",
            folder.join("run").join("s.sock").display(),
            // The last one of a full table would wait for a cycle.
            jobs + 1
        );
        fs::write(&config, text).expect("the configuration is written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_settee"))
            .args(["serve", "-c"])
            .arg(&config)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let stdout = child.stdout.take().expect("it is a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let address = lines
            .find_map(|line| {
                let line = line.expect("a line");
                let (_, rest) = line.split_once("http://")?;
                rest.trim().trim_end_matches('/').parse().ok()
            })
            .expect("it says where it listens");
        // It goes on printing what nobody reads.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    fn call(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    fn until_running(&self, jobs: u64) {
        let (start, line) = (
            Instant::now(),
            format!("couchdb_couch_replicator_jobs_running {jobs}\n"),
        );
        while !self.call("GET", "/metrics", "").contains(&line) {
            assert!(start.elapsed() < START_MAX, "not all jobs run");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn proc(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(path).expect("it lives")
    }

    /// Seconds of processor time so far.
    fn cpu(&self) -> f64 {
        let stat = self.proc("stat");
        let (_, fields) = stat.rsplit_once(") ").expect("it has a name");
        let ticks = |index| {
            let field: f64 = fields
                .split(' ')
                .nth(index)
                .and_then(|text| text.parse().ok())
                .expect("a number");
            field
        };
        (ticks(11) + ticks(12)) / TICKS
    }

    /// Resident bytes.
    fn memory(&self) -> u64 {
        let status = self.proc("status");
        let (_, rest) = status.split_once("VmRSS:").expect("it has a size");
        let kib = rest.split_whitespace().next();
        1024 * kib
            .and_then(|text| text.parse::<u64>().ok())
            .expect("a number")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts a database without documents, on a thread of its own.
fn start_database() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
    });
    address
}

/// Answers requests without a body until the other side closes.
async fn serve(mut stream: tokio::net::TcpStream) -> Option<()> {
    let (mut buffer, mut length) = (vec![0; 16 << 10], 0);
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
        if target.contains("feed=continuous") {
            let chunked = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                           Transfer-Encoding: chunked\r\n\r\n";
            stream.write_all(chunked.as_bytes()).await.ok()?;
            let timeout = target.split("timeout=").nth(1)?.split('&').next()?;
            tokio::time::sleep(Duration::from_millis(timeout.parse().ok()?)).await;
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
