//! Cells on machines that lack a layer: the others hold, the missing one is reported, and `strict` starts nothing.

use std::fs;
use std::path::Path;

use rustix::process::{Signal, kill_process_group};
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use serde_json::json;

use super::running::{
    Running, cell, clones, eventually, has, holds, is_alive, layers, report, shell, spec, under,
};

#[test]
fn strict_refuses_to_start_if_a_layer_is_missing() {
    let strict = spec(json!({"mode": "strict"}));
    let output = under(
        vec![(libc::SYS_landlock_create_ruleset, vec![])],
        libc::ENOSYS,
        || {
            cell(&[], &strict, &["/bin/sh", "-c", "echo started"])
                .output()
                .unwrap()
        },
    );
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        reported.contains("no Landlock") && reported.contains("standard"),
        "{reported}"
    );
}

#[test]
fn without_landlock_or_namespaces_the_other_layers_hold_and_the_missing_are_reported() {
    let standard = spec(json!({}));
    let try_report = || {
        cell(&["--report"], &standard, &["/bin/sh"])
            .output()
            .unwrap()
    };
    let no_landlock = vec![(libc::SYS_landlock_create_ruleset, vec![])];
    let without = layers(&under(no_landlock, libc::ENOSYS, try_report));
    assert!(
        without["missing"]["files"]
            .as_str()
            .unwrap()
            .contains("Landlock"),
        "{without}"
    );
    assert!(
        holds(&without, "signals") && holds(&without, "system_calls"),
        "{without}"
    );
    let without = layers(&under(
        clones(&[libc::CLONE_NEWUSER]),
        libc::EPERM,
        try_report,
    ));
    // The cell may still run as another user.
    assert!(
        holds(&without, "files") && holds(&without, "privileges"),
        "{without}"
    );
    let both = [libc::CLONE_NEWUSER, libc::CLONE_NEWPID];
    let without = layers(&under(clones(&both), libc::EPERM, try_report));
    for layer in ["processes", "end"] {
        assert!(!without["missing"][layer].is_null(), "{layer}: {without}");
    }
    assert!(
        holds(&without, "files") && holds(&without, "signals"),
        "{without}"
    );
}

#[test]
fn without_namespaces_a_cell_works_and_the_launcher_kills_remaining_processes() {
    let namespaces = clones(&[libc::CLONE_NEWUSER, libc::CLONE_NEWPID]);
    // All on the thread of `under`: a launcher dies with the thread that started it.
    under(namespaces, libc::EPERM, || {
        let script = "setsid sleep 600 & echo ready; read -r line; exit 4";
        let mut running = Running::shell(&spec(json!({})), script);
        assert_eq!(running.line(), "ready");
        eventually("the grandchild runs", || running.descendants().len() >= 3);
        let pids = running.descendants();
        kill_process_group(running.pid(), Signal::HUP).unwrap();
        assert_eq!(running.status(), Some(128 + libc::SIGHUP));
        assert!(!pids.iter().any(|pid| is_alive(*pid)), "a process is left");
    });
}

#[test]
fn without_a_seccomp_listener_system_calls_are_still_refused() {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let operator = SeccompCmpOp::MaskedEq(flags);
    let condition = SeccompCondition::new(1, SeccompCmpArgLen::Qword, operator, flags).unwrap();
    let rules = vec![(
        libc::SYS_seccomp,
        vec![SeccompRule::new(vec![condition]).unwrap()],
    )];
    let (_, reported, _) = under(rules, libc::EBUSY, || {
        shell(&spec(json!({})), "unshare -U true")
    });
    assert!(
        reported.contains("not permitted") && !reported.contains("refused"),
        "{reported}"
    );
}

/// The system calls that create folders, and so control groups.
fn folders() -> Vec<(i64, Vec<SeccompRule>)> {
    let mut calls = vec![(libc::SYS_mkdirat, vec![])];
    #[cfg(target_arch = "x86_64")]
    calls.push((libc::SYS_mkdir, vec![]));
    calls
}

