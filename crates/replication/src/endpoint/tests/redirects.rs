//! Redirects within the requested origin, and what a request carries to another.

use std::time::Duration;

use serde_json::json;

use super::super::*;
use crate::testing::{Answer, Server, endpoint, endpoint_of, spec};

/// A server at another origin, whose answers set a session cookie.
async fn elsewhere() -> Server {
    Server::start(|_| Answer::with(200, &[("set-cookie", "AuthSession=theirs")], "{}")).await
}

/// A server that sends everything to `location`.
async fn redirecting(code: u16, location: &str) -> Server {
    let location = location.to_owned();
    Server::start(move |_| Answer::with(code, &[("location", &location)], "{}")).await
}

#[tokio::test]
async fn a_redirect_to_another_origin_fails_and_names_both_origins() {
    for code in [301, 302, 303, 307, 308] {
        let other = elsewhere().await;
        for host in ["127.0.0.1", "localhost", "127.0.0.2", "[::ffff:127.0.0.1]"] {
            let to = format!("http://{host}:{}", other.port);
            let server = redirecting(code, &format!("{to}/_replicator/x?token=s3cret")).await;
            for request in [
                Request::get("_changes"),
                Request::post("_bulk_get").json("{}"),
                Request::put("_local/x").json("{}"),
            ] {
                let endpoint = endpoint(&server.url("u:p@"), |config, _| config.sessions = false);
                let failed = endpoint.request(request).await.unwrap_err().to_string();
                let from = format!("http://127.0.0.1:{}", server.port);
                let to = to.replace("[::ffff:127.0.0.1]", "[::ffff:7f00:1]");
                for part in ["redirected_elsewhere", &from, &to] {
                    assert!(failed.contains(part), "{code} {part}: {failed}");
                }
                assert!(!failed.contains("s3cret"), "{failed}");
            }
            let streamed = server.endpoint().stream(Request::get("_changes")).await;
            let failed = streamed.unwrap_err().to_string();
            assert!(failed.contains("redirected_elsewhere"), "{failed}");
        }
        assert_eq!(other.lines(), [""; 0], "no request arrived there");
    }
}

#[tokio::test]
async fn another_scheme_is_another_origin() {
    let server = Server::start(|request| {
        let host = request.header("host").unwrap_or_default();
        Answer::with(301, &[("location", &format!("https://{host}/db/"))], "")
    });
    let failed = server
        .await
        .endpoint()
        .request(Request::get(""))
        .await
        .unwrap_err();
    assert!(
        failed.to_string().contains("redirected_elsewhere"),
        "{failed}"
    );
}

#[tokio::test]
async fn a_redirect_of_the_login_is_not_followed_and_its_target_is_reported() {
    let other = elsewhere().await;
    let to = format!("http://127.0.0.1:{}", other.port);
    let server = redirecting(307, &format!("{to}/_session")).await;
    let endpoint = endpoint(&server.url("ann:s3cret@"), |_, _| {});
    let failed = endpoint.request(Request::get("")).await.unwrap_err();
    let text = failed.to_string();
    assert!(
        text.contains("redirected_elsewhere") && text.contains(&to),
        "{text}"
    );
    assert_eq!(server.lines(), ["POST /_session"]);
    assert_eq!(other.lines(), [""; 0]);
}

#[tokio::test]
async fn a_redirect_within_the_origin_keeps_credentials_and_custom_headers() {
    for location in [
        "/other",
        "//127.0.0.1:PORT/other",
        "http://127.0.0.1:PORT/other",
        "HTTP://127.0.0.1:PORT/other",
        "http://someone:else@127.0.0.1:PORT/other",
        "http://0x7f.1:PORT/other",
    ] {
        let server = Server::start(move |request| match request.nth {
            0 => {
                let host = request.header("host").unwrap_or_default();
                let port = host.rsplit(':').next().unwrap_or_default();
                Answer::with(302, &[("location", &location.replace("PORT", port))], "")
            }
            _ => Answer::new(200, ""),
        });
        let server = server.await;
        let body = json!({"url": server.url("u:p@"), "headers": {"X-Api-Key": "k3y"}});
        let endpoint = endpoint_of(&spec(&body), |config, _| config.sessions = false);
        endpoint.request(Request::get("")).await.unwrap();
        let second = &server.received()[1];
        assert_eq!(second.line, "GET /other", "{location}");
        assert_eq!(second.header("authorization"), Some("Basic dTpw"));
        assert_eq!(second.header("x-api-key"), Some("k3y"));
    }
}

