//! JSON values in Erlang's external term format: `_approx_count_distinct` hashes it, and `_sum` is
//! limited by its size.
//!
//! SUMMARY   [`write`] turns JSON text into the bytes of a term; [`of_value`], [`of_rows`] and
//!           [`of_results`] tell sizes.
//! SOURCE    erlang:term_to_binary/2 with minor version 1 over the terms that CouchDB decodes JSON
//!           to: strings are binaries, objects one-tuples of a list of pairs, literals atoms.
//! LIMITS    Members of one name in one object are all written. Integers beyond
//!           [`DIGITS_MAX`] digits are written as text.

use num_bigint::{BigInt, Sign};
use serde_json::value::RawValue;

use super::collation::{number_length, string_bytes, string_length};

/// How many digits an integer may have: reading one takes time with the square of them.
pub const DIGITS_MAX: usize = 4096;

/// Stands in front of every term.
pub const VERSION: u8 = 131;

/// First byte of a term: its type.
mod tag {
    pub(super) const NEW_FLOAT: u8 = 70;
    pub(super) const SMALL_INTEGER: u8 = 97;
    pub(super) const INTEGER: u8 = 98;
    pub(super) const ATOM: u8 = 100;
    pub(super) const SMALL_TUPLE: u8 = 104;
    pub(super) const NIL: u8 = 106;
    pub(super) const STRING: u8 = 107;
    pub(super) const LIST: u8 = 108;
    pub(super) const BINARY: u8 = 109;
    pub(super) const SMALL_BIG: u8 = 110;
    pub(super) const LARGE_BIG: u8 = 111;
}

/// The longest list of bytes that is written as a string.
const STRING_MAX: usize = 65_535;

/// Size of a list's tag and length.
const LIST_HEAD: u64 = 5;
/// Size of the empty list, which also ends every other.
const NIL_SIZE: u64 = 1;
/// Size of [`VERSION`].
const VERSION_SIZE: u64 = 1;

/// A list that is being written: an array, or the members of an object.
struct Open {
    is_object: bool,
    /// Where its tag is.
    start: usize,
    count: usize,
    /// Whether all elements so far are integers from 0 to 255.
    only_bytes: bool,
}

/// Appends the term of a valid JSON text, without a version. It does not recurse: a text may be
/// nested as deeply as it likes.
pub fn write(json: &str, term: &mut Vec<u8>) {
    let mut rest = json.as_bytes();
    let mut open: Vec<Open> = Vec::new();
    let mut at_name = false;
    while let Some(&byte) = rest.first() {
        let mut length = 1;
        let before = term.len();
        match byte {
            b'{' | b'[' => {
                element(&mut open, false);
                let is_object = byte == b'{';
                if is_object {
                    term.extend_from_slice(&[tag::SMALL_TUPLE, 1]);
                }
                open.push(Open {
                    is_object,
                    start: term.len(),
                    count: 0,
                    only_bytes: true,
                });
                term.extend_from_slice(&[tag::LIST, 0, 0, 0, 0]);
                at_name = is_object;
            }
            b'}' | b']' => {
                if let Some(list) = open.pop() {
                    close(&list, term);
                }
            }
            b',' => at_name = open.last().is_some_and(|list| list.is_object),
            b':' => at_name = false,
            b'"' => {
                length = string_length(rest);
                if at_name {
                    // A pair of the name and the value that follows.
                    if let Some(object) = open.last_mut() {
                        object.count += 1;
                    }
                    term.extend_from_slice(&[tag::SMALL_TUPLE, 2]);
                } else {
                    element(&mut open, false);
                }
                write_binary(&string_bytes(&rest[..length]), term);
            }
            b'n' | b't' | b'f' => {
                length = if byte == b'f' { 5 } else { 4 };
                element(&mut open, false);
                write_atom(rest.get(..length).unwrap_or_default(), term);
            }
            b'-' | b'0'..=b'9' => {
                length = number_length(rest);
                write_number(&rest[..length], term);
                element(&mut open, term[before] == tag::SMALL_INTEGER);
            }
            // White space.
            _ => {}
        }
        rest = rest.get(length..).unwrap_or_default();
    }
}

/// Counts an element of the innermost array; members of objects are counted by their names.
fn element(open: &mut [Open], is_byte: bool) {
    if let Some(list) = open.last_mut().filter(|list| !list.is_object) {
        list.count += 1;
        list.only_bytes &= is_byte;
    }
}

fn close(list: &Open, term: &mut Vec<u8>) {
    let head = list.start + 1;
    if list.count == 0 {
        term.truncate(list.start);
    } else if list.only_bytes && !list.is_object && list.count <= STRING_MAX {
        // Elements are pairs of a tag and the byte.
        let elements = head + size_of::<u32>();
        let bytes: Vec<u8> = term[elements..]
            .iter()
            .skip(1)
            .step_by(2)
            .copied()
            .collect();
        term.truncate(list.start);
        term.push(tag::STRING);
        term.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
        term.extend_from_slice(&bytes);
        return;
    } else {
        term[head..head + size_of::<u32>()].copy_from_slice(&length(list.count));
    }
    term.push(tag::NIL);
}

