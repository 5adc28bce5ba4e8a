//! The query server of `query`.
//!
//! SUMMARY   Keeps index definitions until the next `reset`, and validators of design documents until it ends.
//! PROMISES  Every command gets an answer, and none ends the server: commands that end CouchDB's server are answered
//!           with an error here.
//! SOURCE    CouchDB's mango_native_proc.
//! DIFFERS   `reduce` and `rereduce` may have three or four elements. An invalid definition is logged and keeps its
//!           column, without rows: CouchDB drops the column, which shifts the rows of later functions. A text
//!           definition has no rows in a view; it ends CouchDB's server. A line that is not a command is answered
//!           `invalid_call`.

use std::collections::HashMap;

use serde_json::json;
use serde_json::value::RawValue;
use slog::Logger;

use crate::actors::native_process::NativeServer;
use crate::logging::RepeatLimiter;
use json::cursor::Elements;
use mango::{Index, MatchError, Selector, last_members};

/// Maximum bytes of all definitions and validators.
const HELD_BYTES_MAX: usize = 4 << 20;

/// Overhead of a definition or a validator, in bytes.
const ENTRY_BYTES: usize = 256;

/// Maximum length of an answer about a document, in bytes, in addition to twice the document's length.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Maximum elements of a command that are read.
const ELEMENTS_MAX: usize = 5;

/// An error answer.
struct Refusal {
    name: &'static str,
    reason: String,
}

impl Refusal {
    fn new(name: &'static str, reason: impl Into<String>) -> Self {
        Self {
            name,
            reason: reason.into(),
        }
    }

    fn invalid_call(command: &str) -> Self {
        let reason =
            format!("{command} is not a command of a Mango query server, or has other arguments");
        Self::new("invalid_call", reason)
    }
}

impl From<MatchError> for Refusal {
    fn from(error: MatchError) -> Self {
        Self::new(error.name(), error.to_string())
    }
}

/// A design document's validator.
struct Validator {
    selector: Option<Selector>,
    /// The length of its text and its id, and [`ENTRY_BYTES`].
    bytes: usize,
}

/// A Mango query server.
pub struct QueryServer {
    /// In order of arrival; `None` for an invalid definition.
    indexes: Vec<Option<Index>>,
    /// Design document's id -> its validator.
    validators: HashMap<String, Validator>,
    /// Bytes of the indexes, and of the validators: their texts, and [`ENTRY_BYTES`] for each.
    index_bytes: usize,
    validator_bytes: usize,
    log: Logger,
    /// The limiter of warnings about definitions: views are rebuilt often.
    refused: RepeatLimiter,
    /// Whether the last `reset` requests error reports.
    reports: bool,
    /// Log lines to send before the next answer.
    told: String,
}

/// Computes an index's part of the answer about a document.
type Ask = fn(&Index, &str) -> Result<String, MatchError>;

impl QueryServer {
    /// Makes a server without definitions.
    pub fn new(log: Logger) -> Self {
        Self {
            indexes: Vec::new(),
            validators: HashMap::new(),
            index_bytes: 0,
            validator_bytes: 0,
            log,
            refused: RepeatLimiter::default(),
            reports: false,
            told: String::new(),
        }
    }

    fn perform(&mut self, command: &str) -> Result<String, Refusal> {
        let elements = first_elements(command).ok_or_else(|| Refusal::invalid_call("this"))?;
        let name = elements
            .first()
            .and_then(|name| string(name))
            .unwrap_or_default();
        match (name.as_str(), &elements[..]) {
            ("reset", [_] | [_, _]) => {
                self.indexes.clear();
                self.index_bytes = 0;
                self.reports = elements
                    .get(1)
                    .is_some_and(|config| asks_for_reports(config));
                Ok("true".into())
            }
            ("add_fun", [_, definition, ..]) => {
                self.add_index(definition)?;
                Ok("true".into())
            }
            ("map_doc", [_, document]) => self.ask(document, Index::rows),
            ("index_doc", [_, document]) => self.search(document, Index::text_entries),
            ("nouveau_index_doc", [_, document]) => self.search(document, Index::nouveau_entries),
            ("reduce" | "rereduce", [_, sources, _] | [_, sources, _, _]) => reduce(sources),
            ("ddoc", [_, new, id, document]) if string(new).as_deref() == Some("new") => {
                self.teach(id, document)
            }
            ("ddoc", [_, id, path, arguments]) => self.validate(id, path, arguments),
            _ => Err(Refusal::invalid_call(&format!("{name:?}"))),
        }
    }

    /// Checks that this many more bytes fit the limit.
    fn check_room(&self, bytes: usize) -> Result<(), Refusal> {
        if self.index_bytes + self.validator_bytes + bytes <= HELD_BYTES_MAX {
            return Ok(());
        }
        let reason = format!(
            "index definitions and validators have more than {HELD_BYTES_MAX} bytes; reset forgets the indexes, \
             and a new process has no validators"
        );
        Err(Refusal::new("out_of_memory", reason))
    }

    fn add_index(&mut self, definition: &str) -> Result<(), Refusal> {
        let bytes = definition.len() + ENTRY_BYTES;
        self.check_room(bytes)?;
        self.index_bytes += bytes;
        let index = Index::parse(definition);
        if let Err(error) = &index {
            crate::warn_repeating!(
                self.log, self.refused, "index definition refused";
                "error" => error.name(),
                "effect" => "documents have no rows in this index",
                "remedy" => "correct the definition in the design document",
            );
            if self.reports {
                let (name, message) = (error.name(), error.to_string());
                let function = self.indexes.len();
                let details = json!({"function": function, "name": name, "message": message});
                let line = json!(["log", format!("{name}: {message}"), details]);
                self.told = format!("{line}\n");
            }
        }
        self.indexes.push(index.ok());
        Ok(())
    }

