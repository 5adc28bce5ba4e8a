//! The rules of a pool, one by one, over the socket.

use serde_json::{Value, json};

use super::support::{
    add, give_back, prints, reconfigure, take, take_request, taken, wait_until_waiting,
};
use crate::support::daemon::{Order, Service, wait_until};

#[test]
fn a_pool_starts_init_size_processes_and_lends_the_last_returned_first() {
    let service = Service::start("");
    let mut client = service.connect();
    let changes = add(&mut client, "p", &json!({"init_size": 2, "max": 5}));
    let expected = json!([{"add": "p"}, {"set": "language", "value": "python"},
        {"set": "init_size", "value": 2}, {"set": "max", "value": 5}, {"start": 2}]);
    assert_eq!(changes, expected);
    client.wait_for_pool("p", &[("free", 2), ("used", 0)]);
    let (a, b) = (take(&mut client, "p"), take(&mut client, "p"));
    assert_ne!(a.os_pid, b.os_pid);
    client.wait_for_pool("p", &[("free", 0), ("used", 2), ("opening", 0)]);
    for (last, other) in [(&b, &a), (&a, &b)] {
        let held: Vec<_> = match last.os_pid == b.os_pid {
            true => vec![a.clone(), b.clone()],
            false => vec![take(&mut client, "p"), take(&mut client, "p")],
        };
        let of = |pid| held.iter().find(|lent| lent.os_pid == pid).unwrap();
        assert!(give_back(&mut client, of(other.os_pid), "ok"));
        assert!(give_back(&mut client, of(last.os_pid), "ok"));
        let next = take(&mut client, "p");
        assert_eq!(next.os_pid, last.os_pid);
        assert!(give_back(&mut client, &next, "ok"));
    }
    service.stop();
}

#[test]
fn min_free_processes_are_kept_free_until_max_is_reached() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"min_free": 1, "max": 3}));
    client.wait_for_pool("p", &[("free", 1)]);
    take(&mut client, "p");
    client.wait_for_pool("p", &[("used", 1), ("free", 1)]);
    take(&mut client, "p");
    client.wait_for_pool("p", &[("used", 2), ("free", 1)]);
    take(&mut client, "p");
    client.wait_for_pool("p", &[("used", 3), ("free", 0), ("opening", 0)]);
    service.stop();
}

#[test]
fn waiters_beyond_queue_max_are_refused_at_once() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 1, "queue_max": 1}));
    let held = take(&mut client, "p");
    let mut waiter = service.connect();
    waiter.send(&take_request("p"));
    wait_until_waiting(&mut client, "p", 1);
    let error = client.error(&take_request("p"));
    assert_eq!(
        (&error["name"], &error["retry"]),
        (&json!("pool_busy"), &json!(true))
    );
    assert!(
        error["reason"].as_str().unwrap().contains("queue_max"),
        "{error}"
    );
    assert!(give_back(&mut client, &held, "ok"));
    assert_eq!(taken(&mut waiter).os_pid, held.os_pid);
    let totals = client.pool("p")["totals"].clone();
    assert_eq!(totals["busy"], 1);
    service.stop();
}

#[test]
fn a_cancelled_call_leaves_the_queue_and_costs_no_process() {
    let service = Service::start("");
    let (mut client, mut caller) = (service.connect(), service.connect());
    add(&mut client, "p", &json!({"max": 1, "queue_max": 1}));
    let held = take(&mut client, "p");
    caller.send(&json!({"id": 1, "call": "map_docs", "pool": "p", "db": "shop", "funs": ["f"], "docs": [{"_id": "a"}]}));
    wait_until_waiting(&mut client, "p", 1);
    caller.send(&json!({"id": "c", "call": "cancel", "request": 1}));
    wait_until_waiting(&mut client, "p", 0);
    assert!(give_back(&mut client, &held, "ok"));
    assert_eq!(take(&mut client, "p").os_pid, held.os_pid);
    assert_eq!(client.pool("p")["totals"]["lost"], 0);
    service.stop();
}

