//! A cursor over JSON text: validates it, and finds its parts.
//!
//! SUMMARY   [`Cursor`] scans a text once, from left to right, without storing any of it. [`Cursor::walk`] visits the
//!           parts of a value at every depth; [`Members`] and [`Elements`] iterate over one object or array.
//! PROMISES  Accepts the values that `serde_json` accepts as `IgnoredAny`, and unpaired surrogates. No recursion: the
//!           depth of a value is unlimited. On other text it stops; it never panics.
//! LIMITS    Does not report mistakes in other text: the parser does. Expects UTF-8.
//! WHY       Every document and every answer is validated as a whole. The parser takes a quarter longer, and
//!           allocates every member's name.

use std::ops::Range;

/// Bytes of a string checked together.
const WORD_BYTES: usize = 8;

const ONES: u64 = u64::from_ne_bytes([1; WORD_BYTES]);
const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; WORD_BYTES]);
const QUOTES: u64 = u64::from_ne_bytes([b'"'; WORD_BYTES]);
const BACKSLASHES: u64 = u64::from_ne_bytes([b'\\'; WORD_BYTES]);

/// Smaller bytes are control characters, which strings must not contain.
const BLANK: u8 = b' ';

/// A part of a JSON text. A range includes a string's quotation marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// An object begins.
    Object,
    /// An array begins.
    Array,
    /// The innermost object or array ends.
    End,
    /// The name of a member, whose value follows.
    Name(Range<usize>),
    /// A string that is a value.
    String(Range<usize>),
    /// A number.
    Number(Range<usize>),
    /// `null`.
    Null,
    /// `false`.
    False,
    /// `true`.
    True,
}

/// A position in a JSON text. `VALID` text was validated before, and is checked less.
#[derive(Clone, Debug)]
pub struct Cursor<'a, const VALID: bool = false> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the beginning of a text.
    pub fn of(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Returns whether a text is one JSON value, with optional white space around it.
    pub fn is_value(text: &str) -> bool {
        let mut scan = Cursor::of(text.as_bytes());
        scan.value().is_some() && scan.is_at_end()
    }
}

impl<'a> Cursor<'a, true> {
    /// Starts at the beginning of a validated text. For any other text, the parts are wrong.
    pub fn of_valid(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }
}

