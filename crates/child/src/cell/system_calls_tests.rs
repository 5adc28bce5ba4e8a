//! Tests of [`super`]: the filter's decisions, interpreted as by the kernel.

use std::collections::BTreeSet;

use super::*;

const MISSING_ERRNO: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

fn spec(network: bool, system_calls: &[&str]) -> CellSpec {
    CellSpec {
        network,
        system_calls: system_calls.iter().map(|name| (*name).into()).collect(),
        ..CellSpec::default()
    }
}

/// Interprets a filter for a call on this architecture, as the kernel does.
fn interpret(filter: &BpfProgram, number: u32, arguments: &[u32]) -> u32 {
    let (mut at, mut value) = (0, 0);
    // The first steps compare the architecture.
    let architecture = filter[1].k;
    let argument = |offset: u32| {
        let (index, half) = ((offset - 16) / 8, (offset - 16) % 8);
        let given = arguments.get(index as usize).copied();
        given.filter(|_| half == 0).unwrap_or_default()
    };
    loop {
        let step = &filter[at];
        let jump = |is: bool| usize::from(if is { step.jt } else { step.jf });
        at += 1;
        match u32::from(step.code) {
            code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                value = match step.k {
                    0 => number,
                    4 => architecture,
                    offset => argument(offset),
                }
            }
            code if code == libc::BPF_ALU | libc::BPF_AND => value &= step.k,
            code if code == libc::BPF_JMP | libc::BPF_JA => at += step.k as usize,
            code if code == libc::BPF_JMP | libc::BPF_JEQ => at += jump(value == step.k),
            code if code == libc::BPF_JMP | libc::BPF_JGT => at += jump(value > step.k),
            code if code == libc::BPF_JMP | libc::BPF_JGE => at += jump(value >= step.k),
            code if code == libc::BPF_RET => return step.k,
            code => panic!("unexpected instruction {code:#x}"),
        }
    }
}

#[test]
fn a_system_call_is_in_one_table_only() {
    let in_part = in_part().unwrap();
    let in_part: Vec<Sysno> = in_part.into_iter().map(|(call, _)| call).collect();
    let tables = [ALLOWED, ALLOWED_HERE, OF_NETWORK, MISSING, &in_part];
    let mut seen = BTreeSet::new();
    for call in tables.into_iter().flatten() {
        assert!(seen.insert(*call), "{call}");
    }
}

#[test]
fn the_filter_decides_each_call_number_by_the_tables() {
    let plain = filter(&spec(false, &[]), Guarded::default()).unwrap();
    let in_part = in_part().unwrap();
    for number in 0..=Sysno::last().id() as u32 + 100 {
        let call = Sysno::new(number as usize);
        let is_in = |table: &[Sysno]| call.is_some_and(|call| table.contains(&call));
        if in_part.iter().any(|(other, _)| Some(*other) == call) {
            continue;
        }
        let expected = if is_in(ALLOWED) || is_in(ALLOWED_HERE) {
            libc::SECCOMP_RET_ALLOW
        } else if is_in(MISSING) || number > Sysno::last().id() as u32 {
            MISSING_ERRNO
        } else {
            REFUSE
        };
        assert_eq!(interpret(&plain, number, &[]), expected, "{number}");
    }
    #[cfg(target_arch = "x86_64")]
    assert_eq!(interpret(&plain, X32 | 39, &[]), REFUSE);
}

/// A call with allowed arguments, and with refused ones.
type Decision<'a> = (Sysno, &'a [u32], &'a [u32]);