#[test]
fn a_process_returned_as_broken_is_replaced_by_a_new_one() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 2}));
    let broken = take(&mut client, "p");
    assert!(give_back(&mut client, &broken, "fail"));
    // A second return changes nothing.
    assert!(!give_back(&mut client, &broken, "ok"));
    client.wait_for_pool("p", &[("free", 1), ("used", 0), ("stopping", 0)]);
    let fresh = take(&mut client, "p");
    assert_ne!(fresh.os_pid, broken.os_pid);
    assert_eq!(client.pool("p")["totals"]["failed"], 1);
    service.stop();
}

#[test]
fn a_crashed_clients_processes_are_replaced_in_a_named_pool() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 2}));
    let mut crashing = service.connect();
    let held = [take(&mut crashing, "p"), take(&mut crashing, "p")];
    drop(crashing);
    client.wait_for_pool("p", &[("free", 2), ("used", 0), ("stopping", 0)]);
    for _ in 0..2 {
        let next = take(&mut client, "p");
        assert!(held.iter().all(|lent| lent.os_pid != next.os_pid));
    }
    service.stop();
}

#[test]
fn on_client_crash_return_resets_and_keeps_the_process_of_a_crashed_client() {
    let service = Service::start("");
    let mut client = service.connect();
    add(
        &mut client,
        "p",
        &json!({"max": 1, "on_client_crash": "return"}),
    );
    let mut crashing = service.connect();
    let held = take(&mut crashing, "p");
    crashing.prompt(&held.proc, json!(["echo", 1]));
    drop(crashing);
    let next = take(&mut client, "p");
    assert_eq!(next.os_pid, held.os_pid);
    service.stop();
}

#[test]
fn a_process_whose_client_dies_with_a_prompt_in_flight_is_never_lent_again() {
    const ROUNDS: u64 = 60;
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 2}));
    for round in 0..ROUNDS {
        let mut crashing = service.connect();
        let held = take(&mut crashing, "p");
        let prompt = json!({"id": 1, "call": "prompt", "proc": held.proc, "data": ["echo", round]});
        crashing.send(&prompt);
        if round % 2 == 0 {
            // One prompt is answered, and the next is in flight.
            crashing.reply();
            crashing.send(&prompt);
        }
        drop(crashing);
        client.wait_for_pool("p", &[("used", 0)]);
        let next = [take(&mut client, "p"), take(&mut client, "p")];
        for next in next {
            assert_ne!(next.os_pid, held.os_pid, "round {round}");
            assert!(give_back(&mut client, &next, "ok"));
        }
    }
    // Each loan ends once, and is counted once.
    let totals = client.pool("p")["totals"].clone();
    assert_eq!(totals["lost"], ROUNDS, "{totals}");
    assert_eq!(totals["returned"], 2 * ROUNDS, "{totals}");
    assert_eq!(totals["failed"], 0, "{totals}");
    assert_eq!(totals["taken"], 3 * ROUNDS, "{totals}");
    service.stop();
}

#[test]
fn a_client_may_hold_several_processes_and_each_is_returned_once() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 3}));
    let held: Vec<_> = (0..3).map(|_| take(&mut client, "p")).collect();
    client.wait_for_pool("p", &[("used", 3)]);
    for lent in &held {
        assert!(give_back(&mut client, lent, "ok"));
        assert!(!give_back(&mut client, lent, "ok"));
    }
    let pool = client.pool("p");
    assert_eq!(
        (&pool["free"], &pool["totals"]["returned"]),
        (&json!(3), &json!(3))
    );
    // Another client's token is refused.
    let other = take(&mut service.connect(), "p");
    assert!(!give_back(&mut client, &other, "ok"));
    service.stop();
}

