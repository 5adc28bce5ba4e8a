//! Bombs: no function exhausts the machine. Limits on a cell as a whole require a cgroup or namespaces.

use super::attempt::{Group, attempts};

pub const PROCESSES: Group = Group {
    source: include_str!("bombs.py"),
    layer: "process_count",
    network: false,
};

pub const MEMORY: Group = Group {
    layer: "memory",
    ..PROCESSES
};

pub const FILES: Group = Group {
    layer: "files",
    ..PROCESSES
};

pub mod processes {
    use super::{PROCESSES, attempts};

    attempts! { PROCESSES;
        cannot_start_processes_without_limit;
        cannot_start_daemons_without_limit;
        cannot_start_threads_without_limit;
    }
}

pub mod memory {
    use super::{MEMORY, attempts};

    attempts! { MEMORY;
        cannot_take_memory_without_limit.may_end_it();
        cannot_take_shared_memory_without_limit.may_end_it();
        cannot_take_heap_memory_without_limit.may_end_it();
        cannot_take_memory_with_many_processes.may_end_it();
        cannot_take_memory_by_memory_files.may_end_it();
    }
}

pub mod files {
    use super::{FILES, attempts};

    attempts! { FILES;
        cannot_open_descriptors_without_limit;
        cannot_fill_the_disk;
    }
}
