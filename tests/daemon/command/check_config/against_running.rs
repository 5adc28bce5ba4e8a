//! `settee check-config --against-running`, against a running service.

use serde_json::{Value, json};

use super::Run;
use crate::support::daemon::Service;
use crate::support::http_client::Web;
use crate::support::tls::{certify, ssl};

const CONFIG: &str = "[server]\nbacklog = 7\n[couchdb]\nos_process_timeout = 6000\n";
const TIMEOUT: &str = "/_node/_local/_config/couchdb/os_process_timeout";
const UNCHANGED: &str = "configuration is unchanged: values set over HTTP override it";

fn tried(service: &Service, arguments: &[&str]) -> Run {
    let arguments = [&["check-config", "--against-running"], arguments].concat();
    let output = service.client(&arguments).output();
    Run::of(output.expect("the program runs"))
}

/// Replaces a string in the service's file.
fn edit(service: &Service, from: &str, to: &str) {
    let file = service.path("settee.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&file, text.replace(from, to)).unwrap();
}

fn change(section: &str, key: &str, old: &str, new: &str, effect: &str) -> Value {
    json!({"section": section, "key": key, "old": old, "new": new, "effect": effect})
}

#[test]
fn changes_are_listed_with_their_effect_and_none_is_applied() {
    let web = Web::start(CONFIG);
    let service = &web.service;
    let run = tried(service, &[]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "a reload changes nothing\n")
    );
    web.send("PUT", TIMEOUT, "\"7000\"").ok();
    edit(service, "= 6000", "= 6500");
    edit(service, "backlog = 7", "backlog = 8");
    edit(
        service,
        "[couchdb]",
        "[chttpd_auth]\nsecret = \"hush-hush\"\n[log]\nlevel = \"debug\"\n[couchdb]",
    );
    let run = tried(service, &["--json"]);
    let changes: Value = serde_json::from_str(&run.stdout).unwrap();
    let expected = [
        change("server", "backlog", "7", "8", "restart"),
        change("chttpd_auth", "secret", "", "***", "reload"),
        change("log", "level", "info", "debug", "reload"),
        change(
            "couchdb",
            "os_process_timeout",
            "7000 ms",
            "6500 ms",
            "overridden",
        ),
    ];
    assert_eq!(changes, json!(expected));
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("[server] backlog"), "{}", run.stderr);
    let run = tried(service, &[]);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n";
    let table: String = run.stdout.lines().map(words).collect();
    for part in [
        "[server] backlog 7 8 on restart\n",
        "[chttpd_auth] secret \"\" *** on reload\n",
        "after DELETE /_node/_local/_config/couchdb/os_process_timeout: set over HTTP",
    ] {
        assert!(table.contains(part), "{}", run.stdout);
    }
    assert!(!run.stdout.contains("hush"), "{}", run.stdout);
    // Nothing was applied.
    assert_eq!(web.get("/_node/_local/_config/log/level").ok(), "info");
    assert_eq!(web.get(TIMEOUT).ok(), "7000");
    assert!(!service.log().contains("[log] level"), "{}", service.log());
    edit(service, "backlog = 8", "backlog = 7");
    assert_eq!(tried(service, &[]).code, 0, "a reload would apply it");
    web.service.stop();
}

#[test]
fn mistakes_in_the_files_exit_with_78_and_a_missing_service_with_69() {
    let web = Web::start(CONFIG);
    edit(&web.service, "= 6000", "= \"soon\"");
    let run = tried(&web.service, &[]);
    assert_eq!((run.code, run.stdout.as_str()), (78, ""));
    assert!(run.stderr.contains("settee.toml:"), "{}", run.stderr);
    assert!(run.stderr.contains("\"soon\""), "{}", run.stderr);
    web.service.stop();
    let output = super::program()
        .args([
            "check-config",
            "--against-running",
            "--socket",
            "/nowhere/s.sock",
        ])
        .output();
    assert_eq!(Run::of(output.unwrap()).code, 69);
}

#[test]
fn a_reload_is_refused_as_a_whole_until_the_certificate_of_replications_can_be_used() {
    let web = Web::start(CONFIG);
    let service = &web.service;
    let folder = service.directory.path();
    let section = "[replicator]\nendpoints_denied = \"127.0.0.0/8\"";
    let section = ssl(folder).replace("[ssl]", section);
    edit(service, "[couchdb]", &format!("{section}[couchdb]"));
    let run = tried(service, &[]);
    assert_eq!(run.code, 78, "{}", run.stderr);
    assert!(run.stderr.contains("key.pem"), "{}", run.stderr);
    let reload = || web.send("POST", "/_node/_local/_config/_reload", "");
    let reason = reload().reason(400, "bad_request");
    assert!(reason.contains("in [replicator]"), "{reason}");
    let denied = "/_node/_local/_config/replicator/endpoints_denied";
    assert_eq!(web.get(denied).ok(), "");
    certify(folder);
    reload().ok();
    assert_eq!(web.get(denied).ok(), "127.0.0.0/8");
    let (source, target) = ("http://127.0.0.1:9/a", "http://127.0.0.1:9/b");
    let job = json!({"source": source, "target": target});
    let answer = web.send("POST", "/_replicate", &job.to_string());
    assert!(answer.body.contains("endpoint_denied"), "{}", answer.body);
    web.service.stop();
}

#[test]
fn a_reload_reports_each_key_that_http_overrides() {
    let web = Web::start(CONFIG);
    web.send("PUT", TIMEOUT, "\"7000\"").ok();
    edit(&web.service, "= 6000", "= 6500");
    web.service.signal("HUP");
    web.service.wait_for_log(UNCHANGED);
    let stays = "[couchdb] os_process_timeout: 7000 ms stays, not 6500 ms";
    web.service.wait_for_log(stays);
    let expected = json!([change(
        "couchdb",
        "os_process_timeout",
        "7000 ms",
        "6500 ms",
        "overridden"
    )]);
    let operator = web.service.connect().operator;
    assert_eq!(operator.reload_config(), expected);
    let answer = web.send("POST", "/_node/_local/_config/_reload", "").ok();
    assert_eq!(answer, json!({"ok": true, "changes": expected}));
    assert_eq!(web.send("DELETE", TIMEOUT, "").ok(), "7000");
    assert_eq!(operator.reload_config(), json!([]));
    web.service.stop();
}