impl<const VALID: bool> Cursor<'_, VALID> {
    /// Skips white space and returns the next byte; `None` at the end.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = self.here()?;
            // One comparison for every byte other than white space.
            if byte > BLANK || !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Skips white space and returns whether the text ends there.
    pub fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Skips white space and this byte; `None` if another one follows.
    pub fn take(&mut self, wanted: u8) -> Option<()> {
        let found = self.peek()? == wanted;
        self.at += usize::from(found);
        found.then_some(())
    }

    /// Skips the opening bracket of an array or an object. `false`: it is empty, and was skipped as a whole. `None`:
    /// something else follows.
    pub fn open(&mut self, bracket: u8) -> Option<bool> {
        self.take(bracket)?;
        let is_empty = self.peek()? == closing(bracket);
        self.at += usize::from(is_empty);
        Some(!is_empty)
    }

    /// Skips the comma after an element or a member, or the end of the array or object opened by this bracket. `true`:
    /// the comma. `false`: the end. `None`: something else follows.
    pub fn goes_on(&mut self, bracket: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        if byte == b',' {
            return Some(true);
        }
        (VALID || byte == closing(bracket)).then_some(false)
    }

    /// Skips a member's name and the colon; returns the name's range, including quotation marks.
    pub fn name(&mut self) -> Option<Range<usize>> {
        if self.peek()? != b'"' {
            return None;
        }
        let quoted = self.string()?;
        self.take(b':')?;
        Some(quoted)
    }

    /// Skips a value; returns its range.
    pub fn value(&mut self) -> Option<Range<usize>> {
        self.peek()?;
        let start = self.at;
        self.walk(|_| ())?;
        Some(start..self.at)
    }

    /// Skips a value and passes each of its parts to `see`. `None`: the text is malformed; the parts before the mistake
    /// were passed.
    pub fn walk(&mut self, mut see: impl FnMut(Token)) -> Option<()> {
        let mut open = OpenValues::default();
        let mut is_member = false;
        loop {
            if is_member {
                see(Token::Name(self.name()?));
            }
            match self.peek()? {
                b'"' => see(Token::String(self.string()?)),
                bracket @ (b'{' | b'[') => {
                    let is_object = bracket == b'{';
                    see(if is_object {
                        Token::Object
                    } else {
                        Token::Array
                    });
                    if self.open(bracket)? {
                        open.push(is_member);
                        is_member = is_object;
                        continue;
                    }
                    see(Token::End);
                }
                b't' => see(self.word(b"true", Token::True)?),
                b'f' => see(self.word(b"false", Token::False)?),
                b'n' => see(self.word(b"null", Token::Null)?),
                _ => see(Token::Number(self.number()?)),
            }
            // A value has ended, and possibly others that it completes.
            loop {
                if open.depth == 0 {
                    return Some(());
                }
                let bracket = if is_member { b'{' } else { b'[' };
                if self.goes_on(bracket)? {
                    break;
                }
                see(Token::End);
                is_member = open.pop();
            }
        }
    }

    fn word(&mut self, word: &[u8], token: Token) -> Option<Token> {
        let found = VALID || self.text[self.at..].starts_with(word);
        found.then(|| {
            self.at += word.len();
            token
        })
    }

    fn number(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        if VALID {
            let is_part = |byte: u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
            while self.here().is_some_and(is_part) {
                self.at += 1;
            }
            return (self.at > start).then_some(start..self.at);
        }
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
        Some(start..self.at)
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

    /// Skips a string, which begins here; returns its range.
    #[inline(always)]
    fn string(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        self.at += 1;
        loop {
            self.pass_plain_characters();
            let byte = *self.text.get(self.at)?;
            self.at += 1;
            match byte {
                b'"' => return Some(start..self.at),
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    /// Advances to a quotation mark, a backslash, a control character, or the end.
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

    /// Skips the rest of an escape after its backslash.
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

/// A bit for each open value, the innermost lowest: whether it is a member of an object.
#[derive(Default)]
struct OpenValues {
    depth: usize,
    innermost: u64,
    /// Full words, for values nested deeper than a word has bits.
    outer: Vec<u64>,
}

impl OpenValues {
    fn push(&mut self, is_member: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(u64::BITS as usize) {
            self.outer.push(self.innermost);
        }
        self.innermost = self.innermost << 1 | u64::from(is_member);
        self.depth += 1;
    }

    fn pop(&mut self) -> bool {
        let is_member = self.innermost & 1 == 1;
        self.depth -= 1;
        self.innermost >>= 1;
        if self.depth.is_multiple_of(u64::BITS as usize) {
            self.innermost = self.outer.pop().unwrap_or_default();
        }
        is_member
    }
}

/// The members of an object: names with their quotation marks, and values. Other text has none; malformed text ends
/// early.
#[derive(Clone, Debug)]
pub struct Members<'a>(Parts<'a>);

impl<'a> Members<'a> {
    /// Begins at the first member.
    pub fn of(text: &'a str) -> Self {
        Self(Parts::of(text, b'{'))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let member = |cursor: &mut Cursor<'a>| Some((cursor.name()?, cursor.value()?));
        let (name, value) = self.0.next(member)?;
        Some((&self.0.text[name], &self.0.text[value]))
    }
}

/// The elements of an array. Other text has none; malformed text ends early.
#[derive(Clone, Debug)]
pub struct Elements<'a>(Parts<'a>);

impl<'a> Elements<'a> {
    /// Begins at the first element.
    pub fn of(text: &'a str) -> Self {
        Self(Parts::of(text, b'['))
    }

    /// Skips the rest, and returns whether the text is one array and nothing else.
    pub fn is_list(mut self) -> bool {
        self.by_ref().for_each(drop);
        self.0.goes_on == Some(false) && self.0.cursor.is_at_end()
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        let element = self.0.next(Cursor::value)?;
        Some(&self.0.text[element])
    }
}

/// The text between two brackets.
#[derive(Clone, Debug)]
struct Parts<'a> {
    text: &'a str,
    cursor: Cursor<'a>,
    bracket: u8,
    /// Whether another part follows. `None`: the end, or an invalid continuation.
    goes_on: Option<bool>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str, bracket: u8) -> Self {
        let mut cursor = Cursor::of(text.as_bytes());
        let goes_on = cursor.open(bracket);
        Self {
            text,
            cursor,
            bracket,
            goes_on,
        }
    }

    fn next<T>(&mut self, take: impl FnOnce(&mut Cursor<'a>) -> Option<T>) -> Option<T> {
        self.goes_on.filter(|goes_on| *goes_on)?;
        self.goes_on = None;
        let part = take(&mut self.cursor)?;
        self.goes_on = self.cursor.goes_on(self.bracket);
        Some(part)
    }
}

/// Returns the matching closing bracket: in ASCII it is two above the opening one.
fn closing(bracket: u8) -> u8 {
    bracket + 2
}

/// Sets the high bit of zero bytes, and possibly of some above the lowest of them.
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGH_BITS
}

/// Sets the high bit of control characters, and possibly of some above the lowest.
fn controls(word: u64) -> u64 {
    word.wrapping_sub(ONES * u64::from(BLANK)) & !word & HIGH_BITS
}

#[cfg(test)]
mod tests;
