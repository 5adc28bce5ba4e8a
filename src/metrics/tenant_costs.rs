//! The cost of each database since counting began: enough for an invoice.
//!
//! SUMMARY   [`TenantCosts::note`] records a finished call, [`TenantCosts::page`] lists databases,
//!           [`TenantCosts::lines`] returns the saved form, and [`TenantCosts::read`] loads it.
//! PROMISES  Every call counts in one row, and no row ever decreases. A database keeps its row forever.
//! LIMITS    At most [`TENANTS_MAX`] databases have a row; later ones, and those with names longer than
//!           [`NAME_BYTES_MAX`], count in the row `_other`.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::messages::costs::{Costs, TenantCost, TenantCostsPage, TenantCostsQuery};
use crate::otp::system_time;
use policy::schedule::WallTime;

/// Maximum databases with a row.
pub(crate) const TENANTS_MAX: usize = 100_000;

/// Maximum length of the name of a database with a row, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// The row of databases without a row of their own.
const OTHER: &str = "_other";

/// The first line of the saved form.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    /// The version of the format.
    settee_costs: u32,
    since: String,
}

/// The version of the format that this program reads and writes.
const FORM: u32 = 1;

/// The costs of databases.
#[derive(Clone, Debug)]
pub(crate) struct TenantCosts {
    since: WallTime,
    rows: FxHashMap<Option<Arc<str>>, TenantCost>,
}

impl TenantCosts {
    /// Starts counting.
    pub fn new(now: WallTime) -> Self {
        Self {
            since: now,
            rows: FxHashMap::default(),
        }
    }

    /// Records a finished call.
    pub fn note(&mut self, db: Option<&Arc<str>>, call: Costs) {
        let key = db.cloned();
        let has_room = self.rows.len() < TENANTS_MAX
            && key.as_ref().is_none_or(|name| name.len() <= NAME_BYTES_MAX);
        let key = if has_room || self.rows.contains_key(&key) {
            key
        } else {
            Some(OTHER.into())
        };
        self.rows
            .entry(key)
            .or_insert_with_key(|db| TenantCost {
                db: db.as_deref().map(str::to_owned),
                ..TenantCost::default()
            })
            .costs += call;
    }

    /// Returns the databases that a query selects.
    pub fn page(&self, query: &TenantCostsQuery) -> TenantCostsPage {
        let mut tenants: Vec<&TenantCost> = self
            .rows
            .values()
            .filter(|row| query.db.is_none() || row.db == query.db)
            .collect();
        tenants.sort_by_key(|row| (Reverse(row.costs.sort_key(query.sort)), &row.db));
        let total_rows = tenants.len();
        tenants.truncate(query.limit.unwrap_or(usize::MAX));
        TenantCostsPage {
            since: self.since.to_string(),
            until: system_time().to_string(),
            total_rows,
            tenants: tenants.into_iter().cloned().collect(),
        }
    }

    /// Returns the saved form: a head line, and a line for each database.
    pub fn lines(&self) -> String {
        let head = Head {
            settee_costs: FORM,
            since: self.since.to_string(),
        };
        // Strings and numbers always have a JSON form.
        let mut text = serde_json::to_string(&head).unwrap_or_default();
        for row in self.rows.values() {
            text.push('\n');
            text.push_str(&serde_json::to_string(row).unwrap_or_default());
        }
        text
    }

    /// Loads the saved form.
    ///
    /// # Errors
    /// The invalid line, and the mistake.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = |line: usize, error: &dyn std::fmt::Display| format!("line {line}: {error}");
        let mut lines = text.lines();
        let head: Head = serde_json::from_str(lines.next().unwrap_or_default())
            .map_err(|error| wrong(1, &error))?;
        if head.settee_costs != FORM {
            let known = format!(
                "has format {}, this program knows {FORM}",
                head.settee_costs
            );
            return Err(wrong(1, &known));
        }
        let since =
            WallTime::parse(&head.since).ok_or_else(|| wrong(1, &"'since' is not a time"))?;
        let mut costs = Self::new(since);
        for (number, line) in lines.enumerate() {
            let row: TenantCost =
                serde_json::from_str(line).map_err(|error| wrong(number + 2, &error))?;
            costs.rows.insert(row.db.as_deref().map(Arc::from), row);
        }
        Ok(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::costs::SortBy;

    fn cost() -> Costs {
        Costs {
            calls: 1,
            wait_us: 1,
            run_us: 20,
            cpu_us: 300,
            bytes: 4_000,
            ..Costs::default()
        }
    }

    fn all(costs: &TenantCosts) -> Vec<TenantCost> {
        let query = TenantCostsQuery::of(Some("calls"), None, None).unwrap();
        costs.page(&query).tenants
    }

    #[test]
    fn each_call_counts_in_the_row_of_its_database_and_survives_a_restart() {
        let begun = WallTime::from_micros(1_000_000);
        let mut costs = TenantCosts::new(begun);
        for (errors, kills) in [(0, 0), (1, 0), (1, 1)] {
            let call = Costs {
                errors,
                kills,
                ..cost()
            };
            costs.note(Some(&"shop".into()), call);
        }
        costs.note(None, cost());
        let shop = TenantCost {
            db: Some("shop".to_owned()),
            costs: Costs {
                calls: 3,
                errors: 2,
                kills: 1,
                wait_us: 3,
                run_us: 60,
                cpu_us: 900,
                bytes: 12_000,
            },
        };
        let kept = costs.lines();
        let mut later = TenantCosts::read(&kept).unwrap();
        assert_eq!(all(&later), all(&costs));
        assert_eq!(all(&later)[0], shop);
        assert_eq!(all(&later)[1].db, None);
        later.note(Some(&"shop".into()), cost());
        let page = later.page(&TenantCostsQuery {
            sort: SortBy::Run,
            limit: Some(1),
            db: None,
        });
        assert_eq!((page.total_rows, page.tenants.len()), (2, 1));
        assert_eq!(page.since, begun.to_string());
        let added = page.tenants[0].costs.since(&shop.costs);
        assert_eq!((added.calls, added.run_us, added.bytes), (1, 20, 4_000));
    }

    #[test]
    fn databases_without_room_count_together() {
        let mut costs = TenantCosts::new(WallTime::from_micros(0));
        let long: Arc<str> = "x".repeat(NAME_BYTES_MAX + 1).into();
        costs.note(Some(&long), cost());
        for number in 0..TENANTS_MAX + 5 {
            let name: Arc<str> = format!("db{number}").into();
            costs.note(Some(&name), cost());
        }
        let rows = all(&costs);
        assert_eq!(rows.len(), TENANTS_MAX);
        assert_eq!(
            (rows[0].db.as_deref(), rows[0].costs.calls),
            (Some(OTHER), 7)
        );
        assert!(TenantCosts::read(&costs.lines()).is_ok());
    }

    #[test]
    fn an_invalid_line_is_reported_with_its_number() {
        let costs = TenantCosts::new(WallTime::from_micros(0));
        for (text, said) in [
            (String::new(), "line 1: "),
            (
                costs
                    .lines()
                    .replace("\"settee_costs\":1", "\"settee_costs\":2"),
                "line 1: has format 2, this program knows 1",
            ),
            (format!("{}\n{{}}", costs.lines()), "line 2: "),
        ] {
            let error = TenantCosts::read(&text).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
