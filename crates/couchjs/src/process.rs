//! State shared by all isolates of the process: its lines, its options and the scripts of the server.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::{CStr, CString};
use std::rc::Rc;

use rquickjs::{Ctx, FromJs};

use super::Options;
use super::bytecode::Script;
use super::engine::PreparedEngine;
use super::lines::Lines;
use super::memory::{Peak, ProcessStatus};

/// Maximum engines prepared while there is no input.
const PREPARED_MAX: usize = 2;

/// A script of the server, compiled when it is first needed.
pub(super) struct Prelude {
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

    pub fn run<'js, V: FromJs<'js>>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<V> {
        if let Some(script) = self.compiled.get() {
            return script.run(ctx);
        }
        let script = Script::compile(ctx, self.name, &CString::new(self.source)?)?;
        self.compiled.get_or_init(|| script).run(ctx)
    }
}

/// State that isolates share with the server; nothing in it refers to an isolate.
pub(super) struct Process {
    pub options: Options,
    pub lines: RefCell<Lines>,
    pub peak: Peak,
    /// The exit status, set once a list function has read the end of the input or a line that is not a row.
    pub ended: Cell<Option<u8>>,
    /// Held by each runtime as long as any of its realms has a handle.
    pub runtimes: Rc<()>,
    pub prepared: RefCell<Vec<PreparedEngine>>,
    pub standard: Prelude,
    pub helpers: Prelude,
    pub modules: Prelude,
    pub views: Prelude,
    pub render: Prelude,
}

impl Process {
    pub fn new(options: Options, status: ProcessStatus, lines: Lines) -> Rc<Self> {
        Rc::new(Process {
            options,
            lines: RefCell::new(lines),
            peak: Peak::new(options.memory_bytes, status),
            ended: Cell::new(None),
            runtimes: Rc::new(()),
            prepared: RefCell::default(),
            standard: Prelude::new(c"standard", include_str!("prelude/standard.js")),
            helpers: Prelude::new(c"helpers", include_str!("prelude/helpers.js")),
            modules: Prelude::new(c"modules", include_str!("prelude/modules.js")),
            views: Prelude::new(c"views", include_str!("prelude/views.js")),
            render: Prelude::new(c"render", include_str!("prelude/render.js")),
        })
    }

    /// Prepares an engine for the next isolate, if one is missing and there is memory; returns whether it did.
    pub fn prepare(&self) -> bool {
        let is_missing = self.prepared.borrow().len() < PREPARED_MAX;
        // Without memory nothing is prepared; the next isolate reports the lack.
        let made = is_missing
            .then(|| PreparedEngine::new(self))
            .and_then(Result::ok);
        let is_made = made.is_some();
        self.prepared.borrow_mut().extend(made);
        is_made
    }

    /// Returns the number of prepared engines without an isolate.
    pub fn prepared(&self) -> usize {
        self.prepared.borrow().len()
    }

    /// Returns the number of runtimes taken by isolates.
    pub fn used_runtimes(&self) -> usize {
        Rc::strong_count(&self.runtimes) - 1 - self.prepared()
    }
}
