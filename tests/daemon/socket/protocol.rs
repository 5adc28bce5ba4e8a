//! The contract of the client socket: what each call does, in what order replies arrive, and what happens to the
//! processes of a client that disconnects.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::daemon::{Client, Order, Service, call_at_once, wait_until};

fn ddoc(id: &str) -> Value {
    json!({"_id": format!("_design/{id}"), "_rev": "1-x", "language": "python", "n": 1.0})
}

#[test]
fn a_process_is_lent_prompted_and_given_back() {
    let service = Service::start("[couchdb]\nos_process_timeout = 5000\n");
    let mut client = service.connect();
    let got = client.ok(&json!({"id": 1, "call": "get_proc", "lang": "python"}));
    assert_eq!(got["lang"], "python");
    assert_eq!(got["config"]["reduce_limit"], true);
    assert_eq!(got["config"]["timeout"], 5000);
    let proc = got["proc"].as_str().unwrap();
    assert_eq!(client.prompt(proc, json!(["reset", got["config"]])), true);
    assert_eq!(client.prompt(proc, json!(["pid"])), got["os_pid"]);
    assert_eq!(client.pool("python")["used"], 1);
    assert!(client.ret_proc(proc));
    assert_eq!(client.pool("python")["free"], 1);
    let again = client.ok(&json!({"id": 2, "call": "get_proc", "lang": "PYTHON"}));
    assert_eq!(again["os_pid"], got["os_pid"], "the idle process is used");
    assert_ne!(
        again["proc"], got["proc"],
        "every assignment has its own token"
    );
    service.stop();
}

#[test]
fn a_reply_carries_the_id_of_its_request_whatever_it_is() {
    let service = Service::start("");
    let mut client = service.connect();
    for id in [
        json!("x\u{e9}\n"),
        json!(17),
        json!({"a": [1]}),
        json!(null),
        json!(false),
    ] {
        let reply = client.call(&call_at_once(id.clone()));
        assert_eq!(reply, json!({"id": id, "ok": false}));
    }
    client.send_raw(b"{\"call\":\"cancel\",\"request\":0,\"id\":1.50e+0}\n");
    assert_eq!(client.line().unwrap(), "{\"id\":1.50e+0,\"ok\":false}\n");
    let nameless = json!({"call": "cancel", "request": 0});
    assert_eq!(client.call(&nameless)["id"], json!(null));
    service.stop();
}

#[test]
fn a_cancelled_call_frees_its_process_and_affects_no_other() {
    let service = Service::start("[pools.javascript]\nmax = 1\n");
    let mut client = service.connect();
    let mut other = service.connect();
    let map = |id: Value, fun: &str| json!({"id": id, "call": "map_docs", "lang": "javascript", "db": "shop", "funs": [fun], "docs": [{"_id": "a"}]});
    client.send(&map(json!({"n": 1}), "function(doc) { for (;;); }"));
    other.wait_for_pool("javascript", &[("used", 1)]);
    client.send(&map(json!(2), "function(doc) { emit(doc._id, 1) }"));
    client.send(&map(json!(3), "function(doc) { emit(doc._id, 1) }"));
    other.wait_for_pool("javascript", &[("waiting", 2)]);
    let cancel = |request: Value| json!({"id": "c", "call": "cancel", "request": request});
    // A waiting call is cancelled too; an unknown id is not an error.
    for request in [json!(3), json!({"n": 1}), json!(4)] {
        client.send(&cancel(request));
    }
    let mut replies: Vec<Value> = (0..6)
        .map(|_| serde_json::from_str(&client.line().unwrap()).unwrap())
        .collect();
    replies.sort_by_key(|reply| reply["id"].to_string());
    assert_eq!(replies[0], json!({"id": "c", "ok": true}));
    assert_eq!(replies[2], json!({"id": "c", "ok": false}));
    assert_eq!(replies[3], json!({"id": 2, "ok": [[[["a", 1]]]]}));
    for cancelled in [&replies[4], &replies[5]] {
        assert_eq!(cancelled["error"]["name"], "cancelled");
        assert_eq!(cancelled["error"]["fault"], "client");
    }
    other.wait_for_pool("javascript", &[("used", 0)]);
    let error = client.error(&json!({"id": 1, "call": "cancel"}));
    assert_eq!(error["name"], "bad_request");
    service.stop();
}

