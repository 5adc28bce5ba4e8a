//! Realms: global objects with standard objects and helpers, one for each user function.
//!
//! PROMISES  Only the preludes reach the native calls below. Arguments and results are text or JSON, so only
//!           well-formed lines are written.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rquickjs::atom::PredefinedAtom;
use rquickjs::context::EvalOptions;
use rquickjs::convert::Coerced;
use rquickjs::function::{IntoJsFunc, ParamRequirement, Params};
use rquickjs::prelude::Func;
use rquickjs::{
    Context, Ctx, Error, Exception, Function, Object, Persistent, Result as JsResult, Runtime,
    String as JsString, Value,
};

use super::command::Command;
use super::engine::{SavedFunction, SavedObject, Seat, data_realm};
use super::failure::{
    COUCHDB_OUT_OF_MEMORY, Failure, OUT_OF_MEMORY, cut, hinted, string_text, text_of, well_formed,
};
use super::hints;
use super::lines::{Next, Reader, into_text};
use super::memory::{Account, LONG_BYTES};
use super::mime::{self, Registry};
use super::positions::Source;
use super::process::Process;
use super::report::{Report, Sources};
use super::stack::{self, without_modules};
use super::text::{beginning, excerpt, quote};
use super::{Options, source, writing};
use serde_json::Value as Json;

/// The memory limit divided by this is the limit of registered content types.
const TYPES_PART: usize = 16;

/// Maximum length of a list of content types and of an Accept header that are matched, in bytes each.
const CHOICE_BYTES_MAX: usize = 64 << 10;

/// Overhead of a module in the table of sources, in bytes, not counting its file name and text.
const MODULE_BYTES: usize = 256;

/// Characters kept of a log message that is too long for a line.
const LONG_LOG_CHARACTERS: usize = 1000;

/// State shared by an isolate's realms and the server.
pub(super) struct Shared {
    pub process: Rc<Process>,
    pub memory: Rc<Account>,
    /// Whether error reasons are always strings, set by the last `reset`.
    pub text_reasons: Cell<bool>,
    /// Whether functions have a console, set by the last `reset`.
    pub console: Cell<bool>,
    /// Content types of design documents: one registry for the isolate's lifetime.
    types: RefCell<Registry>,
    pub report: Report,
}

impl Shared {
    pub fn new(process: &Rc<Process>) -> Rc<Self> {
        let options = process.options;
        Rc::new(Shared {
            process: Rc::clone(process),
            memory: Account::new(options.memory_bytes),
            text_reasons: Cell::new(options.text_reasons),
            console: Cell::new(false),
            types: RefCell::new(Registry::new(options.memory_bytes / TYPES_PART)),
            report: Report::default(),
        })
    }

    pub fn options(&self) -> &Options {
        &self.process.options
    }

    /// Returns the measured memory of the isolate, in bytes.
    pub fn held(&self) -> usize {
        self.memory.held() + self.types.borrow().bytes
    }

    /// Logs a text given as JSON.
    pub fn log_json(&self, json: &str) {
        self.log_line(json, "]");
    }

    /// Logs a text given as JSON, with details.
    pub fn log_with(&self, json: &str, details: &Json) {
        self.log_line(json, &format!(",{details}]"));
    }

    /// Logs a text given as JSON, followed by `end`; cuts one that is too long for a line.
    fn log_line(&self, json: &str, end: &str) {
        let line = ["[\"log\",", json, end];
        if line.iter().map(|part| part.len()).sum::<usize>() <= self.options().line_bytes_max {
            return self.answer(&line);
        }
        let kept = beginning(json, LONG_LOG_CHARACTERS);
        let cut = format!("{kept} .. ({} bytes)", json.len() - 2);
        self.answer(&["[\"log\",", &quote(&cut), end]);
    }

    /// Writes a line, given in parts, unless the server has already sent its last answer.
    fn answer(&self, line: &[&str]) {
        if self.process.ended.get().is_none() {
            let output = &mut self.process.lines.borrow_mut().output;
            output.put(line);
            // The command goes on, and may hang.
            output.hold();
        }
    }

    /// Checks that a line is not too long for the parent.
    pub fn check_length(&self, bytes: usize) -> Result<(), Failure> {
        let most = self.options().line_bytes_max;
        if bytes <= most {
            return Ok(());
        }
        let reason = format!(
            "the answer has {bytes} bytes and a line at most {most}; let the function emit or return \
             less at once, or raise [server] line_max"
        );
        Err(Failure::error("answer_too_large", &reason))
    }

