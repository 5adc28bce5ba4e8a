//! Limits of a command that the system enforces for each process or user (`setrlimit`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::CellSpec;

/// Maximum descriptors of a process.
const DESCRIPTORS_MAX: u64 = 256;

/// Maximum pending signals of a cell's user, including timers. If the cell's user comes from the subordinate ids
/// (`/etc/subuid`), they are also charged to the service's user.
const SIGNALS_MAX: u64 = 256;

/// Which limits apply here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counting {
    /// The memory limit applies: no control group limits memory.
    pub memory: bool,
    /// The process limit applies, and counts only this cell's processes.
    pub processes: bool,
}

/// Limits this process and its descendants.
///
/// # Errors
/// The system refuses.
pub(super) fn apply(spec: &CellSpec, counting: Counting) -> rustix::io::Result<()> {
    limit(Resource::Fsize, 0)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Nofile, DESCRIPTORS_MAX)?;
    limit(Resource::Sigpending, SIGNALS_MAX)?;
    if counting.memory && spec.memory_max > 0 {
        limit(Resource::Data, spec.memory_max)?;
    }
    if counting.processes && spec.processes_max > 0 {
        limit(Resource::Nproc, u64::from(spec.processes_max) + 1)?;
    }
    Ok(())
}

/// Lowers a limit to `most`; keeps a lower one.
fn limit(resource: Resource, most: u64) -> rustix::io::Result<()> {
    let lowest = |now: Option<u64>| Some(now.map_or(most, |now| now.min(most)));
    let now = getrlimit(resource);
    let both = Rlimit {
        current: lowest(now.current),
        maximum: lowest(now.maximum),
    };
    setrlimit(resource, both)
}
