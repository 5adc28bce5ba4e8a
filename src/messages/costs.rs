//! The queries for the most expensive functions and for the cost of each database, and their answers.

use std::ops::AddAssign;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::{EnumString, VariantNames};

/// The period of the query.
#[derive(
    Clone, Copy, Debug, Default, EnumString, PartialEq, Eq, VariantNames, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Period {
    #[default]
    Minute,
    Hour,
}

/// The sort order of functions and databases, descending.
#[derive(Clone, Copy, Debug, Default, EnumString, PartialEq, Eq, VariantNames)]
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

impl SortBy {
    /// The names of the orders of databases; the others are for functions only.
    pub const OF_TENANTS: [&str; 7] = ["run", "wait", "cpu", "calls", "errors", "kills", "bytes"];
}

/// Parses a parameter that must be one of some names.
fn one_of<T: FromStr + Default>(
    parameter: &str,
    value: Option<&str>,
    names: &[&str],
) -> Result<T, String> {
    let Some(value) = value else {
        return Ok(T::default());
    };
    let wrong = || format!("'{parameter}' must be one of: {}", names.join(", "));
    if !names.contains(&value) {
        return Err(wrong());
    }
    value.parse().map_err(|_| wrong())
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
        Ok(Self {
            period: one_of("period", period, Period::VARIANTS)?,
            sort: one_of("sort", sort, SortBy::VARIANTS)?,
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
        match by {
            SortBy::P50 => [self.run_p50_us, 0, 0],
            SortBy::P99 => [self.run_p99_us, 0, 0],
            _ => self.costs.sort_key(by),
        }
    }
}

/// The requested databases.
#[derive(Clone, Debug)]
pub struct TenantCostsQuery {
    /// One of [`SortBy::OF_TENANTS`].
    pub(crate) sort: SortBy,
    /// Maximum number of databases; `None`: all.
    pub(crate) limit: Option<usize>,
    /// Only this one.
    pub(crate) db: Option<String>,
}

impl TenantCostsQuery {
    /// Parses the parameters of a query.
    ///
    /// # Errors
    /// The wrong parameter, and its valid values.
    pub(crate) fn of(
        sort: Option<&str>,
        limit: Option<usize>,
        db: Option<String>,
    ) -> Result<Self, String> {
        let sort = one_of("sort", sort, &SortBy::OF_TENANTS)?;
        Ok(Self { sort, limit, db })
    }
}

/// The costs of databases, for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TenantCostsPage {
    /// When counting began.
    pub since: String,
    /// When the page was made.
    pub until: String,
    /// The number of databases.
    pub total_rows: usize,
    pub tenants: Vec<TenantCost>,
}

/// The total cost of one database's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TenantCost {
    /// `None` for calls without a database; `_other` for all databases without a row.
    pub db: Option<String>,
    #[serde(flatten)]
    pub costs: Costs,
}

/// The total cost of calls. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Costs {
    pub calls: u64,
    pub errors: u64,
    /// Calls during which their process ended.
    pub kills: u64,
    /// Time until they had a process that knew their design document.
    pub wait_us: u64,
    /// Time after that.
    pub run_us: u64,
    /// Processor time, as far as the system reports it.
    pub cpu_us: u64,
    /// Size of arguments and values.
    pub bytes: u64,
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        *self = self.with(&other, |own, other| own + other);
    }
}

impl Costs {
    /// Returns the sort key of rows; totals have no quantiles.
    pub fn sort_key(&self, by: SortBy) -> [u64; 3] {
        let number = match by {
            SortBy::Trouble => return [self.kills, self.errors, self.run_us],
            SortBy::Run | SortBy::P50 | SortBy::P99 => self.run_us,
            SortBy::Wait => self.wait_us,
            SortBy::Cpu => self.cpu_us,
            SortBy::Calls => self.calls,
            SortBy::Errors => self.errors,
            SortBy::Kills => self.kills,
            SortBy::Bytes => self.bytes,
        };
        [number, 0, 0]
    }

    /// Returns the difference since `before`.
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    fn with(&self, other: &Self, figure: fn(u64, u64) -> u64) -> Self {
        Self {
            calls: figure(self.calls, other.calls),
            errors: figure(self.errors, other.errors),
            kills: figure(self.kills, other.kills),
            wait_us: figure(self.wait_us, other.wait_us),
            run_us: figure(self.run_us, other.run_us),
            cpu_us: figure(self.cpu_us, other.cpu_us),
            bytes: figure(self.bytes, other.bytes),
        }
    }
}
