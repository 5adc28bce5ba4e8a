//! The address of the running service, requests to it, and the errors that end a subcommand.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::client::{ClientError, Operator, ServiceError};
use crate::config::Surroundings;

use super::exit::{CliError, CliResult, EVENT_LOOP, Exit};
use child::watches;

/// `--socket PATH`.
#[derive(clap::Args)]
pub struct SocketArgs {
    /// The service's socket; default: $SETTEE__SERVER__SOCKET, where `serve` puts it, or that of the package.
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
}

/// How long the service may take to answer; stopping a job waits for a checkpoint.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The socket of a packaged service.
const SYSTEM_SOCKET: &str = "/run/settee/settee.sock";

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
            None => first_there(surroundings.socket_path(), Path::new(SYSTEM_SOCKET)),
        }
    }

    /// Makes a client of the service at the socket, for a subcommand without errors of its own.
    pub fn service(&self) -> Service {
        Service::at(self, |_, _| None)
    }
}

/// Returns this user's own socket, or the machine's if only that exists. The latter may be in a directory that this
/// user cannot enter.
fn first_there(own: PathBuf, of_machine: &Path) -> PathBuf {
    if !own.exists() && of_machine.try_exists().unwrap_or(true) {
        return of_machine.to_owned();
    }
    own
}

/// Runs a subcommand that uses the service.
///
/// # Errors
/// Those of `work`; or the system has no event loop for it.
pub fn block_on<T>(work: impl Future<Output = CliResult<T>>) -> CliResult<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::no_room(EVENT_LOOP, &watches::named(error)))?
        .block_on(work)
}

/// Returns a subcommand's own version of an error from the service at this socket; `None`: [`service_error`]'s
/// applies.
type Explain = fn(&Path, &ServiceError) -> Option<CliError>;

/// An [`Explain`] by the name of the error: its code, the service's reason, and this hint.
pub(super) fn explained(
    said: &ServiceError,
    codes: &[(&str, Exit)],
    hint: &str,
) -> Option<CliError> {
    let (_, code) = codes.iter().find(|(name, _)| said.name == *name)?;
    Some(CliError::new(*code, said.reason_text(), hint))
}

/// The running service, for management.
pub struct Service {
    /// For requests that have no method here: see [`Service::answer`].
    pub(super) operator: Operator,
    /// Its address.
    pub socket: PathBuf,
    explain: Explain,
}

impl Service {
    /// Makes a client of the service at a socket.
    pub fn at(socket: &SocketArgs, explain: Explain) -> Self {
        let socket = socket.path();
        Self {
            operator: Operator::at(&socket),
            socket,
            explain,
        }
    }

    /// Gets the value at a path, within [`ANSWER_TIMEOUT`].
    ///
    /// # Errors
    /// No service answers, or it refuses this user; the subcommand's own version of the service's error, if any;
    /// otherwise see [`service_error`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> CliResult<T> {
        self.answer(self.operator.get(path)).await
    }

    /// Posts a value to a path.
    ///
    /// # Errors
    /// See [`Service::get`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> CliResult<T> {
        self.answer(self.operator.post(path, body)).await
    }

    /// Puts a value at a path.
    ///
    /// # Errors
    /// See [`Service::get`].
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> CliResult<T> {
        self.answer(self.operator.put(path, body)).await
    }

    /// Deletes the value at a path.
    ///
    /// # Errors
    /// See [`Service::get`].
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> CliResult<T> {
        self.answer(self.operator.delete(path)).await
    }

    /// Waits for an answer to [`Service::operator`], at most [`ANSWER_TIMEOUT`].
    ///
    /// # Errors
    /// See [`Service::get`].
    pub(super) async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> CliResult<T> {
        self.answer_within(ANSWER_TIMEOUT, answer).await
    }

    /// Like [`Service::answer`], with another timeout.
    ///
    /// # Errors
    /// See [`Service::get`].
    pub(super) async fn answer_within<T>(
        &self,
        timeout: Duration,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> CliResult<T> {
        let Ok(answered) = tokio::time::timeout(timeout, answer).await else {
            return Err(CliError::new(
                Exit::Unavailable,
                format!(
                    "the service at {} did not answer within {timeout:?}",
                    self.socket.display(),
                ),
                "look at its log; it may be stopped or overloaded",
            ));
        };
        answered.map_err(|error| {
            let explained = match &error {
                ClientError::Service(said) => (self.explain)(&self.socket, said),
                _ => None,
            };
            explained.unwrap_or_else(|| service_error(&self.socket, &error))
        })
    }

    /// Parses an answer that is JSON text.
    ///
    /// # Errors
    /// It is not of the requested type; the error calls it `what`.
    pub fn read<T: DeserializeOwned>(&self, what: &str, text: &RawValue) -> CliResult<T> {
        serde_json::from_str(text.get()).map_err(|error| {
            service_error(
                &self.socket,
                &ClientError::Protocol(format!("{what}: {error}")),
            )
        })
    }
}

/// Returns the error of a call to the service at `socket`.
pub(crate) fn service_error(socket: &Path, error: &ClientError) -> CliError {
    let place = socket.display();
    match error {
        ClientError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => CliError::at(
            Exit::NoPermission,
            place,
            error,
            "use sudo, or join its group (`sudo usermod -aG settee $USER` with the package) and log in again",
        ),
        ClientError::Service(said) => {
            let (code, hint) = match &*said.name {
                _ if said.retry => (Exit::TryAgain, "try again later"),
                "forbidden" => (
                    Exit::NoPermission,
                    "run as the user of the service or as root, or ask an administrator",
                ),
                "unknown_query_language" => (
                    Exit::Config,
                    "name its command in [query_servers]; `settee check-config` lists them",
                ),
                _ if said.phase == "open" => (
                    Exit::Config,
                    "correct its command in the [query_servers] of the service",
                ),
                _ => (Exit::Unavailable, "look at the log of the service"),
            };
            CliError::at(code, place, said, hint)
        }
        ClientError::Io(error) => unavailable(&format!("no service answers at {place}: {error}")),
        ClientError::Closed | ClientError::Protocol(_) => unavailable(&format!("{place}: {error}")),
    }
}

fn unavailable(message: &str) -> CliError {
    CliError::new(
        Exit::Unavailable,
        message,
        "start it with `settee serve`, or name its socket with --socket",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_users_own_socket_comes_before_the_machines() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let found = || first_there(at("own"), &at("machine"));
        assert_eq!(found(), at("own"), "the default if neither exists");
        fs::write(at("machine"), "").unwrap();
        assert_eq!(found(), at("machine"));
        fs::write(at("own"), "").unwrap();
        assert_eq!(found(), at("own"));
    }
}
