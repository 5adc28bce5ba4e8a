//! `settee drain`: makes the running service refuse new work, or accept it again.
//!
//! SUMMARY   Sends one request to the service; with `--wait`, polls every [`LOOK_EVERY`] until no work remains.

use std::time::Duration;

use settee_client::DrainState;
use tokio::time::{Instant, sleep};

use super::exit::{CliError, CliResult, Exit};
use super::output::{self, json_or};
use super::service_socket::{SocketArgs, block_on};

/// The poll interval of `--wait`.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Options of `settee drain`.
#[derive(clap::Args)]
#[command(after_long_help = "\
A drained daemon refuses calls with `draining`, which clients may retry elsewhere, accepts no
connection to a service, and stops its replications with a checkpoint. Waiting and running calls may
end; borrowers keep their processes. A restarted daemon takes work.

Exit codes:
  0   the daemon is drained, or takes work again; with --wait: nothing is left
  64  the command line is wrong
  69  no service answers
  74  writing standard output failed
  75  --wait: work remained when the time was up
  77  this user is neither an administrator nor an operator

Example:
  settee drain --wait 60 && sudo systemctl stop settee")]
pub struct Args {
    /// Take work again.
    #[arg(long)]
    off: bool,
    /// Wait up to this long until nothing waits, is lent or runs.
    #[arg(long, value_name = "SECONDS", conflicts_with = "off")]
    wait: Option<u32>,
    /// Print the value as the service sends it: one JSON object on one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> CliResult {
    let state = block_on(drain(args))?;
    output::print(&json_or(args.json, &state, || told(&state) + "\n"))?;
    match args.wait {
        Some(seconds) if !state.is_idle() => Err(CliError::new(
            Exit::TryAgain,
            format!("work remains after {seconds} s"),
            "`settee ps` shows who holds processes; wait longer, or stop the service, which ends what is left",
        )),
        _ => Ok(()),
    }
}

/// The path of the drain.
const PATH: &str = "/_drain";

async fn drain(args: &Args) -> CliResult<DrainState> {
    let service = args.socket.service();
    let mut state: DrainState = if args.off {
        service.delete(PATH).await?
    } else {
        service.put(PATH, &()).await?
    };
    let wait = Duration::from_secs(args.wait.unwrap_or(0).into());
    let begun = Instant::now();
    while args.wait.is_some() && state.draining && !state.is_idle() && begun.elapsed() < wait {
        sleep(LOOK_EVERY).await;
        state = service.get(PATH).await?;
    }
    Ok(state)
}

/// Describes the remaining work.
fn told(state: &DrainState) -> String {
    let DrainState {
        waiting,
        lent,
        running,
        ..
    } = state;
    match (&state.since, state.is_idle()) {
        (None, _) => "the daemon takes work".to_owned(),
        (Some(since), true) => format!("drained since {since}: nothing is left"),
        (Some(since), false) => format!(
            "drained since {since}; requests waiting: {waiting}, processes lent: {lent}, replications running: {running}"
        ),
    }
}
