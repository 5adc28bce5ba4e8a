//! `settee ps` and `settee kill`: listing what each process does now, and killing one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{complains, prints, take, take_request};
use crate::support::daemon::{Client, Service, configure, directory, pid_exists, wait_until};
use crate::support::http_client::{Web, command};
use crate::support::program::exit_code;

/// Returns the output of `settee ps --json`.
fn ps(service: &Service) -> Value {
    serde_json::from_str(&prints(service, &["ps", "--json"])).unwrap()
}

/// Waits for a process in this state, and returns its row.
fn wait_for_state(service: &Service, state: &str) -> Value {
    let mut row = Value::Null;
    wait_until(&format!("a process that is {state}"), || {
        let page = ps(service);
        let rows = page["procs"].as_array().unwrap();
        let found = rows.iter().find(|row| row["state"] == state);
        row = found.cloned().unwrap_or_default();
        !row.is_null()
    });
    row
}

fn name(row: &Value) -> &str {
    row["name"].as_str().unwrap()
}

/// A query server that hangs in every show, and in learning a design document with `hard`.
const ENDLESS: &str = "while read -r line; do case $line in \
    *'\"new\"'*hard*) : > \"$0.here\"; while :; do :; done;; *'\"new\"'*) echo true;; *'\"shows\"'*) : > \"$0.here\"; while :; do :; done;; \
    *map_doc*) echo '[[]]';; *) echo true;; esac; done\n";

/// Writes [`ENDLESS`] into a new directory; returns the directory, and a configuration of the language `endless`.
fn endless() -> (TempDir, String) {
    let directory = directory();
    let script = directory.path().join("endless.sh");
    fs::write(&script, ENDLESS).unwrap();
    let config = format!("[query_servers]\nendless = \"sh {}\"\n", script.display());
    (directory, config)
}

/// Calls a show that never returns, and returns the row of its process.
fn run_endless(service: &Service, client: &mut Client) -> Value {
    send_show(service, client, "f");
    wait_for_state(service, "running")
}

/// Calls a show, and waits until a process hangs in it or in its design document.
fn send_show(service: &Service, client: &mut Client, source: &str) {
    client.send(&json!({
        "id": 7, "call": "show", "db": "shop", "name": "s", "request_id": "endless-1", "timeout_ms": 3_600_000,
        "ddoc": {"_id": "_design/d", "language": "endless", "shows": {"s": source}},
    }));
    wait_until("the show to reach a process", || {
        service.path("endless.sh.here").exists()
    });
}

