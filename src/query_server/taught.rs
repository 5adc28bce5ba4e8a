//! What a client has taught a process, so that another process can be taught the same.
//!
//! SUMMARY   [`lesson_of`] tells what a command does to the process that gets it; [`Taught`] keeps the
//!           lines that the process accepted and gives them back in an order that leads to the same
//!           state: the last `reset`, libraries and functions since then, design documents.
//! PROMISES  A line that was not accepted is not kept. Whenever the state of the process may be another
//!           than the lines tell, [`Taught::is_portable`] is false: in a list, after a command that
//!           nobody here knows, and beyond [`TAUGHT_BYTES_MAX`] or [`TAUGHT_LINES_MAX`].
//! SOURCE    CouchDB's query servers: `reset` clears libraries and functions, and keeps design documents.
//! LIMITS    What functions leave behind in global variables is not carried over; no query server
//!           promises that it stays.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use rustc_hash::FxHashMap;
use serde_json::value::RawValue;

use super::prompt::{PromptClass, PromptKind, kind_and_class_of, leaves_list_open, reset};

/// Most bytes of lines that are kept of one client.
pub(crate) const TAUGHT_BYTES_MAX: usize = 4 << 20;

/// Most lines that are kept of one client.
pub(crate) const TAUGHT_LINES_MAX: usize = 512;

/// What a command does to the process that gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// Nothing.
    None,
    /// `reset`.
    Reset,
    /// `add_lib` or `add_fun`.
    View,
    /// `ddoc new`, with the design document's id.
    Ddoc(String),
    /// A command of a list: the answer tells whether it goes on.
    List,
    /// Nobody here knows.
    Unknown,
}

/// Tells what a command does.
pub(crate) fn lesson_of(line: &[u8]) -> Lesson {
    match kind_and_class_of(line) {
        Some((PromptKind::Teach, _)) => taught_id(line).map_or(Lesson::Unknown, Lesson::Ddoc),
        Some((PromptKind::OpenList | PromptKind::ListRow, _)) => Lesson::List,
        Some((_, PromptClass::Reset)) => Lesson::Reset,
        Some((_, PromptClass::AddFun)) => Lesson::View,
        Some((_, PromptClass::Other)) | None => match command_of(line).as_deref() {
            Some("add_lib") => Lesson::View,
            Some("index_doc" | "nouveau_index_doc") => Lesson::None,
            _ => Lesson::Unknown,
        },
        Some(_) => Lesson::None,
    }
}

/// Returns the time that the client gives the process for each line, from its `reset`.
pub fn timeout_of(reset: &[u8]) -> Option<Duration> {
    #[derive(serde::Deserialize)]
    struct Config {
        timeout: u64,
    }
    let elements: Vec<&RawValue> = serde_json::from_slice(reset).ok()?;
    let config: Config = serde_json::from_str(elements.get(1)?.get()).ok()?;
    Some(Duration::from_millis(config.timeout))
}

fn command_of(line: &[u8]) -> Option<String> {
    let elements: Vec<&RawValue> = serde_json::from_slice(line).ok()?;
    serde_json::from_str(elements.first()?.get()).ok()
}

fn taught_id(line: &[u8]) -> Option<String> {
    let elements: Vec<&RawValue> = serde_json::from_slice(line).ok()?;
    serde_json::from_str(elements.get(2)?.get()).ok()
}

/// What one client has taught.
#[derive(Clone, Debug)]
pub(crate) struct Taught {
    reset: Option<Bytes>,
    /// Libraries and functions since the last `reset`.
    views: Vec<Bytes>,
    /// Id -> the line.
    ddocs: FxHashMap<String, Bytes>,
    bytes: usize,
    bytes_max: usize,
    list_open: bool,
    /// Whether something is missing until the next `reset`.
    views_lost: bool,
    /// Whether something is missing for good.
    ddocs_lost: bool,
}

