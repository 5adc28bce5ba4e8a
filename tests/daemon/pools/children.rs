//! Children that fail, each in its own way: the error that clients get, and what the pool does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use policy::admission::FAILURES_MIN;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{give_back, prints, reconfigure, remove, take, take_request, wait_until_gone};
use crate::support::daemon::{
    Client, Order, Service, directory, pid_exists, scripted, signal, wait_until,
};

/// Writes a program and renames it into place: a file that is being executed cannot be written.
fn program(directory: &Path, name: &str, bytes: &[u8], mode: u32) -> String {
    let (path, new) = (directory.join(name), directory.join(format!("{name}.new")));
    fs::write(&new, bytes).unwrap();
    fs::set_permissions(&new, PermissionsExt::from_mode(mode)).unwrap();
    fs::rename(&new, &path).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Starts a service with `command` as the language `bad`, and its pool `bad-1`.
fn service_with(directory: TempDir, command: &str, pool: &str) -> Service {
    let extra = format!(
        "[query_servers]\nbad = \"{command}\"\n[pools.bad-1]\nlanguage = \"bad\"\nmax = 2\n{pool}\n"
    );
    Service::start_in(directory, &extra)
}

/// Returns a request for a process, with a timeout shorter than the throttle's delay.
fn ask() -> Value {
    let mut request = take_request("bad-1");
    request["timeout_ms"] = json!(20_000);
    request
}

/// Requests processes until the pool is throttled, and returns that error.
fn throttled(client: &mut Client) -> Value {
    let mut error = Value::Null;
    wait_until("throttle", || {
        let reply = client.call(&ask());
        if let Some(proc) = reply["ok"]["proc"].as_str() {
            let prompt = json!({"call": "prompt", "proc": proc, "data": ["reset"]});
            let answer = client.call(&prompt);
            let status = if answer.get("ok").is_some() {
                "ok"
            } else {
                "fail"
            };
            client.ok(&json!({"call": "ret_proc", "proc": proc, "status": status}));
            return false;
        }
        error = reply["error"].clone();
        error["name"] == "throttled"
    });
    error
}

/// Asserts that failed starts of `command` throttle the pool, with a reason that contains each of `says`.
#[track_caller]
fn assert_throttles(directory: TempDir, command: &str, says: &[&str]) {
    let service = service_with(directory, command, "start_timeout = \"2s\"");
    let mut client = service.connect();
    let error = throttled(&mut client);
    let reason = error["reason"].as_str().unwrap();
    for text in says {
        assert!(reason.contains(text), "{text:?} is not in {reason:?}");
    }
    assert_eq!(
        (&error["retry"], &error["phase"]),
        (&json!(true), &json!("open"))
    );
    let wait = error["retry_after_ms"].as_u64().unwrap();
    assert!(wait > 1000 && wait <= 60_000, "{error}");
    // Nothing is started meanwhile.
    let pool = client.pool("bad-1");
    let failures = pool["totals"]["start_failures"].clone();
    assert!(failures.as_u64() > Some(0), "{pool}");
    let started = pool["totals"]["started"].clone();
    assert_eq!(client.error(&ask())["name"], "throttled");
    let pool = client.pool("bad-1");
    assert_eq!(pool["totals"]["start_failures"], failures);
    assert_eq!(pool["totals"]["started"], started);
    assert!(pool["throttled_ms"].as_u64().is_some());
    service.wait_for_log("a query server fails to start");
    // Once an operator has lifted the throttle, the next request starts a process at once.
    let said = prints(&service, &["pool", "unthrottle", "bad-1"]);
    assert_eq!(said, "bad-1 starts processes again\n");
    assert_eq!(client.pool("bad-1")["throttled_ms"], Value::Null);
    let said = prints(&service, &["pool", "unthrottle", "bad-1"]);
    assert_eq!(said, "bad-1 was not throttled\n");
    throttled(&mut client);
    service.stop();
}

#[test]
fn a_command_that_exits_with_1_at_once_throttles_its_pool() {
    let directory = directory();
    let script = b"#!/bin/sh\necho no such module >&2\nexit 1\n";
    let command = program(directory.path(), "exits", script, 0o755);
    let says = ["exited with status 1", "no such module", "/exits"];
    assert_throttles(directory, &command, &says);
}

#[test]
fn a_command_that_is_not_a_program_throttles_its_pool() {
    let directory = directory();
    let command = program(directory.path(), "junk", b"\x7fELF but not really\n", 0o755);
    assert_throttles(directory, &command, &["/junk"]);
}

#[test]
fn a_command_that_is_not_executable_throttles_its_pool() {
    let directory = directory();
    let command = program(directory.path(), "locked", b"#!/bin/sh\n", 0o644);
    assert_throttles(directory, &command, &["ermission denied", "/locked"]);
}

#[test]
fn a_missing_command_throttles_its_pool() {
    assert_throttles(
        directory(),
        "/nonexistent/query-server",
        &["/nonexistent/query-server"],
    );
}

#[test]
fn a_command_killed_at_once_throttles_its_pool() {
    let directory = directory();
    let command = program(
        directory.path(),
        "killed",
        b"#!/bin/sh\nkill -9 $$\n",
        0o755,
    );
    assert_throttles(directory, &command, &["killed by SIGKILL"]);
}

#[test]
fn a_command_killed_once_at_its_start_does_not_throttle_its_pool() {
    let directory = directory();
    let script = format!(
        "#!/bin/sh\nmkdir {} 2>/dev/null && kill -9 $$\nexec {}\n",
        directory.path().join("first").display(),
        scripted(directory.path())
    );
    let command = program(directory.path(), "unlucky", script.as_bytes(), 0o755);
    let service = service_with(directory, &command, "");
    let mut client = service.connect();
    let error = client.error(&ask());
    let reason = error["reason"].as_str().unwrap();
    assert!(reason.contains("killed by SIGKILL"), "{error}");
    assert_eq!(client.pool("bad-1")["throttled_ms"], Value::Null);
    take(&mut client, "bad-1");
    service.stop();
}

/// Answers the first `reset`, and exits.
const LEAVES: &[u8] = b"#!/bin/sh\nread line\necho true\nexit 0\n";

#[test]
fn a_command_that_exits_after_its_first_answer_throttles_its_pool() {
    let directory = directory();
    let command = program(directory.path(), "leaves", LEAVES, 0o755);
    let service = service_with(directory, &command, "");
    let mut client = service.connect();
    let error = throttled(&mut client);
    let reason = error["reason"].as_str().unwrap();
    for text in ["exited with status 0", "had done nothing", "/leaves"] {
        assert!(reason.contains(text), "{text:?} is not in {reason:?}");
    }
    service.wait_for_log("a query server fails to start");
    service.stop();
}

#[test]
fn without_a_throttle_a_command_that_exits_after_its_first_answer_is_logged() {
    let directory = directory();
    let command = program(directory.path(), "leaves", LEAVES, 0o755);
    let service = service_with(directory, &command, "throttle_delay = 0");
    let mut client = service.connect();
    let warning = "query servers end before they have done anything";
    wait_until("the warning", || {
        if let Some(proc) = client.call(&ask())["ok"]["proc"].as_str() {
            client.call(&json!({"call": "prompt", "proc": proc, "data": ["reset"]}));
            client.call(&json!({"call": "ret_proc", "proc": proc, "status": "fail"}));
        }
        service.log().contains(warning)
    });
    service.stop();
}

#[test]
fn a_command_that_exits_after_each_use_never_throttles_its_pool() {
    let directory = directory();
    let script = b"#!/bin/sh\nfor n in 1 2 3; do read line; echo true; done\n";
    let command = program(directory.path(), "once", script, 0o755);
    let service = service_with(directory, &command, "");
    let mut client = service.connect();
    for _ in 0..=FAILURES_MIN {
        let lent = take(&mut client, "bad-1");
        for command in ["reset", "echo"] {
            assert_eq!(client.prompt(&lent.proc, json!([command])), true);
        }
        wait_until("its end", || !pid_exists(lent.os_pid));
        give_back(&mut client, &lent, "ok");
    }
    assert_eq!(client.pool("bad-1")["throttled_ms"], Value::Null);
    service.stop();
}

#[test]
fn a_command_that_hangs_at_its_start_throttles_its_pool() {
    let script = b"#!/bin/sh\nexec sleep 1000\n";
    let directory = directory();
    let command = program(directory.path(), "hangs", script, 0o755);
    assert_throttles(directory, &command, &["start_timeout", "2000 ms", "/hangs"]);
}

#[test]
fn a_command_that_prints_garbage_first_throttles_its_pool() {
    let script = b"#!/bin/sh\necho Welcome\nexec cat\n";
    let directory = directory();
    let command = program(directory.path(), "greets", script, 0o755);
    assert_throttles(directory, &command, &["broke the protocol", "/greets"]);
}

#[test]
fn a_command_that_closes_its_output_but_keeps_running_throttles_its_pool() {
    let script = b"#!/bin/sh\nexec sleep 1000 >&-\n";
    let directory = directory();
    let command = program(directory.path(), "mute", script, 0o755);
    assert_throttles(directory, &command, &["closed standard output", "/mute"]);
}

#[test]
fn a_waiter_for_a_start_that_hangs_gets_an_error_after_start_timeout() {
    let directory = directory();
    let command = program(
        directory.path(),
        "hangs",
        b"#!/bin/sh\nexec sleep 1000\n",
        0o755,
    );
    let service = service_with(directory, &command, "start_timeout = \"300ms\"");
    let mut client = service.connect();
    // Longer than the test waits.
    let mut request = take_request("bad-1");
    request["timeout_ms"] = json!(3_600_000);
    let error = client.error(&request);
    assert_eq!(
        (&error["name"], &error["phase"]),
        (&json!("os_process_error"), &json!("open"))
    );
    assert!(
        error["reason"].as_str().unwrap().contains("start_timeout"),
        "{error}"
    );
    let pool = client.pool("bad-1");
    assert_eq!(pool["totals"]["start_failures"], 1);
    assert_eq!(
        (&pool["opening"], &pool["stopping"]),
        (&json!(0), &json!(0))
    );
    service.stop();
}

#[test]
fn a_start_that_hangs_does_not_delay_shutdown() {
    let service = Service::start(
        "[query_servers]\nhangs = \"/bin/sleep 1000\"\n[pools.hangs]\nstart_timeout = \"1h\"\ninit_size = 1\n\
         [server]\nshutdown_grace = 1\n",
    );
    service.connect().wait_for_pool("hangs", &[("opening", 1)]);
    service.stop();
}

#[test]
fn a_pool_with_an_init_size_is_throttled_if_its_command_hangs() {
    let directory = directory();
    let command = program(
        directory.path(),
        "hangs",
        b"#!/bin/sh\nexec sleep 1000\n",
        0o755,
    );
    let extra = "init_size = 2\nstart_timeout = \"300ms\"";
    let service = service_with(directory, &command, extra);
    let mut client = service.connect();
    wait_until("throttle", || {
        !client.pool("bad-1")["throttled_ms"].is_null()
    });
    client.wait_for_pool("bad-1", &[("opening", 0), ("free", 0)]);
    // Processes are started two at a time, until three starts have failed.
    assert_eq!(client.pool("bad-1")["totals"]["start_failures"], 4);
    service.stop();
}

#[test]
fn no_line_from_a_client_throttles_a_pool() {
    let directory = directory();
    // It exits without an answer at any line after the first reset.
    let script = b"#!/bin/sh\nread line\necho true\nread line\nexit 1\n";
    let command = program(directory.path(), "touchy", script, 0o755);
    let service = service_with(directory, &command, "");
    let mut client = service.connect();
    for status in ["ok", "fail", "ok", "fail"] {
        let lent = take(&mut client, "bad-1");
        let prompt = json!({"call": "prompt", "proc": lent.proc, "data": ["nonsense"]});
        assert_eq!(client.error(&prompt)["status"], 1);
        give_back(&mut client, &lent, status);
        wait_until("its end", || !pid_exists(lent.os_pid));
    }
    let pool = client.pool("bad-1");
    assert_eq!(pool["throttled_ms"], Value::Null);
    assert_eq!(pool["totals"]["start_failures"], 0);
    service.stop();
}

#[test]
fn a_process_that_is_killed_before_its_first_use_does_not_throttle_its_pool() {
    let service = Service::start("[pools.p]\nlanguage = \"python\"\ninit_size = 1\nmax = 2\n");
    let mut client = service.connect();
    for died in 1..=FAILURES_MIN + 1 {
        client.wait_for_pool("p", &[("free", 1), ("opening", 0)]);
        let pid = client.pool("p")["procs"][0]["os_pid"].as_u64().unwrap();
        signal(u32::try_from(pid).unwrap(), "KILL");
        wait_until("its end", || client.pool("p")["totals"]["died"] == died);
        assert_eq!(client.pool("p")["throttled_ms"], Value::Null);
    }
    // A request is served at once.
    take(&mut client, "p");
    assert_eq!(client.pool("p")["totals"]["start_failures"], 0);
    service.stop();
}

#[test]
fn any_answer_to_the_first_reset_counts_as_a_successful_start() {
    for says in [r#"["error","no","not today"]"#, "42"] {
        let directory = directory();
        let script = format!("#!/bin/sh\nwhile read -r line; do echo '{says}'; done\n");
        let command = program(directory.path(), "sulky", script.as_bytes(), 0o755);
        let service = service_with(directory, &command, "");
        let mut client = service.connect();
        for _ in 0..2 {
            let lent = take(&mut client, "bad-1");
            let prompt = json!({"call": "prompt", "proc": lent.proc, "data": ["reset"]});
            let answer = client.call(&prompt);
            let expected = match says {
                "42" => answer["ok"] == 42,
                _ => answer["error"]["reason"] == "not today",
            };
            assert!(expected, "{answer}");
            give_back(&mut client, &lent, "fail");
        }
        let pool = client.pool("bad-1");
        assert_eq!(pool["throttled_ms"], Value::Null);
        assert_eq!(pool["totals"]["start_failures"], 0);
        service.stop();
    }
}

#[test]
fn a_start_that_hung_before_a_reload_does_not_throttle_the_pool_after_it() {
    let directory = directory();
    let (good, began) = (
        directory.path().join("good"),
        directory.path().join("began"),
    );
    let script = format!(
        "#!/bin/sh\n[ -e {} ] && exec {}\n: >{}\nexec sleep 1000\n",
        good.display(),
        scripted(directory.path()),
        began.display()
    );
    let command = program(directory.path(), "later", script.as_bytes(), 0o755);
    let service = service_with(directory, &command, "start_timeout = \"1s\"");
    let mut client = service.connect();
    client.send(&take_request("bad-1"));
    let mut other = service.connect();
    wait_until("the first start", || began.exists());
    fs::write(&good, "").unwrap();
    other.operator.reload_config();
    assert_eq!(client.reply()["error"]["name"], "os_process_error");
    assert_eq!(other.pool("bad-1")["throttled_ms"], Value::Null);
    let lent = take(&mut other, "bad-1");
    assert_eq!(other.prompt(&lent.proc, json!(["echo", 1])), 1);
    service.stop();
}

#[test]
fn a_process_that_is_stopped_cleanly_is_sent_stop_send_first() {
    let directory = directory();
    let trace = directory.path().join("trace");
    let script = format!(
        "#!/bin/sh\nwhile read -r line; do\n  case $line in\n  *bye*) echo \"$line\" >>{0}; echo pardon;;\n  \
         *) echo true;;\n  esac\ndone\necho closed >>{0}\n",
        trace.display()
    );
    let command = program(directory.path(), "polite", script.as_bytes(), 0o755);
    let service = service_with(directory, &command, "stop_send = '[\"bye\"]'");
    let mut client = service.connect();
    // A broken process is killed without being sent the line.
    let broken = take(&mut client, "bad-1");
    assert!(give_back(&mut client, &broken, "fail"));
    client.wait_for_pool("bad-1", &[("free", 1), ("stopping", 0)]);
    let said = || fs::read_to_string(&trace).unwrap_or_default();
    assert!(!said().contains("bye"));
    let _ = fs::remove_file(&trace);
    let fine = take(&mut client, "bad-1");
    assert_ne!(fine.os_pid, broken.os_pid);
    assert!(give_back(&mut client, &fine, "ok"));
    client.operator.ok(&remove("bad-1", "graceful"));
    wait_until_gone(&mut client, "bad-1");
    assert_eq!(
        said(),
        "[\"bye\"]\nclosed\n",
        "the line, and then the end of its input"
    );
    let added = reconfigure("p", &json!({"language": "bad", "stop_send": "a\nb"}));
    let error = client.operator.error(&added);
    assert!(
        error["reason"].as_str().unwrap().contains("one line"),
        "{error}"
    );
    service.stop();
}

#[test]
fn a_throttled_pool_keeps_serving_with_its_processes() {
    let directory = directory();
    // The first process works, the others fail.
    let script = format!(
        "#!/bin/sh\nmkdir {0} 2>/dev/null || exit 1\nexec {1}\n",
        directory.path().join("first").display(),
        scripted(directory.path())
    );
    let command = program(directory.path(), "once", script.as_bytes(), 0o755);
    let service = service_with(directory, &command, "");
    let mut client = service.connect();
    let good = take(&mut client, "bad-1");
    assert_eq!(client.prompt(&good.proc, json!(["echo", 1])), 1);
    // Further starts fail and throttle the pool, while the process that works is lent.
    let mut other = service.connect();
    wait_until("failure", || {
        let reply = other.call(&json!({"call": "get_proc", "pool": "bad-1", "timeout_ms": 100}));
        if let Some(proc) = reply["ok"]["proc"].as_str() {
            other.call(&json!({"call": "prompt", "proc": proc, "data": ["reset"]}));
            other.ok(&json!({"call": "ret_proc", "proc": proc, "status": "fail"}));
        }
        !client.pool("bad-1")["throttled_ms"].is_null()
    });
    assert!(give_back(&mut client, &good, "ok"));
    let again = take(&mut other, "bad-1");
    assert_eq!(again.os_pid, good.os_pid);
    assert_eq!(other.prompt(&again.proc, json!(["echo", 2])), 2);
    service.stop();
}

#[test]
fn a_reload_lifts_a_throttle() {
    let directory = directory();
    let command = program(directory.path(), "exits", b"#!/bin/sh\nexit 3\n", 0o755);
    let service = service_with(directory, &command, "");
    let mut client = service.connect();
    throttled(&mut client);
    client.operator.reload_config();
    assert_eq!(client.pool("bad-1")["throttled_ms"], Value::Null);
    service.wait_for_log("query servers are started again");
    service.stop();
}

/// Waits until the problems have exactly these kinds and subjects.
fn wait_for_problems(service: &Service, expected: &[(&str, &str)]) {
    let client = service.connect();
    wait_until(&format!("{expected:?}"), || {
        let health = client.operator.get("/_health");
        let problems = health["problems"].as_array().unwrap().clone();
        let text = |problem: &Value, key: &str| problem[key].as_str().unwrap().to_owned();
        let found = problems
            .iter()
            .map(|one| (text(one, "kind"), text(one, "subject")));
        let expected = expected
            .iter()
            .map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned()));
        found.eq(expected)
    });
}

