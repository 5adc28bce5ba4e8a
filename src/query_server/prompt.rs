//! The commands of the query-server protocol: writing and classifying them.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use strum::{IntoStaticStr, VariantArray};

use super::ddoc::{DEFAULT_LANGUAGE, Ddoc};
use super::language::LanguageName;
use couchjs::{CONSOLE, REPORT, TEXT_REASONS};
use json::cursor::Cursor;

/// The kind of a command, from its first elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub enum Command {
    /// `reset`.
    Reset,
    /// `forget`: the process knows no design document afterwards.
    Forget,
    /// `add_lib`.
    AddLib,
    /// `add_fun`: evaluates the source of a function.
    AddFun,
    /// `map_doc`.
    Map,
    /// `reduce` or `rereduce`.
    Reduce,
    /// `index_doc` or `nouveau_index_doc`.
    Index,
    /// `ddoc new`: the process knows another design document afterwards.
    Teach,
    /// `ddoc` with a `validate_doc_update` function.
    Validate,
    /// `ddoc` with a function in `filters`.
    Filter,
    /// `ddoc` with a function in `lists`: opens a list, which the answer `["end", ..]` or an error
    /// closes.
    OpenList,
    /// `list_row` or `list_end`: continues an open list.
    ListRow,
    /// Any other `ddoc`.
    DdocCall,
    /// Anything else.
    Other,
}

impl Command {
    /// Classifies a command. Returns `None` if it has several lines, or does not begin like a JSON array.
    ///
    /// Parses only the first elements, and only as far as needed.
    pub fn of(line: &[u8]) -> Option<Self> {
        if memchr::memchr(b'\n', line).is_some() {
            return None;
        }
        Self::of_line(line)
    }

    /// Like [`Self::of`], for what is known to be one line: a long one is not searched.
    pub(crate) fn of_line(line: &[u8]) -> Option<Self> {
        debug_assert!(memchr::memchr(b'\n', line).is_none());
        let word = first_word(line.trim_ascii().strip_prefix(b"[")?.trim_ascii_start());
        let is_parsed = word == b"ddoc" || word.starts_with(b"list_") || word.contains(&b'\\');
        if is_parsed {
            return Self::parse(line);
        }
        Some(Self::named(word))
    }

    fn named(name: &[u8]) -> Self {
        match name {
            b"reset" => Self::Reset,
            b"forget" => Self::Forget,
            b"add_lib" => Self::AddLib,
            b"add_fun" => Self::AddFun,
            b"map_doc" => Self::Map,
            b"reduce" | b"rereduce" => Self::Reduce,
            b"index_doc" | b"nouveau_index_doc" => Self::Index,
            b"list_row" | b"list_end" => Self::ListRow,
            _ => Self::Other,
        }
    }

    /// Parses a command as far as needed to classify it.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::of(line);
        let mut goes_on = cursor.open(b'[');
        let mut next = || -> Option<&[u8]> {
            goes_on.filter(|goes_on| *goes_on)?;
            let element = cursor.value()?;
            goes_on = Some(cursor.goes_on(b'[')?);
            Some(&line[element])
        };
        let name = text(next()?).unwrap_or_default();
        if name != "ddoc" {
            return Some(Self::named(name.as_bytes()));
        }
        if next().and_then(text).as_deref() == Some("new") {
            return Some(Self::Teach);
        }
        let path: Vec<Value> = next()
            .and_then(|path| serde_json::from_slice(path).ok())
            .unwrap_or_default();
        Some(match path.first().and_then(Value::as_str) {
            Some("lists") => Self::OpenList,
            Some("validate_doc_update") => Self::Validate,
            Some("filters") => Self::Filter,
            _ => Self::DdocCall,
        })
    }

    /// Returns its name as an error's phase.
    pub const fn phase(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Forget => "forget",
            Self::Teach => "teach",
            Self::AddFun => "compile",
            Self::Map => "map",
            Self::Reduce => "reduce",
            Self::Index => "index",
            Self::Validate | Self::Filter | Self::OpenList | Self::ListRow | Self::DdocCall => {
                "ddoc call"
            }
            Self::AddLib | Self::Other => "prompt",
        }
    }

    /// Returns whether it runs users' functions, which may not terminate.
    pub(crate) const fn runs_functions(self) -> bool {
        !matches!(
            self,
            Self::Reset | Self::Forget | Self::Teach | Self::AddLib | Self::Other
        )
    }

    /// Returns the class that it is counted in.
    pub(crate) const fn class(self) -> PromptClass {
        match self {
            Self::Map => PromptClass::Map,
            Self::Reduce => PromptClass::Reduce,
            Self::Reset => PromptClass::Reset,
            Self::AddFun => PromptClass::AddFun,
            Self::Teach => PromptClass::DdocNew,
            Self::Validate => PromptClass::DdocVdu,
            Self::Filter => PromptClass::DdocFilter,
            Self::OpenList | Self::DdocCall => PromptClass::DdocOther,
            Self::Forget | Self::AddLib | Self::Index | Self::ListRow | Self::Other => {
                PromptClass::Other
            }
        }
    }
}

