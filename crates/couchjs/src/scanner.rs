//! Cuts a source into tokens: words, strings, pieces of templates, regular expressions, operators.
//!
//! SUMMARY   [`tokens`] skips white space and comments and returns the rest.
//! PROMISES  Nothing is guessed. Where only the grammar tells what a `/` is, the engine is asked: it
//!           takes an `@` behind it in a regular expression, and nowhere in code. Of a source with
//!           anything that is not known for sure there are no tokens.

use super::parser::{Parsed, Parser};
use super::source;

/// How many slashes the engine is asked about: for each the source is parsed once.
const SLASHES_MAX: usize = 32;

/// What may begin a comment, or be two operators: the engine decides by what stands before it.
const HTML_COMMENTS: [&str; 2] = ["<!--", "-->"];

/// What ends a line.
const LINE_ENDS: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];

/// A token: a word or number, a string, a regular expression, a piece of a template, a bracket, `++`,
/// `--`, or one character of another operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// Where it starts in the source, in bytes.
    pub(super) start: usize,
    pub(super) text: &'a str,
}

impl Token<'_> {
    /// Whether it is a name, keyword or number.
    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with(is_word_part)
    }
}

fn is_word_part(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '#' | '\\')
    } else {
        !is_space(c)
    }
}

fn is_space(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

/// Returns the tokens of a source that the engine takes; `None` where they are not known for sure.
pub(super) fn tokens(source: &str) -> Option<Vec<Token<'_>>> {
    let is_unclear = HTML_COMMENTS.iter().any(|text| source.contains(text));
    if is_unclear || source.starts_with("#!") {
        return None;
    }
    let mut scanner = Scanner {
        source,
        at: 0,
        open: Vec::new(),
        parser: None,
        slashes: 0,
    };
    let mut tokens = Vec::new();
    while let Some(next) = scanner.rest().chars().next() {
        let start = scanner.at;
        let length = scanner.length(next)?;
        scanner.at += length.bytes;
        if !length.blank {
            let text = source.get(start..scanner.at)?;
            tokens.push(Token { start, text });
        }
    }
    scanner.open.is_empty().then_some(tokens)
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    /// Of each open bracket, whether it is that of a `${` in a template.
    open: Vec<bool>,
    parser: Option<Parser>,
    slashes: usize,
}

/// How long a token is, or something between tokens.
struct Length {
    bytes: usize,
    blank: bool,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn length(&mut self, next: char) -> Option<Length> {
        let rest = self.rest();
        let blank = |bytes| Some(Length { bytes, blank: true });
        if is_space(next) {
            return blank(next.len_utf8());
        }
        if rest.starts_with("//") {
            return blank(rest.find(LINE_ENDS).unwrap_or(rest.len()));
        }
        if let Some(comment) = rest.strip_prefix("/*") {
            return blank(comment.find("*/")? + 4);
        }
        let bytes = match next {
            '/' if self.is_regex()? => regex(rest)?,
            '"' | '\'' => string(rest, next)?,
            '`' => 1 + self.template(&rest[1..])?,
            '(' | '[' | '{' => {
                self.open.push(false);
                1
            }
            '}' if self.open.pop()? => 1 + self.template(&rest[1..])?,
            ')' | ']' => {
                self.open.pop();
                1
            }
            c if is_word_part(c) => rest.find(|c| !is_word_part(c)).unwrap_or(rest.len()),
            _ if rest.starts_with("++") || rest.starts_with("--") => 2,
            _ => next.len_utf8(),
        };
        let blank = false;
        Some(Length { bytes, blank })
    }

    /// Whether the slash that comes begins a regular expression.
    fn is_regex(&mut self) -> Option<bool> {
        self.slashes += 1;
        if self.slashes > SLASHES_MAX {
            return None;
        }
        if self.parser.is_none() {
            self.parser = Parser::new();
        }
        let (before, after) = self.source.split_at(self.at + 1);
        match source::parse(self.parser.as_ref()?, &[before, "@", after].concat()).0 {
            Parsed::Correct => Some(true),
            Parsed::Wrong(_) => Some(false),
            Parsed::Unknown => None,
        }
    }

    /// The length of a piece of a template, up to its end or through the next `${`.
    fn template(&mut self, text: &str) -> Option<usize> {
        let mut escaped = false;
        for (offset, c) in text.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '`' => return Some(offset + 1),
                '$' if text[offset..].starts_with("${") => {
                    self.open.push(true);
                    return Some(offset + 2);
                }
                _ => {}
            }
        }
        None
    }
}

