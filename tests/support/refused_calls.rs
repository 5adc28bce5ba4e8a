//! System calls that fail for a program, as on a machine that lacks them or their resources.

use std::thread;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Runs `act` on a thread that, like its children, gets `errno` from the system calls of these rules.
pub fn under<T: Send>(
    rules: Vec<(i64, Vec<SeccompRule>)>,
    errno: i32,
    act: impl FnOnce() -> T + Send,
) -> T {
    let filter = SeccompFilter::new(
        rules.into_iter().collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    thread::scope(|scope| {
        let acts = scope.spawn(|| {
            seccompiler::apply_filter(&program).unwrap();
            act()
        });
        acts.join().unwrap()
    })
}

/// Runs `act` on a thread that, like its children, has no `epoll` watch left for descriptors from this number on.
pub fn without_watches_from<T: Send>(descriptor: u64, act: impl FnOnce() -> T + Send) -> T {
    let condition = |argument, operator, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).unwrap()
    };
    let add = u64::from(libc::EPOLL_CTL_ADD.unsigned_abs());
    let rule = SeccompRule::new(vec![
        condition(1, SeccompCmpOp::Eq, add),
        condition(2, SeccompCmpOp::Ge, descriptor),
    ]);
    under(
        vec![(libc::SYS_epoll_ctl, vec![rule.unwrap()])],
        libc::ENOSPC,
        act,
    )
}
