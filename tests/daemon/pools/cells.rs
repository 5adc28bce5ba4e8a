//! Cells as a running service has them: who may open one, and what a change of one does.

use serde_json::{Value, json};

use super::support::{add, reconfigure};
use crate::support::daemon::{Service, configure};
use crate::support::http_client::Web;

const CLOSED: [(&str, &str); 6] = [
    ("sandbox", "off"),
    ("reuse", "any"),
    ("user", "root"),
    ("read_paths", "/"),
    ("env", "LD_PRELOAD=/tmp/x.so"),
    ("network", "true"),
];

#[test]
fn no_request_opens_a_cell_not_even_an_administrators() {
    let web = Web::start("");
    let mut client = web.service.connect();
    add(&mut client, "reports", &json!({}));
    for (key, value) in CLOSED {
        for section in ["query_server_config", "pools.reports"] {
            let path = format!("/_node/_local/_config/{section}/{key}");
            let refused = web.send("PUT", &path, &json!(value).to_string());
            assert_eq!(refused.status, 403, "{path}: {}", refused.body);
            assert!(
                refused.body.contains("what a query server may do"),
                "{}",
                refused.body
            );
        }
        let refused = web.send("PUT", "/_pools/reports", &json!({key: value}).to_string());
        assert_eq!(refused.status, 400, "{key}: {}", refused.body);
        let error = client.error(&reconfigure("reports", &json!({key: value})));
        let reason = error["reason"].as_str().unwrap();
        assert!(reason.contains("comes from files"), "{error}");
        let more =
            json!({"id": 1, "call": "add_pool", "name": "more", "language": "python", key: value});
        assert_eq!(client.error(&more)["name"], "bad_request");
    }
    // Its limits are an operator's.
    client.ok(&reconfigure(
        "reports",
        &json!({"memory_max": "64MiB", "cpu_max": 50}),
    ));
    assert_eq!(client.pool("reports")["settings"]["memory_max"], 64 << 20);
    drop(client);
    web.service.stop();
}

#[test]
fn a_reload_that_moves_a_cell_replaces_the_processes_that_are_there() {
    let extra =
        |limit: u32| format!("[pools.javascript]\ninit_size = 1\nprocesses_max = {limit}\n");
    let service = Service::start(&extra(7));
    let mut client = service.connect();
    client.wait_for_pool("javascript", &[("free", 1)]);
    let pid = |pool: Value| pool["procs"][0]["os_pid"].as_u64();
    let before = pid(client.pool("javascript"));
    // A change of something else leaves them alone.
    configure(
        service.directory.path(),
        &format!("{}max_age = 3600\n", extra(7)),
    );
    client.ok(&json!({"call": "reload_config"}));
    assert_eq!(pid(client.pool("javascript")), before);
    configure(service.directory.path(), &extra(8));
    client.ok(&json!({"call": "reload_config"}));
    client.wait_for_pool("javascript", &[("free", 1), ("stopping", 0)]);
    assert_ne!(pid(client.pool("javascript")), before);
    drop(client);
    service.stop();
}

#[test]
fn pools_without_a_cell_are_named_in_the_log() {
    let service = Service::start("[pools.python]\nsandbox = \"off\"\n");
    let event = "query servers run without a cell";
    service.wait_for_log(event);
    let log = service.log();
    let warning = log.lines().find(|line| line.contains(event)).unwrap();
    assert!(
        warning.contains("python") && !warning.contains("javascript"),
        "{warning}"
    );
    let status = service.connect().pool("python");
    assert_eq!(status["sandbox"]["mode"], "off");
    service.stop();
}
