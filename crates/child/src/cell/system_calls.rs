//! The system calls allowed to an external command, and the filter that refuses all others.
//!
//! SUMMARY   [`filter`] allows the calls that interpreters need: those in [`ALLOWED`] with any arguments, those in
//!           [`in_part`] with certain arguments, internet calls if the cell has a network, and calls named in the
//!           configuration.
//! PROMISES  Any other call fails with EPERM, or with ENOSYS as on a kernel without the call: if libraries try it and
//!           have a fallback, or if it is newer than the table of names. A call of another architecture ends the
//!           process; a call with an x32 number is refused.
//! SOURCE    Traces of CPython, Node, Perl, Ruby, PHP, Lua, a JVM, Go's runtime and shells.
//! LIMITS    Since Linux 5.11 the kernel caches which calls are allowed with any arguments, and runs the filter only
//!           for other calls, so the position of an always-allowed call in the filter costs nothing. On installation
//!           the kernel runs the filter once for every number.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use libc::{AF_INET, AF_INET6, AF_UNIX, IPPROTO_TCP, IPPROTO_UDP, SOCK_SEQPACKET, SOCK_STREAM};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp as Is,
    SeccompCondition, SeccompFilter, SeccompRule as Rule, sock_filter,
};
use syscalls::Sysno;

use super::{CellSpec, Guarded};

macro_rules! calls {
    ($($name:ident)*) => { &[$(Sysno::$name),*] };
}
pub(super) use calls;

macro_rules! numbers {
    ($($name:ident)*) => { &[$(libc::$name as u64),*] };
}

/// Calls allowed with any arguments.
const ALLOWED: &[Sysno] = calls![
    // Files: Landlock decides which may be opened.
    openat openat2 close close_range read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek
    sendfile copy_file_range dup dup3 pipe2 fstat statx readlinkat faccessat faccessat2 getdents64 statfs fstatfs
    getcwd chdir fchdir umask
    // Landlock refuses these, but programs rely on their other errors (EEXIST, ENOENT).
    mkdirat unlinkat
    // Waiting: event loops of Node, Ruby, Go and Python.
    ppoll pselect6 epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 eventfd2 timerfd_create timerfd_settime
    timerfd_gettime
    // Memory; a JVM and Node query resident pages, and protection keys.
    brk munmap mremap mprotect madvise msync mincore membarrier pkey_alloc pkey_free pkey_mprotect
    // Threads.
    futex set_robust_list set_tid_address rseq sched_yield sched_getaffinity sched_getparam sched_getscheduler
    sched_get_priority_max sched_get_priority_min getcpu gettid
    // Starting programs, and signals, which stay within the cell's processes.
    execve exit exit_group wait4 waitid getpid getppid getpgid setpgid getsid setsid
    kill tkill tgkill pidfd_open pidfd_send_signal
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack restart_syscall
    // Time; Perl and PHP set alarms. The `timer_` calls need `timer_create`, which only the configuration can allow.
    clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday times setitimer getitimer
    timer_settime timer_gettime timer_getoverrun timer_delete
    // Identity and resources; Node reads its capabilities and raises its limit of descriptors.
    getuid geteuid getgid getegid getresuid getresgid getgroups capget getrlimit setrlimit getrusage getpriority
    uname sysinfo getrandom
    // Socket pairs, which event loops use to wake themselves; Node checks the type of its standard input.
    sendto recvfrom recvmsg shutdown getsockname getpeername getsockopt
    // Used by the first process of the cell, which the filter applies to as well.
    signalfd4
];

/// Calls that only this architecture has, and older names of calls above.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[Sysno] = calls![
    open stat lstat newfstatat readlink access getdents mkdir unlink pipe dup2
    poll select epoll_create epoll_wait eventfd fork vfork getpgrp pause alarm time arch_prctl
];
#[cfg(target_arch = "aarch64")]
const ALLOWED_HERE: &[Sysno] = calls![fstatat];
#[cfg(target_arch = "riscv64")]
const ALLOWED_HERE: &[Sysno] = calls![newfstatat riscv_hwprobe riscv_flush_icache];

