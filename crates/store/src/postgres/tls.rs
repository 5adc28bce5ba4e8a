//! TLS to the database, according to `sslmode`.
//!
//! PROMISES  `verify-full` talks only to the server that the URL names. `require` protects against eavesdroppers, but
//!           not against an impostor of the server; so does `prefer` if the server offers TLS.
//! SOURCE    libpq: SSL support.
//! DIFFERS   Without `sslrootcert` the system's certificates are used. There is no channel binding.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use settee_config::store_url::{SslMode, StoreUrl};

/// Encrypts connections to a server.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// Reads the certificates that a URL names. Blocks.
    ///
    /// # Errors
    /// The certificates cannot be read.
    pub fn of(url: &StoreUrl) -> Result<Self, String> {
        let provider = Arc::new(default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match url.ssl_mode() {
            SslMode::VerifyFull => {
                let roots = Arc::new(roots(url)?);
                let built =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
                built.build().map_err(|error| error.to_string())?
            }
            _ => Arc::new(Anybody(provider.signature_verification_algorithms)),
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self(Arc::new(config).into()))
    }
}

fn roots(url: &StoreUrl) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match url.root_certificates() {
        Some(path) => {
            let refused = |error: &dyn std::fmt::Display| {
                format!("the certificates in {}: {error}", path.display())
            };
            let read = CertificateDer::pem_file_iter(&path).map_err(|error| refused(&error))?;
            for certificate in read {
                let certificate = certificate.map_err(|error| refused(&error))?;
                roots.add(certificate).map_err(|error| refused(&error))?;
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            let _counts = roots.add_parsable_certificates(system.certs);
        }
    }
    if roots.is_empty() {
        Err("no certificate to verify the server by: name a file as sslrootcert".to_owned())
    } else {
        Ok(roots)
    }
}

/// Accepts any certificate if the server has its key.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Encrypted<S>;
    type TlsConnect = TlsTo;
    type Error = Infallible;

    fn make_tls_connect(&mut self, domain: &str) -> Result<TlsTo, Self::Error> {
        // A Unix socket has no name, and no TLS.
        let name = ServerName::try_from(domain.to_owned()).ok();
        Ok(TlsTo(self.0.clone(), name))
    }
}

/// Encrypts one connection.
pub(super) struct TlsTo(TlsConnector, Option<ServerName<'static>>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for TlsTo {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let Self(connector, name) = self;
            let nameless =
                || io::Error::new(io::ErrorKind::InvalidInput, "the server has no valid name");
            let name = name.ok_or_else(nameless)?;
            connector.connect(name, stream).await.map(Encrypted)
        })
    }
}

/// An encrypted connection.
pub(super) struct Encrypted<S>(TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
