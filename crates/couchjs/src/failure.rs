//! Failures of commands, and the lines that answer them.
//!
//! PROMISES  For any thrown value, the error has a name, which is a string, and a reason; reading them raises
//!           nothing. Only complete lines `["error", NAME, REASON]` are written.
//! SOURCE    The error forms of CouchDB's loop.js: arrays, named objects, everything else.
//! DIFFERS   The reason is always a string if `reset` or [`Options::text_reasons`](super::Options) demands it: for an
//!           exception CouchDB answers the result of `JSON.stringify`, mostly `{}`. Exhausted memory is then
//!           `out_of_memory` with a reason, which CouchDB calls `InternalError`.
//! LIMITS    The engine raises `null` if it cannot allocate an exception. A function can throw `null` too;
//!           [`Peak`](super::memory::Peak) distinguishes them by the process's memory.

use std::borrow::Cow;

use rquickjs::convert::Coerced;
use rquickjs::{Array, CString, Ctx, Object, Type, Value};

use super::hints;
use super::realm::Shared;
use super::stack::without_modules;
use super::text::quote;

/// The engine's InternalError messages for an allocation beyond its limit; empty if there is no memory for a message.
const ENGINE_OUT_OF_MEMORY: [&str; 3] = ["out of memory", "out of memory in regexp execution", ""];

/// The name of an out-of-memory error whose reason names the function.
pub(super) const OUT_OF_MEMORY: &str = "out_of_memory";

/// CouchDB's name and reason for exhausted memory: the engine's exception.
pub(super) const COUCHDB_OUT_OF_MEMORY: [&str; 2] = ["InternalError", ENGINE_OUT_OF_MEMORY[0]];

/// Maximum length of an error's text, in bytes; longer ones are cut.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// The reason given when a function throws `null`.
const THREW_NULL: &str = "the function threw null";

/// CouchDB's answer instead of an exception's message.
const NO_REASON: &str = "{}";

/// Why a command has no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// An error with a name.
    Error {
        name: String,
        reason: String,
        /// CouchDB's name, if different.
        couchdb_name: Option<&'static str>,
        /// CouchDB's reason as JSON text, if different.
        couchdb_reason: Option<String>,
        /// Whether the server ends after the answer.
        fatal: bool,
    },
    /// The memory limit is exhausted; the server ends.
    OutOfMemory { function: Option<String> },
    /// `null` was raised, by a function or by an engine without memory.
    Null { function: Option<String> },
}

impl Failure {
    /// `["error", name, reason]`; the server continues.
    pub fn error(name: &str, reason: &str) -> Self {
        Failure::Error {
            name: cut(name).into_owned(),
            reason: cut(reason).into_owned(),
            couchdb_name: None,
            couchdb_reason: None,
            fatal: false,
        }
    }

    /// `["error", name, reason]`; the server ends.
    pub fn fatal(name: &str, reason: &str) -> Self {
        Failure::error(name, reason).ending(true)
    }

    /// A malformed command: the parent's fault.
    pub fn protocol(reason: &str) -> Self {
        Failure::error("query_protocol_error", reason)
    }

    /// The TypeError of CouchDB's own code; here it has a `reason`.
    pub fn type_error(reason: &str) -> Self {
        Failure::error("TypeError", reason).with_couchdb_reason(NO_REASON)
    }

    pub fn out_of_memory() -> Self {
        Failure::OutOfMemory { function: None }
    }

    /// A line of `bytes` was skipped for lack of memory.
    pub fn line_too_long(bytes: usize, limit_bytes: usize) -> Self {
        let reason = format!(
            "a line of {bytes} bytes does not fit in what is left of the {limit_bytes} bytes of memory that functions \
             may take; send less at once, or raise [sandbox] javascript_memory_max in the \
             configuration"
        );
        // The server ends if a new process could hold the line: a line may take at most half of its memory.
        let [name, couchdb_reason] = COUCHDB_OUT_OF_MEMORY;
        Failure::Error {
            name: OUT_OF_MEMORY.to_owned(),
            reason,
            couchdb_name: Some(name),
            couchdb_reason: Some(quote(couchdb_reason)),
            fatal: bytes <= limit_bytes / 2,
        }
    }

