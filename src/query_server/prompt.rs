//! The commands of the query-server protocol: making them, and telling what one does to a process.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::query_server::ddoc::{DEFAULT_LANGUAGE, Ddoc};
use crate::query_server::language::LanguageName;
use couchjs::TEXT_REASONS;

/// What a command means for the state of the process that gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptKind {
    /// `ddoc new`: the process knows another design document afterwards.
    Teach,
    /// `ddoc ID ["lists", ..]`: opens a list, which the answer `["end", ..]` or an error closes.
    OpenList,
    /// `list_row` or `list_end`: goes on with a list.
    ListRow,
    /// `index_doc` or `nouveau_index_doc`: as [`Self::Plain`], and functions are run.
    Index,
    /// Anything else: nothing is left half done once it is answered.
    Plain,
}

/// What a process does for a command, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// `reset`.
    Reset,
    /// `ddoc new`.
    Teach,
    /// `add_fun`: the source of a function is run to get the function.
    Compile,
    /// `map_doc`.
    Map,
    /// `reduce` or `rereduce`.
    Reduce,
    /// `index_doc` or `nouveau_index_doc`.
    Index,
    /// A function of a design document, also one that waits for the rows of a list.
    DdocCall,
    /// Anything else.
    Other,
}

impl Work {
    /// Tells what a process does for a command of this kind.
    pub const fn of(kind: PromptKind, class: PromptClass) -> Self {
        match (kind, class) {
            (PromptKind::Teach, _) => Self::Teach,
            (PromptKind::OpenList | PromptKind::ListRow, _) => Self::DdocCall,
            (PromptKind::Index, _) => Self::Index,
            (PromptKind::Plain, class) => match class {
                PromptClass::Map => Self::Map,
                PromptClass::Reduce => Self::Reduce,
                PromptClass::Reset => Self::Reset,
                PromptClass::AddFun => Self::Compile,
                PromptClass::DdocNew => Self::Teach,
                PromptClass::DdocVdu | PromptClass::DdocFilter | PromptClass::DdocOther => {
                    Self::DdocCall
                }
                PromptClass::Other => Self::Other,
            },
        }
    }

    /// Returns its name as the phase of an error.
    pub const fn phase(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Teach => "teach",
            Self::Compile => "compile",
            Self::Map => "map",
            Self::Reduce => "reduce",
            Self::Index => "index",
            Self::DdocCall => "ddoc call",
            Self::Other => "prompt",
        }
    }

    /// Returns whether it runs functions of users, which may take for ever.
    pub(crate) const fn runs_functions(self) -> bool {
        !matches!(self, Self::Reset | Self::Teach | Self::Other)
    }
}

/// What a command is counted as.
///
/// # Source
/// couch_os_process, bump_cmd_time_stat/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl PromptClass {
    /// All of them, in order.
    pub const ALL: [Self; 9] = [
        Self::Map,
        Self::Reduce,
        Self::Reset,
        Self::AddFun,
        Self::DdocNew,
        Self::DdocVdu,
        Self::DdocFilter,
        Self::DdocOther,
        Self::Other,
    ];

    /// Returns its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Reduce => "reduce",
            Self::Reset => "reset",
            Self::AddFun => "add_fun",
            Self::DdocNew => "ddoc_new",
            Self::DdocVdu => "ddoc_vdu",
            Self::DdocFilter => "ddoc_filter",
            Self::DdocOther => "ddoc_other",
            Self::Other => "other",
        }
    }
}

/// How much of a command is looked at for its first word, in bytes.
const WORD_BYTES: usize = 48;

/// Tells what a command does. `None`: it is not one JSON array on one line.
///
/// Looks at the first elements only, and only as far as needed.
pub fn kind_of(line: &[u8]) -> Option<PromptKind> {
    kind_and_class_of(line).map(|(kind, _)| kind)
}

