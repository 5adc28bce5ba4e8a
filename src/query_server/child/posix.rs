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
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::query_server::sandbox;

/// Our ends of the pipes to a child's standard input, output and error. They do not block.
pub(super) struct Pipes {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// A child that is not reaped yet, so that its number is its own. Dropping it kills its group and
/// reaps it.
pub(super) struct Unreaped {
    pid: libc::pid_t,
    reaped: bool,
}

impl Unreaped {
    pub(super) fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Sends a signal to the child's group.
    pub(super) fn signal_group(&self, signal: c_int) {
        if !self.reaped {
            // SAFETY: kill(2) has no memory effects. The number of the group is taken for as long
            // as its leader is not reaped.
            unsafe { libc::kill(-self.pid, signal) };
        }
    }

    /// Reaps the child if it has ended; `None` while it has not, and again after it was reaped.
    pub(super) fn try_reap(&mut self) -> Option<ExitStatus> {
        if self.reaped {
            return None;
        }
        let status = wait(self.pid, libc::WNOHANG)?;
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
        self.signal_group(libc::SIGKILL);
        let pid = self.pid;
        // A kill takes effect within a millisecond unless the child hangs in the kernel, and that
        // is nothing to wait for here. Without room for a thread it stays a zombie until the
        // service ends.
        let reaper = std::thread::Builder::new().name("reaper".into());
        drop(reaper.spawn(move || wait(pid, 0)));
    }
}

/// Waits for a child; `None` when it has not ended, or is none of ours.
fn wait(pid: libc::pid_t, options: c_int) -> Option<ExitStatus> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer is that of a local integer.
        let result = unsafe { libc::waitpid(pid, &raw mut status, options) };
        match result {
            0 => return None,
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return None,
            _ => return Some(ExitStatus::from_raw(status)),
        }
    }
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
    let (child, pipes) = if sandbox::confines_itself(environment) {
        spawn_at_once(program, arguments, environment)?
    } else {
        spawn_with_hook(program, arguments, environment)?
    };
    for pipe in [&pipes.stdin, &pipes.stdout, &pipes.stderr] {
        set_nonblocking(pipe)?;
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
            sandbox::die_with_parent()
        });
    }
    let mut child = command.spawn()?;
    let unreaped = Unreaped {
        pid: child.id().cast_signed(),
        reaped: false,
    };
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
    let child = Unreaped { pid, reaped: false };
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
    // SAFETY: pidfd_open(2) takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the descriptor was returned just now and nobody else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
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
impl Owner for std::net::TcpListener {}
impl Owner for std::os::unix::net::UnixListener {}

fn set_nonblocking(pipe: &OwnedFd) -> io::Result<()> {
    // SAFETY: fcntl(2) with F_GETFL and F_SETFL takes and returns integers; the descriptor is open.
    let result = unsafe {
        let flags = libc::fcntl(pipe.as_raw_fd(), libc::F_GETFL);
        libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
