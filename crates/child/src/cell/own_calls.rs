//! The system calls allowed to the built-in JavaScript server in its cell, and reports of others.
//!
//! SUMMARY   [`leave_calls`] installs a filter on all threads of the process.
//! PROMISES  Nothing can be opened, connected, started, traced or signalled; memory never becomes executable. Calls
//!           through another interface of the same machine (x32, 32 bits) are also refused.
//! SOURCE    A trace of the transcripts and the tests, plus calls of the C library that traces miss: on machines
//!           where only the kernel can read the clock, and after a stop.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io::Write;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpOp as Is, SeccompFilter,
    SeccompRule as Rule, apply_filter_all_threads,
};
use syscalls::Sysno;

use super::layers::Held;
use super::own_os;
use super::system_calls::{calls, rule};

/// Calls allowed with any arguments.
const ALLOWED: &[Sysno] = calls![
    // The three streams, and the open memory statistics.
    read write pread64 ppoll close
    // Memory.
    brk mremap munmap madvise
    // Time, the output's timer, and random numbers for hash tables.
    clock_gettime gettimeofday timerfd_settime getrandom
    // Waiting threads, signal handling, exit.
    restart_syscall sigaltstack rt_sigprocmask rt_sigreturn getpid gettid exit exit_group
];

/// Futex operations of the C and the standard library: wait and wake. The flags select the clock, and the private
/// variant.
const FUTEX_FLAGS: u64 = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64;
const FUTEX_COMMANDS: [i32; 3] = [libc::FUTEX_WAIT, libc::FUTEX_WAKE, libc::FUTEX_WAIT_BITSET];

/// Maximum length of [`refusal`]'s line, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 96;

/// Restricts all threads to the allowed system calls.
///
/// # Errors
/// A step fails; the error says which and why.
pub(super) fn leave_calls() -> Held {
    own_os::die_of_refused_calls()
        .map_err(|error| format!("there is no handler of SIGSYS ({error})"))?;
    let filter = filter().map_err(|error| format!("there is no filter for {ARCH} ({error})"))?;
    apply_filter_all_threads(&filter)
        .map_err(|error| format!("the system refuses a filter of system calls ({error})"))
}

fn filter() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<c_long, Vec<Rule>> = ALLOWED
        .iter()
        .map(|call| (call.id().into(), Vec::new()))
        .collect();
    let no_code = (2, Is::MaskedEq(libc::PROT_EXEC as u64), 0);
    let anonymous = libc::MAP_ANONYMOUS as u64;
    let no_file = (3, Is::MaskedEq(anonymous), anonymous);
    rules.insert(libc::SYS_mmap, vec![rule([no_code.clone(), no_file])?]);
    rules.insert(libc::SYS_mprotect, vec![rule([no_code])?]);
    // Debug builds check a descriptor before closing it.
    if cfg!(debug_assertions) {
        let looks = (1, Is::Eq, libc::F_GETFD as u64);
        rules.insert(libc::SYS_fcntl, vec![rule([looks])?]);
    }
    let futex = FUTEX_COMMANDS.map(|command| {
        let is = Is::MaskedEq(!FUTEX_FLAGS & u64::from(u32::MAX));
        rule([(1, is, command as u64)])
    });
    rules.insert(
        libc::SYS_futex,
        futex.into_iter().collect::<Result<_, _>>()?,
    );
    // A signal to itself: an aborting panic.
    let itself = (0, Is::Eq, u64::from(std::process::id()));
    rules.insert(libc::SYS_tgkill, vec![rule([itself])?]);
    // Keeps the handler of refused calls.
    let other = (0, Is::Ne, libc::SIGSYS as u64);
    rules.insert(libc::SYS_rt_sigaction, vec![rule([other])?]);
    let (refused, allowed) = (SeccompAction::Trap, SeccompAction::Allow);
    SeccompFilter::new(rules, refused, allowed, ARCH.try_into()?)?.try_into()
}

/// Returns the line that reports a refused system call. Built without allocation, in a signal handler.
pub(super) fn refusal(number: c_long, buffer: &mut [u8; LINE_BYTES_MAX]) -> &[u8] {
    let name = Sysno::new(number as usize).map_or("unknown", |call| call.name());
    let mut rest = &mut buffer[..];
    // Cut if it does not fit.
    let _ = writeln!(
        rest,
        "settee couchjs: refused system call {name} ({number})"
    );
    let unused = rest.len();
    &buffer[..LINE_BYTES_MAX - unused]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_is_reported_with_its_name_and_number() {
        let mut buffer = [0; LINE_BYTES_MAX];
        let told = String::from_utf8_lossy(refusal(libc::SYS_socket, &mut buffer)).into_owned();
        let expected = format!(
            "settee couchjs: refused system call socket ({})\n",
            libc::SYS_socket
        );
        assert_eq!(told, expected);
        let told = refusal(0x4000_0000 + 999_999, &mut buffer);
        assert!(told.ends_with(b"call unknown (1074741823)\n"));
    }
}