#[test]
fn a_process_stops_on_return_after_max_uses() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 1, "max_uses": 2}));
    let first = take(&mut client, "p");
    give_back(&mut client, &first, "ok");
    let second = take(&mut client, "p");
    assert_eq!(second.os_pid, first.os_pid);
    // A lent process is not stopped.
    assert_eq!(client.prompt(&second.proc, json!(["echo", 7])), 7);
    give_back(&mut client, &second, "ok");
    let third = take(&mut client, "p");
    assert_ne!(third.os_pid, first.os_pid);
    assert_eq!(client.pool("p")["totals"]["recycled"]["uses"], 1);
    service.stop();
}

#[test]
fn an_idle_process_older_than_max_age_is_stopped() {
    let service = Service::start("");
    let mut client = service.connect();
    add(
        &mut client,
        "p",
        &json!({"max": 1, "max_age": "1ms", "jitter": 0}),
    );
    let first = take(&mut client, "p");
    assert_eq!(client.prompt(&first.proc, json!(["echo", 7])), 7);
    give_back(&mut client, &first, "ok");
    client.wait_for_pool("p", &[("free", 0), ("stopping", 0)]);
    assert_eq!(client.pool("p")["totals"]["recycled"]["age"], 1);
    service.stop();
}

#[test]
fn a_burst_is_culled_back_to_init_size() {
    let service = Service::start("");
    let mut client = service.connect();
    let settings = json!({"max": 3, "init_size": 1, "cull_after": "1ms", "cull_interval": "1s"});
    add(&mut client, "p", &settings);
    let held: Vec<_> = (0..3).map(|_| take(&mut client, "p")).collect();
    for lent in &held {
        give_back(&mut client, lent, "ok");
    }
    client.wait_for_pool("p", &[("free", 1), ("stopping", 0)]);
    // A process that was idle before the burst may have been culled, too.
    let totals = client.pool("p")["totals"].clone();
    let [started, culled] = [&totals["started"], &totals["recycled"]["culled"]].map(Value::as_u64);
    assert!(culled >= Some(2), "{totals}");
    assert_eq!(started, culled.map(|culled| culled + 1), "{totals}");
    service.stop();
}

#[test]
fn reconfiguring_a_pool_returns_the_list_of_changes() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 4, "init_size": 3}));
    client.wait_for_pool("p", &[("free", 3)]);
    let changes = client.operator.ok(&reconfigure(
        "p",
        &json!({"max": 2, "init_size": 1, "queue_max": 9}),
    ));
    let expected = json!([{"set": "init_size", "value": 1}, {"set": "max", "value": 2},
        {"set": "queue_max", "value": 9}, {"stop_idle": 1}]);
    assert_eq!(changes, expected);
    client.wait_for_pool("p", &[("free", 2), ("hard_limit", 2)]);
    let changes = client
        .operator
        .ok(&reconfigure("p", &json!({"init_size": 5, "max": 6})));
    assert_eq!(changes[2], json!({"start": 3}));
    client.wait_for_pool("p", &[("free", 5)]);
    assert_eq!(
        client.operator.ok(&reconfigure("p", &json!({"max": 6}))),
        json!([])
    );
    service.wait_for_log("reconfigure_pool");
    service.stop();
}

#[test]
fn one_invalid_setting_rejects_the_whole_change() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 4}));
    let before = client.pool("p")["settings"].clone();
    for (settings, says) in [
        (
            json!({"max": 3, "init_size": 4}),
            "init_size (4) is above max (3)",
        ),
        (json!({"max": 3, "maxx": 4}), "did you mean 'max'?"),
        (
            json!({"max": 3, "language": "javascript"}),
            "'language' cannot change",
        ),
        (
            json!({"max": 3, "command": "/bin/sh"}),
            "a request cannot bring a command",
        ),
        (json!({"max": "many"}), "'max'"),
    ] {
        let error = client.operator.error(&reconfigure("p", &settings));
        assert_eq!(
            (&error["name"], &error["fault"]),
            (&json!("bad_request"), &json!("client"))
        );
        assert!(error["reason"].as_str().unwrap().contains(says), "{error}");
        assert_eq!(client.pool("p")["settings"], before);
    }
    let missing = Order::new("PUT", "/_pools/q?mode=change", json!({"max": 3}));
    assert_eq!(client.operator.error(&missing)["name"], "not_found");
    service.stop();
}

