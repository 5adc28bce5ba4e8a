//! `settee serve` as a separate process, for benches that measure that process. Its store is in memory, or the
//! database at the URL `SETTEE_BENCH_STORE`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time until all replications run.
const START_MAX: Duration = Duration::from_secs(120);

/// A service in a separate process. Killed when dropped.
pub struct Service {
    child: Child,
    pub address: SocketAddr,
}

impl Service {
    /// Starts a service with these lines in `[replicator]`. `SETTEE_BENCH_PROGRAM` names another build to measure.
    pub fn start(folder: &Path, replicator: &str) -> Self {
        Self::with_server(folder, "", replicator)
    }

    /// Like [`Self::start`], with these lines in `[server]`.
    pub fn with_server(folder: &Path, server: &str, replicator: &str) -> Self {
        let config = folder.join("settee.toml");
        let store = std::env::var("SETTEE_BENCH_STORE");
        let store = store.map_or("path = \"memory\"".into(), |url| format!("url = \"{url}\""));
        let text = format!(
            "[server]\nsocket = \"{}\"\nhttp = \"127.0.0.1:0\"\nopen = true\n{server}\n[log]\nlevel = \"warning\"\n\
             [store]\n{store}\n[replicator]\n{replicator}\n",
            folder.join("run").join("s.sock").display(),
        );
        fs::write(&config, text).expect("the configuration is written");
        let built = env!("CARGO_BIN_EXE_settee").into();
        let program = std::env::var_os("SETTEE_BENCH_PROGRAM").unwrap_or(built);
        let mut child = Command::new(program)
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
            .expect("the service prints its address");
        // The pipe must not fill up.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Makes a call over HTTP and returns the whole answer.
    pub fn call(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("the service listens");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream
            .write_all(request.as_bytes())
            .expect("the service reads");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("the service answers");
        answer
    }

    /// Returns how many replications run.
    fn running(&self) -> u64 {
        let metrics = self.call("GET", "/metrics", "");
        let running = |line: &str| {
            let count = line.strip_prefix("couchdb_couch_replicator_jobs_running ")?;
            count.parse().ok()
        };
        metrics.lines().find_map(running).expect("a metric")
    }

    /// Waits until all services together run exactly `jobs` replications.
    pub fn until_running(services: &[Self], jobs: u64) {
        let start = Instant::now();
        while services.iter().map(Self::running).sum::<u64>() != jobs {
            assert!(start.elapsed() < START_MAX, "not all jobs run");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn proc(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(path).expect("the service is alive")
    }

    /// CPU seconds so far, of all threads that still exist.
    pub fn cpu(&self) -> f64 {
        super::nanoseconds(self.child.id()) / 1e9
    }

    /// CPU seconds so far of the first thread, which runs the pool's loop.
    pub fn loop_cpu(&self) -> f64 {
        let text = self.proc("schedstat");
        let first = text
            .split(' ')
            .next()
            .and_then(|word| word.parse::<f64>().ok());
        first.expect("a number") / 1e9
    }

    /// The numbers of open descriptors and of threads.
    pub fn holds(&self) -> (usize, usize) {
        let count = |what| {
            let path = format!("/proc/{}/{what}", self.child.id());
            fs::read_dir(path).map_or(0, Iterator::count)
        };
        (count("fd"), count("task"))
    }

    /// Resident bytes.
    pub fn memory(&self) -> u64 {
        let status = self.proc("status");
        let (_, rest) = status.split_once("VmRSS:").expect("a size");
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
