//! Passing over JSON text: whether it is well formed, and where its parts are.
//!
//! SUMMARY   [`JsonScan`] goes over a text once, from left to right, and keeps nothing of it.
//! PROMISES  What it passes over as a value is what the parser takes for one when it ignores it
//!           (`serde_json`, `IgnoredAny`); half a surrogate pair is passed over too. No recursion: a
//!           value may be nested as deeply as it likes.
//! LIMITS    It does not say what is wrong with other text: the parser does. It expects UTF-8.
//! WHY       Every document and every answer is checked whole. The parser takes a quarter longer over
//!           a value, and with members whose names are wanted it makes a text of each.

use std::ops::Range;

/// How many bytes of a string are looked at together.
const WORD_BYTES: usize = 8;

const ONES: u64 = u64::from_ne_bytes([1; WORD_BYTES]);
const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; WORD_BYTES]);
const QUOTES: u64 = u64::from_ne_bytes([b'"'; WORD_BYTES]);
const BACKSLASHES: u64 = u64::from_ne_bytes([b'\\'; WORD_BYTES]);

/// Below it are the control characters, which no string may have in it.
const BLANK: u8 = b' ';

/// A member's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Where it is, with its quotation marks.
    pub quoted: Range<usize>,
    /// Whether it is written with escapes.
    pub has_escapes: bool,
}

/// A place in a JSON text.
#[derive(Clone, Debug)]
pub struct JsonScan<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> JsonScan<'a> {
    /// Begins at the beginning of a text.
    pub fn of(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Returns whether a text is one JSON value, with white space around it or without.
    pub fn is_value(text: &str) -> bool {
        let mut scan = JsonScan::of(text.as_bytes());
        scan.value().is_some() && scan.is_at_end()
    }

    /// Passes over white space and returns the byte that comes then; none at the end.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = self.here()?;
            // Mostly it is none, as one comparison tells.
            if byte > BLANK || !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Passes over white space and returns whether the text ends there.
    pub fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Passes over white space and a certain byte; none: another one comes.
    pub fn take(&mut self, wanted: u8) -> Option<()> {
        let found = self.peek()? == wanted;
        self.at += usize::from(found);
        found.then_some(())
    }

    /// Passes over the beginning of an array or an object, a bracket. `false`: it is empty, and
    /// passed over. None: something else comes.
    pub fn open(&mut self, bracket: u8) -> Option<bool> {
        self.take(bracket)?;
        let is_empty = self.peek()? == closing(bracket);
        self.at += usize::from(is_empty);
        Some(!is_empty)
    }

    /// Passes over what comes after an element of an array or a member of an object that began with
    /// this bracket. `false`: nothing more, it is passed over. None: something else comes.
    pub fn goes_on(&mut self, bracket: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        if byte == b',' {
            return Some(true);
        }
        (byte == closing(bracket)).then_some(false)
    }

    /// Passes over a member's name and the colon.
    pub fn name(&mut self) -> Option<Name> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at;
        let has_escapes = self.string()?;
        let quoted = start..self.at;
        self.take(b':')?;
        Some(Name {
            quoted,
            has_escapes,
        })
    }

    /// Passes over a value; returns where it is.
    pub fn value(&mut self) -> Option<Range<usize>> {
        self.peek()?;
        let start = self.at;
        let mut open = Nesting::default();
        // Whether what comes is a member of an object.
        let mut is_member = false;
        loop {
            if is_member {
                self.name()?;
            }
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                bracket @ (b'{' | b'[') => {
                    if self.open(bracket)? {
                        open.push(is_member);
                        is_member = bracket == b'{';
                        continue;
                    }
                }
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                _ => self.number()?,
            }
            // A value is over, and with it perhaps others that it is the last of.
            loop {
                if open.depth == 0 {
                    return Some(start..self.at);
                }
                let byte = self.peek()?;
                self.at += 1;
                match byte {
                    b',' => break,
                    b'}' if is_member => is_member = open.pop(),
                    b']' if !is_member => is_member = open.pop(),
                    _ => return None,
                }
            }
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let found = self.text[self.at..].starts_with(word);
        found.then(|| self.at += word.len())
    }

    fn number(&mut self) -> Option<()> {
        if self.here() == Some(b'-') {
            self.at += 1;
        }
        match self.here() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.here() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.here() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.here() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    fn here(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.here() {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    /// Passes over a string, which begins here; returns whether it has escapes.
    // Most of a text is strings: calling this takes a fifth of the time.
    #[inline(always)]
    fn string(&mut self) -> Option<bool> {
        self.at += 1;
        let mut has_escapes = false;
        loop {
            self.pass_plain_characters();
            let byte = *self.text.get(self.at)?;
            self.at += 1;
            match byte {
                b'"' => return Some(has_escapes),
                b'\\' => {
                    has_escapes = true;
                    self.escape()?;
                }
                _ => return None,
            }
        }
    }

    /// Goes on to a quotation mark, a backslash or a control character, or to the end.
    fn pass_plain_characters(&mut self) {
        while let Some(bytes) = self.text[self.at..].first_chunk() {
            let word = u64::from_le_bytes(*bytes);
            let found = zeros(word ^ QUOTES) | zeros(word ^ BACKSLASHES) | controls(word);
            if found != 0 {
                self.at += (found.trailing_zeros() / u8::BITS) as usize;
                return;
            }
            self.at += WORD_BYTES;
        }
        let rest = &self.text[self.at..];
        let is_plain = |byte: &u8| *byte >= BLANK && !matches!(byte, b'"' | b'\\');
        let plain = rest.iter().position(|byte| !is_plain(byte));
        self.at += plain.unwrap_or(rest.len());
    }

    /// Passes over what comes after a backslash.
    fn escape(&mut self) -> Option<()> {
        let escaped = *self.text.get(self.at)?;
        self.at += 1;
        match escaped {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let digits = self.text.get(self.at..self.at + 4)?;
                self.at += 4;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())
            }
            _ => None,
        }
    }
}