    /// Returns the answer about a document: a list with a part from each index.
    fn ask(&self, document: &str, ask: Ask) -> Result<String, Refusal> {
        if !document.starts_with('{') {
            return Err(Refusal::new(
                "invalid_document",
                "a document is a JSON object",
            ));
        }
        let bytes_max = ANSWER_BYTES_MAX + 2 * document.len();
        let mut answer = String::from("[");
        for index in &self.indexes {
            if answer.len() > 1 {
                answer.push(',');
            }
            match index {
                None => answer.push_str("[]"),
                Some(index) => answer.push_str(&ask(index, document)?),
            }
            if answer.len() > bytes_max {
                let reason = format!("the index entries of a document exceed {bytes_max} bytes");
                return Err(Refusal::new("too_large", reason));
            }
        }
        answer.push(']');
        Ok(answer)
    }

    /// Like [`Self::ask`], for text indexes. Without any, the answer has one empty list: the caller reads the first.
    fn search(&self, document: &str, ask: Ask) -> Result<String, Refusal> {
        let answer = self.ask(document, ask)?;
        Ok(if self.indexes.is_empty() {
            "[[]]".into()
        } else {
            answer
        })
    }

    fn teach(&mut self, id: &str, document: &str) -> Result<String, Refusal> {
        #[derive(serde::Deserialize)]
        struct Taught<'a> {
            #[serde(borrow)]
            validate_doc_update: Option<&'a RawValue>,
        }
        let id = string(id).ok_or_else(|| Refusal::invalid_call("\"ddoc\""))?;
        let document = last_members(document);
        let taught: Taught<'_> = serde_json::from_str(&document)
            .map_err(|error| Refusal::new("invalid_document", error.to_string()))?;
        let text = taught.validate_doc_update.map(RawValue::get);
        let selector = text.map(Selector::parse).transpose().map_err(|error| {
            let reason = format!("validate_doc_update of {id}: {error}");
            Refusal::new(error.name(), reason)
        })?;
        let bytes = id.len() + text.map_or(0, str::len) + ENTRY_BYTES;
        let replaced = self.validators.remove(&id);
        self.validator_bytes -= replaced.map_or(0, |validator| validator.bytes);
        self.check_room(bytes)?;
        self.validator_bytes += bytes;
        self.validators.insert(id, Validator { selector, bytes });
        Ok("true".into())
    }

    /// `["ddoc", ID, ["validate_doc_update"], [NEW, OLD, CONTEXT, SECURITY]]`.
    fn validate(&self, id: &str, path: &str, arguments: &str) -> Result<String, Refusal> {
        let refusal = || Refusal::invalid_call("\"ddoc\"");
        let id = string(id).ok_or_else(refusal)?;
        let path: Option<Vec<String>> = first_elements(path)
            .ok_or_else(refusal)?
            .into_iter()
            .map(string)
            .collect();
        let path = path.ok_or_else(refusal)?;
        if path != ["validate_doc_update"] {
            let reason = format!("a Mango design document has no {}", path.join("/"));
            return Err(Refusal::new("invalid_call", reason));
        }
        let arguments = first_elements(arguments).ok_or_else(refusal)?;
        let [new, old, ..] = arguments[..] else {
            return Err(refusal());
        };
        let Some(validator) = self.validators.get(&id) else {
            let reason = format!("uncached design doc: {id}");
            return Err(Refusal::new("query_protocol_error", reason));
        };
        let Some(selector) = &validator.selector else {
            let reason = format!("missing validate_doc_update function on design doc {id}");
            return Err(Refusal::new("not_found", reason));
        };
        let documents = format!(r#"{{"newDoc":{new},"oldDoc":{old}}}"#);
        match selector.matches_checked(&documents) {
            Ok(true) => Ok("true".into()),
            Ok(false) => Ok(r#"{"forbidden":"document is not valid"}"#.into()),
            Err(error) => Err(error.into()),
        }
    }
}

impl NativeServer for QueryServer {
    fn log_to(&mut self, log: Logger) {
        self.log = log;
    }

    fn prompt(&mut self, command: &str) -> String {
        let answer = self
            .perform(command)
            .unwrap_or_else(|refusal| json!(["error", refusal.name, refusal.reason]).to_string());
        if self.told.is_empty() {
            answer
        } else {
            std::mem::take(&mut self.told) + &answer
        }
    }
}

/// Returns whether a `reset` configuration requests error reports.
fn asks_for_reports(config: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Config {
        report: bool,
    }
    serde_json::from_str(config).is_ok_and(|config: Config| config.report)
}

/// Answers with one `null` for each function: Mango indexes do not reduce.
fn reduce(sources: &str) -> Result<String, Refusal> {
    let mut answer = String::from("[true,[");
    let mut elements = Elements::of(sources);
    for _ in elements.by_ref() {
        answer.push_str("null,");
    }
    if !elements.is_list() {
        return Err(Refusal::invalid_call("\"reduce\""));
    }
    if answer.ends_with(',') {
        answer.pop();
    }
    answer.push_str("]]");
    Ok(answer)
}

/// Returns the first elements of a list; `None` if the text is not a list.
fn first_elements(list: &str) -> Option<Vec<&str>> {
    let mut elements = Elements::of(list);
    let first = elements.by_ref().take(ELEMENTS_MAX).collect();
    elements.is_list().then_some(first)
}

fn string(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests;
