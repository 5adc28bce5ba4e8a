//! `$regex`: PCRE's syntax over bytes, within bounds.
//!
//! SUMMARY   A [`Pattern`] is an expression in PCRE's syntax that looks at the bytes of a string's
//!           UTF-8, as CouchDB's does: `.` is one byte.
//! PROMISES  Building and matching end, in bounded time and memory. An expression without
//!           look-around and back-references takes time linear in the string, whatever it is.
//! SOURCE    Erlang's `re` without options: PCRE over ISO-8859-1.
//! DIFFERS   Where PCRE gives up on an expression that goes back too often, CouchDB takes that for
//!           "does not match"; here it is an error. Not there: recursion and calls of groups, verbs
//!           like `(*SKIP)`, `\X`, `(?|`, look-behind of variable length.
//! LIMITS    The bounds are for one string. A document of many strings, each of which takes nearly as
//!           long as it may, takes so much longer; the deadline of a prompt is what ends it then.
//!
//! Each byte is looked at as the character of the same number (ISO-8859-1), in the expression as in
//! the string. The expression is rewritten to the syntax of the engine ([`translate`]); the string
//! has to be rewritten only when it is not ASCII.

mod class;
mod group;
mod translate;

use std::borrow::Cow;
use std::sync::OnceLock;

use translate::{End, Translated, translate};

/// The longest expression, in bytes.
pub const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// The most single characters that an expression may stand for once its repetitions are written
/// out.
pub const PATTERN_SIZE_MAX: usize = 10_000;

/// The most memory of a compiled part of an expression, in bytes.
const COMPILED_BYTES_MAX: usize = 4 << 20;

/// The most instructions of a compiled expression with look-around or back-references.
const INSTRUCTIONS_MAX: usize = 100_000;

/// For strings up to this length an expression may go back [`BACKTRACKS_SHORT`] times, for longer
/// ones [`BACKTRACKS_LONG`] times: each time it may read the rest of the string.
const SHORT_BYTES: usize = 4 * 1024;
/// See [`SHORT_BYTES`].
const BACKTRACKS_SHORT: usize = 100_000;
/// See [`SHORT_BYTES`].
const BACKTRACKS_LONG: usize = 4_000;

/// The longest string on which an expression with look-around or back-references is tried.
const LONG_BYTES: usize = 256 * 1024;

/// For expressions without: the most characters of an expression times bytes of a string.
const WORK_MAX: usize = 1_000_000_000;

/// An expression, ready to be matched.
#[derive(Debug)]
pub struct Pattern {
    source: Box<str>,
    /// For strings that do not end with a line feed: most.
    usual: Engine,
    /// For those that do, where the expression asks for the end: it is also before that line feed.
    before_line_feed: Option<Engine>,
}

/// An expression took too many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Pattern {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it, or which bound it passes.
    pub fn new(source: &str) -> Result<Self, String> {
        if source.len() > PATTERN_BYTES_MAX {
            return Err(format!(
                "the expression has more than {PATTERN_BYTES_MAX} bytes"
            ));
        }
        let latin = latin_view(source.as_bytes());
        let usual = translate(&latin, End::OfText)?;
        let before_line_feed = if usual.asks_for_end {
            Some(Engine::new(translate(&latin, End::OrLineFeed)?)?)
        } else {
            None
        };
        Ok(Self {
            source: source.into(),
            usual: Engine::new(usual)?,
            before_line_feed,
        })
    }

    /// Returns the expression as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether a string, as its UTF-8, has a part that matches.
    ///
    /// # Errors
    /// The expression takes too many steps on this string.
    pub fn is_match(&self, string: &[u8]) -> Result<bool, TooLong> {
        let engine = match &self.before_line_feed {
            Some(engine) if string.ends_with(b"\n") => engine,
            _ => &self.usual,
        };
        engine.is_match(&latin_view(string))
    }
}

/// Each byte as the character of the same number.
fn latin_view(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Cow::Borrowed(text),
        _ => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

/// A compiled expression.
#[derive(Debug)]
enum Engine {
    /// Never goes back: time is linear in the string.
    Linear { regex: regex::Regex, size: usize },
    /// May go back, within bounds.
    Back(Box<Back>),
}

#[derive(Debug)]
struct Back {
    text: String,
    short: fancy_regex::Regex,
    /// The same with the bound for long strings, made when the first one comes.
    long: OnceLock<Option<fancy_regex::Regex>>,
}

impl Engine {
    fn new(translated: Translated) -> Result<Self, String> {
        if !translated.goes_back {
            let regex = regex::RegexBuilder::new(&translated.text)
                .size_limit(COMPILED_BYTES_MAX)
                .build()
                .map_err(|error| one_line(&error.to_string()))?;
            let size = translated.size.max(1);
            return Ok(Self::Linear { regex, size });
        }
        let short = compile(&translated.text, BACKTRACKS_SHORT)
            .map_err(|error| one_line(&error.to_string()))?;
        Ok(Self::Back(Box::new(Back {
            text: translated.text,
            short,
            long: OnceLock::new(),
        })))
    }

    fn is_match(&self, text: &str) -> Result<bool, TooLong> {
        match self {
            Self::Linear { regex, size } => {
                let fits = text.len().saturating_mul(*size) <= WORK_MAX;
                fits.then(|| regex.is_match(text)).ok_or(TooLong)
            }
            Self::Back(back) => {
                let regex = back.for_length(text.len()).ok_or(TooLong)?;
                regex.is_match(text).map_err(|_| TooLong)
            }
        }
    }
}

impl Back {
    fn for_length(&self, bytes: usize) -> Option<&fancy_regex::Regex> {
        if bytes <= SHORT_BYTES {
            return Some(&self.short);
        }
        let compiled = || compile(&self.text, BACKTRACKS_LONG).ok();
        let long = self.long.get_or_init(compiled).as_ref();
        long.filter(|_| bytes <= LONG_BYTES)
    }
}

fn compile(text: &str, backtracks: usize) -> Result<fancy_regex::Regex, fancy_regex::Error> {
    fancy_regex::RegexBuilder::new(text)
        .backtrack_limit(backtracks)
        .delegate_size_limit(COMPILED_BYTES_MAX)
        .max_prog_size(INSTRUCTIONS_MAX)
        .build()
}

/// The last line of an engine's message, which says what is wrong with what it was given.
fn one_line(message: &str) -> String {
    let last = message.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or(message).trim().to_owned()
}

#[cfg(test)]
mod tests;
