//! The operating system's calls for children, each behind a safe function.
//!
//! SUMMARY   Two ways to start a child, both as the leader of a session of its own. The built-in
//!           server makes itself die with us, so posix_spawn(3) starts it, in 0.1 ms. Any other
//!           program is told so between fork and exec, which takes 0.3 ms, and more when the
//!           service has grown to hundreds of megabytes.
//! SOURCE    posix_spawn(3), pidfd_open(2), waitpid(2), kill(2), PR_SET_PDEATHSIG.

#![allow(unsafe_code, reason = "the operating system's calls for children")]

use std::ffi::{CString, OsStr, OsString, c_char, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, waitpid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::query_server::parent_death;

/// Our ends of the pipes to a child's standard input, output and error. They do not block.
pub(super) struct Pipes {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// A child that is not reaped yet, so that its number is its own. Dropping it kills its group and
/// reaps it.
pub(super) struct Unreaped {
    pid: Pid,
    reaped: bool,
}

impl Unreaped {
    fn new(pid: Pid) -> Self {
        let reaped = false;
        Self { pid, reaped }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the child's group. The number of the group is taken for as long as its leader
    /// is not reaped.
    pub(super) fn signal_group(&self, signal: Signal) {
        if !self.reaped {
            // Fails only where the whole group has ended.
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Reaps the child if it has ended; `None` while it has not, and again after it was reaped.
    pub(super) fn try_reap(&mut self) -> Option<ExitStatus> {
        if self.reaped {
            return None;
        }
        let status = wait(self.pid, WaitOptions::NOHANG)?;
        self.reaped = true;
        Some(status)
    }

    pub(super) fn is_reaped(&self) -> bool {
        self.reaped
    }
}

impl Drop for Unreaped {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.signal_group(Signal::KILL);
        let pid = self.pid;
        // A kill takes effect within a millisecond unless the child hangs in the kernel, and that
        // is nothing to wait for here. Without room for a thread it stays a zombie until the
        // service ends.
        let reaper = std::thread::Builder::new().name("reaper".into());
        drop(reaper.spawn(move || wait(pid, WaitOptions::empty())));
    }
}

/// Waits for a child; `None` when it has not ended, or is none of ours.
fn wait(pid: Pid, options: WaitOptions) -> Option<ExitStatus> {
    let waited = rustix::io::retry_on_intr(|| waitpid(Some(pid), options));
    let (_, status) = waited.ok()??;
    Some(ExitStatus::from_raw(status.as_raw()))
}

/// Starts a program with pipes, in a session and process group of its own, with the default
/// handling of signals. It dies when this program does.
///
/// # Errors
/// What the system says: also for a program that is missing or cannot be executed.
pub(super) fn spawn(
    program: &Path,
    arguments: &[OsString],
    environment: &[(String, String)],
) -> io::Result<(Unreaped, Pipes)> {
    let (child, pipes) = if parent_death::asks_itself(environment) {
        spawn_at_once(program, arguments, environment)?
    } else {
        spawn_with_hook(program, arguments, environment)?
    };
    for pipe in [&pipes.stdin, &pipes.stdout, &pipes.stderr] {
        rustix::io::ioctl_fionbio(pipe, true)?;
    }
    Ok((child, pipes))
}

fn spawn_with_hook(
    program: &Path,
    arguments: &[OsString],
    environment: &[(String, String)],
) -> io::Result<(Unreaped, Pipes)> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: between fork and exec the hook makes two system calls; it neither allocates nor takes
    // a lock.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            parent_death::die_with_parent()
        });
    }
    let mut child = command.spawn()?;
    let unreaped = Unreaped::new(Pid::from_child(&child));
    let missing = || io::Error::other("a pipe is missing");
    let pipes = Pipes {
        stdin: child.stdin.take().ok_or_else(missing)?.into(),
        stdout: child.stdout.take().ok_or_else(missing)?.into(),
        stderr: child.stderr.take().ok_or_else(missing)?.into(),
    };
    Ok((unreaped, pipes))
}

