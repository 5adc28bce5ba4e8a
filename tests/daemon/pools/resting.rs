//! Nothing in a cell runs while its process is not lent, whatever a function left behind.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{Lent, add, give_back, prints, remove, take, wait_until_gone};
use crate::support::daemon::{Client, Service, directory, pid_exists, wait_until};
use crate::support::program::descendants;

/// `spin` leaves four endless processes behind, and an endless orphan in its own session; `hold` leaves an orphan
/// with 60 MB; `work` waits for a child that counts to 250,000.
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

/// Processes in a cell after `spin`: its init, its command, and those left behind.
const SPINNING: usize = 7;

/// Writes `SCRIPT` into this directory, and returns a configuration with it as the language `shell`.
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

/// A service with an idle process of `shell`; `None` where cells have no pid namespace.
fn service(extra: &str) -> Option<(Service, Client)> {
    service_of("sh", SCRIPT, extra)
}

fn service_of(interpreter: &str, text: &str, extra: &str) -> Option<(Service, Client)> {
    let directory = directory();
    let config = command(&directory, interpreter, text, extra);
    let service = Service::start_in(directory, &config);
    let mut client = service.connect();
    let mut sandbox = Value::Null;
    wait_until("the layers of the cell", || {
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

/// Whether all processes of the cell but its init are stopped.
fn rests(launcher: u64) -> bool {
    let all = of_cell(launcher);
    all.len() > 1 && all[1..].iter().all(|pid| state(*pid) == Some('T'))
}

fn prompt(client: &mut Client, lent: &Lent, what: &str) {
    assert_eq!(client.prompt(&lent.proc, json!([what])), json!(true));
}

/// Borrows a process, has it leave others behind, gives it back to the pool, and waits until all of them rest.
fn leave_behind(client: &mut Client, what: &str) -> Lent {
    let lent = take(client, "shell");
    prompt(client, &lent, what);
    wait_until("the processes left behind", || {
        of_cell(lent.os_pid).len() >= if what == "spin" { SPINNING } else { 3 }
    });
    assert!(give_back(client, &lent, "ok"));
    wait_until("rest", || rests(lent.os_pid));
    lent
}

#[test]
fn nothing_in_a_cell_runs_between_loans_and_everything_resumes_with_the_next() {
    let Some((service, mut client)) = service("") else {
        return;
    };
    // A process that was never lent rests, too.
    let warm = client.pool("shell")["procs"][0]["os_pid"].as_u64().unwrap();
    wait_until("a process started ahead to rest", || rests(warm));
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
    wait_until("the processes left behind to resume", || {
        of_cell(warm)
            .iter()
            .filter(|pid| state(**pid) == Some('R'))
            .count()
            > 1
    });
    // Only the processes left behind use processor time: the command itself waits for its next line.
    wait_until("processor time of the processes left behind", || {
        cpu_us() > before + 200_000
    });
    assert!(give_back(&mut client, &again, "ok"));
    wait_until("rest", || rests(warm));
    // SIGKILL from outside ends a resting process at once.
    let spinning = *of_cell(warm).last().unwrap();
    crate::support::daemon::signal(u32::try_from(spinning).unwrap(), "KILL");
    wait_until("the end of a resting process", || {
        state(spinning) != Some('T')
    });
    assert!(
        !service.log().contains("query server was stopped"),
        "{}",
        service.log()
    );
    drop(client);
    service.stop();
}

#[test]
fn resting_processes_end_at_once_on_removal_at_shutdown_and_if_the_service_is_killed() {
    // A grace period longer than the test waits.
    let patient = "[server]\nstop_grace = 3600000\n";
    let Some((service, mut client)) = service(patient) else {
        return;
    };
    // A resting process that is stopped resumes, and reads the end of its input.
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
fn ps_and_the_cost_of_a_call_include_processes_started_by_its_command() {
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
    wait_until("the memory of an orphan in its own group", || {
        let ps: Value = serde_json::from_str(&prints(&service, &["ps", "--json"])).unwrap();
        row = ps["procs"][0].clone();
        row["memory"].as_u64() > Some(60_000_000) && row["cpu_us"].as_u64() > Some(cpu_us + 100_000)
    });
    assert!(give_back(&mut client, &lent, "ok"));
    drop(client);
    service.stop();
}

/// Leaves processes behind that keep resuming each other, in a group without the command.
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

/// Logged for a process that ran at rest.
const KILLED_AT_REST: &str = "a query server ran while nobody held it, and is killed";

#[test]
fn leftover_processes_cannot_resume_each_other_at_rest() {
    let Some((service, mut client)) = service_of("/usr/bin/python3", STORM, "") else {
        return;
    };
    for _ in 0..10 {
        let lent = take(&mut client, "shell");
        prompt(&mut client, &lent, "storm");
        assert!(give_back(&mut client, &lent, "ok"));
        // Rest is lasting once it exceeds the time that all checks by the service take.
        let mut since = Instant::now();
        wait_until("lasting rest, or the end of the process", || {
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
fn a_process_that_keeps_running_at_rest_is_killed_and_its_time_charged_to_its_tenant() {
    // 180 ms, less than a process may run at rest before it is killed.
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
    wait_until("the end of a process that does not rest", || {
        for pid in of_cell(launcher).into_iter().skip(2) {
            let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            let _ = kill_process(pid, Signal::CONT);
        }
        !pid_exists(launcher)
    });
    wait_until("the kill in the log", || {
        service.log().contains(KILLED_AT_REST)
    });
    let error = client.error(&take);
    let words = error["reason"].as_str().unwrap();
    assert!(words.contains("[tenants.\"shop\"] cpu_share"), "{error}");
    drop(client);
    service.stop();
}
