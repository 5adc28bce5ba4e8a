//! `settee store`: the file that keeps replications.
//!
//! SUMMARY   `backup` asks the running service for a copy of one moment, and writes it into a file of the
//!           caller's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;

use crate::store::{BackupError, NewFile};

use super::exit::{CliError, Exit};
use super::output;
use super::service_socket::{Asking, SocketArgs, block_on};

/// How long the service may take over an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Options of `settee store`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Exit codes:
  0   done
  64  the command line is wrong
  65  the service's store has a form that this program does not know
  69  no service answers
  74  the file is there already, or cannot be written
  77  the socket belongs to another user, or the file's folder does

Example:
  settee store backup /backup/settee-monday.redb")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
    /// The service's socket; default: $SETTEE__SERVER__SOCKET, or where `serve` puts it.
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Copy the store of the running service, as it is at this moment, into a new file.
    ///
    /// The service goes on meanwhile. The copy has passwords in it, as the store has: only this user can
    /// read it. To start from it, stop the service and put the copy where `[store] path` says.
    Backup {
        /// The file to make. One that is there already is left as it is.
        file: PathBuf,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// See the exit codes above.
pub fn run(args: &Args) -> Result<(), CliError> {
    let Action::Backup { file } = &args.action;
    let socket = SocketArgs {
        socket: args.socket.clone(),
    };
    block_on(backup(&socket, file))
}

async fn backup(socket: &SocketArgs, path: &Path) -> Result<(), CliError> {
    let service = Asking::connect(socket, ANSWER_TIMEOUT).await?;
    let client = &service.client;
    let mut file = NewFile::create(path).map_err(|error| refusal(&error))?;
    service.answer(client.begin_backup(), |_| None).await?;
    let mut documents = 0;
    loop {
        let rows = service.answer(client.backup_rows(), |_| None).await?;
        if rows.is_empty() {
            break;
        }
        documents += rows.iter().filter(|row| row.is_document()).count();
        file.write(rows).map_err(|error| refusal(&error))?;
    }
    file.finish().map_err(|error| refusal(&error))?;
    let documents = match documents {
        1 => "1 document".to_owned(),
        count => format!("{count} documents"),
    };
    output::print(&format!("{documents} in {}\n", path.display()))
}

fn refusal(error: &BackupError) -> CliError {
    let (code, hint) = match error {
        BackupError::Exists(_) => (Exit::Io, "name another file, or move that one away"),
        BackupError::Io(path, error) => return CliError::io(&path.display().to_string(), error),
        BackupError::File(..) => (Exit::Io, "look at the device"),
        BackupError::Form(_) => (Exit::Data, "use the program that the service runs"),
    };
    CliError::new(code, error.to_string(), hint)
}
