//! The client library against a running service, from plain tokio.

use std::path::PathBuf;

use futures_util::future::join_all;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use settee::client::{Client, ClientError, DdocIn, Operator, ReturnStatus, TakeFrom, attach};
use settee::query_server::status::DaemonStatus;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::UnixStream;

use crate::support::daemon::Service;

#[path = "../../../crates/client/examples/map.rs"]
#[allow(dead_code, reason = "its `main` reads the command line")]
mod example;

#[tokio::test]
async fn the_example_of_the_crate_maps_a_document() {
    let service = Service::start("");
    let rows = example::rows(&service.socket().display().to_string()).await;
    assert_eq!(rows.unwrap(), r#"[[[["Alma",7]]]]"#);
    service.stop();
}

#[tokio::test]
async fn a_process_is_borrowed_prompted_and_given_back() {
    let service = Service::start("");
    let client = Client::connect(service.socket()).await.unwrap();
    let borrowed = client.get_proc("JavaScript", None).await.unwrap();
    assert_eq!(borrowed.lang, "javascript");
    let proc = borrowed.proc.as_str();
    let prompts =
        (0..100).map(|number| json!(["rereduce", ["function(k,v){return v[0]}"], [number], ""]));
    client
        .prompt(proc, &json!(["reset", borrowed.config]), None)
        .await
        .unwrap();
    let prompts: Vec<_> = prompts.collect();
    // All at once on one connection: each caller gets its own answer.
    let answers = join_all(
        prompts
            .iter()
            .map(|prompt| client.prompt(proc, prompt, None)),
    )
    .await;
    for (number, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.unwrap().get(), format!("[true,[{number}]]"));
    }
    let operator = Operator::at(service.socket());
    let status: DaemonStatus = operator.get("/_status").await.unwrap();
    assert_eq!((status.proc_count, status.pools[0].used), (1, 1));
    assert!(client.ret_proc(proc, ReturnStatus::Ok).await.unwrap());
    assert!(!client.ret_proc(proc, ReturnStatus::Ok).await.unwrap());
    let reload = "/_reload_query_servers";
    let done: Value = operator.post(reload, &()).await.unwrap();
    assert_eq!(done["ok"], true);
    let system: Value = operator.get("/_node/_local/_system").await.unwrap();
    assert_eq!(system["stale_proc_count"], 0);
    let Err(ClientError::Service(error)) = operator.get::<Value>("/_pools/none").await else {
        panic!("there is no such pool");
    };
    assert_eq!((&*error.name, error.retry), ("not_found", false));
}

#[tokio::test]
async fn errors_have_a_name_a_fault_and_a_retry_flag() {
    let service = Service::start("");
    let client = Client::connect(service.socket()).await.unwrap();
    let Err(ClientError::Service(error)) = client.get_proc("klingon", None).await else {
        panic!("the language is unknown");
    };
    assert_eq!(
        (error.name.as_str(), error.fault.as_str(), error.retry),
        ("unknown_query_language", "client", false)
    );
    let proc = client.get_proc("javascript", None).await.unwrap().proc;
    let Err(ClientError::Service(error)) = client
        .prompt(&proc, &json!(["add_fun", "function("]), None)
        .await
    else {
        panic!("the function does not compile");
    };
    assert_eq!(
        (error.name.as_str(), error.phase.as_str()),
        ("compilation_error", "prompt")
    );
}

#[tokio::test]
async fn a_function_of_a_design_document_is_called_in_one_call() {
    let service = Service::start("");
    let client = Client::connect(service.socket()).await.unwrap();
    let text =
        r#"{"_id":"_design/d","_rev":"1-a","shows":{"s":"function(d,r){return d.n + 1 + ''}"}}"#;
    let ddoc = DdocIn {
        db: "db",
        ddoc: serde_json::from_str::<&RawValue>(text).unwrap(),
    };
    let answer = client
        .ddoc_prompt(ddoc, &["shows", "s"], &json!([{"n": 41}, {}]))
        .await
        .unwrap();
    assert_eq!(answer.get(), r#"["resp",{"body":"42"}]"#);
}

// The test blocks its thread while it waits; the connection needs another one to close on.
#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_client_gives_back_what_it_held() {
    let service = Service::start("");
    let client = Client::connect(service.socket()).await.unwrap();
    client.get_proc("javascript", None).await.unwrap();
    service.wait_for_first_pool("held", |pool| pool["used"] == 1);
    drop(client);
    service.wait_for_first_pool("given back", |pool| pool["used"] == 0);
}

#[tokio::test]
async fn calls_end_when_the_service_does() {
    let mut service = Service::start("");
    let client = Client::connect(service.socket()).await.unwrap();
    let ret_proc = || client.ret_proc("none", ReturnStatus::Ok);
    assert!(!ret_proc().await.unwrap());
    service.kill();
    for _ in 0..2 {
        assert!(matches!(ret_proc().await, Err(ClientError::Closed)));
    }
}

#[tokio::test]
async fn attaching_gives_the_plain_streams_of_a_process() {
    let service = Service::start("");
    let mut attached = attach(service.socket(), TakeFrom::Language("javascript"))
        .await
        .unwrap();
    assert_eq!(attached.proc.pool.as_deref(), Some("javascript"));
    attached
        .input
        .write_all(b"[\"reset\"]\n[\"add_fun\",\"function(d){}\"]\n")
        .await
        .unwrap();
    attached.input.shutdown().await.unwrap();
    let mut text = String::new();
    attached.output.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "true\ntrue\n");
}

#[tokio::test]
async fn a_long_design_document_is_sent_once_per_connection_and_again_after_a_restart() {
    let mut service = Service::start("");
    let shows = r#"{"s":"function(doc, req) { return 'shown' }"}"#;
    let text = format!(
        r#"{{"_id":"_design/d","shows":{shows},"x":"{}"}}"#,
        "x".repeat(1 << 20)
    );
    let ddoc = serde_json::from_str::<&RawValue>(&text).unwrap();
    let ddoc = DdocIn { db: "db", ddoc };
    for _ in 0..2 {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let counting = tokio::spawn(count(theirs, service.socket()));
        let client = Client::on(ours);
        for _ in 0..10 {
            let response = client.show(ddoc, "s", None, &json!({})).await.unwrap();
            assert!(response.get().contains("shown"));
            let lent = client.get_proc_for(ddoc, None).await.unwrap();
            client.ret_proc(&lent.proc, ReturnStatus::Ok).await.unwrap();
        }
        drop(client);
        let sent = counting.await.unwrap();
        assert!((1 << 20..2 << 20).contains(&sent), "{sent} bytes");
        service = Service::start_in(service.stop_and_keep(), "");
    }
    service.stop();
}

/// Relays between a client and a service; returns how many bytes the client has sent.
async fn count(client: UnixStream, service: PathBuf) -> u64 {
    let mut service = UnixStream::connect(service).await.unwrap();
    let mut client = client;
    let copied = copy_bidirectional(&mut client, &mut service).await;
    copied.unwrap().0
}
