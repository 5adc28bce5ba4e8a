//! Tests of the query server. Those in this file compare random functions' answers with and without optimizations.

#![allow(clippy::unwrap_used)]

mod broken;
mod console;
mod generator;
mod hints;
mod isolates;
mod pieces;
mod places;
mod reported;
mod returned;

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::members::members_read;
use super::reading::only_reads;
use super::{Destination, Input, Options, ProcessStatus};
use generator::source;
use test_support::TestRandom;

const SOURCES: usize = 6000;

/// Sources per query server.
const BATCH: usize = 100;

/// Commands before the documents.
const COMMANDS_BEFORE: usize = 3;

/// Bytes of one read.
const READ_BYTES: u64 = 64 << 10;

struct Lines(io::Cursor<Vec<u8>>);

impl Input for Lines {
    fn readable(&self) -> bool {
        true
    }

    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        (&mut self.0).take(READ_BYTES).read_to_end(buffer)
    }
}

#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Vec<u8>>>);

impl Destination for Answers {}

impl Write for Answers {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A query server's answers, each with the log lines before it.
fn answers(optimize_functions: bool, commands: &[Value]) -> Vec<String> {
    let input: String = commands
        .iter()
        .map(|command| format!("{command}\n"))
        .collect();
    let options = Options {
        optimize_functions,
        ..Options::default()
    };
    let output = Answers::default();
    let input = Lines(io::Cursor::new(input.into_bytes()));
    let status = ProcessStatus::open();
    super::run(options, None, status, input, output.clone(), || Ok(())).unwrap();
    let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
    let mut answers = Vec::new();
    let mut lines = String::new();
    for line in text.lines() {
        lines += line;
        if !line.starts_with("[\"log\",") {
            answers.push(std::mem::take(&mut lines));
        }
    }
    answers
}

fn documents() -> [Value; 3] {
    [
        json!({"_id": "x", "a": 3, "b": 5, "c": 7, "d": 11, "e": "e'\"`", "f": 1, "$f": true, "\u{e9}": 2,
               "tags": ["q", "p"], "o": {"n": [1, {"m": 2}]}, "doc": {"a": 1}, "if": 9}),
        json!({"_id": "y", "a": "text", "b": [], "tags": [], "o": null, "length": 2}),
        json!({"_id": "z", "constructor": 1, "toString": 0}),
    ]
}

/// The commands for a source; `optimize` sends only `_id` and members that the source reads.
fn commands(source: &str, optimize: bool) -> Vec<Value> {
    let members = optimize.then(|| members_read(source)).flatten();
    let library = json!({"m": "exports.change = function(doc) { doc.a = 'changed'; }"});
    let mut commands = vec![
        json!(["reset"]),
        json!(["add_lib", library]),
        json!(["add_fun", source]),
    ];
    for mut document in documents() {
        if let Some(members) = &members {
            let kept = |name: &String| name == "_id" || members.contains(name.as_str());
            document
                .as_object_mut()
                .unwrap()
                .retain(|name, _| kept(name));
        }
        commands.push(json!(["map_doc", document]));
    }
    let rows = json!([[["k", "x"], 3], [[[1, "m"], "y"], {"a": 1}]]);
    commands.push(json!(["reduce", [source], rows]));
    commands
}

/// Counts by kind.
#[derive(Default)]
struct Count {
    compiled: usize,
    reading: usize,
    named: usize,
}

fn compare(sources: &[String]) -> Count {
    let per_source = COMMANDS_BEFORE + documents().len() + 1;
    let answers = [false, true].map(|optimize| {
        let commands = sources.iter().flat_map(|source| commands(source, optimize));
        let commands: Vec<Value> = commands.collect();
        let answers = answers(optimize, &commands);
        assert_eq!(answers.len(), commands.len(), "each command has an answer");
        answers
    });
    let mut count = Count::default();
    let [plain, optimized] = answers.each_ref().map(|all| all.chunks(per_source));
    for ((source, plain), optimized) in sources.iter().zip(plain).zip(optimized) {
        assert_eq!(optimized, plain, "{source}");
        if plain[COMMANDS_BEFORE - 1] == "true" {
            count.compiled += 1;
            count.reading += usize::from(only_reads(source));
            count.named += usize::from(members_read(source).is_some());
        }
    }
    count
}

#[test]
fn optimizations_do_not_change_answers() {
    let mut random = TestRandom::for_test("optimizations_do_not_change_answers");
    let sources: Vec<String> = (0..SOURCES)
        .map(|number| source(&mut random, number))
        .collect();
    let batches = sources.chunks(BATCH);
    let half = batches.len() / 2;
    let count = |batches: &mut dyn Iterator<Item = &[String]>| {
        batches
            .map(compare)
            .fold(Count::default(), |all, count| Count {
                compiled: all.compiled + count.compiled,
                reading: all.reading + count.reading,
                named: all.named + count.named,
            })
    };
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| count(&mut batches.clone().take(half)));
        let second = count(&mut batches.clone().skip(half));
        (first.join().unwrap(), second)
    });
    let [compiled, reading, named] = [
        first.compiled + second.compiled,
        first.reading + second.reading,
        first.named + second.named,
    ];
    println!("{compiled} of {SOURCES} compile: {reading} only read, {named} read known members");
    assert!(compiled > SOURCES / 3 && reading > SOURCES / 8 && named > SOURCES / 40);
}
