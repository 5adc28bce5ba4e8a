//! Native code running instead of the JavaScript engine is confined: each attempt works without a cell, and kills the
//! process in one.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use crate::support::program::example;

fn run(mode: &str, name: &str) -> Output {
    let mut attempt = Command::new(example("native_attempt"));
    attempt.args([mode, name]).output().unwrap()
}

/// Runs an attempt without a cell, and returns whether it works; not every machine allows it.
fn works_outside(name: &str) -> bool {
    let outside = run("off", name);
    let could = String::from_utf8_lossy(&outside.stdout);
    if could.trim_end() != "could" {
        let status = outside.status;
        eprintln!("{name} is skipped: without a cell it gives {status}, {could}");
    }
    could.trim_end() == "could"
}

/// Checks that an attempt works without a cell, and that in a cell it kills the process, which names the system call.
fn is_refused(name: &str, call: &str) {
    assert!(works_outside(name), "{name}");
    let inside = run("standard", name);
    let stderr = String::from_utf8_lossy(&inside.stderr);
    assert_eq!(inside.status.signal(), Some(libc::SIGSYS), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&inside.stdout), "");
    let expected = format!("settee couchjs: refused system call {call} (");
    assert!(stderr.starts_with(&expected), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

macro_rules! attempts {
    ($($(#[$of:meta])* $test:ident => $name:literal,)*) => {
        $(
            $(#[$of])*
            #[test]
            fn $test() {
                is_refused($name, $name);
            }
        )*
    };
}

attempts! {
    a_file_cannot_be_opened => "openat",
    a_file_cannot_be_opened_with_openat2 => "openat2",
    a_link_cannot_be_read => "readlinkat",
    a_memory_file_cannot_be_created => "memfd_create",
    a_socket_cannot_be_created => "socket",
    a_socket_cannot_be_connected => "connect",
    a_datagram_cannot_be_sent => "sendto",
    a_program_cannot_be_executed => "execve",
    a_process_cannot_be_started => "clone",
    neither_a_process_nor_a_thread_can_be_started_with_clone3 => "clone3",
    the_parent_cannot_be_signalled => "kill",
    a_thread_of_the_parent_cannot_be_signalled => "tgkill",
    a_pidfd_of_the_parent_cannot_be_opened => "pidfd_open",
    no_process_can_be_traced => "ptrace",
    the_memory_of_a_process_cannot_be_read => "process_vm_readv",
    executable_memory_cannot_be_mapped => "mmap",
    memory_cannot_be_made_executable => "mprotect",
    memory_cannot_be_made_executable_with_pkey_mprotect => "pkey_mprotect",
    the_process_cannot_make_itself_dumpable => "prctl",
    namespaces_cannot_be_unshared => "unshare",
    limits_cannot_be_changed => "prlimit64",
    the_personality_cannot_be_changed => "personality",
    descriptors_cannot_be_duplicated => "fcntl",
    devices_cannot_be_controlled => "ioctl",
    priority_inheritance_futexes_cannot_be_locked => "futex",
    the_handler_of_refused_calls_cannot_be_replaced => "rt_sigaction",
    seccomp_filters_cannot_be_queried => "seccomp",
    #[cfg(target_arch = "x86_64")]
    a_file_cannot_be_opened_with_open => "open",
    #[cfg(target_arch = "x86_64")]
    a_process_cannot_be_started_with_fork => "fork",
}

#[test]
fn threads_other_than_the_engine_thread_are_in_the_cell_too() {
    is_refused("openat_on_another_thread", "openat");
}

/// Like [`is_refused`], for calls that not every machine allows.
fn is_refused_if_it_works_outside(name: &str, call: &str) {
    if works_outside(name) {
        is_refused(name, call);
    }
}

#[test]
fn an_io_uring_cannot_be_created() {
    is_refused_if_it_works_outside("io_uring_setup", "io_uring_setup");
}

#[test]
fn page_faults_cannot_be_handled_with_userfaultfd() {
    is_refused_if_it_works_outside("userfaultfd", "userfaultfd");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_call_by_an_x32_number_is_refused() {
    is_refused_if_it_works_outside("x32", "unknown");
}

/// The call belongs to another architecture: the process is killed without a check of the call's number.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_system_call_kills_the_process() {
    if works_outside("int80") {
        let inside = run("standard", "int80");
        assert_eq!(inside.status.signal(), Some(libc::SIGSYS));
        assert!(inside.stdout.is_empty());
    }
}

#[test]
fn the_layers_in_force_are_reported_from_inside_the_cell() {
    let told = Command::new(example("native_attempt"))
        .arg("report")
        .output()
        .unwrap();
    let layers = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.success(), "{}", told.status);
    for layer in [
        "Descriptors",
        "Memory",
        "Network",
        "Processes",
        "Signals",
        "SystemCalls",
        "ProcessCount",
        "Environment",
        "End",
        "Files",
        "Privileges",
        "User",
    ] {
        assert!(layers.contains(layer), "{layer}: {layers}");
    }
}

#[test]
fn a_panic_in_the_cell_is_reported_without_reading_a_file() {
    let mut command = Command::new(example("native_attempt"));
    let panicked = command
        .args(["standard", "panic"])
        .env("RUST_BACKTRACE", "1");
    let panicked = panicked.output().unwrap();
    let stderr = String::from_utf8_lossy(&panicked.stderr);
    assert_eq!(panicked.status.signal(), None, "{stderr}");
    assert!(stderr.starts_with("couchjs: panicked at "), "{stderr}");
    assert!(stderr.contains("on purpose"), "{stderr}");
}
