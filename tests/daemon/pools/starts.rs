//! How starts are logged: the first ones singly, the others as sums, and a warning if databases take processes from
//! each other.

use serde_json::{Value, json};

use crate::support::daemon::{Client, Service};

/// Calls for databases in turn until the log contains `text`; returns the number of calls.
fn call_until(service: &Service, client: &mut Client, databases: usize, text: &str) -> usize {
    // Far more than needed: on a machine too slow for the necessary calls in one period, the count starts over.
    const CALLS_MAX: usize = 2000;
    for call in 0..CALLS_MAX {
        if service.log().contains(text) {
            return call;
        }
        let db = format!("db{}", call % databases);
        let got = client.ok(&json!({"id": 1, "call": "get_proc", "lang": "python", "db": db}));
        assert!(client.ret_proc(got["proc"].as_str().unwrap()));
    }
    panic!("no {text:?} after {CALLS_MAX} calls");
}

fn records(service: &Service, message: &str) -> Vec<Value> {
    let log = service.log();
    let records = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let records = records.filter(|record: &Value| record["msg"] == message);
    records
        .filter(|record| record["pool"] == "python")
        .collect()
}

const WARNING: &str = "most calls start a query server";

#[test]
fn using_more_databases_than_processes_logs_a_warning_with_numbers() {
    let config = "[query_server_config]\nreuse = \"database\"\nos_process_limit = 2\n";
    let service = Service::start(config);
    let mut client = service.connect();
    let calls = call_until(&service, &mut client, 5, WARNING);
    assert!(calls >= 100, "{calls}");
    let warnings = records(&service, WARNING);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let warning = &warnings[0];
    assert_eq!(warning["level"], "warning");
    let number = |key: &str| warning[key].as_u64().unwrap();
    assert!(number("calls") >= 100, "{warning}");
    assert!(number("count") * 2 > number("calls"), "{warning}");
    assert_eq!((number("limit"), number("period_ms")), (2, 60_000));
    let remedy = warning["remedy"].as_str().unwrap();
    for word in ["os_process_limit", "fewer databases", "reuse"] {
        assert!(remedy.contains(word), "{word} is not in {remedy}");
    }
    drop(client);
    service.stop();
}

#[test]
fn the_warning_names_processes_max_if_that_is_the_limit_that_was_reached() {
    let config = "[server]\nprocesses_max = 2\n[query_server_config]\nreuse = \"database\"\n\
                  os_process_limit = 2\n[pools.q]\nlanguage = \"query\"\ninit_size = 1\nmax = 1\n";
    let service = Service::start(config);
    let mut client = service.connect();
    call_until(&service, &mut client, 5, WARNING);
    let warning = records(&service, WARNING).remove(0);
    let remedy = warning["remedy"].as_str().unwrap();
    assert!(remedy.contains("[server] processes_max"), "{warning}");
    drop(client);
    service.stop();
}

#[test]
fn the_first_starts_of_a_pool_are_logged_singly_and_the_others_as_sums() {
    let service =
        Service::start("[query_server_config]\nreuse = \"database\"\nos_process_limit = 1\n");
    let mut client = service.connect();
    for call in 0..25 {
        let db = format!("db{}", call % 2);
        let got = client.ok(&json!({"id": 1, "call": "get_proc", "lang": "python", "db": db}));
        assert!(client.ret_proc(got["proc"].as_str().unwrap()));
    }
    drop(client);
    // Shutdown logs the starts that were not logged yet.
    service.signal("TERM");
    service.wait_for_log("\"query servers started\"");
    let singly = records(&service, "query server started");
    assert_eq!(singly.len(), 10);
    assert!(
        singly.iter().all(|record| record["os_pid"].is_u64()),
        "{singly:?}"
    );
    let sums = records(&service, "query servers started");
    let counts = sums.iter().map(|record| record["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 15, "{sums:?}");
    assert!(
        sums.iter().all(|record| record["period_ms"].is_u64()),
        "{sums:?}"
    );
    service.exits_cleanly();
}
