//! `_count`: the number of rows.
//!
//! SOURCE    couch_query_servers: builtin_count.

use serde_json::value::RawValue;

use super::sum::SumTotal;
use super::{Fold, ReduceRow, Reducer, Reduction, raw};

/// `_count`.
pub(super) const COUNT: Reducer = Reducer::new("_count", |_| Box::<CountTotal>::default());

/// The number of rows so far, or the sum of earlier results.
#[derive(Debug, Default)]
struct CountTotal {
    rows: u64,
    results: Option<SumTotal>,
}

impl Fold for CountTotal {
    fn take(&mut self, _: &ReduceRow<'_>, _: &mut Vec<u8>) -> Reduction {
        self.rows += 1;
        Ok(())
    }

    fn take_result(&mut self, result: &str, _: &mut Vec<u8>) -> Reduction {
        self.results
            .get_or_insert_with(SumTotal::new)
            .take_value(result);
        Ok(())
    }

    fn finish(&self) -> Box<RawValue> {
        match &self.results {
            Some(results) => results.finish(),
            None => raw(self.rows.to_string()),
        }
    }
}
