//! Signals, tracing, priorities and rights: a cell reaches no process outside, and gains no right.

use super::attempt::{Group, attempts};

pub const GROUP: Group = Group {
    source: include_str!("processes.py"),
    layer: "signals",
    network: false,
};

attempts! { GROUP;
    cannot_signal_the_service;
    cannot_signal_a_neighbour;
    cannot_signal_the_group_of_the_service;
    cannot_signal_every_process;
    cannot_signal_a_thread_of_the_service;
    cannot_queue_a_signal_to_a_neighbour;
    cannot_signal_the_service_by_a_handle;
    cannot_stop_a_neighbour;
    cannot_have_the_kernel_signal_a_neighbour;
    cannot_attach_to_the_service;
    cannot_attach_to_a_neighbour;
    cannot_attach_to_a_process_of_its_own;
    cannot_have_itself_traced;
    cannot_copy_memory_out_of_the_service;
    cannot_copy_memory_into_a_neighbour;
    cannot_take_a_handle_on_the_service;
    cannot_take_a_descriptor_of_the_service;
    cannot_take_a_descriptor_through_a_handle;
    cannot_compare_itself_with_the_service;
    cannot_find_the_locks_of_the_service;
    cannot_read_the_limits_of_the_service;
    cannot_change_the_priority_of_a_neighbour;
    cannot_change_the_disk_priority_of_a_neighbour;
    cannot_bind_a_neighbour_to_a_processor;
    cannot_change_how_a_neighbour_is_scheduled;
    cannot_move_the_memory_of_a_neighbour;
    cannot_look_up_the_group_of_the_service;
    cannot_become_root;
    cannot_become_another_user;
    cannot_take_another_group;
    cannot_become_another_user_with_su;
    cannot_mount_with_the_mount_program;
    cannot_get_capabilities;
    cannot_resume_itself_with_a_timer;
    cannot_keep_capabilities_for_programs;
    cannot_raise_its_limit_of_files;
    cannot_raise_its_limit_of_written_bytes;
    cannot_raise_its_limit_of_core_dumps;
    cannot_raise_its_own_priority;
    cannot_run_in_real_time;
    cannot_raise_its_disk_priority;
    cannot_type_into_a_terminal;
}