fn spawn_at_once(
    program: &Path,
    arguments: &[OsString],
    environment: &[(String, String)],
) -> io::Result<(Unreaped, Pipes)> {
    let path = CString::new(program.as_os_str().as_bytes())?;
    let arguments = std::iter::once(program.as_os_str())
        .chain(arguments.iter().map(OsString::as_os_str))
        .map(|argument| CString::new(argument.as_bytes()))
        .collect::<Result<Vec<_>, _>>()?;
    let environment = merged_environment(environment)?;
    let (stdin_theirs, stdin) = io::pipe()?;
    let (stdout, stdout_theirs) = io::pipe()?;
    let (stderr, stderr_theirs) = io::pipe()?;
    let theirs = [
        stdin_theirs.as_raw_fd(),
        stdout_theirs.as_raw_fd(),
        stderr_theirs.as_raw_fd(),
    ];
    let attributes = Attributes::new()?;
    let actions = FileActions::new(&theirs)?;
    let mut pid = 0;
    // SAFETY: all pointers are those of values that live until the call returns; the two lists end
    // with a null pointer.
    let error = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            path.as_ptr(),
            &raw const actions.0,
            &raw const attributes.0,
            pointers(&arguments).as_ptr(),
            pointers(&environment).as_ptr(),
        )
    };
    check(error)?;
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("a child has no number"))?;
    let child = Unreaped::new(pid);
    let pipes = Pipes {
        stdin: stdin.into(),
        stdout: stdout.into(),
        stderr: stderr.into(),
    };
    Ok((child, pipes))
}

/// The inherited environment with variables added or replaced, as `NAME=VALUE`.
fn merged_environment(added: &[(String, String)]) -> io::Result<Vec<CString>> {
    let is_added = |name: &OsStr| added.iter().any(|(other, _)| name == OsStr::new(other));
    let inherited = std::env::vars_os().filter(|(name, _)| !is_added(name));
    let added = added
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    inherited
        .chain(added)
        .map(|(name, value): (OsString, OsString)| {
            Ok(CString::new(
                [name.as_bytes(), b"=", value.as_bytes()].concat(),
            )?)
        })
        .collect()
}

fn pointers(texts: &[CString]) -> Vec<*mut c_char> {
    let ends = std::iter::once(std::ptr::null_mut());
    texts
        .iter()
        .map(|text| text.as_ptr().cast_mut())
        .chain(ends)
        .collect()
}

fn check(error: c_int) -> io::Result<()> {
    if error == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(error))
    }
}

/// How the child begins: its session, its signals.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the first call initialises the value, or fails and leaves nothing to destroy; the
        // others get it initialised. Signal sets are initialised by sigemptyset(3).
        unsafe {
            check(libc::posix_spawnattr_init(attributes.as_mut_ptr()))?;
            let mut this = Self(attributes.assume_init());
            let mut signals = MaybeUninit::uninit();
            libc::sigemptyset(signals.as_mut_ptr());
            let mut signals = signals.assume_init();
            check(libc::posix_spawnattr_setsigmask(
                &raw mut this.0,
                &raw const signals,
            ))?;
            // This program ignores it; a query server whose reader is gone should end.
            libc::sigaddset(&raw mut signals, libc::SIGPIPE);
            check(libc::posix_spawnattr_setsigdefault(
                &raw mut this.0,
                &raw const signals,
            ))?;
            let signal_flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
            let flags = signal_flags as libc::c_short | libc::POSIX_SPAWN_SETSID;
            check(libc::posix_spawnattr_setflags(&raw mut this.0, flags))?;
            Ok(this)
        }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised by `new`.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

/// Which descriptors the child gets as 0, 1 and 2; all others close themselves.
struct FileActions(libc::posix_spawn_file_actions_t);

impl FileActions {
    fn new(descriptors: &[c_int; 3]) -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: as for the attributes.
        unsafe {
            check(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))?;
            let mut this = Self(actions.assume_init());
            for (target, descriptor) in (0..).zip(descriptors) {
                check(libc::posix_spawn_file_actions_adddup2(
                    &raw mut this.0,
                    *descriptor,
                    target,
                ))?;
            }
            Ok(this)
        }
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: initialised by `new`.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

/// Opens a handle that tells when the child ends; `None` where the system has none.
pub(super) fn open_pidfd(child: &Unreaped) -> Option<OwnedFd> {
    pidfd_open(child.pid, PidfdFlags::empty()).ok()
}

/// Registers a descriptor of a child with the event loop.
///
/// # Errors
/// The event loop has no room for it.
pub(crate) fn watch<T: Owner>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: an `Owner` keeps one and the same descriptor open for as long as it lives, and the
    // `AsyncFd` never lets go of it before the registration ends.
    let registered = unsafe { AsyncFd::register_with_interest(owner, interest) };
    Ok(registered?)
}

/// A type that owns one descriptor, always the same, until it is dropped.
pub(crate) trait Owner: AsRawFd {}

impl Owner for OwnedFd {}
impl Owner for std::fs::File {}
