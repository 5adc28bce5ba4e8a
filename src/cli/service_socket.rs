//! Where the running service is, what it is asked, and how its errors end a subcommand.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::client::{Client, ClientError, ServiceError};
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

/// A connection to the running service that a subcommand asks something over.
pub struct Asking {
    /// What is asked.
    pub client: Client,
    socket: PathBuf,
    patience: Duration,
}

impl Asking {
    /// Connects; no answer may take longer than `patience`.
    ///
    /// # Errors
    /// No service answers, or not this user.
    pub async fn connect(socket: &SocketArgs, patience: Duration) -> Result<Self, CliError> {
        let socket = socket.path();
        let connected = Client::connect(&socket).await;
        let client = connected.map_err(|error| service_error(&socket, &error))?;
        Ok(Self {
            client,
            socket,
            patience,
        })
    }

    /// Returns where the service is.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// What `told` makes of what the service said, if anything; otherwise see [`service_error`].
    pub async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
        told: impl FnOnce(&ServiceError) -> Option<CliError>,
    ) -> Result<T, CliError> {
        match tokio::time::timeout(self.patience, answer).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let known = match &error {
                    ClientError::Service(said) => told(said),
                    _ => None,
                };
                Err(known.unwrap_or_else(|| service_error(&self.socket, &error)))
            }
            Err(_) => Err(CliError::new(
                Exit::Unavailable,
                format!(
                    "the service at {} did not answer within {:?}",
                    self.socket.display(),
                    self.patience
                ),
                "look at its log; it may be stopped or overloaded",
            )),
        }
    }
}

/// Returns the error of a call to the service at `socket`.
pub(crate) fn service_error(socket: &Path, error: &ClientError) -> CliError {
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
            } else if said.name == "forbidden" {
                (
                    Exit::NoPermission,
                    "run as the user of the service or as root, or ask an administrator",
                )
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
