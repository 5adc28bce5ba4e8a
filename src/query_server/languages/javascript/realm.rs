//! Engines and realms: where user functions live.
//!
//! An *engine* is a runtime of its own with a memory limit; a *realm* is a global object with its
//! own standard objects and helpers. One user function gets one realm.
//!
//! PROMISES  The native calls below are reachable for the preludes only. What they get and give is
//!           text or JSON, so that they cannot be made to print anything but well formed lines.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::CStr;
use std::rc::Rc;

use rquickjs::atom::PredefinedAtom;
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::convert::Coerced;
use rquickjs::{Context, Ctx, Exception, FromJs, Function, Object, Persistent, Runtime, Value};

use super::bytecode::Script;
use super::command::Command;
use super::failure::{Failure, text_of};
use super::lines::Lines;
use super::memory::Gauge;
use super::mime::{self, Registry};
use super::text::{excerpt, quote, unquote};
use super::{Options, SCRIPT_STACK_BYTES, source, writing};

/// How many characters are kept of a log text that is too long for a line.
const LONG_LOG_CHARACTERS: usize = 1000;

/// The standard objects of a realm. Promise is needed by `async` functions; its global is removed.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::MapSet,
    intrinsic::Promise,
);

/// A script of the server, compiled when it is first needed.
struct Prelude {
    name: &'static CStr,
    source: &'static str,
    compiled: OnceCell<Script>,
}

impl Prelude {
    const fn new(name: &'static CStr, source: &'static str) -> Self {
        Prelude {
            name,
            source,
            compiled: OnceCell::new(),
        }
    }

    fn run<'js, V: FromJs<'js>>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<V> {
        if self.compiled.get().is_none() {
            let source = CStr::from_bytes_with_nul(self.source.as_bytes());
            let source = source.expect("prelude: the only NUL is the last byte");
            let script = Script::compile(ctx, self.name, source)?;
            self.compiled.get_or_init(|| script);
        }
        self.compiled
            .get()
            .expect("prelude: compiled above")
            .run(ctx)
    }
}

macro_rules! prelude {
    ($name:literal, $file:literal) => {
        Prelude::new($name, concat!(include_str!($file), "\0"))
    };
}

/// What all realms of the process share with the server.
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) memory: Gauge,
    pub(super) lines: RefCell<Lines>,
    /// Whether the reason of an error is always a text: as the last `reset` has it.
    pub(super) text_reasons: Cell<bool>,
    /// The exit status, once a list function met the end of the input or a line that is no row.
    pub(super) ended: Cell<Option<u8>>,
    /// The content types of design documents: one registry for the life of the process.
    types: RefCell<Registry>,
    helpers: Prelude,
    modules: Prelude,
    views: Prelude,
    render: Prelude,
}

impl Shared {
    pub(super) fn new(options: Options, lines: Lines) -> Rc<Self> {
        Rc::new(Shared {
            options,
            memory: Gauge::new(options.memory_bytes),
            lines: RefCell::new(lines),
            text_reasons: Cell::new(options.text_reasons),
            ended: Cell::new(None),
            types: RefCell::new(Registry::new()),
            helpers: prelude!(c"helpers", "prelude/helpers.js"),
            modules: prelude!(c"modules", "prelude/modules.js"),
            views: prelude!(c"views", "prelude/views.js"),
            render: prelude!(c"render", "prelude/render.js"),
        })
    }

    pub(super) fn log(&self, text: &str) {
        self.log_json(&quote(text));
    }

    /// Logs a text given as JSON; one that is too long for a line is cut off.
    fn log_json(&self, json: &str) {
        let line = format!("[\"log\",{json}]");
        if line.len() <= self.options.line_bytes_max {
            return self.answer(&line);
        }
        let text = unquote(json).unwrap_or_default();
        let kept: String = text.chars().take(LONG_LOG_CHARACTERS).collect();
        let cut = format!("{kept} .. ({} bytes)", text.len());
        self.answer(&format!("[\"log\",{}]", quote(&cut)));
    }

    /// Writes a line, unless the server has already given its last answer.
    fn answer(&self, line: &str) {
        if self.ended.get().is_none() {
            self.lines.borrow_mut().put(line);
        }
    }

