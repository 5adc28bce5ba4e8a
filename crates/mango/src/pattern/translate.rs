//! Translates PCRE's syntax to the engine's.
//!
//! SUMMARY   [`translate`] rewrites an expression to the engine's syntax, with the same meaning.
//! PROMISES  Every construct is known here and rewritten or refused: none changes its meaning. Time is at most
//!           quadratic in the expression, as a search for a missing `}` reads all the rest.
//! WHY       `regex_syntax` refuses much of PCRE's syntax, and gives classes Unicode's meaning; its tree
//!           cannot represent look-around and references.

use std::collections::HashMap;

use super::PATTERN_SIZE_MAX;
use super::class::escaped_set;

/// Maximum count of `{n}`, as in PCRE.
const REPEAT_MAX: usize = 65_535;

/// The meaning of `$` and `\Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// The end of the text: for strings that do not end in a line feed.
    #[default]
    OfText,
    /// The end of the text, or before its final line feed.
    OrLineFeed,
}

/// An expression in the engine's syntax.
#[derive(Debug)]
pub(super) struct Translated {
    pub text: String,
    /// Whether it has a `$` or a `\Z`.
    pub asks_for_end: bool,
    /// Whether matching may have to backtrack: look-around, back-references, atomic groups, possessive
    /// repetitions.
    pub goes_back: bool,
    /// The number of single characters that it expands to.
    pub size: usize,
}

/// The groups of an expression, for forward references by name or number.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    pub count: usize,
    pub names: HashMap<String, usize>,
}

/// Rewrites an expression.
pub(super) fn translate(expression: &str, end: End) -> Result<Translated, String> {
    let characters: Vec<char> = expression.chars().collect();
    // The first pass finds the groups, the second uses them.
    let mut first = Translator::new(&characters, end, None);
    first.run()?;
    let groups = first.groups;
    let mut second = Translator::new(&characters, end, Some(&groups));
    second.run()?;
    Ok(Translated {
        text: second.out,
        asks_for_end: second.asks_for_end,
        goes_back: second.goes_back,
        size: second.open.pop().map_or(0, |group| group.size),
    })
}

/// Escapes a character, inside brackets and outside.
pub(super) fn escape(character: char) -> String {
    if character.is_ascii_alphanumeric() {
        character.into()
    } else {
        format!("\\x{{{:x}}}", u32::from(character))
    }
}

/// The flags that affect the translation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    /// `x`: white space and comments are skipped.
    pub extended: bool,
    /// `i`: case does not matter.
    pub caseless: bool,
}

/// An open group; the first is the whole expression.
#[derive(Default)]
pub(super) struct Open {
    /// The flags before the group.
    flags_before: Flags,
    /// The number of single characters that it expands to.
    size: usize,
    /// The size of the preceding part, if that can be repeated.
    last: Option<usize>,
}

#[derive(Default)]
pub(super) struct Translator<'a> {
    characters: &'a [char],
    pub at: usize,
    end: End,
    /// The groups, once they are known.
    known: Option<&'a Groups>,
    pub groups: Groups,
    out: String,
    pub flags: Flags,
    open: Vec<Open>,
    asks_for_end: bool,
    pub goes_back: bool,
}

impl<'a> Translator<'a> {
    fn new(characters: &'a [char], end: End, known: Option<&'a Groups>) -> Self {
        Self {
            characters,
            end,
            known,
            out: String::with_capacity(characters.len() * 2),
            open: vec![Open::default()],
            ..Self::default()
        }
    }

