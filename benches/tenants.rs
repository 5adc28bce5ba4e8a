//! Measures what many databases cost: calls per second, process starts and CPU time, by number of processes and by
//! `reuse`; CPU time per call and memory once all databases are warm, with isolates and with a process each; and the
//! memory of one process.
//!
//! `cargo bench --bench tenants` prints the tables of docs/tuning.md. Each row of calls is the median of a few runs: in
//! each, clients of a new service's socket call functions of random databases, in the built-in JavaScript or in Perl
//! (a command). Processes run in cells. Other load on the machine changes calls per second more than CPU time.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const CLIENTS: usize = 32;
const CALLS: u64 = 2_000;
const ROUNDS: usize = 3;

/// USER_HZ, the unit of CPU times in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// Numbers of processes and databases of each row.
const ROWS: [(u32, u64); 6] = [(16, 4), (16, 16), (16, 64), (16, 256), (64, 64), (128, 64)];

/// A language and its benchmarked call.
#[derive(Clone, Copy, PartialEq)]
enum Server {
    JavaScript,
    Perl,
}

impl Server {
    fn language(self) -> &'static str {
        match self {
            Server::JavaScript => "javascript",
            Server::Perl => "perl",
        }
    }

    /// A call of a database's function.
    fn call(self, db: u64) -> String {
        let call = match self {
            Server::JavaScript => json!({"id": 1, "call": "ddoc_prompt", "db": format!("db{db}"),
                "ddoc": {"_id": "_design/d", "shows": {"s": "function(doc) { return 'hello ' + doc.name }"}},
                "path": ["shows", "s"], "args": [{"name": "ida"}, {}]}),
            Server::Perl => {
                json!({"id": 1, "call": "map_docs", "lang": "perl", "db": format!("db{db}"),
                "funs": ["sub { my ($doc) = @_; emit($doc->{name}, 1) }"], "docs": [{"_id": "a", "name": "ida"}]})
            }
        };
        format!("{call}\n")
    }
}

struct Service {
    child: Child,
    directory: tempfile::TempDir,
}

impl Service {
    fn start(reuse: &str, processes: u32) -> Self {
        Self::start_with(reuse, processes, 32)
    }

    fn start_with(reuse: &str, processes: u32, isolates_max: u32) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let config = directory.path().join("settee.toml");
        let perl = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/examples/languages/perl_server.pl"
        );
        let text = format!(
            "[query_server_config]\nreuse = \"{reuse}\"\nos_process_limit = {processes}\nisolates_max = {isolates_max}\n\
             [couchdb]\nos_process_timeout = 60000\n\
             [query_servers]\nperl = \"/usr/bin/perl {perl}\"\n"
        );
        fs::write(&config, text).expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_settee"))
            .args(["serve", "-c"])
            .arg(&config)
            .env(
                "SETTEE__SERVER__SOCKET",
                directory.path().join("run/s.sock"),
            )
            .env("SETTEE__SERVER__HTTP", "off")
            .env("SETTEE__STORE__PATH", "memory")
            .env("SETTEE__LOG__LEVEL", "error")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let stdout = child.stdout.take().expect("a pipe");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the service prints its address");
        Self { child, directory }
    }

    fn connect(&self) -> Client {
        let socket = self.directory.path().join("run/s.sock");
        let stream = UnixStream::connect(socket).expect("the service listens");
        let reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        Client {
            stream,
            reader,
            line: String::new(),
        }
    }

    fn total(&self, server: Server, name: &str) -> u64 {
        let socket = self.directory.path().join("run/s.http.sock");
        let mut stream = UnixStream::connect(socket).expect("the service listens");
        let path = format!("/_pools/{}", server.language());
        let sent = write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        sent.expect("the service reads");
        let answer = std::io::read_to_string(stream).expect("the service answers");
        let (_, pool) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let pool: Value = serde_json::from_str(pool).expect("JSON");
        pool["totals"][name].as_u64().expect("a number")
    }

    /// Stops the service, which adds its CPU time to that of this process's children.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .expect("the service runs");
        self.child.wait().expect("the service exits");
    }
}

struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    line: String,
}

