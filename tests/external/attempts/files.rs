//! Files: a function reads only its program and what that needs, and writes nothing.

use super::attempt::{Group, attempts};

pub const GROUP: Group = Group {
    source: include_str!("files.py"),
    layer: "files",
    network: false,
};

attempts! { GROUP;
    cannot_open_the_password_hashes_of_the_machine;
    cannot_read_the_accounts_of_the_machine;
    cannot_read_the_store;
    cannot_read_the_configuration;
    cannot_read_the_password_of_the_administrator;
    cannot_read_a_neighbours_home;
    cannot_list_a_neighbours_home;
    cannot_list_the_root;
    cannot_run_a_program_from_elsewhere;
    cannot_read_a_device;
    cannot_write_in_the_temporary_folder;
    cannot_write_in_shared_memory;
    cannot_write_beside_its_program;
    cannot_make_an_unnamed_file;
    cannot_append_to_the_configuration;
    cannot_truncate_a_file;
    cannot_remove_a_file;
    cannot_rename_a_file;
    cannot_link_a_file_into_its_folder;
    cannot_make_a_folder;
    cannot_remove_a_folder;
    cannot_make_a_named_pipe;
    cannot_make_a_device;
    cannot_make_a_symbolic_link;
    cannot_follow_a_symbolic_link_to_the_configuration;
    cannot_leave_its_folder_by_a_relative_path;
    cannot_open_a_hidden_file_relative_to_a_folder;
    cannot_change_the_mode_of_a_file;
    cannot_change_the_mode_of_a_file_by_a_descriptor;
    cannot_change_the_mode_of_a_file_by_fchmodat2;
    cannot_change_the_owner_of_a_file;
    cannot_change_the_times_of_a_file;
    cannot_set_an_attribute_of_a_file;
    cannot_remove_an_attribute_of_a_file;
    cannot_change_the_flags_of_a_file;
    cannot_list_the_attributes_of_a_file;
    cannot_watch_a_file;
    cannot_watch_a_folder;
    cannot_lease_a_file_of_its_program;
    cannot_open_a_file_by_its_handle;
    cannot_list_its_own_descriptors;
    cannot_reach_files_through_its_own_root;
    cannot_write_its_own_memory_through_proc;
    cannot_change_its_oom_score;
    cannot_see_other_processes;
    cannot_read_the_environment_of_the_service;
    cannot_read_the_memory_of_the_service;
    cannot_write_the_memory_of_the_service;
    cannot_read_the_memory_map_of_the_service;
    cannot_read_the_command_line_of_the_service;
    cannot_reach_files_through_the_root_of_the_service;
    cannot_reach_files_through_the_folder_of_the_service;
    cannot_find_out_the_working_folder_of_the_service;
    cannot_find_out_what_the_service_has_open;
    cannot_list_the_descriptors_of_the_service;
    cannot_write_into_the_log_of_the_service;
    cannot_change_the_oom_score_of_the_service;
    cannot_change_a_setting_of_the_kernel;
    cannot_move_itself_into_another_cgroup;
}