/// Returns the bracket that ends what this one begins: in ASCII they are two apart.
fn closing(bracket: u8) -> u8 {
    bracket + 2
}

/// Sets the high bit of bytes that are zero, and perhaps of some above the lowest of them.
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGH_BITS
}

/// Sets the high bit of bytes that are control characters, and perhaps of some above the lowest.
fn controls(word: u64) -> u64 {
    word.wrapping_sub(ONES * u64::from(BLANK)) & !word & HIGH_BITS
}

/// What the values that are open are in: objects or not, the innermost in the lowest bit of the last
/// word.
#[derive(Default)]
struct Nesting {
    depth: usize,
    innermost: u64,
    outer: Vec<u64>,
}

impl Nesting {
    const WORD_BITS: usize = u64::BITS as usize;

    fn push(&mut self, is_member: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(Self::WORD_BITS) {
            self.outer.push(self.innermost);
        }
        self.depth += 1;
        self.innermost = self.innermost << 1 | u64::from(is_member);
    }

    fn pop(&mut self) -> bool {
        let is_member = self.innermost & 1 == 1;
        self.depth -= 1;
        self.innermost >>= 1;
        if self.depth.is_multiple_of(Self::WORD_BITS) {
            self.innermost = self.outer.pop().unwrap_or_default();
        }
        is_member
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    use super::*;

    fn parser_takes(text: &str) -> bool {
        serde_json::from_str::<IgnoredAny>(text).is_ok()
    }

    #[test]
    fn values_of_every_kind_are_passed_over() {
        for text in [
            "null",
            "true",
            "false",
            "0",
            "-0",
            "1",
            "-12.50",
            "1e5",
            "1.5E-07",
            "9e+99999",
            "\"\"",
            "\"a\"",
            "\"12345678\"",
            "\"1234567\\\"89\"",
            "\"\\u00e9\\ud800\\\\\"",
            "\"\u{e9}\u{1f6cb}\u{7f}\"",
            "[]",
            "{}",
            "[ ]",
            "{\t}",
            "[1,[],{},\"]\"]",
            " {\"a\" : [ 1 , 2 ] ,\r\n\"\" : { \"b\":{} } } ",
            "{\"a\":1,\"a\":2}",
        ] {
            assert!(parser_takes(text) && JsonScan::is_value(text), "{text}");
        }
    }

    #[test]
    fn what_is_not_well_formed_is_not() {
        for text in [
            "",
            " ",
            "nul",
            "nulls",
            "True",
            "-",
            "01",
            "+1",
            ".5",
            "1.",
            "1.e5",
            "1e",
            "1e+",
            "0x1",
            "\"",
            "\"a",
            "\"a\\\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\u12\"",
            "\"\\",
            "\"a\tb\"",
            "\"12345678\n\"",
            "\"\0\"",
            "\"\u{1f}1234567\"",
            "[",
            "]",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1}",
            "{",
            "}",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "{\"a\":1,}",
            "{\"a\" 1}",
            "{a:1}",
            "{1:1}",
            "{\"a\":1]",
            "{,}",
            "1 2",
            "[] []",
            "\u{feff}1",
            "\u{a0}1",
            "'a'",
            "NaN",
            "[1]]",
        ] {
            assert!(!parser_takes(text) && !JsonScan::is_value(text), "{text:?}");
        }
    }

