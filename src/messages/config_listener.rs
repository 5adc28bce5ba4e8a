//! Messages to the ConfigListener.

use actix::Message;

use crate::config::reload::{Change, ReloadRefused};
use crate::config::{ConfigError, LogLevel};

/// Reads the configuration again and applies what changed, whole or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Reload;

impl Message for Reload {
    type Result = Result<Vec<Change>, ReloadError>;
}

/// Why nothing changed. The operator's fault; not worth a retry.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReloadError {
    /// The files or the environment have mistakes.
    #[error("the configuration has mistakes, so nothing was changed: {0}")]
    Config(#[from] ConfigError),
    /// Some of the changes take a restart.
    #[error(transparent)]
    Refused(#[from] ReloadRefused),
    /// The configuration could not be read because the service ends.
    #[error("the service is shutting down")]
    ShuttingDown,
}

/// What follows a change of the log's level.
pub type SetLogLevel = std::rc::Rc<dyn Fn(LogLevel)>;
