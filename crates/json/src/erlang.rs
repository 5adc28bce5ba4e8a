//! Erlang's external term format, for hashes in replication ids and in `_approx_count_distinct`, and for the size
//! limit of `_sum`.
//!
//! SUMMARY   [`json`] writes JSON text as the term that CouchDB decodes it to: strings are binaries, objects
//!           one-tuples of a list of pairs, literals atoms. [`size_of_value`] and related functions compute sizes.
//! SOURCE    erlang:term_to_binary/2 with minor version 1: atoms are ATOM_EXT, lists of bytes are STRING_EXT.
//! LIMITS    Duplicate members of an object are all written. Integers with more than [`DIGITS_MAX`] digits are
//!           written as text.

use num_bigint::{BigInt, Sign};

use super::cursor::{Cursor, Token};
use super::string::unescape_bytes;

/// Maximum digits of an integer: the time to read it is quadratic.
pub const DIGITS_MAX: usize = 4096;

/// Precedes every term.
pub const VERSION: u8 = 131;

/// First byte of a term: its type.
const TAG_NEW_FLOAT: u8 = 70;
const TAG_SMALL_INTEGER: u8 = 97;
const TAG_INTEGER: u8 = 98;
const TAG_ATOM: u8 = 100;
const TAG_SMALL_TUPLE: u8 = 104;
const TAG_NIL: u8 = 106;
const TAG_STRING: u8 = 107;
const TAG_LIST: u8 = 108;
const TAG_BINARY: u8 = 109;
const TAG_SMALL_BIG: u8 = 110;
const TAG_LARGE_BIG: u8 = 111;

/// Maximum length of a list of bytes written as a string.
const STRING_MAX: usize = 65_535;

/// Size of a binary's tag and length.
const BINARY_HEAD: u64 = 5;
/// Size of a list's tag and length.
const LIST_HEAD: u64 = 5;
/// Size of the empty list, which also ends every other list.
const NIL_SIZE: u64 = 1;
/// Size of [`VERSION`].
const VERSION_SIZE: u64 = 1;

/// A list being written: its length is known at its end.
#[derive(Debug)]
pub struct List {
    /// The position of its tag.
    start: usize,
    count: usize,
}

impl List {
    /// Begins a list.
    pub fn begin(term: &mut Vec<u8>) -> Self {
        let start = term.len();
        term.extend_from_slice(&[TAG_LIST, 0, 0, 0, 0]);
        Self { start, count: 0 }
    }

    /// Counts an element, and returns the buffer to write it to.
    pub fn element<'t>(&mut self, term: &'t mut Vec<u8>) -> &'t mut Vec<u8> {
        self.count += 1;
        term
    }

    /// Ends the list.
    pub fn end(self, term: &mut Vec<u8>) {
        let head = self.start + 1;
        if self.count == 0 {
            term.truncate(self.start);
        } else {
            term[head..head + size_of::<u32>()].copy_from_slice(&length(self.count));
        }
        term.push(TAG_NIL);
    }
}

/// Writes a tuple's head; its elements follow.
pub fn tuple(elements: u8, term: &mut Vec<u8>) {
    term.extend_from_slice(&[TAG_SMALL_TUPLE, elements]);
}

/// Writes an atom.
pub fn atom(name: &str, term: &mut Vec<u8>) {
    term.push(TAG_ATOM);
    term.extend_from_slice(&short_length(name.len()));
    term.extend_from_slice(name.as_bytes());
}

/// Writes a binary.
pub fn binary(bytes: impl AsRef<[u8]>, term: &mut Vec<u8>) {
    let bytes = bytes.as_ref();
    term.push(TAG_BINARY);
    term.extend_from_slice(&length(bytes.len()));
    term.extend_from_slice(bytes);
}

/// Writes an Erlang string: a list of bytes.
pub fn string(bytes: impl AsRef<[u8]>, term: &mut Vec<u8>) {
    let bytes = bytes.as_ref();
    if bytes.is_empty() {
        term.push(TAG_NIL);
    } else if bytes.len() <= STRING_MAX {
        term.push(TAG_STRING);
        term.extend_from_slice(&short_length(bytes.len()));
        term.extend_from_slice(bytes);
    } else {
        term.push(TAG_LIST);
        term.extend_from_slice(&length(bytes.len()));
        for byte in bytes {
            term.extend_from_slice(&[TAG_SMALL_INTEGER, *byte]);
        }
        term.push(TAG_NIL);
    }
}

