//! `_top_N` and `_bottom_N`: the N largest or smallest distinct values.
//!
//! SUMMARY   A result is the list of these values, best first; earlier results are merged.
//! SOURCE    couch_query_servers: builtin ranks of 2025.
//! DIFFERS   Of values that collate equal, such as 1 and 1.0, the one with the smaller text is kept, however the rows
//!           were split.

use serde_json::value::RawValue;

use super::ends::COLLATION;
use super::{Fold, InvalidValue, ReduceRow, Reducer, Reduction, quoted, raw};
use json::cursor::Elements;

/// `_top_N`.
pub(super) const TOP: Reducer = Reducer::new("_top_N", |count| Best::begin(Rank::Top, count));

/// `_bottom_N`.
pub(super) const BOTTOM: Reducer =
    Reducer::new("_bottom_N", |count| Best::begin(Rank::Bottom, count));

/// The wanted end.
#[derive(Clone, Copy, Debug)]
enum Rank {
    /// The largest.
    Top,
    /// The smallest.
    Bottom,
}

/// The best values so far.
#[derive(Debug)]
struct Best {
    rank: Rank,
    count: usize,
    /// Sort keys and values, best first. They are few: a list takes little memory.
    values: Vec<(Box<[u8]>, Box<str>)>,
}

impl Best {
    /// Returns a fold without values, which will keep at most `count`.
    fn begin(rank: Rank, count: u8) -> Box<dyn Fold> {
        Box::new(Self {
            rank,
            count: count.into(),
            values: Vec::new(),
        })
    }

    /// Adds a value; `key` is work space for its sort key.
    fn take_value(&mut self, value: &str, key: &mut Vec<u8>) {
        key.clear();
        COLLATION.write_key(value, key);
        let order = |(known, _): &(Box<[u8]>, _)| match self.rank {
            Rank::Top => (**key).cmp(known),
            Rank::Bottom => (**known).cmp(key),
        };
        // Most values are worse than all kept ones.
        let is_full = self.values.len() == self.count;
        if is_full && self.values.last().is_some_and(|last| order(last).is_lt()) {
            return;
        }
        match self.values.binary_search_by(order) {
            Ok(equal) if *value < *self.values[equal].1 => self.values[equal].1 = value.into(),
            Err(place) if place < self.count => {
                self.values.truncate(self.count - 1);
                self.values
                    .insert(place, (key.as_slice().into(), value.into()));
            }
            Ok(_) | Err(_) => {}
        }
    }
}

impl Fold for Best {
    fn take(&mut self, row: &ReduceRow<'_>, key: &mut Vec<u8>) -> Reduction {
        self.take_value(row.value, key);
        Ok(())
    }

    fn take_result(&mut self, result: &str, key: &mut Vec<u8>) -> Reduction {
        if !Elements::of(result).is_list() {
            return Err(InvalidValue(format!(
                "rank reducers merge lists of values, not '{}'",
                quoted(result)
            )));
        }
        Elements::of(result).for_each(|value| self.take_value(value, key));
        Ok(())
    }

    fn finish(&self) -> Box<RawValue> {
        let texts: Vec<&str> = self.values.iter().map(|(_, value)| &**value).collect();
        raw(format!("[{}]", texts.join(",")))
    }
}
