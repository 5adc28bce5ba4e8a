//! Plays the transcripts of `tests/transcripts` against `settee couchjs`.
//!
//! A case starts the server once, plays its steps and compares what comes back. Steps: `in` sends a
//! value as compact JSON, `in_raw` sends text as it is (`"eol": ""` closes the input after it),
//! `out` expects a line of equal JSON, `out_raw` exactly this line, `closed` the end of the output.
//! Without `closed` the input is closed after the last step, and the server has to end without
//! another line. `{"$re"}`, `{"$any"}` and `{"$any_of"}` loosen an expectation, `{"$repeat",
//! "times"}` stands for a long string. `compare` makes the order of keys count, or leaves out log
//! lines.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use regex::Regex;
use serde_json::{Map, Value};

/// How long a server may take for a line, or to end.
const DEADLINE: Duration = Duration::from_secs(20);

macro_rules! categories {
    ($($test:ident => $file:literal,)*) => {
        $(
            #[test]
            fn $test() {
                play_file($file);
            }
        )*

        #[test]
        fn every_file_of_transcripts_is_played() {
            let known = [$($file),*];
            for entry in std::fs::read_dir(directory()).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let stem = name.strip_suffix(".jsonl").unwrap_or(&name);
                assert!(known.contains(&stem), "{name} has no test");
            }
        }
    };
}

categories! {
    compile => "compile",
    design_documents => "ddoc",
    filters => "ddoc-filters",
    lists => "ddoc-lists",
    rewrites => "ddoc-rewrites",
    shows => "ddoc-shows",
    updates => "ddoc-updates",
    validation => "ddoc-validate",
    index => "index",
    language => "language",
    modules => "lib",
    log => "log",
    map => "map",
    policy => "policy",
    protocol => "protocol",
    reduce => "reduce",
    reset => "reset",
    sandbox => "sandbox",
    own_compile => "own-compile",
    own_ddoc => "own-ddoc",
    own_ddoc_filters => "own-ddoc-filters",
    own_ddoc_lists => "own-ddoc-lists",
    own_ddoc_rewrites => "own-ddoc-rewrites",
    own_ddoc_shows => "own-ddoc-shows",
    own_ddoc_updates => "own-ddoc-updates",
    own_ddoc_validate => "own-ddoc-validate",
    own_index => "own-index",
    own_language => "own-language",
    own_lib => "own-lib",
    own_log => "own-log",
    own_map => "own-map",
    own_policy => "own-policy",
    own_protocol => "own-protocol",
    own_reduce => "own-reduce",
    own_reset => "own-reset",
    own_sandbox => "own-sandbox",
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

fn play_file(name: &str) {
    let text = std::fs::read_to_string(directory().join(format!("{name}.jsonl"))).unwrap();
    let cases = text.lines().filter(|line| !line.trim().is_empty());
    let cases: Vec<Value> = cases
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!cases.is_empty(), "{name} holds no case");
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            play(case)
                .err()
                .map(|problem| format!("{}: {problem}", case["id"]))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

/// A running server; its lines come from a thread, so that neither side blocks the other.
struct Server {
    child: std::process::Child,
    lines: Receiver<Vec<u8>>,
    feed: Option<std::sync::mpsc::Sender<Vec<u8>>>,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_settee"));
        command
            .arg("couchjs")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (feed, fed) = channel::<Vec<u8>>();
        // A server that has ended does not read any more; that is for the case to judge.
        thread::spawn(move || fed.iter().all(|bytes| input.write_all(&bytes).is_ok()));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n') {
                if line.is_err() || sender.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Server {
            child,
            lines,
            feed: Some(feed),
        }
    }

    fn send(&mut self, bytes: Vec<u8>) {
        let _ = self.feed.as_ref().unwrap().send(bytes);
    }

    fn close(&mut self) {
        self.feed = None;
    }

    /// The next line, `None` at the end of the output.
    fn line(&self) -> Result<Option<String>, String> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => Ok(Some(
                String::from_utf8(line).map_err(|error| error.to_string())?,
            )),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err("no line before the deadline".to_owned()),
        }
    }

    fn end(&mut self) -> Result<ExitStatus, String> {
        let begin = Instant::now();
        while begin.elapsed() < DEADLINE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Ok(status);
            }
            thread::yield_now();
        }
        Err("the server does not end".to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn play(case: &Value) -> Result<(), String> {
    let ordered = case["compare"]["key_order"] == "exact";
    let skip_logs = case["compare"]["logs"] == "ignored";
    let mut server = Server::start();
    for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let step = step.as_object().unwrap();
        play_step(&mut server, step, ordered, skip_logs)
            .map_err(|problem| format!("step {}: {problem}", index + 1))?;
    }
    server.close();
    if let Some(line) = server.line()? {
        return Err(format!("at the end: unexpected line {}", shorten(&line)));
    }
    let status = server.end()?.code();
    match case["exit"].as_i64() {
        Some(expected) if status != Some(expected as i32) => {
            Err(format!("exit status: expected {expected}, got {status:?}"))
        }
        _ => Ok(()),
    }
}