/// Writes a 32-bit integer.
pub fn integer(integer: i32, term: &mut Vec<u8>) {
    match u8::try_from(integer) {
        Ok(byte) => term.extend_from_slice(&[TAG_SMALL_INTEGER, byte]),
        Err(_) => {
            term.push(TAG_INTEGER);
            term.extend_from_slice(&integer.to_be_bytes());
        }
    }
}

fn length(length: usize) -> [u8; 4] {
    // Longer data does not fit in a line of the protocol, a body or a URL.
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

fn short_length(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}

/// An array, or the members of an object.
struct OpenList {
    is_object: bool,
    list: List,
    /// Whether all elements so far are integers from 0 to 255.
    only_bytes: bool,
}

impl OpenList {
    fn end(self, term: &mut Vec<u8>) {
        // Each element is a tag and a byte.
        let elements = self.list.start + 1 + size_of::<u32>();
        if self.is_object || !self.only_bytes || self.list.count > STRING_MAX {
            return self.list.end(term);
        }
        let pairs = term[elements..].iter().skip(1).step_by(2);
        let bytes: Vec<u8> = pairs.copied().collect();
        term.truncate(self.list.start);
        string(bytes, term);
    }
}

/// Appends the term of a valid JSON text, without a version.
pub fn json(json: &str, term: &mut Vec<u8>) {
    let mut open: Vec<OpenList> = Vec::new();
    // The text is valid: the walk does not end early.
    let _ = Cursor::of_valid(json.as_bytes()).walk(|token| {
        // Members of objects are counted at their names.
        if let Some(array) = open.last_mut()
            && !array.is_object
            && !matches!(token, Token::End)
        {
            array.list.count += 1;
            array.only_bytes &= matches!(token, Token::Number(_));
        }
        match token {
            Token::Object | Token::Array => {
                let is_object = matches!(token, Token::Object);
                if is_object {
                    tuple(1, term);
                }
                open.push(OpenList {
                    is_object,
                    list: List::begin(term),
                    only_bytes: true,
                });
            }
            Token::End => {
                if let Some(closed) = open.pop() {
                    closed.end(term);
                }
            }
            Token::Name(place) => {
                // A pair of the name and the value that follows.
                if let Some(object) = open.last_mut() {
                    object.list.count += 1;
                }
                tuple(2, term);
                binary(unescape_bytes(&json.as_bytes()[place]), term);
            }
            Token::String(place) => binary(unescape_bytes(&json.as_bytes()[place]), term),
            Token::Number(place) => {
                let start = term.len();
                number(&json[place], term);
                if let Some(array) = open.last_mut() {
                    array.only_bytes &= term[start] == TAG_SMALL_INTEGER;
                }
            }
            Token::Null => atom("null", term),
            Token::False => atom("false", term),
            Token::True => atom("true", term),
        }
    });
}

fn number(text: &str, term: &mut Vec<u8>) {
    if let Ok(short) = text.parse() {
        return integer(short, term);
    }
    if !text.contains(['.', 'e', 'E']) {
        return big_integer(text, term);
    }
    let float: f64 = text.parse().unwrap_or_default();
    term.push(TAG_NEW_FLOAT);
    term.extend_from_slice(&float.to_be_bytes());
}

fn big_integer(digits: &str, term: &mut Vec<u8>) {
    if digits.len() > DIGITS_MAX {
        return binary(digits, term);
    }
    let integer: BigInt = digits.parse().unwrap_or_default();
    let magnitude = integer.magnitude().to_bytes_le();
    match u8::try_from(magnitude.len()) {
        Ok(short) => term.extend_from_slice(&[TAG_SMALL_BIG, short]),
        Err(_) => {
            term.push(TAG_LARGE_BIG);
            term.extend_from_slice(&length(magnitude.len()));
        }
    }
    term.push(u8::from(integer.sign() == Sign::Minus));
    term.extend_from_slice(&magnitude);
}

/// Returns the size of one value, in bytes.
pub fn size_of_value(json: &str) -> u64 {
    VERSION_SIZE + size(json, &mut Vec::new())
}

/// Returns the size of a row in a reducer's list, `[[Key, Id], Value]`, in bytes. `term` is work space.
pub fn size_of_row([key, id, value]: [&str; 3], term: &mut Vec<u8>) -> u64 {
    let of_key = pair(size(key, term), size(id, term));
    pair(of_key, size(value, term))
}

/// Returns the size of an earlier result in a reducer's list, `[[], Value]`, in bytes. `term` is work space.
pub fn size_of_result(json: &str, term: &mut Vec<u8>) -> u64 {
    pair(NIL_SIZE, size(json, term))
}

/// Returns the size of a list in bytes, given the total size of its elements.
pub fn size_of_list(elements: u64) -> u64 {
    let head = if elements == 0 { 0 } else { LIST_HEAD };
    VERSION_SIZE + head + elements + NIL_SIZE
}

fn size(text: &str, term: &mut Vec<u8>) -> u64 {
    // Most are short strings, which need not be written.
    if text.starts_with('"') && !text.contains('\\') {
        return BINARY_HEAD + (text.len() - "\"\"".len()) as u64;
    }
    term.clear();
    json(text, term);
    term.len() as u64
}

fn pair(first: u64, second: u64) -> u64 {
    LIST_HEAD + first + second + NIL_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(text: &str) -> Vec<u8> {
        let mut term = Vec::new();
        json(text, &mut term);
        term
    }

    #[test]
    fn sizes_are_those_of_erlang() {
        for (json, size) in [
            ("0", 3),
            ("255", 3),
            ("256", 6),
            ("-1", 6),
            ("-2147483648", 6),
            ("2147483648", 8),
            ("4294967296", 9),
            ("1.5", 10),
            ("1e2", 10),
            ("true", 8),
            ("null", 8),
            ("false", 9),
            (r#""""#, 6),
            (r#""abc""#, 9),
            (r#""\u00e9""#, 8),
            ("[]", 2),
            ("[1]", 5),
            ("[1, 256]", 14),
            ("[[]]", 8),
            ("{}", 4),
            (r#"{"a":1}"#, 19),
            (r#"[[[1,"id"],1]]"#, 30),
        ] {
            assert_eq!(size_of_value(json), size, "{json}");
        }
    }

    #[test]
    fn terms_are_those_of_erlang() {
        for (json, expected) in [
            ("[1,2]", &[107, 0, 2, 1, 2][..]),
            ("[-0,255]", &[107, 0, 2, 0, 255]),
            (
                "[1,null]",
                &[108, 0, 0, 0, 2, 97, 1, 100, 0, 4, 110, 117, 108, 108, 106],
            ),
            ("-1.5", &[70, 0xbf, 0xf8, 0, 0, 0, 0, 0, 0]),
            ("-2", &[98, 255, 255, 255, 254]),
            ("-4294967296", &[110, 5, 1, 0, 0, 0, 0, 1]),
            (
                r#"{"a":{}}"#,
                &[
                    104, 1, 108, 0, 0, 0, 1, 104, 2, 109, 0, 0, 0, 1, 97, 104, 1, 106, 106,
                ],
            ),
            (
                r#"[{"a":1}]"#,
                &[
                    108, 0, 0, 0, 1, 104, 1, 108, 0, 0, 0, 1, 104, 2, 109, 0, 0, 0, 1, 97, 97, 1,
                    106, 106,
                ],
            ),
        ] {
            assert_eq!(term(json), expected, "{json}");
        }
    }

    #[test]
    fn long_lists_and_large_integers_have_their_own_forms() {
        let bytes = |count: usize| format!("[{}1]", "1,".repeat(count - 1));
        assert_eq!(term(&bytes(STRING_MAX)).len(), 3 + STRING_MAX);
        assert_eq!(term(&bytes(STRING_MAX + 1)).len(), 6 + 2 * (STRING_MAX + 1));
        let integer = format!("1{}", "0".repeat(620));
        assert_eq!(term(&integer)[0], TAG_LARGE_BIG);
        assert_eq!(term(&integer).len(), 6 + 258);
    }

    #[test]
    fn rows_and_results_are_sized_as_the_lists_a_reducer_gets() {
        let mut term = Vec::new();
        for id in ["\"id\"", "\"\\u0069d\""] {
            assert_eq!(size_of_list(size_of_row(["1", id, "1"], &mut term)), 30);
        }
        assert_eq!(size_of_list(0), 2);
        let results = size_of_list(size_of_result("1", &mut term));
        assert_eq!(results, size_of_value("[[[],1]]"));
    }

    #[test]
    fn depth_has_no_bound() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(term(&deep).len(), 1 + 99_999 * 6);
    }
}
