//! Messages to the ConfigListener.

use std::io;
use std::sync::Arc;

use actix::Message;

use crate::config::reload::{Change, ReloadRefused};
use crate::config::{ConfigError, LogLevel, Origin};
use crate::tls::CertificateError;
use replication::endpoint::HttpConfigError;
use store::StoreError;
use store::fleet::Override;

/// Reloads the configuration and applies the changes, all or none. The answer has the applied changes, and the values
/// that HTTP overrides.
#[derive(Debug, Message)]
#[rtype(result = "Result<Vec<Change>, ReloadError>")]
pub struct Reload;

/// Returns the changes that a [`Reload`] would make, those that need a restart, and the values that HTTP overrides.
/// Changes nothing.
#[derive(Debug, Message)]
#[rtype(result = "Result<Vec<Change>, ReloadError>")]
pub struct PlanReload;

/// Like [`PlanReload`], but does not check whether sockets and certificates are available.
#[derive(Debug, Message)]
#[rtype(result = "Result<Vec<Change>, ReloadError>")]
pub struct CompareFiles;

/// Sets one value that overrides files, environment and options until the service ends, or for all daemons that share
/// a database until it is unset; or unsets it. The answer is that of [`Reload`].
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Vec<Change>, ReloadError>")]
pub(crate) struct SetValue(pub Override);

/// A service's socket is not available. The fault of the operator, or of another program.
#[derive(Debug, thiserror::Error)]
#[error("[services.{service}] listen = \"{address}\": {what}")]
pub struct ServiceSocketError {
    /// The service.
    pub service: String,
    /// The address to listen on.
    pub address: String,
    /// The error.
    pub what: String,
    /// The kind of the error.
    pub kind: io::ErrorKind,
    /// The remedy.
    pub remedy: &'static str,
}

/// Why nothing changed. The operator's fault, except for `NotRead`, `Store` and `ShuttingDown`.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReloadError {
    /// The files or the environment have errors.
    #[error("the configuration has mistakes, so nothing was changed: {0}")]
    Config(#[from] ConfigError),
    /// Some of the changes need a restart.
    #[error(transparent)]
    Refused(#[from] ReloadRefused),
    /// The socket of a service is not available.
    #[error("nothing was changed: {0}; {remedy}", remedy = .0.remedy)]
    Service(#[from] Arc<ServiceSocketError>),
    /// The certificate of `[ssl]` is unusable.
    #[error("nothing was changed: {0}; {remedy}", remedy = CertificateError::remedy())]
    Certificate(#[from] Arc<CertificateError>),
    /// The settings of replications' connections are unusable.
    #[error("nothing was changed: {0}; correct it in [replicator]")]
    Replication(#[from] HttpConfigError),
    /// The value was not set over HTTP, so it cannot be unset.
    #[error(
        "[{section}] {key} was not set over HTTP (it comes from: {origin}), so it cannot be \
         deleted: set another value, or change it where it comes from"
    )]
    NotSet {
        /// Section of the key.
        section: String,
        /// The key.
        key: String,
        /// The origin of its value.
        origin: Origin,
    },
    /// The configuration was built by a program, without sources.
    #[error("the configuration was made inside the program and cannot be changed")]
    NoSources,
    /// The files were not read: the system refused a thread to read them.
    #[error("the configuration was not read: {0}; try again later")]
    NotRead(String),
    /// The database that shares the value among daemons refused it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The configuration could not be read because the service is ending.
    #[error("the service is shutting down")]
    ShuttingDown,
}

/// Applies the configured level to the running log.
pub(crate) type SetLogLevel = std::rc::Rc<dyn Fn(LogLevel)>;