    /// Checks that a line is none that the parent would end the process for.
    pub(super) fn check_length(&self, line: &str) -> Result<(), Failure> {
        let (bytes, most) = (line.len(), self.options.line_bytes_max);
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
    /// A line that is too long is raised as an exception, and nothing is written.
    fn answer_or_raise(&self, ctx: &Ctx<'_>, line: &str) -> rquickjs::Result<()> {
        match self.check_length(line) {
            Ok(()) => {
                self.answer(line);
                Ok(())
            }
            Err(failure) => Err(ctx.throw(ctx.json_parse(failure.line(self))?)),
        }
    }

    /// Ends the server from inside a user function.
    fn end(&self, ctx: &Ctx<'_>, status: u8) -> rquickjs::Error {
        self.ended.set(Some(status));
        Exception::throw_internal(ctx, "the list has ended")
    }

    /// Waits for the next line of a list: the parsed line of a row, or undefined at their end.
    fn next_row<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Value<'js>> {
        let mut line = Vec::new();
        let more = self.lines.borrow_mut().next(&mut line, || false);
        if !matches!(more, Ok(true)) {
            return Err(self.end(ctx, 0));
        }
        let text = String::from_utf8_lossy(&line);
        let failure = match Command::parse(&text) {
            Ok(command) if command.name == "list_row" => return ctx.json_parse(text.as_bytes()),
            Ok(command) if command.name == "list_end" => {
                return Ok(Value::new_undefined(ctx.clone()));
            }
            Ok(command) => Failure::fatal("list_error", &format!("not a row '{}'", command.name)),
            Err(failure) => failure,
        };
        self.answer(&failure.line(self));
        Err(self.end(ctx, super::server::FATAL_STATUS))
    }
}

/// A runtime, with one realm in reserve.
pub(super) struct Engine {
    spare: RefCell<Option<Realm>>,
    runtime: Runtime,
    shared: Rc<Shared>,
}

impl Engine {
    pub(super) fn new(shared: &Rc<Shared>) -> Result<Self, Failure> {
        let runtime = Runtime::new().map_err(|_| Failure::out_of_memory())?;
        runtime.set_memory_limit(shared.options.memory_bytes);
        runtime.set_max_stack_size(SCRIPT_STACK_BYTES);
        let watched = Rc::clone(shared);
        runtime.set_interrupt_handler(Some(Box::new(move || watched.ended.get().is_some())));
        Ok(Engine {
            spare: RefCell::new(None),
            runtime,
            shared: Rc::clone(shared),
        })
    }

    /// Prepares a realm; whether there was anything to do.
    pub(super) fn prepare(&self) -> bool {
        let missing = self.spare.borrow().is_none();
        if missing {
            // Without memory there is nothing to prepare; the next user will be told.
            *self.spare.borrow_mut() = Realm::new(self).ok();
        }
        missing && self.spare.borrow().is_some()
    }

    /// A realm that nobody has used.
    pub(super) fn realm(&self) -> Result<Realm, Failure> {
        let spare = self.spare.borrow_mut().take();
        spare.map_or_else(|| Realm::new(self), Ok)
    }

    /// A realm without helpers, for data only.
    pub(super) fn data_realm(&self) -> Result<Context, Failure> {
        Context::custom::<Intrinsics>(&self.runtime).map_err(|_| Failure::out_of_memory())
    }

    /// Runs what `async` functions left to do, so that it does not pile up.
    pub(super) fn finish_jobs(&self) {
        while self.runtime.is_job_pending() && self.shared.ended.get().is_none() {
            // The exceptions of jobs are nobody's.
            let _ = self.runtime.execute_pending_job();
        }
    }
}

/// Which helpers a function gets beyond those of every realm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewKind {
    /// Map functions and those of the Lucene search.
    Map,
    /// Functions of the Nouveau search.
    Nouveau,
    /// Reduce functions.
    Reduce,
}

impl ViewKind {
    fn name(self) -> &'static str {
        match self {
            ViewKind::Map => "map",
            ViewKind::Nouveau => "nouveau",
            ViewKind::Reduce => "reduce",
        }
    }
}

/// A global object with its helpers.
pub(super) struct Realm {
    /// What the preludes share; user code never sees it. Freed before the context.
    tools: Persistent<Object<'static>>,
    context: Context,
    shared: Rc<Shared>,
}

