//! Cells of external commands, tested from outside: what they allow and refuse, and that nothing is left of them.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};
use serde_json::{Value, json};

use super::running::{
    NOBODY, Running, Steps, all_end, cell, eventually, has, holds, is_running, layers, report,
    shell, spec,
};
use crate::support::folder::open_folder;
use crate::support::program::{SETTEE, copy_program};

#[test]
fn shell_python_and_perl_answer_line_by_line_in_a_cell() {
    let answers = [
        ("sh", "while read -r line; do echo \"<$line>\"; done"),
        (
            "python3",
            "import sys, json, re, datetime, hashlib\nfor line in sys.stdin: print('<%s>' % line.strip(), flush=True)",
        ),
        (
            "perl",
            "$| = 1; while (<STDIN>) { chomp; print \"<$_>\\n\" }",
        ),
    ];
    for (program, script) in answers {
        let Some(path) = ["/bin", "/usr/bin"]
            .map(|folder| Path::new(folder).join(program))
            .into_iter()
            .find(|path| path.exists())
        else {
            eprintln!("skipped: no {program} here");
            continue;
        };
        let option = if program == "perl" { "-e" } else { "-c" };
        let words = [path.to_str().unwrap(), option, script];
        let mut running = Running::start(cell(&[], &spec(json!({})), &words));
        for line in ["[\"reset\"]", "second"] {
            running.send(line);
            assert_eq!(running.line(), format!("<{line}>"), "{program}");
        }
        assert_eq!(running.status(), Some(0), "{program}");
    }
}

#[test]
fn a_cell_exits_with_the_status_of_its_command() {
    use std::os::unix::process::ExitStatusExt;
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 3", Some(3), None),
        ("kill -TERM $$", None, Some(libc::SIGTERM)),
        ("kill -KILL $$", None, Some(libc::SIGKILL)),
        ("kill -SEGV $$", None, Some(libc::SIGSEGV)),
    ] {
        let (_, _, output) = shell(&spec(json!({})), script);
        let status = output.status;
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
    }
}

#[test]
fn the_service_notices_that_a_command_closes_its_output_or_input() {
    let mut running = Running::shell(&spec(json!({})), "exec >&-; read line; exit 3");
    assert_eq!(running.line(), "");
    assert!(running.launcher.try_wait().unwrap().is_none());
    running.send("go on");
    assert_eq!(running.status(), Some(3));
    let mut running = Running::shell(&spec(json!({})), "exec <&-; echo closed; sleep 1000");
    assert_eq!(running.line(), "closed");
    let mut input = running.input.take().unwrap();
    eventually("the input is closed", || input.write_all(b"x").is_err());
}

#[test]
fn a_cell_whose_program_cannot_be_executed_exits_with_126_and_a_report() {
    let output = cell(&[], &spec(json!({})), &["/etc/passwd"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(126));
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        reported.contains("{\"error\":\"the program '/etc/passwd' cannot be executed"),
        "{reported}"
    );
}

#[test]
fn the_command_has_only_the_given_environment_and_three_descriptors() {
    let script = "env | grep -vE '^(PWD|OLDPWD|SHLVL|_)='; for n in 3 4 5 6 7 8 9; do \
                  (eval \": <&$n\") 2>/dev/null && echo \"descriptor $n\"; done; true";
    let (printed, _, _) = shell(&spec(json!({})), script);
    assert_eq!(printed, "PATH=/usr/local/bin:/usr/bin:/bin");
}

#[test]
fn only_programs_and_libraries_can_be_read_and_no_file_can_be_written() {
    if !has("files") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (folder.path().join("f"), folder.path().join("g"));
    fs::write(&file, "secret").unwrap();
    fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    // The names are assembled in the cell: a file that the command line names can be read.
    let script = format!(
        "d='{}'; cat \"$d\"'/'f; cat '/'etc/passwd; ls '/'proc; echo x >\"$d\"'/'g; rm \"$d\"'/'f; \
         echo x 2>/dev/null >/dev/null && echo end",
        folder.path().display()
    );
    let (printed, _, _) = shell(&spec(json!({})), &script);
    assert_eq!(printed, "end");
    assert!(file.exists() && !other.exists());
    // The configuration can allow reading, but not writing.
    let readable = spec(json!({"read_paths": [folder.path()]}));
    let (printed, _, _) = shell(&readable, &script);
    assert_eq!(printed, "secretend");
    assert!(file.exists() && !other.exists());
}

