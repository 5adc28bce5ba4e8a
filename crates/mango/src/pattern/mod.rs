//! `$regex`: PCRE's syntax over bytes, within bounds.
//!
//! SUMMARY   A [`Pattern`] is an expression in PCRE's syntax over the bytes of a string's UTF-8, as in
//!           CouchDB: `.` is one byte.
//! PROMISES  Building and matching are bounded in time and memory. Without look-around and back-references, matching
//!           takes time linear in the string.
//! SOURCE    Erlang's `re` without options: PCRE over ISO-8859-1.
//! DIFFERS   An expression that backtracks too often does not match in CouchDB; here it is an error. Not supported:
//!           recursion and calls of groups, verbs like `(*SKIP)`, `\X`, `(?|`, variable-length look-behind.
//! LIMITS    The bounds apply to one string. A document with many strings that are each just within bounds is stopped
//!           only by the prompt's deadline.
//!
//! Each byte of the expression and of the string is taken as the character with its code (ISO-8859-1). [`translate`]
//! converts the expression to the engine's syntax; a string is converted only if it is not ASCII. Its length for the
//! bounds is that of the converted string, in which each byte beyond ASCII takes two.

mod class;
mod group;
mod translate;

use std::borrow::Cow;
use std::sync::OnceLock;

use translate::{End, Translated, translate};

/// Maximum length of an expression, in bytes.
const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// Maximum characters of an expression with its repetitions expanded.
const PATTERN_SIZE_MAX: usize = 10_000;

/// Maximum memory of a compiled part of an expression, in bytes.
const COMPILED_BYTES_MAX: usize = 4 << 20;

/// Maximum instructions of a compiled expression with look-around or back-references.
const INSTRUCTIONS_MAX: usize = 100_000;

/// Up to this length of the string, in bytes, an expression may backtrack [`BACKTRACKS_SHORT`] times, beyond it
/// [`BACKTRACKS_LONG`] times: each time may read the rest of the string.
const SHORT_BYTES: usize = 4 * 1024;
/// See [`SHORT_BYTES`].
const BACKTRACKS_SHORT: usize = 100_000;
/// See [`SHORT_BYTES`].
const BACKTRACKS_LONG: usize = 4_000;

/// Maximum length of a string for expressions with look-around or back-references, in bytes.
const LONG_BYTES: usize = 256 * 1024;

/// For other expressions: maximum product of the expression's characters and the string's bytes.
const WORK_MAX: usize = 1_000_000_000;

/// An expression, ready to be matched.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// The original expression.
    pub source: Box<str>,
    /// For strings that do not end in a line feed.
    usual: Engine,
    /// For strings that do, if the expression has `$` or `\Z`, which also match before that line feed.
    before_line_feed: Option<Engine>,
}

/// Matching takes too many steps, or the string is too long for the expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Pattern {
    /// Reads an expression.
    ///
    /// # Errors
    /// The mistake in it, or the exceeded bound.
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

    /// Whether the expression matches anywhere in a string, given as UTF-8.
    ///
    /// # Errors
    /// Matching takes too many steps, or the string is too long.
    pub fn is_match(&self, string: &[u8]) -> Result<bool, TooLong> {
        let engine = match &self.before_line_feed {
            Some(engine) if string.ends_with(b"\n") => engine,
            _ => &self.usual,
        };
        engine.is_match(&latin_view(string))
    }
}

/// Converts each byte to the character with its code.
fn latin_view(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Cow::Borrowed(text),
        _ => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

/// A compiled expression.
#[derive(Debug)]
enum Engine {
    /// Never backtracks: time is linear in the string.
    Linear { regex: regex::Regex, size: usize },
    /// Backtracks, within bounds.
    Back(Box<Back>),
}

#[derive(Debug)]
struct Back {
    text: String,
    short: fancy_regex::Regex,
    /// The same with the bound for long strings, compiled for the first one.
    long: OnceLock<Option<fancy_regex::Regex>>,
}

impl Engine {
    fn new(translated: Translated) -> Result<Self, String> {
        if !translated.goes_back {
            let regex = regex::RegexBuilder::new(&translated.text)
                .size_limit(COMPILED_BYTES_MAX)
                .build()
                .map_err(one_line)?;
            let size = translated.size.max(1);
            return Ok(Self::Linear { regex, size });
        }
        let short = compile(&translated.text, BACKTRACKS_SHORT).map_err(one_line)?;
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
        self.long
            .get_or_init(compiled)
            .as_ref()
            .filter(|_| bytes <= LONG_BYTES)
    }
}

fn compile(text: &str, backtracks: usize) -> Result<fancy_regex::Regex, fancy_regex::Error> {
    fancy_regex::RegexBuilder::new(text)
        .backtrack_limit(backtracks)
        .delegate_size_limit(COMPILED_BYTES_MAX)
        .max_prog_size(INSTRUCTIONS_MAX)
        .build()
}

/// Returns the last line of an engine's message, which has the cause.
fn one_line(error: impl ToString) -> String {
    let message = error.to_string();
    let last = message.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or(&message).trim().to_owned()
}

#[cfg(test)]
mod tests;