#[test]
fn the_later_of_two_calls_with_one_id_can_be_cancelled_after_the_first_has_ended() {
    let service = Service::start("[pools.javascript]\nmax = 1\n");
    let (mut client, mut holder) = (service.connect(), service.connect());
    let proc = holder.get_proc("javascript");
    let map = |fun: &str| json!({"id": 1, "call": "map_docs", "lang": "javascript", "db": "shop", "funs": [fun], "docs": [{"_id": "a"}]});
    client.send(&map("function(doc) { emit(doc._id, 1) }"));
    holder.wait_for_pool("javascript", &[("waiting", 1)]);
    client.send(&map("function(doc) { for (;;); }"));
    holder.wait_for_pool("javascript", &[("waiting", 2)]);
    holder.ret_proc(&proc);
    assert_eq!(client.reply(), json!({"id": 1, "ok": [[[["a", 1]]]]}));
    client.send(&json!({"id": "c", "call": "cancel", "request": 1}));
    let mut replies = [client.reply(), client.reply()];
    replies.sort_by_key(|reply| reply["id"].to_string());
    assert_eq!(replies[0], json!({"id": "c", "ok": true}));
    assert_eq!(replies[1]["error"]["name"], "cancelled");
    service.stop();
}

#[test]
fn all_calls_with_one_id_are_cancelled_together_even_after_one_of_them_has_ended() {
    let service = Service::start("[pools.javascript]\nmax = 2\n");
    let (mut client, mut other) = (service.connect(), service.connect());
    let map = |fun: &str| json!({"id": 1, "call": "map_docs", "lang": "javascript", "db": "shop", "funs": [fun], "docs": [{"_id": "a"}]});
    let cancel = json!({"id": "c", "call": "cancel", "request": 1});
    let endless = map("function(doc) { for (;;); }");
    client.send(&endless);
    other.wait_for_pool("javascript", &[("used", 1)]);
    client.send(&map("function(doc) { emit(doc._id, 1) }"));
    assert_eq!(client.reply(), json!({"id": 1, "ok": [[[["a", 1]]]]}));
    client.send(&endless);
    other.wait_for_pool("javascript", &[("used", 2)]);
    client.send(&endless);
    other.wait_for_pool("javascript", &[("waiting", 1)]);
    client.send(&cancel);
    let mut replies: Vec<Value> = (0..4).map(|_| client.reply()).collect();
    replies.sort_by_key(|reply| reply["id"].to_string());
    assert_eq!(replies[0], json!({"id": "c", "ok": true}));
    for cancelled in &replies[1..] {
        assert_eq!(cancelled["error"]["name"], "cancelled", "{cancelled}");
    }
    other.wait_for_pool("javascript", &[("used", 0)]);
    client.send(&cancel);
    assert_eq!(client.reply(), json!({"id": "c", "ok": false}));
    service.stop();
}

#[test]
fn the_answer_of_the_query_server_is_passed_on_unchanged() {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("python");
    let answer = "[ 1.0,\"\\u00fc\", 12345678901234567890 ]";
    let data = json!(["raw", format!("{answer}\r\n")]);
    client.send(&json!({"id": 1, "call": "prompt", "proc": proc, "data": data}));
    assert_eq!(
        client.line().unwrap(),
        format!("{{\"id\":1,\"ok\":{answer}}}\n")
    );
    client.send_raw(
        format!("{{\"id\":2,\"call\":\"prompt\",\"proc\":\"{proc}\",\"data\":[\"echo\", 1.0]}}\n")
            .as_bytes(),
    );
    assert_eq!(client.line().unwrap(), "{\"id\":2,\"ok\":1.0}\n");
    service.stop();
}

