//! The terms that ids are hashes of, in Erlang's external format.
//!
//! SOURCE    erlang:term_to_binary/2 with minor version 1: atoms are ATOM_EXT, lists of bytes are
//!           STRING_EXT. JSON values are encoded by the reducers' encoder.

use json::external_term;

/// First byte of a term: its type.
mod tag {
    pub(super) const SMALL_INTEGER: u8 = 97;
    pub(super) const INTEGER: u8 = 98;
    pub(super) const ATOM: u8 = 100;
    pub(super) const SMALL_TUPLE: u8 = 104;
    pub(super) const NIL: u8 = 106;
    pub(super) const STRING: u8 = 107;
    pub(super) const LIST: u8 = 108;
    pub(super) const BINARY: u8 = 109;
}

/// A list that is being encoded.
pub(super) struct List {
    bytes: Vec<u8>,
    count: u32,
}

/// Where a list's length stands: after the version and the tag.
const LENGTH_AT: usize = 2;

impl List {
    pub(super) fn new() -> Self {
        let bytes = vec![external_term::VERSION, tag::LIST, 0, 0, 0, 0];
        Self { bytes, count: 0 }
    }

    /// Adds an element.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.count += 1;
    }

    /// Ends the list. It must not be empty.
    pub(super) fn finish(mut self) -> Vec<u8> {
        debug_assert!(self.count > 0, "an empty list has another form");
        let length = &mut self.bytes[LENGTH_AT..LENGTH_AT + size_of::<u32>()];
        length.copy_from_slice(&self.count.to_be_bytes());
        self.bytes.push(tag::NIL);
        self.bytes
    }
}

fn length(length: usize) -> [u8; 4] {
    // Nothing here is that long: bodies and URLs are not.
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

/// Writes the tag of a tuple; its elements follow.
pub(super) fn tuple(elements: u8, to: &mut Vec<u8>) {
    to.extend_from_slice(&[tag::SMALL_TUPLE, elements]);
}

pub(super) fn atom(name: &str, to: &mut Vec<u8>) {
    to.push(tag::ATOM);
    to.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
    to.extend_from_slice(name.as_bytes());
}

pub(super) fn binary(text: &str, to: &mut Vec<u8>) {
    to.push(tag::BINARY);
    to.extend_from_slice(&length(text.len()));
    to.extend_from_slice(text.as_bytes());
}

/// Writes an Erlang string: a list of bytes.
pub(super) fn string(text: &str, to: &mut Vec<u8>) {
    if text.is_empty() {
        return to.push(tag::NIL);
    }
    if let Ok(short) = u16::try_from(text.len()) {
        to.push(tag::STRING);
        to.extend_from_slice(&short.to_be_bytes());
        return to.extend_from_slice(text.as_bytes());
    }
    to.push(tag::LIST);
    to.extend_from_slice(&length(text.len()));
    for byte in text.bytes() {
        to.extend_from_slice(&[tag::SMALL_INTEGER, byte]);
    }
    to.push(tag::NIL);
}

/// Writes a number of 16 bits.
pub(super) fn integer(number: u16, to: &mut Vec<u8>) {
    match u8::try_from(number) {
        Ok(small) => to.extend_from_slice(&[tag::SMALL_INTEGER, small]),
        Err(_) => {
            to.push(tag::INTEGER);
            to.extend_from_slice(&i32::from(number).to_be_bytes());
        }
    }
}

/// Writes a list of pairs of strings.
pub(super) fn string_pairs(pairs: &[(String, String)], to: &mut Vec<u8>) {
    if !pairs.is_empty() {
        to.push(tag::LIST);
        to.extend_from_slice(&length(pairs.len()));
        for (name, value) in pairs {
            tuple(2, to);
            string(name, to);
            string(value, to);
        }
    }
    to.push(tag::NIL);
}

/// Writes a JSON value as CouchDB decodes it.
pub(super) fn json(text: &str, to: &mut Vec<u8>) {
    external_term::write(text, to);
}
