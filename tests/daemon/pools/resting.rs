//! What goes on in a cell while nobody holds its process: nothing, whatever a function left behind.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{Lent, add, give_back, prints, remove, take, wait_until_gone};
use crate::support::daemon::{Client, Service, directory, pid_exists, wait_until};
use crate::support::program::descendants;

/// Leaves four processes behind that never end, and one whose parent has ended and that left its group and session;
/// has 60 MB in a sixth; or waits for one that counts to a quarter of a million.
const SCRIPT: &str = r#"
while read -r line; do
    case $line in
        *'"spin"'*) for n in 1 2 3 4; do while :; do :; done & done
                setsid sh -c 'while :; do :; done &';;
        *'"hold"'*) setsid sh -c '(x=$(head -c 60000000 /dev/zero | tr "\0" x); while :; do :; done) &';;
        *'"work"'*) sh -c 'i=0; while [ $i -lt 250000 ]; do i=$((i + 1)); done';;
    esac
    case $line in *map_doc*) echo '[[]]';; *) echo true;; esac
done
"#;

/// How many processes such a cell has after `spin`: its first, its command, and what this left behind.
const SPINNING: usize = 7;

/// The configuration of a service in this directory, with the command written into it.
fn shell(directory: &TempDir, extra: &str) -> String {
    command(directory, "sh", SCRIPT, extra)
}

fn command(directory: &TempDir, interpreter: &str, text: &str, extra: &str) -> String {
    let script = directory.path().join("script");
    fs::write(&script, text).unwrap();
    format!(
        "{extra}[query_servers]\nshell = \"{interpreter} {}\"\n[pools.shell]\nsandbox = \"standard\"\nmax = 1\ninit_size = 1\n",
        script.display()
    )
}

/// A service with a process of that language; `None` where cells have no pid namespace.
fn service(extra: &str) -> Option<(Service, Client)> {
    service_of("sh", SCRIPT, extra)
}

fn service_of(interpreter: &str, text: &str, extra: &str) -> Option<(Service, Client)> {
    let directory = directory();
    let config = command(&directory, interpreter, text, extra);
    let service = Service::start_in(directory, &config);
    let mut client = service.connect();
    let mut sandbox = Value::Null;
    wait_until("a cell that was tried", || {
        sandbox = client.pool("shell")["sandbox"].clone();
        sandbox["layers"]
            .as_array()
            .is_some_and(|layers| !layers.is_empty())
    });
    if sandbox["missing"]["processes"].is_null() {
        client.wait_for_pool("shell", &[("free", 1)]);
        return Some((service, client));
    }
    println!("skipped: {sandbox}");
    service.stop();
    None
}

/// The processes below the launcher, its child first.
fn of_cell(launcher: u64) -> Vec<u64> {
    let all = descendants(launcher.try_into().unwrap());
    all.into_iter().map(u64::from).collect()
}

fn state(pid: u64) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether all rest but the first process of the cell.
fn rests(launcher: u64) -> bool {
    let all = of_cell(launcher);
    all.len() > 1 && all[1..].iter().all(|pid| state(*pid) == Some('T'))
}

fn prompt(client: &mut Client, lent: &Lent, what: &str) {
    assert_eq!(client.prompt(&lent.proc, json!([what])), json!(true));
}

/// Has a process leave others behind, gives it back, and waits until all of them rest.
fn leave_behind(client: &mut Client, what: &str) -> Lent {
    let lent = take(client, "shell");
    prompt(client, &lent, what);
    wait_until("processes that were left behind", || {
        of_cell(lent.os_pid).len() >= if what == "spin" { SPINNING } else { 3 }
    });
    assert!(give_back(client, &lent, "ok"));
    wait_until("rest", || rests(lent.os_pid));
    lent
}

#[test]
fn nothing_in_a_cell_runs_between_loans_and_all_resumes_with_the_next() {
    let Some((service, mut client)) = service("") else {
        return;
    };
    // One that nobody has had yet rests, too.
    let warm = client.pool("shell")["procs"][0]["os_pid"].as_u64().unwrap();
    wait_until("rest of a process that was started ahead", || rests(warm));
    let lent = leave_behind(&mut client, "spin");
    assert_eq!(lent.os_pid, warm);
    assert_eq!(of_cell(warm).len(), SPINNING);
    let cpu_us = || {
        let ps: Value = serde_json::from_str(&prints(&service, &["ps", "--json"])).unwrap();
        ps["procs"][0]["cpu_us"].as_u64().unwrap()
    };
    let before = cpu_us();
    assert_eq!(before, cpu_us());
    let again = take(&mut client, "shell");
    prompt(&mut client, &again, "nothing");
    wait_until("those that were left behind to go on", || {
        of_cell(warm)
            .iter()
            .filter(|pid| state(**pid) == Some('R'))
            .count()
            > 1
    });
    // Less than the command itself, which waits for its next line.
    wait_until("their processor time", || cpu_us() > before + 200_000);
    assert!(give_back(&mut client, &again, "ok"));
    wait_until("rest", || rests(warm));
    // A kill of a process of the cell from outside takes effect at once.
    let spinning = *of_cell(warm).last().unwrap();
    crate::support::daemon::signal(u32::try_from(spinning).unwrap(), "KILL");
    wait_until("the end of one that rests", || state(spinning) != Some('T'));
    assert!(
        !service.log().contains("query server was stopped"),
        "{}",
        service.log()
    );
    drop(client);
    service.stop();
}