#[test]
fn two_hundred_pipelined_requests_are_all_answered() {
    let service = Service::start("[query_server_config]\nos_process_limit = 4");
    let mut client = service.connect();
    let mut text = String::new();
    for id in 0..200 {
        let request = match id % 4 {
            0 => json!({"id": id, "call": "ddoc_prompt", "db": "a", "ddoc": ddoc("d"),
                        "path": ["shows", "s"], "args": [id]}),
            1 => call_at_once(id),
            2 => json!({"id": id, "call": "no such call"}),
            _ => json!({"id": id, "call": "ret_proc", "proc": "none"}),
        };
        text.push_str(&format!("{request}\n"));
    }
    client.send_raw(text.as_bytes());
    let mut answered = [false; 200];
    for _ in 0..200 {
        let reply = client.reply();
        let id = usize::try_from(reply["id"].as_u64().unwrap()).unwrap();
        assert!(!std::mem::replace(&mut answered[id], true), "{id} twice");
        assert_eq!(reply.get("ok").is_some(), id % 4 != 2, "{reply}");
        if id % 4 == 0 {
            let expected = json!(["ddoc", "_design/d", ["shows", "s"], [id]]);
            assert_eq!(reply["ok"], expected);
        }
    }
    service.stop();
}

#[test]
fn prompts_to_one_process_are_answered_in_order_and_its_return_comes_last() {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("python");
    let mut text = String::new();
    for id in 0..2000 {
        let data = if id % 7 == 3 {
            json!(["error", "no", id])
        } else {
            json!(["echo", id])
        };
        let request = json!({"id": id, "call": "prompt", "proc": proc, "data": data});
        text.push_str(&format!("{request}\n"));
    }
    text.push_str(&format!(
        "{}\n",
        json!({"id": "back", "call": "ret_proc", "proc": proc})
    ));
    let mut writer = client.stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(text.as_bytes()));
    for id in 0..2000 {
        let reply = client.reply();
        assert_eq!(reply["id"], id);
        let value = if id % 7 == 3 {
            &reply["error"]["reason"]
        } else {
            &reply["ok"]
        };
        assert_eq!(value, id);
    }
    assert_eq!(client.reply(), json!({"id": "back", "ok": true}));
    writing.join().unwrap().unwrap();
    assert_eq!(client.pool("python")["free"], 1, "no prompt was cut off");
    service.stop();
}

#[test]
fn a_process_that_is_returned_as_failed_is_stopped_at_once() {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("python");
    client.send(&json!({"id": "p", "call": "prompt", "proc": proc, "data": ["never"]}));
    client.send(&json!({"id": "r", "call": "ret_proc", "proc": proc, "status": "fail"}));
    let (one, two) = (client.reply(), client.reply());
    let (prompt, ret) = if one["id"] == "p" {
        (one, two)
    } else {
        (two, one)
    };
    assert_eq!(ret, json!({"id": "r", "ok": true}));
    assert_eq!(prompt["error"]["name"], "os_process_error");
    assert_eq!(prompt["error"]["retry"], true);
    client.wait_for_pool("python", &[("used", 0), ("free", 0), ("stopping", 0)]);
    service.stop();
}

#[test]
fn the_return_of_a_process_that_died_is_answered_with_true() {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("python");
    let request = json!({"id": 1, "call": "prompt", "proc": proc, "data": ["exit", 7]});
    let error = client.error(&request);
    assert_eq!(error["name"], "os_process_error");
    assert_eq!(
        (&error["phase"], &error["fault"]),
        (&json!("exit"), &json!("query_server"))
    );
    assert_eq!(error["exit"], "exited with status 7");
    assert_eq!(error["status"], 7);
    assert_eq!(error["stderr"], json!(["last words"]));
    assert_eq!(error["proc"], proc.as_str());
    let next = client.error(&json!({"id": 2, "call": "prompt", "proc": proc, "data": ["pid"]}));
    assert_eq!(next["name"], "os_process_error");
    client.wait_for_pool("python", &[("used", 0)]);
    assert!(client.ret_proc(&proc));
    assert!(!client.ret_proc(&proc));
    service.stop();
}

#[test]
fn the_error_of_a_process_killed_by_a_refused_system_call_names_the_call() {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("python");
    let request = json!({"id": 1, "call": "prompt", "proc": proc, "data": ["refused", "ptrace"]});
    let error = client.error(&request);
    assert_eq!(
        error["reason"],
        "the query server was killed by SIGSYS (a forbidden system call); its last words: refused \
         system call ptrace"
    );
    assert_eq!(error["status"], 128 + Signal::SYS.as_raw());
    assert_eq!(error["stderr"], json!(["refused system call ptrace"]));
    service.stop();
}

