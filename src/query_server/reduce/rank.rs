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
use json::cursor::Elements;

/// Which values are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// The largest.
    Top,
    /// The smallest.
    Bottom,
}

/// The best values so far by their sort keys.
#[derive(Debug)]
pub(crate) struct Best {
    rank: Rank,
    count: usize,
    values: BTreeMap<Vec<u8>, Box<str>>,
}

impl Best {
    /// Begins without values; `count` are kept.
    pub(super) fn new(rank: Rank, count: u8) -> Self {
        Self {
            rank,
            count: count.into(),
            values: BTreeMap::new(),
        }
    }

    /// Takes a value; `key` is room for its sort key.
    pub(super) fn take(&mut self, value: &str, key: &mut Vec<u8>) {
        key.clear();
        COLLATION.write_key(value, key);
        if let Some(equal) = self.values.get_mut(key.as_slice()) {
            if *value < **equal {
                *equal = value.into();
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
        self.values.insert(key.clone(), value.into());
    }

    /// Takes the values of an earlier result.
    ///
    /// # Errors
    /// It is no list.
    pub(super) fn take_result(
        &mut self,
        result: &str,
        key: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        if !Elements::of(result).is_list() {
            let problem = format!(
                "rank reducers merge lists of values, not '{}'",
                quoted(result)
            );
            return Err(InvalidValue(problem));
        }
        Elements::of(result).for_each(|value| self.take(value, key));
        Ok(())
    }

    pub(super) fn finish(&self) -> Box<RawValue> {
        let mut texts: Vec<&str> = self.values.values().map(|value| &**value).collect();
        if self.rank == Rank::Top {
            texts.reverse();
        }
        raw(format!("[{}]", texts.join(",")))
    }
}
