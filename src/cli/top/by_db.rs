//! `settee top --by-db`: what databases have cost, since counting began or since a value that was saved.

use std::collections::HashMap;
use std::path::Path;

use super::{CliError, Exit};
use crate::cli::table::{Cell, Layout, columns, count, microseconds, number, text};
use crate::messages::tenant_costs::{TenantCost, TenantCostsPage, TenantSort};

/// Reads what `settee top --by-db --json` has printed.
///
/// # Errors
/// The file cannot be read, or has something else.
pub(super) fn saved(file: &Path) -> Result<TenantCostsPage, CliError> {
    let text =
        std::fs::read_to_string(file).map_err(|error| CliError::io(file.display(), &error))?;
    serde_json::from_str(&text).map_err(|error| {
        let hint = "it takes what settee top --by-db --json has printed";
        CliError::at(Exit::Data, file.display(), error, hint)
    })
}

/// Returns what was added since a value was saved, without databases that cost nothing. Where counting began anew
/// since then, that is all that is there.
pub(super) fn added(now: TenantCostsPage, before: &TenantCostsPage) -> TenantCostsPage {
    let begun_anew = now.since != before.since;
    let before_of: HashMap<&Option<String>, &TenantCost> = if begun_anew {
        HashMap::new()
    } else {
        before.tenants.iter().map(|row| (&row.db, row)).collect()
    };
    let since = |row: TenantCost| match before_of.get(&row.db) {
        Some(before) => row.since(before),
        None => row,
    };
    let rows = now.tenants.into_iter().map(since);
    let tenants: Vec<TenantCost> = rows.filter(|row| row.calls > 0).collect();
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

/// Keeps the first rows in an order.
pub(super) fn first(mut page: TenantCostsPage, sort: TenantSort, limit: usize) -> TenantCostsPage {
    page.tenants
        .sort_by_key(|row| std::cmp::Reverse(row.sort_key(sort)));
    page.tenants.truncate(limit);
    page
}

pub(super) fn table(costs: &TenantCostsPage, layout: Layout) -> String {
    let known = count(costs.total_rows, "database", "databases");
    let rows = columns(costs.tenants.iter().map(row), layout);
    format!("{known} from {} to {}\n\n{rows}", costs.since, costs.until)
}

fn row(row: &TenantCost) -> Vec<Cell> {
    vec![
        text("DATABASE", row.db.as_ref()),
        number("CALLS", Some(row.calls)),
        number("ERRORS", Some(row.errors)),
        number("KILLS", Some(row.kills)).rank(3),
        number("RUN", Some(microseconds(row.run_us))),
        number("WAIT", Some(microseconds(row.wait_us))).rank(2),
        number("CPU", Some(microseconds(row.cpu_us))),
        number("BYTES", Some(row.bytes)).rank(1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(since: &str, until: &str, rows: &[(&str, u64)]) -> TenantCostsPage {
        let rows = rows.iter().map(|(db, calls)| TenantCost {
            db: Some((*db).to_owned()),
            calls: *calls,
            run_us: calls * 10,
            ..TenantCost::default()
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
    fn what_was_added_since_a_saved_value_is_the_difference() {
        let before = page("1", "2", &[("a", 5), ("idle", 7)]);
        let now = page("1", "3", &[("a", 9), ("idle", 7), ("new", 2)]);
        let expected = page("2", "3", &[("a", 4), ("new", 2)]);
        assert_eq!(added(now, &before), expected);
    }

    #[test]
    fn where_counting_began_anew_all_is_told_with_its_beginning() {
        let before = page("1", "2", &[("a", 5)]);
        let now = page("2.5", "3", &[("a", 1)]);
        assert_eq!(added(now.clone(), &before), now);
    }
}
