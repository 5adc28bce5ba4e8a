//! Whether the memory limit has been reached.
//!
//! SUMMARY   The engine raises `null` when it has no room left for an exception, which a function can
//!           do too; and it does not say afterwards how much it had taken. The system does.
//! SOURCE    `VmHWM` of /proc/self/status: the most memory that the process ever had, in KiB.
//! LIMITS    A function that throws `null` after another one took nearly all memory is mistaken for
//!           one that takes too much. Where there is no /proc, `null` is what a function threw.

use std::fs;

/// The most memory that the process had so far, in bytes.
fn peak_bytes() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// Compares what the process has taken with the limit of an engine.
pub(super) struct Gauge {
    limit_bytes: usize,
    /// What the process had before there was an engine.
    base_bytes: usize,
}

impl Gauge {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Gauge {
            limit_bytes,
            base_bytes: peak_bytes().unwrap_or(0),
        }
    }

    /// Whether an engine may have reached its limit. Room that it reserved and has not written to
    /// yet is no memory of the process, so that three quarters are enough.
    pub(super) fn was_exhausted(&self) -> bool {
        let bytes = self.base_bytes + self.limit_bytes / 4 * 3;
        peak_bytes().is_some_and(|peak| peak >= bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_when_the_process_has_taken_nearly_as_much() {
        let gauge = Gauge::new(64 << 20);
        assert!(!gauge.was_exhausted());
        let taken = vec![1_u8; 60 << 20];
        assert!(gauge.was_exhausted());
        drop(taken);
    }
}
