//! Errors of functions for their authors: the error, the function, the document, and the position.
//!
//! SUMMARY   If `reset` requests it (`report`), a log line with an error has a third element: an object `{function,
//!           doc, name, message, module, line, column, source_line, caret, stack}`. Unknown members are left out. An
//!           error that ends a command is logged before its answer.
//! PROMISES  Answers do not change. Exceptions are examined only if a report is requested. Lines and columns are
//!           those of the original source, and every text is bounded.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use rquickjs::{Type, Value};
use serde_json::{Value as Json, json};

use super::command::{Command, members, value_as_text};
use super::failure::{Failure, stack_of};
use super::memory::Held;
use super::positions::{Excerpt, Source, Spot};
use super::realm::Shared;
use super::stack::{File, Frame, frames, module_file};
use super::text::{quote, unquote};
use json::cursor::Elements;

/// Maximum characters reported of an error's name, a path, and a frame's name.
const NAME_CHARACTERS_MAX: usize = 200;

/// Maximum characters reported of an error's message.
const MESSAGE_CHARACTERS_MAX: usize = 4096;

/// Maximum frames reported of an error's trace.
const FRAMES_MAX: usize = 32;

/// The sources of a realm.
#[derive(Default)]
pub(super) struct Sources {
    /// The source of its function.
    pub function: RefCell<Source>,
    /// File name of a module -> its source, and the memory of the entry.
    pub modules: RefCell<HashMap<String, (Source, Held)>>,
}

impl Sources {
    fn spot(&self, frame: &Frame<'_>) -> Option<Spot> {
        let (line, column) = (frame.line, frame.column);
        let (place, is_exact) = ((line, column), frame.name.is_none());
        match frame.file {
            _ if line == 0 => None,
            File::Function => Some(self.function.borrow().spot(place, is_exact)),
            File::Module(id) => {
                let modules = self.modules.borrow();
                modules
                    .get(&module_file(id))
                    .map(|(source, _)| source.spot(place, is_exact))
            }
            File::Evaluated => Some(Spot { line, column }),
            File::Native | File::Server => None,
        }
    }
}

/// The place of an error.
#[derive(Clone, Debug, Default)]
struct Place {
    module: Option<String>,
    spot: Option<Spot>,
    /// The line of a syntax error.
    excerpt: Option<Excerpt>,
    stack: Vec<String>,
}

impl Place {
    /// Parses a trace. `text` is the source that was being compiled.
    fn of(stack: &str, sources: &Sources, text: Option<&str>) -> Self {
        let is_known = |frame: &Frame<'_>| {
            matches!(frame.file, File::Function | File::Module(_)) && frame.line > 0
        };
        let first = frames(stack).find(is_known);
        let spot = first.as_ref().and_then(|frame| sources.spot(frame));
        let is_parsed = first.as_ref().is_some_and(|frame| frame.name.is_none());
        Place {
            module: first.and_then(|frame| match frame.file {
                File::Module(id) => Some(id.to_owned()),
                _ => None,
            }),
            excerpt: text
                .zip(spot)
                .filter(|_| is_parsed)
                .and_then(|(text, spot)| Excerpt::of(text, spot)),
            spot,
            stack: levels(stack, sources),
        }
    }
}

/// Returns the user's frames of a trace, without those of the server and the engine.
fn levels(stack: &str, sources: &Sources) -> Vec<String> {
    let mut users: Vec<Frame<'_>> = Vec::new();
    for frame in frames(stack).take(FRAMES_MAX) {
        if frame.file != File::Server {
            users.push(frame);
            continue;
        }
        while users.pop_if(|last| last.file == File::Native).is_some() {}
    }
    let level = |frame: Frame<'_>| {
        let name = cut(frame.name?, NAME_CHARACTERS_MAX);
        let file = match frame.file {
            File::Module(id) => format!("{id}:"),
            File::Evaluated => "eval:".to_owned(),
            File::Native => return Some(format!("{name} (native)")),
            File::Function | File::Server => String::new(),
        };
        let Spot { line, column } = sources.spot(&frame)?;
        Some(format!("{name} ({file}{line}:{column})"))
    };
    users.into_iter().filter_map(level).collect()
}

/// The reported details of an error.
#[derive(Debug)]
struct Details {
    name: String,
    message: String,
    place: Place,
}

