//! No secret leaks from the program: not from its environment, its memory or a core dump.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::chown;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde_json::json;
use tempfile::TempDir;

use crate::support::daemon::{
    Client, Service, configure, directory, serve_command, signal, wait_for_exit, wait_until,
};
use crate::support::http_client::{Web, closed_command};
use crate::support::program::{SETTEE, copy_program, program, read_lines};
use crate::support::work::Work;

/// The value of each secret variable.
const SECRET: &str = "top-secret";

/// An ordinary user.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives a command variables with secrets in them.
fn with_secrets(mut command: Command) -> Command {
    for name in [
        "SETTEE__ADMINS__ANN",
        "settee__chttpd_auth__secret",
        "SETTEE_SOURCE_PASSWORD",
        "COUCHDB_PASSWORD",
        "COUCHDB_QUERY_SERVER_LISP",
    ] {
        command.env(name, SECRET);
    }
    command.env("A_VARIABLE_OF_OTHERS", "stays");
    command
}

/// Returns the environment of a process as the system shows it.
fn shown_environment(pid: u32) -> io::Result<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ"))?;
    Ok(String::from_utf8_lossy(&bytes).replace('\0', "\n"))
}

/// Asserts that root sees the environment without secrets, and an ordinary user nothing.
#[track_caller]
fn assert_shows_no_secret(pid: u32) {
    let shown = match shown_environment(pid) {
        Ok(shown) => shown,
        Err(error) if !is_root() => {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(is_root(), "an ordinary user sees {shown}");
    assert!(shown.contains("A_VARIABLE_OF_OTHERS=stays"), "{shown}");
    let shown = shown.to_uppercase();
    for word in ["SETTEE_", "COUCHDB_", "TOP-SECRET"] {
        assert!(!shown.contains(word), "{word} in {shown}");
    }
}

/// Returns whether the process and its children can neither gain privileges nor leave cores.
fn is_hardened(pid: u32) -> bool {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let limits = read("limits");
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let words = core.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let no_core = words.is_some_and(|words| words[4..6] == ["0", "0"]);
    no_core && read("status").contains("\nNoNewPrivs:\t1\n")
}

#[test]
fn the_environment_shows_no_secret_and_children_inherit_none() {
    let directory = directory();
    let config = configure(directory.path(), "");
    let service = Service::start_command(directory, with_secrets(serve_command(&config)));
    assert_shows_no_secret(service.pid());
    let mut client = service.connect();
    let proc = client.get_proc("python");
    for name in [
        "SETTEE__ADMINS__ANN",
        "SETTEE_SOURCE_PASSWORD",
        "COUCHDB_PASSWORD",
    ] {
        assert_eq!(
            client.prompt(&proc, json!(["env", name])),
            json!(null),
            "{name}"
        );
    }
    let pid = client.prompt(&proc, json!(["pid"])).as_u64().unwrap();
    let shown = shown_environment(u32::try_from(pid).unwrap()).unwrap();
    assert!(shown.contains("PATH="), "{shown}");
    assert!(!shown.contains(SECRET), "{shown}");
    assert!(client.ret_proc(&proc));
    service.stop();
}

#[test]
fn a_reload_keeps_the_settings_of_the_environment() {
    let directory = directory();
    let config = configure(directory.path(), "");
    let command = with_secrets(closed_command(&config));
    let mut service = Service::start_command(directory, command);
    let address = service.next_address("http://");
    let web = Web { service, address };
    let log_in = || {
        let body = json!({"name": "ann", "password": SECRET}).to_string();
        web.send("POST", "/_session", &body).ok();
    };
    log_in();
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}\n[log]\nlevel = \"debug\"\n")).unwrap();
    web.service.signal("HUP");
    web.service.wait_for_log("configuration changed");
    assert!(web.service.log().contains("[log] level"));
    assert!(
        !web.service.log().contains("admins"),
        "{}",
        web.service.log()
    );
    log_in();
    web.service.stop();
}

/// Calls as another user, if this process may change its user.
fn as_user<T: Send>(user: u32, call: impl FnOnce() -> T + Send) -> T {
    let calling = || {
        if is_root() {
            // A thread may have another user than its process.
            let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
        }
        call()
    };
    thread::scope(|scope| scope.spawn(calling).join().unwrap())
}

/// An attempt to read or take over a process of the same user.
type Attempt = fn(u32) -> io::Result<()>;

const ATTEMPTS: [(&str, Attempt); 4] = [
    ("read its environment", |pid| {
        shown_environment(pid).map(drop)
    }),
    ("open its memory", |pid| {
        let path = format!("/proc/{pid}/mem");
        fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .map(drop)
    }),
    ("list its files", |pid| {
        fs::read_dir(format!("/proc/{pid}/fd")).map(drop)
    }),
    // The kernel checks the same permission as for ptrace(2).
    ("take its standard input", |pid| {
        let process = pidfd_open(pid_of(pid), PidfdFlags::empty())?;
        Ok(pidfd_getfd(process.as_fd(), 0, PidfdGetfdFlags::empty()).map(drop)?)
    }),
];

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(pid.try_into().unwrap()).unwrap()
}

/// Makes a command run as the user, if this process may change its user.
fn run_as(user: u32, command: &mut Command) {
    if is_root() {
        command.uid(user).gid(user);
    }
}

/// Starts a service of an ordinary user: all its files are that user's.
fn service_of(user: u32) -> Service {
    let (directory, command) = command_of(user);
    Service::start_command(directory, with_secrets(command))
}

