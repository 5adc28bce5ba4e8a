//! System calls of cells that no crate offers safely.
//!
//! SUMMARY   Processes by `clone`, signal dispositions, descriptors, and the listener of a seccomp filter.
//! CALLED    By launchers, which have one thread: a copied process never sees another thread's unfinished change, so
//!           it may allocate.

#![allow(unsafe_code, reason = "the operating system's calls for cells")]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{null, null_mut};

use rustix::process::Pid;
use seccompiler::BpfProgram;

use crate::parent_death::die_with_parent;

/// The stack of a process that is about to execute a program, in bytes: room for the argument list that `execvp` copies
/// when it runs a script without a `#!` line.
const STACK_BYTES: usize = 256 * 1024;

/// Flags that put a new process into its own user and pid namespaces.
pub(super) const NEW_USER: i32 = libc::CLONE_NEWUSER;
pub(super) const NEW_PID: i32 = libc::CLONE_NEWPID;

/// The crate's constant has too narrow a type.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Signals that ask a process group to end.
const REQUESTS: [c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Makes [`close_above_stderr`] take effect when a program is executed (`CLOSE_RANGE_CLOEXEC`).
pub(super) const ON_EXEC: c_uint = 1 << 2;

/// Closes every descriptor above standard error.
///
/// # Errors
/// The system does not support this (Linux before 5.9, and before 5.11 with [`ON_EXEC`]).
pub(super) fn close_above_stderr(flags: c_uint) -> io::Result<()> {
    // SAFETY: the call takes numbers and touches no memory. No descriptor that it closes at once is in use: the server
    // that asks for this has not opened any yet.
    checked(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, flags) }).map(drop)
}

/// Takes over a descriptor that the parent left open for this program.
///
/// # Errors
/// The number is not open, or is one of the standard three.
pub(super) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call reads a flag; a number without a descriptor is an error.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if number <= libc::STDERR_FILENO || flags < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is open, and this runs once, before this program opens any descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Forks this process; returns the copy's pid, and `None` in the copy. `cgroup` is the folder of a version 2 control
/// group to start the copy in.
///
/// # Errors
/// The system refuses the flags, or another process.
pub(super) fn clone(flags: i32, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<Pid>> {
    let flags = flags as u64;
    let signal = libc::SIGCHLD as u64;
    let made = match cgroup {
        None => {
            let nothing: libc::c_ulong = 0;
            // SAFETY: without CLONE_VM and a new stack it is fork(2): both processes continue here with separate
            // memory. There is one thread, so no lock is held.
            unsafe {
                libc::syscall(
                    libc::SYS_clone,
                    flags | signal,
                    nothing,
                    nothing,
                    nothing,
                    nothing,
                )
            }
        }
        Some(folder) => {
            // SAFETY: all fields are numbers, for which zero means nothing.
            let mut arguments: libc::clone_args = unsafe { zeroed() };
            arguments.flags = flags | CLONE_INTO_CGROUP;
            arguments.exit_signal = signal;
            arguments.cgroup = folder.as_raw_fd() as u64;
            let size = size_of::<libc::clone_args>();
            // SAFETY: as above; the arguments outlive the call, and the size is theirs.
            unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) }
        }
    };
    Ok(Pid::from_raw(checked(made)? as i32))
}

/// Accesses files as this user from now on, regardless of the effective user. Without permission nothing changes.
pub(super) fn set_user_of_files(uid: u32) {
    // SAFETY: the call takes a number and touches no memory.
    unsafe { libc::setfsuid(uid) };
}

/// Ignores signals that ask to end: they are for the command.
pub(super) fn ignore_requests_to_end() {
    set_dispositions(&REQUESTS, libc::SIG_IGN);
}

/// Resets signal handling to that of a new program, and blocks no signal.
fn default_signals() {
    set_dispositions(&REQUESTS, libc::SIG_DFL);
    set_dispositions(&[libc::SIGPIPE, libc::SIGCHLD], libc::SIG_DFL);
    mask(libc::SIG_SETMASK, &[]);
}

/// Changes which signals are blocked by a set of these, and returns the set.
fn mask(how: c_int, signals: &[c_int]) -> libc::sigset_t {
    // SAFETY: zeroes are a valid value of the set, which is made here; the last call only reads it.
    unsafe {
        let mut set = zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        libc::sigprocmask(how, &raw const set, null_mut());
        set
    }
}

fn set_dispositions(signals: &[c_int], disposition: libc::sighandler_t) {
    for signal in signals {
        // SAFETY: both dispositions used here are the system's own and run no code.
        unsafe { libc::signal(*signal, disposition) };
    }
}

/// Ends this process by a signal.
pub(super) fn end_by(signal: c_int) -> ! {
    set_dispositions(&[signal], libc::SIG_DFL);
    mask(libc::SIG_UNBLOCK, &[signal]);
    // SAFETY: a signal to this process, and an exit if it had no effect.
    unsafe {
        libc::kill(libc::getpid(), signal);
        libc::_exit(128 + signal)
    }
}

