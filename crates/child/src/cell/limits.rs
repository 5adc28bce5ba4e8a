//! Limits of a command that the system enforces for each process or user (`setrlimit`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::CellSpec;
use super::layers::Layer;

/// Maximum descriptors of a process.
const DESCRIPTORS_MAX: u64 = 256;

/// Maximum pending signals of a cell's user, including timers. If the cell's user comes from the subordinate ids
/// (`/etc/subuid`), they are also charged to the service's user.
const SIGNALS_MAX: u64 = 256;

/// Limits this process and its descendants, by all limits that the cell's control group does not hold. The process limit
/// applies only if it counts this cell's processes alone.
///
/// # Errors
/// The system refuses.
pub(super) fn apply(
    spec: &CellSpec,
    held: &[Layer],
    counts_processes: bool,
) -> rustix::io::Result<()> {
    limit(Resource::Fsize, 0)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Nofile, DESCRIPTORS_MAX)?;
    limit(Resource::Sigpending, SIGNALS_MAX)?;
    if spec.memory_max > 0 && !held.contains(&Layer::Memory) {
        limit(Resource::Data, spec.memory_max)?;
    }
    if spec.processes_max > 0 && counts_processes && !held.contains(&Layer::ProcessCount) {
        limit(Resource::Nproc, u64::from(spec.processes_max) + 1)?;
    }
    Ok(())
}

/// Lowers a limit to `most`; keeps a lower one.
pub(super) fn limit(resource: Resource, most: u64) -> rustix::io::Result<()> {
    let lowest = |now: Option<u64>| Some(now.map_or(most, |now| now.min(most)));
    let now = getrlimit(resource);
    setrlimit(
        resource,
        Rlimit {
            current: lowest(now.current),
            maximum: lowest(now.maximum),
        },
    )
}