fn command_of(user: u32) -> (TempDir, Command) {
    let directory = directory();
    let config = configure(
        directory.path(),
        "[pools.python]\nlanguage = \"python\"\nmax_memory = \"1GiB\"\n",
    );
    // The user may have no access to the build directory.
    let settee = directory.path().join("settee");
    fs::hard_link(SETTEE, &settee).unwrap_or_else(|_| copy_program(SETTEE, &settee));
    if is_root() {
        for path in [directory.path(), &config] {
            chown(path, Some(user), Some(user)).unwrap();
        }
    }
    let built = serve_command(&config);
    let mut command = Command::new(&settee);
    command.args(built.get_args()).stdin(Stdio::null());
    command.envs(
        built
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    run_as(user, &mut command);
    (directory, command)
}

/// A process that its user may read and trace; it ends with its input.
fn other_process_of(user: u32) -> Child {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    run_as(user, &mut command);
    command.spawn().unwrap()
}

#[test]
fn another_process_of_the_same_user_can_neither_read_nor_trace_a_service() {
    let service = service_of(NOBODY);
    let mut other = other_process_of(NOBODY);
    for (what, attempt) in ATTEMPTS {
        let (open, closed) = (other.id(), service.pid());
        let allowed = as_user(NOBODY, || attempt(open));
        if let Err(error) = allowed {
            // Some systems forbid tracing altogether: then there is nothing to prove.
            eprintln!("skipped: this system does not let the user {what}: {error}");
            continue;
        }
        let refused = as_user(NOBODY, || attempt(closed));
        assert!(refused.is_err(), "it is possible to {what}");
    }
    drop(other.stdin.take());
    assert_eq!(wait_for_exit(&mut other), Some(0));
    service.stop();
}

#[test]
fn a_service_of_any_user_reads_its_own_process_metrics() {
    for user in [NOBODY, rustix::process::geteuid().as_raw()] {
        let (directory, mut command) = command_of(user);
        command.env("SETTEE__SERVER__HTTP", "127.0.0.1:0");
        command.env("SETTEE__SERVER__OPEN", "true");
        let web = Web::start_command(directory, command);
        let text = web.get("/metrics").body;
        for (name, least) in [
            ("process_cpu_seconds_total", 0.000_1),
            ("process_resident_memory_bytes", 1e6),
            ("process_virtual_memory_bytes", 1e6),
            ("process_open_fds", 4.0),
            ("process_max_fds", 4.0),
            ("process_threads", 2.0),
            ("process_start_time_seconds", 1e9),
        ] {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.trim().parse::<f64>().ok());
            assert!(number >= Some(least), "{name}{line:?} of user {user}");
        }
        web.service.stop();
    }
}

#[test]
fn a_service_of_an_ordinary_user_monitors_its_children_and_reports_its_status() {
    let service = service_of(NOBODY);
    let socket = service.socket();
    let settee = service.path("settee");
    as_user(NOBODY, || {
        let mut client = Client::connect(&socket);
        let proc = client.get_proc("python");
        // Read from /proc.
        wait_until("the memory of a process", || {
            client.pool("python")["procs"][0]["memory"].as_u64() > Some(0)
        });
        let exits = json!({"id": 1, "call": "prompt", "proc": proc, "data": ["exit", 3]});
        assert_eq!(client.error(&exits)["status"], 3);
    });
    let mut status = Command::new(settee);
    status.args(["status", "--socket"]).arg(&socket);
    run_as(NOBODY, &mut status);
    let output = status.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    service.stop();
}

/// A shell that lets a command leave as large a core as the machine allows.
fn with_cores(command: &str, directory: &Path) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("ulimit -c \"$(ulimit -H -c)\"; {command}");
    shell.args(["-c", &script]).current_dir(directory);
    shell
}

#[test]
fn a_service_that_crashes_leaves_no_core() {
    let directory = directory();
    let crash = with_cores("kill -ABRT $$", directory.path())
        .status()
        .unwrap();
    if !crash.core_dumped() {
        eprintln!("skipped: this system leaves no cores");
        return;
    }
    let config = configure(directory.path(), "");
    let mut command = with_cores("exec \"$0\" serve -c \"$1\"", directory.path());
    command.arg(SETTEE).arg(&config).stdout(Stdio::piped());
    let mut service = command
        .env("SETTEE__SERVER__HTTP", "off")
        .env("SETTEE__STORE__PATH", "memory")
        .spawn()
        .unwrap();
    read_lines(service.stdout.as_mut().unwrap(), 1);
    signal(service.id(), "ABRT");
    let end = service.wait().unwrap();
    assert_eq!(end.signal(), Some(Signal::ABORT.as_raw()));
    assert!(!end.core_dumped());
}

#[test]
fn commands_that_hold_secrets_or_start_children_are_hardened() {
    let work = Work::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://ann@{}/db", silent.local_addr().unwrap());
    let map = work.file("map.js", "function(doc) { emit(doc.v); }");
    let never = work.file("never.sh", "while read -r line; do :; done");
    for arguments in [
        vec!["map", "--map", &map],
        vec!["replicate", &url, &url],
        vec!["conform", "--timeout", "3600", "--", "sh", &never],
    ] {
        let mut command = with_secrets(program(&arguments));
        // These commands do not use this key.
        command.env_remove("settee__chttpd_auth__secret");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until(&format!("hardened {arguments:?}"), || {
            is_hardened(child.id())
        });
        assert_shows_no_secret(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let service = Service::start("");
    assert!(is_hardened(service.pid()));
    service.stop();
}
