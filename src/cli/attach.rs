//! `settee attach`: a drop-in `couchjs` that is a pooled process of a running service.
//!
//! SUMMARY   Hands the pipes that it was started with to the service and waits for the end.
//! PROMISES  Small and quick to start: no runtime, no configuration file, at most two threads. However
//!           it ends, killed included, its connection ends with it and the service takes the process
//!           back.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;

use crate::client::{AttachEnd, ClientError, TakeFrom, attach_pipes};
use crate::query_server::ddoc::DEFAULT_LANGUAGE;

use super::attach_pipes::Pipes;
use super::exit::{CliError, Exit};
use super::service_socket::{SocketArgs, service_error};

/// Options of `settee attach`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0    standard input ended and everything it asked was answered; or nobody reads the answers
  64   the command line is wrong
  69   no service answers, it has no such pool or group, or no room for the pipes
  74   reading standard input or writing standard output failed
  77   the socket belongs to another user
  78   the service has no such language, or cannot start the query server with its
       command
  255  the process ended by itself, if only after its last answer, or the service did; everything
       that it printed was delivered

A process is lent for the lines that come, and goes back after a second without any (attach_idle in
the configuration of the service), or sooner when others wait. When none is free in time the line is
answered with [\"error\", \"timeout\", REASON].

Example:
  COUCHDB_QUERY_SERVER_JAVASCRIPT=\"settee attach\" couchdb
  COUCHDB_QUERY_SERVER_JAVASCRIPT=\"settee attach --pool views\" couchdb")]
pub struct Args {
    /// The language of the process.
    #[arg(long, default_value = DEFAULT_LANGUAGE, value_parser = NonEmptyStringValueParser::new())]
    language: String,
    /// Take the process from this pool, of whatever language it is.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
          conflicts_with_all = ["language", "group"])]
    pool: Option<String>,
    /// Take it from any pool of this group.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
          conflicts_with = "language")]
    group: Option<String>,
    /// The database whose functions it runs. Processes that are not shared serve one database each,
    /// or else one user.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    db: Option<String>,
    #[command(flatten)]
    socket: SocketArgs,
    /// Accepted and ignored: the path of a script, as CouchDB's start commands have it.
    #[arg(value_name = "SCRIPT")]
    scripts: Vec<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> Result<(), CliError> {
    let socket = args.socket.path();
    let from = match (&args.pool, &args.group) {
        (Some(pool), _) => TakeFrom::Pool(pool),
        (None, Some(group)) => TakeFrom::Group(group),
        (None, None) => TakeFrom::Language(&args.language),
    };
    let from = match &args.db {
        Some(db) => from.for_db(db),
        None => from.into(),
    };
    let pipes = Pipes::open().map_err(|error| CliError::io("a pipe", &error))?;
    let attached = attach_pipes(&socket, from, pipes.input.as_fd(), pipes.output.as_fd());
    let attached = attached.map_err(|error| refusal(&socket, &error))?;
    let copying = pipes.start();
    let copying = copying.map_err(|error| CliError::io("a thread", &error))?;
    let end = attached.wait();
    copying.finish()?;
    match end {
        Some(AttachEnd { alive: true, .. }) => Ok(()),
        Some(AttachEnd {
            error: Some(error), ..
        }) => Err(refusal(&socket, &ClientError::Service(error))),
        Some(AttachEnd { exit, .. }) => Err(process_ended(exit.as_deref())),
        None => Err(process_ended(None)),
    }
}

/// Returns why there is no process, where a name is wrong in words of its own.
fn refusal(socket: &Path, error: &ClientError) -> CliError {
    match error {
        ClientError::Service(said) if said.name == "not_found" => {
            let hint = "`settee pool list` shows the pools and their groups";
            CliError::at(Exit::Unavailable, socket.display(), said, hint)
        }
        error => service_error(socket, error),
    }
}

fn process_ended(exit: Option<&str>) -> CliError {
    let how = exit.map_or_else(String::new, |exit| format!(": it {exit}"));
    CliError::new(
        Exit::ProcessEnded,
        format!("the process ended{how}"),
        "what it printed last, and the log of the service, tell why",
    )
}