#[test]
fn ps_shows_the_holder_function_and_cost_of_each_process() {
    let (directory, config) = endless();
    let config = config + "[pools.python]\ninit_size = 1\n";
    let service = Service::start_in(directory, &config);
    let mut client = service.connect();
    client.wait_for_pool("python", &[("free", 1)]);
    run_endless(&service, &mut client);
    let mut row = Value::Null;
    wait_until("processor time", || {
        row = ps(&service)["procs"][0].clone();
        row["cpu_us"].as_u64() > Some(10_000)
    });
    let lent = &service.connect().pool("endless")["procs"][0];
    assert_eq!(row["name"], lent["name"], "{row} {lent}");
    assert_eq!(row["os_pid"], lent["os_pid"]);
    assert_eq!(row["holder"], lent["holder"]);
    assert_eq!(row["holder"]["pid"], std::process::id());
    let number = name(&row).strip_prefix("endless/").unwrap();
    assert!(number.parse::<u64>().is_ok(), "{row}");
    for (key, value) in [
        ("pool", "endless"),
        ("language", "endless"),
        ("state", "running"),
        ("request_id", "endless-1"),
        ("db", "shop"),
        ("ddoc", "_design/d"),
        ("function", "shows/s"),
    ] {
        assert_eq!(row[key], value, "{row}");
    }
    assert_eq!(row["uses"], 1);
    assert!(row["memory"].as_u64() > Some(100_000), "{row}");
    assert!(row["age_ms"].as_u64() >= row["state_ms"].as_u64(), "{row}");
    // Working processes are listed first.
    let page = ps(&service);
    assert_eq!(page["total_rows"], 2);
    assert_eq!(page["procs"][1]["state"], "idle");
    let table = prints(&service, &["ps"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "2 processes", "{table}");
    assert!(
        lines[3].starts_with(name(&row)) && lines[3].contains("shows/s"),
        "{table}"
    );
    assert!(lines[3].ends_with("endless-1"), "{table}");
    let one = prints(&service, &["ps", "--pool", "python", "--json"]);
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(
        (&one["total_rows"], &one["procs"][0]["pool"]),
        (&json!(1), &json!("python"))
    );
    let said = complains(&service, 66, &["ps", "--pool", "none"]);
    assert!(said.contains("there is no pool named 'none'"), "{said}");
    prints(&service, &["kill", name(&row)]);
    client.reply();
    service.stop();
}

#[test]
fn killing_a_process_that_runs_a_call_fails_that_call_and_no_other() {
    let (directory, config) = endless();
    let service = Service::start_in(directory, &(config + "[log]\nformat = \"json\"\n"));
    let mut client = service.connect();
    let row = run_endless(&service, &mut client);
    let said = prints(&service, &["kill", name(&row)]);
    let user = row["holder"]["user"].as_str().unwrap();
    assert!(
        said.contains(" was killed: the call endless-1 of "),
        "{said}"
    );
    assert!(said.contains("shows/s of _design/d in shop"), "{said}");
    let error = client.reply()["error"].clone();
    let exit = format!("was killed by order of {user}");
    for (key, value) in [
        ("name", json!("os_process_error")),
        ("reason", json!(format!("the query server {exit}"))),
        ("phase", json!("exit")),
        ("fault", json!("host")),
        ("retry", json!(true)),
        ("exit", json!(exit)),
        ("db", json!("shop")),
        ("function", json!("shows/s")),
    ] {
        assert_eq!(error[key], value, "{key}: {error}");
    }
    service.wait_for_log("kill_proc");
    let log = service.log();
    let record = log.lines().find(|line| line.contains("kill_proc"));
    let record: Value = serde_json::from_str(record.unwrap()).unwrap();
    for (key, value) in [
        ("level", json!("info")),
        ("msg", json!("audit")),
        ("who", json!(user)),
        ("on", row["name"].clone()),
        ("count", json!(1)),
    ] {
        assert_eq!(record[key], value, "{key}: {record}");
    }
    let before: Value = serde_json::from_str(record["before"].as_str().unwrap()).unwrap();
    let killed = json!({"state": "running", "os_pid": row["os_pid"], "request_id": "endless-1",
        "db": "shop", "ddoc": "_design/d", "function": "shows/s"});
    assert_eq!(before, killed);
    // The kill is counted, and the log mentions neither a limit nor an unexpected exit.
    let functions = client.operator.get("/_functions");
    assert_eq!(functions["functions"][0]["kills"], 1, "{functions}");
    let log = service.log();
    assert!(
        !log.contains("unasked") && !log.contains("in time"),
        "{log}"
    );
    let pid = row["os_pid"].as_u64().unwrap();
    wait_until("its end", || !pid_exists(pid));
    let said = complains(&service, 66, &["kill", name(&row)]);
    let gone = format!("there is no process named '{}'", name(&row));
    assert!(said.contains(&gone), "{said}");
    let map = json!({"id": 2, "call": "map_docs", "lang": "endless", "db": "shop", "funs": ["f"], "docs": [{"_id": "a"}]});
    assert_eq!(client.ok(&map), json!([[[]]]));
    service.stop();
}

#[test]
fn the_holder_of_a_killed_process_is_notified_and_can_take_another() {
    let service = Service::start("");
    let mut client = service.connect();
    let held = take(&mut client, "python");
    let row = wait_for_state(&service, "lent");
    assert_eq!(row["os_pid"], held.os_pid);
    let said = prints(&service, &["kill", name(&row)]);
    assert!(said.contains("was told to end"), "{said}");
    assert!(said.contains("held it, and is notified"), "{said}");
    let down = client.reply();
    assert_eq!(
        (&down["down"], &down["name"]),
        (&json!(held.proc), &json!("killed"))
    );
    let reason = down["reason"].as_str().unwrap();
    assert!(
        reason.contains("the process was killed by order of"),
        "{down}"
    );
    let prompt = json!({"id": 1, "call": "prompt", "proc": held.proc, "data": ["echo", 1]});
    assert_eq!(client.error(&prompt)["name"], "not_holder");
    assert!(!client.ret_proc(&held.proc));
    let other = take(&mut client, "python");
    assert_ne!(other.proc, held.proc);
    // An idle process has no holder to notify.
    assert!(client.ret_proc(&other.proc));
    client.wait_for_pool("python", &[("free", 1), ("used", 0)]);
    let row = wait_for_state(&service, "idle");
    let said = prints(&service, &["kill", name(&row)]);
    assert!(said.ends_with("nobody held it\n"), "{said}");
    client.wait_for_pool("python", &[("free", 0), ("stopping", 0)]);
    let totals = client.pool("python")["totals"].clone();
    assert_eq!((&totals["died"], &totals["lost"]), (&json!(1), &json!(0)));
    assert_eq!(client.operator.get("/_status")["proc_count"], 0);
    service.stop();
}

/// Answers, and ignores SIGTERM and the end of its input.
const STAYS: &str = "trap '' TERM\nwhile read -r line; do echo true; done\nmkfifo \"$0.never\"\nread -r line <> \"$0.never\"\n";

#[test]
fn kill_now_ends_a_process_that_ignores_an_earlier_kill() {
    let directory = directory();
    let script = directory.path().join("stays.sh");
    fs::write(&script, STAYS).unwrap();
    let extra = format!(
        "[query_servers]\nstays = \"sh {}\"\n[server]\nstop_grace = 3600000\n",
        script.display()
    );
    let service = Service::start_in(directory, &extra);
    let mut client = service.connect();
    let held = take(&mut client, "stays");
    let row = wait_for_state(&service, "lent");
    prints(&service, &["kill", name(&row)]);
    let ending = wait_for_state(&service, "ending");
    assert_eq!(name(&ending), name(&row));
    let again = prints(&service, &["kill", name(&row)]);
    assert!(
        again.ends_with("is already ending; --now kills it at once\n"),
        "{again}"
    );
    // Meanwhile its holder's prompts fail with the reason.
    let prompt = json!({"id": 1, "call": "prompt", "proc": held.proc, "data": ["x"]});
    let error = client.error(&prompt);
    let reason = error["reason"].as_str().unwrap();
    assert!(reason.contains("was killed by order of"), "{error}");
    let killed = prints(&service, &["kill", name(&row), "--now", "--json"]);
    let killed: Value = serde_json::from_str(&killed).unwrap();
    assert_eq!(
        (&killed["how"], &killed["proc"]["name"]),
        (&json!("killed"), &row["name"])
    );
    assert_eq!(client.reply()["down"], held.proc);
    wait_until("its end", || !pid_exists(held.os_pid));
    service.stop();
}

#[test]
fn a_waiter_is_notified_if_the_process_being_taught_for_it_is_killed() {
    let (directory, config) = endless();
    let service = Service::start_in(directory, &config);
    let mut client = service.connect();
    send_show(&service, &mut client, "hard");
    let row = wait_for_state(&service, "teaching");
    assert_eq!(row["holder"], Value::Null);
    let said = prints(&service, &["kill", name(&row)]);
    assert!(
        said.contains("was killed: the request that waits"),
        "{said}"
    );
    let error = client.reply()["error"].clone();
    let members = ["name", "phase", "fault", "retry"].map(|key| error[key].clone());
    let expected = ["os_process_error", "teach", "host"].map(Value::from);
    assert_eq!(members[..3], expected, "{error}");
    assert_eq!(members[3], true, "{error}");
    let reason = error["reason"].as_str().unwrap();
    assert!(reason.contains("was killed by order of"), "{error}");
    service.stop();
}

#[test]
fn a_process_that_is_being_started_is_listed_and_cannot_be_killed_yet() {
    let service = Service::start(
        "[query_servers]\nhangs = \"/bin/sleep 1000\"\n[pools.hangs]\nstart_timeout = \"1h\"\n[server]\nshutdown_grace = 1\n",
    );
    let mut client = service.connect();
    client.send(&take_request("hangs"));
    let row = wait_for_state(&service, "starting");
    assert_eq!((&row["os_pid"], &row["uses"]), (&Value::Null, &Value::Null));
    let said = complains(&service, 75, &["kill", name(&row)]);
    assert!(said.contains("is being started"), "{said}");
    let said = complains(&service, 64, &["kill", "17"]);
    assert!(said.contains("POOL/NUMBER"), "{said}");
    drop(client);
    // Shutdown does not wait for it longer than for others.
    service.stop();
}

#[test]
fn attach_continues_with_another_process_after_a_kill() {
    let service = Service::start("");
    let mut attach = service
        .client(&["attach", "--pool", "python"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = attach.stdin.take().unwrap();
    let mut output = BufReader::new(attach.stdout.take().unwrap());
    let mut answer = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line
    };
    input.write_all(b"[\"reset\"]\n").unwrap();
    assert_eq!(answer(), "true\n");
    input.write_all(b"[\"never\"]\n").unwrap();
    let row = wait_for_state(&service, "running");
    assert_eq!(row["function"], Value::Null, "no call of a function");
    let said = prints(&service, &["kill", name(&row)]);
    assert!(said.contains("was killed: the command of "), "{said}");
    let line = answer();
    let expected = "[\"error\",\"os_process_error\",\"the query server was killed by order of ";
    assert!(line.starts_with(expected), "{line}");
    input.write_all(b"[\"echo\",1]\n").unwrap();
    assert_eq!(answer(), "1\n");
    drop(input);
    assert_eq!(exit_code(&mut attach), Some(0));
    service.stop();
}

#[test]
fn a_service_connection_ends_with_a_line_that_names_who_killed_its_process() {
    let directory = directory();
    let socket = directory.path().join("p.sock");
    let extra = format!(
        "[pools.p]\nlanguage = \"python\"\n[services.p]\nlisten = \"unix:{}\"\npool = \"p\"\n",
        socket.display()
    );
    let service = Service::start_in(directory, &extra);
    let mut connection = Client::connect(&socket);
    connection.send(&json!(["echo", 1]));
    assert_eq!(connection.reply(), 1);
    let row = wait_for_state(&service, "lent");
    prints(&service, &["kill", name(&row)]);
    let line = connection.reply();
    assert_eq!(line[0], "error", "{line}");
    let reason = line[2].as_str().unwrap();
    assert!(reason.contains("was killed by order of"), "{line}");
    connection.assert_closed();
    service.stop();
}

#[test]
fn http_lists_and_kills_processes() {
    let (directory, config) = endless();
    let config = configure(directory.path(), &config);
    let web = Web::start_command(directory, command(&config));
    let mut client = web.service.connect();
    let running = run_endless(&web.service, &mut client);
    let page = web.get("/_procs?pool=endless").ok();
    assert_eq!(page["total_rows"], 1);
    assert_eq!(page["procs"][0]["name"], running["name"]);
    assert_eq!(page["procs"][0]["function"], "shows/s");
    let listed = web.get("/_pools/endless/_procs").ok();
    assert_eq!(listed["procs"][0]["name"], running["name"]);
    let reason = web.get("/_procs?pool=none").reason(404, "not_found");
    assert_eq!(reason, "there is no pool named 'none'");
    let path = format!("/_procs/{}", name(&running));
    let killed = web.send("DELETE", &path, "").ok();
    assert_eq!(
        (&killed["ok"], &killed["how"]),
        (&json!(true), &json!("killed"))
    );
    assert_eq!(killed["proc"]["request_id"], "endless-1");
    assert_eq!(client.reply()["error"]["fault"], "host");
    let pid = running["os_pid"].as_u64().unwrap();
    wait_until("its end", || !pid_exists(pid));
    wait_until("an empty list", || {
        web.get("/_procs").ok()["total_rows"] == 0
    });
    web.send("DELETE", &path, "").error(404, "not_found");
    web.send("DELETE", "/_procs/endless/x?now=true", "")
        .error(404, "not_found");
    web.service.stop();
}