fn assert_decides(filter: &BpfProgram, cases: &[Decision<'_>]) {
    for (call, allowed, refused) in cases {
        let of = |arguments: &[u32]| interpret(filter, call.id() as u32, arguments);
        assert_eq!(of(allowed), libc::SECCOMP_RET_ALLOW, "{call} {allowed:?}");
        assert_eq!(of(refused), REFUSE, "{call} {refused:?}");
    }
}

#[test]
fn a_call_with_allowed_and_refused_uses_is_decided_by_its_arguments() {
    let of = |number: i32| number as u32;
    let (namespace, old) = ([of(libc::CLONE_NEWUSER)], [of(libc::CLONE_VM)]);
    let (gets_flags, sets_owner) = ([0, of(libc::F_GETFL)], [0, of(libc::F_SETOWN)]);
    let (gets_settings, injects_input) = ([0, libc::TCGETS as u32], [0, libc::TIOCSTI as u32]);
    let (sets_name, sets_filter) = ([of(libc::PR_SET_NAME)], [of(libc::PR_SET_SECCOMP)]);
    let huge = [0, 4096, 3, 0x22 | of(libc::MAP_HUGETLB)];
    let cases: &[Decision<'_>] = &[
        (Sysno::clone, &old, &namespace),
        (Sysno::mmap, &[0, 4096, 3, 0x22], &huge),
        (Sysno::fcntl, &gets_flags, &sets_owner),
        (Sysno::ioctl, &gets_settings, &injects_input),
        (Sysno::prctl, &sets_name, &sets_filter),
        (Sysno::prlimit64, &[0, 7, 1], &[1, 7, 0]),
        (Sysno::setpriority, &[0, 0, 5], &[0, 1, 5]),
        (Sysno::setpriority, &[0, 0, 5], &[1, 0, 5]),
        (Sysno::fadvise64, &[0, 0, 0, 2], &[0, 0, 0, 4]),
    ];
    assert_decides(
        &filter(&spec(false, &[]), Guarded::default()).unwrap(),
        cases,
    );
    let guarded = Guarded {
        mapped_memory: true,
        ..Guarded::default()
    };
    let counted = filter(&spec(false, &[]), guarded).unwrap();
    assert_decides(&counted, cases);
    let shared = [0, 4096, 3, 0x21];
    let memory: &[Decision<'_>] = &[
        (Sysno::mmap, &[0, 4096, 3, 0x01], &shared),
        (Sysno::mmap, &[0, 4096, 3, 0x02], &[0, 4096, 3, 0x23]),
    ];
    assert_decides(&counted, memory);
}

#[test]
fn socket_pairs_are_allowed_and_internet_sockets_only_with_a_network() {
    let plain = filter(&spec(false, &[]), Guarded::default()).unwrap();
    let guarded = Guarded {
        ports: true,
        ..Guarded::default()
    };
    let open = filter(&spec(true, &[]), guarded).unwrap();
    let (stream, datagram) = (SOCK_STREAM as u32, libc::SOCK_DGRAM as u32);
    let (unix, internet) = (AF_UNIX as u32, AF_INET as u32);
    let close_on_exec = stream | libc::SOCK_CLOEXEC as u32;
    let pairs: &[Decision<'_>] = &[
        (Sysno::socketpair, &[unix, stream], &[unix, datagram]),
        (
            Sysno::socketpair,
            &[unix, close_on_exec],
            &[internet, stream],
        ),
    ];
    assert_decides(&plain, pairs);
    assert_decides(&open, pairs);
    for call in [Sysno::socket, Sysno::connect, Sysno::sendmsg] {
        assert_eq!(
            interpret(&plain, call.id() as u32, &[internet, stream]),
            REFUSE
        );
    }
    let fast_open = libc::MSG_FASTOPEN as u32;
    let sockets: &[Decision<'_>] = &[
        (Sysno::socket, &[internet, stream], &[unix, stream]),
        (
            Sysno::socket,
            &[internet, stream, 6],
            &[internet, stream, 262],
        ),
        (Sysno::sendto, &[0; 4], &[0, 0, 0, fast_open]),
        (Sysno::sendmsg, &[0; 3], &[0, 0, fast_open]),
    ];
    assert_decides(&open, sockets);
    for call in [Sysno::bind, Sysno::listen, Sysno::accept4] {
        assert_eq!(interpret(&open, call.id() as u32, &[0, 0]), REFUSE);
    }
}

#[test]
fn the_configuration_adds_calls_by_name() {
    let more = filter(
        &spec(false, &["inotify_init1", "fcntl", "no_call"]),
        Guarded::default(),
    )
    .unwrap();
    let of = |call: Sysno, arguments| interpret(&more, call.id() as u32, arguments);
    assert_eq!(of(Sysno::inotify_init1, &[]), libc::SECCOMP_RET_ALLOW);
    let lease = [0, libc::F_SETLEASE as u32];
    assert_eq!(of(Sysno::fcntl, &lease), libc::SECCOMP_RET_ALLOW);
    assert_eq!(of(Sysno::inotify_add_watch, &[]), REFUSE);
    assert!(is_system_call("inotify_init1") && !is_system_call("no_call"));
}

#[test]
fn refused_calls_have_names() {
    let names = [Sysno::listmount.id().into(), X32.into(), 400].map(name);
    assert_eq!(names, ["listmount", "x32", "other"]);
}

#[test]
fn a_filter_with_a_listener_refuses_nothing_by_itself() {
    let plain = filter(&spec(true, &[]), Guarded::default()).unwrap();
    let listened = with_listener(&plain);
    let count = |program: &BpfProgram, action| {
        let is_it = |step: &&sock_filter| is_return(step) && step.k == action;
        program.iter().filter(is_it).count()
    };
    assert_eq!(count(&listened, REFUSE), 0);
    let notified = count(&listened, libc::SECCOMP_RET_USER_NOTIF);
    assert!(notified == count(&plain, REFUSE) && notified > 0);
    let missing = count(&plain, MISSING_ERRNO);
    assert!(missing == count(&listened, MISSING_ERRNO) && missing > 0);
}
