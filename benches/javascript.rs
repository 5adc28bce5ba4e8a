//! The built-in JavaScript server: CPU time per document and per reduction, latency of `reset`, start time, memory.
//!
//! `cargo bench --bench javascript`. Each time is printed with a floor measured in the same run: a child that reads
//! the same lines, splits the JSON and writes the document back, or `cat`. CPU times are those of the child alone,
//! from `/proc`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

const MAP: &str =
    "function(doc) { if (doc.type === 'order') { emit([doc.customer, doc.date], doc.total); } }";

const REDUCE_VALUES: &str = "function(keys, values) { return sum(values); }";

const REDUCE_KEYS: &str = "function(keys, values) { return keys.length + sum(values); }";

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("--echo") => echo(),
        _ => report(),
    }
}

fn report() {
    for (bytes, count) in [(300, 20_000), (9_000, 8_000)] {
        let document = document(bytes);
        let server = documents(Prompted::server(), &document, count);
        let floor = documents(Prompted::echo(), &document, count);
        line(
            &format!("map, document of {} B, CPU", document.len()),
            server,
            floor,
            "JSON echo",
        );
    }
    for (what, reduce) in [("values", REDUCE_VALUES), ("keys too", REDUCE_KEYS)] {
        for rows in [100, 1_000] {
            let line_of_rows = rows_line(reduce, rows);
            let count = 200_000 / rows;
            let server = reductions(Prompted::server(), &line_of_rows, count);
            let floor = reductions(Prompted::echo(), &line_of_rows, count);
            let what = format!("reduce of {rows} rows, {what}, CPU");
            line(&what, server, floor, "JSON echo");
        }
    }
    resets();
    let server = start(Prompted::server);
    line(
        "start to first answer",
        server,
        start(|| Prompted::start("cat", &[])),
        "cat",
    );
    println!("resident memory after a view: {} KiB", memory_kib());
}

fn line(what: &str, value: f64, floor: f64, floor_name: &str) {
    let ratio = value / floor;
    println!("{what}: {value:.1} us; {floor_name}: {floor:.1} us; ratio {ratio:.2}");
}

/// A child and its streams.
struct Prompted {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Prompted {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Prompted {
            child,
            input,
            output: BufReader::with_capacity(1 << 16, output),
        }
    }

    fn server() -> Self {
        Prompted::start(env!("CARGO_BIN_EXE_settee"), &["couchjs"])
    }

    fn echo() -> Self {
        let this = std::env::current_exe().unwrap();
        Prompted::start(this.to_str().unwrap(), &["--echo"])
    }

    fn prompt(&mut self, line: &str) -> String {
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert!(!answer.is_empty(), "the child has ended");
        answer
    }

    /// CPU time of all threads of the child.
    fn cpu(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let nanoseconds = tasks.map(|task| {
            let text = fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
            text.split(' ').next().unwrap().parse::<u64>().unwrap()
        });
        Duration::from_nanos(nanoseconds.sum())
    }

