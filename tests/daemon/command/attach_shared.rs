//! More `settee attach` than processes: each client gets a process for its lines, and right answers.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::daemon::{Order, Service, signal, wait_until};
use crate::support::program::exit_code;

/// A configuration with a process limit, the idle time of `attach` and a client's timeout, in milliseconds.
pub(super) fn configuration(limit: u32, idle: u32, patience: u32) -> String {
    format!(
        "[query_server_config]\nos_process_limit = {limit}\nattach_idle = {idle}\n\
         [couchdb]\nos_process_timeout = {patience}\n"
    )
}

/// A fake CouchDB behind `attach`: sends a line and waits for the answer.
pub(super) struct Couch {
    pub(super) child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Couch {
    fn start(service: &Service) -> Self {
        Self::start_command(&mut service.client(&["attach"]))
    }

    pub(super) fn start_command(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            input,
            output,
        }
    }

    pub(super) fn send(&mut self, line: &Value) {
        let mut input = self.input.as_ref().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(super) fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: '{line}'"))
    }

    pub(super) fn ask(&mut self, line: Value) -> Value {
        self.send(&line);
        self.answer()
    }

    /// Sends a line, and asserts its answer.
    pub(super) fn expect(&mut self, line: Value, answer: Value) {
        assert_eq!(self.ask(line.clone()), answer, "{line}");
    }

    pub(super) fn teach(&mut self, line: Value) {
        self.expect(line, json!(true));
    }

    /// Ends the input, and returns the exit code.
    pub(super) fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        exit_code(&mut self.child)
    }
}

impl Drop for Couch {
    fn drop(&mut self) {
        // Effective only in a failed test: otherwise `end` has reaped the child.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn map_fun(name: &str) -> Value {
    json!([
        "add_fun",
        format!("function(doc) {{ emit(doc._id, '{name}') }}")
    ])
}

pub(super) fn mapped(id: &str, name: &str) -> Value {
    json!([[[id, name]]])
}

pub(super) fn map_doc(id: &str) -> Value {
    json!(["map_doc", {"_id": id}])
}

fn wait_until_all_are_free(service: &Service) {
    service.wait_for_first_pool("all processes returned", |pool| {
        pool["used"] == 0 && pool["stopping"] == 0
    });
}

#[test]
fn eight_clients_share_three_processes_and_each_gets_right_answers() {
    const ROUNDS: usize = 12;
    let service = Service::start(&configuration(3, 1000, 20_000));
    let together = Barrier::new(8);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (service, together) = (&service, &together);
            scope.spawn(move || {
                let name = format!("db{number}");
                let ddoc = json!({
                    "shows": {"s": format!("function(d, r) {{ return '{name} ' + r.n }}")},
                    "lists": {"l": format!("function(h, r) {{ var row; while (row = getRow()) send('{name} ' + row.key); }}")},
                });
                let mut couch = Couch::start(service);
                couch.teach(json!(["reset", {"reduce_limit": false, "timeout": 20_000}]));
                couch.teach(json!(["ddoc", "new", "_design/d", ddoc]));
                together.wait();
                for round in 0..ROUNDS {
                    if round % 4 == 0 {
                        couch.teach(json!(["reset", {"reduce_limit": false, "timeout": 20_000}]));
                        couch.teach(json!(["add_lib", {"lib": format!("exports.name = '{name}'")}]));
                        couch.teach(map_fun(&name));
                        couch.teach(json!(["add_fun",
                            "function(doc) { emit(require('views/lib/lib').name, doc._id) }"]));
                    }
                    for doc in 0..20 {
                        let id = format!("{name}-{round}-{doc}");
                        let rows = json!([[[id, name]], [[name, id]]]);
                        couch.expect(map_doc(&id), rows);
                    }
                    let sum = format!("function(k, v) {{ return sum(v) + {number} }}");
                    let rows = json!([[[1, "a"], round], [[2, "b"], 1]]);
                    let expected = json!([true, [round + 1 + number]]);
                    couch.expect(json!(["reduce", [sum], rows]), expected);
                    let shown = json!(["resp", {"body": format!("{name} {round}")}]);
                    let call = json!(["ddoc", "_design/d", ["shows", "s"], [null, {"n": round}]]);
                    couch.expect(call, shown);
                    let list = json!(["ddoc", "_design/d", ["lists", "l"], [{"total_rows": 2}, {}]]);
                    assert_eq!(couch.ask(list)[0], "start");
                    for key in [7, 8] {
                        let row = json!(["list_row", {"key": key}]);
                        couch.expect(row, json!(["chunks", [format!("{name} {key}")]]));
                    }
                    couch.expect(json!(["list_end"]), json!(["end", []]));
                }
                assert_eq!(couch.end(), Some(0));
            });
        }
    });
    assert!(service.status()["proc_count"].as_u64().unwrap() <= 3);
    wait_until_all_are_free(&service);
    service.stop();
}

