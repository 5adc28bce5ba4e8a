//! Sets of characters in an expression: `[...]`, `\d` and the like.
//!
//! SOURCE    PCRE as built for Erlang, with its tables for ISO-8859-1: letters include those beyond ASCII, white
//!           space is only ASCII's. `tests/bytes.rs` has its matches for each byte.

use std::fmt::Write;

use super::translate::{Translator, escape};

/// Characters of words.
const WORD: &str = r"0-9A-Za-z_\x{aa}\x{b5}\x{ba}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{ff}";
/// Letters.
const ALPHA: &str = r"A-Za-z\x{aa}\x{b5}\x{ba}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{ff}";
/// White space.
const SPACE: &str = r"\x{9}-\x{d}\x{20}";
/// White space within a line.
const HORIZONTAL: &str = r"\x{9}\x{20}\x{a0}";
/// Ends of lines.
const VERTICAL: &str = r"\x{a}-\x{d}\x{85}";

/// The sets named in `[:name:]`.
const NAMED: &[(&str, &str)] = &[
    ("alpha", ALPHA),
    ("lower", r"a-z\x{aa}\x{b5}\x{ba}\x{df}-\x{f6}\x{f8}-\x{ff}"),
    ("upper", r"A-Z\x{c0}-\x{d6}\x{d8}-\x{de}"),
    (
        "alnum",
        r"0-9A-Za-z\x{aa}\x{b5}\x{ba}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{ff}",
    ),
    ("ascii", r"\x{0}-\x{ff}"),
    ("blank", r"\x{9}\x{20}"),
    ("cntrl", r"\x{0}-\x{1f}\x{7f}-\x{9f}"),
    ("digit", "0-9"),
    ("graph", r"\x{21}-\x{7e}\x{a0}-\x{ff}"),
    ("print", r"\x{20}-\x{7e}\x{a0}-\x{ff}"),
    (
        "punct",
        r"\x{21}-\x{2f}\x{3a}-\x{40}\x{5b}-\x{60}\x{7b}-\x{7e}\x{a0}-\x{a9}\x{ab}-\x{b4}\x{b6}-\x{b9}\x{bb}-\x{bf}\x{d7}\x{f7}",
    ),
    ("space", SPACE),
    ("word", WORD),
    ("xdigit", "0-9A-Fa-f"),
];

/// Returns the set that an escaped letter stands for, inside brackets and outside.
pub(super) fn escaped_set(letter: char) -> Option<String> {
    let set = match letter.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => WORD,
        's' => SPACE,
        'h' => HORIZONTAL,
        'v' => VERTICAL,
        _ => return None,
    };
    let not = if letter.is_ascii_uppercase() { "^" } else { "" };
    Some(format!("[{not}{set}]"))
}

/// One item between brackets.
enum Item {
    Character(char),
    Set(String),
    /// Nothing: a quotation began or ended.
    Nothing,
}

impl Translator<'_> {
    /// Translates a set; its `[` is already consumed.
    pub fn class(&mut self) -> Result<(), String> {
        if let Some(name) = self.posix_name() {
            return Err(format!("a set's name ({name}) is outside brackets"));
        }
        let mut text = String::from("[");
        if self.take('^') {
            text.push('^');
        }
        let mut first = true;
        let mut quoted = false;
        loop {
            if !first && !quoted && self.take(']') {
                break;
            }
            let item = self.class_item(&mut quoted, first)?;
            first &= matches!(item, Item::Nothing);
            match item {
                Item::Nothing => {}
                Item::Set(set) => text.push_str(&set),
                Item::Character(from) => {
                    let to = self.range_end(quoted)?.unwrap_or(from);
                    if to < from {
                        return Err("a range in a set is out of order".into());
                    }
                    let _ = write!(text, "{}-{}", escape(from), escape(to));
                }
            }
        }
        text.push(']');
        self.atom(&text, 1)
    }

    /// Returns the end of a range, if the `-` after a character begins one.
    fn range_end(&mut self, quoted: bool) -> Result<Option<char>, String> {
        if quoted || self.peek() != Some('-') || matches!(self.peek_at(1), None | Some(']')) {
            return Ok(None);
        }
        let before = self.at;
        self.next();
        match self.class_item(&mut false, false)? {
            Item::Character(to) => Ok(Some(to)),
            Item::Set(_) => Err("a range ends with a set".into()),
            // The `-` is literal.
            Item::Nothing => {
                self.at = before;
                Ok(None)
            }
        }
    }

    fn class_item(&mut self, quoted: &mut bool, first: bool) -> Result<Item, String> {
        let Some(character) = self.next() else {
            return Err("a set has no closing bracket".into());
        };
        if *quoted {
            if character == '\\' && self.take('E') {
                *quoted = false;
                return Ok(Item::Nothing);
            }
            return Ok(Item::Character(character));
        }
        match character {
            '[' if matches!(self.peek(), Some(':' | '.' | '=')) => self.named_set(),
            '\\' => self.class_escape(quoted),
            ']' if !first => Err("a range in a set has no end".into()),
            _ => Ok(Item::Character(character)),
        }
    }

    fn class_escape(&mut self, quoted: &mut bool) -> Result<Item, String> {
        let Some(letter) = self.next() else {
            return Err("a backslash ends the expression".into());
        };
        if let Some(set) = escaped_set(letter) {
            return Ok(Item::Set(set));
        }
        match letter {
            'Q' => {
                *quoted = true;
                Ok(Item::Nothing)
            }
            'E' => Ok(Item::Nothing),
            'b' => Ok(Item::Character('\u{8}')),
            'p' | 'P' => Ok(Item::Set(self.property(letter)?)),
            'R' | 'X' | 'B' => Ok(Item::Character(letter)),
            'N' => Err("\\N is not supported in a set".into()),
            _ => self.escaped_character(letter).map(Item::Character),
        }
    }

    /// Reads `[:name:]`; a bracket that does not begin one is literal.
    fn named_set(&mut self) -> Result<Item, String> {
        let Some(inside) = self.posix_name() else {
            return Ok(Item::Character('['));
        };
        if self.peek() != Some(':') {
            return Err(format!("collating elements ({inside}) are not supported"));
        }
        let (not, name) = match inside.strip_prefix('^') {
            Some(name) => ("^", name),
            None => ("", inside.as_str()),
        };
        let Some((_, set)) = NAMED.iter().find(|(known, _)| *known == name) else {
            return Err(format!("there is no set [:{name}:]"));
        };
        self.at += inside.chars().count() + 3;
        // If case is ignored, both mean all letters in PCRE.
        let set = match name {
            "lower" | "upper" if self.flags.caseless => ALPHA,
            _ => *set,
        };
        Ok(Item::Set(format!("[{not}{set}]")))
    }

    /// Returns the name in `[:name:]`, `[.name.]` or `[=name=]`, with the `[` already consumed; `None` for anything
    /// else.
    pub fn posix_name(&self) -> Option<String> {
        let (end, rest) = self.rest().split_first()?;
        let is_mark = matches!(end, ':' | '.' | '=');
        let mut characters = rest.iter().enumerate().filter(|_| is_mark);
        while let Some((at, character)) = characters.next() {
            let next = rest.get(at + 1);
            match character {
                '\\' if matches!(next, Some(']' | '\\')) => drop(characters.next()),
                '[' if next == Some(end) => return None,
                ']' => return None,
                _ if character == end && next == Some(&']') => {
                    return Some(rest[..at].iter().collect());
                }
                _ => {}
            }
        }
        None
    }
}
