//! Classifies the lines that a child prints.
//!
//! SUMMARY   [`classify`] classifies one line.
//! PROMISES  A line is an answer only if it is one whole JSON value (PM-10).
//! SOURCE    couch_os_process, readjson/1.
//! DIFFERS   The reference checks only the first token, returns log and error lines of a wrong shape as answers,
//!           mistakes a blank line for the answer `none`, and has no limit for a line. Here the whole line is
//!           checked, in one pass without recursion, because it is embedded in replies to others.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::prompt_error::PromptError;
use super::told::LogEntry;
use json::cursor::Cursor;
use json::string::unescape;

/// The meaning of a line of a child's output.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// An answer to the oldest prompt, unchanged.
    Answer(Bytes),
    /// `["log", TEXT]` or `["log", TEXT, DETAILS]`: for the log; the answer follows.
    Log(LogEntry),
    /// `["error", NAME, REASON]`: an answer, as [`PromptError::Function`]. The process stays alive.
    Error(PromptError),
    /// `["fatal", NAME, REASON]`: an answer, as [`PromptError::Function`]. The process must end.
    Fatal(PromptError),
    /// Not a line of the protocol, and why.
    Malformed(&'static str),
}

/// Classifies a line without its line feed.
pub fn classify(line: Bytes) -> Line {
    let text = line.trim_ascii();
    if text.is_empty() {
        return Line::Malformed("a blank line");
    }
    let Ok(text) = std::str::from_utf8(text) else {
        return Line::Malformed("a line that is not UTF-8");
    };
    match first_string(text).as_deref() {
        Some("log") => log_line(text),
        Some("error") => error_line(text, false).map_or_else(Line::Malformed, Line::Error),
        Some("fatal") => error_line(text, true).map_or_else(Line::Malformed, Line::Fatal),
        _ if Cursor::is_value(text) => Line::Answer(line),
        _ => Line::Malformed("a line that is not JSON"),
    }
}

/// Returns whether a line of the protocol is for the log: the answer follows.
pub fn is_log(line: &[u8]) -> bool {
    let text = std::str::from_utf8(line.trim_ascii()).ok();
    text.and_then(first_string).as_deref() == Some("log")
}

/// Returns the first element of an array if it is a string. The rest is not parsed.
fn first_string(text: &str) -> Option<Cow<'_, str>> {
    let mut cursor = Cursor::of(text.as_bytes());
    cursor.open(b'[')?;
    let is_string = cursor.peek()? == b'"';
    let first = is_string.then(|| cursor.value())??;
    Some(unescape(&text[first]))
}

fn log_line(text: &str) -> Line {
    match serde_json::from_str::<Vec<&RawValue>>(text) {
        Ok(elements) => Line::Log(LogEntry {
            text: elements.get(1).map_or_else(String::new, |e| plain_text(e)),
            details: elements.get(2).map(|details| details.get().into()),
        }),
        Err(_) => Line::Malformed("a log line that is not JSON"),
    }
}

fn error_line(text: &str, fatal: bool) -> Result<PromptError, &'static str> {
    let elements: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|_| "an error line that is not JSON")?;
    let [_, name, reason] = elements[..] else {
        return Err("an error line without a name and a reason");
    };
    Ok(PromptError::Function {
        name: plain_text(name),
        reason: plain_text(reason),
        raw_reason: reason.get().to_owned(),
        fatal,
    })
}

/// Returns a string's text, or the JSON text of anything else (including a string that is not Unicode).
fn plain_text(value: &RawValue) -> String {
    serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Line {
        classify(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn answers_are_passed_on_unchanged() {
        for text in [
            "true",
            " [1, 2]\r",
            "1",
            "{\"forbidden\":\"no\"}",
            "[[\"log\",1]]",
            "\"x\"",
        ] {
            assert_eq!(
                of(text),
                Line::Answer(Bytes::copy_from_slice(text.as_bytes()))
            );
        }
    }

    #[test]
    fn an_answer_may_be_nested_deeply() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches!(of(&deep), Line::Answer(_)));
    }

    #[test]
    fn log_lines_are_logged_whatever_their_shape() {
        let log = |text: &str, details: Option<&str>| {
            Line::Log(LogEntry {
                text: text.to_owned(),
                details: details.map(Into::into),
            })
        };
        assert_eq!(of("[\"log\",\"hello\"]"), log("hello", None));
        assert_eq!(of("[ \"lo\\u0067\" , \"x\"]"), log("x", None));
        assert_eq!(of("[\"log\",{\"a\":1}]"), log("{\"a\":1}", None));
        assert_eq!(of("[\"log\"]"), log("", None));
        assert_eq!(of("[\"log\",\"x\",{\"a\":1}]"), log("x", Some("{\"a\":1}")));
    }

    #[test]
    fn error_and_fatal_lines_carry_name_and_reason() {
        let error = |[name, reason, raw_reason]: [&str; 3], fatal| PromptError::Function {
            name: name.to_owned(),
            reason: reason.to_owned(),
            raw_reason: raw_reason.to_owned(),
            fatal,
        };
        assert_eq!(
            of("[\"error\",\"not_found\",\"missing\"]"),
            Line::Error(error(["not_found", "missing", "\"missing\""], false))
        );
        assert_eq!(
            of("[\"fatal\",7,{\"a\":[]}]"),
            Line::Fatal(error(["7", "{\"a\":[]}", "{\"a\":[]}"], true))
        );
    }

    #[test]
    fn a_line_outside_the_protocol_is_never_an_answer() {
        for text in [
            "",
            " \t\r",
            "garbage",
            "true junk",
            "[",
            "\u{feff}true",
            "[\"error\",\"x\"]",
            "[\"fatal\"]",
            "[\"log\",",
            "Traceback (most recent call last):",
        ] {
            assert!(matches!(of(text), Line::Malformed(_)), "{text}");
        }
        assert!(matches!(
            classify(Bytes::from_static(b"\"\xff\"")),
            Line::Malformed(_)
        ));
    }
}
