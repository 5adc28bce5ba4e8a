//! The configuration over HTTP: which values can be read, set and unset.

use crate::support::http_client::{Response, Web};
use serde_json::{Value, json};

fn path(section: &str, key: &str) -> String {
    format!("/_node/_local/_config/{section}/{key}")
}

fn put(web: &Web, section: &str, key: &str, value: &Value) -> Response {
    web.send("PUT", &path(section, key), &value.to_string())
}

fn get(web: &Web, section: &str, key: &str) -> Value {
    web.get(&path(section, key)).ok()
}

#[test]
fn values_are_strings_as_in_couchdb() {
    let web = Web::start(
        "[couchdb]\nos_process_timeout = \"5s\"\n[query_server_config]\nos_process_idle_limit = \"2min\"\n",
    );
    let all = web.get("/_node/_local/_config").ok();
    for (section, keys) in all.as_object().unwrap() {
        let same = web.get(&format!("/_node/_local/_config/{section}")).ok();
        assert_eq!(&same, keys);
        for (key, value) in keys.as_object().unwrap() {
            assert!(value.is_string());
            assert_eq!(get(&web, section, key), *value);
        }
    }
    assert_eq!(all["couchdb"]["os_process_timeout"], "5000");
    assert_eq!(all["query_server_config"]["os_process_idle_limit"], "120");
    assert_eq!(all["server"]["tcp"], "off");
    assert_eq!(web.get("/_node/_local/_config/nothing").ok(), json!({}));
    for (section, key) in [("couchdb", "x"), ("x", "y")] {
        let missing = web.get(&path(section, key));
        assert_eq!(missing.reason(404, "not_found"), "unknown_config_value");
        let missing = web.send("DELETE", &path(section, key), "");
        assert_eq!(missing.reason(404, "not_found"), "unknown_config_value");
    }
    web.service.stop();
}

#[test]
fn values_can_be_set_and_unset_and_survive_a_reload() {
    let web = Web::start("[couchdb]\nos_process_timeout = 6000\n");
    let timeout = || get(&web, "couchdb", "os_process_timeout");
    let set = |value: &str| put(&web, "couchdb", "os_process_timeout", &json!(value)).ok();
    assert_eq!(set("7000"), "6000");
    assert_eq!(timeout(), "7000");
    assert_eq!(set("8s"), "7000");
    assert_eq!(timeout(), "8000");
    let status = web.service.connect();
    drop(status);
    let file = web.service.path("settee.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = format!("{text}\n[log]\nlevel = \"debug\"\n").replace("= 6000", "= 6500");
    std::fs::write(&file, text).unwrap();
    web.service.signal("HUP");
    web.service.wait_for_log("[log] level: info -> debug");
    web.service
        .wait_for_log("[couchdb] os_process_timeout: another value was set over HTTP");
    assert_eq!(timeout(), "8000", "HTTP overrides the files");
    let taken_back = web.send("DELETE", &path("couchdb", "os_process_timeout"), "");
    assert_eq!(taken_back.ok(), "8000");
    assert_eq!(timeout(), "6500");
    let again = web.send("DELETE", &path("couchdb", "os_process_timeout"), "");
    let reason = again.reason(400, "bad_request");
    assert!(reason.contains("settee.toml:"), "{reason}");
    web.service.stop();
}

#[test]
fn a_value_is_set_without_pending_edits_of_the_files() {
    let web = Web::start("[server]\nbacklog = 7\n[couchdb]\nos_process_timeout = 6000\n");
    let file = web.service.path("settee.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("backlog = 7", "backlog = 8");
    std::fs::write(&file, text.replace("= 6000", "= 6500")).unwrap();
    assert_eq!(put(&web, "log", "level", &json!("debug")).ok(), "info");
    assert_eq!(get(&web, "log", "level"), "debug");
    assert_eq!(get(&web, "couchdb", "os_process_timeout"), "6000");
    web.service.signal("HUP");
    web.service.wait_for_log("[server] backlog cannot change");
    web.service.stop();
}

#[test]
fn values_are_checked_as_in_files_and_against_each_other() {
    let web = Web::start("");
    for (section, key, value, part) in [
        (
            "couchdb",
            "os_process_timeout",
            json!("soon"),
            "whole number of milliseconds",
        ),
        (
            "couchdb",
            "os_process_timeout",
            json!(""),
            "whole number of milliseconds",
        ),
        ("couchdb", "timeout", json!("1"), "there is no key"),
        ("x", "y", json!("1"), "there is no section"),
        (
            "query_server_config",
            "os_process_limit",
            json!("-1"),
            "negative",
        ),
        (
            "query_server_config",
            "os_process_soft_limit",
            json!("101"),
            "is above",
        ),
        (
            "couchdb",
            "os_process_timeout",
            json!(5000),
            "must be a JSON string",
        ),
        (
            "log",
            "format",
            json!("json"),
            "cannot change while the service runs",
        ),
    ] {
        let reason = put(&web, section, key, &value).reason(400, "bad_request");
        assert!(reason.contains(part), "{reason}");
    }
    let before = web.get("/_node/_local/_config").ok();
    put(&web, "query_server_config", "os_process_limit", &json!("7")).ok();
    assert_eq!(get(&web, "query_server_config", "os_process_limit"), "7");
    assert_eq!(before["query_server_config"]["os_process_limit"], "100");
    web.service.stop();
}

#[test]
fn keys_that_run_programs_open_sockets_read_files_or_grant_access_cannot_be_set() {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", directory.path().join("s.sock").display());
    let web = Web::start(&format!(
        "[query_servers]\nx = \"true\"\n[services.door]\nlisten = \"{socket}\"\nlanguage = \"x\"\n"
    ));
    for (section, key) in [
        ("query_servers", "javascript"),
        ("query_servers", "x"),
        ("query_servers", "new"),
        ("admins", "eve"),
        ("chttpd_auth", "secret"),
        ("services.door", "listen"),
        ("services.door", "local_only"),
        ("services.door", "open"),
        ("services.Door", "listen"),
        ("services.new", "listen"),
        ("server", "socket"),
        ("server", "tcp"),
        ("server", "http"),
        ("server", "hosts"),
        ("store", "path"),
        ("replicator", "cert_file"),
        ("replicator", "key_file"),
        ("replicator", "password"),
        ("replicator", "ssl_trusted_certificates_file"),
        ("replicator", "connect_to"),
        ("replicator", "verify_ssl_certificates"),
        ("replicator", "endpoints_allowed"),
        ("replicator", "endpoints_denied"),
        ("replicator", "redirects_to"),
    ] {
        let refused = put(&web, section, key, &json!("127.0.0.1:0"));
        let reason = refused.reason(403, "forbidden");
        assert!(reason.contains("files and the environment"), "{reason}");
        let status = web.send("DELETE", &path(section, key), "").status;
        assert!([403, 404].contains(&status), "{section} {key}: {status}");
    }
    assert_eq!(get(&web, "query_servers", "x"), "true");
    assert_eq!(get(&web, "services.door", "listen"), socket);
    // Other keys of a service can be set.
    put(&web, "services.door", "prompt_timeout", &json!("9")).ok();
    web.service.stop();
}
