//! Removing a pool, gracefully and at once.

use serde_json::json;

use super::support::{
    add, give_back, remove, take, take_request, wait_until_gone, wait_until_waiting,
};
use crate::support::daemon::{Service, call_at_once, pid_exists, wait_until};

#[test]
fn a_gracefully_removed_pool_is_gone_once_its_last_process_is_returned() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 2, "init_size": 2}));
    client.wait_for_pool("p", &[("free", 2)]);
    let held = take(&mut client, "p");
    let changes = client.operator.ok(&remove("p", "graceful"));
    let expected =
        json!([{"remove": "p", "mode": "graceful"}, {"stop_idle": 1}, {"stop_returned": 1}]);
    assert_eq!(changes, expected);
    // It lends no more processes.
    assert_eq!(client.error(&take_request("p"))["name"], "not_found");
    assert_eq!(client.pool("p")["removing"], "graceful");
    // The lent process keeps working.
    assert_eq!(client.prompt(&held.proc, json!(["echo", "still"])), "still");
    assert!(give_back(&mut client, &held, "ok"));
    wait_until_gone(&mut client, "p");
    wait_until("the end of its process", || !pid_exists(held.os_pid));
    service.wait_for_log("pool is gone");
    service.stop();
}

#[test]
fn waiters_of_a_removed_pool_get_an_error() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 1}));
    let held = take(&mut client, "p");
    let mut waiter = service.connect();
    waiter.send(&take_request("p"));
    wait_until_waiting(&mut client, "p", 1);
    client.operator.ok(&remove("p", "graceful"));
    let error = waiter.reply()["error"].clone();
    assert_eq!(error["name"], "pool_removed");
    assert_eq!(error["reason"], "the pool 'p' was removed");
    assert!(give_back(&mut client, &held, "ok"));
    wait_until_gone(&mut client, "p");
    service.stop();
}

#[test]
fn only_holders_in_an_immediately_removed_pool_are_notified() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 2}));
    let mut holder = service.connect();
    let held = take(&mut holder, "p");
    // A holder in another pool is not notified.
    let mut other = service.connect();
    let elsewhere = other.get_proc("python");
    let changes = client.operator.ok(&remove("p", "immediate"));
    assert_eq!(
        changes,
        json!([{"remove": "p", "mode": "immediate"}, {"stop_used": 1}])
    );
    let notice = holder.reply();
    let expected = json!({"down": held.proc, "name": "pool_removed",
                          "reason": "the pool 'p' was removed"});
    assert_eq!(notice, expected);
    assert!(!give_back(&mut holder, &held, "ok"));
    let prompt = json!({"call": "prompt", "proc": held.proc, "data": ["echo", 1]});
    assert_eq!(holder.error(&prompt)["name"], "not_holder");
    wait_until_gone(&mut client, "p");
    wait_until("the end of its process", || !pid_exists(held.os_pid));
    assert_eq!(other.prompt(&elsewhere, json!(["echo", 1])), 1);
    service.stop();
}

#[test]
fn a_prompt_in_progress_fails_if_its_pool_is_removed_at_once() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 1}));
    let mut holder = service.connect();
    let held = take(&mut holder, "p");
    holder.send(&json!({"id": 9, "call": "prompt", "proc": held.proc, "data": ["never"]}));
    // The prompt is in progress once a later call on the same connection is answered.
    holder.send(&call_at_once(10));
    assert_eq!(holder.reply()["id"], 10);
    client.operator.ok(&remove("p", "immediate"));
    let (first, second) = (holder.reply(), holder.reply());
    let is_notice = |value: &serde_json::Value| value["down"] == held.proc.as_str();
    let (notice, reply) = match is_notice(&first) {
        true => (first, second),
        false => (second, first),
    };
    assert!(is_notice(&notice), "{notice}");
    assert_eq!(
        (&reply["id"], &reply["error"]["name"]),
        (&json!(9), &json!("os_process_error"))
    );
    wait_until_gone(&mut client, "p");
    service.stop();
}

#[test]
fn a_name_can_be_reused_during_a_removal_and_the_removal_made_immediate() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 1}));
    let old = take(&mut client, "p");
    client.operator.ok(&remove("p", "graceful"));
    // A removal in progress can be made immediate.
    client.operator.ok(&remove("p", "immediate"));
    assert_eq!(client.reply()["down"], old.proc.as_str());
    wait_until_gone(&mut client, "p");
    assert_eq!(
        client.operator.error(&remove("p", "graceful"))["name"],
        "not_found"
    );
    add(&mut client, "p", &json!({"max": 1}));
    let kept = take(&mut client, "p");
    client.operator.ok(&remove("p", "graceful"));
    add(&mut client, "p", &json!({"max": 1}));
    let new = take(&mut client, "p");
    assert_ne!(new.os_pid, kept.os_pid);
    assert!(give_back(&mut client, &kept, "ok"));
    assert!(give_back(&mut client, &new, "ok"));
    client.wait_for_pool("p", &[("free", 1), ("used", 0)]);
    service.stop();
}

#[test]
fn an_unknown_removal_mode_is_refused() {
    let service = Service::start("");
    let client = service.connect();
    assert_eq!(
        client.operator.error(&remove("p", "soon"))["name"],
        "bad_request"
    );
    service.stop();
}
