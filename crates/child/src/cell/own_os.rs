//! System calls for the built-in server's cell, each behind a safe function, and the handler of refused calls.
//!
//! SOURCE    unshare(2), sigaction(2), seccomp(2) (SECCOMP_RET_TRAP), mallopt(3), localtime_r(3).

#![allow(unsafe_code, reason = "the system's calls for cells")]

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::mem;
use std::ptr;

use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::os::checked;
use super::own_calls;

/// Blocks of at least this length, in bytes, return to the system when freed. Once set, glibc does not raise it.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: c_int = 1 << 20;

/// Configures the allocator for a server, in every mode: makes all threads share one heap, which takes less memory, and
/// returns large blocks to the system. With several heaps, glibc opens a file when it shrinks one, which the filter
/// refuses. Nothing to do without glibc.
pub fn set_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt may be called at any time; both values are in the ranges that it knows.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
    }
}

/// Makes glibc read the time zone file now, which it does once, at the first conversion of a time.
pub(super) fn load_time_zone() {
    // SAFETY: both pointers are to values of the right types, which outlive the call; zeroes are
    // a valid value of both.
    unsafe {
        let (time, mut parts) = mem::zeroed();
        libc::localtime_r(&raw const time, &raw mut parts);
    }
}

/// Enters a new user namespace.
///
/// # Errors
/// The system refuses, as for a multi-threaded process.
pub(super) fn enter_user_namespace() -> io::Result<()> {
    // SAFETY: only UnshareFlags::FILES needs care.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?)
}

/// Makes system calls refused by the filter end the process, after a report on standard error.
pub(super) fn die_of_refused_calls() -> io::Result<()> {
    let handler: extern "C" fn(c_int, *mut Refused, *mut c_void) = refused;
    // SAFETY: zeroes are a valid value of the type. The handler has the signature required by SA_SIGINFO and only
    // does what a signal handler may.
    let set = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        // A second signal gets the default action: it ends the process.
        action.sa_flags =
            libc::SA_SIGINFO | libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut())
    };
    checked(set.into()).map(drop)
}

/// `siginfo_t` of a SIGSYS, on 64-bit systems.
#[repr(C)]
struct Refused {
    signal: c_int,
    errno: c_int,
    code: c_int,
    address: *mut c_void,
    call: c_int,
    architecture: c_uint,
}

/// `si_code` of a system call refused by a filter.
const SYS_SECCOMP: c_int = 1;

extern "C" fn refused(_signal: c_int, info: *mut Refused, _context: *mut c_void) {
    // SAFETY: the system calls the handler of a SIGSYS with a pointer to such a value. Only write and raise
    // are called, which signal handlers may call; the line is built without allocation.
    unsafe {
        if (*info).code == SYS_SECCOMP {
            let mut buffer = [0; own_calls::LINE_BYTES_MAX];
            let line = own_calls::refusal((*info).call.into(), &mut buffer);
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        }
        libc::raise(libc::SIGSYS);
    }
}
