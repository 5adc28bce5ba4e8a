//! Refused addresses, however a URL spells them.

use serde_json::json;

use super::super::*;
use super::ways::{Asks, Tunnel};
use crate::endpoint::listening::Listening;
use crate::testing::{Answer, Server, endpoint, endpoint_of, logger, replication, spec};

/// Returns the outcome of a request to a URL, for a daemon that listens at `own`.
async fn outcome(own: &Server, body: &serde_json::Value, allowed: &str) -> Result<(), String> {
    let listening = Listening::default();
    listening.add(([127, 0, 0, 1], own.port).into());
    let config = HttpConfig {
        endpoints_allowed: allowed.to_owned(),
        ..HttpConfig::default()
    };
    let http = Http::beside(listening, config, &logger()).unwrap();
    let settings = own.endpoint().0.settings.clone();
    let endpoint = http.endpoint(&replication(body).source, settings).unwrap();
    let reply = endpoint.request(Request::get("")).await;
    reply.map(drop).map_err(|failed| failed.to_string())
}

#[tokio::test]
async fn no_url_reaches_the_daemons_own_listeners() {
    let own = Server::start(|_| Answer::new(200, "{}")).await;
    for host in [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "0.0.0.0",
        "0",
        "127.1",
        "0x7f000001",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
    ] {
        let url = format!("http://{host}:{}/_replicator", own.port);
        let body = json!({"source": url, "target": "http://t/"});
        let failed = outcome(&own, &body, "*").await.expect_err(&url);
        assert!(failed.contains("endpoint_denied"), "{failed}");
        assert!(failed.contains("itself listens"), "{failed}");
    }
    assert_eq!(own.lines(), [""; 0]);
    let url = format!("http://localhost:{}/db", own.port);
    let body = json!({"source": url, "target": "http://t/"});
    let allowed = format!("*,127.0.0.1:{}", own.port);
    assert_eq!(outcome(&own, &body, &allowed).await, Ok(()));
}

#[tokio::test]
async fn no_proxy_reaches_the_daemons_own_listeners() {
    let own = Server::start(|_| Answer::new(200, "{}")).await;
    for scheme in ["http", "socks5"] {
        for host in ["127.0.0.1", "localhost", "0x7f.1", "LocalHost"] {
            let proxy = format!("{scheme}://{host}:{}", own.port);
            let body = json!({"source": "http://10.1.2.3/db", "target": "http://t/", "source_proxy": proxy});
            let failed = outcome(&own, &body, "*").await.expect_err(&proxy);
            // The HTTP library hides why a name of a SOCKS proxy does not resolve.
            let is_denied = failed.contains("endpoint_denied");
            assert!(
                is_denied || failed.contains("socks proxy"),
                "{proxy}: {failed}"
            );
        }
        // The same through a proxy that would connect there.
        let asks = if scheme == "http" {
            Asks::Connect
        } else {
            Asks::Socks
        };
        let proxy = Tunnel::start(asks, own.port).await;
        for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "LocalHost"] {
            let body = json!({
                "source": format!("http://{host}:{}/db", own.port), "target": "http://t/",
                "source_proxy": format!("{scheme}://u:p@localhost:{}", proxy.port),
            });
            let failed = outcome(&own, &body, "*").await.expect_err(host);
            assert!(failed.contains("endpoint_denied"), "{host}: {failed}");
        }
    }
    assert_eq!(own.lines(), [""; 0]);
}

#[tokio::test]
async fn link_local_networks_are_refused_by_address_name_and_redirect() {
    let server =
        Server::start(|_| Answer::with(301, &[("location", "http://169.254.169.254/latest")], ""));
    let server = server.await;
    for (url, connect_to) in [
        ("http://169.254.169.254/latest", ""),
        ("http://2852039166/latest", ""),
        ("http://[fe80::1]/db", ""),
        ("http://[64:ff9b::a9fe:a9fe]/db", ""),
        (
            "http://metadata.example/db",
            "metadata.example:80:169.254.169.254:80",
        ),
        ("http://10.1.2.3/db", "10.1.2.3:80:169.254.169.254:80"),
        (&*server.url(""), ""),
    ] {
        let endpoint = endpoint(url, |config, _| {
            config.connect_to = Some(connect_to.to_owned());
            config.redirects_to = "http://169.254.169.254".to_owned();
        });
        let failed = endpoint
            .request(Request::get(""))
            .await
            .unwrap_err()
            .to_string();
        assert!(failed.contains("endpoint_denied"), "{url}: {failed}");
        assert!(failed.contains("link-local"), "{url}: {failed}");
    }
}

#[tokio::test]
async fn only_allowed_hosts_and_networks_are_connected_to() {
    let server = Server::start(|_| Answer::new(200, "{}")).await;
    let port = server.port;
    let connects = async |host: &str, allowed: &str, denied: &str| {
        let body = json!(format!("http://{host}:{port}/db"));
        let endpoint = endpoint_of(&spec(&body), |config, _| {
            config.endpoints_allowed = allowed.to_owned();
            config.endpoints_denied = denied.to_owned();
        });
        match endpoint.request(Request::get("")).await {
            Ok(_) => true,
            Err(failed) => {
                assert!(failed.to_string().contains("endpoint_denied"), "{failed}");
                false
            }
        }
    };
    assert!(connects("localhost", "*", "").await);
    assert!(connects("localhost", "127.0.0.0/8, ::1", "").await);
    assert!(connects("localhost", "localhost", "").await);
    assert!(connects("127.0.0.1", &format!("127.0.0.1:{port}"), "").await);
    assert!(!connects("localhost", "10.0.0.0/8", "").await);
    assert!(!connects("127.0.0.1", "localhost", "").await);
    assert!(!connects("127.0.0.1", &format!("127.0.0.1:{}", port ^ 1), "").await);
    assert!(!connects("localhost", "*", "localhost").await);
    assert!(!connects("localhost", "*", "127.0.0.0/8,::1").await);
    assert!(
        !connects(
            "localhost",
            "localhost",
            &format!("127.0.0.1:{port},[::1]:{port}")
        )
        .await
    );
}

#[tokio::test]
async fn a_listener_added_later_is_denied_too() {
    let own = Server::start(|_| Answer::new(200, "{}")).await;
    let listening = Listening::default();
    let http = Http::beside(listening.clone(), HttpConfig::default(), &logger()).unwrap();
    let url = format!("http://localhost:{}/db", own.port);
    let settings = own.endpoint().0.settings.clone();
    let endpoint = http.endpoint(&spec(&json!(url)), settings).unwrap();
    endpoint.request(Request::get("")).await.unwrap();
    listening.set_services(vec![([0, 0, 0, 0], own.port).into()]);
    endpoint.request(Request::get("")).await.unwrap_err();
    listening.set_services(Vec::new());
    endpoint.request(Request::get("")).await.unwrap();
}
