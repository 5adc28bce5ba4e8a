//! `settee attach` under a CouchDB while the service is restarted: answers are late, but none is an error.

use std::io::{IoSlice, Write, pipe};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

use super::attach_shared::{Couch, configuration, map_doc, map_fun, mapped};
use crate::support::daemon::{Service, SetAtEnd, directory, in_time, socket_of, wait_until};
use crate::support::program::{exit_code, program};

/// How long clients wait for an answer, in milliseconds: enough for a machine under load.
const PATIENCE: &str = "60000";

fn reset() -> Value {
    json!(["reset", {"reduce_limit": false, "timeout": 60_000}])
}

fn attached(service: &Service) -> Couch {
    Couch::start_command(&mut service.client(&["attach", "--timeout", PATIENCE]))
}

/// A design document whose show returns `name` and the request's number, and whose list sends the keys of its rows.
fn ddoc(name: &str) -> Value {
    json!({
        "shows": {"s": format!("function(d, r) {{ return '{name} ' + r.n }}")},
        "lists": {"l": "function(h, r) { var row; while (row = getRow()) send(row.key + ';') }"},
    })
}

fn call_show(number: usize) -> Value {
    json!(["ddoc", "_design/d", ["shows", "s"], [null, {"n": number}]])
}

fn shown(name: &str, number: usize) -> Value {
    json!(["resp", {"body": format!("{name} {number}")}])
}

/// Teaches a library, functions and a design document.
fn teach(couch: &mut Couch, name: &str) {
    couch.teach(reset());
    couch.teach(json!(["add_lib", {"lib": format!("exports.name = '{name}'")}]));
    couch.teach(map_fun(name));
    couch.teach(json!([
        "add_fun",
        "function(doc) { emit(require('views/lib/lib').name, 1) }"
    ]));
    couch.teach(json!(["ddoc", "new", "_design/d", ddoc(name)]));
}

fn expect_all(couch: &mut Couch, name: &str, number: usize) {
    let id = format!("{name}-{number}");
    couch.expect(map_doc(&id), json!([[[id, name]], [[name, 1]]]));
    let sum = json!([
        "reduce",
        ["function(k, v) { return sum(v) }"],
        [[[1, "a"], number], [[2, "b"], 1]]
    ]);
    couch.expect(sum, json!([true, [number + 1]]));
    couch.expect(call_show(number), shown(name, number));
}

fn restart(service: Service, configuration: &str) -> Service {
    Service::start_in(service.stop_and_keep(), configuration)
}