/// The class that a command is counted in.
///
/// # Source
/// couch_os_process, bump_cmd_time_stat/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PromptClass {
    /// `map_doc`.
    Map,
    /// `reduce` and `rereduce`.
    Reduce,
    /// `reset`.
    Reset,
    /// `add_fun`.
    AddFun,
    /// `ddoc new`.
    DdocNew,
    /// `ddoc` with a `validate_doc_update` function.
    DdocVdu,
    /// `ddoc` with a function in `filters`.
    DdocFilter,
    /// Any other `ddoc`.
    DdocOther,
    /// Anything else.
    Other,
}

/// Maximum bytes of a command that are searched for its first word.
const WORD_BYTES: usize = 48;

/// Returns a command's first element as written, without its quotes and at most [`WORD_BYTES`] long; empty if it is
/// not a string.
fn first_word(command: &[u8]) -> &[u8] {
    let beginning = &command[..command.len().min(WORD_BYTES)];
    let Some(word) = beginning.strip_prefix(b"\"") else {
        return b"";
    };
    let end = memchr::memchr(b'"', word);
    end.map_or(word, |end| &word[..end])
}

/// Returns the text of a command's element, if it is a string.
fn text(element: &[u8]) -> Option<String> {
    serde_json::from_slice(element).ok()
}

/// Returns whether this answer to a list command leaves the list open.
pub(crate) fn leaves_list_open(answer: &[u8]) -> bool {
    let Some(inside) = answer.trim_ascii_start().strip_prefix(b"[") else {
        return false;
    };
    let word = inside.trim_ascii_start();
    word.starts_with(b"\"start\"") || word.starts_with(b"\"chunks\"")
}

/// Returns `["reset", CONFIG]`.
pub fn reset(config: &str) -> Bytes {
    Bytes::from(format!("[\"reset\",{config}]"))
}

/// Returns `["forget", CONFIG]`.
pub(crate) fn forget(config: &str) -> Bytes {
    Bytes::from(format!("[\"forget\",{config}]"))
}

/// Returns the `reset` before Settee's own function calls: like [`reset`], but it also requests string reasons and a
/// console from JavaScript, and with `report` error logs from every query server.
pub(crate) fn reset_for_calls(config: &str, language: &LanguageName, report: bool) -> Bytes {
    let is_javascript = language.as_str() == DEFAULT_LANGUAGE;
    let asked: Vec<String> = [
        (TEXT_REASONS, is_javascript),
        (CONSOLE, is_javascript),
        (REPORT, report),
    ]
    .into_iter()
    .filter(|(_, is_asked)| *is_asked)
    .map(|(name, _)| format!("\"{name}\":true"))
    .collect();
    match config.trim_end().strip_suffix('}') {
        Some(members) if !asked.is_empty() => {
            let comma = if members == "{" { "" } else { "," };
            reset(&format!("{members}{comma}{}}}", asked.join(",")))
        }
        _ => reset(config),
    }
}

/// Returns `["ddoc", "new", ID, DDOC]`.
pub fn teach(ddoc: &Ddoc) -> Bytes {
    let text: &RawValue = serde_json::from_str(ddoc.key.text.as_str())
        .expect("PM-10: a design document was checked to be JSON");
    line(&("ddoc", "new", &*ddoc.key.id, text))
}

/// Returns `["ddoc", ID, PATH, ARGS]`.
pub fn ddoc(id: &str, path: &RawValue, args: &RawValue) -> Bytes {
    line(&("ddoc", id, path, args))
}