#[test]
fn an_error_line_is_passed_on_with_its_name_and_reason() {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("python");
    for reason in [json!("missing"), json!({"a": [1, null]}), json!(3)] {
        let data = json!(["error", "not_found", reason]);
        let error = client.error(&json!({"id": 1, "call": "prompt", "proc": proc, "data": data}));
        assert_eq!(error["name"], "not_found");
        assert_eq!(error["reason"], reason);
        assert_eq!(error["fault"], "client");
        assert_eq!(error["retry"], false);
        assert_eq!(error.get("fatal"), None);
    }
    let data = json!(["fatal", "unnamed_error", "it ends"]);
    let error = client.error(&json!({"id": 1, "call": "prompt", "proc": proc, "data": data}));
    assert_eq!(
        (&error["name"], &error["fatal"]),
        (&json!("unnamed_error"), &json!(true))
    );
    service.stop();
}

#[test]
fn a_prompt_that_times_out_ends_its_process_and_says_so() {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("python");
    client.ok(&json!({"id": 1, "call": "set_timeout", "proc": proc, "timeout_ms": 50}));
    let error = client.error(&json!({"id": 2, "call": "prompt", "proc": proc, "data": ["never"]}));
    assert_eq!(
        (&error["name"], &error["phase"]),
        (&json!("timeout"), &json!("prompt"))
    );
    assert_eq!(error["retry"], true);
    let proc = client.get_proc("python");
    let error = client.error(
        &json!({"id": 2, "call": "prompt", "proc": proc, "data": ["never"], "timeout_ms": 50}),
    );
    assert_eq!(error["name"], "timeout");
    service.stop();
}

#[test]
fn a_request_may_wait_for_longer_than_the_configured_time() {
    let service = Service::start(
        "[query_server_config]\nos_process_limit = 1\n[couchdb]\nos_process_timeout = 2000",
    );
    let mut holder = service.connect();
    let proc = holder.get_proc("python");
    let mut waiter = service.connect();
    let error = waiter.error(&json!({"id": 1, "call": "get_proc", "lang": "python"}));
    assert_eq!(
        (&error["name"], &error["phase"]),
        (&json!("timeout"), &json!("queue"))
    );
    assert_eq!(
        (&error["fault"], &error["retry"]),
        (&json!("settee"), &json!(true))
    );
    waiter.send(&json!({"id": 2, "call": "get_proc", "lang": "python", "timeout_ms": 60_000}));
    let mut other = service.connect();
    other.error(&json!({"id": 1, "call": "get_proc", "lang": "python"}));
    assert_eq!(
        other.pool("python")["waiting"],
        1,
        "the request has waited for longer than 2000 ms"
    );
    assert!(holder.ret_proc(&proc));
    assert!(waiter.reply()["ok"]["proc"].is_string());
    service.stop();
}

#[test]
fn a_process_for_a_design_document_is_taught_and_tied_to_its_database() {
    let service = Service::start("");
    let mut client = service.connect();
    let request = json!({"id": 1, "call": "get_proc", "ddoc": ddoc("a"), "db": "shop"});
    let proc = client.ok(&request)["proc"].as_str().unwrap().to_owned();
    let taught = client.pool("python")["procs"][0].clone();
    assert_eq!(
        (&taught["db"], &taught["ddocs"]),
        (&json!("shop"), &json!(1))
    );
    assert!(client.ret_proc(&proc));
    let call = json!({"id": 2, "call": "ddoc_prompt", "db": "shop", "ddoc": ddoc("a"),
                      "path": ["shows", "s"], "args": [null, {}]});
    let answer = client.ok(&call);
    assert_eq!(
        answer,
        json!(["ddoc", "_design/a", ["shows", "s"], [null, {}]])
    );
    assert_eq!(
        client.pool("python")["free_tagged"],
        1,
        "the same process was used"
    );
    service.stop();
}

#[test]
fn a_reload_ends_idle_processes_at_once_and_held_ones_on_return() {
    let service = Service::start("");
    let mut client = service.connect();
    let held = client.get_proc("python");
    let idle = client.get_proc("python");
    client.ret_proc(&idle);
    let counts = |client: &Client| {
        let system = client.operator.get("/_node/_local/_system");
        [
            system["os_proc_count"].clone(),
            system["stale_proc_count"].clone(),
        ]
    };
    let order = |client: &Client, path| {
        client.operator.ok(&Order::new("POST", path, json!({})));
    };
    assert_eq!(counts(&client), [2, 0]);
    order(&client, "/_reload_query_servers");
    wait_until("the end of the idle one", || counts(&client) == [1, 1]);
    order(&client, "/_pools/python/_terminate_stale");
    assert_eq!(
        client.prompt(&held, json!(["echo", 1])),
        1,
        "a held one stays"
    );
    client.ret_proc(&held);
    wait_until("the end of the stale one", || counts(&client) == [0, 0]);
    service.stop();
}

