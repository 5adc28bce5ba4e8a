//! What uses of processes cost in processor time, for tenants that have a share of it (`cpu_share`).
//!
//! SUMMARY   What a process has used is read when it is lent, or begins to learn, for such a tenant, when that is
//!           over, and when it works for the next one. The core is told the differences: what runs on after a use, and
//!           at rest, is charged to that tenant too.
//! PROMISES  Nothing is read, and nothing kept, for tenants without a share.
//! SOURCE    None.
//! LIMITS    Of a process within this program nothing is known. A use is charged when it is over, not before.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;

use super::ProcManager;
use policy::pool::{Event, ProcId, TenantBound};

/// What a process does, or did last, for a tenant that has a share.
pub(super) struct Meter {
    db: Arc<str>,
    /// What the process had used when that was charged last.
    before: Duration,
}

impl ProcManager {
    /// A process begins to work for this database.
    pub(super) fn begin_cost(
        &mut self,
        proc: ProcId,
        db: Option<Arc<str>>,
        ctx: &mut Context<Self>,
    ) {
        if let Some(rest) = self.take_charge(proc) {
            // The turn at hand is not over.
            ctx.run_later(Duration::ZERO, |manager, ctx| manager.event(rest, ctx));
        }
        self.meters.remove(&proc);
        let rules = &self.settings.tenants;
        if let Some(db) = db.filter(|_| rules.has_shares())
            && rules.bound(&db, TenantBound::CpuShare).is_some()
            && let Some(process) = self.procs.get(&proc)
            && let Some(before) = process.shared.cpu_time()
        {
            self.meters.insert(proc, Meter { db, before });
        }
    }

    /// Charges the last tenant of a process for the processor time used so far. Called before the core learns that the
    /// use is over.
    pub(super) fn charge(&mut self, proc: ProcId, ctx: &mut Context<Self>) {
        if let Some(charge) = self.take_charge(proc) {
            self.event(charge, ctx);
        }
    }

    fn take_charge(&mut self, proc: ProcId) -> Option<Event> {
        let meter = self.meters.get_mut(&proc)?;
        let after = self.procs.get(&proc)?.shared.cpu_time()?;
        let cost = after.saturating_sub(meter.before);
        meter.before = after.max(meter.before);
        let db = Arc::clone(&meter.db);
        (!cost.is_zero()).then_some(Event::Charge { db, cost })
    }
}
