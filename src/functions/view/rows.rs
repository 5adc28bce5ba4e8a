//! The rows of a view, kept as their printed text and sorted in CouchDB's order.
//!
//! SUMMARY   [`Rows`] takes rows in any order; [`Rows::sort`] orders them by key, then document id, then order of
//!           emission.
//! PROMISES  Each row occupies its text and about thirty bytes; while sorting, also its sort key.
//! SOURCE    couch_ejson_compare: less_json_ids/2.

use std::cell::RefCell;
use std::ops::Range;

use super::answer::Mapped;
use super::map::MapSink;
use crate::query_server::reduce::ReduceRow;
use json::collation::CachedCollation;
use json::string::unescape_bytes;

/// Capacity of a piece, in bytes; a larger row has a piece of its own. Appending never copies pieces.
const PIECE_BYTES: usize = 1 << 20;

/// The text around a row's parts.
const FRAME: [&[u8]; 4] = [b"{\"id\":", b",\"key\":", b",\"value\":", b"}\n"];

/// Its length.
const FRAME_BYTES: usize = FRAME[0].len() + FRAME[1].len() + FRAME[2].len() + FRAME[3].len();

/// One row: JSON texts.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The document's line in the input.
    pub line: u64,
    /// Which of the view's functions emitted it, from 0.
    pub function: usize,
    /// The document's id.
    pub id: &'a str,
    /// The emitted key.
    pub key: &'a str,
    /// The emitted value.
    pub value: &'a str,
}

impl Row<'_> {
    /// Appends the row in printed form: one JSON object and a line feed.
    pub fn write(&self, text: &mut Vec<u8>) {
        for (frame, part) in FRAME.iter().zip([self.id, self.key, self.value]) {
            text.extend_from_slice(frame);
            text.extend_from_slice(part.as_bytes());
        }
        text.extend_from_slice(FRAME[3]);
    }

    /// Returns the row as reducers take it.
    pub(super) fn texts(&self) -> ReduceRow<'_> {
        let Self { id, key, value, .. } = self;
        ReduceRow { id, key, value }
    }
}

/// The position of a row's text.
#[derive(Clone, Copy, Debug)]
struct StoredRow {
    line: u64,
    piece: u32,
    start: u32,
    id: u32,
    key: u32,
    value: u32,
}

/// Rows of a view.
#[derive(Debug, Default)]
pub struct Rows {
    pieces: Vec<Vec<u8>>,
    places: Vec<StoredRow>,
}

/// The lengths of a row's parts fit in 32 bits.
const PART_FITS: &str = "VW-2: an answer is shorter than 4 GiB";

impl Rows {
    /// Adds a row.
    pub fn push(&mut self, row: &Row<'_>) {
        let needed = FRAME_BYTES + row.id.len() + row.key.len() + row.value.len();
        let is_full = |piece: &Vec<u8>| piece.len() + needed > piece.capacity();
        if self.pieces.last().is_none_or(is_full) {
            self.pieces
                .push(Vec::with_capacity(needed.max(PIECE_BYTES)));
        }
        let number = self.pieces.len() - 1;
        let piece = &mut self.pieces[number];
        let part = |length: usize| u32::try_from(length).expect(PART_FITS);
        self.places.push(StoredRow {
            line: row.line,
            piece: part(number),
            start: part(piece.len()),
            id: part(row.id.len()),
            key: part(row.key.len()),
            value: part(row.value.len()),
        });
        row.write(piece);
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the number of printed bytes.
    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }

    /// Returns a row's printed text.
    pub fn text(&self, index: usize) -> &[u8] {
        let place = &self.places[index];
        let length = FRAME_BYTES + (place.id + place.key + place.value) as usize;
        self.at(place, place.start as usize..place.start as usize + length)
    }

