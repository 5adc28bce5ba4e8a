//! Pools of a group.

use std::collections::BTreeMap;

use serde_json::json;

use super::support::{add, give_back, reconfigure, remove, take_group, taken, wait_until_waiting};
use crate::support::daemon::{Service, wait_until};

#[test]
fn a_group_lends_from_a_random_pool_that_has_a_free_process() {
    let service = Service::start("");
    let mut client = service.connect();
    for name in ["a", "b"] {
        add(
            &mut client,
            name,
            &json!({"group": "G", "max": 1, "init_size": 1}),
        );
    }
    for name in ["a", "b"] {
        client.wait_for_pool(name, &[("free", 1)]);
    }
    let mut taken_from: BTreeMap<(String, u64), u32> = BTreeMap::new();
    for _ in 0..200 {
        let lent = take_group(&mut client, "g");
        assert!(give_back(&mut client, &lent, "ok"));
        *taken_from.entry((lent.pool, lent.os_pid)).or_default() += 1;
    }
    // The chance of fewer than 50 heads in 200 fair tosses is about 10^-12.
    let pools: Vec<&str> = taken_from.keys().map(|(pool, _)| pool.as_str()).collect();
    assert_eq!(pools, ["a", "b"], "each answer names the pool");
    assert!(
        taken_from.values().all(|count| *count >= 50),
        "{taken_from:?}"
    );
    service.stop();
}

#[test]
fn a_group_falls_back_to_a_pool_that_may_open_and_then_to_the_shortest_queue() {
    let service = Service::start("");
    let mut client = service.connect();
    add(
        &mut client,
        "a",
        &json!({"group": "g", "max": 1, "init_size": 1}),
    );
    client.wait_for_pool("a", &[("free", 1)]);
    add(&mut client, "b", &json!({"group": "g", "max": 1}));
    let first = take_group(&mut client, "g");
    assert_eq!(client.pool("a")["used"], 1);
    let second = take_group(&mut client, "g");
    assert_eq!(client.pool("b")["used"], 1);
    let mut waiters = [service.connect(), service.connect()];
    for waiter in &mut waiters {
        waiter.send(&json!({"id": 1, "call": "get_proc", "group": "g"}));
    }
    // One in each queue.
    wait_until_waiting(&mut client, "a", 1);
    wait_until_waiting(&mut client, "b", 1);
    assert!(give_back(&mut client, &first, "ok"));
    assert!(give_back(&mut client, &second, "ok"));
    let got: Vec<u64> = waiters
        .iter_mut()
        .map(|waiter| taken(waiter).os_pid)
        .collect();
    assert_ne!(got[0], got[1]);
    service.stop();
}

#[test]
fn a_pool_that_joins_a_group_serves_its_waiters() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "a", &json!({"group": "g", "max": 1}));
    let held = take_group(&mut client, "g");
    let mut waiter = service.connect();
    waiter.send(&json!({"id": 1, "call": "get_proc", "group": "g"}));
    wait_until_waiting(&mut client, "a", 1);
    add(&mut client, "b", &json!({"group": "g", "max": 1}));
    assert_ne!(taken(&mut waiter).os_pid, held.os_pid);
    service.stop();
}

#[test]
fn the_pools_of_a_group_share_one_language() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "a", &json!({"group": "g"}));
    let other = reconfigure("b", &json!({"language": "javascript", "group": "g"}));
    let error = client.operator.error(&other);
    assert!(
        error["reason"].as_str().unwrap().contains("group = \"g\""),
        "{error}"
    );
    let error = client.error(&json!({"call": "get_proc", "group": "g", "lang": "javascript"}));
    assert_eq!(error["name"], "not_found");
    client.operator.ok(&remove("a", "graceful"));
    let error = client.error(&json!({"call": "get_proc", "group": "g"}));
    assert_eq!(error["name"], "not_found");
    service.stop();
}

#[test]
fn any_pool_of_a_language_serves_a_request_for_the_language() {
    let service = Service::start("[query_server_config]\nos_process_limit = 1\n");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 1}));
    let any = json!({"id": 1, "call": "get_proc", "lang": "python", "any": true});
    client.ok(&any);
    client.ok(&any);
    assert_eq!(
        (
            client.pool("p")["used"].clone(),
            client.pool("python")["used"].clone()
        ),
        (1.into(), 1.into())
    );
    service.stop();
}

#[test]
fn a_group_queues_while_any_of_its_pools_has_room_to_queue() {
    let service = Service::start("");
    let mut client = service.connect();
    for (name, queue_max) in [("a", 1), ("b", 6)] {
        let settings = json!({"group": "g", "max": 1, "queue_max": queue_max});
        add(&mut client, name, &settings);
    }
    let _held = [take_group(&mut client, "g"), take_group(&mut client, "g")];
    let mut waiters: Vec<_> = (0..7).map(|_| service.connect()).collect();
    for (waiter, count) in waiters.iter_mut().zip(1..) {
        waiter.send(&json!({"id": "take", "call": "get_proc", "group": "g"}));
        wait_until("a waiter", || {
            let mut waiting = |pool| client.pool(pool)["waiting"].as_u64().unwrap();
            waiting("a") + waiting("b") == count
        });
    }
    let refused = service
        .connect()
        .error(&json!({"id": "take", "call": "get_proc", "group": "g"}));
    assert_eq!(refused["name"], "pool_busy");
    service.stop();
}
