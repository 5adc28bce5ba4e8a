//! `settee status`: what the running service is doing.
//!
//! SUMMARY   Asks the service and prints a table, or the value as it came; with `--watch` again and
//!           again until interrupted.

use std::io::{IsTerminal, stdout};
use std::ops::ControlFlow;
use std::time::Duration;

use crate::query_server::status::DaemonStatus;

use super::exit::CliError;
use super::output::Output;
use super::service_socket::{Service, SocketArgs, block_on};
use super::status_table::table;
use super::terminal;

/// How often `--watch` asks.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Options of `settee status`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0   the state was printed; with --watch also when its output is closed
  64  the command line is wrong
  69  no service answers
  74  writing standard output failed
  77  the socket belongs to another user

Example:
  settee status --watch")]
pub struct Args {
    /// Print the value as the service sends it: one JSON object on one line.
    #[arg(long)]
    json: bool,
    /// Ask again every second until interrupted. On a terminal, the top of the table stays on the screen.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> Result<(), CliError> {
    block_on(show(args))
}

async fn show(args: &Args) -> Result<(), CliError> {
    let service = Service::connect(&args.socket, |_, _| None).await?;
    let mut output = Output::standard();
    let is_screen = args.watch && !args.json && stdout().is_terminal();
    let mut ticks = tokio::time::interval(WATCH_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let status = service.answer(service.client.raw_status(None)).await?;
        let text = match args.json {
            true => format!("{}\n", status.get()),
            false => table(&service.read::<DaemonStatus>("the value of 'status'", &status)?),
        };
        let text = match is_screen {
            true => terminal::frame(&text, terminal::rows()),
            false => text,
        };
        let shown = output.write(&text)?;
        if !args.watch || shown == ControlFlow::Break(()) {
            return Ok(());
        }
    }
}
