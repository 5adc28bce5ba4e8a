//! The question what each database has cost, and its answer.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantNames};

/// By what databases are sorted, the most first.
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

/// Which databases are asked for.
#[derive(Clone, Debug)]
pub struct TenantCostsQuery {
    pub(crate) sort: TenantSort,
    /// Most databases; none: all.
    pub(crate) limit: Option<usize>,
    /// This one alone.
    pub(crate) db: Option<String>,
}

impl TenantCostsQuery {
    /// Reads what is asked for, by names.
    ///
    /// # Errors
    /// Which name is wrong, and what it may be.
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

/// What databases have cost, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TenantCostsPage {
    /// Since when it is counted.
    pub(crate) since: String,
    /// Until when.
    pub(crate) until: String,
    /// How many databases there are.
    pub(crate) total_rows: usize,
    pub(crate) tenants: Vec<TenantCost>,
}

/// What the calls of one database have cost together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TenantCost {
    /// None: calls without one. `_other`: all that have no row.
    pub(crate) db: Option<String>,
    #[serde(flatten)]
    pub(crate) costs: Costs,
}

/// What calls have cost together. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Costs {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    /// Calls whose processes ended over them.
    pub(crate) kills: u64,
    /// Until they had a process that knew their design document.
    pub(crate) wait_us: u64,
    /// From then on.
    pub(crate) run_us: u64,
    /// On processors, as far as the system tells.
    pub(crate) cpu_us: u64,
    /// Of arguments and values.
    pub(crate) bytes: u64,
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        *self = self.with(&other, |own, other| own + other);
    }
}

impl Costs {
    /// Returns what rows are sorted by.
    pub(crate) fn sort_key(&self, by: TenantSort) -> u64 {
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

    /// Returns what was added since it was `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
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
