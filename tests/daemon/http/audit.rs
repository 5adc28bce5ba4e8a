//! The audit log: each order and change is one record, whatever its origin.

use std::fs;

use serde_json::{Value, json};

use super::admins::{ask, basic};
use crate::support::daemon::{Order, Service, directory, wait_until};
use crate::support::http_client::{Response, Web};

const USERS: &str = "[users.root]\npassword = \"open sesame\"\nroles = [\"admin\"]\n\
    [users.olga]\npassword = \"open sesame\"\nroles = [\"operator\"]\n\
    [users.vera]\npassword = \"open sesame\"\nroles = [\"viewer\"]\n";

const POOL: &str = "[pools.p]\nlanguage = \"javascript\"\nmax = 3\n";

fn by(web: &Web, name: &str, method: &str, path: &str, body: &str) -> Response {
    let credentials = basic(name, "open sesame");
    let headers = [("Authorization", &*credentials), ("X-Request-Id", "r-1")];
    ask(web, method, path, &headers, body)
}

/// Returns the records, the latest first.
fn records(web: &Web) -> Vec<Value> {
    let page = web.service.connect().operator.get("/_audit");
    page["records"].as_array().unwrap().clone()
}

/// Asserts that exactly one record was added, and returns it.
#[track_caller]
fn next(web: &Web, known: &mut usize, wanted: &Value) -> Value {
    let records = records(web);
    *known += 1;
    assert_eq!(records.len(), *known, "{:?}", records.first());
    let record = records[0].clone();
    for (key, value) in wanted.as_object().unwrap() {
        assert_eq!(record[key], *value, "{key}: {record}");
    }
    record
}