#[test]
fn a_reload_or_the_problems_remedy_retries_a_fixed_command_without_a_request() {
    let directory = directory();
    let command = directory.path().join("server");
    let good = "#!/bin/sh\nwhile read -r line; do echo true; done\n";
    let mend = |text: &str| program(command.parent().unwrap(), "server", text.as_bytes(), 0o755);
    let service = service_with(
        directory,
        command.to_str().unwrap(),
        "throttle_delay = \"10min\"",
    );
    let mut client = service.connect();
    let failing = [("pool_failing", "bad-1")];
    throttled(&mut client);
    wait_for_problems(&service, &failing);
    // The command still fails.
    let failures = |client: &mut Client| client.pool("bad-1")["totals"]["start_failures"].as_u64();
    let before = failures(&mut client);
    client.operator.reload_config();
    wait_until("another try", || failures(&mut client) > before);
    wait_for_problems(&service, &failing);
    mend(good);
    client.operator.reload_config();
    wait_for_problems(&service, &[]);
    let pool = client.pool("bad-1");
    assert_eq!((&pool["used"], &pool["free"]), (&json!(0), &json!(1)));

    mend("#!/bin/sh\nexit 3\n");
    let pid = pool["procs"][0]["os_pid"].as_u64().unwrap();
    signal(u32::try_from(pid).unwrap(), "KILL");
    throttled(&mut client);
    wait_for_problems(&service, &failing);
    mend(good);
    let health = client.operator.get("/_health");
    let remedy = health["problems"][0]["remedy"].as_str().unwrap();
    let (_, order) = remedy.split_once("`settee ").expect("a command");
    let order = order.trim_end_matches('`').split(' ');
    prints(&service, &order.collect::<Vec<_>>());
    wait_for_problems(&service, &[]);
    service.stop();
}