/// Tells what a command does and what it is counted as, as [`kind_of`].
pub(crate) fn kind_and_class_of(line: &[u8]) -> Option<(PromptKind, PromptClass)> {
    if memchr::memchr(b'\n', line).is_some() {
        return None;
    }
    let inside = line.trim_ascii().strip_prefix(b"[")?;
    let command = inside.trim_ascii_start();
    let class = match first_word(command) {
        b"\"map_doc\"" => PromptClass::Map,
        b"\"reduce\"" | b"\"rereduce\"" => PromptClass::Reduce,
        b"\"reset\"" => PromptClass::Reset,
        b"\"add_fun\"" => PromptClass::AddFun,
        b"\"index_doc\"" | b"\"nouveau_index_doc\"" => {
            return Some((PromptKind::Index, PromptClass::Other));
        }
        b"\"ddoc\"" => return parsed(line),
        word if word.starts_with(b"\"list_") || word.contains(&b'\\') => return parsed(line),
        _ => PromptClass::Other,
    };
    Some((PromptKind::Plain, class))
}

/// Returns a command's first element with its quotes, if it is a short string, as it is written;
/// otherwise its beginning.
fn first_word(command: &[u8]) -> &[u8] {
    let beginning = &command[..command.len().min(WORD_BYTES)];
    let end = memchr::memchr(b'"', beginning.get(1..).unwrap_or_default());
    end.map_or(beginning, |end| &beginning[..end + 2])
}

/// Judges a command that has to be read for it.
fn parsed(line: &[u8]) -> Option<(PromptKind, PromptClass)> {
    let elements: Vec<&RawValue> = serde_json::from_slice(line).ok()?;
    let text =
        |index: usize| -> Option<String> { serde_json::from_str(elements.get(index)?.get()).ok() };
    let plain = |class| (PromptKind::Plain, class);
    Some(match text(0).as_deref() {
        Some("list_row" | "list_end") => (PromptKind::ListRow, PromptClass::Other),
        Some("ddoc") if text(1).as_deref() == Some("new") => {
            (PromptKind::Teach, PromptClass::DdocNew)
        }
        Some("ddoc") => match path_head(elements.get(2)).as_deref() {
            Some("lists") => (PromptKind::OpenList, PromptClass::DdocOther),
            Some("validate_doc_update") => plain(PromptClass::DdocVdu),
            Some("filters") => plain(PromptClass::DdocFilter),
            _ => plain(PromptClass::DdocOther),
        },
        Some("map_doc") => plain(PromptClass::Map),
        Some("reduce" | "rereduce") => plain(PromptClass::Reduce),
        Some("reset") => plain(PromptClass::Reset),
        Some("add_fun") => plain(PromptClass::AddFun),
        Some("index_doc" | "nouveau_index_doc") => (PromptKind::Index, PromptClass::Other),
        _ => plain(PromptClass::Other),
    })
}

fn path_head(path: Option<&&RawValue>) -> Option<String> {
    let path: Vec<serde_json::Value> = serde_json::from_str(path?.get()).ok()?;
    path.first()?.as_str().map(str::to_owned)
}

/// Returns whether this answer to a list command leaves the list open.
pub(crate) fn leaves_list_open(answer: &[u8]) -> bool {
    let Some(inside) = answer.trim_ascii_start().strip_prefix(b"[") else {
        return false;
    };
    let word = inside.trim_ascii_start();
    word.starts_with(b"\"start\"") || word.starts_with(b"\"chunks\"")
}

/// `["reset", CONFIG]`.
pub fn reset(config: &str) -> Bytes {
    Bytes::from(format!("[\"reset\",{config}]"))
}

/// The `reset` before Settee itself calls functions: as [`reset`], and JavaScript is asked for errors
/// that say what happened.
pub(crate) fn reset_for_calls(config: &str, language: &LanguageName) -> Bytes {
    let asks = language.as_str() == DEFAULT_LANGUAGE;
    match config.trim_end().strip_suffix('}').filter(|_| asks) {
        Some("{") => reset(&format!("{{\"{TEXT_REASONS}\":true}}")),
        Some(members) => reset(&format!("{members},\"{TEXT_REASONS}\":true}}")),
        None => reset(config),
    }
}

/// `["ddoc", "new", ID, DDOC]`.
pub fn teach(ddoc: &Ddoc) -> Bytes {
    let text: &RawValue = serde_json::from_str(ddoc.key.text.as_str())
        .expect("PM-10: a design document was checked to be JSON");
    line(&("ddoc", "new", &*ddoc.key.id, text))
}

/// `["ddoc", ID, PATH, ARGS]`.
pub fn ddoc(id: &str, path: &RawValue, args: &RawValue) -> Bytes {
    line(&("ddoc", id, path, args))
}

