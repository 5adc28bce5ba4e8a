//! Users of cells: each cell has its own user on the host, and so its own per-user limits of the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use serde_json::{Value, json};
use settee::query_server::cell::subordinate::accounts;
use settee::query_server::cell::user::DEFAULT_RANGE;
use tempfile::TempDir;

use super::running::{
    NOBODY, Running, all_end, cell, eventually, has, holds, is_alive, layers, report, spec,
};
use crate::support::folder::open_folder;
use crate::support::program::{SETTEE, copy_program};

/// An unused user, for a service that is not root.
const SERVICE: &str = "2099999999";

/// What a service that is not root needs to give cells their own users.
const CAPABILITIES: &str = "+setuid,+setgid,+kill";

/// Prints how many timers it gets and the size of its first pipe in KiB, and keeps these and many more pipes.
const TAKES_ALL: &str = r"
import ctypes, fcntl, os, sys
libc, timer, timers = ctypes.CDLL(None), ctypes.c_void_p(), 0
while timers < 1000 and libc.timer_create(1, None, ctypes.byref(timer)) == 0: timers += 1
kept = []
for _ in range(80):
    kept.append(os.pipe())
    try: fcntl.fcntl(kept[-1][1], 1031, 1 << 20)
    except OSError: break
print(timers, fcntl.fcntl(kept[0][1], 1032) >> 10, flush=True)
sys.stdin.readline()
";

/// Maximum number of timers of one user.
const TIMERS_MAX: u32 = 40;

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        println!("skipped: only root starts processes of other users");
    }
    is_root
}

/// The user and group id of a process on the host; all four of each are equal.
fn ids(process: u32) -> (u32, u32) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let numbers: BTreeSet<u32> = line
            .unwrap()
            .split_whitespace()
            .map(|number| number.parse().unwrap())
            .collect();
        assert_eq!(numbers.len(), 1, "{status}");
        numbers.into_iter().next().unwrap()
    };
    assert!(status.contains("\nGroups:\t \n"), "{status}");
    (of("Uid:"), of("Gid:"))
}

fn is_free(user: u32) -> bool {
    let address = SocketAddr::from_abstract_name(format!("settee-user-{user}")).unwrap();
    UnixDatagram::bind_addr(&address).is_ok()
}

/// Starts a cell, and also returns the user of its command.
fn ready(command: Command) -> (Running, u32) {
    let mut running = Running::start(command);
    assert_eq!(running.line(), "ready");
    let command = *running.descendants().last().unwrap();
    let (user, group) = ids(command);
    assert_eq!(user, group);
    let status = fs::read_to_string(format!("/proc/{command}/status")).unwrap();
    assert!(status.contains("\nCapBnd:\t0000000000000000\n"), "{status}");
    (running, user)
}

fn waits(spec: &Value) -> Command {
    cell(&[], spec, &["/bin/sh", "-c", "echo ready; read -r line"])
}

/// A copy of the program that every user can execute.
fn public_program() -> (TempDir, PathBuf) {
    let folder = open_folder();
    let settee = folder.path().join("settee");
    copy_program(SETTEE, &settee);
    (folder, settee)
}

