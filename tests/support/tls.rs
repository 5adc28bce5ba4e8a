//! Certificates, and clients that speak TLS.

use std::fs;
use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use super::daemon::DEADLINE;

/// A connection over TLS.
pub type Encrypted = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// Writes a new certificate for localhost, and its key: `cert.pem` and `key.pem`.
pub fn certify(directory: &Path) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    fs::write(directory.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(directory.join("key.pem"), key.serialize_pem()).unwrap();
}

/// Returns the lines of `[ssl]` that name what [`certify`] has written.
pub fn ssl(directory: &Path) -> String {
    let directory = directory.display();
    format!("[ssl]\ncert_file = \"{directory}/cert.pem\"\nkey_file = \"{directory}/key.pem\"\n")
}

/// An authority that signs client certificates.
pub struct ClientAuthority(Issuer<'static, KeyPair>);

impl ClientAuthority {
    /// Creates an authority, and writes its certificate to `file`.
    pub fn new(file: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        fs::write(file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self(Issuer::new(params, key))
    }

    /// Returns a certificate for a name.
    pub fn sign(&self, name: &str) -> ClientCertificate {
        let (signed, key) = self.signed(name);
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (signed.der().clone(), key)
    }

    /// Returns a certificate for a name and its key, as PEM.
    pub fn sign_as_pem(&self, name: &str) -> (String, String) {
        let (signed, key) = self.signed(name);
        (signed.pem(), key.serialize_pem())
    }

    fn signed(&self, name: &str) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        (params.signed_by(&key, &self.0).unwrap(), key)
    }
}

/// A certificate and its key.
pub type ClientCertificate = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// Connects, trusting only the certificate that is in `cert.pem` now.
pub fn connect(
    directory: &Path,
    address: SocketAddr,
    version: &'static SupportedProtocolVersion,
) -> io::Result<Encrypted> {
    shake_hands(directory, address, version, None)
}

/// Connects with a client certificate.
pub fn connect_as(
    directory: &Path,
    address: SocketAddr,
    certificate: ClientCertificate,
) -> io::Result<Encrypted> {
    shake_hands(directory, address, &TLS13, Some(certificate))
}

fn shake_hands(
    directory: &Path,
    address: SocketAddr,
    version: &'static SupportedProtocolVersion,
    certificate: Option<ClientCertificate>,
) -> io::Result<Encrypted> {
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_file(directory.join("cert.pem")).unwrap();
    roots.add(trusted).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let config = match certificate {
        Some((chain, key)) => builder.with_client_auth_cert(vec![chain], key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    client.complete_io(&mut stream)?;
    Ok(BufReader::new(StreamOwned::new(client, stream)))
}
