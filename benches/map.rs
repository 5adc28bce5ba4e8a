//! `settee map` from standard input to standard output, compared with the query server that does its work: one
//! `settee couchjs` with full pipes, pinned to one core together with its driver; and with the same view in ten lines
//! of Node and in the SQL of DuckDB, run from Python. Node and DuckDB are skipped if not installed.
//!
//! `cargo bench --bench map`. CPU times are those of all processes of a run, `settee` and its children; other load
//! changes them less than wall-clock times. `SETTEE_BENCH_PROGRAM` names another build to measure,
//! `SETTEE_BENCH_PYTHON` the Python that has DuckDB.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const DOCUMENTS: usize = 100_000;
/// Odd, because the median of the rounds' ratios is printed.
const ROUNDS: usize = 9;
const WRITE_BYTES: usize = 64 * 1024;

/// USER_HZ, the unit of CPU times in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

const MAP: &str =
    "function(doc) { if (doc.type === 'order') { emit([doc.customer, doc.date], doc.total); } }";

/// The same map, but the fields that it reads cannot be determined: documents are sent whole, as they always are to
/// the raw child.
const MAP_WHOLE: &str = "function(d) { var doc = d; if (doc.type === 'order') { emit([doc.customer, doc.date], doc.total); } }";

/// The same view in Node: rows ordered by key, then document.
const NODE: &str = r#"
const rows = [];
const lines = require("readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const doc = JSON.parse(line);
  if (doc.type === "order") rows.push([doc.customer, doc.date, doc._id, doc.total]);
});
lines.on("close", () => {
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  rows.sort((a, b) => order(a[0], b[0]) || order(a[1], b[1]) || order(a[2], b[2]));
  const text = rows.map((row) => JSON.stringify({ key: row.slice(0, 2), id: row[2], value: row[3] }));
  process.stdout.write(text.join("\n") + "\n");
});
"#;

/// The same view in SQL.
const DUCKDB: &str = r#"
import duckdb
duckdb.sql("""copy (
  select [customer, date] as key, _id as id, total as value
  from read_json('/dev/stdin', format = 'newline_delimited', columns = {
    _id: 'VARCHAR', type: 'VARCHAR', customer: 'VARCHAR', date: 'VARCHAR', total: 'DOUBLE'})
  where type = 'order' order by customer, date, id
) to '/dev/stdout' (format json)""")
"#;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("--drive") => drive(),
        _ => report(),
    }
}

fn settee() -> String {
    std::env::var("SETTEE_BENCH_PROGRAM")
        .unwrap_or_else(|_| env!("CARGO_BIN_EXE_settee").to_owned())
}

/// Documents of about 300 bytes, one per line, each between `before` and `after`.
fn documents((before, after): (&str, &str)) -> String {
    let mut text = String::with_capacity(DOCUMENTS * 330);
    let note = "x".repeat(96);
    for number in 0..DOCUMENTS {
        let (customer, day) = (number * 7919 % 997, number % 28 + 1);
        writeln!(
            text,
            "{before}{{\"_id\":\"order-{number:08}\",\"_rev\":\"1-9f3c2a\",\"type\":\"order\",\
             \"customer\":\"customer {customer:03}\",\"date\":\"2026-03-{day:02}\",\
             \"total\":{}.25,\"paid\":{},\"note\":\"{note}\",\
             \"lines\":[{{\"sku\":\"A{customer}\",\"qty\":2}},{{\"sku\":\"B9\",\"qty\":1}}]}}{after}",
            number % 500,
            number % 3 == 0
        )
        .unwrap();
    }
    text
}

/// The times of one run.
#[derive(Clone, Copy, Debug)]
struct Figures {
    seconds: f64,
    /// CPU seconds of all processes of the run.
    cpu: f64,
}

impl Figures {
    fn best(figures: &[Self]) -> Self {
        let least = |of: fn(&Self) -> f64| figures.iter().map(of).fold(f64::MAX, f64::min);
        Self {
            seconds: least(|figure| figure.seconds),
            cpu: least(|figure| figure.cpu),
        }
    }

    /// Prints the best of some rounds, and the median of their ratios to the floor of the same round.
    fn print(what: &str, rounds: &[Self], floors: &[Self]) {
        let documents = DOCUMENTS as f64;
        let best = Self::best(rounds);
        let pairs = rounds.iter().zip(floors);
        let mut ratios: Vec<f64> = pairs
            .map(|(round, floor)| floor.seconds / round.seconds)
            .collect();
        ratios.sort_by(f64::total_cmp);
        println!(
            "{what:<44} {:>8.0} documents/s   {:>5.2} us CPU each   throughput {:>4.2} ({:.2} to {:.2}) of the raw child's",
            documents / best.seconds,
            best.cpu * 1e6 / documents,
            ratios[ratios.len() / 2],
            ratios[0],
            ratios[ratios.len() - 1],
        );
    }
}