#[test]
fn no_socket_can_be_created_and_with_a_network_only_internet_sockets() {
    if !has("network") || !Path::new("/usr/bin/python3").exists() {
        return;
    }
    let script = "import socket as s\nfor n, f in ('inet', s.AF_INET), ('inet6', s.AF_INET6), ('unix', s.AF_UNIX), \
                  ('netlink', 16):\n try: s.socket(f, s.SOCK_STREAM if n != 'netlink' else s.SOCK_RAW); print(n)\n \
                  except OSError as e: print(e.errno)\na, b = s.socketpair(); a.send(b'x'); print(b.recv(1))\n\
                  try: s.socketpair(s.AF_UNIX, s.SOCK_DGRAM)\nexcept OSError as e: print(e.errno)";
    for (network, expected) in [(false, "1\n1\n1\n1"), (true, "inet\ninet6\n1\n1")] {
        let spec = spec(json!({"network": network}));
        let output = cell(&[], &spec, &["/usr/bin/python3", "-c", script])
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            printed.trim(),
            format!("{expected}\nb'x'\n1"),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn the_services_own_ports_are_closed_to_a_cell_with_a_network() {
    if !has("files") || !Path::new("/usr/bin/python3").exists() {
        return;
    }
    let [own, other] = [(), ()].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [own_port, other_port] =
        [&own, &other].map(|listener| listener.local_addr().unwrap().port());
    let script = format!(
        "import socket as s\nfor p in {own_port}, {other_port}:\n try: s.create_connection(('127.0.0.1', p)); print('in')\n \
         except OSError as e: print(e.errno)\nx = s.socket()\ntry: x.sendto(b'x', 0x20000000, ('127.0.0.1', {own_port}))\n\
         except OSError as e: print(e.errno)\ntry: s.socket(s.AF_INET, s.SOCK_STREAM, 262)\nexcept OSError as e: print(e.errno)"
    );
    let spec = spec(json!({"network": true, "refused_ports": [own_port]}));
    let output = cell(&[], &spec, &["/usr/bin/python3", "-c", &script])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        printed.trim(),
        "13\nin\n1\n1",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn refused_calls_are_reported_once_by_name() {
    if !has("system_calls") {
        return;
    }
    let script = "unshare -U true; unshare -U true; mount -t tmpfs x /usr; true";
    let (_, reported, _) = shell(&spec(json!({})), script);
    // A report may interrupt the command's own output.
    let of = |call: &str| {
        reported
            .matches(&format!("{{\"refused\":\"{call}\"}}"))
            .count()
    };
    assert_eq!(of("unshare"), 1, "{reported}");
    assert!(
        of("mount") + of("fsopen") + of("open_tree") >= 1,
        "{reported}"
    );
}

/// Makes a system call by its number. Returns `allowed` or the error's name, and what the cell reports.
fn call(spec: &Value, number: i64, arguments: &str) -> (String, String) {
    let script = format!(
        "import ctypes, errno\nl = ctypes.CDLL(None, use_errno=True)\nr = l.syscall({number}, {arguments})\n\
         print(errno.errorcode[ctypes.get_errno()] if r < 0 else 'allowed')"
    );
    let words = ["/usr/bin/python3", "-ISc", &script];
    let output = cell(&[], spec, &words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn an_unknown_system_call_fails_with_enosys_and_is_not_reported() {
    if !has("system_calls") || !Path::new("/usr/bin/python3").exists() {
        return;
    }
    let (answer, reported) = call(&spec(json!({})), 600, "0");
    assert_eq!((answer.as_str(), reported.as_str()), ("ENOSYS", ""));
}

#[test]
fn the_configuration_can_allow_a_system_call_by_name() {
    if !has("system_calls") || !Path::new("/usr/bin/python3").exists() {
        return;
    }
    let (answer, reported) = call(&spec(json!({})), libc::SYS_inotify_init1, "0");
    assert_eq!(
        (answer.as_str(), reported.as_str()),
        ("EPERM", "{\"refused\":\"inotify_init1\"}")
    );
    let more = spec(json!({"system_calls": ["inotify_init1"]}));
    let (answer, reported) = call(&more, libc::SYS_inotify_init1, "0");
    assert_eq!((answer.as_str(), reported.as_str()), ("allowed", ""));
}

#[test]
fn the_number_of_processes_and_their_memory_are_limited() {
    if !has("process_count") {
        return;
    }
    let small = spec(json!({"processes_max": 8}));
    let bomb = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 60 & done; echo too many";
    let (printed, reported, _) = shell(&small, bomb);
    assert!(
        printed.is_empty() && reported.contains("fork"),
        "{printed} {reported}"
    );
    if !has("memory") || !Path::new("/usr/bin/python3").exists() {
        return;
    }
    let little = spec(json!({"memory_max": 64 << 20}));
    let private = "x = bytearray(256 << 20); print('too much')";
    let shared = "import mmap\nm = mmap.mmap(-1, 256 << 20)\nfor at in range(0, 256 << 20, 4096): m[at] = 1\nprint('too much')";
    for script in [private, shared] {
        let output = cell(&[], &little, &["/usr/bin/python3", "-c", script])
            .output()
            .unwrap();
        assert!(!output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    }
}

#[test]
fn no_process_survives_its_cell_however_the_cell_ends() {
    if !has("end") {
        return;
    }
    // A grandchild in a session of its own, like a daemon.
    let script = "setsid sh -c 'sleep 600 & sleep 600' >/dev/null 2>&1 & sleep 0; echo ready; read -r line; exit 0";
    type End = fn(&mut Running);
    let ends: [(&str, End); 4] = [
        ("its command ends", |running| running.input = None),
        ("its launcher is killed", |running| {
            running.launcher.kill().unwrap()
        }),
        ("its first process is killed", |running| {
            let init = running.descendants()[0];
            kill_process(Pid::from_raw(init.cast_signed()).unwrap(), Signal::KILL).unwrap();
        }),
        ("its group is killed", |running| {
            kill_process_group(running.pid(), Signal::KILL).unwrap()
        }),
    ];
    for (what, end) in ends {
        let mut running = Running::shell(&spec(json!({})), script);
        assert_eq!(running.line(), "ready");
        eventually("the grandchildren run", || running.descendants().len() >= 5);
        let pids = running.descendants();
        end(&mut running);
        all_end(what, &pids);
    }
}

#[test]
fn a_cell_dies_with_the_process_that_started_it() {
    if !has("end") {
        return;
    }
    let settee = cell(
        &[],
        &spec(json!({})),
        &["/bin/sh", "-c", "echo ready; exec sleep 600"],
    );
    let words: Vec<_> = settee
        .get_args()
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut parent = Command::new("/bin/sh");
    let script = format!("{SETTEE} {} & echo $!; wait", words.join(" "));
    parent
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut parent = Running::start(parent);
    let mut lines = [parent.line(), parent.line()];
    lines.sort();
    assert_eq!(lines[1], "ready");
    let pids = parent.descendants();
    assert!(pids.len() >= 3, "{pids:?}");
    parent.launcher.kill().unwrap();
    all_end("everything in the cell ends", &pids);
}

#[test]
fn sigterm_to_the_process_group_reaches_the_command() {
    let script =
        "trap 'echo reported; exit 5' TERM; echo ready; while :; do sleep 600 & wait; done";
    let mut running = Running::shell(&spec(json!({})), script);
    assert_eq!(running.line(), "ready");
    kill_process_group(running.pid(), Signal::TERM).unwrap();
    assert_eq!(running.line(), "reported");
    assert_eq!(running.status(), Some(5));
    let script = "trap '' TERM; echo ready; read -r line; exit 6";
    let mut running = Running::shell(&spec(json!({})), script);
    assert_eq!(running.line(), "ready");
    kill_process_group(running.pid(), Signal::TERM).unwrap();
    running.send("on");
    assert_eq!(running.status(), Some(6));
}

#[test]
fn a_command_runs_only_once_its_launcher_ignores_sigterm() {
    let mut running = Running::shell(&spec(json!({})), "echo ready; read -r line");
    let Ok(steps) = Steps::of(running.pid()) else {
        return eprintln!("skipped: no process can be traced here");
    };
    let rests = |_| !running.descendants().into_iter().any(is_running);
    loop {
        // Before and after each system call of the launcher, the rest of the cell runs until it blocks.
        steps.stopped();
        while !(0..20).all(rests) {}
        if running.ignores(libc::SIGTERM) {
            break;
        }
        assert!(!running.has_output());
        steps.resume();
    }
    drop(steps);
    assert_eq!(running.line(), "ready");
}

/// Returns the control group of a launcher's cell for a controller, if it exists.
fn group_of(controller: &str, launcher: u32) -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let path = own.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        (controllers == controller).then(|| path.trim_start_matches('/').to_owned())
    })?;
    let base = Path::new("/sys/fs/cgroup").join(controller).join(path);
    let groups = fs::read_dir(base).ok()?.flatten();
    let mut paths = groups.map(|entry| entry.path());
    paths.find(|path| path.to_string_lossy().ends_with(&format!("-{launcher}")))
}

/// Maximum launchers that finish before they are traced.
const LATE_STARTS_MAX: usize = 50;

/// Starts a cell, and removes its memory control group `times` times before the first process enters it. Returns the
/// cell and the number of removals, or `None` if no process can be traced here.
fn start_without_memory_group(times: usize) -> Option<(Running, usize)> {
    // On a busy machine a launcher may have finished before it is traced; then nothing was removed.
    let mut tries = (0..LATE_STARTS_MAX).map(|_| remove_memory_groups(times));
    let traced = tries.find(|tried| tried.as_ref().is_none_or(|(_, removed)| *removed > 0));
    traced.expect("a launcher is traced before it finishes")
}

fn remove_memory_groups(times: usize) -> Option<(Running, usize)> {
    let running = Running::shell(&spec(json!({})), "echo ready; read -r line");
    let steps = Steps::of(running.pid()).ok()?;
    let launcher = running.launcher.id();
    let mut removed = 0;
    while removed < times && !running.ignores(libc::SIGTERM) {
        steps.stopped();
        // The `pids` group is created last.
        if group_of("pids", launcher).is_some()
            && let Some(group) = group_of("memory", launcher)
        {
            removed += usize::from(fs::remove_dir(group).is_ok());
        }
        steps.resume();
    }
    if removed == times {
        steps.stopped();
    }
    drop(steps);
    Some((running, removed))
}

#[test]
fn a_control_group_removed_before_the_cell_enters_it_is_recreated_once() {
    let can_be_made = holds(&report(&spec(json!({}))), "memory");
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    if !can_be_made || !own.contains(":memory:") {
        return eprintln!("skipped: no control groups of version 1 here");
    }
    let Some((mut running, removed)) = start_without_memory_group(1) else {
        return eprintln!("skipped: no process can be traced here");
    };
    assert_eq!(removed, 1);
    assert_eq!(running.line(), "ready");
    let group = group_of("memory", running.launcher.id()).unwrap();
    let inside = fs::read_to_string(group.join("tasks")).unwrap();
    assert_eq!(inside.lines().count(), 2, "{inside}");
    drop(running);
    let (mut running, removed) = start_without_memory_group(2).unwrap();
    assert_eq!(removed, 2);
    let mut stderr = running.launcher.stderr.take().unwrap();
    assert_eq!(running.status(), Some(125));
    let mut reported = String::new();
    stderr.read_to_string(&mut reported).unwrap();
    assert!(
        reported.contains("\"host_error\":\"its control group was removed 2 times"),
        "{reported}"
    );
}

#[test]
fn a_command_that_stops_itself_stops_its_launcher() {
    let mut running = Running::shell(
        &spec(json!({})),
        "echo ready; kill -STOP $$; echo on; exit 0",
    );
    assert_eq!(running.line(), "ready");
    let stat = format!("/proc/{}/stat", running.launcher.id());
    eventually("the launcher is stopped", || {
        fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    kill_process_group(running.pid(), Signal::CONT).unwrap();
    assert_eq!(running.line(), "on");
    assert_eq!(running.status(), Some(0));
}

#[test]
fn an_unprivileged_user_gets_a_cell_too() {
    if !geteuid().is_root() {
        return;
    }
    // Every user can execute this copy of the program.
    let folder = open_folder();
    let settee = folder.path().join("settee");
    copy_program(SETTEE, &settee);
    let as_nobody = |options: &[&str], words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
        command
            .arg(&settee)
            .arg("cell")
            .args(options)
            .arg(spec(json!({})).to_string())
            .arg("--")
            .args(words);
        command.output().unwrap()
    };
    let report = layers(&as_nobody(&["--report"], &["/bin/sh"]));
    let why = report["missing"]["user"].as_str().unwrap();
    assert!(
        why.contains("CAP_SETUID") && why.contains("/etc/subuid"),
        "{report}"
    );
    for layer in ["privileges", "files", "processes", "process_count", "end"] {
        assert!(holds(&report, layer) || !has(layer), "{layer}: {report}");
    }
    let output = as_nobody(&[], &["/bin/sh", "-c", "id -u; unshare -U true; exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), NOBODY);
}

#[test]
fn the_configured_user_owns_the_cells_processes() {
    if !geteuid().is_root() {
        return;
    }
    let other = spec(json!({"user": {"uid": 1234, "gid": 1235}}));
    let mut running = Running::shell(&other, "echo ready; read -r line");
    assert_eq!(running.line(), "ready");
    let command = *running.descendants().last().unwrap();
    let status = fs::read_to_string(format!("/proc/{command}/status")).unwrap();
    let line = |name: &str| {
        status
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert_eq!(line("Uid:"), "Uid:\t1234\t1234\t1234\t1234");
    assert_eq!(line("Gid:"), "Gid:\t1235\t1235\t1235\t1235");
    assert_eq!(line("CapBnd:"), "CapBnd:\t0000000000000000");
    assert_eq!(line("CapPrm:"), "CapPrm:\t0000000000000000");
    assert_eq!(line("NoNewPrivs:"), "NoNewPrivs:\t1");
    let score = fs::read_to_string(format!("/proc/{command}/oom_score_adj")).unwrap();
    assert_eq!(score.trim(), "500");
}

#[test]
fn a_control_group_is_removed_with_its_cell() {
    if !has("memory") {
        return;
    }
    let mut running = Running::shell(&spec(json!({})), "echo ready; read -r line");
    assert_eq!(running.line(), "ready");
    let command = *running.descendants().last().unwrap();
    let groups = fs::read_to_string(format!("/proc/{command}/cgroup")).unwrap();
    let memory = groups.lines().find(|line| line.contains("memory")).unwrap();
    assert!(
        memory.contains("/settee-cell-")
            && memory.ends_with(&format!("-{}", running.launcher.id())),
        "{groups}"
    );
    let path = memory
        .rsplit(':')
        .next()
        .unwrap()
        .trim_start_matches('/')
        .to_owned();
    let folder = Path::new("/sys/fs/cgroup/memory").join(path);
    assert!(folder.exists());
    running.status();
    assert!(!folder.exists());
}
