//! What uses of processes cost in processor time, for tenants that have a share of it (`cpu_share`).
//!
//! SUMMARY   What a process has used is read when it is lent, or begins to learn, for such a tenant, and when that is
//!           over. The core is told the difference.
//! PROMISES  Nothing is read, and nothing kept, for tenants without a share.
//! SOURCE    None.
//! LIMITS    Of a process within this program nothing is known. A use is charged when it is over, not before.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;

use super::ProcManager;
use policy::pool::{Event, ProcId, TenantBound};

/// What a process does for a tenant that has a share.
pub(super) struct Meter {
    db: Arc<str>,
    /// What the process had used before.
    before: Duration,
}

impl ProcManager {
    /// A process begins to work for this database.
    pub(super) fn begin_cost(&mut self, proc: ProcId, db: Option<Arc<str>>) {
        let rules = &self.settings.tenants;
        if let Some(db) = db.filter(|_| rules.has_shares())
            && rules.bound(&db, TenantBound::CpuShare).is_some()
            && let Some(process) = self.procs.get(&proc)
            && let Some(before) = process.shared.cpu_time()
        {
            self.meters.insert(proc, Meter { db, before });
        }
    }

    /// The work of a process for a tenant is over. Called before the core is told that.
    pub(super) fn end_cost(&mut self, proc: ProcId, ctx: &mut Context<Self>) {
        if self.meters.is_empty() {
            return;
        }
        if let Some(Meter { db, before }) = self.meters.remove(&proc)
            && let Some(process) = self.procs.get(&proc)
            && let Some(after) = process.shared.cpu_time()
        {
            let cost = after.saturating_sub(before);
            self.event(Event::Charge { db, cost }, ctx);
        }
    }
}
