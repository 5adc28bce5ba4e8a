//! `settee dashboard`: a link that logs the caller in to the dashboard of the running service.
//!
//! SUMMARY   Requests a URL with a token over the service's socket; prints or opens it.
//! PROMISES  The token is not in any command line, which other users of the machine could read: `--open` opens a file
//!           that only this user can read, and that redirects to the URL.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::exit::{CliError, CliResult, Exit, IoAt};
use super::output;
use super::service_socket::{SocketArgs, block_on};

/// The file that redirects a browser to the URL, next to the service's socket; the next call replaces it.
const FILE: &str = "dashboard.html";

/// The command that opens a file with the user's default program.
const OPENER: &str = "xdg-open";

/// Options of `settee dashboard`.
#[derive(clap::Args)]
#[command(after_long_help = "\
The link works once, within a minute; later the page asks for a name and password.

Exit codes:
  0   done
  64  the command line is wrong
  69  no service answers, or it has no HTTP address, or no browser can be opened
  74  writing failed
  77  the socket belongs to another user

Example:
  settee dashboard --open")]
pub struct Args {
    /// Open the page in a browser instead of printing the link.
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> CliResult {
    let (url, socket) = block_on(async {
        let service = args.socket.service();
        let url = service.post::<String>("/_dashboard_link", &()).await?;
        Ok((url, service.socket))
    })?;
    if args.open {
        open(&url, &socket)
    } else {
        output::print(&format!("{url}\n"))
    }
}

fn open(url: &str, socket: &Path) -> CliResult {
    let path = socket.with_file_name(FILE);
    lead(&path, url).io_at(path.display())?;
    let opened = Command::new(OPENER)
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let why = match opened {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Err(CliError::new(
        Exit::Unavailable,
        format!("{OPENER} cannot open a browser: {why}"),
        "call it without --open, and open the URL that it prints",
    ))
}

/// Writes a page that redirects to the URL.
fn lead(path: &Path, url: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    // The URL is the service's own: an address and hexadecimal digits.
    writeln!(
        file,
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0; url={url}\"><title>Settee</title>\
         <a href=\"{url}\">Settee</a>"
    )
}