/// Calls allowed in addition if the cell has a network. Nothing can connect to the cell, because it can neither bind an
/// address nor listen.
const OF_NETWORK: &[Sysno] = calls![connect setsockopt sendmsg sendmmsg recvmmsg];

/// Calls that fail with ENOSYS, because programs then use an older call or do without. `clone3` and `timer_create`: a
/// filter cannot see the former's flags or the latter's signal, which could wake a cell at [rest](super::rest).
/// Extended attributes: Landlock does not cover them; without them `ls` and `cp` merely report none.
const MISSING: &[Sysno] = calls![
    clone3 timer_create futex_waitv futex_wait futex_wake futex_requeue map_shadow_stack mseal
    getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
];

/// Allowed commands of `fcntl`. Refused are locks, leases and watches, because they make other processes wait, or
/// observe them; owners and signals of descriptors; and changes of a pipe's size, which the kernel charges to the user.
const OF_FCNTL: &[u64] = numbers![
    F_DUPFD F_DUPFD_CLOEXEC F_GETFD F_SETFD F_GETFL F_SETFL F_GETPIPE_SZ
];

/// Allowed requests of `ioctl`: terminal queries, bytes available to read, descriptor flags.
const OF_IOCTL: &[u64] = numbers![
    TCGETS TCGETS2 TIOCGWINSZ TIOCGPGRP FIONREAD FIONBIO FIOCLEX FIONCLEX
    // The first process of the cell listens; no other process has the descriptor.
    SECCOMP_IOCTL_NOTIF_RECV SECCOMP_IOCTL_NOTIF_SEND
];

/// Allowed options of `prctl`: they concern only the process itself, and do not expose it to others.
const OF_PRCTL: &[u64] = numbers![
    PR_SET_NAME PR_GET_NAME PR_SET_VMA PR_SET_PDEATHSIG PR_GET_PDEATHSIG PR_GET_DUMPABLE PR_CAPBSET_READ
    PR_SET_NO_NEW_PRIVS PR_GET_NO_NEW_PRIVS PR_SET_THP_DISABLE PR_GET_THP_DISABLE
];

/// Refused flags of `clone`.
const NAMESPACES: &[u64] = numbers![
    CLONE_NEWNS CLONE_NEWCGROUP CLONE_NEWUTS CLONE_NEWIPC CLONE_NEWUSER CLONE_NEWPID CLONE_NEWNET
];

/// Refused flags of `mmap`: huge pages are a resource of the machine, and the kernel charges locked pages to the user.
const OF_OTHERS: &[u64] = numbers![MAP_HUGETLB MAP_LOCKED];

/// Both flags together make `mmap` create shared memory without a file: all of it persists while any part is mapped.
const OF_SHARED_MEMORY: u64 = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;

/// Numbers from here on are x32 calls.
const X32: u32 = 0x4000_0000;

const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

/// The filter's verdict on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// If one of the rules matches.
    AllowedIf(Vec<Rule>),
    Refused,
    Missing,
}

/// Makes the filter, with which the kernel itself refuses calls.
///
/// # Errors
/// The architecture is unknown.
pub(super) fn filter(spec: &CellSpec, guarded: Guarded) -> Result<BpfProgram, BackendError> {
    let mut verdicts = vec![Verdict::Refused; Sysno::last().id() as usize + 1];
    let mut decide = |call: Sysno, verdict| verdicts[call.id() as usize] = verdict;
    let (of_network, mut in_part) = (if spec.network { OF_NETWORK } else { &[] }, in_part()?);
    [ALLOWED, ALLOWED_HERE, of_network]
        .into_iter()
        .flatten()
        .for_each(|call| decide(*call, Verdict::Allowed));
    MISSING
        .iter()
        .for_each(|call| decide(*call, Verdict::Missing));
    if spec.network {
        in_part.push((Sysno::socket, of_the_internet()?));
    }
    if guarded.mapped_memory {
        in_part.push((Sysno::mmap, of_counted_memory()?));
    }
    if guarded.ports {
        // MSG_FASTOPEN would connect without `connect`, bypassing Landlock.
        let slow = Is::MaskedEq(libc::MSG_FASTOPEN as u64);
        for (call, flags) in calls![sendto sendmsg sendmmsg].iter().zip([3, 2, 3]) {
            in_part.push((*call, vec![rule([(flags, slow.clone(), 0)])?]));
        }
    }
    for (call, rules) in in_part {
        decide(call, Verdict::AllowedIf(rules));
    }
    for call in spec.system_calls.iter().flat_map(|name| name.parse()) {
        decide(call, Verdict::Allowed);
    }
    compile(verdicts)
}

