//! The system calls that no external command needs, and the filter that refuses them.
//!
//! SUMMARY   [`filter`] refuses what reaches other processes, the kernel's own settings, namespaces, System V
//!           IPC, sockets, leases, and changes of files that Landlock does not cover. Everything else is allowed: a command may be any program.
//! PROMISES  A refused call fails with EPERM. Calls of another architecture end the process; those with x32
//!           numbers are refused. `clone3`, whose flags a filter cannot see, does not exist (ENOSYS), so
//!           that libraries fall back to `clone`.
//! LIMITS    Each call with its number: a call that is newer than this list is allowed.

use std::collections::BTreeMap;

use libc::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP, SOCK_SEQPACKET, SOCK_STREAM};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};

macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// Calls that are refused whatever their arguments.
const REFUSED: &[(&str, i64)] = calls![
    // Other processes.
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_kcmp SYS_process_madvise
    SYS_process_mrelease SYS_migrate_pages SYS_move_pages
    // The kernel itself.
    SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_io_uring_setup SYS_io_uring_enter
    SYS_io_uring_register SYS_kexec_load SYS_kexec_file_load SYS_init_module SYS_finit_module
    SYS_delete_module SYS_reboot SYS_syslog SYS_lookup_dcookie SYS_nfsservctl SYS_acct
    SYS_quotactl SYS_quotactl_fd SYS_swapon SYS_swapoff SYS_vhangup SYS_personality
    // Being reached over the network, also where there is one.
    SYS_listen
    // Keys.
    SYS_add_key SYS_request_key SYS_keyctl
    // Namespaces and mounts.
    SYS_unshare SYS_setns SYS_chroot SYS_pivot_root SYS_mount SYS_umount2 SYS_move_mount
    SYS_open_tree SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr
    SYS_sethostname SYS_setdomainname
    // Modes, owners, times and attributes of files, which Landlock does not cover, and watching them.
    SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_utimensat
    SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr
    SYS_inotify_add_watch
    // Files without a path.
    SYS_open_by_handle_at SYS_name_to_handle_at SYS_fanotify_init SYS_fanotify_mark
    // The clock.
    SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex
    // What all processes of a user share.
    SYS_shmget SYS_shmat SYS_shmctl SYS_shmdt SYS_semget SYS_semop SYS_semctl SYS_semtimedop
    SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink SYS_mq_timedsend
    SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[(&str, i64)] = calls![
    SYS_iopl SYS_ioperm SYS_modify_ldt SYS_uselib SYS_ustat SYS_sysfs SYS__sysctl
    SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes SYS_futimesat
];

#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[(&str, i64)] = &[];

/// Younger calls, which have one number on all architectures.
const REFUSED_YOUNGER: &[(&str, i64)] = &[
    ("fchmodat2", 452),
    ("setxattrat", 463),
    ("removexattrat", 466),
    ("open_tree_attr", 467),
    ("file_setattr", 469),
];

/// Requests of `ioctl` that change the attributes of a file: `FS_IOC_SETFLAGS` and `FS_IOC_FSSETXATTR`.
const SET_ATTRIBUTES: [u64; 2] = [0x4008_6602, 0x401c_5820];

/// Commands of `fcntl` by which others wait for this process when they open a file (`F_SETLEASE`, and
/// `F_SETDELEG` of Linux 6.19), or that watch a folder (`F_NOTIFY`).
const HOLD_OR_WATCH: [u64; 3] = [1024, 1040, 1026];

/// Calls that are refused with some arguments.
const REFUSED_IN_PART: &[(&str, i64)] = calls![
    SYS_clone SYS_ioctl SYS_fcntl SYS_socket SYS_socketpair SYS_sendto SYS_sendmsg SYS_sendmmsg
];

/// Namespaces that `clone` makes.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The bits of the second argument of `socketpair` that are the kind of socket.
const SOCKET_KIND_MASK: u64 = 0xf;

/// From this number on, calls are those of x32.
const X32: u32 = 0x4000_0000;

const EPERM: u32 = libc::EPERM as u32;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | EPERM;

/// How many calls stand one after the other before the filter looks again where the number stands. When
/// the system takes a filter, it plays it for every number that there is: with all calls in one part, that
/// is the longest step of a cell's start.
const CALLS_A_PART: usize = 16;

/// What a filter takes from a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusals {
    /// Whether it has no sockets at all, rather than those of the internet.
    pub network: bool,
    /// Whether Landlock guards ports, so that no call may connect around it.
    pub ports: bool,
}

