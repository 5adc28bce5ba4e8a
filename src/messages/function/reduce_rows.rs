//! The rows of a `reduce`, in two allocations.
//!
//! SUMMARY   [`ReduceRows`] has the rows as the JSON array of the prompt, with the positions of their parts, so that
//!           it is not parsed again.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::Json;
use crate::messages::arguments::{Arguments, Parsed};
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
    /// Reads the argument `rows`.
    pub(super) fn of(arguments: &Arguments<'_>) -> Parsed<Self> {
        let what = "an array of rows: [[KEY, ID], VALUE], or objects with 'key', 'value' and 'id'";
        let (mut array, mut ends) = ("[".to_owned(), Vec::new());
        arguments.each("rows", what, |json| {
            let Some((key, id, value)) = row(json) else {
                return false;
            };
            let before = if ends.is_empty() { "[[" } else { ",[[" };
            let row_ends = [(before, key), (",", id), ("],", value)].map(|(before, part)| {
                array.push_str(before);
                array.push_str(part.get());
                array.len()
            });
            array.push(']');
            ends.push(row_ends);
            true
        })?;
        array.push(']');
        let array = RawValue::from_string(array).expect("JSON: an array of JSON texts");
        Ok(Self { array, ends })
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

/// Key, id and value of a row in one of its two forms. `[KEY, VALUE]` is not one: a key may itself be an array of
/// two.
fn row(row: &RawValue) -> Option<(&RawValue, &RawValue, &RawValue)> {
    if row.get().starts_with('[') {
        let ((key, id), value) = serde_json::from_str(row.get()).ok()?;
        return Some((key, id, value));
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(row.get()).ok()?;
    let id = members.get("id").copied().unwrap_or(RawValue::NULL);
    Some((members.get("key")?, id, members.get("value")?))
}
