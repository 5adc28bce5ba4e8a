//! Messages to the ConfigListener.

use std::io;
use std::sync::Arc;

use actix::Message;

use crate::config::reload::{Change, ReloadRefused};
use crate::config::{ConfigError, LogLevel, Origin};
use crate::tls::CertificateError;
use store::StoreError;

/// Reads the configuration again and applies what changed, whole or not at all. The answer has the changes that were
/// applied, and the values that HTTP overrides.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Vec<Change>, ReloadError>")]
pub struct Reload;

/// Reads the configuration again and tells what a [`Reload`] would change, what needs a restart, and which values HTTP
/// overrides. Changes nothing.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Vec<Change>, ReloadError>")]
pub struct PlanReload;

/// Reads the files again and tells what a [`Reload`] would change, as [`PlanReload`], without trying whether sockets and
/// certificates are available.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Vec<Change>, ReloadError>")]
pub struct CompareFiles;

/// Sets one value on top of what files, environment and options say, until the service ends or for all daemons of
/// a database; or takes back what was set. The answer is as that of [`Reload`].
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Vec<Change>, ReloadError>")]
pub(crate) struct SetValue {
    /// Section of the key.
    pub section: String,
    /// The key.
    pub key: String,
    /// The value, as text in a file; none to take back what was set.
    pub value: Option<String>,
}

/// A service's socket is not available. The operator's fault, or that of another program.
#[derive(Debug, thiserror::Error)]
#[error("[services.{service}] listen = \"{address}\": {what}")]
pub struct ServiceSocketError {
    /// The service.
    pub service: String,
    /// Where it is to listen.
    pub address: String,
    /// What is wrong.
    pub what: String,
    /// What kind of error it is.
    pub kind: io::ErrorKind,
    /// What to do about it.
    pub remedy: &'static str,
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
    /// The socket of a service is not available.
    #[error("nothing was changed: {0}; {remedy}", remedy = .0.remedy)]
    Service(#[from] Arc<ServiceSocketError>),
    /// The certificate of `[ssl]` cannot be used.
    #[error("nothing was changed: {0}; {remedy}", remedy = CertificateError::remedy())]
    Certificate(#[from] Arc<CertificateError>),
    /// The value was not set over HTTP, so it cannot be taken back.
    #[error(
        "[{section}] {key} was not set over HTTP (it comes from: {origin}), so it cannot be \
         deleted: set another value, or change it where it comes from"
    )]
    NotSet {
        /// Section of the key.
        section: String,
        /// The key.
        key: String,
        /// Where its value comes from.
        origin: Origin,
    },
    /// It was made inside a program, which gave no sources for it.
    #[error("the configuration was made inside the program and cannot be changed")]
    NoSources,
    /// The files could not be read: the system has no room for the thread that does it.
    #[error("the configuration was not read: {0}; try again later")]
    NotRead(String),
    /// The database that daemons share the value in did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The configuration could not be read because the service ends.
    #[error("the service is shutting down")]
    ShuttingDown,
}

/// What follows a change of the log's level.
pub(crate) type SetLogLevel = std::rc::Rc<dyn Fn(LogLevel)>;