#[test]
fn a_pool_that_never_worked_is_shown_as_failing_until_a_start_succeeds() {
    let directory = directory();
    let command = program(directory.path(), "exits", b"#!/bin/sh\nexit 3\n", 0o755);
    let service = service_with(directory, &command, "");
    let mut client = service.connect();
    throttled(&mut client);
    let lift = Order::new("POST", "/_pools/bad-1/_unthrottle", json!({}));
    client.operator.ok(&lift);
    let pool = client.pool("bad-1");
    assert_eq!(pool["throttled_ms"], Value::Null);
    let failure = pool["failure"].as_str().unwrap_or_default();
    assert!(failure.contains("status 3"), "{pool}");
    let states = || {
        let table = prints(&service, &["pool", "list"]);
        let row = table.lines().find(|line| line.starts_with("bad-1 "));
        row.unwrap_or_default().to_owned()
    };
    assert!(states().contains("  failing  "), "{}", states());
    let works = format!("#!/bin/sh\nexec {}\n", scripted(service.directory.path()));
    program(service.directory.path(), "exits", works.as_bytes(), 0o755);
    let taken = take(&mut client, "bad-1");
    assert_eq!(client.pool("bad-1")["failure"], Value::Null);
    assert!(!states().contains("failing"), "{}", states());
    assert!(give_back(&mut client, &taken, "ok"));
    service.stop();
}

