//! `[pools.NAME]`: at startup, in `check-config`, and when it changes while the service runs.

use std::process::Command;

use serde_json::{Value, json};

use super::support::{add, complains, reconfigure, remove, take, take_group, wait_until_gone};
use crate::support::daemon::{Order, Service, configure, directory, refused, wait_until};
use crate::support::http_client::Web;
use crate::support::program::SETTEE;

const TWO: &str = "[pools.a]\nlanguage = \"python\"\nmax = 2\n[pools.b]\nlanguage = \"python\"\n";

pub(super) fn rewrite(service: &Service, extra: &str) {
    configure(service.directory.path(), extra);
}

fn has_pool(client: &mut crate::support::daemon::Client, name: &str) -> bool {
    let pool = client.operator.pool(name);
    pool.is_some_and(|pool| pool["removing"].is_null())
}

#[test]
fn a_reload_adds_changes_and_gracefully_removes_pools() {
    let service = Service::start(TWO);
    let mut client = service.connect();
    let held = take(&mut client, "b");
    rewrite(
        &service,
        "[pools.a]\nlanguage = \"python\"\nmax = 5\n[pools.c]\nlanguage = \"python\"\ninit_size = 1\n",
    );
    let changes = client.operator.reload_config();
    let change = |section: &str, key: &str| {
        let all = changes.as_array().unwrap();
        let found = all
            .iter()
            .find(|c| c["section"] == section && c["key"] == key);
        found.cloned().unwrap_or_default()
    };
    assert_eq!(change("pools.a", "max")["new"], "5");
    assert_eq!(change("pools.b", "language")["new"], Value::Null);
    assert_eq!(change("pools.c", "language")["new"], "python");
    assert_eq!(client.pool("a")["hard_limit"], 5);
    client.wait_for_pool("c", &[("free", 1)]);
    assert_eq!(client.pool("b")["removing"], "graceful");
    // A holder of one of its processes may keep using it.
    assert_eq!(client.prompt(&held.proc, json!(["echo", 1])), 1);
    assert!(client.ret_proc(&held.proc));
    wait_until_gone(&mut client, "b");
    // An invalid configuration changes nothing.
    rewrite(&service, "[pools.a]\nlanguage = \"perl\"\n");
    assert_eq!(
        client.operator.error(&Order::reload_config())["name"],
        "bad_request"
    );
    rewrite(
        &service,
        "[pools.a]\nlanguage = \"javascript\"\n[pools.c]\nlanguage = \"python\"\n",
    );
    let error = client.operator.error(&Order::reload_config());
    assert!(
        error["reason"]
            .as_str()
            .unwrap()
            .contains("[pools.a] language cannot change"),
        "{error}"
    );
    assert_eq!(client.pool("a")["hard_limit"], 5);
    service.stop();
}

#[test]
fn sighup_reloads_pools() {
    let service = Service::start(TWO);
    let mut client = service.connect();
    rewrite(&service, "[pools.d]\nlanguage = \"python\"\n");
    service.signal("HUP");
    wait_until("pool d", || has_pool(&mut client, "d"));
    wait_until("end of a and b", || {
        !has_pool(&mut client, "a") && !has_pool(&mut client, "b")
    });
    service.wait_for_log("configuration changed");
    service.stop();
}

#[test]
fn the_log_of_an_added_or_removed_pool_names_only_keys_that_were_set() {
    let service = Service::start(TWO);
    rewrite(
        &service,
        "[pools.b]\nlanguage = \"python\"\nmin_free = 1\n[pools.d]\nlanguage = \"python\"\nmax = 3\n",
    );
    service.signal("HUP");
    service.wait_for_log("configuration changed");
    let log = service.log();
    let record = log
        .lines()
        .find(|line| line.contains("configuration changed"));
    let record = record.unwrap();
    for change in [
        "[pools.a] language: python -> nothing; [pools.a] max: 2 -> nothing",
        "[pools.b] min_free: 0 -> 1",
        "[pools.d] language: nothing -> python; [pools.d] max: nothing -> 3",
    ] {
        assert!(record.contains(change), "{record}");
    }
    assert_eq!(record.matches("nothing").count(), 4, "{record}");
    service.stop();
}

