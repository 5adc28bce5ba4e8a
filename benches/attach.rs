//! The processor time that a document of a view costs under CouchDB, one line at a time: `settee attach` with the
//! service and its process, beside a floor of two `settee couchjs` and one wake-up, the cost of a line of `cat`.
//!
//! On busy processors a wake-up costs many times as much: run this bench with `taskset -c 0` for comparable figures.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::{children, median, nanoseconds, report};

const ROUNDS: usize = 5;
const DOCUMENTS: usize = 10_000;

/// A child that answers each line with a line.
struct Lines {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    answer: String,
}

impl Lines {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
            answer: String::new(),
        }
    }

    /// Starts a query server, and teaches it a map function.
    fn mapping(command: &mut Command) -> Self {
        let mut lines = Self::start(command);
        let add_fun = r#"["add_fun","function(doc) { emit(doc.customer, doc.total); }"]"#;
        for line in ["[\"reset\"]", add_fun] {
            lines.ask(&format!("{line}\n"));
            assert_eq!(lines.answer, "true\n");
        }
        lines
    }

    fn ask(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input is open");
        input.write_all(line.as_bytes()).expect("the child reads");
        self.answer.clear();
        self.output
            .read_line(&mut self.answer)
            .expect("the child answers");
    }

    /// Sends many documents, and returns the processor time of the processes per document, in microseconds.
    fn microseconds(&mut self, processes: &[u32]) -> f64 {
        let document = format!(
            "[\"map_doc\",{{\"_id\":\"order-000017\",\"_rev\":\"3-9f\",\"customer\":\"acme\",\"total\":31.5,\"note\":\"{}\"}}]\n",
            "x".repeat(200)
        );
        let used = || -> f64 { processes.iter().map(|pid| nanoseconds(*pid)).sum() };
        let before = used();
        (0..DOCUMENTS).for_each(|_| self.ask(&document));
        (used() - before) / 1e3 / DOCUMENTS as f64
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // The child exits at the end of its input.
        drop(self.input.take());
        self.child.wait().expect("the child exits");
    }
}

fn settee(socket: &Path, argument: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_settee"));
    command.arg(argument).stderr(Stdio::null());
    for (key, value) in [("SERVER__HTTP", "off"), ("STORE__PATH", "memory")] {
        command.env(format!("SETTEE__{key}"), value);
    }
    command.env("SETTEE__SERVER__SOCKET", socket);
    command
}

fn main() {
    let directory = tempfile::tempdir().expect("a folder");
    let socket = directory.path().join("run").join("s.sock");
    let mut service = settee(&socket, "serve");
    let mut service = service
        .stdout(Stdio::piped())
        .spawn()
        .expect("the service starts");
    let mut ready = BufReader::new(service.stdout.take().expect("a pipe"));
    ready
        .read_line(&mut String::new())
        .expect("the service listens");

    let mut cat = Lines::start(&mut Command::new("cat"));
    let mut couchjs = Lines::mapping(&mut settee(&socket, "couchjs"));
    let mut attach = Lines::mapping(&mut settee(&socket, "attach"));
    let mut served = children(service.id());
    served.extend([service.id(), attach.child.id()]);
    let (mut wake_up, mut own, mut lent) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let pid = cat.child.id();
        wake_up.push(cat.microseconds(&[pid]));
        let pid = couchjs.child.id();
        own.push(couchjs.microseconds(&[pid]));
        lent.push(attach.microseconds(&served));
        served = children(service.id());
        served.extend([service.id(), attach.child.id()]);
    }
    let (wake_up, own, lent) = (median(wake_up), median(own), median(lent));
    println!("couchjs, a document of 300 B {own:>35.2} us   a wake-up {wake_up:.2} us");
    let floor = 2.0 * own + wake_up;
    report(
        "attach, beside two couchjs and a wake-up",
        lent,
        floor,
        "us",
        1.0,
    );
    drop(attach);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&service),
        rustix::process::Signal::TERM,
    )
    .expect("the service runs");
    service.wait().expect("the service exits");
}