#[tokio::test]
async fn a_redirect_to_an_allowed_origin_drops_credentials_custom_headers_and_cookies() {
    for code in [301, 302, 303] {
        let other = elsewhere().await;
        let to = format!("http://localhost:{}", other.port);
        let location = format!("{to}/db/");
        let server = Server::start(move |request| match &*request.line {
            "POST /_session" => Answer::with(200, &[("set-cookie", "AuthSession=ours")], "{}"),
            "GET /db/_revs_limit" => Answer::new(200, "1"),
            _ => Answer::with(code, &[("location", &location)], ""),
        });
        let server = server.await;
        let headers = json!({"X-Api-Key": "k3y", "Content-Type": "x/y", "Accept": "a/b"});
        let body = json!({"url": server.url("ann:s3cret@"), "headers": headers});
        let endpoint = endpoint_of(&spec(&body), |config, _| {
            config.redirects_to = format!("http://b.example, {to}");
        });
        let request = Request::post("_bulk_docs").json(r#"{"docs":[]}"#);
        assert_eq!(endpoint.request(request).await.unwrap().status, 200);
        let received = &other.received()[0];
        for name in ["authorization", "cookie", "x-api-key"] {
            assert_eq!(received.header(name), None, "{name}");
        }
        assert_eq!(received.header("accept"), Some("application/json"));
        assert_ne!(received.header("content-type"), Some("x/y"));
        // A cookie set by the other server is not a session here.
        endpoint.request(Request::get("_revs_limit")).await.unwrap();
        let last = server.received().pop().unwrap();
        assert_eq!(last.header("cookie"), Some("AuthSession=ours"));
    }
}

#[tokio::test]
async fn a_401_from_another_origin_renews_no_session() {
    let other = Server::start(|_| Answer::new(401, "{}")).await;
    let to = format!("http://localhost:{}", other.port);
    let location = format!("{to}/db/");
    let server = Server::start(move |request| match &*request.line {
        "POST /_session" => Answer::with(200, &[("set-cookie", "AuthSession=ours")], "{}"),
        _ => Answer::with(301, &[("location", &location)], ""),
    });
    let server = server.await;
    let endpoint = endpoint(&server.url("ann:s3cret@"), |config, _| {
        config.redirects_to = to;
        config.session_min_update_interval = Duration::ZERO;
    });
    assert_eq!(
        endpoint.request(Request::get("")).await.unwrap().status,
        401
    );
    assert_eq!(server.lines(), ["POST /_session", "GET /db/"]);
}

#[tokio::test]
async fn another_server_cannot_redirect_credentials_back_to_a_path_of_its_choice() {
    let server = Server::start(|request| match &*request.line {
        "GET /db/" => {
            let host = request.header("host").unwrap_or_default().to_owned();
            let port = host.rsplit(':').next().unwrap_or_default();
            let to = format!("http://localhost:{port}/there");
            Answer::with(302, &[("location", &to)], "")
        }
        "GET /there" => {
            let host = request
                .header("host")
                .unwrap_or_default()
                .replace("localhost", "127.0.0.1");
            Answer::with(302, &[("location", &format!("http://{host}/back"))], "")
        }
        _ => Answer::new(200, ""),
    });
    let server = server.await;
    let body = json!({"url": server.url("u:p@"), "headers": {"X-Api-Key": "k3y"}});
    let to = format!("http://localhost:{}", server.port);
    let endpoint = endpoint_of(&spec(&body), |config, _| {
        config.sessions = false;
        config.redirects_to = to;
    });
    endpoint.request(Request::get("")).await.unwrap();
    let last = server.received().pop().unwrap();
    assert_eq!(last.line, "GET /back");
    assert_eq!(
        (last.header("authorization"), last.header("x-api-key")),
        (None, None)
    );
}
