//! `settee status`: what the running service is doing.
//!
//! SUMMARY   Asks the service and prints a table, or the value as it came; with `--watch` again and
//!           again until interrupted.

use crate::query_server::status::DaemonStatus;

use super::exit::CliError;
use super::jobs::counted;
use super::service_socket::{Service, SocketArgs, block_on};
use super::status_table::{daemons, table};
use super::watch::WatchArgs;

/// Options of `settee status`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0   the state was printed, or with --check the service answers; with --watch also when its output is closed
  64  the command line is wrong
  69  no service answers
  74  writing standard output failed
  77  the socket belongs to another user

Example:
  settee status --watch
  settee status --check && echo \"the service works\"")]
pub struct Args {
    /// Print nothing: the exit code tells whether the service answers, for health checks.
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    check: bool,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Says how many replications are in which state; nothing without any.
async fn replications(service: &Service) -> String {
    let counted = counted(service).await.unwrap_or_default();
    counted.map_or_else(String::new, |counts| format!("\nreplications: {counts}"))
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> Result<(), CliError> {
    block_on(async {
        let service = Service::connect(&args.socket, |_, _| None).await?;
        if args.check {
            return service
                .answer(service.client.raw_status(None))
                .await
                .map(drop);
        }
        let ask = async || {
            let status = service.answer(service.client.raw_status(None)).await?;
            if args.watch.json {
                return Ok(format!("{}\n", status.get()));
            }
            let status = service.read::<DaemonStatus>("the value of 'status'", &status)?;
            // A service of an earlier version does not know the call.
            let fleet = service.client.daemons().await;
            let fleet = fleet
                .ok()
                .and_then(|fleet| serde_json::from_str(fleet.get()).ok());
            let layout = args.watch.layout();
            let daemons = daemons(&fleet.unwrap_or_default(), layout);
            Ok(table(&status, layout) + &replications(&service).await + &daemons)
        };
        args.watch.show(ask).await
    })
}
