//! `sslmode` decides whether connections are encrypted and the server's certificate is verified.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use store::suite::{self, TestPlace};

use super::server::{NOBODY, Server, is_root};

/// Writes the certificate of a new authority, and returns its issuer.
fn authority(file: &Path) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(file, params.self_signed(&key).unwrap().pem()).unwrap();
    Issuer::new(params, key)
}

#[tokio::test]
async fn sslmode_decides_whether_a_server_is_trusted() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let files = tempfile::tempdir().unwrap();
    let (ours, others) = (files.path().join("ca.pem"), files.path().join("other.pem"));
    authority(&others);
    let prepare = |folder: &Path| {
        let issuer = authority(&ours);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        for (name, text) in [
            ("server.crt", certificate.pem()),
            ("server.key", key.serialize_pem()),
        ] {
            let file = folder.join("data").join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            if is_root() {
                chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
    };
    let port = format!("port={}", free.port());
    let server = Server::new(&["listen_addresses=127.0.0.1", &port, "ssl=on"], prepare);
    let at = |host: &str, more: &str| {
        let url = format!("postgres://settee@{host}:{}/postgres?{more}", free.port());
        TestPlace::postgres(&url).unwrap()
    };
    let root = |file: &Path| format!("sslmode=verify-full&sslrootcert={}", file.display());
    let encrypted = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = ";
    for (mode, is_encrypted) in [
        ("sslmode=disable".to_owned(), "f"),
        (String::new(), "t"),
        ("sslmode=require".to_owned(), "t"),
        (root(&ours), "t"),
    ] {
        let name = format!(
            "settee-{}",
            mode.split(['=', '&']).nth(1).unwrap_or("default")
        );
        let place = at("127.0.0.1", &format!("{mode}&application_name={name}"));
        let _open = suite::opens(&place).await;
        let found = server.sql("postgres", &format!("{encrypted}'{name}'"));
        assert_eq!(found, is_encrypted, "{mode}");
    }
    let error = suite::failure(&at("127.0.0.1", &root(&others))).await;
    assert!(error.contains("invalid peer certificate"), "{error}");
    let error = suite::failure(&at("localhost", &root(&ours))).await;
    assert!(
        error.contains("invalid peer certificate: certificate not valid for name"),
        "{error}"
    );
    let missing = files.path().join("missing.pem");
    let error = suite::refusal(&at("127.0.0.1", &root(&missing))).await;
    assert!(error.contains("missing.pem"), "{error}");
}