    /// Writes a line for a running function.
    ///
    /// # Errors
    /// A line that is too long is raised as an exception and not written.
    fn answer_or_raise(&self, ctx: &Ctx<'_>, line: &str) -> JsResult<()> {
        match self.check_length(line.len()) {
            Ok(()) => {
                self.answer(&[line]);
                Ok(())
            }
            Err(failure) => Err(ctx.throw(ctx.json_parse(failure.line(self))?)),
        }
    }

    /// Ends the server from inside a user function.
    fn end(&self, ctx: &Ctx<'_>, status: u8) -> Error {
        self.process.ended.set(Some(status));
        Exception::throw_internal(ctx, "the list has ended")
    }

    /// `nextRow()`: waits for the next row of a list, and returns its parsed line; undefined at the end.
    fn next_row<'js>(&self, ctx: &Ctx<'js>) -> JsResult<Value<'js>> {
        let failure = match self.read_row() {
            Ok(Some(Row::Next(row))) => return ctx.json_parse(row),
            Ok(Some(Row::End)) => return Ok(Value::new_undefined(ctx.clone())),
            Ok(None) => return Err(self.end(ctx, 0)),
            Err(failure) => failure,
        };
        self.answer(&[&failure.line(self)]);
        Err(self.end(ctx, super::server::FATAL_STATUS))
    }

    /// Reads the next line of a list; `None` at the end of the input.
    fn read_row(&self) -> Result<Option<Row>, Failure> {
        let mut line = Vec::new();
        let mut reader = RowReader(&self.memory);
        let text = match self.process.lines.borrow_mut().next(&mut line, &mut reader) {
            Ok(Next::Line) => into_text(line)?,
            Ok(Next::TooLong(bytes)) => {
                return Err(Failure::line_too_long(bytes, self.options().memory_bytes));
            }
            Ok(Next::End) | Err(_) => return Ok(None),
        };
        let command = Command::parse(&text)?;
        match command.name.as_str() {
            "list_row" => Ok(Some(Row::Next(text))),
            "list_end" => Ok(Some(Row::End)),
            name => {
                let reason = format!("not a row '{}'", cut(name));
                Err(Failure::fatal("list_error", &reason))
            }
        }
    }
}

/// Input of a list function.
enum Row {
    /// The line of a row.
    Next(String),
    End,
}

/// Reads the rows of a list while the function runs.
struct RowReader<'a>(&'a Account);

impl Reader for RowReader<'_> {
    fn prepare(&mut self) -> bool {
        false
    }

    fn line_bytes_max(&mut self) -> usize {
        self.0.left() / 4
    }
}

/// The kind of a view function, which determines its helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewKind {
    /// Map functions and those of the Lucene search.
    Map,
    /// Functions of the Nouveau search.
    Nouveau,
    /// Reduce functions.
    Reduce,
}

/// A global object with its helpers.
pub(super) struct Realm {
    /// Objects shared by the preludes; user code never sees them. Freed before the context.
    tools: SavedObject,
    pub context: Context,
    sources: Rc<Sources>,
    pub shared: Rc<Seat>,
}

impl Realm {
    /// Makes a realm that has run only the scripts of the standard objects and the helpers.
    pub fn new(runtime: &Runtime, process: &Process, seat: &Rc<Seat>) -> Result<Self, Failure> {
        let context = data_realm(runtime, process)?;
        let shared = Rc::clone(seat);
        let tools = context
            .with(|ctx| {
                let host = Object::new(ctx.clone())?;
                let log = Rc::clone(&shared);
                let log =
                    move |json: JsString<'_>| json.to_cstring().map(|json| log.log_json(&json));
                host.set("log", Func::from(log))?;
                // raised(TEXT, ERROR, ID, ENDS): logs an exception.
                let raised = Rc::clone(&shared);
                let raised = move |json: Coerced<JsString<'_>>,
                                   error: Value<'_>,
                                   doc: Value<'_>,
                                   ends: bool| {
                    let json = json.0.to_cstring()?;
                    let doc = doc.as_string().map(string_text);
                    raised.log_raised(&json, &error, doc, ends);
                    Ok::<_, Error>(())
                };
                host.set("raised", Func::from(raised))?;
                let full = Rc::clone(&shared);
                host.set(
                    "full",
                    Func::from(move || full.process.peak.was_exhausted()),
                )?;
                host.set("packed", Func::from(writing::packed))?;
                // returned(VALUE): records a function's return value for the report.
                let returned = Rc::clone(&shared);
                let returned = move |value: Value<'_>| returned.report.returned(&value);
                host.set("returned", Func::from(returned))?;
                let helpers: Function<'_> = process.helpers.run(&ctx)?;
                let tools: Object<'_> = helpers.call((host,))?;
                Ok::<_, Error>(Persistent::save(&ctx, tools))
            })
            .map_err(|_| Failure::out_of_memory())?;
        Ok(Realm {
            tools,
            context,
            sources: Rc::default(),
            shared,
        })
    }