#[test]
fn an_order_for_a_pool_is_one_record_with_user_origin_action_count_and_old_value() {
    let web = Web::start(&format!("{USERS}{POOL}"));
    let operator = web.service.connect().operator;
    let mut known = 0;
    let change = |path| Order::new("PUT", path, json!({"max": 5}));
    operator.ok(&change("/_pools/p"));
    let record = next(
        &web,
        &mut known,
        &json!({"what": "reconfigure_pool", "on": "p", "count": 1, "before": {"max": 3},
            "asked": {"max": 5}, "error": null}),
    );
    let uid = rustix::process::getuid().as_raw();
    let pid = std::process::id();
    assert_eq!(record["from"], format!("http uid {uid} pid {pid}"));
    let who = record["who"].as_str().unwrap();
    assert!(!who.is_empty() && who != "anyone", "{record}");
    assert!(record["ts"].as_str().unwrap().ends_with('Z'), "{record}");

    operator.ok(&change("/_pools/p?dry_run=true"));
    by(
        &web,
        "olga",
        "PUT",
        "/_pools/p?dry_run=true",
        r#"{"max": 9}"#,
    )
    .ok();
    by(&web, "olga", "GET", "/_pools/p", "").ok();

    by(&web, "olga", "PUT", "/_pools/p", r#"{"max": 4}"#).ok();
    let record = next(
        &web,
        &mut known,
        &json!({"who": "olga", "what": "reconfigure_pool", "on": "p", "count": 1,
            "before": {"max": 5}, "asked": {"max": 4}, "error": null, "request_id": "r-1"}),
    );
    let from = record["from"].as_str().unwrap();
    assert!(from.starts_with("http 127.0.0.1:"), "{record}");

    let body = r#"{"language": "javascript", "max": 2}"#;
    assert_eq!(by(&web, "olga", "PUT", "/_pools/q", body).status, 201);
    let added = json!({"who": "olga", "what": "add_pool", "on": "q", "before": null,
        "asked": {"language": "javascript", "max": 2}});
    next(&web, &mut known, &added);
    by(&web, "olga", "DELETE", "/_pools/q?mode=immediate", "").ok();
    let removed = json!({"what": "remove_pool", "on": "q", "count": 1,
        "before": {"language": "javascript", "max": 2}, "asked": {"mode": "immediate"}});
    next(&web, &mut known, &removed);
    by(&web, "olga", "DELETE", "/_pools/q", "").error(404, "not_found");
    let missing = json!({"what": "remove_pool", "on": "q", "count": null, "error": "not_found"});
    next(&web, &mut known, &missing);
    by(&web, "olga", "POST", "/_reload_query_servers", "").ok();
    next(
        &web,
        &mut known,
        &json!({"what": "reload", "on": "", "count": 0}),
    );
    by(&web, "vera", "PUT", "/_pools/p", r#"{"max": 1}"#).error(403, "forbidden");
    let refused = json!({"who": "vera", "what": "put_pool", "on": "p", "count": null,
        "before": null, "asked": null, "error": "forbidden"});
    next(&web, &mut known, &refused);

    // A viewer may not read the audit log.
    by(&web, "vera", "GET", "/_audit", "").error(403, "forbidden");
    let page = by(&web, "olga", "GET", "/_audit?limit=1", "").ok();
    assert_eq!(page["total_rows"], known);
    assert_eq!(page["records"], json!([records(&web)[0]]));
    web.service.stop();
}

#[test]
fn a_change_of_the_configuration_is_one_record_with_the_old_values() {
    let web = Web::start(&format!("{USERS}{POOL}"));
    let mut known = 0;
    let path = "/_node/_local/_config/log/level";
    by(&web, "root", "PUT", path, "\"debug\"").ok();
    let set = json!({"who": "root", "what": "set_config", "on": "log/level", "count": 1,
        "before": {"[log] level": "info"}, "asked": {"[log] level": "debug"}, "error": null});
    next(&web, &mut known, &set);
    by(&web, "root", "DELETE", path, "").ok();
    next(
        &web,
        &mut known,
        &json!({"what": "unset_config", "before": {"[log] level": "debug"}}),
    );

    let config = web.service.path("settee.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("max = 3", "max = 7")).unwrap();
    web.service.signal("HUP");
    wait_until("the record of the reload", || records(&web).len() > known);
    let reloaded = json!({"who": "anyone", "from": "signal HUP", "what": "reload_config", "on": "", "count": 1,
        "before": {"[pools.p] max": "3"}, "asked": {"[pools.p] max": "7"}, "error": null});
    next(&web, &mut known, &reloaded);
    web.service.connect().operator.reload_config();
    next(
        &web,
        &mut known,
        &json!({"what": "reload_config", "count": 0, "before": null}),
    );
    fs::write(&config, "[log]\nlevel = 7\n").unwrap();
    by(&web, "root", "POST", "/_node/_local/_config/_reload", "");
    let refused = json!({"who": "root", "what": "reload_config", "error": "bad_request"});
    next(&web, &mut known, &refused);
    // A changed password is recorded without its value.
    let other = text
        .replace("max = 3", "max = 7")
        .replacen("open sesame", "another secret", 1);
    fs::write(&config, other).unwrap();
    web.service.connect().operator.reload_config();
    let record = next(
        &web,
        &mut known,
        &json!({"what": "reload_config", "count": 1}),
    );
    let record = record.to_string();
    assert!(record.contains("[users.root] password"), "{record}");
    assert!(
        !record.contains("sesame") && !record.contains("secret"),
        "{record}"
    );
    web.service.stop();
}

/// A replication between unreachable servers, with a password.
fn replication() -> Value {
    json!({"source": "http://u:hidden@127.0.0.1:9/a", "target": "http://u:hidden@127.0.0.1:9/b", "continuous": true})
}

#[test]
fn an_order_for_jobs_is_one_record_with_the_old_states() {
    let web = Web::start(USERS);
    let doc = replication().to_string();
    by(&web, "root", "PUT", "/_replicator/one", &doc);
    wait_until("the job", || {
        by(&web, "root", "GET", "/_scheduler/jobs/one", "").status == 200
    });
    let mut known = 1;
    let path = "/_scheduler/jobs/one/_priority";
    by(&web, "olga", "POST", path, r#"{"priority": 5}"#).ok();
    let ordered = json!({"who": "olga", "what": "set_job_priority", "on": "one", "count": 1,
        "asked": {"priority": 5}});
    let record = next(&web, &mut known, &ordered);
    assert_eq!(record["before"]["priority"], 0, "{record}");
    assert!(record["before"]["state"].is_string(), "{record}");
    let mut order = json!({"order": "pause", "select": {"match": ["on*"]}, "dry_run": true});
    let path = "/_scheduler/_bulk";
    by(&web, "olga", "POST", path, &order.to_string()).ok();
    order["dry_run"] = false.into();
    by(&web, "olga", "POST", path, &order.to_string()).ok();
    let ordered = json!({"who": "olga", "what": "order_jobs", "on": r#"{"match":["on*"]}"#, "count": 1,
        "asked": {"order": "pause", "jobs": ["one"]}, "error": null});
    let record = next(&web, &mut known, &ordered);
    let states = record["before"].as_object().unwrap();
    assert_eq!(states.values().next(), Some(&json!(1)), "{record}");
    let order = json!({"order": "resume", "select": {"all": true}, "expect": 0});
    let order = Order::new("POST", path, order);
    web.service.connect().operator.error(&order);
    let refused =
        json!({"what": "order_jobs", "on": r#"{"all":true}"#, "count": null, "error": "conflict"});
    next(&web, &mut known, &refused);
    web.service.stop();
}

#[test]
fn a_change_of_documents_is_one_record_without_their_contents() {
    let web = Web::start(USERS);
    let mut known = 0;
    let doc = replication();
    let written = by(&web, "root", "PUT", "/_replicator/one", &doc.to_string()).json();
    let put = json!({"who": "root", "what": "put_doc", "on": "one", "count": 1, "before": null,
        "asked": null});
    next(&web, &mut known, &put);
    let mut two = doc.clone();
    two["_id"] = "two".into();
    let bulk = json!({"docs": [two, {"_id": "one"}]}).to_string();
    by(&web, "root", "POST", "/_replicator/_bulk_docs", &bulk);
    let written_many = json!({"what": "bulk_docs", "count": 1, "asked": {"documents": ["two"]},
        "error": "1 refused"});
    next(&web, &mut known, &written_many);
    let rev = written["rev"].as_str().unwrap();
    let path = format!("/_replicator/one?rev={rev}");
    by(&web, "root", "DELETE", &path, "").ok();
    let deleted = json!({"what": "delete_doc", "on": "one", "count": 1, "before": {"rev": rev}});
    next(&web, &mut known, &deleted);
    // Another target: the job of the deleted document may run a moment longer.
    let mut other = doc.clone();
    other["target"] = json!("http://127.0.0.1:9/c");
    let begun = by(&web, "root", "POST", "/_replicate", &other.to_string()).json();
    let replicated = json!({"what": "replicate", "on": begun["_local_id"], "count": 1, "asked":
        {"source": "http://127.0.0.1:9/a", "target": "http://127.0.0.1:9/c", "continuous": true}});
    next(&web, &mut known, &replicated);
    let all = format!("{:?}", records(&web));
    assert!(!all.contains("hidden") && !all.contains("sesame"), "{all}");
    web.service.stop();
}

#[test]
fn records_go_to_a_separate_log_that_hup_reopens() {
    let directory = directory();
    let folder = directory.path().join("logs");
    fs::create_dir(&folder).unwrap();
    let (audit, renamed) = (folder.join("audit.log"), folder.join("audit.log.1"));
    let service = Service::start_in(
        directory,
        &format!("[log]\nlevel = \"warning\"\naudit = {audit:?}\n"),
    );
    let reload = Order::new("POST", "/_reload_query_servers", json!({}));
    service.connect().operator.ok(&reload);
    let lines = |path| -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().filter(|line| line.ends_with('}'));
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    wait_until("a record", || lines(&audit).len() == 1);
    let record = lines(&audit).remove(0);
    assert_eq!(
        (&record["msg"], &record["what"]),
        (&json!("audit"), &json!("reload"))
    );
    fs::rename(&audit, &renamed).unwrap();
    service.signal("HUP");
    wait_until("a record in the new file", || lines(&audit).len() == 1);
    assert_eq!(lines(&audit)[0]["from"], "signal HUP");
    assert_eq!(lines(&renamed).len(), 1);
    assert!(!service.log().contains("audit"), "{}", service.log());
    service.stop();
}
