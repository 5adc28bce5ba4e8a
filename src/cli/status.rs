//! `settee status`: what the running service is doing.
//!
//! SUMMARY   Asks the service and prints a table, or the value as it came; with `--watch` again and
//!           again until interrupted.

use std::io::{IsTerminal, stdout};
use std::ops::ControlFlow;
use std::time::Duration;

use crate::client::ClientError;
use crate::query_server::status::DaemonStatus;

use super::exit::CliError;
use super::output::Output;
use super::service_socket::{Asking, SocketArgs, block_on, service_error};
use super::status_table::table;
use super::terminal;

/// How often `--watch` asks.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// How long the service may take over an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

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
    let service = Asking::connect(&args.socket, ANSWER_TIMEOUT).await?;
    let mut output = Output::standard();
    let is_screen = args.watch && !args.json && stdout().is_terminal();
    let mut ticks = tokio::time::interval(WATCH_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let asked = service.client.raw_status(None);
        let status = service.answer(asked, |_| None).await?;
        let text = if args.json {
            format!("{}\n", status.get())
        } else {
            let status: DaemonStatus = serde_json::from_str(status.get()).map_err(|error| {
                let error = ClientError::Protocol(format!("the value of 'status': {error}"));
                service_error(service.socket(), &error)
            })?;
            table(&status)
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