#[test]
fn design_documents_of_many_databases_start_no_more_processes_than_the_limit() {
    const LIMIT: u32 = 2;
    let service = Service::start(&configuration(LIMIT, 20, 20_000));
    std::thread::scope(|scope| {
        for number in 0..6 {
            let service = &service;
            scope.spawn(move || {
                let filter = format!("function(doc, req) {{ return doc.n == {number} }}");
                let mut couch = Couch::start(service);
                couch.teach(json!(["reset", {"timeout": 20_000}]));
                couch.teach(json!(["ddoc", "new", "_design/d", {"filters": {"f": filter}}]));
                for _ in 0..5 {
                    let docs = [json!({"n": number}), json!({"n": number + 1})];
                    let call = json!(["ddoc", "_design/d", ["filters", "f"], [docs, {}]]);
                    couch.expect(call, json!([true, [true, false]]));
                }
                assert_eq!(couch.end(), Some(0));
            });
        }
    });
    wait_until_all_are_free(&service);
    let started = service.status()["pools"][0]["totals"]["started"].clone();
    assert!(started.as_u64() <= Some(u64::from(LIMIT)), "{started}");
    service.stop();
}

#[test]
fn an_idle_client_returns_its_process_without_losing_its_functions() {
    let service = Service::start(&configuration(1, 50, 20_000));
    let mut couch = Couch::start(&service);
    couch.teach(json!(["reset"]));
    couch.teach(map_fun("first"));
    wait_until_all_are_free(&service);
    // Meanwhile another client borrows the only process, and teaches it a function.
    let mut other = Couch::start(&service);
    other.teach(json!(["reset"]));
    other.teach(map_fun("other"));
    wait_until_all_are_free(&service);
    couch.teach(map_fun("second"));
    wait_until_all_are_free(&service);
    couch.expect(map_doc("x"), json!([[["x", "first"]], [["x", "second"]]]));
    wait_until_all_are_free(&service);
    other.expect(map_doc("y"), mapped("y", "other"));
    couch.teach(json!(["reset"]));
    wait_until_all_are_free(&service);
    couch.expect(map_doc("x"), json!([]));
    assert_eq!((couch.end(), other.end()), (Some(0), Some(0)));
    service.stop();
}

#[test]
fn an_idle_client_yields_its_process_to_a_waiter_at_once() {
    // Without a waiter, no process is returned for an hour.
    let service = Service::start(&configuration(1, 3_600_000, 20_000));
    let (mut one, mut two) = (Couch::start(&service), Couch::start(&service));
    one.teach(json!(["reset"]));
    one.teach(map_fun("one"));
    two.teach(json!(["reset"]));
    two.teach(map_fun("two"));
    for round in 0..5 {
        let id = round.to_string();
        one.expect(map_doc(&id), mapped(&id, "one"));
        two.expect(map_doc(&id), mapped(&id, "two"));
    }
    let mut client = service.connect();
    let proc = client.get_proc("javascript");
    assert!(client.ret_proc(&proc));
    one.expect(map_doc("x"), mapped("x", "one"));
    assert_eq!((one.end(), two.end()), (Some(0), Some(0)));
    service.stop();
}

#[test]
fn a_full_service_answers_with_an_error_line_and_a_later_line_is_served() {
    let service = Service::start(&configuration(1, 50, 20_000));
    let mut client = service.connect();
    let proc = client.get_proc("javascript");
    let mut couch = Couch::start(&service);
    for _ in 0..2 {
        let answer = couch.ask(json!(["reset", {"timeout": 500}]));
        assert_eq!(
            (&answer[0], &answer[1]),
            (&json!("error"), &json!("timeout"))
        );
        let reason = answer[2].as_str().unwrap();
        for part in ["'javascript'", " ms", "all 1", "os_process_limit"] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
    }
    assert!(client.ret_proc(&proc));
    couch.teach(json!(["reset", {"timeout": 20_000}]));
    couch.teach(map_fun("late"));
    couch.expect(map_doc("x"), mapped("x", "late"));
    assert_eq!(couch.end(), Some(0));
    service.stop();
}