#[test]
fn a_half_closed_connection_gets_its_replies_and_is_then_closed() {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("python");
    let sleep = json!({"id": 1, "call": "prompt", "proc": proc, "data": ["sleep", 0.2]});
    let last = json!({"id": 2, "call": "prompt", "proc": proc, "data": ["echo", 2]});
    // The last line has no line feed.
    client.send_raw(format!("{sleep}\n{last}").as_bytes());
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.reply(), json!({"id": 1, "ok": "slept"}));
    assert_eq!(client.reply(), json!({"id": 2, "ok": 2}));
    client.assert_closed();
    service
        .connect()
        .wait_for_pool("python", &[("used", 0), ("free", 1)]);
    service.stop();
}

#[test]
fn loans_of_a_client_return_when_it_closes() {
    let service = Service::start("[query_server_config]\nos_process_limit = 2");
    let mut observer = service.connect();
    let mut client = service.connect();
    let (one, _two) = (client.get_proc("python"), client.get_proc("python"));
    client.prompt(&one, json!(["echo", 1]));
    drop(client);
    observer.wait_for_pool("python", &[("used", 0), ("free", 2)]);
    service.stop();
}

#[test]
fn a_silent_client_does_not_delay_shutdown() {
    let service = Service::start("[server]\nshutdown_grace = \"1h\"\n");
    let _silent = UnixStream::connect(service.socket()).unwrap();
    service.stop();
}