    pub fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.at += 1;
        Some(character)
    }

    pub fn peek(&self) -> Option<char> {
        self.peek_at(0)
    }

    pub fn peek_at(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    pub fn take(&mut self, wanted: char) -> bool {
        let taken = self.peek() == Some(wanted);
        self.at += usize::from(taken);
        taken
    }

    pub fn rest(&self) -> &'a [char] {
        &self.characters[self.at.min(self.characters.len())..]
    }

    /// Takes the text up to and including `end`; returns it without `end`, or takes nothing if there is no `end`.
    pub fn take_until(&mut self, end: char) -> Option<String> {
        let length = self.rest().iter().position(|character| *character == end)?;
        let text = self.rest()[..length].iter().collect();
        self.at += length + 1;
        Some(text)
    }

    /// Writes a repeatable part.
    pub fn atom(&mut self, text: &str, size: usize) -> Result<(), String> {
        self.out.push_str(text);
        self.grow(size)?;
        self.group().last = Some(size);
        Ok(())
    }

    /// Writes a part that cannot be repeated.
    pub fn assertion(&mut self, text: &str) {
        self.out.push_str(text);
        self.group().last = None;
    }

    fn grow(&mut self, size: usize) -> Result<(), String> {
        let group = self.group();
        group.size = group.size.saturating_add(size);
        if group.size > PATTERN_SIZE_MAX {
            return Err(format!(
                "the expression expands to more than {PATTERN_SIZE_MAX} characters"
            ));
        }
        Ok(())
    }

    fn group(&mut self) -> &mut Open {
        self.open
            .last_mut()
            .expect("MG-1: the whole expression is open until the end")
    }

    pub fn open_group(&mut self, text: &str) {
        self.out.push_str(text);
        self.open.push(Open {
            flags_before: self.flags,
            ..Open::default()
        });
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(character) = self.next() {
            match character {
                ' ' | '\t'..='\r' if self.flags.extended => {}
                '#' if self.flags.extended => {
                    self.take_until('\n').unwrap_or_else(|| {
                        self.at = self.characters.len();
                        String::new()
                    });
                }
                '\\' => self.escaped()?,
                '[' => self.class()?,
                '(' => self.opening()?,
                ')' => self.closing()?,
                '|' => self.assertion("|"),
                '^' => self.assertion("^"),
                '$' => self.dollar(),
                '.' => self.atom(".", 1)?,
                '*' => self.repeat("*", 1)?,
                '+' => self.repeat("+", 1)?,
                '?' => self.repeat("?", 1)?,
                '{' => self.counted()?,
                _ => self.atom(&escape(character), 1)?,
            }
        }
        if self.open.len() > 1 {
            return Err("a group has no closing parenthesis".into());
        }
        Ok(())
    }

    fn dollar(&mut self) {
        self.asks_for_end = true;
        match self.end {
            End::OfText => self.assertion("$"),
            End::OrLineFeed => {
                self.goes_back = true;
                self.assertion(r"(?:$|(?=\x{a}\z))");
            }
        }
    }

    fn closing(&mut self) -> Result<(), String> {
        if self.open.len() == 1 {
            return Err("a parenthesis closes nothing".into());
        }
        let closed = self.open.pop().unwrap_or_default();
        self.flags = closed.flags_before;
        self.atom(")", closed.size.saturating_add(1))
    }

    /// `{n}`, `{n,}`, `{n,m}`; any other brace is literal.
    fn counted(&mut self) -> Result<(), String> {
        let before = self.at;
        let bounds = self.take_until('}').unwrap_or_default();
        let (least, most) = match bounds.split_once(',') {
            None => (bounds.as_str(), Some(bounds.as_str())),
            Some((least, "")) => (least, None),
            Some((least, most)) => (least, Some(most)),
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(least) || !most.is_none_or(is_number) {
            self.at = before;
            return self.atom(&escape('{'), 1);
        }
        let number = |text: &str| {
            let count = text.parse::<usize>().ok();
            let count = count.filter(|count| *count <= REPEAT_MAX);
            count.ok_or_else(|| format!("a repetition of more than {REPEAT_MAX}"))
        };
        let least = number(least)?;
        let most = most.map(number).transpose()?;
        if most.is_some_and(|most| most < least) {
            return Err("the numbers of a repetition are out of order".into());
        }
        self.repeat(&format!("{{{bounds}}}"), most.unwrap_or(least).max(1))
    }

    fn repeat(&mut self, text: &str, times: usize) -> Result<(), String> {
        let Some(last) = self.group().last.take() else {
            return Err(format!("there is nothing that {text} could repeat"));
        };
        self.grow(last.saturating_mul(times - 1))?;
        self.out.push_str(text);
        if self.take('?') {
            self.out.push('?');
        } else if self.take('+') {
            self.goes_back = true;
            self.out.push('+');
        }
        Ok(())
    }

    /// Translates an escape, after its backslash.
    fn escaped(&mut self) -> Result<(), String> {
        let Some(letter) = self.next() else {
            return Err("a backslash ends the expression".into());
        };
        if let Some(set) = escaped_set(letter) {
            return self.atom(&set, 1);
        }
        match letter {
            'Q' => self.quotation(),
            'E' | 'K' => Ok(()),
            'A' | 'G' | 'z' | 'b' | 'B' => {
                self.assertion(match letter {
                    'A' | 'G' => r"\A",
                    'z' => r"\z",
                    'b' => r"\b",
                    _ => r"\B",
                });
                Ok(())
            }
            'Z' => {
                self.asks_for_end = true;
                self.goes_back |= self.end == End::OrLineFeed;
                self.assertion(match self.end {
                    End::OfText => r"\z",
                    End::OrLineFeed => r"(?=\x{a}?\z)",
                });
                Ok(())
            }
            'C' => self.atom("(?s:.)", 1),
            'N' if self.peek() != Some('{') => self.atom(r"[^\x{a}]", 1),
            'R' => {
                self.goes_back = true;
                self.atom(r"(?>\x{d}\x{a}|[\x{a}-\x{d}\x{85}])", 2)
            }
            'p' | 'P' => {
                let property = self.property(letter)?;
                self.atom(&property, 1)
            }
            'g' | 'k' => self.reference_by_name(letter),
            '1'..='9' => self.reference_or_octal(letter),
            _ => {
                let character = self.escaped_character(letter)?;
                self.atom(&escape(character), 1)
            }
        }
    }

    fn quotation(&mut self) -> Result<(), String> {
        while let Some(character) = self.next() {
            if character == '\\' && self.take('E') {
                break;
            }
            self.atom(&escape(character), 1)?;
        }
        Ok(())
    }

    /// Returns the single character of an escape.
    pub fn escaped_character(&mut self, letter: char) -> Result<char, String> {
        Ok(match letter {
            '0'..='7' => return self.octal(letter),
            'a' => '\u{7}',
            'e' => '\u{1b}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'c' => match self.next() {
                Some(key) if key.is_ascii() => char::from(key.to_ascii_uppercase() as u8 ^ 0x40),
                _ => return Err("\\c needs an ASCII character".into()),
            },
            'x' => self.hexadecimal()?,
            'o' => {
                let digits = self.take('{').then(|| self.take_until('}')).flatten();
                return number(&digits.unwrap_or_default(), 8)
                    .ok_or_else(|| "\\o{...} is not a byte".into());
            }
            'N' | 'X' | 'l' | 'L' | 'u' | 'U' => {
                return Err(format!("\\{letter} is not supported"));
            }
            _ => letter,
        })
    }

    fn hexadecimal(&mut self) -> Result<char, String> {
        if self.take('{') {
            let digits = self.take_until('}').unwrap_or_default();
            let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let byte = number(&digits, 16).filter(|_| is_number);
            return byte.ok_or_else(|| format!("\\x{{{digits}}} is not a byte"));
        }
        let digits = self.digits(2, 16);
        Ok(number(&digits, 16).unwrap_or('\0'))
    }

    /// Reads up to three octal digits, including `first`.
    pub fn octal(&mut self, first: char) -> Result<char, String> {
        let digits = format!("{first}{}", self.digits(2, 8));
        number(&digits, 8).ok_or_else(|| format!("\\{digits} is not a byte"))
    }

    pub fn digits(&mut self, most: usize, radix: u32) -> String {
        let is_digit = |character: &&char| character.is_digit(radix);
        let digits: String = self.rest().iter().take(most).take_while(is_digit).collect();
        self.at += digits.len();
        digits
    }

    /// `\p{...}`: a Unicode property, after its letter.
    pub fn property(&mut self, letter: char) -> Result<String, String> {
        let name = match self.next() {
            Some('{') => self.take_until('}').unwrap_or_default(),
            Some(short) => short.into(),
            None => String::new(),
        };
        let (not, name) = match name.strip_prefix('^') {
            Some(name) => (true, name),
            None => (false, name.as_str()),
        };
        // `L&` is letters with case.
        let name = if name == "L&" { "LC" } else { name };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(format!("\\{letter} needs the name of a property"));
        }
        let letter = if not == (letter == 'P') { 'p' } else { 'P' };
        Ok(format!("\\{letter}{{{name}}}"))
    }

    /// `\1` to `\9` are references; `\10` and above only if there is such a group.
    fn reference_or_octal(&mut self, first: char) -> Result<(), String> {
        let before = self.at;
        let digits = format!("{first}{}", self.digits(2, 10));
        let group = digits.parse().unwrap_or(usize::MAX);
        let count = self.known.map_or(usize::MAX, |groups| groups.count);
        let is_literal = matches!(digits.as_str(), "8" | "9") && group > count;
        if digits.len() == 1 && !is_literal || group <= count {
            return self.reference(group);
        }
        self.at = before;
        let character = self.escaped_character(first)?;
        self.atom(&escape(character), 1)
    }

    /// Writes a reference to a group.
    pub fn reference(&mut self, group: usize) -> Result<(), String> {
        let count = self.known.map_or(usize::MAX, |groups| groups.count);
        if group == 0 || group > count {
            return Err(format!("there is no group {group} to refer to"));
        }
        self.goes_back = true;
        let group = if self.known.is_some() { group } else { 1 };
        self.atom(&format!("(?:\\{group})"), 1)
    }

    /// Returns the number of a named group.
    pub fn named(&self, name: &str) -> Result<usize, String> {
        let Some(known) = self.known else {
            return Ok(1);
        };
        known
            .names
            .get(name)
            .copied()
            .ok_or_else(|| format!("there is no group {name:?} to refer to"))
    }
}

/// Returns a byte as the character with its code; `None` if the digits are not a byte.
fn number(digits: &str, radix: u32) -> Option<char> {
    u8::from_str_radix(digits, radix).ok().map(char::from)
}
