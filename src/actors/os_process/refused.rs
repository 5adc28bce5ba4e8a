//! Counts system calls that a child's cell refused, and logs them within the child's log bounds.

use actix::prelude::*;
use bytes::Bytes;

use super::OsProcess;

/// A report of the launcher.
pub(super) struct ReportChunk(pub(super) Bytes);

impl OsProcess {
    /// Handles reports not read yet.
    pub(super) fn take_last_reports(&mut self) {
        if let Some(reports) = &mut self.backend.reports {
            reports
                .take_rest()
                .iter()
                .for_each(|call| self.refused(call));
        }
    }
}

impl StreamHandler<ReportChunk> for OsProcess {
    fn handle(&mut self, chunk: ReportChunk, _: &mut Self::Context) {
        if let Some(reports) = &mut self.backend.reports {
            reports
                .take(chunk.0)
                .iter()
                .for_each(|call| self.refused(call));
        }
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}
