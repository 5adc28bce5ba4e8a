//! Runs cells for tests: starts the launcher as a shell would, and reads the processes and layers of a cell.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, waitpid};
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use serde_json::{Value, json};

use crate::support::program::{SETTEE, descendants};
pub use crate::support::refused_calls::under;

/// Deadline of any wait here.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A user that owns nothing.
pub const NOBODY: &str = "65534";

/// Returns the default specification of a cell, with some members changed.
pub fn spec(changes: Value) -> Value {
    let mut spec = json!({
        "mode": "standard", "user": null, "user_range": "2100000000-2104194303", "read_paths": [], "hidden_paths": [], "network": false,
        "refused_ports": [], "system_calls": [], "memory_max": 512 << 20, "processes_max": 64, "cpu_max": 0,
    });
    for (name, value) in changes.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

/// Returns a command for the launcher, with only the search path in its environment.
pub fn cell(options: &[&str], spec: &Value, words: &[&str]) -> Command {
    let mut command = Command::new(SETTEE);
    command
        .arg("cell")
        .args(options)
        .args([&spec.to_string(), "--"])
        .args(words)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a script in a cell; returns standard output and standard error as text, and the whole [`Output`].
pub fn shell(spec: &Value, script: &str) -> (String, String, Output) {
    let output = cell(&[], spec, &["/bin/sh", "-c", script])
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&output.stdout), text(&output.stderr), output)
}

/// Returns rules that match `clone` with any of these flags.
pub fn clones(flags: &[i32]) -> Vec<(i64, Vec<SeccompRule>)> {
    let rule = |flag: &i32| {
        let flag = u64::from(flag.unsigned_abs());
        let operator = SeccompCmpOp::MaskedEq(flag);
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, operator, flag);
        SeccompRule::new(vec![condition.unwrap()]).unwrap()
    };
    vec![(libc::SYS_clone, flags.iter().map(rule).collect())]
}

pub fn layers(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

pub fn report(spec: &Value) -> Value {
    layers(&cell(&["--report"], spec, &["/bin/sh"]).output().unwrap())
}

pub fn holds(layers: &Value, layer: &str) -> bool {
    layers["held"].as_array().unwrap().contains(&layer.into())
}

/// Whether this machine has the layer; if not, prints that the test is skipped.
pub fn has(layer: &str) -> bool {
    let report = report(&spec(json!({})));
    let held = holds(&report, layer);
    if !held {
        eprintln!("skipped: this machine has no layer '{layer}': {report}");
    }
    held
}

/// A running cell whose command reads and writes lines.
pub struct Running {
    pub launcher: Child,
    pub input: Option<ChildStdin>,
    pub output: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut launcher = command.spawn().unwrap();
        Self {
            input: launcher.stdin.take(),
            output: BufReader::new(launcher.stdout.take().unwrap()),
            launcher,
        }
    }

    pub fn shell(spec: &Value, script: &str) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = cell(&[], spec, &["/bin/sh", "-c", script]);
        command.process_group(0);
        Self::start(command)
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn has_output(&self) -> bool {
        let mut polled = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() > 0
    }

    /// Whether the launcher ignores the signal.
    pub fn ignores(&self, signal: i32) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.launcher.id())).unwrap();
        let mut lines = status.lines();
        let ignored = lines.find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(ignored.trim(), 16).unwrap() & (1 << (signal - 1)) != 0
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.launcher)
    }

    /// All processes below the launcher, found from outside the cell.
    pub fn descendants(&self) -> Vec<u32> {
        descendants(self.launcher.id())
    }

    pub fn status(mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        self.input = None;
        let status = self.launcher.wait().unwrap();
        status.code().or(status.signal().map(|signal| 128 + signal))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.launcher.kill());
        drop(self.launcher.wait());
    }
}

/// A process traced by this thread, which stops before and after each of its system calls.
pub struct Steps(Pid);

impl Steps {
    pub fn of(pid: Pid) -> io::Result<Self> {
        let steps = Self(pid);
        steps.ask(libc::PTRACE_SEIZE)?;
        steps.ask(libc::PTRACE_INTERRUPT)?;
        Ok(steps)
    }

    pub fn stopped(&self) {
        let status = waitpid(Some(self.0), WaitOptions::empty()).unwrap();
        assert!(status.unwrap().1.stopped());
    }

    pub fn resume(&self) {
        self.ask(libc::PTRACE_SYSCALL).unwrap();
    }

    #[allow(unsafe_code, reason = "no crate here traces processes")]
    fn ask(&self, request: libc::c_uint) -> io::Result<()> {
        let none = ptr::null_mut::<libc::c_void>();
        // SAFETY: these requests touch no memory of this process.
        match unsafe { libc::ptrace(request, self.0.as_raw_nonzero(), none, none) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        drop(self.ask(libc::PTRACE_DETACH));
    }
}

/// Whether the process is running or runnable.
pub fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|text| text.contains(") R "))
}

pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|text| !text.contains(") Z ") && !text.contains(") X "))
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::yield_now();
    }
}

pub fn all_end(what: &str, pids: &[u32]) {
    assert!(!pids.is_empty(), "{what}: no process was running");
    eventually(what, || !pids.iter().any(|pid| is_alive(*pid)));
}
