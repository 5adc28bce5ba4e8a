//! `settee ps`: the current work of each process.
//!
//! SUMMARY   Prints the service's answer, as a table or unchanged; with `--watch`, repeatedly until interrupted.

use super::exit::{CliResult, Exit};
use super::service_socket::{Service, SocketArgs, block_on, explained};
use super::status_table;
use super::table::{
    Cell, Layout, columns, count, duration, microseconds, number, or_dash, state, text,
};
use super::watch::WatchArgs;
use crate::client::with_query;
use crate::query_server::status::{ProcPage, ProcRow};

/// Options of `settee ps`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Busy processes come first, the longest-running at the top. STATE is running (a call, or a command of
its holder), teaching (it learns a design document, is reset, or forgets), lent (its holder sends
nothing), starting, ending or idle. FOR is the time in this state; for running and lent, the time
since the loan. USES counts loans, CPU is processor time since the process's start, MEMORY the memory
of its process group.

Exit codes:
  0   the processes were printed, or with --watch the output was closed
  64  the command line is wrong
  66  there is no such pool
  69  no service answers
  74  writing standard output failed
  77  the socket belongs to another user

Example:
  settee ps --pool javascript --watch")]
pub struct Args {
    /// Only processes of this pool.
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
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
    let service = Service::at(&args.socket, |_, said| {
        explained(
            said,
            &[("not_found", Exit::NotFound)],
            "`settee pool list` shows the pools",
        )
    });
    let pool = args.pool.iter().map(|pool| ("pool", pool.clone()));
    let path = with_query("/_procs", pool);
    block_on(args.watch.show_table(&service, &path, table))
}

fn table(page: &ProcPage, layout: Layout) -> String {
    let known = count(page.total_rows, "process");
    let first = if page.procs.len() < page.total_rows {
        format!(", the first {}", page.procs.len())
    } else {
        String::new()
    };
    let rows = columns(page.procs.iter().map(row), layout);
    let space = if rows.is_empty() { "" } else { "\n" };
    format!("{known}{first}\n{space}{rows}")
}

fn row(proc: &ProcRow) -> Vec<Cell> {
    vec![
        text("PROC", &proc.name).whole(),
        number("PID", or_dash(proc.os_pid)).rank(3),
        text("LANGUAGE", &proc.language).rank(7),
        state("STATE", &proc.state),
        number("FOR", duration(proc.state_ms)),
        text(
            "HOLDER",
            or_dash(proc.holder.as_ref().map(status_table::holder)),
        )
        .rank(1),
        text("DATABASE", or_dash(proc.db.as_ref())),
        text("DESIGN DOCUMENT", or_dash(proc.ddoc.as_ref())).rank(2),
        text("FUNCTION", or_dash(proc.function.as_ref())),
        number("USES", or_dash(proc.uses)).rank(6),
        number("CPU", or_dash(proc.cpu_us.map(microseconds))).rank(4),
        number(
            "MEMORY",
            or_dash(proc.memory.map(|bytes| format!("{}MiB", bytes >> 20))),
        )
        .rank(5),
        text("REQUEST", or_dash(proc.request_id.as_ref())).rank(8),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_server::status::Holder;

    #[test]
    fn each_process_has_a_line_and_an_unknown_value_is_a_dash() {
        let running = ProcRow {
            name: "javascript/17".into(),
            os_pid: Some(4711),
            language: "javascript".into(),
            state: "running".into(),
            state_ms: 61_000,
            holder: Some(Holder {
                user: Some("ann".into()),
                pid: Some(12),
                ..Holder::default()
            }),
            request_id: Some("5c2f-1\x1b[2J".into()),
            db: Some("shop".into()),
            ddoc: Some("_design/d".into()),
            function: Some("shows/s".into()),
            uses: Some(3),
            cpu_us: Some(60_200_000),
            memory: Some(70 << 20),
            ..ProcRow::default()
        };
        let starting = ProcRow {
            name: "python/18".into(),
            language: "python".into(),
            state: "starting".into(),
            state_ms: 20,
            ..ProcRow::default()
        };
        let page = ProcPage {
            total_rows: 3,
            procs: vec![running, starting],
        };
        assert_eq!(
            table(&page, Layout::default()),
            "3 processes, the first 2\n\
             \n\
             PROC            PID  LANGUAGE    STATE       FOR  HOLDER       DATABASE  DESIGN DOCUMENT  FUNCTION  USES    CPU  MEMORY  REQUEST\n\
             javascript/17  4711  javascript  running   1m01s  ann, pid 12  shop      _design/d        shows/s      3  1m00s   70MiB  5c2f-1?[2J\n\
             python/18         -  python      starting   20ms  -            -         -                -            -      -       -  -\n"
        );
        assert_eq!(
            table(&ProcPage::default(), Layout::default()),
            "0 processes\n"
        );
    }
}