#[test]
fn a_pool_that_cannot_be_added_is_refused_with_a_reason() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({}));
    for (pool, settings, name) in [
        ("p", json!({"language": "python"}), "file_exists"),
        ("P", json!({"language": "python"}), "file_exists"),
        (
            "javascript",
            json!({"language": "javascript"}),
            "file_exists",
        ),
        ("q", json!({}), "bad_request"),
        ("q", json!({"language": "perl"}), "bad_request"),
        (
            "q",
            json!({"language": "python", "command": "sh"}),
            "bad_request",
        ),
        ("_q", json!({"language": "python"}), "bad_request"),
        ("a:b", json!({"language": "python"}), "bad_request"),
        ("q.", json!({"language": "python"}), "bad_request"),
        (
            "q",
            json!({"language": "python", "group": "a\u{7}"}),
            "bad_request",
        ),
        (
            "q",
            json!({"name": "r", "language": "python"}),
            "bad_request",
        ),
        ("q", json!(["language"]), "bad_request"),
    ] {
        let path = format!("/_pools/{pool}?mode=add");
        let order = Order::new("PUT", path, settings);
        assert_eq!(client.operator.error(&order)["name"], name, "{order:?}");
    }
    let status = client.operator.get("/_status");
    let names: Vec<_> = status["pools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["name"])
        .collect();
    assert_eq!(names.iter().filter(|name| **name == "p").count(), 1);
    assert!(names.iter().all(|name| **name != "q"));
    service.stop();
}

#[test]
fn a_request_is_served_only_by_the_pool_that_it_names_and_in_its_language() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 1}));
    let got = client.ok(&json!({"call": "get_proc", "pool": "P", "lang": "Python"}));
    assert_eq!(got["lang"], "python");
    assert_eq!(
        (
            client.pool("p")["used"].clone(),
            client.pool("python")["used"].clone()
        ),
        (1.into(), 0.into())
    );
    for request in [
        json!({"call": "get_proc", "pool": "p", "lang": "javascript"}),
        json!({"call": "get_proc", "pool": "q"}),
        json!({"call": "get_proc", "group": "g"}),
    ] {
        assert_eq!(client.error(&request)["name"], "not_found", "{request}");
    }
    for request in [
        json!({"call": "get_proc", "pool": "p", "group": "g"}),
        json!({"call": "get_proc", "pool": ""}),
        json!({"call": "get_proc", "pool": "p", "lane": "fast"}),
        json!({"call": "get_proc"}),
    ] {
        assert_eq!(client.error(&request)["name"], "bad_request", "{request}");
    }
    service.stop();
}

#[test]
fn functions_run_in_the_pool_that_their_call_names() {
    let service = Service::start("");
    let mut client = service.connect();
    let add_js = reconfigure("js", &json!({"language": "javascript", "max": 1}));
    client.operator.ok(&add_js);
    let rows = client.ok(
        &json!({"call": "map_docs", "lang": "javascript", "pool": "js",
        "funs": ["function(doc) { emit(doc.x, null) }"], "docs": [{"_id": "a", "x": 1}]}),
    );
    assert_eq!(rows, json!([[[[1, null]]]]));
    assert_eq!(client.pool("js")["totals"]["taken"], 1);
    assert_eq!(client.pool("javascript")["totals"]["taken"], 0);
    let ddoc = json!({"_id": "_design/d", "_rev": "1-a", "language": "javascript",
        "shows": {"s": "function(doc, req) { return 'hello' }"}});
    let shown =
        json!({"call": "show", "db": "db", "ddoc": ddoc, "name": "s", "req": {}, "pool": "js"});
    assert_eq!(client.ok(&shown)["body"], "hello");
    assert_eq!(client.pool("javascript")["totals"]["taken"], 0);
    service.stop();
}

