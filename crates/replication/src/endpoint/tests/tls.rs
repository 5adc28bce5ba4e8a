//! TLS: which certificates are trusted, and which are presented.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::json;
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use super::super::*;
use super::ways::{Asks, Tunnel};
use crate::crash::Crash;
use crate::testing::{Answer, Server, endpoint, endpoint_of, logger, replication};

/// A certificate authority, with its files.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self {
            issuer: CertifiedIssuer::self_signed(params, key).unwrap(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self, name: &str, text: &str) -> Option<PathBuf> {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    }

    /// Returns a certificate for names, and its key.
    fn certify(&self, names: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names).unwrap();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Starts a server for names; with `wants_certificate` it requires a client certificate of the same authority.
    async fn serve(&self, names: &[&str], wants_certificate: bool) -> Server {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (certificate, key) = self.certify(names);
        let config = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = if wants_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(self.issuer.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            config.with_no_client_auth()
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = config
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Server::start_with(Some(acceptor), |_| Answer::new(200, "{}")).await
    }
}

fn trusting(trusted: Option<PathBuf>) -> impl FnOnce(&mut HttpConfig, &mut HttpSettings) {
    move |config, _| {
        config.verify_ssl_certificates = true;
        config.ssl_trusted_certificates_file = trusted;
    }
}

fn unverified(config: &mut HttpConfig, _: &mut HttpSettings) {
    config.verify_ssl_certificates = false;
}

async fn is_answered(endpoint: &Endpoint) -> bool {
    match endpoint.request(Request::get("")).await {
        Ok(reply) => reply.status == 200,
        Err(failed) => {
            assert!(
                matches!(failed.cause, Cause::Connect { .. } | Cause::Protocol(_)),
                "{failed}"
            );
            false
        }
    }
}

#[tokio::test]
async fn certificates_are_verified_unless_verification_is_off() {
    let authority = Authority::new();
    let server = authority.serve(&["localhost"], false).await;
    let url = format!("https://localhost:{}/db/", server.port);
    assert!(is_answered(&endpoint(&url, unverified)).await);
    assert!(
        !is_answered(&endpoint(&url, |_, _| {})).await,
        "the system does not trust it"
    );
    let pem = authority.issuer.pem();
    let trusted = authority.file("ca.pem", &pem);
    assert!(is_answered(&endpoint(&url, trusting(trusted.clone()))).await);
    let other = format!("https://127.0.0.1:{}/db/", server.port);
    assert!(is_answered(&endpoint(&other, unverified)).await);
    let failed = endpoint(&other, trusting(trusted))
        .request(Request::get(""))
        .await
        .unwrap_err();
    assert!(failed.to_string().contains("certificate"), "{failed}");
    let short = Crash::from(failed).short();
    assert_eq!(short, format!("TLS failed: 127.0.0.1:{}", server.port));
    let stranger = Authority::new();
    let trusted = stranger.file("ca.pem", &stranger.issuer.pem());
    assert!(!is_answered(&endpoint(&url, trusting(trusted))).await);
}

#[tokio::test]
async fn certificates_read_again_do_not_replace_a_newer_configuration() {
    let authority = Authority::new();
    let config = HttpConfig {
        verify_ssl_certificates: true,
        ssl_trusted_certificates_file: authority.file("ca.pem", &authority.issuer.pem()),
        cacert_reload_interval: Duration::ZERO,
        ..HttpConfig::default()
    };
    let http = Http::new(config.clone(), &logger()).unwrap();
    // The files are due at once.
    drop(http.current_clients());
    let newer = HttpConfig {
        cacert_reload_interval: Duration::from_secs(3600),
        ..config
    };
    http.configure(http.prepare(newer.clone()).unwrap());
    let tasks = tokio::runtime::Handle::current().metrics();
    let read = async {
        while tasks.num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), read)
        .await
        .expect("the files are read");
    assert_eq!(http.current_clients().config, newer);
}