    /// Adds the running function, unless already set.
    pub fn inside(mut self, place: impl FnOnce() -> String) -> Self {
        if let Failure::OutOfMemory { function } | Failure::Null { function } = &mut self
            && function.is_none()
        {
            *function = Some(place());
        }
        self
    }

    /// The failure for an error of `ctx`: the raised value, or the binding's refusal.
    pub fn of(ctx: &Ctx<'_>, error: &rquickjs::Error) -> Self {
        Failure::noted(ctx, error, |_, _| ())
    }

    /// As [`Self::of`]; passes the raised value to `note`.
    pub fn noted<'js>(
        ctx: &Ctx<'js>,
        error: &rquickjs::Error,
        note: impl FnOnce(&Value<'js>, &Failure),
    ) -> Self {
        match error {
            rquickjs::Error::Allocation => Failure::out_of_memory(),
            other if !other.is_exception() && !ctx.has_exception() => {
                Failure::type_error(&other.to_string())
            }
            _ => {
                let value = ctx.catch();
                let failure = Failure::thrown(&value);
                note(&value, &failure);
                failure
            }
        }
    }

    /// The failure for a thrown value.
    pub fn thrown(value: &Value<'_>) -> Self {
        match value.type_of() {
            Type::Uninitialized => Failure::out_of_memory(),
            Type::Null => Failure::Null { function: None },
            Type::Undefined => Failure::type_error("the function threw undefined"),
            _ => match value.as_object() {
                Some(object) => Thrown(object).failure(),
                None => unnamed(&text_of(value), "null"),
            },
        }
    }

    /// Whether the server ends after the answer.
    pub fn is_fatal(&self, shared: &Shared) -> bool {
        match self {
            Failure::Error { fatal, .. } => *fatal,
            Failure::OutOfMemory { .. } => true,
            Failure::Null { .. } => shared.process.peak.was_exhausted(),
        }
    }

    /// Whether the engine has no memory left.
    pub fn is_out_of_memory(&self, shared: &Shared) -> bool {
        !matches!(self, Failure::Error { .. }) && self.is_fatal(shared)
    }

    /// The answer, one line of JSON.
    pub fn line(&self, shared: &Shared) -> String {
        let couchdb = !shared.text_reasons.get();
        match self {
            Failure::Error {
                name,
                couchdb_name,
                couchdb_reason: Some(reason),
                ..
            } if couchdb => error_line(couchdb_name.unwrap_or(name), reason),
            _ if couchdb && self.is_out_of_memory(shared) => {
                let [name, reason] = COUCHDB_OUT_OF_MEMORY;
                error_line(name, &quote(reason))
            }
            Failure::Null { .. } if !self.is_fatal(shared) => {
                Failure::type_error(THREW_NULL).line(shared)
            }
            _ => {
                let (name, reason) = self.words(shared);
                error_line(&name, &quote(&reason))
            }
        }
    }

    /// Its name and reason.
    pub fn words(&self, shared: &Shared) -> (Cow<'_, str>, Cow<'_, str>) {
        match self {
            Failure::Error { name, reason, .. } => (name.into(), reason.into()),
            Failure::Null { .. } if !self.is_fatal(shared) => {
                ("TypeError".into(), THREW_NULL.into())
            }
            Failure::OutOfMemory { function } | Failure::Null { function } => {
                let function = function.as_deref().unwrap_or("the query server");
                let bytes = shared.options().memory_bytes;
                let reason = format!(
                    "{function} needs more than the {bytes} bytes of memory that functions may take; let it \
                     take less at once, or raise [sandbox] javascript_memory_max in the configuration"
                );
                (OUT_OF_MEMORY.into(), reason.into())
            }
        }
    }

