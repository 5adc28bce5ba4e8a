//! Changes feeds of the replicator database: normal, longpoll, continuous and eventsource.

use serde_json::{Value, json};

use crate::support::daemon::wait_until;
use crate::support::http_client::Web;
use crate::support::store::{create, post};

/// Each document has its own target: of two for the same replication, one fails.
fn body(id: &str) -> Value {
    let target = format!("http://127.0.0.1:1/{id}");
    json!({"source": "http://127.0.0.1:1/a", "target": target, "continuous": true})
}

fn start() -> Web {
    Web::start("[replicator]\nmax_jobs = 0\n")
}

fn ids(changes: &Value) -> Vec<&str> {
    let rows = changes["results"].as_array().unwrap().iter();
    rows.map(|row| row["id"].as_str().unwrap()).collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario from start to end")]
fn each_document_is_listed_once_at_its_last_update() {
    let web = start();
    let empty = web.get("/_replicator/_changes").ok();
    assert_eq!(
        (&empty["results"], &empty["pending"]),
        (&json!([]), &json!(0))
    );
    let rev = create(&web, "a", &body("a"));
    create(&web, "b", &body("b"));
    let gone = web
        .send("DELETE", &format!("/_replicator/a?rev={rev}"), "")
        .ok();
    let all = web.get("/_replicator/_changes?style=all_docs").ok();
    assert_eq!(ids(&all), ["b", "a"]);
    let last = &all["results"][1];
    assert_eq!(last["changes"], json!([{"rev": gone["rev"]}]));
    assert_eq!(
        (&last["deleted"], &last["seq"]),
        (&json!(true), &all["last_seq"])
    );
    let first = web
        .get("/_replicator/_changes?limit=1&include_docs=true")
        .ok();
    assert_eq!((ids(&first), &first["pending"]), (vec!["b"], &json!(1)));
    assert_eq!(first["results"][0]["doc"]["source"], body("b")["source"]);
    let seq = first["last_seq"].as_str().unwrap();
    assert_eq!(
        ids(&web.get(&format!("/_replicator/_changes?since={seq}")).ok()),
        ["a"]
    );
    assert_eq!(
        ids(&web.get("/_replicator/_changes?since=now").ok()),
        Vec::<&str>::new()
    );
    let foreign = web.get("/_replicator/_changes?since=3-ffffffff").ok();
    assert_eq!(
        ids(&foreign),
        ["b", "a"],
        "sequence numbers of another store are ignored"
    );
    let (_, mark) = all["last_seq"].as_str().unwrap().split_once('-').unwrap();
    for beyond in ["99".to_owned(), format!("99-{mark}")] {
        let lost = web
            .get(&format!("/_replicator/_changes?since={beyond}"))
            .ok();
        assert_eq!(
            ids(&lost),
            ["b", "a"],
            "a sequence number beyond the last is ignored"
        );
    }
    assert_eq!(
        ids(&web.get("/_replicator/_changes?descending=true").ok()),
        ["a", "b"]
    );
    let newest = web
        .get("/_replicator/_changes?descending=true&limit=1")
        .ok();
    assert_eq!(ids(&newest), ["a"]);
    assert_eq!(newest["last_seq"], newest["results"][0]["seq"]);
    let some = json!({"doc_ids": ["b", "x"]});
    let found = "/_replicator/_changes?filter=_doc_ids&descending=true&limit=1";
    assert_eq!(ids(&post(&web, found, &some).ok()), ["b"]);
    assert_eq!(
        ids(&post(&web, "/_replicator/_changes?filter=_doc_ids", &some).ok()),
        ["b"]
    );
    let wanted = json!({"selector": {"target": "http://127.0.0.1:1/b"}});
    assert_eq!(
        ids(&post(&web, "/_replicator/_changes?filter=_selector", &wanted).ok()),
        ["b"]
    );
    create(&web, "_design/d", &json!({}));
    assert_eq!(
        ids(&web.get("/_replicator/_changes?filter=_design").ok()),
        ["_design/d"]
    );
    post(&web, "/_replicator/_changes?filter=_selector", &json!({})).reason(400, "bad_request");
    web.get("/_replicator/_changes?since=x")
        .reason(400, "bad_request");
    web.get("/_replicator/_changes?filter=a/b")
        .reason(501, "not_implemented");
    web.service.stop();
}

#[test]
fn documents_are_all_listed_even_if_they_take_several_reads() {
    let web = start();
    let docs: Vec<Value> = (0..250)
        .map(|number| {
            let id = format!("d{number:03}");
            let mut doc = body(&id);
            doc["_id"] = id.into();
            doc
        })
        .collect();
    assert_eq!(
        post(&web, "/_replicator/_bulk_docs", &json!({"docs": docs})).status,
        201
    );
    let all = web.get("/_replicator/_changes").ok();
    let expected: Vec<String> = (0..250).map(|number| format!("d{number:03}")).collect();
    assert_eq!(ids(&all), expected);
    web.service.stop();
}

#[test]
fn a_longpoll_waits_for_the_next_update() {
    let web = start();
    create(&web, "a", &body("a"));
    let at_once = web.get("/_replicator/_changes?feed=longpoll").ok();
    assert_eq!(ids(&at_once), ["a"]);
    let mut connection = web.connect();
    let seq = at_once["last_seq"].as_str().unwrap();
    let path = format!("/_replicator/_changes?feed=longpoll&since={seq}");
    connection.send("GET", &path, &[], "");
    assert_eq!(connection.head().status, 200);
    let mut text = connection.chunk().unwrap();
    create(&web, "b", &body("b"));
    while let Some(chunk) = connection.chunk() {
        text.push_str(&chunk);
    }
    assert_eq!(ids(&serde_json::from_str(&text).unwrap()), ["b"]);
    let nothing = web.get("/_replicator/_changes?feed=longpoll&since=now&timeout=1");
    assert_eq!(ids(&nothing.ok()), Vec::<&str>::new());
    web.service.stop();
}

#[test]
fn continuous_and_eventsource_feeds_report_every_update_and_resume() {
    let web = start();
    create(&web, "a", &body("a"));
    let mut connection = web.connect();
    connection.send(
        "GET",
        "/_replicator/_changes?feed=continuous&heartbeat=50",
        &[],
        "",
    );
    assert_eq!(connection.head().status, 200);
    let first: Value = serde_json::from_str(&connection.chunk().unwrap()).unwrap();
    assert_eq!(first["id"], "a");
    assert_eq!(connection.chunk().unwrap(), "\n", "a heartbeat");
    create(&web, "b", &body("b"));
    let mut next = String::new();
    wait_until("the next update", || {
        next = connection.chunk().unwrap();
        next != "\n"
    });
    assert_eq!(serde_json::from_str::<Value>(&next).unwrap()["id"], "b");
    let events = web.get("/_replicator/_changes?feed=eventsource&timeout=1&limit=1");
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    let lines: Vec<&str> = events.body.lines().collect();
    let row = lines[0].strip_prefix("data: ").unwrap();
    let row: Value = serde_json::from_str(row).unwrap();
    assert_eq!(lines[1], format!("id: {}", row["seq"]));
    let last = [("Last-Event-ID", row["seq"].as_str().unwrap())];
    let path = "/_replicator/_changes?feed=eventsource&timeout=1&limit=1";
    let next = web.connect().request("GET", path, &last, "");
    assert!(next.body.contains("\"id\":\"b\""), "{next:?}");
    let timed = web.get("/_replicator/_changes?feed=continuous&timeout=1&since=now");
    assert!(timed.body.starts_with("{\"last_seq\":\"2-"), "{timed:?}");
    web.service.stop();
}

#[test]
fn a_feed_sends_heartbeats_while_documents_change_that_its_filter_skips() {
    let web = start();
    let mut feed = web.connect();
    let path = "/_replicator/_changes?feed=continuous&heartbeat=1000&filter=_design";
    feed.send("GET", path, &[], "");
    feed.stream.set_nonblocking(true).unwrap();
    let mut others = 0;
    // The answer's head is sent with the first heartbeat.
    wait_until("a heartbeat", || {
        others += 1;
        let other = format!("b{others}");
        create(&web, &other, &body(&other));
        feed.stream.peek(&mut [0]).is_ok()
    });
    feed.stream.set_nonblocking(false).unwrap();
    assert_eq!(feed.head().status, 200);
    assert_eq!(feed.chunk().unwrap(), "\n");
    web.service.stop();
}
