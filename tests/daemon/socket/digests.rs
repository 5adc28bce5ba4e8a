//! Design documents that calls name by digest, on the socket and over HTTP.

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::daemon::Client;
use crate::support::http_client::Web;

fn text(id: &str) -> String {
    // Not compact, and with more members than are taught.
    format!(
        r#"{{"_id": "_design/{id}", "_local_seq": 7, "views": {{"v": {{"map": "function(doc) {{ emit(1) }}"}}}},
            "shows": {{"s": "function(doc, req) {{ return 'shown' }}"}},
            "updates": {{"u": "function(doc, req) {{ return [doc, 'updated'] }}"}},
            "lists": {{"l": "function(head, req) {{ send('listed') }}"}},
            "filters": {{"f": "function(doc, req) {{ return true }}"}},
            "rewrites": "function(req) {{ return 'to' }}", "validate_doc_update": "function() {{}}"}}"#
    )
    .replace('\n', " ")
}

fn sha256(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text))
}

fn reference(id: &str, sha256: &str) -> String {
    json!({"_id": format!("_design/{id}"), "sha256": sha256}).to_string()
}

fn arguments(db: &str, ddoc: &str, more: &str) -> String {
    format!(r#"{{"id":1,"db":"{db}","ddoc":{ddoc},{more}}}"#)
}

fn call(client: &mut Client, name: &str, arguments: &str) -> Value {
    let line = arguments.replacen('{', &format!("{{\"call\":\"{name}\","), 1);
    client.send_raw(format!("{line}\n").as_bytes());
    client.reply()
}

/// Every call that takes a design document, its HTTP path, and its other arguments.
const CALLS: [(&str, &str, &str); 8] = [
    (
        "ddoc_prompt",
        "ddoc",
        r#""path":["shows","s"],"args":[null,{}]"#,
    ),
    ("validate_docs", "validate", r#""docs":[{"newDoc":{}}]"#),
    ("filter_docs", "filter", r#""name":"f","docs":[{}]"#),
    ("filter_view", "filter_view", r#""name":"v","docs":[{}]"#),
    ("show", "show", r#""name":"s""#),
    ("update", "update", r#""name":"u""#),
    ("rewrite", "rewrite", r#""req":{}"#),
    ("list", "list", r#""name":"l","rows":[]"#),
];

#[test]
fn every_call_accepts_the_digest_of_a_design_document_that_was_sent_before() {
    let web = Web::start("");
    let mut client = web.service.connect();
    let limits = client.ok(&json!({"id": 1, "call": "limits"}));
    assert_eq!(limits["ddoc_sha256"], true);
    let text = text("d");
    let digest = sha256(&text);
    for (name, path, more) in CALLS {
        let whole = arguments("shop", &text, more);
        let expected = call(&mut client, name, &whole);
        assert!(expected["ok"] != Value::Null, "{name}: {expected}");
        for digest in [digest.clone(), digest.to_uppercase()] {
            let short = arguments("shop", &reference("d", &digest), more);
            assert_eq!(call(&mut client, name, &short), expected, "{name}");
            let answer = web.send("POST", &format!("/_query/{path}"), &short).ok();
            assert_eq!(answer["ok"], expected["ok"], "{path}");
        }
    }
    let lent = arguments("shop", &reference("d", &digest), r#""timeout_ms":9000"#);
    let lent = call(&mut client, "get_proc", &lent);
    let proc = lent["ok"]["proc"].as_str().unwrap();
    let prompt = json!(["ddoc", "_design/d", ["shows", "s"], [null, {}]]);
    assert_eq!(client.prompt(proc, prompt)[1]["body"], "shown");
    assert!(client.ret_proc(proc));
    let mut stream = web.connect();
    stream.begin_chunked("/_query/list", "application/x-ndjson");
    let head = arguments("shop", &reference("d", &digest), r#""name":"l""#);
    stream.send_chunk(&format!("{head}\n"));
    stream.end_chunks();
    assert_eq!(stream.response().status, 200);
    web.service.stop();
}

#[test]
fn a_digest_is_unknown_until_its_text_is_sent_for_the_same_database_and_id() {
    let web = Web::start("");
    let mut client = web.service.connect();
    let text = text("d");
    let digest = sha256(&text);
    let by_digest =
        |db: &str, id: &str, digest: &str| arguments(db, &reference(id, digest), r#""name":"s""#);
    let unknown = |client: &mut Client, db: &str, id: &str, digest: &str| {
        let short = by_digest(db, id, digest);
        let reply = call(client, "show", &short);
        let error = &reply["error"];
        let members = ["name", "fault", "retry"].map(|name| error[name].clone());
        assert_eq!(
            members,
            [json!("unknown_ddoc"), json!("client"), json!(false)]
        );
        let answer = web.send("POST", "/_query/show", &short);
        let reason = answer.reason(404, "unknown_ddoc");
        assert!(reason.contains("send the whole text"), "{reason}");
        assert_eq!(error["reason"], reason);
    };
    unknown(&mut client, "shop", "d", &digest);
    let whole = arguments("shop", &text, r#""name":"s""#);
    web.send("POST", "/_query/show", &whole).ok();
    let known = call(&mut client, "show", &by_digest("shop", "d", &digest));
    assert_eq!(known["ok"]["body"], "shown");
    unknown(&mut client, "till", "d", &digest);
    unknown(&mut client, "shop", "e", &digest);
    unknown(&mut client, "shop", "d", &sha256(&format!("{text} ")));
    for bad in [
        "",
        "0a",
        &digest[1..],
        &format!("{digest}0"),
        &digest.replace(['0', '1', '2', '3'], "g"),
    ] {
        let malformed = by_digest("shop", "d", bad);
        let reply = call(&mut client, "show", &malformed);
        assert_eq!(reply["error"]["name"], "bad_request", "{bad}");
        let reason = web
            .send("POST", "/_query/show", &malformed)
            .reason(400, "bad_request");
        assert!(
            reason.contains("'sha256' must be a string of 64 hexadecimal digits"),
            "{reason}"
        );
    }
    // Another text of the same id leaves the first valid.
    let changed = text.replace("shown", "changed");
    let whole = arguments("shop", &changed, r#""name":"s""#);
    assert_eq!(call(&mut client, "show", &whole)["ok"]["body"], "changed");
    for (digest, body) in [(digest, "shown"), (sha256(&changed), "changed")] {
        let reply = call(&mut client, "show", &by_digest("shop", "d", &digest));
        assert_eq!(reply["ok"]["body"], body);
    }
    web.service.stop();
}

#[test]
fn least_recently_used_texts_are_evicted_to_make_room() {
    let web = Web::start("");
    let mut client = web.service.connect();
    // A text is kept once it is read, so no process is needed.
    let nowhere = r#""name":"s","pool":"none""#;
    let mut name = |db: &str, ddoc: &str| {
        let reply = call(&mut client, "show", &arguments(db, ddoc, nowhere));
        reply["error"]["name"].as_str().unwrap().to_owned()
    };
    let large = format!(r#"{{"_id":"_design/d","x":"{}"}}"#, "x".repeat(20 << 20));
    let short = reference("d", &sha256(&large));
    for db in ["a", "b", "c"] {
        assert_eq!(name(db, &large), "not_found");
    }
    assert_eq!(name("a", &short), "not_found");
    assert_eq!(name("d", &large), "not_found");
    let names = ["a", "b", "c", "d"].map(|db| name(db, &short));
    assert_eq!(
        names,
        ["not_found", "unknown_ddoc", "not_found", "not_found"]
    );
    web.service.stop();
}