#[test]
fn runtime_changes_survive_reloads_until_the_section_changes() {
    let service = Service::start(TWO);
    let mut client = service.connect();
    add(&mut client, "r", &json!({"max": 1}));
    client.operator.ok(&reconfigure("a", &json!({"max": 7})));
    client.operator.ok(&remove("b", "graceful"));
    rewrite(&service, &format!("{TWO}[log]\nlevel = \"debug\"\n"));
    client.operator.reload_config();
    assert!(has_pool(&mut client, "r"));
    assert!(!has_pool(&mut client, "b"));
    assert_eq!(client.pool("a")["hard_limit"], 7);
    rewrite(
        &service,
        &TWO.replace("max = 2", "max = 3")
            .replace("[pools.b]\n", "[pools.b]\nmax = 1\n"),
    );
    client.operator.reload_config();
    assert_eq!(client.pool("a")["hard_limit"], 3);
    assert_eq!(client.pool("b")["hard_limit"], 1);
    service.stop();
}

#[test]
fn a_pool_that_could_not_join_its_group_joins_on_a_reload_once_the_conflict_is_gone() {
    let service = Service::start("");
    let mut client = service.connect();
    let other = json!({"language": "javascript", "group": "g", "max": 1});
    add(&mut client, "other", &other);
    let section = "[pools.p]\nlanguage = \"python\"\ngroup = \"g\"\n";
    rewrite(&service, section);
    client.operator.reload_config();
    service.wait_for_log("pool cannot join its group");
    assert_eq!(client.pool("p")["group"], Value::Null);
    client.operator.ok(&remove("other", "immediate"));
    client.operator.reload_config();
    assert_eq!(take_group(&mut client, "g").pool, "p");
    // A reload keeps an operator's change.
    client
        .operator
        .ok(&reconfigure("p", &json!({"group": Value::Null})));
    client.operator.reload_config();
    assert_eq!(client.pool("p")["group"], Value::Null);
    service.stop();
}

#[test]
fn removing_a_language_removes_its_pool() {
    let server = "[query_servers]\nscripted = \"cat\"\n";
    let service = Service::start(server);
    let mut client = service.connect();
    assert!(has_pool(&mut client, "scripted"));
    let held = take(&mut client, "python");
    rewrite(&service, "");
    client.operator.reload_config();
    assert!(!has_pool(&mut client, "scripted"));
    wait_until_gone(&mut client, "scripted");
    // The processes of other languages stay.
    assert!(client.ret_proc(&held.proc));
    assert_eq!(take(&mut client, "python").os_pid, held.os_pid);
    rewrite(&service, server);
    client.operator.reload_config();
    assert!(has_pool(&mut client, "scripted"));
    service.stop();
}

#[test]
fn a_value_set_over_http_changes_the_pool() {
    let web = Web::start(TWO);
    let path = "/_node/_local/_config/pools.a/max";
    assert_eq!(web.get(path).ok(), "2");
    assert_eq!(web.send("PUT", path, "\"4\"").ok(), "2");
    let mut client = web.service.connect();
    wait_until("the new limit", || client.pool("a")["hard_limit"] == 4);
    let reason = web.send("PUT", path, "\"many\"").reason(400, "bad_request");
    assert!(reason.contains("[pools.a] max"), "{reason}");
    let language = "/_node/_local/_config/pools.a/language";
    web.send("PUT", language, "\"javascript\"")
        .error(400, "bad_request");
    assert_eq!(web.send("DELETE", path, "").ok(), "4");
    wait_until("the old limit", || client.pool("a")["hard_limit"] == 2);
    // Setting the language of a new section adds its pool.
    let language = "/_node/_local/_config/pools.new/language";
    web.send("PUT", language, "\"python\"").ok();
    wait_until("the new pool", || has_pool(&mut client, "new"));
    web.service.stop();
}

#[test]
fn a_value_set_over_http_can_be_changed_and_deleted_under_any_spelling_of_the_pools_name() {
    let web = Web::start(TWO);
    let path = |name: &str| format!("/_node/_local/_config/pools.{name}/max");
    assert_eq!(web.send("PUT", &path("A"), "\"4\"").ok(), "2");
    assert_eq!(web.send("PUT", &path("a"), "\"5\"").ok(), "4");
    assert_eq!(web.send("DELETE", &path("A"), "").ok(), "5");
    assert_eq!(web.get(&path("A")).ok(), "2");
    web.service.stop();
}

#[test]
fn a_pool_added_over_http_can_be_removed_over_http() {
    let web = Web::start(TWO);
    let mut client = web.service.connect();
    let path = |key: &str| format!("/_node/_local/_config/pools.new/{key}");
    web.send("PUT", &path("language"), "\"python\"").ok();
    web.send("PUT", &path("max"), "\"3\"").ok();
    let missing = web.send("DELETE", &path("language"), "");
    let reason = missing.reason(400, "bad_request");
    assert!(reason.contains("language is missing"), "{reason}");
    web.send("DELETE", &path("max"), "").ok();
    assert_eq!(web.send("DELETE", &path("language"), "").ok(), "python");
    assert!(!has_pool(&mut client, "new"));
    web.service.stop();
}

