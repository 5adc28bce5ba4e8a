//! The end of a query server: processes that it left behind end with it, however it ends.
//!
//! PROMISES  Each test of processes left behind first proves that, without a cell, a process in its own session
//!           survives.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::attempt::Outcome;
use super::site::{Mode, Site};
use crate::support::daemon::{Client, signal, wait_until};

const SOURCE: &str = include_str!("end.py");

/// Timeout of a function that never answers. Milliseconds.
const ANSWER_MAX: u64 = 5_000;

/// Timeout of any other function. Milliseconds.
const CALL_MAX: u64 = 120_000;

/// The processes of one test, known by a unique argument.
struct Mark(String);

impl Mark {
    fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        // The seconds that `sleep` gets.
        Self(format!("86400.{}{number:04}", std::process::id()))
    }

    fn processes(&self) -> Vec<i32> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter(|number| self.is_of(*number)).collect()
    }

    fn is_of(&self, process: i32) -> bool {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        line == format!("sleep\0{}\0", self.0).into_bytes()
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        for process in self.processes() {
            let _ = kill_process(Pid::from_raw(process).unwrap(), Signal::KILL);
        }
    }
}

/// Leaves daemons behind with this function, ends the query server, and asserts that a cell leaves none of them.
fn leaves_nothing(function: &str, pool: &str, end: impl Fn(&mut Site, &mut Client)) {
    leaves_nothing_within(CALL_MAX, function, pool, end);
}

fn leaves_nothing_within(
    call_max: u64,
    function: &str,
    pool: &str,
    end: impl Fn(&mut Site, &mut Client),
) {
    for mode in [Mode::Off, Mode::Standard] {
        let mut site = Site::start(mode, pool);
        let mark = Mark::new();
        let mut client = site.service().connect();
        let mut call = site.call(
            SOURCE,
            &json!({"attempt": "end", "function": function, "mark": mark.0}),
        );
        call["timeout_ms"] = json!(call_max);
        client.send(&call);
        // In a cell the daemon may have ended before the first check.
        let ends_soon = call_max == ANSWER_MAX || ends_by_itself(function);
        let is_over = mode == Mode::Standard && ends_soon;
        if pool.is_empty() && !is_over {
            wait_until("a daemon", || !mark.processes().is_empty());
        }
        end(&mut site, &mut client);
        site.wait_for_its_query_servers_to_end();
        match mode {
            Mode::Off => assert!(
                !mark.processes().is_empty(),
                "the daemon ends even without a cell"
            ),
            Mode::Standard => wait_until("the end of the daemons", || mark.processes().is_empty()),
        }
    }
}

fn ends_by_itself(function: &str) -> bool {
    function.ends_with("_crashes") || function.ends_with("_exits")
}

fn answered(client: &mut Client) -> Value {
    let reply = client.reply();
    assert!(reply.get("ok").is_some(), "{reply}");
    reply
}

fn failed(client: &mut Client) {
    let reply = client.reply();
    assert!(reply.get("error").is_some(), "{reply}");
}

#[test]
fn nothing_is_left_when_the_service_stops() {
    leaves_nothing("leaves_a_daemon", "", |site, client| {
        answered(client);
        site.stop();
    });
}

#[test]
fn nothing_is_left_when_the_service_is_killed() {
    leaves_nothing("leaves_a_daemon", "", |site, client| {
        answered(client);
        site.kill();
    });
}

#[test]
fn nothing_is_left_when_the_service_is_killed_during_a_call() {
    leaves_nothing("leaves_a_daemon_and_stops", "", |site, _| site.kill());
}

#[test]
fn nothing_is_left_when_the_query_server_is_killed() {
    leaves_nothing("leaves_a_daemon", "", |site, client| {
        answered(client);
        let pool = site.service().connect().pool("attempts");
        let process = &pool["procs"][0]["os_pid"];
        signal(process.as_u64().unwrap() as u32, "KILL");
    });
}

#[test]
fn nothing_is_left_when_the_query_server_crashes() {
    leaves_nothing("leaves_a_daemon_and_crashes", "", |_, client| {
        failed(client)
    });
}

#[test]
fn nothing_is_left_when_the_query_server_exits() {
    leaves_nothing("leaves_a_daemon_and_exits", "", |_, client| failed(client));
}

#[test]
fn nothing_is_left_when_a_function_never_answers() {
    let function = "leaves_a_daemon_and_never_answers";
    leaves_nothing_within(ANSWER_MAX, function, "", |_, client| failed(client));
}

#[test]
fn nothing_is_left_when_a_query_server_stops_itself() {
    let function = "leaves_a_daemon_and_stops";
    leaves_nothing_within(ANSWER_MAX, function, "", |_, client| failed(client));
}

#[test]
fn nothing_is_left_when_a_query_server_reaches_max_uses() {
    leaves_nothing("leaves_many_daemons", "max_uses = 1\n", |_, client| {
        answered(client);
    });
}

#[test]
fn signals_of_a_function_to_its_parent_do_not_reach_the_service() {
    let site = Site::shared(Mode::Standard, false);
    for signal in [Signal::STOP, Signal::TERM, Signal::KILL] {
        let signals =
            json!({"attempt": "end", "function": "sends_its_parent", "signal": signal.as_raw()});
        let outcome = site.run(SOURCE, &signals);
        let ended = matches!(outcome, Outcome::Ended(_));
        assert!(!ended || signal == Signal::KILL, "{outcome:?}");
        site.serves_the_next_client();
    }
}