/// Makes the filter, by which the system refuses calls itself.
///
/// # Errors
/// The architecture is not known.
pub(super) fn filter(refusals: Refusals) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let whole = REFUSED.iter().chain(REFUSED_HERE).chain(REFUSED_YOUNGER);
    rules.extend(whole.map(|(_, number)| (*number, Vec::new())));
    rules.insert(libc::SYS_ioctl, commands(&SET_ATTRIBUTES)?);
    rules.insert(libc::SYS_fcntl, commands(&HOLD_OR_WATCH)?);
    rules.insert(libc::SYS_clone, namespaces()?);
    rules.insert(libc::SYS_socketpair, datagrams()?);
    if refusals.network {
        rules.insert(libc::SYS_socket, Vec::new());
    } else {
        rules.insert(libc::SYS_socket, not_internet()?);
    }
    if refusals.ports {
        // Connects without `connect`, past Landlock.
        let calls = [
            (libc::SYS_sendto, 3),
            (libc::SYS_sendmsg, 2),
            (libc::SYS_sendmmsg, 3),
        ];
        for (call, flags) in calls {
            let fast_open = u64::from(libc::MSG_FASTOPEN.unsigned_abs());
            let operator = SeccompCmpOp::MaskedEq(fast_open);
            rules.insert(call, vec![rule([(flags, operator, fast_open)])?]);
        }
    }
    let mut program = beginning();
    while let Some((&next, _)) = rules.iter().nth(CALLS_A_PART) {
        let later = rules.split_off(&next);
        let part = compile(rules)?;
        let part_steps = part.len() as u32;
        program.extend([
            unless(libc::BPF_JGE, next as u32),
            step(libc::BPF_JMP | libc::BPF_JA, 0, part_steps),
        ]);
        program.extend(part);
        rules = later;
    }
    program.extend(compile(rules)?);
    Ok(program)
}

/// Makes the filter of [`filter`] into one that asks a listener to refuse.
pub(super) fn with_listener(filter: &BpfProgram) -> BpfProgram {
    let mut asking = filter.clone();
    let refusing = asking
        .iter_mut()
        .filter(|step| is_return(step) && step.k == REFUSE);
    refusing.for_each(|step| step.k = libc::SECCOMP_RET_USER_NOTIF);
    asking
}

fn compile(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let refuse = SeccompAction::Errno(EPERM);
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()
}