#[test]
fn a_list_is_never_interrupted() {
    let service = Service::start(&configuration(1, 0, 20_000));
    let mut couch = Couch::start(&service);
    let list =
        "function(h, r) { var row; while (row = getRow()) send(row.key + ';'); return 'end' }";
    couch.teach(json!(["reset"]));
    couch.teach(json!(["ddoc", "new", "_design/d", {"lists": {"l": list}}]));
    let open = json!(["ddoc", "_design/d", ["lists", "l"], [{"total_rows": 1}, {}]]);
    assert_eq!(couch.ask(open.clone())[0], "start");
    let mut other = Couch::start(&service);
    for key in ["a", "b"] {
        // A waiter waits until its own timeout.
        let answer = other.ask(json!(["reset", {"timeout": 300}]));
        assert_eq!(
            (&answer[0], &answer[1]),
            (&json!("error"), &json!("timeout"))
        );
        couch.expect(
            json!(["list_row", {"key": key}]),
            json!(["chunks", [format!("{key};")]]),
        );
    }
    other.send(&json!(["reset", {"timeout": 20_000}]));
    couch.expect(json!(["list_end"]), json!(["end", ["end"]]));
    assert_eq!(other.answer(), json!(true));
    assert_eq!(couch.ask(open)[0], "start");
    assert_eq!(other.end(), Some(0));
    drop(couch);
    wait_until_all_are_free(&service);
    service.stop();
}

#[test]
fn a_process_is_kept_after_an_unknown_command_until_the_next_reset() {
    let service = Service::start(&configuration(1, 0, 20_000));
    let mut couch = Couch::start_command(&mut service.client(&["attach", "--language", "python"]));
    couch.teach(json!(["reset"]));
    let pid = couch.ask(json!(["pid"]));
    for _ in 0..3 {
        let mut other = service.connect();
        let error =
            other.error(&json!({"id": 1, "call": "get_proc", "lang": "python", "timeout_ms": 100}));
        assert_eq!(error["name"], "timeout");
        assert_eq!(couch.ask(json!(["pid"])), pid);
    }
    couch.teach(json!(["reset"]));
    let mut other = service.connect();
    let proc = other.get_proc("python");
    assert!(other.ret_proc(&proc));
    assert_eq!(couch.end(), Some(0));
    service.stop();
}

#[test]
fn a_process_killed_between_two_lines_is_replaced_by_one_with_the_same_functions() {
    for idle in [0, 3_600_000] {
        let service = Service::start(&configuration(2, idle, 20_000));
        let mut couch = Couch::start(&service);
        couch.teach(json!(["reset"]));
        couch.teach(map_fun("known"));
        couch.expect(map_doc("x"), mapped("x", "known"));
        for round in 0..3 {
            let mut pid = Value::Null;
            service.wait_for_first_pool("a process", |pool| {
                pid = pool["procs"][0]["os_pid"].clone();
                pid.is_u64()
            });
            signal(u32::try_from(pid.as_u64().unwrap()).unwrap(), "KILL");
            service.wait_for_first_pool("its exit", |pool| {
                let procs = pool["procs"].as_array().unwrap();
                procs.iter().all(|proc| proc["os_pid"] != pid)
            });
            let id = round.to_string();
            couch.expect(map_doc(&id), mapped(&id, "known"));
        }
        assert_eq!(couch.end(), Some(0));
        service.stop();
    }
}

#[test]
fn a_process_killed_after_a_log_line_ends_the_client_or_answers_its_line_with_an_error() {
    for (is_ordered, code) in [(true, Some(0)), (false, Some(255))] {
        let service = Service::start("");
        let attach = ["attach", "--language", "python"];
        let mut couch = Couch::start_command(&mut service.client(&attach));
        couch.teach(json!(["reset"]));
        couch.send(&json!(["raw", "[\"log\",\"hello\"]\n"]));
        service.wait_for_log("hello");
        let proc = service.connect().pool("python")["procs"][0].clone();
        if is_ordered {
            let kill = ["kill", proc["name"].as_str().unwrap()];
            assert!(service.client(&kill).output().unwrap().status.success());
        } else {
            let pid = proc["os_pid"].as_u64().unwrap();
            signal(u32::try_from(pid).unwrap(), "KILL");
        }
        drop(couch.input.take());
        assert_eq!(exit_code(&mut couch.child), code);
        assert_eq!(couch.answer(), json!(["log", "hello"]));
        if is_ordered {
            assert_eq!(couch.answer()[1], "os_process_error");
        }
        service.stop();
    }
}