#[test]
fn a_call_without_a_language_uses_that_of_its_pool_or_group() {
    let pools = ["js", "mango"].map(|name| {
        let language = if name == "js" { "javascript" } else { "query" };
        format!("[pools.{name}]\nlanguage = \"{language}\"\ngroup = \"of-{name}\"\n")
    });
    let service = Service::start(&pools.concat());
    let mut client = service.connect();
    let docs = json!([{"_id": "a", "n": 1}]);
    let source = "function(doc) { emit(doc.n, 1) }";
    let sum = "function(keys, values) { return sum(values) }";
    let definition = json!({"fields": {"n": "asc"}});
    for (call, value) in [
        (
            json!({"call": "map_docs", "pool": "js", "funs": [source], "docs": docs}),
            json!([[[[1, 1]]]]),
        ),
        (
            json!({"call": "map_docs", "group": "of-js", "lang": null, "funs": [source], "docs": docs}),
            json!([[[[1, 1]]]]),
        ),
        (
            json!({"call": "map_docs", "pool": "mango", "funs": [definition], "docs": docs}),
            json!([[[[[1], null]]]]),
        ),
        (
            json!({"call": "reduce", "pool": "js", "funs": [sum], "rows": [[["k", "a"], 2]]}),
            json!([2]),
        ),
        (
            json!({"call": "rereduce", "group": "of-js", "funs": [sum], "values": [[2], [3]]}),
            json!([5]),
        ),
        (
            json!({"call": "try_compile", "pool": "js", "name": "v", "fun": source}),
            json!(true),
        ),
        (
            json!({"call": "index_docs", "pool": "js", "fun": "function(doc) { index('n', doc.n) }", "docs": docs}),
            json!([[["n", 1, {}]]]),
        ),
    ] {
        assert_eq!(client.ok(&call), value, "{call}");
    }
    assert_eq!(client.pool("javascript")["totals"]["taken"], 0);
    let map = json!({"call": "map_docs", "pool": "none", "funs": [source], "docs": docs});
    let error = client.error(&map);
    assert_eq!(error["name"], "not_found", "{error}");
    assert_eq!(error["reason"], "there is no pool named 'none'");
    let without = json!({"call": "map_docs", "funs": [source], "docs": docs});
    let error = client.error(&without);
    assert_eq!(
        (&error["name"], &error["reason"]),
        (&json!("bad_request"), &json!("'lang' is missing"))
    );
    service.stop();
}

#[test]
fn a_section_named_like_a_language_configures_the_languages_own_pool() {
    let service = Service::start("[pools.python]\ninit_size = 2\nmax = 2\nqueue_max = 0\n");
    let mut client = service.connect();
    client.wait_for_pool("python", &[("free", 2), ("hard_limit", 2)]);
    let held = [client.get_proc("python"), client.get_proc("python")];
    let error = client.error(&json!({"call": "get_proc", "lang": "python"}));
    assert_eq!(error["name"], "pool_busy");
    for proc in held {
        assert!(client.ret_proc(&proc));
    }
    // The pool is removed only with its language.
    let error = client
        .operator
        .error(&super::support::remove("python", "immediate"));
    assert_eq!(error["name"], "bad_request");
    service.stop();
}