/// Writes a command as one line. JSON texts in it stay as they are, but for their line feeds.
pub fn line(command: &impl Serialize) -> Bytes {
    let mut bytes =
        serde_json::to_vec(command).expect("PM-10: strings and JSON texts can be written");
    // A line feed in JSON stands between values, never in a string.
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
        let kind = |text: &str| kind_of(text.as_bytes());
        assert_eq!(kind(r#"["map_doc",{"a":"ddoc"}]"#), Some(PromptKind::Plain));
        assert_eq!(
            kind(r#" [ "ddoc" , "new" ,"_design/a",{}]"#),
            Some(PromptKind::Teach)
        );
        assert_eq!(
            kind(r#"["ddoc","_design/a",["lists","l"],[]]"#),
            Some(PromptKind::OpenList)
        );
        assert_eq!(
            kind(r#"["ddoc","_design/a",["shows","l"],[]]"#),
            Some(PromptKind::Plain)
        );
        assert_eq!(
            kind(r#"["\u0064doc","new","x",{}]"#),
            Some(PromptKind::Teach)
        );
        assert_eq!(kind(r#"["list_row",{}]"#), Some(PromptKind::ListRow));
        assert_eq!(kind(r#"["index_doc",{}]"#), Some(PromptKind::Index));
        assert_eq!(kind("[]"), Some(PromptKind::Plain));
    }

    #[test]
    fn a_command_is_counted_by_its_first_elements() {
        let class = |text: &str| kind_and_class_of(text.as_bytes()).map(|(_, class)| class);
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
    fn the_work_for_a_command_says_whether_functions_are_run() {
        let work = |text: &str| {
            let (kind, class) = kind_and_class_of(text.as_bytes()).unwrap();
            Work::of(kind, class)
        };
        for (text, expected, runs) in [
            (r#"["reset",{}]"#, Work::Reset, false),
            (r#"["ddoc","new","x",{}]"#, Work::Teach, false),
            (r#"["add_lib",{}]"#, Work::Other, false),
            (r#"["add_fun","f"]"#, Work::Compile, true),
            (r#"["map_doc",{}]"#, Work::Map, true),
            (r#"["rereduce",[],[]]"#, Work::Reduce, true),
            (r#"["nouveau_index_doc",{}]"#, Work::Index, true),
            (r#"["index\u005fdoc",{}]"#, Work::Index, true),
            (
                r#"["ddoc","x",["validate_doc_update"],[]]"#,
                Work::DdocCall,
                true,
            ),
            (r#"["ddoc","x",["lists","l"],[]]"#, Work::DdocCall, true),
            (r#"["list_end"]"#, Work::DdocCall, true),
        ] {
            assert_eq!(work(text), expected, "{text}");
            assert_eq!(expected.runs_functions(), runs, "{text}");
        }
    }

    #[test]
    fn what_is_not_one_array_on_one_line_is_no_command() {
        for text in ["", "7", "{}", "[\"reset\"]\n[\"reset\"]", "\"x\""] {
            assert_eq!(kind_of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_command_is_one_line_however_its_json_was_written() {
        let args: Box<RawValue> = serde_json::from_str("[1,\n {\"a\": \"\\n\"}\n]").unwrap();
        assert_eq!(line(&("x", &args)), r#"["x",[1,  {"a": "\n"} ]]"#);
    }

    #[test]
    fn javascript_is_asked_for_errors_in_words_and_other_languages_get_couchdbs_reset() {
        let reset = |config, language| reset_for_calls(config, &LanguageName::new(language));
        assert_eq!(
            reset(r#"{"timeout":5000}"#, "JavaScript"),
            r#"["reset",{"timeout":5000,"text_reasons":true}]"#
        );
        assert_eq!(
            reset("{}", "javascript"),
            r#"["reset",{"text_reasons":true}]"#
        );
        assert_eq!(reset("{}", "python"), r#"["reset",{}]"#);
    }

    #[test]
    fn a_list_is_open_until_it_says_end_or_fails() {
        assert!(leaves_list_open(b"[\"start\",[],{}]"));
        assert!(leaves_list_open(b" [ \"chunks\",[]]"));
        assert!(!leaves_list_open(b"[\"end\",[]]"));
        assert!(!leaves_list_open(b"[\"error\",\"a\",\"b\"]"));
    }
}
