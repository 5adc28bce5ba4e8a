//! Databases behind TLS: which certificates the command trusts.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::command::{code, command_of, folder, run, two};
use crate::support::couch::Couch;

/// A TLS proxy in front of a database, with a self-signed certificate. It stops when dropped.
struct Front {
    url: String,
    /// The certificate.
    pem: String,
    task: JoinHandle<()>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn front(couch: &Couch) -> Front {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = config
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://localhost:{}/db",
        listener.local_addr().unwrap().port()
    );
    let plain = couch.url();
    let to = plain
        .trim_start_matches("http://")
        .trim_end_matches("/db")
        .to_owned();
    let task = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, to) = (acceptor.clone(), to.clone());
            connections.spawn(async move {
                // A client that rejects the certificate disconnects.
                if let Ok(mut near) = acceptor.accept(stream).await {
                    let mut far = TcpStream::connect(to).await.unwrap();
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                }
            });
        }
    });
    Front {
        url,
        pem: certificate.pem(),
        task,
    }
}

#[actix_rt::test]
async fn a_self_signed_certificate_is_refused_unless_trusted_or_with_insecure() {
    let (folder, (source, target)) = (folder(), two().await);
    let front = front(&source).await;
    let once = ["--retries-per-request", "0"];
    let output = run(&folder, &front.url, &target.url(), &once).await;
    let (status, _, error) = code(&output);
    assert_eq!(status, Some(75), "{error}");
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(target.trees().len(), 0);
    let insecure = [&once[..], &["--insecure"]].concat();
    let output = run(&folder, &front.url, &target.url(), &insecure).await;
    let (status, _, error) = code(&output);
    assert_eq!(status, Some(0), "{error}");
    assert_eq!(target.trees().len(), 20);
    // The configuration can trust the certificate.
    let pem = folder.path().join("theirs.pem");
    std::fs::write(&pem, &front.pem).unwrap();
    let file = folder.path().join("settee.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let trusting = format!(
        "{config}[replicator]\nssl_trusted_certificates_file = {:?}\n",
        pem.display().to_string()
    );
    std::fs::write(&file, trusting).unwrap();
    let target = Couch::start().await;
    let output = run(&folder, &front.url, &target.url(), &once).await;
    assert_eq!(code(&output).0, Some(0), "{output:?}");
    assert_eq!(target.trees().len(), 20);
}

#[actix_rt::test]
async fn without_certificate_authorities_http_replicates_and_https_is_refused() {
    let (folder, (source, target)) = (folder(), two().await);
    let front = front(&source).await;
    let once = ["--retries-per-request", "0"];
    for (url, expected) in [(&front.url, 75), (&source.url(), 0)] {
        let mut command = command_of(&folder, url, &target.url(), &once);
        let nowhere = folder.path().join("nowhere");
        command
            .env("SSL_CERT_FILE", &nowhere)
            .env("SSL_CERT_DIR", &nowhere);
        let output = command.output().await.unwrap();
        let (status, _, error) = code(&output);
        assert_eq!(status, Some(expected), "{error}");
        assert!(error.contains("trusts no certificate authority"), "{error}");
    }
    assert_eq!(target.trees().len(), 20);
}