#[test]
fn a_pool_that_is_removed_and_added_again_serves_its_clients() {
    let service = Service::start(
        "[query_server_config]\nattach_idle = 3600000\n[pools.own]\nlanguage = \"javascript\"\n",
    );
    let mut couch = Couch::start_command(&mut service.client(&["attach", "--pool", "own"]));
    couch.teach(json!(["reset", {"timeout": 20_000}]));
    couch.teach(map_fun("own"));
    let operator = service.connect().operator;
    operator.ok(&Order::new(
        "DELETE",
        "/_pools/own?mode=immediate",
        Value::Null,
    ));
    wait_until("an error line", || couch.ask(map_doc("x"))[0] == "error");
    let own = json!({"language": "javascript"});
    operator.ok(&Order::new("PUT", "/_pools/own", own));
    couch.expect(map_doc("x"), mapped("x", "own"));
    assert_eq!(couch.end(), Some(0));
    service.stop();
}

#[test]
fn a_killed_client_releases_its_process_or_its_place_in_the_queue() {
    let service = Service::start(&configuration(1, 3_600_000, 20_000));
    let mut holds = Couch::start_command(&mut service.client(&["attach", "--language", "python"]));
    holds.teach(json!(["reset"]));
    holds.send(&json!(["never"]));
    let mut waits = Couch::start_command(&mut service.client(&["attach", "--language", "python"]));
    waits.send(&json!(["reset"]));
    let python = |service: &Service| {
        let status = service.status();
        let pools = status["pools"].as_array().unwrap().clone();
        pools
            .into_iter()
            .find(|pool| pool["name"] == "python")
            .unwrap()
    };
    wait_until("a waiter", || python(&service)["waiting"] == 1);
    drop(waits);
    wait_until("no waiter", || python(&service)["waiting"] == 0);
    drop(holds);
    wait_until("no process in use", || {
        let pool = python(&service);
        pool["used"] == 0 && pool["stopping"] == 0
    });
    service.stop();
}

#[test]
fn input_that_ends_while_all_processes_are_in_use_is_still_answered() {
    let service = Service::start(&configuration(1, 50, 20_000));
    let mut client = service.connect();
    let proc = client.get_proc("javascript");
    let mut couch = Couch::start(&service);
    for line in [json!(["reset"]), map_fun("all"), map_doc("a"), map_doc("b")] {
        couch.send(&line);
    }
    drop(couch.input.take());
    service.wait_for_first_pool("a waiter", |pool| pool["waiting"] == 1);
    assert!(client.ret_proc(&proc));
    for answer in [
        json!(true),
        json!(true),
        mapped("a", "all"),
        mapped("b", "all"),
    ] {
        assert_eq!(couch.answer(), answer);
    }
    assert_eq!(couch.end(), Some(0));
    service.stop();
}

#[test]
fn a_client_that_pipelines_lines_does_not_starve_others() {
    /// The number of unanswered lines at any time; each takes about a millisecond.
    const AHEAD: usize = 50;
    let service = Service::start(&configuration(1, 1000, 10_000));
    let mut busy = Couch::start(&service);
    busy.teach(json!(["reset"]));
    let slow = "function(doc) { for (var i = 0; i < 50000; i++); emit(doc._id, i) }";
    busy.teach(json!(["add_fun", slow]));
    (0..AHEAD).for_each(|_| busy.send(&map_doc("x")));
    let served = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut other = Couch::start(&service);
            let answer = other.ask(json!(["reset"]));
            served.store(true, Ordering::Relaxed);
            assert_eq!((answer, other.end()), (json!(true), Some(0)));
        });
        while !served.load(Ordering::Relaxed) {
            busy.send(&map_doc("x"));
            assert_eq!(busy.answer(), json!([[["x", 50000]]]));
        }
        other.join().unwrap();
    });
    (0..AHEAD).for_each(|_| assert_eq!(busy.answer(), json!([[["x", 50000]]])));
    assert_eq!(busy.end(), Some(0));
    service.stop();
}

