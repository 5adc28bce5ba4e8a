//! Engines: JavaScript runtimes. Those of an isolate share its memory limit.
//!
//! SUMMARY   A running engine may take the rest of the [`Account`](super::memory::Account); before others run, the
//!           memory that it has taken is counted. A [`PreparedEngine`] belongs to no isolate until one takes it, and
//!           to no other afterwards.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use rquickjs::context::intrinsic;
use rquickjs::{Context, Ctx, Function, Object, Persistent, Runtime, Value};

use super::SCRIPT_STACK_BYTES;
use super::failure::Failure;
use super::memory::{Held, LONG_BYTES, copy_long};
use super::process::Process;
use super::realm::{Realm, Shared};
use super::text::excerpt;

/// An engine that has taken more than the limit divided by this is garbage-collected before others run.
const TIDY_PART: usize = 8;

/// [`Engine::measure_at_times`] measures at one in this many calls after the engine has run.
const CHANGES_UNMEASURED: u8 = 16;

/// Copies of a source that exist while it is compiled.
const SOURCE_COPIES: usize = 3;

/// The standard objects of a realm. `async` functions need Promise; its global is removed.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::MapSet,
    intrinsic::Promise,
);

/// A function and an object of a realm, as they are kept between calls.
pub(super) type SavedFunction = Persistent<Function<'static>>;
pub(super) type SavedObject = Persistent<Object<'static>>;

/// An argument of a function.
pub(super) enum Argument<'a> {
    Missing,
    /// JSON text.
    Text(&'a str),
    /// The parsed value of a long text.
    Parsed(Persistent<Value<'static>>),
}

impl Argument<'_> {
    /// Returns its value in the receiving realm; undefined if the argument is missing.
    pub fn value<'js>(self, ctx: &Ctx<'js>) -> rquickjs::Result<Value<'js>> {
        match self {
            Argument::Missing => Ok(Value::new_undefined(ctx.clone())),
            Argument::Text(json) => ctx.json_parse(copy_long(json)?),
            Argument::Parsed(value) => value.restore(ctx),
        }
    }
}

/// How an engine and its realms find the state shared with their isolate. It is set once, before functions run.
#[derive(Default)]
pub(super) struct Seat(OnceCell<Rc<Shared>>);

impl Deref for Seat {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        self.0
            .get()
            .expect("engine: an isolate has it before functions run")
    }
}

/// A runtime and a realm that have not run a function.
pub(super) struct PreparedEngine {
    realm: Realm,
    runtime: Runtime,
    seat: Rc<Seat>,
}

impl PreparedEngine {
    pub fn new(process: &Process) -> Result<Self, Failure> {
        let runtime = Runtime::new().map_err(|_| Failure::out_of_memory())?;
        runtime.set_max_stack_size(SCRIPT_STACK_BYTES);
        runtime.set_memory_limit(process.options.memory_bytes);
        let seat = Rc::<Seat>::default();
        let (watched, alive) = (Rc::clone(&seat), Rc::clone(&process.runtimes));
        runtime.set_interrupt_handler(Some(Box::new(move || {
            let _ = &alive;
            watched
                .0
                .get()
                .is_some_and(|shared| shared.process.ended.get().is_some())
        })));
        let realm = Realm::new(&runtime, process, &seat)?;
        Ok(PreparedEngine {
            realm,
            runtime,
            seat,
        })
    }
}

/// A runtime, with one realm in reserve.
pub(super) struct Engine {
    spare: RefCell<Option<Realm>>,
    /// The memory taken, as last measured.
    taken: RefCell<Held>,
    /// Whether it may have taken or released memory since then.
    is_unmeasured: Cell<bool>,
    /// Calls of [`Self::measure_at_times`] after it has run, modulo [`CHANGES_UNMEASURED`].
    changes: Cell<u8>,
    runtime: Runtime,
    seat: Rc<Seat>,
}

impl Engine {
    /// Takes a prepared engine, or makes one.
    ///
    /// # Errors
    /// [`Failure::OutOfMemory`].
    pub fn new(shared: &Rc<Shared>) -> Result<Self, Failure> {
        let prepared = shared.process.prepared.borrow_mut().pop();
        let PreparedEngine {
            realm,
            runtime,
            seat,
        } = prepared.map_or_else(|| PreparedEngine::new(&shared.process), Ok)?;
        seat.0.get_or_init(|| Rc::clone(shared));
        let engine = Engine {
            spare: RefCell::new(Some(realm)),
            taken: RefCell::new(shared.memory.count(0)),
            is_unmeasured: Cell::new(true),
            changes: Cell::new(0),
            runtime,
            seat,
        };
        engine.measure();
        engine.begin();
        Ok(engine)
    }

