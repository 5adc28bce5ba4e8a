//! The rows of a `reduce`, in two allocations.
//!
//! SUMMARY   [`ReduceRows`] has the rows as the JSON array of the prompt, with the positions of their parts, so that
//!           it is not parsed again; [`ReduceRowsBuilder`] makes it.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::Json;
use crate::query_server::reduce::ReduceRow;

/// Rows to reduce. Serialized as `[[[KEY, ID], VALUE], ..]`.
#[derive(Clone, Debug)]
pub struct ReduceRows {
    /// The array as it is sent, without white space between the parts of rows.
    array: Json,
    /// Where each row's key, id and value end in `array`.
    ends: Vec<[usize; 3]>,
}

impl ReduceRows {
    /// Returns a builder without rows.
    pub(super) fn builder() -> ReduceRowsBuilder {
        ReduceRowsBuilder {
            array: "[".to_owned(),
            ends: Vec::new(),
        }
    }

    /// Returns the rows in order.
    pub fn iter(&self) -> impl Iterator<Item = ReduceRow<'_>> + Clone {
        let array = self.array.get();
        let mut start = "[[[".len();
        self.ends.iter().map(move |[key, id, value]| {
            let row = ReduceRow {
                key: &array[start..*key],
                id: &array[key + ",".len()..*id],
                value: &array[id + "],".len()..*value],
            };
            start = value + "],[[".len();
            row
        })
    }
}

impl Serialize for ReduceRows {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.array.serialize(to)
    }
}

/// Collects rows.
pub(super) struct ReduceRowsBuilder {
    array: String,
    ends: Vec<[usize; 3]>,
}

impl ReduceRowsBuilder {
    /// Adds a row.
    pub fn push(&mut self, key: &RawValue, id: &RawValue, value: &RawValue) {
        let before = if self.ends.is_empty() { "[[" } else { ",[[" };
        let ends = [(before, key), (",", id), ("],", value)].map(|(before, part)| {
            self.array.push_str(before);
            self.array.push_str(part.get());
            self.array.len()
        });
        self.array.push(']');
        self.ends.push(ends);
    }

    /// Returns the added rows.
    pub fn finish(mut self) -> ReduceRows {
        self.array.push(']');
        ReduceRows {
            array: RawValue::from_string(self.array).expect("JSON: an array of JSON texts"),
            ends: self.ends,
        }
    }
}
