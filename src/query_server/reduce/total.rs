//! What values come to so far, for any built-in reducer.
//!
//! SUMMARY   [`Total::take`] adds a row, [`Total::take_result`] an earlier result; [`Total::finish`] returns the
//!           intermediate result.
//! PROMISES  A total is as large as its result, however many rows it took.

use serde_json::value::RawValue;

use super::distinct::Sketch;
use super::ends::BestRow;
use super::rank::Best;
use super::stats::StatsTotal;
use super::sum::SumTotal;
use super::{Builtin, InvalidValue, ReduceRow, raw};

/// A reduction that goes on.
#[derive(Debug)]
pub(crate) enum Total {
    Count(u64),
    Sum(SumTotal),
    Stats(StatsTotal),
    Distinct(Sketch),
    Ranked(Best),
    Row(BestRow),
}

impl Total {
    /// Begins without rows.
    pub(crate) fn of(builtin: Builtin) -> Self {
        match builtin {
            Builtin::Count => Self::Count(0),
            Builtin::Sum => Self::Sum(SumTotal::new()),
            Builtin::Stats => Self::Stats(StatsTotal::default()),
            Builtin::ApproxCountDistinct => Self::Distinct(Sketch::new()),
            Builtin::Ranked(rank, count) => Self::Ranked(Best::new(rank, count)),
            Builtin::Row(end) => Self::Row(BestRow::new(end)),
        }
    }

    /// Takes a row. `scratch` is room to work in, which is the caller's so that totals are small.
    ///
    /// # Errors
    /// [`InvalidValue`], of `_stats` only: `_sum` reports bad values in its result, as in CouchDB.
    #[inline]
    pub(crate) fn take(
        &mut self,
        row: &ReduceRow<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        match self {
            Self::Count(count) => *count += 1,
            Self::Sum(sum) => sum.take(row.value),
            Self::Stats(stats) => return stats.take(row.value),
            Self::Distinct(sketch) => sketch.take_key(row.key, scratch),
            Self::Ranked(best) => best.take(row.value, scratch),
            Self::Row(best) => best.take(row, scratch),
        }
        Ok(())
    }

    /// Takes an earlier result, as [`Self::take`] takes a row.
    ///
    /// # Errors
    /// [`InvalidValue`]: as [`Self::take`], and for anything but a result of this reducer.
    pub(super) fn take_result(
        &mut self,
        result: &str,
        scratch: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        match self {
            Self::Count(_) => {
                *self = Self::Sum(SumTotal::new());
                return self.take_result(result, scratch);
            }
            Self::Sum(sum) => sum.take(result),
            Self::Stats(stats) => return stats.take(result),
            Self::Distinct(sketch) => return sketch.take_result(result),
            Self::Ranked(best) => return best.take_result(result, scratch),
            Self::Row(best) => return best.take_result(result, scratch),
        }
        Ok(())
    }

    pub(crate) fn finish(&self) -> Box<RawValue> {
        match self {
            Self::Count(count) => raw(count.to_string()),
            Self::Sum(sum) => sum.finish(),
            Self::Stats(stats) => stats.finish(),
            Self::Distinct(sketch) => sketch.finish(),
            Self::Ranked(best) => best.finish(),
            Self::Row(best) => best.finish(),
        }
    }
}
