//! Where the running service is, what it is asked, and how its errors end a subcommand.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::client::{ClientError, Operator, Pieces, ServiceError};
use crate::config::Surroundings;

use super::exit::{CliError, EVENT_LOOP, Exit};
use child::watches;

/// `--socket PATH`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SocketArgs {
    /// The service's socket; default: $SETTEE__SERVER__SOCKET, where `serve` puts it, or that of the package.
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
}

/// How long the service may take over an answer; a job that is stopped waits for a checkpoint.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Where the package puts it.
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
}

/// Returns this user's own socket, unless there is none but one of the machine, which may be in a directory that this user
/// cannot enter.
fn first_there(own: PathBuf, of_machine: &Path) -> PathBuf {
    if !own.exists() && of_machine.try_exists().unwrap_or(true) {
        return of_machine.to_owned();
    }
    own
}

/// Runs a subcommand that talks to the service.
///
/// # Errors
/// Its own, or the system has no event loop for it.
pub fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::no_room(EVENT_LOOP, &watches::named(error)))?;
    runtime.block_on(work)
}

/// What a subcommand makes of an error that the service at this socket answers with, if it knows better
/// than [`service_error`].
type Explain = fn(&Path, &ServiceError) -> Option<CliError>;

/// The running service, to be managed.
pub struct Service {
    operator: Operator,
    /// Where it is.
    pub socket: PathBuf,
    explain: Explain,
}

impl Service {
    /// Makes what asks the service at a socket.
    pub fn at(socket: &SocketArgs, explain: Explain) -> Self {
        let socket = socket.path();
        Self {
            operator: Operator::at(&socket),
            socket,
            explain,
        }
    }

    /// Asks for what is at a path, for at most [`ANSWER_TIMEOUT`].
    ///
    /// # Errors
    /// No service answers, or not this user; what the subcommand makes of what the service said, if anything; otherwise
    /// see [`service_error`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.answer(self.operator.get(path)).await
    }

    /// As [`Service::get`], of lines.
    ///
    /// # Errors
    /// As [`Service::get`].
    pub async fn text(&self, path: &str) -> Result<String, CliError> {
        self.answer(self.operator.text(path)).await
    }

    /// As [`Service::get`], of what may be long: it is read with [`Service::next`].
    ///
    /// # Errors
    /// As [`Service::get`].
    pub(super) async fn open(&self, path: &str) -> Result<Pieces, CliError> {
        self.answer(self.operator.open(path)).await
    }

    /// Returns the next piece of a long answer, which takes at most [`ANSWER_TIMEOUT`]; none at the end.
    ///
    /// # Errors
    /// As [`Service::get`].
    pub(super) async fn next(&self, pieces: &mut Pieces) -> Result<Option<Bytes>, CliError> {
        self.answer(pieces.next()).await
    }

    /// Sends something to a path.
    ///
    /// # Errors
    /// As [`Service::get`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        self.answer(self.operator.post(path, body)).await
    }

    /// As [`Service::post`], for what may take longer.
    ///
    /// # Errors
    /// As [`Service::get`].
    pub(super) async fn post_within<T: DeserializeOwned>(
        &self,
        timeout: Duration,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        self.answer_within(timeout, self.operator.post(path, body))
            .await
    }

    /// Puts something at a path.
    ///
    /// # Errors
    /// As [`Service::get`].
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        self.answer(self.operator.put(path, body)).await
    }

    /// Deletes what is at a path.
    ///
    /// # Errors
    /// As [`Service::get`].
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.answer(self.operator.delete(path)).await
    }

    async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, CliError> {
        self.answer_within(ANSWER_TIMEOUT, answer).await
    }

    async fn answer_within<T>(
        &self,
        timeout: Duration,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, CliError> {
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

    /// Reads an answer that came as JSON text.
    ///
    /// # Errors
    /// It is not `what` was asked for.
    pub fn read<T: DeserializeOwned>(&self, what: &str, text: &RawValue) -> Result<T, CliError> {
        serde_json::from_str(text.get()).map_err(|error| {
            let error = ClientError::Protocol(format!("{what}: {error}"));
            service_error(&self.socket, &error)
        })
    }
}

/// Returns the error of a call to the service at `socket`.
pub(crate) fn service_error(socket: &Path, error: &ClientError) -> CliError {
    let place = socket.display();
    match error {
        ClientError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let hint = "use sudo, or join its group (`sudo usermod -aG settee $USER` with the package) and log in again";
            CliError::at(Exit::NoPermission, place, error, hint)
        }
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
    let hint = "start it with `settee serve`, or name its socket with --socket";
    CliError::new(Exit::Unavailable, message, hint)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_services_of_the_user_and_of_the_machine_are_found_in_this_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let found = || first_there(at("own"), &at("machine"));
        assert_eq!(found(), at("own"), "where neither is, it would be");
        fs::write(at("machine"), "").unwrap();
        assert_eq!(found(), at("machine"));
        fs::write(at("own"), "").unwrap();
        assert_eq!(found(), at("own"));
    }
}