    fn ending(mut self, ends: bool) -> Self {
        if let Failure::Error { fatal, .. } = &mut self {
            *fatal = ends;
        }
        self
    }

    /// Adds a hint to the reason of a report; the answer gets it elsewhere.
    pub fn hinting(mut self, hint: Option<&str>) -> Self {
        if let (Failure::Error { reason, .. }, Some(_)) = (&mut self, hint) {
            *reason = hinted(reason, hint).into_owned();
        }
        self
    }

    /// Sets a different reason for CouchDB, as JSON text.
    pub fn with_couchdb_reason(mut self, json: &str) -> Self {
        if let Failure::Error { couchdb_reason, .. } = &mut self {
            *couchdb_reason = Some(cut_json(json));
        }
        self
    }
}

/// Returns a message with a hint.
pub(super) fn hinted<'a>(words: &'a str, hint: Option<&str>) -> Cow<'a, str> {
    hint.map_or(words.into(), |hint| format!("{words}: {hint}").into())
}

fn error_line(name: &str, reason: &str) -> String {
    format!("[\"error\",{},{reason}]", quote(name))
}

fn unnamed(reason: &str, couchdb_reason: &str) -> Failure {
    Failure::error("unnamed_error", reason).with_couchdb_reason(couchdb_reason)
}

/// A thrown object.
struct Thrown<'a, 'js>(&'a Object<'js>);

impl<'js> Thrown<'_, 'js> {
    fn failure(&self) -> Failure {
        if let Some(array) = self.0.as_array()
            && let Some(kind @ ("error" | "fatal")) = self.item(array, 0).text().as_deref()
        {
            return self
                .named(&self.item(array, 1), self.item(array, 2))
                .ending(kind == "fatal");
        }
        let name = self.member("name");
        let message = self.member("message").text();
        if name.text().as_deref() == Some("InternalError") {
            let message = message.unwrap_or_else(|| text_of(self.0.as_value()));
            return if ENGINE_OUT_OF_MEMORY.contains(&message.as_str()) {
                Failure::out_of_memory()
            } else {
                Failure::fatal("InternalError", &message)
            };
        }
        let (error, reason) = (self.member("error"), self.member("reason"));
        if error.is_truthy() && reason.is_truthy() {
            return self.named(&error, reason);
        }
        if name.0.is_none() {
            let unreadable = "the function threw an object whose members cannot be read";
            return Failure::type_error(message.as_deref().unwrap_or(unreadable));
        }
        let json = if self.0.is_function() {
            None
        } else {
            self.json(self.0.as_value().clone())
        };
        let stack = self.member("stack");
        let words = match (message, &json) {
            (Some(message), _) if !message.is_empty() && stack.text().is_some() => message,
            (Some(message), None) if !message.is_empty() => message,
            (_, Some(json)) if json != NO_REASON => json.clone(),
            _ => text_of(self.0.as_value()),
        };
        match name.text().filter(|name| !name.is_empty()) {
            Some(name) => {
                let couchdb_reason = json.as_deref().unwrap_or(NO_REASON);
                let reason = hinted(&words, hints::of_error(&name, &words));
                Failure::error(&name, &reason).with_couchdb_reason(couchdb_reason)
            }
            None => {
                let stack = stack.text().filter(|stack| !stack.is_empty());
                let stack = stack.map(|stack| quote(&without_modules(&stack)));
                unnamed(&words, stack.as_deref().unwrap_or("null"))
            }
        }
    }

    /// An error named by the function itself.
    fn named(&self, name: &Member<'js>, reason: Member<'js>) -> Failure {
        let Some(name) = name.text() else {
            let whole = self
                .json(self.0.as_value().clone())
                .unwrap_or_else(|| text_of(self.0.as_value()));
            return unnamed(&whole, &quote(&whole));
        };
        match (reason.text(), reason) {
            (Some(text), _) => match hints::of_error(&name, &text) {
                Some(hint) => Failure::error(&name, &hinted(&text, Some(hint)))
                    .with_couchdb_reason(&quote(&text)),
                None => Failure::error(&name, &text),
            },
            (None, Member(Some(value))) if !value.is_undefined() => {
                let json = self
                    .json(value.clone())
                    .unwrap_or_else(|| quote(&text_of(&value)));
                Failure::error(&name, &json).with_couchdb_reason(&json)
            }
            _ => Failure::error(&name, "the function gave no reason"),
        }
    }

    fn member(&self, name: &str) -> Member<'js> {
        self.read(self.0.get(name))
    }

    fn item(&self, array: &Array<'js>, index: usize) -> Member<'js> {
        self.read(array.get(index))
    }

    fn read(&self, value: rquickjs::Result<Value<'js>>) -> Member<'js> {
        if value.is_err() {
            self.0.ctx().catch();
        }
        Member(value.ok())
    }

    /// JSON text; `None` if JSON cannot express the value.
    fn json(&self, value: Value<'js>) -> Option<String> {
        let text = json(value).map(|text| cut_json(&text));
        if text.is_err() {
            self.0.ctx().catch();
        }
        text.ok()
    }
}

/// Returns the stack trace of any thrown value.
pub(super) fn stack_of(value: &Value<'_>) -> Option<String> {
    Thrown(value.as_object()?).member("stack").text()
}

/// A member of a thrown object; `None` if reading it raised an exception.
struct Member<'js>(Option<Value<'js>>);