/// Starts a client process that sends each of `requests` and prints its reply before the next.
fn client_process(service: &Service, requests: &[Value]) -> std::process::Child {
    let script =
        "for line do printf '%s\\n' \"$line\" >&0; read -r line; printf '%s\\n' \"$line\"; done";
    let socket = UnixStream::connect(service.socket()).unwrap();
    Command::new("sh")
        .args(["-c", script, "sh"])
        .args(requests.iter().map(Value::to_string))
        .stdin(OwnedFd::from(socket))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_client_leaves_nothing_behind_whatever_it_was_doing() {
    let service = Service::start("[query_server_config]\nos_process_limit = 1");
    let mut observer = service.connect();
    let get = json!({"id": 1, "call": "get_proc", "lang": "python", "timeout_ms": 60_000});
    let gate = service.path("gate");
    let prompt = json!({"id": 1, "call": "prompt", "proc": "1.1.1", "data": ["wait", gate],
                        "timeout_ms": 60_000});
    let mut holder = client_process(&service, &[get.clone(), prompt]);
    let mut line = String::new();
    let mut stdout = BufReader::new(holder.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert!(line.contains("\"proc\":\"1.1.1\""), "{line}");
    // The holder is in the middle of a prompt, and another client waits.
    wait_until("the prompt", || service.path("gate.here").exists());
    let mut waiter = client_process(&service, &[get]);
    observer.wait_for_pool("python", &[("used", 1), ("waiting", 1)]);
    waiter.kill().unwrap();
    waiter.wait().unwrap();
    observer.wait_for_pool("python", &[("used", 1), ("waiting", 0)]);
    let busy = observer.pool("python")["procs"][0]["os_pid"]
        .as_u64()
        .unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    observer.wait_for_pool("python", &[("used", 0), ("stopping", 0), ("waiting", 0)]);
    assert!(
        !crate::support::daemon::pid_exists(busy),
        "a process in the middle of a prompt is killed"
    );
    // A client that is killed while it holds an idle process.
    let hang = json!({"id": 1, "call": "get_proc", "lang": "python", "timeout_ms": 60_000});
    let mut holder = client_process(&service, &[hang.clone(), hang]);
    observer.wait_for_pool("python", &[("used", 1), ("waiting", 1)]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    observer.wait_for_pool("python", &[("used", 0), ("free", 1), ("waiting", 0)]);
    service.stop();
}

#[test]
fn a_client_that_hangs_up_after_half_closing_is_noticed() {
    let service = Service::start("[query_server_config]\nos_process_limit = 1");
    let mut observer = service.connect();
    let mut holder = service.connect();
    let _proc = holder.get_proc("python");
    let mut waiter = service.connect();
    waiter.send(&json!({"id": 1, "call": "get_proc", "lang": "python", "timeout_ms": 60_000}));
    waiter.stream.shutdown(Shutdown::Write).unwrap();
    observer.wait_for_pool("python", &[("waiting", 1)]);
    drop(waiter);
    observer.wait_for_pool("python", &[("waiting", 0)]);
    service.stop();
}

#[test]
fn returns_are_read_however_many_requests_wait() {
    let service = Service::start("[query_server_config]\nos_process_limit = 1");
    let mut client = service.connect();
    let mut proc = client.get_proc("python");
    let get = json!({"id": "get", "call": "get_proc", "lang": "python", "timeout_ms": 60_000});
    client.send_raw(format!("{get}\n").repeat(1000).as_bytes());
    for _ in 0..1000 {
        client.send(&json!({"id": "ret", "call": "ret_proc", "proc": proc}));
        let (one, two) = (client.reply(), client.reply());
        let got = if one["id"] == "get" { one } else { two };
        proc = got["ok"]["proc"].as_str().unwrap().to_owned();
    }
    service.stop();
}

#[test]
fn too_many_waiting_requests_of_one_connection_are_refused() {
    let service = Service::start("[query_server_config]\nos_process_limit = 1");
    let mut holder = service.connect();
    let _proc = holder.get_proc("python");
    let mut client = service.connect();
    let get = json!({"id": "get", "call": "get_proc", "lang": "python", "timeout_ms": 60_000});
    client.send_raw(format!("{get}\n").repeat(4097).as_bytes());
    let reply = client.reply();
    assert_eq!(reply["error"]["name"], "too_many_requests");
    assert_eq!(reply["error"]["retry"], true);
    assert_eq!(holder.pool("python")["waiting"], 4096);
    drop(client);
    holder.wait_for_pool("python", &[("waiting", 0)]);
    service.stop();
}

#[test]
fn a_client_that_does_not_read_delays_only_itself() {
    let service = Service::start("");
    let mut client = service.connect();
    let proc = client.get_proc("python");
    let text = "x".repeat(10_000);
    let request = json!({"id": 1, "call": "prompt", "proc": proc, "data": ["echo", text],
                         "timeout_ms": 60_000});
    let line = format!("{request}\n");
    client.stream.set_nonblocking(true).unwrap();
    // Writes until the service stops reading; another client is served throughout.
    let mut other = service.connect();
    let mut sent = 0_usize;
    let mut refused = 0;
    while refused < 50 {
        match (&client.stream).write(&line.as_bytes()[sent % line.len()..]) {
            Ok(length) => (sent, refused) = (sent + length, 0),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                other.pool("python");
                refused += 1;
            }
        }
        assert!(sent < 200 << 20, "the service reads without bound");
    }
    client.stream.set_nonblocking(false).unwrap();
    let rest = line.as_bytes()[sent % line.len()..].to_vec();
    let mut writer = client.stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&rest));
    for _ in 0..sent.div_ceil(line.len()) {
        assert_eq!(client.reply()["ok"], text.as_str());
    }
    writing.join().unwrap().unwrap();
    service.stop();
}

#[test]
fn an_attached_connection_carries_the_lines_of_its_process() {
    let service = Service::start("");
    let mut client = service.connect();
    let error = client.error(&json!({"id": 1, "call": "attach", "lang": "no-such"}));
    assert_eq!(
        error["name"], "unknown_query_language",
        "the connection is not closed"
    );
    let attached = client.ok(&json!({"id": 2, "call": "attach", "lang": "python"}));
    assert_eq!(attached["lang"], "python");
    client.send_raw(b"[\"pid\"]\n[\"log\",\"hello\"]\n[\"error\",\"a\",\"b\"]\n[\"echo\", 1.0]\n");
    assert_eq!(client.line().unwrap(), format!("{}\n", attached["os_pid"]));
    assert_eq!(client.line().unwrap(), "[\"log\",\"hello\"]\n");
    assert_eq!(client.line().unwrap(), "true\n");
    assert_eq!(client.line().unwrap(), "[\"error\",\"a\",\"b\"]\n");
    assert_eq!(client.line().unwrap(), "1.0\n");
    client.send_raw(b"7\n[\"sleep\",0.1]\n[\"echo\",2]");
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    client.stream.read_to_string(&mut rest).unwrap();
    // A line that is not a command reaches the process too.
    assert_eq!(
        rest,
        "[\"error\",\"no_list\",7]
\"slept\"
2
"
    );
    let mut observer = service.connect();
    observer.wait_for_pool("python", &[("used", 0), ("free", 1)]);
    assert_eq!(
        observer.pool("python")["procs"][0]["os_pid"],
        attached["os_pid"]
    );
    service.stop();
}

