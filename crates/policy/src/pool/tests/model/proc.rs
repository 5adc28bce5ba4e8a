//! One process.

use super::*;

pub(super) struct ModelProc {
    pub(super) id: ProcId,
    pub(super) state: State,
    pub(super) tag: Option<Tenant>,
    pub(super) ddocs: Vec<DdocKey>,
    /// The isolates of other tenants: their documents, and since when they are parked, oldest first.
    pub(super) parked: Vec<(Tenant, Vec<DdocKey>, Timestamp)>,
    pub(super) isolates_max: u32,
    pub(super) is_apart: bool,
    pub(super) last_use: Timestamp,
    /// Its last holder and tenant, unless it was reset since.
    pub(super) left_by: Option<(ClientId, Tenant)>,
}

pub(super) enum State {
    Idle,
    Assigned(ClientId, Token),
    Teaching(Option<Ask>, DdocKey),
    Resetting,
    Forgetting(Option<Ask>),
}

impl ModelProc {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// The design documents that the process knows of a tenant; `None` if it does not know the tenant.
    pub(super) fn knows(&self, tenant: &Tenant) -> Option<&[DdocKey]> {
        let mut parked = self.parked.iter();
        let parked = parked.find(|(other, ..)| other == tenant);
        match &self.tag {
            Some(tag) if tag == tenant => Some(&self.ddocs),
            _ => parked.map(|(_, ddocs, _)| &ddocs[..]),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        let known = self.parked.len() + usize::from(self.tag.is_some());
        known < self.isolates_max.max(1) as usize && !self.is_apart
    }

    pub(super) fn oldest_use(&self) -> Timestamp {
        self.parked
            .first()
            .map_or(self.last_use, |(.., left)| *left)
    }

    pub(super) fn select(
        &mut self,
        tenant: Tenant,
        is_apart: bool,
        now: Timestamp,
    ) -> Option<Select> {
        if self.tag.as_ref() == Some(&tenant) {
            return None;
        }
        if let Some(before) = self.tag.replace(tenant.clone()) {
            let ddocs = std::mem::take(&mut self.ddocs);
            self.parked.push((before, ddocs, now));
        }
        let is_new = !self.parked.iter().any(|(other, ..)| *other == tenant);
        let own = |isolate: &mut (Tenant, Vec<DdocKey>, Timestamp)| isolate.0 == tenant;
        if let Some((_, ddocs, _)) = self.parked.extract_if(.., own).next() {
            self.ddocs = ddocs;
        }
        self.is_apart = is_apart;
        if is_apart {
            self.parked.clear();
        } else if self.parked.len() == self.isolates_max as usize {
            self.parked.remove(0);
        }
        self.left_by = None;
        Some(Select { tenant, is_new })
    }

    /// Whether forgetting its tenant would lose no document.
    pub(super) fn is_untaught(&self) -> bool {
        self.tag.is_some() && self.ddocs.is_empty()
    }
}
