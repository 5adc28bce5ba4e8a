//! `settee top`: the functions with the highest recent cost, or the cost of databases.
//!
//! SUMMARY   Queries the service and prints a table, or JSON; with `--watch` repeatedly until interrupted.

mod by_db;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use strum::VariantNames;

use super::exit::{CliError, CliResult, Exit};
use super::service_socket::{SocketArgs, block_on};
use super::table::{Cell, Layout, columns, count, microseconds, number, or_dash, text};
use super::watch::WatchArgs;
use crate::client::with_query;
use crate::messages::costs::{
    CostsPage, CostsRow, Period, SortBy, TenantCostsPage, TenantCostsQuery,
};

/// Options of `settee top`.
#[derive(clap::Args)]
#[command(after_long_help = "\
RUN is the total time of calls once they had a process, P50 and P99 its median and 99th percentile;
WAIT is the time before, CPU the processor time.

--by-db covers all calls of each database since counting began; --since subtracts a saved output.

Exit codes:
  0   the table was printed, or with --watch the output was closed
  64  the command line is wrong
  65  the file of --since is not a saved output
  69  no service answers
  74  writing standard output failed
  77  the socket belongs to another user

Example:
  settee top --by errors --period hour

The cost of each database in January, by one command at its start and one at its end:
  settee top --by-db --json >january-begins.json
  settee top --by-db --since january-begins.json")]
pub struct Args {
    /// Sort key.
    #[arg(long = "by", value_name = "WHAT", default_value = "run", value_parser = PossibleValuesParser::new(SortBy::VARIANTS))]
    sort: String,
    /// Period; the figures cover at least its latest half.
    #[arg(long, default_value = "minute", value_parser = PossibleValuesParser::new(Period::VARIANTS))]
    period: String,
    /// Maximum number of functions, or databases.
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// Show the cost of each database; --json ignores --limit.
    #[arg(long, conflicts_with = "period")]
    by_db: bool,
    /// With --by-db: only costs added since this file, a saved output of --by-db --json.
    #[arg(long, value_name = "FILE", requires = "by_db")]
    since: Option<PathBuf>,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> CliResult {
    if args.by_db {
        return block_on(databases(args));
    }
    let query = [
        ("period", args.period.clone()),
        ("sort", args.sort.clone()),
        ("limit", args.limit.to_string()),
    ];
    let (service, path) = (args.socket.service(), with_query("/_functions", query));
    block_on(args.watch.show_table(&service, &path, table))
}

async fn databases(args: &Args) -> CliResult {
    let query = TenantCostsQuery::of(Some(&args.sort), None, None).map_err(|_| {
        CliError::new(
            Exit::Usage,
            format!("--by {} is for functions only", args.sort),
            format!("choose from {}", SortBy::OF_TENANTS.join(", ")),
        )
    })?;
    let before = args.since.as_deref().map(by_db::saved).transpose()?;
    let service = args.socket.service();
    let ask = async || {
        let costs: TenantCostsPage = service.get("/_tenants").await?;
        let costs = match &before {
            Some(before) => by_db::added(costs, before),
            None => costs,
        };
        Ok(if args.watch.json {
            format!("{}\n", serde_json::json!(costs))
        } else {
            by_db::table(
                &by_db::first(costs, query.sort, args.limit),
                args.watch.table.layout(),
            )
        })
    };
    args.watch.show(ask).await
}

fn table(costs: &CostsPage, layout: Layout) -> String {
    let known = count(costs.total_rows, "function");
    let rows = columns(costs.functions.iter().map(row), layout);
    format!("{known} in the last {:.0} s\n\n{rows}", costs.seconds)
}

fn row(row: &CostsRow) -> Vec<Cell> {
    let costs = &row.costs;
    vec![
        text("DATABASE", or_dash(row.db.as_ref())),
        text("DESIGN DOCUMENT", or_dash(row.ddoc.as_ref())),
        text("FUNCTION", &row.function),
        number("CALLS", costs.calls),
        number("ERRORS", costs.errors),
        number("KILLS", costs.kills).rank(4),
        number("RUN", microseconds(costs.run_us)),
        number("P50", microseconds(row.run_p50_us)).rank(2),
        number("P99", microseconds(row.run_p99_us)),
        number("WAIT", microseconds(costs.wait_us)).rank(3),
        number("CPU", microseconds(costs.cpu_us)).rank(1),
        number("BYTES", costs.bytes).rank(5),
    ]
}
