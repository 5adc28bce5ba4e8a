//! System calls for children, each behind a safe function.
//!
//! SUMMARY   [`spawn`] starts a child as the leader of a process group. The built-in server, a cell's launcher and a
//!           trial set their own parent-death signal, so the standard library can use posix_spawn(3), which takes
//!           0.1 ms. Other programs need a hook between fork and exec, which takes 0.3 ms, and tens of milliseconds,
//!           in which no thread gets memory, when the service has grown to hundreds of megabytes; such a child also
//!           leads a session.
//! SOURCE    posix_spawn(3), pidfd_open(2), waitpid(2), kill(2), clock_getcpuclockid(3), PR_SET_PDEATHSIG.

#![allow(unsafe_code, reason = "the operating system's calls for children")]

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::cell::Cell;
use crate::cell::subordinate::{self, Handed};
use crate::{CommandSpec, parent_death, watches};

/// Our non-blocking ends of the pipes to a child's standard input, output and error.
#[derive(Debug)]
pub struct Pipes {
    /// To its standard input.
    pub stdin: OwnedFd,
    /// From its standard output.
    pub stdout: OwnedFd,
    /// From its standard error.
    pub stderr: OwnedFd,
    /// The socket to the launcher of its cell, which reports and takes orders; `None` without a launcher.
    pub report: Option<OwnedFd>,
}

/// An unreaped child, whose number is therefore still its own. Dropping it kills its group and reaps it.
pub(super) struct Unreaped {
    pub(super) pid: Pid,
    pub(super) reaped: bool,
}

impl Unreaped {
    /// Sends a signal to the child's group. The group's number cannot be reused while its leader is unreaped.
    pub(super) fn signal_group(&self, signal: Signal) {
        if !self.reaped {
            // Fails only if the whole group has ended.
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Reaps the child if it has ended; `None` before its end, and after it was reaped.
    pub(super) fn try_reap(&mut self) -> Option<ExitStatus> {
        if self.reaped {
            return None;
        }
        let status = wait(self.pid, WaitOptions::NOHANG)?;
        self.reaped = true;
        Some(status)
    }
}

impl Drop for Unreaped {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.signal_group(Signal::KILL);
        let pid = self.pid;
        // A kill takes effect within a millisecond unless the child hangs in the kernel, which must not block us
        // here. Without a thread it stays a zombie until the service ends.
        drop(
            std::thread::Builder::new()
                .name("reaper".into())
                .spawn(move || wait(pid, WaitOptions::empty())),
        );
    }
}

/// Returns the processor time of a process with all its threads since its start; `None` if there is no such process.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let (mut clock, mut time) = (
        0,
        libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
    );
    // SAFETY: both calls write to the given addresses, and retain nothing.
    let is_read = unsafe {
        libc::clock_getcpuclockid(pid, &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| is_read)?;
    Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
}

/// Waits for a child; `None` if it has not ended, or is not ours.
fn wait(pid: Pid, options: WaitOptions) -> Option<ExitStatus> {
    let (_, status) = rustix::io::retry_on_intr(|| waitpid(Some(pid), options)).ok()??;
    Some(ExitStatus::from_raw(status.as_raw()))
}

/// Starts a program with pipes, in its own process group, with default signal handling. The child dies with this
/// program.
///
/// # Errors
/// The system's error, also for a missing or non-executable program.
pub(super) fn spawn(program: &Path, spec: &CommandSpec) -> io::Result<(Unreaped, Pipes)> {
    // A child inherits the descriptors of both. Until they are closed, no other thread starts children of the service.
    let users;
    let mut sockets = None;
    let mut command = match &spec.cell {
        Cell::None => without_cell(program, &spec.arguments),
        Cell::Trial => {
            users = subordinate::handed();
            let mut command = command(program);
            command
                .arg("cell")
                .args(users_option(&users))
                .args(&spec.arguments)
                .process_group(0);
            command
        }
        Cell::Own(mode) => {
            let mut command = Command::new(program);
            command
                .args(&spec.arguments)
                .args(["--die-with-parent", "--sandbox", (*mode).into()])
                .env_clear()
                .process_group(0);
            command
        }
        Cell::Launched {
            launcher,
            spec: cell,
        } => {
            must_be_executable(program)?;
            let (ours, of_launcher) = UnixStream::pair()?;
            fcntl_setfd(&of_launcher, FdFlags::empty())?;
            users = subordinate::handed();
            let mut command = Command::new(launcher);
            command
                .args(["cell", "--report-to", &of_launcher.as_raw_fd().to_string()])
                .args(users_option(&users))
                .arg(serde_json::to_string(cell)?)
                .arg("--")
                .arg(program)
                .args(&spec.arguments)
                .env_clear()
                .process_group(0);
            sockets = Some((OwnedFd::from(ours), of_launcher));
            command
        }
    };
    let mut child = command
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let unreaped = Unreaped {
        pid: Pid::from_child(&child),
        reaped: false,
    };
    let missing = || io::Error::other("a pipe is missing");
    let pipes = Pipes {
        stdin: child.stdin.take().ok_or_else(missing)?.into(),
        stdout: child.stdout.take().ok_or_else(missing)?.into(),
        stderr: child.stderr.take().ok_or_else(missing)?.into(),
        report: sockets.map(|(ours, _)| ours),
    };
    let ours = [&pipes.stdin, &pipes.stdout, &pipes.stderr];
    for pipe in ours.into_iter().chain(&pipes.report) {
        rustix::io::ioctl_fionbio(pipe, true)?;
    }
    Ok((unreaped, pipes))
}

/// Variables from a service manager for this program only.
const OF_SERVICE_MANAGER: [&str; 4] = [
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// Returns the option with the user namespace for launchers that cannot switch users themselves, or why there is none.
fn users_option(handed: &Handed) -> impl Iterator<Item = OsString> {
    handed
        .as_ref()
        .map(|handed| match handed {
            Ok(space) => ["--users".into(), space.as_raw_fd().to_string().into()],
            Err(why) => ["--no-users".into(), why.into()],
        })
        .into_iter()
        .flatten()
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in OF_SERVICE_MANAGER {
        command.env_remove(name);
    }
    command
}

fn without_cell(program: &Path, arguments: &[OsString]) -> Command {
    let mut command = command(program);
    command.args(arguments);
    // SAFETY: between fork and exec the hook makes two system calls; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            parent_death::die_with_parent()
        });
    }
    command
}

/// Fails as executing the program would. Checked here, because a launcher would report the failure only later.
fn must_be_executable(program: &Path) -> io::Result<()> {
    if program.metadata()?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    Ok(access(program, Access::EXEC_OK)?)
}

/// Registers a descriptor of a child with the event loop.
///
/// # Errors
/// The event loop cannot register it.
pub fn watch<T: Owner>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: an `Owner` keeps the same descriptor open during its lifetime, and the `AsyncFd` does not release it
    // before the registration ends.
    let registered = unsafe { AsyncFd::register_with_interest(owner, interest) };
    registered.map_err(|error| watches::named(error.into()))
}

/// A type that owns one descriptor, always the same, until it is dropped.
pub trait Owner: AsRawFd {}

impl Owner for OwnedFd {}
impl Owner for std::fs::File {}
