//! The start and end of a tenant's use of a process, and their effects.
//!
//! SUMMARY   A use begins when a process is chosen or opened for a request, and ends when the process is returned or
//!           ends, or when the request is abandoned before that.
//! PROMISES  Each use that begins ends once (PM-25).
//! CALLED    When a request leaves the queue, and when a loan ends.
//! SOURCE    None.

use super::fairness::{Accounts, Standing};
use super::{Pool, RequestId, Tenant, Turn};

impl Turn<'_> {
    /// A process is held for a tenant from now on.
    pub fn begin_use(&mut self, tenant: &Tenant) {
        self.ledger.tenants.begin(tenant);
        if self.ledger.tenants.is_held_back(tenant) {
            let waiters = &mut self.pool.waiters;
            waiters.note(tenant, |state| state.is_held_back = true);
        }
        self.change_account(tenant, |accounts| accounts.begin(tenant));
    }

    /// A process is no longer held for a tenant.
    pub fn end_use(&mut self, tenant: &Tenant) {
        self.ledger.tenants.end(tenant);
        self.change_account(tenant, |accounts| accounts.end(tenant));
    }

    /// A request lost its intended process: its tenant has used nothing.
    pub fn undo_use(&mut self, id: RequestId) {
        let Some(row) = self.ledger.request(id) else {
            return;
        };
        let (tenant, begun) = (row.tenant.clone(), row.begun);
        self.ledger.tenants.end(&tenant);
        self.change_account(&tenant, |accounts| accounts.undo(&tenant, begun));
    }

    fn change_account(&mut self, tenant: &Tenant, change: impl FnOnce(&mut Accounts) -> Standing) {
        if self.pool.keeps_accounts() {
            let standing = change(&mut self.pool.accounts);
            let waiters = &mut self.pool.waiters;
            waiters.note(tenant, |state| state.standing = standing);
        }
    }

    /// The next waiter. Holds back waiters of tenants that reached their bound in another pool. The other pools follow
    /// at the end of the event, which also releases tenants no longer held back.
    pub fn next_waiter(&mut self) -> Option<RequestId> {
        self.first_free(Pool::next_waiter)
    }

    /// As [`Self::next_waiter`], among waiters with an idle process of their tag.
    pub fn next_servable(&mut self) -> Option<RequestId> {
        self.first_free(|pool| pool.waiters.next_servable(pool.accounts.full))
    }

    fn first_free(&mut self, next: impl Fn(&Pool) -> Option<RequestId>) -> Option<RequestId> {
        loop {
            let id = next(self.pool)?;
            let row = self.ledger.request(id)?;
            if !self.ledger.tenants.is_held_back(&row.tenant) {
                return Some(id);
            }
            let waiters = &mut self.pool.waiters;
            waiters.note(&row.tenant, |state| state.is_held_back = true);
        }
    }

    /// Updates the time at which accounts are compared.
    pub fn set_time(&mut self) {
        if self.pool.keeps_accounts() && self.pool.accounts.set_time(self.ledger.now) {
            let accounts = &self.pool.accounts;
            let waiters = &mut self.pool.waiters;
            waiters.note_all(|tenant, state| state.standing = accounts.standing(tenant));
        }
    }

    /// Restarts all accounts: they contain only the processes held now.
    pub fn open_accounts(&mut self) {
        self.pool.accounts = Default::default();
        self.set_time();
        if !self.pool.keeps_accounts() {
            return;
        }
        let uses: Vec<Tenant> = self.pool.uses(self.id, self.ledger).cloned().collect();
        for tenant in uses {
            self.pool.accounts.begin(&tenant);
        }
        let now = self.ledger.now;
        let rows = self.ledger.requests.values_mut();
        rows.filter(|row| row.pool == self.id)
            .for_each(|row| row.begun = now);
    }
}
