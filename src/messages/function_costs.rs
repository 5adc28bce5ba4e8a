//! The query for the most expensive functions, and its answer.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantNames};

use super::tenant_costs::Costs;

/// The period of the query.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Display,
    EnumString,
    PartialEq,
    Eq,
    Hash,
    VariantNames,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Period {
    #[default]
    Minute,
    Hour,
}

/// The sort order of functions, descending.
#[derive(Clone, Copy, Debug, Default, Display, EnumString, PartialEq, Eq, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum SortBy {
    #[default]
    Run,
    P50,
    P99,
    Wait,
    Cpu,
    Calls,
    Errors,
    Kills,
    Bytes,
    /// Kills, then errors, then run time.
    Trouble,
}

/// Selects functions.
#[derive(Clone, Copy, Debug)]
pub struct CostsQuery {
    pub(crate) period: Period,
    pub(crate) sort: SortBy,
    /// Maximum number of functions.
    pub(crate) limit: usize,
}

impl CostsQuery {
    /// Default of `limit`.
    pub(crate) const LIMIT: usize = 100;

    /// Parses a query from names.
    ///
    /// # Errors
    /// The invalid name, and the valid ones.
    pub(crate) fn of(
        period: Option<&str>,
        sort: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Self, String> {
        let wrong =
            |name: &str, names: &[&str]| format!("'{name}' must be one of: {}", names.join(", "));
        let period = period.map(str::parse).transpose();
        let sort = sort.map(str::parse).transpose();
        Ok(Self {
            period: period
                .map_err(|_| wrong("period", Period::VARIANTS))?
                .unwrap_or_default(),
            sort: sort
                .map_err(|_| wrong("sort", SortBy::VARIANTS))?
                .unwrap_or_default(),
            limit: limit.unwrap_or(Self::LIMIT),
        })
    }
}

/// The most expensive functions in a period, for display.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CostsPage {
    pub period: Period,
    /// The time covered.
    pub seconds: f64,
    /// The number of functions with records, including those beyond the limit.
    pub total_rows: usize,
    pub functions: Vec<CostsRow>,
}

/// A function with the total cost of its calls, the quantiles of their run times, and the time that it may have used
/// before its record began. Times are in microseconds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CostsRow {
    pub db: Option<String>,
    pub ddoc: Option<String>,
    pub function: String,
    #[serde(flatten)]
    pub costs: Costs,
    pub run_p50_us: u64,
    pub run_p99_us: u64,
    pub uncertain_us: u64,
}

impl CostsRow {
    /// Returns a row's sort key.
    pub fn sort_key(&self, by: SortBy) -> [u64; 3] {
        let costs = &self.costs;
        let number = match by {
            SortBy::Trouble => return [costs.kills, costs.errors, costs.run_us],
            SortBy::Run => costs.run_us,
            SortBy::P50 => self.run_p50_us,
            SortBy::P99 => self.run_p99_us,
            SortBy::Wait => costs.wait_us,
            SortBy::Cpu => costs.cpu_us,
            SortBy::Calls => costs.calls,
            SortBy::Errors => costs.errors,
            SortBy::Kills => costs.kills,
            SortBy::Bytes => costs.bytes,
        };
        [number, 0, 0]
    }
}