#[test]
fn interactive_requests_use_the_capacity_reserved_for_them() {
    let service = Service::start("");
    let mut client = service.connect();
    add(
        &mut client,
        "p",
        &json!({"max": 2, "interactive_reserved": 1}),
    );
    let bulk = json!({"id": "b", "call": "get_proc", "pool": "p", "lane": "bulk"});
    client.ok(&bulk);
    let mut waiter = service.connect();
    waiter.send(&bulk);
    wait_until_waiting(&mut client, "p", 1);
    let quick = json!({"id": "i", "call": "get_proc", "pool": "p", "lane": "interactive"});
    let quick = client.ok(&quick);
    assert_eq!(client.pool("p")["waiting"], 1);
    assert!(client.ret_proc(quick["proc"].as_str().unwrap()));
    drop(waiter);
    wait_until("the waiter is gone", || client.pool("p")["waiting"] == 0);
    service.stop();
}

#[test]
fn a_request_that_times_out_names_the_limit() {
    let service = Service::start("[query_server_config]\nos_process_limit = 1\n");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 1}));
    add(&mut client, "g-1", &json!({"max": 1, "group": "g"}));
    let cases = [
        (json!({"pool": "p"}), "raise max of the pool 'p'"),
        (
            json!({"group": "g"}),
            "raise max of a pool of the group 'g'",
        ),
        (json!({"lang": "python"}), "raise os_process_limit"),
    ];
    let ask = |from: &Value| {
        let mut request = json!({"id": 1, "call": "get_proc", "timeout_ms": 50});
        request
            .as_object_mut()
            .unwrap()
            .extend(from.as_object().unwrap().clone());
        request
    };
    for (from, remedy) in &cases {
        let mut holds = ask(from);
        holds.as_object_mut().unwrap().remove("timeout_ms");
        client.ok(&holds);
        let reason = client.error(&ask(from))["reason"].to_string();
        assert!(reason.contains(remedy), "{remedy} in {reason}");
        assert_eq!(
            reason.contains("os_process_limit"),
            remedy.contains("os_process_limit")
        );
    }
    client
        .operator
        .ok(&reconfigure("python", &json!({"max": 1})));
    let reason = client.error(&ask(&json!({"lang": "python"})))["reason"].to_string();
    assert!(
        reason.contains("raise max of the pool 'python'"),
        "{reason}"
    );
    service.stop();
}

#[test]
fn log_lines_about_a_process_name_its_pool() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 1}));
    let lent = take(&mut client, "p");
    let pid = format!("\"os_pid\":{}", lent.os_pid);
    let line_with = |word: &str| {
        let log = service.log();
        let mut lines = log.lines().filter(|line| line.contains(word));
        lines.find(|line| line.contains(&pid)).map(str::to_owned)
    };
    wait_until("the start in the log", || {
        line_with("query server started").is_some()
    });
    let line = line_with("query server started").unwrap();
    assert!(line.contains("\"pool\":\"p\""), "{line}");
    service.stop();
}

#[test]
fn status_shows_every_setting_in_force() {
    let service = Service::start("[query_server_config]\nos_process_limit = 7\n");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"group": "g", "min_free": 0}));
    let settings = client.pool("p")["settings"].clone();
    let wanted = json!({"language": "python", "group": "g", "max": 7, "queue_max": "off",
        "on_client_crash": "replace", "stop_grace": 2000, "throttle_delay": 60, "callers": false});
    for (key, value) in wanted.as_object().unwrap() {
        assert_eq!(&settings[key], value, "{key}");
    }
    let all = keys_of_pools();
    let shown: Vec<&String> = settings.as_object().unwrap().keys().collect();
    assert!(
        all.iter().all(|key| shown.iter().any(|name| name == key)),
        "{shown:?}"
    );
    let own = client.pool("python")["settings"].clone();
    let wanted = json!({"language": "python", "max": 7, "on_client_crash": "return",
        "stop_grace": 2000, "throttle_delay": 0});
    for (key, value) in wanted.as_object().unwrap() {
        assert_eq!(&own[key], value, "{key}");
    }
    client
        .operator
        .ok(&reconfigure("p", &json!({"max": 3, "throttle_delay": 5})));
    let settings = client.pool("p")["settings"].clone();
    assert_eq!(
        (&settings["max"], &settings["throttle_delay"]),
        (&json!(3), &json!(5))
    );
    service.stop();
}

