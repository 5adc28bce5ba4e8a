//! Where the running service is, and how its errors end a subcommand.

use std::io;
use std::path::{Path, PathBuf};

use crate::client::ClientError;
use crate::config::Surroundings;

use super::exit::{CliError, Exit};

/// `--socket PATH`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SocketArgs {
    /// The service's socket; default: $SETTEE__SERVER__SOCKET, or where `serve` puts it.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// The variable that sets `[server] socket`.
const SOCKET_VARIABLE: &str = "SETTEE__SERVER__SOCKET";

impl SocketArgs {
    /// Returns the socket without reading any configuration file: `attach` has no time for one.
    pub fn path(&self) -> PathBuf {
        if let Some(path) = &self.socket {
            return path.clone();
        }
        let surroundings = Surroundings::of_process();
        match surroundings.variable(SOCKET_VARIABLE) {
            Some(path) => path.into(),
            None => surroundings.socket_path(),
        }
    }
}

/// Runs a subcommand that talks to the service.
///
/// # Errors
/// Its own, or the system has no event loop for it.
pub fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| CliError::io("the event loop", &error))?;
    runtime.block_on(work)
}

/// Returns the error of a call to the service at `socket`.
pub fn service_error(socket: &Path, error: &ClientError) -> CliError {
    let place = socket.display();
    match error {
        ClientError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => CliError::new(
            Exit::NoPermission,
            format!("{place}: {error}"),
            "run as the user of the service",
        ),
        ClientError::Service(said) => {
            let (code, hint) = if said.retry {
                (Exit::TryAgain, "try again later")
            } else if said.name == "unknown_query_language" {
                (
                    Exit::Config,
                    "name its command in [query_servers]; `settee check-config` lists them",
                )
            } else if said.phase == "open" {
                (
                    Exit::Config,
                    "correct its command in the [query_servers] of the service",
                )
            } else {
                (Exit::Unavailable, "look at the log of the service")
            };
            CliError::new(code, format!("{place}: {said}"), hint)
        }
        ClientError::Io(error) => unavailable(&format!("no service answers at {place}: {error}")),
        ClientError::Closed | ClientError::Protocol(_) => unavailable(&format!("{place}: {error}")),
    }
}

fn unavailable(message: &str) -> CliError {
    let hint = "start it with `settee serve`, or name its socket with --socket";
    CliError::new(Exit::Unavailable, message, hint)
}
