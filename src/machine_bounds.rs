//! The machine's resources: memory and file descriptors.
//!
//! SUMMARY   [`memory`] is the machine's memory, or the service's limit if that is less. [`connections_max`] bounds the
//!           connections of one kind by the limit of open files, and [`replication_connections`] those of replications;
//!           [`replications_max`] is the number of replications that these suffice for.
//! LIMITS    Only control groups of version 2 are read: the service's own and its ancestors.

use std::fs;
use std::path::{Path, PathBuf};

use replication::endpoint::ConnectionsMax;
use rustix::process::{Resource, getrlimit};

/// Descriptors reserved for children and the store.
pub(crate) const DESCRIPTORS_RESERVED: usize = 64;

/// Minimum number of connections of a kind: fewer would be useless.
const CONNECTIONS_MIN: usize = 4;

/// The memory that is assumed if the machine does not report it, in bytes.
const MEMORY_UNKNOWN: usize = 1 << 30;

/// Returns the memory that the service may use, in bytes.
pub(crate) fn memory() -> usize {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .as_deref()
        .and_then(total_of);
    let group = fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| group_limit(Path::new("/sys/fs/cgroup"), &text));
    [machine, group]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(MEMORY_UNKNOWN)
}

/// Parses `MemTotal: N kB`.
fn total_of(meminfo: &str) -> Option<usize> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Returns the smallest limit of a control group and its ancestors.
fn group_limit(root: &Path, memberships: &str) -> Option<usize> {
    let path = memberships
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))?;
    let mut group = Some(root.join(path));
    let mut least = None;
    while let Some(at) = group.filter(|at| at.starts_with(root)) {
        let limit = fs::read_to_string(at.join("memory.max")).ok();
        // The word "max" means no limit.
        let limit: Option<usize> = limit.and_then(|text| text.trim().parse().ok());
        least = [least, limit].into_iter().flatten().min();
        group = at.parent().map(PathBuf::from);
    }
    least
}

/// Returns the maximum number of connections of one kind (HTTP, or clients of the sockets): `wanted`, limited to half
/// of the descriptors that are neither in use nor reserved, or to [`CONNECTIONS_MIN`] if that is more.
pub(crate) fn connections_max(wanted: usize) -> usize {
    share(descriptors(), descriptors_in_use(), wanted)
}

/// Returns the service's limit of descriptors.
fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Returns the limits of replication connections if at most this many replications run.
pub(crate) fn replication_connections(replications: usize) -> ConnectionsMax {
    ConnectionsMax {
        feeds: replications,
        descriptors: descriptors().saturating_sub(DESCRIPTORS_RESERVED),
        in_use: descriptors_in_use,
    }
}

/// Returns the number of replications that can run if each keeps a connection open for its feed, and half as many
/// connections are left for other requests.
pub(crate) const fn replications_max(room: &ConnectionsMax) -> usize {
    room.descriptors / 3 * 2
}

/// Returns the number of open descriptors. May run on an actor's thread: the kernel lists them from memory, in about a
/// microsecond for each. Called once for many opened connections.
fn descriptors_in_use() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn share(limit: usize, in_use: usize, wanted: usize) -> usize {
    let left = limit.saturating_sub(in_use + DESCRIPTORS_RESERVED);
    wanted.min((left / 2).max(CONNECTIONS_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_memory_limit_of_a_group_and_its_ancestors_applies() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("a/memory.max"), "419430400\n").unwrap();
        let limit = |text: &str| group_limit(root.path(), text);
        assert_eq!(limit("1:name=x:/\n0::/a/b\n"), Some(419_430_400));
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit("1:memory:/a\n"), None);
    }

    #[test]
    fn two_thirds_of_the_descriptors_are_for_the_feeds_of_replications() {
        let of = |descriptors| {
            replications_max(&ConnectionsMax {
                descriptors,
                ..replication_connections(500)
            })
        };
        assert_eq!(of(960), 640);
        assert_eq!(of(19_936), 13_290);
        assert_eq!(of(0), 0);
        assert!(descriptors_in_use() > 2);
    }

    #[test]
    fn the_machines_memory_is_read() {
        assert_eq!(
            total_of("MemTotal:       2048 kB\nMemFree: 1 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(total_of("nothing"), None);
        assert!(memory() > 1 << 20);
    }

    #[test]
    fn connections_leave_descriptors_for_children_and_the_store() {
        assert_eq!(share(256, 40, 16_384), 76);
        assert_eq!(share(1_000_000, 40, 16_384), 16_384);
        assert_eq!(share(40, 30, 100), CONNECTIONS_MIN);
    }
}