/// The keys of a `[pools.NAME]` section.
fn keys_of_pools() -> Vec<&'static str> {
    settee::config::keys::names("pools.any")
}

#[test]
fn the_holder_of_a_process_is_shown_with_its_pid_and_user() {
    let service = Service::start("");
    let mut client = service.connect();
    add(&mut client, "p", &json!({"max": 1}));
    take(&mut client, "p");
    let holder = client.pool("p")["procs"][0]["holder"].clone();
    let id = |option: &str| {
        let output = std::process::Command::new("id")
            .arg(option)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let name = std::process::Command::new("id")
        .arg("-un")
        .output()
        .unwrap();
    let name = String::from_utf8(name.stdout).unwrap().trim().to_owned();
    assert_eq!(holder["pid"], std::process::id(), "{holder}");
    assert_eq!(holder["uid"].to_string(), id("-u"));
    assert_eq!(holder["user"], name);
    let shown = prints(&service, &["pool", "procs", "p"]);
    assert!(
        shown.contains(&format!("{name}, pid {}", std::process::id())),
        "{shown}"
    );
    service.stop();
}

/// Queues twelve requests of a big database and then one of each of three small ones, while the only process is
/// lent. Returns the order in which they are served.
fn order_of_service(service: &Service, kind: &str) -> Vec<String> {
    let mut holder = service.connect();
    let held = holder.get_proc("javascript");
    let mut client = service.connect();
    let big = (0..12).map(|number| (format!("big {number}"), format!("{kind}-big")));
    let small = ["s1", "s2", "s3"].map(|db| (db.to_owned(), format!("{kind}-{db}")));
    for (id, db) in big.chain(small) {
        let mut call = json!({"id": id, "call": kind, "db": db});
        if kind != "ddoc_prompt" {
            call["lang"] = json!("javascript");
        }
        let of_kind = match kind {
            "map_docs" => {
                json!({"funs": ["function(doc) { emit(doc._id, 1) }"], "docs": [{"_id": "a"}]})
            }
            "reduce" => json!({"funs": ["function(keys, values) { return values.length }"],
                "rows": [[["a", "1"], 1]]}),
            "ddoc_prompt" => {
                json!({"ddoc": {"_id": "_design/d", "shows": {"s": "function() { return 'x' }"}},
                "path": ["shows", "s"], "args": [null, {}]})
            }
            _ => json!({}),
        };
        let members = of_kind.as_object().unwrap().clone();
        call.as_object_mut().unwrap().extend(members);
        client.send(&call);
    }
    holder.wait_for_pool("javascript", &[("waiting", 15)]);
    assert!(holder.ret_proc(&held));
    let mut served = Vec::new();
    while served.len() < 15 {
        let reply = client.reply();
        assert!(reply.get("ok").is_some(), "{kind}: {reply}");
        let proc = reply["ok"].get("proc").cloned();
        if let Some(proc) = proc {
            client.send(&json!({"id": "ret", "call": "ret_proc", "proc": proc}));
        }
        if reply["id"] != "ret" {
            served.push(reply["id"].as_str().unwrap().to_owned());
        }
    }
    served
}

#[test]
fn per_db_fairness_serves_small_databases_before_the_backlog_of_a_big_one() {
    for reuse in ["any", "database"] {
        let service = Service::start(&format!(
            "[pools.javascript]\nmax = 1\nfairness = \"per_db\"\nreuse = \"{reuse}\""
        ));
        for kind in ["map_docs", "reduce", "ddoc_prompt", "get_proc"] {
            let served = order_of_service(&service, kind);
            let first = ["big 0", "s1", "s2", "s3", "big 1", "big 2"];
            assert_eq!(served[..first.len()], first, "{reuse}, {kind}: {served:?}");
        }
        service.stop();
    }
}