/// A function's return value.
#[derive(Clone, Debug)]
pub(super) struct Returned {
    /// Its type, as text.
    kind: &'static str,
    /// The id of the function's document.
    doc: Option<String>,
}

/// The type of a promise, as text.
const PROMISE: &str = "a promise";

impl Returned {
    pub fn is_promise(&self) -> bool {
        self.kind == PROMISE
    }
}

/// The report of the current command.
#[derive(Default)]
pub(super) struct Report {
    /// Whether the last `reset` asked for reports.
    pub wanted: Cell<bool>,
    /// The current function: a path, or a number.
    function: RefCell<Json>,
    /// The sources of the realm whose code ran last. Weak, so that they are freed with the realm.
    sources: RefCell<Weak<Sources>>,
    /// The exception that may end the command.
    raised: RefCell<Option<Details>>,
    /// Why a module was not loaded: the reason passed to its user, and the place.
    module: RefCell<Option<(String, Place)>>,
    /// Whether the error that ends the command was already logged.
    is_told: Cell<bool>,
    /// The index of the document among several.
    pub document: Cell<usize>,
    /// The type of the last return value, as text.
    returned: Cell<Option<&'static str>>,
}

impl Report {
    pub fn is_wanted(&self) -> bool {
        self.wanted.get()
    }

    /// Begins a command.
    pub fn begin(&self) {
        if self.is_wanted() {
            self.function.take();
            self.raised.take();
            self.module.take();
            self.is_told.set(false);
            self.document.set(0);
            self.returned.take();
        }
    }

    /// Records the function to compile or call next.
    pub fn at(&self, function: impl FnOnce() -> Json) {
        if self.is_wanted() {
            self.function.replace(function());
        }
    }

    /// Records the realm whose code runs next.
    pub fn enter(&self, sources: &Rc<Sources>) {
        if self.is_wanted() {
            self.sources.replace(Rc::downgrade(sources));
        }
    }

    /// Returns the sources of the realm whose code ran last; empty if the realm is gone.
    fn sources(&self) -> Rc<Sources> {
        self.sources.borrow().upgrade().unwrap_or_default()
    }

    /// Records a function's return value. A promise is remembered until the command ends.
    pub fn returned(&self, value: &Value<'_>) {
        if self.is_wanted() && self.returned.get() != Some(PROMISE) {
            self.returned.set(Some(kind_of(value)));
        }
    }

    /// Takes what is recorded of the last return value. `document` is the function's document as JSON text.
    pub fn take_returned(&self, document: Option<&str>) -> Option<Returned> {
        let kind = self.returned.take()?;
        let doc = document.and_then(id_of);
        Some(Returned { kind, doc })
    }
}

impl Shared {
    /// Records the exception that may end a command, and the source that was being compiled.
    pub fn note_raised(&self, value: &Value<'_>, failure: &Failure, source: Option<&str>) {
        if self.report.is_wanted() {
            let details = self.details(value, failure, source);
            self.report.raised.replace(Some(details));
        }
    }

    /// Records that a module was not loaded, and the reason passed to its user.
    pub fn note_module(&self, error: &Value<'_>, reason: String, source: &str) {
        let inner = self.report.module.borrow().clone();
        let place = match (inner, stack_of(error)) {
            (_, Some(stack)) => Place::of(&stack, &self.report.sources(), Some(source)),
            // A module that it requires was not loaded.
            (Some((_, place)), None) => place,
            (None, None) => Place::default(),
        };
        self.report.module.replace(Some((reason, place)));
    }

    fn details(&self, value: &Value<'_>, failure: &Failure, source: Option<&str>) -> Details {
        let mut details = self.words_of(failure);
        let (_, message) = failure.words(self);
        let of_module = self.report.module.borrow().clone();
        details.place = match of_module {
            Some((reason, place)) if message.starts_with(&reason) => place,
            _ => {
                let stack = stack_of(value).unwrap_or_default();
                Place::of(&stack, &self.report.sources(), source)
            }
        };
        details
    }

    /// Returns details without a place.
    fn words_of(&self, failure: &Failure) -> Details {
        let (name, message) = failure.words(self);
        Details {
            name: cut(&name, NAME_CHARACTERS_MAX),
            message: cut(&message, MESSAGE_CHARACTERS_MAX),
            place: Place::default(),
        }
    }