/// Returns the calls that are allowed only with certain arguments, and the rules for these.
fn in_part() -> Result<Vec<(Sysno, Vec<Rule>)>, BackendError> {
    let one_of = |argument, values: &[u64]| {
        values
            .iter()
            .map(|value| rule([(argument, Is::Eq, *value)]))
            .collect::<Result<Vec<_>, _>>()
    };
    let without = |argument, flags: &[u64]| rule([(argument, Is::MaskedEq(flags.iter().sum()), 0)]);
    // Refuses the advice that evicts cached pages, which others may read.
    let reads_ahead = rule([(3, Is::Le, libc::POSIX_FADV_WILLNEED as u64)])?;
    let its_own = rule([(0, Is::Eq, libc::PRIO_PROCESS as u64), (1, Is::Eq, 0)])?;
    // A pair of datagram sockets can be reconnected to any Unix socket.
    let pair = |kind: i32| {
        // The upper bits of the argument are flags.
        let kind = (1, Is::MaskedEq(0xf), kind as u64);
        rule([(0, Is::Eq, AF_UNIX as u64), kind])
    };
    let pairs = vec![pair(SOCK_STREAM)?, pair(SOCK_SEQPACKET)?];
    Ok(vec![
        (Sysno::clone, vec![without(0, NAMESPACES)?]),
        (Sysno::mmap, vec![without(3, OF_OTHERS)?]),
        (Sysno::fcntl, one_of(1, OF_FCNTL)?),
        (Sysno::ioctl, one_of(1, OF_IOCTL)?),
        (Sysno::prctl, one_of(0, OF_PRCTL)?),
        (Sysno::prlimit64, one_of(0, &[0])?),
        (Sysno::setpriority, vec![its_own]),
        (Sysno::fadvise64, vec![reads_ahead]),
        (Sysno::socketpair, pairs),
    ])
}

/// Allows mappings of files and of private memory: the launcher counts what is mapped. Refuses [`OF_SHARED_MEMORY`]: a
/// part of it that is unmapped would still take memory, but not be counted.
fn of_counted_memory() -> Result<Vec<Rule>, BackendError> {
    let others = (3, Is::MaskedEq(OF_OTHERS.iter().sum()), 0);
    numbers![MAP_SHARED MAP_ANONYMOUS]
        .iter()
        .chain(&[0])
        .map(|flag| rule([others.clone(), (3, Is::MaskedEq(OF_SHARED_MEMORY), *flag)]))
        .collect()
}

/// Allows internet sockets with common protocols only: MPTCP would bypass Landlock's rules for TCP ports.
fn of_the_internet() -> Result<Vec<Rule>, BackendError> {
    [AF_INET, AF_INET6]
        .into_iter()
        .flat_map(|family| [0, IPPROTO_TCP, IPPROTO_UDP].map(|of| (family, of)))
        .map(|(family, of)| rule([(0, Is::Eq, family as u64), (2, Is::Eq, of as u64)]))
        .collect()
}

/// Matches a call whose arguments satisfy all conditions. Compares only the lower 32 bits of each argument; the kernel,
/// too, uses only those in these calls.
pub(super) fn rule<const N: usize>(conditions: [(u8, Is, u64); N]) -> Result<Rule, BackendError> {
    let conditions = conditions.map(|(argument, is, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value)
    });
    Rule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

