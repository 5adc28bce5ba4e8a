//! Requests against a server with scripted answers.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::json;

use super::super::*;
use super::status;
use crate::testing::{Answer, Server, Then, endpoint, endpoint_of, spec};

#[tokio::test]
async fn a_request_is_sent_with_its_query_headers_and_body() {
    let server = Server::start(|_| Answer::with(201, &[("x-y", "z")], r#"{"ok":true}"#)).await;
    let body = json!({"url": server.url(""), "headers": {"X-Own": "1", "accept": "text/x"}});
    let endpoint = endpoint_of(&spec(&body), |_, _| {});
    let request = Request::post("_changes")
        .query("since", "a b&c")
        .query("feed", "normal")
        .header(ACCEPT, HeaderValue::from_static("multipart/mixed"))
        .json(r#"{"a":1}"#);
    let reply = endpoint.request(request).await.unwrap();
    assert_eq!(reply.status, 201);
    assert_eq!(
        reply.json::<serde_json::Value>().unwrap(),
        json!({"ok": true})
    );
    let reply = endpoint.stream(Request::get("")).await.unwrap();
    assert_eq!(reply.status, 201);
    assert_eq!(reply.headers["x-y"], "z");
    let [post, get] = &server.received()[..] else {
        panic!("expected two requests");
    };
    assert_eq!(post.line, "POST /db/_changes?since=a%20b%26c&feed=normal");
    assert_eq!(post.header("x-own"), Some("1"));
    assert_eq!(post.header("accept"), Some("multipart/mixed"));
    assert_eq!(post.header("content-type"), Some("application/json"));
    assert!(
        post.header("user-agent")
            .unwrap()
            .starts_with("CouchDB-Replicator/")
    );
    assert_eq!(post.body, r#"{"a":1}"#);
    assert_eq!(get.line, "GET /db/");
    assert_eq!(
        get.header("accept"),
        Some("text/x"),
        "the user's headers override ours"
    );
    assert_eq!(post.connection, get.connection, "the connection is reused");
}

#[tokio::test]
async fn framing_headers_of_a_document_are_not_sent() {
    let server = Server::start(|_| Answer::new(200, "{}")).await;
    let headers = json!({"Content-Length": "40", "transfer-encoding": "chunked", "Connection": "close",
        "TE": "trailers", "Upgrade": "x", "Expect": "100-continue", "X-Own": "1"});
    let body = json!({"url": server.url(""), "headers": headers});
    let endpoint = endpoint_of(&spec(&body), |_, settings| {
        settings.connection_timeout = Duration::from_secs(3);
    });
    endpoint.request(Request::get("")).await.unwrap();
    let posted = Request::post("_revs_diff").json(r#"{"a":["1-b"]}"#);
    endpoint.request(posted).await.unwrap();
    for received in server.received() {
        for name in ["connection", "te", "upgrade", "expect", "transfer-encoding"] {
            assert_eq!(received.header(name), None, "{name}");
        }
        assert_eq!(received.header("x-own"), Some("1"));
        let length = received.header("content-length").unwrap_or("0");
        assert_eq!(length, received.body.len().to_string());
    }
}

#[tokio::test]
async fn answers_below_500_are_returned_unchanged() {
    for code in [
        200, 201, 202, 304, 307, 308, 400, 401, 403, 404, 409, 412, 413, 415, 417, 418,
    ] {
        let server = Server::start(move |_| Answer::new(code, r#"{"error":"e","reason":["r"]}"#));
        let server = server.await;
        let reply = server.endpoint().request(Request::get("x")).await.unwrap();
        assert_eq!(reply.status.as_u16(), code);
        if code != 304 {
            assert_eq!(reply.error().error, "e");
            assert_eq!(reply.error().reason, r#"["r"]"#);
        }
        let streamed = server.endpoint().stream(Request::get("x")).await.unwrap();
        assert_eq!(streamed.status.as_u16(), code);
        assert_eq!(server.lines().len(), 2);
    }
}

#[tokio::test]
async fn failed_requests_are_retried_and_then_reported_as_failures() {
    for code in [408, 500, 502, 503, 599] {
        let server = Server::start(move |_| Answer::new(code, "{}")).await;
        let endpoint = endpoint(&server.url("bob:s3cret@"), |config, settings| {
            config.sessions = false;
            settings.retries = 1;
        });
        let failed = endpoint.request(Request::get("x")).await.unwrap_err();
        assert_eq!(failed.cause, status(code, "{}"));
        assert_eq!(server.lines().len(), 2);
        assert!(!failed.to_string().contains("s3cret"), "{failed}");
        assert!(
            failed.to_string().starts_with("GET http://127.0.0.1:"),
            "{failed}"
        );
        let failed = endpoint.stream(Request::get("x")).await.unwrap_err();
        assert_eq!(failed.cause, status(code, "{}"));
        assert_eq!(server.lines().len(), 3, "streams are not retried");
    }
}

#[tokio::test]
async fn a_request_succeeds_once_the_server_is_back() {
    let server = Server::start(|request| match request.nth {
        0 => Answer::raw("", Then::Close),
        1 => Answer::new(503, ""),
        _ => Answer::new(200, "[]"),
    });
    let server = server.await;
    let endpoint = endpoint(&server.url(""), |_, settings| settings.retries = 2);
    let reply = endpoint
        .request(Request::post("x").json("{}"))
        .await
        .unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(server.received()[2].body, "{}");
}

#[tokio::test]
async fn refused_connections_and_unknown_hosts_are_distinguished() {
    let server = Server::start(|_| Answer::new(200, "")).await;
    let url = server.url("u:s3cret@");
    drop(server);
    let failed = endpoint(&url, |_, _| {})
        .request(Request::get(""))
        .await
        .unwrap_err();
    assert!(matches!(failed.cause, Cause::NoSession(_)), "{failed}");
    let refusing = endpoint(&url, |config, _| config.sessions = false);
    let failed = refusing.request(Request::get("")).await.unwrap_err();
    assert!(matches!(failed.cause, Cause::Connect { .. }), "{failed}");
    assert!(!failed.to_string().contains("s3cret"), "{failed}");
    let unknown = endpoint("http://nowhere.invalid/db", |_, _| {});
    let failed = unknown.request(Request::get("")).await.unwrap_err();
    assert_eq!(failed.cause, Cause::UnknownHost, "{failed}");
}

#[tokio::test]
async fn only_a_gateway_error_means_that_the_server_is_unreachable() {
    for (status, is_away) in [
        (500, false),
        (501, false),
        (502, true),
        (503, true),
        (504, true),
    ] {
        let server = Server::start(move |_| Answer::new(status, "")).await;
        for user in ["", "u:p@"] {
            let asked = endpoint(&server.url(user), |_, _| {});
            let failed = asked.request(Request::get("")).await.unwrap_err();
            assert_eq!(failed.cause.is_unreachable(), is_away, "{user} {failed}");
        }
    }
}

#[tokio::test]
async fn requests_to_a_silent_server_time_out() {
    let silence = Duration::from_millis(100);
    let server = Server::start(|_| Answer::raw("", Then::Hang)).await;
    let silent = endpoint(&server.url(""), |_, settings| {
        settings.connection_timeout = silence
    });
    let failed = silent.request(Request::get("")).await.unwrap_err();
    assert_eq!(failed.cause, Cause::Timeout(silence));
    let failed = silent.stream(Request::get("").endless()).await.unwrap_err();
    assert_eq!(failed.cause, Cause::Timeout(silence));
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345";
    let server = Server::start(|_| Answer::raw(head, Then::Hang)).await;
    let stalls = endpoint(&server.url(""), |_, settings| {
        settings.connection_timeout = silence
    });
    let failed = stalls.request(Request::get("")).await.unwrap_err();
    assert_eq!(failed.cause, Cause::Timeout(silence));
    let mut body = stalls
        .stream(Request::get("").endless())
        .await
        .unwrap()
        .body;
    assert_eq!(body.chunk().await.unwrap().unwrap(), "12345");
    assert_eq!(body.chunk().await, Err(BodyFailed::Silent(silence)));
    assert_eq!(body.chunk().await, Ok(None));
}

#[tokio::test]
async fn request_timeout_limits_whole_requests_but_not_the_changes_feed() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345";
    let server = Server::start(|_| Answer::raw(head, Then::Hang)).await;
    let limit = Duration::from_millis(100);
    let limited = endpoint(&server.url(""), |config, settings| {
        config.request_timeout = Some(limit);
        settings.connection_timeout = 3 * limit;
    });
    let failed = limited.request(Request::get("")).await.unwrap_err();
    assert!(matches!(failed.cause, Cause::Protocol(_)), "{failed}");
    let mut feed = limited
        .stream(Request::get("").endless())
        .await
        .unwrap()
        .body;
    assert!(feed.chunk().await.is_ok());
    assert_eq!(feed.chunk().await, Err(BodyFailed::Silent(3 * limit)));
    let server = Server::start(|_| Answer::raw("", Then::Hang)).await;
    let limited = endpoint(&server.url(""), |config, _| {
        config.request_timeout = Some(limit)
    });
    let failed = limited.request(Request::get("")).await.unwrap_err();
    assert_eq!(failed.cause, Cause::Timeout(limit));
}

#[tokio::test]
async fn truncated_and_malformed_answers_are_failures() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfive\r\n12345\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "garbage\r\n\r\n",
        "",
    ] {
        let server = Server::start(move |_| Answer::raw(answer, Then::Close)).await;
        let failed = server
            .endpoint()
            .request(Request::get(""))
            .await
            .unwrap_err();
        assert!(
            matches!(failed.cause, Cause::Protocol(_)),
            "{answer}: {failed}"
        );
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_retry() {
    let server = Server::start(|_| {
        let mut answer = Answer::new(200, "1");
        answer.then = Then::Close;
        answer
    });
    let server = server.await;
    let endpoint = server.endpoint();
    for _ in 0..20 {
        endpoint.request(Request::get("")).await.unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_refused() {
    for answer in [
        Answer::new(200, "12345"),
        Answer::raw(
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n12345",
            Then::Close,
        ),
    ] {
        let server = Server::start(move |_| answer.clone()).await;
        let endpoint = server.endpoint();
        let request = || Request::get("").retries(3);
        let failed = endpoint
            .request(request().reply_bytes_max(4))
            .await
            .unwrap_err();
        assert_eq!(failed.cause, Cause::TooLong(4));
        assert_eq!(server.lines().len(), 1, "a retry would not be shorter");
        let reply = endpoint
            .request(request().reply_bytes_max(5))
            .await
            .unwrap();
        assert_eq!(reply.body, "12345");
    }
}

#[tokio::test]
async fn long_bodies_arrive_whole_in_both_directions() {
    let server = Server::start(|request| Answer::new(200, &request.body)).await;
    let endpoint = server.endpoint();
    let body: String = (0..400_000).map(|nth| format!("{nth} ")).collect();
    let reply = endpoint
        .request(Request::post("").json(body.clone()))
        .await
        .unwrap();
    assert!(reply.body == body.as_bytes());
    let received = &server.received()[0];
    assert_eq!(
        received.header("content-length"),
        Some(&*body.len().to_string())
    );
    assert_eq!(received.header("transfer-encoding"), None);
}

#[tokio::test]
async fn an_answer_sent_before_the_whole_body_is_read_is_returned() {
    // On a separate thread: on this one, the connection would be reset before the answer is read.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let url = format!("http://{address}/db");
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let serving = std::thread::spawn(move || {
        while ended.try_recv().is_err() {
            let (mut stream, _) = server.accept().unwrap();
            let mut some = [0; 1024];
            let _ = stream.read(&mut some);
            let _ = stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}");
        }
    });
    let endpoint = endpoint(&url, |_, settings| settings.retries = 5);
    let body = vec![b' '; 4 << 20];
    let reply = endpoint
        .request(Request::post("_bulk_docs").json(body))
        .await
        .unwrap();
    assert_eq!(reply.status, 413);
    end.send(()).unwrap();
    drop(std::net::TcpStream::connect(address));
    serving.join().unwrap();
}

#[tokio::test]
async fn streamed_bodies_are_sent_once_with_their_length() {
    let parts = stream::iter(["ab", "cde"].map(|part| Ok(Bytes::from(part))));
    let server = Server::start(|_| Answer::new(500, "")).await;
    let endpoint = endpoint(&server.url(""), |_, settings| settings.retries = 3);
    let request = Request::put("doc").header(CONTENT_TYPE, HeaderValue::from_static("a/b"));
    let body = RequestBody::Stream {
        length: 5,
        stream: parts.boxed(),
    };
    let failed = endpoint.request(request.body(body)).await.unwrap_err();
    assert_eq!(failed.cause, status(500, ""));
    let [sent] = &server.received()[..] else {
        panic!("expected one request");
    };
    assert_eq!(
        (sent.header("content-length"), &*sent.body),
        (Some("5"), "abcde")
    );
}

#[tokio::test]
async fn an_error_in_a_streamed_body_fails_the_request() {
    let server = Server::start(|_| Answer::new(201, "")).await;
    let parts = [
        Ok(Bytes::from("ab")),
        Err(BodyFailed::Broken("the source went".into())),
    ];
    let body = RequestBody::Stream {
        length: 5,
        stream: stream::iter(parts).boxed(),
    };
    let failed = server
        .endpoint()
        .request(Request::put("doc").body(body))
        .await
        .unwrap_err();
    assert!(failed.to_string().contains("the source went"), "{failed}");
    assert!(
        server.lines().is_empty(),
        "the server never saw a whole request"
    );
}

#[tokio::test]
async fn redirects_except_303_are_followed_with_method_and_body() {
    for code in [301, 302, 303] {
        let server = Server::start(move |request| match request.nth {
            0 => Answer::with(code, &[("location", "/other?x=1")], ""),
            _ => Answer::new(200, ""),
        });
        let server = server.await;
        let request = Request::post("_bulk_docs").query("a", "b").json("{}");
        server.endpoint().request(request).await.unwrap();
        let second = &server.received()[1];
        let (line, body) = if code == 303 {
            ("GET /other?x=1", "")
        } else {
            ("POST /other?x=1", "{}")
        };
        assert_eq!((&*second.line, &*second.body), (line, body));
    }
}

#[tokio::test]
async fn redirects_are_bounded() {
    let server = Server::start(|_| Answer::with(302, &[("location", "/db/")], "")).await;
    let failed = server
        .endpoint()
        .request(Request::get(""))
        .await
        .unwrap_err();
    assert!(matches!(failed.cause, Cause::Redirect(_)), "{failed}");
    assert_eq!(server.lines().len(), 11);
    let server = Server::start(|_| Answer::new(301, "")).await;
    let failed = server
        .endpoint()
        .request(Request::get(""))
        .await
        .unwrap_err();
    assert!(matches!(failed.cause, Cause::Redirect(_)), "{failed}");
}

#[tokio::test]
async fn gzip_is_decoded() {
    // A gzip stream.
    let gzip = {
        let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
        // One stored block: its length and its complement, the text, then CRC-32 and length.
        bytes.extend([1, 5, 0, 0xfa, 0xff]);
        bytes.extend(b"hello");
        bytes.extend(0x3610_a686_u32.to_le_bytes());
        bytes.extend(5_u32.to_le_bytes());
        bytes
    };
    let compressed = gzip.clone();
    let server =
        Server::start(move |_| Answer::binary(200, &[("content-encoding", "gzip")], &compressed));
    let server = server.await;
    let endpoint = server.endpoint();
    let reply = endpoint.request(Request::get("")).await.unwrap();
    assert_eq!(reply.body, "hello");
    assert_eq!(server.received()[0].header("accept-encoding"), Some("gzip"));
}

#[tokio::test]
async fn the_changes_feed_is_requested_uncompressed() {
    let server = Server::start(|_| Answer::new(200, "")).await;
    let feed = Request::get("_changes").endless();
    server.endpoint().stream(feed).await.unwrap();
    let received = &server.received()[0];
    assert_eq!(received.header("accept-encoding"), Some("identity"));
}

#[tokio::test]
async fn requests_succeed_after_429_without_using_up_retries() {
    let server = Server::start(|request| match request.nth {
        0..3 => Answer::new(429, ""),
        _ => Answer::new(200, ""),
    });
    let server = server.await;
    let endpoint = server.endpoint();
    endpoint.request(Request::get("")).await.unwrap();
    endpoint.stream(Request::get("")).await.unwrap();
    assert_eq!(server.lines().len(), 5, "429s cost no retries");
}

#[tokio::test]
async fn retry_after_is_honoured() {
    for status in [429, 503] {
        let server = Server::start(move |request| match request.nth {
            0 => Answer::with(status, &[("retry-after", "1")], ""),
            _ => Answer::new(200, ""),
        });
        let server = server.await;
        let began = Instant::now();
        let endpoint = server.endpoint();
        // A 503 fails the request: there are no retries here.
        if endpoint.request(Request::get("")).await.is_err() {
            endpoint.request(Request::get("")).await.unwrap();
        }
        assert!(began.elapsed() >= Duration::from_secs(1), "{status}");
        assert_eq!(server.lines().len(), 2);
    }
}

#[tokio::test]
async fn a_server_with_an_overlong_response_head_is_not_unreachable() {
    for (bytes, is_read) in [(60_000, true), (1_000_000, false)] {
        let server =
            Server::start(move |_| Answer::with(200, &[("x-long", &"x".repeat(bytes))], ""));
        let server = server.await;
        let answer = server.endpoint().request(Request::get("")).await;
        assert_eq!(answer.is_ok(), is_read, "{answer:?}");
        if let Err(failed) = answer {
            assert_eq!(failed.cause, Cause::HeadTooLong);
            assert!(!failed.cause.is_unreachable());
        }
    }
}

#[tokio::test]
async fn a_streamed_body_is_not_resent_after_429() {
    let server = Server::start(|_| Answer::new(429, "")).await;
    let body = RequestBody::Stream {
        length: 1,
        stream: stream::iter([Ok(Bytes::from("x"))]).boxed(),
    };
    let failed = server
        .endpoint()
        .request(Request::put("d").body(body))
        .await
        .unwrap_err();
    assert_eq!(failed.cause, status(429, ""));
}

#[tokio::test]
async fn at_the_rate_limit_requests_fail_at_once_with_max_backoff() {
    let server = Server::start(|_| Answer::new(200, "")).await;
    let endpoint = server.endpoint();
    let key = (endpoint.0.key.clone(), Method::GET);
    for nth in 0..60 {
        endpoint
            .0
            .http
            .limiter(|limiter, now| limiter.failure(&key, now + nth * 100));
    }
    let failed = endpoint
        .request(Request::get("").retries(5))
        .await
        .unwrap_err();
    assert!(failed.is_max_backoff());
    assert!(
        endpoint
            .stream(Request::get(""))
            .await
            .unwrap_err()
            .is_max_backoff()
    );
    assert!(server.lines().is_empty());
    endpoint.request(Request::post("")).await.unwrap();
}

#[tokio::test]
async fn requests_in_flight_are_bounded_and_others_wait_in_order() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345";
    let server = Server::start(move |request| match request.nth {
        0..3 => Answer::raw(head, Then::Hang),
        _ => Answer::new(200, ""),
    });
    let server = server.await;
    let endpoint = endpoint(&server.url(""), |_, settings| settings.http_connections = 3);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(endpoint.stream(Request::get("held")).await.unwrap());
    }
    let order = Arc::new(AtomicUsize::new(0));
    let waiting: Vec<_> = (0..3)
        .map(|nth| {
            let (endpoint, order) = (endpoint.clone(), order.clone());
            async move {
                endpoint
                    .request(Request::get(format!("{nth}")))
                    .await
                    .unwrap();
                assert_eq!(order.fetch_add(1, Ordering::Relaxed), nth);
            }
        })
        .collect();
    let mut waiting = Box::pin(futures_util::future::join_all(waiting));
    let nothing = tokio::time::timeout(Duration::from_millis(50), &mut waiting);
    assert!(nothing.await.is_err(), "the requests wait");
    assert_eq!(server.lines().len(), 3);
    held.pop();
    waiting.await;
    assert_eq!(server.lines()[3..], ["GET /db/0", "GET /db/1", "GET /db/2"]);
}

#[test]
fn ids_are_encoded_except_for_the_slash_of_design_and_local_documents() {
    assert_eq!(encode_doc_id("a/b c+é"), "a%2Fb%20c%2B%C3%A9");
    assert_eq!(encode_doc_id("_design/a/b"), "_design/a%2Fb");
    assert_eq!(encode_doc_id("_local/a b"), "_local/a%20b");
}

#[tokio::test]
async fn databases_that_differ_only_in_a_secret_have_distinct_names_without_it() {
    let tag = |url| endpoint(url, |_, _| {}).tag();
    let (one, other) = (
        tag("http://h/db?token=s3cret"),
        tag("http://h/db?token=0ther"),
    );
    assert!(one != other && one == tag("http://h/db?token=s3cret"));
    assert!(
        one.starts_with("http://h/db?token=***** ") && !one.contains("s3cret"),
        "{one}"
    );
    assert_eq!(tag("http://u:p@h/db"), "http://h/db/");
}

#[tokio::test]
async fn threads_have_their_own_connections_and_share_counters() {
    let server = Server::start(|_| Answer::new(200, "{}")).await;
    let body = json!({"source": server.url(""), "target": server.url("")});
    let replication = crate::testing::replication(&body);
    let here = Http::new(Default::default(), &crate::testing::logger()).unwrap();
    let there = here.with_own_connections();
    for http in [&here, &there, &here, &there] {
        let settings = HttpSettings::of_source(&replication.options, Duration::from_secs(120));
        let endpoint = http.endpoint(&replication.source, settings).unwrap();
        endpoint.request(Request::get("")).await.unwrap();
    }
    let received = server.received();
    let connections: Vec<usize> = received.iter().map(|request| request.connection).collect();
    assert_eq!(connections[0], connections[2]);
    assert_eq!(connections[1], connections[3]);
    assert_ne!(connections[0], connections[1]);
    let requests = ("requests", 4);
    assert!(here.counters().all().contains(&requests));
}

#[tokio::test]
async fn any_answer_except_a_gateway_error_means_that_a_server_is_up() {
    for (status, answers) in [
        (200, true),
        (401, true),
        (404, true),
        (502, false),
        (503, false),
    ] {
        let server = Server::start(move |_| Answer::new(status, "{}")).await;
        let url = server.url("bob:s3cret@");
        let spec = spec(&json!({"url": url, "headers": {"X-Own": "secret"}}));
        let http = Http::new(Default::default(), &crate::testing::logger()).unwrap();
        let replication = json!({"source": server.url(""), "target": server.url("")});
        let replication = crate::testing::replication(&replication);
        let settings = HttpSettings::of_source(&replication.options, Duration::from_secs(120));
        let within = Duration::from_secs(30);
        assert_eq!(
            http.answers(&spec, settings, within).await,
            answers,
            "{status}"
        );
        let [asked] = &server.received()[..] else {
            panic!("expected one request, without a login");
        };
        assert_eq!(asked.line, "GET /");
        assert_eq!(asked.header("x-own"), None);
        assert_eq!(asked.header("authorization"), None);
    }
}
