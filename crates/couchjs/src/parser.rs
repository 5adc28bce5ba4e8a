//! Checks with the engine whether a text is JavaScript, without running it.
//!
//! SUMMARY   [`Parser::parse`] compiles a text as a script and discards the result.
//! CALLED    To check sources, and to find unnamed functions in them.
//! LIMITS    No verdict on a text that needs more memory than the parser may take.

use std::ffi::CString;

use rquickjs::context::intrinsic;
use rquickjs::convert::Coerced;
use rquickjs::{Context, Ctx, Error, Runtime};

use super::DEFAULT_MEMORY_BYTES;
use super::bytecode::Script;

/// [`Parser::beside`] may take the functions' memory limit divided by this, but at least [`BESIDE_BYTES_MIN`].
const BESIDE_PART: usize = 8;
const BESIDE_BYTES_MIN: usize = 2 << 20;

/// Intrinsics for parsing: without the second there are no regular expression literals.
type Intrinsics = (intrinsic::Eval, intrinsic::RegExpCompiler);

/// An engine that runs nothing.
pub(super) struct Parser(Context);

/// The engine's verdict on a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Correct,
    Wrong(SyntaxError),
    /// Parsing was not completed.
    Unknown,
}

/// The first syntax error in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// Its line; the first is 1.
    pub line: u32,
    /// The byte of that line; the first is 1.
    pub column: u32,
    /// The engine's message.
    pub text: String,
}

impl Parser {
    /// Starts an engine that may take as much memory as the query server's; `None` if there is no memory for it.
    pub fn new() -> Option<Self> {
        Self::within(DEFAULT_MEMORY_BYTES)
    }

    /// Starts an engine in addition to the functions' engines; `memory_bytes` is their memory limit.
    pub fn beside(memory_bytes: usize) -> Option<Self> {
        Self::within((memory_bytes / BESIDE_PART).max(BESIDE_BYTES_MIN))
    }

    fn within(memory_bytes: usize) -> Option<Self> {
        let runtime = Runtime::new().ok()?;
        runtime.set_memory_limit(memory_bytes);
        Context::custom::<Intrinsics>(&runtime).ok().map(Self)
    }

    pub fn parse(&self, source: &str) -> Parsed {
        // The engine takes NUL-terminated text, so a NUL in the source becomes another control character, which is
        // valid in the same places: in literals and comments.
        let source = CString::new(source.replace('\0', "\u{1}")).expect("no NUL is left");
        self.0
            .with(|ctx| match Script::compile(&ctx, c"source", &source) {
                Ok(_) => Parsed::Correct,
                Err(Error::Exception) => mistake(&ctx).map_or(Parsed::Unknown, Parsed::Wrong),
                Err(_) => Parsed::Unknown,
            })
    }
}

/// Takes the pending exception; `None` if it is not a syntax error with a position.
fn mistake(ctx: &Ctx<'_>) -> Option<SyntaxError> {
    let error = ctx.catch();
    let text = error.get::<Coerced<String>>().ok()?.0;
    let stack: String = error.as_object()?.get("stack").ok()?;
    // "    at source:LINE:COLUMN"
    let place = stack.lines().find_map(|line| line.split_once("source:"))?.1;
    let (line, column) = place.split_once(':')?;
    let column = column.trim_end_matches(|c: char| !c.is_ascii_digit());
    text.starts_with("SyntaxError").then_some(SyntaxError {
        line: line.parse().ok()?,
        column: column.parse().ok()?,
        text,
    })
}
