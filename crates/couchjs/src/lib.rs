//! The built-in JavaScript query server: CouchDB's `couchjs` on QuickJS-ng.
//!
//! SUMMARY   Reads one JSON array a line, answers one line each: views, searches, design documents.
//! PROMISES  Every complete line gets an answer, whatever user code does; after a fatal one the
//!           server ends with status 255. Each user function has a realm of its own and gets no
//!           object of another one, except the design document as `this`.
//!           A memory limit and a stack limit always hold; [`memory`] says what counts.
//! CALLED    By `settee couchjs`, in a process that does nothing else.
//! SOURCE    CouchDB's share/server (loop, views, render, mimeparse, util, dreyfus, nouveau), as
//!           behaviour; where that crashes, stays silent or can be tampered with, this one answers.
//! LIMITS    No time limit: the parent owns deadlines. `async` functions run, but nothing waits
//!           for them.

mod bytecode;
mod command;
mod ddocs;
mod engine;
mod failure;
mod hints;
mod isolates;
mod lines;
pub mod members;
mod memory;
mod mime;
mod output;
mod pairs;
mod parser;
mod positions;
mod process;
mod reading;
mod realm;
mod reduce_limit;
mod report;
mod results;
mod server;
mod source;
mod stack;
pub mod syntax;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod views;
mod writing;

use std::io;
use std::thread;

use lines::Lines;
use output::Output;

pub use isolates::Tenancy;
pub use lines::Input;
pub use memory::{ProcessStatus, limit_process};

/// Default memory limit of functions and of all that is held for them, in bytes: that of both of
/// CouchDB's `couchjs`.
pub const DEFAULT_MEMORY_BYTES: usize = 64 << 20;

/// The stack that JavaScript may use, in bytes: some 12,000 plain frames. More would only make
/// runaway recursion slower, as writing a deep object takes the square of its depth.
const SCRIPT_STACK_BYTES: usize = 8 << 20;

/// The stack of the thread that runs the engine: room for native code below the last script frame, and
/// for the parser of [`tree`].
const THREAD_STACK_BYTES: usize = SCRIPT_STACK_BYTES + (4 << 20);

/// The member of the configuration in `reset` that says whether the reason of an error is always a
/// text. CouchDB sends no such member, and reads other reasons.
pub const TEXT_REASONS: &str = "text_reasons";

/// The member of the configuration in `reset` that says whether errors are reported with their places: a line of
/// the log that reports an error then has a third element, an object. Answers stay the same.
pub const REPORT: &str = "report";

/// The member of the configuration in `reset` that says whether functions have a `console`, whose methods log. CouchDB
/// sends no such member, and its functions have none.
pub const CONSOLE: &str = "console";

/// What the command line decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Memory limit of all functions of an isolate, with what is held for them, in bytes. Idle isolates may hold as
    /// much together.
    pub memory_bytes: usize,
    /// The longest line that the parent takes, in bytes.
    pub line_bytes_max: usize,
    /// Whether the reason of an error is a text, also where CouchDB answers an object, unless a
    /// `reset` says otherwise.
    pub text_reasons: bool,
    /// Whether functions that only read their document get it unfrozen. The rows are the same, the time
    /// is shorter.
    pub optimize_functions: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            memory_bytes: DEFAULT_MEMORY_BYTES,
            line_bytes_max: usize::MAX,
            text_reasons: false,
            optimize_functions: true,
        }
    }
}

/// Serves the protocol until the input ends or an answer is fatal; the exit status of the process.
///
/// Without a `tenancy` there is one nameless isolate. Calls `ready` on the engine's thread, before the first line is read. From then on no thread is
/// started and nothing is opened.
///
/// # Errors
/// An input or output that fails, or a thread that cannot be started: the host's fault; what `ready`
/// says.
pub fn run<I, O>(
    options: Options,
    tenancy: Option<Tenancy>,
    status: ProcessStatus,
    input: I,
    output: O,
    ready: impl FnOnce() -> io::Result<()> + Send,
) -> io::Result<u8>
where
    I: Input + Send + 'static,
    O: io::Write + Send + 'static,
{
    let (output, writer) = Output::new(Box::new(output))?;
    let end = writer.end();
    let serve = move || {
        let _end = end;
        // The engine checks its depth against the stack of the thread it was made on.
        let server = server::Server::new(
            options,
            tenancy,
            status,
            Lines::new(Box::new(input), output),
        );
        ready()?;
        server.serve()
    };
    // This thread has nothing else to do meanwhile.
    beside(serve, || writer.run())?
}

/// Runs `work` on a thread with enough stack for the engine and the parser.
///
/// # Errors
/// A thread that cannot be started, or that panicked.
fn on_own_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    beside(work, || ())
}

/// [`on_own_stack`], with something to do until it ends.
fn beside<T: Send>(work: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> io::Result<T> {
    let thread = thread::Builder::new().stack_size(THREAD_STACK_BYTES);
    thread::scope(|scope| {
        let thread = thread.spawn_scoped(scope, work)?;
        meanwhile();
        let done = thread.join();
        done.map_err(|_| io::Error::other("the query server panicked"))
    })
}
