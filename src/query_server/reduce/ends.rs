//! `_first` and `_last`: the value of the first or last row.
//!
//! SUMMARY   A partial result is the row in the form of prompts, `[[Key, Id], Value]`, or `[]` without rows, so that
//!           partial results can be merged; [`finalize`] returns the value.
//! PROMISES  Rows are compared by key and document id, in whatever order they arrive. Among rows with the same key
//!           and id, the value decides.
//! SOURCE    couch_query_servers: the built-in `_first` and `_last` of 2025.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::mem::swap;
use std::sync::LazyLock;

use serde_json::value::RawValue;

use super::{Fold, InvalidValue, ReduceRow, Reducer, Reduction, quoted, raw};
use json::collation::Collation;
use json::string::unescape;

/// The collation of keys and values.
pub(super) static COLLATION: LazyLock<Collation> = LazyLock::new(Collation::default);

/// The result without rows.
const NOTHING: &str = "[]";

/// `_first`: the row with the smallest key.
pub(super) const FIRST: Reducer = Reducer {
    finalize,
    ..Reducer::new("_first", |_| BestRow::begin(Ordering::Less))
};

/// `_last`: the row with the largest key.
pub(super) const LAST: Reducer = Reducer {
    finalize,
    ..Reducer::new("_last", |_| BestRow::begin(Ordering::Greater))
};

/// Returns the value of a result.
///
/// # Errors
/// The value is not a result of [`BestRow`].
fn finalize(result: &RawValue) -> Reduction<Box<RawValue>> {
    let value = row_of(result.get())?.map_or(NOTHING, |row| row.value);
    Ok(raw(value.to_owned()))
}

/// The row at one end of the rows so far.
#[derive(Debug)]
struct BestRow {
    /// The order of a better row relative to the best so far.
    wanted: Ordering,
    row: Option<Box<OwnedRow>>,
}

#[derive(Debug, Default)]
struct OwnedRow {
    sort_key: Vec<u8>,
    key: String,
    id: String,
    value: String,
}

impl BestRow {
    /// Returns a fold without rows.
    fn begin(wanted: Ordering) -> Box<dyn Fold> {
        Box::new(Self { wanted, row: None })
    }
}

impl Fold for BestRow {
    fn take(&mut self, row: &ReduceRow<'_>, key: &mut Vec<u8>) -> Reduction {
        key.clear();
        COLLATION.write_key(row.key, key);
        let is_better = self.row.as_ref().is_none_or(|best| {
            let order = key
                .as_slice()
                .cmp(&best.sort_key)
                .then_with(|| text_of(row.id).cmp(&text_of(&best.id)))
                .then_with(|| by_value(row.value, &best.value));
            order == self.wanted
        });
        if is_better {
            let best = self.row.get_or_insert_default();
            swap(&mut best.sort_key, key);
            row.key.clone_into(&mut best.key);
            row.id.clone_into(&mut best.id);
            row.value.clone_into(&mut best.value);
        }
        Ok(())
    }

    fn take_result(&mut self, result: &str, key: &mut Vec<u8>) -> Reduction {
        row_of(result)?.map_or(Ok(()), |row| self.take(&row, key))
    }

    fn finish(&self) -> Box<RawValue> {
        raw(self.row.as_ref().map_or_else(
            || NOTHING.to_owned(),
            |row| format!("[[{},{}],{}]", row.key, row.id, row.value),
        ))
    }
}

fn text_of(id: &str) -> Cow<'_, str> {
    match id {
        string if string.starts_with('"') => unescape(string),
        other => Cow::Borrowed(other),
    }
}

/// Compares by collation, then by text, so that any two different values are ordered.
fn by_value(one: &str, two: &str) -> Ordering {
    let key = |value| {
        let mut key = Vec::new();
        COLLATION.write_key(value, &mut key);
        key
    };
    key(one).cmp(&key(two)).then_with(|| one.cmp(two))
}

fn row_of(result: &str) -> Reduction<Option<ReduceRow<'_>>> {
    if let Ok([]) = serde_json::from_str::<[&RawValue; 0]>(result) {
        return Ok(None);
    }
    let row: Result<((&RawValue, &RawValue), &RawValue), _> = serde_json::from_str(result);
    let row = row.map(|((key, id), value)| ReduceRow {
        id: id.get(),
        key: key.get(),
        value: value.get(),
    });
    row.map(Some).map_err(|_| {
        InvalidValue(format!(
            "_first and _last merge rows [[Key, Id], Value], not '{}'",
            quoted(result)
        ))
    })
}
