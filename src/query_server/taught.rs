//! A client's lessons to a process, kept to teach another process the same.
//!
//! SUMMARY   [`Taught`] keeps the lines that a process accepted and returns them in an order that leads to the same
//!           state: the last `reset`, libraries and functions since then, design documents.
//! PROMISES  Only accepted lines are kept, and the last `reset` even if refused. [`Taught::is_portable`] is false if
//!           the process's state may differ from the result of the lines: within a list, after an unknown command or
//!           a refused `reset`, and beyond [`TAUGHT_BYTES_MAX`] or [`TAUGHT_LINES_MAX`].
//! SOURCE    CouchDB's query servers: `reset` clears libraries and functions, and keeps design documents.
//! LIMITS    Global variables set by functions are not carried over; query servers do not promise to keep them.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use rustc_hash::FxHashMap;
use serde_json::value::RawValue;

use super::prompt::{Command, leaves_list_open, reset};

/// Maximum bytes of lines kept for one client.
const TAUGHT_BYTES_MAX: usize = 4 << 20;

/// Maximum lines kept for one client.
const TAUGHT_LINES_MAX: usize = 512;

/// Returns the client's timeout for lines, from its `reset`.
pub fn timeout_of(reset: &[u8]) -> Option<Duration> {
    #[derive(serde::Deserialize)]
    struct Config {
        timeout: u64,
    }
    let elements: Vec<&RawValue> = serde_json::from_slice(reset).ok()?;
    let config: Config = serde_json::from_str(elements.get(1)?.get()).ok()?;
    Some(Duration::from_millis(config.timeout))
}

fn taught_id(line: &[u8]) -> Option<String> {
    let elements: Vec<&RawValue> = serde_json::from_slice(line).ok()?;
    serde_json::from_str(elements.get(2)?.get()).ok()
}

/// One client's lessons.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taught {
    reset: Option<Bytes>,
    /// Libraries and functions since the last `reset`.
    views: Vec<Bytes>,
    /// Id -> the line.
    ddocs: FxHashMap<String, Bytes>,
    bytes: usize,
    bytes_max: usize,
    list_open: bool,
    /// Whether some are missing until the next `reset`.
    views_lost: bool,
    /// Whether some are missing permanently.
    ddocs_lost: bool,
}