impl Realm {
    fn new(engine: &Engine) -> Result<Self, Failure> {
        let context = engine.data_realm()?;
        let shared = Rc::clone(&engine.shared);
        let tools = context.with(|ctx| {
            let host = Object::new(ctx.clone())?;
            let log = Rc::clone(&shared);
            let log = Function::new(ctx.clone(), move |json: String| log.log_json(&json))?;
            host.set("log", log)?;
            let full = Rc::clone(&shared);
            let full = Function::new(ctx.clone(), move || full.memory.was_exhausted())?;
            host.set("full", full)?;
            host.set("packed", Function::new(ctx.clone(), writing::packed)?)?;
            let helpers: Function<'_> = shared.helpers.run(&ctx)?;
            let tools: Object<'_> = helpers.call((host,))?;
            Ok::<_, rquickjs::Error>(Persistent::save(&ctx, tools))
        });
        let tools = tools.map_err(|_| Failure::out_of_memory())?;
        Ok(Realm {
            tools,
            context,
            shared,
        })
    }

    /// Runs `work` in the realm; an exception becomes the answer it stands for.
    pub(super) fn with<R>(
        &self,
        work: impl for<'js> FnOnce(&Ctx<'js>) -> rquickjs::Result<R>,
    ) -> Result<R, Failure> {
        self.context
            .with(|ctx| work(&ctx).map_err(|error| Failure::of(&ctx, &error)))
    }

    /// Loads `require` for the tree below `root`, or for a library of views given as JSON text.
    pub(super) fn add_modules(&self, tree: Tree<'_>) -> Result<(), Failure> {
        self.with(|ctx| {
            let modules: Function<'_> = self.shared.modules.run(ctx)?;
            let tools = self.tools.clone().restore(ctx)?;
            match tree {
                Tree::DesignDoc(root) => modules.call((tools, root.clone().restore(ctx)?)),
                Tree::Library(json) => modules.call((tools, Value::new_null(ctx.clone()), json)),
            }
        })
    }

    /// Loads the helpers of views and searches; the object of what runs them. Documents are frozen
    /// unless the function is known to be only `reading` them.
    pub(super) fn add_views(
        &self,
        kind: ViewKind,
        reading: bool,
    ) -> Result<Persistent<Object<'static>>, Failure> {
        self.with(|ctx| {
            let views: Function<'_> = self.shared.views.run(ctx)?;
            let runners: Object<'_> =
                views.call((self.tools.clone().restore(ctx)?, kind.name(), reading))?;
            Ok(Persistent::save(ctx, runners))
        })
    }

    /// Loads the helpers of design documents; the object of their responders.
    pub(super) fn add_render(&self) -> Result<Persistent<Object<'static>>, Failure> {
        self.with(|ctx| {
            let tools = self.tools.clone().restore(ctx)?;
            self.add_natives(ctx, &tools.get("host")?)?;
            let render: Function<'_> = self.shared.render.run(ctx)?;
            let responders: Object<'_> = render.call((tools,))?;
            Ok(Persistent::save(ctx, responders))
        })
    }

    /// The native calls that only functions of design documents need.
    fn add_natives<'js>(&self, ctx: &Ctx<'js>, host: &Object<'js>) -> rquickjs::Result<()> {
        let answer = Rc::clone(&self.shared);
        let answer = Function::new(ctx.clone(), move |ctx: Ctx<'_>, line: String| {
            answer.answer_or_raise(&ctx, &line)
        })?;
        host.set("answer", answer)?;
        let rows = Rc::clone(&self.shared);
        host.set("nextRow", Function::new(ctx.clone(), NextRow(rows))?)?;
        let types = Rc::clone(&self.shared);
        let register = move |json: String| {
            if let Ok((key, names)) = serde_json::from_str::<(String, Vec<String>)>(&json) {
                types.types.borrow_mut().register(key, names);
            }
        };
        host.set("registerType", Function::new(ctx.clone(), register)?)?;
        let types = Rc::clone(&self.shared);
        let types_of = move |key: Coerced<String>| {
            types
                .types
                .borrow()
                .types_of(&key.0)
                .map(<[String]>::to_vec)
        };
        host.set("typesOf", Function::new(ctx.clone(), types_of)?)?;
        let types = Rc::clone(&self.shared);
        let key_of = move |name: String| types.types.borrow().key_of(&name).map(str::to_owned);
        host.set("keyOf", Function::new(ctx.clone(), key_of)?)?;
        let best = |types: String, accept: Coerced<String>| {
            let types: Vec<String> = serde_json::from_str(&types).unwrap_or_default();
            mime::best_match(&types, &accept.0).to_owned()
        };
        host.set("bestMatch", Function::new(ctx.clone(), best)?)
    }

    /// Evaluates the source of a user function.
    ///
    /// # Errors
    /// `compilation_error` with the engine's text and the source, as CouchDB words it.
    pub(super) fn compile(&self, source: &str) -> Result<Persistent<Function<'static>>, Failure> {
        self.context.with(|ctx| match self.evaluate(&ctx, source) {
            Ok(value) => match value.as_function().filter(|function| !is_async(function)) {
                Some(function) => Ok(Persistent::save(&ctx, function.clone())),
                None => Err(compilation_error(
                    "Expression does not eval to a function.",
                    source,
                )),
            },
            Err(rquickjs::Error::Exception) => {
                let error = ctx.catch();
                let failure = Failure::thrown(&ctx, &error);
                Err(match failure.is_out_of_memory(&self.shared) {
                    true => failure.inside(|| format!("compiling {}", excerpt(source))),
                    false => compilation_error(&text_of(&ctx, &error), source),
                })
            }
            Err(error) => Err(Failure::of(&ctx, &error)),
        })
    }

    /// The completion value of a source, with the forms that CouchDB accepts beyond JavaScript's.
    fn evaluate<'js>(&self, ctx: &Ctx<'js>, source: &str) -> rquickjs::Result<Value<'js>> {
        let first = self.run(ctx, &source::begun(source));
        if first.is_ok() {
            return first;
        }
        let error = ctx.catch();
        // What is mended did not compile, so that nothing of it has run.
        match source::mended(source).filter(|_| is_syntax_error(&error)) {
            Some(mended) => self.run(ctx, &mended),
            None => Err(ctx.throw(error)),
        }
    }

    fn run<'js>(&self, ctx: &Ctx<'js>, source: &str) -> rquickjs::Result<Value<'js>> {
        if source.contains('\0') {
            // Only the language's own eval takes such a text.
            let tools = self.tools.clone().restore(ctx)?;
            return tools.get::<_, Function<'_>>("evaluate")?.call((source,));
        }
        let mut options = EvalOptions::default();
        options.strict = false;
        ctx.eval_with_options(source, options)
    }
}