    /// Runs `work` in the realm; an exception becomes a failure.
    pub fn with<R>(
        &self,
        work: impl for<'js> FnOnce(&Ctx<'js>) -> JsResult<R>,
    ) -> Result<R, Failure> {
        self.shared.report.enter(&self.sources);
        self.context.with(|ctx| {
            work(&ctx).map_err(|error| {
                Failure::noted(&ctx, &error, |value, failure| {
                    self.shared.note_raised(value, failure, None);
                })
            })
        })
    }

    /// Loads `require` for the tree below `root`, or for a library of views given as JSON text.
    pub fn add_modules(&self, tree: Tree<'_>) -> Result<(), Failure> {
        self.with(|ctx| {
            let modules: Function<'_> = self.shared.process.modules.run(ctx)?;
            let tools = self.tools.clone().restore(ctx)?;
            self.add_module_natives(&tools.get("host")?)?;
            match tree {
                Tree::DesignDoc(root) => modules.call((tools, root.clone().restore(ctx)?)),
                Tree::Library(json) => modules.call((tools, Value::new_null(ctx.clone()), json)),
            }
        })
    }

    /// Loads the helpers of views and searches; returns the object of their runners. Documents are
    /// frozen unless the function is known only to read them (`reading`).
    pub fn add_views(&self, kind: ViewKind, reading: bool) -> Result<SavedObject, Failure> {
        self.with(|ctx| {
            let tools = self.tools.clone().restore(ctx)?;
            self.add_console(&tools)?;
            let views: Function<'_> = self.shared.process.views.run(ctx)?;
            let kind = match kind {
                ViewKind::Map => "map",
                ViewKind::Nouveau => "nouveau",
                ViewKind::Reduce => "reduce",
            };
            let runners: Object<'_> = views.call((tools, kind, reading))?;
            Ok(Persistent::save(ctx, runners))
        })
    }

    /// Loads the helpers of design documents; returns the object of their responders.
    pub fn add_render(&self) -> Result<SavedObject, Failure> {
        self.with(|ctx| {
            let tools = self.tools.clone().restore(ctx)?;
            self.add_natives(&tools.get("host")?)?;
            self.add_console(&tools)?;
            let render: Function<'_> = self.shared.process.render.run(ctx)?;
            let responders: Object<'_> = render.call((tools,))?;
            Ok(Persistent::save(ctx, responders))
        })
    }

    /// Gives the function a console, if the last `reset` requested one.
    fn add_console(&self, tools: &Object<'_>) -> JsResult<()> {
        if self.shared.console.get() {
            tools.get::<_, Function<'_>>("addConsole")?.call(())
        } else {
            Ok(())
        }
    }

    /// Adds the native calls that modules need.
    fn add_module_natives(&self, host: &Object<'_>) -> JsResult<()> {
        let (shared, sources) = (Rc::clone(&self.shared), Rc::clone(&self.sources));
        let file = move |id: JsString<'_>, before: String, source: JsString<'_>| {
            let source = source.to_cstring()?;
            let file = stack::module_file(&string_text(&id));
            let mut modules = sources.modules.borrow_mut();
            modules.remove(&file);
            // A function may make up any number of modules. Errors in one without an entry have no position.
            if let Ok(held) = shared.memory.take(file.len() + MODULE_BYTES) {
                let source = Source::behind(&before, &well_formed(&source), &shared.memory);
                modules.insert(file.clone(), (source, held));
            }
            Ok::<_, Error>(file)
        };
        host.set("moduleFile", Func::from(file))?;
        host.set("evaluate", Func::from(evaluate_as))?;
        // moduleBroken(REASON, SOURCE, ERROR): records that a module was not loaded, and why.
        let broken = Rc::clone(&self.shared);
        let broken = move |reason: JsString<'_>, source: JsString<'_>, error: Value<'_>| {
            if broken.report.is_wanted() {
                let source = source.to_cstring()?;
                broken.note_module(&error, string_text(&reason), &well_formed(&source));
            }
            Ok::<_, Error>(())
        };
        host.set("moduleBroken", Func::from(broken))
    }

    /// Adds the native calls that only functions of design documents need.
    fn add_natives(&self, host: &Object<'_>) -> JsResult<()> {
        let shared = || Rc::clone(&self.shared);
        let answer = shared();
        let answer = move |ctx: Ctx<'_>, line: JsString<'_>| {
            answer.answer_or_raise(&ctx, &line.to_cstring()?)
        };
        host.set("answer", Func::from(answer))?;
        host.set(
            "nextRow",
            Function::new(host.ctx().clone(), NextRow(shared()))?,
        )?;
        let texts = shared();
        host.set("textReasons", Func::from(move || texts.text_reasons.get()))?;
        let report = shared();
        let at_document = move |number: usize| report.report.document.set(number);
        host.set("atDocument", Func::from(at_document))?;
        let plain = |stack: JsString<'_>| {
            let stack = stack.to_cstring()?;
            Ok::<_, Error>(without_modules(&well_formed(&stack)))
        };
        host.set("withoutModules", Func::from(plain))?;
        let types = shared();
        let register = move |ctx: Ctx<'_>, json: JsString<'_>| {
            let json = json.to_cstring()?;
            let registered = types.types.borrow_mut().register_json(&json);
            registered.map_err(|bytes_max| {
                let reason = format!(
                    "registerType: content types take more than {bytes_max} bytes, 1/{TYPES_PART} of the memory \
                     that functions may take; register fewer, or raise [sandbox] javascript_memory_max in the configuration"
                );
                let [name, reason] = if types.text_reasons.get() {
                    [OUT_OF_MEMORY, &reason]
                } else {
                    COUCHDB_OUT_OF_MEMORY
                };
                let error = format!("[\"fatal\",{},{}]", quote(name), quote(reason));
                match ctx.json_parse(error) {
                    Ok(error) => ctx.throw(error),
                    Err(error) => error,
                }
            })
        };
        host.set("registerType", Func::from(register))?;
        let types = shared();
        let types_of = move |key: Coerced<JsString<'_>>| {
            let key = key.0.to_cstring()?;
            let types = types.types.borrow();
            Ok::<_, Error>(types.types_of(&key).map(<[String]>::to_vec))
        };
        host.set("typesOf", Func::from(types_of))?;
        let types = shared();
        let key_of = move |name: JsString<'_>| {
            let name = name.to_cstring()?;
            let types = types.types.borrow();
            Ok::<_, Error>(types.key_of(&name).map(str::to_owned))
        };
        host.set("keyOf", Func::from(key_of))?;
        let best = |types: JsString<'_>, accept: Coerced<JsString<'_>>| {
            let (types, accept) = (types.to_cstring()?, accept.0.to_cstring()?);
            // Longer arguments get no best match.
            if types.len().max(accept.len()) > CHOICE_BYTES_MAX {
                return Ok(String::new());
            }
            let types: Vec<String> = serde_json::from_str(&types).unwrap_or_default();
            Ok::<_, Error>(mime::best_match(&types, &well_formed(&accept)).to_owned())
        };
        host.set("bestMatch", Func::from(best))
    }

    /// Evaluates the source of a user function.
    ///
    /// # Errors
    /// `compilation_error` with the engine's message and the source, as CouchDB words it.
    pub fn compile(&self, source: &str) -> Result<SavedFunction, Failure> {
        self.shared.report.enter(&self.sources);
        self.context.with(|ctx| match self.evaluate(&ctx, source) {
            Ok(value) => match value.as_function() {
                Some(function) if is_async(function) => Err(async_function(source)),
                Some(function) => Ok(Persistent::save(&ctx, function.clone())),
                None => Err(compilation_error(
                    NO_FUNCTION,
                    hints::of_no_function(source),
                    source,
                )),
            },
            Err(Error::Exception) => {
                let error = ctx.catch();
                let hint = hints::of_source(source).filter(|_| is_syntax_error(&error));
                let failure = Failure::thrown(&error).hinting(hint);
                self.shared.note_raised(&error, &failure, Some(source));
                Err(if failure.is_out_of_memory(&self.shared) {
                    failure.inside(|| format!("compiling {}", excerpt(source)))
                } else {
                    let text = text_of(&error);
                    let known = || {
                        text.strip_prefix("SyntaxError: ")
                            .and_then(|text| hints::of_error("SyntaxError", text))
                    };
                    compilation_error(&text, hint.or_else(known), source)
                })
            }
            Err(error) => Err(Failure::of(&ctx, &error)),
        })
    }

    /// Evaluates a source, including the forms that CouchDB accepts beyond JavaScript's.
    fn evaluate<'js>(&self, ctx: &Ctx<'js>, source: &str) -> JsResult<Value<'js>> {
        let first = self.run(ctx, source, &source::begun(source));
        if first.is_ok() {
            return first;
        }
        let error = ctx.catch();
        // A source that needs mending did not compile, so none of it has run.
        match source::mended(source, self.shared.options().memory_bytes)
            .filter(|_| is_syntax_error(&error))
        {
            Some(mended) => self.run(ctx, source, &mended),
            None => Err(ctx.throw(error)),
        }
    }

    /// Runs a text derived from a source.
    fn run<'js>(&self, ctx: &Ctx<'js>, source: &str, text: &str) -> JsResult<Value<'js>> {
        let places = Source::of(source, text, &self.shared.memory);
        self.sources.function.replace(places);
        if text.contains('\0') {
            // Only the language's own eval accepts such a text.
            return self
                .tools
                .clone()
                .restore(ctx)?
                .get::<_, Function<'_>>("evaluate")?
                .call((text,));
        }
        evaluate(ctx, text, stack::FUNCTION)
    }
}

