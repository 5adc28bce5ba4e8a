//! Reports of processes besides their answers, for the caller of a function: log lines and errors.
//!
//! SUMMARY   [`Told`] collects them. A process reports an error, a level or a return value as an object in the third
//!           element of a log line.
//! PROMISES  Lines, errors and their strings are bounded; the excess is counted. The object is untrusted: if its
//!           form is unknown, only the line is kept.

use serde::{Deserialize, Serialize};

use super::tally::Returned;

/// Maximum log lines kept for a call.
pub(crate) const LINES_MAX: usize = 1_000;

/// Maximum total length of the log lines kept for a call, in bytes.
pub(crate) const LINE_BYTES_MAX: usize = 256 << 10;

/// Maximum errors kept for a call, and maximum return values.
const ERRORS_MAX: usize = 100;

/// Maximum total length of the errors and return values kept for a call, in bytes.
const ERROR_BYTES_MAX: usize = 256 << 10;

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// Logged by the function.
    Info,
    /// A remark of the query server or of the service.
    Warning,
    /// An error.
    Error,
}

/// A line logged during a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LogLine {
    pub(crate) level: Level,
    pub(crate) message: String,
}

/// The function that an error names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum FunctionName {
    /// Its place in the call's list of functions, from 0.
    Index(usize),
    /// Its path in the design document, joined by `/`.
    Path(String),
}

/// A function's error, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportedError {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) function: Option<FunctionName>,
    /// The id of the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) doc: Option<String>,
    pub(crate) name: String,
    pub(crate) message: String,
    /// The module that raised it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) module: Option<String>,
    /// In the original source, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
    /// In characters, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<u32>,
    /// The source line of a syntax error, or a part of it; `caret` marks the column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source_line: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) caret: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stack: Vec<String>,
}

impl ReportedError {
    fn bytes(&self) -> usize {
        let path = match &self.function {
            Some(FunctionName::Path(path)) => Some(path),
            _ => None,
        };
        let optional = [&self.doc, &self.module, &self.source_line, &self.caret];
        optional
            .into_iter()
            .flatten()
            .chain(path)
            .chain([&self.name, &self.message])
            .chain(&self.stack)
            .map(String::len)
            .sum()
    }
}

/// A log line as written by a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub(crate) text: String,
    /// The third element of the line, JSON text.
    pub(crate) details: Option<Box<str>>,
}

/// A third element that is not an error.
#[derive(Deserialize)]
struct Remark {
    level: Level,
}

impl LogEntry {
    /// Returns a map function's return value, if the third element has one.
    pub(crate) fn returned(&self) -> Option<Returned> {
        serde_json::from_str(self.details.as_deref()?).ok()
    }

    /// Parses the third element. Returns the line with its level, and the error if the element is one.
    pub(crate) fn read(self) -> (LogLine, Option<ReportedError>) {
        let details = self.details.as_deref();
        let error = details.and_then(|json| serde_json::from_str::<ReportedError>(json).ok());
        let remark = details.and_then(|json| serde_json::from_str::<Remark>(json).ok());
        let level = match (&error, remark) {
            (Some(_), _) => Level::Error,
            (None, Some(remark)) => remark.level,
            (None, None) => Level::Info,
        };
        let message = self.text;
        (LogLine { level, message }, error)
    }
}

/// Reports during a call, or before one of its answers.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Told {
    pub(crate) logs: Vec<LogLine>,
    /// The number of lines beyond the limits.
    pub(crate) logs_dropped: u64,
    pub(crate) errors: Vec<ReportedError>,
    /// The number of errors beyond the limits.
    pub(crate) errors_dropped: u64,
    /// Return values of map functions, within the limits.
    #[serde(skip)]
    pub(crate) returned: Vec<Returned>,
    #[serde(skip)]
    log_bytes: usize,
    #[serde(skip)]
    error_bytes: usize,
}

impl Told {
    pub(crate) fn is_empty(&self) -> bool {
        let dropped = self.logs_dropped + self.errors_dropped;
        let is_silent = self.logs.is_empty() && self.errors.is_empty();
        is_silent && self.returned.is_empty() && dropped == 0
    }

    /// Returns its size, in bytes of text.
    pub(crate) fn bytes(&self) -> usize {
        self.log_bytes + self.error_bytes
    }