#[tokio::test]
async fn a_server_that_requests_a_client_certificate_gets_ours() {
    let authority = Authority::new();
    let server = authority.serve(&["localhost"], true).await;
    let url = format!("https://localhost:{}/db/", server.port);
    assert!(!is_answered(&endpoint(&url, unverified)).await);
    let (certificate, key) = authority.certify(&["client"]);
    let cert_file = authority.file("client.pem", &certificate.pem());
    let key_file = authority.file("client.key", &key.serialize_pem());
    let showing = endpoint(&url, |config, settings| {
        unverified(config, settings);
        config.cert_file = cert_file;
        config.key_file = key_file;
    });
    assert!(is_answered(&showing).await);
}

#[tokio::test]
async fn connect_to_keeps_the_requested_and_certified_host_name() {
    let authority = Authority::new();
    let server = authority.serve(&["db.example.invalid"], false).await;
    let trusted = authority.file("ca.pem", &authority.issuer.pem());
    let endpoint = endpoint("https://db.example.invalid:6984/db/", |config, settings| {
        trusting(trusted)(config, settings);
        config.connect_to = Some(format!("*.example.invalid:6984:127.0.0.1:{}", server.port));
    });
    assert!(is_answered(&endpoint).await);
    let host = server.received()[0].header("host").map(str::to_owned);
    assert_eq!(host.as_deref(), Some("db.example.invalid:6984"));
}

#[tokio::test]
async fn tls_connects_through_a_proxy_with_the_proxys_credentials() {
    let authority = Authority::new();
    let server = authority.serve(&["far.example.invalid"], false).await;
    let proxy = Tunnel::start(Asks::Connect, server.port).await;
    let trusted = authority.file("ca.pem", &authority.issuer.pem());
    let body = json!({
        "source": "https://far.example.invalid/db/", "target": "http://t/",
        "source_proxy": format!("http://u:p@127.0.0.1:{}", proxy.port),
    });
    let endpoint = endpoint_of(&replication(&body).source, trusting(trusted));
    assert!(is_answered(&endpoint).await);
    let asked = proxy.asked.lock().unwrap().join("").to_ascii_lowercase();
    let expected = "connect far.example.invalid:443 http/1.1, proxy-authorization: basic dtpw";
    assert_eq!(asked, expected);
}

#[test]
fn a_key_with_a_password_is_refused() {
    let authority = Authority::new();
    let (certificate, key) = authority.certify(&["client"]);
    let cert_file = authority.file("client.pem", &certificate.pem());
    let config = |key: &str, password: Option<&str>| HttpConfig {
        cert_file: cert_file.clone(),
        key_file: authority.file("client.key", key),
        password: password.map(str::to_owned),
        ..HttpConfig::default()
    };
    let encrypted = key.serialize_pem().replace("PRIVATE", "ENCRYPTED PRIVATE");
    for (key, password) in [(&encrypted, None), (&key.serialize_pem(), Some("s3cret"))] {
        let text = Http::new(config(key, password), &logger())
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("keys with a password are not supported"),
            "{text}"
        );
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(Http::new(config(&key.serialize_pem(), None), &logger()).is_ok());
    let text = Http::new(config("nonsense", None), &logger())
        .unwrap_err()
        .to_string();
    assert!(text.starts_with("`cert_file`"), "{text}");
}

#[test]
fn unusable_certificate_files_are_reported_with_their_setting() {
    let logger = logger();
    let refused = |config| Http::new(config, &logger).unwrap_err().to_string();
    let none = Some("/nowhere/ca.pem".into());
    let text = refused(HttpConfig {
        verify_ssl_certificates: true,
        ssl_trusted_certificates_file: none.clone(),
        ..HttpConfig::default()
    });
    assert!(
        text.starts_with("`ssl_trusted_certificates_file` of the replicator: `/nowhere/ca.pem`")
    );
    let text = refused(HttpConfig {
        cert_file: none.clone(),
        ..HttpConfig::default()
    });
    assert_eq!(text, "`cert_file` of the replicator: `key_file` is missing");
    let text = refused(HttpConfig {
        cert_file: none.clone(),
        key_file: none,
        ..HttpConfig::default()
    });
    assert!(text.starts_with("`key_file`"), "{text}");
}
