//! Cells on machines that lack a layer: the other layers are there, what is missing is named, and `strict`
//! starts nothing.

use rustix::process::{Signal, kill_process_group};
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use serde_json::json;

use super::running::{
    Running, cell, clones, eventually, holds, is_alive, layers, shell, spec, under,
};

#[test]
fn strict_starts_nothing_where_a_layer_is_missing() {
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
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("no Landlock") && told.contains("standard"),
        "{told}"
    );
}

#[test]
fn a_machine_without_landlock_or_namespaces_has_the_other_layers_and_names_what_is_missing() {
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
    // Its user may be another one all the same.
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
fn without_namespaces_a_cell_works_and_the_launcher_ends_what_is_left() {
    let namespaces = clones(&[libc::CLONE_NEWUSER, libc::CLONE_NEWPID]);
    // To the end on that thread: a launcher dies with the thread that started it.
    under(namespaces, libc::EPERM, || {
        let script = "setsid sleep 600 & echo ready; read -r line; exit 4";
        let mut running = Running::shell(&spec(json!({})), script);
        assert_eq!(running.line(), "ready");
        eventually("the grandchild is there", || {
            running.descendants().len() >= 3
        });
        let pids = running.descendants();
        kill_process_group(running.pid(), Signal::HUP).unwrap();
        assert_eq!(running.status(), Some(128 + libc::SIGHUP));
        assert!(!pids.iter().any(|pid| is_alive(*pid)), "something is left");
    });
}

#[test]
fn a_machine_whose_filters_nobody_can_listen_to_refuses_all_the_same() {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let operator = SeccompCmpOp::MaskedEq(flags);
    let condition = SeccompCondition::new(1, SeccompCmpArgLen::Qword, operator, flags).unwrap();
    let rules = vec![(
        libc::SYS_seccomp,
        vec![SeccompRule::new(vec![condition]).unwrap()],
    )];
    let (_, told, _) = under(rules, libc::EBUSY, || {
        shell(&spec(json!({})), "unshare -U true")
    });
    assert!(
        told.contains("not permitted") && !told.contains("refused"),
        "{told}"
    );
}