/// Where `require` looks for modules.
pub(super) enum Tree<'a> {
    DesignDoc(&'a Persistent<Object<'static>>),
    /// The `views.lib` of `add_lib`, as JSON text.
    Library(&'a str),
}

/// The native call behind getRow. A type, because no closure can tie its result to its argument.
struct NextRow(Rc<Shared>);

impl<'js> rquickjs::function::IntoJsFunc<'js, (Ctx<'js>,)> for NextRow {
    fn param_requirements() -> rquickjs::function::ParamRequirement {
        rquickjs::function::ParamRequirement::none()
    }

    fn call<'a>(
        &self,
        params: rquickjs::function::Params<'a, 'js>,
    ) -> rquickjs::Result<Value<'js>> {
        self.0.next_row(params.ctx())
    }
}

fn is_syntax_error(error: &Value<'_>) -> bool {
    let name = error
        .as_object()
        .and_then(|error| error.get::<_, String>("name").ok());
    name.as_deref() == Some("SyntaxError")
}

/// Async functions are no functions in CouchDB's QuickJS: nothing there could wait for them.
fn is_async(function: &Function<'_>) -> bool {
    let tag = function.get::<_, Coerced<String>>(PredefinedAtom::SymbolToStringTag);
    matches!(
        tag.as_ref().map(|tag| tag.0.as_str()),
        Ok("AsyncFunction" | "AsyncGeneratorFunction")
    )
}

pub(super) fn compilation_error(text: &str, source: &str) -> Failure {
    Failure::error("compilation_error", &format!("{text} ({source})"))
}
