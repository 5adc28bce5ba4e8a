//! The real program for tests, run as a user runs it: with arguments and input, until it exits.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Maximum wait for the exit of a program.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The poll interval of all waits.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The program, which cargo builds before these tests run.
pub const SETTEE: &str = env!("CARGO_BIN_EXE_settee");

/// Returns the Python for query servers: the system's, which every user may read, or else one in the path.
pub fn python3() -> &'static str {
    let of_system = "/usr/bin/python3";
    match Path::new(of_system).exists() {
        true => of_system,
        false => "python3",
    }
}

/// Returns the descendants of a process, its children first.
pub fn descendants(process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        found.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
        next += 1;
    }
    found.split_off(1)
}

/// Returns the project's folder.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of an example, which `cargo test --examples` builds.
pub fn example(name: &str) -> String {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.ancestors().nth(2).unwrap();
    let example = profile.join("examples").join(name);
    assert!(example.exists(), "cargo test --examples builds {example:?}");
    example.display().to_string()
}

/// Copies a program, by another process: if this one wrote it, a child that another test is just starting would hold
/// it open too, and the copy could not be executed yet ("Text file busy").
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut command = Command::new("cp");
    let status = command.args([from.as_ref(), to.as_ref()]).status().unwrap();
    assert!(status.success());
}

/// Prepares the program without the test's environment.
pub fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(SETTEE);
    command.args(arguments).env_clear().current_dir(project());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // Services run side by side; tests of HTTP request a port.
    command.env("SETTEE__SERVER__HTTP", "off");
    command
}

/// Runs a command with this input, written while its output is read.
pub fn run(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A program that exits early stops reading.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

/// Reads this many lines.
pub fn read_lines(from: &mut impl Read, count: usize) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while text.iter().filter(|byte| **byte == b'\n').count() < count {
        assert_eq!(
            from.read(&mut byte).unwrap(),
            1,
            "only {}",
            String::from_utf8_lossy(&text)
        );
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

/// Waits for a child's end and returns its exit code.
pub fn exit_code(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(start.elapsed() < DEADLINE, "the program does not exit");
        std::thread::park_timeout(POLL_INTERVAL);
    }
}