fn report() {
    let folder = tempfile::tempdir().unwrap();
    let function = folder.path().join("map.js");
    fs::write(&function, MAP).unwrap();
    let whole = folder.path().join("whole.js");
    fs::write(&whole, MAP_WHOLE).unwrap();
    let whole = whole.to_str().unwrap();
    let one = folder.path().join("one.toml");
    fs::write(&one, "[query_server_config]\nos_process_limit = 1\n").unwrap();
    let (function, one) = (function.to_str().unwrap(), one.to_str().unwrap());
    let input = documents(("", ""));
    println!(
        "{DOCUMENTS} documents of {} B: the best of {ROUNDS} rounds, and the median ratio of each round to its floor",
        input.len() / DOCUMENTS
    );
    let plain = ["map", "--map", function];
    let kinds: [(&str, Vec<&str>); 6] = [
        ("map, as many processes as cores", plain.to_vec()),
        ("map, whole documents", vec!["map", "--map", whole]),
        ("map, 1 process", [&plain[..], &["-c", one]].concat()),
        ("map --unsorted", [&plain[..], &["--unsorted"]].concat()),
        (
            "map --reduce _sum",
            [&plain[..], &["--reduce", "_sum"]].concat(),
        ),
        (
            "map --reduce _sum --group",
            [&plain[..], &["--reduce", "_sum", "--group"]].concat(),
        ),
    ];
    let python = std::env::var("SETTEE_BENCH_PYTHON").unwrap_or_else(|_| "python3".into());
    let others = [
        ("Node", "node", "-e", NODE, "0"),
        ("DuckDB", &python, "-c", DUCKDB, "import duckdb"),
    ];
    let others = others.map(|(what, program, option, text, probe)| {
        let probed = Command::new(program).args([option, probe]).output();
        let is_there = probed.is_ok_and(|output| output.status.success());
        if !is_there {
            println!("{what} is not installed: skipped");
        }
        is_there.then_some((what, program, [option, text]))
    });
    let mut beside = [Vec::new(), Vec::new()];
    let mut raw = Vec::new();
    let mut mapped = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS {
        raw.push(raw_child());
        for ((_, arguments), figures) in kinds.iter().zip(&mut mapped) {
            figures.push(run(&settee(), arguments, &input));
        }
        for (other, figures) in others.iter().zip(&mut beside) {
            if let Some((_, program, arguments)) = other {
                figures.push(run(program, arguments, &input));
            }
        }
    }
    Figures::print("raw child and its driver on one core", &raw, &raw);
    for ((what, _), figures) in kinds.iter().zip(&mapped) {
        Figures::print(what, figures, &raw);
    }
    for (other, figures) in others.iter().zip(&beside) {
        if let Some((what, ..)) = other {
            Figures::print(what, figures, &raw);
            let pairs = mapped[0].iter().zip(figures);
            let mut ratios: Vec<f64> = pairs.map(|(map, other)| map.cpu / other.cpu).collect();
            ratios.sort_by(f64::total_cmp);
            let middle = ratios[ratios.len() / 2];
            println!("{:<44} map uses {middle:>4.2} of its CPU time", "");
        }
    }
}

/// Runs a program with these arguments over the input.
fn run(program: &str, arguments: &[&str], input: &str) -> Figures {
    let before = cpu_of_ended_children();
    let start = Instant::now();
    let mut child = Command::new(program);
    child.args(arguments);
    let printed = pump(child, input);
    let seconds = start.elapsed().as_secs_f64();
    assert!(printed > 0, "nothing was printed");
    Figures {
        seconds,
        cpu: (cpu_of_ended_children() - before).as_secs_f64(),
    }
}

/// Writes the input to a child and reads its output, at the same time; returns the number of lines read.
fn pump(mut command: Command, input: &str) -> usize {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child: Child = piped.spawn().unwrap();
    let mut stdin: ChildStdin = child.stdin.take().unwrap();
    let mut stdout: ChildStdout = child.stdout.take().unwrap();
    let lines = thread::scope(|scope| {
        scope.spawn(move || {
            for piece in input.as_bytes().chunks(WRITE_BYTES) {
                stdin.write_all(piece).unwrap();
            }
        });
        let mut buffer = vec![0; WRITE_BYTES];
        let mut lines = 0;
        loop {
            match stdout.read(&mut buffer).unwrap() {
                0 => break lines,
                length => lines += memchr::memchr_iter(b'\n', &buffer[..length]).count(),
            }
        }
    });
    assert!(child.wait().unwrap().success());
    lines
}

/// Runs this program in a second process, pinned to one core, to drive the raw child from there.
fn raw_child() -> Figures {
    let this = std::env::current_exe().unwrap();
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", "0"]).arg(this).arg("--drive");
    let output = pinned.output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<f64> = text
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    Figures {
        seconds: numbers[0],
        cpu: numbers[1],
    }
}

/// Drives the raw child and prints the seconds that this took, and the CPU seconds of child and driver.
fn drive() {
    let mut input = format!("[\"reset\",{{}}]\n[\"add_fun\",{MAP:?}]\n");
    input.push_str(&documents(("[\"map_doc\",", "]")));
    let own = own_cpu();
    let start = Instant::now();
    let mut child = Command::new(settee());
    child.arg("couchjs");
    assert_eq!(pump(child, &input), DOCUMENTS + 2);
    let seconds = start.elapsed().as_secs_f64();
    let cpu = own_cpu() - own + cpu_of_ended_children();
    println!("{seconds} {}", cpu.as_secs_f64());
}

/// CPU time of children that were waited for, and of their children.
fn cpu_of_ended_children() -> Duration {
    cpu_fields(13)
}

fn own_cpu() -> Duration {
    cpu_fields(11)
}

/// The sum of two neighbouring fields of `/proc/self/stat`, counted after the name.
fn cpu_fields(first: usize) -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = text.rsplit_once(") ").unwrap();
    let ticks: f64 = fields
        .split(' ')
        .skip(first)
        .take(2)
        .map(|field| field.parse::<f64>().unwrap())
        .sum();
    Duration::from_secs_f64(ticks / TICKS_PER_SECOND)
}
