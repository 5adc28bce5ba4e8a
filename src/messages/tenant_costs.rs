//! The query for the cost of each database, and its answer.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantNames};

/// The sort key of databases, largest first.
#[derive(Clone, Copy, Debug, Default, Display, EnumString, PartialEq, Eq, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum TenantSort {
    #[default]
    Run,
    Wait,
    Cpu,
    Calls,
    Errors,
    Kills,
    Bytes,
}

/// The requested databases.
#[derive(Clone, Debug)]
pub struct TenantCostsQuery {
    pub(crate) sort: TenantSort,
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
        let wrong = |_| format!("'sort' must be one of: {}", TenantSort::VARIANTS.join(", "));
        let sort = sort.map(str::parse).transpose().map_err(wrong)?;
        Ok(Self {
            sort: sort.unwrap_or_default(),
            limit,
            db,
        })
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
    /// Returns the sort key of rows.
    pub fn sort_key(&self, by: TenantSort) -> u64 {
        match by {
            TenantSort::Run => self.run_us,
            TenantSort::Wait => self.wait_us,
            TenantSort::Cpu => self.cpu_us,
            TenantSort::Calls => self.calls,
            TenantSort::Errors => self.errors,
            TenantSort::Kills => self.kills,
            TenantSort::Bytes => self.bytes,
        }
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
