//! The daemon's certificate, and those of its clients: `[ssl]`, loaded for new connections.
//!
//! SUMMARY   [`read`] loads the server's TLS configuration, [`Certificate`] holds the current one, [`client_name`]
//!           returns the user of a client's certificate.
//! PROMISES  A certificate that is unreadable or does not match its key does not replace the current one. Existing
//!           connections keep the certificate that they began with.
//! CALLED    Loaded at the start and at each reload of the configuration; used for each connection.
//! SOURCE    CouchDB: chttpd, `[ssl]`.
//! DIFFERS   CouchDB loads a new certificate only at a restart.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio_rustls::TlsAcceptor;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::config::{Config, Ssl};
use crate::lock;

/// The certificate, its key or the CA certificates of clients cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("[ssl]: {}: {what}", path.display())]
pub struct CertificateError {
    path: PathBuf,
    what: String,
}

impl CertificateError {
    fn of(path: &Path, what: impl Display) -> Self {
        Self {
            path: path.to_owned(),
            what: what.to_string(),
        }
    }

    /// Returns the remedy.
    pub(crate) const fn remedy() -> &'static str {
        "set cert_file and key_file to matching PEM files that this user may read, the key without \
         a password, and cacert_file to CA certificates"
    }
}

/// The certificate for new connections.
#[derive(Default)]
pub(crate) struct Certificate(Mutex<Option<Arc<ServerConfig>>>);

impl Certificate {
    /// Replaces it.
    pub fn set(&self, new: Option<Arc<ServerConfig>>) {
        *lock(&self.0) = new;
    }

    /// Returns the TLS acceptor; `None` without a certificate.
    pub fn acceptor(&self) -> Option<TlsAcceptor> {
        lock(&self.0).clone().map(TlsAcceptor::from)
    }
}

/// Returns the name (CN) in a client's certificate, signed by an issuer in `cacert_file`.
pub(crate) fn client_name(connection: &ServerConnection) -> Option<String> {
    let shown = connection.peer_certificates()?.first()?;
    let (_, certificate) = X509Certificate::from_der(shown).ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str();
    name.ok().map(str::to_owned)
}

/// Loads the files of `[ssl]`, if TLS is used anywhere. Blocks.
///
/// # Errors
/// See [`CertificateError`]: the operator's fault.
pub(crate) fn read(config: &Config) -> Result<Option<Arc<ServerConfig>>, CertificateError> {
    let ssl = &config.ssl;
    match (&ssl.cert_file, &ssl.key_file) {
        (Some(certificate), Some(key)) if ssl.is_used() => {
            server_config(ssl, certificate, key).map(|made| Some(Arc::new(made)))
        }
        _ => Ok(None),
    }
}

fn server_config(
    ssl: &Ssl,
    certificate: &Path,
    key: &Path,
) -> Result<ServerConfig, CertificateError> {
    let chain = certificates(certificate)?;
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| CertificateError::of(key, error))?;
    let refused = |error: rustls::Error| CertificateError::of(certificate, error);
    let spoken = |name: &str| ssl.tls_versions.iter().any(|wanted| wanted == name);
    let versions: Vec<_> = [("tlsv1.2", &TLS12), ("tlsv1.3", &TLS13)]
        .into_iter()
        .filter(|(name, _)| spoken(name))
        .map(|(_, version)| version)
        .collect();
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&versions)
        .map_err(refused)?;
    let builder = match &ssl.cacert_file {
        Some(authorities) => builder.with_client_cert_verifier(verifier(authorities)?),
        None => builder.with_no_client_auth(),
    };
    let mut made = builder.with_single_cert(chain, private).map_err(refused)?;
    made.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(made)
}

/// Makes the verifier of client certificates, which are optional.
fn verifier(authorities: &Path) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities)? {
        roots
            .add(authority)
            .map_err(|error| CertificateError::of(authorities, error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()))
        .allow_unauthenticated()
        .build()
        .map(|verifier| verifier as _)
        .map_err(|error| CertificateError::of(authorities, error))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| CertificateError::of(file, error))
}