fn play_step(
    server: &mut Server,
    step: &Map<String, Value>,
    ordered: bool,
    skip_logs: bool,
) -> Result<(), String> {
    if let Some(bytes) = wire(step) {
        server.send(bytes);
        if step.get("eol").is_some_and(|eol| eol == "") {
            server.close();
        }
        return Ok(());
    }
    let mut line = server.line()?;
    while skip_logs
        && line
            .as_ref()
            .is_some_and(|line| line.starts_with("[\"log\""))
    {
        line = server.line()?;
    }
    if step.contains_key("closed") {
        return line.map_or(Ok(()), |line| {
            Err(format!("expected the end, got {}", shorten(&line)))
        });
    }
    let line = line.ok_or("the output ended")?;
    if let Some(expected) = step.get("out_raw") {
        let equal = expected.as_str() == Some(&line);
        return if equal {
            Ok(())
        } else {
            Err(format!("expected {expected}, got {line}"))
        };
    }
    let got: Value = parse(&line).map_err(|_| format!("not JSON: {}", shorten(&line)))?;
    match difference(&expand(&step["out"]), &got, ordered, "$") {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

/// Parses JSON of any depth.
fn parse(line: &str) -> serde_json::Result<Value> {
    serde_json::from_str(line)
}

/// What an input step puts on the wire; `None` for other steps.
fn wire(step: &Map<String, Value>) -> Option<Vec<u8>> {
    let text = if let Some(value) = step.get("in") {
        expand(value).to_string()
    } else {
        match expand(step.get("in_raw")?) {
            Value::String(text) => text,
            parts => parts
                .as_array()
                .unwrap()
                .iter()
                .map(|part| part.as_str().unwrap())
                .collect(),
        }
    };
    let eol = step.get("eol").map_or("\n", |eol| eol.as_str().unwrap());
    Some((text + eol).into_bytes())
}

/// Replaces `$repeat` objects by the strings they stand for.
fn expand(value: &Value) -> Value {
    match value {
        Value::Object(object) => match (object.get("$repeat"), object.get("times")) {
            (Some(text), Some(times)) => {
                let times = times.as_u64().unwrap() as usize;
                Value::String(text.as_str().unwrap().repeat(times))
            }
            _ => Value::Object(object.iter().map(|(k, v)| (k.clone(), expand(v))).collect()),
        },
        Value::Array(items) => Value::Array(items.iter().map(expand).collect()),
        other => other.clone(),
    }
}

/// `None` when `got` satisfies `want`, otherwise a sentence about the first difference.
fn difference(want: &Value, got: &Value, ordered: bool, at: &str) -> Option<String> {
    let mismatch = || {
        Some(format!(
            "{at}: expected {}, got {}",
            short(want),
            short(got)
        ))
    };
    match (want, got) {
        (Value::Object(special), _) if special.len() == 1 && special.contains_key("$any") => None,
        (Value::Object(special), _) if special.len() == 1 && special.contains_key("$any_of") => {
            let choices = special["$any_of"].as_array().unwrap();
            let fits = choices
                .iter()
                .any(|want| difference(want, got, ordered, at).is_none());
            if fits { None } else { mismatch() }
        }
        (Value::Object(special), _) if special.len() == 1 && special.contains_key("$re") => {
            let expression = format!("^(?:{})$", special["$re"].as_str().unwrap());
            let fits = got
                .as_str()
                .is_some_and(|got| Regex::new(&expression).unwrap().is_match(got));
            if fits { None } else { mismatch() }
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs
                .filter_map(|(i, (a, b))| difference(a, b, ordered, &format!("{at}[{i}]")))
                .next()
        }
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
            if ordered && !a.keys().eq(b.keys()) {
                return mismatch();
            }
            let compare = |(key, a): (&String, &Value)| match b.get(key) {
                Some(b) => difference(a, b, ordered, &format!("{at}.{key}")),
                None => Some(format!("{at}: missing key {key}")),
            };
            a.iter().filter_map(compare).next()
        }
        (a, b) if a == b => None,
        _ => mismatch(),
    }
}

fn short(value: &Value) -> String {
    shorten(&value.to_string())
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(240) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
