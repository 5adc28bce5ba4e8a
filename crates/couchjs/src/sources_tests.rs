//! Random sources: what is told of them from their text, against what they do.

#![allow(clippy::unwrap_used)]

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::members::members_read;
use super::{Input, Options};
use test_random::TestRandom;

/// Pieces of code that a careless reader of sources takes for something else.
const PIECES: &[&str] = &[
    "emit(doc.a, 1);",
    "emit(doc.b / 2 / 3, '/');",
    "emit(doc.c++, doc.c);",
    "doc.d = 5; emit(doc.d);",
    "var of = 4; emit(of / doc.a / 1, \"/\");",
    "var await = 4; emit(await / doc.b / 1, '\"/');",
    "var yield = 4, let = 2; emit(yield / let / doc.c, '`/');",
    "emit(function() {} / 2 + \"/\" + doc.a);",
    "L: {} /\"/.test(doc.c) || emit(doc.c + \"\");",
    "emit('a\\\r\n' + doc.d, '\\\r\n/');",
    "emit(`${doc.a}/${`${/[`}/]/.test(doc.b)}`}` + `/`);",
    "if (doc.a) /'/.test(doc.e); emit(\"'\" + doc.e);",
    "(doc.a) / 2; emit(doc.b /1/ 2);",
    "var x = {return: 6, if: function(a) { return a; }}; emit(x.return / 2, x.if (doc.e) / 3);",
    "var y = x => {}\n/doc.f/.test('');",
    "emit([] / 1 + '/', doc.a ? /=/ : doc.b);",
    "emit({}.x / doc.c, '/');",
    "a = 1; a++ / 2; emit(a, doc.e);",
    "a = 2\n++a / 1; emit(a, doc.d);",
    "emit(1. / doc.a, '/' /* ' */);",
    "// doc'\r",
    "/* \" */",
    "/",
    "'",
    "\"",
    "`",
    "}",
    "{",
    "${",
    "doc.a /",
    "= doc.b;",
    "/ doc.e = 7;",
    "[doc.a] = [1];",
    "\n",
    ")",
    "(",
    "\\",
    "\u{2028}",
];

/// What stands around them.
const HEADS: &[(&str, &str)] = &[
    ("function(doc) {", "}"),
    ("function(doc) {", "} // '"),
    ("(doc) => {", "}"),
    ("(function(doc) {", "})"),
    ("function(doc) {", "} function(doc) { emit(doc.e) }"),
    ("function(doc) {", "} / 2"),
    ("function h() {} function(doc) {", "}"),
    ("var of = 1; of / 2\nfunction(doc) {", "}"),
];

struct Lines(io::Cursor<Vec<u8>>);

impl Read for Lines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Input for Lines {
    fn readable(&self) -> bool {
        true
    }
}

#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Vec<u8>>>);

impl Write for Answers {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Answers of the query server, without log lines.
fn answers(commands: &[Value]) -> Vec<Value> {
    let input: String = commands
        .iter()
        .map(|command| format!("{command}\n"))
        .collect();
    let output = Answers::default();
    let input = Lines(io::Cursor::new(input.into_bytes()));
    super::run(Options::default(), input, output.clone()).unwrap();
    let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|answer| answer[0] != "log").collect()
}

#[test]
fn a_function_does_the_same_whatever_is_told_from_its_source() {
    let mut random = TestRandom::for_test("a_function_does_the_same_whatever_is_told");
    let document = json!({"_id": "x", "a": 3, "b": 5, "c": 7, "d": 11, "e": "e'\"`", "f": 1});
    let mut compiled = 0;
    let mut named = 0;
    for _ in 0..150 {
        let sources: Vec<String> = (0..20)
            .map(|_| {
                let (head, tail) = random.one_of(HEADS);
                let count = 1 + random.below(5);
                let body: Vec<&str> = (0..count).map(|_| *random.one_of(PIECES)).collect();
                format!("{head} {} {tail}", body.join(" "))
            })
            .collect();
        let mut commands = Vec::new();
        for source in &sources {
            let mut seen = document.clone();
            if let Some(members) = members_read(source) {
                let kept = |name: &String| name == "_id" || members.contains(name.as_str());
                seen.as_object_mut().unwrap().retain(|name, _| kept(name));
            }
            // The word makes the document be frozen, as CouchDB freezes every one.
            let frozen = format!("{source}\n// delete");
            commands.extend([
                json!(["reset"]),
                json!(["add_fun", frozen]),
                json!(["map_doc", document]),
                json!(["reset"]),
                json!(["add_fun", source]),
                json!(["map_doc", seen]),
            ]);
        }
        let answers = answers(&commands);
        for (source, answers) in sources.iter().zip(answers.chunks(6)) {
            let is_compiled = answers[1] == json!(true);
            assert_eq!(answers[4] == json!(true), is_compiled, "{source}");
            assert_eq!(answers[5], answers[2], "{source}");
            compiled += usize::from(is_compiled);
            named += usize::from(is_compiled && members_read(source).is_some());
        }
    }
    assert!(compiled > 100 && named > 30, "{compiled} {named}");
}