    #[test]
    fn depth_has_no_limit_and_brackets_must_match_at_every_depth() {
        for depth in [1, 63, 64, 65, 127, 128, 129, 100_000] {
            let kinds = || (0..depth).map(|level| level % 3 == 0);
            let opening = |is_object| if is_object { "{\"a\":" } else { "[" };
            let closing = |is_object| if is_object { '}' } else { ']' };
            let head: String = kinds().map(opening).collect();
            let tail: String = kinds().rev().map(closing).collect();
            assert!(JsonScan::is_value(&format!("{head}1{tail}")), "{depth}");
            assert!(
                !JsonScan::is_value(&format!("{head}1{}", &tail[1..])),
                "{depth}"
            );
            for wrong in [0, depth / 2, depth - 1] {
                let other = if &tail[wrong..=wrong] == "]" {
                    "}"
                } else {
                    "]"
                };
                let tail = format!("{}{other}{}", &tail[..wrong], &tail[wrong + 1..]);
                assert!(!JsonScan::is_value(&format!("{head}1{tail}")), "{depth}");
            }
        }
    }

    #[test]
    fn parts_are_found_where_they_are() {
        let text = " { \"a\" : [1, {}] , \"\\u0062\":\"c\"} ";
        let mut scan = JsonScan::of(text.as_bytes());
        assert_eq!(scan.open(b'['), None);
        assert_eq!(scan.open(b'{'), Some(true));
        let mut parts = Vec::new();
        loop {
            let name = scan.name().unwrap();
            assert_eq!(name.has_escapes, text[name.quoted.clone()].contains('\\'));
            parts.push(&text[name.quoted]);
            parts.push(&text[scan.value().unwrap()]);
            if !scan.goes_on(b'{').unwrap() {
                break;
            }
        }
        assert_eq!(parts, ["\"a\"", "[1, {}]", "\"\\u0062\"", "\"c\""]);
        assert!(scan.is_at_end());
    }

    /// Texts that are JSON, or nearly.
    fn texts() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            any::<f64>().prop_map(|number| serde_json::json!(number).to_string()),
            any::<i32>().prop_map(|number| number.to_string()),
            any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
            "\"[a\\\\\"u0 \t\u{e9}]{0,20}\"",
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let members = proptest::collection::vec((any::<String>(), inner.clone()), 0..5);
            prop_oneof![
                proptest::collection::vec(inner, 0..5)
                    .prop_map(|all| format!("[{}]", all.join(" ,"))),
                members.prop_map(|all| {
                    let member = |(name, value): (String, String)| {
                        format!("{}: {value}", serde_json::json!(name))
                    };
                    let all: Vec<String> = all.into_iter().map(member).collect();
                    format!("{{{} }}", all.join(","))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_takes_what_the_parser_takes(text in texts()) {
            prop_assert_eq!(JsonScan::is_value(&text), parser_takes(&text));
        }

        #[test]
        fn it_takes_what_the_parser_takes_of_texts_with_a_mistake(
            text in texts(),
            place in any::<proptest::sample::Index>(),
            other in prop_oneof!["[\\[\\]{}\",:0-9eE.+ \\\\ntf-]", any::<char>().prop_map(String::from)],
            length in 0_usize..2,
        ) {
            let mut characters: Vec<String> = text.chars().map(String::from).collect();
            let place = place.index(characters.len());
            characters.splice(place..place + length, [other]);
            let text = characters.concat();
            prop_assert_eq!(JsonScan::is_value(&text), parser_takes(&text), "{}", text);
        }
    }
}