#[test]
fn orders_and_the_configuration_refuse_the_same_pools_with_the_same_reason() {
    let web = Web::start("[server]\nprocesses_max = 50\n");
    let mut client = web.service.connect();
    // A single value is checked against the pool's other values.
    let path = |key: &str| format!("/_node/_local/_config/pools.javascript/{key}");
    web.send("PUT", &path("max_memory_hard"), "\"1GiB\"").ok();
    let set = web.send("PUT", &path("max_memory"), "\"2GiB\"");
    let order = reconfigure("javascript", &json!({"max_memory": "2GiB"}));
    let expected = client.operator.error(&order)["reason"].clone();
    let expected = expected.as_str().unwrap();
    assert!(
        set.reason(400, "bad_request").contains(expected),
        "{expected}"
    );
    let said = complains(
        &web.service,
        64,
        &["pool", "set", "javascript", "max_memory=2GiB"],
    );
    assert!(said.contains(expected), "{said}");
    add(
        &mut client,
        "other",
        &json!({"language": "javascript", "group": "g"}),
    );
    let python = |settings: &str| format!("language = \"python\"\n{settings}");
    for (key, section) in [
        ("language", "max = 1".to_owned()),
        ("language", "language = \"pyton\"".to_owned()),
        ("language", "language = \"perl\"".to_owned()),
        ("max", python("max = 51")),
        ("init_size", python("max = 2\ninit_size = 3")),
        ("min_free", python("max = 2\nmin_free = 3")),
        (
            "interactive_reserved",
            python("max = 2\ninteractive_reserved = 2"),
        ),
        (
            "max_memory",
            python("max_memory = \"2GiB\"\nmax_memory_hard = \"1GiB\""),
        ),
        (
            "throttle_delay",
            python("throttle_delay = 5\nthrottle_delay_max = 4"),
        ),
        ("group", python("group = \"g\"")),
    ] {
        let settings: Value = toml::from_str(&section).unwrap();
        let order = Order::new("PUT", "/_pools/q?mode=add", settings.clone());
        let expected = client.operator.error(&order)["reason"].clone();
        let expected = expected.as_str().unwrap();
        assert!(
            expected.starts_with(&format!("{key} ")),
            "{key}: {expected}"
        );
        let other = "[pools.other]\nlanguage = \"javascript\"\ngroup = \"g\"\n";
        let processes = "[server]\nprocesses_max = 50\n";
        rewrite(
            &web.service,
            &format!("{processes}{other}[pools.q]\n{section}\n"),
        );
        let refused = client.operator.error(&Order::reload_config());
        let reason = refused["reason"].as_str().unwrap();
        assert!(
            reason.contains(&format!("[pools.q] {expected}")),
            "{expected}: {reason}"
        );
        let known = settee::config::PoolConfig::keys_of_requests();
        let mut known = known.map(|known| known.name);
        assert!(known.any(|known| known == key), "{key}");
    }
    web.service.stop();
}

#[test]
fn an_unknown_language_is_a_configuration_error() {
    let directory = directory();
    let config = configure(directory.path(), "[pools.p]\nlanguage = \"pyton\"\n");
    let (status, said) = refused(&config);
    assert_eq!(status, Some(78));
    assert!(said.contains("[pools.p] language = \"pyton\""), "{said}");
    assert!(said.contains("did you mean \"python\"?"), "{said}");
}

#[test]
fn check_config_shows_pools_with_their_origins() {
    let directory = directory();
    let config = configure(directory.path(), TWO);
    let mut command = Command::new(SETTEE);
    command.args(["check-config", "-c"]).arg(&config);
    command.env("SETTEE__POOLS__A__MIN_FREE", "1");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let section = text.split("[pools.a]\n").nth(1).unwrap();
    let line = |key: &str| {
        let found = section
            .lines()
            .find(|line| line.starts_with(&format!("{key} = ")));
        found.unwrap_or_default().to_owned()
    };
    assert!(line("max").starts_with("max = 2 "), "{text}");
    assert!(line("max").contains("settee.toml:"), "{text}");
    assert!(
        line("min_free").contains("SETTEE__POOLS__A__MIN_FREE"),
        "{text}"
    );
    assert!(line("cull_interval").contains("# default (s)"), "{text}");
    text.parse::<toml::Table>().expect("the output is TOML");
}