/// Evaluates a text as a script of a file.
fn evaluate<'js>(ctx: &Ctx<'js>, text: &str, file: &str) -> JsResult<Value<'js>> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(file.to_owned());
    ctx.eval_with_options(text, options)
}

/// As [`evaluate`]; undefined for a text that only the language's own eval accepts, and for a long one, which would
/// need uncounted copies.
fn evaluate_as<'js>(ctx: Ctx<'js>, text: JsString<'js>, file: String) -> JsResult<Value<'js>> {
    let text = text.to_cstring()?;
    if text.len() < LONG_BYTES && !text.contains('\0') {
        evaluate(&ctx, &text, &file)
    } else {
        Ok(Value::new_undefined(ctx))
    }
}

/// Where `require` searches for modules.
pub(super) enum Tree<'a> {
    DesignDoc(&'a SavedObject),
    /// The `views.lib` of `add_lib`, as JSON text.
    Library(&'a str),
}

/// `nextRow()`: a type, because a closure cannot relate the lifetimes of its context and its result.
struct NextRow(Rc<Seat>);

impl<'js> IntoJsFunc<'js, (Ctx<'js>,)> for NextRow {
    fn param_requirements() -> ParamRequirement {
        ParamRequirement::any()
    }

    fn call<'a>(&self, params: Params<'a, 'js>) -> JsResult<Value<'js>> {
        self.0.next_row(params.ctx())
    }
}

fn is_syntax_error(error: &Value<'_>) -> bool {
    error
        .as_object()
        .and_then(|error| error.get::<_, String>("name").ok())
        .is_some_and(|name| name == "SyntaxError")
}

/// Returns whether a function is async. CouchDB's QuickJS rejects such functions: nothing there could await them.
fn is_async(function: &Function<'_>) -> bool {
    let tag = function.get::<_, Coerced<String>>(PredefinedAtom::SymbolToStringTag);
    matches!(
        tag.as_ref().map(|tag| tag.0.as_str()),
        Ok("AsyncFunction" | "AsyncGeneratorFunction")
    )
}

/// CouchDB's message for a source that is not a function, or an async one.
pub(super) const NO_FUNCTION: &str = "Expression does not eval to a function.";

/// The error of an async function, which CouchDB does not consider a function.
fn async_function(source: &str) -> Failure {
    let text = "The function is async, and nothing waits for what it promises: take `async` and `await` out.";
    let couchdb = quote(&format!("{NO_FUNCTION} ({source})"));
    compilation_error(text, None, source).with_couchdb_reason(&couchdb)
}

/// Makes a `compilation_error`; the reason that CouchDB gets has no hint.
pub(super) fn compilation_error(text: &str, hint: Option<&str>, source: &str) -> Failure {
    let reason = format!("{} ({source})", hinted(text, hint));
    let failure = Failure::error("compilation_error", &reason);
    match hint {
        Some(_) => failure.with_couchdb_reason(&quote(&format!("{text} ({source})"))),
        None => failure,
    }
}