/// A command that runs as another user, with more `options` of setpriv.
fn as_user(user: &str, group: &str, options: &[&str], program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", user, "--regid", group, "--clear-groups"])
        .args(options)
        .arg(program)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn each_cell_has_its_own_user_id_on_the_host_which_is_released_when_it_ends() {
    if !is_root() {
        return;
    }
    let (one, first) = ready(waits(&spec(json!({}))));
    let (mut other, second) = ready(waits(&spec(json!({}))));
    assert_ne!(first, second);
    for user in [first, second] {
        assert!(DEFAULT_RANGE.contains(user), "{user}");
        assert!(!is_free(user), "{user}");
    }
    assert_eq!(one.status(), Some(1));
    assert!(is_free(first) && !is_free(second));
    let pids = other.descendants();
    other.launcher.kill().unwrap();
    all_end("its launcher is killed", &pids);
    eventually("the user id is free", || is_free(second));
}

#[test]
fn user_ids_come_from_the_configured_range_until_all_are_taken() {
    if !is_root() {
        return;
    }
    let few = json!({"user_range": "2099999000-2099999015"});
    let cells: Vec<(Running, u32)> = (0..16).map(|_| ready(waits(&spec(few.clone())))).collect();
    let users: BTreeSet<u32> = cells.iter().map(|(_, user)| *user).collect();
    assert_eq!(users, (2_099_999_000..=2_099_999_015).collect());
    let report = report(&spec(few));
    let why = report["missing"]["user"].as_str().unwrap();
    assert!(why.contains("are taken"), "{report}");
}

#[test]
fn user_ids_outside_the_services_user_namespace_are_not_used() {
    let contained = |options: &[&str], script: &str| {
        let cell = cell(options, &spec(json!({})), &["/bin/sh", "-c", script]);
        let mut command = Command::new("unshare");
        command.arg("--map-root-user").arg(cell.get_program());
        command.args(cell.get_args()).output().unwrap()
    };
    let output = contained(&[], "echo works");
    if String::from_utf8_lossy(&output.stderr).contains("unshare failed") {
        return println!("skipped: no user namespaces here");
    }
    assert_eq!(output.stdout, b"works\n", "{output:?}");
    let report = layers(&contained(&["--report"], ""));
    let why = report["missing"]["user"].as_str().unwrap();
    assert!(
        why.contains("do not exist in this user namespace"),
        "{report}"
    );
}

#[test]
fn without_a_range_the_layer_is_missing_and_no_cell_runs_as_root() {
    let none = json!({"user_range": null});
    let report = report(&spec(none.clone()));
    let why = report["missing"]["user"].as_str().unwrap();
    assert!(why.contains("user_range"), "{report}");
    let strict = spec(json!({"user_range": null, "mode": "strict"}));
    let output = waits(&strict).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{reported}");
    assert!(reported.contains("user: user_range of"), "{reported}");
    let (_cell, user) = ready(waits(&spec(none)));
    let own = geteuid().as_raw();
    let expected = if own == 0 { NOBODY } else { &own.to_string() };
    assert_eq!(user.to_string(), expected);
}

#[test]
fn a_cell_cannot_exhaust_the_user_limits_of_another_cell_or_of_the_service() {
    let python = Path::new("/usr/bin/python3");
    if !is_root() || !python.exists() {
        return println!("skipped: needs root and Python");
    }
    let (_folder, settee) = public_program();
    let limit = format!("--sigpending={TIMERS_MAX}");
    let limited = |command: Command| {
        let mut limited = Command::new("prlimit");
        limited.arg(&limit).arg(command.get_program());
        limited.args(command.get_args());
        limited
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut running = Running::start(limited);
        let line = running.line();
        let (timers, pipe) = line.split_once(' ').expect(&line);
        let taken: (u32, u32) = (timers.parse().unwrap(), pipe.parse().unwrap());
        (running, taken)
    };
    let outside = || {
        let mut command = as_user(SERVICE, SERVICE, &[], python);
        command.args(["-c", TAKES_ALL]);
        limited(command)
    };
    let service = ["--inh-caps", CAPABILITIES, "--ambient-caps", CAPABILITIES];
    let inside = || {
        let mut command = as_user(SERVICE, SERVICE, &service, &settee);
        // `fcntl` enlarges pipes.
        let spec = spec(json!({"system_calls": ["fcntl", "timer_create"]})).to_string();
        command.args(["cell", &spec, "--", "/usr/bin/python3", "-c", TAKES_ALL]);
        limited(command)
    };
    // Without cells, the first process leaves nothing for the second.
    let (one, first) = outside();
    let (other, second) = outside();
    assert!(
        first.0 >= TIMERS_MAX - 1 && second.0 == 0,
        "{first:?} {second:?}"
    );
    let pipes_are_counted = first.1 >= 1024 && second.1 < 64;
    assert!(pipes_are_counted, "{first:?} {second:?}");
    assert_eq!((one.status(), other.status()), (Some(0), Some(0)));
    let cells = [inside(), inside(), outside()];
    for (_, taken) in &cells {
        assert!(taken.0 >= TIMERS_MAX - 1, "{taken:?}");
        assert!(taken.1 >= 1024, "{taken:?}");
    }
    for (running, _) in cells {
        assert_eq!(running.status(), Some(0));
    }
}

#[test]
fn a_service_that_is_not_root_gives_cells_their_own_users_if_it_has_three_capabilities() {
    if !is_root() {
        return;
    }
    let (_folder, settee) = public_program();
    let as_service = |capabilities: &str, options: &[&str], words: &[&str]| {
        let given = ["--inh-caps", capabilities, "--ambient-caps", capabilities];
        let mut command = as_user(SERVICE, SERVICE, &given, &settee);
        command.arg("cell").args(options);
        command
            .arg(spec(json!({})).to_string())
            .arg("--")
            .args(words);
        command
    };
    let output = as_service(CAPABILITIES, &["--report"], &["/bin/sh"]).output();
    let report = layers(&output.unwrap());
    for layer in [
        "privileges",
        "user",
        "files",
        "processes",
        "process_count",
        "end",
    ] {
        assert!(holds(&report, layer) || !has(layer), "{layer}: {report}");
    }
    let command = as_service(
        CAPABILITIES,
        &[],
        &["/bin/sh", "-c", "echo ready; sleep 600"],
    );
    let (mut running, user) = ready(command);
    assert!(DEFAULT_RANGE.contains(user));
    // Only the death of the launcher ends this cell.
    let pids = running.descendants();
    running.launcher.kill().unwrap();
    all_end("everything in the cell ends", &pids);
    let output = as_service("+setuid", &["--report"], &["/bin/sh"]).output();
    let report = layers(&output.unwrap());
    let why = report["missing"]["user"].as_str().unwrap();
    assert!(why.contains("CAP_SETGID, CAP_KILL"), "{report}");
}

/// A user of the machine that has subordinate ids, with its group.
fn user_with_subordinate_ids() -> Option<(String, String)> {
    let ranges = fs::read_to_string("/etc/subuid").unwrap_or_default();
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let named = |name: &str| {
        ranges
            .lines()
            .any(|line| line.split(':').next() == Some(name))
    };
    let found = accounts(&users).find(|(name, ids)| ids.uid > 0 && named(name));
    found.map(|(_, ids)| (ids.uid.to_string(), ids.gid.to_string()))
}

#[test]
fn cells_of_an_unprivileged_user_run_with_its_subordinate_ids() {
    let Some((user, group)) = user_with_subordinate_ids().filter(|_| is_root()) else {
        return println!("skipped: no user of this machine has a line in /etc/subuid");
    };
    let (_folder, settee) = public_program();
    let as_ordinary = |options: &[&str], words: &[&str]| {
        let mut command = as_user(&user, &group, options, &settee);
        command.args(["cell", &spec(json!({})).to_string(), "--"]);
        command.args(words);
        command
    };
    let waits = ["/bin/sh", "-c", "echo ready; read -r line"];
    let (one, first) = ready(as_ordinary(&[], &waits));
    let (mut other, second) = ready(as_ordinary(&[], &waits));
    assert_ne!(first, second);
    let own: u32 = user.parse().unwrap();
    assert!(![0, own].contains(&first) && ![0, own].contains(&second));
    assert_eq!(one.status(), Some(1));
    let pids = other.descendants();
    other.launcher.kill().unwrap();
    all_end("its launcher is killed", &pids);
    let refused = as_ordinary(&["--no-new-privs"], &waits).output().unwrap();
    let reported = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(reported.contains("NoNewPrivileges"), "{reported}");
}

#[test]
fn a_cell_has_its_own_user_id_even_if_the_system_refuses_namespaces() {
    if !is_root() {
        return;
    }
    use super::running::{clones, under};
    let both = [libc::CLONE_NEWUSER, libc::CLONE_NEWPID];
    under(clones(&both), libc::EPERM, || {
        let (running, user) = ready(waits(&spec(json!({}))));
        assert!(DEFAULT_RANGE.contains(user));
        assert_eq!(running.status(), Some(1));
    });
}

#[test]
fn a_program_that_the_cell_cannot_read_is_reported_with_the_closed_path_and_a_remedy() {
    if !is_root() {
        return;
    }
    let folder = open_folder();
    let (private, program) = (
        folder.path().join("private"),
        folder.path().join("private/program"),
    );
    fs::create_dir(&private).unwrap();
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&program, &link).unwrap();
    for path in [&program, &link] {
        let output = cell(&[], &spec(json!({})), &[path.to_str().unwrap()]).output();
        let output = output.unwrap();
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(126), "{reported}");
        let remedy = format!("'{0}' is not: `chmod o+rx '{0}'`", private.display());
        assert!(
            reported.contains(&remedy) && reported.contains("in no group"),
            "{reported}"
        );
    }
    // The same applies to a path in the configuration.
    let spec = spec(json!({"read_paths": [program, "/usr"]}));
    let report = report(&spec);
    let unreadable = report["unreadable"].as_array().unwrap();
    assert_eq!(unreadable.len(), 1, "{report}");
    let why = unreadable[0].as_str().unwrap();
    assert!(
        why.starts_with(&format!("'{}' cannot be used", program.display())),
        "{why}"
    );
    fs::set_permissions(&private, fs::Permissions::from_mode(0o755)).unwrap();
    let status = cell(&[], &spec, &[link.to_str().unwrap()])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn the_built_in_server_runs_neither_as_root_nor_as_the_services_user() {
    if !is_root() {
        return;
    }
    let mut command = Command::new(SETTEE);
    command
        .args(["couchjs", "--sandbox", "standard"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut running = Running::start(command);
    running.send("[\"reset\"]");
    assert_eq!(running.line(), "true");
    let (user, group) = ids(running.launcher.id());
    assert!(DEFAULT_RANGE.contains(user) && user == group);
    let server = running.launcher.id();
    drop(running);
    assert!(!is_alive(server));
}
