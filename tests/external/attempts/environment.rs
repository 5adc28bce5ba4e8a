//! Environment and descriptors: nothing is inherited from the service.

use super::attempt::{Group, attempts};

pub const GROUP: Group = Group {
    source: include_str!("environment.py"),
    layer: "environment",
    network: false,
};

attempts! { GROUP;
    cannot_see_a_secret_of_the_services_environment;
    cannot_see_the_library_path_of_the_service;
    cannot_find_the_environment_of_the_service_in_its_own_memory;
    cannot_read_its_initial_environment_through_proc;
    cannot_use_a_descriptor_that_the_service_was_started_with;
}