impl Taught {
    /// Keeps at most this many bytes, and at most [`TAUGHT_BYTES_MAX`].
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max: bytes_max.min(TAUGHT_BYTES_MAX),
            ..Self::default()
        }
    }

    /// Returns whether another process can be brought to the same state.
    pub(crate) fn is_portable(&self) -> bool {
        !self.list_open && !self.views_lost && !self.ddocs_lost
    }

    /// Returns whether a list is open.
    pub(crate) fn is_list_open(&self) -> bool {
        self.list_open
    }

    /// Returns the client's timeout for lines, if its `reset` has one.
    pub(crate) fn patience(&self) -> Option<Duration> {
        timeout_of(self.reset.as_ref()?)
    }

    /// Records a command and its answer. `None`: the line is not a command.
    pub fn answered(&mut self, command: Option<Command>, line: &Bytes, answer: &[u8]) {
        let accepted = answer.trim_ascii() == b"true";
        match command {
            Some(Command::Reset) => self.reset_by(line, accepted),
            Some(Command::AddLib | Command::AddFun) if accepted => match self.keep(line) {
                Some(line) => self.views.push(line),
                None => self.views_lost = true,
            },
            Some(Command::Teach) => match taught_id(line) {
                Some(id) if accepted => self.learn(id, line),
                Some(_) => {}
                None => self.views_lost = true,
            },
            Some(Command::OpenList | Command::ListRow) => self.list_open = leaves_list_open(answer),
            Some(Command::Other) | None => self.views_lost = true,
            Some(Command::Forget) => self.ddocs_lost = true,
            // The process refused it, or it does not change state.
            Some(_) => {}
        }
    }

    fn reset_by(&mut self, line: &Bytes, accepted: bool) {
        let forgotten = self.views.drain(..).chain(self.reset.take());
        self.bytes -= forgotten.map(|line| line.len()).sum::<usize>();
        self.list_open = false;
        self.reset = self.keep(line);
        self.views_lost = !accepted || self.reset.is_none();
    }

    fn learn(&mut self, id: String, line: &Bytes) {
        if let Some(before) = self.ddocs.remove(&id) {
            self.bytes -= before.len();
        }
        match self.keep(line) {
            Some(line) => drop(self.ddocs.insert(id, line)),
            None => self.ddocs_lost = true,
        }
    }

    /// Copies a line, if there is room: it may be a small part of a larger buffer.
    fn keep(&mut self, line: &Bytes) -> Option<Bytes> {
        let lines = self.views.len() + self.ddocs.len() + 1;
        if self.bytes + line.len() > self.bytes_max || lines > TAUGHT_LINES_MAX {
            return None;
        }
        self.bytes += line.len();
        Some(Bytes::copy_from_slice(line))
    }

    /// Returns the accepted lines, in an order that teaches another process the same.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = &Bytes> {
        self.reset
            .iter()
            .chain(&self.views)
            .chain(self.ddocs.values())
    }

    /// Returns the lines that teach a process the same, each with its line feed, and their number. `config` is for
    /// the `reset`, if the client has sent none.
    pub fn lines(&self, config: &str) -> (Bytes, usize) {
        let first = self.reset.clone().unwrap_or_else(|| reset(config));
        let count = 1 + self.views.len() + self.ddocs.len();
        let mut lines = BytesMut::with_capacity(first.len() + self.bytes + count);
        let all = [&first].into_iter().chain(&self.views);
        for line in all.chain(self.ddocs.values()) {
            lines.extend_from_slice(line);
            lines.put_u8(b'\n');
        }
        (lines.freeze(), count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(taught: &mut Taught, line: &str, answer: &str) {
        let line = Bytes::copy_from_slice(line.as_bytes());
        taught.answered(Command::of(&line), &line, answer.as_bytes());
    }

    fn lines(taught: &Taught) -> Vec<String> {
        let (lines, count) = taught.lines("{}");
        let lines: Vec<_> = std::str::from_utf8(&lines)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        assert_eq!(lines.len(), count);
        lines
    }

    #[test]
    fn a_command_with_unknown_effects_cannot_be_repeated_elsewhere() {
        for (line, is_portable) in [
            (r#"["add_lib",{}]"#, true),
            (r#"["add_fun","f"]"#, true),
            (r#"["ddoc","new","_design/a",{}]"#, true),
            (r#"["ddoc","new",7,{}]"#, false),
            (r#"["ddoc","a",["shows","s"],[]]"#, true),
            (r#"["map_doc",{}]"#, true),
            (r#"["rereduce",[],[]]"#, true),
            (r#"["index_doc",{}]"#, true),
            (r#"["forget",{}]"#, false),
            (r#"["bogus"]"#, false),
            ("no JSON", false),
            ("", false),
        ] {
            let mut taught = Taught::new(1000);
            tell(&mut taught, line, "true");
            assert_eq!(taught.is_portable(), is_portable, "{line}");
        }
    }

    #[test]
    fn a_reset_forgets_functions_and_keeps_design_documents() {
        let mut taught = Taught::new(1000);
        assert_eq!(lines(&taught), [r#"["reset",{}]"#]);
        for line in [
            r#"["reset",{"a":1}]"#,
            r#"["add_lib",{}]"#,
            r#"["add_fun","f"]"#,
            r#"["ddoc","new","a",{"x":1}]"#,
            r#"["ddoc","new","a",{"x":2}]"#,
        ] {
            tell(&mut taught, line, "true");
        }
        let kept = [
            r#"["reset",{"a":1}]"#,
            r#"["add_lib",{}]"#,
            r#"["add_fun","f"]"#,
        ];
        assert_eq!(lines(&taught)[..3], kept);
        assert_eq!(lines(&taught)[3..], [r#"["ddoc","new","a",{"x":2}]"#]);
        tell(&mut taught, r#"["reset"]"#, "true");
        assert_eq!(
            lines(&taught),
            [r#"["reset"]"#, r#"["ddoc","new","a",{"x":2}]"#]
        );
        let bytes: usize = lines(&taught).iter().map(String::len).sum();
        assert_eq!(taught.bytes, bytes);
    }

    #[test]
    fn a_lesson_answered_with_an_error_was_not_learned() {
        let mut taught = Taught::new(1000);
        tell(
            &mut taught,
            r#"["add_fun","}"]"#,
            r#"["error","compilation_error","x"]"#,
        );
        tell(
            &mut taught,
            r#"["ddoc","new","a",7]"#,
            r#"["error","bad","x"]"#,
        );
        assert_eq!(lines(&taught), [r#"["reset",{}]"#]);
        assert!(taught.is_portable());
        tell(&mut taught, r#"["reset"]"#, r#"["error","no","x"]"#);
        assert!(!taught.is_portable());
        tell(&mut taught, r#"["reset"]"#, "true");
        assert!(taught.is_portable());
    }

    #[test]
    fn a_list_is_carried_to_its_end_by_one_process() {
        let mut taught = Taught::new(1000);
        tell(
            &mut taught,
            r#"["ddoc","a",["lists","l"],[]]"#,
            r#"["start",[],{}]"#,
        );
        assert!(!taught.is_portable());
        tell(&mut taught, r#"["list_row",{}]"#, r#"["chunks",[]]"#);
        assert!(!taught.is_portable());
        tell(&mut taught, r#"["list_end"]"#, r#"["end",[]]"#);
        assert!(taught.is_portable());
    }

    #[test]
    fn an_unknown_command_may_have_taught_something_until_the_next_reset() {
        let mut taught = Taught::new(1000);
        tell(&mut taught, r#"["remember","this"]"#, "true");
        assert!(!taught.is_portable());
        tell(&mut taught, r#"["reset"]"#, "true");
        assert!(taught.is_portable());
    }

    #[test]
    fn too_many_lessons_to_keep_are_not_portable() {
        let mut taught = Taught::new(60);
        tell(&mut taught, r#"["reset"]"#, "true");
        tell(
            &mut taught,
            &format!("[\"add_fun\",\"{}\"]", "x".repeat(60)),
            "true",
        );
        assert!(!taught.is_portable());
        tell(&mut taught, r#"["reset"]"#, "true");
        assert!(taught.is_portable());
        let ddoc = format!("[\"ddoc\",\"new\",\"a\",{{\"x\":\"{}\"}}]", "x".repeat(60));
        tell(&mut taught, &ddoc, "true");
        tell(&mut taught, r#"["reset"]"#, "true");
        assert!(!taught.is_portable());
        let mut many = Taught::new(usize::MAX);
        for _ in 0..TAUGHT_LINES_MAX {
            tell(&mut many, r#"["add_fun","f"]"#, "true");
        }
        assert!(many.is_portable());
        tell(&mut many, r#"["add_fun","f"]"#, "true");
        assert!(!many.is_portable());
    }

    #[test]
    fn the_timeout_of_a_line_is_read_from_the_reset() {
        let timeout = |line: &str| timeout_of(line.as_bytes());
        let told = r#"["reset",{"reduce_limit":true,"timeout":5000}]"#;
        assert_eq!(timeout(told), Some(Duration::from_secs(5)));
        assert_eq!(timeout(r#"["reset",{"reduce_limit":true}]"#), None);
        assert_eq!(timeout(r#"["reset"]"#), None);
        assert_eq!(timeout("["), None);
    }
}
