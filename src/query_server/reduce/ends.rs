//! `_first` and `_last`: the value of the first or last row.
//!
//! SUMMARY   An intermediate result is the row as it is written in prompts, `[[Key, Id], Value]`, or
//!           `[]` where there was none, so that pieces can be compared; [`End::finalize`] leaves the
//!           value.
//! PROMISES  Rows are compared by key and document id, whatever order they come in. Of rows with
//!           the same key and id, the value decides.
//! SOURCE    couch_query_servers: builtin first and last of 2025.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::mem::swap;
use std::sync::LazyLock;

use serde_json::value::RawValue;

use super::{InvalidValue, ReduceRow, quoted, raw};
use json::collation::{Collation, string_bytes};

/// The order of values.
pub(super) static COLLATION: LazyLock<Collation> = LazyLock::new(Collation::new);

/// The result without rows.
const NOTHING: &str = "[]";

/// Which row is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The one with the smallest key.
    First,
    /// The one with the largest key.
    Last,
}

impl End {
    /// Returns the row at this end.
    pub(super) fn of_rows<'a>(
        self,
        mut rows: impl Iterator<Item = ReduceRow<'a>>,
    ) -> Box<RawValue> {
        let Some(mut best) = rows.next() else {
            return raw(NOTHING.to_owned());
        };
        let wanted = match self {
            Self::First => Ordering::Less,
            Self::Last => Ordering::Greater,
        };
        let mut best_key = Vec::new();
        COLLATION.write_key(best.key, &mut best_key);
        let mut key = Vec::new();
        for row in rows {
            key.clear();
            COLLATION.write_key(row.key, &mut key);
            let order = key
                .cmp(&best_key)
                .then_with(|| text_of(row.id).cmp(&text_of(best.id)))
                .then_with(|| by_value(row.value, best.value));
            if order == wanted {
                best = row;
                swap(&mut best_key, &mut key);
            }
        }
        let ReduceRow { id, key, value } = best;
        raw(format!("[[{key},{id}],{value}]"))
    }

    /// Returns the row at this end of those in earlier results.
    ///
    /// # Errors
    /// A value that is no such result.
    pub(super) fn of_results<'a>(
        self,
        results: impl Iterator<Item = &'a RawValue>,
    ) -> Result<Box<RawValue>, InvalidValue> {
        let mut rows = Vec::new();
        for result in results {
            rows.extend(row_of(result)?);
        }
        Ok(self.of_rows(rows.into_iter()))
    }

    /// Leaves the value of a result.
    ///
    /// # Errors
    /// As [`Self::of_results`].
    pub(super) fn finalize(result: &RawValue) -> Result<Box<RawValue>, InvalidValue> {
        Ok(row_of(result)?.map_or_else(|| raw(NOTHING.to_owned()), |row| row.value.to_owned()))
    }
}

fn text_of(id: &RawValue) -> Cow<'_, [u8]> {
    match id.get().as_bytes() {
        string @ [b'"', ..] => string_bytes(string),
        other => Cow::Borrowed(other),
    }
}

/// By collation, then by text, so that any two values have an order.
fn by_value(one: &RawValue, two: &RawValue) -> Ordering {
    let key = |value| {
        let mut key = Vec::new();
        COLLATION.write_key(value, &mut key);
        key
    };
    let by_collation = key(one).cmp(&key(two));
    by_collation.then_with(|| one.get().cmp(two.get()))
}

fn row_of(result: &RawValue) -> Result<Option<ReduceRow<'_>>, InvalidValue> {
    if let Ok([]) = serde_json::from_str::<[&RawValue; 0]>(result.get()) {
        return Ok(None);
    }
    let row: Result<((&RawValue, &RawValue), &RawValue), _> = serde_json::from_str(result.get());
    let row = row.map(|((key, id), value)| Some(ReduceRow { id, key, value }));
    row.map_err(|_| {
        InvalidValue(format!(
            "_first and _last merge rows [[Key, Id], Value], not '{}'",
            quoted(result)
        ))
    })
}
