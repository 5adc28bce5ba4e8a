//! `settee top --by-db`: the costs of databases, since counting began or since a saved value.

use std::collections::HashMap;
use std::path::Path;

use crate::cli::exit::{CliError, CliResult, Exit, IoAt};
use crate::cli::table::{Cell, Layout, columns, count, microseconds, number, or_dash, text};
use crate::messages::costs::{SortBy, TenantCost, TenantCostsPage};

/// Reads the output of `settee top --by-db --json`.
///
/// # Errors
/// The file is unreadable, or has other content.
pub(super) fn saved(file: &Path) -> CliResult<TenantCostsPage> {
    let text = std::fs::read_to_string(file).io_at(file.display())?;
    serde_json::from_str(&text).map_err(|error| {
        CliError::at(
            Exit::Data,
            file.display(),
            error,
            "give it the output of settee top --by-db --json",
        )
    })
}

/// Returns the costs added since a value was saved, without databases that cost nothing. If counting has restarted
/// since then, nothing is subtracted.
pub(super) fn added(now: TenantCostsPage, before: &TenantCostsPage) -> TenantCostsPage {
    let begun_anew = now.since != before.since;
    let before_of: HashMap<&Option<String>, &TenantCost> = if begun_anew {
        HashMap::new()
    } else {
        before.tenants.iter().map(|row| (&row.db, row)).collect()
    };
    let since = |mut row: TenantCost| {
        if let Some(before) = before_of.get(&row.db) {
            row.costs = row.costs.since(&before.costs);
        }
        row
    };
    let tenants: Vec<TenantCost> = now
        .tenants
        .into_iter()
        .map(since)
        .filter(|row| row.costs.calls > 0)
        .collect();
    TenantCostsPage {
        since: if begun_anew {
            now.since
        } else {
            before.until.clone()
        },
        until: now.until,
        total_rows: tenants.len(),
        tenants,
    }
}

/// Sorts the rows, and keeps the first.
pub(super) fn first(mut page: TenantCostsPage, sort: SortBy, limit: usize) -> TenantCostsPage {
    page.tenants
        .sort_by_key(|row| std::cmp::Reverse(row.costs.sort_key(sort)));
    page.tenants.truncate(limit);
    page
}

pub(super) fn table(costs: &TenantCostsPage, layout: Layout) -> String {
    let known = count(costs.total_rows, "database");
    let rows = columns(costs.tenants.iter().map(row), layout);
    format!("{known} from {} to {}\n\n{rows}", costs.since, costs.until)
}

fn row(TenantCost { db, costs }: &TenantCost) -> Vec<Cell> {
    vec![
        text("DATABASE", or_dash(db.as_ref())),
        number("CALLS", costs.calls),
        number("ERRORS", costs.errors),
        number("KILLS", costs.kills).rank(3),
        number("RUN", microseconds(costs.run_us)),
        number("WAIT", microseconds(costs.wait_us)).rank(2),
        number("CPU", microseconds(costs.cpu_us)),
        number("BYTES", costs.bytes).rank(1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::costs::Costs;

    fn page(since: &str, until: &str, rows: &[(&str, u64)]) -> TenantCostsPage {
        let rows = rows.iter().map(|(db, calls)| TenantCost {
            db: Some((*db).to_owned()),
            costs: Costs {
                calls: *calls,
                run_us: calls * 10,
                ..Costs::default()
            },
        });
        let tenants: Vec<_> = rows.collect();
        TenantCostsPage {
            since: since.to_owned(),
            until: until.to_owned(),
            total_rows: tenants.len(),
            tenants,
        }
    }

    #[test]
    fn costs_since_a_saved_value_are_the_difference() {
        let before = page("1", "2", &[("a", 5), ("idle", 7)]);
        let now = page("1", "3", &[("a", 9), ("idle", 7), ("new", 2)]);
        let expected = page("2", "3", &[("a", 4), ("new", 2)]);
        assert_eq!(added(now, &before), expected);
    }

    #[test]
    fn nothing_is_subtracted_if_counting_restarted_since_the_saved_value() {
        let before = page("1", "2", &[("a", 5)]);
        let now = page("2.5", "3", &[("a", 1)]);
        assert_eq!(added(now.clone(), &before), now);
    }
}
