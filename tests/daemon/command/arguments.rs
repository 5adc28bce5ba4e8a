//! The command line of the real program: help, exit codes, a closed output.

use std::io::Read;
use std::process::{Command, Output, Stdio};

use crate::support::program::SETTEE;

fn settee(arguments: &[&str]) -> Output {
    program(arguments).output().expect("the program runs")
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(SETTEE);
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

#[test]
fn help_and_version_go_to_standard_output_with_exit_code_0() {
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["check-config", "--help"],
        &["help"],
    ] {
        let output = settee(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(
            !output.stdout.is_empty() && output.stderr.is_empty(),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_wrong_command_line_exits_with_64_and_an_error_on_standard_error() {
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["--frob"],
        &["check-config", "-c"],
        &["completions", "csh"],
        &["attach", "--language", ""],
    ] {
        let output = settee(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{arguments:?}"
        );
    }
}

#[test]
fn replicate_names_the_invalid_endpoint_without_its_url() {
    let good = "http://localhost:1/db";
    for (sides, says) in [
        (["x:secret@y", good], "SOURCE: endpoint has an invalid url"),
        ([good, "x:secret@y"], "TARGET: endpoint has an invalid url"),
    ] {
        let output = settee(&["replicate", sides[0], sides[1]]);
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(said.contains(says) && !said.contains("secret"), "{said}");
    }
}

#[test]
fn completions_name_the_subcommands_in_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = settee(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(script.contains("check-config"), "{shell}");
    }
}

#[test]
fn a_closed_output_is_not_an_error() {
    let mut child = program(&["check-config"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // The pipe is closed before or while the program writes: both must be quiet.
    drop(child.stdout.take());
    let mut complaint = String::new();
    let mut stderr = child.stderr.take().expect("it is piped");
    stderr.read_to_string(&mut complaint).expect("UTF-8");
    let status = child.wait().expect("it ends");
    assert_eq!((status.code(), complaint.as_str()), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_ends_with_74() {
    for arguments in [&["check-config"][..], &["--version"], &["--help"]] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("Linux has it");
        let output = program(arguments)
            .stdout(full)
            .output()
            .expect("the program runs");
        assert_eq!(output.status.code(), Some(74), "{arguments:?}");
        let complaint = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(
            complaint.starts_with("settee: standard output: "),
            "{complaint}"
        );
    }
}
