//! `_top_N` and `_bottom_N`: the N largest or smallest different values.
//!
//! SUMMARY   A result is the list of these values, the largest (or the smallest) first; earlier
//!           results are merged.
//! SOURCE    couch_query_servers: builtin ranks of 2025.
//! DIFFERS   Of values that collate equal, 1 and 1.0 for example, the one with the smaller text
//!           stays, however the rows were cut into pieces.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::ends::COLLATION;
use super::{InvalidValue, quoted, raw};

/// Which values are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// The largest.
    Top,
    /// The smallest.
    Bottom,
}

impl Rank {
    /// Returns the `count` first values of this rank.
    pub(super) fn of_values<'a>(
        self,
        count: u8,
        values: impl Iterator<Item = &'a RawValue>,
    ) -> Box<RawValue> {
        let mut best = Best {
            rank: self,
            count: usize::from(count),
            values: BTreeMap::new(),
        };
        let mut key = Vec::new();
        for value in values {
            best.take(value, &mut key);
        }
        best.finish()
    }

    /// Returns the `count` first values in earlier results.
    ///
    /// # Errors
    /// A value that is no list.
    pub(super) fn of_results<'a>(
        self,
        count: u8,
        results: impl Iterator<Item = &'a RawValue>,
    ) -> Result<Box<RawValue>, InvalidValue> {
        let mut lists = Vec::new();
        for result in results {
            let list: Vec<&RawValue> = serde_json::from_str(result.get()).map_err(|_| {
                InvalidValue(format!(
                    "rank reducers merge lists of values, not '{}'",
                    quoted(result)
                ))
            })?;
            lists.push(list);
        }
        Ok(self.of_values(count, lists.into_iter().flatten()))
    }
}

/// The best values so far by their sort keys.
struct Best<'a> {
    rank: Rank,
    count: usize,
    values: BTreeMap<Vec<u8>, &'a RawValue>,
}

impl<'a> Best<'a> {
    fn take(&mut self, value: &'a RawValue, key: &mut Vec<u8>) {
        key.clear();
        COLLATION.write_key(value.get(), key);
        if let Some(equal) = self.values.get_mut(key.as_slice()) {
            if value.get() < equal.get() {
                *equal = value;
            }
            return;
        }
        if self.values.len() == self.count {
            let worst = match self.rank {
                Rank::Top => self.values.first_entry(),
                Rank::Bottom => self.values.last_entry(),
            };
            let is_worse = |worst: &Vec<u8>| match self.rank {
                Rank::Top => *key < *worst,
                Rank::Bottom => *key > *worst,
            };
            if let Some(worst) = worst {
                if is_worse(worst.key()) {
                    return;
                }
                worst.remove();
            }
        }
        self.values.insert(key.clone(), value);
    }

    fn finish(self) -> Box<RawValue> {
        let mut texts: Vec<&str> = self.values.into_values().map(RawValue::get).collect();
        if self.rank == Rank::Top {
            texts.reverse();
        }
        raw(format!("[{}]", texts.join(",")))
    }
}