#[test]
fn processes_that_rest_end_without_a_wait_when_they_are_stopped_and_with_the_service() {
    // Longer than the test may take.
    let patient = "[server]\nstop_grace = 3600000\n";
    let Some((service, mut client)) = service(patient) else {
        return;
    };
    // One that is told to end reads the end of its input.
    add(
        &mut client,
        "more",
        &json!({"language": "shell", "init_size": 1}),
    );
    let mut more = Value::Null;
    wait_until("rest in another pool", || {
        more = client.pool("more")["procs"][0]["os_pid"].clone();
        more.as_u64().is_some_and(rests)
    });
    client.operator.ok(&remove("more", "graceful"));
    wait_until_gone(&mut client, "more");
    let rests = leave_behind(&mut client, "spin");
    drop(client);
    let directory = service.stop_and_keep();
    wait_until("the end of the cell", || !pid_exists(rests.os_pid));
    let config = shell(&directory, patient);
    let service = Service::start_in(directory, &config);
    let mut client = service.connect();
    let rests = leave_behind(&mut client, "spin");
    let all = of_cell(rests.os_pid);
    let _directory = service.kill_and_keep();
    wait_until("the end of the whole cell", || {
        !all.iter().any(|pid| pid_exists(*pid))
    });
}

#[test]
fn ps_and_the_costs_of_a_call_count_what_its_command_has_started() {
    let Some((service, mut client)) = service("") else {
        return;
    };
    let call = json!({"id": 1, "call": "map_docs", "lang": "shell", "funs": ["f"], "report": true,
                      "docs": [{"_id": "work"}]});
    let reply = client.call(&call);
    let cpu_us = reply["cost"]["cpu_us"].as_u64().unwrap_or_default();
    assert!(cpu_us > 20_000, "{reply}");
    let lent = take(&mut client, "shell");
    prompt(&mut client, &lent, "hold");
    let mut row = Value::Null;
    wait_until("memory of an orphan in a group of its own", || {
        let ps: Value = serde_json::from_str(&prints(&service, &["ps", "--json"])).unwrap();
        row = ps["procs"][0].clone();
        row["memory"].as_u64() > Some(60_000_000) && row["cpu_us"].as_u64() > Some(cpu_us + 100_000)
    });
    assert!(give_back(&mut client, &lent, "ok"));
    drop(client);
    service.stop();
}

/// Leaves processes behind that let each other go on all the time, in a group without the command.
const STORM: &str = r#"
import os, signal, sys

def storm():
    ours = []
    os.setpgid(0, 0)
    for n in range(6):
        if not os.fork():
            while True:
                os.killpg(0, signal.SIGCONT)
    while True:
        os.killpg(0, signal.SIGCONT)

storms = False
for line in sys.stdin:
    if '"storm"' in line and not storms:
        storms = True
        if not os.fork():
            storm()
    print('[[]]' if 'map_doc' in line else 'true', flush=True)
"#;

/// The log of a process that ran at rest.
const KILLED_AT_REST: &str = "a query server ran while nobody held it, and is killed";

#[test]
fn a_leftover_process_cannot_resume_itself_at_rest() {
    let Some((service, mut client)) = service_of("/usr/bin/python3", STORM, "") else {
        return;
    };
    for _ in 0..10 {
        let lent = take(&mut client, "shell");
        prompt(&mut client, &lent, "storm");
        assert!(give_back(&mut client, &lent, "ok"));
        // It has come to rest where nothing has run for longer than all looks at it take.
        let mut since = Instant::now();
        wait_until("rest that lasts, or an end", || {
            if !rests(lent.os_pid) {
                since = Instant::now();
            }
            since.elapsed() > Duration::from_millis(700) || !pid_exists(lent.os_pid)
        });
    }
    drop(client);
    service.stop();
}

#[test]
fn a_process_that_runs_at_rest_again_and_again_is_killed_and_its_tenant_pays() {
    // 180 ms, less than what has to be used at rest before an end.
    let tenant = "[tenants.shop]\ncpu_share = 0.003\n";
    let Some((service, mut client)) = service(tenant) else {
        return;
    };
    let take =
        json!({"id": 1, "call": "get_proc", "pool": "shell", "db": "shop", "timeout_ms": 100});
    let lent = client.ok(&take);
    let launcher = lent["os_pid"].as_u64().unwrap();
    let proc = lent["proc"].as_str().unwrap();
    assert_eq!(client.prompt(proc, json!(["spin"])), json!(true));
    assert!(client.ret_proc(proc));
    wait_until("rest", || rests(launcher));
    wait_until("the end of one that does not rest", || {
        for pid in of_cell(launcher).into_iter().skip(2) {
            let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            let _ = kill_process(pid, Signal::CONT);
        }
        !pid_exists(launcher)
    });
    wait_until("its reason in the log", || {
        service.log().contains(KILLED_AT_REST)
    });
    let error = client.error(&take);
    let words = error["reason"].as_str().unwrap();
    assert!(words.contains("[tenants.\"shop\"] cpu_share"), "{error}");
    drop(client);
    service.stop();
}
