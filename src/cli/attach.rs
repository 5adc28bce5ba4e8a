//! `settee attach`: a drop-in `couchjs` backed by a pooled process of a running service.
//!
//! SUMMARY   Passes its pipes to the service and waits for the end. If the service ends between two lines, the pipes go
//!           to the service's successor, with the required state.
//! PROMISES  Small and quick to start: no runtime, no configuration file, at most three threads. However it ends, even
//!           if killed, its connection ends with it and the service reclaims the process. It waits for a missing
//!           service as long as CouchDB waits for an answer, minus a tenth.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use crate::client::{AttachEnd, AttachedPipes, ClientError, TakeFrom, Taking, attach_pipes};
use crate::query_server::ddoc::DEFAULT_LANGUAGE;

use super::attach_pipes::Pipes;
use super::exit::{CliError, CliResult, Exit, IoAt};
use super::service_socket::{SocketArgs, service_error};

/// Poll interval while waiting for a service.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// CouchDB's default timeout of an answer, in milliseconds.
const COUCHDB_TIMEOUT_MS: u64 = 5000;

/// Options of `settee attach`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0    standard input ended and every prompt was answered; or the reader of the answers is gone
  64   the command line is wrong
  66   there is no such pool or group
  69   no service answers in time, or it has no room for the pipes
  74   reading standard input or writing standard output failed
  77   the socket belongs to another user
  78   the service has no such language, or cannot start the query server with its
       command
  255  the process ended by itself, even after its last answer, or the service did and was not
       replaced in time; everything that was printed was delivered

A process is lent when a line comes, and returned after a second without any (attach_idle in the
configuration of the service), or sooner when others wait. If none is free in time the line is
answered with [\"error\", \"timeout\", REASON].

attach waits for a service that is missing, or ends between two lines, for nine tenths of --timeout.
The next service teaches its process what the previous one was taught, and continues.

Example:
  COUCHDB_QUERY_SERVER_JAVASCRIPT=\"settee attach\" couchdb
  COUCHDB_QUERY_SERVER_JAVASCRIPT=\"settee attach --pool views\" couchdb")]
pub struct Args {
    /// The language of the process.
    #[arg(long, default_value = DEFAULT_LANGUAGE, value_parser = NonEmptyStringValueParser::new())]
    language: String,
    /// Take the process from this pool, of any language.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
          conflicts_with_all = ["language", "group"])]
    pool: Option<String>,
    /// Take it from any pool of this group.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(),
          conflicts_with = "language")]
    group: Option<String>,
    /// The database whose functions it runs. Processes that are not shared serve one database each, or one user if --db
    /// is missing.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    db: Option<String>,
    /// How long CouchDB waits for an answer, its os_process_timeout; default: the one in its last reset, or 5000 before
    /// the first reset.
    #[arg(long, value_name = "MILLISECONDS")]
    timeout: Option<u64>,
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
pub fn run(args: &Args) -> CliResult {
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
    let mut pipes = Pipes::open().io_at("a pipe")?;
    let timeout = |told: Option<u64>| {
        Duration::from_millis(args.timeout.or(told).unwrap_or(COUCHDB_TIMEOUT_MS))
    };
    let mut attached = attach(&socket, from, &pipes, None, timeout(None))
        .map_err(|error| refusal(&socket, &error))?;
    let copying = pipes.start().io_at("a thread")?;
    let end = loop {
        let end = attached.wait();
        let Some(resume) = end.as_ref().and_then(|end| end.resume.as_ref()) else {
            break end;
        };
        let told = end.as_ref().and_then(|end| end.patience_ms);
        match attach(&socket, from, &pipes, Some(resume), timeout(told)) {
            Ok(next) => attached = next,
            Err(error) if is_absent(&error) => break end,
            Err(error) => return Err(refusal(&socket, &error)),
        }
    };
    drop(pipes);
    copying.finish()?;
    match end {
        Some(AttachEnd { alive: true, .. }) => Ok(()),
        Some(AttachEnd {
            error: Some(error), ..
        }) => Err(refusal(&socket, &ClientError::Service(error))),
        end => {
            let exit = end.and_then(|end| end.exit);
            let how = exit.map_or_else(String::new, |exit| format!(": it {exit}"));
            Err(CliError::new(
                Exit::ProcessEnded,
                format!("the process ended{how}"),
                "its last output and the service's log say why",
            ))
        }
    }
}

/// Passes the pipes to a service. Waits for a missing one while the client's timeout leaves time for an answer.
fn attach(
    socket: &Path,
    from: Taking<'_>,
    pipes: &Pipes,
    resume: Option<&Value>,
    timeout: Duration,
) -> Result<AttachedPipes, ClientError> {
    let begun = Instant::now();
    loop {
        let (input, output) = (pipes.input.as_fd(), pipes.output.as_fd());
        match attach_pipes(socket, from, input, output, resume) {
            Err(error) if is_absent(&error) && begun.elapsed() < timeout / 10 * 9 => {
                std::thread::sleep(LOOK_AGAIN);
            }
            attached => return attached,
        }
    }
}

/// Returns whether there is no service, or one that is stopping and has accepted nothing.
fn is_absent(error: &ClientError) -> bool {
    match error {
        ClientError::Closed => true,
        ClientError::Io(error) => matches!(
            error.kind(),
            ErrorKind::NotFound
                | ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionReset
                | ErrorKind::BrokenPipe
        ),
        ClientError::Service(_) | ClientError::Protocol(_) => false,
    }
}

/// Returns why there is no process; wrong names have a separate message.
fn refusal(socket: &Path, error: &ClientError) -> CliError {
    match error {
        ClientError::Service(said) if said.name == "not_found" => CliError::at(
            Exit::NotFound,
            socket.display(),
            said,
            "`settee pool list` shows the pools and their groups",
        ),
        error => service_error(socket, error),
    }
}
