//! System calls by number, each with harmless arguments that, without a cell, give no error or one other than
//! "not permitted".

use super::attempt::{Group, attempts};

pub const GROUP: Group = Group {
    source: include_str!("system_calls.py"),
    layer: "system_calls",
    network: false,
};

/// An invalid descriptor.
const NO_FILE: i64 = -1;
/// An unused key.
const NO_KEY: i64 = 0x5e77_ee01;
/// A user without processes.
const NO_USER: i64 = 0x5e77_ee01;
/// A command that no call has.
const NO_COMMAND: i64 = 0xff;
/// An option, a command or a request that no call has.
const UNKNOWN: i64 = 0x7777;
/// A request that puts a character into the input of a terminal.
const TIOCSTI: i64 = 0x5412;
/// `MAP_PRIVATE`, `MAP_ANONYMOUS` and `MAP_HUGETLB`.
const OF_HUGE_PAGES: i64 = 0x0004_0022;
/// Affects only the next program that the process executes.
const ADDR_NO_RANDOMIZE: i64 = 0x0004_0000;

attempts! { GROUP;
    cannot_call_ptrace.calls(101, &[NO_COMMAND, 0, 0, 0]);
    cannot_call_process_vm_readv.calls(310, &[1 << 30, 0, 0, 0, 0, 0]);
    cannot_call_process_vm_writev.calls(311, &[1 << 30, 0, 0, 0, 0, 0]);
    cannot_call_process_madvise.calls(440, &[NO_FILE, 0, 0, 0, 0]);
    cannot_call_kcmp.calls(312, &[1 << 30, 1 << 30, 0, 0, 0]);
    cannot_call_pidfd_getfd.calls(438, &[NO_FILE, 0, 0]);
    cannot_call_keyctl.calls(250, &[NO_COMMAND, 0, 0, 0, 0]);
    cannot_call_add_key.calls(248, &[0, 0, 0, 0, 0]);
    cannot_call_request_key.calls(249, &[0, 0, 0, 0]);
    cannot_call_bpf.calls(321, &[NO_COMMAND, 0, 0]);
    cannot_call_perf_event_open.calls(298, &[0, 0, -1, NO_FILE, 0]);
    cannot_call_userfaultfd.calls(323, &[NO_COMMAND]);
    cannot_call_io_uring_setup.calls(425, &[1, 0]);
    cannot_call_io_uring_enter.calls(426, &[NO_FILE, 0, 0, 0, 0, 0]);
    cannot_call_io_uring_register.calls(427, &[NO_FILE, 0, 0, 0]);
    cannot_call_name_to_handle_at.calls(303, &[NO_FILE, 0, 0, 0, 0]);
    cannot_call_open_by_handle_at.calls(304, &[NO_FILE, 0, 0]);
    cannot_call_mount.calls(165, &[0, 0, 0, 0, 0]);
    cannot_call_umount2.calls(166, &[0, 0]);
    cannot_call_pivot_root.calls(155, &[0, 0]);
    cannot_call_chroot.calls(161, &[0]);
    cannot_call_fsopen.calls(430, &[0, 0]);
    cannot_call_fsconfig.calls(431, &[NO_FILE, 0, 0, 0, 0]);
    cannot_call_fsmount.calls(432, &[NO_FILE, 0, 0]);
    cannot_call_fspick.calls(433, &[NO_FILE, 0, 0]);
    cannot_call_open_tree.calls(428, &[NO_FILE, 0, 0]);
    cannot_call_move_mount.calls(429, &[NO_FILE, 0, NO_FILE, 0, 0]);
    cannot_call_mount_setattr.calls(442, &[NO_FILE, 0, 0, 0, 0]);
    cannot_call_unshare.calls(272, &[0x0002_0000 | 1]);
    cannot_call_setns.calls(308, &[NO_FILE, 0]);
    cannot_call_kexec_load.calls(246, &[0, 17, 0, 0]);
    cannot_call_kexec_file_load.calls(320, &[NO_FILE, NO_FILE, 0, 0, 0]);
    cannot_call_init_module.calls(175, &[0, 0, 0]);
    cannot_call_finit_module.calls(313, &[NO_FILE, 0, 0]);
    cannot_call_delete_module.calls(176, &[0, 0]);
    cannot_call_shmget.calls(29, &[NO_KEY, 0, 0]);
    cannot_call_shmat.calls(30, &[-1, 0, 0]);
    cannot_call_shmctl.calls(31, &[-1, NO_COMMAND, 0]);
    cannot_call_semget.calls(64, &[NO_KEY, 0, 0]);
    cannot_call_semop.calls(65, &[-1, 0, 0]);
    cannot_call_semctl.calls(66, &[-1, 0, NO_COMMAND, 0]);
    cannot_call_msgget.calls(68, &[NO_KEY, 0]);
    cannot_call_msgsnd.calls(69, &[-1, 0, 0, 0]);
    cannot_call_msgrcv.calls(70, &[-1, 0, 0, 0, 0]);
    cannot_call_msgctl.calls(71, &[-1, NO_COMMAND, 0]);
    cannot_call_mq_open.calls(240, &[0, 0, 0, 0]);
    cannot_call_mq_unlink.calls(241, &[0]);
    cannot_call_personality.calls(135, &[ADDR_NO_RANDOMIZE]);
    cannot_call_acct.calls(163, &[1]);
    cannot_call_swapon.calls(167, &[0, 0]);
    cannot_call_swapoff.calls(168, &[0]);
    cannot_call_reboot.calls(169, &[0, 0, 0, 0]);
    cannot_call_sethostname.calls(170, &[0, -1]);
    cannot_call_setdomainname.calls(171, &[0, -1]);
    cannot_call_settimeofday.calls(164, &[0, 0]);
    cannot_call_clock_adjtime.calls(305, &[0, 0]);
    cannot_call_adjtimex.calls(159, &[0]);
    cannot_call_syslog.calls(103, &[10, 0, 0]);
    cannot_call_quotactl.calls(179, &[NO_COMMAND, 0, 0, 0]);
    cannot_call_iopl.calls(172, &[0]);
    cannot_call_ioperm.calls(173, &[0, 0, 0]);
    cannot_call_lookup_dcookie.calls(212, &[0, 0, 0]);
    cannot_call_fanotify_init.calls(300, &[0xffff, 0]);
    cannot_call_migrate_pages.calls(256, &[0, 0, 0, 0]);
    cannot_call_listmount.calls(458, &[0, 0, 0, 0]);
    cannot_call_statmount.calls(457, &[0, 0, 0, 0]);
    cannot_call_inotify_init.calls(253, &[]);
    cannot_call_inotify_init1.calls(294, &[0]);
    cannot_call_seccomp.calls(317, &[NO_COMMAND, 0, 0]);
    cannot_call_landlock_create_ruleset.calls(444, &[0, 0, 1]);
    cannot_call_memfd_create.calls(319, &[0, 0]);
    cannot_call_mlock.calls(149, &[0, 0]);
    cannot_call_io_setup.calls(206, &[0, 0]);
    cannot_call_syncfs.calls(306, &[NO_FILE]);
    cannot_call_splice.calls(275, &[NO_FILE, 0, NO_FILE, 0, 0, 0]);
    cannot_call_vmsplice.calls(278, &[NO_FILE, 0, 0, 0]);
    cannot_call_rt_sigqueueinfo.calls(129, &[1 << 30, 0, 0]);
    cannot_call_sched_setaffinity.calls(203, &[0, 0, 0]);
    cannot_call_sched_setscheduler.calls(144, &[0, NO_COMMAND, 0]);
    cannot_call_ioprio_set.calls(251, &[1, 0, 0]);
    cannot_call_set_mempolicy.calls(238, &[0, 0, 0]);
    cannot_call_cachestat.calls(451, &[NO_FILE, 0, 0, 0]);
    cannot_call_setresuid.calls(117, &[-1, -1, -1]);
    cannot_call_fcntl_with_an_unknown_command.calls(72, &[0, UNKNOWN, 0]);
    cannot_call_ioctl_with_an_unknown_request.calls(16, &[0, UNKNOWN, 0]);
    cannot_call_prctl_with_an_unknown_option.calls(157, &[UNKNOWN, 0, 0, 0, 0]);
    cannot_type_into_a_terminal.calls(16, &[0, TIOCSTI, 0]);
    cannot_take_huge_pages.calls(9, &[0, 0, 3, OF_HUGE_PAGES, NO_FILE, 0]);
    cannot_set_the_owner_of_a_descriptor;
    cannot_set_the_signal_of_a_descriptor;
    cannot_enlarge_a_pipe;
    cannot_lock_a_file_of_its_program;
    cannot_lock_a_part_of_a_file_of_its_program;
    cannot_adopt_the_orphans_of_its_cell;
    cannot_change_the_priority_of_all_processes_of_a_user.calls(141, &[2, NO_USER, 0]);
    cannot_make_32_bit_calls.may_end_it();
    cannot_make_x32_calls;
    cannot_make_a_user_namespace;
    cannot_make_a_mount_namespace;
    cannot_make_a_network_namespace;
    cannot_make_a_pid_namespace;
    cannot_clone_into_a_user_namespace;
    cannot_clone_into_a_user_namespace_by_the_newer_call;
    cannot_change_its_root;
    cannot_run_a_program_from_memory;
    cannot_set_the_clock;
}