    /// Adds a line logged by a process.
    pub(crate) fn add(&mut self, entry: LogEntry) {
        if let Some(returned) = entry.returned() {
            return self.note(returned);
        }
        let (line, error) = entry.read();
        self.log(line);
        if let Some(error) = error {
            self.error(error);
        }
    }

    /// Adds a map function's return value.
    fn note(&mut self, returned: Returned) {
        let bytes = self.error_bytes + returned.bytes();
        if self.returned.len() < ERRORS_MAX && bytes <= ERROR_BYTES_MAX {
            self.error_bytes = bytes;
            self.returned.push(returned);
        }
    }

    pub(crate) fn log(&mut self, line: LogLine) {
        let bytes = self.log_bytes + line.message.len();
        if self.logs.len() == LINES_MAX || bytes > LINE_BYTES_MAX {
            self.logs_dropped += 1;
            return;
        }
        self.log_bytes = bytes;
        self.logs.push(line);
    }

    pub(crate) fn error(&mut self, error: ReportedError) {
        let bytes = self.error_bytes + error.bytes();
        if self.errors.len() == ERRORS_MAX || bytes > ERROR_BYTES_MAX {
            self.errors_dropped += 1;
            return;
        }
        self.error_bytes = bytes;
        self.errors.push(error);
    }

    /// Appends later reports.
    pub(crate) fn append(&mut self, later: Self) {
        later.logs.into_iter().for_each(|line| self.log(line));
        later.errors.into_iter().for_each(|error| self.error(error));
        later
            .returned
            .into_iter()
            .for_each(|value| self.note(value));
        self.logs_dropped += later.logs_dropped;
        self.errors_dropped += later.errors_dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str, details: Option<&str>) -> LogEntry {
        LogEntry {
            text: text.to_owned(),
            details: details.map(Into::into),
        }
    }

    #[test]
    fn the_third_element_of_a_line_makes_it_an_error_or_a_remark() {
        let mut told = Told::default();
        for details in [
            None,
            Some(r#"{"level":"warning"}"#),
            Some(r#"{"function":"views/v/map","name":"N","message":"m","line":3,"future":1}"#),
            Some(r#"{"function":7,"name":"N","message":"m"}"#),
            Some(r#"{"name":"N"}"#),
            Some("7"),
            Some(r#"{"level":"loud"}"#),
            Some(r#"{"function":1,"returned":"a number","doc":null}"#),
        ] {
            told.add(entry("x", details));
        }
        assert_eq!((told.returned.len(), told.returned[0].function), (1, 1));
        let levels: Vec<Level> = told.logs.iter().map(|line| line.level).collect();
        use Level::{Error, Info, Warning};
        assert_eq!(levels, [Info, Warning, Error, Error, Info, Info, Info]);
        let expected = serde_json::json!([
            {"function": "views/v/map", "name": "N", "message": "m", "line": 3},
            {"function": 7, "name": "N", "message": "m"},
        ]);
        assert_eq!(serde_json::json!(told.errors), expected);
    }

    #[test]
    fn lines_errors_and_their_texts_are_bounded_and_the_excess_is_counted() {
        let mut many = Told::default();
        for _ in 0..LINES_MAX + 3 {
            many.add(entry("x", Some(r#"{"name":"N","message":"m"}"#)));
        }
        assert_eq!((many.logs.len(), many.logs_dropped), (LINES_MAX, 3));
        let beyond = (LINES_MAX + 3 - ERRORS_MAX) as u64;
        assert_eq!(
            (many.errors.len(), many.errors_dropped),
            (ERRORS_MAX, beyond)
        );
        let long = "x".repeat(LINE_BYTES_MAX / 2 + 1);
        let mut large = Told::default();
        let details = format!(r#"{{"name":"N","message":"{long}"}}"#);
        for _ in 0..2 {
            large.add(entry(&long, Some(&details)));
        }
        assert_eq!((large.logs.len(), large.logs_dropped), (1, 1));
        assert_eq!((large.errors.len(), large.errors_dropped), (1, 1));
        many.append(large);
        assert_eq!((many.logs.len(), many.logs_dropped), (LINES_MAX, 3 + 2));
    }
}