    /// Returns a row's parts.
    pub fn get(&self, index: usize) -> ReduceRow<'_> {
        let place = &self.places[index];
        let part = |range: Range<usize>| {
            std::str::from_utf8(self.at(place, range)).expect("VW-3: a row is made of JSON texts")
        };
        let [id, key, value] = self.ranges(place).map(part);
        ReduceRow { id, key, value }
    }

    fn at(&self, place: &StoredRow, range: Range<usize>) -> &[u8] {
        &self.pieces[place.piece as usize][range]
    }

    /// Returns the positions of id, key and value in the row's piece.
    fn ranges(&self, place: &StoredRow) -> [Range<usize>; 3] {
        let mut end = place.start as usize;
        [(0, place.id), (1, place.key), (2, place.value)].map(|(part, length): (usize, u32)| {
            let start = end + FRAME[part].len();
            end = start + length as usize;
            start..end
        })
    }

    /// Sorts the rows into a view's order: by key and id, then by input order, then by order of emission.
    pub fn sort(&mut self) {
        let mut collation = CachedCollation::default();
        let mut keys = Vec::new();
        let mut keyed = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let [id, json, _] = self.ranges(place);
            let start = keys.len();
            collation.write_key(self.at(place, json), &mut keys);
            keys.extend_from_slice(&unescape_bytes(self.at(place, id)));
            keyed.push((start..keys.len(), *place));
        }
        let emission = |place: &StoredRow| (place.line, place.piece, place.start);
        keyed.sort_unstable_by(|(one_key, one), (other_key, other)| {
            keys[one_key.clone()]
                .cmp(&keys[other_key.clone()])
                .then_with(|| emission(one).cmp(&emission(other)))
        });
        self.places = keyed.into_iter().map(|(_, place)| place).collect();
    }
}

impl MapSink for RefCell<Rows> {
    fn mapped(&self, mapped: &Mapped<'_>) {
        let mut rows = self.borrow_mut();
        mapped.rows().for_each(|row| rows.push(&row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(rows: &[(u64, &str, &str, &str)]) -> Vec<String> {
        let mut all = Rows::default();
        for &(line, id, key, value) in rows {
            all.push(&Row {
                line,
                function: 0,
                id,
                key,
                value,
            });
        }
        all.sort();
        (0..all.len())
            .map(|index| String::from_utf8(all.text(index).to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn rows_are_ordered_by_key_then_id_then_emission() {
        let rows = [
            (2, r#""b""#, "1", "\"second\""),
            (2, r#""b""#, "1.0", "\"third\""),
            (1, r#""c""#, "1", "\"last\""),
            (3, r#""B""#, "1", "\"first\""),
            (4, r#""a""#, "null", "{}"),
        ];
        assert_eq!(
            sorted(&rows),
            [
                "{\"id\":\"a\",\"key\":null,\"value\":{}}\n",
                "{\"id\":\"B\",\"key\":1,\"value\":\"first\"}\n",
                "{\"id\":\"b\",\"key\":1,\"value\":\"second\"}\n",
                "{\"id\":\"b\",\"key\":1.0,\"value\":\"third\"}\n",
                "{\"id\":\"c\",\"key\":1,\"value\":\"last\"}\n",
            ]
        );
    }

    #[test]
    fn rows_with_equal_keys_and_ids_are_in_input_order() {
        let rows = [
            (9, "\"x\"", "1", "9"),
            (3, "\"x\"", "1", "3"),
            (3, "\"x\"", "1", "4"),
        ];
        let values: Vec<String> = sorted(&rows);
        assert!(
            values[0].contains(":3}") && values[1].contains(":4}") && values[2].contains(":9}")
        );
    }

    #[test]
    fn a_row_larger_than_a_piece_is_kept_whole() {
        let mut rows = Rows::default();
        let value = format!("\"{}\"", "x".repeat(2 * PIECE_BYTES));
        for key in ["2", "1"] {
            rows.push(&Row {
                line: 1,
                function: 0,
                id: "\"a\"",
                key,
                value: &value,
            });
        }
        rows.sort();
        assert_eq!(rows.get(0).key, "1");
        assert_eq!(rows.get(1).value, value);
    }
}