#[test]
fn a_pool_without_a_throttle_retries_on_every_request() {
    let directory = directory();
    let command = program(directory.path(), "locked", b"#!/bin/sh\n", 0o644);
    let service = service_with(directory, &command, "throttle_delay = 0");
    let mut client = service.connect();
    for _ in 0..3 {
        let error = client.error(&take_request("bad-1"));
        assert_eq!(
            (&error["name"], &error["phase"]),
            (&json!("os_process_error"), &json!("open"))
        );
    }
    assert_eq!(client.pool("bad-1")["totals"]["start_failures"], 3);
    service.stop();
}

#[test]
fn a_process_that_exits_on_a_prompt_fails_that_prompt_and_is_not_lent_again() {
    let directory = directory();
    let script = b"#!/bin/sh\nread line\necho true\nread line\necho true\nread line\nexit 2\n";
    let command = program(directory.path(), "once", script, 0o755);
    let service = service_with(directory, &command, "throttle_delay = 0");
    let mut client = service.connect();
    let lent = take(&mut client, "bad-1");
    assert_eq!(client.prompt(&lent.proc, json!(["reset"])), true);
    let prompt = json!({"call": "prompt", "proc": lent.proc, "data": ["echo", 1]});
    let error = client.error(&prompt);
    assert_eq!(
        (&error["name"], &error["status"]),
        (&json!("os_process_error"), &json!(2))
    );
    assert!(give_back(&mut client, &lent, "ok"));
    wait_until("its end", || !pid_exists(lent.os_pid));
    let next = take(&mut client, "bad-1");
    assert_ne!(next.os_pid, lent.os_pid);
    assert_eq!(client.pool("bad-1")["totals"]["died"], 1);
    service.stop();
}