/// Python functions that take memory in different ways, also in forked processes.
const TAKES: &str = "import mmap, os, socket, sys\n\
    def private(size):\n return bytearray(b'x') * size\n\
    def tables(size):\n kept = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)\n \
    sum(kept[at] for at in range(0, size, 2 << 20))\n return kept\n\
    def filled(count):\n pairs = [socket.socketpair() for n in range(count)]\n for one in sum(pairs, ()):\n  \
    one.setblocking(False)\n  try:\n   while True: one.send(b'x' * 4096)\n  except BlockingIOError: pass\n return pairs\n\
    def fork(count, act):\n for n in range(count):\n  r, w = os.pipe()\n  if not os.fork():\n   kept = act(); os.write(w, b'x'); \
    sys.stdin.buffer.read(); os._exit(0)\n  os.read(r, 1)\n";

/// Starts a cell of 128 MiB that takes memory by `how`, and then prints a line.
fn takes(how: &str) -> Running {
    let little = spec(json!({"memory_max": 128 << 20}));
    let script = format!("{TAKES}{how}\nprint('ready', flush=True)\nsys.stdin.buffer.read()");
    Running::start(cell(&[], &little, &["/usr/bin/python3", "-c", &script]))
}

#[test]
fn without_control_groups_the_launcher_kills_a_cell_whose_processes_exceed_its_memory() {
    use std::io::Read;
    if !has("processes") || !Path::new("/usr/bin/python3").exists() {
        return;
    }
    under(folders(), libc::EPERM, || {
        let report = report(&spec(json!({})));
        assert!(holds(&report, "memory"), "{report}");
        for how in [
            "fork(4, lambda: private(48 << 20))",
            "fork(4, lambda: filled(100))",
            "kept = tables(80 << 30)",
        ] {
            let mut running = takes(how);
            let mut reported = String::new();
            let mut stderr = running.launcher.stderr.take().unwrap();
            // The stream ends with the cell, whose input stays open meanwhile.
            stderr.read_to_string(&mut reported).unwrap();
            assert_eq!(
                running.status(),
                Some(128 + libc::SIGKILL),
                "{how}: {reported}"
            );
            let met = format!("{{\"met\":{{\"memory\":{}}}}}", 128 << 20);
            assert!(reported.contains(&met), "{how}: {reported}");
        }
    });
}

#[test]
fn without_control_groups_shared_anonymous_memory_is_refused() {
    if !has("processes") || !Path::new("/usr/bin/python3").exists() {
        return;
    }
    under(folders(), libc::EPERM, || {
        for how in [
            "mmap.mmap(-1, 4096)",
            "mmap.mmap(os.open('/dev/zero', os.O_RDONLY), 4096, prot=mmap.PROT_READ)",
        ] {
            let tries = format!("try: {how}\nexcept PermissionError: print('refused', flush=True)");
            let mut running = takes(&tries);
            assert_eq!(running.line(), "refused", "{how}");
            assert_eq!(running.line(), "ready", "{how}");
            assert_eq!(running.status(), Some(0), "{how}");
        }
    });
}

#[test]
fn without_control_groups_pages_shared_by_fork_count_once() {
    if !has("processes") || !Path::new("/usr/bin/python3").exists() {
        return;
    }
    under(folders(), libc::EPERM, || {
        // Four processes share 64 MiB.
        let mut running = takes(
            "kept = private(64 << 20)\nfork(3, lambda: sum(kept[at] for at in range(0, 64 << 20, 4096)))",
        );
        assert_eq!(running.line(), "ready");
        let samples = |running: &Running| {
            let status = fs::read_to_string(format!("/proc/{}/status", running.launcher.id()));
            let status = status.unwrap();
            let mut lines = status.lines();
            let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count.unwrap().trim().parse::<u64>().unwrap()
        };
        let before = samples(&running);
        eventually("two samples", || samples(&running) >= before + 2);
        assert_eq!(running.status(), Some(0));
    });
}
