//! The system's report on this process: processor time, memory, descriptors, threads.
//!
//! SOURCE    The metrics `process_*` of Prometheus' client libraries.
//! PROMISES  The service can always read its own values, even if other processes may not (it is not dumpable).
//! LIMITS    Linux: values missing in `/proc` have no sample. Excludes children. Walking over the list of open files
//!           takes a while if there are many: do not do it on an event loop.

use std::fs;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::definition::metrics;
use super::snapshot::Snapshot;
use child::usage::{Stat, status_bytes};

/// Ticks per second of times in `/proc`. A constant of Linux, on every processor that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// The process's start, in seconds since 1970. Read once, so that it does not change with the machine's clock.
static STARTED: LazyLock<Option<f64>> = LazyLock::new(|| {
    let since_boot = stat()?.started_ticks as f64 / TICKS_PER_SECOND;
    let running = seconds(clock_gettime(ClockId::Boottime)) - since_boot;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Some(now.unwrap_or_default().as_secs_f64() - running)
});

metrics! {
    /// The time since the start, and the metrics of Prometheus' client libraries for a process.
    pub(super) const ROWS;

    /// Time since the service started
    Gauge("", "couchdb_uptime_seconds");
    /// Processor time of the service, without its children
    Counter("settee.process_cpu_time", "process_cpu_seconds_total");
    /// Resident memory of the service, without its children
    Gauge("settee.process_resident_memory", "process_resident_memory_bytes");
    /// Address space of the service
    Gauge("settee.process_virtual_memory", "process_virtual_memory_bytes");
    /// Open file descriptors of the service
    Gauge("settee.process_open_fds", "process_open_fds");
    /// Limit of open file descriptors
    Gauge("settee.process_max_fds", "process_max_fds");
    /// Threads of the service
    Gauge("settee.process_threads", "process_threads");
    /// When the service started, in seconds since 1970
    Gauge("settee.start_time", "process_start_time_seconds");
}

pub(super) fn gather(to: &mut Snapshot) {
    to.add(
        "process_cpu_seconds_total",
        &[],
        seconds(clock_gettime(ClockId::ProcessCPUTime)),
    );
    if let Some(started) = *STARTED {
        to.add("process_start_time_seconds", &[], started);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    // Reading the directory opens one more descriptor.
    let open = fs::read_dir("/proc/self/fd").map(|files| (files.count() as u64).saturating_sub(1));
    for (name, number) in [
        (
            "process_resident_memory_bytes",
            status_bytes(&status, "VmRSS:"),
        ),
        (
            "process_virtual_memory_bytes",
            status_bytes(&status, "VmSize:"),
        ),
        ("process_threads", stat().map(|stat| stat.threads.into())),
        ("process_open_fds", open.ok()),
        ("process_max_fds", getrlimit(Resource::Nofile).current),
    ] {
        if let Some(number) = number {
            to.add(name, &[], number);
        }
    }
}

fn seconds(time: Timespec) -> f64 {
    Duration::try_from(time).unwrap_or_default().as_secs_f64()
}

fn stat() -> Option<Stat> {
    Stat::parse(&fs::read_to_string("/proc/self/stat").ok()?)
}
