//! Sessions against a server with or without them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use serde_json::json;

use super::super::*;
use crate::testing::{Answer, Received, Server, endpoint, endpoint_of, spec};

/// A server with sessions. Requests without the newest cookie are refused.
async fn with_sessions(max_age: &'static str) -> (Server, Arc<AtomicUsize>) {
    let newest = Arc::new(AtomicUsize::new(0));
    let current = newest.clone();
    let server = Server::start(move |request: &Received| {
        if request.line == "POST /_session" {
            if request.body != "name=b%C3%B6b&password=s3+cret" {
                return Answer::new(401, "{}");
            }
            let nth = current.fetch_add(1, Ordering::SeqCst) + 1;
            let cookie = format!("AuthSession=c{nth}; Path=/; HttpOnly{max_age}");
            return Answer::with(200, &[("set-cookie", &cookie)], "{}");
        }
        let expected = format!("AuthSession=c{}", current.load(Ordering::SeqCst));
        let status = if request.header("cookie") == Some(&*expected) {
            200
        } else {
            401
        };
        Answer::new(status, "{}")
    });
    (server.await, newest)
}

fn bob(server: &Server, password: &str) -> serde_json::Value {
    let auth = json!({"basic": {"username": "böb", "password": password}});
    json!({"url": server.url(""), "auth": auth})
}

#[tokio::test]
async fn a_session_is_requested_once_and_its_cookie_sent_without_the_password() {
    let (server, _) = with_sessions("").await;
    let endpoint = endpoint_of(&spec(&bob(&server, "s3 cret")), |_, _| {});
    let requests = (0..4).map(|_| endpoint.request(Request::get("")));
    for reply in futures_util::future::join_all(requests).await {
        assert_eq!(reply.unwrap().status, 200);
    }
    let logins = server
        .lines()
        .iter()
        .filter(|line| *line == "POST /_session")
        .count();
    assert_eq!(logins, 1);
    for request in server.received() {
        assert_eq!(request.header("authorization"), None);
    }
}

#[tokio::test]
async fn a_session_that_expired_early_is_renewed_and_the_request_resent() {
    let (server, newest) = with_sessions("").await;
    let endpoint = endpoint_of(&spec(&bob(&server, "s3 cret")), |config, _| {
        config.session_min_update_interval = Duration::ZERO;
    });
    assert_eq!(
        endpoint.request(Request::get("")).await.unwrap().status,
        200
    );
    newest.fetch_add(1, Ordering::SeqCst);
    assert_eq!(
        endpoint.request(Request::get("")).await.unwrap().status,
        200
    );
    assert_eq!(endpoint.stream(Request::get("")).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_refusal_of_a_fresh_session_is_returned_to_the_caller() {
    let (server, newest) = with_sessions("; Max-Age=600").await;
    let endpoint = endpoint_of(&spec(&bob(&server, "s3 cret")), |_, _| {});
    assert_eq!(
        endpoint.request(Request::get("")).await.unwrap().status,
        200
    );
    newest.fetch_add(1, Ordering::SeqCst);
    assert_eq!(
        endpoint.request(Request::get("")).await.unwrap().status,
        401
    );
}

#[tokio::test]
async fn a_refusal_of_a_streamed_body_is_returned_to_the_caller() {
    let (server, newest) = with_sessions("").await;
    let endpoint = endpoint_of(&spec(&bob(&server, "s3 cret")), |config, _| {
        config.session_min_update_interval = Duration::ZERO;
    });
    endpoint.request(Request::get("")).await.unwrap();
    newest.fetch_add(1, Ordering::SeqCst);
    let body = RequestBody::Stream {
        length: 1,
        stream: stream::iter([Ok(Bytes::from("x"))]).boxed(),
    };
    let reply = endpoint.request(Request::put("a").body(body)).await;
    let reply = reply.unwrap();
    assert_eq!(reply.status, 401);
    assert!(!endpoint.is_let_in(&reply).await.unwrap());
}

#[tokio::test]
async fn a_cookie_that_the_server_renews_is_of_the_same_session() {
    let server = Server::start(|request| match &*request.line {
        "POST /_session" => Answer::with(200, &[("set-cookie", "AuthSession=a")], "{}"),
        "GET /_session" => {
            let user = r#"{"userCtx":{"name":"bob"}}"#;
            Answer::with(200, &[("set-cookie", "AuthSession=b")], user)
        }
        "PUT /db/a" => Answer::new(403, "{}"),
        _ => Answer::new(200, "{}"),
    });
    let server = server.await;
    let endpoint = endpoint(&server.url("u:p@"), |_, _| {});
    let reply = endpoint.request(Request::put("a")).await.unwrap();
    assert_eq!(reply.status, 403);
    assert!(endpoint.is_let_in(&reply).await.unwrap());
}

#[tokio::test]
async fn wrong_credentials_fail_without_a_retry() {
    let (server, _) = with_sessions("").await;
    let endpoint = endpoint_of(&spec(&bob(&server, "wrong")), |_, settings| {
        settings.retries = 5
    });
    let failed = endpoint.request(Request::get("")).await.unwrap_err();
    let text = failed.to_string();
    assert!(
        text.contains("replication_auth_error: session_request_unauthorized: POST "),
        "{text}"
    );
    assert!(!text.contains("wrong"), "{text}");
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn a_server_without_sessions_gets_basic_credentials() {
    let server = Server::start(|request| match &*request.line {
        "POST /_session" => Answer::new(404, "{}"),
        _ => Answer::new(200, "{}"),
    });
    let server = server.await;
    let endpoint = endpoint(&server.url("u:p@"), |_, _| {});
    endpoint.request(Request::get("")).await.unwrap();
    endpoint.request(Request::get("")).await.unwrap();
    let received = server.received();
    assert_eq!(received.len(), 3);
    assert_eq!(received[0].header("authorization"), None);
    assert_eq!(received[2].header("authorization"), Some("Basic dTpw"));
}

#[tokio::test]
async fn no_session_is_requested_without_credentials() {
    let server = Server::start(|_| Answer::new(200, "{}")).await;
    server.endpoint().request(Request::get("")).await.unwrap();
    assert_eq!(server.lines(), ["GET /db/"]);
}

#[tokio::test]
async fn logins_to_a_server_that_refuses_every_session_are_bounded() {
    let server = Server::start(|request| match &*request.line {
        "POST /_session" => {
            let cookie = format!("AuthSession=c{}", request.nth);
            Answer::with(200, &[("set-cookie", &cookie)], "{}")
        }
        _ => Answer::new(401, "{}"),
    });
    let server = server.await;
    let endpoint = endpoint(&server.url("u:p@"), |config, _| {
        config.session_min_update_interval = Duration::ZERO;
    });
    assert_eq!(
        endpoint.request(Request::get("")).await.unwrap().status,
        401
    );
    assert_eq!(server.lines().len(), 8, "four logins and four requests");
}