/// Writes a command as one line. JSON texts in it are unchanged except for line feeds.
pub fn line(command: &impl Serialize) -> Bytes {
    let mut bytes =
        serde_json::to_vec(command).expect("PM-10: strings and JSON texts can be written");
    // In JSON a line feed is between values, never in a string.
    let mut seen = 0;
    while let Some(found) = memchr::memchr(b'\n', &bytes[seen..]) {
        seen += found;
        bytes[seen] = b' ';
    }
    Bytes::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_known_by_its_first_elements() {
        let command = |text: &str| Command::of(text.as_bytes());
        for (text, expected) in [
            (r#"["map_doc",{"a":"ddoc"}]"#, Command::Map),
            (r#" [ "ddoc" , "new" ,"_design/a",{}]"#, Command::Teach),
            (
                r#"["ddoc","_design/a",["lists","l"],[]]"#,
                Command::OpenList,
            ),
            (
                r#"["ddoc","_design/a",["shows","l"],[]]"#,
                Command::DdocCall,
            ),
            (r#"["\u0064doc","new","x",{}]"#, Command::Teach),
            (r#"["list_row",{}]"#, Command::ListRow),
            (r#"["index_doc",{}]"#, Command::Index),
            ("[]", Command::Other),
        ] {
            assert_eq!(command(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_command_is_read_only_as_far_as_needed_to_identify_it() {
        for text in [
            r#"["ddoc","_design/a",["shows","l"],[..."#,
            r#"["list_row",{..."#,
            r#"["map_doc",{..."#,
        ] {
            assert!(Command::of(text.as_bytes()).is_some(), "{text}");
        }
    }

    #[test]
    fn a_command_is_counted_by_its_first_elements() {
        let class = |text: &str| Command::of(text.as_bytes()).map(Command::class);
        for (text, expected) in [
            (r#"["map_doc",{"_id":"a"}]"#, PromptClass::Map),
            (r#"["reduce",["_sum"],[]]"#, PromptClass::Reduce),
            (r#" [ "rereduce" ,["_sum"],[]]"#, PromptClass::Reduce),
            (r#"["reset"]"#, PromptClass::Reset),
            (r#"["reset",{}]"#, PromptClass::Reset),
            (r#"["r\u0065set",{}]"#, PromptClass::Reset),
            (r#"["add_fun","f"]"#, PromptClass::AddFun),
            (r#"["add_lib",{}]"#, PromptClass::Other),
            (r#"["index_doc",{}]"#, PromptClass::Other),
            (r#"["list_row",{}]"#, PromptClass::Other),
            (r#"["ddoc","new","x",{}]"#, PromptClass::DdocNew),
            (
                r#"["ddoc","x",["validate_doc_update"],[{},null]]"#,
                PromptClass::DdocVdu,
            ),
            (
                r#"["ddoc","x",["filters","f"],[[]]]"#,
                PromptClass::DdocFilter,
            ),
            (
                r#"["ddoc","x",["views","v","map"],[[]]]"#,
                PromptClass::DdocOther,
            ),
            (r#"["ddoc","x",["shows","s"],[]]"#, PromptClass::DdocOther),
            (r#"["ddoc","x"]"#, PromptClass::DdocOther),
            (r#"["#, PromptClass::Other),
            (r#"[7]"#, PromptClass::Other),
        ] {
            assert_eq!(class(text), Some(expected), "{text}");
        }
        let long = format!("[\"{}\"]", "x".repeat(100));
        assert_eq!(class(&long), Some(PromptClass::Other));
    }

    #[test]
    fn a_command_has_a_phase_and_may_run_functions() {
        for (text, phase, runs) in [
            (r#"["reset",{}]"#, "reset", false),
            (r#"["forget",{}]"#, "forget", false),
            (r#"["ddoc","new","x",{}]"#, "teach", false),
            (r#"["add_lib",{}]"#, "prompt", false),
            (r#"["add_fun","f"]"#, "compile", true),
            (r#"["map_doc",{}]"#, "map", true),
            (r#"["rereduce",[],[]]"#, "reduce", true),
            (r#"["nouveau_index_doc",{}]"#, "index", true),
            (r#"["index\u005fdoc",{}]"#, "index", true),
            (
                r#"["ddoc","x",["validate_doc_update"],[]]"#,
                "ddoc call",
                true,
            ),
            (r#"["ddoc","x",["lists","l"],[]]"#, "ddoc call", true),
            (r#"["list_end"]"#, "ddoc call", true),
        ] {
            let command = Command::of(text.as_bytes()).unwrap();
            let told = (command.phase(), command.runs_functions());
            assert_eq!(told, (phase, runs), "{text}");
        }
    }

    #[test]
    fn only_one_array_on_one_line_is_a_command() {
        for text in ["", "7", "{}", "[\"reset\"]\n[\"reset\"]", "\"x\""] {
            assert_eq!(Command::of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_command_is_one_line_however_its_json_was_written() {
        let args: Box<RawValue> = serde_json::from_str("[1,\n {\"a\": \"\\n\"}\n]").unwrap();
        assert_eq!(line(&("x", &args)), r#"["x",[1,  {"a": "\n"} ]]"#);
    }

    #[test]
    fn only_javascript_is_requested_to_give_string_reasons_and_a_console() {
        let reset = |config, language| reset_for_calls(config, &LanguageName::new(language), false);
        assert_eq!(
            reset(r#"{"timeout":5000}"#, "JavaScript"),
            r#"["reset",{"timeout":5000,"text_reasons":true,"console":true}]"#
        );
        assert_eq!(
            reset("{}", "javascript"),
            r#"["reset",{"text_reasons":true,"console":true}]"#
        );
        assert_eq!(reset("{}", "python"), r#"["reset",{}]"#);
    }

    #[test]
    fn a_list_is_open_until_it_ends_or_fails() {
        assert!(leaves_list_open(b"[\"start\",[],{}]"));
        assert!(leaves_list_open(b" [ \"chunks\",[]]"));
        assert!(!leaves_list_open(b"[\"end\",[]]"));
        assert!(!leaves_list_open(b"[\"error\",\"a\",\"b\"]"));
    }
}