/// Matches a call whose arguments all compare as given.
fn rule<const N: usize>(
    conditions: [(u8, SeccompCmpOp, u64); N],
) -> Result<SeccompRule, BackendError> {
    let condition = |(argument, operator, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    SeccompRule::new(
        conditions
            .into_iter()
            .map(condition)
            .collect::<Result<_, _>>()?,
    )
}

/// Calls whose second argument is one of these.
fn commands(commands: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    let rules = commands
        .iter()
        .map(|command| rule([(1, SeccompCmpOp::Eq, *command)]));
    rules.collect()
}

fn namespaces() -> Result<Vec<SeccompRule>, BackendError> {
    let flags = NAMESPACES.map(|flag| u64::from(flag.unsigned_abs()));
    let rules = flags.map(|flag| rule([(0, SeccompCmpOp::MaskedEq(flag), flag)]));
    rules.into_iter().collect()
}

/// Pairs of datagram sockets: such a socket can be connected once more, to any Unix socket.
fn datagrams() -> Result<Vec<SeccompRule>, BackendError> {
    let kind = |value: i32| {
        let operator = SeccompCmpOp::MaskedEq(SOCKET_KIND_MASK);
        rule([(1, operator, value.unsigned_abs().into())])
    };
    let connected = [SOCK_STREAM, SOCK_SEQPACKET];
    (1..=10)
        .filter(|value| !connected.contains(value))
        .map(kind)
        .collect()
}

/// Sockets of other families than the internet's, and of its rarer protocols: one of them, MPTCP,
/// reaches TCP ports past Landlock.
fn not_internet() -> Result<Vec<SeccompRule>, BackendError> {
    let none_of = |argument: u8, values: &[i32]| {
        let condition = |value: &i32| {
            let value = u64::from(value.unsigned_abs());
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
        };
        SeccompRule::new(values.iter().map(condition).collect::<Result<_, _>>()?)
    };
    Ok(vec![
        none_of(0, &[AF_INET, AF_INET6])?,
        none_of(2, &[0, IPPROTO_TCP, IPPROTO_UDP])?,
    ])
}

/// The steps before the rules: for `clone3`, and for x32 numbers, which to a filter are of this
/// architecture.
fn beginning() -> BpfProgram {
    let end = |action| step(libc::BPF_RET | libc::BPF_K, 0, action);
    let mut steps = vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        unless(libc::BPF_JEQ, libc::SYS_clone3 as u32),
        end(libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
    ];
    if cfg!(target_arch = "x86_64") {
        steps.extend([unless(libc::BPF_JGE, X32), end(REFUSE)]);
    }
    steps
}

/// Passes over the next step, unless the call's number compares as given.
fn unless(comparison: u32, number: u32) -> sock_filter {
    step(libc::BPF_JMP | comparison | libc::BPF_K, 1, number)
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

/// Every call that is refused, whatever its arguments or with some.
fn refused_calls() -> impl Iterator<Item = &'static (&'static str, i64)> {
    let whole = REFUSED.iter().chain(REFUSED_HERE).chain(REFUSED_YOUNGER);
    whole.chain(REFUSED_IN_PART)
}

/// Returns the name of a refused call.
pub(super) fn name(number: i64) -> &'static str {
    match refused_calls().find(|(_, known)| *known == number) {
        Some((name, _)) => name.trim_start_matches("SYS_").trim_start_matches('_'),
        None if number >= i64::from(X32) => "x32",
        None => "other",
    }
}

/// Returns whether a refused call tells nothing: the C library asks for a service that caches names
/// in this very way whenever a program looks a user up, and does without.
pub(super) fn is_harmless(number: i64, arguments: [u64; 2]) -> bool {
    let kind = SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let asked = [libc::AF_UNIX, kind].map(|value| u64::from(value.unsigned_abs()));
    number == libc::SYS_socket && arguments == asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refused_call_has_a_name_of_its_own() {
        let mut names: Vec<&str> = refused_calls().map(|(_, number)| name(*number)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), refused_calls().count());
        assert_eq!((name(libc::SYS_read), name(0x4000_0000)), ("other", "x32"));
    }

    #[test]
    fn a_filter_that_is_listened_to_refuses_nothing_by_itself() {
        let refusals = Refusals {
            network: true,
            ports: false,
        };
        let plain = filter(refusals).unwrap();
        let asking = with_listener(&plain);
        let count = |program: &BpfProgram, action| {
            let is_it = |step: &&sock_filter| is_return(step) && step.k == action;
            program.iter().filter(is_it).count()
        };
        assert_eq!(count(&asking, REFUSE), 0);
        let asked = count(&asking, libc::SECCOMP_RET_USER_NOTIF);
        assert_eq!(asked, count(&plain, REFUSE));
        assert!(asked > REFUSED.len());
    }
}