    fn add_map(&mut self) {
        self.prompt(r#"["reset",{}]"#);
        self.prompt(&format!(
            "[\"add_fun\",{}]",
            serde_json::to_string(MAP).unwrap()
        ));
    }
}

impl Drop for Prompted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A document of about this many bytes: scalars, a string and a list of objects.
fn document(bytes: usize) -> String {
    let head = concat!(
        r#"{"_id":"order-2024-000123","_rev":"3-917fa2381192822767f010b95b45325b","#,
        r#""type":"order","customer":"acme","date":[2024,5,17],"total":129.95,"paid":true,"#,
        r#""note":"leave at the door, ring twice","lines":["#,
    );
    let item = concat!(
        r#"{"sku":"A-10442","qty":2,"price":12.5,"name":"Lamp shade, linen","#,
        r#""tags":["home","light"]}"#,
    );
    let items = ((bytes.saturating_sub(head.len())) / (item.len() + 1)).max(1);
    format!("{head}{}]}}", vec![item; items].join(","))
}

/// CPU microseconds per document, with many lines in flight.
fn documents(mut child: Prompted, document: &str, count: usize) -> f64 {
    child.add_map();
    let line = format!("[\"map_doc\",{document}]\n");
    let before = child.cpu();
    thread::scope(|scope| {
        let input = &mut child.input;
        scope.spawn(move || (0..count).for_each(|_| input.write_all(line.as_bytes()).unwrap()));
        let mut answer = Vec::new();
        for _ in 0..count {
            answer.clear();
            assert!(child.output.read_until(b'\n', &mut answer).unwrap() > 0);
        }
    });
    (child.cpu() - before).as_secs_f64() * 1e6 / count as f64
}

/// A command that reduces this many rows.
fn rows_line(reduce: &str, rows: usize) -> String {
    let row = |number: usize| {
        let (customer, total) = (number % 500, number % 500);
        format!("[[\"customer {customer:04}\",\"order-{number:08}\"],{total}.25]")
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    let source = serde_json::to_string(reduce).unwrap();
    format!("[\"reduce\",[{source}],[{}]]", rows.join(","))
}

/// CPU microseconds per reduction, with one in flight.
fn reductions(mut child: Prompted, line: &str, count: usize) -> f64 {
    child.prompt(line);
    let before = child.cpu();
    (0..count).for_each(|_| drop(child.prompt(line)));
    (child.cpu() - before).as_secs_f64() * 1e6 / count as f64
}

/// The median of `count` measurements, in microseconds.
fn median(count: usize, mut measure: impl FnMut() -> Duration) -> f64 {
    let mut times: Vec<Duration> = (0..count).map(|_| measure()).collect();
    times.sort();
    times[count / 2].as_secs_f64() * 1e6
}

/// Prints the latency of `reset`, beside that of an echo.
fn resets() {
    let timed = |child: &mut Prompted| {
        let begin = Instant::now();
        child.prompt(r#"["reset",{}]"#);
        begin.elapsed()
    };
    let mut echo = Prompted::echo();
    let floor = median(300, || {
        thread::sleep(Duration::from_millis(2));
        timed(&mut echo)
    });
    let busy_floor = median(300, || timed(&mut echo));
    let mut server = Prompted::server();
    let spare = median(300, || {
        server.add_map();
        thread::sleep(Duration::from_millis(2));
        timed(&mut server)
    });
    line("reset of a used view, spare ready", spare, floor, "echo");
    let fresh = median(300, || timed(&mut server));
    line("reset of a fresh view", fresh, busy_floor, "echo");
    let cycle = median(300, || {
        let begin = Instant::now();
        server.add_map();
        begin.elapsed()
    });
    line(
        "reset and add_fun without a pause",
        cycle,
        2.0 * busy_floor,
        "two echoes",
    );
}

/// Microseconds from the spawn to the first answer.
fn start(make: impl Fn() -> Prompted) -> f64 {
    median(200, || {
        let begin = Instant::now();
        let mut child = make();
        child.prompt(r#"["reset",{}]"#);
        begin.elapsed()
    })
}

fn memory_kib() -> u64 {
    let mut child = Prompted::server();
    child.add_map();
    child.prompt(&format!("[\"map_doc\",{}]", document(9_000)));
    thread::sleep(Duration::from_millis(5));
    let status = fs::read_to_string(format!("/proc/{}/status", child.child.id())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The floor: splits each line as the protocol does, and writes the document (or `true`) back; like the server, it
/// coalesces its output.
fn echo() {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let (mut read, mut written) = (Vec::new(), Vec::new());
    let mut chunk = vec![0; 1 << 16];
    loop {
        let count = input.read(&mut chunk).unwrap();
        if count == 0 {
            return;
        }
        read.extend_from_slice(&chunk[..count]);
        let mut start = 0;
        while let Some(length) = memchr::memchr(b'\n', &read[start..]) {
            let line = &read[start..start + length];
            let parts: Vec<&RawValue> = serde_json::from_slice(line).unwrap();
            let answer = parts.get(1).map_or("true", |part| part.get());
            written.extend_from_slice(answer.as_bytes());
            written.push(b'\n');
            start += length + 1;
        }
        read.drain(..start);
        output.write_all(&written).unwrap();
        output.flush().unwrap();
        written.clear();
    }
}
