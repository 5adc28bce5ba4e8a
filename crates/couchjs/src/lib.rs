//! The built-in JavaScript query server: CouchDB's `couchjs` on QuickJS-ng.
//!
//! SUMMARY   Reads one JSON array per line, and answers each with one line: views, searches, design documents.
//! PROMISES  Every complete line gets an answer, regardless of user code; after a fatal one the server ends with
//!           status 255. Each user function has its own realm and gets no objects of others, except the design
//!           document as `this`. A memory limit and a stack limit always hold; [`memory`] defines what counts.
//! CALLED    By `settee couchjs`, in a dedicated process.
//! SOURCE    CouchDB's share/server (loop, views, render, mimeparse, util, dreyfus, nouveau), by behaviour; where
//!           that crashes, stays silent or can be tampered with, this server answers.
//! LIMITS    No time limit: the parent has the deadlines. `async` functions run, but nothing awaits them.

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
pub use output::Destination;

/// Default memory limit of functions and everything held for them, in bytes: that of both CouchDB `couchjs` versions.
pub const DEFAULT_MEMORY_BYTES: usize = 64 << 20;

/// Maximum stack of JavaScript, in bytes: some 12,000 plain frames. More would only slow down runaway recursion,
/// since writing a deep object takes time quadratic in its depth.
const SCRIPT_STACK_BYTES: usize = 8 << 20;

/// Stack of the engine's thread: adds room for native code below the last script frame, and for the parser of
/// [`tree`].
const THREAD_STACK_BYTES: usize = SCRIPT_STACK_BYTES + (4 << 20);

/// The member of `reset`'s configuration that makes every error's reason a string. CouchDB does not send it, and
/// accepts other reasons.
pub const TEXT_REASONS: &str = "text_reasons";

/// The member of `reset`'s configuration that enables error reports with positions: a log line that reports an error
/// then has a third element, an object. Answers do not change.
pub const REPORT: &str = "report";

/// The member of `reset`'s configuration that gives functions a `console`, whose methods log. CouchDB does not send
/// it, and its functions have none.
pub const CONSOLE: &str = "console";

/// Options of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Memory limit of an isolate's functions and everything held for them, in bytes. Idle isolates may hold as much
    /// together.
    pub memory_bytes: usize,
    /// Maximum length of a line that the parent accepts, in bytes.
    pub line_bytes_max: usize,
    /// Whether error reasons are strings even where CouchDB answers an object; a `reset` can override it.
    pub text_reasons: bool,
    /// Whether functions that only read their document get it unfrozen. The rows are the same, only faster.
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

/// Serves the protocol until the input ends or an answer is fatal; returns the exit status of the process.
///
/// Without a `tenancy` there is one nameless isolate. Calls `ready` on the engine's thread before reading the first
/// line. From then on it starts no thread and opens nothing.
///
/// # Errors
/// An input or output error, or a thread that cannot be started: the host's fault; or the error of `ready`.
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
    O: Destination + Send + 'static,
{
    let (output, writer) = Output::new(Box::new(output))?;
    let end = writer.end();
    let serve = move || {
        let _end = end;
        // The engine measures its depth against the stack of the thread that made it.
        let server = server::Server::new(
            options,
            tenancy,
            status,
            Lines::new(Box::new(input), output),
        );
        ready()?;
        server.serve()
    };
    // This thread is otherwise idle.
    beside(serve, || writer.run())?
}

/// Runs `work` on a thread with enough stack for the engine and the parser.
///
/// # Errors
/// A thread that cannot be started, or that panicked.
fn on_own_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    beside(work, || ())
}

/// As [`on_own_stack`]; runs `meanwhile` on this thread before it waits for `work`.
fn beside<T: Send>(work: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> io::Result<T> {
    let thread = thread::Builder::new().stack_size(THREAD_STACK_BYTES);
    thread::scope(|scope| {
        let thread = thread.spawn_scoped(scope, work)?;
        meanwhile();
        thread
            .join()
            .map_err(|_| io::Error::other("the query server panicked"))
    })
}