#[test]
fn lines_behind_a_long_attach_go_to_the_process() {
    let service = Service::start("");
    let mut client = service.connect();
    let attach = r#"{"id":1,"call":"attach","lang":"python""#;
    let lines = format!("{attach}{}}}\n[\"echo\",1]\n", " ".repeat(300_000));
    client.send_raw(lines.as_bytes());
    assert_eq!(client.reply()["ok"]["lang"], "python");
    assert_eq!(client.line().unwrap(), "1\n");
    drop(client);
    service.stop();
}

#[test]
fn an_attached_connection_ends_with_its_process() {
    let service = Service::start("");
    let mut client = service.connect();
    client.ok(&json!({"id": 1, "call": "attach", "lang": "python"}));
    client.send_raw(b"[\"echo\",1]\n[\"fatal\",\"a\",\"b\"]\n");
    assert_eq!(client.line().unwrap(), "1\n");
    assert_eq!(client.line().unwrap(), "[\"fatal\",\"a\",\"b\"]\n");
    client.assert_closed();
    let mut client = service.connect();
    client.ok(&json!({"id": 1, "call": "attach", "lang": "python"}));
    client.send_raw(b"[\"exit\",3]\n");
    client.assert_closed();
    // Even without a pending prompt.
    let mut client = service.connect();
    let attached = client.ok(&json!({"id": 1, "call": "attach", "lang": "python"}));
    let pid = attached["os_pid"].as_u64().unwrap();
    crate::support::daemon::signal(u32::try_from(pid).unwrap(), "KILL");
    client.assert_closed();
    service.stop();
}

#[test]
fn a_process_taught_over_an_attached_connection_is_replaced() {
    let service = Service::start("");
    let mut client = service.connect();
    client.ok(&json!({"id": 1, "call": "attach", "lang": "python"}));
    client.send_raw(b"[\"ddoc\",\"new\",\"_design/a\",{}]\n");
    assert_eq!(client.line().unwrap(), "true\n");
    drop(client);
    let mut observer = service.connect();
    observer.wait_for_pool("python", &[("used", 0), ("free", 0), ("stopping", 0)]);
    service.stop();
}

#[test]
fn long_lines_are_answered_even_after_a_half_close() {
    let service = Service::start("");
    let mut client = service.connect();
    let long = "x".repeat(2 << 20);
    let proc = client.get_proc("python");
    assert_eq!(client.prompt(&proc, json!(["echo", long])), long.as_str());
    // The second document is not an object: refused once it is parsed.
    client.send(&json!({"id": 1, "call": "map_docs", "lang": "javascript",
        "funs": ["function(doc) { emit(doc._id, 1); }"], "docs": [{"_id": "a", "text": long}, 1]}));
    client.send_raw(format!("{{\"id\": 2, \"call\": [\"{long}\"]}}\n").as_bytes());
    client.send(&call_at_once(3));
    client.send(&json!({"id": 4, "call": "ddoc_prompt", "text": long}));
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut named: Vec<(Value, Value)> = (0..4)
        .map(|_| client.reply())
        .map(|reply| (reply["id"].clone(), reply["error"]["name"].clone()))
        .collect();
    // Functions run concurrently with later requests.
    named.sort_by_key(|(id, _)| id.as_u64());
    let bad = json!("bad_request");
    let expected = [(1, &bad), (2, &bad), (3, &Value::Null), (4, &bad)];
    assert_eq!(named, expected.map(|(id, name)| (json!(id), name.clone())));
    client.assert_closed();
    service.stop();
}