#[test]
fn four_restarts_with_twelve_clients_cause_no_error() {
    const CLIENTS: usize = 12;
    const RESTARTS: usize = 4;
    let configuration = configuration(3, 50, 60_000);
    let mut service = Some(Service::start(&configuration));
    // The number of rounds that each client has begun.
    let rounds: Vec<AtomicUsize> = (0..CLIENTS).map(|_| AtomicUsize::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let mut couches: Vec<Couch> = (0..CLIENTS)
        .map(|_| attached(service.as_ref().unwrap()))
        .collect();
    std::thread::scope(|scope| {
        for (number, couch) in couches.iter_mut().enumerate() {
            let (rounds, is_over) = (&rounds[number], &is_over);
            scope.spawn(move || {
                let name = format!("db{number}");
                teach(couch, &name);
                while !is_over.load(Ordering::SeqCst) {
                    expect_all(couch, &name, rounds.fetch_add(1, Ordering::SeqCst));
                }
            });
        }
        let _over = SetAtEnd(&is_over);
        for _ in 0..RESTARTS {
            let before: Vec<usize> = rounds.iter().map(|n| n.load(Ordering::SeqCst)).collect();
            wait_until("a round of every client", || {
                let mut pairs = rounds.iter().zip(&before);
                pairs.all(|(now, before)| now.load(Ordering::SeqCst) > before + 1)
            });
            service = service
                .take()
                .map(|service| restart(service, &configuration));
        }
    });
    for couch in couches {
        assert_eq!(couch.end(), Some(0));
    }
    service.unwrap().stop();
}

#[test]
fn lessons_survive_a_restart() {
    let configuration = configuration(2, 3_600_000, 60_000);
    let mut service = Service::start(&configuration);
    let mut couch = attached(&service);
    teach(&mut couch, "known");
    for number in 0..3 {
        service = restart(service, &configuration);
        expect_all(&mut couch, "known", number);
    }
    // A reset forgets functions and keeps design documents, even those taught before a restart.
    couch.teach(reset());
    service = restart(service, &configuration);
    couch.expect(map_doc("x"), json!([]));
    couch.expect(call_show(7), shown("known", 7));
    assert_eq!(couch.end(), Some(0));
    service.stop();
}

#[test]
fn a_line_that_is_written_while_no_service_runs_is_answered_by_the_next_one() {
    let configuration = configuration(2, 3_600_000, 60_000);
    let service = Service::start(&configuration);
    let mut couch = attached(&service);
    couch.teach(reset());
    couch.teach(map_fun("late"));
    let directory = service.stop_and_keep();
    // The pipe holds both lines until the next service reads them.
    couch.send(&map_doc("first"));
    couch.send(&map_doc("second"));
    let service = Service::start_in(directory, &configuration);
    for id in ["first", "second"] {
        assert_eq!(couch.answer(), mapped(id, "late"));
    }
    assert_eq!(couch.end(), Some(0));
    service.stop();
}

#[test]
fn lines_that_wait_for_a_process_when_the_service_ends_are_answered_by_the_next_one() {
    let configuration = configuration(1, 50, 60_000);
    let service = Service::start(&configuration);
    let mut couch = attached(&service);
    couch.teach(reset());
    couch.teach(map_fun("waits"));
    service.wait_for_first_pool("the process back", |pool| pool["used"] == 0);
    // Another client has the only process.
    let mut client = service.connect();
    client.get_proc("javascript");
    couch.send(&map_doc("x"));
    couch.send(&map_doc("y"));
    service.wait_for_first_pool("a waiter", |pool| pool["waiting"] == 1);
    let service = restart(service, &configuration);
    for id in ["x", "y"] {
        assert_eq!(couch.answer(), mapped(id, "waits"));
    }
    assert_eq!(couch.end(), Some(0));
    service.stop();
}

#[test]
fn attach_may_be_started_before_the_service() {
    let directory = directory();
    let mut attach = program(&["attach", "--timeout", PATIENCE, "--socket"]);
    let mut couch = Couch::start_command(attach.arg(socket_of(directory.path())));
    couch.send(&reset());
    let service = Service::start_in(directory, "");
    assert_eq!(couch.answer(), json!(true));
    assert_eq!(couch.end(), Some(0));
    service.stop();
}

/// Opens a list, and sends it a row.
fn begin_list(couch: &mut Couch) {
    teach(couch, "list");
    let open = json!(["ddoc", "_design/d", ["lists", "l"], [{"total_rows": 1}, {}]]);
    assert_eq!(couch.ask(open)[0], "start");
    couch.expect(json!(["list_row", {"key": "a"}]), json!(["chunks", ["a;"]]));
}

#[test]
fn a_list_that_is_open_when_the_service_is_told_to_stop_is_completed() {
    let configuration = configuration(1, 50, 60_000);
    let service = Service::start(&configuration);
    let mut couch = attached(&service);
    begin_list(&mut couch);
    let socket = service.socket();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| restart(service, &configuration));
        wait_until("the order to stop", || {
            UnixStream::connect(&socket).is_err()
        });
        couch.expect(json!(["list_row", {"key": "b"}]), json!(["chunks", ["b;"]]));
        assert_eq!(couch.ask(json!(["list_end"]))[0], "end");
        let service = next.join().unwrap();
        couch.expect(call_show(7), shown("list", 7));
        assert_eq!(couch.end(), Some(0));
        service.stop();
    });
}

#[test]
fn a_list_still_open_at_the_end_of_the_grace_period_is_cut_off() {
    let configuration = format!(
        "{}[server]\nshutdown_grace = \"1s\"\n",
        configuration(1, 50, 60_000)
    );
    let service = Service::start(&configuration);
    let mut attach = service.client(&["attach", "--timeout", PATIENCE]);
    let mut couch = Couch::start_command(attach.stderr(Stdio::null()));
    begin_list(&mut couch);
    let service = restart(service, &configuration);
    assert_eq!(exit_code(&mut couch.child), Some(255));
    service.stop();
}

/// Hands two pipes over with an empty line; false if the connection has ended.
fn hand_over(connection: &UnixStream, pipes: [impl AsFd; 2]) -> bool {
    let pipes = [pipes[0].as_fd(), pipes[1].as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&pipes));
    let line = [IoSlice::new(b"\n")];
    sendmsg(connection, &line, &mut control, SendFlags::NOSIGNAL).is_ok()
}

#[test]
fn pipes_handed_over_during_a_stop_return_with_the_state_for_the_next_service() {
    let attach =
        json!({"id": 1, "call": "attach", "lang": "javascript", "end": true, "descriptors": true});
    in_time("attach", |_| {
        // The service ends long before its grace is over.
        let service = Service::start("[server]\nshutdown_grace = \"1h\"\n");
        let mut client = service.connect();
        let (input, mut couch) = pipe().unwrap();
        let (_answers, output) = pipe().unwrap();
        couch.write_all(b"[\"reset\"]\n").unwrap();
        service.signal("TERM");
        service.wait_for_log("stopped listening");
        client
            .stream
            .write_all(format!("{attach}\n").as_bytes())
            .ok()?;
        let expected = client.line()?;
        assert!(
            expected.contains("\"ok\":{\"descriptors\":true"),
            "{expected}"
        );
        let handed_over = hand_over(&client.stream, [input.as_fd(), output.as_fd()]);
        assert!(handed_over, "the service waits for the pipes");
        assert_eq!(client.reply(), json!({"id": 1, "ok": true}));
        let last = client.line().expect("the last line");
        let end: Value = serde_json::from_str(last.trim_start_matches('\0')).unwrap();
        assert!(end["resume"]["unread"].is_string(), "{end}");
        client.stream.shutdown(Shutdown::Write).unwrap();
        client.assert_closed();
        service.exits_cleanly();
        Some(())
    });
}
