//! Limits of a command that the system keeps for each process or user (`setrlimit`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::CellSpec;

/// Most descriptors of a process.
const DESCRIPTORS_MAX: u64 = 256;

/// Most signals that are pending for the user of a cell, timers included. With subordinate numbers they are counted
/// for the service's user as well.
const SIGNALS_MAX: u64 = 256;

/// Which limits count here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counting {
    /// Memory is not limited by a control group.
    pub memory: bool,
    /// The limit of processes counts, and only those of this cell.
    pub processes: bool,
}

/// Limits this process and all that it starts.
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

/// A limit that is lower already stays.
fn limit(resource: Resource, most: u64) -> rustix::io::Result<()> {
    let lowest = |now: Option<u64>| Some(now.map_or(most, |now| now.min(most)));
    let now = getrlimit(resource);
    let both = Rlimit {
        current: lowest(now.current),
        maximum: lowest(now.maximum),
    };
    setrlimit(resource, both)
}