impl Client {
    fn ask(&mut self, request: &str) -> Value {
        let sent = self.stream.write_all(request.as_bytes());
        sent.expect("the service reads");
        self.line.clear();
        let read = self.reader.read_line(&mut self.line);
        read.expect("the service answers");
        let reply: Value = serde_json::from_str(&self.line).expect("JSON");
        assert!(reply.get("ok").is_some(), "{request}{reply}");
        reply["ok"].clone()
    }
}

/// The CPU time of children that have ended, and of their children.
fn cpu_of_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, after_name) = stat.rsplit_once(')').expect("a name");
    let mut ticks = after_name.split_ascii_whitespace().skip(13).take(2);
    let mut next = || ticks.next().and_then(|text| text.parse::<u64>().ok());
    let ticks = next().zip(next()).map_or(0, |(user, system)| user + system);
    Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND)
}

/// The results of a run.
#[derive(Clone, Copy)]
struct Figures {
    calls_per_second: f64,
    started: f64,
    cpu_us: f64,
}

/// Runs clients that call functions of random databases.
fn call_at_random(service: &Service, server: Server, databases: u64, calls: u64) {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = service.connect();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= calls {
                        return;
                    }
                    // The same databases in the same order in each run.
                    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
                    let random = random.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33;
                    client.ask(&server.call(random % databases));
                }
            });
        }
    });
}

fn run(server: Server, reuse: &str, processes: u32, databases: u64) -> Figures {
    let cpu = cpu_of_children();
    let service = Service::start(reuse, processes);
    let since = Instant::now();
    call_at_random(&service, server, databases, CALLS);
    let seconds = since.elapsed().as_secs_f64();
    let starts = service.total(server, "started");
    service.stop();
    let cpu = cpu_of_children() - cpu;
    Figures {
        calls_per_second: CALLS as f64 / seconds,
        started: starts as f64 / CALLS as f64,
        cpu_us: cpu.as_secs_f64() * 1e6 / CALLS as f64,
    }
}

fn median(runs: &[Figures], of: impl Fn(&Figures) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn databases() {
    println!(
        "| query server | `reuse` | processes | databases | calls per second, first row 1 | calls that start a process | processor time per call |"
    );
    println!("|---|---|---|---|---|---|---|");
    for server in [Server::JavaScript, Server::Perl] {
        let mut first = None;
        let isolates = (server == Server::JavaScript).then_some("isolates");
        for reuse in isolates.into_iter().chain(["any", "database"]) {
            for (processes, databases) in ROWS {
                let runs: Vec<_> = (0..ROUNDS)
                    .map(|_| run(server, reuse, processes, databases))
                    .collect();
                let calls = median(&runs, |run| run.calls_per_second);
                let of_first = calls / *first.get_or_insert(calls);
                println!(
                    "| {} | `{reuse}` | {processes} | {databases} | {of_first:.2} | {:.1} % | {:.2} ms |",
                    server.language(),
                    median(&runs, |run| run.started) * 100.0,
                    median(&runs, |run| run.cpu_us) / 1e3,
                );
            }
        }
    }
}

/// A process and all its descendants.
fn tree(pid: u64) -> Vec<u64> {
    let mut found = vec![pid];
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    for task in tasks {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let children = children
            .split_ascii_whitespace()
            .filter_map(|child| child.parse().ok());
        children.for_each(|child| found.extend(tree(child)));
    }
    found
}

/// The private dirty memory of a process, in MiB.
fn own(pid: u64) -> f64 {
    let path = PathBuf::from(format!("/proc/{pid}/smaps_rollup"));
    let text = fs::read_to_string(path).expect("root may read smaps_rollup");
    let private = text
        .lines()
        .filter(|line| line.starts_with("Private_Dirty"));
    let kib = private.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<f64>().ok());
    kib.sum::<f64>() / 1024.0
}

/// The private dirty memory of a process and its descendants, in MiB.
fn own_memory(pid: u64) -> f64 {
    tree(pid).into_iter().map(own).sum()
}

