//! The system calls that no external command needs, and the filters that refuse them.
//!
//! SUMMARY   [`filter`] refuses what reaches other processes, the kernel's own settings, namespaces, System V
//!           IPC, and sockets. Everything else is allowed: a command may be any program.
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
    SYS_quotactl SYS_quotactl_fd SYS_swapon SYS_swapoff SYS_vhangup
    // Keys.
    SYS_add_key SYS_request_key SYS_keyctl
    // Namespaces and mounts.
    SYS_unshare SYS_setns SYS_chroot SYS_pivot_root SYS_mount SYS_umount2 SYS_move_mount
    SYS_open_tree SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr
    SYS_sethostname SYS_setdomainname
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
];

#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[(&str, i64)] = &[];

/// `open_tree_attr`, which has one number on all architectures.
const OPEN_TREE_ATTR: i64 = 467;

/// Calls that are refused with some arguments.
const REFUSED_IN_PART: &[(&str, i64)] =
    calls![SYS_clone SYS_socket SYS_socketpair SYS_sendto SYS_sendmsg SYS_sendmmsg];

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

/// What a filter takes from a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusals {
    /// Whether it has no sockets at all, rather than those of the internet.
    pub network: bool,
    /// Whether Landlock guards ports, so that no call may connect around it.
    pub ports: bool,
}

/// Makes the filter that refuses calls. `notified` is whether somebody listens and refuses; without it the
/// system refuses by itself.
///
/// # Errors
/// The architecture is not known.
pub(super) fn filter(refusals: Refusals, notified: bool) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let whole = REFUSED
        .iter()
        .chain(REFUSED_HERE)
        .map(|(_, number)| *number);
    rules.extend(whole.map(|number| (number, Vec::new())));
    rules.insert(OPEN_TREE_ATTR, Vec::new());
    rules.insert(libc::SYS_clone, namespaces()?);
    rules.insert(libc::SYS_socketpair, datagrams()?);
    if refusals.network {
        rules.insert(libc::SYS_socket, Vec::new());
    } else {
        rules.insert(libc::SYS_socket, not_internet()?);
    }
    if refusals.ports {
        // Connects without `connect`, past Landlock.
        for (call, flags) in [
            (libc::SYS_sendto, 3),
            (libc::SYS_sendmsg, 2),
            (libc::SYS_sendmmsg, 3),
        ] {
            let fast_open = libc::MSG_FASTOPEN as u64;
            rules.insert(
                call,
                vec![rule([(
                    flags,
                    SeccompCmpOp::MaskedEq(fast_open),
                    fast_open,
                )])?],
            );
        }
    }
    let action = SeccompAction::Errno(EPERM);
    let mut program = x32();
    program.extend(compile(rules, action)?);
    if notified {
        let refusing = program
            .iter_mut()
            .filter(|step| is_return(step) && step.k == REFUSE);
        refusing.for_each(|step| step.k = libc::SECCOMP_RET_USER_NOTIF);
    }
    Ok(program)
}

/// Makes the filter that hides calls.
///
/// # Errors
/// The architecture is not known.
pub(super) fn hiding_filter() -> Result<BpfProgram, BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    compile(rules, SeccompAction::Errno(libc::ENOSYS as u32))
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    action: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, action, architecture)?.try_into()
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

/// The steps before a filter that refuse x32 numbers, which are not another architecture to it.
fn x32() -> BpfProgram {
    let step = |code: u32, jt, jf, k| sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load_number = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0);
    let is_x32 = step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32);
    let refuse = step(libc::BPF_RET | libc::BPF_K, 0, 0, REFUSE);
    match cfg!(target_arch = "x86_64") {
        true => vec![load_number, is_x32, refuse],
        false => Vec::new(),
    }
}

fn is_return(step: &sock_filter) -> bool {
    u32::from(step.code) == libc::BPF_RET | libc::BPF_K
}

/// Returns the name of a refused call.
pub(crate) fn name(number: i64) -> &'static str {
    let known = [REFUSED, REFUSED_HERE, REFUSED_IN_PART].concat();
    let found = known.iter().find(|(_, known)| *known == number);
    match found {
        Some((name, _)) => name.trim_start_matches("SYS_").trim_start_matches('_'),
        None if number == OPEN_TREE_ATTR => "open_tree_attr",
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

/// Returns the name as one of the fixed set; a name that is none of them is `other`.
pub(crate) fn known_name(text: &str) -> &'static str {
    let calls = [REFUSED, REFUSED_HERE, REFUSED_IN_PART].concat();
    let mut names = calls.iter().map(|(_, number)| name(*number));
    let rare = ["open_tree_attr", "x32"];
    let found = names.find(|name| *name == text);
    found
        .or_else(|| rare.into_iter().find(|name| *name == text))
        .unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refused_call_has_a_name_of_its_own() {
        let calls = [REFUSED, REFUSED_HERE, REFUSED_IN_PART].concat();
        let mut names: Vec<&str> = calls.iter().map(|(_, number)| name(*number)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), calls.len());
        assert_eq!((name(libc::SYS_read), name(0x4000_0000)), ("other", "x32"));
        assert_eq!(known_name("ptrace"), "ptrace");
        assert_eq!(known_name("x".repeat(100).as_str()), "other");
    }

    #[test]
    fn a_filter_that_is_listened_to_refuses_nothing_by_itself() {
        let refusals = Refusals {
            network: true,
            ports: false,
        };
        let count = |notified, action| {
            let program = filter(refusals, notified).unwrap();
            program
                .iter()
                .filter(|step| is_return(step) && step.k == action)
                .count()
        };
        assert_eq!(count(true, REFUSE), 0);
        assert_eq!(
            count(true, libc::SECCOMP_RET_USER_NOTIF),
            count(false, REFUSE)
        );
    }
}