#[test]
fn a_process_killed_while_idle_is_replaced_to_keep_init_size() {
    let service = Service::start("[pools.p]\nlanguage = \"python\"\ninit_size = 2\nmax = 2\n");
    let mut client = service.connect();
    client.wait_for_pool("p", &[("free", 2)]);
    let served = take(&mut client, "p");
    give_back(&mut client, &served, "ok");
    signal(u32::try_from(served.os_pid).unwrap(), "KILL");
    wait_until("its end", || !pid_exists(served.os_pid));
    client.wait_for_pool("p", &[("free", 2), ("opening", 0)]);
    assert_eq!(client.pool("p")["totals"]["died"], 1);
    service.stop();
}

#[test]
fn a_process_suspended_by_sigstop_stays_counted_and_its_prompts_time_out() {
    let service = Service::start("[pools.p]\nlanguage = \"python\"\nmax = 1\n");
    let mut client = service.connect();
    let lent = take(&mut client, "p");
    client.prompt(&lent.proc, json!(["reset"]));
    signal(u32::try_from(lent.os_pid).unwrap(), "STOP");
    assert_eq!(client.pool("p")["used"], 1);
    let prompt =
        json!({"call": "prompt", "proc": lent.proc, "data": ["echo", 1], "timeout_ms": 200});
    assert_eq!(client.error(&prompt)["name"], "timeout");
    give_back(&mut client, &lent, "fail");
    wait_until("its end", || !pid_exists(lent.os_pid));
    assert_ne!(take(&mut client, "p").os_pid, lent.os_pid);
    service.stop();
}

