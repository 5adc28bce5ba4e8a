//! The ceiling over all pools: `[server] processes_max`.

use serde_json::{Value, json};

use super::support::{
    complains, give_back, reconfigure, take, take_request, taken, wait_until_waiting,
};
use crate::support::daemon::{Client, Service, wait_until};
use crate::support::http_client::Web;

const POOLS: &str = "[server]\nprocesses_max = 2\n[pools.a]\nlanguage = \"python\"\nmax = 2\n\
                     [pools.b]\nlanguage = \"python\"\nmax = 2\n";

/// The number of processes in all pools.
fn processes(client: &mut Client) -> u64 {
    let status = client.operator.get("/_status");
    let pools = status["pools"].as_array().unwrap();
    let counts = ["used", "free", "opening", "stopping"];
    let count = |pool: &Value| {
        counts
            .map(|key| pool[key].as_u64().unwrap())
            .iter()
            .sum::<u64>()
    };
    pools.iter().map(count).sum()
}

#[test]
fn an_idle_process_of_another_pool_is_stopped_for_a_waiter() {
    let service = Service::start(POOLS);
    let mut client = service.connect();
    let old = take(&mut client, "a");
    let new = take(&mut client, "a");
    assert!(give_back(&mut client, &old, "ok"));
    assert!(give_back(&mut client, &new, "ok"));
    let lent = take(&mut client, "b");
    assert_eq!(lent.pool, "b");
    assert_eq!(processes(&mut client), 2);
    let left = client.pool("a")["procs"][0]["os_pid"].as_u64();
    assert_eq!(
        left,
        Some(new.os_pid),
        "the process that was idle longest is stopped"
    );
    service.wait_for_log("maximum number of processes of all pools reached");
    service.stop();
}

#[test]
fn a_returned_process_makes_room_for_a_pool_that_has_none() {
    let service = Service::start(POOLS);
    let mut client = service.connect();
    let held = [take(&mut client, "a"), take(&mut client, "a")];
    let mut own = service.connect();
    own.send(&take_request("a"));
    wait_until_waiting(&mut client, "a", 1);
    let mut other = service.connect();
    other.send(&take_request("b"));
    wait_until_waiting(&mut client, "b", 1);
    assert!(give_back(&mut client, &held[0], "ok"));
    assert_eq!(taken(&mut other).pool, "b");
    assert_eq!(client.pool("a")["waiting"], 1);
    assert!(give_back(&mut client, &held[1], "ok"));
    assert_eq!(taken(&mut own).os_pid, held[1].os_pid, "each pool has one");
    assert_eq!(processes(&mut client), 2);
    service.stop();
}

#[test]
fn sizes_beyond_the_ceiling_are_refused_with_a_remedy() {
    let service = Service::start(POOLS);
    let mut client = service.connect();
    for key in ["max", "init_size", "min_free"] {
        let add = json!({"language": "python", key: 3});
        for order in [reconfigure("c", &add), reconfigure("a", &json!({key: 3}))] {
            let error = client.operator.error(&order);
            assert_eq!(error["name"], "bad_request", "{error}");
            let reason = error["reason"].as_str().unwrap();
            for word in [key, "processes_max (2)", "raise [server] processes_max"] {
                assert!(reason.contains(word), "{word} in {reason}");
            }
        }
    }
    let said = complains(&service, 64, &["pool", "set", "a", "max=3", "--dry-run"]);
    assert!(said.contains("processes_max"), "{said}");
    assert_eq!(client.pool("a")["hard_limit"], 2);
    service.stop();
}

#[test]
fn a_changed_ceiling_takes_effect_without_a_restart() {
    let web = Web::start(POOLS);
    let mut client = web.service.connect();
    let held = [take(&mut client, "a"), take(&mut client, "b")];
    let mut waiter = web.service.connect();
    waiter.send(&take_request("b"));
    wait_until_waiting(&mut client, "b", 1);
    let put = |value: &str| {
        let path = "/_node/_local/_config/server/processes_max";
        web.send("PUT", path, &format!("\"{value}\""))
    };
    // The existing pools have `max = 2`.
    assert_eq!(put("1").status, 400);
    put("3").ok();
    taken(&mut waiter);
    put("2").ok();
    assert!(give_back(&mut client, &held[0], "ok"));
    wait_until("one process fewer", || processes(&mut client) == 2);
    put("0").ok();
    take(&mut client, "a");
    assert!(give_back(&mut client, &held[1], "ok"));
    web.service.stop();
}

#[test]
fn a_pool_beyond_pools_max_is_refused_with_the_key() {
    let web = Web::start("[server]\npools_max = 8\n");
    let there = web.get("/_pools").ok()["pools"].as_array().unwrap().len();
    let add = |number: usize| {
        let path = format!("/_pools/p{number}");
        web.send("PUT", &path, r#"{"language": "javascript"}"#)
    };
    for number in there..8 {
        assert!(add(number).status < 300, "pool {number}");
    }
    let said = add(8).reason(400, "bad_request");
    assert!(said.contains("[server] pools_max is 8"), "{said}");
    let set = |value: &str| {
        let path = "/_node/_local/_config/server/pools_max";
        web.send("PUT", path, &format!("\"{value}\""))
    };
    set("9").ok();
    assert!(add(8).status < 300);
    // Existing pools stay.
    set("8").ok();
    assert_eq!(
        web.get("/_pools").ok()["pools"].as_array().unwrap().len(),
        9
    );
    assert_eq!(add(9).status, 400);
    assert_eq!(set("1").status, 400, "the configuration has more pools");
    assert_eq!(set("4097").status, 400);
    web.service.stop();
}
