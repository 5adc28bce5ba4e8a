//! `settee attach`: a drop-in `couchjs` that is a pooled process of a running service.
//!
//! SUMMARY   Hands the pipes that it was started with to the service and waits for the end. Where the
//!           service does not take them it copies standard input to the service and what comes back
//!           to standard output, byte by byte, until one of them ends.
//! PROMISES  Small and quick to start: no runtime, no configuration file, at most two threads. However
//!           it ends, killed included, its connection ends with it and the service takes the process
//!           back.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::NonEmptyStringValueParser;

use crate::client::{
    AttachEnd, AttachedPipes, ClientError, EndLine, TakeFrom, Tunnel, attach_blocking, attach_pipes,
};
use crate::query_server::ddoc::DEFAULT_LANGUAGE;

use super::attach_pipes::Pipes;
use super::exit::{CliError, Exit};
use super::service_socket::{SocketArgs, service_error};

/// How much is copied at a time, in bytes: what a pipe holds.
const COPY_BYTES: usize = 64 * 1024;

/// The stack of the thread that copies the input, in bytes: it calls nothing deep.
const STACK_BYTES: usize = 64 * 1024;

/// Options of `settee attach`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0    standard input ended and everything it asked was answered; or nobody reads the answers
  64   the command line is wrong
  69   no service answers
  74   reading standard input or writing standard output failed
  75   no process was free in time, or none could be started now; only where lines are copied
  77   the socket belongs to another user
  78   the service has no such language, pool or group, or cannot start the query server with its
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
    if let Ok(pipes) = Pipes::open() {
        let attached = attach_pipes(&socket, from, pipes.input.as_fd(), pipes.output.as_fd());
        if let Some(attached) = attached.map_err(|error| refusal(&socket, &error))? {
            return speak(&socket, attached, pipes);
        }
    }
    let mut tunnel = attach_blocking(&socket, from).map_err(|error| refusal(&socket, &error))?;
    // The streams of the standard library buffer what must not wait.
    let unbuffered = |stream: &dyn AsFd| stream.as_fd().try_clone_to_owned().map(File::from);
    let input = unbuffered(&io::stdin()).map_err(|error| CliError::io("standard input", &error))?;
    let mut output =
        unbuffered(&io::stdout()).map_err(|error| CliError::io("standard output", &error))?;
    let asked_all = Arc::new(AtomicBool::new(false));
    let asking = tunnel
        .stream
        .get_ref()
        .try_clone()
        .and_then(|stream| ask(stream, input, Arc::clone(&asked_all)));
    let asking = asking.map_err(|error| CliError::io("the connection", &error))?;
    match deliver(&mut tunnel, &mut output)? {
        End::ReaderGone => Ok(()),
        End::Died(exit) => Err(process_ended(exit.as_deref())),
        End::Done if asked_all.load(Ordering::Acquire) => match asking.join() {
            Ok(Err(error)) => Err(CliError::io("standard input", &error)),
            _ => Ok(()),
        },
        End::Done | End::CutOff => Err(process_ended(None)),
    }
}

/// Lets the service speak for itself, and ends as the conversation does.
fn speak(socket: &Path, attached: AttachedPipes, pipes: Pipes) -> Result<(), CliError> {
    let copying = pipes.start();
    let copying = copying.map_err(|error| CliError::io("a thread", &error))?;
    let end = attached.wait();
    copying.finish()?;
    match end {
        Some(AttachEnd { alive: true, .. }) => Ok(()),
        Some(AttachEnd {
            error: Some(error), ..
        }) => Err(refusal(socket, &ClientError::Service(error))),
        Some(AttachEnd { exit, .. }) => Err(process_ended(exit.as_deref())),
        None => Err(process_ended(None)),
    }
}

/// Returns why there is no process, where a name is wrong in words of its own.
fn refusal(socket: &Path, error: &ClientError) -> CliError {
    match error {
        ClientError::Service(said) if said.name == "not_found" => CliError::new(
            Exit::Config,
            format!("{}: {said}", socket.display()),
            "`settee pool list` shows the pools and their groups",
        ),
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

/// What ends the copying of answers.
enum End {
    /// The service has closed the connection, and the process lives as far as is known.
    Done,
    /// The process ended by itself.
    Died(Option<String>),
    /// It did so without having read everything.
    CutOff,
    /// Nobody reads standard output any more.
    ReaderGone,
}

/// Copies standard input to the process in a thread of its own, and then tells it that this is all.
fn ask(
    mut stream: UnixStream,
    mut input: File,
    asked_all: Arc<AtomicBool>,
) -> io::Result<std::thread::JoinHandle<io::Result<()>>> {
    let copy = move || {
        let mut buffer = vec![0; COPY_BYTES];
        let copied = loop {
            match input.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(length) => {
                    if stream.write_all(&buffer[..length]).is_err() {
                        // The process is gone; the other thread knows and ends the program.
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        asked_all.store(true, Ordering::Release);
        // Fails only when the service has closed the connection already.
        drop(stream.shutdown(Shutdown::Write));
        copied
    };
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(copy)
}

/// Copies what the process prints to standard output.
fn deliver(tunnel: &mut Tunnel, output: &mut File) -> Result<End, CliError> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut end = EndLine::default();
    let mut write = |chunk: &[u8]| match tunnel.tells_end {
        true => end.take(chunk, |bytes| output.write_all(bytes)),
        false => output.write_all(chunk),
    };
    let cut_off = loop {
        let written = match tunnel.stream.read(&mut buffer) {
            Ok(0) => break false,
            Ok(length) => write(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(_) => break true,
        };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(End::ReaderGone),
            Err(error) => return Err(CliError::io("standard output", &error)),
            Ok(()) => {}
        }
    };
    let told = end.finish(|bytes| output.write_all(bytes));
    match told.map_err(|error| CliError::io("standard output", &error))? {
        Some(AttachEnd {
            alive: false, exit, ..
        }) => Ok(End::Died(exit)),
        Some(_) => Ok(End::Done),
        // A service that tells the end and did not has ended itself.
        None if cut_off || tunnel.tells_end => Ok(End::CutOff),
        None => Ok(End::Done),
    }
}