impl Member<'_> {
    fn text(&self) -> Option<String> {
        self.0.as_ref()?.as_string().map(string_text)
    }

    fn is_truthy(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|value| value.get().is_ok_and(|Coerced(is_truthy)| is_truthy))
    }
}

/// Returns a string's text, cut if too long. Unpaired surrogates become U+FFFD.
pub(super) fn string_text(string: &rquickjs::String<'_>) -> String {
    let Ok(text) = string.clone().to_cstring() else {
        string.ctx().catch();
        return String::new();
    };
    cut(&well_formed(&text)).into_owned()
}

/// Returns the text with U+FFFD for each unpaired surrogate. A text that has one is cut after [`TEXT_BYTES_MAX`].
pub(super) fn well_formed<'a>(text: &'a CString<'_>) -> Cow<'a, str> {
    let bytes: &[u8] = text.as_ref();
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    // A surrogate is ED and two more bytes, each of them invalid by itself.
    let chunks = bytes[..bytes.len().min(TEXT_BYTES_MAX)].utf8_chunks();
    let texts = chunks.flat_map(|chunk| {
        let is_surrogate = chunk.invalid().first() == Some(&0xED);
        [chunk.valid(), if is_surrogate { "\u{fffd}" } else { "" }]
    });
    Cow::Owned(texts.collect())
}

/// Cuts an error's text if too long.
pub(super) fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= TEXT_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let kept = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    Cow::Owned(format!("{kept} .. ({} bytes)", text.len()))
}

/// As [`cut`], for JSON text; a cut value becomes a string.
fn cut_json(json: &str) -> String {
    match cut(json) {
        Cow::Borrowed(whole) => whole.to_owned(),
        Cow::Owned(beginning) => quote(&beginning),
    }
}

/// Describes a value as text.
pub(super) fn text_of(value: &Value<'_>) -> String {
    match value.type_of() {
        Type::Function | Type::Constructor => "a function".to_owned(),
        Type::Symbol => "a symbol".to_owned(),
        _ => match value.get::<Coerced<rquickjs::String<'_>>>() {
            Ok(text) => string_text(&text.0),
            Err(_) => {
                value.ctx().catch();
                "an object without a text".to_owned()
            }
        },
    }
}

/// Returns a value as JSON text in the engine's memory, `null` if JSON cannot express it.
pub(super) fn json<'js>(value: Value<'js>) -> rquickjs::Result<CString<'js>> {
    let ctx = value.ctx().clone();
    match ctx.json_stringify(value)? {
        Some(text) => text.to_cstring(),
        None => rquickjs::String::from_str(ctx, "null")?.to_cstring(),
    }
}
