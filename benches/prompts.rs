//! Prompts through a lease, one at a time and with 16 in flight, beside the same lines over a raw pipe; and calls of
//! design-document functions by many clients over many databases.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use bytes::Bytes;
use common::{no_log, report, settings};
use futures_util::future::join_all;
use futures_util::stream::{FuturesOrdered, StreamExt};
use serde_json::value::RawValue;
use settee::actors::proc_manager::ProcManager;
use settee::functions::QueryServers;
use settee::functions::caller::Caller;
use settee::languages::command::CommandLanguage;
use settee::messages::function::{DdocPrompt, InDdoc};
use settee::messages::proc_manager::{Lease, TakeFrom, Want};
use settee::otp::registered_name::RegisteredName;
use settee::otp::supervisor::Stop;
use settee::policy::pool::ReturnStatus;
use settee::query_server::cell::Cell;
use settee::query_server::child::{CommandSpec, Spawner};
use settee::query_server::ddoc::Ddoc;
use settee::query_server::language::LanguageName;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

const ADD_FUN: &str = r#"["add_fun","function(doc) { emit(doc.customer, doc.total); }"]"#;
const ROUNDS: usize = 5;
const PROMPTS: usize = 4_000;

/// A `map_doc` command for a document of about 300 bytes.
fn map_doc() -> String {
    format!(
        r#"["map_doc",{{"_id":"order-000017","_rev":"3-9f","customer":"acme","total":31.5,"note":"{}","lines":[{{"sku":"A1","qty":2}},{{"sku":"B9","qty":1}}]}}]"#,
        "x".repeat(160)
    )
}

fn couchjs() -> CommandSpec {
    CommandSpec {
        program: env!("CARGO_BIN_EXE_settee").into(),
        arguments: vec!["couchjs".into()],
        environment: Vec::new(),
        cell: Cell::None,
    }
}

/// For comparison with the floor: a child, its two pipes, and a loop that blocks until each answer.
struct RawChild {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: String,
}

fn spawn_couchjs() -> Child {
    Command::new(env!("CARGO_BIN_EXE_settee"))
        .arg("couchjs")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("settee starts")
}

impl RawChild {
    fn start() -> Self {
        let mut child = spawn_couchjs();
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut raw = Self {
            child,
            stdin: Some(stdin),
            stdout,
            line: String::new(),
        };
        raw.prompt(b"[\"reset\"]\n");
        raw.prompt(format!("{ADD_FUN}\n").as_bytes());
        raw
    }

    fn prompt(&mut self, line: &[u8]) {
        let stdin = self.stdin.as_mut().expect("its input is open");
        stdin.write_all(line).expect("the child reads");
        self.line.clear();
        self.stdout
            .read_line(&mut self.line)
            .expect("the child answers");
    }
}

impl Drop for RawChild {
    fn drop(&mut self) {
        // The child exits at the end of its input.
        drop(self.stdin.take());
        self.child.wait().expect("the child exits");
    }
}

fn raw_microseconds(child: &mut RawChild) -> f64 {
    let line = format!("{}\n", map_doc());
    let start = Instant::now();
    (0..PROMPTS).for_each(|_| child.prompt(line.as_bytes()));
    start.elapsed().as_secs_f64() * 1e6 / PROMPTS as f64
}

async fn lease_microseconds(lease: &Lease, in_flight: usize) -> f64 {
    let line = Bytes::from(map_doc());
    let start = Instant::now();
    let mut answers = FuturesOrdered::new();
    for _ in 0..PROMPTS {
        answers.push_back(lease.prompt(line.clone(), None));
        if answers.len() >= in_flight {
            answers
                .next()
                .await
                .expect("an answer is pending")
                .expect("an answer");
        }
    }
    while let Some(answer) = answers.next().await {
        answer.expect("an answer");
    }
    start.elapsed().as_secs_f64() * 1e6 / PROMPTS as f64
}

/// The floor: the pipes of a child, awaited in the event loop of the lease.
struct AwaitedChild {
    child: Child,
    stdin: Option<pipe::Sender>,
    stdout: tokio::io::BufReader<pipe::Receiver>,
}

impl AwaitedChild {
    fn start(mut raw: Child) -> Self {
        let stdin = OwnedFd::from(raw.stdin.take().expect("a pipe"));
        let stdout = OwnedFd::from(raw.stdout.take().expect("a pipe"));
        Self {
            child: raw,
            stdin: Some(pipe::Sender::from_owned_fd(stdin).expect("a pipe")),
            stdout: tokio::io::BufReader::new(
                pipe::Receiver::from_owned_fd(stdout).expect("a pipe"),
            ),
        }
    }

    async fn prompt(&mut self, line: &[u8], answer: &mut Vec<u8>) {
        let stdin = self.stdin.as_mut().expect("its input is open");
        stdin.write_all(line).await.expect("the child reads");
        answer.clear();
        self.stdout
            .read_until(b'\n', answer)
            .await
            .expect("the child answers");
    }

