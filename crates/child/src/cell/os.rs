//! The system calls of cells that no crate offers safely.
//!
//! SUMMARY   Processes by `clone`, signal dispositions, descriptors, and the listener of a seccomp filter.
//! CALLED    By launchers, which have one thread: what a new process copies is never in the middle of a
//!           change by another thread, so it may allocate.

#![allow(unsafe_code, reason = "the operating system's calls for cells")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{null, null_mut};

use rustix::process::Pid;
use seccompiler::BpfProgram;

use crate::parent_death::die_with_parent;

/// The stack of a process that is about to execute a program, in bytes: room for the words of a script
/// without an interpreter, which the C library copies.
const STACK_BYTES: usize = 256 * 1024;

/// A user namespace and a pid namespace for a new process.
pub(super) const NEW_USER: i32 = libc::CLONE_NEWUSER;
pub(super) const NEW_PID: i32 = libc::CLONE_NEWPID;

/// The crate's own constant is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Signals that ask a whole process group to end.
const REQUESTS: [c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Every descriptor above standard error is closed when a program is executed.
///
/// # Errors
/// The system cannot (Linux before 5.11).
pub(super) fn close_on_exec_above_stderr() -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;
    // SAFETY: the call changes a flag of descriptors and touches no memory.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, CLOSE_RANGE_CLOEXEC) };
    checked(done).map(drop)
}

/// Takes over a descriptor that the parent left open for this program.
///
/// # Errors
/// There is none of this number, or it is one of the standard three.
pub(super) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call reads a flag; a number without a descriptor is an error.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if number <= libc::STDERR_FILENO || flags < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is open, and called once, before this program has opened any descriptor of its own.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Starts a copy of this process; `None` in the copy. `cgroup` is the folder of a control group of
/// version 2 that the copy starts in.
///
/// # Errors
/// The system refuses: the flags, or another process.
pub(super) fn clone(flags: i32, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<Pid>> {
    let flags = flags as u64;
    let signal = libc::SIGCHLD as u64;
    let made = match cgroup {
        None => {
            let nothing: libc::c_ulong = 0;
            // SAFETY: without CLONE_VM and with no new stack it is fork(2): both processes go on
            // from here with memory of their own. There is one thread, so no lock is held.
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
            // SAFETY: as above; the arguments live through the call, and their size is their own.
            unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) }
        }
    };
    let pid = checked(made)?;
    Ok(Pid::from_raw(pid as i32))
}

/// Opens files as this user from now on, whatever the effective one is. Where it may not, nothing changes.
pub(super) fn set_user_of_files(uid: u32) {
    // SAFETY: the call takes a number and touches no memory.
    unsafe { libc::setfsuid(uid) };
}

/// Lets requests to end pass by: they are for the command.
pub(super) fn ignore_requests_to_end() {
    set_dispositions(&REQUESTS, libc::SIG_IGN);
}

/// Handles signals as a new program expects it, and blocks none.
pub(super) fn default_signals() {
    set_dispositions(&REQUESTS, libc::SIG_DFL);
    set_dispositions(&[libc::SIGPIPE, libc::SIGCHLD], libc::SIG_DFL);
    // SAFETY: an empty set, which the call only reads.
    unsafe {
        let mut none = zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, null_mut());
    }
}

fn set_dispositions(signals: &[c_int], disposition: libc::sighandler_t) {
    for signal in signals {
        // SAFETY: both dispositions that are given here are the system's own and run no code.
        unsafe { libc::signal(*signal, disposition) };
    }
}

/// Ends this process by a signal.
pub(super) fn end_by(signal: c_int) -> ! {
    set_dispositions(&[signal], libc::SIG_DFL);
    // SAFETY: a signal to this very process, and an exit where it did not take effect.
    unsafe {
        let mut one = zeroed();
        libc::sigemptyset(&raw mut one);
        libc::sigaddset(&raw mut one, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const one, null_mut());
        libc::kill(libc::getpid(), signal);
        libc::_exit(128 + signal)
    }
}

/// What a new process needs to become a program.
struct Execution<'a> {
    /// The words of the command and a null pointer behind them.
    words: Vec<*const c_char>,
    /// Waits until the program may be executed; it must not allocate.
    may_start: &'a dyn Fn() -> bool,
    failed_status: c_int,
    /// Why it has failed, as the system numbers it.
    error: Option<i32>,
}

/// Executes a program in a new process, with signals handled as it expects them, once `may_start` says so
/// there; it dies with this one. Returns as well why it cannot be executed: then the new process ends with
/// `failed_status`.
///
/// # Errors
/// The system has no room for another process.
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
    // The new process borrows the memory of this one, which waits until the program is executed: so
    // nothing of it is copied.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is aligned, grows down from its end and is used by nobody else; the stack and
    // the argument outlive the new process's use of them, because this process is suspended until then.
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
    // SAFETY: it is the `Execution` of `execute`, which nobody else uses for as long as this runs.
    let execution = unsafe { &mut *argument.cast::<Execution<'_>>() };
    // Where nothing leads the cell, it must not outlive its parent. It cannot fail.
    let _ = die_with_parent();
    default_signals();
    if (execution.may_start)() {
        // SAFETY: all texts end with a zero byte, the list with a null pointer, and all live through the
        // call, which returns only if it failed.
        unsafe { libc::execvp(execution.words[0], execution.words.as_ptr()) };
        execution.error = io::Error::last_os_error().raw_os_error();
    }
    // SAFETY: ends this process alone, and runs nothing that belongs to the other one.
    unsafe { libc::_exit(execution.failed_status) }
}

/// Makes a descriptor that can be read when a child of this process has changed its state.
///
/// # Errors
/// The system has no room for it.
pub(super) fn child_changes() -> io::Result<OwnedFd> {
    // SAFETY: a set of one signal, made here; the calls only read it.
    let made = unsafe {
        let mut changes = zeroed();
        libc::sigemptyset(&raw mut changes);
        libc::sigaddset(&raw mut changes, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const changes, null_mut());
        libc::signalfd(
            -1,
            &raw const changes,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        )
    };
    let number = checked(made.into())?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number as RawFd) })
}

/// Puts a filter on this process and all that it starts; returns the listener of its notifications.
///
/// # Errors
/// The system has no filters, or no listeners, or another one listens already.
pub(super) fn filter_with_listener(filter: &BpfProgram) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_ptr() as *mut libc::sock_filter,
    };
    // SAFETY: the program points to as many steps as it says, of the system's layout, which the call
    // copies.
    let made = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    let number = checked(made)?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number as RawFd) })
}

/// Refuses the call that the listener has heard of, if its caller is there. `tell` is called before with its number
/// and its first two arguments, so that what its caller does next comes later.
pub(super) fn refuse_next(listener: &OwnedFd, tell: impl FnOnce(i64, [u64; 2])) {
    // SAFETY: all fields of both are numbers; the system wants the first one zeroed.
    let (mut heard, mut answer): (libc::seccomp_notif, libc::seccomp_notif_resp) =
        unsafe { (zeroed(), zeroed()) };
    // SAFETY: the call fills a structure of its layout, which lives here.
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
    // SAFETY: the call reads a structure of its layout, which lives here. It fails where the caller is
    // gone.
    unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND as _,
            &raw mut answer,
        )
    };
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    match result {
        result if result < 0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