fn length(length: usize) -> [u8; 4] {
    // A longer one does not fit a line of the protocol.
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

fn write_binary(bytes: &[u8], term: &mut Vec<u8>) {
    term.push(tag::BINARY);
    term.extend_from_slice(&length(bytes.len()));
    term.extend_from_slice(bytes);
}

fn write_atom(name: &[u8], term: &mut Vec<u8>) {
    term.push(tag::ATOM);
    term.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
    term.extend_from_slice(name);
}

fn write_number(digits: &[u8], term: &mut Vec<u8>) {
    let text = std::str::from_utf8(digits).unwrap_or("0");
    if digits.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        let float: f64 = text.parse().unwrap_or_default();
        term.push(tag::NEW_FLOAT);
        return term.extend_from_slice(&float.to_be_bytes());
    }
    match text.parse::<i32>() {
        Ok(byte @ 0..=255) => {
            term.push(tag::SMALL_INTEGER);
            term.extend_from_slice(&byte.to_be_bytes()[3..]);
        }
        Ok(integer) => {
            term.push(tag::INTEGER);
            term.extend_from_slice(&integer.to_be_bytes());
        }
        Err(_) => write_big(text, term),
    }
}

fn write_big(digits: &str, term: &mut Vec<u8>) {
    if digits.len() > DIGITS_MAX {
        return write_binary(digits.as_bytes(), term);
    }
    let integer: BigInt = digits.parse().unwrap_or_default();
    let magnitude = integer.magnitude().to_bytes_le();
    match u8::try_from(magnitude.len()) {
        Ok(short) => term.extend_from_slice(&[tag::SMALL_BIG, short]),
        Err(_) => {
            term.push(tag::LARGE_BIG);
            term.extend_from_slice(&length(magnitude.len()));
        }
    }
    term.push(u8::from(integer.sign() == Sign::Minus));
    term.extend_from_slice(&magnitude);
}

/// Tells sizes of terms, in bytes.
#[derive(Default)]
struct Sizer {
    term: Vec<u8>,
}

impl Sizer {
    fn size(&mut self, json: &RawValue) -> u64 {
        self.term.clear();
        write(json.get(), &mut self.term);
        self.term.len() as u64
    }
}

/// Returns the size of one value, in bytes.
pub fn of_value(value: &RawValue) -> u64 {
    VERSION_SIZE + Sizer::default().size(value)
}

/// Returns the size of rows as a reducer gets them, `[[[Key, Id], Value], ...]`, in bytes.
pub fn of_rows<'a>(rows: impl Iterator<Item = [&'a RawValue; 3]>) -> u64 {
    let mut sizer = Sizer::default();
    of_list(
        rows.map(|[key, id, value]| pair(pair(sizer.size(key), sizer.size(id)), sizer.size(value))),
    )
}

/// Returns the size of earlier results as a reducer gets them, `[[[], Value], ...]`, in bytes.
pub fn of_results<'a>(values: impl Iterator<Item = &'a RawValue>) -> u64 {
    let mut sizer = Sizer::default();
    of_list(values.map(|value| pair(NIL_SIZE, sizer.size(value))))
}

fn pair(first: u64, second: u64) -> u64 {
    LIST_HEAD + first + second + NIL_SIZE
}

fn of_list(elements: impl Iterator<Item = u64>) -> u64 {
    let elements: u64 = elements.sum();
    let head = if elements == 0 { 0 } else { LIST_HEAD };
    VERSION_SIZE + head + elements + NIL_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn term(json: &str) -> Vec<u8> {
        let mut term = Vec::new();
        write(json, &mut term);
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
            assert_eq!(of_value(&raw(json)), size, "{json}");
        }
    }

    #[test]
    fn terms_are_those_of_erlang() {
        for (json, expected) in [
            ("[1,2]", &[107, 0, 2, 1, 2][..]),
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
        assert_eq!(term(&integer)[0], tag::LARGE_BIG);
        assert_eq!(term(&integer).len(), 6 + 258);
    }

    #[test]
    fn rows_and_results_are_sized_as_the_lists_a_reducer_gets() {
        let (id, one) = (raw("\"id\""), raw("1"));
        assert_eq!(of_rows([[&*one, &*id, &*one]].into_iter()), 30);
        assert_eq!(of_rows([].into_iter()), 2);
        assert_eq!(of_results([&*one].into_iter()), of_value(&raw("[[[],1]]")));
    }

    #[test]
    fn depth_has_no_bound() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(term(&deep).len(), 1 + 99_999 * 6);
    }
}
