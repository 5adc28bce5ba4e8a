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

use rquickjs::{Ctx, Type, Value};
use serde_json::{Map, Value as Json, json};

use super::command::{Command, members, value_as_text};
use super::failure::{Failure, stack_of};
use super::memory::Account;
use super::positions::{Excerpt, Source, Spot};
use super::realm::Shared;
use super::stack::{File, Frame, frames, module_file};
use super::text::unquote;
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
    pub(super) function: RefCell<Source>,
    /// File name of a module -> its source.
    modules: RefCell<HashMap<String, Source>>,
}

impl Sources {
    /// Adds a module that is evaluated after other text; returns its file name.
    pub(super) fn add_module(
        &self,
        id: &str,
        text_before: &str,
        source: &str,
        memory: &Rc<Account>,
    ) -> String {
        let file = module_file(id);
        let source = Source::behind(text_before, source, memory);
        self.modules.borrow_mut().insert(file.clone(), source);
        file
    }

    fn spot(&self, frame: &Frame<'_>) -> Option<Spot> {
        let (line, column) = (frame.line, frame.column);
        let (place, is_exact) = ((line, column), frame.name.is_none());
        match frame.file {
            _ if line == 0 => None,
            File::Function => Some(self.function.borrow().spot(place, is_exact)),
            File::Module(id) => {
                let modules = self.modules.borrow();
                let source = modules.get(&module_file(id));
                source.map(|source| source.spot(place, is_exact))
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
    pub(super) fn is_promise(&self) -> bool {
        self.kind == PROMISE
    }
}

/// The report of the current command.
#[derive(Default)]
pub(super) struct Report {
    wanted: Cell<bool>,
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
    document: Cell<usize>,
    /// The type of the last return value, as text.
    returned: Cell<Option<&'static str>>,
}

impl Report {
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.get()
    }

    /// Enables or disables reports.
    pub(super) fn want(&self, wanted: bool) {
        self.wanted.set(wanted);
    }

    /// Begins a command.
    pub(super) fn begin(&self) {
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
    pub(super) fn at(&self, function: impl FnOnce() -> Json) {
        if self.is_wanted() {
            self.function.replace(function());
        }
    }

    /// Records the realm whose code runs next.
    pub(super) fn enter(&self, sources: &Rc<Sources>) {
        if self.is_wanted() {
            self.sources.replace(Rc::downgrade(sources));
        }
    }

    /// Returns the sources of the realm whose code ran last; empty if the realm is gone.
    fn sources(&self) -> Rc<Sources> {
        self.sources.borrow().upgrade().unwrap_or_default()
    }

    /// Records a function's return value. A promise is remembered until the command ends.
    pub(super) fn returned(&self, value: &Value<'_>) {
        if self.is_wanted() && self.returned.get() != Some(PROMISE) {
            self.returned.set(Some(kind_of(value)));
        }
    }

    /// Takes what is recorded of the last return value. `document` is the function's document as JSON text.
    pub(super) fn take_returned(&self, document: Option<&str>) -> Option<Returned> {
        let kind = self.returned.take()?;
        let doc = document.and_then(id_of);
        Some(Returned { kind, doc })
    }

    /// Records the index of the document for the next call.
    pub(super) fn at_document(&self, number: usize) {
        self.document.set(number);
    }
}

impl Shared {
    /// Records the exception that may end a command, and the source that was being compiled.
    pub(super) fn note_raised<'js>(
        &self,
        ctx: &Ctx<'js>,
        value: &Value<'js>,
        failure: &Failure,
        source: Option<&str>,
    ) {
        if self.report.is_wanted() {
            let details = self.details(ctx, value, failure, source);
            self.report.raised.replace(Some(details));
        }
    }

    /// Records that a module was not loaded, and the reason passed to its user.
    pub(super) fn note_module<'js>(
        &self,
        ctx: &Ctx<'js>,
        error: &Value<'js>,
        (reason, source): (String, &str),
    ) {
        let inner = self.report.module.borrow().clone();
        let place = match (inner, stack_of(ctx, error)) {
            (_, Some(stack)) => Place::of(&stack, &self.report.sources(), Some(source)),
            // A module that it requires was not loaded.
            (Some((_, place)), None) => place,
            (None, None) => Place::default(),
        };
        self.report.module.replace(Some((reason, place)));
    }

    fn details<'js>(
        &self,
        ctx: &Ctx<'js>,
        value: &Value<'js>,
        failure: &Failure,
        source: Option<&str>,
    ) -> Details {
        let (name, message) = failure.words(self);
        let of_module = self.report.module.borrow();
        let of_module = of_module
            .as_ref()
            .filter(|(reason, _)| message.starts_with(&**reason));
        let place = of_module.map_or_else(
            || {
                let stack = stack_of(ctx, value).unwrap_or_default();
                Place::of(&stack, &self.report.sources(), source)
            },
            |(_, place)| place.clone(),
        );
        Details {
            name: cut(&name, NAME_CHARACTERS_MAX),
            message: cut(&message, MESSAGE_CHARACTERS_MAX),
            place,
        }
    }

