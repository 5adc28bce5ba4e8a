//! `settee health`: acknowledges problems.
//!
//! SUMMARY   Sends one request to the service, and prints the acknowledged problems.

use clap::Subcommand;
use serde::Deserialize;
use settee_client::Problem;

use super::exit::{CliResult, Exit};
use super::output;
use super::service_socket::{Service, SocketArgs, block_on, explained};
use super::table::printable;
use crate::client::{path, with_query};

/// Options of `settee health`.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_long_help = "\
Exit codes:
  0   done
  64  the command line is wrong, or problems of this kind need no acknowledgement
  66  there is no such problem
  69  no service answers
  74  writing standard output failed
  77  this user is neither an administrator nor an operator

Example:
  settee health ack documents_refused orders-to-backup"
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Subcommand)]
enum Action {
    /// Acknowledge losses: documents that targets refused, records that logs lost. Later losses are a new problem.
    #[command(after_long_help = "\
Example:
  settee health ack records_dropped log")]
    Ack {
        /// The kind of problem: documents_refused or records_dropped.
        kind: String,
        /// The problem's subject, as `settee status --check` prints it; all of the kind unless given.
        subject: Option<String>,
    },
}

/// The acknowledged problems.
#[derive(Deserialize)]
struct Acknowledged {
    acknowledged: Vec<Problem>,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> CliResult {
    let Action::Ack { kind, subject } = &args.action;
    let Acknowledged { acknowledged } = block_on(async {
        let service = Service::at(&args.socket, |_, said| {
            explained(
                said,
                &[("not_found", Exit::NotFound), ("bad_request", Exit::Usage)],
                "`settee status --check` lists the problems",
            )
        });
        service
            .delete(&with_query(
                &path(["_health", kind]),
                subject.iter().map(|subject| ("subject", subject.clone())),
            ))
            .await
    })?;
    let lines = acknowledged.iter().map(|Problem { subject, cause, .. }| {
        printable(&format!("acknowledged: {subject}: {cause}")) + "\n"
    });
    output::print(&lines.collect::<String>())
}