    /// Logs a function's exception, given as JSON text. `ends` says whether it ends the command.
    pub fn log_raised(&self, json: &str, error: &Value<'_>, doc: Option<String>, ends: bool) {
        if !self.report.is_wanted() {
            return self.log_json(json);
        }
        let details = self.details(error, &Failure::thrown(error), None);
        self.report.is_told.set(ends);
        self.log_with(json, &self.report.object(details, doc));
    }

    /// Logs the error that ends a command, unless already logged.
    pub fn log_failure(&self, failure: &Failure, line: &str) {
        if !self.report.is_wanted() || self.report.is_told.get() {
            return;
        }
        let details = self
            .report
            .raised
            .take()
            .unwrap_or_else(|| self.words_of(failure));
        let text = quote(&format!("{}: {}", details.name, details.message));
        let doc = document_of(line, self.report.document.get());
        self.log_with(&text, &self.report.object(details, doc));
    }

    /// Logs what the map function at this index returned. The service decides whether to report it: only the service
    /// knows whether the function emitted for other documents.
    pub fn tell_returned(&self, function: usize, returned: &Returned) {
        let Returned { kind, doc } = returned;
        let number = function + 1;
        let text = match doc {
            Some(doc) => format!("map function {number} returned {kind} over document {doc}"),
            None => format!("map function {number} returned {kind}"),
        };
        let details = json!({"function": function, "returned": kind, "doc": doc});
        self.log_with(&quote(&text), &details);
    }

    /// Warns if the named function has returned a promise in this command.
    pub fn warn_of_promise(&self, function: impl Fn() -> String) {
        if self.report.returned.take() == Some(PROMISE) {
            self.warn(&format!(
                "{} returned a promise, as async functions do: nothing waits for it, and what it promises is lost; \
                 return the value itself",
                function()
            ));
        }
    }

    /// Logs a warning of the server itself.
    pub fn warn(&self, text: &str) {
        let text = quote(text);
        if self.report.is_wanted() {
            self.log_with(&text, &json!({"level": "warning"}))
        } else {
            self.log_json(&text)
        }
    }
}

impl Report {
    fn object(&self, details: Details, doc: Option<String>) -> Json {
        let place = details.place;
        let excerpt = place.excerpt.map(|shown| (shown.line, shown.caret));
        let (source_line, caret) = excerpt.unzip();
        let mut object = json!({
            "function": *self.function.borrow(),
            "doc": doc,
            "name": details.name,
            "message": details.message,
            "module": place.module,
            "line": place.spot.map(|spot| spot.line),
            "column": place.spot.map(|spot| spot.column),
            "source_line": source_line,
            "caret": caret,
            "stack": Some(place.stack).filter(|stack| !stack.is_empty()),
        });
        if let Json::Object(members) = &mut object {
            members.retain(|_, value| !value.is_null());
        }
        object
    }
}

fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{} ..", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the path of a design document's function as errors show it.
pub(super) fn path_of(path: &[String]) -> Json {
    json!(cut(&path.join("/"), NAME_CHARACTERS_MAX))
}

/// Returns the id of the document passed to a command's function; `number` selects among several.
fn document_of(line: &str, number: usize) -> Option<String> {
    let command = Command::parse(line).ok()?;
    let document = match command.name.as_str() {
        "map_doc" | "index_doc" | "nouveau_index_doc" => command.argument(0)?,
        "ddoc" => {
            let kind = Elements::of(command.argument(1)?).next()?;
            let first = Elements::of(command.argument(2)?).next()?;
            match unquote(kind)?.as_ref() {
                "filters" | "views" => Elements::of(first).nth(number)?,
                "shows" | "updates" | "validate_doc_update" => first,
                _ => return None,
            }
        }
        _ => return None,
    };
    id_of(document)
}

/// Returns the id of a document, given as JSON text.
fn id_of(document: &str) -> Option<String> {
    let id = members(document, &["_id"]).get("_id").map(value_as_text)?;
    Some(cut(&id, MESSAGE_CHARACTERS_MAX))
}

/// Returns a value's type, as text.
fn kind_of(value: &Value<'_>) -> &'static str {
    match value.type_of() {
        Type::Promise => PROMISE,
        Type::Null => "null",
        Type::Bool => "a boolean",
        Type::Int | Type::Float => "a number",
        Type::String => "a string",
        Type::Array => "a list",
        Type::Function | Type::Constructor => "a function",
        Type::Object | Type::Exception | Type::Proxy => "an object",
        _ => "a value",
    }
}