fn hog(limit: &str) -> Service {
    let directory = directory();
    let command = scripted(directory.path());
    service_with(directory, &command, limit)
}

#[test]
fn a_process_above_max_memory_is_replaced_on_return() {
    let service = hog("max_memory = \"100MiB\"");
    let mut client = service.connect();
    let lent = take(&mut client, "bad-1");
    client.prompt(&lent.proc, json!(["keep", 200 << 20]));
    wait_until("a sample of its memory", || {
        client.pool("bad-1")["procs"][0]["memory"].as_u64() > Some(200 << 20)
    });
    // It is not stopped while it is lent.
    assert_eq!(client.prompt(&lent.proc, json!(["reset"])), true);
    assert!(give_back(&mut client, &lent, "ok"));
    assert_ne!(take(&mut client, "bad-1").os_pid, lent.os_pid);
    assert_eq!(client.pool("bad-1")["totals"]["recycled"]["memory"], 1);
    service.stop();
}

#[test]
fn a_process_above_max_memory_hard_is_stopped_and_its_holder_notified() {
    let service = hog("max_memory_hard = \"100MiB\"");
    let mut client = service.connect();
    let lent = take(&mut client, "bad-1");
    let keep = json!({"id": 1, "call": "prompt", "proc": lent.proc, "data": ["keep", 200 << 20]});
    client.send(&keep);
    // The prompt's answer and the notice; on a slow machine an error instead of the answer.
    let lines = [client.reply(), client.reply()];
    let notice = lines
        .iter()
        .find(|line| line.get("down").is_some())
        .unwrap();
    assert_eq!(
        (&notice["down"], &notice["name"]),
        (&json!(lent.proc), &json!("memory_exceeded"))
    );
    assert!(
        notice["reason"]
            .as_str()
            .unwrap()
            .contains("max_memory_hard"),
        "{notice}"
    );
    wait_until("its end", || !pid_exists(lent.os_pid));
    assert!(!give_back(&mut client, &lent, "ok"));
    service.stop();
}
