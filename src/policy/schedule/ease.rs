//! What a job that was told to slow down does with less of.
//!
//! SOURCE    couch_replicator_scheduler 004: maybe_optimize_job_for_rate_limiting,
//!           optimize_int_option.

/// The options of a job that are lowered after it gave up on a server that limits its rate. None is
/// an option that the job does not set itself; it stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// `checkpoint_interval`, in milliseconds.
    pub checkpoint_interval: Option<u64>,
    /// `worker_processes`.
    pub worker_processes: Option<u64>,
    /// `worker_batch_size`, in documents.
    pub worker_batch_size: Option<u64>,
    /// `http_connections`.
    pub http_connections: Option<u64>,
}

/// An option that was lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// Its name.
    pub option: &'static str,
    /// What it was.
    pub from: u64,
    /// What it is.
    pub to: u64,
}

impl Tuning {
    /// Lowers what is set and is larger than what a rate-limited job should use. Returns what was
    /// lowered, for the log.
    pub fn ease(&mut self) -> Vec<Lowered> {
        let options = [
            ("checkpoint_interval", &mut self.checkpoint_interval, 5000),
            ("worker_processes", &mut self.worker_processes, 2),
            ("worker_batch_size", &mut self.worker_batch_size, 100),
            ("http_connections", &mut self.http_connections, 5),
        ];
        let lower = |(option, value, to): (_, &mut Option<u64>, u64)| {
            let from = value.filter(|from| *from > to)?;
            *value = Some(to);
            Some(Lowered { option, from, to })
        };
        options.into_iter().filter_map(lower).collect()
    }
}
