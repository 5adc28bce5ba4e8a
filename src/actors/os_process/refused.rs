//! Counts system calls that a child's cell refused, and logs them within the child's log bounds.

use actix::prelude::*;
use bytes::Bytes;

use super::OsProcess;
use child::cell::report::Reports;

/// A report of the launcher.
pub(super) struct ReportChunk(pub(super) Bytes);

impl OsProcess {
    /// Handles reports not read yet.
    pub(super) fn take_last_reports(&mut self) {
        let rest = self.backend.reports.as_mut().map(Reports::take_rest);
        self.tell_refused(rest.unwrap_or_default());
    }

    fn tell_refused(&self, calls: Vec<String>) {
        calls.iter().for_each(|call| self.refused(call));
    }
}

impl StreamHandler<ReportChunk> for OsProcess {
    fn handle(&mut self, chunk: ReportChunk, _: &mut Self::Context) {
        let taken = self
            .backend
            .reports
            .as_mut()
            .map(|reports| reports.take(chunk.0));
        self.tell_refused(taken.unwrap_or_default());
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}
