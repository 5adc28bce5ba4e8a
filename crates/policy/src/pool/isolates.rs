//! The known content of a process's isolates, and the selected one.
//!
//! SUMMARY   A process with isolates knows a bounded set of tenants, each with its design documents: the selected
//!           one, and parked ones. Selecting another parks the current one. A tenant whose processes repeatedly
//!           end while they serve it gets separate ones, so that no other tenant loses its isolates.
//! PROMISES  A process holds at most [`PoolSettings::isolates_max`](super::PoolSettings::isolates_max) tenants
//!           (PM-24). A tenant unknown here gets a new isolate when selected, even if the process still has one.
//! CALLED    By the handlers of one pool's events.
//! SOURCE    None in CouchDB; workerd and isolated-vm keep isolates in one process.

use rustc_hash::FxHashMap;

use super::tables::{Isolate, known};
use super::{Pool, Select, Tenant};
use crate::time::Timestamp;

/// Added to a tenant's score when a process ends while serving it; a successful use subtracts 1.
const END: u32 = 10;

/// The score from which a tenant has separate processes (is apart), until it is back to zero.
const APART_FROM: u32 = 3 * END;

/// Maximum offenders remembered.
const REMEMBERED_MAX: usize = 64;

/// Tenants that processes were serving when they ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offenders(FxHashMap<Tenant, Offender>);

#[derive(Clone, Copy, Debug, Default)]
struct Offender {
    /// The remaining score.
    score: u32,
    is_apart: bool,
}

impl Offenders {
    /// Whether a tenant has separate processes.
    pub fn is_apart(&self, tenant: &Tenant) -> bool {
        self.0.get(tenant).is_some_and(|row| row.is_apart)
    }

    /// Records that a process ended while it served a tenant.
    pub fn note_end(&mut self, tenant: &Tenant) {
        if self.0.len() == REMEMBERED_MAX && !self.0.contains_key(tenant) {
            let rows = self.0.iter().map(|(tenant, row)| (row.score, tenant));
            let least = rows.min().map(|(_, tenant)| tenant.clone());
            least.map(|least| self.0.remove(&least));
        }
        let row = self.0.entry(tenant.clone()).or_default();
        row.score = APART_FROM.min(row.score + END);
        row.is_apart |= row.score == APART_FROM;
    }

    /// Records that a use for a tenant succeeded.
    pub fn note_return(&mut self, tenant: &Tenant) {
        if let Some(row) = self.0.get_mut(tenant) {
            row.score -= 1;
            if row.score == 0 {
                self.0.remove(tenant);
            }
        }
    }
}

impl Pool {
    /// The oldest idle process without a tag, to make room for a tenant with separate processes; `None` for any other
    /// tenant.
    pub fn taken_over_for(&self, tenant: &Tenant) -> Option<u64> {
        let is_apart = self.offenders.is_apart(tenant);
        is_apart.then(|| self.idle.oldest_untagged()).flatten()
    }

    /// Binds a transitioning process to a tenant's isolate, if it has isolates; if there are too many, the least
    /// recently used is evicted. `None`: nothing to select.
    pub fn select(&mut self, number: u64, tenant: &Tenant, now: Timestamp) -> Option<Select> {
        let proc = known(&mut self.procs, number);
        if proc.isolates_max == 0 || proc.tenant.as_ref() == Some(tenant) {
            return None;
        }
        if let Some(before) = proc.tenant.take() {
            proc.parked.push(Isolate {
                tenant: before,
                ddocs: std::mem::take(&mut proc.ddocs),
                left: now,
            });
        }
        let place = proc
            .parked
            .iter()
            .position(|isolate| isolate.tenant == *tenant);
        if let Some(place) = place {
            proc.ddocs = proc.parked.remove(place).ddocs;
        } else {
            self.idle.join(Some(tenant), &[]);
            self.totals.isolates_made += 1;
        }
        proc.tenant = Some(tenant.clone());
        // Selecting resets it.
        proc.left_by = None;
        proc.is_apart = self.offenders.is_apart(tenant);
        let parked = proc.parked.len();
        let evicted = if proc.is_apart {
            parked
        } else {
            usize::from(parked >= proc.isolates_max as usize)
        };
        for isolate in proc.parked.drain(..evicted) {
            self.idle.leave(Some(&isolate.tenant), &isolate.ddocs);
            self.totals.isolates_evicted += 1;
        }
        let (tenant, is_new) = (tenant.clone(), place.is_none());
        Some(Select { tenant, is_new })
    }

    /// Forgets the recorded design documents of a transitioning process's selected isolate: it may know others now.
    pub fn unlearn(&mut self, number: u64) {
        let proc = known(&mut self.procs, number);
        self.idle.join(proc.tenant.as_ref(), &[]);
        self.idle.leave(proc.tenant.as_ref(), &proc.ddocs);
        proc.ddocs.clear();
    }

    /// Removes the parked isolates of these tenants, which a process in use has ended.
    pub fn evict(&mut self, number: u64, tenants: &[Tenant]) {
        let proc = self.procs.get_mut(&number);
        let Some(proc) = proc.filter(|proc| !proc.is_idle()) else {
            return;
        };
        for isolate in proc
            .parked
            .extract_if(.., |isolate| tenants.contains(&isolate.tenant))
        {
            self.idle.leave(Some(&isolate.tenant), &isolate.ddocs);
            self.totals.isolates_evicted += 1;
        }
    }
}