impl Taught {
    /// Keeps at most this many bytes, and never more than [`TAUGHT_BYTES_MAX`].
    pub fn new(bytes_max: usize) -> Self {
        Self {
            reset: None,
            views: Vec::new(),
            ddocs: FxHashMap::default(),
            bytes: 0,
            bytes_max: bytes_max.min(TAUGHT_BYTES_MAX),
            list_open: false,
            views_lost: false,
            ddocs_lost: false,
        }
    }

    /// Returns whether another process can be brought to the same state.
    pub(crate) fn is_portable(&self) -> bool {
        !self.list_open && !self.views_lost && !self.ddocs_lost
    }

    /// Takes note of a command and the line that answered it.
    pub fn answered(&mut self, lesson: Lesson, line: &Bytes, answer: &[u8]) {
        let accepted = answer.trim_ascii() == b"true";
        match lesson {
            Lesson::None => {}
            Lesson::Reset => self.reset_by(line, accepted),
            Lesson::View if accepted => match self.keep(line) {
                Some(line) => self.views.push(line),
                None => self.views_lost = true,
            },
            Lesson::Ddoc(id) if accepted => self.learn(id, line),
            // It said no, and is as it was before.
            Lesson::View | Lesson::Ddoc(_) => {}
            Lesson::List => self.list_open = leaves_list_open(answer),
            Lesson::Unknown => self.views_lost = true,
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

    /// Copies a line, which may be a small piece of what was read with it, if there is room for it.
    fn keep(&mut self, line: &Bytes) -> Option<Bytes> {
        let lines = self.views.len() + self.ddocs.len() + 1;
        if self.bytes + line.len() > self.bytes_max || lines > TAUGHT_LINES_MAX {
            return None;
        }
        self.bytes += line.len();
        Some(Bytes::copy_from_slice(line))
    }

    /// Returns the lines that teach a process the same, each with its line feed, and how many they are.
    /// `config` is what a `reset` carries as long as the client has sent none.
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
        taught.answered(lesson_of(&line), &line, answer.as_bytes());
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
    fn a_command_is_told_by_what_it_does_to_the_process() {
        for (line, lesson) in [
            (r#"["reset"]"#, Lesson::Reset),
            (r#"["add_lib",{}]"#, Lesson::View),
            (r#"["add_fun","f"]"#, Lesson::View),
            (
                r#"["ddoc","new","_design/a",{}]"#,
                Lesson::Ddoc("_design/a".into()),
            ),
            (r#"["ddoc","new",7,{}]"#, Lesson::Unknown),
            (r#"["ddoc","a",["lists","l"],[]]"#, Lesson::List),
            (r#"["list_row",{}]"#, Lesson::List),
            (r#"["list_end"]"#, Lesson::List),
            (r#"["ddoc","a",["shows","s"],[]]"#, Lesson::None),
            (r#"["map_doc",{}]"#, Lesson::None),
            (r#"["rereduce",[],[]]"#, Lesson::None),
            (r#"["index_doc",{}]"#, Lesson::None),
            (r#"["bogus"]"#, Lesson::Unknown),
            ("no JSON", Lesson::Unknown),
            ("", Lesson::Unknown),
        ] {
            assert_eq!(lesson_of(line.as_bytes()), lesson, "{line}");
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
    fn what_was_answered_with_an_error_was_not_taught() {
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
    fn a_command_that_nobody_knows_may_have_taught_something_until_the_next_reset() {
        let mut taught = Taught::new(1000);
        tell(&mut taught, r#"["remember","this"]"#, "true");
        assert!(!taught.is_portable());
        tell(&mut taught, r#"["reset"]"#, "true");
        assert!(taught.is_portable());
    }

    #[test]
    fn what_is_too_much_to_keep_is_told() {
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
    fn the_time_for_a_line_is_that_of_the_reset() {
        let timeout = |line: &str| timeout_of(line.as_bytes());
        let told = r#"["reset",{"reduce_limit":true,"timeout":5000}]"#;
        assert_eq!(timeout(told), Some(Duration::from_secs(5)));
        assert_eq!(timeout(r#"["reset",{"reduce_limit":true}]"#), None);
        assert_eq!(timeout(r#"["reset"]"#), None);
        assert_eq!(timeout("["), None);
    }
}
