//! What all isolates of the process share: its lines, its options and the scripts of the server.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::{CStr, CString};
use std::rc::Rc;

use rquickjs::{Ctx, FromJs};

use super::Options;
use super::bytecode::Script;
use super::engine::PreparedEngine;
use super::lines::Lines;
use super::memory::{Peak, ProcessStatus};

/// How many engines are made ahead, while nothing can be read.
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

    pub(super) fn run<'js, V: FromJs<'js>>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<V> {
        if let Some(script) = self.compiled.get() {
            return script.run(ctx);
        }
        let source = CString::new(self.source)?;
        let script = Script::compile(ctx, self.name, &source)?;
        self.compiled.get_or_init(|| script).run(ctx)
    }
}

/// What isolates share with the server. It knows nothing of any of them.
pub(super) struct Process {
    pub(super) options: Options,
    pub(super) lines: RefCell<Lines>,
    pub(super) peak: Peak,
    /// The exit status, once a list function has read the end of the input or a line that is no row.
    pub(super) ended: Cell<Option<u8>>,
    /// Each runtime holds it while it lives: as long as there is a handle of one of its realms.
    pub(super) runtimes: Rc<()>,
    prepared: RefCell<Vec<PreparedEngine>>,
    pub(super) helpers: Prelude,
    pub(super) modules: Prelude,
    pub(super) views: Prelude,
    pub(super) render: Prelude,
}

impl Process {
    pub(super) fn new(options: Options, status: ProcessStatus, lines: Lines) -> Rc<Self> {
        Rc::new(Process {
            options,
            lines: RefCell::new(lines),
            peak: Peak::new(options.memory_bytes, status),
            ended: Cell::new(None),
            runtimes: Rc::new(()),
            prepared: RefCell::default(),
            helpers: Prelude::new(c"helpers", include_str!("prelude/helpers.js")),
            modules: Prelude::new(c"modules", include_str!("prelude/modules.js")),
            views: Prelude::new(c"views", include_str!("prelude/views.js")),
            render: Prelude::new(c"render", include_str!("prelude/render.js")),
        })
    }

    /// Prepares an engine for whichever isolate needs one next; returns whether there was anything to do.
    pub(super) fn prepare(&self) -> bool {
        let is_missing = self.prepared.borrow().len() < PREPARED_MAX;
        // Without memory there is nothing to prepare; the next user will be told.
        let made = is_missing
            .then(|| PreparedEngine::new(self))
            .and_then(Result::ok);
        let is_made = made.is_some();
        self.prepared.borrow_mut().extend(made);
        is_made
    }

    pub(super) fn take_prepared(&self) -> Option<PreparedEngine> {
        self.prepared.borrow_mut().pop()
    }

    /// Returns how many engines no isolate has yet.
    pub(super) fn prepared(&self) -> usize {
        self.prepared.borrow().len()
    }

    /// Returns how many runtimes functions ran in.
    pub(super) fn used_runtimes(&self) -> usize {
        Rc::strong_count(&self.runtimes) - 1 - self.prepared()
    }
}