/// The length of a string.
fn string(text: &str, quote: char) -> Option<usize> {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((offset, c)) = characters.next() {
        match c {
            '\\' => {
                let escaped = characters.next()?.1;
                // One line end, behind which the string goes on.
                if escaped == '\r' {
                    characters.next_if(|(_, c)| *c == '\n');
                }
            }
            '\n' | '\r' => return None,
            _ if c == quote => return Some(offset + 1),
            _ => {}
        }
    }
    None
}

/// The length of a regular expression. A slash in a class does not end it.
fn regex(text: &str) -> Option<usize> {
    let (mut escaped, mut in_class) = (false, false);
    for (offset, c) in text.char_indices().skip(1) {
        match c {
            _ if LINE_ENDS.contains(&c) => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => {
                let flags = &text[offset + 1..];
                return Some(offset + 1 + flags.find(|c| !is_word_part(c)).unwrap_or(flags.len()));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        let tokens = tokens(source).unwrap_or_else(|| panic!("{source}"));
        tokens.iter().map(|token| token.text).collect()
    }

    #[test]
    fn the_grammar_tells_a_division_from_a_regular_expression() {
        for (source, token) in [
            ("x = of /g/ 2", "g"),
            ("var await = 4; x = await /g/ 2", "g"),
            ("var yield = 4; x = yield /g/ 2", "g"),
            ("x = function() {} /g/ 2", "g"),
            ("L: {} /g/.test(x)", "/g/"),
            ("{} /g/.test(x)", "/g/"),
            ("x = {} /g/ 2", "g"),
            ("x = {a: {}} /g/ 2", "g"),
            ("if (a) /g/.test(x)", "/g/"),
            ("a.if (a) /g/ 2", "g"),
            ("a./**/if (a) /g/ 2", "g"),
            ("(a) /g/ 2", "g"),
            ("a++ /g/ 2", "g"),
            ("a\n++/g/.lastIndex", "/g/"),
            ("a.return /g/ 2", "g"),
            ("a?.typeof /g/ 2", "g"),
            ("x = 1. /g/ 2", "g"),
            ("x = `${a}` /g/ 2", "g"),
            ("x = `${/g/}`", "/g/"),
            ("x = `${`${/}`/}`}`", "/}`/"),
            ("x = a => {}\n/g/.test(x)", "/g/"),
            ("x = () => /[/\\]g]/g", "/[/\\]g]/g"),
            ("function* f() { yield /g/ }", "/g/"),
            ("async function f() { await /g/ }", "/g/"),
            ("for (var a of /g/.exec(x)) {}", "/g/"),
            ("class A { #a = /g/; static { /h/ } }", "/g/"),
            ("x = class {} /g/ 2", "g"),
            ("do {} while (a) /g/.test(x)", "/g/"),
            ("x = [] /g/ 2", "g"),
            ("x = /=/", "/=/"),
            ("x /= /g/", "/g/"),
            ("let\n/g/ 2", "g"),
            ("x = async /g/ 2", "g"),
            ("x = this /g/ 2; y = null /h/ 2", "g"),
            ("switch (1) { case /g/: }", "/g/"),
            ("x = '\\\r\n' /g/ 2", "g"),
            ("function(d) {} /g/ 2", "g"),
            ("function(d) {}\nfunction(e) { return /g/ }", "/g/"),
        ] {
            assert!(
                texts(source).contains(&token),
                "{source}: {:?}",
                texts(source)
            );
        }
    }

    #[test]
    fn strings_and_comments_end_where_they_do_for_the_engine() {
        for (source, expected) in [
            ("'a\\\r\nb' 'c'", &["'a\\\r\nb'", "'c'"][..]),
            ("'a\\\rb'", &["'a\\\rb'"]),
            ("'\u{2028}' '\\\u{2029}'", &["'\u{2028}'", "'\\\u{2029}'"]),
            ("a // '\u{2028}b /* ' */ c", &["a", "b", "c"]),
            (
                "`a\\`${{}}b` + `}`",
                &["`a\\`${", "{", "}", "}b`", "+", "`}`"],
            ),
            ("\u{feff}a\u{a0}b", &["a", "b"]),
            ("a+++b", &["a", "++", "+", "b"]),
        ] {
            assert_eq!(texts(source), expected, "{source}");
        }
    }

    #[test]
    fn of_what_is_not_known_for_sure_there_are_no_tokens() {
        let many = "x / 2;".repeat(SLASHES_MAX + 1);
        for source in [
            "a <!-- b",
            "a\n--> b",
            "#!/bin/js",
            "'a",
            "`a${",
            "/* a",
            "}",
            &many,
        ] {
            assert_eq!(tokens(source), None, "{source}");
        }
    }
}
