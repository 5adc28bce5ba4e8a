//! `settee pool`, and pools in `settee status`.

use serde_json::{Value, json};

use super::support::{add, complains, prints, settee_reading, take, wait_until_gone};
use crate::support::daemon::{Order, Service};

#[test]
fn a_pool_is_added_listed_changed_and_removed() {
    let service = Service::start("");
    let arguments = [
        "pool",
        "add",
        "p",
        "--language",
        "python",
        "--group",
        "g",
        "--max",
        "2",
        "--set",
        "max_age=1h",
    ];
    let said = prints(&service, &arguments);
    assert_eq!(
        said,
        "add p\nset language python\nset group g\nset max 2\nset max_age 3600\n"
    );
    let listed = prints(&service, &["pool", "list"]);
    let row = listed.lines().find(|line| line.starts_with("p ")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[..4], ["p", "python", "g", "2"], "{listed}");
    assert_eq!(
        prints(&service, &["pool", "set", "p", "max=3", "max_age="]),
        "set max 3\nset max_age 0\n"
    );
    assert_eq!(
        prints(&service, &["pool", "set", "p", "max=3"]),
        "nothing has changed\n"
    );
    let mut client = service.connect();
    take(&mut client, "p");
    let procs = prints(&service, &["pool", "procs", "p"]);
    assert!(procs.contains("assigned"), "{procs}");
    let said = prints(&service, &["pool", "remove", "p"]);
    assert_eq!(said, "remove p (graceful)\nstop_returned 1\n");
    let status = prints(&service, &["status"]);
    assert!(status.contains("removing (graceful)"), "{status}");
    let said = prints(&service, &["pool", "remove", "p", "--immediate"]);
    assert_eq!(said, "remove p (immediate)\nstop_used 1\n");
    wait_until_gone(&mut service.connect(), "p");
    service.stop();
}

#[test]
fn json_prints_the_services_answer_on_one_line() {
    let service = Service::start("");
    let read = |arguments: &[&str]| -> Value {
        let text = prints(&service, arguments);
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let added = read(&["pool", "add", "p", "-l", "python", "--json"]);
    assert_eq!(
        added,
        json!([{"add": "p"}, {"set": "language", "value": "python"}])
    );
    let listed = read(&["pool", "list", "--json"]);
    assert!(
        listed
            .as_array()
            .unwrap()
            .iter()
            .any(|pool| pool["name"] == "p")
    );
    assert_eq!(read(&["pool", "procs", "p", "--json"]), json!([]));
    assert_eq!(read(&["pool", "unthrottle", "p", "--json"]), json!(false));
    assert_eq!(
        read(&["pool", "set", "p", "max=1", "--json"]),
        json!([{"set": "max", "value": 1}])
    );
    service.stop();
}

#[test]
fn usage_errors_exit_with_64_and_missing_pools_with_66() {
    let service = Service::start("[pools.p]\nlanguage = \"python\"\n");
    for (arguments, says) in [
        (
            &["pool", "add", "p", "-l", "python"][..],
            "a pool named 'p' already",
        ),
        (&["pool", "add", "q", "-l", "perl"], "language = \"perl\""),
        (&["pool", "set", "p", "maxx=1"], "did you mean 'max'?"),
        (
            &["pool", "set", "p", "command=sh"],
            "cannot bring a command",
        ),
        (&["pool", "set", "p", "max=many"], "'max'"),
        (&["pool", "set", "p", "max"], "KEY=VALUE"),
        (&["pool", "add", "q"], "--language"),
    ] {
        let said = complains(&service, 64, arguments);
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    // The same status as for a missing process or job.
    for arguments in [
        &["pool", "remove", "q"][..],
        &["pool", "set", "q", "max=1"],
        &["pool", "unthrottle", "q"],
        &["pool", "procs", "q"],
        &["ps", "--pool", "q"],
        &["attach", "--pool", "q"],
    ] {
        let said = complains(&service, 66, arguments);
        assert!(said.contains("there is no pool named 'q'"), "{said}");
    }
    complains(&service, 66, &["kill", "p/4711"]);
    complains(&service, 66, &["jobs", "show", "q"]);
    let said = complains(
        &service,
        69,
        &["pool", "list", "--socket", "/nonexistent/s"],
    );
    assert!(said.contains("/nonexistent/s"), "{said}");
    service.stop();
}

#[test]
fn attach_takes_a_process_of_the_named_pool_or_group() {
    let service = Service::start("");
    let mut client = service.connect();
    for (name, group) in [("p", "g"), ("q", "h")] {
        let settings = json!({"group": group, "max": 1, "init_size": 1});
        add(&mut client, name, &settings);
        client.wait_for_pool(name, &[("free", 1)]);
    }
    let pid_of = |arguments: &[&str]| -> Value {
        let output = settee_reading(&service, arguments, "[\"pid\"]\n");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let pid = client.pool("p")["procs"][0]["os_pid"].clone();
    assert_eq!(pid_of(&["attach", "--pool", "p"]), pid);
    let pid = client.pool("q")["procs"][0]["os_pid"].clone();
    assert_eq!(pid_of(&["attach", "--group", "H"]), pid);
    let error = complains(&service, 66, &["attach", "--pool", "r"]);
    assert!(error.contains("no pool named 'r'"), "{error}");
    assert!(error.contains("settee pool list"), "{error}");
    let error = complains(&service, 64, &["attach", "--pool", "p", "--group", "g"]);
    assert!(error.contains("cannot be used with"), "{error}");
    service.stop();
}

#[test]
fn a_dry_run_prints_the_changes_and_makes_none() {
    let service = Service::start("[pools.p]\nlanguage = \"python\"\nmax = 1\n");
    let mut client = service.connect();
    let said = prints(
        &service,
        &["pool", "set", "p", "max=3", "init_size=2", "--dry-run"],
    );
    assert_eq!(said, "set init_size 2\nset max 3\nstart 2\n");
    assert_eq!(client.pool("p")["hard_limit"], 1);
    let said = prints(
        &service,
        &[
            "pool",
            "add",
            "q",
            "-l",
            "python",
            "--init-size",
            "1",
            "--dry-run",
        ],
    );
    assert!(
        said.starts_with("add q\n") && said.ends_with("start 1\n"),
        "{said}"
    );
    let said = prints(&service, &["pool", "remove", "p", "--dry-run"]);
    assert_eq!(said, "remove p (graceful)\n");
    assert_eq!(client.operator.pool("q"), None);
    let wrong = Order::new("DELETE", "/_pools/p?dry_run=1", Value::Null);
    assert_eq!(client.operator.error(&wrong)["name"], "query_parse_error");
    assert_eq!(client.pool("p")["removing"], Value::Null);
    service.stop();
}