/// The CPU seconds so far of a process and of its running descendants.
fn cpu_of(pid: u64) -> f64 {
    let ticks = |pid: u64| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let (_, after_name) = stat.rsplit_once(')').unwrap_or_default();
        let ticks = after_name.split_ascii_whitespace().skip(11).take(2);
        ticks
            .filter_map(|text| text.parse::<f64>().ok())
            .sum::<f64>()
    };
    tree(pid).into_iter().map(ticks).sum::<f64>() / TICKS_PER_SECOND
}

/// Prints the cost of calls after every database was called, and the memory of all processes.
fn warm() {
    println!(
        "\n| `reuse` | processes | databases | processor time per call | calls that make an isolate | memory |"
    );
    println!("|---|---|---|---|---|---|");
    for (reuse, processes, isolates_max, databases) in [
        ("isolates", 4, 32, 1),
        ("database", 4, 32, 1),
        ("isolates", 4, 32, 100),
        ("any", 4, 32, 100),
        ("database", 200, 32, 100),
        ("isolates", 8, 128, 1000),
        ("database", 1200, 32, 1000),
    ] {
        let service = Service::start_with(reuse, processes, isolates_max);
        let pid = service.child.id().into();
        call_at_random(
            &service,
            Server::JavaScript,
            databases,
            10 * databases.max(100),
        );
        let made = || service.total(Server::JavaScript, "isolates_made") as f64;
        let runs: Vec<(f64, f64)> = (0..ROUNDS)
            .map(|_| {
                let before = (cpu_of(pid), made());
                call_at_random(&service, Server::JavaScript, databases, 10 * CALLS);
                let calls = (10 * CALLS) as f64;
                (
                    (cpu_of(pid) - before.0) / calls,
                    (made() - before.1) / calls,
                )
            })
            .collect();
        let mut cpu: Vec<f64> = runs.iter().map(|(cpu, _)| cpu * 1e3).collect();
        cpu.sort_by(f64::total_cmp);
        println!(
            "| `{reuse}` | {processes} | {databases} | {:.3} ms | {:.1} % | {:.0} MiB |",
            cpu[cpu.len() / 2],
            runs[runs.len() - 1].1 * 100.0,
            own_memory(pid) - own(pid)
        );
        service.stop();
    }
}

fn memory() {
    println!("\n| query server | started | with a function, after 1,000 documents | idle again |");
    println!("|---|---|---|---|");
    for server in [Server::JavaScript, Server::Perl] {
        let service = Service::start("any", 4);
        let mut client = service.connect();
        let lent = client.ask(&format!(
            "{}\n",
            json!({"id": 1, "call": "get_proc", "lang": server.language()})
        ));
        let (proc, pid) = (&lent["proc"], lent["os_pid"].as_u64().expect("a number"));
        let prompt = |data: Value| {
            format!(
                "{}\n",
                json!({"id": 1, "call": "prompt", "proc": proc, "data": data})
            )
        };
        client.ask(&prompt(json!(["reset", lent["config"]])));
        let started = own_memory(pid);
        let source = match server {
            Server::JavaScript => "function(doc) { emit(doc.name, doc.total) }",
            Server::Perl => "sub { my ($doc) = @_; emit($doc->{name}, $doc->{total}) }",
        };
        client.ask(&prompt(json!(["add_fun", source])));
        for number in 0..1_000 {
            let doc = json!({"_id": number.to_string(), "name": "ida", "total": number, "note": "x".repeat(1_000)});
            client.ask(&prompt(json!(["map_doc", doc])));
        }
        let used = own_memory(pid);
        client.ask(&format!(
            "{}\n",
            json!({"id": 1, "call": "ret_proc", "proc": proc})
        ));
        // The `reset` of the next loan frees what this one held.
        let lent = client.ask(&format!(
            "{}\n",
            json!({"id": 1, "call": "get_proc", "lang": server.language()})
        ));
        assert_eq!(lent["os_pid"], pid, "the same process");
        let reset = json!({"id": 1, "call": "prompt", "proc": lent["proc"], "data": ["reset", lent["config"]]});
        client.ask(&format!("{reset}\n"));
        println!(
            "| {} | {started:.1} MiB | {used:.1} MiB | {:.1} MiB |",
            server.language(),
            own_memory(pid)
        );
        drop(client);
        service.stop();
    }
}

fn main() {
    memory();
    warm();
    databases();
}