#[test]
fn a_permanently_stopped_service_is_exit_code_255_after_the_current_line() {
    let service = Service::start(&configuration(2, 3_600_000, 20_000));
    // No service replaces this one, and no client waits for one.
    let impatient = ["attach", "--timeout", "0"];
    let mut idle = Couch::start_command(service.client(&impatient).stderr(Stdio::null()));
    idle.teach(json!(["reset"]));
    let mut attach = service.client(&[&impatient[..], &["--language", "python"]].concat());
    let mut busy = Couch::start_command(attach.stderr(Stdio::null()));
    let flag = service.path("flag");
    busy.send(&json!(["wait", flag]));
    wait_until("the line to be in progress", || {
        service.path("flag.here").exists()
    });
    service.signal("TERM");
    assert_eq!(exit_code(&mut idle.child), Some(255));
    File::create(&flag).unwrap();
    assert_eq!(busy.answer(), json!("waited"));
    assert_eq!(exit_code(&mut busy.child), Some(255));
    service.exits_cleanly();
}

#[test]
fn a_line_that_is_too_long_is_reported_after_the_preceding_answers() {
    let service = Service::start("[server]\nline_max = 4096\n");
    let mut couch = Couch::start_command(service.client(&["attach"]).stderr(Stdio::null()));
    couch.send(&json!(["reset"]));
    couch.send(&json!(["add_fun", "x".repeat(5000)]));
    assert_eq!(couch.answer(), json!(true));
    let error = couch.answer();
    assert_eq!(
        (&error[0], &error[1]),
        (&json!("error"), &json!("line_too_long"))
    );
    assert_eq!(exit_code(&mut couch.child), Some(255));
    service.stop();
}

#[test]
fn out_of_memory_has_the_name_that_couchdb_expects() {
    let service = Service::start("[sandbox]\njavascript_memory_max = 8388608\n");
    let mut couch = Couch::start_command(service.client(&["attach"]).stderr(Stdio::null()));
    couch.teach(json!(["reset", {"timeout": 20_000}]));
    couch.teach(json!([
        "add_fun",
        "function(doc) { while (true) { emit(doc, doc) } }"
    ]));
    couch.expect(
        map_doc("x"),
        json!(["error", "InternalError", "out of memory"]),
    );
    assert_eq!(couch.end(), Some(255));
    service.stop();
}

#[test]
fn a_process_that_ends_itself_between_two_lines_ends_attach_with_255() {
    let service = Service::start("");
    let mut couch = Couch::start(&service);
    couch.teach(json!(["reset", {"timeout": 20_000}]));
    couch.teach(json!([
        "add_fun",
        "function(doc) { throw ['fatal', 'x', 'y'] }"
    ]));
    couch.expect(map_doc("x"), json!(["error", "x", "y"]));
    assert_eq!(exit_code(&mut couch.child), Some(255));
    service.stop();
}

#[test]
fn files_work_as_input_and_output_and_pipes_keep_their_flags() {
    let service = Service::start("");
    let lines = format!("[\"reset\"]\n{}\n{}\n", map_fun("file"), map_doc("x"));
    let (from, to) = (service.path("lines"), service.path("answers"));
    std::fs::write(&from, lines).unwrap();
    let status = service
        .client(&["attach"])
        .stdin(File::open(&from).unwrap())
        .stdout(File::create(&to).unwrap())
        .status();
    assert_eq!(status.unwrap().code(), Some(0));
    let answers = std::fs::read_to_string(&to).unwrap();
    assert_eq!(answers, "true\ntrue\n[[[\"x\",\"file\"]]]\n");

    let (theirs, ours) = std::io::pipe().unwrap();
    let flags = || {
        let number = std::os::fd::AsRawFd::as_raw_fd(&theirs);
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
        info.lines()
            .find(|line| line.starts_with("flags"))
            .unwrap()
            .to_owned()
    };
    let before = flags();
    let mut child = service
        .client(&["attach"])
        .stdin(Stdio::from(theirs.try_clone().unwrap()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    (&ours).write_all(b"[\"reset\"]\n").unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "true\n");
    assert_eq!(flags(), before);
    drop(ours);
    assert_eq!(exit_code(&mut child), Some(0));
    service.stop();
}

#[test]
fn a_client_that_passes_no_pipes_gets_an_error() {
    let service = Service::start("");
    let mut client = service.connect();
    let call =
        json!({"id": 1, "call": "attach", "lang": "javascript", "end": true, "descriptors": true});
    assert_eq!(client.ok(&call), json!({"descriptors": true, "end": true}));
    client.send_raw(b"\n");
    let reply = client.reply();
    assert_eq!(reply["error"]["name"], "bad_request");
    assert!(
        reply["error"]["reason"]
            .as_str()
            .unwrap()
            .contains("descriptors"),
        "{reply}"
    );
    client.assert_closed();
    service.stop();
}