    async fn microseconds(&mut self) -> f64 {
        let line = format!("{}\n", map_doc());
        let mut answer = Vec::new();
        let start = Instant::now();
        for _ in 0..PROMPTS {
            self.prompt(line.as_bytes(), &mut answer).await;
        }
        start.elapsed().as_secs_f64() * 1e6 / PROMPTS as f64
    }
}

impl Drop for AwaitedChild {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.child.wait().expect("the child exits");
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

async fn prompts(manager: &RegisteredName<ProcManager>) {
    let caller = Caller::new(manager.clone());
    let want = Want::language(LanguageName::new("javascript"));
    let lease = caller.get_clean_proc(&want).await.expect("a process");
    lease
        .prompt(Bytes::from_static(ADD_FUN.as_bytes()), None)
        .await
        .expect("the function compiles");
    let mut raw = RawChild::start();
    let mut awaited = AwaitedChild::start(spawn_couchjs());
    let mut answer = Vec::new();
    for line in ["[\"reset\"]\n".to_owned(), format!("{ADD_FUN}\n")] {
        awaited.prompt(line.as_bytes(), &mut answer).await;
    }
    let (mut blocking, mut floor) = (Vec::new(), Vec::new());
    let (mut one, mut sixteen) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        blocking.push(raw_microseconds(&mut raw));
        floor.push(awaited.microseconds().await);
        one.push(lease_microseconds(&lease, 1).await);
        sixteen.push(lease_microseconds(&lease, 16).await);
    }
    let (floor, one, sixteen) = (median(floor), median(one), median(sixteen));
    report("one prompt of 300 B, awaited", one, floor, "us", 1.3);
    println!(
        "{:<44} {:>10.2} us   (a thread that blocks is woken on the child's own core)",
        "the same over a blocking pipe",
        median(blocking)
    );
    report(
        "the same, 16 in flight, beside 1 in flight",
        sixteen,
        one,
        "us",
        1.0 / 3.0,
    );
    lease.ret_proc(ReturnStatus::Ok).await;
}

fn ddoc(number: usize) -> Arc<Ddoc> {
    let text = format!(
        r#"{{"_id":"_design/d{number}","_rev":"1-{number}","shows":{{"s":"function(doc, req) {{ return 'hello ' + doc.name; }}"}}}}"#
    );
    Arc::new(Ddoc::parse(&text).expect("a design document"))
}

/// 100 clients, each calling the functions of 20 databases x 5 design documents at random, one at a time.
async fn ddoc_calls(manager: &RegisteredName<ProcManager>) {
    const CLIENTS: usize = 100;
    const DATABASES: usize = 20;
    const DDOCS: usize = 5;
    const TIME: Duration = Duration::from_secs(6);
    let ddocs: Vec<_> = (0..DDOCS).map(ddoc).collect();
    let path = vec!["shows".to_owned(), "s".to_owned()];
    let args = RawValue::from_string(r#"[{"name":"ida"},{}]"#.into()).expect("JSON");
    let shared = Rc::new((ddocs, path, args));
    let end = Instant::now() + TIME;
    let clients = (0..CLIENTS).map(|client| {
        let query_servers = QueryServers::new(Caller::new(manager.clone()));
        let shared = Rc::clone(&shared);
        actix_rt::spawn(async move {
            let mut random = client as u64 * 0x9e37_79b9_7f4a_7c15 + 1;
            let mut times = Vec::new();
            while Instant::now() < end {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let db = format!("db{}", random as usize % DATABASES);
                let ddoc = Arc::clone(&shared.0[(random >> 32) as usize % DDOCS]);
                let start = Instant::now();
                let at = InDdoc {
                    db: db.into(),
                    ddoc,
                    from: TakeFrom::Own,
                    timeout: None,
                };
                let (path, args) = (shared.1.clone(), shared.2.clone());
                let call = DdocPrompt { at, path, args };
                let answer = query_servers.ddoc_prompt(&call).await.expect("an answer");
                assert_eq!(&answer[..], br#"["resp",{"body":"hello ida"}]"#);
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
            times
        })
    });
    let start = Instant::now();
    let mut times: Vec<f64> = join_all(clients)
        .await
        .into_iter()
        .flat_map(|r| r.expect("the client ends"))
        .collect();
    let seconds = start.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "ddoc calls, 100 clients, 20 databases x 5 ddocs  {:>8.0} calls/s (wanted 10000)   \
         p50 {:.1} ms   p99 {:.1} ms (wanted 30)   max {:.1} ms",
        times.len() as f64 / seconds,
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

#[actix_rt::main]
async fn main() {
    let spawner = Spawner::start().expect("a thread can be started");
    let settings = settings("javascript", CommandLanguage::from_spec(couchjs()), 100);
    let pool = ProcManager::new(settings, spawner, &no_log());
    let pid = pool.pid();
    let address = pool.start();
    let manager = RegisteredName::new(address.clone());
    prompts(&manager).await;
    ddoc_calls(&manager).await;
    let stopped = address.send(Stop { now: false }).await;
    stopped.expect("the manager stops");
    while pid.is_alive() {
        actix_rt::task::yield_now().await;
    }
}