    /// Logs a function's exception, given as JSON text. `ends` says whether it ends the command.
    pub(super) fn log_raised<'js>(
        &self,
        ctx: &Ctx<'js>,
        json: &str,
        error: &Value<'js>,
        (doc, ends): (Option<String>, bool),
    ) {
        if !self.report.is_wanted() {
            return self.log_json(json);
        }
        let details = self.details(ctx, error, &Failure::thrown(ctx, error), None);
        self.report.is_told.set(ends);
        self.log_with(json, &self.report.object(details, doc));
    }

    /// Logs the error that ends a command, unless already logged.
    pub(super) fn log_failure(&self, failure: &Failure, line: &str) {
        if !self.report.is_wanted() || self.report.is_told.get() {
            return;
        }
        let details = self.report.raised.take().unwrap_or_else(|| {
            let (name, message) = failure.words(self);
            Details {
                name: cut(&name, NAME_CHARACTERS_MAX),
                message: cut(&message, MESSAGE_CHARACTERS_MAX),
                place: Place::default(),
            }
        });
        let text = json!(format!("{}: {}", details.name, details.message));
        let doc = document_of(line, self.report.document.get());
        self.log_with(&text.to_string(), &self.report.object(details, doc));
    }

    /// Logs what the map function at this index returned. The service decides whether to report it: only the service
    /// knows whether the function emitted for other documents.
    pub(super) fn tell_returned(&self, function: usize, returned: &Returned) {
        let Returned { kind, doc } = returned;
        let over = doc.as_ref();
        let over = over.map_or_else(String::new, |doc| format!(" over document {doc}"));
        let text = json!(format!(
            "map function {} returned {kind}{over}",
            function + 1
        ));
        let details = json!({"function": function, "returned": kind, "doc": doc});
        self.log_with(&text.to_string(), &details);
    }

    /// Warns if the named function has returned a promise in this command.
    pub(super) fn warn_of_promise(&self, function: impl Fn() -> String) {
        if self.report.returned.take() == Some(PROMISE) {
            self.warn(&format!(
                "{} returned a promise, as async functions do: nothing waits for it, and what it promises is lost; \
                 return the value itself",
                function()
            ));
        }
    }

    /// Logs a warning of the server itself.
    pub(super) fn warn(&self, text: &str) {
        let text = json!(text).to_string();
        if self.report.is_wanted() {
            self.log_with(&text, &json!({"level": "warning"}))
        } else {
            self.log_json(&text)
        }
    }
}

impl Report {
    fn object(&self, details: Details, doc: Option<String>) -> Json {
        let Details {
            name,
            message,
            place,
        } = details;
        let mut members = Map::new();
        let mut put = |name: &str, value: Json| {
            if !value.is_null() {
                members.insert(name.to_owned(), value);
            }
        };
        put("function", self.function.borrow().clone());
        put("doc", json!(doc));
        put("name", json!(name));
        put("message", json!(message));
        put("module", json!(place.module));
        put("line", json!(place.spot.map(|spot| spot.line)));
        put("column", json!(place.spot.map(|spot| spot.column)));
        if let Some(Excerpt { line, caret }) = place.excerpt {
            put("source_line", json!(line));
            put("caret", json!(caret));
        }
        if !place.stack.is_empty() {
            put("stack", json!(place.stack));
        }
        Json::Object(members)
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