/// The data to turn a new process into a program.
struct Execution<'a> {
    /// The words of the command, and a null pointer after them.
    words: Vec<*const c_char>,
    /// Waits for permission to execute the program; must not allocate.
    may_start: &'a dyn Fn() -> bool,
    failed_status: c_int,
    /// The error number, if it has failed.
    error: Option<i32>,
}

/// Executes a program in a new process, with default signal handling, once `may_start` returns true there; the process
/// dies with this one. Returns its pid, and the error if the program cannot be executed. In this case, and if
/// `may_start` returns false, the new process exits with `failed_status`.
///
/// # Errors
/// The system refuses to create another process.
pub(super) fn execute(
    words: &[CString],
    may_start: &dyn Fn() -> bool,
    failed_status: c_int,
) -> io::Result<(Pid, Option<io::Error>)> {
    let mut execution = Execution {
        words: words
            .iter()
            .map(|word| word.as_ptr())
            .chain([null()])
            .collect(),
        may_start,
        failed_status,
        error: None,
    };
    let mut stack = vec![Align([0; 16]); STACK_BYTES / 16];
    // The new process borrows this one's memory, and this one waits until the program is executed: nothing is copied.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is aligned, grows down from its end and is used by no other code; stack and argument outlive
    // their use by the new process, because this process is suspended until then.
    let made = unsafe {
        let top = stack.as_mut_ptr_range().end;
        libc::clone(
            become_program,
            top.cast(),
            flags,
            (&raw mut execution).cast(),
        )
    };
    let pid = Pid::from_raw(checked(made.into())? as i32)
        .ok_or_else(|| io::Error::other("a process without a number"))?;
    Ok((pid, execution.error.map(io::Error::from_raw_os_error)))
}

#[derive(Clone, Copy)]
#[repr(align(16))]
struct Align(#[allow(dead_code, reason = "room")] [u8; 16]);

extern "C" fn become_program(argument: *mut c_void) -> c_int {
    // SAFETY: it is the `Execution` of `execute`, which no other code uses while this runs.
    let execution = unsafe { &mut *argument.cast::<Execution<'_>>() };
    // The command must not outlive the cell's first process. This cannot fail.
    let _ = die_with_parent();
    default_signals();
    if (execution.may_start)() {
        // SAFETY: all strings end with a zero byte, the list with a null pointer, and all outlive the call, which
        // returns only if it failed.
        unsafe { libc::execvp(execution.words[0], execution.words.as_ptr()) };
        execution.error = io::Error::last_os_error().raw_os_error();
    }
    // SAFETY: ends only this process, and runs nothing that belongs to the other one.
    unsafe { libc::_exit(execution.failed_status) }
}

/// Makes a descriptor that becomes readable when a child of this process changes its state.
///
/// # Errors
/// The system refuses.
pub(super) fn child_changes() -> io::Result<OwnedFd> {
    let changes = mask(libc::SIG_BLOCK, &[libc::SIGCHLD]);
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the call only reads the set.
    let made = unsafe { libc::signalfd(-1, &raw const changes, flags) };
    let number = checked(made.into())?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number as RawFd) })
}

/// Installs a filter for this process and everything that it starts; returns the listener of its notifications.
///
/// # Errors
/// The system has no filters or no listeners, or another listener exists.
pub(super) fn filter_with_listener(filter: &BpfProgram) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_ptr() as *mut libc::sock_filter,
    };
    // SAFETY: the program points to the stated number of steps, of the system's layout, which the call copies.
    let made = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    let number = checked(made)?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number as RawFd) })
}

/// Refuses the call that the listener received, if its caller still exists. `tell` is called first, with the number
/// and the first two arguments, so that it precedes the caller's next action.
pub(super) fn refuse_next(listener: &OwnedFd, tell: impl FnOnce(i64, [u64; 2])) {
    // SAFETY: all fields of both are numbers; the system requires the first to be zeroed.
    let (mut heard, mut answer): (libc::seccomp_notif, libc::seccomp_notif_resp) =
        unsafe { (zeroed(), zeroed()) };
    // SAFETY: the call fills a structure of its layout, valid during the call.
    let received = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV as _,
            &raw mut heard,
        )
    };
    if received < 0 {
        return;
    }
    let arguments = [heard.data.args[0], heard.data.args[1]];
    tell(heard.data.nr.into(), arguments);
    answer.id = heard.id;
    answer.error = -libc::EPERM;
    // SAFETY: the call reads a structure of its layout, valid during the call. It fails if the caller is gone.
    unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND as _,
            &raw mut answer,
        )
    };
}

/// Returns the result of a system call, or its error.
pub(super) fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    match result {
        result if result < 0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