/// Compiles a filter from a verdict for each number, starting with 0.
fn compile(verdicts: Vec<Verdict>) -> Result<BpfProgram, BackendError> {
    let newer = (verdicts.len() as u32, Verdict::Missing);
    let x32 = cfg!(target_arch = "x86_64").then_some((X32, Verdict::Refused));
    let mut runs: Vec<(u32, Verdict)> = (0..).zip(verdicts).chain([newer]).chain(x32).collect();
    runs.dedup_by(|later, earlier| later.1 == earlier.1);
    // A filter without rules checks the architecture; its last step, which is replaced here, is one verdict on all
    // calls.
    let (refuse, allow) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let filter = SeccompFilter::new(BTreeMap::new(), refuse, allow, ARCH.try_into()?)?;
    let mut program = BpfProgram::try_from(filter)?;
    program.pop();
    program.push(step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0));
    program.extend(search(&runs));
    Ok(program)
}

/// Returns the steps that find a number's run and apply its verdict. Each run is given by its first number and its
/// verdict.
fn search(runs: &[(u32, Verdict)]) -> BpfProgram {
    if let [(_, verdict)] = runs {
        return verdict.steps();
    }
    let (low, high) = runs.split_at(runs.len() / 2);
    let (first, low, high) = (high[0].0, search(low), search(high));
    // If the number is lower, skips the next step, which jumps past the lower half.
    let mut steps = vec![
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, first),
        step(libc::BPF_JMP | libc::BPF_JA, 0, low.len() as u32),
    ];
    steps.extend(low);
    steps.extend(high);
    steps
}

impl Verdict {
    fn steps(&self) -> BpfProgram {
        let end = |action| step(libc::BPF_RET | libc::BPF_K, 0, action);
        let allow = end(libc::SECCOMP_RET_ALLOW);
        match self {
            Self::Allowed => vec![allow],
            Self::AllowedIf(rules) => {
                // A rule that does not match jumps past its own end and the `allow` step after it.
                let rules = rules
                    .iter()
                    .cloned()
                    .map(BpfProgram::from)
                    .flat_map(|rule| rule.into_iter().chain([allow.clone()]));
                rules.chain([end(REFUSE)]).collect()
            }
            Self::Refused => vec![end(REFUSE)],
            Self::Missing => vec![end(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32)],
        }
    }
}

fn step(code: u32, jf: u8, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    }
}

fn is_return(step: &sock_filter) -> bool {
    u32::from(step.code) == libc::BPF_RET | libc::BPF_K
}

/// Converts the result of [`filter`] to a filter that reports each refused call to a listener, which refuses it.
pub(super) fn with_listener(filter: &BpfProgram) -> BpfProgram {
    let mut asking = filter.clone();
    asking
        .iter_mut()
        .filter(|step| is_return(step) && step.k == REFUSE)
        .for_each(|step| step.k = libc::SECCOMP_RET_USER_NOTIF);
    asking
}

/// Returns the name of a refused call; `x32` or `other` for one without a known name.
pub(super) fn name(number: i64) -> &'static str {
    match Sysno::new(number as usize) {
        Some(call) => call.name(),
        None if number >= i64::from(X32) => "x32",
        None => "other",
    }
}

/// Returns whether this architecture has a system call with this name.
pub fn is_system_call(name: &str) -> bool {
    name.parse::<Sysno>().is_ok()
}

/// Returns whether a refused call is insignificant: the C library tries to contact a name-caching service in this way
/// whenever a program looks up a user, with a fallback.
pub(super) fn is_harmless(number: i64, arguments: [u64; 2]) -> bool {
    let kind = SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let asked = [AF_UNIX, kind].map(|value| u64::from(value.unsigned_abs()));
    number == i64::from(Sysno::socket.id()) && arguments == asked
}

#[cfg(test)]
#[path = "system_calls_tests.rs"]
mod tests;