    /// Lets the engine use the remaining memory. Called before it runs, and again after something else was counted;
    /// all other engines must have been measured.
    pub fn begin(&self) {
        let left = self.seat.memory.left() + self.taken.borrow().bytes();
        // To the engine, 0 means no limit.
        self.runtime.set_memory_limit(left.max(1));
        self.is_unmeasured.set(true);
    }

    /// Like [`Self::measure`], but only at the first and then at one in [`CHANGES_UNMEASURED`] calls after it has run,
    /// so that a parent that alternates between views and design documents, or tenants, with every line stays fast.
    pub fn measure_at_times(&self) {
        if !self.is_unmeasured.get() {
            return;
        }
        let changes = self.changes.get();
        self.changes.set((changes + 1) % CHANGES_UNMEASURED);
        if changes == 0 {
            self.measure();
        }
    }

    /// Counts the memory that the engine has taken; returns it in bytes.
    pub fn measure(&self) -> usize {
        if self.is_unmeasured.replace(false) {
            let mut taken = self.taken_now();
            if self.is_large(taken) {
                self.runtime.run_gc();
                taken = self.taken_now();
            }
            self.taken.borrow_mut().set(taken);
        }
        self.taken.borrow().bytes()
    }

    /// Collects what was released since it last ran; returns whether it still holds much.
    pub fn is_large_after_release(&self) -> bool {
        self.is_unmeasured.set(true);
        self.is_large(self.measure())
    }

    fn is_large(&self, bytes: usize) -> bool {
        bytes > self.seat.options().memory_bytes / TIDY_PART
    }

    fn taken_now(&self) -> usize {
        usize::try_from(self.runtime.memory_usage().malloc_size).unwrap_or(0)
    }

    /// Makes an argument for a function in a realm. The copy of a long text is counted while it is parsed.
    pub fn argument<'a>(
        &self,
        context: &Context,
        json: Option<&'a str>,
    ) -> Result<Argument<'a>, Failure> {
        let Some(json) = json else {
            return Ok(Argument::Missing);
        };
        if json.len() < LONG_BYTES {
            return Ok(Argument::Text(json));
        }
        let copy = self.seat.memory.take(json.len())?;
        self.begin();
        let value = in_realm(context, |ctx| {
            let value = ctx.json_parse(copy_long(json)?)?;
            Ok(Persistent::save(ctx, value))
        })?;
        drop(copy);
        self.begin();
        Ok(Argument::Parsed(value))
    }

    /// Prepares a realm if none is in reserve; returns whether it did.
    pub fn prepare(&self) -> bool {
        let missing = self.spare.borrow().is_none();
        if missing {
            // Without memory nothing is prepared; whatever needs the realm next gets the error.
            self.begin();
            *self.spare.borrow_mut() = self.make_realm().ok();
            self.measure();
        }
        missing && self.spare.borrow().is_some()
    }

    /// Returns an unused realm.
    pub fn realm(&self) -> Result<Realm, Failure> {
        let spare = self.spare.borrow_mut().take();
        spare.map_or_else(|| self.make_realm(), Ok)
    }

    /// Makes a realm for data.
    pub fn data_realm(&self) -> Result<Context, Failure> {
        data_realm(&self.runtime, &self.seat.process)
    }

    fn make_realm(&self) -> Result<Realm, Failure> {
        Realm::new(&self.runtime, &self.seat.process, &self.seat)
    }

    /// Compiles the source of a user function in a realm; counts the copies of a long one meanwhile.
    pub fn compile(&self, realm: &Realm, source: &str) -> Result<SavedFunction, Failure> {
        if source.len() < LONG_BYTES {
            return realm.compile(source);
        }
        let inside = |failure: Failure| failure.inside(|| format!("compiling {}", excerpt(source)));
        let copies = self
            .seat
            .memory
            .take(source.len() * SOURCE_COPIES)
            .map_err(inside)?;
        self.begin();
        let function = realm.compile(source);
        drop(copies);
        self.begin();
        function
    }

    /// Runs the pending jobs of `async` functions, so that they do not accumulate.
    pub fn finish_jobs(&self) {
        while self.runtime.is_job_pending() && self.seat.process.ended.get().is_none() {
            // No caller waits for a job: its exception is dropped.
            let _ = self.runtime.execute_pending_job();
        }
    }
}

/// Runs `work` in a realm; an exception becomes a failure.
pub(super) fn in_realm<R>(
    context: &Context,
    work: impl for<'js> FnOnce(&Ctx<'js>) -> rquickjs::Result<R>,
) -> Result<R, Failure> {
    context.with(|ctx| work(&ctx).map_err(|error| Failure::of(&ctx, &error)))
}

/// Makes a realm without helpers, only for data.
pub(super) fn data_realm(runtime: &Runtime, process: &Process) -> Result<Context, Failure> {
    let made = Context::custom::<Intrinsics>(runtime).and_then(|context| {
        context.with(|ctx| process.standard.run::<()>(&ctx))?;
        Ok(context)
    });
    made.map_err(|_| Failure::out_of_memory())
}
